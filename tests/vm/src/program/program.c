// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program without a C library that makes the system calls of a table. program.rs documents the
 * table's fields and appends the table to the linked program.
 *
 * build.rs compiles it for each kernel entry: as 64-bit code that uses `syscall`, as 64-bit code that
 * uses `int $0x80` (INT80), and as 32-bit code; for arm64, as 64-bit and as 32-bit code.
 */
#define MAX_ARGS 6

typedef unsigned int u32;
typedef unsigned long long u64;

enum arg_kind {
	ARG_NUMBER,
	ARG_RESULT,
	ARG_WORD,
	ARG_ARGV,
};

enum step_kind {
	STEP_CALL,
	STEP_STORE,
	STEP_TASK,
};

struct arg {
	u64 kind;
	u64 value;
};

struct step {
	u64 kind;
	u64 number;
	u64 saved;
	u64 watched;
	struct arg args[MAX_ARGS];
};

struct table {
	u64 rounds;
	u64 once;
	u64 steps;
	u64 counts;
	u64 watches;
	struct step step[];
};

/* program.ld places it behind the program. */
extern const struct table table;

#if defined(__x86_64__) && !defined(INT80)
#define NR_WRITE 1
#define NR_CLONE 56
#define NR_EXIT	 60

static long call(u32 number, const long *args)
{
	register long arg4 __asm__("r10") = args[3];
	register long arg5 __asm__("r8") = args[4];
	register long arg6 __asm__("r9") = args[5];
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"((long)number), "D"(args[0]), "S"(args[1]), "d"(args[2]), "r"(arg4),
			   "r"(arg5), "r"(arg6)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
#define NR_WRITE 64
#define NR_CLONE 220
#define NR_EXIT	 93

static long call(u32 number, const long *args)
{
	register long nr __asm__("x8") = number;
	register long arg1 __asm__("x0") = args[0];
	register long arg2 __asm__("x1") = args[1];
	register long arg3 __asm__("x2") = args[2];
	register long arg4 __asm__("x3") = args[3];
	register long arg5 __asm__("x4") = args[4];
	register long arg6 __asm__("x5") = args[5];

	__asm__ volatile("svc #0"
			 : "+r"(arg1)
			 : "r"(nr), "r"(arg2), "r"(arg3), "r"(arg4), "r"(arg5), "r"(arg6)
			 : "memory");
	return arg1;
}
#elif defined(__arm__)
#define NR_WRITE 4
#define NR_CLONE 120
#define NR_EXIT	 1

static long call(u32 number, const long *args)
{
	register long nr __asm__("r7") = number;
	register long arg1 __asm__("r0") = args[0];
	register long arg2 __asm__("r1") = args[1];
	register long arg3 __asm__("r2") = args[2];
	register long arg4 __asm__("r3") = args[3];
	register long arg5 __asm__("r4") = args[4];
	register long arg6 __asm__("r5") = args[5];

	__asm__ volatile("svc #0"
			 : "+r"(arg1)
			 : "r"(nr), "r"(arg2), "r"(arg3), "r"(arg4), "r"(arg5), "r"(arg6)
			 : "memory");
	return arg1;
}
#else
#define NR_WRITE 4
#define NR_CLONE 120
#define NR_EXIT	 1

#ifdef __x86_64__
#define FRAME_POINTER "rbp"
#else
#define FRAME_POINTER "ebp"
#endif

static long call(u32 number, const long *args)
{
	register long arg6 __asm__(FRAME_POINTER) = args[5];
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"((long)number), "b"(args[0]), "c"(args[1]), "d"(args[2]),
			   "S"(args[3]), "D"(args[4]), "r"(arg6)
			 : "memory");
	return result;
}
#endif

/* The low half of the time stamp counter; machines without one do not count. */
static u32 counter(void)
{
#if defined(__x86_64__) || defined(__i386__)
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return low;
#else
	return 0;
#endif
}

static volatile u64 *word_at(u64 address)
{
	return (volatile u64 *)(unsigned long)address;
}

static long argument(const struct arg *arg, long result, char **argv)
{
	switch (arg->kind) {
	case ARG_RESULT:
		return result;
	case ARG_WORD:
		return *word_at(arg->value);
	case ARG_ARGV:
		return (long)argv[arg->value];
	default:
		return arg->value;
	}
}

__attribute__((noreturn, used)) static void run_task(u64 first, u64 count, char **argv);

