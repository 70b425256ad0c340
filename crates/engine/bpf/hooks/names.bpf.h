/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hooks of the syscalls that create and remove names. The kernel's function for each syscall has
 * the names as the kernel copied them; path_parentat() has the directory of each; the functions
 * that follow have the objects that are created or removed. All run in the calling task.
 */
#ifndef TOLLGATE_HOOKS_NAMES_BPF_H
#define TOLLGATE_HOOKS_NAMES_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/form.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_paths.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_prefilter.bpf.h"

#define RENAME_EXCHANGE 2 /* include/uapi/linux/fs.h */

#define ALIASES_MAX	4 /* names of an inode that are compared with watched directories */

/*
 * Starts the list of items with the names of the syscall, in the order of the kernel's getname().
 * Returns the state of the syscall, or NULL.
 */
static __always_inline struct syscall_state *start_items(const struct filename *first,
							 const struct filename *second)
{
	struct task_struct *task = current();
	struct wire_syscall *syscall;
	__u32 key = hooked_syscall(task, &syscall);
	struct syscall_state *state = NULL;

	if (key == WIRE_NO_SYSCALL || !(syscall->hooks & WIRE_HOOKS_NAMES))
		return NULL;
	if (key >= WIRE_URING_FIRST)
		state = state_find(task, key, &syscall);
	if (!state)
		state = state_claim(task, key, syscall);
	if (!state)
		return NULL;
	if (!IS_ERR(first))
		state_add_named(state, WIRE_NAMETYPE_UNKNOWN, first);
	if (second && !IS_ERR(second))
		state_add_named(state, WIRE_NAMETYPE_UNKNOWN, second);
	return state;
}

/*
 * The same for the old and the new name of a syscall. Until v7.0 the kernel's getname() of the new
 * one comes first: the compiler evaluates the last argument first.
 */
static __always_inline struct syscall_state *start_pair(const struct filename *old,
							const struct filename *new)
{
	return has_form(WIRE_FORM_NAMES_IN_ORDER) ? start_items(old, new) : start_items(new, old);
}

/* Item of the old name. */
#define OLD_NAME (has_form(WIRE_FORM_NAMES_IN_ORDER) ? 0 : 1)

/* Starts the list with the argument `index`, at the entry of a function. */
static __always_inline int start_name(__u64 *ctx, const int index)
{
	struct function_call call;

	if (at_entry(&call, ctx, index + 1))
		start_items(ARG(call, index, filename), NULL);
	return 0;
}

/* fentry on do_unlinkat(dfd, name), v5.5; filename_unlinkat() since v7.0. */
SEC("fentry/do_unlinkat")
int names_unlink(__u64 *ctx)
{
	return start_name(ctx, 1);
}

/* fentry on do_rmdir(dfd, name), v5.5; filename_rmdir() since v7.0. */
SEC("fentry/do_rmdir")
int names_rmdir(__u64 *ctx)
{
	return start_name(ctx, 1);
}

/* fentry on do_mkdirat(dfd, name, mode), v5.15; filename_mkdirat() since v7.0. */
SEC("fentry/do_mkdirat")
int names_mkdir(__u64 *ctx)
{
	return start_name(ctx, 1);
}

/* fentry on do_mknodat(dfd, name, mode, dev), v5.15; filename_mknodat() since v7.0. */
SEC("fentry/do_mknodat")
int names_mknod(__u64 *ctx)
{
	return start_name(ctx, 1);
}

/* fentry on do_symlinkat(from, newdfd, to), v5.15; filename_symlinkat() since v7.0. */
SEC("fentry/do_symlinkat")
int names_symlink(__u64 *ctx)
{
	struct function_call call;

	if (at_entry(&call, ctx, 3))
		start_pair(ARG(call, 0, filename), ARG(call, 2, filename));
	return 0;
}

/* fentry on do_linkat(olddfd, old, newdfd, new, flags), v5.15; filename_linkat() since v7.0. */
SEC("fentry/do_linkat")
int names_link(__u64 *ctx)
{
	struct syscall_state *state;
	struct function_call call;

	if (!at_entry(&call, ctx, 4))
		return 0;
	state = start_pair(ARG(call, 1, filename), ARG(call, 3, filename));
	if (state)
		state->links = state->items == 2 ? LINK_NAMED : LINK_NONE;
	return 0;
}

