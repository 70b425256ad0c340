/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Everything that crosses between the kernel side and user space: events through the ring, the plan
 * and the counters through maps. Mirrored by crates/engine/src/abi.rs; a test compares both with the
 * BTF of the built object. Fixed-width members only, so that user space may include this file.
 */
#ifndef TOLLGATE_WIRE_H
#define TOLLGATE_WIRE_H

#ifdef __bpf__
#include "lib/kernel.bpf.h"
#else
#include <linux/types.h>
#endif

#define WIRE_VERSION	     3
#define WIRE_COMM_LEN	     16
#define WIRE_TTY_LEN	     16
#define WIRE_TAIL_BYTES	     65536 /* capacity behind an event; a power of two */
#define WIRE_ARGV_BYTES	     32768 /* of a started program's arguments */
#define WIRE_PROCTITLE_BYTES 128 /* MAX_PROCTITLE_AUDIT_LEN, kernel/auditsc.c */
#define WIRE_NAME_BYTES	     4096 /* PATH_MAX */
#define WIRE_OBJECTS	     2 /* that a call can name */
#define WIRE_ITEMS	     8 /* that hooks inside the kernel can see of one call */
#define WIRE_AUX_RECORDS     8 /* details of one call */
#define WIRE_AUX_WORDS	     15 /* of a detail */
#define WIRE_SYSCALLS	     1024 /* numbers per ABI that the call table has room for */
#define WIRE_URING_OPS	     128 /* operations of io_uring that it has room for */
#define WIRE_URING_FIRST     2048 /* index of operation 0 in the call table, behind the calls */
#define WIRE_PLAN_ENTRIES    2176 /* entries that it has for one plan */
#define WIRE_FILESYSTEMS     16 /* conditions of the filesystem list */
#define WIRE_NO_SYSCALL	     0xffffffffu
#define WIRE_NO_BLOOM_BIT    0xffffffffu
#define WIRE_RECORD	     0x80000000u /* in a deciding test's value: record */
#define WIRE_RULE_BITS	     16 /* of it that are the rule; between the two, the epoch of its plan */
#define WIRE_DENY	     0x40000000u /* beside it: deny what could not be recorded */
#define WIRE_EPOCHS	     16384 /* before they start again at 0; a power of two */

/* ABIs, in the order of the call table. */
enum wire_abi {
	WIRE_B64,
	WIRE_B32,
	WIRE_ABIS,
};

_Static_assert(WIRE_URING_FIRST == WIRE_ABIS * WIRE_SYSCALLS, "calls of both ABIs come first");
_Static_assert(WIRE_PLAN_ENTRIES == WIRE_URING_FIRST + WIRE_URING_OPS, "operations come last");

/* Whole events that were chosen and could not be delivered. Index into wire_counts.lost. */
enum wire_lost {
	WIRE_LOST_RING_FULL,
	WIRE_LOST_SCRATCH,
	WIRE_LOST_TAIL_CALL, /* a stub did not find its body */
	WIRE_LOST_DENIED, /* the ring had no room, and the call was denied, or failed as if it were */
	WIRE_LOST_MAX,
};

/* Parts of delivered events that could not be read. Index into wire_counts.cut. */
enum wire_trunc {
	WIRE_TRUNC_NAME, /* a name in user memory was not readable */
	WIRE_TRUNC_ARGV, /* arguments were longer than WIRE_ARGV_BYTES or not readable */
	WIRE_TRUNC_PATH, /* a path was longer than WIRE_NAME_BYTES */
	WIRE_TRUNC_ENTER_STATE, /* what was remembered at the call's entry was gone at its end */
	WIRE_TRUNC_WATCHES, /* an object was below more watches than are compared */
	WIRE_TRUNC_SYSCALL_STATE, /* what hooks inside the kernel saw did not fit */
	WIRE_TRUNC_TASK_MARK, /* what was decided about a new task could not be kept with it */
	WIRE_TRUNC_AVC, /* a record of a security module stands without its call */
	WIRE_TRUNC_MAX,
};

