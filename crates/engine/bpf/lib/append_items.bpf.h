/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies the state of a syscall into its event. */
#ifndef TOLLGATE_LIB_APPEND_ITEMS_BPF_H
#define TOLLGATE_LIB_APPEND_ITEMS_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_paths.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"

/*
 * Appends the items to the event, where the filter and user space read them. Their watches have
 * been matched.
 */
__noinline int append_items(struct scratch *s, struct syscall_state *state)
{
	if (!s || !state)
		return 0;
	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		struct wire_object *from = &state->item[i];
		struct wire_object *to = tail_at(s, s->used);
		void *text;
		__u32 len;

		if (i >= state->items)
			break;
		*to = *from;
		s->object[i].at = s->used;
		s->used += sizeof(*to);
		if (from->flags & WIRE_OBJECT_NAMED) {
			len = from->name_len & (WIRE_NAME_BYTES - 1);
			text = &state->text[state->name_at[i] & (STATE_TEXT_BYTES - 1)];
			if (len <= SHORT_TEXT)
				copy_words(tail_at(s, s->used), text, len, SHORT_TEXT);
			else if (bpf_probe_read_kernel(tail_at(s, s->used), len, text))
				count_truncated(WIRE_TRUNC_NAME);
			s->used += (len + 7) & ~7U;
		}
		if (tlg_context)
			append_item_path(s, state, i);
	}
	s->event.objects = state->items;
	return 0;
}

/* Appends the socket address. */
static __always_inline void append_sockaddr(struct scratch *s, const struct syscall_state *state)
{
	__u32 len = state->address_len;

	if (!len || len > SOCKADDR_BYTES)
		return;
	if (bpf_probe_read_kernel(tail_at(s, s->used), len, state->address))
		return;
	s->event.sockaddr_len = len;
	s->used += len;
}

#endif /* TOLLGATE_LIB_APPEND_ITEMS_BPF_H */
