/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Security labels of tasks: only those of AppArmor, which are text. SELinux and Smack store
 * numbers that only their own code can translate.
 */
#ifndef TOLLGATE_LIB_LABEL_BPF_H
#define TOLLGATE_LIB_LABEL_BPF_H

#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/load.bpf.h"
#include "lib/path.bpf.h"
#include "lib/scratch.bpf.h"

#define LABEL_BYTES	   512
#define TARGET_LABEL_BYTES 72 /* limited by the size of an auxiliary record */

/* Whether AppArmor labels tasks. */
const volatile __u32 tlg_apparmor;

/* 1 + offset of AppArmor's data, or 0; set by daemon_register, before anything is attached. */
__u32 tlg_label_offset;

static __always_inline void find_label_offset(void)
{
	/* The offset of each security module's data in the credentials. */
	__u64 sizes = tlg_symbols.apparmor_blob_sizes;

	if (tlg_apparmor && sizes && !tlg_label_offset)
		tlg_label_offset = 1 + (__u32)LOAD(lsm_blob_sizes, sizes, lbs_cred);
}

/* The label in the data that security modules keep with credentials, or 0. */
static __always_inline __u64 label_in(__u64 parts)
{
	/* tlg_apparmor is constant: without AppArmor the verifier removes the rest. */
	return tlg_apparmor && tlg_label_offset && parts ? LOAD_WORD(parts + tlg_label_offset - 1)
							 : 0;
}

/* The label in credentials, or 0. */
static __always_inline __u64 label_of(const struct cred *cred)
{
	return label_in((__u64)cred->security);
}

/*
 * Name of a label, or 0, and the mode of its profile. A label of several profiles has no single
 * name.
 */
static __always_inline __u64 label_name(__u64 label, __u32 *mode)
{
	__u64 profile;

	*mode = 0;
	if (!label || (__u32)LOAD(aa_label, label, size) != 1)
		return 0;
	profile = LOAD_WORD(AT(aa_label, label, vec));
	*mode = LOAD(aa_profile, profile, mode);
	return LOAD(aa_label, label, hname);
}

/* Appends the text of a label. Returns its length. */
static __always_inline __u32 read_label(struct scratch *s, __u64 label, __u32 *mode)
{
	__u64 name = label_name(label, mode);
	long len;

	if (!name)
		return 0;
	len = bpf_probe_read_kernel_str(tail_at(s, s->used), LABEL_BYTES, (void *)name);
	return len <= 1 || len == LABEL_BYTES ? 0 : len - 1;
}

/*
 * Appends the label of the task. append_proctitle() has made the cache that of this task if it has
 * memory. The name of a label does not change during one exec of a task.
 */
static __always_inline void append_label(struct scratch *s, const struct task_struct *task)
{
	struct title_cache *cache = &s->title_cache;
	__u64 label = label_of(FOLLOW(task_struct, task, cred));
	__u32 len, mode;

	if (!label) {
		len = mode = 0;
	} else if (cache->label == label && FOLLOW(task_struct, task, mm)) {
		len = cache->label_len;
		mode = cache->label_mode;
		copy_words(tail_at(s, s->used), cache->label_text, len, CACHED_LABEL);
	} else {
		len = read_label(s, label, &mode);
		if (FOLLOW(task_struct, task, mm) && len <= CACHED_LABEL) {
			copy_words(cache->label_text, tail_at(s, s->used), len, CACHED_LABEL);
			cache->label_len = len;
			cache->label_mode = mode;
			cache->label = label;
		}
	}
	s->event.subj_len = len;
	s->event.subj_mode = mode;
	s->used += len;
}

#endif /* TOLLGATE_LIB_LABEL_BPF_H */