#if defined(__x86_64__) && !defined(INT80)
/* Starts a thread on the stack that ends at `stack`. It takes its arguments from there. */
static long start_thread(u64 flags, u64 *stack, u64 first, u64 count, char **argv)
{
	register long arg4 __asm__("r10") = 0;
	register long arg5 __asm__("r8") = 0;
	long result;

	stack = (u64 *)((unsigned long)stack & ~15UL) - 4;
	stack[0] = first;
	stack[1] = count;
	stack[2] = (u64)argv;
	__asm__ volatile("syscall\n\t"
			 "test %0, %0\n\t"
			 "jnz 1f\n\t"
			 "pop %%rdi\n\tpop %%rsi\n\tpop %%rdx\n\tpop %%rax\n\t"
			 "call run_task\n"
			 "1:"
			 : "=a"(result)
			 : "a"((long)NR_CLONE), "D"(flags), "S"(stack), "d"(0L), "r"(arg4),
			   "r"(arg5)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static long start_thread(u64 flags, u64 *stack, u64 first, u64 count, char **argv)
{
	register long nr __asm__("x8") = NR_CLONE;
	register long result __asm__("x0") = flags;
	register u64 *arg2 __asm__("x1");
	register long arg3 __asm__("x2") = 0;
	register long arg4 __asm__("x3") = 0;
	register long arg5 __asm__("x4") = 0;

	stack = (u64 *)((unsigned long)stack & ~15UL) - 4;
	stack[0] = first;
	stack[1] = count;
	stack[2] = (u64)argv;
	arg2 = stack;
	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "ldp x0, x1, [sp]\n\t"
			 "ldr x2, [sp, #16]\n\t"
			 "bl run_task\n"
			 "1:"
			 : "+r"(result)
			 : "r"(nr), "r"(arg2), "r"(arg3), "r"(arg4), "r"(arg5)
			 : "memory");
	return result;
}
#else
static long start_thread(u64 flags, u64 *stack, u64 first, u64 count, char **argv)
{
	(void)flags, (void)stack, (void)first, (void)count, (void)argv;
	return -1;
}
#endif

/* Starts a task that runs other steps: a thread if there is a stack for it, or else a child. */
static long start_task(const long *args, char **argv)
{
	const long call_args[MAX_ARGS] = { args[0] };
	long result;

	if (args[1])
		return start_thread(args[0], (u64 *)args[1], args[2], args[3], argv);
	result = call(NR_CLONE, call_args);
	if (!result)
		run_task(args[2], args[3], argv);
	return result;
}

static void write_out(const volatile void *bytes, unsigned long size)
{
	const long args[MAX_ARGS] = { 1, (long)bytes, size };

	call(NR_WRITE, args);
}

__attribute__((noreturn)) static void end(int status)
{
	const long args[MAX_ARGS] = { status };

	call(NR_EXIT, args);
	__builtin_unreachable();
}

/* Runs the steps of a task that is not the first, and ends it. */
__attribute__((noreturn, used)) static void run_task(u64 first, u64 count, char **argv)
{
	long args[MAX_ARGS] = { 0 };
	long result = 0;

	for (u64 i = first; i < first + count; i++) {
		const struct step *step = &table.step[i];

		for (int arg = 0; arg < MAX_ARGS; arg++)
			args[arg] = argument(&step->args[arg], result, argv);
		if (step->kind == STEP_STORE)
			*word_at(args[0] + args[1]) = args[2];
		else
			result = call(step->number, args);
		if (step->saved)
			*(volatile long *)(unsigned long)step->saved = result;
	}
	end(0);
}

__attribute__((noreturn, used)) static void run(char **stack)
{
	char **argv = stack + 1;
	long args[MAX_ARGS] = { 0 };
	u64 changed = 0;
	long result = 0;
	int failed = 0;

	for (u64 round = 0; round < table.rounds; round++) {
		u32 spent = 0;

		for (u64 i = round ? table.once : 0; i < table.steps; i++) {
			const struct step *step = &table.step[i];
			u64 before = 0;
			u32 start;

			for (int arg = 0; arg < MAX_ARGS; arg++)
				args[arg] = argument(&step->args[arg], result, argv);
			if (step->kind == STEP_STORE) {
				*word_at(args[0] + args[1]) = args[2];
				continue;
			}
			if (i == table.once)
				spent = 0;
			if (step->watched)
				before = *word_at(step->watched);
			start = counter();
			if (step->kind == STEP_TASK)
				result = start_task(args, argv);
			else
				result = call(step->number, args);
			spent += counter() - start;
			if (step->watched)
				changed += *word_at(step->watched) != before;
			if (step->saved)
				*(long *)(unsigned long)step->saved = result;
		}
		failed |= result < 0;
		if (table.counts)
			word_at(table.counts)[round] = spent;
	}
	if (table.counts)
		write_out(word_at(table.counts), table.rounds * sizeof(u64));
	if (table.watches)
		write_out(&changed, sizeof(changed));
	end(table.counts ? failed : 0);
}

#if defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl run\n");
#elif defined(__arm__)
__asm__(".globl _start\n_start:\n\tmov r0, sp\n\tbic sp, sp, #7\n\tbl run\n");
#elif defined(__x86_64__)
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n");
#else
__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tpush %eax\n\tcall run\n");
#endif
