/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Security labels of tasks, as far as they can be read: those of AppArmor, whose name is text. SELinux and
 * Smack keep numbers whose text only their own code knows.
 */
#ifndef TOLLGATE_LABEL_BPF_H
#define TOLLGATE_LABEL_BPF_H

#define LABEL_BYTES	   512
#define TARGET_LABEL_BYTES 72 /* what fits into a detail */

/* Whether AppArmor gives tasks labels. */
const volatile __u32 tlg_apparmor;

/* v4.20: where in the credentials each security module has its part. */
extern const void apparmor_blob_sizes __ksym __weak;

/*
 * Name of the label in credentials, or 0, and the mode of its profile. A label of several profiles has no
 * one name.
 */
static __always_inline __u64 label_name(const struct cred *cred, __u32 *mode)
{
	__u64 parts = (__u64)cred->security;
	__u64 label, profile;

	*mode = 0;
	if (!tlg_apparmor || !&apparmor_blob_sizes || !parts)
		return 0;
	label = LOAD_WORD(parts +
			  (__u32)LOAD(lsm_blob_sizes, (__u64)&apparmor_blob_sizes, lbs_cred));
	if (!label || (__u32)LOAD(aa_label, label, size) != 1)
		return 0;
	profile = LOAD_WORD(AT(aa_label, label, vec));
	*mode = LOAD(aa_profile, profile, mode);
	return LOAD(aa_label, label, hname);
}

/* Puts the label of the task behind all else. */
static __always_inline void append_label(struct scratch *s, const struct task_struct *task)
{
	__u32 mode;
	__u64 name = label_name(task->cred, &mode);
	long len;

	s->event.subj_len = 0;
	if (!name)
		return;
	len = bpf_probe_read_kernel_str(tail_at(s, s->used), LABEL_BYTES, (void *)name);
	if (len <= 1 || len == LABEL_BYTES)
		return;
	s->event.subj_len = len - 1;
	s->event.subj_mode = mode;
	s->used += len - 1;
}

#endif /* TOLLGATE_LABEL_BPF_H */
