/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Filter: the rules of one syscall in order. The first whose tests all hold decides. Tests have
 * the semantics of audit_filter_rules() in kernel/auditsc.c, Linux 6.12, and of audit::plan::eval.
 */
#ifndef TOLLGATE_LIB_FILTER_BPF_H
#define TOLLGATE_LIB_FILTER_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/object.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"
#include "lib/watch.bpf.h"

#define EVENT_WORD_MASK \
	63 /* a wire_event has 46 words; the memory after it belongs to the scratch area */
#define OBJECT_WORD_MASK 15
#define MINORBITS	 20
#define INO_WORD	 0 /* low half of wire_object.inode.ino */
#define NO_INO		 (~0U) /* AUDIT_INO_UNSET, kernel/audit.h */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct wire_test);
} tlg_rule_tests SEC(".maps");

static __always_inline int compare(__u32 left, __u32 op, __u32 right)
{
	switch (op) {
	case WIRE_OP_EQ:
		return left == right;
	case WIRE_OP_NE:
		return left != right;
	case WIRE_OP_GT:
		return left > right;
	case WIRE_OP_GE:
		return left >= right;
	case WIRE_OP_LT:
		return left < right;
	case WIRE_OP_LE:
		return left <= right;
	case WIRE_OP_ANY:
		return (left & right) != 0;
	default: /* WIRE_OP_ALL */
		return (left & right) == right;
	}
}

static __always_inline __u32 event_word(struct scratch *s, __u32 index)
{
	return ((__u32 *)&s->event)[index & EVENT_WORD_MASK];
}

static __always_inline int test_hits(const __u32 *list, __u32 count, __u32 ignore, __u32 wanted)
{
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= count)
			break;
		if ((list[i] & ~ignore) == wanted)
			return 1;
	}
	return 0;
}

static __always_inline int test_object(struct scratch *s, struct wire_object *object,
				       const struct wire_test *test)
{
	__u32 word = ((__u32 *)object)[test->word & OBJECT_WORD_MASK];

	switch (test->kind) {
	case WIRE_TEST_OBJECT:
		return compare(word, test->op, test->value);
	case WIRE_TEST_OBJECTS:
		return compare(event_word(s, test->value), test->op, word);
	case WIRE_TEST_TYPE:
		return (object->inode.mode & S_IFMT) == test->value;
	case WIRE_TEST_MAJOR:
		return compare(object->inode.dev >> MINORBITS, test->op, test->value) ||
		       compare(object->inode.rdev >> MINORBITS, test->op, test->value);
	default:
		return compare(object->inode.dev & ((1 << MINORBITS) - 1), test->op, test->value) ||
		       compare(object->inode.rdev & ((1 << MINORBITS) - 1), test->op, test->value);
	}
}

/*
 * Tests a name that does not exist. The kernel compares its owner, device and inode number with
 * their initial values: audit_alloc_name(), kernel/auditsc.c.
 */
static __always_inline int test_missing(struct scratch *s, const struct wire_test *test)
{
	switch (test->kind) {
	case WIRE_TEST_OBJECT:
		return compare(test->word == INO_WORD ? NO_INO : 0, test->op, test->value);
	case WIRE_TEST_OBJECTS:
		return compare(event_word(s, test->value), test->op, 0);
	case WIRE_TEST_TYPE:
		return 0;
	default:
		return compare(0, test->op, test->value);
	}
}

/* Whether a name without inode does not exist. Elsewhere it was not resolved. */
static __always_inline int is_missing(const struct scratch *s, const struct wire_object *object)
{
	if (object->flags & WIRE_OBJECT_FS_EXCLUDED)
		return object->flags & WIRE_OBJECT_NAMED; /* without a name it is not an item */
	return object->lookup == WIRE_LOOKUP_HOOKED || object->lookup == WIRE_LOOKUP_TEXT ||
	       s->event.exit == (__u64)-ENOENT;
}

/* Whether a watch is `of`, or in the set `of`. Not inlined: the verifier checks it once. */
__noinline int has_watch(__u32 half, __u32 of, __u32 watch)
{
	__u32 at;
	struct wire_watch_set *set = watch_set(&at, half, of);

	if (!set)
		return of == watch;
	for (__u32 i = 0; i < WIRE_SET_WATCHES; i++) {
		if (i >= set->count)
			break;
		if (set->watch[i] == watch)
			return 1;
	}
	return 0;
}