/* The dentry with this entry in the list of names of an inode. */
static __always_inline __u64 dentry_of_alias(__u64 alias)
{
	if (bpf_core_field_exists(struct dentry___v7_3, d_alias))
		return alias - bpf_core_field_offset(struct dentry___v7_3, d_alias);
	return alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
}

/*
 * fentry on inode_owner_or_capable(idmap, inode), v5.12 form: the old object of a hard link that
 * protected_hardlinks may refuse: may_linkat(). A refused link passes no other hook. The names of
 * the inode are those that the kernel has in memory, among them the one that was looked up; more
 * than one cannot be told apart. An overlay calls this for inodes of its upper file system.
 */
SEC("fentry/inode_owner_or_capable")
int names_linked(__u64 *ctx)
{
	struct wire_syscall *syscall;
	struct syscall_state *state;
	const struct inode *inode;
	struct function_call call;
	struct wire_object *item;
	__u64 alias, dentry;
	struct scratch *s;

	if (!at_entry(&call, ctx, 2))
		return 0;
	state = state_current(&syscall);
	s = scratch();
	if (!state || !s || state->links != LINK_NAMED)
		return 0;
	inode = ARG(call, 1, inode);
	item = &state->item[OLD_NAME];
	if (item->effect != WIRE_NAMETYPE_UNKNOWN ||
	    (__u64)inode->i_sb != LOAD(vfsmount, state->mnt, mnt_sb))
		return 0;
	state->links = LINK_FOUND;
	state->hits_before_link = state->hits;
	item->effect = WIRE_NAMETYPE_NORMAL;
	item_set_inode(item, inode);
	alias = LOAD(inode, (__u64)inode, i_dentry.first);
	dentry = dentry_of_alias(alias);
	if (alias && !LOAD(hlist_node, alias, next))
		state_save_item_path(state, OLD_NAME, (struct dentry *)dentry, state->mnt);
	if (!uses_watches(syscall) || item->flags & WIRE_OBJECT_FS_EXCLUDED)
		return 0;
	select_watches(s, syscall);
	for (__u32 i = 0; i < ALIASES_MAX && alias; i++) {
		s->object[0].dentry = dentry_of_alias(alias);
		s->object[0].mnt = state->mnt;
		s->object[0].last = 0;
		match_watches(s, 1);
		state_save_hits(state, s);
		alias = LOAD(hlist_node, alias, next);
	}
	if (alias)
		count_truncated(WIRE_TRUNC_WATCHES);
	return 0;
}

/* fentry on do_renameat2(olddfd, from, newdfd, to, flags), v5.11; filename_renameat2() since v7.0. */
SEC("fentry/do_renameat2")
int names_rename(__u64 *ctx)
{
	struct function_call call;

	if (at_entry(&call, ctx, 4))
		start_pair(ARG(call, 1, filename), ARG(call, 3, filename));
	return 0;
}

/*
 * Forgets what the names of a syscall led to. After ESTALE the kernel looks all of them up once
 * more: retry_estale() in include/linux/namei.h.
 */
static __always_inline void forget_lookups(struct syscall_state *state)
{
	__u32 names = state->items > 1 && state->filename[1] ? 2 : 1;

	for (__u32 i = 0; i < 2; i++) {
		state->dir[i] = state->last[i] = 0;
		state->item[i].effect = WIRE_NAMETYPE_UNKNOWN;
		state->item[i].flags &= WIRE_OBJECT_NAMED | WIRE_OBJECT_KERNEL;
	}
	state->items = names;
	state->hits = state->deletes_allowed = 0;
	if (state->links)
		state->links = LINK_NAMED;
}

/*
 * fexit on path_parentat(nd, flags, parent), v5.5: the directory of a name that is created or
 * removed. bind() of a socket to a path also comes here, without an earlier name. Since v6.17
 * the compiler inlines it: __filename_parentat(dfd, name, flags, parent, last, type, root).
 */
