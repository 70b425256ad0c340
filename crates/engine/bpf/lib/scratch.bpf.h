/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Per-CPU memory in which an event is built. The programs of this engine run with preemption off
 * and never nest. A preemptible engine would need one area per task.
 */
#ifndef TOLLGATE_LIB_SCRATCH_BPF_H
#define TOLLGATE_LIB_SCRATCH_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"

#define TAIL_MASK   (WIRE_TAIL_BYTES - 1)
#define TAIL_SLACK  8192 /* largest single write after a masked offset */
#define DEPTH_MAX   64 /* leading path components that are compared with watches by name */
#define LEVELS_MAX  16384 /* directories that are compared by inode */
#define DEPTH_MASK  (DEPTH_MAX - 1)
#define PREFIX_MASK (2 * DEPTH_MAX - 1)
#define HITS_MAX    16
#define MOUNTS_MAX  5
#define WATCH_MASK  0xffff /* the watch in a hit */
#define HIT_LEAF \
	0x10000 /* flag of a hit: the object itself, not a directory above it; the low bits are the watch */
#define HIT_FOREIGN \
	0x20000 /* flag of a hit: by names that any user can make (SCOPE_FOREIGN), or by an inode \
		   of several watches: shared_flag() */

#define HIT_NAMED 0x80000 /* flag of a hit: by the path, not by an inode */

/* Whose names a mount namespace has. */
enum name_scope {
	SCOPE_INITIAL, /* the initial one */
	SCOPE_PRIVATE, /* one that root made: its names count, but watches do not follow them */
	SCOPE_FOREIGN, /* one of a user namespace, which any user can make */
};

/* Facts of an object that are not in the event. */
struct object {
	__u64 dentry; /* dentry of the object, or 0 */
	__u64 mnt;
	__u64 base_dentry; /* where its name starts, or 0 */
	__u64 base_mnt;
	__u64 last; /* struct qstr of a name below `dentry`, or 0 */
	__u32 at; /* offset of its wire_object in the tail */
	__u32 text; /* the name is matched as text */
};

/* State of splitting a name into components. Not on the stack: the verifier tracks stack words. */
struct name_scan {
	__u64 hash; /* hash of the component's complete words */
	__u64 word; /* bytes after the last complete word */
	__u32 at; /* where in the tail the name starts */
	__u32 len;
	__u32 bytes; /* of the component so far */
	__u32 floor; /* depth that `..` does not go below */
};

/* State of a walk from an object to the root. Not on the stack, as above. */
struct watch_walk {
	__u64 dentry;
	__u64 mnt;
	__u64 inode; /* of the last dentry */
	__u32 leaf; /* HIT_LEAF at the object itself, else 0 */
	__u32 flag; /* HIT_FOREIGN above a mount that any user can make, else 0 */
	__u32 cross; /* continue above the root of a mount with its mount point */
	__u32 is_dir; /* this is the directory of the object, whose name is in `component` */
};

#define CACHED_LEVELS 8
#define CACHED_TEXT   192

/*
 * Levels of a path, from an object up. A level is the same while its dentry has the same parent, name
 * hash (keyed with the parent by the kernel) and length. Memory of an object that was removed can be
 * that of another one, also with the same inode number and generation.
 */
struct path_levels {
	__u64 hash_len[CACHED_LEVELS]; /* name_hash_len() */
	__u64 parent[CACHED_LEVELS];
	__u32 count; /* larger if not all are kept */
};

/*
 * The last path that this CPU converted to text. Comparing a level takes three loads, its text ten.
 * Above a mount the text is valid while nothing is moved or mounted: a mount point is not freed.
 */
struct path_cache {
	__u64 dentry;
	__u64 mnt;
	__u64 root_dentry;
	__u64 root_mnt;
	__u64 version; /* tree_version() when the path crosses a mount, or 0 */
	__u32 filled;
	__u32 bytes;
	__u32 deleted;
	struct path_levels levels; /* below the first mount that it crosses */
	__u64 text[CACHED_TEXT / 8];
};

enum path_slot {
	PATH_EXE,
	PATH_CWD,
	PATH_OBJECT,
	PATH_SLOTS,
};

/* State of converting a path to text. Not on the stack, as above. */
struct path_walk {
	__u64 dentry;
	__u64 mnt;
	__u64 root_dentry;
	__u64 root_mnt;
	__u32 from; /* start of the text in the tail */
	__u32 deleted;
	__u32 crossed; /* the path crosses a mount */
	__u32 uncacheable; /* the object has no parent directory */
};

