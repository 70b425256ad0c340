/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Guard: after `-e 2`, protects pinned objects, the maps, the log and the daemon's executable
 * against root. Changing one of them fails with EPERM for every process but the daemon: a process
 * of the executable that locked them, and the last one that claimed this.
 *
 * Attached only while something is locked. The kernel runs a guard only if the security hooks
 * before it, including those of hooks/deny.bpf.h, return 0.
 */
#ifndef TOLLGATE_GUARD_GUARDED_BPF_H
#define TOLLGATE_GUARD_GUARDED_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"

#define GUARD_DIRS  8
#define GUARD_WORDS 8
#define GUARD_FILES 64

/* A guarded directory and a prefix of names in it. */
struct guard_dir {
	__u64 ino; /* inode of the directory; 0 if unused */
	__u32 dev;
	__u32 fd; /* 1 + the daemon's descriptor of the directory, until guard_init() has read it */
	__u64 name[GUARD_WORDS];
	__u64 mask[GUARD_WORDS]; /* bytes of a name that are compared; 0 guards all names */
};

volatile struct guard_dir tlg_guard_dirs[GUARD_DIRS];

/*
 * The daemon's executable. The inode number of a deleted file can be reused, with another
 * generation.
 */
volatile __u64 tlg_guard_exe_ino;
volatile __u32 tlg_guard_exe_dev;
volatile __u32 tlg_guard_exe_generation;
/* The daemon's process. Other processes of the executable are refused. */
volatile __u32 tlg_guard_tgid;
volatile __u64 tlg_guard_start; /* process numbers are reused */
/* Device of the file system with the pins, or 0. */
volatile __u32 tlg_guard_pins_dev;

/*
 * Files that have a guarded name and existed before they were guarded. They can have other names,
 * hard links, that are not guarded.
 */
struct guard_file {
	__u32 fd; /* 1 + the daemon's descriptor of the file, until guard_init() has read it */
	__u32 writers; /* set by guard_init(): how often it is open for writing */
};

volatile struct guard_file tlg_guard_files[GUARD_FILES];

/* Their inodes, and those of files that the daemon made since. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct wire_identity);
	__type(value, __u32);
} tlg_guard_inodes SEC(".maps");

/* Ids of the maps that only the daemon can write. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} tlg_guard_maps SEC(".maps");

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

/* Whether an inode is the daemon's executable. */
static __always_inline int is_guard_exe(__u64 inode)
{
	return inode && tlg_guard_exe_ino && LOAD(inode, inode, i_ino) == tlg_guard_exe_ino &&
	       (__u32)LOAD(inode, inode, i_generation) == tlg_guard_exe_generation &&
	       inode_dev(inode) == tlg_guard_exe_dev;
}

static __always_inline struct wire_identity guard_identity(__u64 inode)
{
	struct wire_identity identity = {
		.ino = LOAD(inode, inode, i_ino),
		.dev = inode_dev(inode),
		.generation = LOAD(inode, inode, i_generation),
	};

	return identity;
}

/* Whether a file is guarded whatever its name is. */
static __noinline int is_guarded_inode(__u64 inode)
{
	struct wire_identity identity = guard_identity(inode);

	return bpf_map_lookup_elem(&tlg_guard_inodes, &identity) != NULL;
}

static __noinline int guard_inode(__u64 inode)
{
	struct wire_identity identity = guard_identity(inode);
	__u32 present = 1;

	return bpf_map_update_elem(&tlg_guard_inodes, &identity, &present, BPF_ANY);
}

/* The file is gone, or is another file soon. */
static __noinline int unguard_inode(__u64 inode)
{
	struct wire_identity identity = guard_identity(inode);

	return bpf_map_delete_elem(&tlg_guard_inodes, &identity);
}

/*
 * Whether a task runs the daemon's executable untraced. A tracer from before the exec stays
 * attached.
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

/* Whether something is locked and a task is not the daemon. */
static __always_inline int is_untrusted(__u64 task)
{
	return tlg_guard_exe_ino && !is_guard_daemon(task);
}

static __always_inline int guard_verdict(int guard_dir)
{
	return guard_dir && !is_guard_daemon((__u64)current()) ? -EPERM : 0;
}

/* Whether `inode` is a guarded directory and, with `dentry`, whether its name in it is guarded. */
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

/* Whether a dentry is guarded by its name. */
static __always_inline int is_guarded_entry(__u64 dentry)
{
	__u64 parent = LOAD(dentry, dentry, d_parent);

	return is_guarded(LOAD(dentry, parent, d_inode), dentry);
}

/* Whether a dentry is a guarded directory. */
static __always_inline int is_guarded_dir(__u64 dentry)
{
	__u64 inode = LOAD(dentry, dentry, d_inode);

	return inode && is_guarded(inode, 0);
}

/*
 * Whether a dentry is guarded by its name, is a guarded directory or file, or is the daemon's
 * executable.
 */
static __always_inline int is_guarded_object(__u64 dentry)
{
	__u64 inode = LOAD(dentry, dentry, d_inode);

	return is_guarded_entry(dentry) || is_guarded_dir(dentry) || is_guard_exe(inode) ||
	       is_guarded_inode(inode);
}

#endif /* TOLLGATE_GUARD_GUARDED_BPF_H */
