/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A first look at whether an object is watched, for hooks whose objects the kernel vouches for: most are
 * not, and this tells for a fraction of what watch_ancestors() costs. Two tables of bits say for each
 * step up whether an inode, or the last component of a path, may be that of a watch. What may be watched
 * by its name alone is then compared whole.
 */
#ifndef TOLLGATE_GLANCE_BPF_H
#define TOLLGATE_GLANCE_BPF_H

#define GLANCE_BITS  65536 /* so many that a thousand watches rarely meet another name's bit */
#define GLANCE_STEPS 24 /* an object deeper than this is compared whole */
#define SHORT_NAME \
	32 /* smallest DNAME_INLINE_LEN: a name so short lies in its dentry, before v6.2 */

__u64 tlg_inode_bits[2][GLANCE_BITS / 64];
__u64 tlg_name_bits[2][GLANCE_BITS / 64];

static __always_inline __u32 inode_spot(__u64 ino, __u32 dev)
{
	return mix(tlg_seed, ino ^ (__u64)dev << 32) >> 48;
}

/* Of a name's first eight bytes. */
static __always_inline __u32 name_spot(__u64 word, __u32 len)
{
	if (len < 8)
		word &= ~(~0ULL << (8 * len));
	return mix(tlg_seed ^ len, word) >> 48;
}

static __always_inline int bit_at(const __u64 (*bits)[GLANCE_BITS / 64], __u32 half, __u32 spot)
{
	return (bits[half & 1][spot / 64 & (GLANCE_BITS / 64 - 1)] >> (spot & 63)) & 1;
}

/* HIT_LEAF for the first `left` steps. No branch: the verifier would follow both for each number. */
static __always_inline __u32 leaf_at(__u32 step, __u32 left)
{
	return (((__u64)step - left) >> 63) * HIT_LEAF;
}

static __always_inline __u32 dentry_spot(const struct dentry *dentry)
{
	__u32 len = dentry->d_name.len;

	if (!bpf_ksym_exists(bpf_rdonly_cast) && len < SHORT_NAME)
		return name_spot(*(const __u64 *)dentry->d_iname, len);
	return name_spot(LOAD_WORD((__u64)dentry->d_name.name), len);
}

/* Whether nothing was watched above a mount, and nothing has changed there. */
static __always_inline __u32 clear_above(const struct scratch *s, __u64 mnt)
{
	__u64 version = tree_version();

	return version && s->clear_mnt == mnt && s->clear_version == version &&
	       s->clear_epoch == s->epoch;
}

/* Whether the place where `s->object[0].mnt` is mounted, or what is above, is watched. */
__noinline int mounted_below_watch(struct scratch *s)
{
	__u64 mnt, mount, parent, version;

	if (!s)
		return 1;
	mnt = s->object[0].mnt;
	version = tree_version();
	mount = mnt - bpf_core_field_offset(struct mount, mnt);
	parent = LOAD(mount, mount, mnt_parent);
	if (parent == mount)
		return 0;
	s->object[0].dentry = LOAD(mount, mount, mnt_mountpoint);
	s->object[0].mnt = AT(mount, parent, mnt);
	s->object[0].last = 0;
	seen_watch(s, 1);
	if (s->hits)
		return 1;
	s->clear_mnt = mnt;
	s->clear_version = version;
	s->clear_epoch = s->epoch;
	return 0;
}

/*
 * Which watches an object hits, by the plan of watch_by(): s->hit, s->hits. `last` is a struct qstr of a name below `dentry` that is
 * meant, or 0; `leaves` says how many steps count as the object itself.
 */
static __always_inline void glance(struct scratch *s, const struct dentry *dentry,
				   const struct vfsmount *mnt, __u64 last, __u32 leaves)
{
	struct hits hits = { .count = &s->hits, .list = s->hit };
	const struct dentry *at = dentry;
	__u32 dev = dentry->d_sb->s_dev;
	__u32 exact = 0, left = last ? leaves - 1 : leaves;
	__u32 half = s->half;
	__u32 top = 0;

	s->hits = 0;
	if (last && bit_at(tlg_name_bits, half,
			   name_spot(LOAD_WORD(LOAD(qstr, last, name)), LOAD(qstr, last, len))))
		exact = 1;
	for (__u32 i = 0; i < GLANCE_STEPS && !exact; i++) {
		__u64 ino = at->d_inode->i_ino;
		struct wire_watched *watched = NULL;

		if (bit_at(tlg_inode_bits, half, inode_spot(ino, dev))) {
			struct wire_inode_key key = { .ino = ino, .dev = dev, .half = half };

			watched = bpf_map_lookup_elem(&tlg_inodes, &key);
			if (watched)
				add_hit(&hits, watched->watch | leaf_at(i, left));
		}
		if (ino == tlg_root.ino && dev == tlg_root.dev) {
			top = 1;
			break;
		}
		if (at == mnt->mnt_root) {
			top = 2;
			break;
		}
		if (bit_at(tlg_name_bits, half, dentry_spot(at)) &&
		    !(watched && watched->sole && watched->spot == dentry_spot(at)))
			exact = 1;
		if (at->d_parent == at) {
			top = 1;
			break;
		}
		at = at->d_parent;
	}
	if (!top)
		exact = 1;
	if (!exact && top == 2 && !clear_above(s, (__u64)mnt)) {
		__u32 hit = s->hits;

		s->object[0].mnt = (__u64)mnt;
		exact = mounted_below_watch(s) || hit;
	}
	if (!exact)
		return;
	s->object[0].dentry = (__u64)dentry;
	s->object[0].mnt = (__u64)mnt;
	s->object[0].last = last;
	seen_watch(s, leaves);
}

#endif /* TOLLGATE_GLANCE_BPF_H */
