/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the end of a call takes out of its slot, into the event. */
#ifndef TOLLGATE_TAKE_BPF_H
#define TOLLGATE_TAKE_BPF_H

/*
 * Puts the items into the tail of the event, where tests and user space look for them. Their watches
 * have been compared.
 */
__noinline int seen_take(struct scratch *s, struct seen *seen)
{
	if (!s || !seen)
		return 0;
	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		struct wire_object *from = &seen->item[i];
		struct wire_object *to = tail_at(s, s->used);
		void *text;
		__u32 len;

		if (i >= seen->items)
			break;
		*to = *from;
		s->object[i].at = s->used;
		s->used += sizeof(*to);
		if (from->flags & WIRE_OBJECT_NAMED) {
			len = from->name_len & (WIRE_NAME_BYTES - 1);
			text = &seen->text[seen->name_at[i] & (SEEN_TEXT - 1)];
			if (len <= SHORT_TEXT)
				copy_words(tail_at(s, s->used), text, len, SHORT_TEXT);
			else if (bpf_probe_read_kernel(tail_at(s, s->used), len, text))
				count_cut(WIRE_CUT_NAME);
			s->used += (len + 7) & ~7U;
		}
		if (tlg_context)
			take_path(s, seen, i);
	}
	s->event.objects = seen->items;
	return 0;
}

/* Puts the socket address behind all else. */
static __always_inline void seen_append_address(struct scratch *s, const struct seen *seen)
{
	__u32 len = seen->address_len;

	if (!len || len > SEEN_ADDRESS)
		return;
	if (bpf_probe_read_kernel(tail_at(s, s->used), len, seen->address))
		return;
	s->event.sockaddr_len = len;
	s->used += len;
}

#endif /* TOLLGATE_TAKE_BPF_H */
