/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Denies syscalls that could not be recorded, for rules with `[on_loss] deny`:
 * crates/engine/src/hooks/denial.rs.
 *
 * The kernel calls its security hooks after every other check and before it acts. These programs
 * run the rules there as if the syscall succeeded. If the deciding rule denies, and the ring has
 * no room outside the reserve, the result is EPERM. The reserve is an eighth of the ring and takes
 * the events of permitted syscalls that have not ended yet.
 *
 * A syscall that has no slot for its state cannot be recorded either. On the engine fentry an open
 * takes its slot here, because its own hooks run when the file is open.
 *
 * On the engine lsm these are LSM programs, and operations of io_uring are not seen.
 */
#ifndef TOLLGATE_HOOKS_DENY_BPF_H
#define TOLLGATE_HOOKS_DENY_BPF_H

#include "wire.h"
#include "hooks/names.bpf.h"
#include "hooks/open.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/event.bpf.h"
#include "lib/filter.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/object.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_work.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_prefilter.bpf.h"

/*
 * Verdict on a syscall: `key` is its index in the syscall table, `s->hit` has its watches,
 * `s->event.open_perm` the access of an open. Not inlined: the verifier checks it once.
 */
__noinline int deny_verdict(struct scratch *s, const struct wire_syscall *syscall, __u32 key)
{
	struct task_struct *task = current();
	struct wire_event *event;
	__u32 facts, verdict;

	if (!s || !syscall)
		return 0;
	event = &s->event;
	facts = syscall->facts;
	s->exe_hits = 0;
	event->abi = task_abi(task);
	event->exit = 0;
	event->success = 1;
	event->pid = task->tgid;
	event->objects = 0;
	if (key < WIRE_URING_FIRST)
		fill_args(event->args, task_regs(task), event->abi);
	else
		__builtin_memset(event->args, 0, sizeof(event->args));
	fill_task_facts(event, task, facts);
	if (facts & WIRE_FACT_EXE)
		watch_exe(s);
	verdict = run_rules(s, s->hits ? syscall->tests : syscall->tests_unwatched);
	return verdict_records(verdict) && verdict & WIRE_DENY ? -EPERM : 0;
}

/* Index of the syscall that the current task is in if a rule can deny it, else WIRE_NO_SYSCALL. */
static __always_inline __u32 deniable_syscall(struct task_struct *task,
					      struct wire_syscall **syscall)
{
	__u32 key = hooked_syscall(task, syscall);

	return key != WIRE_NO_SYSCALL && (*syscall)->facts & WIRE_FACT_DENY ? key : WIRE_NO_SYSCALL;
}

/* Lets the event of a syscall or operation use the reserve of the ring. */
static __always_inline void let_through(struct task_struct *task, __u32 key)
{
	struct task_state *of = task_state_create(task);

	if (of)
		of->let_through[slot_kind(key)] = 1;
}

/*
 * Denies a syscall that has no room in the ring, or lets it through: at its end rules can match what is not
 * known yet, as the credentials that an exec gets.
 */
static __always_inline int deny_or_let_through(struct scratch *s,
					       const struct wire_syscall *syscall,
					       struct task_struct *task, __u32 key)
{
	int result = deny_verdict(s, syscall, key);

	if (!result)
		let_through(task, key);
	return result;
}

/* Denies by the objects that earlier hooks have recorded. */
static __always_inline int deny_recorded(struct task_struct *task)
{
	struct wire_syscall *syscall;
	struct scratch *s;
	struct syscall_state *state;
	__u32 key = deniable_syscall(task, &syscall);

	if (key == WIRE_NO_SYSCALL)
		return 0;
	if (state_is_missing(task, key))
		return -EPERM;
	state = state_find(task, key, &syscall);
	/* On the engine lsm the kernel has skipped the kprobe at its entry: it cannot be recorded. */
	if (tlg_kprobes && !state && needs_state(syscall))
		return -EPERM;
	if ((state || !tlg_kprobes) && can_record()) {
		let_through(task, key);
		return 0;
	}
	s = scratch();
	if (!s)
		return 0;
	select_watches(s, syscall);
	s->hits = 0;
	if (state)
		state_load_hits(s, state);
	return deny_or_let_through(s, syscall, task, key);
}

/* LSM programs can be preempted, programs on functions cannot where they are used. */
static __always_inline void disable_preemption(void)
{
	if (tlg_kprobes)
		bpf_preempt_disable();
}

static __always_inline void enable_preemption(void)
{
	if (tlg_kprobes)
		bpf_preempt_enable();
}

/*
 * Whether the current task is in a syscall that can be denied. One that got no slot is denied: its
 * registers need not tell that it is one.
 */
