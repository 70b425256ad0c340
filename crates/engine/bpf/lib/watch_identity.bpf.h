/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What watches are compared with: inodes, and names in mount namespaces.
 *
 * A name leads to another inode after a rename, link, unlink or create. The hook that sees it
 * first makes that inode one of the watch, so that it is also matched where the name does not
 * count: under a hard link or a bind mount, or in a user namespace.
 */
#ifndef TOLLGATE_LIB_WATCH_IDENTITY_BPF_H
#define TOLLGATE_LIB_WATCH_IDENTITY_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/watch_hash.bpf.h"

#define BTRFS_SUPER_MAGIC 0x9123683e /* include/uapi/linux/magic.h */

/*
 * Address of the inode of the root directory of watched paths. Number and device do not identify
 * it: on btrfs every subvolume's root is inode 256. Its mount keeps it in memory.
 */
__u64 tlg_root_inode;

/* Address of the user namespace that owns the mount namespace of that directory. */
__u64 tlg_root_user_ns;

/* Address of the initial mount namespace; 0 if unknown. */
__u64 tlg_initial_ns;

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

/* Keys: the hash of a path, or entry_key() of a directory and a name in it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u64);
	__type(value, struct wire_name_watch);
} tlg_watch_path SEC(".maps");

/* Sets of watches, those of each plan in its half. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * WIRE_WATCH_SETS);
	__type(key, __u32);
	__type(value, struct wire_watch_set);
} tlg_watch_sets SEC(".maps");

/* Changes whenever tlg_watch_inode does, other than for a new plan. */
__u32 tlg_learned;

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

/* Whether names below a mount are names of watches. */
static __always_inline __u32 name_scope(__u64 mnt)
{
	__u64 mount = mnt - bpf_core_field_offset(struct mount, mnt);
	__u64 ns = LOAD(mount, mount, mnt_ns);

	if (ns && ns == tlg_initial_ns)
		return SCOPE_INITIAL;
	return LOAD(mnt_namespace, ns, user_ns) == tlg_root_user_ns ? SCOPE_PRIVATE : SCOPE_FOREIGN;
}

/* Key of a name in a directory; `name` is its hash. */
static __always_inline __u64 entry_key(const struct scratch *s, const struct wire_identity *dir,
				       __u64 name)
{
	__u64 hash = mix(mix(~tlg_seed, dir->ino), (__u64)dir->dev << 32 | dir->generation);

	return mix(hash, name) ^ s->half;
}

/* d_unlinked(): the name of a dentry is gone or leads to another one. */
static __always_inline int is_unlinked(__u64 dentry)
{
	return !LOAD(dentry, dentry, d_hash.pprev) && LOAD(dentry, dentry, d_parent) != dentry;
}

/* A set of watches of a half; NULL if `set` is a single watch. `at` is room for its index. */
static __always_inline struct wire_watch_set *watch_set(__u32 *at, __u32 half, __u32 set)
{
	*at = half * WIRE_WATCH_SETS + (set & ~WIRE_WATCH_SET);
	return set & WIRE_WATCH_SET ? bpf_map_lookup_elem(&tlg_watch_sets, at) : NULL;
}

/* Takes a watch, or a set, from an inode that its name led to before. */
static __always_inline void forget_inode(struct scratch *s, const struct wire_identity *inode,
					 __u32 watch)
{
	struct wire_inode_key key = { .ino = inode->ino, .dev = inode->dev, .half = s->half };
	struct wire_inode_watch *known;
	struct wire_watch_set *pair;

	if (!inode->ino)
		return;
	known = bpf_map_lookup_elem(&tlg_watch_inode, &key);
	if (!known || known->generation != inode->generation)
		return;
	if (known->watch == watch) {
		bpf_map_delete_elem(&tlg_watch_inode, &key);
		return;
	}
	/* Of a pair the other one stays; a larger set stays whole. */
	pair = watch_set(&key.half, s->half, known->watch); /* the key is not needed any more */
	if (pair && pair->count == 2 && (pair->watch[0] == watch || pair->watch[1] == watch))
		known->watch = pair->watch[pair->watch[0] == watch];
}

/*
 * Makes the inode of `s->leaf_dentry` one of the watch whose name is `s->learn`. An open that ends
 * while another task replaces the file can come here after that task, with the old inode: so the
 * last two inodes of a name stay. An inode that is also another watch's stays that one's: a user
 * could give a file another watch by a hard link, and with it another key.
 */
__noinline int learn_inode(struct scratch *s)
{
	struct wire_inode_watch watched = {};
	struct wire_inode_key key = {};
	struct wire_inode_watch *known;
	struct wire_name_watch *name;
	struct wire_identity oldest;
	__u64 learn, inode, sb;
	__u32 at;

	if (!s)
		return 0;
	learn = s->learn;
	s->learn = 0;
	name = bpf_map_lookup_elem(&tlg_watch_path, &learn);
	if (!name || !s->leaf_dentry || is_unlinked(s->leaf_dentry))
		return 0;
	inode = LOAD(dentry, s->leaf_dentry, d_inode);
	if (!inode)
		return 0;
	sb = LOAD(inode, inode, i_sb);
	key.ino = LOAD(inode, inode, i_ino);
	key.dev = watch_dev(inode);
	key.half = s->half;
	watched.watch = name->watch;
	watched.sole_name = name->sole_name;
	watched.generation = LOAD(inode, inode, i_generation);
	known = bpf_map_lookup_elem(&tlg_watch_inode, &key);
	if (known && known->generation == watched.generation) {
		if (known->sole_name != WIRE_NO_FINGERPRINT) {
			known->sole_name = WIRE_NO_FINGERPRINT;
			__sync_fetch_and_add(&tlg_learned, 1);
		}
		return 0;
	}
	if (bpf_map_update_elem(&tlg_watch_inode, &key, &watched, BPF_ANY)) {
		count_truncated(WIRE_TRUNC_WATCHES);
		return 0;
	}
	bloom_add(tlg_inode_bloom, s->half,
		  inode_fingerprint(key.ino, LOAD(super_block, sb, s_dev)));
	oldest = name->led_to[1];
	/* What is mounted there hides the other one, and goes again. */
	at = LOAD(vfsmount, s->leaf_mnt, mnt_root) == s->leaf_dentry;
	at &= 1; /* for the verifier */
	if (!at)
		name->led_to[1] = name->led_to[0];
	name->led_to[at].ino = key.ino;
	name->led_to[at].dev = key.dev;
	name->led_to[at].generation = watched.generation;
	forget_inode(s, &oldest, watched.watch);
	__sync_fetch_and_add(&tlg_learned, 1);
	return 0;
}

#endif /* TOLLGATE_LIB_WATCH_IDENTITY_BPF_H */
