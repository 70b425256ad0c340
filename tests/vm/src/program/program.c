// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program without a C library that makes the system calls of a table. program.rs documents the
 * table's fields and appends the table to the linked program.
 *
 * build.rs compiles it for each kernel entry: as 64-bit code that uses `syscall`, as 64-bit code that
 * uses `int $0x80` (INT80), and as 32-bit code.
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
#else
#define NR_WRITE 4
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

/* The low half of the time stamp counter. */
static u32 counter(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return low;
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

static void write_out(const volatile void *bytes, unsigned long size)
{
	const long args[MAX_ARGS] = { 1, (long)bytes, size };

	call(NR_WRITE, args);
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
	args[0] = table.counts ? failed : 0;
	call(NR_EXIT, args);
	__builtin_unreachable();
}

#ifdef __x86_64__
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n");
#else
__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tpush %eax\n\tcall run\n");
#endif