static __always_inline int is_in_deniable(struct task_struct *task)
{
	const struct task_state *of;

	if (!tlg_kprobes || state_of_call(task) || is_in_operation(task) ||
	    has_call_registers(task))
		return 1;
	of = task_state(task);
	return of && of->missing[SLOT_SYSCALL];
}

/* For hooks whose objects earlier hooks have recorded. `before` is the result of other programs. */
static __always_inline int deny_by_state(int before)
{
	struct task_struct *task = current();
	int result;

	if (before)
		return before;
	if (!is_in_deniable(task))
		return 0;
	disable_preemption();
	result = deny_recorded(task);
	enable_preemption();
	return result ? -EPERM : 0; /* LSM programs return no unknown number */
}

/* Takes a slot for an open if it has none. */
static __always_inline int reserve_slot(struct task_struct *task, __u32 key,
					struct wire_syscall *syscall)
{
	struct syscall_state *state = state_find(task, key, &syscall);

	if (state)
		return 1;
	if (tlg_kprobes)
		return !state_is_missing(task, key);
	state = state_claim(task, key, syscall);
	if (state)
		state->reserved = 1;
	return !!state;
}

/*
 * For opens: of `dentry` with `flags`, or, if `last` is set, creation of that name below `dentry`
 * with the flags of the syscall. An io_uring operation has no flags there: it creates an empty
 * file before it is denied.
 */
static __always_inline int deny_opened(struct task_struct *task, const struct dentry *dentry,
				       const struct vfsmount *mnt, __u64 last, __u32 flags)
{
	struct wire_syscall *syscall;
	struct scratch *s;
	__u32 key = deniable_syscall(task, &syscall);

	if (key == WIRE_NO_SYSCALL || syscall->facts & WIRE_FACT_EXEC ||
	    (last && key >= WIRE_URING_FIRST))
		return 0;
	s = scratch();
	if (!s)
		return 0;
	/* One that no rule matches would keep its slot: the hooks at its end leave it out. */
	if (last ? !args_can_match(s, task, syscall, key) : !open_can_match(syscall, flags))
		return 0;
	if (!reserve_slot(task, key, syscall))
		return -EPERM;
	if (can_record()) {
		let_through(task, key);
		return 0;
	}
	select_watches(s, syscall);
	s->hits = 0;
	if (uses_watches(syscall))
		watch_prefilter(s, dentry, (__u64)mnt, (__u64)mnt->mnt_root, last, last ? 2 : 1);
	if (last) {
		fill_args(s->event.args, task_regs(task), task_abi(task));
		s->event.abi = task_abi(task);
		s->event.flags = 0;
		/* What openat2 has in user memory may have changed. */
		s->event.open_perm = syscall->facts & WIRE_FACT_OPEN_HOW
					     ? ACC_MODE(O_RDWR)
					     : open_perm(&s->event, syscall, NULL);
	} else {
		s->event.open_perm = ACC_MODE(flags);
	}
	return deny_or_let_through(s, syscall, task, key);
}

static __always_inline int deny_open_at(const struct dentry *dentry, const struct vfsmount *mnt,
					__u64 last, __u32 flags)
{
	struct task_struct *task = current();
	int result;

	if (!is_in_deniable(task))
		return 0;
	disable_preemption();
	result = deny_opened(task, dentry, mnt, last, flags);
	enable_preemption();
	return result ? -EPERM : 0;
}

/*
 * fmod_ret on security_file_open(file), v4.19: a file is about to be opened with the requested
 * flags, before truncation.
 */
SEC("fmod_ret/security_file_open")
int deny_open(__u64 *ctx)
{
	const struct file *file = (struct file *)ctx[0];

	if ((int)ctx[1])
		return ctx[1];
	return deny_open_at(FOLLOW(file, file, f_path.dentry), FOLLOW(file, file, f_path.mnt), 0,
			    file->f_flags);
}

/*
 * fmod_ret on security_path_mknod(dir, dentry, mode, dev), v2.6.29: an open is about to create a
 * file.
 */
SEC("fmod_ret/security_path_mknod")
int deny_path_mknod(__u64 *ctx)
{
	const struct path *dir = (struct path *)ctx[0];
	const struct dentry *dentry = (struct dentry *)ctx[1];

	if ((int)ctx[4])
		return ctx[4];
	return deny_open_at(FOLLOW(path, dir, dentry), FOLLOW(path, dir, mnt),
			    (__u64)&dentry->d_name, 0);
}

/* fmod_ret on security_bprm_check(bprm), v5.5. */
SEC("fmod_ret/security_bprm_check")
int deny_exec(__u64 *ctx)
{
	return deny_by_state(ctx[1]);
}

/* fmod_ret on security_inode_unlink(dir, dentry), v5.5. */
SEC("fmod_ret/security_inode_unlink")
int deny_unlink(__u64 *ctx)
{
	return deny_by_state(ctx[2]);
}