SEC("fexit/path_parentat")
int names_parent(__u64 *ctx)
{
	struct task_struct *task;
	const struct inode *inode;
	struct nameidata *nd;
	struct wire_object *item;
	struct wire_syscall *syscall;
	const struct filename *name;
	const struct dentry *dentry;
	const struct vfsmount *mnt;
	const struct path *path;
	const struct qstr *last;
	struct scratch *s;
	struct syscall_state *state;
	struct function_call call;
	__u32 key, at;

	if (!(has_form(WIRE_FORM_PARENT_BY_NAME) ? at_return(&call, ctx, 7, INSIDE_LOOKUP)
						 : at_return(&call, ctx, 3, INSIDE_LOOKUP)))
		return call.skips_return;
	if ((__u32)call.result)
		return 0;
	task = current();
	key = hooked_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL || !(syscall->hooks & WIRE_HOOKS_NAMES))
		return 0;
	if (has_form(WIRE_FORM_PARENT_BY_NAME)) {
		name = ARG(call, 1, filename);
		path = ARG(call, 3, path);
		last = ARG(call, 4, qstr);
	} else {
		nd = ARG(call, 0, nameidata);
		path = ARG(call, 2, path);
		name = FOLLOW(nameidata, nd, name);
		last = &nd->last;
	}
	dentry = FOLLOW(path, path, dentry);
	mnt = FOLLOW(path, path, mnt);
	inode = dentry->d_inode;
	state = state_find_or_claim(task, key, &syscall);
	s = scratch();
	if (!state || !s)
		return 0;
	for (at = 0; at < WIRE_ITEMS; at++)
		if (at >= state->items || state->filename[at] == (__u64)name)
			break;
	if (at >= state->items && !state_add_named(state, WIRE_NAMETYPE_UNKNOWN, name))
		return 0;
	/* One pointer for both names: audit_reusename(). */
	if (!at && state->items > 1 && state->filename[1] == (__u64)name && state->dir[0] &&
	    !state->dir[1])
		at = 1;
	/* Through memory: the verifier forgets the value and checks the rest once. */
	s->index = at;
	if (state->dir[at & (WIRE_ITEMS - 1)]) {
		/* Of two names with one pointer it is not known which one is looked up once more. */
		if (state->filename[0] == state->filename[1])
			distrust_hits(state->hit);
		else
			forget_lookups(state);
	}
	at = s->index & (WIRE_ITEMS - 1);
	item = &state->item[at];
	item->effect = WIRE_NAMETYPE_PARENT;
	item_set_inode(item, inode);
	state->dir[at] = (__u64)inode;
	state->last[at] = (__u64)last->len << 32 | last->hash;
	state->mnt = (__u64)mnt;
	state_save_item_path(state, at, dentry, (__u64)mnt);
	if (!uses_watches(syscall))
		return 0;
	select_watches(s, syscall);
	watch_prefilter(s, dentry, (__u64)mnt, (__u64)mnt->mnt_root, (__u64)last, 2);
	state_save_hits(state, s);
	return 0;
}

/*
 * fexit on may_delete(idmap, dir, victim, isdir), v5.5; may_delete_dentry() since v7.0: an object that is about to be removed,
 * renamed or replaced.
 */
SEC("fexit/may_delete")
int names_delete(__u64 *ctx)
{
	struct wire_syscall *syscall;
	const struct dentry *dentry;
	struct syscall_state *state;
	struct function_call call;
	struct wire_object *item;
	const struct inode *inode;

	if (!at_return(&call, ctx, 4, INSIDE_CHECK))
		return call.skips_return;
	state = state_current(&syscall);
	dentry = ARG(call, 2, dentry);
	inode = FOLLOW(dentry, dentry, d_inode);
	if (!state || !inode)
		return 0;
	item = state_add_child(state, WIRE_NAMETYPE_DELETE, call.arg[1], dentry);
	if (!item)
		return 0;
	item_set_inode(item, inode);
	state_save_last_path(state, dentry, state->mnt);
	if (uses_watches(syscall))
		state_match_inode(state, inode);
	if (!(__u32)call.result)
		state->deletes_allowed++;
	return 0;
}

