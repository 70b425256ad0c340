/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads of kernel memory. Pointers are carried as numbers and cast to a typed pointer at the
 * access, so that one load is one instruction: on the test machine a chain of probe_read helpers
 * costs 1,500 ns more per event (docs/bench.md). A bad address reads as 0 and does not fault.
 */
#ifndef TOLLGATE_LIB_LOAD_BPF_H
#define TOLLGATE_LIB_LOAD_BPF_H

#include "lib/kernel.bpf.h"

/* v6.2. Older kernels use the helper; drop that branch when 6.2 is the floor. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

static __always_inline __u64 probe(const void *from, __u32 bytes)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, bytes, from);
	return value;
}

/* Address of a member that is a struct or an array. */
#define AT(type, addr, member) ((addr) + bpf_core_field_offset(struct type, member))

/*
 * A member that is a number or a pointer. The address is not part of the relocation: it may come
 * from a struct that no kernel has.
 */
#define LOAD(type, addr, member)                                                                 \
	(bpf_ksym_exists(bpf_rdonly_cast)                                                        \
		 ? (__u64)((struct type *)bpf_rdonly_cast((void *)(addr),                        \
							  bpf_core_type_id_kernel(struct type))) \
			   ->member                                                              \
		 : probe((void *)AT(type, addr, member), sizeof(((struct type *)0)->member)))

/*
 * A pointer member of a trusted struct. Since v6.4 the verifier searches all kernel types when it
 * checks such an access (btf_nested_type_is_trusted()), which took half of the start-up time. It
 * does not if the struct's pointer has been cast.
 */
#define FOLLOW(type, from, member)                                                              \
	(bpf_ksym_exists(bpf_rdonly_cast)                                                       \
		 ? ((struct type *)bpf_rdonly_cast(from, bpf_core_type_id_kernel(struct type))) \
			   ->member                                                             \
		 : (from)->member)

/* Any 8 bytes. */
#define LOAD_WORD(addr) LOAD(timespec64, addr, tv_sec)

/* Whether `next`, of 4 bytes, directly follows `member`, of 4 bytes, so that one load reads both. */
#define IS_PAIR(type, member, next)                  \
	(bpf_ksym_exists(bpf_rdonly_cast) &&         \
	 bpf_core_field_offset(struct type, next) == \
		 bpf_core_field_offset(struct type, member) + 4)

/* Loads two members that are a pair: `member` is the low half. */
#define LOAD_PAIR(type, addr, member) LOAD_WORD(AT(type, (__u64)(addr), member))

#endif /* TOLLGATE_LIB_LOAD_BPF_H */
