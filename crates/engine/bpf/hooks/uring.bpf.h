/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hooks of io_uring operations, in the submitter inside io_uring_enter, in a worker, or in the
 * thread that polls the queue.
 *
 * Engines fentry and lsm: the kernel's function of each operation is hooked at its end, and also at
 * its start if the operation has objects; in between, the hooks inside the kernel record as for a
 * syscall. Operations that no rule names are other functions and pay nothing.
 *
 * Tracepoint engine: the tracepoint that every operation passes when it completes.
 */
#ifndef TOLLGATE_HOOKS_URING_BPF_H
#define TOLLGATE_HOOKS_URING_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "hooks/open.bpf.h"
#include "lib/event.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"
#include "lib/watch.bpf.h"

/* Return values of an operation's function other than errors: io_uring/io_uring.h, Linux 6.12. */
#define IOU_REQUEUE	   (-3072) /* to be tried again by a worker */
#define IOU_STOP_MULTISHOT (-125) /* done, like 0 */

/* include/uapi/linux/io_uring.h */
#define IORING_OP_SETXATTR 42
#define IORING_OP_GETXATTR 44

/* sendmsg, recvmsg, connect, send, recv, send_zc, sendmsg_zc, recv_zc. */
#define SOCKET_OPS                                                                                 \
	(1ULL << 9 | 1ULL << 10 | 1ULL << 16 | 1ULL << 26 | 1ULL << 27 | 1ULL << 47 | 1ULL << 48 | \
	 1ULL << 58)

