// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where a syscall is seen. One body, syscall_end(), serves two engines; the loader takes the programs
 * of one of them.
 *
 * Tracepoint engine: per-syscall tracepoints, or the one raw tracepoint that also sees 32-bit calls.
 * Attached to any of them, every syscall of the machine takes the kernel's trace slow path; only the
 * calls that rules name run a program.
 *
 * Fentry engine: the kernel functions behind the calls that rules name, of both ABIs. Other calls do
 * not execute one instruction more.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "wire.h"
#include "load.bpf.h"
#include "ring.bpf.h"
#include "scratch.bpf.h"
#include "task.bpf.h"
#include "path.bpf.h"
#include "watch.bpf.h"
#include "plan.bpf.h"
#include "filesystem.bpf.h"
#include "object.bpf.h"
#include "filter.bpf.h"
#include "seen.bpf.h"
#include "resolved.bpf.h"
#include "take.bpf.h"
#include "glance.bpf.h"
#include "label.bpf.h"
#include "append.bpf.h"
#include "context.bpf.h"
#include "fork.bpf.h"
#include "address.bpf.h"
#include "event.bpf.h"
#include "open.bpf.h"
#include "namespace.bpf.h"
#include "attribute.bpf.h"
#include "socket.bpf.h"
#include "detail.bpf.h"
#include "uring.bpf.h"
#include "deny.bpf.h"
#include "avc.bpf.h"
#include "guard.bpf.h"

#define O_ACCMODE	 3 /* none of the bits: opened to read */
#define NR_EXIT_64	 60
#define NR_EXIT_GROUP_64 231
#define NR_EXIT_32	 1
#define NR_EXIT_GROUP_32 252

/*
 * syscalls:sys_exit_X, v2.6.33, one attachment for each X in the plan. Runs in the calling task with
 * preemption off, after the call. Misses 32-bit calls, which have no tracepoint of their own.
 */
SEC("tracepoint/syscalls/sys_exit")
int sys_exit_tp(struct trace_event_raw_sys_exit *ctx)
{
	struct task_struct *task = current();

	syscall_end(task, WIRE_B64, ctx->id, ctx->ret, WIRE_EVENT_RETURNED, task->pid);
	return 0;
}

/*
 * syscalls:sys_enter_X, v2.6.33, for calls whose arguments are replaced (execve) or that block for
 * long. Runs in the calling task before the call. Misses 32-bit calls.
 */
SEC("tracepoint/syscalls/sys_enter")
int sys_enter_tp(struct trace_event_raw_sys_enter *ctx)
{
	save_enter_state(current());
	return 0;
}

/* syscalls:sys_enter_exit and sys_enter_exit_group, which never return. For kernels before v6.16. */
SEC("tracepoint/syscalls/sys_enter_exit")
int sys_enter_noret(struct trace_event_raw_sys_enter *ctx)
{
	struct task_struct *task = current();

	syscall_end(task, WIRE_B64, ctx->id, 0, 0, task->pid);
	return 0;
}

/*
 * raw_tp sys_exit: every call of both ABIs ends here; costs every call of the machine a program run.
 * Attached instead of sys_exit_tp when a rule names a 32-bit call; beside it when rules come to name one
 * later. Its bits say which calls are its own.
 */
SEC("raw_tp/sys_exit")
int sys_exit_raw(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u32 nr = task_regs(task)->orig_ax;
	__u32 abi = task_abi(task);

	if (raw_selects(tlg_raw_exit, abi, nr))
		syscall_end(task, abi, nr, ctx->args[1], WIRE_EVENT_RETURNED, task->pid);
	return 0;
}

static __always_inline int never_returns(__u32 abi, __u32 nr)
{
	return abi == WIRE_B64 ? nr == NR_EXIT_64 || nr == NR_EXIT_GROUP_64
			       : nr == NR_EXIT_32 || nr == NR_EXIT_GROUP_32;
}

/*
 * raw_tp sys_enter: for 32-bit calls that need their entry, on kernels without sched_prepare_exec, and
 * for 32-bit calls that never return, on kernels before v6.16.
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
	if (never_returns(abi, nr)) {
		syscall_end(task, abi, nr, 0, 0, task->pid);
		return 0;
	}
	syscall = plan_syscall(key);
	if (syscall && syscall->facts & WIRE_FACT_ENTER_STATE)
		save_enter_state(task);
	return 0;
}

/*
 * raw_tp sched_prepare_exec(task, bprm), v6.10: the new program is found, the old one's registers are
 * still there. Costs nothing but at exec, and sees both ABIs.
 */
SEC("raw_tp/sched_prepare_exec")
int exec_prepare(struct bpf_raw_tracepoint_args *ctx)
{
	save_enter_state(current());
	return 0;
}

/*
 * raw_tp sched_process_exec(task, old_pid, bprm), v3.4: the new program has started, its arguments lie
 * on its stack and nobody has run in it. The end of every exec that succeeds, of both ABIs. The thread
 * may have got another number, that of its process. Without an entry, which only an exec under way while
 * the programs were attached lacks, the call counts as what its registers now say.
 */
SEC("raw_tp/sched_process_exec")
int exec_commit(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 bprm = ctx->args[2];
	struct task_struct *task = current();
	__u32 thread = ctx->args[1];
	struct wire_enter_state *entry = bpf_map_lookup_elem(&tlg_enter_state, &thread);
	__u32 nr = entry ? entry->nr : task_regs(task)->orig_ax;
	__u32 abi = entry ? entry->abi : task_abi(task);
	__u32 flags = WIRE_EVENT_RETURNED | WIRE_EVENT_STARTED;

	if (LOAD(linux_binprm, bprm, filename) != LOAD(linux_binprm, bprm, interp))
		flags |= WIRE_EVENT_SCRIPT;
	syscall_end(task, abi, nr, 0, flags, thread);
	/* Of an exec that no rule has asked about, too: the next one may end before it leaves its own. */
	bpf_map_delete_elem(&tlg_enter_state, &thread);
	return 0;
}