/* One per CPU; only that CPU writes it. */
struct wire_counts {
	__u64 matched; /* events that a rule chose to record */
	__u64 delivered; /* of them, put into the ring */
	__u64 lost[WIRE_LOST_MAX];
	__u64 truncated[WIRE_TRUNC_MAX];
	__u64 _pad[2]; /* to whole cache lines */
};
_Static_assert(sizeof(struct wire_counts) == 128, "wire_counts layout");

/* How an object is found among the arguments. */
enum wire_lookup {
	WIRE_LOOKUP_NONE,
	WIRE_LOOKUP_PATH, /* string in `arg`, relative to the working directory */
	WIRE_LOOKUP_AT, /* string in `arg`, relative to the descriptor in `dir` */
	WIRE_LOOKUP_FD, /* descriptor in `arg` */
	WIRE_LOOKUP_OPENED, /* as PATH, and the call returns its descriptor */
	WIRE_LOOKUP_OPENED_AT, /* as AT, and the call returns its descriptor */
	WIRE_LOOKUP_EXEC, /* as PATH, and the call turns the task into it */
	WIRE_LOOKUP_EXEC_AT, /* as AT, and the call turns the task into it */
	WIRE_LOOKUP_TEXT, /* string in `arg` that is kept, not followed */
	WIRE_LOOKUP_HOOKED, /* a PATH item as a hook inside the kernel saw it: `effect` is its part */
};

struct wire_shape {
	__u8 lookup; /* enum wire_lookup */
	__u8 dir; /* argument with the directory descriptor */
	__u8 arg; /* argument with the string or descriptor */
	__u8 effect; /* enum wire_effect */
};

/* What happens to an object. All but USE touch its directory too. */
enum wire_effect {
	WIRE_EFFECT_USE,
	WIRE_EFFECT_CREATE,
	WIRE_EFFECT_DELETE,
};

/* Part of a PLACE_SEEN object: nametype of its PATH item. */
enum wire_nametype {
	WIRE_NAMETYPE_UNKNOWN,
	WIRE_NAMETYPE_NORMAL,
	WIRE_NAMETYPE_PARENT,
	WIRE_NAMETYPE_DELETE,
	WIRE_NAMETYPE_CREATE,
};

/* Groups of facts that a call's tests need, as bits of wire_syscall.facts. */
#define WIRE_FACT_CREDS	       1
#define WIRE_FACT_TASK	       2
#define WIRE_FACT_OBJECTS      4
#define WIRE_FACT_EXE	       8
#define WIRE_FACT_OPEN_HOW     16 /* access mode in a struct open_how in user memory */
#define WIRE_FACT_OPEN_FLAGS   32 /* access mode in the flags argument; see wire_syscall.open_arg */
#define WIRE_FACT_ENTER_STATE  64 /* a program at the call's entry remembers it */
#define WIRE_FACT_EXEC	       128 /* success starts a program: argv is read */
#define WIRE_FACT_FORKS	       256 /* also ends, with 0, in the task it makes: not a call of that task */
#define WIRE_FACT_HOOKED       512 /* hooks inside the kernel see its objects */
#define WIRE_FACT_HOOKED_NAMES 2048 /* and every name, as soon as the kernel has copied it */
#define WIRE_FACT_WATCH_ONLY \
	1024 /* no rule matches without a watch: tests_unwatched decides nothing */
#define WIRE_FACT_TASK_MARK 8192 /* with TASK: what the task list decided about the task */
#define WIRE_FACT_AUX	    4096 /* hooks inside the kernel see details of it */
#define WIRE_FACT_SADDR	    16384 /* family of its socket address; see wire_syscall.address */
#define WIRE_FACT_DENY	    32768 /* some rule denies what could not be recorded */

