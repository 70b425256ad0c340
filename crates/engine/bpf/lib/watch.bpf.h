/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Watch matching: the object itself (path=, exe=) or a directory at or above it (dir=).
 *
 * An object is matched in two ways. By inode at each step up to the root, which covers symbolic
 * links, bind mounts and hard links. By the hash of each leading part of its path, which follows
 * the name when the file is replaced and covers missing objects; watch_identity.bpf.h says where
 * names count. Hashes are keyed with a random seed and a random multiplier, so that no one can
 * construct collisions. The cost does not depend on the number of watches. Keys in both tables
 * include the half of the plan.
 */
#ifndef TOLLGATE_LIB_WATCH_BPF_H
#define TOLLGATE_LIB_WATCH_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/watch_hash.bpf.h"
#include "lib/watch_identity.bpf.h"

/* Selects the watches of the plan of a syscall. */
static __always_inline void select_watches(struct scratch *s, const struct wire_syscall *syscall)
{
	s->epoch = syscall->epoch;
	s->half = syscall->epoch & 1;
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

/* Makes the hits of a list count no longer for rules that suppress events. */
static __always_inline void distrust_hits(__u32 *list)
{
	for (__u32 i = 0; i < HITS_MAX; i++)
		list[i] |= HIT_FOREIGN;
}

/*
 * The flag of a hit by an inode that is that of several watches. Any user can make a hard link
 * before the rules are loaded and remove it later: a rule that suppresses events counts the name.
 */
static __always_inline __u32 shared_flag(__u32 watch)
{
	_Static_assert(WIRE_WATCH_SET >> 1 == HIT_FOREIGN, "a shift makes one flag the other");
	return (watch & WIRE_WATCH_SET) >> 1;
}

struct hit_loop {
	struct hits hits;
	__u32 half;
	__u32 count; /* before sets are replaced */
	__u32 last; /* the last set that was replaced, with its flags */
};

/* Whether the list has a hit without HIT_FOREIGN too, which counts for more rules. */
static __always_inline int has_plain_hit(const struct hit_loop *loop, __u32 hit)
{
	if (!(hit & HIT_FOREIGN))
		return 0;
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= loop->count)
			break;
		if ((loop->hits.list[i] & ~HIT_NAMED) == (hit & ~(HIT_FOREIGN | HIT_NAMED)))
			return 1;
	}
	return 0;
}

static long replace_set(__u32 index, void *data)
{
	struct hit_loop *loop = data;
	struct wire_watch_set *set;
	__u32 *hit, flags, at;

	if (index >= loop->count || index >= HITS_MAX)
		return 1;
	hit = &loop->hits.list[index];
	flags = *hit & (HIT_LEAF | HIT_FOREIGN | HIT_NAMED);
	set = watch_set(&at, loop->half, *hit & ~flags);
	if (!set)
		return 0;
	if (*hit == loop->last || has_plain_hit(loop, *hit)) {
		/* The others are in the list, or will be. */
		*hit = set->watch[0] | (flags & ~(*hit == loop->last ? 0 : HIT_FOREIGN));
		return 0;
	}
	loop->last = *hit;
	*hit = set->watch[0] | flags;
	for (__u32 i = 1; i < WIRE_SET_WATCHES; i++) {
		if (i >= set->count)
			break;
		add_hit(&loop->hits, set->watch[i] | flags);
	}
	return 0;
}

/* Whether a plan has sets of watches. */
volatile __u32 tlg_has_sets;

/* Replaces sets in the lists of hits by their watches. Not inlined: the verifier checks it once. */
__noinline int replace_sets(struct scratch *s)
{
	struct hit_loop loop = {};

	if (!s)
		return 0;
	loop.half = s->half;
	loop.hits.count = &s->hits;
	loop.hits.list = s->hit;
	loop.count = s->hits;
	bpf_loop(HITS_MAX, replace_set, &loop, 0);
	loop.hits.count = &s->exe_hits;
	loop.hits.list = s->exe_hit;
	loop.count = s->exe_hits;
	loop.last = 0;
	bpf_loop(HITS_MAX, replace_set, &loop, 0);
	return 0;
}

