/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The call of a function inside the kernel: its arguments and its result.
 *
 * The engine fentry attaches programs as fentry and fexit. The engine lsm loads the same programs
 * as kprobe.multi and kprobe.session, which the kernel does not skip when it preempts a task
 * inside a program; the verifier removes the code for the other form. A session runs a program at
 * both ends of a function. The arguments are gone at the end, so they are kept with the state of
 * the syscall, whose slot call_enter() has taken.
 */
#ifndef TOLLGATE_LIB_FUNCTION_CALL_BPF_H
#define TOLLGATE_LIB_FUNCTION_CALL_BPF_H

#include "wire.h"
#include "lib/arch.bpf.h"
#include "lib/form.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/load.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/task.bpf.h"
#include "lib/task_state.bpf.h"

/* v7.0 forms: v6.10 has no argument. For the suffix see lib/task_work.bpf.h. */
extern bool bpf_session_is_return___v7_0(void *ctx) __ksym __weak;
extern __u64 *bpf_session_cookie___v7_0(void *ctx) __ksym __weak; /* the same word at both ends */

struct function_call {
	__u64 arg[FUNCTION_ARGS];
	__u64 result; /* after at_return() */
	int skips_return; /* what the program returns if at_return() is false */
};

/* An argument or result as a pointer to a struct of the kernel. */
#define POINTER(value, type)                                                                 \
	((struct type *)(tlg_kprobes ? bpf_rdonly_cast((void *)(value),                      \
						       bpf_core_type_id_kernel(struct type)) \
				     : (void *)(value)))

#define ARG(call, index, type) POINTER((call).arg[index], type)

/*
 * An argument, or the result, of fentry and fexit. As an instruction: clang merges two loads of which
 * one is executed, and the verifier refuses that.
 */
static __always_inline __u64 load_word_of(const __u64 *ctx, const int index)
{
	__u64 word;

	asm("%0 = *(u64 *)(%1 + %2)" : "=r"(word) : "r"(ctx), "i"(8 * index));
	return word;
}

/* Volatile for the same reason. */
static __always_inline void load_function_args(__u64 *arg, const volatile struct pt_regs *regs)
{
	arg[0] = FUNCTION_ARG1(regs);
	arg[1] = FUNCTION_ARG2(regs);
	arg[2] = FUNCTION_ARG3(regs);
	arg[3] = FUNCTION_ARG4(regs);
	arg[4] = FUNCTION_ARG5(regs);
	arg[5] = FUNCTION_ARG6(regs);
}

/*
 * Loads the first `args` arguments when the function begins. Returns whether the program has
 * something to do.
 */
static __always_inline int at_entry(struct function_call *call, const __u64 *ctx, const int args)
{
	if (!tlg_kprobes) {
#pragma unroll
		for (int i = 0; i < args; i++)
			call->arg[i] = load_word_of(ctx, i);
		return 1;
	}
	load_function_args(call->arg, (const volatile struct pt_regs *)ctx);
	return !!state_of_call(current());
}

/*
 * Loads the first `args` arguments when the function has returned, and, at a kprobe, its result.
 * Returns whether it has returned. A function that a file system calls again inside itself, for an
 * object of another, is seen once.
 */
static __always_inline int load_return(struct function_call *call, __u64 *ctx, const int args,
				       enum inside inside)
{
	const volatile struct pt_regs *regs = (const volatile struct pt_regs *)ctx;
	struct syscall_state *state;
	struct saved_call *saved;

	if (!tlg_kprobes) {
#pragma unroll
		for (int i = 0; i < args; i++)
			call->arg[i] = load_word_of(ctx, i);
		return 1;
	}
	call->skips_return = 1;
	state = state_of_call(current());
	if (!state)
		return 0;
	saved = &state->saved[inside];
	if (!bpf_session_is_return___v7_0(ctx)) {
		if (saved->sp && regs->sp < saved->sp)
			return 0;
		saved->sp = regs->sp;
		load_function_args(saved->arg, regs);
		call->skips_return = 0;
		return 0;
	}
	if (!saved->sp)
		return 0;
	saved->sp = 0;
#pragma unroll
	for (int i = 0; i < FUNCTION_ARGS; i++)
		call->arg[i] = saved->arg[i];
	call->result = FUNCTION_RESULT(regs);
	return 1;
}

/* The same with the result of a function of `args` arguments. */
static __always_inline int at_return(struct function_call *call, __u64 *ctx, const int args,
				     enum inside inside)
{
	if (!load_return(call, ctx, args, inside))
		return 0;
	if (!tlg_kprobes)
		call->result = load_word_of(ctx, args);
	return 1;
}

/* The same for a function with arguments after these on some kernels. */
static __always_inline int at_form_return(struct function_call *call, __u64 *ctx, const int args,
					  enum inside inside)
{
	if (!load_return(call, ctx, args, inside))
		return 0;
	if (!tlg_kprobes)
		call->result = result_of(ctx);
	return 1;
}

#endif /* TOLLGATE_LIB_FUNCTION_CALL_BPF_H */
