/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What `-e 2` keeps from root's own tools: what is pinned, for with its name a program that audits goes; the
 * maps that programs go by; the log; and the daemon's program. Whoever would change one of them gets EPERM,
 * unless it is the daemon: a process of the program that has locked them, and the one that has said so last.
 *
 * Attached only where something is locked. The kernel asks the next of these only when the ones before it,
 * and those of deny.bpf.h, have answered 0.
 */
#ifndef TOLLGATE_GUARD_GUARDED_BPF_H
#define TOLLGATE_GUARD_GUARDED_BPF_H

#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"

#define GUARD_DIRS  8
#define GUARD_WORDS 8

/* Names in a directory: those that begin so. */
struct guard_dir {
	__u64 ino; /* of the directory; 0 where there is none */
	__u32 dev;
	__u32 fd; /* 1 + the daemon's descriptor of it, until guard_init() has looked at it */
	__u64 name[GUARD_WORDS];
	__u64 mask[GUARD_WORDS]; /* what of a name is compared: nothing, where all are guarded */
};

volatile struct guard_dir tlg_guard_dirs[GUARD_DIRS];

/* The program that may. The number of a file that is gone can be given again, with another generation. */
volatile __u64 tlg_guard_exe_ino;
volatile __u32 tlg_guard_exe_dev;
volatile __u32 tlg_guard_exe_generation;
/* Its process that may: other commands of it, and copies that run beside it, may not. */
volatile __u32 tlg_guard_tgid;
volatile __u64 tlg_guard_start; /* a number can be given again, later */
/* The file system that things are pinned on, or 0. */
volatile __u32 tlg_guard_pins_dev;

/* Numbers of the maps that nobody else may write to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} tlg_guard_maps SEC(".maps");

/* The namespaces that the machine has started with. */
extern const void init_nsproxy __ksym __weak;

static __always_inline __u64 exe_inode(__u64 task)
{
	__u64 mm = LOAD(task_struct, task, mm);
	__u64 file = mm ? LOAD(mm_struct, mm, exe_file) : 0;

	return file ? LOAD(file, file, f_inode) : 0;
}

static __always_inline __u32 inode_dev(__u64 inode)
{
	__u64 sb = LOAD(inode, inode, i_sb);

	return LOAD(super_block, sb, s_dev);
}

/* Whether it is the file of the program that may. */
static __always_inline int is_guard_exe(__u64 inode)
{
	return inode && tlg_guard_exe_ino && LOAD(inode, inode, i_ino) == tlg_guard_exe_ino &&
	       (__u32)LOAD(inode, inode, i_generation) == tlg_guard_exe_generation &&
	       inode_dev(inode) == tlg_guard_exe_dev;
}

/*
 * Whether a task runs the program that may, with nobody at it who could have it do something else: who traces a
 * program when it is started goes on.
 */
static __always_inline int runs_guard_exe(__u64 task)
{
	__u64 leader = LOAD(task_struct, task, group_leader);

	return is_guard_exe(exe_inode(task)) && !LOAD(task_struct, leader, ptrace);
}

static __always_inline int is_guard_daemon(__u64 task)
{
	__u64 leader = LOAD(task_struct, task, group_leader);

	return (__u32)LOAD(task_struct, task, tgid) == tlg_guard_tgid &&
	       LOAD(task_struct, leader, start_boottime) == tlg_guard_start &&
	       is_guard_exe(exe_inode(task));
}

static __always_inline void set_guard_daemon(__u64 task)
{
	__u64 leader = LOAD(task_struct, task, group_leader);

	tlg_guard_start = LOAD(task_struct, leader, start_boottime);
	tlg_guard_tgid = LOAD(task_struct, task, tgid);
}

/* Whether something is locked, and a task is another than the daemon. */
static __always_inline int is_untrusted(__u64 task)
{
	return tlg_guard_exe_ino && !is_guard_daemon(task);
}

static __always_inline int guard_verdict(int guard_dir)
{
	return guard_dir && !is_guard_daemon((__u64)current()) ? -EPERM : 0;
}

/*
 * Whether the directory `inode` is a guarded one, and a name in it, that of `dentry`, as well. Without a
 * dentry: the directory itself.
 */
static __noinline int is_guarded(__u64 inode, __u64 dentry)
{
	__u64 name[GUARD_WORDS] = {};
	__u64 ino = LOAD(inode, inode, i_ino);
	__u32 dev = inode_dev(inode);
	__u32 known = 0;

	if (!ino)
		return 0;
	for (__u32 i = 0; i < GUARD_DIRS; i++)
		known |= tlg_guard_dirs[i].ino == ino && tlg_guard_dirs[i].dev == dev;
	if (!known || !dentry)
		return known;
	bpf_probe_read_kernel_str(name, sizeof(name),
				  (void *)LOAD(qstr, AT(dentry, dentry, d_name), name));
	for (__u32 i = 0; i < GUARD_DIRS; i++) {
		volatile struct guard_dir *dir = &tlg_guard_dirs[i];
		__u64 differ = 0;

		if (dir->ino != ino || dir->dev != dev)
			continue;
		for (__u32 j = 0; j < GUARD_WORDS; j++)
			differ |= (name[j] ^ dir->name[j]) & dir->mask[j];
		if (!differ)
			return 1;
	}
	return 0;
}

/* Whether what a dentry is about is guarded by its name. */
static __always_inline int is_guarded_entry(__u64 dentry)
{
	__u64 parent = LOAD(dentry, dentry, d_parent);

	return is_guarded(LOAD(dentry, parent, d_inode), dentry);
}

/* Whether it is a guarded directory. */
static __always_inline int is_guarded_dir(__u64 dentry)
{
	__u64 inode = LOAD(dentry, dentry, d_inode);

	return inode && is_guarded(inode, 0);
}

/* Whether what a dentry is about is not to be changed: guarded by its name, a guarded directory, the program. */
static __always_inline int is_guarded_object(__u64 dentry)
{
	return is_guarded_entry(dentry) || is_guarded_dir(dentry) ||
	       is_guard_exe(LOAD(dentry, dentry, d_inode));
}

#endif /* TOLLGATE_GUARD_GUARDED_BPF_H */
