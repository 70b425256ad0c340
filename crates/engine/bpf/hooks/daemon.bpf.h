/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that the daemon runs itself: its heartbeat, and its registration. */
#ifndef TOLLGATE_HOOKS_DAEMON_BPF_H
#define TOLLGATE_HOOKS_DAEMON_BPF_H

#include "guard/guarded.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/label.bpf.h"
#include "lib/load.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/task.bpf.h"

/* How often the daemon's own call has run `heartbeat`. */
__u64 tlg_heartbeats;

/*
 * fentry on sched_rr_get_interval(2), v5.5. Runs in the calling task. The daemon makes this call and
 * looks whether the program has run: kernel.ftrace_enabled=0 stops every program on a function, and
 * nothing else tells. This call because every kernel has it, hardly a program makes it, and the kernel
 * refuses it for thread -1 before it takes a lock. Others who make it pay a trampoline and a comparison.
 */
SEC("fentry/__x64_sys_sched_rr_get_interval")
int heartbeat(__u64 *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == tlg_daemon_tgid)
		tlg_heartbeats++;
	return 0;
}

/* v5.12; its address is known where the kernel lists its data symbols. */
extern const void preempt_dynamic_mode __ksym __weak;

/* How the kernel preempts itself: 0 none, 1 voluntary, 2 full, 3 lazy; -1 when it does not say. */
__s32 tlg_preempt;

/* Ticks of the kernel when daemon_register ran last. */
__u64 tlg_jiffies;

/*
 * Run by the daemon itself through BPF_PROG_TEST_RUN: which task not to audit, the tick count, and
 * where labels are.
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
	tlg_preempt = -1;
	if (&preempt_dynamic_mode)
		bpf_probe_read_kernel(&tlg_preempt, sizeof(tlg_preempt), &preempt_dynamic_mode);
	return 0;
}

#endif /* TOLLGATE_HOOKS_DAEMON_BPF_H */
