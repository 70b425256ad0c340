/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Task work: a function of a program that the kernel calls in a task on its way back to user
 * space, where the result of the syscall is final. It is not skipped, whatever the task or others
 * were doing when they were preempted.
 */
#ifndef TOLLGATE_LIB_TASK_WORK_BPF_H
#define TOLLGATE_LIB_TASK_WORK_BPF_H

#include "lib/kernel.bpf.h"

/* The kernel finds it in a map by the name of its type. */
struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);

/*
 * v7.0 form: v6.18 takes a fifth argument, and v6.19 has that form under another name. The suffix
 * is not part of the name: it tells libbpf that another form is no error.
 */
extern int bpf_task_work_schedule_resume___v7_0(struct task_struct *task,
						struct bpf_task_work *work, void *map__map,
						bpf_task_work_callback_t callback) __ksym __weak;

/* v6.10 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

#endif /* TOLLGATE_LIB_TASK_WORK_BPF_H */
