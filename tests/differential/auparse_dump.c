// SPDX-License-Identifier: Apache-2.0
/*
 * auparse_dump LOG: prints all that auparse returns for a log: the normalized event, then each record, then
 * each field with its interpreted value.
 */
#include <auparse.h>
#include <stdio.h>

/* Prints the field to which auparse_normalize() has moved the cursor, if it has found one. */
static void field(auparse_state_t *au, const char *what, int found)
{
	const char *name, *value;

	if (found != 1)
		return;
	name = auparse_get_field_name(au);
	value = auparse_interpret_field(au);
	printf("  %s: %s=%s\n", what, name ? name : "?", value ? value : "?");
}

static void word(const char *what, const char *value)
{
	if (value)
		printf("  %s: %s\n", what, value);
}

static void normalized(auparse_state_t *au)
{
	if (auparse_normalize(au, NORM_OPT_ALL)) {
		printf("  not normalized\n");
		return;
	}
	word("kind", auparse_normalize_get_event_kind(au));
	word("action", auparse_normalize_get_action(au));
	word("subject is", auparse_normalize_subject_kind(au));
	word("object is", auparse_normalize_object_kind(au));
	word("how", auparse_normalize_how(au));
	field(au, "result", auparse_normalize_get_results(au));
	field(au, "session", auparse_normalize_session(au));
	field(au, "subject", auparse_normalize_subject_primary(au));
	field(au, "acting as", auparse_normalize_subject_secondary(au));
	field(au, "object", auparse_normalize_object_primary(au));
	field(au, "and", auparse_normalize_object_secondary(au));
	field(au, "second object", auparse_normalize_object_primary2(au));
	field(au, "key", auparse_normalize_key(au));
}

int main(int argc, char **argv)
{
	auparse_state_t *au;

	if (argc != 2)
		return 2;
	au = auparse_init(AUSOURCE_FILE, argv[1]);
	if (!au)
		return 1;
	while (auparse_next_event(au) > 0) {
		const au_event_t *stamp = auparse_get_timestamp(au);

		printf("event audit(%lld.%03u:%lu), records: %u\n", (long long)stamp->sec,
		       stamp->milli, stamp->serial, auparse_get_num_records(au));
		normalized(au);
		auparse_first_record(au);
		do {
			const char *type = auparse_get_type_name(au);

			printf(" %s, fields: %u\n", type ? type : "?", auparse_get_num_fields(au));
			auparse_first_field(au);
			do {
				const char *name = auparse_get_field_name(au);
				const char *value = auparse_interpret_field(au);

				printf("  %s=%s\n", name ? name : "?", value ? value : "?");
			} while (auparse_next_field(au) > 0);
		} while (auparse_next_record(au) > 0);
	}
	auparse_destroy(au);
	return fflush(stdout) ? 1 : 0;
}
