/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hooks of the syscalls with a socket address as input or output. */
#ifndef TOLLGATE_HOOKS_SOCKET_BPF_H
#define TOLLGATE_HOOKS_SOCKET_BPF_H

#include "wire.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"

static __always_inline int save_sockaddr(__u32 len, __u64 address)
{
	struct task_struct *task = current();
	struct wire_syscall *syscall;
	__u32 key = hooked_syscall(task, &syscall);
	struct syscall_state *state;

	if (key == WIRE_NO_SYSCALL || !(syscall->hooks & WIRE_HOOKS_ADDRESS) || !len)
		return 0;
	state = state_find_or_claim(task, key, &syscall);
	if (!state)
		return 0;
	barrier_var(len); /* the verifier forgets the bounds of a spilled register */
	if (len > SOCKADDR_BYTES)
		len = SOCKADDR_BYTES;
	if (bpf_probe_read_kernel(state->address, len, (void *)address))
		return 0;
	state->address_len = len;
	return 0;
}

/*
 * fexit on move_addr_to_kernel(uaddr, ulen, kaddr), v5.5: the kernel's copy of the address of
 * connect, bind and the send syscalls. Runs in the calling task. Of several messages the last
 * counts, as in audit_sockaddr().
 */
SEC("fexit/move_addr_to_kernel")
int sockaddr_kernel(__u64 *ctx)
{
	struct function_call call;

	if (!at_return(&call, ctx, 3, INSIDE_OTHER))
		return call.skips_return;
	return (__u32)call.result ? 0 : save_sockaddr(call.arg[1], call.arg[2]);
}

/*
 * fentry on move_addr_to_user(kaddr, klen, uaddr, ulen), v5.5: the address that accept, recvfrom
 * and getsockname return. Runs in the calling task.
 */
SEC("fentry/move_addr_to_user")
int sockaddr_user(__u64 *ctx)
{
	struct function_call call;

	return at_entry(&call, ctx, 2) ? save_sockaddr(call.arg[1], call.arg[0]) : 0;
}

#endif /* TOLLGATE_HOOKS_SOCKET_BPF_H */
