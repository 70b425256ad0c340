/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hashes of watched names, and the Bloom filters of the prefilter. crates/engine/src/compile has
 * the same functions: watch_hash.rs and prefilter.rs.
 */
#ifndef TOLLGATE_LIB_WATCH_HASH_BPF_H
#define TOLLGATE_LIB_WATCH_HASH_BPF_H

#include "lib/kernel.bpf.h"

const volatile __u64 tlg_seed;
const volatile __u64 tlg_multiplier; /* odd */

#define HASH_MULTIPLIER 0x9e3779b97f4a7c15 /* 2^64 divided by the golden ratio */

/*
 * One multiplication by a secret is not enough: a difference in the highest bit of a word stays a
 * known difference of the product, for every odd multiplier, and a difference in the next word
 * can cancel it. After the shift and the second multiplication the difference is secret.
 */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	hash = (hash ^ (hash >> 32)) * tlg_multiplier;
	return hash ^ (hash >> 29);
}

#define PREFILTER_WORDS 4096 /* per table and plan; a power of two */

__u64 tlg_inode_bloom[2][PREFILTER_WORDS];
__u64 tlg_name_bloom[2][PREFILTER_WORDS];

/*
 * 30 bits: 12 choose a word, three times 6 a bit of it. Cheaper than mix(): names that share a
 * fingerprint cost time, and no more.
 */
static __always_inline __u32 fingerprint_of(__u64 word)
{
	return (tlg_seed ^ word) * HASH_MULTIPLIER >> 34;
}

static __always_inline __u32 inode_fingerprint(__u64 ino, __u32 dev)
{
	return fingerprint_of(ino ^ (__u64)dev << 32);
}

/*
 * Of length and first eight bytes of a name. Without branches: the verifier would follow both at
 * each step up.
 */
static __always_inline __u32 name_fingerprint(__u64 word, __u32 len)
{
	__u64 is_short = ((__u64)len - 8) >> 63;

	word &= ~((~0ULL << (8 * (len & 7))) * is_short);
	return fingerprint_of(word ^ len);
}

static __always_inline int bloom_test(const __u64 (*words)[PREFILTER_WORDS], __u32 half,
				      __u32 fingerprint)
{
	__u64 word = words[half & 1][fingerprint >> 18 & (PREFILTER_WORDS - 1)];

	return word >> (fingerprint & 63) & word >> (fingerprint >> 6 & 63) &
	       word >> (fingerprint >> 12 & 63) & 1;
}

static __always_inline void bloom_add(__u64 (*words)[PREFILTER_WORDS], __u32 half,
				      __u32 fingerprint)
{
	__u64 bits = 1ULL << (fingerprint & 63) | 1ULL << (fingerprint >> 6 & 63) |
		     1ULL << (fingerprint >> 12 & 63);

	__sync_fetch_and_or(&words[half & 1][fingerprint >> 18 & (PREFILTER_WORDS - 1)], bits);
}

#endif /* TOLLGATE_LIB_WATCH_HASH_BPF_H */
