/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Task list: the verdict on a new task, stored with it for its life, as in audit_filter_task() in
 * kernel/auditsc.c. Exit rules read it as a word of the event.
 */
#ifndef TOLLGATE_HOOKS_FORK_BPF_H
#define TOLLGATE_HOOKS_FORK_BPF_H

#include "wire.h"
#include "lib/filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_mark.bpf.h"
#include "lib/task_work.bpf.h"

/* 1 + index of the first test of a new task, for each half of the plan; 0 for none. */
volatile __u32 tlg_fork_tests[2];

/*
 * Judges a new task that has not run yet. `pid` is that of the parent, because the kernel's audit
 * asks before the task has a number.
 */
static __always_inline void judge_task(const struct task_struct *parent, struct task_struct *child)
{
	__u32 first = tlg_fork_tests[tlg_epoch & 1];
	struct scratch *s;
	__u32 verdict;
	__u32 *mark;

	if (!first)
		return;
	s = scratch();
	if (!s) {
		count_lost(WIRE_LOST_NO_SLOT);
		return;
	}
	s->event.pid = parent->tgid;
	s->event.objects = 0;
	s->hits = s->exe_hits = 0;
	fill_task(&s->event, child);
	fill_creds(&s->event, child);
	verdict = run_rules(s, first - 1);
	if (verdict == WIRE_NO_VERDICT)
		return;
	mark = bpf_task_storage_get(&tlg_task_marks, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark)
		*mark = verdict;
	else
		count_truncated(WIRE_TRUNC_TASK_MARK);
}

/*
 * raw tracepoint sched_process_fork(parent, child), v3.4. Runs in the parent. Misses io_uring
 * workers, which do not pass this tracepoint.
 */
SEC("tp_btf/sched_process_fork")
int task_fork(__u64 *ctx)
{
	judge_task((struct task_struct *)ctx[0], (struct task_struct *)ctx[1]);
	return 0;
}

/*
 * LSM task_alloc(task, clone_flags), v5.7: the same on the engine lsm, where raw tracepoints can be
 * skipped. Runs in the parent just after audit_alloc(), also for io_uring workers.
 */
SEC("lsm/task_alloc")
int task_alloc(__u64 *ctx)
{
	bpf_preempt_disable();
	judge_task(current(), (struct task_struct *)ctx[0]);
	bpf_preempt_enable();
	return 0;
}

#endif /* TOLLGATE_HOOKS_FORK_BPF_H */
