/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hooks of the syscalls that change or use an object without opening it: the narrow function
 * behind each syscall has the object before the change.
 *
 * The kernel's copy of the name is gone by then, and the function that made it also serves stat
 * and access, which must not become slower. So the name is read from user memory and verified:
 * resolved as text from its start, it must give the path of the object. If it does not, because of
 * a symbolic link or a change by another thread, the path is recorded as the name.
 */
#ifndef TOLLGATE_HOOKS_ATTRIBUTE_BPF_H
#define TOLLGATE_HOOKS_ATTRIBUTE_BPF_H

#include "wire.h"
#include "lib/fs_filter.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/path.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_paths.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_prefilter.bpf.h"

/* s_magic of file systems that call functions for an object of another: include/uapi/linux/magic.h. */
#define OVERLAYFS_MAGIC 0x794c7630
#define ECRYPTFS_MAGIC	0xf15f

/* What is found is in the scratch area: the verifier tracks stack words. */
struct mount_search {
	struct scratch *s;
	__u64 dentry;
};

static long mount_step(__u32 index, void *data)
{
	struct mount_search *search = data;
	struct scratch *s = search->s;
	__u64 parent = LOAD(dentry, search->dentry, d_parent);

	for (__u32 i = 0; i < MOUNTS_MAX; i++)
		if (s->mount_root[i] == search->dentry)
			s->mounts |= 1U << i;
	if (parent == search->dentry)
		return 1;
	search->dentry = parent;
	return 0;
}

/* Whether a file system lists its newest mount first: mnt_add_instance() in fs/namespace.c, v6.18. */
#define NEWEST_MOUNT_FIRST (!bpf_core_field_exists(struct mount, mnt_instance))

/* Mounts of a file system that are looked through for the oldest ones. */
#define MOUNTS_LISTED 512

/* The mount after `mount` in the list of the same file system; with 0, the first one there. */
static __always_inline __u64 next_mount(__u64 sb, __u64 mount)
{
	if (NEWEST_MOUNT_FIRST)
		return mount ? LOAD(mount___v6_18, mount, mnt_next_for_sb)
			     : LOAD(super_block___v6_18, sb, s_mounts);
	mount = mount ? LOAD(mount, mount, mnt_instance.next)
		      : LOAD(list_head, AT(super_block, sb, s_mounts), next);
	return mount == AT(super_block, sb, s_mounts)
		       ? 0
		       : mount - bpf_core_field_offset(struct mount, mnt_instance);
}

struct oldest_mounts {
	__u64 sb;
	__u64 first; /* struct mount, or 0 */
	__u64 second;
};

static long oldest_step(__u32 index, void *data)
{
	struct oldest_mounts *oldest = data;
	__u64 mount = next_mount(oldest->sb, oldest->first);

	if (!mount)
		return 1;
	oldest->second = oldest->first;
	oldest->first = mount;
	return 0;
}

static __always_inline void find_oldest_mounts(struct oldest_mounts *oldest)
{
	if (NEWEST_MOUNT_FIRST) {
		bpf_loop(MOUNTS_LISTED, oldest_step, oldest, 0);
		return;
	}
	oldest->first = next_mount(oldest->sb, 0);
	if (oldest->first)
		oldest->second = next_mount(oldest->sb, oldest->first);
}

/*
 * Sets the mount of `s->object[0]` for hooks without one: of the oldest mounts of the file system
 * and the task's own, one that shows the object. A name that does not begin with a slash starts in
 * the working directory. Not inlined: the verifier checks it once per hook.
 */
__noinline int find_mount(struct scratch *s, __u32 from_cwd)
{
	const struct fs_struct *fs = FOLLOW(task_struct, current(), fs);
	struct mount_search search = { .s = s };
	struct oldest_mounts oldest = {};
	__u64 *mount;
	__u64 sb;

	if (!s)
		return 0;
	s->mounts = 0;
	mount = s->mount;
	for (__u32 i = 0; i < MOUNTS_MAX; i++)
		mount[i] = 0;
	search.dentry = s->object[0].dentry;
	sb = LOAD(dentry, search.dentry, d_sb);
	if ((__u64)fs->pwd.dentry->d_sb == sb)
		mount[from_cwd ? 0 : MOUNTS_MAX - 1] = (__u64)fs->pwd.mnt;
	if ((__u64)fs->root.dentry->d_sb == sb)
		mount[1] = (__u64)fs->root.mnt;
	oldest.sb = sb;
	find_oldest_mounts(&oldest);
	if (oldest.first)
		mount[2] = AT(mount, oldest.first, mnt);
	if (oldest.second)
		mount[3] = AT(mount, oldest.second, mnt);
	for (__u32 i = 0; i < MOUNTS_MAX; i++)
		s->mount_root[i] = mount[i] ? LOAD(vfsmount, mount[i], mnt_root) : 0;
	bpf_loop(LEVELS_MAX, mount_step, &search, 0);
	s->object[0].mnt = mount[2];
	for (__u32 i = 0; i < MOUNTS_MAX; i++) {
		if (s->mounts & 1U << i) {
			s->object[0].mnt = mount[i];
			break;
		}
	}
	return 0;
}

