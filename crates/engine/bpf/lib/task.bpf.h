/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Identity of the current task, as audit_log_task_info() in kernel/auditsc.c logs it. */
#ifndef TOLLGATE_LIB_TASK_BPF_H
#define TOLLGATE_LIB_TASK_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"

#define PF_EXITING   0x4 /* include/linux/sched.h */
#define PF_IO_WORKER 0x10
#define PF_DUMPCORE  0x200
#define PF_KTHREAD   0x00200000

/* A trusted pointer: members are loaded without the address check that costs more than the load. */
static __always_inline struct task_struct *current(void)
{
	return bpf_get_current_task_btf();
}

/* Registers of the task's syscall. */
static __always_inline struct pt_regs *task_regs(struct task_struct *task)
{
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

static __always_inline void fill_task(struct wire_event *event, const struct task_struct *task)
{
	event->ppid = FOLLOW(task_struct, task, real_parent)->tgid;
	event->auid = task->loginuid.val;
	event->auid_set = event->auid != ~0U;
	event->ses = task->sessionid;
	event->personality = task->personality;
}

static __always_inline void fill_creds(struct wire_event *event, const struct task_struct *task)
{
	const struct cred *cred = FOLLOW(task_struct, task, cred);

	if (IS_PAIR(cred, uid, gid) && IS_PAIR(cred, suid, sgid) && IS_PAIR(cred, euid, egid) &&
	    IS_PAIR(cred, fsuid, fsgid)) {
		__u64 real = LOAD_PAIR(cred, cred, uid);
		__u64 saved = LOAD_PAIR(cred, cred, suid);
		__u64 effective = LOAD_PAIR(cred, cred, euid);
		__u64 fs = LOAD_PAIR(cred, cred, fsuid);

		event->uid = real;
		event->gid = real >> 32;
		event->suid = saved;
		event->sgid = saved >> 32;
		event->euid = effective;
		event->egid = effective >> 32;
		event->fsuid = fs;
		event->fsgid = fs >> 32;
		return;
	}

	event->uid = cred->uid.val;
	event->gid = cred->gid.val;
	event->suid = cred->suid.val;
	event->sgid = cred->sgid.val;
	event->euid = cred->euid.val;
	event->egid = cred->egid.val;
	event->fsuid = cred->fsuid.val;
	event->fsgid = cred->fsgid.val;
}

static __always_inline void fill_names(struct wire_event *event, const struct task_struct *task)
{
	const __u64 *comm = (const __u64 *)task->comm;
	const struct tty_struct *tty = FOLLOW(task_struct, task, signal)->tty;
	__u64 *to = (__u64 *)event->comm;
	__u64 *tty_to = (__u64 *)event->tty;

	to[0] = comm[0];
	to[1] = comm[1];
	tty_to[0] = 0;
	tty_to[1] = 0;
	if (tty) {
		const __u64 *name = (const __u64 *)tty->name;

		tty_to[0] = name[0];
		tty_to[1] = name[1];
	}
}

/* File of a descriptor of the current task, or 0. Another thread may close it. */
static __always_inline __u64 task_file(const struct task_struct *task, __u32 fd)
{
	__u64 files = (__u64)FOLLOW(task_struct, task, files);
	__u64 table = LOAD(files_struct, files, fdt);
	__u64 array = LOAD(fdtable, table, fd);

	if (!table || fd >= (__u32)LOAD(fdtable, table, max_fds))
		return 0;
	return LOAD_WORD(array + 8 * (__u64)fd);
}

struct group_search {
	__u64 gids;
	__u32 wanted;
	__u32 low;
	__u32 high;
	__u32 found;
};

static long group_step(__u32 index, void *data)
{
	struct group_search *search = data;
	__u32 middle = (search->low + search->high) / 2;
	__u32 gid;

	if (search->low >= search->high)
		return 1;
	gid = LOAD_WORD(search->gids + 4 * (__u64)middle);
	if (gid == search->wanted) {
		search->found = 1;
		return 1;
	}
	if (gid < search->wanted)
		search->low = middle + 1;
	else
		search->high = middle;
	return 0;
}

/* Whether `gid` is a supplementary group: groups_search() in kernel/groups.c; the list is sorted. */
static __always_inline __u32 task_in_group(const struct task_struct *task, __u32 gid)
{
	__u64 cred = (__u64)FOLLOW(task_struct, task, cred);
	__u64 info = LOAD(cred, cred, group_info);
	struct group_search search = {
		.gids = AT(group_info, info, gid),
		.wanted = gid,
		.high = LOAD(group_info, info, ngroups),
	};

	bpf_loop(17, group_step, &search, 0); /* 2^16 groups at most: NGROUPS_MAX */
	return search.found;
}

/* Whether other tasks can change the working directory of a task. */
static __always_inline int shares_cwd(const struct task_struct *task)
{
	const struct fs_struct *fs = FOLLOW(task_struct, task, fs);

	return fs->users > 1;
}

#endif /* TOLLGATE_LIB_TASK_BPF_H */
