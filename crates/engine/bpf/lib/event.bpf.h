/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns a finished syscall into an event in the ring: read the facts that rules test, run the
 * rules, and read the rest only if a rule records the event. Programs of every engine end here.
 */
#ifndef TOLLGATE_LIB_EVENT_BPF_H
#define TOLLGATE_LIB_EVENT_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/append_aux.bpf.h"
#include "lib/append_items.bpf.h"
#include "lib/context.bpf.h"
#include "lib/enter_state.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/label.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/path.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/record_stamp.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/sockaddr.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_mark.bpf.h"
#include "lib/task_state.bpf.h"
#include "lib/watch.bpf.h"

#define NR_IO_URING_ENTER 426 /* of both ABIs */
#define AT_EXECVE_CHECK	  0x10000 /* include/uapi/linux/fcntl.h */
#define O_RDWR		  2

/* Whether a verdict of run_rules() records the event. */
#define verdict_records(verdict) ((verdict) != WIRE_NO_VERDICT && (verdict) & WIRE_RECORD)

/*
 * Flags of an openat2 whose `how` no hook has seen: those of the open file, or of a failed one those in user
 * memory, which may have changed. Without either, all access is assumed.
 */
static __always_inline __u64 open_how_flags(const struct wire_event *event, __u64 how)
{
	__u64 file = event->success ? task_file(current(), event->exit) : 0;
	__u64 flags;

	if (file)
		return LOAD(file, file, f_flags);
	if (!bpf_probe_read_user(&flags, sizeof(flags), (void *)how))
		return flags;
	count_truncated(WIRE_TRUNC_NAME);
	return O_RDWR;
}

/* Access mode of an open: audit_match_perm(). */
static __always_inline __u32 open_perm(const struct wire_event *event,
				       const struct wire_syscall *syscall,
				       const struct syscall_state *state)
{
	__u64 flags = syscall_arg(event, syscall->open_arg);

	if (event->flags & WIRE_EVENT_URING) {
		flags = state ? state->open_flags : 0;
	} else if (syscall->facts & WIRE_FACT_OPEN_HOW) {
		flags = state ? state->open_flags : open_how_flags(event, flags);
	}
	return ACC_MODE(flags);
}

/*
 * Whether an execveat that has succeeded has only asked whether the program can be executed (v6.14). A
 * program that has started has registers of its own.
 */
static __always_inline int only_asks(struct task_struct *task, __u32 abi, __u32 nr)
{
	const struct pt_regs *regs = task_regs(task);

	if (abi == WIRE_B64)
		return nr == NR_EXECVEAT_64 && REGS_ARG5(regs) & AT_EXECVE_CHECK;
	return nr == NR_EXECVEAT_32 && REGS_COMPAT_ARG5(regs) & AT_EXECVE_CHECK;
}

/*
 * The exit code that the kernel's audit reports for an interrupted syscall: audit_return_fixup().
 */
static __always_inline __s64 audit_return_fixup(__s64 ret)
{
	if (ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND ||
	    ret == -ERESTART_RESTARTBLOCK)
		return -EINTR;
	return ret;
}

/*
 * Appends the command line, read once per exec of a task as long as this CPU's cache has it. The
 * kernel's audit reads it once per task and keeps it. Later writes by the task show in neither.
 */
static __always_inline void append_proctitle(struct scratch *s, const struct task_struct *task,
					     __u64 mm)
{
	struct title_cache *cache = &s->title_cache;
	__u64 start = task->start_boottime;
	__u64 exec = task->self_exec_id;

	if (cache->start != start || cache->exec != exec || cache->pid != (__u32)task->pid) {
		__u64 from = LOAD(mm_struct, mm, arg_start);
		__u64 len = LOAD(mm_struct, mm, arg_end) - from;

		if (len > WIRE_PROCTITLE_BYTES)
			len = WIRE_PROCTITLE_BYTES;
		cache->len = 0;
		if (!bpf_probe_read_user(cache->text, len, (void *)from))
			cache->len = len;
		cache->start = start;
		cache->exec = exec;
		cache->pid = task->pid;
		cache->label = 0;
	}
	copy_words(tail_at(s, s->used), cache->text, cache->len, WIRE_PROCTITLE_BYTES);
	s->event.proctitle_len = cache->len;
	s->used += cache->len;
}

