/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State of a syscall saved at its entry and loaded at its exit: arguments and time. */
#ifndef TOLLGATE_LIB_ENTER_STATE_BPF_H
#define TOLLGATE_LIB_ENTER_STATE_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/task.bpf.h"

/*
 * Saved state by thread. LRU: the oldest is evicted; the loss is counted when the state is missed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct wire_enter_state);
} tlg_enter_state SEC(".maps");

/* Saves what is overwritten or too late to read when the syscall ends. */
static __always_inline void save_enter_state(struct task_struct *task)
{
	const struct pt_regs *regs = task_regs(task);
	__u32 thread = task->pid;
	struct wire_enter_state entry = {
		.jiffies = bpf_jiffies64(),
		.nr = regs->orig_ax,
		.abi = task_abi(task),
	};

	fill_args(entry.args, regs, entry.abi);
	if (bpf_map_update_elem(&tlg_enter_state, &thread, &entry, BPF_ANY))
		count_truncated(WIRE_TRUNC_ENTER_STATE);
}

/* Loads the state saved at entry. An exec that fails early has saved none and loses nothing. */
static __always_inline void load_enter_state(struct wire_event *event, __u32 thread)
{
	struct wire_enter_state *entry = bpf_map_lookup_elem(&tlg_enter_state, &thread);

	if (!entry || entry->nr != event->nr || entry->abi != event->abi) {
		if (event->flags & WIRE_EVENT_STARTED)
			count_truncated(WIRE_TRUNC_ENTER_STATE);
		return;
	}
	event->flags &= ~WIRE_EVENT_UNPROVEN; /* it was entered */
	event->jiffies = entry->jiffies;
	for (int i = 0; i < 4; i++)
		event->args[i] = entry->args[i];
	bpf_map_delete_elem(&tlg_enter_state, &thread);
}

#endif /* TOLLGATE_LIB_ENTER_STATE_BPF_H */
