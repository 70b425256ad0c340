/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stubs: programs on the functions of syscalls. A program on a function is bound to it when it is
 * loaded, so the loader makes one copy for each syscall. A stub has a few instructions and
 * tail-calls a target that is loaded once: verifying the whole target, some 40,000 steps, for each
 * of a hundred syscalls takes seconds.
 *
 * A tail call needs the same function type on both sides, including argument names. The kernel has
 * two types for syscalls: `regs`, or `__unused` for syscalls without arguments (SYSCALL_DEFINE0)
 * and for those that can be configured out. Programs for the latter end in 0.
 */
#ifndef TOLLGATE_HOOKS_STUB_BPF_H
#define TOLLGATE_HOOKS_STUB_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/enter_state.bpf.h"
#include "lib/event.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"

#define O_ACCMODE 3 /* none of these bits: opened for reading */

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tlg_tail_exit SEC(".maps"), tlg_tail_exit0 SEC(".maps"), tlg_tail_noret SEC(".maps"),
	tlg_tail_noret0 SEC(".maps");

/* fexit on the function of a syscall, v5.5. Runs in the calling task at the end of the syscall. */
SEC("fexit/" SYSCALL_FN "close")
int stub_sys_exit(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* Whether a rule may match an openat, or an open, that only reads. */
volatile __u32 tlg_openat_reads;
volatile __u32 tlg_open_reads;

/* The same for openat and open: if rules only match opens for writing, most opens return here. */
SEC("fexit/" SYSCALL_FN "close")
int stub_openat(__u64 *ctx)
{
	if (!(REGS_ARG3((struct pt_regs *)ctx[0]) & O_ACCMODE) && !tlg_openat_reads && !tlg_stamps)
		return 0;
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

SEC("fexit/" SYSCALL_FN "close")
int stub_open(__u64 *ctx)
{
	if (!(REGS_ARG2((struct pt_regs *)ctx[0]) & O_ACCMODE) && !tlg_open_reads && !tlg_stamps)
		return 0;
	bpf_tail_call(ctx, &tlg_tail_exit, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* The same on a function whose argument is named `__unused`. */
SEC("fexit/" SYSCALL_FN0 "getpid")
int stub_sys_exit0(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_exit0, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* fentry on the function of a syscall that does not return, v5.5. */
SEC("fentry/" SYSCALL_FN "close")
int stub_noreturn(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_noret, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

SEC("fentry/" SYSCALL_FN0 "getpid")
int stub_noreturn0(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_noret0, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* fentry on the function of a syscall that needs state of its entry, v5.5. */
SEC("fentry/" SYSCALL_FN "close")
int sys_enter_fn(__u64 *ctx)
{
	struct task_struct *task = current();

	if (tlg_hooked)
		state_drop(task, SLOT_SYSCALL);
	save_enter_state(task);
	return 0;
}

/*
 * A debugger that stops a task inside clone, fork, vfork or execve can replace its number. The
 * cookie of these attachments has the numbers of the function: 1 + that of b64 in the low 16 bits,
 * 1 + that of b32 above; v5.19.
 */
static __always_inline int fn_exit(void *ctx, __s64 ret, __u32 flags)
{
	struct task_struct *task = current();
	__u32 numbers = bpf_get_attach_cookie(ctx);
	__u32 nr = REGS_NR(task_regs(task));
	__u32 abi = task_abi(task);

	if (numbers)
		nr = (abi == WIRE_B64 ? numbers & 0xffff : numbers >> 16) - 1;
	/*
	 * Syscalls of the 32-bit table share functions: this one may be hooked for another syscall
	 * only, and sys_exit_raw handles this one.
	 */
	if (raw_selects(tlg_raw_exit, abi, nr))
		return 0;
	syscall_end(task, abi, nr, ret, flags);
	return 0;
}

/*
 * Tail-call targets of the stubs. Bound to a function of the right type and never attached to it.
 */
SEC("fexit/" SYSCALL_FN "close")
int sys_exit_fn(__u64 *ctx)
{
	return fn_exit(ctx, ctx[1], WIRE_EVENT_RETURNED);
}

SEC("fexit/" SYSCALL_FN0 "getpid")
int sys_exit_fn0(__u64 *ctx)
{
	return fn_exit(ctx, ctx[1], WIRE_EVENT_RETURNED);
}

SEC("fentry/" SYSCALL_FN "close")
int noreturn_fn(__u64 *ctx)
{
	return fn_exit(ctx, 0, 0);
}

SEC("fentry/" SYSCALL_FN0 "getpid")
int noreturn_fn0(__u64 *ctx)
{
	return fn_exit(ctx, 0, 0);
}

#endif /* TOLLGATE_HOOKS_STUB_BPF_H */
