/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hooks of the open family: open, creat, exec, swapon and acct, with the name that the kernel
 * used.
 */
#ifndef TOLLGATE_HOOKS_OPEN_BPF_H
#define TOLLGATE_HOOKS_OPEN_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/fs_filter.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_paths.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_prefilter.bpf.h"

#define CAP_DAC_OVERRIDE 1 /* include/uapi/linux/capability.h */
#define O_TMPFILE_BIT	 020000000 /* __O_TMPFILE, include/uapi/asm-generic/fcntl.h */
#define O_PATH		 010000000

/* An open matches no rule unless it has one of these flags; 0 for no condition. */
volatile __u32 tlg_open_gate;

/* Whether no rule matches an open with these flags. The gate is read once: it changes with the rules. */
static __always_inline int gate_excludes(__u32 flags)
{
	__u32 gate = tlg_open_gate;

	return gate && !(flags & gate);
}

/* Whether rules can match an open with these flags. */
static __always_inline int open_can_match(const struct wire_syscall *syscall, __u32 flags)
{
	if (gate_excludes(flags))
		return 0;
	return !(syscall->facts & WIRE_FACT_WATCH_ONLY) || ACC_MODE(flags) & syscall->watch_perm;
}

/* Loads the arguments of the syscall that the current task is in. */
static __always_inline void load_args(struct scratch *s, struct task_struct *task, __u32 key)
{
	s->event.abi = key / WIRE_SYSCALLS;
	fill_args(s->event.args, task_regs(task), s->event.abi);
}

/*
 * Whether an open is that of an io_uring operation that no rule names: its name is not at the
 * syscall's address. It runs at the begin of a syscall, on the way out, or inside an exec, which
 * cancels what the operation waits for when it has opened the program. The names of interpreters
 * are the kernel's own.
 */
static __always_inline int is_of_operation(struct task_struct *task, struct wire_syscall *syscall,
					   __u32 key, const struct filename *filename)
{
	const struct syscall_state *state;
	struct scratch *s;
	__u64 uptr;

	if (tlg_kprobes) { /* v7.0 has no filename->uptr; a call and an operation have a slot each */
		state = state_of_call(task);
		return state && state->within;
	}
	if (!bpf_core_field_exists(filename->uptr) || !has_ring(task) || key >= WIRE_URING_FIRST)
		return 0;
	s = scratch();
	if (!s)
		return 0;
	load_args(s, task, key);
	uptr = (__u64)FOLLOW(filename, filename, uptr);
	if (!(syscall->facts & WIRE_FACT_EXEC))
		return uptr != syscall_arg(&s->event, syscall->objects[0].arg);
	if (!uptr)
		return 0;
	if (uptr != syscall_arg(&s->event, syscall->objects[0].arg))
		return 1;
	state = state_find(task, key, &syscall);
	return state && is_same_call(state, task_regs(task)) && state->items > !!state->unopened;
}

/*
 * Matches a name that led to no object against watches, as text. A link in it can lead anywhere:
 * its hits do not count for rules that suppress events.
 */
static __always_inline void watch_missing_name(struct scratch *s, struct task_struct *task,
					       __u32 dirfd, __u64 filename)
{
	struct object *object = &s->object[0];
	struct wire_object *to = object_at(s, 0);
	__u8 *name = tail_at(s, sizeof(*to));
	long len;

	object->at = 0;
	object->dentry = object->mnt = object->base_dentry = object->base_mnt = 0;
	object->text = 1;
	object->last = 0;
	to->flags = 0;
	to->effect = WIRE_EFFECT_USE;
	s->hits = 0;
	len = bpf_probe_read_kernel_str(name, WIRE_NAME_BYTES,
					(void *)LOAD(filename, filename, name));
	if (len <= 1)
		return;
	to->name_len = len - 1;
	find_base(task, s, object, to, WIRE_LOOKUP_AT, dirfd, name[0]);
	watch_object(s, 0);
	distrust_hits(s->hit);
}

static __always_inline void add_opened(struct syscall_state *state, const struct filename *filename,
				       const struct file *file, __u32 created)
{
	const struct dentry *dentry = FOLLOW(file, file, f_path.dentry);
	const struct inode *inode = FOLLOW(file, file, f_inode);
	struct wire_object *item;

	item = state_add_named(state, created ? WIRE_NAMETYPE_PARENT : WIRE_NAMETYPE_NORMAL,
			       filename);
	if (!item)
		return;
	item_set_inode(item, created ? dentry->d_parent->d_inode : inode);
	if (tlg_context)
		state_save_last_path(state, created ? dentry->d_parent : dentry,
				     (__u64)FOLLOW(file, file, f_path.mnt));
	if (!created)
		return;
	item = state_add_item(state, WIRE_NAMETYPE_CREATE);
	if (!item)
		return;
	item->named_by = 1;
	item_set_inode(item, inode);
	if (tlg_context)
		state_save_last_path(state, dentry, (__u64)FOLLOW(file, file, f_path.mnt));
}

