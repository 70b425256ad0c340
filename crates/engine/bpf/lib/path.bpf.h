/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Paths from the dentry tree: text, leaf first (user space reverses it), and facts of an inode.
 * Like d_path() in fs/d_path.c, but without its retry if a directory above is renamed meanwhile.
 */
#ifndef TOLLGATE_LIB_PATH_BPF_H
#define TOLLGATE_LIB_PATH_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/load.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"

#define INLINE_NAME \
	40 /* names up to this length are copied by words, which is faster than a helper */

struct path_loop {
	struct scratch *s;
	struct path_cache *cache;
};

/*
 * Sequence numbers of renames and of mounts: nothing above a mount changes while both are the
 * same. Levels below a mount are compared one by one.
 */
static __always_inline __u64 tree_version(void)
{
	__u64 renames = tlg_symbols.rename_lock, mounts = tlg_symbols.mount_lock;

	if (!renames || !mounts)
		return 0;
	return LOAD_WORD(renames) << 32 | (__u32)LOAD_WORD(mounts) | 1ULL << 63;
}

/* The same, read once while `s->tree_version` is not reset: two helper calls less before v6.2. */
static __always_inline __u64 known_tree_version(struct scratch *s)
{
	if (!s->tree_version)
		s->tree_version = tree_version();
	return s->tree_version;
}

/* Hash and length of the name of a dentry: the length is the high half. */
static __always_inline __u64 name_hash_len(const struct dentry *dentry)
{
	if (IS_PAIR(qstr, hash, len))
		return LOAD_PAIR(qstr, AT(dentry, (__u64)dentry, d_name), hash);
	return (__u64)dentry->d_name.len << 32 | dentry->d_name.hash;
}

/* Whether levels are the same as when they were added, from an object up. */
static __always_inline int levels_are_same(const struct path_levels *levels,
					   const struct dentry *dentry)
{
	for (__u32 i = 0; i < CACHED_LEVELS; i++) {
		const struct dentry *parent;

		if (i >= levels->count)
			break;
		parent = dentry->d_parent;
		if (name_hash_len(dentry) != levels->hash_len[i] ||
		    (__u64)parent != levels->parent[i])
			return 0;
		dentry = parent;
	}
	return 1;
}

/* Adds the next level. */
static __always_inline void add_level(struct path_levels *levels, __u64 dentry, __u64 parent)
{
	__u32 at = levels->count & (CACHED_LEVELS - 1);

	levels->hash_len[at] =
		LOAD(dentry, dentry, d_name.len) << 32 | (__u32)LOAD(dentry, dentry, d_name.hash);
	levels->parent[at] = parent;
	levels->count++;
}

static __always_inline void copy_component(struct scratch *s, __u64 dentry)
{
	__u64 name = AT(dentry, dentry, d_name);
	__u32 len = LOAD(qstr, name, len);
	__u64 text = LOAD(qstr, name, name);
	__u8 *to = tail_at(s, s->used);

	len &= 0xff; /* NAME_MAX is 255 */
	if (len < INLINE_NAME && bpf_ksym_exists(bpf_rdonly_cast)) {
		__u64 *words = (__u64 *)to;

		words[0] = LOAD_WORD(text);
		if (len >= 8)
			words[1] = LOAD_WORD(text + 8);
		if (len >= 16)
			words[2] = LOAD_WORD(text + 16);
		if (len >= 24) {
			words[3] = LOAD_WORD(text + 24);
			words[4] = LOAD_WORD(text + 32);
		}
	} else if (bpf_probe_read_kernel(to, len, (void *)text)) {
		count_truncated(WIRE_TRUNC_PATH);
	}
	to[len] = 0;
	s->used += len + 1;
}

/* One step up from a dentry: 1 in the same mount, 2 across a mount, 0 at the top. */
static __always_inline int step_up(__u64 *dentry, __u64 *mnt)
{
	__u64 mount = *mnt - bpf_core_field_offset(struct mount, mnt);
	__u64 parent;

	if (*dentry != LOAD(vfsmount, *mnt, mnt_root))
		return 1;
	parent = LOAD(mount, mount, mnt_parent);
	if (parent == mount)
		return 0;
	*dentry = LOAD(mount, mount, mnt_mountpoint);
	*mnt = AT(mount, parent, mnt);
	return 2;
}

static long path_step(__u32 index, void *data)
{
	struct path_loop *loop = data;
	struct scratch *s = loop->s;
	struct path_walk *walk = &s->path_walk;
	__u64 parent;
	int step;

	if (walk->dentry == walk->root_dentry && walk->mnt == walk->root_mnt)
		return 1;
	step = step_up(&walk->dentry, &walk->mnt);
	if (step != 1) {
		walk->crossed = 1;
		return !step;
	}
	parent = LOAD(dentry, walk->dentry, d_parent);
	if (s->used - walk->from >= WIRE_NAME_BYTES) {
		count_truncated(WIRE_TRUNC_PATH);
		return 1;
	}
	if (!walk->crossed)
		add_level(&loop->cache->levels, walk->dentry, parent);
	copy_component(s, walk->dentry);
	if (parent == walk->dentry) {
		/* No parent: memfd_create() and the like, which simple_dname() marks as deleted. */
		walk->deleted = 1;
		walk->uncacheable = 1;
		return 1;
	}
	walk->dentry = parent;
	return 0;
}

/*
 * Whether events carry what records have no field for: paths of objects, and the fields of
 * context.bpf.h.
 */
const volatile __u32 tlg_context;

/*
 * Appends the components of the path of `s->object[index]`, leaf first; the root is one empty
 * component. Returns whether the object is deleted.
 */
