/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shares of the ring: who floods it loses events of his own.
 *
 * Anybody may fill the first half of the ring. Above it, for each eighth of the ring that the reader
 * gives back, an owner (lib/task_owner.bpf.h) may add half of the room that is left below the last
 * eighth, and always a 1,024th part of the ring. So floods do not get into the last eighth, except
 * with these parts, of which it has 128. Nothing is counted below the half.
 */
#ifndef TOLLGATE_LIB_RING_SHARES_BPF_H
#define TOLLGATE_LIB_RING_SHARES_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_owner.bpf.h"
#include "lib/watch_hash.bpf.h"

#define OWNER_PROBES   8
#define HALF_OF_OWNERS (WIRE_RING_OWNERS / 2)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set by the loader */
} tlg_ring SEC(".maps");

/* Half of the size of the ring, in bytes. */
const volatile __u64 tlg_ring_half;

/*
 * Ring bytes available to all rules. The rest is reserved for rules that deny, so that syscalls
 * that were permitted have room for their events. 0 without such rules.
 */
volatile __u64 tlg_ring_shared;

/*
 * Owners that have added to a ring more than half full; in its second half those of whom a user can
 * be many, who fills only that. Entries are never removed.
 */
struct wire_ring_owner tlg_ring_owners[WIRE_RING_OWNERS];

/* For each half, all owners for whom it has no place. */
struct wire_ring_owner tlg_ring_others[2];

/* What all owners of the second half have added, as `used` of an owner. */
__u64 tlg_ring_many;

static __always_inline struct wire_ring_owner *ring_owner(__u32 owner, int half)
{
	__u32 hash = fingerprint_of(owner), key = 1 + owner;

	for (__u32 i = 0; i < OWNER_PROBES; i++) {
		__u32 place = (hash + i) % HALF_OF_OWNERS + (half & 1) * HALF_OF_OWNERS;
		struct wire_ring_owner *of = &tlg_ring_owners[place & (WIRE_RING_OWNERS - 1)];

		if (of->key == key)
			return of;
		if (!of->key) {
			__u32 other = __sync_val_compare_and_swap(&of->key, 0, key);

			if (!other || other == key)
				return of;
		}
	}
	return &tlg_ring_others[half & 1];
}

/*
 * Adds bytes to what was used in a window: the low half of `used` is their number, the high half the
 * window. Returns whether the limit was not reached before, so a first event always has a share.
 */
static __always_inline int take_share(__u64 *used, __u32 window, __u32 bytes, __u64 limit)
{
	__u64 before = *(volatile __u64 *)used;

	/* A task that was preempted may come with an older window: what the newer one holds applies. */
	if ((__s32)(window - (__u32)(before >> 32)) > 0) {
		__u64 first = (__u64)window << 32 | bytes;

		if (__sync_val_compare_and_swap(used, before, first) == before)
			return 1;
		before = *(volatile __u64 *)used; /* another CPU has begun the window */
	}
	if ((__u32)before >= limit)
		return 0;
	__sync_fetch_and_add(used, bytes);
	return 1;
}

static __always_inline __u64 max_of(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* Whether the owner of the current task may add an event to a ring that is more than half full. */
__noinline int has_share(__u32 bytes)
{
	__u64 unread = bpf_ringbuf_query(&tlg_ring, BPF_RB_AVAIL_DATA);
	__u64 size = tlg_ring_shared ? tlg_ring_shared : 2 * tlg_ring_half;
	struct task_struct *task = current();
	__u32 owner, window;
	__u64 room, least = size / 1024;
	int many;

	if (unread <= tlg_ring_half)
		return 1; /* a CPU does not look at each event */
	room = size - size / 8 > unread ? size - size / 8 - unread : 0;
	window = bpf_ringbuf_query(&tlg_ring, BPF_RB_CONS_POS) / (tlg_ring_half / 4);
	owner = task_owner(task);
	many = can_be_many(task, owner);
	if (!take_share(&ring_owner(owner, many)->used, window, bytes, max_of(room / 2, least)))
		return 0;
	return !many || take_share(&tlg_ring_many, window, bytes, max_of(room, 4 * least));
}

/* Counts an event that the current task's owner has lost. Not inlined: the verifier checks it once. */
__noinline int count_owner_loss(void)
{
	struct task_struct *task = current();
	__u32 owner = task_owner(task);

	__sync_fetch_and_add(&ring_owner(owner, can_be_many(task, owner))->lost, 1);
	return 0;
}

#endif /* TOLLGATE_LIB_RING_SHARES_BPF_H */
