// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes, finds and gives back slots for simulated tasks, for the test that no task finds what
 * another one, or another syscall, has left. An object of its own that only this test loads.
 */
#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/state_slots.bpf.h"
#include "lib/task_state.bpf.h"

#define TEST_TASKS 256 /* a power of two */

enum slots_test_step {
	STEP_TAKE, /* a hook: `result` is the slot, in which it leaves `tag` */
	STEP_FIND, /* `result` is the tag in the slot of the task, or 0 */
	STEP_END,
	STEP_IS_MISSING, /* `result` is 1 + key of what got no slot */
};

struct slots_test_case {
	__u32 step;
	__u32 task;
	__u32 kind;
	__u32 key;
	__u32 user;
	__u32 tag;
	__u32 result;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slots_test_case);
} tlg_slots_test SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TEST_TASKS);
	__type(key, __u32);
	__type(value, struct task_state);
} tlg_test_tasks SEC(".maps");

/* What the last holder of each slot has left in it. */
__u32 tlg_test_tags[SLOTS_MAX];

/* raw_tp, v4.17: never attached; run through BPF_PROG_TEST_RUN. */
SEC("raw_tp/slots_test")
int slots_test_run(void *ctx)
{
	__u32 first = 0, slot;
	struct slots_test_case *test = bpf_map_lookup_elem(&tlg_slots_test, &first);
	struct task_state *of;
	enum slot_kind kind;

	if (!test)
		return 0;
	of = bpf_map_lookup_elem(&tlg_test_tasks, &test->task);
	if (!of)
		return 0;
	kind = test->kind ? SLOT_URING_OP : SLOT_SYSCALL;
	test->result = 0;
	switch (test->step) {
	case STEP_TAKE:
		slot = slot_of(of, kind, test->key, test->task, test->user);
		test->result = slot;
		if (slot)
			tlg_test_tags[(slot - 1) & (SLOTS_MAX - 1)] = test->tag;
		break;
	case STEP_FIND:
		slot = held_slot(of, kind);
		if (slot)
			test->result = tlg_test_tags[(slot - 1) & (SLOTS_MAX - 1)];
		break;
	case STEP_END:
		slot_end(of, kind);
		break;
	case STEP_IS_MISSING:
		test->result = of->missing[kind];
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
