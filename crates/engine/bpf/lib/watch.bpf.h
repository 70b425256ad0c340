/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Watch matching: the object itself (path=, exe=) or a directory at or above it (dir=).
 *
 * An object is matched in two ways. By inode at each step up to the root, which covers symbolic
 * links, bind mounts and hard links. By the hash of each leading part of its path, which follows
 * the name when the file is replaced and covers missing objects. Hashes are keyed with a random
 * seed and a random multiplier, so that no one can construct collisions. The cost does not depend
 * on the number of watches. Keys in both tables include the half of the plan.
 */
#ifndef TOLLGATE_LIB_WATCH_BPF_H
#define TOLLGATE_LIB_WATCH_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"

#define BTRFS_SUPER_MAGIC 0x9123683e /* include/uapi/linux/magic.h */

const volatile __u64 tlg_seed;
const volatile __u64 tlg_multiplier; /* odd */

/*
 * Address of the inode of the root directory of watched paths. Number and device do not identify
 * it: on btrfs every subvolume's root is inode 256. Its mount keeps it in memory.
 */
__u64 tlg_root_inode;

/*
 * Where btrfs has the device number of a subvolume: offset of the struct btrfs_root pointer from
 * the struct inode, and of the number in struct btrfs_root. 0 if unknown: the types are those of a
 * module, which CO-RE finds with CAP_SYS_ADMIN only.
 */
const volatile __s64 tlg_btrfs_root_at;
const volatile __s64 tlg_btrfs_dev_at;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, struct wire_inode_key);
	__type(value, struct wire_inode_watch);
} tlg_watch_inode SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u64);
	__type(value, __u32);
} tlg_watch_path SEC(".maps");

#define HASH_MULTIPLIER 0x9e3779b97f4a7c15 /* 2^64 divided by the golden ratio */

/*
 * One multiplication by a secret is not enough: a difference in the highest bit of a word stays a
 * known difference of the product, for every odd multiplier, and a difference in the next word
 * can cancel it. After the shift and the second multiplication the difference is secret.
 */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	hash = (hash ^ (hash >> 32)) * tlg_multiplier;
	return hash ^ (hash >> 29);
}

/* Selects the watches of the plan of a syscall. */
static __always_inline void select_watches(struct scratch *s, const struct wire_syscall *syscall)
{
	s->epoch = syscall->epoch;
	s->half = syscall->epoch & 1;
}

/*
 * Device number of an inode in tlg_watch_inode: that of its super block, which stat(2) does not
 * show on every file system. Inode numbers of btrfs are those of a subvolume, which has a device
 * number of its own.
 */
static __always_inline __u32 watch_dev(__u64 inode)
{
	__u64 sb = LOAD(inode, inode, i_sb);
	__u64 root;

	if (!tlg_btrfs_dev_at || LOAD(super_block, sb, s_magic) != BTRFS_SUPER_MAGIC)
		return LOAD(super_block, sb, s_dev);
	root = LOAD_WORD(inode + tlg_btrfs_root_at);
	return LOAD_WORD(root + tlg_btrfs_dev_at);
}

struct hits {
	__u32 *count;
	__u32 *list;
};

static __always_inline void add_hit(struct hits *hits, __u32 hit)
{
	__u32 count = *hits->count;

	if (count >= HITS_MAX) {
		count_truncated(WIRE_TRUNC_WATCHES);
		return;
	}
	hits->list[count & (HITS_MAX - 1)] = hit;
	*hits->count = count + 1;
}

struct watch_walk {
	struct scratch *s;
	struct hits hits;
	__u64 dentry;
	__u64 mnt;
	__u64 inode; /* inode of the last dentry */
	__u32 leaf; /* HIT_LEAF at the object itself, else 0 */
};

/* Hash of `s->name`. Not inlined: the verifier checks it once. */
__noinline __u64 hash_name(struct scratch *s)
{
	__u64 hash = tlg_seed;
	__u32 len, rest;
	__u64 text;

	if (!s)
		return 0;
	len = LOAD(qstr, s->name, len);
	text = LOAD(qstr, s->name, name);
	rest = len & 7;

	/* NAME_MAX is 255. A second branch in here would be 256,000 instructions to verify. */
	for (__u32 i = 0; i < 31; i++) {
		if (i * 8 + 8 > len)
			break;
		hash = mix(hash, LOAD_WORD(text + i * 8));
	}
	if (rest)
		hash = mix(hash, LOAD_WORD(text + (len & ~7U)) & ~0ULL >> (64 - 8 * rest));
	return mix(hash, len);
}

static long watch_step(__u32 index, void *data)
{
	struct watch_walk *walk = data;
	struct scratch *s = walk->s;
	struct wire_inode_key key = {};
	struct wire_inode_watch *watched;
	__u64 parent;
	int step;

	walk->inode = LOAD(dentry, walk->dentry, d_inode);
	key.ino = LOAD(inode, walk->inode, i_ino);
	key.dev = watch_dev(walk->inode);
	key.half = s->half;
	watched = bpf_map_lookup_elem(&tlg_watch_inode, &key);
	if (watched)
		add_hit(&walk->hits, watched->watch | walk->leaf);
	walk->leaf = 0;
	/* The root is mounted on rootfs, which no path can name. */
	if (walk->inode == tlg_root_inode)
		return 1;
	step = step_up(&walk->dentry, &walk->mnt);
	if (step == 2)
		return 0; /* the root of a mount has no name: continue with its mount point */
	if (!step)
		return 1;
	if (s->depth >= DEPTH_MAX) {
		count_truncated(WIRE_TRUNC_WATCHES);
		return 1;
	}
	s->name = AT(dentry, walk->dentry, d_name);
	s->component[s->depth & DEPTH_MASK] = hash_name(s);
	s->depth++;
	parent = LOAD(dentry, walk->dentry, d_parent);
	if (parent == walk->dentry)
		return 1;
	walk->dentry = parent;
	return 0;
}

