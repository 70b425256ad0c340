/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Objects of a syscall without hooks inside the file system. There are two sources: a descriptor,
 * whose file is the one that the kernel used, and the string in user memory, which another thread
 * may have changed since the kernel read it. The descriptor is used if the syscall has one.
 */
#ifndef TOLLGATE_LIB_OBJECT_BPF_H
#define TOLLGATE_LIB_OBJECT_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/fs_filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/opened_name.bpf.h"
#include "lib/path.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"

#define AT_FDCWD	(-100)
#define FMODE_CREATED	(1U << 20) /* include/linux/fs.h */
#define FMODE_PATH	(1U << 14)
#define ACC_MODE(flags) ("\004\002\006\006"[(flags) & 3]) /* include/linux/fs.h: AUDIT_PERM_* */

/*
 * Fifth or sixth argument of the syscall, from the registers, which the kernel preserves. Through
 * barriers: a choice between two members becomes a variable offset, which the verifier refuses.
 * Not inlined: the verifier checks it once.
 */
__noinline __u64 late_arg(const struct scratch *s, __u32 index)
{
	const struct pt_regs *regs = task_regs(current());
	__u64 fifth, sixth;

	if (!s)
		return 0;
	if (s->event.abi == WIRE_B64) {
		fifth = REGS_ARG5(regs);
		barrier_var(fifth);
		sixth = REGS_ARG6(regs);
		barrier_var(sixth);
		return index == 4 ? fifth : sixth;
	}
	fifth = REGS_COMPAT_ARG5(regs);
	barrier_var(fifth);
	sixth = REGS_COMPAT_ARG6(regs);
	barrier_var(sixth);
	return (__u32)(index == 4 ? fifth : sixth);
}

/* Argument of a shape. The event has the first four. */
static __always_inline __u64 object_arg(const struct scratch *s, __u32 index)
{
	return index < 4 ? syscall_arg(&s->event, index) : late_arg(s, index);
}

static __always_inline struct wire_object *object_at(struct scratch *s, __u32 at)
{
	return tail_at(s, at);
}

/* Reads the name of an object after its wire_object. Returns its first byte, or 0. */
static __always_inline __u8 read_name(struct scratch *s, struct wire_object *to, __u64 from)
{
	__u8 *name = tail_at(s, s->used + sizeof(*to));
	long len;

	to->name_len = 0;
	if (!from)
		return 0;
	len = bpf_probe_read_user_str(name, WIRE_NAME_BYTES, (void *)from);
	if (len < 0)
		count_truncated(WIRE_TRUNC_NAME);
	if (len < 0)
		return 0;
	to->flags |= WIRE_OBJECT_NAMED;
	if (len <= 1) /* "": 0 on some kernels */
		return 0;
	to->name_len = len - 1;
	return name[0];
}

struct slash_search {
	struct scratch *s;
	__u32 at;
	__u32 found;
};

static long slash_step(__u32 index, void *data)
{
	struct slash_search *search = data;

	if (*(__u8 *)tail_at(search->s, search->at + index) != '/')
		return 0;
	search->found = 1;
	return 1;
}

static __always_inline __u32 has_slash(struct scratch *s, __u32 at, __u32 len)
{
	struct slash_search search = { .s = s, .at = at };

	bpf_loop(len, slash_step, &search, 0);
	return search.found;
}

/* Whether a name starts from a descriptor that is not the result of the syscall. */
static __always_inline __u32 starts_at(__u32 lookup)
{
	return lookup == WIRE_LOOKUP_AT || lookup == WIRE_LOOKUP_AT_NAMED ||
	       lookup == WIRE_LOOKUP_AT_OR_CWD || lookup == WIRE_LOOKUP_AT_OR_NULL;
}

/* Whether the kernel looks up nothing if the name is empty. */
static __always_inline __u32 looks_nothing_up(__u32 lookup, __u32 dirfd)
{
	return (lookup == WIRE_LOOKUP_AT_NAMED && (int)dirfd >= 0) ||
	       (lookup == WIRE_LOOKUP_AT_OR_CWD && (int)dirfd != AT_FDCWD);
}

/*
 * Finds the directory that a name starts from; if it is also the parent of the object, fills
 * `to->parent`.
 */
static __always_inline void find_base(const struct task_struct *task, struct scratch *s,
				      struct object *object, struct wire_object *to, __u32 lookup,
				      __u32 dirfd, __u8 first)
{
	__u64 fs = (__u64)FOLLOW(task_struct, task, fs);
	__u64 path = AT(fs_struct, fs, pwd);
	__u32 relative_to_fd = (starts_at(lookup) || lookup == WIRE_LOOKUP_OPENED_AT ||
				lookup == WIRE_LOOKUP_EXEC_AT) &&
			       (int)dirfd != AT_FDCWD;

	if (first == '/') {
		path = AT(fs_struct, fs, root);
	} else if (relative_to_fd) {
		__u64 file = task_file(task, dirfd);

		if (!file)
			return;
		path = AT(file, file, f_path);
	}
	object->base_dentry = LOAD(path, path, dentry);
	object->base_mnt = LOAD(path, path, mnt);
	if (first == '/' || !to->name_len)
		return;
	if (!has_slash(s, object->at + sizeof(*to), to->name_len)) {
		fill_inode(&to->parent, LOAD(dentry, object->base_dentry, d_inode));
		if ((to->parent.mode & FILE_TYPE) == IS_DIR_TYPE)
			to->flags |= WIRE_OBJECT_PARENT;
	}
}

