/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a syscall in progress, recorded by hooks inside the kernel until the syscall ends:
 * names that only the kernel could write, inodes, and the watches that they match.
 *
 * A syscall can sleep between a hook and its end, so its state is in a slot of its task. Nothing
 * is recorded outside a syscall: not while a task dumps core or exits, when its registers still
 * name the last one. A syscall that gets no slot is lost, and counted, if its rules need the state.
 *
 * An io_uring operation has a slot of its own beside that of the syscall: the kernel runs it on
 * the way out of any syscall, or inside an exec.
 */
#ifndef TOLLGATE_LIB_SYSCALL_STATE_BPF_H
#define TOLLGATE_LIB_SYSCALL_STATE_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"
#include "lib/watch_hash.bpf.h"

#define STATE_TEXT_BYTES 8192 /* names of one syscall; a power of two */
#define SOCKADDR_BYTES	 128 /* struct sockaddr_storage */
#define HOOKED_FACTS	 (WIRE_FACT_HOOKED | WIRE_FACT_AUX)
#define SETTLE_TICKS	 10000 /* jiffies after which no syscall is left from before a new plan */

/* What is known of the old name of a hard link, the second item. */
enum link_state {
	LINK_NONE, /* there is no such name */
	LINK_NAMED,
	LINK_FOUND, /* by names_linked(); for a link that is not refused, vfs_link() knows better */
};

#define FUNCTION_ARGS 6 /* arguments in registers */

/* Functions that run inside one another, so that the arguments of each are kept apart. */
enum inside {
	INSIDE_LOOKUP,
	INSIDE_CHECK,
	INSIDE_CHANGE,
	INSIDE_FILE_CAPS,
	INSIDE_OTHER,
	INSIDE_KINDS,
};

/* A function in progress: see lib/function_call.bpf.h. */
struct saved_call {
	__u64 sp; /* the stack when it began, or 0 */
	__u64 arg[FUNCTION_ARGS];
};

/* Whether a syscall is in a function in which the kernel may run its task work: see call_within(). */
enum within {
	WITHIN_NONE,
	WITHIN_FUNCTION,
	WITHIN_WORK_RAN, /* the work has run there: it must be requested again */
};

/* What tells a call from the next one of the same syscall, if its hook at the end did not run. */
struct call_registers {
	__u64 args[4]; /* as a 64-bit syscall has them */
	__u64 preserved;
	__u64 ip; /* where the syscall returns to */
	__u64 sp;
};

struct syscall_state {
	__u32 index; /* of the slot */
	__u32 syscall; /* index in the syscall table */
	__u32 epoch; /* epoch of the plan that decides about the syscall */
	__u64 ax; /* the register while the syscall runs: afterwards it has the result */
	struct call_registers call;
	__u64 frame; /* where the address that its function returns to is, or 0: see is_in_frame() */
	__u64 frame_return; /* that address */
	__u64 claim; /* tlg_late_work: tells the syscall from others of the slot */
	__u64 cred; /* tlg_late_work: of the task when the syscall began, as the next two */
	__u64 exec_id;
	__u64 pwd;
	__u64 nd; /* tlg_late_work: struct nameidata of the open whose file was found */
	__u32 script; /* the program that an exec starts is the interpreter of a script */
	__u32 judged; /* an LSM program has compared the file of an open with the watches */
	__u32 within; /* enum within */
	__u32 reserved; /* nothing final is recorded yet */
	__u32 gave_back; /* engine lsm: the last try to open that a program has seen has failed */
	__u32 items;
	__u32 text_used;
	__u32 open_flags; /* open flags that the kernel uses */
	__u32 open_mode;
	__u32 opened; /* open_flags and open_mode are valid */
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u64 mnt; /* mount of the last directory */
	__u64 filename[WIRE_ITEMS]; /* struct filename behind an item's name */
	__u64 dir[WIRE_ITEMS]; /* inode of a PARENT item */
	__u64 last[WIRE_ITEMS]; /* hash and length of the last component of its name */
	__u32 name_at[WIRE_ITEMS];
	__u32 path_at[WIRE_ITEMS];
	__u32 path_used; /* of struct state_paths */
	__u32 cwd_at; /* components of the working directory in `text` */
	__u32 cwd_len; /* 0 for the root directory */
	__u32 cwd_deleted;
	__u32 cwd_saved; /* 0 if it is the same until the syscall ends */
	__u32 address_len;
	__u8 address[SOCKADDR_BYTES]; /* of a socket */
	__u32 deletes_allowed; /* successful may_delete() checks of this syscall */
	__u32 links; /* enum link_state */
	__u32 hits_before_link; /* hits before those of LINK_FOUND */
	__u64 attr_frame; /* stack frame of the function that has the item's object */
	__u32 attr_nests; /* that function can call itself for an object of another file system */
	__u32 unopened; /* 1 + the hits before those of the last item, which an open has not opened yet; or 0 */
	__u64 to_create; /* struct dentry of the file that it is about to create in that item, or 0 */
	struct saved_call saved[INSIDE_KINDS];
	__u32 aux_count;
	struct wire_aux aux[WIRE_AUX_RECORDS];
	struct wire_object item[WIRE_ITEMS];
	__u8 text[STATE_TEXT_BYTES + WIRE_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* tlg_slots if the engine has hooks inside the kernel */
	__type(key, __u32);
	__type(value, struct syscall_state);
} tlg_sys_state SEC(".maps");

/* Whether io_uring operations are hooked. */
volatile __u32 tlg_uring;

/* Whether the engine has hooks inside the kernel. */
const volatile __u32 tlg_hooked;

/* Whether they are kprobes, and task work sees the end of a syscall: the engine lsm. */
const volatile __u32 tlg_kprobes;

/* Whether task work can be late: PREEMPT_RT. */
const volatile __u32 tlg_late_work;

/* Where a program sees a syscall. */
enum seen_at {
	SEEN_INSIDE,
	SEEN_AFTER, /* at the raw sys_exit: the register has the result */
};

/* Kind of the slot for an index in the syscall table. */
static __always_inline enum slot_kind slot_kind(__u32 key)
{
	return key < WIRE_URING_FIRST ? SLOT_SYSCALL : SLOT_URING_OP;
}

/* The slot that a task holds, or NULL. */
static __always_inline struct syscall_state *state_held(const struct task_state *of,
							enum slot_kind kind)
{
	__u32 index = held_slot(of, kind) - 1;

