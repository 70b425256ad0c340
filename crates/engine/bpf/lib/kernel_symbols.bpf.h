/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Addresses of the kernel's variables and functions, from /proc/kallsyms. The loader reads that file
 * once; for externs (__ksym) libbpf reads it again for each object that it opens.
 */
#ifndef TOLLGATE_LIB_KERNEL_SYMBOLS_BPF_H
#define TOLLGATE_LIB_KERNEL_SYMBOLS_BPF_H

#include "lib/kernel.bpf.h"

/* 0 where the kernel has no such symbol, or does not show it. */
struct kernel_symbols {
	__u64 rename_lock; /* v3.10 */
	__u64 mount_lock; /* v3.13 */
	__u64 tk_core; /* v3.17 to v6.16: the timekeeper */
	__u64 timekeeper_data; /* v6.17: the same */
	__u64 init_task;
	__u64 init_nsproxy;
	__u64 apparmor_blob_sizes; /* v4.20 */
	__u64 preempt_dynamic_mode; /* v5.12 */
	__u64 cond_resched_jump; /* __SCT__cond_resched of x86, v5.12: the code to which cond_resched() jumps */
	__u64 cond_resched; /* __cond_resched: its target where it reschedules */
	__u64 return_to_handler; /* where a function with a session returns to */
};

const volatile struct kernel_symbols tlg_symbols;

#endif /* TOLLGATE_LIB_KERNEL_SYMBOLS_BPF_H */