/* Whether a name in user memory does not begin with a slash. */
static __always_inline __u32 is_relative(__u64 name)
{
	__u8 first = 0;

	bpf_probe_read_user(&first, sizeof(first), (void *)name);
	return first != '/';
}

/* Whether the name is the empty string, which a string read does not tell from a fault. */
static __always_inline int is_empty(__u64 name)
{
	__u8 first = 1;

	return !bpf_probe_read_user(&first, sizeof(first), (void *)name) && !first;
}

/*
 * Reads the name after a wire_object at the start of the tail. Returns whether it names
 * `s->object[0]`.
 */
__noinline int verify_name(struct scratch *s, const struct wire_shape *shape)
{
	struct task_struct *task = current();
	struct object *object;
	struct wire_object *to;
	__u64 wanted;
	__u32 depth;
	__u8 first;

	if (!s || !shape)
		return 0;
	object = &s->object[0];
	to = object_at(s, 0);
	object->at = 0;
	object->last = 0;
	object->base_dentry = object->base_mnt = 0;
	to->flags = 0;
	s->used = 0;
	/* Hits do not matter here. */
	s->exe_hits = 0;
	watch_ancestors(s, object->dentry, object->mnt, 0, 1);
	if (s->depth > DEPTH_MAX) /* only its beginning is hashed */
		return 0;
	wanted = s->prefix[s->depth & PREFIX_MASK];
	depth = s->depth;
	first = read_name(s, to, syscall_arg(&s->event, shape->arg));
	find_base(task, s, object, to, shape->lookup, syscall_arg(&s->event, shape->dir), first);
	if (!object->base_dentry)
		return 0;
	if (!(to->flags &
	      WIRE_OBJECT_NAMED)) /* AT_EMPTY_PATH: the object is the start of the name */
		return is_empty(syscall_arg(&s->event, shape->arg)) &&
		       object->base_dentry == object->dentry;
	s->exe_hits = 0;
	watch_ancestors(s, object->base_dentry, object->base_mnt, 0, 1);
	append_name(s, sizeof(*to), to->name_len);
	return s->depth == depth && s->prefix[depth & PREFIX_MASK] == wanted;
}

/*
 * Sets the mount of `s->object[0]` to that of find_mount() in which the name leads to it, if there
 * is one. Not inlined: the verifier checks it once per hook.
 */
__noinline int choose_mount(struct scratch *s, const struct wire_shape *shape)
{
	__u64 first;

	if (!s || !shape || !(s->mounts & (s->mounts - 1)))
		return 0; /* there is one */
	first = s->object[0].mnt;
	for (__u32 i = 0; i < MOUNTS_MAX; i++) {
		if (!(s->mounts & 1U << i))
			continue;
		s->object[0].mnt = s->mount[i];
		if (verify_name(s, shape))
			return 0;
	}
	s->object[0].mnt = first;
	return 0;
}

/*
 * Sets the name of the last item to that of `s->object[0]`. Not inlined: the verifier checks it
 * once per hook.
 */
__noinline int state_name_object(struct scratch *s, struct syscall_state *state,
				 const struct wire_shape *shape)
{
	struct wire_object *to;
	__u32 len, flags;
	__u8 *room;

	if (!s || !state || !shape)
		return 0;
	room = state_text_room(state);
	if (!room)
		return 0;
	to = object_at(s, 0);
	if (verify_name(s, shape)) {
		len = to->name_len & (WIRE_NAME_BYTES - 1);
		flags = WIRE_OBJECT_KERNEL;
		if (len && bpf_probe_read_kernel(room, len, tail_at(s, sizeof(*to))))
			return 0;
	} else {
		s->used = 0;
		walk_path(s, 0);
		len = s->used;
		flags = WIRE_OBJECT_KERNEL | WIRE_OBJECT_WALKED;
		if (len >= WIRE_NAME_BYTES) {
			count_truncated(
				WIRE_TRUNC_PATH); /* a truncated path names another object */
			return 0;
		}
		if (len && bpf_probe_read_kernel(room, len, tail_at(s, 0)))
			return 0;
	}
	state_commit_name(state, &state->item[(state->items - 1) & (WIRE_ITEMS - 1)], len, flags);
	return 0;
}