/* Forgets an object that was not opened: the kernel has looked the name up once more, or opened it. */
static __always_inline void forget_unopened(struct syscall_state *state)
{
	state->items--;
	state->hits = state->unopened - 1;
	state->unopened = 0;
}

/*
 * Adds the file that an open has created before it failed, if its dentry still has that name. It is
 * not held any more, so it may be that of another file of this name.
 */
static __always_inline void add_created_file(struct syscall_state *state, __u64 dentry)
{
	__u64 last = LOAD(dentry, dentry, d_name.len) << 32 | LOAD(dentry, dentry, d_name.hash);
	__u64 inode = LOAD(dentry, dentry, d_inode);
	__u32 parent = state->items - 1;
	struct wire_object *item;

	if (!inode || last != state->last[parent & (WIRE_ITEMS - 1)])
		return;
	item = state_add_item(state, WIRE_NAMETYPE_CREATE);
	if (!item)
		return;
	item->named_by = parent + 1;
	item->flags = state->item[parent & (WIRE_ITEMS - 1)].flags & WIRE_OBJECT_FS_EXCLUDED;
	if (item->flags)
		return;
	fill_inode(&item->inode, inode);
	item->flags = WIRE_OBJECT_INODE;
}

/* Matches an open file against watches; `s->index` tells whether the open has created it. */
static __always_inline void prefilter_opened(struct scratch *s, const struct file *file)
{
	const struct vfsmount *mnt = FOLLOW(file, file, f_path.mnt);

	watch_prefilter(s, FOLLOW(file, file, f_path.dentry), (__u64)mnt, (__u64)mnt->mnt_root, 0,
			1 + s->index);
}

/* Handles the end of an open by name; `file` is a file or an error. */
static __always_inline int open_done(struct task_struct *task, struct wire_syscall *syscall,
				     __u32 key, __u32 dirfd, const struct filename *filename,
				     __u32 flags, const struct file *file)
{
	struct scratch *s = scratch();
	struct syscall_state *state = NULL;
	__u32 epoch, unopened;

	if (!s ||
	    IS_ERR(filename)) /* since v7.0 the kernel comes here with a name that it refused */
		return 0;
	epoch = syscall->epoch;
	if (IS_ERR(file) || syscall->facts & WIRE_FACT_EXEC || key >= WIRE_URING_FIRST)
		state = state_find(task, key, &syscall);
	if (state && state->unopened && !IS_ERR(file))
		forget_unopened(state);
	unopened = state && state->unopened;
	select_watches(s, syscall);
	s->hits = 0;
	if (!IS_ERR(file)) {
		/* Through memory, so that the verifier does not follow both values. */
		s->index = file->f_mode & FMODE_CREATED && !(flags & O_TMPFILE_BIT);
		if (uses_watches(syscall))
			prefilter_opened(s, file);
	} else if ((__u64)file == (__u64)-ENOENT) {
		if (syscall->facts & WIRE_FACT_WATCH_ONLY)
			return 0; /* no object exists there to match a watch, as in the kernel */
	} else if (uses_watches(syscall) && !unopened) {
		watch_missing_name(s, task, dirfd, (__u64)filename);
	}
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !s->hits && !unopened)
		return 0;
	if (!state || (state->reserved && !unopened) ||
	    !(syscall->facts & WIRE_FACT_EXEC || unopened || key >= WIRE_URING_FIRST))
		state = state_claim(task, key, syscall);
	if (!state)
		return 0;
	state->open_flags = flags;
	if (state->epoch == epoch)
		state_save_hits(state, s);
	if (!IS_ERR(file))
		add_opened(state, filename, file, s->index);
	else if (unopened)
		state_set_name(state, &state->item[(state->items - 1) & (WIRE_ITEMS - 1)],
			       filename);
	else
		state_add_named(state, WIRE_NAMETYPE_UNKNOWN, filename);
	if (unopened && state->to_create)
		add_created_file(state, state->to_create);
	state->unopened = state->reserved = 0;
	return 0;
}

/*
 * Whether rules can match an open by its arguments. The program at the end of an open that none can
 * match may be left out, so nothing may be saved for it.
 */
static __always_inline int args_can_match(struct scratch *s, struct task_struct *task,
					  const struct wire_syscall *syscall, __u32 key)
{
	if (key >= WIRE_URING_FIRST || !(syscall->facts & WIRE_FACT_OPEN_FLAGS))
		return 1;
	load_args(s, task, key);
	return open_can_match(syscall, syscall_arg(&s->event, syscall->open_arg));
}