/* The detail that a call's registers and memory show when it ends. */
enum wire_aux_source {
	WIRE_AUX_SOURCE_NONE,
	WIRE_AUX_SOURCE_PIPE, /* two descriptors behind its first argument */
	WIRE_AUX_SOURCE_SOCKETPAIR, /* two descriptors behind its fourth argument */
	WIRE_AUX_SOURCE_SOCKETCALL, /* arguments behind its second argument */
	WIRE_AUX_SOURCE_MMAP,
	WIRE_AUX_SOURCE_OLD_MMAP, /* arguments behind its first argument */
	WIRE_AUX_SOURCE_OPENAT2,
	WIRE_AUX_SOURCE_CAPSET,
};

/* Where the socket address of a call is. */
enum wire_address {
	WIRE_ADDRESS_NONE,
	WIRE_ADDRESS_SECOND, /* in the second argument, its length in or behind the third */
	WIRE_ADDRESS_FIFTH, /* in the fifth, its length in or behind the sixth */
	WIRE_ADDRESS_MSGHDR, /* in the struct msghdr behind the second */
	WIRE_ADDRESS_MMSGHDR, /* in an array of struct mmsghdr behind the second */
	WIRE_ADDRESS_SOCKETCALL, /* the first argument says which call is made */
};
#define WIRE_ADDRESS_OUTPUT 128 /* the call fills it in when it succeeds */

/*
 * What one call evaluates. Index: abi * WIRE_SYSCALLS + number, or WIRE_URING_FIRST + operation of io_uring;
 * behind the calls of one half of the plan follow those of the other, see plan.bpf.h.
 */
struct wire_syscall {
	__u32 tests; /* index of its first test; WIRE_NO_SYSCALL when no rule names it */
	__u32 tests_unwatched; /* the same without the rules that need a watch to be hit */
	__u32 facts; /* WIRE_FACT_* */
	__u8 open_arg; /* argument with open flags or open_how */
	__u8 watch_perm; /* access modes for which an opened object is compared with watches */
	__u16 epoch; /* of the plan that it belongs to */
	__u8 aux_source; /* enum wire_aux_source */
	__u8 address; /* enum wire_address, perhaps with WIRE_ADDRESS_OUTPUT */
	__u8 _pad[6];
	struct wire_shape objects[WIRE_OBJECTS];
};
_Static_assert(sizeof(struct wire_syscall) == 32, "wire_syscall layout");

/* What a test looks at. */
enum wire_test_kind {
	WIRE_TEST_DECIDE, /* end of a rule: value is WIRE_RECORD | rule, or the rule to suppress by */
	WIRE_TEST_END, /* no rule matched */
	WIRE_TEST_WORD, /* 32-bit word of the event against value */
	WIRE_TEST_WORDS, /* 32-bit word of the event against the word at index value */
	WIRE_TEST_GROUP, /* as WORD, or a supplementary group */
	WIRE_TEST_OBJECT, /* word of any object with a known inode against value */
	WIRE_TEST_OBJECTS, /* word of any object against the event's word at index value */
	WIRE_TEST_TYPE, /* file type of any object */
	WIRE_TEST_MAJOR, /* major of any object's dev or rdev */
	WIRE_TEST_MINOR, /* minor of any object's dev or rdev */
	WIRE_TEST_PATH, /* any object is watch `value` */
	WIRE_TEST_DIR, /* any object is watch `value` or below it */
	WIRE_TEST_EXE, /* the program is watch `value` */
	WIRE_TEST_SAME, /* one object satisfies all of the `word` tests from index value on */
};

enum wire_op {
	WIRE_OP_EQ,
	WIRE_OP_NE,
	WIRE_OP_GT,
	WIRE_OP_GE,
	WIRE_OP_LT,
	WIRE_OP_LE,
	WIRE_OP_ANY, /* any of the bits */
	WIRE_OP_ALL, /* all of the bits */
};

