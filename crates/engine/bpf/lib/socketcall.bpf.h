/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Operations of socketcall(2): include/uapi/linux/net.h. */
#ifndef TOLLGATE_LIB_SOCKETCALL_BPF_H
#define TOLLGATE_LIB_SOCKETCALL_BPF_H

#define SYS_SOCKET	1
#define SYS_BIND	2
#define SYS_CONNECT	3
#define SYS_ACCEPT	5
#define SYS_GETSOCKNAME 6
#define SYS_GETPEERNAME 7
#define SYS_SOCKETPAIR	8
#define SYS_SENDTO	11
#define SYS_RECVFROM	12
#define SYS_SENDMSG	16
#define SYS_RECVMSG	17
#define SYS_ACCEPT4	18
#define SYS_RECVMMSG	19
#define SYS_SENDMMSG	20

#endif /* TOLLGATE_LIB_SOCKETCALL_BPF_H */
