/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hooks of the guard: each returns EPERM for a guarded object. */
#ifndef TOLLGATE_GUARD_HOOKS_BPF_H
#define TOLLGATE_GUARD_HOOKS_BPF_H

#include "guard/guarded.bpf.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"

#define FMODE_WRITE	      2 /* include/linux/fs.h */
#define O_ANY_WRITE	      01003 /* O_ACCMODE and O_TRUNC of include/uapi/asm-generic/fcntl.h */
#define PTRACE_MODE_ATTACH    2 /* include/linux/ptrace.h */
#define FS_IOC_SETFLAGS	      0x40086602 /* include/uapi/linux/fs.h */
#define FS_IOC32_SETFLAGS     0x40046602
#define FS_IOC_FSSETXATTR     0x401c5820
#define FS_IOC_SETVERSION     0x40087602 /* the generation of an inode */
#define FS_IOC32_SETVERSION   0x40047602
#define EXT4_IOC_SETVERSION   0x40086604 /* fs/ext4/ext4.h: EXT4_IOC_SETVERSION_OLD */
#define EXT4_IOC32_SETVERSION 0x40046604
#define PROC_SUPER_MAGIC      0x9fa0 /* include/uapi/linux/magic.h */
#define DEBUGFS_MAGIC	      0x64626720

/*
 * Run by the daemon through BPF_PROG_TEST_RUN: reads the inodes of its descriptors, which can
 * differ from those of stat(2), and of its executable. Root can run any program this way, so once
 * something is locked only the daemon may.
 */
SEC("raw_tp/self")
int guard_init(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u64 exe = exe_inode((__u64)task);

	if (is_untrusted((__u64)task))
		return 0;
	for (__u32 i = 0; i < GUARD_DIRS; i++) {
		volatile struct guard_dir *dir = &tlg_guard_dirs[i];
		__u64 file, inode;

		if (!dir->fd)
			continue;
		file = task_file(task, dir->fd - 1);
		inode = file ? LOAD(file, file, f_inode) : 0;
		dir->fd = 0;
		if (!inode)
			continue;
		dir->dev = inode_dev(inode);
		dir->ino = LOAD(inode, inode, i_ino);
		if (!dir->mask[0])
			tlg_guard_pins_dev = dir->dev;
	}
	for (__u32 i = 0; i < GUARD_FILES; i++) {
		volatile struct guard_file *guarded = &tlg_guard_files[i];
		__u64 file, inode;

		if (!guarded->fd)
			break;
		file = task_file(task, guarded->fd - 1);
		inode = file ? LOAD(file, file, f_inode) : 0;
		guarded->fd = 0;
		guarded->writers = 0;
		if (!inode || guard_inode(inode))
			continue;
		guarded->writers = LOAD(inode, inode, i_writecount.counter);
	}
	set_guard_daemon((__u64)task);
	tlg_guard_exe_dev = inode_dev(exe);
	tlg_guard_exe_generation = LOAD(inode, exe, i_generation);
	tlg_guard_exe_ino = LOAD(inode, exe, i_ino);
	return 0;
}

/*
 * Run through BPF_PROG_TEST_RUN by a daemon that starts while something is locked, with a
 * descriptor of the pin directory, which one daemon at a time locks: makes it the daemon.
 */
SEC("raw_tp/self")
int guard_claim(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = current();
	__u64 file = task_file(task, ctx->args[0]);
	__u64 inode = file ? LOAD(file, file, f_inode) : 0;

	if (inode && inode_dev(inode) == tlg_guard_pins_dev && is_guarded(inode, 0) &&
	    runs_guard_exe((__u64)task))
		set_guard_daemon((__u64)task);
	return 0;
}

/*
 * fmod_ret on security_bpf_map(map, fmode), v4.15: a process is about to get a descriptor of a
 * map.
 */
SEC("fmod_ret/security_bpf_map")
int guard_map(__u64 *ctx)
{
	__u32 id = LOAD(bpf_map, ctx[0], id);

	return guard_verdict(ctx[1] & FMODE_WRITE && bpf_map_lookup_elem(&tlg_guard_maps, &id));
}

/* Whether the last component of a dentry is `wanted`, of at most 15 bytes. */
static __always_inline int is_named(__u64 dentry, const char *wanted, __u32 bytes)
{
	char name[16] = {};

	bpf_probe_read_kernel_str(name, sizeof(name),
				  (void *)LOAD(qstr, AT(dentry, dentry, d_name), name));
	return !__builtin_memcmp(name, wanted, bytes);
}

/*
 * Whether a file disables programs when 0 is written to it: sysctl kernel.ftrace_enabled those on
 * functions, kprobes/enabled of debugfs all kprobes.
 */
