/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a task: what was saved when its syscall began, which slots its syscall and its
 * io_uring operation hold, and the stamp of a record that belongs to its syscall. The kernel keeps
 * it with the task and frees it with the task: it moves with a thread that takes another number in
 * an exec, and who gets a number of a dead thread does not find it.
 */
#ifndef TOLLGATE_LIB_TASK_STATE_BPF_H
#define TOLLGATE_LIB_TASK_STATE_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"

/* What holds a slot: a task has at most one of each in progress. */
enum slot_kind {
	SLOT_SYSCALL,
	SLOT_URING_OP,
	SLOT_KINDS,
};

#define STAMP_BYTES 40 /* audit(SECONDS.MMM:SERIAL): */

/* Stamp of a record that the kernel has written in the middle of a syscall. */
struct record_stamp {
	__u32 kind; /* type of the record, or 0 */
	__u32 syscall; /* index in the syscall table */
	__u32 epoch; /* of the plan in force */
	__u32 _pad;
	__u64 text[STAMP_BYTES / 8];
};

struct task_state {
	struct wire_enter_state enter;
	__u32 entered; /* 1 + epoch of the plan that saved `enter`, or 0 */
	__u32 generation; /* tlg_slot_generation when a slot was last taken */
	__u32 slot[SLOT_KINDS]; /* 1 + index of the slot, or 0 */
	__u32 missing[SLOT_KINDS]; /* 1 + index in the syscall table of what got no slot, or 0 */
	__u32 let_through
		[SLOT_KINDS]; /* a program of `[on_loss] deny` did not deny it: see submit() */
	__u64 operation_in; /* call_fingerprint() of the syscall in which the io_uring operation runs */
	struct record_stamp stamp;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tlg_task_state SEC(".maps");

/* State of a task, or NULL. */
static __always_inline struct task_state *task_state(struct task_struct *task)
{
	return bpf_task_storage_get(&tlg_task_state, task, NULL, 0);
}

/* State of a task, made if it has none; NULL if the kernel has no memory for it. */
static __always_inline struct task_state *task_state_create(struct task_struct *task)
{
	return bpf_task_storage_get(&tlg_task_state, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Whether a program of `[on_loss] deny` saw the task's syscall or operation, and did not deny it. */
static __always_inline int is_let_through(struct task_struct *task, enum slot_kind kind)
{
	const struct task_state *of = task_state(task);

	return of && of->let_through[kind];
}

#endif /* TOLLGATE_LIB_TASK_STATE_BPF_H */