/* One step of a call's rules: when it holds, the next one follows; else the one at on_false. */
struct wire_test {
	__u32 value;
	__u32 on_false; /* absolute index */
	__u16 word; /* index of a 32-bit word in wire_event or wire_object */
	__u8 op; /* enum wire_op */
	__u8 kind; /* enum wire_test_kind */
	__u32 _pad;
};
_Static_assert(sizeof(struct wire_test) == 16, "wire_test layout");

/* Key of a watched object: the inode behind a watched path. */
struct wire_inode_key {
	__u64 ino;
	__u32 dev;
	__u32 half; /* of the plan that watches it */
};
_Static_assert(sizeof(struct wire_inode_key) == 16, "wire_inode_key layout");

/* Which watch an inode is. */
struct wire_inode_watch {
	__u32 watch;
	__u32 sole_bloom_bit; /* name_bloom_bit() of the last component of the watched path, or WIRE_NO_BLOOM_BIT when
			    another watch has this inode, or a name of that spot */
};
_Static_assert(sizeof(struct wire_inode_watch) == 8, "wire_inode_watch layout");

/* What a system call's entry leaves for its end. */
struct wire_enter_state {
	__u64 jiffies;
	__u64 args[4];
	__u32 nr;
	__u32 abi; /* enum wire_abi */
};
_Static_assert(sizeof(struct wire_enter_state) == 48, "wire_enter_state layout");

#define WIRE_EVENT_RETURNED    1 /* exit and success are meaningful */
#define WIRE_EVENT_SCRIPT      2 /* the object is a script: its inode is not known, the program's is */
#define WIRE_EVENT_EXE	       4 /* the task has a program; without it exe is (null) */
#define WIRE_EVENT_EXE_DELETED 8
#define WIRE_EVENT_CWD_DELETED 16
#define WIRE_EVENT_STARTED     32 /* the call started a program: argv follows */
#define WIRE_EVENT_CWD	       64
#define WIRE_EVENT_URING       128 /* through io_uring: args are those of no call */
#define WIRE_EVENT_STAMPED     256 /* of a record of the kernel's: type and text are the detail */

/*
 * One audited syscall. Behind it follow, without gaps: `objects` times a wire_object, its name and its
 * path, each padded to 8 bytes; then `aux_count` times a wire_aux; then the components of exe and cwd, leaf first, each ended by NUL; then
 * proctitle; then argv; then a socket address; then subj; then, if asked for, comm of the
 * parent and the components of the control group. Tests address the first part as 32-bit words.
 */
struct wire_event {
	__u32 len; /* bytes, this header and what follows it included */
	__u16 version; /* WIRE_VERSION */
	__u16 flags; /* WIRE_EVENT_* */
	__u64 jiffies; /* kernel ticks at the call's entry, or at its end where entry is not seen */
	__u64 args[4];
	__u64 exit; /* two's complement */
	__u32 abi; /* enum wire_abi */
	__u32 nr;
	__u32 rule; /* of the deciding test, without WIRE_RECORD and WIRE_DENY; until there is one, the task's mark */
	__u32 success; /* 1 or 0 */
	__u32 pid;
	__u32 ppid;
	__u32 auid;
	__u32 auid_set; /* 1 or 0 */
	__u32 ses;
	__u32 personality;
	__u32 uid;
	__u32 gid;
	__u32 euid;
	__u32 suid;
	__u32 fsuid;
	__u32 egid;
	__u32 sgid;
	__u32 fsgid;
	__u32 open_perm; /* AUDIT_PERM_* that an open asks for, or the family of a socket address */
	__u32 argc; /* until arguments are read: 1 where there is a socket address, or 0 */
	__u8 comm[WIRE_COMM_LEN]; /* bytes, not text; NUL-padded */
	__u8 tty[WIRE_TTY_LEN]; /* NUL-padded; empty when there is none */
	__u16 argv_len;
	__u16 exe_len;
	__u16 cwd_len;
	__u16 proctitle_len;
	__u16 sockaddr_len;
	__u16 subj_len; /* of the name of the task's AppArmor label */
	__u8 subj_mode; /* of its profile, enum profile_mode of the kernel */
	__u8 objects;
	__u8 aux_count;
	__u8 uring_op; /* operation, with EVENT_URING */
};
_Static_assert(sizeof(struct wire_event) == 184, "wire_event layout");

