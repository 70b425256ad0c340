/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Appends the auxiliary records of a syscall to its event: those in its state, and those that
 * registers, task and user memory still show. Another thread can have changed user memory since
 * the kernel read it.
 */
#ifndef TOLLGATE_LIB_APPEND_AUX_BPF_H
#define TOLLGATE_LIB_APPEND_AUX_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/loaded_program.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/socketcall.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/target_task.bpf.h"
#include "lib/task.bpf.h"

#define MAP_ANONYMOUS	 0x20 /* include/uapi/asm-generic/mman-common.h */
#define PAGE_BYTES	 4096
#define OPEN_HOW_BYTES	 24 /* OPEN_HOW_SIZE_VER0, include/uapi/linux/openat2.h */
#define OLD_MMAP_WORDS	 6 /* struct mmap_arg_struct32, arch/x86/kernel/sys_ia32.c */
#define SOCKETCALL_WORDS 6 /* AUDITSC_ARGS, include/linux/audit.h */
#define SOCKETCALL_BITS	 7
#define PTRACE_ATTACH	 16 /* include/uapi/linux/ptrace.h */
#define PTRACE_SEIZE	 0x4206
#define SI_CODE		 8 /* offset of siginfo_t.si_code, in both ABIs */

/*
 * Number of arguments of each socketcall operation, three bits each: nas[] in net/compat.c, v5.5.
 */
#define SOCKETCALL_ARGS 0x4b1bb56d246da6d8ULL

static __always_inline struct wire_aux *append_aux(struct scratch *s, __u32 kind)
{
	struct wire_aux *aux = tail_at(s, s->used);

	aux->kind = kind;
	s->used += sizeof(*aux);
	s->event.aux_count++;
	return aux;
}

/* Appends two descriptors from user memory. */
static __always_inline void append_pair(struct scratch *s, __u64 from)
{
	__s32 fd[2];
	struct wire_aux *aux;

	if (!s->event.success)
		return;
	if (bpf_probe_read_user(fd, sizeof(fd), (void *)from)) {
		count_truncated(WIRE_TRUNC_NAME);
		return;
	}
	aux = append_aux(s, WIRE_AUX_FD_PAIR);
	aux->word[0] = fd[0];
	aux->word[1] = fd[1];
}

static __always_inline void append_mmap(struct scratch *s, __u64 flags, __u64 fd, __u64 offset)
{
	struct wire_aux *aux;

	if (flags & MAP_ANONYMOUS || offset & (PAGE_BYTES - 1))
		return;
	aux = append_aux(s, WIRE_AUX_MMAP);
	aux->word[0] = fd;
	aux->word[1] = flags;
}

/* Appends the arguments of a 32-bit socketcall: audit_socketcall_compat(). */
static __always_inline void append_socketcall(struct scratch *s)
{
	__u32 which = syscall_arg(&s->event, 0);
	__u32 args[SOCKETCALL_BITS + 1] = {}; /* maximum of three bits */
	struct wire_aux *aux;
	__u32 count;

	if (which < SYS_SOCKET || which > SYS_SENDMMSG)
		return;
	count = SOCKETCALL_ARGS >> (3 * which) & SOCKETCALL_BITS;
	if (bpf_probe_read_user(args, count * sizeof(args[0]), (void *)syscall_arg(&s->event, 1)))
		return;
	aux = append_aux(s, WIRE_AUX_SOCKETCALL);
	aux->word[0] = count;
	for (int i = 0; i < SOCKETCALL_WORDS; i++)
		aux->word[1 + i] = args[i];
	if (which == SYS_SOCKETPAIR)
		append_pair(s, args[3]);
}

/* Appends struct open_how of an openat2, unless the kernel could not copy it. */
static __always_inline void append_open_how(struct scratch *s, const struct syscall_state *state)
{
	__u64 bytes = s->event.args[3];
	struct wire_aux *aux;
	__u64 how[3];

	if (s->event.flags & WIRE_EVENT_URING)
		return;
	if (bytes < OPEN_HOW_BYTES || bytes > PAGE_BYTES || s->event.exit == (__u64)-E2BIG)
		return;
	if (bpf_probe_read_user(how, sizeof(how), (void *)syscall_arg(&s->event, 2)))
		return;
	aux = append_aux(s, WIRE_AUX_OPENAT2);
	for (int i = 0; i < 3; i++)
		aux->word[i] = how[i];
	aux->word[3] = state && state->opened;
	if (!aux->word[3])
		return;
	aux->word[4] = state->open_flags;
	aux->word[5] = state->open_mode;
}

static __always_inline void append_capset(struct scratch *s, const struct task_struct *task)
{
	__u64 cred = (__u64)FOLLOW(task_struct, task, cred);
	struct wire_aux *aux;

	if (!s->event.success)
		return;
	aux = append_aux(s, WIRE_AUX_CAPSET);
	aux->word[0] = task->tgid;
	aux->word[1] = LOAD_WORD(AT(cred, cred, cap_permitted));
	aux->word[2] = LOAD_WORD(AT(cred, cred, cap_inheritable));
	aux->word[3] = LOAD_WORD(AT(cred, cred, cap_effective));
	aux->word[4] = LOAD_WORD(AT(cred, cred, cap_ambient));
}

