/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bloom filter in front of watch matching, for hooks whose objects are trusted pointers. Most
 * objects are not watched; this check costs a fraction of watch_ancestors(). Two tables tell at
 * each step up whether an inode, or the last component of a path, may be that of a watch. If a
 * name may match, the whole path is compared.
 *
 * An entry sets three bits of one word, so a test is one load. A thousand entries let one other
 * fingerprint in 20,000 pass, ten thousand one in 100; `false_positives_are_rare` in
 * compile/prefilter.rs counts them.
 */
#ifndef TOLLGATE_LIB_WATCH_PREFILTER_BPF_H
#define TOLLGATE_LIB_WATCH_PREFILTER_BPF_H

#include "wire.h"
#include "lib/fs_filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/watch.bpf.h"
#include "lib/watch_hash.bpf.h"
#include "lib/watch_identity.bpf.h"

#define PREFILTER_STEPS 16 /* deeper objects are compared in full */
#define SHORT_NAME \
	32 /* smallest DNAME_INLINE_LEN: shorter names are inline in the dentry, before v6.2 */

static __always_inline __u32 dentry_fingerprint(const struct dentry *dentry)
{
	__u32 len = dentry->d_name.len;

	if (!bpf_ksym_exists(bpf_rdonly_cast) && len < SHORT_NAME)
		return name_fingerprint(*(const __u64 *)dentry->d_iname, len);
	return name_fingerprint(LOAD_WORD((__u64)dentry->d_name.name), len);
}

/*
 * Whether nothing above a mount was watched, and neither the mount tree nor the watched inodes
 * have changed since.
 */
static __always_inline __u32 no_watch_above(const struct scratch *s)
{
	__u64 version = tree_version();

	return version && s->unwatched_mnt == s->object[0].mnt && s->unwatched_version == version &&
	       s->unwatched_epoch == s->epoch && s->unwatched_learned == tlg_learned;
}

/* Whether the root of `s->object[0].mnt`, its mount point, or a directory above is watched. */
__noinline int is_mount_watched(struct scratch *s)
{
	__u64 mnt, mount, root, version;
	__u32 learned;

	if (!s)
		return 1;
	mnt = s->object[0].mnt;
	version = tree_version();
	learned = tlg_learned;
	mount = mnt - bpf_core_field_offset(struct mount, mnt);
	root = LOAD(vfsmount, mnt, mnt_root);
	if (LOAD(mount, mount, mnt_parent) == mount && LOAD(dentry, root, d_parent) == root)
		return 0;
	s->hits = 0;
	/* Through memory: since v6.4 a pointer that was loaded is not a number to the verifier. */
	s->object[1].dentry = root;
	barrier();
	if (watch_ancestors(s, s->object[1].dentry, mnt, HIT_LEAF, 0))
		watch_prefixes(s, 1, 0);
	if (s->hits)
		return 1;
	s->unwatched_mnt = mnt;
	s->unwatched_version = version;
	s->unwatched_epoch = s->epoch;
	s->unwatched_learned = learned;
	return 0;
}

/* Prepares keep_hits() for the directory `s->looked_at.dentry`. Not inlined: the verifier checks it once. */
__noinline int begin_look(struct scratch *s)
{
	if (!s)
		return 0;
	s->looked_at.version = tree_version();
	/* An atomic operation: on arm64 too, what is looked at is not older than the version. */
	s->looked_at.learned = __sync_fetch_and_add(&tlg_learned, 0);
	s->looked_at.hits = s->hits;
	return 0;
}

/* Adds the hits of a directory. Returns whether they are known; if not, they may be kept. */
static __always_inline int add_known_hits(struct scratch *s, const struct dentry *dentry)
{
	const struct known_directory *known =
		&s->known[name_hash_len(dentry) & (KNOWN_DIRECTORIES - 1)];
	__u32 hits = s->hits;

	s->looked_at.dentry = (__u64)dentry;
	if (known->dentry != (__u64)dentry || known->mnt != s->object[0].mnt ||
	    known->epoch != s->epoch || known->learned != tlg_learned ||
	    known->version != tree_version() || !levels_are_same(&known->levels, dentry)) {
		begin_look(s);
		return 0;
	}
	for (__u32 i = 0; i < KNOWN_HITS; i++) {
		if (i >= known->hits)
			break;
		s->hit[(hits + i) & (HITS_MAX - 1)] = known->hit[i];
	}
	s->hits = hits + known->hits;
	return 1;
}