#define WIRE_OBJECT_INODE   1 /* the inode facts are known */
#define WIRE_OBJECT_PARENT  2 /* so are the directory's */
#define WIRE_OBJECT_CREATED 4 /* the call made it */
#define WIRE_OBJECT_NAMED   8 /* a name follows: the call gave one that could be read */
#define WIRE_OBJECT_KERNEL  16 /* the name was read where only the kernel could have written it */
#define WIRE_OBJECT_WALKED \
	32 /* the name is the object's own path: components, leaf first, each NUL-ended */
#define WIRE_OBJECT_FS_EXCLUDED 64 /* on a file system on which names are not looked at */
#define WIRE_OBJECT_REMOVED	128 /* nothing stands under its path any more */

struct wire_inode {
	__u64 ino;
	__u32 dev;
	__u32 rdev;
	__u32 mode;
	__u32 uid;
	__u32 gid;
	__u32 _pad;
};
_Static_assert(sizeof(struct wire_inode) == 32, "wire_inode layout");

/* One object that the call names; its name and its path follow, each padded to 8 bytes. */
struct wire_object {
	struct wire_inode inode;
	struct wire_inode parent;
	__u16 name_len; /* bytes, without a NUL */
	__u8 flags; /* WIRE_OBJECT_* */
	__u8 effect; /* from wire_shape, or enum wire_nametype */
	__u8 lookup; /* from wire_shape, or WIRE_LOOKUP_HOOKED */
	__u8 named_by; /* 1 + index of the object whose name this one has, or 0 */
	__u16 path_len; /* bytes, in components, leaf first; 0 when the path is not known */
};
_Static_assert(sizeof(struct wire_object) == 72, "wire_object layout");

/* Kind of a detail: the number of its record, include/uapi/linux/audit.h. */
enum wire_aux_kind {
	WIRE_AUX_IPC = 1303, /* uid, gid, mode, whether more follows; qbytes, uid, gid, mode */
	WIRE_AUX_SOCKETCALL = 1304, /* number of arguments, arguments */
	WIRE_AUX_MQ_OPEN = 1312, /* oflag, mode, attributes */
	WIRE_AUX_MQ_SENDRECV = 1313, /* mqdes, bytes, priority, seconds, nanoseconds */
	WIRE_AUX_MQ_NOTIFY = 1314, /* mqdes, signal */
	WIRE_AUX_MQ_GETSETATTR = 1315, /* mqdes, attributes */
	WIRE_AUX_FD_PAIR = 1317,
	WIRE_AUX_OBJ_PID = 1318, /* pid, auid, uid, mode and ses; names of task and label */
	WIRE_AUX_BPRM_FCAPS = 1321, /* see file_caps() in crates/engine/src/decode/aux_records.rs */
	WIRE_AUX_CAPSET = 1322, /* pid, inheritable, permitted, effective, ambient */
	WIRE_AUX_MMAP = 1323, /* fd, flags */
	WIRE_AUX_KERN_MODULE = 1330, /* name, NUL-padded */
	WIRE_AUX_TIME_INJOFFSET = 1332, /* seconds, nanoseconds */
	WIRE_AUX_TIME_ADJNTPVAL = 1333, /* six times: old, new */
	WIRE_AUX_OPENAT2 = 1337, /* flags, mode, resolve */
};

/* A detail: what some calls have beside task and objects. */
struct wire_aux {
	__u32 kind; /* enum wire_aux_kind */
	__u32 _pad;
	__u64 word[WIRE_AUX_WORDS];
};
_Static_assert(sizeof(struct wire_aux) == 128, "wire_aux layout");

#endif /* TOLLGATE_WIRE_H */
