/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Syscalls on kernels that preempt themselves: the engine `lsm`.
 *
 * A kprobe at the entry of a named syscall takes a slot, which holds what the end needs, and asks
 * for task work. The work runs when the syscall has ended. Both run with preemption off, so they
 * share the scratch area of their CPU with nobody. So do kprobes on functions inside the kernel:
 * lib/function_call.bpf.h.
 *
 * The kernel requests task work by an interrupt of the same CPU; with PREEMPT_RT by a thread, which
 * may have to wait, so that the work can come when the task has gone on. There a session of the
 * syscall's function is in the place of the kprobe, and its return is the end. If that is skipped,
 * the work ends the syscall, or, if it is late, whatever the task does next: without a result.
 *
 * The kernel skips a kprobe, and counts that, where it interrupts bpf(2) in the middle of an
 * update of a map: while root's program that does this is preempted, on its CPU.
 */
#ifndef TOLLGATE_HOOKS_CALL_BPF_H
#define TOLLGATE_HOOKS_CALL_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/enter_state.bpf.h"
#include "hooks/exec.bpf.h"
#include "hooks/open.bpf.h"
#include "lib/event.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"
#include "lib/task_work.bpf.h"

#define CLAIM_TRIES  4
#define WORK_IS_BUSY (-1)
#define PLACE_STEP   0x9e3779b1U

/* In a map of its own: functions may not take a struct that contains it. */
struct call_work {
	struct bpf_task_work work;
};

/* Work of the syscall in each slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* tlg_slots on the engine lsm */
	__type(key, __u32);
	__type(value, struct call_work);
} tlg_call_work SEC(".maps");

/* Where the end of a syscall is seen. */
enum end_seen {
	END_RETURNED,
	END_INSIDE, /* the kernel runs task work in the middle of some syscalls, as a traced fork */
	END_LATE, /* the task has gone on: its registers are not those of the syscall any more */
};

/* Keeps of a task what it may change before late work comes. */
static __always_inline void save_task(struct syscall_state *state, struct task_struct *task)
{
	state->cred = (__u64)FOLLOW(task_struct, task, cred);
	state->exec_id = task->self_exec_id;
	state->pwd = (__u64)FOLLOW(task_struct, task, fs)->pwd.dentry;
}

static __always_inline int has_changed(const struct syscall_state *state, struct task_struct *task)
{
	return state->cred != (__u64)FOLLOW(task_struct, task, cred) ||
	       state->exec_id != task->self_exec_id ||
	       state->pwd != (__u64)FOLLOW(task_struct, task, fs)->pwd.dentry;
}

/*
 * Whether the event of a syscall without a result would be wrong or missing. After the syscall the
 * slot has its arguments, but not those of a 32-bit one, and user memory may have changed.
 */
static __always_inline int needs_result(struct task_struct *task,
					const struct wire_syscall *syscall,
					const struct syscall_state *state, enum end_seen seen)
{
	if (syscall->facts & WIRE_FACT_RESULT)
		return 1;
	if (seen == END_INSIDE)
		return 0;
	if (syscall->facts & WIRE_FACT_EXEC || state->syscall >= WIRE_SYSCALLS ||
	    syscall->aux_source || has_changed(state, task))
		return 1;
	if (!(syscall->facts & WIRE_FACT_HOOKED))
		return syscall->objects[0].lookup != 0;
	return state->reserved || (state->gave_back && state->open_flags & O_PATH);
}

/* Emits the event of the syscall of a slot that has ended. */
static __always_inline void call_emit(struct task_struct *task, struct wire_syscall *syscall,
				      struct syscall_state *state, __s64 result, enum end_seen seen)
{
	__u32 flags = seen == END_RETURNED ? WIRE_EVENT_RETURNED : 0;
	struct ended_state ended = {};
	__u32 key = state->syscall;

	if (flags && syscall->facts & WIRE_FACT_FORKS && !result)
		return;
	if (flags && syscall->facts & WIRE_FACT_EXEC && !result &&
	    !only_asks(task, key / WIRE_SYSCALLS, key % WIRE_SYSCALLS)) {
		flags |= WIRE_EVENT_STARTED;
		if (state->script)
			flags |= WIRE_EVENT_SCRIPT;
	}
	if (state->reserved && has_no_watch(syscall, state, result) && !stamp_of(task, key))
		return;
	if (!flags && needs_result(task, syscall, state, seen)) {
		count_lost(WIRE_LOST_NO_SLOT);
		return;
	}
	/* With O_PATH no program sees an open succeed: then the slot is of a try that has failed. */
	if (seen == END_LATE || (!state->reserved && !(flags && state->gave_back && result >= 0)))
		ended.state = state;
	if (emit_event(task, syscall, key / WIRE_SYSCALLS, key % WIRE_SYSCALLS, result, flags, 0,
		       ended) &&
	    !flags)
		count_truncated(WIRE_TRUNC_RESULT);
}