struct walk_loop {
	struct scratch *s;
	struct hits hits;
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

/* Adds a hit if a watch has the name in the directory that `s->entry` is the key of. */
static __always_inline void watch_entry(struct scratch *s, struct hits *hits)
{
	__u64 key = s->entry;
	struct wire_name_watch *watch = bpf_map_lookup_elem(&tlg_watch_path, &key);

	if (!watch)
		return;
	add_hit(hits, watch->watch | HIT_LEAF);
	if (s->leaf_dentry && s->leaf_watch != watch->watch + 1)
		s->learn = key;
}

static long watch_step(__u32 index, void *data)
{
	struct walk_loop *loop = data;
	struct scratch *s = loop->s;
	struct watch_walk *walk = &s->walk;
	struct wire_inode_key key = {};
	struct wire_inode_watch *watched;
	__u64 parent;

	walk->inode = LOAD(dentry, walk->dentry, d_inode);
	key.ino = LOAD(inode, walk->inode, i_ino);
	key.dev = watch_dev(walk->inode);
	key.half = s->half;
	watched = bpf_map_lookup_elem(&tlg_watch_inode, &key);
	if (watched && watched->generation == (__u32)LOAD(inode, walk->inode, i_generation)) {
		add_hit(&loop->hits, watched->watch | (shared_flag(watched->watch) & s->shared) |
					     walk->leaf | walk->flag);
		if (walk->leaf)
			s->leaf_watch = watched->watch + 1;
	}
	if (walk->is_dir) {
		struct wire_identity dir = {
			.ino = key.ino,
			.dev = key.dev,
			.generation = LOAD(inode, walk->inode, i_generation),
		};

		walk->is_dir = 0;
		s->entry = entry_key(s, &dir, s->component[0]);
	}
	/* The root is mounted on rootfs, which no path can name. */
	if (walk->inode == tlg_root_inode)
		return 1;
	parent = LOAD(dentry, walk->dentry, d_parent);
	if (walk->cross) {
		__u64 dentry = walk->dentry;
		int step = step_up(&walk->dentry, &walk->mnt);

		if (!step) {
			/* A tree that is mounted nowhere: open_tree(), or umount with MNT_DETACH. */
			if (!s->bound && parent != dentry)
				s->bound = dentry;
			return 1;
		}
		if (step == 2) {
			/* The root of a mount has no name: continue with its mount point. */
			if (!s->bound && parent != dentry)
				s->bound = dentry;
			if (s->scope == SCOPE_FOREIGN)
				walk->flag = HIT_FOREIGN;
			walk->leaf = 0;
			return 0;
		}
	}
	if (s->depth >= LEVELS_MAX) {
		count_truncated(WIRE_TRUNC_WATCHES);
		return 1;
	}
	s->name = AT(dentry, walk->dentry, d_name);
	s->component[s->depth & DEPTH_MASK] = hash_name(s);
	s->depth++;
	if (parent == walk->dentry)
		return 1;
	walk->is_dir = walk->leaf;
	walk->leaf = 0;
	walk->dentry = parent;
	return 0;
}

/* The number of leading components of a path that are compared with watches. */
static __always_inline __u32 compared_depth(__u32 depth)
{
	return depth < DEPTH_MAX ? depth : DEPTH_MAX;
}

static long prefix_step(__u32 index, void *data)
{
	struct walk_loop *loop = data;
	struct scratch *s = loop->s;
	__u32 from = s->depth - 1 - index; /* of a deeper path, the last components are kept */

	s->prefix[(index + 1) & PREFIX_MASK] =
		mix(s->prefix[index & PREFIX_MASK], s->component[from & DEPTH_MASK]);
	return 0;
}

/*
 * Walks from an object, or from the directory that a name starts in, to the root: adds hits by
 * inode, sets `depth` to the number of components of the path, and fills `prefix` with the hashes
 * of its leading parts, up to DEPTH_MAX components. `leaf` is HIT_LEAF for an object. `exe` selects
 * the list of hits: the program's, or the objects'. Returns whether the hashes can be compared: the
 * walk ended at the root of watched paths, in a mount namespace whose names count. Not inlined: the
 * verifier checks it once.
 *
 * In a mount namespace of a user namespace, which any user can make, an object is below the
 * directories of its own file system, as for the kernel's audit, and not below mount points; its
 * name is compared by its directory's inode, as fsnotify does. (In other mount namespaces too, if its
 * path is not that of a watch.) A name that is only text is compared as the task sees it: HIT_FOREIGN.
 */
__noinline int watch_ancestors(struct scratch *s, __u64 dentry, __u64 mnt, __u32 leaf, __u32 exe)
{
	struct walk_loop loop = { .s = s };
	struct watch_walk *walk;
	__u32 depth, is_root;

	if (!s)
		return 0;
	loop.hits.count = exe ? &s->exe_hits : &s->hits;
	loop.hits.list = exe ? s->exe_hit : s->hit;
	walk = &s->walk;
	walk->dentry = dentry;
	walk->mnt = mnt;
	walk->leaf = leaf;
	walk->flag = walk->is_dir = 0;
	s->shared = exe ? 0 : HIT_FOREIGN;
	s->depth = s->leaf_watch = 0;
	s->learn = s->entry = 0;
	s->leaf_dentry = leaf ? dentry : 0;
	s->leaf_mnt = mnt;
	s->bound = 0;
	s->scope = name_scope(mnt);
	walk->cross = !leaf || s->scope != SCOPE_FOREIGN;
	bpf_loop(LEVELS_MAX * 2, watch_step, &loop, 0);
	s->prefix[0] = tlg_seed;
	depth = s->depth;
	bpf_loop(compared_depth(depth), prefix_step, &loop, 0);
	is_root = walk->inode == tlg_root_inode;
	if (s->bound) {
		/* Directories above a bind mount, which the path does not show. */
		walk->dentry = LOAD(dentry, s->bound, d_parent);
		walk->leaf = walk->flag = walk->cross = walk->is_dir = 0;
		s->depth = 0;
		bpf_loop(LEVELS_MAX, watch_step, &loop, 0);
		s->depth = depth;
	}
	if (s->entry && s->scope != SCOPE_INITIAL)
		watch_entry(s, &loop.hits);
	if (s->learn)
		learn_inode(s);
	return is_root && (!leaf || s->scope != SCOPE_FOREIGN);
}

/* Makes the path one component longer. */
static __always_inline void extend_prefix(struct scratch *s, __u64 hash)
{
	__u32 depth = s->depth;

	if (depth < DEPTH_MAX)
		s->prefix[(depth + 1) & PREFIX_MASK] = mix(s->prefix[depth & PREFIX_MASK], hash);
	s->depth = depth + 1;
}

/*
 * Makes the path of watch_ancestors() that of a name in that directory; `name` is a struct qstr.
 * Not inlined: the verifier checks it once.
 */
__noinline int watch_last(struct scratch *s, __u64 dentry, __u64 name)
{
	struct hits hits = {};
	struct wire_identity dir = {};
	__u64 inode, hash;

	if (!s)
		return 0;
	hits.count = &s->hits;
	hits.list = s->hit;
	s->name = name;
	hash = hash_name(s);
	extend_prefix(s, hash);
	s->leaf_dentry = 0;
	inode = LOAD(dentry, dentry, d_inode);
	dir.ino = LOAD(inode, inode, i_ino);
	dir.dev = watch_dev(inode);
	dir.generation = LOAD(inode, inode, i_generation);
	s->entry = entry_key(s, &dir, hash);
	if (s->scope != SCOPE_INITIAL)
		watch_entry(s, &hits);
	return 0;
}

struct name_lookup {
	struct scratch *s;
	struct hits hits;
	__u32 leaves; /* how many of the last prefixes count as the object itself */
	__u32 is_named; /* the whole path is that of a watch */
};

static long name_step(__u32 index, void *data)
{
	struct name_lookup *lookup = data;
	struct scratch *s = lookup->s;
	__u64 key = s->prefix[index & PREFIX_MASK] ^ s->half;
	struct wire_name_watch *watch = bpf_map_lookup_elem(&tlg_watch_path, &key);
	__u32 flags;

	if (!watch)
		return 0;
	flags = HIT_NAMED | (s->scope == SCOPE_FOREIGN ? HIT_FOREIGN : 0);
	flags |= index + lookup->leaves > s->depth ? HIT_LEAF : 0;
	add_hit(&lookup->hits, watch->watch | flags);
	if (index != s->depth)
		return 0;
	lookup->is_named = 1;
	if (s->leaf_dentry && s->scope == SCOPE_INITIAL && s->leaf_watch != watch->watch + 1)
		s->learn = key;
	return 0;
}

/*
 * Adds the hits of the path in `prefix`; `exe` as for watch_ancestors(). Not inlined: the verifier
 * checks it once.
 */
__noinline int watch_prefixes(struct scratch *s, __u32 leaves, __u32 exe)
{
	struct name_lookup lookup = { .leaves = leaves };

	if (!s)
		return 0;
	lookup.s = s;
	lookup.hits.count = exe ? &s->exe_hits : &s->hits;
	lookup.hits.list = exe ? s->exe_hit : s->hit;
	bpf_loop(compared_depth(s->depth) + 1, name_step, &lookup, 0);
	/* A directory above that of the name has been renamed. */
	if (s->entry && s->scope == SCOPE_INITIAL && !lookup.is_named)
		watch_entry(s, &lookup.hits);
	if (s->learn)
		learn_inode(s);
	return 0;
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
	extend_prefix(s, mix(scan->hash, scan->bytes));
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
	bpf_loop(len + 1, scan_step, &loop, 0);
}

#endif /* TOLLGATE_LIB_WATCH_BPF_H */