	return bpf_map_lookup_elem(&tlg_sys_state, &index);
}

static __always_inline void save_call(struct syscall_state *state, const struct pt_regs *regs)
{
	struct call_registers *call = &state->call;

	call->args[0] = REGS_ARG1(regs);
	call->args[1] = REGS_ARG2(regs);
	call->args[2] = REGS_ARG3(regs);
	call->args[3] = REGS_ARG4(regs);
	call->preserved = REGS_PRESERVED(regs);
	call->ip = REGS_IP(regs);
	call->sp = regs->sp;
}

static __always_inline int is_same_call(const struct syscall_state *state,
					const struct pt_regs *regs)
{
	const struct call_registers *call = &state->call;

	return call->ip == REGS_IP(regs) && call->sp == regs->sp &&
	       call->preserved == REGS_PRESERVED(regs) && call->args[0] == REGS_ARG1(regs) &&
	       call->args[1] == REGS_ARG2(regs) && call->args[2] == REGS_ARG3(regs) &&
	       call->args[3] == REGS_ARG4(regs);
}

/*
 * Tells the syscall, or the place in it, that a task is in from the next one. Keyed: the task
 * chooses its registers.
 */
static __always_inline __u64 call_fingerprint(const struct pt_regs *regs)
{
	__u64 hash = mix(tlg_seed, REGS_IP(regs));

	hash = mix(hash, regs->sp);
	hash = mix(hash, REGS_FULL_NR(regs));
	hash = mix(hash, REGS_RESULT(regs));
	hash = mix(hash, REGS_ARG1(regs));
	hash = mix(hash, REGS_ARG2(regs));
	return mix(hash, REGS_ARG3(regs));
}

/*
 * Whether a slot is of the syscall that the task is in now. A call that began before its hooks were
 * attached leaves its slot: the hook at its end does not run. An io_uring operation that no rule
 * names can run on the way out of a syscall and pass its hooks: the register has the result then.
 * An exec replaces the registers. After a syscall the register that it had is known only if no
 * tracer has changed it.
 */
static __always_inline int state_is_of(const struct syscall_state *state, struct task_struct *task,
				       __u32 key, const struct wire_syscall *syscall,
				       enum seen_at at)
{
	const struct pt_regs *regs = task_regs(task);
	__u64 ax = at == SEEN_AFTER ? REGS_NO_RESULT(regs) : REGS_RESULT(regs);