__noinline int walk_path(struct scratch *s, __u32 index)
{
	struct task_struct *task = current();
	struct path_loop loop = { .s = s };
	struct path_walk *walk;
	struct object *object;
	__u64 fs, root, dentry;

	if (!s)
		return 0;
	object = &s->object[index & (WIRE_ITEMS - 1)];
	fs = (__u64)FOLLOW(task_struct, task, fs);
	root = AT(fs_struct, fs, root);
	dentry = object->dentry;
	loop.cache = &s->path_cache[PATH_OBJECT];
	loop.cache->levels.count = 0;
	walk = &s->path_walk;
	walk->dentry = dentry;
	walk->mnt = object->mnt;
	walk->root_dentry = LOAD(path, root, dentry);
	walk->root_mnt = LOAD(path, root, mnt);
	walk->from = s->used;
	walk->crossed = walk->uncacheable = 0;
	/* d_unlinked(): unhashed and not a root. */
	walk->deleted =
		!LOAD(dentry, dentry, d_hash.pprev) && LOAD(dentry, dentry, d_parent) != dentry;
	bpf_loop(WIRE_NAME_BYTES, path_step, &loop, 0);
	if (s->used == walk->from) {
		*(__u8 *)tail_at(s, s->used) = 0;
		s->used++;
	}
	return walk->deleted;
}

/* Whether the cache has the path of `s->path_walk`. */
static __always_inline int cache_holds(struct scratch *s, const struct path_cache *cache,
				       const struct dentry *dentry)
{
	const struct path_walk *walk = &s->path_walk;

	if (!cache->filled || cache->dentry != walk->dentry || cache->mnt != walk->mnt ||
	    cache->root_dentry != walk->root_dentry || cache->root_mnt != walk->root_mnt ||
	    cache->deleted != walk->deleted)
		return 0;
	if (!levels_are_same(&cache->levels, dentry))
		return 0;
	return !cache->version || cache->version == known_tree_version(s);
}

/* Copies four words at a time, up to 31 bytes too many; `most` is a constant, and a multiple of 32. */
static __always_inline void copy_words(__u64 *to, const __u64 *from, __u32 bytes, __u32 most)
{
	for (__u32 i = 0; i < most / 8; i += 4) {
		if (i * 8 >= bytes)
			break;
		to[i] = from[i];
		to[i + 1] = from[i + 1];
		to[i + 2] = from[i + 2];
		to[i + 3] = from[i + 3];
	}
}

/* Appends the components of a path. Returns whether the object is deleted. */
static __always_inline __u32 append_path(struct scratch *s, const struct task_struct *task,
					 const struct dentry *dentry, const struct vfsmount *mnt,
					 enum path_slot slot)
{
	struct path_cache *cache = &s->path_cache[slot];
	struct path_loop loop = { .s = s, .cache = cache };
	struct path_walk *walk = &s->path_walk;
	__u32 len;

	walk->dentry = (__u64)dentry;
	walk->mnt = (__u64)mnt;
	walk->root_dentry = (__u64)task->fs->root.dentry;
	walk->root_mnt = (__u64)task->fs->root.mnt;
	walk->from = s->used;
	walk->crossed = walk->uncacheable = 0;
	/* d_unlinked(), with trusted loads. */
	walk->deleted = !dentry->d_hash.pprev && dentry->d_parent != dentry;
	if (cache_holds(s, cache, dentry)) {
		copy_words(tail_at(s, s->used), cache->text, cache->bytes, CACHED_TEXT);
		s->used += cache->bytes;
		return walk->deleted;
	}
	cache->filled = cache->levels.count = 0;
	cache->deleted = walk->deleted;
	cache->dentry = walk->dentry;
	cache->mnt = walk->mnt;
	cache->version = known_tree_version(s);
	bpf_loop(WIRE_NAME_BYTES, path_step, &loop, 0);
	len = s->used - walk->from;
	if (walk->uncacheable || cache->levels.count > CACHED_LEVELS || len > CACHED_TEXT ||
	    (walk->crossed && !cache->version))
		return walk->deleted;
	if (!walk->crossed)
		cache->version = 0;
	copy_words(cache->text, tail_at(s, walk->from), len, CACHED_TEXT);
	cache->root_dentry = walk->root_dentry;
	cache->root_mnt = walk->root_mnt;
	cache->bytes = len;
	cache->filled = 1;
	return walk->deleted;
}

static __always_inline void fill_inode(struct wire_inode *to, __u64 inode)
{
	__u64 sb = LOAD(inode, inode, i_sb);

	to->ino = LOAD(inode, inode, i_ino);
	to->dev = LOAD(super_block, sb, s_dev);
	to->rdev = LOAD(inode, inode, i_rdev);
	to->mode = LOAD(inode, inode, i_mode);
	to->uid = LOAD(inode, inode, i_uid.val);
	to->gid = LOAD(inode, inode, i_gid.val);
	to->generation = LOAD(inode, inode, i_generation);
}

/* The same for a trusted pointer. */
static __always_inline void copy_inode(struct wire_inode *to, const struct inode *inode)
{
	to->ino = inode->i_ino;
	to->dev = inode->i_sb->s_dev;
	to->rdev = inode->i_rdev;
	to->mode = inode->i_mode;
	if (IS_PAIR(inode, i_uid, i_gid)) {
		__u64 owner = LOAD_PAIR(inode, inode, i_uid);

		to->uid = owner;
		to->gid = owner >> 32;
	} else {
		to->uid = inode->i_uid.val;
		to->gid = inode->i_gid.val;
	}
	to->generation = inode->i_generation;
}

#endif /* TOLLGATE_LIB_PATH_BPF_H */
