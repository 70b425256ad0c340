/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The syscalls that are recorded without a result: those that end the task, and sigreturn. */
#ifndef TOLLGATE_LIB_NORETURN_BPF_H
#define TOLLGATE_LIB_NORETURN_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/kernel.bpf.h"

static __always_inline int never_returns(__u32 abi, __u32 nr)
{
	return abi == WIRE_B64 ? nr == NR_EXIT_64 || nr == NR_EXIT_GROUP_64
			       : nr == NR_EXIT_32 || nr == NR_EXIT_GROUP_32;
}

/*
 * Whether the syscall replaces all registers, its own number too, by those that a signal had
 * interrupted: at its end it is no longer known.
 */
static __always_inline int restores_registers(__u32 abi, __u32 nr)
{
	return abi == WIRE_B64 ? nr == NR_RT_SIGRETURN_64
			       : nr == NR_RT_SIGRETURN_32 || nr == NR_SIGRETURN_32;
}

#endif /* TOLLGATE_LIB_NORETURN_BPF_H */
