/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The syscalls that never return: exit and exit_group. */
#ifndef TOLLGATE_LIB_NORETURN_BPF_H
#define TOLLGATE_LIB_NORETURN_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"

#define NR_EXIT_64	 60
#define NR_EXIT_GROUP_64 231
#define NR_EXIT_32	 1
#define NR_EXIT_GROUP_32 252

static __always_inline int never_returns(__u32 abi, __u32 nr)
{
	return abi == WIRE_B64 ? nr == NR_EXIT_64 || nr == NR_EXIT_GROUP_64
			       : nr == NR_EXIT_32 || nr == NR_EXIT_GROUP_32;
}

#endif /* TOLLGATE_LIB_NORETURN_BPF_H */