struct prefix_fold {
	struct scratch *s;
	__u32 count;
};

static long prefix_step(__u32 index, void *data)
{
	struct prefix_fold *fold = data;
	struct scratch *s = fold->s;
	__u32 from = fold->count - 1 - index;

	s->prefix[(index + 1) & PREFIX_MASK] =
		mix(s->prefix[index & PREFIX_MASK], s->component[from & DEPTH_MASK]);
	return 0;
}

/*
 * Walks from an object, or from the directory that a name starts in, to the root: adds hits by
 * inode and fills `prefix` with the hashes of the path's `depth` leading parts. Returns whether
 * the walk ended at the root of watched paths, so that the hashes can be compared.
 */
static __always_inline __u32 watch_ancestors(struct scratch *s, struct hits *hits, __u64 dentry,
					     __u64 mnt, __u32 leaf)
{
	struct watch_walk walk = {
		.s = s,
		.hits = *hits,
		.dentry = dentry,
		.mnt = mnt,
		.leaf = leaf,
	};
	struct prefix_fold fold = { .s = s };

	s->depth = 0;
	bpf_loop(DEPTH_MAX * 2, watch_step, &walk, 0);
	s->prefix[0] = tlg_seed;
	fold.count = s->depth;
	bpf_loop(s->depth, prefix_step, &fold, 0);
	return walk.inode == tlg_root_inode;
}

struct name_lookup {
	struct scratch *s;
	struct hits hits;
	__u32 leaves; /* how many of the last prefixes count as the object itself */
};

static long name_step(__u32 index, void *data)
{
	struct name_lookup *lookup = data;
	struct scratch *s = lookup->s;
	__u64 key = s->prefix[index & PREFIX_MASK] ^ s->half;
	__u32 *watch = bpf_map_lookup_elem(&tlg_watch_path, &key);

	if (watch)
		add_hit(&lookup->hits, *watch | (index + lookup->leaves > s->depth ? HIT_LEAF : 0));
	return 0;
}

/* Adds the hits of the path in `prefix`. */
static __always_inline void watch_prefixes(struct scratch *s, struct hits *hits, __u32 leaves)
{
	struct name_lookup lookup = { .s = s, .hits = *hits, .leaves = leaves };

	bpf_loop(s->depth + 1, name_step, &lookup, 0);
}

struct name_loop {
	struct scratch *s;
};

static __always_inline void end_component(struct scratch *s)
{
	struct name_scan *scan = &s->scan;
	__u32 depth = s->depth;

	if (!scan->bytes || (scan->bytes == 1 && scan->word == '.'))
		return;
	if (scan->bytes == 2 && scan->word == ('.' | '.' << 8)) {
		s->depth = depth > scan->floor ? depth - 1 : depth;
		return;
	}
	if (scan->bytes % 8)
		scan->hash = mix(scan->hash, scan->word);
	if (depth >= DEPTH_MAX) {
		scan->too_deep = 1;
		return;
	}
	s->prefix[(depth + 1) & PREFIX_MASK] =
		mix(s->prefix[depth & PREFIX_MASK], mix(scan->hash, scan->bytes));
	s->depth = depth + 1;
}

static long scan_step(__u32 index, void *data)
{
	struct name_loop *loop = data;
	struct scratch *s = loop->s;
	struct name_scan *scan = &s->scan;
	__u8 byte = '/';

	if (index < scan->len)
		byte = *(__u8 *)tail_at(s, scan->at + index);
	if (byte != '/') {
		scan->word |= (__u64)byte << (8 * (scan->bytes & 7));
		scan->bytes++;
		if (!(scan->bytes & 7)) {
			scan->hash = mix(scan->hash, scan->word);
			scan->word = 0;
		}
		return 0;
	}
	end_component(s);
	scan->hash = tlg_seed;
	scan->word = 0;
	scan->bytes = 0;
	return 0;
}

/*
 * Extends the path in `prefix` by a name in the tail. Handles `.`, `..` and repeated slashes as
 * path lookup does.
 */
static __always_inline void append_name(struct scratch *s, __u32 at, __u32 len)
{
	struct name_loop loop = { .s = s };
	struct name_scan *scan = &s->scan;

	scan->at = at;
	scan->len = len;
	/* `..` does not lead above the root of an absolute name. */
	scan->floor = *(__u8 *)tail_at(s, at) == '/' ? s->depth : 0;
	scan->hash = tlg_seed;
	scan->word = 0;
	scan->bytes = 0;
	scan->too_deep = 0;
	bpf_loop(len + 1, scan_step, &loop, 0);
	if (scan->too_deep)
		count_truncated(WIRE_TRUNC_WATCHES);
}

#endif /* TOLLGATE_LIB_WATCH_BPF_H */
