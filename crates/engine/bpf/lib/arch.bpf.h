/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What differs by architecture: registers of a syscall, numbers of syscalls, names of their
 * functions. The numbers are those of the tables in crates/audit, which a test compares.
 */
#ifndef TOLLGATE_LIB_ARCH_BPF_H
#define TOLLGATE_LIB_ARCH_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"

#if defined(__TARGET_ARCH_x86)

/* Prefix of the functions of syscalls, and of those without arguments. */
#define SYSCALL_FN	   "__x64_sys_"
#define SYSCALL_FN0	   "__do_sys_"

#define NR_EXIT_64	   60
#define NR_EXIT_GROUP_64   231
#define NR_EXIT_32	   1
#define NR_EXIT_GROUP_32   252
#define NR_RT_SIGRETURN_64 15
#define NR_RT_SIGRETURN_32 173
#define NR_SIGRETURN_32	   119
#define NR_EXECVE_64	   59
#define NR_EXECVEAT_64	   322
#define NR_EXECVE_32	   11
#define NR_EXECVEAT_32	   358
#define NR_REBOOT_64	   169
#define NR_REBOOT_32	   88

/* REGS_FULL_NR() while an interrupt from user space is handled. */
#define NO_SYSCALL_NUMBER (~0ULL)

#define TS_COMPAT	  2 /* arch/x86/include/asm/thread_info.h: inside a 32-bit syscall */

static __always_inline __u32 task_abi(const struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT ? WIRE_B32 : WIRE_B64;
}

#define REGS_FULL_NR(r) ((r)->orig_ax)
#define REGS_IP(r)	((r)->ip)

/* The result of the syscall, once it has ended. */
#define REGS_RESULT(r) ((r)->ax)

/* REGS_RESULT() while the syscall has none: entry code has stored it. */
#define REGS_NO_RESULT(r) ((unsigned long)-ENOSYS)

/* Arguments of a 64-bit syscall, from 1. */
#define REGS_ARG1(r) ((r)->di)
#define REGS_ARG2(r) ((r)->si)
#define REGS_ARG3(r) ((r)->dx)
#define REGS_ARG4(r) ((r)->r10)
#define REGS_ARG5(r) ((r)->r8)
#define REGS_ARG6(r) ((r)->r9)

/* Arguments of a 32-bit syscall. */
#define REGS_COMPAT_ARG1(r) ((r)->bx)
#define REGS_COMPAT_ARG2(r) ((r)->cx)
#define REGS_COMPAT_ARG3(r) ((r)->dx)
#define REGS_COMPAT_ARG4(r) ((r)->si)
#define REGS_COMPAT_ARG5(r) ((r)->di)
#define REGS_COMPAT_ARG6(r) ((r)->bp)

/* One more register that a syscall preserves, beside its first four arguments. */
#define REGS_PRESERVED(r) ((r)->bx)

/* Arguments of a function of the kernel, and its result. */
#define FUNCTION_ARG1(r)   ((r)->di)
#define FUNCTION_ARG2(r)   ((r)->si)
#define FUNCTION_ARG3(r)   ((r)->dx)
#define FUNCTION_ARG4(r)   ((r)->cx)
#define FUNCTION_ARG5(r)   ((r)->r8)
#define FUNCTION_ARG6(r)   ((r)->r9)
#define FUNCTION_RESULT(r) ((r)->ax)

#elif defined(__TARGET_ARCH_arm64)

#define SYSCALL_FN	   "__arm64_sys_"
#define SYSCALL_FN0	   "__arm64_sys_"

#define NR_EXIT_64	   93
#define NR_EXIT_GROUP_64   94
#define NR_EXIT_32	   1
#define NR_EXIT_GROUP_32   248
#define NR_RT_SIGRETURN_64 139
#define NR_RT_SIGRETURN_32 173
#define NR_SIGRETURN_32	   119
#define NR_EXECVE_64	   221
#define NR_EXECVEAT_64	   281
#define NR_EXECVE_32	   11
#define NR_EXECVEAT_32	   387
#define NR_REBOOT_64	   142
#define NR_REBOOT_32	   88

#define NO_SYSCALL_NUMBER  0xffffffffULL /* NO_SYSCALL, arch/arm64/include/asm/ptrace.h */

#define TIF_32BIT	   (1UL << 22) /* arch/arm64/include/asm/thread_info.h: AArch32 */

static __always_inline __u32 task_abi(const struct task_struct *task)
{
	return task->thread_info.flags & TIF_32BIT ? WIRE_B32 : WIRE_B64;
}

#define REGS_FULL_NR(r)	   ((r)->syscallno)
#define REGS_IP(r)	   ((r)->pc)

#define REGS_RESULT(r)	   ((r)->regs[0])

/*
 * The result replaces the first argument, so a syscall that returns its first argument looks as if
 * it had no result, and one whose first argument a tracer has replaced as if it had one.
 */
#define REGS_NO_RESULT(r)  ((r)->orig_x0)

#define REGS_ARG1(r)	   ((r)->orig_x0)
#define REGS_ARG2(r)	   ((r)->regs[1])
#define REGS_ARG3(r)	   ((r)->regs[2])
#define REGS_ARG4(r)	   ((r)->regs[3])
#define REGS_ARG5(r)	   ((r)->regs[4])
#define REGS_ARG6(r)	   ((r)->regs[5])

#define REGS_COMPAT_ARG1   REGS_ARG1
#define REGS_COMPAT_ARG2   REGS_ARG2
#define REGS_COMPAT_ARG3   REGS_ARG3
#define REGS_COMPAT_ARG4   REGS_ARG4
#define REGS_COMPAT_ARG5   REGS_ARG5
#define REGS_COMPAT_ARG6   REGS_ARG6

#define REGS_PRESERVED(r)  ((r)->regs[4])

#define FUNCTION_ARG1(r)   ((r)->regs[0])
#define FUNCTION_ARG2(r)   ((r)->regs[1])
#define FUNCTION_ARG3(r)   ((r)->regs[2])
#define FUNCTION_ARG4(r)   ((r)->regs[3])
#define FUNCTION_ARG5(r)   ((r)->regs[4])
#define FUNCTION_ARG6(r)   ((r)->regs[5])
#define FUNCTION_RESULT(r) ((r)->regs[0])

#endif

/* Number of the syscall in its ABI. */
#define REGS_NR(r) ((__u32)REGS_FULL_NR(r))

/* Whether the syscall has no result yet. */
#define REGS_IN_SYSCALL(r) (REGS_RESULT(r) == REGS_NO_RESULT(r))

#endif /* TOLLGATE_LIB_ARCH_BPF_H */