#define KNOWN_DIRECTORIES 16 /* a power of two */
#define KNOWN_HITS	  4

/*
 * The watches that were hit at a directory and above, up to the root of its mount. They are the same
 * while nothing is moved or mounted, and the watched inodes and each level are the same.
 */
struct known_directory {
	__u64 dentry; /* or 0 */
	__u64 mnt;
	__u64 version; /* tree_version() */
	__u32 epoch;
	__u32 learned; /* tlg_learned */
	__u32 hits;
	__u32 hit[KNOWN_HITS];
	struct path_levels levels; /* below the root of the mount */
};

#define CACHED_LABEL 64 /* longer labels are read for each event */

/* The last command line and label that this CPU read, with their task and its exec count. */
struct title_cache {
	__u64 start; /* of the task */
	__u64 exec; /* exec count of the task */
	__u32 pid;
	__u32 len;
	__u64 text[WIRE_PROCTITLE_BYTES / 8];
	__u64 label; /* AppArmor label with this text; 0 for none */
	__u32 label_len;
	__u32 label_mode;
	__u64 label_text[CACHED_LABEL / 8];
};

struct scratch {
	struct wire_event event;
	__u8 tail[WIRE_TAIL_BYTES +
		  TAIL_SLACK]; /* directly after the event: both are submitted together */
	__u32 used; /* bytes of the tail */
	__u32 epoch; /* epoch of the plan whose watches are matched */
	__u32 half; /* half of that plan */
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u32 exe_hits;
	__u32 exe_hit[HITS_MAX];
	__u32 depth; /* components of the path of the last walk */
	__u32 no_state; /* the state of the syscall is missing: its objects are not known */
	__u32 cwd_changed; /* by the syscall: what the working directory was is not known */
	__u32 index; /* a number stored to make the verifier forget its value */
	__u64 name; /* struct qstr to hash */
	__u64 leaf_dentry; /* object of the last walk, or 0 */
	__u64 leaf_mnt; /* its mount */
	__u64 bound; /* root of the first mount, if that is not the root of its file system, or 0 */
	__u64 entry; /* entry_key() of the object of the last walk, or 0 */
	__u64 learn; /* key of a watched name that leads to another inode than its watch has, or 0 */
	__u32 leaf_watch; /* 1 + watch, or set, of the inode of that object, or 0 */
	__u32 scope; /* enum name_scope of its mount */
	__u64 mount[MOUNTS_MAX]; /* some mounts of a file system */
	__u64 mount_root[MOUNTS_MAX]; /* their roots */
	__u32 mounts; /* bits of those that show the object */
	__u64 frame; /* address of a hook's arguments on the stack */
	__u32 shared; /* HIT_FOREIGN for objects, 0 for programs, which are compared by inode */
	struct object object[WIRE_ITEMS];
	__u64 component[DEPTH_MAX]; /* hashes, leaf first; a deeper path goes on at the start */
	__u64 prefix
		[2 *
		 DEPTH_MAX]; /* hashes of the paths from the root down, by number of components */
	struct name_scan scan;
	struct watch_walk walk;
	struct path_walk path_walk;
	__u32 last_start; /* where the last component of a name starts and ends in it */
	__u32 last_end;
	__u64 tree_version; /* tree_version() of this event, or 0 if not yet read */
	struct path_cache path_cache[PATH_SLOTS];
	struct title_cache title_cache;
	struct wire_inode_key key; /* of the inode that is looked up: the stack is full */
	struct known_directory known[KNOWN_DIRECTORIES];
	struct {
		__u64 dentry;
		__u64 version; /* or 0: nothing to keep */
		__u32 learned;
		__u32 hits; /* before those of the directory */
	} looked_at; /* a directory that was not known */
	__u64 unwatched_mnt; /* no watch above this mount at unwatched_version, in unwatched_epoch */
	__u64 unwatched_version;
	__u32 unwatched_epoch;
	__u32 unwatched_learned; /* tlg_learned at that time */
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

/* Address in the tail. The verifier needs the mask before each use. */
static __always_inline void *tail_at(struct scratch *s, __u32 offset)
{
	return &s->tail[offset & TAIL_MASK];
}

#endif /* TOLLGATE_LIB_SCRATCH_BPF_H */