/* Appends argv from the new program's memory, which only the kernel has written so far. */
static __always_inline void append_argv(struct scratch *s, __u64 mm)
{
	__u64 from = LOAD(mm_struct, mm, arg_start);
	__u64 len = LOAD(mm_struct, mm, arg_end) - from;
	__u64 argc = 0;

	if (bpf_probe_read_user(&argc, 4, (void *)task_regs(current())->sp))
		count_truncated(WIRE_TRUNC_ARGV);
	s->event.argc = argc;
	if (len > WIRE_ARGV_BYTES) {
		count_truncated(WIRE_TRUNC_ARGV);
		len = WIRE_ARGV_BYTES;
	}
	/* TAIL_SLACK is smaller than this: the offset is bounded so that the whole read fits. */
	if (s->used >= WIRE_TAIL_BYTES - WIRE_ARGV_BYTES ||
	    bpf_probe_read_user(&s->tail[s->used & (WIRE_TAIL_BYTES - WIRE_ARGV_BYTES - 1)], len,
				(void *)from)) {
		count_truncated(WIRE_TRUNC_ARGV);
		len = 0;
	}
	s->event.argv_len = len;
	s->used += len;
}

/* Separate functions, so that the verifier checks each once and not their product. */
__noinline int append_exe(struct scratch *s)
{
	struct task_struct *task = current();
	struct mm_struct *mm = FOLLOW(task_struct, task, mm);
	struct file *exe;
	__u32 at;

	if (!s || !mm)
		return 0;
	exe = mm->exe_file;
	if (!exe)
		return 0;
	at = s->used;
	s->event.flags |= WIRE_EVENT_EXE;
	if (append_path(s, task, exe->f_path.dentry, exe->f_path.mnt, PATH_EXE))
		s->event.flags |= WIRE_EVENT_EXE_DELETED;
	if (s->used - at >= WIRE_NAME_BYTES) {
		s->event.flags |= WIRE_EVENT_EXE_LONG;
		s->used = at; /* a truncated path names another file */
	}
	s->event.exe_len = s->used - at;
	return 0;
}

__noinline int append_cwd(struct scratch *s, const struct syscall_state *state)
{
	struct task_struct *task = current();
	struct fs_struct *fs = FOLLOW(task_struct, task, fs);
	__u32 at, deleted;

	if (!s)
		return 0;
	at = s->used;
	s->event.flags |= WIRE_EVENT_CWD;
	if (state && state->cwd_saved) {
		deleted = state->cwd_deleted;
		if (!bpf_probe_read_kernel(tail_at(s, at), state->cwd_len & (WIRE_NAME_BYTES - 1),
					   &state->text[state->cwd_at & (STATE_TEXT_BYTES - 1)]))
			s->used += state->cwd_len;
	} else {
		deleted = append_path(s, task, fs->pwd.dentry, fs->pwd.mnt, PATH_CWD);
	}
	if (deleted)
		s->event.flags |= WIRE_EVENT_CWD_DELETED;
	if (s->used - at >= WIRE_NAME_BYTES) {
		s->event.flags |= WIRE_EVENT_CWD_LONG;
		s->used = at;
	}
	s->event.cwd_len = s->used - at;
	return 0;
}

/* Appends what is text. `state` is the state of a syscall with hooks, or NULL. */
static __always_inline void append_strings(struct scratch *s, const struct task_struct *task,
					   const struct syscall_state *state)
{
	struct wire_event *event = &s->event;
	struct mm_struct *mm = FOLLOW(task_struct, task, mm);

	event->exe_len = event->cwd_len = event->proctitle_len = 0;
	event->argv_len = event->argc = 0;
	append_exe(s);
	if (event->objects && !s->cwd_changed)
		append_cwd(s, state);
	if (mm)
		append_proctitle(s, task, (__u64)mm);
	if (mm && event->flags & WIRE_EVENT_STARTED)
		append_argv(s, (__u64)mm);
}

/*
 * Whether a syscall without state has no objects: hooks see every name that the kernel copies and
 * every descriptor that it uses. An attribute syscall copies its name before lookup fails, but not
 * if its flags are invalid.
 */