/*
 * Whether the function was called by itself: an overlay calls those of extended attributes again
 * for its lower file system. `frame` is the address of the arguments of this call on the stack.
 */
static __always_inline int is_nested(const struct syscall_state *state, __u64 frame)
{
	return state->items && state->attr_nests && frame < state->attr_frame;
}

/*
 * Whether a file system reads or writes an extended attribute for itself: while a name is looked
 * up, or as its owner (ovl_override_creds()). An operation can have other credentials too.
 */
static __always_inline int is_inside(struct task_struct *task, __u32 is_op)
{
	return FOLLOW(task_struct, task, nameidata) ||
	       (!is_op && FOLLOW(task_struct, task, cred) != FOLLOW(task_struct, task, real_cred));
}

/* Whether the attribute is an extended one: its functions have a dentry and no mount. */
static __always_inline int is_xattr(enum wire_attribute attribute)
{
	return attribute >= WIRE_ATTRIBUTE_SET_XATTR && attribute <= WIRE_ATTRIBUTE_LIST_XATTR;
}

/* Whether a call can be nested in a way that is_inside() does not tell. */
static __always_inline int stacks(enum wire_attribute attribute, const struct dentry *dentry,
				  __u32 is_op)
{
	__u64 magic;

	if (!is_xattr(attribute))
		return 0;
	magic = FOLLOW(dentry, dentry, d_sb)->s_magic;
	return (is_op && magic == OVERLAYFS_MAGIC) || magic == ECRYPTFS_MAGIC;
}

/*
 * Adds the object as one item. The last call of the function counts: after ESTALE the kernel looks
 * the name up once more, and it may lead to another object. Nested calls do not count. An overlay
 * also reads extended attributes while another syscall looks up a name: a function of another
 * attribute than that of the syscall, or one inside a lookup, does not count; neither does one with
 * the credentials of the overlay's owner. An io_uring operation has its slot since
 * uring_enter(), and its name is the kernel's copy: its registers are those of another syscall.
 */
static __always_inline int attr_object(const void *ctx, enum wire_attribute attribute,
				       const struct dentry *dentry, const struct vfsmount *mnt)
{
	const int has_mount = !is_xattr(attribute);
	struct task_struct *task = current();
	struct wire_object *item;
	struct wire_shape *shape;
	struct wire_syscall *syscall;
	struct scratch *s;
	struct syscall_state *state;
	__u64 filename = 0, shown_by = (__u64)mnt;
	__u32 key, is_op, from_cwd = 1;

	key = hooked_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL || syscall->attribute != attribute)
		return 0;
	is_op = key >= WIRE_URING_FIRST;
	if (!has_mount && is_inside(task, is_op))
		return 0;
	s = scratch();
	if (!s)
		return 0;
	s->frame = (__u64)ctx;
	state = state_find(task, key, &syscall);
	if (state && is_nested(state, s->frame))
		return 0;
	shape = &syscall->objects[0];
	if (!is_op) {
		s->event.abi = key / WIRE_SYSCALLS;
		fill_args(s->event.args, task_regs(task), s->event.abi);
		if (shape->lookup != WIRE_LOOKUP_FD && !syscall_arg(&s->event, shape->arg))
			return 0; /* utimensat of a descriptor: the kernel lists no item */
		if (!has_mount && shape->lookup != WIRE_LOOKUP_FD)
			from_cwd = is_relative(syscall_arg(&s->event, shape->arg));
	}
	s->object[0].dentry = (__u64)dentry;
	s->object[0].mnt = shown_by;
	if (!has_mount) {
		find_mount(s, from_cwd);
		if (!is_op && shape->lookup != WIRE_LOOKUP_FD)
			choose_mount(s, shape);
		shown_by = s->object[0].mnt;
	}
	select_watches(s, syscall);
	s->hits = 0;
	s->object[0].last = 0;
	if (!uses_watches(syscall))
		;
	else if (has_mount)
		watch_prefilter(s, dentry, (__u64)mnt, (__u64)mnt->mnt_root, 0, 1);
	else if (!is_fs_excluded(FOLLOW(dentry, dentry, d_sb)))
		match_watches(s, 1);
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !s->hits) {
		if (state && is_op)
			state->items = state->hits = 0;
		else if (state)
			state_forget(task, state);
		return 0;
	}
	if (!is_op)
		state = state_claim(task, key, syscall);
	if (!state)
		return 0;
	if (is_op) {
		filename = state->filename[0];
		state->items = state->hits = state->text_used = 0;
	}
	state->attr_frame = s->frame;
	state->attr_nests = stacks(attribute, dentry, is_op);
	state_save_hits(state, s);
	item = state_add_item(state, WIRE_NAMETYPE_NORMAL);
	if (!item)
		return 0;
	if (attribute == WIRE_ATTRIBUTE_CWD && !state->cwd_saved)
		state_save_cwd(state);
	item_set_inode(item, FOLLOW(dentry, dentry, d_inode));
	if (shape->lookup == WIRE_LOOKUP_FD && !tlg_context)
		return 0;
	s->object[0].mnt = shown_by;
	s->object[0].dentry = (__u64)dentry;
	if (tlg_context)
		state_save_path(s, state, state->items - 1);
	if (shape->lookup == WIRE_LOOKUP_FD)
		return 0;
	if (!is_op)
		return state_name_object(s, state, shape);
	if (filename)
		state_copy_name(state, item, filename, (void *)LOAD(filename, filename, name));
	return 0;
}

