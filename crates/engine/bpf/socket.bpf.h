/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hooks of the calls that give a socket address or are given one. */
#ifndef TOLLGATE_SOCKET_BPF_H
#define TOLLGATE_SOCKET_BPF_H

static __always_inline int keep_address(__u32 len, __u64 address)
{
	struct task_struct *task = current();
	struct wire_call *call;
	__u32 key = seen_call(task, &call);
	struct seen *seen;

	if (key == WIRE_NO_CALL || !len)
		return 0;
	seen = seen_slot(task, key, &call);
	if (!seen)
		return 0;
	if (len > SEEN_ADDRESS)
		len = SEEN_ADDRESS;
	if (bpf_probe_read_kernel(seen->address, len, (void *)address))
		return 0;
	seen->address_len = len;
	return 0;
}

/*
 * fexit on move_addr_to_kernel(uaddr, ulen, kaddr), v5.5: the kernel's copy of the address that connect,
 * bind and the send calls are given. Runs in the calling task. Of several messages the last one counts,
 * as in audit_sockaddr().
 */
SEC("fexit/move_addr_to_kernel")
int socket_address(__u64 *ctx)
{
	return (__u32)ctx[3] ? 0 : keep_address(ctx[1], ctx[2]);
}

/*
 * fentry on move_addr_to_user(kaddr, klen, uaddr, ulen), v5.5: the address that accept, recvfrom and the
 * calls that ask for names are about to be given.
 */
SEC("fentry/move_addr_to_user")
int socket_answer(__u64 *ctx)
{
	return keep_address(ctx[1], ctx[0]);
}

#endif /* TOLLGATE_SOCKET_BPF_H */
