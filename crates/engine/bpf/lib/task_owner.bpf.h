/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who has to pay for what a task does. */
#ifndef TOLLGATE_LIB_TASK_OWNER_BPF_H
#define TOLLGATE_LIB_TASK_OWNER_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"

#define NS_LEVELS  33 /* nested user namespaces: create_user_ns() in kernel/user_namespace.c */
#define FIRST_HIGH 65536 /* users from here on may be one: numbers in /etc/subuid */
#define NO_LOGIN   0xffffffffU

/*
 * The owner of the user namespace below the initial one that the current task is in: a user, or the
 * number of the namespace if root made it. The users inside are numbers that its owner can choose.
 */
__noinline int namespace_owner(void)
{
	struct task_struct *task = current();
	const struct cred *cred = FOLLOW(task_struct, task, cred);
	__u64 ns = (__u64)cred->user_ns;
	__u32 owner = 0, number = 0;

	for (int i = 0; i < NS_LEVELS; i++) {
		if (!(__u32)LOAD(user_namespace, ns, level))
			break;
		owner = LOAD(user_namespace, ns, owner.val);
		number = LOAD(user_namespace, ns, ns.inum);
		ns = LOAD(user_namespace, ns, parent);
	}
	return owner ? owner : number;
}

/*
 * The owner of the current task: of its user namespace, or its container, which is the number of a
 * process namespace of root, or its user.
 */
static __always_inline __u32 task_owner(struct task_struct *task)
{
	const struct cred *cred = FOLLOW(task_struct, task, cred);
	__u64 pid = (__u64)FOLLOW(task_struct, task, thread_pid);
	__u64 upid;

	if (FOLLOW(cred, cred, user_ns)->level)
		return namespace_owner();
	if (!pid || !(__u32)LOAD(pid, pid, level))
		return cred->uid.val;
	upid = AT(pid, pid, numbers) + bpf_core_type_size(struct upid);
	return LOAD(pid_namespace, LOAD(upid, upid, ns), ns.inum);
}

/*
 * Whether one user can be many owners like that of the current task: with the users of /etc/subuid,
 * and in the namespaces that a setuid program (a sandbox) makes for whom has logged in.
 */
static __always_inline int can_be_many(const struct task_struct *task, __u32 owner)
{
	const struct cred *cred = FOLLOW(task_struct, task, cred);

	if (owner < WIRE_FIRST_NAMESPACE)
		return owner >= FIRST_HIGH;
	return cred->uid.val && task->loginuid.val != NO_LOGIN;
}

#endif /* TOLLGATE_LIB_TASK_OWNER_BPF_H */
