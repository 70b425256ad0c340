/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The filesystem list: on which file systems names are not looked at. An item there is marked, has no inode
 * and hits no watch; rules see it as a name that led nowhere, and where it has no name of its own, not at all.
 */
#ifndef TOLLGATE_FILESYSTEM_BPF_H
#define TOLLGATE_FILESYSTEM_BPF_H

/* Whether a plan has such a list. */
volatile __u32 tlg_filesystems;

/* The file systems with this magic number, or, with `all_others`, those with another one. */
struct left_out {
	__u32 magic;
	__u32 all_others;
};

/* The list of either half of the plan. */
volatile struct left_out tlg_left_out[2][WIRE_FILESYSTEMS];
volatile __u32 tlg_left_out_count[2];

/* A function of its own, which the verifier walks once. */
__noinline int find_left_out(__u32 magic)
{
	__u32 half = tlg_epoch & 1;

	for (__u32 i = 0; i < WIRE_FILESYSTEMS; i++) {
		if (i >= tlg_left_out_count[half])
			break;
		if ((tlg_left_out[half][i].magic == magic) != tlg_left_out[half][i].all_others)
			return 1;
	}
	return 0;
}

/* Whether names on a file system are left out, which the kernel vouches for. */
static __always_inline __u32 is_left_out(const struct super_block *sb)
{
	return tlg_filesystems && find_left_out(sb->s_magic);
}

#endif /* TOLLGATE_FILESYSTEM_BPF_H */
