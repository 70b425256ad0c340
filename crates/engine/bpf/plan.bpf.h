/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The calls that rules name, as every program asks for them first, and who is never audited. */
#ifndef TOLLGATE_PLAN_BPF_H
#define TOLLGATE_PLAN_BPF_H

__u32 tlg_self; /* tgid of the daemon, which is never audited; learnt by daemon_self */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WIRE_ABIS *WIRE_SYSCALLS);
	__type(key, __u32);
	__type(value, struct wire_call);
} tlg_calls SEC(".maps");

/* The numbers that rules name, one bit each, for programs that see every call. */
const volatile __u64 tlg_named[WIRE_ABIS][WIRE_SYSCALLS / 64];

static __always_inline int named(__u32 abi, __u32 nr)
{
	if (nr >= WIRE_SYSCALLS || abi >= WIRE_ABIS)
		return 0;
	return (tlg_named[abi][nr / 64] >> (nr % 64)) & 1;
}

/* An argument as the call takes it: a 64-bit program may leave more in the registers of a 32-bit call. */
static __always_inline __u64 call_arg(const struct wire_event *event, __u32 index)
{
	__u64 arg = event->args[index & 3];

	return event->abi == WIRE_B32 ? (__u32)arg : arg;
}

static __always_inline void fill_args(__u64 *args, const struct pt_regs *regs, __u32 abi)
{
	if (abi == WIRE_B64) {
		args[0] = regs->di;
		args[1] = regs->si;
		args[2] = regs->dx;
		args[3] = regs->r10;
	} else {
		args[0] = regs->bx;
		args[1] = regs->cx;
		args[2] = regs->dx;
		args[3] = regs->si;
	}
}

#endif /* TOLLGATE_PLAN_BPF_H */