static __always_inline __u32 has_no_objects(const struct scratch *s,
					    const struct wire_syscall *syscall)
{
	if (s->no_state || s->event.flags & WIRE_EVENT_URING)
		return 1;
	if (!hooks_saw_all(syscall))
		return 0;
	return syscall->facts & WIRE_FACT_HOOKED_NAMES ||
	       syscall->objects[0].lookup == WIRE_LOOKUP_FD || s->event.exit == (__u64)-EINVAL;
}

/* Appends the objects of the syscall: from the state if there is one, else from its arguments. */
static __always_inline void fill_objects(struct scratch *s, const struct wire_syscall *syscall,
					 struct syscall_state *state)
{
	if (state)
		append_items(s, state);
	else if (!has_no_objects(s, syscall))
		resolve_objects(s, syscall->objects);
}

/* Reads the task facts that rules test. */
static __always_inline void fill_task_facts(struct wire_event *event, struct task_struct *task,
					    __u32 facts)
{
	if (facts & WIRE_FACT_TASK) {
		fill_task(event, task);
		if (facts & WIRE_FACT_TASK_MARK)
			event->rule = task_mark(task);
	}
	if (facts & WIRE_FACT_CREDS)
		fill_creds(event, task);
}

/* Reads the facts that the rules of this syscall test. */
static __always_inline void fill_facts(struct scratch *s, struct task_struct *task,
				       const struct wire_syscall *syscall,
				       struct syscall_state *state)
{
	struct wire_event *event = &s->event;
	__u32 facts = syscall->facts;

	fill_task_facts(event, task, facts);
	if (facts & (WIRE_FACT_OPEN_FLAGS | WIRE_FACT_OPEN_HOW))
		event->open_perm = open_perm(event, syscall, state);
	else if (facts & WIRE_FACT_SADDR)
		fill_sockaddr_family(s, syscall, state);
	if (facts & WIRE_FACT_EXE)
		watch_exe(s);
	if (facts & WIRE_FACT_OBJECTS)
		fill_objects(s, syscall, state);
}

static __always_inline __u32 evaluate(struct scratch *s, const struct wire_syscall *syscall,
				      struct syscall_state *state)
{
	__u32 opens = syscall->facts & (WIRE_FACT_OPEN_FLAGS | WIRE_FACT_OPEN_HOW);

	if (syscall->tests == syscall->tests_unwatched)
		return run_rules(s, syscall->tests);
	if (opens && !(s->event.open_perm & syscall->watch_perm))
		return run_rules(s, syscall->tests_unwatched);
	/* No object exists there to match a watch, as in the kernel. */
	if (syscall->facts & WIRE_FACT_FOUND_ONLY && s->event.exit == (__u64)-ENOENT)
		return run_rules(s, syscall->tests_unwatched);
	if (state) {
		state_load_hits(s, state);
		return run_rules(s, s->hits ? syscall->tests : syscall->tests_unwatched);
	}
	if (!(syscall->facts & WIRE_FACT_OBJECTS))
		fill_objects(s, syscall, NULL);
	for (__u32 i = 0; i < WIRE_OBJECTS; i++)
		if (i < s->event.objects)
			watch_object(s, i);
	/* A link in the name of an open that found no file, or was refused, can lead anywhere. */
	if (tlg_kprobes && syscall->facts & WIRE_FACT_FOUND_ONLY)
		distrust_hits(s->hit);
	return run_rules(s, s->hits ? syscall->tests : syscall->tests_unwatched);
}

/* Appends label and context; returns the length of the event. */
static __always_inline __u32 finish_event(struct scratch *s, const struct task_struct *task)
{
	append_label(s, task);
	if (tlg_context)
		append_context(s);
	s->event.len = sizeof(s->event) + (s->used & TAIL_MASK);
	return s->event.len & (2 * WIRE_TAIL_BYTES - 1);
}

/*
 * Whether the current task runs an io_uring operation inside io_uring_enter. On the way out, when
 * the register has the result, the kernel's audit has closed the syscall; a tracer can have changed
 * the register before. A completion inside can be that of a worker's operation, which the task was
 * waiting for.
 */
