/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a syscall in progress, recorded by hooks inside the kernel until the syscall ends:
 * names that only the kernel could write, inodes, and the watches that they match.
 *
 * A syscall can sleep between a hook and its end, so the state is stored by thread. A slot is
 * found by thread number, up to STATE_PROBES slots further on collision: no update copies a slot
 * and nothing is allocated. If all are taken, a stale one is evicted: its syscall hangs, or its
 * task died inside. A syscall without a slot has its names read from user memory at its end, and
 * flagged.
 *
 * An io_uring operation has a slot of its own beside that of the syscall: the kernel runs it on
 * the way out of any syscall, or inside an exec.
 */
#ifndef TOLLGATE_LIB_SYSCALL_STATE_BPF_H
#define TOLLGATE_LIB_SYSCALL_STATE_BPF_H

#include "wire.h"
#include "lib/fs_filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/plan.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"

#define STATE_SLOTS	 1024 /* a power of two */
#define STATE_PROBES	 4
#define STATE_TEXT_BYTES 8192 /* names of one syscall; a power of two */
#define SHORT_TEXT \
	64 /* names up to this length are copied by words, which is faster than a helper */
#define SOCKADDR_BYTES	  128 /* struct sockaddr_storage */
#define HOOKED_FACTS	  (WIRE_FACT_HOOKED | WIRE_FACT_AUX)
#define STATE_STALE_TICKS 10000 /* jiffies after which a slot can be evicted */
#define STATE_URING_OP	  0x80000000U /* flag of a thread number: its io_uring operation */

struct syscall_state {
	__u32 thread; /* owner: thread number, with STATE_URING_OP for an operation; 0 if the slot is free */
	__u32 syscall; /* index in the syscall table */
	__u32 epoch; /* epoch of the plan that decides about the syscall */
	__u64 since; /* kernel ticks */
	__u32 items;
	__u32 text_used;
	__u32 open_flags; /* open flags that the kernel uses */
	__u32 open_mode;
	__u32 opened; /* open_flags and open_mode are valid */
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u64 mnt; /* mount of the last directory */
	__u64 filename[WIRE_ITEMS]; /* struct filename behind an item's name */
	__u64 dir[WIRE_ITEMS]; /* inode of a PARENT item */
	__u64 last[WIRE_ITEMS]; /* hash and length of the last component of its name */
	__u32 name_at[WIRE_ITEMS];
	__u32 path_at[WIRE_ITEMS];
	__u32 path_used; /* of struct state_paths */
	__u32 address_len;
	__u8 address[SOCKADDR_BYTES]; /* of a socket */
	__u32 deletes_allowed; /* successful may_delete() checks of this syscall */
	__u32 refused; /* the last item is an object that may_open() refused; its name follows */
	__u32 aux_count;
	struct wire_aux aux[WIRE_AUX_RECORDS];
	struct wire_object item[WIRE_ITEMS];
	__u8 text[STATE_TEXT_BYTES + WIRE_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* STATE_SLOTS if the engine has hooks inside the kernel */
	__type(key, __u32);
	__type(value, struct syscall_state);
} tlg_sys_state SEC(".maps");

/*
 * Set when a slot could not be claimed: from then on a syscall without state may have matched a
 * watch.
 */
__u32 tlg_state_overflow;

/* Whether io_uring operations are hooked. */
volatile __u32 tlg_uring;

/* Whether the engine has hooks inside the kernel. */
const volatile __u32 tlg_hooked;

static __always_inline struct syscall_state *state_at(__u32 index)
{
	__u32 key = index & (STATE_SLOTS - 1);

	return bpf_map_lookup_elem(&tlg_sys_state, &key);
}

/* Owner of the slot of a thread's syscall or io_uring operation. */
static __always_inline __u32 state_owner(__u32 thread, __u32 key)
{
	return key < WIRE_URING_FIRST ? thread : thread | STATE_URING_OP;
}

/* Slot of an owner, or NULL. */
static __always_inline struct syscall_state *state_lookup(__u32 thread)
{
	for (__u32 i = 0; i < STATE_PROBES; i++) {
		struct syscall_state *state = state_at(thread + i);

		if (!state || state->thread == thread)
			return state;
	}
	return NULL;
}

/*
 * State of a thread's syscall, or NULL. `syscall` is the entry of the plan in force; set to the
 * entry of the plan of the slot. A slot of an older plan than the previous one is ignored.
 */
static __always_inline struct syscall_state *state_find(__u32 thread, __u32 key,
							struct wire_syscall **syscall)
{
	struct syscall_state *state = state_lookup(state_owner(thread, key));
	struct wire_syscall *before;

