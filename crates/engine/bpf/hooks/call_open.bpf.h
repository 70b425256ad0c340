/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Opens on the engine lsm: the file that an open finds, also where the kernel has skipped the program
 * at the entry of the syscall.
 */
#ifndef TOLLGATE_HOOKS_CALL_OPEN_BPF_H
#define TOLLGATE_HOOKS_CALL_OPEN_BPF_H

#include "wire.h"
#include "hooks/call.bpf.h"
#include "hooks/open.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_prefilter.bpf.h"

/* include/linux/fs.h: the open file of a lower file system of an overlay. */
#define FMODE_NOACCOUNT (1U << 29)

/* Notes that the file of an open is known. */
static __always_inline void judge(struct syscall_state *state, const struct nameidata *nd)
{
	state->judged = 1;
	state->nd = (__u64)nd;
}

/* Whether a file is what the name of an open led to: not one that it opens inside, as an overlay does. */
static __always_inline int is_found(const struct nameidata *nd, const struct file *file)
{
	struct dentry *found = FOLLOW(nameidata, nd, path.dentry);
	struct dentry *opened = file->f_path.dentry;

	return !FOLLOW(nameidata, nd, saved) &&
	       FOLLOW(nameidata, nd, path.mnt) == file->f_path.mnt &&
	       (found == opened || found == FOLLOW(dentry, opened, d_parent));
}

/*
 * Whether a slot that has its file is that of the last open, whose registers were the same and whose end
 * was not seen: the kernel has skipped the session of this one.
 */
static __always_inline int is_last_open(const struct syscall_state *state,
					const struct nameidata *nd, const struct file *file)
{
	/* Another one is elsewhere on the stack (randomize_kstack_offset). */
	return is_found(nd, file) && (state->nd != (__u64)nd || !is_in_session(state));
}

/*
 * Whether an open whose file is recorded has found another one, although open_fails() has not run: the
 * first was that of a file system inside, or the kprobe was skipped. A security module can open the same
 * file inside.
 */
static __always_inline int is_tried_again(const struct syscall_state *state,
					  const struct nameidata *nd, const struct file *file)
{
	const struct inode *inode = FOLLOW(file, file, f_inode);
	const struct wire_object *item = &state->item[(state->items - 1) & (WIRE_ITEMS - 1)];

	return state->nd == (__u64)nd && is_found(nd, file) &&
	       (!(item->flags & WIRE_OBJECT_INODE) || item->inode.ino != inode->i_ino ||
		item->inode.dev != inode->i_sb->s_dev);
}

/* Records the file that an open has found. Not inlined in the program: preemption is off here. */
static __always_inline void call_opened(struct task_struct *task, __u32 key,
					struct wire_syscall *syscall, const struct file *file)
{
	const struct nameidata *nd = FOLLOW(task_struct, task, nameidata);
	struct wire_syscall *now = syscall;
	struct syscall_state *state = state_find(task, key, &syscall);
	struct scratch *s = scratch();
	__u32 epoch = syscall->epoch;
	int is_skipped = 1;

	if (tlg_late_work && key < WIRE_URING_FIRST &&
	    (!state || (state->judged && is_last_open(state, nd, file)))) {
		/* Without a session before, the same place can be that of the same open. */
		is_skipped = !state || state->frame || state->nd != (__u64)nd;
		call_finish(0, END_LATE);
		state = NULL;
		syscall = now;
		epoch = now->epoch;
	}
	if (!state && key >= WIRE_URING_FIRST)
		return; /* counted when it ends */
	if (!state && state_is_missing(task, key))
		return; /* counted when it began */
	if (!state && is_skipped && began_under_plan())
		__sync_fetch_and_add(&tlg_rescued, 1);
	if (!s)
		return;
	if (state) {
		if (!state->reserved && !state->gave_back && !is_tried_again(state, nd, file))
			return;
		state_restart(state);
		judge(state, nd);
	}
	select_watches(s, syscall);
	s->hits = 0;
	/* Through memory, so that the verifier does not follow both values. */
	s->index = file->f_mode & FMODE_CREATED && !(file->f_flags & O_TMPFILE_BIT);
	if (uses_watches(syscall))
		prefilter_opened(s, file);
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !s->hits)
		return;
	if (!state)
		state = call_claim(task, key, syscall);
	if (!state)
		return;
	judge(state, nd);
	state->reserved = 0;
	state->open_flags = file->f_flags;
	if (state->epoch == epoch)
		state_save_hits(state, s);
	add_opened(state, FOLLOW(nameidata, nd, name), file, s->index);
}

