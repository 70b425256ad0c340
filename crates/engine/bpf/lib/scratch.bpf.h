/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where an event is built. One area per CPU: the programs of this engine run with preemption off and
 * never inside one another. The programs of a preemptible engine need an area per task instead.
 */
#ifndef TOLLGATE_LIB_SCRATCH_BPF_H
#define TOLLGATE_LIB_SCRATCH_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"

#define TAIL_MASK   (WIRE_TAIL_BYTES - 1)
#define TAIL_SLACK  8192 /* the largest single write behind a masked offset */
#define DEPTH_MAX   64 /* components of a path that are compared with watches */
#define DEPTH_MASK  (DEPTH_MAX - 1)
#define PREFIX_MASK (2 * DEPTH_MAX - 1)
#define HITS_MAX    16
#define HIT_LEAF \
	0x10000 /* the object itself, not a directory above it; below it the watch's number */

/* What is known of an object beside what the event says. */
struct object {
	__u64 dentry; /* of the object itself, or 0 */
	__u64 mnt;
	__u64 base_dentry; /* what its name starts from, or 0 */
	__u64 base_mnt;
	__u64 last; /* struct qstr of a name below `dentry` that is meant, or 0 */
	__u32 at; /* offset of its wire_object in the tail */
	__u32 text; /* its name must be compared as text */
};

/* A name being cut into components. Kept here and not on the stack: the verifier follows stack words. */
struct name_scan {
	__u64 hash; /* of the component's whole words so far */
	__u64 word; /* its bytes since */
	__u32 at; /* where in the tail the name starts */
	__u32 len;
	__u32 bytes; /* of the component so far */
	__u32 too_deep;
	__u32 floor; /* depth that `..` does not go below */
};

#define CACHED_LEVELS 8
#define CACHED_TEXT   192

/*
 * The path that this CPU turned into text last, and what it went through. A level is good while its
 * dentry still has its parent, its name's hash (which the kernel keys with the parent) and its length:
 * that is three loads a level, where the text costs ten. Above a mount it is good while nothing was
 * moved or mounted: what a mount stands on is not freed.
 */
struct path_cache {
	__u64 dentry;
	__u64 mnt;
	__u64 root_dentry;
	__u64 root_mnt;
	__u64 version; /* tree_version() when the path crosses a mount, or 0 */
	__u32 filled;
	__u32 levels; /* below the first mount that it crosses */
	__u32 bytes;
	__u32 deleted;
	__u32 hash[CACHED_LEVELS];
	__u32 len[CACHED_LEVELS];
	__u64 parent[CACHED_LEVELS];
	__u64 text[CACHED_TEXT / 8];
};

enum path_slot {
	PATH_EXE,
	PATH_CWD,
	PATH_OBJECT,
	PATH_SLOTS,
};

#define CACHED_LABEL 64 /* a longer one is read again for each event */

/* The command line that this CPU copied last, and whose it is: a task's image since its last exec. */
struct title_cache {
	__u64 start; /* of the task */
	__u64 exec; /* how often it has started a program */
	__u32 pid;
	__u32 len;
	__u64 text[WIRE_PROCTITLE_BYTES / 8];
	__u64 label; /* of AppArmor, whose text this is; 0 for none */
	__u32 label_len;
	__u32 label_mode;
	__u64 label_text[CACHED_LABEL / 8];
};

struct scratch {
	struct wire_event event;
	__u8 tail[WIRE_TAIL_BYTES +
		  TAIL_SLACK]; /* directly behind the event: both leave together */
	__u32 used; /* bytes of the tail */
	__u32 epoch; /* of the plan whose watches are looked for */
	__u32 half; /* that it is in */
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u32 exe_hits;
	__u32 exe_hit[HITS_MAX];
	__u32 depth;
	__u32 index; /* a number that passes through memory */
	__u64 name; /* a struct qstr that is to be hashed */
	struct object object[WIRE_ITEMS];
	__u64 component[DEPTH_MAX]; /* hashes, leaf first */
	__u64 prefix
		[2 *
		 DEPTH_MAX]; /* hashes of the paths from the root down, by number of components */
	struct name_scan scan;
	struct path_cache path_cache[PATH_SLOTS];
	struct title_cache title_cache;
	__u64 unwatched_mnt; /* a mount above which nothing was watched at unwatched_version, by unwatched_epoch */
	__u64 unwatched_version;
	__u32 unwatched_epoch;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one per possible CPU, set by the loader */
	__type(key, __u32);
	__type(value, struct scratch);
} tlg_scratch SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&tlg_scratch, &cpu);
}

/* Address `offset` bytes into the tail; the mask is what the verifier must see before each use. */
static __always_inline void *tail_at(struct scratch *s, __u32 offset)
{
	return &s->tail[offset & TAIL_MASK];
}

#endif /* TOLLGATE_LIB_SCRATCH_BPF_H */