/*
 * Appends the task that the syscall names, if the kernel has looked it up: kill_pid_info(),
 * ptrace_attach(). Errors that come before that are ESRCH, EINVAL and `refused`; those of a siginfo
 * in user memory too. A number below 1 names a group of processes, which are not appended. The task
 * can be gone.
 */
static __always_inline void append_target(struct scratch *s, const struct task_struct *task,
					  __s32 number, __s64 refused)
{
	__s64 ret = s->event.exit;
	__u64 target;

	if (number < 1 || ret == -ESRCH || ret == -EINVAL || ret == -EFAULT || ret == -E2BIG ||
	    ret == refused)
		return;
	target = find_task(task, number);
	if (target)
		fill_target(append_aux(s, WIRE_AUX_OBJ_PID), target);
}

/*
 * Whether a siginfo in user memory is that of a user. A task can send itself others, and the kernel
 * does not look at the target then: check_kill_permission().
 */
static __always_inline int is_from_user(__u64 siginfo)
{
	__s32 code = 0;

	bpf_probe_read_user(&code, sizeof(code), (void *)(siginfo + SI_CODE));
	return code <= 0;
}

static __always_inline void append_traced(struct scratch *s, const struct task_struct *task)
{
	__s64 request = syscall_arg(&s->event, 0);

	if (request == PTRACE_ATTACH || request == PTRACE_SEIZE)
		append_target(s, task, syscall_arg(&s->event, 1), -EIO);
}

/* Appends the id of the program that the syscall has loaded. */
static __always_inline void append_loaded_program(struct scratch *s, const struct task_struct *task)
{
	__u32 id = 0;

	if (s->event.success && (__u32)syscall_arg(&s->event, 0) == BPF_PROG_LOAD)
		id = program_id(task, s->event.exit);
	if (!id)
		return;
	append_aux(s, WIRE_AUX_BPF)->word[0] = id;
	s->event.flags |= WIRE_EVENT_LOADED;
}

/* Auxiliary records follow the objects directly, where the tail is aligned. */
__noinline int append_aux_records(struct scratch *s, const struct wire_syscall *syscall,
				  const struct syscall_state *state)
{
	struct task_struct *task = current();
	struct pt_regs *regs = task_regs(task);
	__u32 args[OLD_MMAP_WORDS];
	struct wire_event *event;

	if (!s || !syscall)
		return 0;
	event = &s->event;
	switch (syscall->aux_source) {
	case WIRE_AUX_SOURCE_PIPE:
		append_pair(s, syscall_arg(event, 0));
		break;
	case WIRE_AUX_SOURCE_SOCKETPAIR:
		append_pair(s, syscall_arg(event, 3));
		break;
	case WIRE_AUX_SOURCE_SOCKETCALL:
		append_socketcall(s);
		break;
	case WIRE_AUX_SOURCE_MMAP:
		if (event->abi == WIRE_B64)
			append_mmap(s, event->args[3], REGS_ARG5(regs), REGS_ARG6(regs));
		else
			append_mmap(s, REGS_COMPAT_ARG4(regs), REGS_COMPAT_ARG5(regs),
				    0); /* mmap2: in pages */
		break;
	case WIRE_AUX_SOURCE_OLD_MMAP:
		if (!bpf_probe_read_user(args, sizeof(args), (void *)syscall_arg(event, 0)))
			append_mmap(s, args[3], args[4], args[5]);
		break;
	case WIRE_AUX_SOURCE_OPENAT2:
		append_open_how(s, state);
		break;
	case WIRE_AUX_SOURCE_CAPSET:
		append_capset(s, task);
		break;
	case WIRE_AUX_SOURCE_TARGET_FIRST:
		append_target(s, task, syscall_arg(event, 0), -ESRCH);
		break;
	case WIRE_AUX_SOURCE_TARGET_SECOND:
		append_target(s, task, syscall_arg(event, 1), -ESRCH);
		break;
	case WIRE_AUX_SOURCE_TARGET_FIRST_EARLY:
		if (is_from_user(syscall_arg(event, 2)))
			append_target(s, task, syscall_arg(event, 0), -EPERM);
		break;
	case WIRE_AUX_SOURCE_TARGET_SECOND_EARLY:
		if (is_from_user(syscall_arg(event, 3)))
			append_target(s, task, syscall_arg(event, 1), -EPERM);
		break;
	case WIRE_AUX_SOURCE_TRACED:
		append_traced(s, task);
		break;
	case WIRE_AUX_SOURCE_LOADED_PROGRAM:
		append_loaded_program(s, task);
		break;
	}
	for (__u32 i = 0; state && i < WIRE_AUX_RECORDS; i++) {
		struct wire_aux *to = tail_at(s, s->used);

		if (i >= state->aux_count)
			break;
		*to = state->aux[i];
		s->used += sizeof(*to);
		event->aux_count++;
	}
	return 0;
}

#endif /* TOLLGATE_LIB_APPEND_AUX_BPF_H */