/* Whether the inode of an object is that of a watch. */
static __always_inline int is_watched(struct scratch *s, const struct wire_object *object,
				      __u32 watch)
{
	struct wire_inode_key key = {
		.ino = object->inode.ino,
		.dev = object->inode.dev,
		.half = s->half,
	};
	struct wire_inode_watch *watched = bpf_map_lookup_elem(&tlg_watch_inode, &key);

	return object->flags & WIRE_OBJECT_INODE && watched &&
	       watched->generation == object->inode.generation &&
	       has_watch(s->half, watched->watch, watch);
}

/*
 * The same; if no object of the event has the watch's inode, the watch matched by name and any
 * object may be it.
 */
static __always_inline int may_be_watched(struct scratch *s, const struct wire_object *object,
					  __u32 watch)
{
	if (is_watched(s, object, watch))
		return 1;
	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		if (i >= s->event.objects)
			break;
		if (is_watched(s, object_at(s, s->object[i].at), watch))
			return 0;
	}
	return 1;
}

struct same_walk {
	struct scratch *s;
	__u32 object; /* its index */
	__u32 at;
	__u32 holds;
};

static long same_step(__u32 index, void *data)
{
	struct same_walk *walk = data;
	struct scratch *s = walk->s;
	struct wire_object *object = object_at(s, s->object[walk->object & (WIRE_ITEMS - 1)].at);
	__u32 at = walk->at + index;
	struct wire_test *test = bpf_map_lookup_elem(&tlg_rule_tests, &at);

	if (!test)
		walk->holds = 0;
	else if (test->kind == WIRE_TEST_PATH)
		walk->holds = may_be_watched(s, object, test->value);
	else if (object->flags & WIRE_OBJECT_INODE)
		walk->holds = test_object(s, object, test);
	else
		walk->holds = is_missing(s, object) && test_missing(s, test);
	return !walk->holds;
}

/*
 * Whether several tests hold for one object: audit_filter_inode_name() tests rules against one
 * name at a time.
 */
static __always_inline int test_same(struct scratch *s, __u32 index, const struct wire_test *test)
{
	struct same_walk walk = { .s = s, .object = index, .at = test->value, .holds = 1 };

	bpf_loop(test->word, same_step, &walk, 0);
	return walk.holds;
}

/* Whether a test holds for one object. Not inlined: the verifier checks it once. */
__noinline int test_item(struct scratch *s, __u32 index, const struct wire_test *test)
{
	struct wire_object *object;

	if (!s || !test)
		return 0;
	if (test->kind == WIRE_TEST_SAME)
		return test_same(s, index, test);
	object = object_at(s, s->object[index & (WIRE_ITEMS - 1)].at);
	if (object->flags & WIRE_OBJECT_INODE)
		return test_object(s, object, test);
	return is_missing(s, object) && test_missing(s, test);
}

static __always_inline int test_objects(struct scratch *s, const struct wire_test *test)
{
	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		if (i >= s->event.objects)
			break;
		if (test_item(s, i, test))
			return 1;
	}
	return 0;
}

static __always_inline int test_group(struct scratch *s, const struct wire_test *test)
{
	__u32 holds = compare(event_word(s, test->word), test->op, test->value);

	if (test->op == WIRE_OP_EQ && !holds)
		return task_in_group(current(), test->value);
	if (test->op == WIRE_OP_NE && holds)
		return !task_in_group(current(), test->value);
	return holds;
}

/* Whether a watch was hit. Not inlined: the verifier would check what follows for each number of hits. */
__noinline int is_hit(struct scratch *s, __u32 ignore, __u32 wanted)
{
	return s && test_hits(s->hit, s->hits, ignore, wanted);
}

/*
 * A test of PATH or DIR in a rule that suppresses events. A file that its owner renames over a
 * watched one keeps its inode: the inode counts if no other watch is hit by name, or is the object;
 * the name counts always. Not inlined: the verifier checks it once.
 */
