// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where a syscall is seen. One body, syscall_end(), serves two engines; the loader takes the programs
 * of one of them.
 *
 * Tracepoint engine: per-syscall tracepoints, or the one raw tracepoint that also sees 32-bit calls.
 * Attached to any of them, every syscall of the machine takes the kernel's trace slow path; only the
 * calls that rules name run a program.
 *
 * Fentry engine: the kernel functions behind the calls that rules name, of both ABIs. Other calls do
 * not execute one instruction more.
 */
#include "hooks/fork.bpf.h"
#include "hooks/open.bpf.h"
#include "hooks/names.bpf.h"
#include "hooks/attribute.bpf.h"
#include "hooks/socket.bpf.h"
#include "hooks/aux_records.bpf.h"
#include "hooks/uring.bpf.h"
#include "hooks/deny.bpf.h"
#include "hooks/avc.bpf.h"
#include "guard/hooks.bpf.h"
#include "hooks/tracepoint.bpf.h"
#include "hooks/exec.bpf.h"
#include "hooks/stub.bpf.h"
#include "hooks/daemon.bpf.h"

char LICENSE[] SEC("license") = "GPL";