/*
 * Syscalls whose skipped program another one has made good. In doubt, a syscall is not counted here:
 * it stays in the count of losses.
 */
__u64 tlg_rescued;

/*
 * Ends the syscall whose slot the current task holds. `seen` is an enum end_seen; without
 * END_RETURNED the result is 0. Not inlined: the verifier checks it once.
 */
__noinline int call_finish(__s64 result, __u32 seen)
{
	struct task_struct *task = current();
	struct task_state *of = task_state(task);
	struct syscall_state *state = of ? state_held(of, SLOT_SYSCALL) : NULL;
	struct wire_syscall *syscall;

	if (!of || !state)
		return 0;
	/*
	 * The return of its session was skipped, unless the task ends inside or the rules, and so perhaps the
	 * hooks, were replaced.
	 */
	if (tlg_late_work && state->frame && !is_in_session(state) && state->epoch == tlg_epoch)
		__sync_fetch_and_add(&tlg_rescued, 1);
	syscall = plan_syscall_at(state->epoch, state->syscall);
	if (!syscall || state->syscall >= WIRE_URING_FIRST || syscall->tests == WIRE_NO_SYSCALL ||
	    (state->epoch != tlg_epoch && state->epoch != tlg_epoch_prev))
		count_lost(WIRE_LOST_NO_SLOT);
	else
		call_emit(task, syscall, state, result, seen);
	stamp_drop(task);
	slot_end(of, SLOT_SYSCALL);
	of->entered = 0;
	return 0;
}

/*
 * Whether the current task has gone on after the syscall of a slot. An exec replaces the registers and
 * leaves the number of an execve. Without tlg_late_work, work is late only if the interrupt came when
 * the program ran again.
 */
static __always_inline int has_gone_on(struct task_struct *task, const struct syscall_state *state)
{
	const struct pt_regs *regs = task_regs(task);
	const struct wire_syscall *syscall;
	__u32 nr = REGS_NR(regs);

	if (!tlg_late_work)
		return REGS_FULL_NR(regs) == NO_SYSCALL_NUMBER && REGS_IP(regs) != state->call.ip;
	if (nr == state->syscall % WIRE_SYSCALLS && is_same_call(state, regs))
		return 0;
	syscall = plan_syscall_at(state->epoch, state->syscall);
	return !syscall || !(syscall->facts & WIRE_FACT_EXEC) ||
	       nr != (task_abi(task) == WIRE_B64 ? NR_EXECVE_64 : NR_EXECVE_32);
}

/* Ends the syscall of a slot. Not if the loader has emptied the slots since it was taken. */
static __always_inline void call_end(struct task_struct *task, __u32 index)
{
	struct syscall_state *state = bpf_map_lookup_elem(&tlg_sys_state, &index);
	const struct pt_regs *regs = task_regs(task);
	struct task_state *of = task_state(task);

	if (!of || !state || held_slot(of, SLOT_SYSCALL) != 1 + index)
		return;
	if (tlg_late_work && is_in_session(state))
		return; /* its return comes */
	if (has_gone_on(task, state)) {
		call_finish(0, END_LATE);
		return;
	}
	if (state->within && REGS_RESULT(regs) == state->ax) {
		state->within = WITHIN_WORK_RAN;
		return;
	}
	if (REGS_IN_SYSCALL(regs))
		call_finish(0, END_INSIDE);
	else
		call_finish(REGS_RESULT(regs), END_RETURNED);
}

/* Task work. Runs in the task of the syscall. */
static int call_done(struct bpf_map *map, void *key, void *value)
{
	__u32 index = *(__u32 *)key;

	bpf_preempt_disable();
	call_end(current(), index);
	bpf_preempt_enable();
	return 0;
}

/* Requests the end of the syscall in a slot. */
static __always_inline int call_request_end(struct task_struct *task, __u32 index)
{
	struct call_work *work = bpf_map_lookup_elem(&tlg_call_work, &index);

	return work &&
	       !bpf_task_work_schedule_resume___v7_0(task, &work->work, &tlg_call_work, call_done);
}

/*
 * Takes a slot for the syscall of the current task at a place, and requests its end. Returns 1 + the
 * index of the slot, 0 without one, or WORK_IS_BUSY. Not inlined: the verifier checks it once.
 */