/* The entry for a directory, or NULL if it is too far below the root of its mount. */
static __always_inline struct known_directory *fill_levels(struct scratch *s, __u64 dentry,
							   __u64 mnt_root)
{
	struct known_directory *known =
		&s->known[LOAD(dentry, dentry, d_name.hash) & (KNOWN_DIRECTORIES - 1)];

	known->dentry = 0;
	known->levels.count = 0;
	for (__u32 i = 0; i < CACHED_LEVELS; i++) {
		__u64 parent;

		if (dentry == mnt_root)
			return known;
		parent = LOAD(dentry, dentry, d_parent);
		add_level(&known->levels, dentry, parent);
		dentry = parent;
	}
	return NULL;
}

/* Keeps the hits since begin_look() as those of that directory. Not inlined: the verifier checks it once. */
__noinline int keep_hits(struct scratch *s)
{
	struct known_directory *known;
	__u32 first, hits;

	if (!s)
		return 0;
	first = s->looked_at.hits;
	hits = s->hits - first;
	if (hits > KNOWN_HITS)
		return 0;
	known = fill_levels(s, s->looked_at.dentry, LOAD(vfsmount, s->object[0].mnt, mnt_root));
	if (!known)
		return 0;
	known->mnt = s->object[0].mnt;
	known->version = s->looked_at.version;
	known->epoch = s->epoch;
	known->learned = s->looked_at.learned;
	known->hits = hits;
	for (__u32 i = 0; i < KNOWN_HITS; i++)
		known->hit[i] = s->hit[(first + i) & (HITS_MAX - 1)];
	known->dentry = s->looked_at.dentry;
	return 0;
}

/*
 * Matches an object against the watches of select_watches(): sets s->hit and s->hits. `mnt_root` is
 * the root of the mount; `last` is a struct qstr of a name below `dentry`, or 0; `leaves` is the
 * number of steps that count as the object itself.
 */
static __always_inline void watch_prefilter(struct scratch *s, const struct dentry *dentry,
					    __u64 mnt, __u64 mnt_root, __u64 last, __u32 leaves)
{
	const struct dentry *at = dentry;
	const struct super_block *sb = dentry->d_sb;
	__u32 leaf_steps =
		HIT_LEAF * ((1U << (last ? leaves - 1 : leaves)) - 1); /* one bit per step */
	__u32 hits;

	s->hits = 0;
	s->looked_at.version = 0;
	s->key.dev = sb->s_dev;
	s->key.half = s->half;
	s->object[0].dentry = (__u64)dentry;
	s->object[0].mnt = mnt;
	s->object[0].last = last;
	if (is_fs_excluded(sb))
		return;
	if (last &&
	    bloom_test(tlg_name_bloom, s->half,
		       name_fingerprint(LOAD_WORD(LOAD(qstr, last, name)), LOAD(qstr, last, len))))
		goto whole;
#pragma unroll
	for (__u32 i = 0; i < PREFILTER_STEPS; i++) {
		const struct inode *inode = at->d_inode;
		__u64 ino = inode->i_ino;
		__u32 name, known = WIRE_NO_FINGERPRINT;
		const struct dentry *parent;

		if (bloom_test(tlg_inode_bloom, s->half, inode_fingerprint(ino, s->key.dev))) {
			struct wire_inode_watch *watched;

			if (tlg_btrfs_dev_at && at->d_sb->s_magic == BTRFS_SUPER_MAGIC)
				goto whole; /* its key has another device number */
			s->key.ino = ino;
			watched = bpf_map_lookup_elem(&tlg_watch_inode, &s->key);
			if (watched && watched->generation == inode->i_generation) {
				s->hit[s->hits & (HITS_MAX - 1)] = watched->watch |
								   shared_flag(watched->watch) |
								   (leaf_steps >> i & HIT_LEAF);
				s->hits++;
				known = watched->sole_name;
			}
		}
		if ((__u64)inode == tlg_root_inode)
			goto top;
		if ((__u64)at == mnt_root)
			goto mounted;
		name = dentry_fingerprint(at);
		if (bloom_test(tlg_name_bloom, s->half, name) && known != name)
			goto whole;
		parent = at->d_parent;
		if (parent == at)
			goto top;
		at = parent;
		/* Not a directory that is part of the object, as that of a created file is. */
		if (!i && leaf_steps == HIT_LEAF && add_known_hits(s, at))
			return;
	}
	goto whole;
mounted:
	if (!no_watch_above(s)) {
		hits = s->hits;
		if (is_mount_watched(s) || hits)
			goto whole;
	}
top:
	if (s->hits <= HITS_MAX) {
		if (s->looked_at.version)
			keep_hits(s);
		return;
	}
whole:
	match_watches(s, leaves);
}

#endif /* TOLLGATE_LIB_WATCH_PREFILTER_BPF_H */