static __always_inline int in_uring_enter(struct task_struct *task)
{
	const struct pt_regs *regs = task_regs(task);

	return REGS_NR(regs) == NR_IO_URING_ENTER && !(task->flags & PF_IO_WORKER) &&
	       (REGS_IN_SYSCALL(regs) || task->ptrace);
}

/* Adds the syscall in which an operation ran. */
static __always_inline void fill_uring_enter(struct wire_event *event, struct task_struct *task)
{
	event->flags |= WIRE_EVENT_URING_ENTER;
	event->abi = task_abi(task);
	fill_args(event->args, task_regs(task), event->abi);
}

/*
 * Sets the arguments of a syscall that ends. Those in its state are the same as in the registers, and
 * cost less to read. An exec replaces the registers.
 */
static __always_inline void fill_event_args(struct wire_event *event, struct task_struct *task,
					    const struct wire_syscall *syscall,
					    const struct syscall_state *state, __u32 abi)
{
	if (!state || abi != WIRE_B64 || syscall->facts & WIRE_FACT_EXEC) {
		fill_args(event->args, task_regs(task), abi);
		return;
	}
	for (int i = 0; i < 4; i++)
		event->args[i] = state->call.args[i];
}

/*
 * Emits the event of a finished syscall, or of the io_uring operation `op`, if a rule records it, and
 * returns whether one does. Without the state that its rules need it is lost: user memory may have
 * changed.
 */
static __always_inline int emit_event(struct task_struct *task, const struct wire_syscall *syscall,
				      __u32 abi, __u32 nr, __s64 ret, __u32 flags, __u32 op,
				      struct ended_state ended)
{
	struct syscall_state *state = ended.state;
	struct syscall_state *objects = syscall->facts & WIRE_FACT_HOOKED ? state : NULL;
	struct scratch *s = scratch();
	enum slot_kind kind = flags & WIRE_EVENT_URING ? SLOT_URING_OP : SLOT_SYSCALL;
	struct record_stamp *stamp = NULL;
	struct wire_event *event;
	__u32 verdict;

	if (!s || (ended.missing && needs_state(syscall))) {
		count_lost(WIRE_LOST_NO_SLOT);
		return 0;
	}
	s->no_state = ended.missing;
	event = &s->event;
	select_watches(s, syscall);
	s->used = s->hits = s->exe_hits = s->cwd_changed = 0;
	s->tree_version = 0;
	event->version = WIRE_VERSION;
	event->flags = flags;
	event->objects = 0;
	event->jiffies = bpf_jiffies64();
	event->abi = abi;
	event->nr = nr;
	event->exit = audit_return_fixup(ret);
	event->success = flags & WIRE_EVENT_RETURNED && (ret >= 0 || ret < -MAX_ERRNO);
	event->pid = task->tgid;
	event->uring_op = 0;
	if (flags & WIRE_EVENT_URING) {
		event->uring_op = op;
		for (int i = 0; i < 4; i++)
			event->args[i] = 0;
		/*
		 * Where completions are seen, rules are about io_uring_enter; with hooks they are about
		 * the syscall that does the same, and an operation has none of its arguments.
		 */
		if (!tlg_hooked && in_uring_enter(task))
			fill_uring_enter(event, task);
	} else {
		fill_event_args(event, task, syscall, state, abi);
		if (syscall->facts & WIRE_FACT_ENTER_STATE)
			load_enter_state(event, task);
	}

	fill_facts(s, task, syscall, objects);
	if (tlg_hooked && !state && syscall->facts & WIRE_FACT_HOOKED &&
	    !(syscall->facts & WIRE_FACT_FOUND_ONLY) && syscall->facts & WIRE_FACT_WATCH_ONLY)
		verdict = WIRE_NO_VERDICT; /* hooks have seen no watch; there is a stamp */
	else
		verdict = evaluate(s, syscall, objects);
	/* Rules that only watch were compared with the file and with the name. */
	if (event->flags & WIRE_EVENT_DESCRIPTOR &&
	    (verdict_records(verdict) || syscall->facts & WIRE_FACT_OBJECTS))
		count_truncated(WIRE_TRUNC_DESCRIPTOR);
	if (!(flags & WIRE_EVENT_URING))
		stamp = stamp_of(task, abi * WIRE_SYSCALLS + nr);
	if (!verdict_records(verdict)) {
		if (!stamp)
			return 0;
		event->flags |= WIRE_EVENT_STAMPED;
		verdict = 0;
	} else if (stamp) {
		event->flags |= WIRE_EVENT_JOINED;
	}