	return state->syscall == key &&
	       (key >= WIRE_URING_FIRST || syscall->facts & WIRE_FACT_EXEC ||
		(state->ax == ax && is_same_call(state, regs)));
}

/*
 * State of a task's syscall, or NULL. `syscall` is the entry of the plan in force; set to the
 * entry of the plan of the slot. State of an older plan than the previous one is ignored.
 */
static __always_inline struct syscall_state *state_find_in(const struct task_state *of,
							   struct task_struct *task, __u32 key,
							   struct wire_syscall **syscall,
							   enum seen_at at)
{
	struct syscall_state *state = state_held(of, slot_kind(key));
	struct wire_syscall *before;

	if (!state || !state_is_of(state, task, key, *syscall, at))
		return NULL;
	if (state->epoch == (*syscall)->epoch)
		return state;
	if (state->epoch != tlg_epoch_prev)
		return NULL;
	before = plan_syscall_at(state->epoch, key);
	if (!before)
		return NULL;
	*syscall = before;
	return state;
}

static __always_inline struct syscall_state *state_find(struct task_struct *task, __u32 key,
							struct wire_syscall **syscall)
{
	struct task_state *of = task_state(task);

	return of ? state_find_in(of, task, key, syscall, SEEN_INSIDE) : NULL;
}

/* State of a task, for a slot of its syscall; NULL if there is no memory: then the syscall is lost. */
static __always_inline struct task_state *task_state_for_slot(struct task_struct *task)
{
	struct task_state *of = task_state_create(task);

	if (!of)
		count_lost(WIRE_LOST_NO_SLOT);
	return of;
}

/*
 * Empty state for a syscall of the current task, or NULL: then it is lost at its end. `place`
 * decides which slot is tried first.
 */
static __always_inline struct syscall_state *state_claim_at(struct task_state *of,
							    struct task_struct *task, __u32 key,
							    const struct wire_syscall *syscall,
							    __u32 place)
{
	const struct pt_regs *regs = task_regs(task);
	struct syscall_state *state;
	__u32 index;

	index = slot_of(of, slot_kind(key), key, place, slot_user(task)) - 1;
	if (key >= WIRE_URING_FIRST)
		of->operation_in = call_fingerprint(regs);
	state = bpf_map_lookup_elem(&tlg_sys_state, &index);
	if (!state)
		return NULL;
	state->index = index;
	state->syscall = key;
	state->epoch = syscall->epoch;
	state->ax = REGS_RESULT(regs);
	save_call(state, regs);
	state->items = state->text_used = state->open_flags = state->hits = 0;
	state->deletes_allowed = state->links = state->unopened = 0;
	state->to_create = 0;
	state->aux_count = state->opened = 0;
	state->attr_frame = state->attr_nests = 0;
	state->reserved = 0;
	state->mnt = 0;
	state->address_len = state->cwd_saved = 0;
	if (tlg_context)
		state->path_used = 0;
	return state;
}

static __always_inline struct syscall_state *state_claim(struct task_struct *task, __u32 key,
							 const struct wire_syscall *syscall)
{
	struct task_state *of = task_state_for_slot(task);

	return of ? state_claim_at(of, task, key, syscall, task->pid) : NULL;
}

/* The state of the syscall, or a new one. */
static __always_inline struct syscall_state *
state_find_or_claim(struct task_struct *task, __u32 key, struct wire_syscall **syscall)
{
	struct syscall_state *state = state_find(task, key, syscall);

	return state && !state->reserved ? state : state_claim(task, key, *syscall);
}

/* Sets what the engine lsm keeps with a new slot. */
static __always_inline void state_begin(struct syscall_state *state)
{
	state->script = state->judged = state->gave_back = 0;
	state->within = WITHIN_NONE;
	state->frame = 0;
	state->reserved = 1;
	for (__u32 inside = 0; inside < INSIDE_KINDS; inside++)
		state->saved[inside].sp = 0;
}

/* Gives back the slot of the syscall that the task ends or begins. */
static __always_inline void state_drop(struct task_struct *task, enum slot_kind kind)
{
	struct task_state *of = task_state(task);

	if (of)
		slot_end(of, kind);
}

/* Empties a slot for another try of the kernel to open a file. */
static __always_inline void state_restart(struct syscall_state *state)
{
	state->items = state->text_used = state->path_used = state->hits = 0;
	state->unopened = state->gave_back = state->cwd_saved = 0;
	state->reserved = 1;
}

/*
 * Forgets what a hook has recorded of the syscall. On the engine lsm its slot is kept: the work that
 * sees its end stays requested.
 */
static __always_inline void state_forget(struct task_struct *task, struct syscall_state *state)
{
	if (tlg_kprobes)
		state_restart(state);
	else
		state_drop(task, SLOT_SYSCALL);
}

/* Whether a task has an io_uring of its own. */
static __always_inline int has_ring(const struct task_struct *task)
{
	/* No FOLLOW() here: a cast makes every open slower. */
	return bpf_core_field_exists(task->io_uring) && task->io_uring;
}

/*
 * Whether the function of the syscall has not returned, and has a session, which has replaced the
 * address that it returns to: not if the kernel has skipped the session.
 */
static __always_inline int is_in_session(const struct syscall_state *state)
{
	return state->frame && LOAD_WORD(state->frame) == tlg_symbols.return_to_handler;
}

/*
 * Whether the function of the syscall has not returned: do_syscall_64() and its like write another
 * address in its place when they call the next function.
 */
static __always_inline int is_in_frame(const struct syscall_state *state)
{
	return !state->frame || LOAD_WORD(state->frame) == state->frame_return ||
	       (tlg_late_work && is_in_session(state));
}

/*
 * Whether the registers of a task look like those of a syscall in progress. They also do while an
 * operation of io_uring runs before the kprobe, in a task that a tracer stops (ptrace_notify()), and
 * after an exception for which the task has chosen them: `int $0` leaves number 2, that of open.
 */
static __always_inline int has_call_registers(struct task_struct *task)
{
	return !(task->flags & PF_IO_WORKER) && REGS_IN_SYSCALL(task_regs(task));
}

/*
 * Whether the current task may run io_uring operations, itself or as a worker. What a task submits
 * runs in io_uring_enter or on its way out of any syscall or interrupt.
 */
static __always_inline int may_run_uring(const struct task_struct *task)
{
	if (!tlg_uring)
		return 0;
	return task->flags & PF_IO_WORKER || has_ring(task);
}

/*
 * Index in the syscall table of the io_uring operation in progress, or WIRE_NO_SYSCALL. One whose
 * hooks were removed while it slept has left its slot.
 */
static __always_inline __u32 operation_of(struct task_struct *task)
{
	const struct task_state *of = task_state(task);
	struct syscall_state *state;

	if (!of)
		return WIRE_NO_SYSCALL;
	state = state_held(of, SLOT_URING_OP);
	if (!state && !of->missing[SLOT_URING_OP])
		return WIRE_NO_SYSCALL;
	if (!(task->flags & PF_IO_WORKER) && of->operation_in != call_fingerprint(task_regs(task)))
		return WIRE_NO_SYSCALL;
	return state ? state->syscall : of->missing[SLOT_URING_OP] - 1;
}

/* Whether a task is in an io_uring operation that rules name. */
static __always_inline int is_in_operation(struct task_struct *task)
{
	return may_run_uring(task) && operation_of(task) != WIRE_NO_SYSCALL;
}

/*
 * State of the syscall or operation that a task is in on the engine lsm, if its kprobe has taken a
 * slot. Operations that no rule names also run in workers, whose registers are those of another
 * task, and on the way out of a syscall, when the register has its result. A tracer can have changed
 * the register before, to what the result will be.
 */
static __always_inline struct syscall_state *state_of_call(struct task_struct *task)
{
	struct task_state *of = task_state(task);
	struct syscall_state *state;

	if (!of)
		return NULL;
	if (is_in_operation(task))
		return state_held(of, SLOT_URING_OP);
	state = state_held(of, SLOT_SYSCALL);
	if (!state || task->flags & PF_IO_WORKER || REGS_RESULT(task_regs(task)) != state->ax)
		return NULL;
	return is_in_frame(state) ? state : NULL;
}

/*
 * Whether a task is in a syscall or operation. Without a slot, the kprobe of the syscall was
 * skipped, unless it is an operation that no rule names.
 */
static __always_inline int is_in_call(struct task_struct *task)
{
	return state_of_call(task) || is_in_operation(task) ||
	       (has_call_registers(task) && !has_ring(task));
}

/*
 * Index in the syscall table of the syscall that the current task is in, or WIRE_NO_SYSCALL if
 * hooks have nothing to record. Other syscalls pass the hooked functions too and pay only for this
 * check.
 */
static __always_inline __u32 hooked_syscall(struct task_struct *task, struct wire_syscall **syscall)
{
	__u32 nr = REGS_NR(task_regs(task));
	__u32 key = task_abi(task) * WIRE_SYSCALLS + nr;

	if (may_run_uring(task)) {
		__u32 op = operation_of(task);

		if (op != WIRE_NO_SYSCALL) {
			*syscall = plan_syscall(op);
			return *syscall && (*syscall)->facts & HOOKED_FACTS ? op : WIRE_NO_SYSCALL;
		}
		if (task->flags & PF_IO_WORKER)
			return WIRE_NO_SYSCALL; /* its registers are those of the task that created it */
	}
	if (nr >= WIRE_SYSCALLS)
		return WIRE_NO_SYSCALL;
	*syscall = plan_syscall(key);
	if (!*syscall || (*syscall)->tests == WIRE_NO_SYSCALL ||
	    !((*syscall)->facts & HOOKED_FACTS))
		return WIRE_NO_SYSCALL;
	if (task->flags & (PF_EXITING | PF_DUMPCORE))
		return WIRE_NO_SYSCALL; /* the syscall has ended */
	if (is_daemon(task))
		return WIRE_NO_SYSCALL;
	return key;
}

/*
 * State and plan entry of the syscall that the current task is in, if an earlier hook has claimed
 * a slot.
 */
static __always_inline struct syscall_state *state_current(struct wire_syscall **syscall)
{
	struct task_struct *task = current();
	__u32 key;

	*syscall = NULL; /* the verifier refuses to copy an unset variable */
	key = hooked_syscall(task, syscall);
	return key == WIRE_NO_SYSCALL ? NULL : state_find(task, key, syscall);
}

/* Whether the syscall has no state because there was no slot for it. */
static __always_inline __u32 state_is_missing(struct task_struct *task, __u32 key)
{
	struct task_state *of = task_state(task);

	return of && of->missing[slot_kind(key)] == 1 + key;
}

/* The state of what ends, and why there is none. */
struct ended_state {
	struct syscall_state *state;
	__u32 missing; /* there should be one */
};

/*
 * State of a syscall or operation that ends. It is missing if there was no slot, if it began under
 * an older plan than the previous one, whose rules are gone, or if what a hook has recorded may be
 * of an earlier syscall.
 */
static __always_inline struct ended_state state_at_end(const struct task_state *of,
						       struct task_struct *task, __u32 key,
						       struct wire_syscall **syscall,
						       enum seen_at at)
{
	enum slot_kind kind = slot_kind(key);
	struct ended_state ended = { .state = state_find_in(of, task, key, syscall, at) };
	struct syscall_state *state;