__noinline int test_trusted_hits(struct scratch *s, __u32 ignore, __u32 wanted)
{
	if (!s)
		return 0;
	if (is_hit(s, ignore, wanted | HIT_NAMED))
		return 1;
	if (!is_hit(s, ignore, wanted))
		return 0;
	for (__u32 i = 0; i < HITS_MAX; i++) {
		__u32 hit;

		if (i >= s->hits)
			break;
		hit = s->hit[i] & ~ignore;
		if ((hit ^ wanted) & ~(HIT_LEAF | HIT_FOREIGN | HIT_NAMED) &&
		    s->hit[i] & (HIT_LEAF | HIT_NAMED))
			return 0;
	}
	return 1;
}

/* A test of PATH or DIR. */
static __always_inline int test_watch(struct scratch *s, const struct wire_test *test, __u32 ignore,
				      __u32 wanted)
{
	if (test->word)
		return test_trusted_hits(s, ignore, wanted);
	return test_hits(s->hit, s->hits, ignore | HIT_FOREIGN | HIT_NAMED, wanted);
}

/*
 * The test at which the first of the rules in a table whose watch was hit goes on, or the test after
 * them. `at` is the index of the table. Not inlined: the verifier checks it once.
 */
__noinline __u32 first_of_watches(struct scratch *s, __u32 at, const struct wire_test *table)
{
	__u32 first;

	if (!s || !table)
		return 0;
	first = table->on_false;
	for (__u32 i = 0; i < HITS_MAX; i++) {
		struct wire_test *entry;
		__u32 index, place;

		if (i >= s->hits)
			break;
		index = (s->hit[i] & WATCH_MASK) - table->value;
		if (index >= table->word)
			continue;
		place = at + 1 + index;
		entry = bpf_map_lookup_elem(&tlg_rule_tests, &place);
		if (entry && entry->value < first)
			first = entry->value;
	}
	return first;
}

struct rule_walk {
	struct scratch *s;
	__u32 at;
	__u32 verdict;
};

static long rule_step(__u32 index, void *data)
{
	struct rule_walk *walk = data;
	struct scratch *s = walk->s;
	struct wire_test *test = bpf_map_lookup_elem(&tlg_rule_tests, &walk->at);
	__u32 holds;

	if (!test)
		return 1;
	/* First tests of most rules: see tests_of_rule() in compile/rule_tests.rs. */
	switch (__builtin_expect(test->kind, WIRE_TEST_DIR)) {
	case WIRE_TEST_WORD:
		holds = compare(event_word(s, test->word), test->op, test->value);
		break;
	case WIRE_TEST_TRUE:
		holds = 1;
		break;
	case WIRE_TEST_END:
		return 1;
	case WIRE_TEST_BY_WATCH:
		walk->at = first_of_watches(s, walk->at, test);
		return 0;
	case WIRE_TEST_WORDS:
		holds = compare(event_word(s, test->word), test->op, event_word(s, test->value));
		break;
	case WIRE_TEST_GROUP:
		holds = test_group(s, test);
		break;
	case WIRE_TEST_PATH:
		holds = test_watch(s, test, 0, test->value | HIT_LEAF);
		break;
	case WIRE_TEST_DIR:
		holds = test_watch(s, test, HIT_LEAF, test->value);
		break;
	case WIRE_TEST_EXE:
		holds = test_hits(s->exe_hit, s->exe_hits, HIT_NAMED, test->value | HIT_LEAF) ==
			(test->op == WIRE_OP_EQ);
		break;
	case WIRE_TEST_TYPE:
		/* `!=` holds if no object has the type: audit_match_filetype(). */
		holds = test_objects(s, test) == (test->op == WIRE_OP_EQ);
		break;
	default:
		holds = test_objects(s, test);
		break;
	}
	if (!holds) {
		walk->at = test->on_false;
		return 0;
	}
	walk->at++;
	walk->verdict = test->verdict;
	return walk->verdict != WIRE_NO_VERDICT;
}

/*
 * Runs the rules from test `first`. Returns WIRE_RECORD | rule, a rule that suppresses the event,
 * or WIRE_NO_VERDICT.
 */
__noinline int run_rules(struct scratch *s, __u32 first)
{
	struct rule_walk walk = { .s = s, .at = first, .verdict = WIRE_NO_VERDICT };

	if (!s)
		return WIRE_NO_VERDICT;
	if (tlg_has_sets)
		replace_sets(s);
	bpf_loop(1 << 20, rule_step, &walk, 0);
	return walk.verdict;
}

#endif /* TOLLGATE_LIB_FILTER_BPF_H */
