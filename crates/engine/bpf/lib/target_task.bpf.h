/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The task that a syscall signals or traces: how it is found by number, and its record. */
#ifndef TOLLGATE_LIB_TARGET_TASK_BPF_H
#define TOLLGATE_LIB_TARGET_TASK_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/label.bpf.h"
#include "lib/load.bpf.h"

#define PIDTYPE_PID	 0 /* enum pid_type, include/linux/pid_types.h */
#define XA_TAG		 3UL /* low bits of an entry: include/linux/xarray.h */
#define XA_INTERNAL	 2UL /* the entry is a node */
#define NUMBER_LEVELS	 8 /* of a table with numbers up to PID_MAX_LIMIT, 2^22, in chunks of 16 */
#define SLOTS_OF_A_CHUNK (bpf_core_field_size(((struct xa_node *)0)->slots) / sizeof(void *))

/*
 * The entry of a number in a table of process numbers, or 0: idr_find(), lib/radix-tree.c. Nothing
 * keeps the table from changing, but its memory stays until this program ends.
 */
static __always_inline __u64 find_number(__u64 table, __u32 number)
{
	__u64 entry = LOAD(idr, table, idr_rt.xa_head);
	__u32 shift = 0;

	for (int i = 0; i < NUMBER_LEVELS && (entry & XA_TAG) == XA_INTERNAL; i++) {
		__u64 node = entry - XA_INTERNAL;
		__u64 slot;

		shift = LOAD(xa_node, node, shift);
		if (!i && number >> shift >= SLOTS_OF_A_CHUNK)
			return 0;
		slot = number >> (shift & 31) & (SLOTS_OF_A_CHUNK - 1);
		entry = LOAD_WORD(AT(xa_node, node, slots) + slot * sizeof(void *));
	}
	return shift || entry & XA_TAG ? 0 : entry;
}

/* The task with a number in the process name space of a task, or 0: find_task_by_vpid(). */
static __always_inline __u64 find_task(const struct task_struct *task, __u32 number)
{
	__u64 own = (__u64)FOLLOW(task_struct, task, thread_pid);
	__u64 upid, pid, link;

	if (!own)
		return 0;
	upid = AT(pid, own, numbers) +
	       (__u32)LOAD(pid, own, level) * (__u64)bpf_core_type_size(struct upid);
	pid = find_number(AT(pid_namespace, LOAD(upid, upid, ns), idr), number);
	if (!pid)
		return 0;
	link = LOAD(pid, pid, tasks[PIDTYPE_PID].first);
	return link ? link - bpf_core_field_offset(struct task_struct, pid_links[PIDTYPE_PID]) : 0;
}

/* Makes a record of a task: audit_signal_info_syscall(), __audit_ptrace(). */
static __always_inline void fill_target(struct wire_aux *aux, __u64 task)
{
	__u64 cred = LOAD(task_struct, task, real_cred);
	__u64 comm = AT(task_struct, task, comm);
	__u32 mode;
	__u64 name;

	name = label_name(label_in(LOAD(cred, cred, security)), &mode);
	aux->word[0] = LOAD(task_struct, task, tgid);
	aux->word[1] = LOAD(task_struct, task, loginuid.val);
	aux->word[2] = LOAD(cred, cred, uid.val);
	aux->word[3] = (__u64)mode << 32 | (__u32)LOAD(task_struct, task, sessionid);
	aux->word[4] = LOAD_WORD(comm);
	aux->word[5] = LOAD_WORD(comm + 8);
	aux->word[6] = 0;
	/* A name that does not fit is omitted. */
	if (name && bpf_probe_read_kernel_str(&aux->word[6], TARGET_LABEL_BYTES, (void *)name) ==
			    TARGET_LABEL_BYTES)
		aux->word[6] = 0;
}

#endif /* TOLLGATE_LIB_TARGET_TASK_BPF_H */