static __always_inline int is_hook_switch(__u64 dentry)
{
	__u64 sb = LOAD(dentry, dentry, d_sb);
	__u64 magic = LOAD(super_block, sb, s_magic);

	if (magic == PROC_SUPER_MAGIC)
		return is_named(dentry, "ftrace_enabled", sizeof("ftrace_enabled"));
	return magic == DEBUGFS_MAGIC && is_named(dentry, "enabled", sizeof("enabled")) &&
	       is_named(LOAD(dentry, dentry, d_parent), "kprobes", sizeof("kprobes"));
}

/* fmod_ret on security_file_open(file), v4.19: before truncation. */
SEC("fmod_ret/security_file_open")
int guard_open(__u64 *ctx)
{
	const struct file *file = (struct file *)ctx[0];
	__u64 dentry, inode;

	if (!(file->f_flags & O_ANY_WRITE))
		return 0;
	inode = (__u64)FOLLOW(file, file, f_inode);
	if ((__u64)FOLLOW(file, file, f_inode->i_ino) == tlg_guard_exe_ino && is_guard_exe(inode))
		return guard_verdict(1);
	dentry = (__u64)FOLLOW(file, file, f_path.dentry);
	if (!is_guarded_entry(dentry))
		return guard_verdict(is_guarded_inode(inode) || is_hook_switch(dentry));
	if (!is_guard_daemon((__u64)current()))
		return -EPERM;
	guard_inode(inode); /* a handle of the file can be opened without its name */
	return 0;
}

/* fmod_ret on security_inode_create(dir, dentry, mode), v5.5; also called for BPF_OBJ_PIN. */
SEC("fmod_ret/security_inode_create")
int guard_create(__u64 *ctx)
{
	return guard_verdict(is_guarded(ctx[0], ctx[1]));
}

/* fmod_ret on security_inode_mknod(dir, dentry, mode, dev), v5.5. */
SEC("fmod_ret/security_inode_mknod")
int guard_mknod(__u64 *ctx)
{
	return guard_verdict(is_guarded(ctx[0], ctx[1]));
}

/* fmod_ret on security_inode_mkdir(dir, dentry, mode), v5.5. */
SEC("fmod_ret/security_inode_mkdir")
int guard_mkdir(__u64 *ctx)
{
	return guard_verdict(is_guarded(ctx[0], ctx[1]));
}

/* fmod_ret on security_inode_symlink(dir, dentry, old_name), v5.5. */
SEC("fmod_ret/security_inode_symlink")
int guard_symlink(__u64 *ctx)
{
	return guard_verdict(is_guarded(ctx[0], ctx[1]));
}

/*
 * fmod_ret on security_inode_link(old_dentry, dir, new_dentry), v5.5: a hard link would be an
 * unguarded name.
 */
SEC("fmod_ret/security_inode_link")
int guard_link(__u64 *ctx)
{
	return guard_verdict(is_guarded_entry(ctx[0]) || is_guarded(ctx[1], ctx[2]) ||
			     is_guarded_inode(LOAD(dentry, ctx[0], d_inode)));
}

/* fmod_ret on security_inode_unlink(dir, dentry), v5.5. */
SEC("fmod_ret/security_inode_unlink")
int guard_unlink(__u64 *ctx)
{
	int verdict;

	if (!is_guarded(ctx[0], ctx[1]))
		return 0;
	verdict = guard_verdict(1);
	if (!verdict)
		unguard_inode(LOAD(dentry, ctx[1], d_inode));
	return verdict;
}

/*
 * fmod_ret on security_inode_rename(old_dir, old_dentry, new_dir, new_dentry, flags), v5.5: called
 * once for RENAME_EXCHANGE, so both names are checked.
 */
SEC("fmod_ret/security_inode_rename")
int guard_rename(__u64 *ctx)
{
	__u64 replaced = LOAD(dentry, ctx[3], d_inode);
	int verdict = guard_verdict(is_guarded(ctx[0], ctx[1]) || is_guarded(ctx[2], ctx[3]) ||
				    is_guarded_dir(ctx[1]) || is_guarded_dir(ctx[3]));

	if (!verdict && replaced && is_guarded(ctx[2], ctx[3]))
		unguard_inode(replaced);
	return verdict;
}

/* fmod_ret on security_inode_setattr(idmap, dentry, attr), v6.0 form. */
SEC("fmod_ret/security_inode_setattr")
int guard_setattr(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[1]));
}

/* fmod_ret on security_inode_setxattr(idmap, dentry, name, value, size, flags), v5.12 form. */
SEC("fmod_ret/security_inode_setxattr")
int guard_setxattr(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[1]));
}

/* fmod_ret on security_inode_removexattr(idmap, dentry, name), v5.12 form. */
SEC("fmod_ret/security_inode_removexattr")
int guard_rmxattr(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[1]));
}

