/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's preemption mode, which root can change while it runs. */
#ifndef TOLLGATE_LIB_PREEMPTION_BPF_H
#define TOLLGATE_LIB_PREEMPTION_BPF_H

#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"

#define JMP_REL32	0xe9
#define JMP_REL32_BYTES 5

/*
 * 0 none, 1 voluntary, 2 full, 3 lazy; -1 if unknown. Without data symbols (CONFIG_KALLSYMS_ALL)
 * none and voluntary are known by cond_resched(), which does nothing in the other modes, and are
 * both 0.
 */
static __always_inline __s32 preemption_mode(void)
{
	__u64 variable = tlg_symbols.preempt_dynamic_mode;
	__u64 jump = tlg_symbols.cond_resched_jump;
	__s32 mode, offset;
	__u8 opcode;

	if (variable)
		return bpf_probe_read_kernel(&mode, sizeof(mode), (void *)variable) ? -1 : mode;
	if (!jump || bpf_probe_read_kernel(&opcode, sizeof(opcode), (void *)jump) ||
	    bpf_probe_read_kernel(&offset, sizeof(offset), (void *)(jump + 1)))
		return -1;
	if (opcode == JMP_REL32 && jump + JMP_REL32_BYTES + offset == tlg_symbols.cond_resched)
		return 0;
	return -1;
}

#endif /* TOLLGATE_LIB_PREEMPTION_BPF_H */
