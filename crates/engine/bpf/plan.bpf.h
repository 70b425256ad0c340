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

static __always_inline void fill_args(__u64 *args, const struct pt_regs *regs, __u32 abi)
{
	if (abi == WIRE_B64) {
		args[0] = regs->di;
		args[1] = regs->si;
		args[2] = regs->dx;
		args[3] = regs->r10;
	} else {
		args[0] = (__u32)regs->bx;
		args[1] = (__u32)regs->cx;
		args[2] = (__u32)regs->dx;
		args[3] = (__u32)regs->si;
	}
}

#endif /* TOLLGATE_PLAN_BPF_H */
