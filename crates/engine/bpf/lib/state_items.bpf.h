/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What hooks add to the state of a syscall: objects with their names, and watches that they match. */
#ifndef TOLLGATE_LIB_STATE_ITEMS_BPF_H
#define TOLLGATE_LIB_STATE_ITEMS_BPF_H

#include "wire.h"
#include "lib/fs_filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/watch.bpf.h"

#define SHORT_TEXT \
	64 /* names up to this length are copied by words, which is faster than a helper */

/* Stores the text of the working directory, which the syscall or another task may change. */
__noinline int state_save_cwd(struct syscall_state *state)
{
	struct task_struct *task = current();
	struct fs_struct *fs = FOLLOW(task_struct, task, fs);
	struct scratch *s = scratch();

	if (!s || !state || state->text_used > STATE_TEXT_BYTES - 1)
		return 0;
	s->used = 0;
	s->tree_version = 0;
	state->cwd_deleted = append_path(s, task, fs->pwd.dentry, fs->pwd.mnt, PATH_CWD);
	if (s->used >= WIRE_NAME_BYTES ||
	    bpf_probe_read_kernel(&state->text[state->text_used & (STATE_TEXT_BYTES - 1)],
				  s->used & (WIRE_NAME_BYTES - 1), tail_at(s, 0)))
		return 0;
	state->cwd_at = state->text_used;
	state->cwd_len = s->used;
	state->cwd_saved = 1;
	state->text_used += s->used;
	return 0;
}

/*
 * Adds a PATH item without name and inode. The working directory is that of the first item: see
 * audit_alloc_name().
 */
static __always_inline struct wire_object *state_add_item(struct syscall_state *state, __u32 part)
{
	__u32 at = state->items;
	struct wire_object *item;

	if (at >= WIRE_ITEMS) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	if (!at && shares_cwd(current()))
		state_save_cwd(state);
	barrier_var(at); /* the verifier of v6.1 loses bounds of spilled registers */
	at &= WIRE_ITEMS - 1;
	item = &state->item[at];
	item->name_len = 0;
	item->flags = 0;
	item->effect = part;
	item->lookup = WIRE_LOOKUP_HOOKED;
	item->named_by = 0;
	item->path_len = 0;
	state->filename[at] = 0;
	state->dir[at] = 0;
	state->last[at] = 0;
	state->items = at + 1;
	return item;
}

/* Space for the name of the last item. */
static __always_inline __u8 *state_text_room(struct syscall_state *state)
{
	__u32 at = state->text_used;

	if (at > STATE_TEXT_BYTES - 1) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	return &state->text[at & (STATE_TEXT_BYTES - 1)];
}

/* Records the name written to that space. */
static __always_inline void state_commit_name(struct syscall_state *state, struct wire_object *item,
					      __u32 len, __u32 flags)
{
	state->name_at[(state->items - 1) & (WIRE_ITEMS - 1)] = state->text_used;
	state->text_used += len;
	item->name_len = len;
	item->flags |= WIRE_OBJECT_NAMED | flags;
}

#define ONES 0x0101010101010101ULL /* 1 in each byte of a word */

/*
 * Copies the text of a struct filename by words, up to 7 bytes too many. Returns its length with
 * the zero byte, or 0 if it is longer than SHORT_TEXT. The kernel's buffer is longer than that.
 */
static __always_inline long copy_short_text(__u64 *to, __u64 from)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast) &&
	    bpf_probe_read_kernel(to, SHORT_TEXT, (void *)from))
		return 0;
#pragma unroll
	for (__u32 i = 0; i < SHORT_TEXT / 8; i++) {
		__u64 word = bpf_ksym_exists(bpf_rdonly_cast) ? LOAD_WORD(from + 8 * i) : to[i];
		__u64 zeros = (word - ONES) & ~word & ONES << 7;

		to[i] = word;
		/* The bytes up to the first zero, counted by the multiplication. */
		if (zeros)
			return 8 * i + ((((zeros & -zeros) - 1) & ONES) * ONES >> 56);
	}
	return 0;
}

/* Sets the name of the last item to the text of a struct filename. */
static __always_inline void state_copy_name(struct syscall_state *state, struct wire_object *item,
					    __u64 filename, const void *text)
{
	__u8 *room = state_text_room(state);
	long len;

	if (!room)
		return;
	len = copy_short_text((__u64 *)room, (__u64)text);
	if (!len)
		len = bpf_probe_read_kernel_str(room, WIRE_NAME_BYTES, text);
	if (len <= 0) {
		count_truncated(WIRE_TRUNC_NAME);
		return;
	}
	state->filename[(state->items - 1) & (WIRE_ITEMS - 1)] = filename;
	state_commit_name(state, item, len - 1, WIRE_OBJECT_KERNEL);
}