/*
 * Matches a name that now leads to a new object, if the directory or the name matched a watch, and it
 * may be the last component of one: the inode becomes one of the watch.
 */
static __always_inline void match_created(const struct wire_syscall *syscall,
					  const struct syscall_state *state,
					  const struct dentry *dentry)
{
	struct scratch *s = scratch();

	if (!s || !state->hits || !uses_watches(syscall))
		return;
	select_watches(s, syscall);
	if (!bloom_test(tlg_name_bloom, s->half, dentry_fingerprint(dentry)))
		return;
	s->object[0].dentry = (__u64)dentry;
	s->object[0].mnt = state->mnt;
	s->object[0].last = 0;
	match_watches(s, 1);
}

/* Adds an object to be created. The kernel lists it whether or not creation succeeds. */
static __always_inline int add_created(__u64 dir, const struct dentry *dentry, int result)
{
	struct wire_syscall *syscall;
	struct syscall_state *state = state_current(&syscall);
	struct wire_object *item;

	if (!state)
		return 0;
	item = state_add_child(state, WIRE_NAMETYPE_CREATE, dir, dentry);
	if (!item)
		return 0;
	item_set_inode(item, FOLLOW(dentry, dentry, d_inode));
	state_save_last_path(state, dentry, state->mnt);
	if (!result)
		match_created(syscall, state, dentry);
	return 0;
}

/* The same for a function (idmap, dir, dentry, ...) that has returned an error or 0. */
static __always_inline int add_created_in(__u64 *ctx)
{
	struct function_call call;

	if (!at_form_return(&call, ctx, 3, INSIDE_CHANGE))
		return call.skips_return;
	return add_created(call.arg[1], ARG(call, 2, dentry), call.result);
}

/*
 * fexit on vfs_create(idmap, dir, dentry, mode, want_excl), v5.12 form: mknod of a regular file.
 * Since v6.19 vfs_create(idmap, dentry, mode, delegated).
 */
SEC("fexit/vfs_create")
int created_file(__u64 *ctx)
{
	struct function_call call;

	if (has_form(WIRE_FORM_CREATE_IN_PARENT)) {
		const struct dentry *dentry;

		if (!at_form_return(&call, ctx, 2, INSIDE_CHANGE))
			return call.skips_return;
		dentry = ARG(call, 1, dentry);
		return add_created((__u64)dentry->d_parent->d_inode, dentry, call.result);
	}
	return add_created_in(ctx);
}

/*
 * fexit on vfs_mkdir(idmap, dir, dentry, mode), v5.12 form. Since v6.15 it returns the dentry of
 * the directory or an error, since v6.19 it has one argument more. After an error the caller's
 * dentry may be in no list any more; its memory stays until this program ends.
 */
SEC("fexit/vfs_mkdir")
int created_dir(__u64 *ctx)
{
	struct function_call call;

	if (!has_form(WIRE_FORM_MKDIR_DENTRY))
		return add_created_in(ctx);
	if (!at_form_return(&call, ctx, 3, INSIDE_CHANGE))
		return call.skips_return;
	return add_created(call.arg[1], ARG(call, 2, dentry), IS_ERR((void *)call.result));
}

/* fexit on vfs_mknod(idmap, dir, dentry, mode, dev), v5.12 form; one argument more since v6.19. */
SEC("fexit/vfs_mknod")
int created_node(__u64 *ctx)
{
	return add_created_in(ctx);
}

/* fexit on vfs_symlink(idmap, dir, dentry, oldname), v5.12 form; one argument more since v6.19. */
SEC("fexit/vfs_symlink")
int created_symlink(__u64 *ctx)
{
	return add_created_in(ctx);
}