/* Adds the object of the argument `index`, a struct path. */
static __always_inline int attr_path(__u64 *ctx, enum wire_attribute attribute, const int index)
{
	struct function_call call;
	const struct path *path;

	if (!at_entry(&call, ctx, index + 1))
		return 0;
	path = ARG(call, index, path);
	return attr_object(ctx, attribute, FOLLOW(path, path, dentry), FOLLOW(path, path, mnt));
}

/* The same for a struct dentry. */
static __always_inline int attr_dentry(__u64 *ctx, enum wire_attribute attribute, const int index)
{
	struct function_call call;

	return at_entry(&call, ctx, index + 1)
		       ? attr_object(ctx, attribute, ARG(call, index, dentry), NULL)
		       : 0;
}

/* fentry on chmod_common(path, mode), v5.5. */
SEC("fentry/chmod_common")
int attr_chmod(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_MODE, 0);
}

/* fentry on chown_common(path, user, group), v5.5. */
SEC("fentry/chown_common")
int attr_chown(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_OWNER, 0);
}

/* fentry on vfs_truncate(path, length), v5.5. */
SEC("fentry/vfs_truncate")
int attr_truncate(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_LENGTH, 0);
}

/* fentry on vfs_utimes(path, times), v5.12. */
SEC("fentry/vfs_utimes")
int attr_utimes(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_TIMES, 0);
}

/* fentry on vfs_setxattr(idmap, dentry, ...), v5.12 form. */
SEC("fentry/vfs_setxattr")
int attr_setxattr(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_SET_XATTR, 1);
}

/* fentry on vfs_removexattr(idmap, dentry, name), v5.12 form. */
SEC("fentry/vfs_removexattr")
int attr_rmxattr(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_REMOVE_XATTR, 1);
}

/* fentry on vfs_getxattr(idmap, dentry, ...), v5.12 form. */
SEC("fentry/vfs_getxattr")
int attr_getxattr(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_GET_XATTR, 1);
}

/* fentry on vfs_listxattr(dentry, list, size), v5.5. */
SEC("fentry/vfs_listxattr")
int attr_listxattr(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_LIST_XATTR, 0);
}

/* fentry on vfs_set_acl(idmap, dentry, acl_name, kacl), v6.2. */
SEC("fentry/vfs_set_acl")
int attr_set_acl(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_SET_XATTR, 1);
}

/* fentry on vfs_remove_acl(idmap, dentry, acl_name), v6.2. */
SEC("fentry/vfs_remove_acl")
int attr_remove_acl(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_REMOVE_XATTR, 1);
}

/* fentry on vfs_get_acl(idmap, dentry, acl_name), v6.2. */
SEC("fentry/vfs_get_acl")
int attr_get_acl(__u64 *ctx)
{
	return attr_dentry(ctx, WIRE_ATTRIBUTE_GET_XATTR, 1);
}

/* fentry on set_fs_pwd(fs, path), v5.5: a successful chdir. */
SEC("fentry/set_fs_pwd")
int attr_chdir(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_CWD, 1);
}

/* fentry on set_fs_root(fs, path), v5.5: a successful chroot. */
SEC("fentry/set_fs_root")
int attr_chroot(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_ROOT, 1);
}

/* fentry on path_mount(dev_name, path, ...), v5.9: the mount point. */
SEC("fentry/path_mount")
int attr_mount(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_MOUNT, 1);
}

/* fentry on path_umount(path, flags), v5.9. */
SEC("fentry/path_umount")
int attr_umount(__u64 *ctx)
{
	return attr_path(ctx, WIRE_ATTRIBUTE_UMOUNT, 0);
}

#endif /* TOLLGATE_HOOKS_ATTRIBUTE_BPF_H */