__noinline int call_try(const struct wire_syscall *syscall, __u32 key, __u32 place)
{
	struct task_struct *task = current();
	struct syscall_state *state;
	struct task_state *of;

	if (!syscall)
		return 0;
	of = task_state_for_slot(task);
	if (!of)
		return 0;
	state = state_claim_at(of, task, key, syscall, place);
	if (!state) {
		count_lost(WIRE_LOST_NO_SLOT);
		return 0;
	}
	if (!call_request_end(task, state->index) && !tlg_late_work) {
		slot_end(of, SLOT_SYSCALL);
		return WORK_IS_BUSY;
	}
	state_begin(state);
	if (tlg_late_work) {
		state->claim = ((state->claim >> 32) + 1) << 32 | (1 + state->index);
		save_task(state, task);
	}
	return 1 + state->index;
}

/*
 * Takes a slot for the syscall of the current task and requests its end; NULL if it is lost. The
 * work of a slot is busy for a moment after its last syscall has given it back: then another slot
 * is taken. With tlg_late_work it can be busy for long, and the slot does without.
 */
static __always_inline struct syscall_state *call_claim(struct task_struct *task, __u32 key,
							const struct wire_syscall *syscall)
{
	struct task_state *of;

	for (__u32 i = 0; i < CLAIM_TRIES; i++) {
		int slot = call_try(syscall, key, task->pid + i * PLACE_STEP);
		__u32 index = slot - 1;

		if (slot != WORK_IS_BUSY)
			return slot ? bpf_map_lookup_elem(&tlg_sys_state, &index) : NULL;
	}
	count_lost(WIRE_LOST_NO_SLOT);
	of = task_state(task);
	if (of)
		of->missing[SLOT_SYSCALL] = 1 + key;
	return NULL;
}

/* Ends the last syscall of the task if its work has not come yet. */
static __always_inline void call_finish_last(struct task_struct *task)
{
	struct task_state *of = task_state(task);

	if (!of)
		return;
	if (!held_slot(of, SLOT_SYSCALL)) {
		of->missing[SLOT_SYSCALL] = 0; /* that call was counted */
		return;
	}
	if (tlg_late_work) {
		call_finish(0, END_LATE);
	} else {
		count_lost(WIRE_LOST_NO_SLOT);
		slot_end(of, SLOT_SYSCALL);
	}
}

/* The flags of an open. `arg` is 1 + the index of its argument that has them: 2 or 3. */
static __always_inline __u32 open_flags(const struct pt_regs *regs, __u32 abi, __u32 arg)
{
	if (abi == WIRE_B64)
		return arg == 2 ? REGS_ARG2(regs) : REGS_ARG3(regs);
	return arg == 2 ? REGS_COMPAT_ARG2(regs) : REGS_COMPAT_ARG3(regs);
}

/*
 * Begins the syscall of the current task at the entry of its function; returns its state, or NULL. The
 * cookie has `numbers` of fn_exit() in its low half, and `arg` of open_flags() in its high half, or 0 if
 * the syscall is no open with flags.
 */
static __always_inline struct syscall_state *call_begin(struct pt_regs *ctx)
{
	struct task_struct *task = current();
	const struct pt_regs *regs = task_regs(task);
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 numbers = cookie, arg = cookie >> 32;
	__u32 abi = task_abi(task);
	__u32 nr = REGS_NR(regs);
	struct wire_syscall *syscall;
	struct syscall_state *state;
	__u32 key, flags = 0;

	if (arg) {
		flags = open_flags(regs, abi, arg);
		/* Before anything is looked up: most opens only read. */
		if (gate_excludes(flags))
			return NULL;
	}
	if (numbers)
		nr = (abi == WIRE_B64 ? numbers & 0xffff : numbers >> 16) - 1;
	if (nr >= WIRE_SYSCALLS || is_daemon(task))
		return NULL;
	key = abi * WIRE_SYSCALLS + nr;
	syscall = plan_syscall(key);
	if (!syscall || syscall->tests == WIRE_NO_SYSCALL)
		return NULL;
	if (arg && syscall->facts & WIRE_FACT_WATCH_ONLY &&
	    !(ACC_MODE(flags) & syscall->watch_perm))
		return NULL; /* its flags exclude that a rule matches it */
	call_finish_last(task); /* needs what its own call has saved */
	if (syscall->facts & WIRE_FACT_ENTER_STATE)
		save_enter_state(task);
	stamp_drop(task);
	state = call_claim(task, key, syscall);
	/*
	 * If a tracer has changed the register, it does not tell the syscall from operations of io_uring
	 * on the way out.
	 */
	if (state && (tlg_late_work ? tlg_symbols.return_to_handler != 0
				    : !REGS_IN_SYSCALL(regs) && has_ring(task))) {
		state->frame = ctx->sp;
		state->frame_return = LOAD_WORD(ctx->sp);
	}
	return state;
}