/* Sets the name of the last item to a name that the kernel copied. */
static __always_inline void state_set_name(struct syscall_state *state, struct wire_object *item,
					   const struct filename *filename)
{
	state_copy_name(state, item, (__u64)filename, FOLLOW(filename, filename, name));
}

/* Adds an item with a name that the kernel copied. */
static __always_inline struct wire_object *state_add_named(struct syscall_state *state, __u32 part,
							   const struct filename *filename)
{
	struct wire_object *item = state_add_item(state, part);

	if (item)
		state_set_name(state, item, filename);
	return item;
}

/*
 * Adds the object of a dentry below a directory that the syscall named: audit_inode_child(). The
 * kernel's hash of a name is keyed with its directory, so it tells names in one directory apart.
 * If a lower file system of an overlay has another directory, nothing is added.
 */
static __always_inline struct wire_object *state_add_child(struct syscall_state *state, __u32 part,
							   __u64 dir, const struct dentry *dentry)
{
	__u64 last = (__u64)dentry->d_name.len << 32 | dentry->d_name.hash;
	struct wire_object *item;
	__u32 parent = WIRE_ITEMS;

	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		if (i >= state->items)
			break;
		if (state->dir[i] != dir)
			continue;
		if (parent == WIRE_ITEMS || state->last[i] == last)
			parent = i;
		if (state->last[i] == last)
			break;
	}
	if (parent == WIRE_ITEMS)
		return NULL;
	item = state_add_item(state, part);
	if (!item)
		return NULL;
	item->named_by = parent + 1;
	if (tlg_fs_filter)
		item->flags =
			state->item[parent & (WIRE_ITEMS - 1)].flags & WIRE_OBJECT_FS_EXCLUDED;
	return item;
}

static __always_inline void item_set_inode(struct wire_object *item, const struct inode *inode)
{
	if (!inode)
		return;
	if (is_fs_excluded(inode->i_sb)) {
		item->flags |= WIRE_OBJECT_FS_EXCLUDED;
		return;
	}
	copy_inode(&item->inode, inode);
	item->flags |= WIRE_OBJECT_INODE;
}

/* Matches `s->object[0]` against watches; sets `s->hits`. */
__noinline int match_watches(struct scratch *s, __u32 leaves)
{
	struct object *object;
	__u32 names_count;

	if (!s)
		return 0;
	object = &s->object[0];
	s->hits = 0;
	names_count = watch_ancestors(s, object->dentry, object->mnt, HIT_LEAF, 0);
	if (object->last)
		watch_last(s, object->dentry, object->last);
	if (names_count)
		watch_prefixes(s, leaves, 0);
	return 0;
}

static __always_inline void state_add_hit(struct syscall_state *state, __u32 hit)
{
	struct hits hits = { .count = &state->hits, .list = state->hit };

	add_hit(&hits, hit);
}

/* Adds the hits of match_watches() to the state. */
static __always_inline void state_save_hits(struct syscall_state *state, const struct scratch *s)
{
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= s->hits)
			break;
		state_add_hit(state, s->hit[i]);
	}
}

/* Gives the hits in the state to the filter. */
static __always_inline void state_load_hits(struct scratch *s, const struct syscall_state *state)
{
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= state->hits)
			break;
		s->hit[i] = state->hit[i];
	}
	s->hits = state->hits;
}

/* Adds a hit if the inode itself is watched. For objects in a directory that has been matched. */
static __always_inline void state_match_inode(struct syscall_state *state,
					      const struct inode *inode)
{
	struct wire_inode_key key = { .ino = inode->i_ino, .half = state->epoch & 1 };
	struct wire_inode_watch *watched;

	if (!bloom_test(tlg_inode_bloom, key.half, inode_fingerprint(key.ino, inode->i_sb->s_dev)))
		return;
	key.dev = watch_dev((__u64)inode);
	watched = bpf_map_lookup_elem(&tlg_watch_inode, &key);
	if (watched && watched->generation == inode->i_generation && !is_fs_excluded(inode->i_sb))
		state_add_hit(state, watched->watch | shared_flag(watched->watch) | HIT_LEAF);
}

#endif /* TOLLGATE_LIB_STATE_ITEMS_BPF_H */
