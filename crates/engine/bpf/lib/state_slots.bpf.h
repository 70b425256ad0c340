/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Slots: memory for the state of syscalls and io_uring operations in progress. A slot is taken at
 * the first hook that has something to record, and given back at the end, or when the task exits.
 * Nothing is allocated.
 *
 * The number of each slot that is in use is in the state of its task (lib/task_state.bpf.h), so
 * only that task uses it. A user other than root can hold a part of the slots, and an eighth of
 * them is for root alone: who blocks thousands of threads in syscalls loses events of his own.
 *
 * `slots_test.bpf.c` runs these functions for simulated tasks.
 */
#ifndef TOLLGATE_LIB_STATE_SLOTS_BPF_H
#define TOLLGATE_LIB_STATE_SLOTS_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_owner.bpf.h"
#include "lib/task_state.bpf.h"
#include "lib/watch_hash.bpf.h"

#define SLOTS_MAX 8192 /* a power of two */
#define USERS_MAX \
	131072 /* shares: one half for low user numbers, one for all others; a power of two */
#define HIGH_SHARES (1 + USERS_MAX / 2) /* the first share of user numbers that are not low */
#define USER_ROOT   (USERS_MAX + 1)

/* Slots of this machine, a power of two, and how many of them a user can hold. */
const volatile __u32 tlg_slots = 1;
const volatile __u32 tlg_slots_per_user = 1;

/* User of each slot that is in use, or 0. */
__u32 tlg_slot_user[SLOTS_MAX];

/* Number of slots that each user holds. */
__u32 tlg_user_slots[USERS_MAX];

/*
 * Number of slots that all high shares hold together, at most twice that of one user. A user can
 * have many: numbers in /etc/subuid are his.
 */
__u32 tlg_high_slots;

/* Raised by the loader when it has emptied all three: slots taken before are not valid. */
volatile __u32 tlg_slot_generation;

/* The share of a user of the initial namespace, or of the number of a namespace. */
static __always_inline __u32 share_of(__u32 owner)
{
	if (owner < USERS_MAX / 2)
		return 1 + owner;
	return HIGH_SHARES + (fingerprint_of(owner) & (USERS_MAX / 2 - 1));
}

/*
 * The user whose share the slots of the current task are taken from; not 0. Root in a container is not
 * root, whatever namespaces it has.
 */
static __always_inline __u32 slot_user(struct task_struct *task)
{
	__u32 owner = task_owner(task);

	return owner ? share_of(owner) : USER_ROOT;
}

/* Takes the slot at a place that follows from `hash` if it is free: 1 + its index, or 0. */
static __always_inline __u32 slot_try(__u32 hash, __u32 user)
{
	__u32 index = hash & (tlg_slots - 1);

	/* The first eighth is for root: others go to the middle instead. */
	if (user != USER_ROOT && index < tlg_slots / 8)
		index += tlg_slots / 2;
	index &= SLOTS_MAX - 1;
	return __sync_val_compare_and_swap(&tlg_slot_user[index], 0, user) ? 0 : 1 + index;
}

struct slot_search {
	__u32 hash;
	__u32 user;
	__u32 found;
};

static long slot_step(__u32 step, void *data)
{
	struct slot_search *search = data;

	/* Steps of an odd number visit every place once, and skip what neighbours took. */
	search->found = slot_try(search->hash + step * 0x9e3779b1U, search->user);
	return !!search->found;
}

static __always_inline __u32 *slots_held_by(__u32 user)
{
	return &tlg_user_slots[(user - 1) & (USERS_MAX - 1)];
}

/* Counts one slot more for a user. Returns whether the user may have it. */
static __always_inline int share_take(__u32 user)
{
	if (user == USER_ROOT)
		return 1;
	if (__sync_fetch_and_add(slots_held_by(user), 1) >= tlg_slots_per_user)
		goto no_more;
	if (user < HIGH_SHARES)
		return 1;
	if (__sync_fetch_and_add(&tlg_high_slots, 1) < 2 * tlg_slots_per_user)
		return 1;
	__sync_fetch_and_add(&tlg_high_slots, -1);
no_more:
	__sync_fetch_and_add(slots_held_by(user), -1);
	return 0;
}

static __always_inline void share_release(__u32 user)
{
	if (user == USER_ROOT)
		return;
	__sync_fetch_and_add(slots_held_by(user), -1);
	if (user >= HIGH_SHARES)
		__sync_fetch_and_add(&tlg_high_slots, -1);
}

/* Takes any free slot for a user: 1 + its index, or 0. */
__noinline int slot_search(__u32 hash, __u32 user)
{
	struct slot_search search = { .hash = hash, .user = user };

	bpf_loop(tlg_slots, slot_step, &search, 0);
	if (!search.found)
		share_release(user);
	return search.found;
}

/* Takes a slot for a user: 1 + its index, or 0. */
static __always_inline __u32 slot_take(__u32 thread, __u32 user)
{
	__u32 slot;

	if (!share_take(user))
		return 0;
	slot = slot_try(thread, user);
	return slot ? slot : slot_search(thread, user);
}

/* Gives a slot back. */
static __always_inline void slot_release(__u32 index)
{
	__u32 user;

	index &= SLOTS_MAX - 1;
	user = tlg_slot_user[index];
	if (!user)
		return;
	__sync_lock_test_and_set(&tlg_slot_user[index], 0);
	share_release(user);
}

/* 1 + index of the slot that a task holds, or 0. */
static __always_inline __u32 held_slot(const struct task_state *of, enum slot_kind kind)
{
	return of->generation == tlg_slot_generation ? of->slot[kind] : 0;
}

/*
 * A slot for the syscall or operation `key` of a task: the one that it holds, or a new one. Returns
 * 1 + its index. What got none stays without: half of its state would make a wrong event.
 */
__noinline int slot_of(struct task_state *of, __u32 kind, __u32 key, __u32 thread, __u32 user)
{
	if (!of || kind >= SLOT_KINDS)
		return 0;
	if (of->generation != tlg_slot_generation) {
		for (int i = 0; i < SLOT_KINDS; i++)
			of->slot[i] = of->missing[i] = 0;
		of->generation = tlg_slot_generation;
	}
	if (of->missing[kind] == 1 + key)
		return 0;
	of->missing[kind] = 0;
	if (!of->slot[kind])
		of->slot[kind] = slot_take(thread, user);
	if (!of->slot[kind])
		of->missing[kind] = 1 + key;
	return of->slot[kind];
}

/* Gives back the slot of a task's syscall or operation, which has ended. */
static __always_inline void slot_end(struct task_state *of, enum slot_kind kind)
{
	__u32 held = held_slot(of, kind);

	if (held)
		slot_release(held - 1);
	of->slot[kind] = 0;
	of->missing[kind] = 0;
	of->let_through[kind] = 0;
}

#endif /* TOLLGATE_LIB_STATE_SLOTS_BPF_H */
