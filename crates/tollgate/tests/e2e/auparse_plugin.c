// SPDX-License-Identifier: Apache-2.0
/*
 * A plugin in the usual form: feeds its input to auparse, and writes a line for each event to a file: type of the
 * first record, serial, number of records, key.
 */
#include <auparse.h>
#include <stdio.h>
#include <unistd.h>

static void ready(auparse_state_t *au, auparse_cb_event_t what, void *out)
{
	const char *type, *key = "-";

	if (what != AUPARSE_CB_EVENT_READY)
		return;
	auparse_first_record(au);
	type = auparse_get_type_name(au);
	fprintf(out, "%s %lu %u ", type ? type : "?", auparse_get_serial(au),
		auparse_get_num_records(au));
	if (auparse_find_field(au, "key"))
		key = auparse_interpret_field(au);
	fprintf(out, "%s\n", key);
}

int main(int argc, char **argv)
{
	char buffer[4096];
	auparse_state_t *au;
	ssize_t size;
	FILE *out;

	if (argc != 2)
		return 2;
	out = fopen(argv[1], "a");
	au = auparse_init(AUSOURCE_FEED, NULL);
	if (!out || !au)
		return 1;
	auparse_add_callback(au, ready, out, NULL);
	while ((size = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0)
		auparse_feed(au, buffer, size);
	auparse_flush_feed(au);
	auparse_destroy(au);
	return fclose(out) ? 1 : 0;
}
