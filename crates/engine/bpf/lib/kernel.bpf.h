/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that the programs read, with only the members that they read. CO-RE relocates
 * each access, so order and omissions do not matter.
 */
#ifndef TOLLGATE_LIB_KERNEL_BPF_H
#define TOLLGATE_LIB_KERNEL_BPF_H

#include "lib/pt_regs.bpf.h"

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define NULL ((void *)0)

/* include/uapi/linux/bpf.h, Linux 6.12: ABI, so the values are fixed. */
#define BPF_MAP_TYPE_HASH	       1
#define BPF_MAP_TYPE_ARRAY	       2
#define BPF_MAP_TYPE_PROG_ARRAY	       3
#define BPF_MAP_TYPE_RINGBUF	       27
#define BPF_MAP_TYPE_TASK_STORAGE      29
#define BPF_ANY			       0
#define BPF_F_NO_PREALLOC	       1
#define BPF_F_MMAPABLE		       1024
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_NO_WAKEUP	       1
#define BPF_RB_FORCE_WAKEUP	       2
#define BPF_RB_AVAIL_DATA	       0
#define BPF_RB_CONS_POS		       2

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

/* Starts with an 8-byte number on every kernel: LOAD_WORD() reads any word through it. */
struct timespec64 {
	__s64 tv_sec;
};

struct timekeeper {
	struct timespec64 wall_to_monotonic;
};

/* v6.13 */
struct tk_data {
	struct timekeeper timekeeper;
};

struct qstr {
	union {
		struct {
			__u32 hash;
			__u32 len;
		};
	};
	const unsigned char *name;
};

struct list_head {
	struct list_head *next;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct list_head s_mounts;
};

typedef struct {
	int counter;
} atomic_t;

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

#define S_IFMT	0170000 /* include/uapi/linux/stat.h */
#define S_IFDIR 0040000

struct inode {
	__u16 i_mode;
	kuid_t i_uid;
	kgid_t i_gid;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_rdev;
	atomic_t i_writecount;
	__u32 i_generation;
	struct hlist_head i_dentry;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	unsigned char d_iname[32];
	struct super_block *d_sb;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* v7.3: the union has no name. */
struct dentry___v7_3 {
	struct hlist_node d_alias;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct list_head mnt_instance;
	struct mnt_namespace *mnt_ns;
	int mnt_group_id;
};

/* v6.18: the mounts of a super block are no list_head. */
struct mount___v6_18 {
	struct mount *mnt_next_for_sb;
};

struct super_block___v6_18 {
	struct mount *s_mounts;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	__u32 f_mode;
	__u32 f_flags;
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

struct bpf_prog_aux {
	__u32 id;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct filename {
	const char *name;
	const char *uptr;
};

struct nameidata {
	struct path path;
	struct qstr last;
	struct filename *name;
	struct nameidata *saved; /* of the look-up that this one is inside */
	int dfd;
};

struct open_flags {
	int open_flag;
	__u16 mode;
};

struct mq_attr {
	__s64 mq_flags;
};

struct sigevent {
	int sigev_signo;
};

struct kern_ipc_perm {
	kuid_t uid;
	kgid_t gid;
	__u16 mode;
};

struct ipc64_perm {
	__u32 uid;
	__u32 gid;
	__u32 mode;
};

/* 64 bits that older kernels have as two words. */
typedef struct {
	__u32 word[2];
} kernel_cap_t;

struct cpu_vfs_cap_data {
	__u32 magic_etc;
	kuid_t rootid;
	kernel_cap_t permitted;
	kernel_cap_t inheritable;
};

struct uid_gid_extent {
	__u32 first;
	__u32 lower_first;
};

struct uid_gid_map {
	__u32 nr_extents;
	struct uid_gid_extent extent[5];
};

struct ns_common {
	unsigned int inum;
};

struct user_namespace {
	struct uid_gid_map uid_map;
	struct user_namespace *parent;
	int level;
	kuid_t owner;
	struct ns_common ns;
};

struct mnt_namespace {
	struct user_namespace *user_ns;
};

struct renamedata {
	struct inode *old_dir;
	struct dentry *old_dentry;
	struct inode *new_dir;
	struct dentry *new_dentry;
	unsigned int flags;
};

/* v6.17 */
struct renamedata___v6_17 {
	struct dentry *old_parent;
	struct dentry *new_parent;
};

struct __kernel_timex_timeval {
	__s64 tv_sec;
	__s64 tv_usec;
};

struct __kernel_timex {
	unsigned int modes;
	struct __kernel_timex_timeval time;
};

struct io_cqe {
	__s32 res;
};

struct io_kiocb {
	__u8 opcode;
	struct io_cqe cqe;
};

/* What struct io_kiocb begins with for an xattr operation: io_uring/xattr.c, v5.19. */
struct io_xattr {
	struct filename *filename;
};

/* The copy of a name that the operation uses later: include/linux/fs.h, v7.0. */
struct delayed_filename {
	struct filename *__incomplete_filename;
};

struct io_xattr___v7_0 {
	struct delayed_filename filename;
};

struct open_how {
	__u64 flags;
};

/* What struct io_kiocb begins with for an open: io_uring/openclose.c, v7.0. */
struct io_open {
	int dfd;
	struct delayed_filename filename;
	struct open_how how;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
};

struct fs_struct {
	int users;
	struct path root;
	struct path pwd;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_end;
	struct file *exe_file;
};

struct tty_struct {
	char name[64];
};

struct signal_struct {
	unsigned int flags;
	struct tty_struct *tty;
};

struct seccomp {
	int mode;
};

struct group_info {
	int ngroups;
	kgid_t gid[0];
};

struct cred {
	kuid_t uid;
	kgid_t gid;
	kuid_t suid;
	kgid_t sgid;
	kuid_t euid;
	kgid_t egid;
	kuid_t fsuid;
	kgid_t fsgid;
	unsigned int securebits;
	kernel_cap_t cap_inheritable;
	kernel_cap_t cap_permitted;
	kernel_cap_t cap_effective;
	kernel_cap_t cap_ambient;
	void *security;
	struct user_namespace *user_ns;
	struct group_info *group_info;
};

struct lsm_blob_sizes {
	int lbs_cred;
};

struct aa_profile {
	long mode;
};

struct aa_label {
	char *hname;
	int size;
	struct aa_profile *vec[0];
};

struct kernfs_node {
	struct kernfs_node *parent;
	const char *name;
};

/* Since v6.15. */
struct kernfs_node___v6_15 {
	struct kernfs_node *__parent;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct io_uring_task;

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr;
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct hlist_head tasks[4];
	struct upid numbers[1];
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	unsigned int ptrace;
	unsigned int personality;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct hlist_node pid_links[4];
	const struct cred *real_cred;
	const struct cred *cred;
	char comm[16];
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
	struct io_uring_task *io_uring;
	struct nameidata *nameidata;
	struct seccomp seccomp;
	kuid_t loginuid;
	unsigned int sessionid;
	__u64 start_boottime;
	__u64 self_exec_id;
};

struct sk_buff {
	unsigned char *data;
};

struct audit_buffer {
	struct sk_buff *skb;
};

struct bpf_map {
	__u32 id;
};

struct linux_binprm {
	struct cred *cred;
	const char *filename;
	const char *interp;
};

struct trace_event_raw_sys_enter {
	long id;
};

struct trace_event_raw_sys_exit {
	long id;
	long ret;
};

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#endif /* TOLLGATE_LIB_KERNEL_BPF_H */
