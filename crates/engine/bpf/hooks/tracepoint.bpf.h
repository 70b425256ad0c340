/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Syscall tracepoints: all hooks of the tracepoint engine. */
#ifndef TOLLGATE_HOOKS_TRACEPOINT_BPF_H
#define TOLLGATE_HOOKS_TRACEPOINT_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/enter_state.bpf.h"
#include "lib/event.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/noreturn.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/task.bpf.h"

#define SECCOMP_MODE_FILTER 2 /* include/uapi/linux/seccomp.h */

/*
 * Flags of a syscall that returned. A seccomp filter (SECCOMP_RET_ERRNO, a notification) and a
 * tracer (PTRACE_SYSEMU) can answer a syscall in place of the kernel. Both run before sys_enter and
 * leave no trace that sys_exit could see: syscall_trace_enter(), kernel/entry/common.c. Misses a
 * tracer that detaches during the syscall.
 */
static __always_inline __u32 returned_flags(const struct task_struct *task)
{
	__u32 flags = WIRE_EVENT_RETURNED;

	if (task->ptrace)
		flags |= WIRE_EVENT_UNPROVEN;
	if (bpf_core_field_exists(task->seccomp) && task->seccomp.mode == SECCOMP_MODE_FILTER)
		flags |= WIRE_EVENT_UNPROVEN;
	return flags;
}

/*
 * syscalls:sys_exit_X, v2.6.33, one attachment for each syscall of the plan. Runs in the calling
 * task with preemption off, after the syscall. Misses 32-bit syscalls, which have no tracepoint of
 * their own.
 */
SEC("tracepoint/syscalls/sys_exit")
int sys_exit_tp(struct trace_event_raw_sys_exit *ctx)
{
	struct task_struct *task = current();

	syscall_end(task, WIRE_B64, ctx->id, ctx->ret, returned_flags(task));
	return 0;
}

/*
 * syscalls:sys_enter_X, v2.6.33, for syscalls that replace their arguments (execve) or block for
 * long. Runs in the calling task before the syscall. Misses 32-bit syscalls.
 */
SEC("tracepoint/syscalls/sys_enter")
int sys_enter_tp(struct trace_event_raw_sys_enter *ctx)
{
	save_enter_state(current());
	return 0;
}

/*
 * syscalls:sys_enter_X of syscalls without a result: rt_sigreturn, and before v6.16 exit and
 * exit_group.
 */
SEC("tracepoint/syscalls/sys_enter_exit")
int sys_enter_noret(struct trace_event_raw_sys_enter *ctx)
{
	struct task_struct *task = current();

	/* Not from ctx: that of a syscall without arguments is too short for a long. */
	syscall_end(task, WIRE_B64, REGS_NR(task_regs(task)), 0, 0);
	return 0;
}

/*
 * raw_tp sys_exit, v4.17: every syscall of both ABIs. Runs a program for every syscall of the
 * machine. Replaces sys_exit_tp if a rule names a 32-bit syscall; attached beside it if such a
 * rule is added later. tlg_raw_exit selects its syscalls.
 */
SEC("raw_tp/sys_exit")
int sys_exit_raw(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u32 nr = REGS_NR(task_regs(task));
	__u32 abi = task_abi(task);

	if (raw_selects(tlg_raw_exit, abi, nr))
		syscall_end_at(task, abi, nr, ctx->args[1], returned_flags(task), SEEN_AFTER);
	return 0;
}

/*
 * raw_tp sys_enter, v4.17: for 32-bit syscalls that need their entry on kernels without
 * sched_prepare_exec, for 32-bit sigreturn, and for 32-bit syscalls that end the task on kernels
 * before v6.16.
 */
SEC("raw_tp/sys_enter")
int sys_enter_raw(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u32 nr = ctx->args[1];
	__u32 abi = task_abi(task);
	__u32 key = abi * WIRE_SYSCALLS + nr;
	struct wire_syscall *syscall;

	if (!raw_selects(tlg_raw_enter, abi, nr))
		return 0;
	if (never_returns(abi, nr) || restores_registers(abi, nr)) {
		syscall_end(task, abi, nr, 0, 0);
		return 0;
	}
	syscall = plan_syscall(key);
	if (syscall && syscall->facts & WIRE_FACT_ENTER_STATE)
		save_enter_state(task);
	return 0;
}

#endif /* TOLLGATE_HOOKS_TRACEPOINT_BPF_H */
