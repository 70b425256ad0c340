/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYSCALL records for the kernel's own records. The kernel's audit writes a record such as AVC or
 * BPF in the middle of a syscall and sends it over netlink; if the kernel does not audit syscalls,
 * no SYSCALL record goes with it. If rules name the syscall, its event gets the stamp of the first
 * such record: lib/record_stamp.bpf.h. Otherwise this program sends task, syscall and objects with
 * that stamp; the result of the syscall is not known yet.
 */
#ifndef TOLLGATE_HOOKS_AVC_BPF_H
#define TOLLGATE_HOOKS_AVC_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/event.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/noreturn.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"

/* include/uapi/linux/audit.h */
#define AUDIT_CONFIG_CHANGE    1305
#define AUDIT_TTY	       1319
#define AUDIT_NETFILTER_CFG    1325
#define AUDIT_FEATURE_CHANGE   1328
#define AUDIT_FANOTIFY	       1331
#define AUDIT_BPF	       1334
#define AUDIT_EVENT_LISTENER   1335
#define AUDIT_DM_CTRL	       1338
#define AUDIT_DM_EVENT	       1339
#define AUDIT_FIRST_SELINUX    1400 /* records of security modules */
#define AUDIT_LAST_SELINUX     1499
#define AUDIT_ANOM_PROMISCUOUS 1700
#define AUDIT_FIRST_INTEGRITY  1800
#define AUDIT_LAST_INTEGRITY   1899

#define NLMSG_HDRLEN	       16 /* include/uapi/linux/netlink.h */

static __always_inline int is_of_module(__u32 kind)
{
	return kind >= AUDIT_FIRST_SELINUX && kind <= AUDIT_LAST_SELINUX;
}

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

/*
 * Whether the kernel writes a record of this type in the middle of a syscall and, when it audits
 * syscalls, with the stamp of that syscall: the types with which audit_log_start(audit_context(),
 * ...) and audit_log(audit_context(), ...) are called, Linux 6.1 to 6.12. Not AUDIT_SECCOMP,
 * AUDIT_ANOM_ABEND: the kernel writes them before a syscall begins, or after it has ended. Not
 * AUDIT_LOGIN: readers look for logins among events of one record.
 */
static __always_inline int is_of_syscall(__u32 kind)
{
	switch (kind) {
	case AUDIT_CONFIG_CHANGE:
	case AUDIT_TTY:
	case AUDIT_NETFILTER_CFG:
	case AUDIT_FEATURE_CHANGE:
	case AUDIT_FANOTIFY:
	case AUDIT_BPF:
	case AUDIT_EVENT_LISTENER:
	case AUDIT_DM_CTRL:
	case AUDIT_DM_EVENT:
	case AUDIT_ANOM_PROMISCUOUS:
		return 1;
	}
	return is_of_module(kind) ||
	       (kind >= AUDIT_FIRST_INTEGRITY && kind <= AUDIT_LAST_INTEGRITY);
}

/*
 * Whether the end of the syscall that the task is in will be seen. Not if it has ended, and put its
 * result in the register: its event has left.
 */
static __always_inline int has_event(struct task_struct *task, const struct wire_syscall *syscall,
				     __u32 abi, __u32 nr)
{
	if (!syscall || syscall->tests == WIRE_NO_SYSCALL || is_daemon(task) ||
	    never_returns(abi, nr) || restores_registers(abi, nr))
		return 0;
	if (tlg_kprobes && nr != NR_IO_URING_ENTER) {
		const struct syscall_state *state = state_of_call(task);

		return state && state->syscall == abi * WIRE_SYSCALLS + nr;
	}
	return REGS_IN_SYSCALL(task_regs(task));
}

/* Sends the syscall of a record, or keeps the stamp of the record for its event. */
static __always_inline void avc_record(__u32 kind, __u64 buffer)
{
	struct task_struct *task = current();
	const struct pt_regs *regs = task_regs(task);
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 nr = REGS_NR(regs);
	__u32 abi = task_abi(task);
	__u32 key = abi * WIRE_SYSCALLS + nr;
	struct syscall_shape *shape;
	struct wire_syscall *syscall;
	struct wire_event *event;
	struct scratch *s;
	const void *stamp;

	if (nr >= WIRE_SYSCALLS || task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return;
	if (is_daemon(task) && !is_of_module(kind))
		return;
	/* audit_log_start() has just written it at the start of the record's text. */
	stamp = (void *)(LOAD(sk_buff, LOAD(audit_buffer, buffer, skb), data) + NLMSG_HDRLEN);
	syscall = plan_syscall(key);
	if (has_event(task, syscall, abi, nr) && stamp_keep(task, key, kind, stamp))
		return;
	s = bpf_map_lookup_elem(&tlg_avc_scratch, &cpu);
	shape = bpf_map_lookup_elem(&tlg_shapes, &key);
	if (!s || !shape) {
		count_truncated(WIRE_TRUNC_AVC);
		return;
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
	append_stamp(s, kind, stamp);
	append_strings(s, task, NULL);
	event->sockaddr_len = 0;
	submit_stamped(event, finish_event(s, task));
}

/*
 * fexit on audit_log_start(ctx, gfp_mask, type), v2.6.6; on the engine lsm its session. With a
 * context the kernel adds the syscall itself. Kernel threads and io_uring workers are in no syscall.
 */
SEC("fexit/audit_log_start")
int avc_syscall(__u64 *ctx)
{
	const volatile struct pt_regs *regs = (const volatile struct pt_regs *)ctx;

	if (!tlg_kprobes) {
		__u32 kind = load_word_of(ctx, 2);
		__u64 buffer = load_word_of(ctx, 3);

		if (buffer && is_of_syscall(kind) && !load_word_of(ctx, 0))
			avc_record(kind, buffer);
	} else if (bpf_session_is_return___v7_0(ctx)) {
		if (FUNCTION_RESULT(regs))
			avc_record(*bpf_session_cookie___v7_0(ctx), FUNCTION_RESULT(regs));
	} else {
		__u32 kind = FUNCTION_ARG3(regs);

		if (FUNCTION_ARG1(regs) || !is_of_syscall(kind))
			return 1; /* not at the end */
		*bpf_session_cookie___v7_0(ctx) = kind;
	}
	return 0;
}

#endif /* TOLLGATE_HOOKS_AVC_BPF_H */