/*
 * raw_tp sched_process_exit(task, group_dead), v6.16 form: before the task's memory is released, so that
 * program and command line are there. Only a task inside exit or exit_group counts: any other call it
 * died in has reported itself.
 */
SEC("raw_tp/sched_process_exit")
int task_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u32 nr = task_regs(task)->orig_ax;
	__u32 abi = task_abi(task);

	if (never_returns(abi, nr))
		syscall_end(task, abi, nr, 0, 0, task->pid);
	return 0;
}

/*
 * Programs on functions are bound to their function when they are loaded. What is loaded once for each
 * call is therefore a stub of a few instructions that jumps to a program loaded once: verifying the
 * whole body, some 40,000 steps, for each of a hundred calls would take seconds on a fast machine.
 *
 * The jump needs both to be on functions of one type, to the letter: the kernel has two for syscalls,
 * which differ in the name of their argument, `regs` or, for calls that have no arguments and for those
 * that can be left out of a build, `__unused`. Hence two of each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tlg_tail_exit SEC(".maps"), tlg_tail_exit0 SEC(".maps"), tlg_tail_noret SEC(".maps"),
	tlg_tail_noret0 SEC(".maps");

/* fexit on a syscall's function, v5.5. Runs in the calling task when the call ends. */
SEC("fexit/__x64_sys_close")
int stub_sys_exit(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* Whether rules may match an openat, or an open, that only reads. */
volatile __u32 tlg_openat_reads;
volatile __u32 tlg_open_reads;

/*
 * The same on the functions of openat and open: where rules match only what is opened to write, most opens
 * only read, and end here.
 */
SEC("fexit/__x64_sys_close")
int stub_openat(__u64 *ctx)
{
	if (!(((struct pt_regs *)ctx[0])->dx & O_ACCMODE) && !tlg_openat_reads)
		return 0;
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

SEC("fexit/__x64_sys_close")
int stub_open(__u64 *ctx)
{
	if (!(((struct pt_regs *)ctx[0])->si & O_ACCMODE) && !tlg_open_reads)
		return 0;
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* The same on a function whose argument is called `__unused`. */
SEC("fexit/__do_sys_getpid")
int stub_sys_exit0(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_exit0, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* fentry on the function of a call that never ends. */
SEC("fentry/__x64_sys_close")
int stub_noreturn(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_noret, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

SEC("fentry/__do_sys_getpid")
int stub_noreturn0(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_noret0, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* fentry on the function of a call of which something must be remembered. */
SEC("fentry/__x64_sys_close")
int sys_enter_fn(__u64 *ctx)
{
	save_enter_state(current());
	return 0;
}

static __always_inline int fn_exit(__s64 ret, __u32 flags)
{
	struct task_struct *task = current();

	syscall_end(task, task_abi(task), task_regs(task)->orig_ax, ret, flags, task->pid);
	return 0;
}

/* Bodies of the stubs. Bound to a function of the right type, and never attached to it. */
SEC("fexit/__x64_sys_close")
int sys_exit_fn(__u64 *ctx)
{
	return fn_exit(ctx[1], WIRE_EVENT_RETURNED);
}

SEC("fexit/__do_sys_getpid")
int sys_exit_fn0(__u64 *ctx)
{
	return fn_exit(ctx[1], WIRE_EVENT_RETURNED);
}

SEC("fentry/__x64_sys_close")
int noreturn_fn(__u64 *ctx)
{
	return fn_exit(0, 0);
}

SEC("fentry/__do_sys_getpid")
int noreturn_fn0(__u64 *ctx)
{
	return fn_exit(0, 0);
}

/* How often the daemon's own call has run `heartbeat`. */
__u64 tlg_heartbeats;

/*
 * fentry on sched_rr_get_interval(2), v5.5. Runs in the calling task. The daemon makes this call and
 * looks whether the program has run: kernel.ftrace_enabled=0 stops every program on a function, and
 * nothing else tells. This call because every kernel has it, hardly a program makes it, and the kernel
 * refuses it for thread -1 before it takes a lock. Others who make it pay a trampoline and a comparison.
 */
SEC("fentry/__x64_sys_sched_rr_get_interval")
int heartbeat(__u64 *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == tlg_daemon_tgid)
		tlg_heartbeats++;
	return 0;
}

/* v5.12; its address is known where the kernel lists its data symbols. */
extern const void preempt_dynamic_mode __ksym __weak;

/* How the kernel preempts itself: 0 none, 1 voluntary, 2 full, 3 lazy; -1 when it does not say. */
__s32 tlg_preempt;

/* Ticks of the kernel when daemon_register ran last. */
__u64 tlg_jiffies;

/*
 * Run by the daemon itself through BPF_PROG_TEST_RUN: which task not to audit, the tick count, and
 * where labels are.
 */
SEC("raw_tp/self")
int daemon_register(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();

	if (is_untrusted((__u64)task))
		return 0;
	tlg_daemon_start = FOLLOW(task_struct, task, group_leader)->start_boottime;
	tlg_daemon_tgid = task->tgid;
	tlg_jiffies = bpf_jiffies64();
	find_label_offset();
	tlg_preempt = -1;
	if (&preempt_dynamic_mode)
		bpf_probe_read_kernel(&tlg_preempt, sizeof(tlg_preempt), &preempt_dynamic_mode);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
