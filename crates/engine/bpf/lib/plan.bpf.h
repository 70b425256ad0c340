/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The plan: the syscalls that rules name, and the task that is not audited.
 *
 * There is room for two plans, so that one can be written while the other is in force. Syscalls,
 * tests and watches are in two halves. tlg_epoch counts the plans; its lowest bit is the half in
 * force, so one store switches plans. A syscall in progress keeps the plan under which its first
 * hook ran. What only saves work (the open gate, the bits of sys_exit_raw) is not in halves: user
 * space widens it before the switch and narrows it after.
 */
#ifndef TOLLGATE_LIB_PLAN_BPF_H
#define TOLLGATE_LIB_PLAN_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"

/* The daemon, which is not audited; set by daemon_register. */
__u32 tlg_daemon_tgid;
__u64 tlg_daemon_start; /* start time: the number of a killed daemon can be reused */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WIRE_PLAN_ENTRIES);
	__type(key, __u32);
	__type(value, struct wire_syscall);
} tlg_syscalls SEC(".maps");

#define NO_EPOCH (~0U)

/* The plan in force. */
volatile __u32 tlg_epoch;

/* Epoch of the previous plan while its half is intact, or NO_EPOCH. */
volatile __u32 tlg_epoch_prev;

/* jiffies when the plan in force replaced another one, or 0. */
volatile __u64 tlg_switched_at;

/* Bitmaps of the syscalls that the raw sys_enter and sys_exit handle. */
volatile __u64 tlg_raw_enter[WIRE_ABIS][WIRE_SYSCALLS / 64];
volatile __u64 tlg_raw_exit[WIRE_ABIS][WIRE_SYSCALLS / 64];

/* Entry of a plan for a syscall; `key` is its index in the syscall table. */
static __always_inline struct wire_syscall *plan_syscall_at(__u32 epoch, __u32 key)
{
	__u32 index = (epoch & 1) * WIRE_PLAN_ENTRIES + key;

	return bpf_map_lookup_elem(&tlg_syscalls, &index);
}

/* Entry of the plan in force. */
static __always_inline struct wire_syscall *plan_syscall(__u32 key)
{
	return plan_syscall_at(tlg_epoch, key);
}

/* Whether a task belongs to the daemon. */
static __always_inline int is_daemon(const struct task_struct *task)
{
	return (__u32)task->tgid == tlg_daemon_tgid &&
	       FOLLOW(task_struct, task, group_leader)->start_boottime == tlg_daemon_start;
}

static __always_inline int raw_selects(const volatile __u64 (*bits)[WIRE_SYSCALLS / 64], __u32 abi,
				       __u32 nr)
{
	if (nr >= WIRE_SYSCALLS || abi >= WIRE_ABIS)
		return 0;
	return (bits[abi][nr / 64] >> (nr % 64)) & 1;
}

/*
 * An argument as the syscall reads it: a 64-bit program can leave upper bits in the registers of a
 * 32-bit syscall.
 */
static __always_inline __u64 syscall_arg(const struct wire_event *event, __u32 index)
{
	__u64 arg = event->args[index & 3];

	return event->abi == WIRE_B32 ? (__u32)arg : arg;
}

static __always_inline void fill_args(__u64 *args, const struct pt_regs *regs, __u32 abi)
{
	if (abi == WIRE_B64) {
		args[0] = REGS_ARG1(regs);
		args[1] = REGS_ARG2(regs);
		args[2] = REGS_ARG3(regs);
		args[3] = REGS_ARG4(regs);
	} else {
		args[0] = REGS_COMPAT_ARG1(regs);
		args[1] = REGS_COMPAT_ARG2(regs);
		args[2] = REGS_COMPAT_ARG3(regs);
		args[3] = REGS_COMPAT_ARG4(regs);
	}
}

#endif /* TOLLGATE_LIB_PLAN_BPF_H */
