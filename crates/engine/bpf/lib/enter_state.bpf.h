/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of a syscall saved at its entry and loaded at its exit: arguments and time. */
#ifndef TOLLGATE_LIB_ENTER_STATE_BPF_H
#define TOLLGATE_LIB_ENTER_STATE_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"

/* Saves what is overwritten or too late to read when the syscall ends. */
static __always_inline void save_enter_state(struct task_struct *task)
{
	const struct pt_regs *regs = task_regs(task);
	struct task_state *of = task_state_create(task);

	if (!of) {
		count_truncated(WIRE_TRUNC_ENTER_STATE);
		return;
	}
	of->enter.jiffies = bpf_jiffies64();
	of->enter.nr = REGS_NR(regs);
	of->enter.abi = task_abi(task);
	fill_args(of->enter.args, regs, of->enter.abi);
	of->entered = 1 + tlg_epoch;
}

/*
 * Whether state is saved, by this plan or the one before: a syscall that no rule names when it ends
 * leaves what it has saved.
 */
static __always_inline int is_entered(const struct task_state *of)
{
	__u32 epoch = of->entered - 1;

	return of->entered && (epoch == tlg_epoch || epoch == tlg_epoch_prev);
}

/* Loads the state saved at entry. An exec that fails early has saved none and loses nothing. */
static __always_inline void load_enter_state(struct wire_event *event, struct task_struct *task)
{
	struct task_state *of = task_state(task);

	if (!of || !is_entered(of) || of->enter.nr != event->nr || of->enter.abi != event->abi) {
		if (event->flags & WIRE_EVENT_STARTED)
			count_truncated(WIRE_TRUNC_ENTER_STATE);
		return;
	}
	event->flags &= ~WIRE_EVENT_UNPROVEN; /* it was entered */
	event->jiffies = of->enter.jiffies;
	for (int i = 0; i < 4; i++)
		event->args[i] = of->enter.args[i];
	of->entered = 0;
}

#endif /* TOLLGATE_LIB_ENTER_STATE_BPF_H */
