/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's audit writes some records in the middle of a syscall, with a stamp of their own. If
 * rules name the syscall, the stamp is kept with the task until the syscall ends: the event gets it
 * and so belongs to the record, as when the kernel audits the syscall.
 */
#ifndef TOLLGATE_LIB_RECORD_STAMP_BPF_H
#define TOLLGATE_LIB_RECORD_STAMP_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task_state.bpf.h"

/* Stamps that tasks have now. The end of a syscall looks for one only if this is not 0. */
volatile __u32 tlg_stamps;

/* Keeps the stamp of a record for the syscall `key`. Returns 0 if there is no memory, or one is kept. */
static __always_inline int stamp_keep(struct task_struct *task, __u32 key, __u32 kind,
				      const void *text)
{
	struct task_state *of = task_state_create(task);

	if (!of || of->stamp.kind)
		return 0;
	if (bpf_probe_read_kernel(of->stamp.text, sizeof(of->stamp.text), text))
		return 0;
	of->stamp.kind = kind;
	of->stamp.syscall = key;
	of->stamp.epoch = tlg_epoch;
	__sync_fetch_and_add(&tlg_stamps, 1);
	return 1;
}

/* The stamp that the syscall `key` of a task, which ends, has, or NULL. */
static __always_inline struct record_stamp *stamp_of(struct task_struct *task, __u32 key)
{
	struct task_state *of;

	if (!tlg_stamps)
		return NULL;
	of = task_state(task);
	if (!of || !of->stamp.kind || of->stamp.syscall != key)
		return NULL;
	if (of->stamp.epoch != tlg_epoch && of->stamp.epoch != tlg_epoch_prev)
		return NULL; /* of a syscall that ended while no rule named it */
	return &of->stamp;
}

/* Drops the stamp of a task whose syscall has ended. */
static __always_inline void stamp_drop(struct task_struct *task)
{
	struct task_state *of;

	if (!tlg_stamps)
		return;
	of = task_state(task);
	if (!of || !of->stamp.kind)
		return;
	of->stamp.kind = 0;
	__sync_fetch_and_add(&tlg_stamps, -1);
}

/* Appends a stamp as the first auxiliary record of the event. */
static __always_inline void append_stamp(struct scratch *s, __u32 kind, const void *text)
{
	struct wire_aux *aux = tail_at(s, s->used);

	aux->kind = kind;
	if (bpf_probe_read_kernel(aux->word, STAMP_BYTES, text))
		aux->word[0] = 0;
	s->event.aux_count = 1;
	s->used += sizeof(*aux);
}

#endif /* TOLLGATE_LIB_RECORD_STAMP_BPF_H */
