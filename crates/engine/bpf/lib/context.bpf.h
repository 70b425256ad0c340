/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Context of a task that records have no field for: name of the parent, and control group, which
 * identifies a container. At the end of an event if the loader sets tlg_context.
 */
#ifndef TOLLGATE_LIB_CONTEXT_BPF_H
#define TOLLGATE_LIB_CONTEXT_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"

#define CGROUP_LEVELS 32
#define CGROUP_NAME   256 /* NAME_MAX, and a NUL */

struct cgroup_walk {
	struct scratch *s;
	__u64 node;
};

/* One step up, appending the name of the node. The root has none. */
static long cgroup_step(__u32 index, void *data)
{
	struct cgroup_walk *walk = data;
	__u64 node = walk->node;
	long len;

	walk->node = bpf_core_field_exists(struct kernfs_node, parent)
			     ? LOAD(kernfs_node, node, parent)
			     : LOAD(kernfs_node___v6_15, node, __parent);
	if (!walk->node)
		return 1;
	len = bpf_probe_read_kernel_str(tail_at(walk->s, walk->s->used), CGROUP_NAME,
					(void *)LOAD(kernfs_node, node, name));
	if (len <= 0)
		return 1;
	walk->s->used += len;
	return 0;
}

__noinline int append_context(struct scratch *s)
{
	struct task_struct *task = current();
	struct task_struct *parent = FOLLOW(task_struct, task, real_parent);
	struct cgroup_walk walk = { .s = s };
	__u64 set, group;

	if (!s)
		return 0;
	if (bpf_probe_read_kernel(tail_at(s, s->used), WIRE_COMM_LEN, parent->comm))
		return 0;
	s->used += WIRE_COMM_LEN;
	set = (__u64)FOLLOW(task_struct, task, cgroups);
	group = LOAD(css_set, set, dfl_cgrp);
	walk.node = LOAD(cgroup, group, kn);
	bpf_loop(CGROUP_LEVELS, cgroup_step, &walk, 0);
	return 0;
}

#endif /* TOLLGATE_LIB_CONTEXT_BPF_H */