/* args_can_match() of an open with O_PATH, which an operation of io_uring has no arguments for. */
static __always_inline int path_open_can_match(struct task_struct *task,
					       const struct wire_syscall *syscall, __u32 key)
{
	struct scratch *s = scratch();

	return s && key < WIRE_URING_FIRST && syscall->facts & WIRE_FACT_OPEN_FLAGS &&
	       args_can_match(s, task, syscall, key);
}

/*
 * fexit on do_filp_open(dfd, pathname, op), v5.5; do_file_open() since v7.0: every open by name. Runs in the calling task;
 * `pathname` is the kernel's copy. Misses names that the kernel cannot copy, as its audit does.
 */
SEC("fexit/do_filp_open")
int open_filp(__u64 *ctx)
{
	struct task_struct *task;
	struct wire_syscall *syscall;
	__u32 flags, key;

	flags = ((struct open_flags *)ctx[2])->open_flag;
	if (gate_excludes(flags))
		return 0;
	task = current();
	key = hooked_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL || !(syscall->hooks & WIRE_HOOKS_OPEN))
		return 0;
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !(ACC_MODE(flags) & syscall->watch_perm)) {
		/* build_open_flags() drops the access mode of O_PATH, which rules are compared with. */
		if (!(flags & O_PATH) || !path_open_can_match(task, syscall, key))
			return 0;
	}
	if (is_of_operation(task, syscall, key, (struct filename *)ctx[1]))
		return 0;
	open_done(task, syscall, key, ctx[0], (struct filename *)ctx[1], flags,
		  (struct file *)ctx[3]);
	if (syscall->aux_source == WIRE_AUX_SOURCE_OPENAT2) {
		struct syscall_state *state = state_find(task, key, &syscall);

		if (state) {
			state->open_mode = ((struct open_flags *)ctx[2])->mode;
			state->opened = 1;
		}
	}
	return 0;
}

/*
 * fexit on do_open_execat(fd, name, flags), v5.5: an executed program and its interpreters. Runs
 * in the calling task. do_filp_open is on the path of every open.
 */
SEC("fexit/do_open_execat")
int open_execat(__u64 *ctx)
{
	struct task_struct *task = current();
	struct wire_syscall *syscall;
	struct function_call call;
	__u32 key;

	if (!at_return(&call, ctx, 3, INSIDE_OTHER))
		return call.skips_return;
	key = hooked_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL)
		return 0;
	state_find(task, key, &syscall); /* an interpreter is matched by the plan of its program */
	return open_done(task, syscall, key, call.arg[0], ARG(call, 1, filename), 0,
			 POINTER(call.result, file));
}

/* hooked_syscall() if it is an open or an exec, else WIRE_NO_SYSCALL. */
static __always_inline __u32 opening_syscall(struct task_struct *task,
					     struct wire_syscall **syscall)
{
	__u32 key = hooked_syscall(task, syscall);

	if (key == WIRE_NO_SYSCALL ||
	    !((*syscall)->hooks & WIRE_HOOKS_OPEN || (*syscall)->facts & WIRE_FACT_EXEC))
		return WIRE_NO_SYSCALL;
	return key;
}

/*
 * On the engine lsm: empties the slot of an open for the object that it has found. Returns NULL if its
 * file is known.
 */
static __always_inline struct syscall_state *slot_for_found(struct syscall_state *state)
{
	if (!state || !(state->reserved || state->gave_back))
		return NULL;
	state_restart(state);
	return state;
}

/*
 * Saves an object that an open has found: `dentry`, or, if `to_create` is set, that file to be
 * created below `dentry`. Its name follows in open_done() if the open fails; on the engine lsm it is
 * that of the look-up.
 */
static __always_inline void save_unopened(struct scratch *s, struct task_struct *task,
					  struct wire_syscall *syscall, __u32 key,
					  const struct path *path, const struct dentry *to_create)
{
	const struct dentry *dentry = FOLLOW(path, path, dentry);
	const struct vfsmount *mnt = FOLLOW(path, path, mnt);
	struct syscall_state *state = state_find(task, key, &syscall);
	int is_in_slot = tlg_kprobes && !(syscall->facts & WIRE_FACT_EXEC);
	struct wire_object *item;

	select_watches(s, syscall);
	s->hits = 0;
	if (uses_watches(syscall))
		watch_prefilter(s, dentry, (__u64)mnt, (__u64)mnt->mnt_root,
				to_create ? (__u64)&to_create->d_name : 0, to_create ? 2 : 1);
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !s->hits)
		return;
	if (is_in_slot)
		state = slot_for_found(state);
	else if (!state || !(syscall->facts & WIRE_FACT_EXEC || key >= WIRE_URING_FIRST) ||
		 (key < WIRE_URING_FIRST && state->reserved && !state->unopened))
		state = state_claim(task, key, syscall);
	if (!state)
		return;
	if (state->unopened)
		forget_unopened(state);
	item = state_add_item(state, to_create ? WIRE_NAMETYPE_PARENT : WIRE_NAMETYPE_NORMAL);
	if (!item)
		return;
	if (is_in_slot)
		state_set_name(state, item,
			       FOLLOW(nameidata, FOLLOW(task_struct, task, nameidata), name));
	item_set_inode(item, dentry->d_inode);
	state_save_last_path(state, dentry, (__u64)mnt);
	state->to_create = (__u64)to_create;
	if (to_create)
		state->last[(state->items - 1) & (WIRE_ITEMS - 1)] =
			(__u64)to_create->d_name.len << 32 | to_create->d_name.hash;
	state->unopened = 1 + state->hits;
	state_save_hits(state, s);
	if (!(syscall->facts & WIRE_FACT_EXEC))
		state->reserved = 1; /* until the open fails with flags that can match */
}

