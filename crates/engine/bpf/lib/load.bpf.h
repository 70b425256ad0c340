/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading kernel memory. Pointers are carried as numbers and turned into a typed pointer at the
 * access, so that one load is one instruction: on the test machine a chain of probe_read helpers cost
 * 1,500 ns more per event than direct loads (docs/bench.md). A bad address reads as 0, never faults.
 */
#ifndef TOLLGATE_LIB_LOAD_BPF_H
#define TOLLGATE_LIB_LOAD_BPF_H

#include "lib/kernel.bpf.h"

/* v6.2. Older kernels take the helper instead; drop that branch when the floor is 6.2. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

static __always_inline __u64 probe(const void *from, __u32 bytes)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, bytes, from);
	return value;
}

/* Address of a member, for members that are structs or arrays themselves. */
#define AT(type, addr, member) ((addr) + bpf_core_field_offset(struct type, member))

/*
 * A member that is a number or a pointer. The address stays outside of what is relocated: it may
 * itself be read from a struct of ours, which no kernel knows.
 */
#define LOAD(type, addr, member)                                                                 \
	(bpf_ksym_exists(bpf_rdonly_cast)                                                        \
		 ? (__u64)((struct type *)bpf_rdonly_cast((void *)(addr),                        \
							  bpf_core_type_id_kernel(struct type))) \
			   ->member                                                              \
		 : probe((void *)AT(type, addr, member), sizeof(((struct type *)0)->member)))

/*
 * A member that is a pointer, of a struct that the kernel vouches for. Since v6.4 the verifier looks through
 * all types of the kernel each time that it walks such an access (btf_nested_type_is_trusted()), which was
 * half of what a start took. It does not when the struct's pointer has been cast.
 */
#define FOLLOW(type, from, member)                                                              \
	(bpf_ksym_exists(bpf_rdonly_cast)                                                       \
		 ? ((struct type *)bpf_rdonly_cast(from, bpf_core_type_id_kernel(struct type))) \
			   ->member                                                             \
		 : (from)->member)

/* Any 8 bytes. */
#define LOAD_WORD(addr) LOAD(timespec64, addr, tv_sec)

#endif /* TOLLGATE_LIB_LOAD_BPF_H */