/* Adds the object of the old name of a hard link, if it has none. */
static __always_inline void add_linked(struct syscall_state *state,
				       const struct wire_syscall *syscall,
				       const struct dentry *dentry)
{
	struct wire_object *item = &state->item[OLD_NAME];
	struct scratch *s = scratch();

	if (!s || item->effect != WIRE_NAMETYPE_UNKNOWN)
		return;
	item->effect = WIRE_NAMETYPE_NORMAL;
	item_set_inode(item, FOLLOW(dentry, dentry, d_inode));
	state_save_item_path(state, OLD_NAME, dentry, state->mnt);
	if (!uses_watches(syscall) || item->flags & WIRE_OBJECT_FS_EXCLUDED)
		return;
	select_watches(s, syscall);
	watch_prefilter(s, dentry, state->mnt, LOAD(vfsmount, state->mnt, mnt_root), 0, 1);
	state_save_hits(state, s);
}

/* fexit on vfs_link(old_dentry, idmap, dir, new_dentry, delegated), v5.12 form. */
SEC("fexit/vfs_link")
int created_link(__u64 *ctx)
{
	const struct dentry *dentry, *link;
	struct wire_syscall *syscall;
	struct syscall_state *state;
	struct function_call call;
	struct wire_object *item;
	struct scratch *s;

	if (!at_return(&call, ctx, 5, INSIDE_CHANGE))
		return call.skips_return;
	state = state_current(&syscall);
	s = scratch();
	if (!state || !s)
		return 0;
	dentry = ARG(call, 0, dentry);
	link = ARG(call, 3, dentry);
	if (state->links == LINK_FOUND) {
		state->links = LINK_NAMED;
		state->hits = state->hits_before_link;
		state->item[OLD_NAME].effect = WIRE_NAMETYPE_UNKNOWN;
	}
	item = state_add_child(state, WIRE_NAMETYPE_CREATE, call.arg[2], link);
	if (!item)
		return 0;
	if (!(__u32)call.result)
		item_set_inode(item, FOLLOW(dentry, dentry, d_inode));
	state_save_last_path(state, link, state->mnt);
	if (!(__u32)call.result)
		match_created(syscall, state, link);
	add_linked(state, syscall, dentry);
	return 0;
}

/* The directory of a renamed object: `old` or `new`. */
#define RENAME_DIR(rd, which)                                  \
	(bpf_core_field_exists(struct renamedata, which##_dir) \
		 ? (__u64)FOLLOW(renamedata, rd, which##_dir)  \
		 : LOAD(dentry, LOAD(renamedata___v6_17, rd, which##_parent), d_inode))

/* fexit on vfs_rename(rd), v5.12 form. A replaced object has passed may_delete(). */
SEC("fexit/vfs_rename")
int created_rename(__u64 *ctx)
{
	const struct dentry *old, *new;
	struct wire_syscall *syscall;
	const struct renamedata *rd;
	struct syscall_state *state;
	struct function_call call;
	struct wire_object *item;
	__u64 new_dir;

	if (!at_return(&call, ctx, 1, INSIDE_CHANGE))
		return call.skips_return;
	state = state_current(&syscall);
	if (!state || !state->deletes_allowed)
		return 0; /* nothing changes if both names are the same object */
	rd = ARG(call, 0, renamedata);
	old = FOLLOW(renamedata, rd, old_dentry);
	new = FOLLOW(renamedata, rd, new_dentry);
	new_dir = RENAME_DIR(rd, new);
	if ((__u32)call.result) {
		/* The kernel lists the new name before it refuses, unless the name exists. */
		if (state->deletes_allowed == 1 && !new->d_inode &&
		    state_add_child(state, WIRE_NAMETYPE_CREATE, new_dir, new))
			state_save_last_path(state, new, state->mnt);
		return 0;
	}
	/* The dentries have been exchanged: each now has the other's name. */
	item = state_add_child(state, WIRE_NAMETYPE_CREATE, new_dir, old);
	if (item) {
		item_set_inode(item, old->d_inode);
		state_save_last_path(state, old, state->mnt);
		match_created(syscall, state, old);
	}
	if (!(rd->flags & RENAME_EXCHANGE))
		return 0;
	item = state_add_child(state, WIRE_NAMETYPE_CREATE, RENAME_DIR(rd, old), new);
	if (item) {
		item_set_inode(item, new->d_inode);
		state_save_last_path(state, new, state->mnt);
		match_created(syscall, state, new);
	}
	return 0;
}

#endif /* TOLLGATE_HOOKS_NAMES_BPF_H */
