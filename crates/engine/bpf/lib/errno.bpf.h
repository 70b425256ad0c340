/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Error numbers of the kernel: include/uapi/asm-generic/errno{-base,}.h and include/linux/errno.h. */
#ifndef TOLLGATE_LIB_ERRNO_BPF_H
#define TOLLGATE_LIB_ERRNO_BPF_H

#include "lib/kernel.bpf.h"

#define EPERM		      1
#define ENOENT		      2
#define ESRCH		      3
#define EINTR		      4
#define EIO		      5
#define E2BIG		      7
#define EBADF		      9
#define EAGAIN		      11
#define EFAULT		      14
#define EINVAL		      22
#define ENOSYS		      38
#define ENOTSOCK	      88
#define ERESTARTSYS	      512
#define ERESTARTNOINTR	      513
#define ERESTARTNOHAND	      514
#define ERESTART_RESTARTBLOCK 516

#define MAX_ERRNO	      4095 /* include/linux/err.h */
#define IS_ERR(addr)	      ((__u64)(addr) >= (__u64) - MAX_ERRNO)

#endif /* TOLLGATE_LIB_ERRNO_BPF_H */
