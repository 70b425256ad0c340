/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The socket address of a syscall, and its family for rules that test it: from the kernel's copy if
 * hooks have recorded one, else from user memory at the end of the syscall, where
 * move_addr_to_kernel() and move_addr_to_user() in net/socket.c read or wrote it.
 */
#ifndef TOLLGATE_LIB_SOCKADDR_BPF_H
#define TOLLGATE_LIB_SOCKADDR_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/socketcall.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"

#define FAMILY_BYTES	  2 /* sa_family_t */
#define MSGHDR_NAMELEN	  8 /* struct msghdr */
#define COMPAT_NAMELEN	  4 /* struct compat_msghdr */
#define MMSGHDR_BYTES	  64
#define COMPAT_MMSG_BYTES 32
#define SOCKETCALL_MOST	  6 /* arguments */

/* Where the address of a socketcall operation is. */
static __always_inline __u32 socketcall_address(__u32 which)
{
	switch (which) {
	case SYS_BIND:
		return WIRE_ADDRESS_SECOND;
	case SYS_CONNECT:
		return WIRE_ADDRESS_SECOND | WIRE_ADDRESS_EARLY;
	case SYS_ACCEPT:
	case SYS_ACCEPT4:
	case SYS_GETSOCKNAME:
	case SYS_GETPEERNAME:
		return WIRE_ADDRESS_SECOND | WIRE_ADDRESS_OUTPUT;
	case SYS_SENDTO:
		return WIRE_ADDRESS_FIFTH;
	case SYS_RECVFROM:
		return WIRE_ADDRESS_FIFTH | WIRE_ADDRESS_OUTPUT;
	case SYS_SENDMSG:
		return WIRE_ADDRESS_MSGHDR;
	case SYS_RECVMSG:
		return WIRE_ADDRESS_MSGHDR | WIRE_ADDRESS_OUTPUT;
	case SYS_SENDMMSG:
		return WIRE_ADDRESS_MMSGHDR;
	case SYS_RECVMMSG:
		return WIRE_ADDRESS_MMSGHDR | WIRE_ADDRESS_OUTPUT;
	default:
		return WIRE_ADDRESS_NONE;
	}
}

/* A 32-bit number in user memory, or 0. */
static __always_inline __u32 user_u32(__u64 from)
{
	__u32 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)from);
	return value;
}

static __always_inline __u64 user_pointer(__u64 from, __u32 abi)
{
	__u64 value = 0;

	if (abi == WIRE_B32)
		return user_u32(from);
	bpf_probe_read_user(&value, sizeof(value), (void *)from);
	return value;
}

/* The arguments that can hold or lead to an address, with pointers of the event's ABI. */
struct address_args {
	__u64 second;
	__u64 third;
	__u64 fifth;
	__u64 sixth;
};

static __always_inline void fill_address_args(struct address_args *args,
					      const struct wire_event *event)
{
	const struct pt_regs *regs = task_regs(current());

	args->second = syscall_arg(event, 1);
	args->third = syscall_arg(event, 2);
	args->fifth = event->abi == WIRE_B64 ? REGS_ARG5(regs) : (__u32)REGS_COMPAT_ARG5(regs);
	args->sixth = event->abi == WIRE_B64 ? REGS_ARG6(regs) : (__u32)REGS_COMPAT_ARG6(regs);
}

/* Finds the address in user memory if the kernel has read or written one. Returns its length. */
static __always_inline __u32 find_user_address(const struct wire_event *event,
					       const struct wire_syscall *syscall, __u64 *address)
{
	__s64 ret = event->exit;
	__u32 where = syscall->address;
	struct address_args args;
	__u64 at, len;

	if (event->flags & WIRE_EVENT_URING || ret == -EBADF)
		return 0;
	fill_address_args(&args, event);
	if (where == WIRE_ADDRESS_SOCKETCALL) {
		__u32 given[SOCKETCALL_MOST] = {};

		where = socketcall_address(syscall_arg(event, 0));
		/* The last arguments may not be readable if the operation has fewer. */
		if (bpf_probe_read_user(given, sizeof(given), (void *)args.second) &&
		    bpf_probe_read_user(given, sizeof(given) / 2, (void *)args.second))
			return 0;
		args.second = given[1];
		args.third = given[2];
		args.fifth = given[4];
		args.sixth = given[5];
	}
	if (ret == -ENOTSOCK && !(where & WIRE_ADDRESS_EARLY))
		return 0;
	if (where & WIRE_ADDRESS_OUTPUT && ret < 0)
		return 0;
	switch (where & ~(WIRE_ADDRESS_OUTPUT | WIRE_ADDRESS_EARLY)) {
	case WIRE_ADDRESS_SECOND:
		at = args.second;
		len = where & WIRE_ADDRESS_OUTPUT ? user_u32(args.third) : (__u32)args.third;
		break;
	case WIRE_ADDRESS_FIFTH:
		at = args.fifth;
		len = where & WIRE_ADDRESS_OUTPUT ? user_u32(args.sixth) : (__u32)args.sixth;
		break;
	case WIRE_ADDRESS_MMSGHDR:
		if (ret > 1)
			args.second += (ret - 1) *
				       (event->abi == WIRE_B64 ? MMSGHDR_BYTES : COMPAT_MMSG_BYTES);
		/* fallthrough */
	case WIRE_ADDRESS_MSGHDR:
		at = user_pointer(args.second, event->abi);
		len = user_u32(args.second +
			       (event->abi == WIRE_B64 ? MSGHDR_NAMELEN : COMPAT_NAMELEN));
		break;
	default:
		return 0;
	}
	if (!at || len < FAMILY_BYTES || len > SOCKADDR_BYTES)
		return 0;
	*address = at;
	return len;
}

/* Reads the family of the address in user memory. Returns whether there is one. */
static __always_inline int read_user_family(const struct wire_event *event,
					    const struct wire_syscall *syscall, __u16 *family)
{
	__u64 address;

	return find_user_address(event, syscall, &address) &&
	       !bpf_probe_read_user(family, sizeof(*family), (void *)address);
}

/* Appends the address in user memory. Not inlined: the verifier checks it once. */
__noinline int append_user_sockaddr(struct scratch *s, const struct wire_syscall *syscall)
{
	__u64 address;
	__u32 len;

	if (!s || !syscall)
		return 0;
	len = find_user_address(&s->event, syscall, &address);
	/* The compiler knows the limit and drops a check that the verifier needs. */
	barrier_var(len);
	if (!len || len > SOCKADDR_BYTES ||
	    bpf_probe_read_user(tail_at(s, s->used), len, (void *)address))
		return 0;
	s->event.sockaddr_len = len;
	s->used += len;
	return 0;
}

/*
 * Sets the fields that rules about the address test. A hooked syscall without state, or with state
 * that has no address, has copied none.
 */
__noinline int fill_sockaddr_family(struct scratch *s, const struct wire_syscall *syscall,
				    const struct syscall_state *state)
{
	struct wire_event *event;
	__u16 family = 0;

	if (!s || !syscall)
		return 0;
	event = &s->event;
	if (state) {
		event->argc = state->address_len >= FAMILY_BYTES;
		family = *(const __u16 *)state->address;
	} else if (hooks_saw_all(syscall)) {
		event->argc = 0;
	} else {
		event->argc = read_user_family(event, syscall, &family);
	}
	event->open_perm = family;
	return 0;
}

#endif /* TOLLGATE_LIB_SOCKADDR_BPF_H */
