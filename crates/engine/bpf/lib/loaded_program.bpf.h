/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program that a bpf(BPF_PROG_LOAD) has loaded: its id is in the BPF record that the kernel's
 * audit has written during the call, and joins the two.
 */
#ifndef TOLLGATE_LIB_LOADED_PROGRAM_BPF_H
#define TOLLGATE_LIB_LOADED_PROGRAM_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"

#define BPF_PROG_LOAD	    5 /* enum bpf_cmd, include/uapi/linux/bpf.h */
#define ANON_INODE_FS_MAGIC 0x09041934 /* include/uapi/linux/magic.h */
#define PROG_FILE_NAME	    0x676f72702d667062ULL /* "bpf-prog": bpf_prog_new_fd(), v4.4 */

/*
 * The id of the program behind a descriptor, or 0. Another thread can have given the descriptor to
 * another program.
 */
static __always_inline __u32 program_id(const struct task_struct *task, __u32 fd)
{
	__u64 file = task_file(task, fd);
	__u64 path = AT(file, file, f_path);
	__u64 dentry = LOAD(path, path, dentry);
	__u64 name = LOAD(dentry, dentry, d_name.name);
	__u64 program;

	if (!file || LOAD(super_block, LOAD(dentry, dentry, d_sb), s_magic) != ANON_INODE_FS_MAGIC)
		return 0;
	/* No other file of that file system has a longer name that begins so. */
	if (LOAD_WORD(name) != PROG_FILE_NAME)
		return 0;
	program = LOAD(file, file, private_data);
	return LOAD(bpf_prog_aux, LOAD(bpf_prog, program, aux), id);
}

#endif /* TOLLGATE_LIB_LOADED_PROGRAM_BPF_H */
