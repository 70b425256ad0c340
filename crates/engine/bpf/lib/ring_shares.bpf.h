/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shares of the ring: who floods it loses events of his own.
 *
 * Anybody may fill the first half of the ring. Above it, an owner (lib/task_owner.bpf.h) may add
 * half of the room that is left for each eighth of the ring that the reader gives back. So with
 * `n` floods 1/4n of the ring stays free for all others. Nothing is counted below the half.
 */
#ifndef TOLLGATE_LIB_RING_SHARES_BPF_H
#define TOLLGATE_LIB_RING_SHARES_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_owner.bpf.h"
#include "lib/watch_hash.bpf.h"

#define OWNER_PROBES 8
#define FIRST_HIGH   65536 /* users from here on may be one: numbers in /etc/subuid */

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

/* Owners that have added to a ring more than half full. Entries are never removed. */
struct wire_ring_owner tlg_ring_owners[WIRE_RING_OWNERS];

/* All owners for whom that table has no place. */
struct wire_ring_owner tlg_ring_others;

/* What all high users have added, as `used` of an owner. */
__u64 tlg_ring_high;

static __always_inline struct wire_ring_owner *ring_owner(__u32 owner)
{
	__u32 hash = fingerprint_of(owner), key = 1 + owner;

	for (__u32 i = 0; i < OWNER_PROBES; i++) {
		struct wire_ring_owner *of = &tlg_ring_owners[(hash + i) & (WIRE_RING_OWNERS - 1)];

		if (of->key == key)
			return of;
		if (!of->key) {
			__u32 other = __sync_val_compare_and_swap(&of->key, 0, key);

			if (!other || other == key)
				return of;
		}
	}
	return &tlg_ring_others;
}

/*
 * Adds bytes to what was used in a window: the low half of `used` is their number, the high half the
 * window. Returns whether the limit was not reached before, so a first event always has a share.
 */
static __always_inline int take_share(__u64 *used, __u32 window, __u32 bytes, __u64 limit)
{
	__u64 before = *(volatile __u64 *)used;

	if (before >> 32 != window) {
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

/* Whether the owner of the current task may add an event to a ring that is more than half full. */
__noinline int has_share(__u32 bytes)
{
	__u64 unread = bpf_ringbuf_query(&tlg_ring, BPF_RB_AVAIL_DATA);
	__u64 size = tlg_ring_shared ? tlg_ring_shared : 2 * tlg_ring_half;
	__u32 owner, window;
	__u64 room;

	if (unread <= tlg_ring_half)
		return 1; /* a CPU does not look at each event */
	room = size > unread ? size - unread : 0;
	window = bpf_ringbuf_query(&tlg_ring, BPF_RB_CONS_POS) / (tlg_ring_half / 4 + 1);
	owner = task_owner(current());
	if (!take_share(&ring_owner(owner)->used, window, bytes, room / 2))
		return 0;
	return owner < FIRST_HIGH || owner >= WIRE_FIRST_NAMESPACE ||
	       take_share(&tlg_ring_high, window, bytes, room);
}

/* Counts an event that the current task's owner has lost. Not inlined: the verifier checks it once. */
__noinline int count_owner_loss(void)
{
	__sync_fetch_and_add(&ring_owner(task_owner(current()))->lost, 1);
	return 0;
}

#endif /* TOLLGATE_LIB_RING_SHARES_BPF_H */