/* fmod_ret on security_inode_rmdir(dir, dentry), v5.5. */
SEC("fmod_ret/security_inode_rmdir")
int deny_rmdir(__u64 *ctx)
{
	return deny_by_state(ctx[2]);
}

/* fmod_ret on security_inode_mkdir(dir, dentry, mode), v5.5. */
SEC("fmod_ret/security_inode_mkdir")
int deny_mkdir(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_inode_mknod(dir, dentry, mode, dev), v5.5. */
SEC("fmod_ret/security_inode_mknod")
int deny_mknod(__u64 *ctx)
{
	return deny_by_state(ctx[4]);
}

/* fmod_ret on security_inode_create(dir, dentry, mode), v5.5. */
SEC("fmod_ret/security_inode_create")
int deny_create(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_inode_symlink(dir, dentry, old_name), v5.5. */
SEC("fmod_ret/security_inode_symlink")
int deny_symlink(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/*
 * fmod_ret on security_inode_link(old_dentry, dir, new_dentry), v5.5. Other hooks add the object of the old
 * name only when the link is made.
 */
SEC("fmod_ret/security_inode_link")
int deny_link(__u64 *ctx)
{
	const struct dentry *linked = POINTER(ctx[0], dentry);
	struct wire_syscall *syscall;
	struct syscall_state *state;

	if (!(int)ctx[3] && is_in_deniable(current())) {
		disable_preemption();
		state = state_current(&syscall);
		if (state && state->links != LINK_FOUND)
			add_linked(state, syscall, linked);
		enable_preemption();
	}
	return deny_by_state(ctx[3]);
}

/*
 * fmod_ret on security_inode_rename(old_dir, old_dentry, new_dir, new_dentry, flags), v5.5. The LSM
 * hook has no flags.
 */
SEC("fmod_ret/security_inode_rename")
int deny_rename(__u64 *ctx)
{
	return deny_by_state(tlg_kprobes ? load_word_of(ctx, 4) : load_word_of(ctx, 5));
}

/* fmod_ret on security_inode_setattr(idmap, dentry, attr), v6.0 form. */
SEC("fmod_ret/security_inode_setattr")
int deny_setattr(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_inode_setxattr(idmap, dentry, name, value, size, flags), v5.12 form. */
SEC("fmod_ret/security_inode_setxattr")
int deny_setxattr(__u64 *ctx)
{
	return deny_by_state(ctx[6]);
}

/* fmod_ret on security_inode_removexattr(idmap, dentry, name), v5.12 form. */
SEC("fmod_ret/security_inode_removexattr")
int deny_rmxattr(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_inode_set_acl(idmap, dentry, acl_name, kacl), v6.2. */
SEC("fmod_ret/security_inode_set_acl")
int deny_set_acl(__u64 *ctx)
{
	return deny_by_state(ctx[4]);
}

/* fmod_ret on security_inode_remove_acl(idmap, dentry, acl_name), v6.2. */
SEC("fmod_ret/security_inode_remove_acl")
int deny_remove_acl(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_socket_bind(sock, address, addrlen), v5.5. */
SEC("fmod_ret/security_socket_bind")
int deny_bind(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_socket_connect(sock, address, addrlen), v5.5. */
SEC("fmod_ret/security_socket_connect")
int deny_connect(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_sb_mount(dev_name, path, type, flags, data), v5.5. */
SEC("fmod_ret/security_sb_mount")
int deny_mount(__u64 *ctx)
{
	return deny_by_state(ctx[5]);
}

/* fmod_ret on security_sb_umount(mnt, flags), v5.5. */
SEC("fmod_ret/security_sb_umount")
int deny_umount(__u64 *ctx)
{
	return deny_by_state(ctx[2]);
}

/* fmod_ret on security_task_kill(p, info, sig, cred), v5.5. */
SEC("fmod_ret/security_task_kill")
int deny_kill(__u64 *ctx)
{
	return deny_by_state(ctx[4]);
}

/* fmod_ret on security_ptrace_access_check(child, mode), v5.5. */
SEC("fmod_ret/security_ptrace_access_check")
int deny_ptrace(__u64 *ctx)
{
	return deny_by_state(ctx[2]);
}

/* fmod_ret on security_kernel_read_file(file, id, contents), v5.10 form. */
SEC("fmod_ret/security_kernel_read_file")
int deny_module(__u64 *ctx)
{
	return deny_by_state(ctx[3]);
}

/* fmod_ret on security_kernel_load_data(id, contents), v5.10 form. */
SEC("fmod_ret/security_kernel_load_data")
int deny_load_data(__u64 *ctx)
{
	return deny_by_state(ctx[2]);
}

#endif /* TOLLGATE_HOOKS_DENY_BPF_H */
