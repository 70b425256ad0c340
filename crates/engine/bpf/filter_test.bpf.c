// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Runs the filter on an event made by user space, for the test that it agrees with the reference
 * evaluator. An object of its own that only this test loads.
 */
#include "wire.h"
#include "lib/filter.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/object.bpf.h"
#include "lib/scratch.bpf.h"

/* Input and result of one run of the filter. */
struct filter_test_case {
	struct wire_event event;
	struct wire_object object[WIRE_ITEMS];
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u32 exe_hits;
	__u32 exe_hit[HITS_MAX];
	__u32 first; /* index of the syscall's first test */
	__u32 verdict;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_test_case);
} tlg_filter_test SEC(".maps");

/* raw_tp, v4.17: never attached; run through BPF_PROG_TEST_RUN in the calling task. */
SEC("raw_tp/filter_test")
int filter_test_run(void *ctx)
{
	__u32 key = 0;
	struct filter_test_case *test = bpf_map_lookup_elem(&tlg_filter_test, &key);
	struct scratch *s = bpf_map_lookup_elem(&tlg_scratch, &key);

	if (!test || !s)
		return 0;
	s->event = test->event;
	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		s->object[i].at = i * sizeof(struct wire_object);
		*(struct wire_object *)tail_at(s, i * sizeof(struct wire_object)) = test->object[i];
	}
	for (__u32 i = 0; i < HITS_MAX; i++) {
		s->hit[i] = test->hit[i];
		s->exe_hit[i] = test->exe_hit[i];
	}
	s->hits = test->hits;
	s->exe_hits = test->exe_hits;
	test->verdict = run_rules(s, test->first);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