	if (!state || state->syscall != key)
		return NULL;
	if (state->epoch == (*syscall)->epoch)
		return state;
	if (state->epoch != tlg_epoch_prev)
		return NULL;
	before = plan_syscall_at(state->epoch, key);
	if (!before)
		return NULL;
	*syscall = before;
	return state;
}

/* Claims a slot for a syscall of the current task: its own, emptied; a free one; or a stale one. */
static __always_inline struct syscall_state *state_claim(const struct task_struct *task, __u32 key,
							 const struct wire_syscall *syscall)
{
	__u32 thread = state_owner(task->pid, key);
	__u64 now = bpf_jiffies64();
	struct syscall_state *state = NULL;

	for (__u32 i = 0; i < STATE_PROBES && !state; i++) {
		struct syscall_state *slot = state_at(thread + i);

		if (!slot)
			return NULL;
		if (slot->thread == thread ||
		    !__sync_val_compare_and_swap(&slot->thread, 0, thread))
			state = slot;
	}
	for (__u32 i = 0; i < STATE_PROBES && !state; i++) {
		struct syscall_state *slot = state_at(thread + i);
		__u32 owner;

		tlg_state_overflow = 1;
		if (!slot)
			return NULL;
		owner = slot->thread;
		if (now - slot->since > STATE_STALE_TICKS &&
		    __sync_val_compare_and_swap(&slot->thread, owner, thread) == owner)
			state = slot;
	}
	if (!state) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	state->syscall = key;
	state->epoch = syscall->epoch;
	state->since = now;
	state->items = state->text_used = state->open_flags = state->hits = 0;
	state->deletes_allowed = state->refused = 0;
	state->aux_count = state->opened = 0;
	state->mnt = 0;
	state->address_len = 0;
	if (tlg_context)
		state->path_used = 0;
	return state;
}

/* The slot of the syscall, or a new one. */
static __always_inline struct syscall_state *
state_find_or_claim(const struct task_struct *task, __u32 key, struct wire_syscall **syscall)
{
	struct syscall_state *state = state_find(task->pid, key, syscall);

	return state ? state : state_claim(task, key, *syscall);
}

/* Frees the slot of an owner unless it has been evicted. */
static __always_inline void state_free(struct syscall_state *state, __u32 owner)
{
	__sync_val_compare_and_swap(&state->thread, owner, 0);
}

/*
 * Frees the slot of a syscall that the plan in force has no rule for. Returns whether there was
 * one.
 */
static __always_inline __u32 state_drop(__u32 thread, __u32 key)
{
	__u32 owner = state_owner(thread, key);
	struct syscall_state *state = state_lookup(owner);

	if (!state || state->syscall != key)
		return 0;
	state_free(state, owner);
	return 1;
}

/*
 * Whether the current task may run io_uring operations, itself or as a worker. What a task submits
 * runs in io_uring_enter or on its way out of any syscall or interrupt.
 */
static __always_inline int may_run_uring(const struct task_struct *task)
{
	if (!tlg_uring)
		return 0;
	/* No FOLLOW() here: a cast makes every open slower. */
	return task->flags & PF_IO_WORKER ||
	       (bpf_core_field_exists(task->io_uring) && task->io_uring);
}

/*
 * Frees the slot of an operation whose hooks were replaced while it ran: no operation is in
 * progress when a syscall of the same thread ends. The syscall has no slot then, because the hooks
 * recorded it as the operation.
 */
static __always_inline void state_drop_stale_uring(const struct task_struct *task, __u32 thread)
{
	struct syscall_state *state;

	if (!may_run_uring(task))
		return;
	state = state_lookup(thread | STATE_URING_OP);
	if (state)
		state_free(state, thread | STATE_URING_OP);
}

/*
 * Index in the syscall table of the syscall that the current task is in, or WIRE_NO_SYSCALL if
 * hooks have nothing to record. Other syscalls pass the hooked functions too and pay only for this
 * check.
 */
static __always_inline __u32 hooked_syscall(struct task_struct *task, struct wire_syscall **syscall)
{
	__u32 nr = task_regs(task)->orig_ax;
	__u32 key = task_abi(task) * WIRE_SYSCALLS + nr;

	if (may_run_uring(task)) {
		struct syscall_state *state = state_lookup(task->pid | STATE_URING_OP);

		if (state) {
			key = state->syscall;
			*syscall = plan_syscall(key);
			return *syscall && (*syscall)->facts & HOOKED_FACTS ? key : WIRE_NO_SYSCALL;
		}
		if (task->flags & PF_IO_WORKER)
			return WIRE_NO_SYSCALL; /* its registers are those of the task that created it */
	}
	if (nr >= WIRE_SYSCALLS)
		return WIRE_NO_SYSCALL;
	*syscall = plan_syscall(key);
	if (!*syscall || (*syscall)->tests == WIRE_NO_SYSCALL ||
	    !((*syscall)->facts & HOOKED_FACTS))
		return WIRE_NO_SYSCALL;
	if (is_daemon(task))
		return WIRE_NO_SYSCALL;
	return key;
}

/*
 * State and plan entry of the syscall that the current task is in, if an earlier hook has claimed
 * a slot.
 */
static __always_inline struct syscall_state *state_current(struct wire_syscall **syscall)
{
	struct task_struct *task = current();
	__u32 key;

	*syscall = NULL; /* the verifier refuses to copy an unset variable */
	key = hooked_syscall(task, syscall);
	return key == WIRE_NO_SYSCALL ? NULL : state_find(task->pid, key, syscall);
}

/*
 * Whether hooks have recorded all objects of a syscall that ends without state. Not if it may have
 * begun under a plan that had no rule for it.
 */
static __always_inline __u32 hooks_saw_all(const struct wire_syscall *syscall)
{
	return tlg_hooked && syscall->facts & WIRE_FACT_HOOKED && !tlg_state_overflow &&
	       bpf_jiffies64() - tlg_switched_at >= STATE_STALE_TICKS;
}

/* Adds a PATH item without name and inode. */
static __always_inline struct wire_object *state_add_item(struct syscall_state *state, __u32 part)
{
	__u32 at = state->items;
	struct wire_object *item;

	if (at >= WIRE_ITEMS) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	barrier_var(at); /* the verifier of v6.1 loses bounds of spilled registers */
	at &= WIRE_ITEMS - 1;
	item = &state->item[at];
	item->name_len = 0;
	item->flags = 0;
	item->effect = part;
	item->lookup = WIRE_LOOKUP_HOOKED;
	item->named_by = 0;
	item->path_len = 0;
	state->filename[at] = 0;
	state->dir[at] = 0;
	state->last[at] = 0;
	state->items = at + 1;
	return item;
}

/* Space for the name of the last item. */
static __always_inline __u8 *state_text_room(struct syscall_state *state)
{
	__u32 at = state->text_used;

	if (at > STATE_TEXT_BYTES - 1) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	return &state->text[at & (STATE_TEXT_BYTES - 1)];
}

/* Records the name written to that space. */
static __always_inline void state_commit_name(struct syscall_state *state, struct wire_object *item,
					      __u32 len, __u32 flags)
{
	state->name_at[(state->items - 1) & (WIRE_ITEMS - 1)] = state->text_used;
	state->text_used += len;
	item->name_len = len;
	item->flags |= WIRE_OBJECT_NAMED | flags;
}

/* Sets the name of the last item to the text of a struct filename. */
static __always_inline void state_copy_name(struct syscall_state *state, struct wire_object *item,
					    __u64 filename, const void *text)
{
	__u8 *room = state_text_room(state);
	long len;

	if (!room)
		return;
	len = bpf_probe_read_kernel_str(room, WIRE_NAME_BYTES, text);
	if (len <= 0) {
		count_truncated(WIRE_TRUNC_NAME);
		return;
	}
	state->filename[(state->items - 1) & (WIRE_ITEMS - 1)] = filename;
	state_commit_name(state, item, len - 1, WIRE_OBJECT_KERNEL);
}

/* Sets the name of the last item to a name that the kernel copied. */
static __always_inline void state_set_name(struct syscall_state *state, struct wire_object *item,
					   const struct filename *filename)
{
	state_copy_name(state, item, (__u64)filename, FOLLOW(filename, filename, name));
}

/* Adds an item with a name that the kernel copied. */
static __always_inline struct wire_object *state_add_named(struct syscall_state *state, __u32 part,
							   const struct filename *filename)
{
	struct wire_object *item = state_add_item(state, part);

	if (item)
		state_set_name(state, item, filename);
	return item;
}

/*
 * Adds the object of a dentry below a directory that the syscall named: audit_inode_child(). The
 * kernel's hash of a name is keyed with its directory, so it tells names in one directory apart.
 * If a lower file system of an overlay has another directory, nothing is added.
 */
static __always_inline struct wire_object *state_add_child(struct syscall_state *state, __u32 part,
							   __u64 dir, const struct dentry *dentry)
{
	__u64 last = (__u64)dentry->d_name.len << 32 | dentry->d_name.hash;
	struct wire_object *item;
	__u32 parent = WIRE_ITEMS;

	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		if (i >= state->items)
			break;
		if (state->dir[i] != dir)
			continue;
		if (parent == WIRE_ITEMS || state->last[i] == last)
			parent = i;
		if (state->last[i] == last)
			break;
	}
	if (parent == WIRE_ITEMS)
		return NULL;
	item = state_add_item(state, part);
	if (!item)
		return NULL;
	item->named_by = parent + 1;
	if (tlg_fs_filter)
		item->flags =
			state->item[parent & (WIRE_ITEMS - 1)].flags & WIRE_OBJECT_FS_EXCLUDED;
	return item;
}

