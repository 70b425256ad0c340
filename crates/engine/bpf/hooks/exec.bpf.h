/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hooks of exec and of the end of a task. Both engines attach them. */
#ifndef TOLLGATE_HOOKS_EXEC_BPF_H
#define TOLLGATE_HOOKS_EXEC_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/enter_state.bpf.h"
#include "lib/event.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/noreturn.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"

#define PF_SIGNALED	  0x400 /* include/linux/sched.h: killed by a signal */
#define PF_USER_WORKER	  0x4000
#define SIGNAL_GROUP_EXIT 4 /* include/linux/sched/signal.h */
#define SIGNAL_BITS	  0x7f /* of an exit code: the signal that killed the task, or 0 */

/*
 * raw_tp sched_prepare_exec(task, bprm), v6.10: the new program is found, the registers are still
 * those of the old one. Runs at exec only, for both ABIs.
 */
SEC("raw_tp/sched_prepare_exec")
int exec_prepare(struct bpf_raw_tracepoint_args *ctx)
{
	save_enter_state(current());
	return 0;
}

/* Whether the syscall is execve or execveat. */
static __always_inline int is_exec(__u32 abi, __u32 nr)
{
	return abi == WIRE_B64 ? nr == NR_EXECVE_64 || nr == NR_EXECVEAT_64
			       : nr == NR_EXECVE_32 || nr == NR_EXECVEAT_32;
}

/*
 * raw_tp sched_process_exec(task, old_pid, bprm), v3.4: the new program is loaded, its arguments
 * are on its stack and it has not run. The end of every successful exec of both ABIs. The thread
 * may have changed its number to that of its process. Without saved entry state, which only
 * happens if the exec began before the programs were attached, the registers give the syscall.
 */
SEC("raw_tp/sched_process_exec")
int exec_commit(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 bprm = ctx->args[2];
	struct task_struct *task = current();
	struct task_state *of = task_state(task);
	__u32 entered = of && is_entered(of) && is_exec(of->enter.abi, of->enter.nr);
	__u32 nr = entered ? of->enter.nr : REGS_NR(task_regs(task));
	__u32 abi = entered ? of->enter.abi : task_abi(task);
	__u32 flags = WIRE_EVENT_RETURNED | WIRE_EVENT_STARTED;

	if (LOAD(linux_binprm, bprm, filename) != LOAD(linux_binprm, bprm, interp))
		flags |= WIRE_EVENT_SCRIPT;
	syscall_end(task, abi, nr, 0, flags);
	/* Also if no rule names this exec: the next one may end before it saves its own. */
	if (of)
		of->entered = 0;
	return 0;
}

/*
 * raw_tp sched_process_exit(task, group_dead), v6.16 form: runs before the task's memory is
 * released, so that exe and command line can be read. Only tasks that end by exit or exit_group
 * count: the kernel marks those that a signal, or another thread's exit_group, kills. A tracer can
 * have changed the number of the syscall since (PTRACE_EVENT_EXIT): only exit_group ends a process
 * before its last thread.
 */
SEC("raw_tp/sched_process_exit")
int task_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u32 nr = REGS_NR(task_regs(task));
	__u32 abi = task_abi(task);
	__u32 group = FOLLOW(task_struct, task, signal)->flags & SIGNAL_GROUP_EXIT;

	if (task->flags & (PF_SIGNALED | PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	if (task->exit_code & SIGNAL_BITS || !FOLLOW(task_struct, task, mm))
		return 0;
	/* reboot() ends its caller in a namespace of process numbers: reboot_pid_ns(). */
	if (nr == (abi == WIRE_B64 ? NR_REBOOT_64 : NR_REBOOT_32) && !task->ptrace &&
	    (__u32)LOAD(pid, (__u64)FOLLOW(task_struct, task, thread_pid), level))
		;
	else if (!never_returns(abi, nr))
		nr = abi == WIRE_B64 ? (group ? NR_EXIT_GROUP_64 : NR_EXIT_64)
				     : (group ? NR_EXIT_GROUP_32 : NR_EXIT_32);
	syscall_end(task, abi, nr, 0, 0);
	return 0;
}

/* Gives back what a task that ends still has. */
static __always_inline void slots_end(struct task_struct *task)
{
	struct task_state *of = task_state(task);

	if (!of)
		return;
	slot_end(of, SLOT_SYSCALL);
	slot_end(of, SLOT_URING_OP);
	stamp_drop(task);
}

/*
 * raw_tp sched_process_exit(task), v3.4: gives back the slots of a task that ends inside a syscall,
 * or whose syscall ended while its hook was replaced. Attached before the hooks that take slots.
 */
SEC("raw_tp/sched_process_exit")
int slots_exit(struct bpf_raw_tracepoint_args *ctx)
{
	slots_end(current());
	return 0;
}

#endif /* TOLLGATE_HOOKS_EXEC_BPF_H */