/* Fills an object from a path and the inode there. */
static __always_inline void fill_from_path(struct object *object, struct wire_object *to,
					   __u64 path, __u64 inode)
{
	object->dentry = LOAD(path, path, dentry);
	object->mnt = LOAD(path, path, mnt);
	if (tlg_fs_filter) {
		__u64 sb = LOAD(dentry, object->dentry, d_sb);

		if (is_magic_excluded(LOAD(super_block, sb, s_magic))) {
			to->flags |= WIRE_OBJECT_FS_EXCLUDED;
			return;
		}
	}
	fill_inode(&to->inode, inode);
	to->flags |= WIRE_OBJECT_INODE;
}

/* Fills an object from an open file. */
static __always_inline void fill_from_file(struct object *object, struct wire_object *to,
					   __u64 file)
{
	fill_from_path(object, to, AT(file, file, f_path), LOAD(file, file, f_inode));
}

/* Fills an object from the working directory. */
static __always_inline void fill_from_cwd(const struct task_struct *task, struct object *object,
					  struct wire_object *to)
{
	__u64 fs = (__u64)FOLLOW(task_struct, task, fs);
	__u64 path = AT(fs_struct, fs, pwd);
	__u64 dentry = LOAD(path, path, dentry);

	fill_from_path(object, to, path, LOAD(dentry, dentry, d_inode));
}

/* Sets the length of the path of an object, which starts at `at` in the tail. */
static __always_inline void set_path_len(struct scratch *s, struct wire_object *to, __u32 at,
					 __u32 removed)
{
	to->path_len = s->used - at;
	if (removed)
		to->flags |= WIRE_OBJECT_REMOVED;
}

/* Appends one object of the syscall: a wire_object, its name and its path. */
__noinline int resolve_object(struct scratch *s, __u32 index, const struct wire_shape *shape)
{
	struct task_struct *task = current();
	struct object *object;
	struct wire_event *event;
	struct wire_object *to;
	__u64 file = 0;
	__u32 lookup, dirfd;
	__u64 name;
	__u8 first;

	if (!s || !shape)
		return 0;
	event = &s->event;
	object = &s->object[index & (WIRE_OBJECTS - 1)];
	to = object_at(s, s->used);
	lookup = shape->lookup;
	dirfd = object_arg(s, shape->dir);
	name = object_arg(s, shape->arg);

	object->at = s->used;
	object->dentry = object->mnt = object->base_dentry = object->base_mnt = 0;
	object->text = 0;
	object->last = 0;
	to->flags = 0;
	to->effect = shape->effect;
	to->lookup = lookup;
	to->named_by = 0;
	to->path_len = 0;
	if (lookup == WIRE_LOOKUP_FD) {
		to->name_len = 0;
		file = task_file(task, name);
		/* fdget() does not find a descriptor that is open with O_PATH. */
		if (file && event->exit == (__u64)-EBADF && LOAD(file, file, f_mode) & FMODE_PATH)
			file = 0;
		if (file)
			fill_from_file(object, to, file);
	} else if (lookup == WIRE_LOOKUP_RETURNED) {
		to->name_len = 0;
		file = event->success ? task_file(task, event->exit) : 0;
		if (!file)
			return 0;
		to->flags |= WIRE_OBJECT_NAMED | WIRE_OBJECT_KERNEL;
		fill_from_file(object, to, file);
	} else if ((lookup == WIRE_LOOKUP_EXEC || lookup == WIRE_LOOKUP_EXEC_AT) &&
		   event->flags & WIRE_EVENT_STARTED) {
		__u64 mm = (__u64)FOLLOW(task_struct, task, mm);

		/*
		 * AT_EXECFN: the name that the kernel copied above the new program's environment.
		 */
		first = read_name(s, to, LOAD(mm_struct, mm, env_end));
		to->flags |= WIRE_OBJECT_KERNEL;
		file = LOAD(mm_struct, mm, exe_file);
		if (file)
			fill_from_file(object, to, file);
		if (event->flags & WIRE_EVENT_SCRIPT) {
			find_base(task, s, object, to, lookup, dirfd, first);
			object->text = 1;
		}
	} else {
		__u32 by_name, refused, at_dir;
		__u32 opened = event->success &&
			       (lookup == WIRE_LOOKUP_OPENED || lookup == WIRE_LOOKUP_OPENED_AT);

		first = read_name(s, to, name);
		/*
		 * getname() refuses an empty name, unless with AT_EMPTY_PATH; the syscall can fail
		 * with another error before. Of one that succeeds, the name was replaced.
		 */
		refused = event->exit == (__u64)-ENOENT ||
			  (!event->success &&
			   (lookup == WIRE_LOOKUP_PATH || lookup == WIRE_LOOKUP_OPENED));
		at_dir = to->flags & WIRE_OBJECT_NAMED
				 ? !to->name_len /* AT_EMPTY_PATH */
				 : !name && event->success && lookup == WIRE_LOOKUP_AT_OR_NULL;
		if (at_dir && (refused || looks_nothing_up(lookup, dirfd)))
			return 0;
		if (opened)
			file = task_file(task, event->exit);
		else if (at_dir && starts_at(lookup) && (int)dirfd >= 0)
			file = task_file(task, dirfd);
		else if (at_dir && starts_at(lookup) && (int)dirfd == AT_FDCWD)
			fill_from_cwd(task, object, to);
		if (at_dir && (lookup == WIRE_LOOKUP_AT_OR_CWD || lookup == WIRE_LOOKUP_AT_OR_NULL))
			to->flags &= ~WIRE_OBJECT_NAMED;
		if (lookup == WIRE_LOOKUP_CWD && event->success &&
		    !(event->flags & WIRE_EVENT_UNPROVEN)) {
			s->cwd_changed = 1; /* which it was before is not known */
			if (!shares_cwd(task)) /* another thread can have changed it since */
				fill_from_cwd(task, object, to);
		}
		if (file) {
			fill_from_file(object, to, file);
			/* Another thread can have given the descriptor to another file. */
			by_name = opened && shares_descriptors(task) &&
				  !has_opened_name(s, to, object->at + sizeof(*to), object->dentry);
			if (by_name)
				event->flags |= WIRE_EVENT_DESCRIPTOR;
			/* The flag stays set while the file is open. */
			else if (opened && LOAD(file, file, f_mode) & FMODE_CREATED) {
				__u64 dir = LOAD(dentry, object->dentry, d_parent);

				fill_inode(&to->parent, LOAD(dentry, dir, d_inode));
				to->flags |= WIRE_OBJECT_CREATED | WIRE_OBJECT_PARENT;
			}
		} else {
			by_name = lookup != WIRE_LOOKUP_TEXT && to->name_len && !object->dentry;
			if (opened) /* another thread has closed the descriptor, and can have changed the name */
				event->flags |= WIRE_EVENT_DESCRIPTOR;
		}
		if (by_name) {
			find_base(task, s, object, to, lookup, dirfd, first);
			object->text = 1;
		}
	}
	s->used += sizeof(*to) + ((to->name_len + 7) & ~7U);
	if (tlg_context && object->dentry) {
		__u32 at = s->used;

		set_path_len(s, to, at, walk_path(s, index));
		s->used = (s->used + 7) & ~7U;
	}
	event->objects++;
	return 0;
}

