/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operations of io_uring that do what a named call does: by the submitter inside io_uring_enter, by a
 * worker, or by the thread that polls the queue. The kernel's function for each operation is hooked at
 * both ends; in between, the hooks inside the kernel see names and objects as in a call. Operations that
 * no rule is about are other functions, and pay nothing.
 */
#ifndef TOLLGATE_URING_BPF_H
#define TOLLGATE_URING_BPF_H

#define EAGAIN 11

/* For each operation, 1 + index in the call table of the call that does the same; 0 for none. */
volatile __u32 tlg_uring_calls[WIRE_URING_OPS];

/* The call that an operation counts as, and its index in the call table. */
static __always_inline struct wire_call *uring_call(const struct io_kiocb *req, __u32 *key)
{
	__u8 op = req->opcode;
	__u32 index;

	if (op >= WIRE_URING_OPS)
		return NULL;
	index = tlg_uring_calls[op];
	if (!index)
		return NULL;
	*key = index - 1;
	return call_now(*key);
}

/*
 * fentry on the function of an operation, such as io_openat2(req, issue_flags), v6.0. Runs in the task that
 * does it. Makes the slot by which the hooks inside the kernel know that an operation is under way.
 */
SEC("fentry/io_openat2")
int stub_uring_enter(__u64 *ctx)
{
	struct task_struct *task = current();
	struct wire_call *call;
	struct seen *seen;
	__u32 key;

	call = uring_call((struct io_kiocb *)ctx[0], &key);
	if (!call || call->tests == WIRE_NO_CALL || (__u32)task->tgid == tlg_self)
		return 0;
	seen = seen_claim(task, key, call);
	if (seen)
		seen->uring = 1;
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tlg_uring_end SEC(".maps");

/* fexit on the same. */
SEC("fexit/io_openat2")
int stub_uring_end(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_uring_end, 0);
	count_lost(WIRE_LOST_STUB);
	return 0;
}

/*
 * Body of the stub. An operation that would have to wait is tried again by a worker, and ends there. Its
 * result is the completion's: the kernel's own record says 0 for it. Without a slot, for which there was
 * no room, the event has no objects.
 */
SEC("fexit/io_openat2")
int uring_end(__u64 *ctx)
{
	const struct io_kiocb *req = (struct io_kiocb *)ctx[0];
	struct task_struct *task = current();
	__s32 returned = ctx[2];
	struct wire_call *call;
	struct seen *seen;
	__u32 key;

	call = uring_call(req, &key);
	if (!call || (__u32)task->tgid == tlg_self)
		return 0;
	if (call->tests == WIRE_NO_CALL) {
		seen_forget(task->pid, key);
		return 0;
	}
	seen = seen_find(task->pid, key, &call);
	if (!returned)
		call_event(task, call, WIRE_B64, key % WIRE_SYSCALLS, req->cqe.res,
			   WIRE_EVENT_RETURNED | WIRE_EVENT_URING, req->opcode, seen);
	if (seen)
		seen_free(seen, task->pid);
	return 0;
}

#endif /* TOLLGATE_URING_BPF_H */
