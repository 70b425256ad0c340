/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Resolved paths of a syscall's objects, with symbolic links followed and mounts crossed. Records
 * have no field for them, so they are only read if the loader sets tlg_context.
 *
 * Hooks inside the kernel see an object before it is renamed or removed: they walk its path and
 * store it beside the state of the syscall.
 */
#ifndef TOLLGATE_LIB_STATE_PATHS_BPF_H
#define TOLLGATE_LIB_STATE_PATHS_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/object.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/syscall_state.bpf.h"

#define STATE_PATH_BYTES 4096 /* bytes of all paths of one syscall; a power of two */

struct state_paths {
	__u8 text[STATE_PATH_BYTES + WIRE_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* tlg_slots if hooks record paths */
	__type(key, __u32);
	__type(value, struct state_paths);
} tlg_state_paths SEC(".maps");

/* Paths beside the slot of a syscall, or NULL. */
static __always_inline struct state_paths *state_paths_of(const struct syscall_state *state)
{
	__u32 index = state->index;

	return bpf_map_lookup_elem(&tlg_state_paths, &index);
}

/* Stores the path of `s->object[0]` with an item. */
__noinline int state_save_path(struct scratch *s, struct syscall_state *state, __u32 at)
{
	struct state_paths *paths;
	struct wire_object *item;
	__u32 removed, used;

	if (!s || !state)
		return 0;
	paths = state_paths_of(state);
	used = state->path_used;
	if (!paths || used > STATE_PATH_BYTES - 1) {
		count_truncated(WIRE_TRUNC_PATH);
		return 0;
	}
	s->used = 0;
	removed = walk_path(s, 0);
	if (s->used >= WIRE_NAME_BYTES) {
		count_truncated(WIRE_TRUNC_PATH); /* a truncated path names another object */
		return 0;
	}
	if (bpf_probe_read_kernel(&paths->text[used & (STATE_PATH_BYTES - 1)],
				  s->used & (WIRE_NAME_BYTES - 1), tail_at(s, 0)))
		return 0;
	at &= WIRE_ITEMS - 1;
	item = &state->item[at];
	/* A created object need not be in the tree yet, or any more. */
	set_path_len(s, item, 0, removed && item->effect == WIRE_NAMETYPE_NORMAL);
	state->path_at[at] = used;
	state->path_used = used + s->used;
	return 0;
}

/* Stores the path of a dentry with an item if tlg_context is set. */
static __always_inline void state_save_item_path(struct syscall_state *state, __u32 at,
						 const struct dentry *dentry, __u64 mnt)
{
	struct scratch *s;

	if (!tlg_context)
		return;
	s = scratch();
	if (!s || !mnt)
		return;
	s->object[0].dentry = (__u64)dentry;
	s->object[0].mnt = mnt;
	state_save_path(s, state, at);
}

/* The same for the last item. */
static __always_inline void state_save_last_path(struct syscall_state *state,
						 const struct dentry *dentry, __u64 mnt)
{
	state_save_item_path(state, state->items - 1, dentry, mnt);
}

/* Appends the path of an item after its name. */
__noinline int append_item_path(struct scratch *s, const struct syscall_state *state, __u32 at)
{
	const struct wire_object *item;
	struct state_paths *paths;

	if (!s || !state)
		return 0;
	at &= WIRE_ITEMS - 1;
	item = &state->item[at];
	if (!item->path_len)
		return 0;
	paths = state_paths_of(state);
	if (!paths ||
	    bpf_probe_read_kernel(tail_at(s, s->used), item->path_len & (WIRE_NAME_BYTES - 1),
				  &paths->text[state->path_at[at] & (STATE_PATH_BYTES - 1)]))
		count_truncated(WIRE_TRUNC_PATH);
	s->used += (item->path_len + 7) & ~7U;
	return 0;
}

#endif /* TOLLGATE_LIB_STATE_PATHS_BPF_H */
