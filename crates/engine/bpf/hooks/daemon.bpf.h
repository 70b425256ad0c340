/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that the daemon triggers: heartbeat and registration. */
#ifndef TOLLGATE_HOOKS_DAEMON_BPF_H
#define TOLLGATE_HOOKS_DAEMON_BPF_H

#include "guard/guarded.bpf.h"
#include "lib/arch.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/label.bpf.h"
#include "lib/load.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/preemption.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch_identity.bpf.h"

/* Runs of `heartbeat` caused by the daemon. */
__u64 tlg_heartbeats;

/*
 * fentry on sched_rr_get_interval(2), v5.5. Runs in the calling task. The daemon makes this
 * syscall and checks that the program ran: kernel.ftrace_enabled=0 disables every program on a
 * function and nothing else reports it. Every kernel has this syscall, few programs use it, and
 * for thread -1 the kernel fails before it takes a lock. Other callers pay a trampoline and a
 * comparison.
 */
SEC("fentry/" SYSCALL_FN "sched_rr_get_interval")
int heartbeat(__u64 *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == tlg_daemon_tgid)
		tlg_heartbeats++;
	return 0;
}

/* kprobe on the same function, for the engine lsm: kernel.ftrace_enabled=0 disables it too. */
SEC("kprobe")
int heartbeat_kprobe(struct pt_regs *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == tlg_daemon_tgid)
		tlg_heartbeats++;
	return 0;
}

/* preemption_mode() */
__s32 tlg_preempt;

/* jiffies when daemon_register last ran. */
__u64 tlg_jiffies;

/*
 * Run by the daemon through BPF_PROG_TEST_RUN: records the task that is not audited, the jiffies,
 * the preemption mode and the offset of AppArmor labels.
 */
SEC("raw_tp/self")
int daemon_register(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();

	if (is_untrusted((__u64)task))
		return 0;
	tlg_daemon_start = FOLLOW(task_struct, task, group_leader)->start_boottime;
	tlg_daemon_tgid = task->tgid;
	tlg_jiffies = bpf_jiffies64();
	find_label_offset();
	tlg_preempt = preemption_mode();
	return 0;
}

/* Result of inode_identity. */
struct inode_identity {
	__u64 ino; /* 0 if the descriptor has no inode */
	__u64 address;
	__u32 dev; /* watch_dev() */
	__u32 sb_dev; /* device number of the super block */
	__u32 generation;
	__u32 _pad;
	__u64 user_ns; /* address of the owner of the mount namespace */
	__u64 initial_ns; /* address of the initial mount namespace, or 0 */
};

volatile struct inode_identity tlg_inode_identity;

/*
 * Run by the daemon through BPF_PROG_TEST_RUN with a descriptor: reads its inode as watch matching
 * identifies it. stat(2) returns other numbers on btrfs and overlayfs.
 */
SEC("raw_tp/self")
int inode_identity(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u64 file, dentry, inode, mount, nsproxy = 0;

	if (is_untrusted((__u64)task))
		return 0;
	file = task_file(task, ctx->args[0]);
	dentry = file ? LOAD(file, file, f_path.dentry) : 0;
	inode = dentry ? LOAD(dentry, dentry, d_inode) : 0;
	tlg_inode_identity.address = inode;
	tlg_inode_identity.ino = inode ? LOAD(inode, inode, i_ino) : 0;
	tlg_inode_identity.dev = inode ? watch_dev(inode) : 0;
	tlg_inode_identity.sb_dev = inode ? inode_dev(inode) : 0;
	tlg_inode_identity.generation = inode ? LOAD(inode, inode, i_generation) : 0;
	mount = LOAD(file, file, f_path.mnt) - bpf_core_field_offset(struct mount, mnt);
	tlg_inode_identity.user_ns = LOAD(mnt_namespace, LOAD(mount, mount, mnt_ns), user_ns);
	if (tlg_symbols.init_task)
		nsproxy = LOAD(task_struct, tlg_symbols.init_task, nsproxy);
	tlg_inode_identity.initial_ns = nsproxy ? LOAD(nsproxy, nsproxy, mnt_ns) : 0;
	return 0;
}

#endif /* TOLLGATE_HOOKS_DAEMON_BPF_H */
