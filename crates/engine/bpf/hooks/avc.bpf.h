/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYSCALL records for LSM denials. The kernel's audit writes a record such as AVC in the middle of
 * a syscall and sends it over netlink; if the kernel does not audit syscalls, no SYSCALL record
 * goes with it. This program sends task, syscall and objects with the stamp of that record. The
 * result of the syscall is not known yet.
 */
#ifndef TOLLGATE_HOOKS_AVC_BPF_H
#define TOLLGATE_HOOKS_AVC_BPF_H

#include "wire.h"
#include "lib/event.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"

#define AUDIT_FIRST_SELINUX 1400 /* include/uapi/linux/audit.h: records of security modules */
#define AUDIT_LAST_SELINUX  1499
#define NLMSG_HDRLEN	    16 /* include/uapi/linux/netlink.h */

/* Object arguments of each syscall, whether or not rules name it. */
struct syscall_shape {
	struct wire_shape object[WIRE_OBJECTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WIRE_URING_FIRST);
	__type(key, __u32);
	__type(value, struct syscall_shape);
} tlg_shapes SEC(".maps");

/*
 * Per-CPU area apart from tlg_scratch: a record can be written in an interrupt while another
 * program uses that one. Only the program below uses this area, and the kernel does not nest it on
 * one CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries,
	       1); /* one per possible CPU if an LSM writes records; set by the loader */
	__type(key, __u32);
	__type(value, struct scratch);
} tlg_avc_scratch SEC(".maps");

/* Appends the stamp: audit_log_start() has just written it at the start of the record's text. */
static __always_inline void append_stamp(struct scratch *s, __u32 kind, __u64 buffer)
{
	struct wire_aux *aux = tail_at(s, s->used);
	__u64 skb = LOAD(audit_buffer, buffer, skb);

	aux->kind = kind;
	if (bpf_probe_read_kernel(aux->word, sizeof(aux->word),
				  (void *)(LOAD(sk_buff, skb, data) + NLMSG_HDRLEN)))
		aux->word[0] = 0;
	s->event.aux_count = 1;
	s->used += sizeof(*aux);
}

/*
 * fexit on audit_log_start(ctx, gfp_mask, type), v2.6.6. With a context the kernel adds the
 * syscall itself. Kernel threads and io_uring workers are in no syscall.
 */
SEC("fexit/audit_log_start")
int avc_syscall(__u64 *ctx)
{
	struct task_struct *task = current();
	const struct pt_regs *regs = task_regs(task);
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 kind = ctx[2];
	__u64 buffer = ctx[3];
	__u32 nr = regs->orig_ax;
	__u32 abi = task_abi(task);
	__u32 key = abi * WIRE_SYSCALLS + nr;
	struct syscall_shape *shape;
	struct wire_event *event;
	struct scratch *s;
	__u32 len;

	if (kind < AUDIT_FIRST_SELINUX || kind > AUDIT_LAST_SELINUX || !buffer || ctx[0])
		return 0;
	if (nr >= WIRE_SYSCALLS || task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return 0;
	s = bpf_map_lookup_elem(&tlg_avc_scratch, &cpu);
	shape = bpf_map_lookup_elem(&tlg_shapes, &key);
	if (!s || !shape) {
		count_truncated(WIRE_TRUNC_AVC);
		return 0;
	}
	event = &s->event;
	s->used = s->hits = s->exe_hits = 0;
	event->version = WIRE_VERSION;
	event->flags = WIRE_EVENT_STAMPED;
	event->objects = 0;
	event->jiffies = bpf_jiffies64();
	event->abi = abi;
	event->nr = nr;
	event->exit = event->success = event->rule = event->open_perm = 0;
	event->pid = task->tgid;
	event->uring_op = 0;
	fill_args(event->args, regs, abi);
	fill_task(event, task);
	fill_creds(event, task);
	fill_names(event, task);
	resolve_objects(s, shape->object);
	append_stamp(s, kind, buffer);
	append_strings(s, task, NULL);
	event->sockaddr_len = 0;
	len = finish_event(s, task);
	if (!has_room() || bpf_ringbuf_output(&tlg_ring, event, len, BPF_RB_NO_WAKEUP))
		count_truncated(WIRE_TRUNC_AVC);
	wake_reader();
	return 0;
}

#endif /* TOLLGATE_HOOKS_AVC_BPF_H */