/*
 * LSM file_open(file), v5.8: a file is found and about to be opened. Runs in the calling task, which
 * still has the state of the look-up, with the kernel's copy of the name. Misses opens that fail
 * before, or that another security module refuses: see open_fails(). Misses O_PATH: the end of the
 * syscall finds its object. An overlay opens a file of a lower file system inside: that is not the
 * object.
 */
SEC("lsm/file_open")
int call_open(__u64 *ctx)
{
	const struct file *file = (struct file *)ctx[0];
	struct wire_syscall *syscall;
	struct task_struct *task;
	__u32 key;

	if (gate_excludes(file->f_flags))
		return 0;
	task = current();
	if (file->f_mode & FMODE_NOACCOUNT)
		return 0;
	key = hooked_syscall(task, &syscall);
	if (key == WIRE_NO_SYSCALL || !(syscall->hooks & WIRE_HOOKS_OPEN) || !is_in_call(task))
		return 0;
	if (syscall->facts & WIRE_FACT_WATCH_ONLY &&
	    !(ACC_MODE(file->f_flags) & syscall->watch_perm))
		return 0;
	bpf_preempt_disable();
	call_opened(task, key, syscall, file);
	bpf_preempt_enable();
	return 0;
}

/* Records the name of an open whose object no program has seen, and the watches that it matches as text. */
static __always_inline void open_missed(struct task_struct *task, struct wire_syscall *syscall,
					struct syscall_state *state, const struct nameidata *nd)
{
	const struct filename *filename = FOLLOW(nameidata, nd, name);
	struct scratch *s = scratch();

	if (!s)
		return;
	state_restart(state);
	select_watches(s, syscall);
	s->hits = 0;
	if (uses_watches(syscall))
		watch_missing_name(s, task, FOLLOW(nameidata, nd, dfd), (__u64)filename);
	if (syscall->facts & WIRE_FACT_WATCH_ONLY && !s->hits && !stamp_of(task, state->syscall))
		return;
	state_save_hits(state, s);
	state_add_named(state, WIRE_NAMETYPE_UNKNOWN, filename);
}

/*
 * fentry on fput_close(file), v6.15: inside an open, path_openat() gives back the file that it could not
 * open. The kernel may try again: what a program sees then replaces what is recorded. Files that are
 * closed pass here too.
 */
SEC("fentry/fput_close")
int open_fails(__u64 *ctx)
{
	struct task_struct *task = current();
	const struct nameidata *nd = FOLLOW(task_struct, task, nameidata);
	struct wire_syscall *syscall;
	struct syscall_state *state;
	struct function_call call;

	if (!nd || FOLLOW(nameidata, nd, saved) || !at_entry(&call, ctx, 1))
		return 0;
	state = state_current(&syscall);
	if (!state || !(syscall->hooks & WIRE_HOOKS_OPEN))
		return 0;
	state->open_flags = ARG(call, 0, file)->f_flags;
	if (state->gave_back || (state->reserved && !state->unopened))
		open_missed(task, syscall, state, nd);
	state->gave_back = 1;
	if (state->items)
		state->reserved = 0;
	return 0;
}

#endif /* TOLLGATE_HOOKS_CALL_OPEN_BPF_H */
