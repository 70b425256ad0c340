// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The BPF object of both engines; the loader picks the programs of one engine. Every hook family
 * is a header in hooks/; all events end in emit_event() of lib/event.bpf.h.
 *
 * Tracepoint engine: per-syscall tracepoints, or the raw tracepoint, which also sees 32-bit
 * syscalls. While one is attached, every syscall of the machine takes the kernel's trace slow
 * path; only syscalls that rules name run a program.
 *
 * Fentry engine: the kernel functions of the syscalls that rules name, of both ABIs. Other
 * syscalls execute no additional instruction.
 *
 * Engine lsm, for kernels that preempt themselves: kprobes on these functions, and task work.
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
#include "hooks/call.bpf.h"
#include "hooks/call_open.bpf.h"
#include "hooks/daemon.bpf.h"

char LICENSE[] SEC("license") = "GPL";