/* fmod_ret on security_inode_set_acl(idmap, dentry, acl_name, kacl), v6.2: setfacl(1). */
SEC("fmod_ret/security_inode_set_acl")
int guard_set_acl(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[1]));
}

/* fmod_ret on security_inode_remove_acl(idmap, dentry, acl_name), v6.2. */
SEC("fmod_ret/security_inode_remove_acl")
int guard_remove_acl(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[1]));
}

static __always_inline int ioctl_verdict(__u64 *ctx)
{
	const struct file *file = (struct file *)ctx[0];
	__u32 command = ctx[1];

	switch (command) {
	case FS_IOC_SETFLAGS:
	case FS_IOC32_SETFLAGS:
	case FS_IOC_FSSETXATTR:
	case FS_IOC_SETVERSION:
	case FS_IOC32_SETVERSION:
	case EXT4_IOC_SETVERSION:
	case EXT4_IOC32_SETVERSION:
		break;
	default:
		return 0;
	}
	return guard_verdict(is_guarded_object((__u64)FOLLOW(file, file, f_path.dentry)));
}

/*
 * fmod_ret on security_file_ioctl(file, cmd, arg), v5.5: chattr(1) works on a file opened for
 * reading.
 */
SEC("fmod_ret/security_file_ioctl")
int guard_ioctl(__u64 *ctx)
{
	return ioctl_verdict(ctx);
}

/*
 * fmod_ret on security_file_ioctl_compat(file, cmd, arg), v6.8, v6.1.75: 32-bit syscalls, which
 * pass security_file_ioctl before.
 */
SEC("fmod_ret/security_file_ioctl_compat")
int guard_ioctl32(__u64 *ctx)
{
	return ioctl_verdict(ctx);
}

/* fmod_ret on security_inode_file_setattr(dentry, fa), v6.17: file_setattr(2). */
SEC("fmod_ret/security_inode_file_setattr")
int guard_fileattr(__u64 *ctx)
{
	return guard_verdict(is_guarded_object(ctx[0]));
}

/* Whether the current task is in the initial mount namespace. */
static __always_inline int in_init_mnt_ns(void)
{
	__u64 own = LOAD(task_struct, (__u64)current(), nsproxy);
	__u64 initial = tlg_symbols.init_nsproxy;

	return !initial || !own || LOAD(nsproxy, own, mnt_ns) == LOAD(nsproxy, initial, mnt_ns);
}

/*
 * Whether a mount or unmount on this mount changes the initial namespace: in another namespace it
 * does if the mount is shared, which the init of many systems makes the default.
 */
static __always_inline int in_init_mounts(__u64 mount)
{
	return in_init_mnt_ns() || LOAD(mount, mount, mnt_group_id);
}

/* fmod_ret on security_sb_umount(mnt, flags), v5.5: pins go with their file system. */
SEC("fmod_ret/security_sb_umount")
int guard_umount(__u64 *ctx)
{
	__u64 root = LOAD(vfsmount, ctx[0], mnt_root);
	__u64 sb = LOAD(dentry, root, d_sb);
	__u64 mount = ctx[0] - bpf_core_field_offset(struct mount, mnt);

	return guard_verdict(tlg_guard_pins_dev &&
			     LOAD(super_block, sb, s_dev) == tlg_guard_pins_dev &&
			     in_init_mounts(LOAD(mount, mount, mnt_parent)));
}

/* Verdict on a mount at a path: it must not hide a guarded object. */
static __always_inline int mount_verdict(__u64 path)
{
	__u64 dentry = LOAD(path, path, dentry);
	__u64 mount = LOAD(path, path, mnt) - bpf_core_field_offset(struct mount, mnt);

	return guard_verdict((is_guarded_dir(dentry) || is_guarded_entry(dentry)) &&
			     in_init_mounts(mount));
}

/* fmod_ret on security_sb_mount(dev_name, path, type, flags, data), v5.5. */
SEC("fmod_ret/security_sb_mount")
int guard_mount(__u64 *ctx)
{
	return mount_verdict(ctx[1]);
}

/* fmod_ret on security_move_mount(from_path, to_path), v5.2: the same for move_mount(2). */
SEC("fmod_ret/security_move_mount")
int guard_movemount(__u64 *ctx)
{
	return mount_verdict(ctx[1]);
}

/*
 * fmod_ret on security_ptrace_access_check(child, mode), v5.5: a debugger could act as the daemon.
 * `tollgate run` may trace: the traced command starts as the daemon's executable.
 */
SEC("fmod_ret/security_ptrace_access_check")
int guard_ptrace(__u64 *ctx)
{
	return ctx[1] & PTRACE_MODE_ATTACH && is_guard_exe(exe_inode(ctx[0])) &&
			       !runs_guard_exe((__u64)current())
		       ? -EPERM
		       : 0;
}

#endif /* TOLLGATE_GUARD_HOOKS_BPF_H */