/* Entry of the plan for an operation; sets `key` to its index in the syscall table. */
static __always_inline struct wire_syscall *uring_syscall(__u8 op, __u32 *key)
{
	if (op >= WIRE_URING_OPS)
		return NULL;
	*key = WIRE_URING_FIRST + op;
	return plan_syscall(*key);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tlg_tail_uring SEC(".maps"), tlg_tail_uring_enter SEC(".maps");

/* Of the xattr operation that a task begins: the kernel's copy of the name. */
static __always_inline __u64 xattr_filename(const struct io_kiocb *req)
{
	if (bpf_core_field_exists(struct io_xattr, filename))
		return LOAD(io_xattr, (__u64)req, filename);
	if (bpf_core_field_exists(struct io_xattr___v7_0, filename))
		return LOAD(io_xattr___v7_0, (__u64)req, filename.__incomplete_filename);
	return 0;
}

/*
 * Claims the slot by which the hooks inside the kernel recognise the operation. Returns its state
 * or NULL.
 */
static __always_inline struct syscall_state *operation_begin(struct task_struct *task,
							     const struct io_kiocb *req, __u32 key,
							     const struct wire_syscall *syscall)
{
	struct syscall_state *state = state_claim(task, key, syscall);
	__u8 op = req->opcode;

	if (!state)
		return NULL;
	/* For attr_object(). */
	state->filename[0] = 0;
	if (op == IORING_OP_SETXATTR || op == IORING_OP_GETXATTR)
		state->filename[0] = xattr_filename(req);
	return state;
}

/*
 * fentry on the function of an operation, for example io_openat2(req, issue_flags), v6.0. Runs in
 * the task that executes it.
 */
SEC("fentry/io_openat2")
int stub_uring_enter(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_uring_enter, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* Tail-call target of the stub. */
SEC("fentry/io_openat2")
int uring_enter(__u64 *ctx)
{
	const struct io_kiocb *req = (struct io_kiocb *)ctx[0];
	struct task_struct *task = current();
	struct wire_syscall *syscall;
	__u32 key;

	syscall = uring_syscall(req->opcode, &key);
	if (syscall && syscall->tests != WIRE_NO_SYSCALL && !is_daemon(task))
		operation_begin(task, req, key, syscall);
	return 0;
}

/* Whether an operation has sent, received or connected when it would block. */
static __always_inline int acts_before_retry(__u8 op)
{
	return op < 64 && SOCKET_OPS >> op & 1;
}

/* fexit on the same function, v6.0. */
SEC("fexit/io_openat2")
int stub_uring_exit(__u64 *ctx)
{
	bpf_tail_call(ctx, &tlg_tail_uring, 0);
	count_lost(WIRE_LOST_TAIL_CALL);
	return 0;
}

/* Handles the end of the function of an operation: see operation_end(). */
static __always_inline void emit_operation(struct task_struct *task, const struct io_kiocb *req,
					   __u32 key, struct wire_syscall *syscall, __s32 result,
					   struct task_state *of)
{
	struct ended_state ended = {};

	if (!result || result == IOU_STOP_MULTISHOT)
		result = req->cqe.res;
	else if (result == IOU_REQUEUE || (result == -EAGAIN && !acts_before_retry(req->opcode)))
		return;
	if (of && tlg_kprobes) {
		struct syscall_state *state = state_held(of, SLOT_URING_OP);

		if (state && state->syscall == key && state->reserved) {
			if (has_no_watch(syscall, state, result))
				return;
			state->reserved = 0; /* the name of what was not opened */
		}
	}
	if (of)
		ended = state_at_end(of, task, key, &syscall, SEEN_INSIDE);
	emit_event(task, syscall, WIRE_B64, 0, result, WIRE_EVENT_RETURNED | WIRE_EVENT_URING,
		   req->opcode, ended);
}

/*
 * Handles the end of the function of an operation. An operation that would block is tried again and
 * ends then; one about a socket has done something by then, and may be cancelled: it has an event
 * now too, as in the kernel. The result is that of the completion, where the kernel's own record has
 * 0; if it comes later, it is the return value, as in the kernel.
 */
static __always_inline void operation_end(struct task_struct *task, const struct io_kiocb *req,
					  __s32 result)
{
	struct wire_syscall *syscall;
	struct task_state *of;
	__u32 key;

	syscall = uring_syscall(req->opcode, &key);
	if (!syscall || is_daemon(task))
		return;
	of = task_state(task);
	if (syscall->tests != WIRE_NO_SYSCALL)
		emit_operation(task, req, key, syscall, result, of);
	if (of)
		slot_end(of, SLOT_URING_OP);
}

/* Tail-call target of the stub. */
SEC("fexit/io_openat2")
int uring_exit(__u64 *ctx)
{
	operation_end(current(), (struct io_kiocb *)ctx[0], ctx[2]);
	return 0;
}

/*
 * Saves the name of an open on the engine lsm, and the watches that it matches as text, for the case
 * that it opens no file.
 */
static __always_inline void open_begin(struct task_struct *task, const struct io_kiocb *req,
				       struct syscall_state *state,
				       const struct wire_syscall *syscall)
{
	__u64 filename = LOAD(io_open, (__u64)req, filename.__incomplete_filename);
	struct scratch *s = scratch();

	state->open_flags = LOAD(io_open, (__u64)req, how.flags);
	if (!s || !filename)
		return;
	select_watches(s, syscall);
	if (uses_watches(syscall)) {
		watch_missing_name(s, task, LOAD(io_open, (__u64)req, dfd), filename);
		state_save_hits(state, s);
	}
	state_add_named(
		state, WIRE_NAMETYPE_UNKNOWN,
		bpf_rdonly_cast((void *)filename, bpf_core_type_id_kernel(struct filename)));
}

/* Handles the begin of the function of an operation on the engine lsm. */
static __always_inline void session_begin(struct task_struct *task, const struct io_kiocb *req)
{
	struct wire_syscall *syscall;
	struct syscall_state *state;
	__u32 key;

	syscall = uring_syscall(req->opcode, &key);
	if (!syscall || syscall->tests == WIRE_NO_SYSCALL || is_daemon(task) ||
	    !(syscall->facts & HOOKED_FACTS))
		return;
	state = operation_begin(task, req, key, syscall);
	if (!state)
		return;
	state_begin(state);
	if (syscall->facts & WIRE_FACT_FOUND_ONLY)
		open_begin(task, req, state, syscall);
	else
		state->reserved = 0;
}

/*
 * Session of the same function on the engine lsm: both ends. Runs with preemption off, in the task
 * that executes the operation.
 */
SEC("kprobe.session")
int uring_session(struct pt_regs *ctx)
{
	__u64 *request = bpf_session_cookie___v7_0(ctx);

	if (bpf_session_is_return___v7_0(ctx)) {
		operation_end(current(), POINTER(*request, io_kiocb), FUNCTION_RESULT(ctx));
		return 0;
	}
	*request = FUNCTION_ARG1(ctx);
	session_begin(current(), POINTER(*request, io_kiocb));
	return 0;
}

/*
 * raw_tp io_uring_complete(ctx, req, ...), v6.0 form. Runs in the task that completes the
 * operation: submitter, worker or polling thread. Misses operations that post no completion
 * (IOSQE_CQE_SKIP_SUCCESS).
 */
SEC("raw_tp/io_uring_complete")
int uring_complete(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u64 req = ctx->args[1];
	struct ended_state ended = {};
	struct wire_syscall *syscall;
	__u32 key;
	__u8 op;

	if (!req) /* a message of the ring */
		return 0;
	op = LOAD(io_kiocb, req, opcode);
	syscall = uring_syscall(op, &key);
	if (!syscall || syscall->tests == WIRE_NO_SYSCALL || is_daemon(task))
		return 0;
	emit_event(task, syscall, WIRE_B64, 0, (__s32)LOAD(io_kiocb, req, cqe.res),
		   WIRE_EVENT_RETURNED | WIRE_EVENT_URING, op, ended);
	return 0;
}

#endif /* TOLLGATE_HOOKS_URING_BPF_H */