	if (ended.state) {
		if (ended.state->reserved)
			ended.state = NULL;
		return ended;
	}
	state = state_held(of, kind);
	ended.missing = of->missing[kind] == 1 + key ||
			(state && state->syscall == key &&
			 (at == SEEN_AFTER || state_is_of(state, task, key, *syscall, at)));
	return ended;
}

/* Whether a syscall without state has begun under the plan in force, and not one that had no rule for it. */
static __always_inline int began_under_plan(void)
{
	return bpf_jiffies64() - tlg_switched_at >= SETTLE_TICKS;
}

/* Whether hooks have recorded all objects of a syscall that ends without state. */
static __always_inline __u32 hooks_saw_all(const struct wire_syscall *syscall)
{
	return tlg_hooked && syscall->facts & WIRE_FACT_HOOKED &&
	       !(syscall->facts & WIRE_FACT_FOUND_ONLY) && began_under_plan();
}

/*
 * Whether nothing was recorded of a syscall or operation because no watch matches what it used. Of
 * opens on the engine lsm, hooks see what they find; a watch does not match a file that does not
 * exist.
 */
static __always_inline int has_no_watch(const struct wire_syscall *syscall,
					const struct syscall_state *state, __s64 ret)
{
	if (!(syscall->facts & WIRE_FACT_HOOKED) || !(syscall->facts & WIRE_FACT_WATCH_ONLY))
		return 0;
	if (!(syscall->facts & WIRE_FACT_FOUND_ONLY))
		return 1;
	/* An open that failed was compared as an object or a name; with a match it is not reserved. */
	return ret == -ENOENT || (ret >= 0 ? state->judged : state->gave_back);
}

/* Whether the rules of a syscall use watches. */
static __always_inline __u32 uses_watches(const struct wire_syscall *syscall)
{
	return syscall->tests != syscall->tests_unwatched;
}

/* Whether rules cannot be evaluated without the state. */
static __always_inline __u32 needs_state(const struct wire_syscall *syscall)
{
	return uses_watches(syscall) ||
	       syscall->facts & (WIRE_FACT_OBJECTS | WIRE_FACT_SADDR | WIRE_FACT_OPEN_HOW);
}

#endif /* TOLLGATE_LIB_SYSCALL_STATE_BPF_H */
