/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The filesystem list: file systems whose names are not audited. An item there is flagged, has no
 * inode and matches no watch. Rules treat it as a name that does not exist, or ignore it if it has
 * no name.
 */
#ifndef TOLLGATE_LIB_FS_FILTER_BPF_H
#define TOLLGATE_LIB_FS_FILTER_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/plan.bpf.h"

/* Whether a plan has a filesystem list. */
volatile __u32 tlg_fs_filter;

/* Excludes the file systems with this magic number or, with `all_others`, those with any other. */
struct fs_exclusion {
	__u32 magic;
	__u32 all_others;
};

/* The lists, one per half of the plan. */
volatile struct fs_exclusion tlg_fs_excluded[2][WIRE_FILESYSTEMS];
volatile __u32 tlg_fs_excluded_count[2];

/* Not inlined: the verifier checks it once. */
__noinline int is_magic_excluded(__u32 magic)
{
	__u32 half = tlg_epoch & 1;

	for (__u32 i = 0; i < WIRE_FILESYSTEMS; i++) {
		if (i >= tlg_fs_excluded_count[half])
			break;
		if ((tlg_fs_excluded[half][i].magic == magic) !=
		    tlg_fs_excluded[half][i].all_others)
			return 1;
	}
	return 0;
}

/* Whether a file system is excluded. A macro: without rules about file systems `sb` is not loaded. */
#define is_fs_excluded(sb) (tlg_fs_filter && is_magic_excluded((sb)->s_magic))

#endif /* TOLLGATE_LIB_FS_FILTER_BPF_H */