	if (flags & WIRE_EVENT_URING && tlg_hooked && in_uring_enter(task))
		fill_uring_enter(event, task);
	if (s->no_state)
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
	event->rule = verdict & ~(WIRE_RECORD | WIRE_DENY);
	if (!(syscall->facts & WIRE_FACT_TASK))
		fill_task(event, task);
	if (!(syscall->facts & WIRE_FACT_CREDS))
		fill_creds(event, task);
	fill_names(event, task);
	if (event->flags & WIRE_EVENT_STAMPED && !objects)
		resolve_objects(s, syscall->objects); /* hooks need not have kept them */
	else if (!event->objects)
		fill_objects(s, syscall, objects);
	event->aux_count = 0;
	if (stamp)
		append_stamp(s, stamp->kind, stamp->text);
	if (syscall->aux_source || (state && state->aux_count))
		append_aux_records(s, syscall, state);
	append_strings(s, task, state);
	event->sockaddr_len = 0;
	if (state)
		append_sockaddr(s, state);
	else if (syscall->address && !tlg_hooked)
		append_user_sockaddr(s, syscall);
	if (event->flags & WIRE_EVENT_STAMPED)
		submit_stamped(event, finish_event(s, task));
	else
		submit(event, finish_event(s, task), verdict,
		       verdict & WIRE_DENY && is_let_through(task, kind));
	return 1;
}

/*
 * Handles the end of a syscall. `flags` has WIRE_EVENT_RETURNED if `ret` is its result. Runs in the
 * task that made it.
 *
 * A successful exec ends when the program has started: at its return the registers are those of an
 * execve of the new program's ABI (set_personality_64bit() in arch/x86/kernel/process_64.c).
 */
static __always_inline void syscall_end_at(struct task_struct *task, __u32 abi, __u32 nr, __s64 ret,
					   __u32 flags, enum seen_at at)
{
	__u32 key = abi * WIRE_SYSCALLS + nr;
	struct ended_state ended = {};
	struct wire_syscall *syscall;
	struct task_state *of;

	if (nr >= WIRE_SYSCALLS)
		return;
	syscall = plan_syscall(key);
	if (!syscall)
		return;
	if (syscall->tests == WIRE_NO_SYSCALL) {
		if (tlg_hooked)
			state_drop(task, SLOT_SYSCALL);
		return;
	}
	if (syscall->facts & WIRE_FACT_FORKS && !ret)
		return;
	if (syscall->facts & WIRE_FACT_EXEC && !ret && !(flags & WIRE_EVENT_STARTED) &&
	    !only_asks(task, abi, nr))
		return;
	if (is_daemon(task))
		return;
	if (!tlg_hooked || !(syscall->facts & HOOKED_FACTS)) {
		emit_event(task, syscall, abi, nr, ret, flags, 0, ended);
		stamp_drop(task);
		return;
	}
	of = task_state(task);
	if (of)
		ended = state_at_end(of, task, key, &syscall, at);
	if (ended.state || ended.missing || !(syscall->facts & WIRE_FACT_HOOKED) ||
	    !(syscall->facts & WIRE_FACT_WATCH_ONLY) || stamp_of(task, key))
		emit_event(task, syscall, abi, nr, ret, flags, 0, ended);
	stamp_drop(task);
	if (!of)
		return;
	slot_end(of, SLOT_SYSCALL);
	/* No operation is in progress when a syscall of the same task ends. */
	if (of->slot[SLOT_URING_OP] || of->missing[SLOT_URING_OP])
		slot_end(of, SLOT_URING_OP);
}

static __always_inline void syscall_end(struct task_struct *task, __u32 abi, __u32 nr, __s64 ret,
					__u32 flags)
{
	syscall_end_at(task, abi, nr, ret, flags, SEEN_INSIDE);
}

#endif /* TOLLGATE_LIB_EVENT_BPF_H */