/* kprobe at the entry of the function of a syscall. Runs in the calling task with preemption off. */
SEC("kprobe")
int call_enter(struct pt_regs *ctx)
{
	call_begin(ctx);
	return 0;
}

/*
 * The same with tlg_late_work, which also sees the function return. The claim, and not the registers,
 * tells the syscall: a tracer can write these while it stops the task inside.
 */
SEC("kprobe.session")
int call_session(struct pt_regs *ctx)
{
	__u64 *claim = bpf_session_cookie___v7_0(ctx);
	struct syscall_state *state;
	struct task_state *of;

	if (!bpf_session_is_return___v7_0(ctx)) {
		state = call_begin(ctx);
		*claim = state ? state->claim : 0;
		return !state;
	}
	of = task_state(current());
	state = of ? state_held(of, SLOT_SYSCALL) : NULL;
	if (!state || state->claim != *claim)
		return 0;
	state->frame = 0;
	call_finish(FUNCTION_RESULT(ctx), END_RETURNED);
	return 0;
}

/* The same at the entry of a syscall that is recorded without a result. */
SEC("kprobe")
int call_noreturn(struct pt_regs *ctx)
{
	struct task_struct *task = current();

	syscall_end(task, task_abi(task), REGS_NR(task_regs(task)), 0, 0);
	return 0;
}

/*
 * Session of the function of a syscall inside which the kernel runs task work: it is recorded when
 * the function returns.
 */
SEC("kprobe.session")
int call_return(struct pt_regs *ctx)
{
	struct task_struct *task = current();

	if (bpf_session_is_return___v7_0(ctx))
		syscall_end(task, task_abi(task), REGS_NR(task_regs(task)), FUNCTION_RESULT(ctx),
			    WIRE_EVENT_RETURNED);
	return 0;
}

/*
 * do_exit(code), v3.3: the task ends before the work of its last syscall has come, and takes no work any
 * more.
 */
SEC("kprobe.multi")
int call_exit(struct pt_regs *ctx)
{
	call_finish(0, END_LATE);
	slots_end(current());
	return 0;
}

/*
 * A function in which the kernel may run task work of its caller. What runs there sees no result: it
 * is requested again at the end of the function, so that it runs at the end of the syscall.
 */
static __always_inline int call_within(void *ctx)
{
	struct task_state *of = task_state(current());
	struct syscall_state *state = of ? state_held(of, SLOT_SYSCALL) : NULL;
	__u32 within;

	if (!tlg_kprobes || !state)
		return 1;
	if (!bpf_session_is_return___v7_0(ctx)) {
		state->within = WITHIN_FUNCTION;
		return 0;
	}
	within = state->within;
	state->within = WITHIN_NONE;
	if (within != WITHIN_WORK_RAN || call_request_end(current(), state->index) || tlg_late_work)
		return 0;
	count_lost(WIRE_LOST_NO_SLOT);
	slot_end(of, SLOT_SYSCALL);
	return 0;
}

/* ptrace_notify(code, message), v5.18: a traced task stops in the middle of a fork or exec. */
SEC("fexit/ptrace_notify")
int call_traced(__u64 *ctx)
{
	return call_within(ctx);
}

/* begin_new_exec(bprm), v5.8: cancels operations of io_uring (io_uring_cancel_generic()). */
SEC("fexit/begin_new_exec")
int call_new_exec(__u64 *ctx)
{
	return call_within(ctx);
}

/*
 * LSM bprm_committed_creds(bprm), v5.8: an exec has succeeded. Runs in the task. The end of the
 * exec cannot see whether its program is the interpreter of a script.
 */
SEC("lsm/bprm_committed_creds")
int call_exec(__u64 *ctx)
{
	struct task_state *of = task_state(current());
	struct syscall_state *state = of ? state_held(of, SLOT_SYSCALL) : NULL;
	__u64 bprm = ctx[0];

	if (state)
		state->script =
			LOAD(linux_binprm, bprm, filename) != LOAD(linux_binprm, bprm, interp);
	return 0;
}

#endif /* TOLLGATE_HOOKS_CALL_BPF_H */
