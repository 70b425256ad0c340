/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ring buffer output: count, submit, wake the reader. */
#ifndef TOLLGATE_LIB_RING_BPF_H
#define TOLLGATE_LIB_RING_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/ring_shares.bpf.h"

/* Read by user space through mmap: a bpf(2) call could make the kernel skip a program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one per possible CPU, set by the loader */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wire_counts);
} tlg_counts SEC(".maps");

/* Events of each rule that the ring had no room for, at rule * 2 + half. Only written on a loss. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 << WIRE_RULE_BITS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} tlg_rule_drops SEC(".maps");

/* Set by the reader before it sleeps: the next event must wake it. Written by both sides. */
volatile __u32 tlg_waiting;

static __always_inline struct wire_counts *counts(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&tlg_counts, &cpu);
}

static __always_inline void count_lost(enum wire_lost why)
{
	struct wire_counts *here = counts();

	if (here)
		here->lost[why]++;
}

/* Not inlined: the verifier checks it once. */
__noinline int count_truncated(__u32 what)
{
	struct wire_counts *here = counts();

	if (here && what < WIRE_TRUNC_MAX)
		here->truncated[what]++;
	return 0;
}

/*
 * A wake-up costs more than the rest of an event (1,250 to 7,100 ns), so an event wakes the reader
 * only if it sleeps. The reader sets tlg_waiting, checks the ring once more and then sleeps; this
 * side checks tlg_waiting after its record is visible. So one of the two sees the other. A
 * discarded record carries the wake-up, because the flag may be set after the flags of the output
 * were chosen.
 */
static __always_inline void wake_reader(void)
{
	void *nothing;

	if (!tlg_waiting)
		return;
	tlg_waiting = 0;
	nothing = bpf_ringbuf_reserve(&tlg_ring, 8, 0);
	if (nothing)
		bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void count_rule_drop(__u32 rule)
{
	__u32 at = (rule & ((1 << WIRE_RULE_BITS) - 1)) * 2 + (rule >> WIRE_RULE_BITS & 1);
	__u64 *drops = bpf_map_lookup_elem(&tlg_rule_drops, &at);

	if (drops)
		__sync_fetch_and_add(drops, 1);
}

#define EVENTS_PER_LOOK 8 /* a power of two */
#define LARGE_EVENT	2048 /* bytes */

/*
 * Whether the ring has room for an event of the current task outside the reserve. To look at the
 * ring is not cheap; the half above which owners have shares is enough for what is added meanwhile.
 */
static __always_inline int has_room(struct wire_counts *here, __u32 len)
{
	__u64 common = tlg_ring_shared;

	if (common || len > LARGE_EVENT || !(here->matched & (EVENTS_PER_LOOK - 1)))
		here->unread = bpf_ringbuf_query(&tlg_ring, BPF_RB_AVAIL_DATA);
	if (common && here->unread >= common)
		return 0;
	return here->unread <= tlg_ring_half || has_share(len);
}

/* Whether the ring has room for an event of the current task that a rule denies otherwise. */
static __always_inline int can_record(void)
{
	struct wire_counts *here = counts();

	return here && has_room(here, 0);
}

/*
 * Submits an event. The reserve is for syscalls that a program of `[on_loss] deny` has let through:
 * one that fails before the program runs, or does not come by it, could be repeated until the
 * reserve is full.
 */
static __always_inline void submit(struct wire_event *event, __u32 len, __u32 verdict,
				   int let_through)
{
	struct wire_counts *here = counts();
	int denied = verdict & WIRE_DENY && event->exit == (__u64)-EPERM;

	if (!here)
		return;
	here->matched++;
	if ((has_room(here, len) || (let_through && !denied)) &&
	    !bpf_ringbuf_output(&tlg_ring, event, len, BPF_RB_NO_WAKEUP)) {
		here->delivered++;
	} else {
		if (denied) {
			here->lost[WIRE_LOST_DENIED]++;
		} else {
			here->lost[WIRE_LOST_RING_FULL]++;
			count_owner_loss();
		}
		count_rule_drop(event->rule);
	}
	wake_reader();
}

/* Submits the syscall of a kernel record, which no rule records. */
static __always_inline void submit_stamped(struct wire_event *event, __u32 len)
{
	struct wire_counts *here = counts();

	if (here)
		here->unread = ~0ULL; /* not in `matched`, by which others look at times */
	if (!here || !has_room(here, len) ||
	    bpf_ringbuf_output(&tlg_ring, event, len, BPF_RB_NO_WAKEUP))
		count_truncated(WIRE_TRUNC_AVC);
	wake_reader();
}

#endif /* TOLLGATE_LIB_RING_BPF_H */
