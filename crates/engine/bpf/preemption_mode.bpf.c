// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads the preemption mode before an engine selects its hooks, which depend on it. An object of
 * its own without maps.
 */
#include "lib/kernel.bpf.h"
#include "lib/preemption.bpf.h"

/* raw_tp, v4.17: never attached; the daemon runs it through BPF_PROG_TEST_RUN. Returns the mode. */
SEC("raw_tp/self")
int read_preemption(void *ctx)
{
	return preemption_mode();
}

char LICENSE[] SEC("license") = "GPL";