/*
 * fexit on may_open(idmap, path, acc_mode, flag), v5.5: an object was found and access refused.
 * Only here is it visible to which object the name led. Every open passes here.
 */
SEC("fexit/may_open")
int open_may_open(__u64 *ctx)
{
	struct wire_syscall *syscall;
	const struct nameidata *nd;
	struct task_struct *task;
	struct scratch *s;
	__u32 key;

	if (!(__u32)ctx[4])
		return 0;
	task = current();
	key = opening_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL)
		return 0;
	if (key < WIRE_URING_FIRST && !(syscall->facts & WIRE_FACT_EXEC) &&
	    !open_can_match(syscall, ctx[3]))
		return 0;
	nd = FOLLOW(task_struct, task, nameidata);
	s = scratch();
	/* Without the scratch area it is counted at the end of the syscall. */
	if (s && nd && !is_of_operation(task, syscall, key, FOLLOW(nameidata, nd, name)))
		save_unopened(s, task, syscall, key, (struct path *)ctx[1], NULL);
	return 0;
}

/*
 * fexit on capable_wrt_inode_uidgid(idmap, inode, cap), v3.5: the mode of a file does not permit
 * access. In place of may_open() where that costs every open: this is called only for opens whose
 * mode bits do not suffice. generic_permission() asks for CAP_DAC_OVERRIDE last. Not used for
 * directories, which are also refused when a path leads through them.
 */
SEC("fexit/capable_wrt_inode_uidgid")
int open_denied(__u64 *ctx)
{
	struct wire_syscall *syscall;
	struct task_struct *task;
	const struct nameidata *nd;
	const struct inode *inode;
	struct function_call call;
	const struct path *path;
	struct scratch *s;
	__u32 key;

	if (!at_return(&call, ctx, 3, INSIDE_CHECK))
		return call.skips_return;
	if ((__u8)call.result || (__u32)call.arg[2] != CAP_DAC_OVERRIDE)
		return 0;
	task = current();
	key = opening_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL)
		return 0;
	nd = FOLLOW(task_struct, task, nameidata);
	if (!nd)
		return 0;
	path = &nd->path;
	inode = FOLLOW(path, path, dentry)->d_inode;
	if (!inode || (inode->i_mode & S_IFMT) == S_IFDIR)
		return 0;
	s = scratch();
	if (s && args_can_match(s, task, syscall, key) &&
	    !is_of_operation(task, syscall, key, FOLLOW(nameidata, nd, name)))
		save_unopened(s, task, syscall, key, path, NULL);
	return 0;
}

/*
 * fexit on security_inode_create(dir, dentry, mode), v5.5: an open is about to create a file. It
 * can fail after that, as with a lease of another process or O_DIRECT, and then open_done() does
 * not see the file. An overlay creates it once more, in another directory.
 */
SEC("fexit/security_inode_create")
int open_creates(__u64 *ctx)
{
	struct wire_syscall *syscall;
	struct task_struct *task;
	const struct nameidata *nd;
	const struct path *path;
	struct scratch *s;
	__u32 key;

	if ((int)ctx[3])
		return 0;
	task = current();
	key = opening_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL || syscall->facts & WIRE_FACT_EXEC)
		return 0;
	nd = FOLLOW(task_struct, task, nameidata);
	if (!nd)
		return 0;
	path = &nd->path;
	if ((__u64)FOLLOW(path, path, dentry)->d_inode != ctx[0])
		return 0;
	s = scratch();
	if (s && args_can_match(s, task, syscall, key) &&
	    !is_of_operation(task, syscall, key, FOLLOW(nameidata, nd, name)))
		save_unopened(s, task, syscall, key, path, (struct dentry *)ctx[1]);
	return 0;
}

#endif /* TOLLGATE_HOOKS_OPEN_BPF_H */
