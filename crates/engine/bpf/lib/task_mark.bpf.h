/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict of the task list, stored with each task: audit_state in kernel/auditsc.c. */
#ifndef TOLLGATE_LIB_TASK_MARK_BPF_H
#define TOLLGATE_LIB_TASK_MARK_BPF_H

#include "lib/kernel.bpf.h"

/* Task marks. A task without one is judged syscall by syscall. Freed with the task. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} tlg_task_marks SEC(".maps");

static __always_inline __u32 task_mark(struct task_struct *task)
{
	__u32 *mark = bpf_task_storage_get(&tlg_task_marks, task, NULL, 0);

	return mark ? *mark : 0;
}

#endif /* TOLLGATE_LIB_TASK_MARK_BPF_H */
