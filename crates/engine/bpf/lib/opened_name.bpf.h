/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether the file behind a descriptor has the name that was opened. Threads that share their
 * descriptors can replace one (dup2) after an open has returned it and before sys_exit reads it.
 */
#ifndef TOLLGATE_LIB_OPENED_NAME_BPF_H
#define TOLLGATE_LIB_OPENED_NAME_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/scratch.bpf.h"
#include "lib/task.bpf.h"

#define NAME_MAX    255 /* include/uapi/linux/limits.h */
#define FILE_TYPE   0170000
#define IS_DIR_TYPE 0040000

/* Whether the task shares its descriptors with other tasks. */
static __always_inline int shares_descriptors(const struct task_struct *task)
{
	__u64 files = (__u64)FOLLOW(task_struct, task, files);

	return (int)LOAD(files_struct, files, count.counter) > 1;
}

/* What is found is in the scratch area: the verifier tracks stack words. */
struct last_search {
	struct scratch *s;
	__u32 at; /* of the name in the tail */
};

/* Goes backwards: skips slashes at the end, then stops at the slash before the last component. */
static long last_step(__u32 index, void *data)
{
	struct last_search *search = data;
	struct scratch *s = search->s;
	__u32 before = s->last_start - 1;

	if (*(__u8 *)tail_at(s, search->at + before) != '/') {
		s->last_start = before;
		return 0;
	}
	if (s->last_start != s->last_end)
		return 1;
	s->last_start = s->last_end = before;
	return 0;
}

struct text_compare {
	struct scratch *s;
	__u32 left; /* in the tail */
	__u32 right;
	__u32 differs;
};

static long compare_step(__u32 index, void *data)
{
	struct text_compare *texts = data;
	__u8 *left = tail_at(texts->s, texts->left + index);
	__u8 *right = tail_at(texts->s, texts->right + index);

	if (*left == *right)
		return 0;
	texts->differs = 1;
	return 1;
}

static __always_inline int is_name(struct scratch *s, const struct wire_object *object, __u32 at,
				   __u64 dentry)
{
	struct last_search last = { .s = s, .at = at };
	struct text_compare texts = { .s = s };
	__u64 name;
	__u32 len;

	s->last_start = s->last_end = object->name_len;
	bpf_loop(object->name_len, last_step, &last, 0);
	len = s->last_end - s->last_start;
	texts.left = at + s->last_start;
	texts.right = at + ((object->name_len + 7) & ~7U); /* unused so far */
	if (!len || (len <= 2 && *(__u8 *)tail_at(s, texts.left) == '.' &&
		     *(__u8 *)tail_at(s, texts.left + len - 1) == '.'))
		return (object->inode.mode & FILE_TYPE) == IS_DIR_TYPE;
	name = AT(dentry, dentry, d_name);
	if ((__u32)LOAD(qstr, name, len) != len || len > NAME_MAX)
		return 0;
	if (bpf_probe_read_kernel(tail_at(s, texts.right), len & NAME_MAX,
				  (void *)LOAD(qstr, name, name)))
		return 0;
	bpf_loop(len, compare_step, &texts, 0);
	return !texts.differs;
}

/*
 * Compares the last component of the name at `at` in the tail, the object's, with the name of a
 * dentry. They differ if the name is a symbolic link, too. `.` and `..` name any directory.
 */
__noinline int has_opened_name(struct scratch *s, const struct wire_object *object, __u32 at,
			       __u64 dentry)
{
	return s && object && is_name(s, object, at, dentry);
}

#endif /* TOLLGATE_LIB_OPENED_NAME_BPF_H */