/* Appends the objects of a syscall with these WIRE_OBJECTS shapes. */
static __always_inline void resolve_objects(struct scratch *s, const struct wire_shape *shapes)
{
	for (int i = 0; i < WIRE_OBJECTS; i++)
		if (shapes[i].lookup != WIRE_LOOKUP_NONE)
			resolve_object(s, i, &shapes[i]);
}

/* Matches one object against watches. */
__noinline int watch_object(struct scratch *s, __u32 index)
{
	struct wire_object *to;
	struct object *object;
	__u32 leaves;

	if (!s)
		return 0;
	object = &s->object[index & (WIRE_OBJECTS - 1)];
	to = object_at(s, object->at);
	if (to->flags & WIRE_OBJECT_FS_EXCLUDED)
		return 0;
	/* To the kernel, the directory of a created or deleted name is an object of its own. */
	leaves = to->effect == WIRE_EFFECT_USE && !(to->flags & WIRE_OBJECT_CREATED) ? 1 : 2;

	if (object->dentry && watch_ancestors(s, object->dentry, object->mnt, HIT_LEAF, 0))
		watch_prefixes(s, leaves, 0);
	if (object->text && object->base_dentry &&
	    watch_ancestors(s, object->base_dentry, object->base_mnt, 0, 0)) {
		append_name(s, object->at + sizeof(*to), to->name_len);
		watch_prefixes(s, leaves, 0);
	}
	return 0;
}

/* Matches the executable of the task against watches. */
__noinline int watch_exe(struct scratch *s)
{
	struct task_struct *task = current();
	struct object *object;
	__u64 mm, file, path;

	if (!s)
		return 0;
	mm = (__u64)FOLLOW(task_struct, task, mm);
	file = LOAD(mm_struct, mm, exe_file);
	if (!mm || !file)
		return 0;
	/* Through memory: since v6.4 a pointer that was loaded is not a number to the verifier. */
	object = &s->object[0];
	path = AT(file, file, f_path);
	object->dentry = LOAD(path, path, dentry);
	object->mnt = LOAD(path, path, mnt);
	barrier();
	if (watch_ancestors(s, object->dentry, object->mnt, HIT_LEAF, 1))
		watch_prefixes(s, 1, 1);
	return 0;
}

#endif /* TOLLGATE_LIB_OBJECT_BPF_H */
