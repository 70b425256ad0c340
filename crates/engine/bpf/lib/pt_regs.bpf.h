/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel types that differ by architecture, with the members that the programs read. */
#ifndef TOLLGATE_LIB_PT_REGS_BPF_H
#define TOLLGATE_LIB_PT_REGS_BPF_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long ax;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long bp;
	unsigned long bx;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};

struct thread_info {
	unsigned int status;
};

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	unsigned long regs[31];
	unsigned long sp;
	unsigned long pc;
	unsigned long orig_x0;
	unsigned int syscallno; /* signed in the kernel */
};

struct thread_info {
	unsigned long flags;
};

#else
#error "unknown architecture"
#endif

#pragma clang attribute pop

#endif /* TOLLGATE_LIB_PT_REGS_BPF_H */
