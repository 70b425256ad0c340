/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Forms of kernel functions: name and prototype differ between kernels. The loader finds the form
 * in BTF; the verifier removes the code for the others.
 */
#ifndef TOLLGATE_LIB_FORM_BPF_H
#define TOLLGATE_LIB_FORM_BPF_H

#include "wire.h"
#include "lib/kernel.bpf.h"

/* Bits of enum wire_form. */
const volatile __u32 tlg_forms;

#define has_form(form) (tlg_forms & (form))

/* What the function returned, wherever its arguments end (v5.17). */
static __always_inline __u64 result_of(void *ctx)
{
	__u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return result;
}

#endif /* TOLLGATE_LIB_FORM_BPF_H */