static __always_inline void item_set_inode(struct wire_object *item, const struct inode *inode)
{
	if (!inode)
		return;
	if (is_fs_excluded(inode->i_sb)) {
		item->flags |= WIRE_OBJECT_FS_EXCLUDED;
		return;
	}
	copy_inode(&item->inode, inode);
	item->flags |= WIRE_OBJECT_INODE;
}

/* Matches `s->object[0]` against watches; sets `s->hits`. */
__noinline int match_watches(struct scratch *s, __u32 leaves)
{
	struct object *object;
	__u32 names_count;

	if (!s)
		return 0;
	object = &s->object[0];
	s->hits = 0;
	names_count = watch_ancestors(s, object->dentry, object->mnt, HIT_LEAF, 0);
	if (object->last)
		watch_last(s, object->dentry, object->last);
	if (names_count)
		watch_prefixes(s, leaves, 0);
	return 0;
}

/* Whether the rules of a syscall use watches. */
static __always_inline __u32 uses_watches(const struct wire_syscall *syscall)
{
	return syscall->tests != syscall->tests_unwatched;
}

static __always_inline void state_add_hit(struct syscall_state *state, __u32 hit)
{
	struct hits hits = { .count = &state->hits, .list = state->hit };

	add_hit(&hits, hit);
}

/* Adds the hits of match_watches() to the state. */
static __always_inline void state_save_hits(struct syscall_state *state, const struct scratch *s)
{
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= s->hits)
			break;
		state_add_hit(state, s->hit[i]);
	}
}

/* Gives the hits in the state to the filter. */
static __always_inline void state_load_hits(struct scratch *s, const struct syscall_state *state)
{
	for (__u32 i = 0; i < HITS_MAX; i++)
		s->hit[i] = state->hit[i];
	s->hits = state->hits;
}

/* Adds a hit if the inode itself is watched. For objects in a directory that has been matched. */
static __always_inline void state_match_inode(struct syscall_state *state,
					      const struct inode *inode)
{
	struct wire_inode_key key = {
		.ino = inode->i_ino,
		.dev = watch_dev((__u64)inode),
		.half = state->epoch & 1,
	};
	struct wire_inode_watch *watched = bpf_map_lookup_elem(&tlg_watch_inode, &key);

	if (watched && watched->generation == inode->i_generation && !is_fs_excluded(inode->i_sb))
		state_add_hit(state, watched->watch | HIT_LEAF);
}

#endif /* TOLLGATE_LIB_SYSCALL_STATE_BPF_H */
