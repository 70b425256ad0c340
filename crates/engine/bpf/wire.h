/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between the BPF programs and user space: events in the ring, the plan and the
 * counters in maps. crates/engine/src/abi.rs mirrors it; a test compares the mirror with the BTF
 * of the built object. Only members of fixed width, so that user space can include this file.
 */
#ifndef TOLLGATE_WIRE_H
#define TOLLGATE_WIRE_H

#ifdef __bpf__
#include "lib/kernel.bpf.h"
#else
#include <linux/types.h>
#endif

#define WIRE_VERSION	     11
#define WIRE_COMM_LEN	     16
#define WIRE_TTY_LEN	     16
#define WIRE_TAIL_BYTES	     65536 /* capacity of an event's tail; a power of two */
#define WIRE_ARGV_BYTES	     32768 /* maximum length of argv of an exec */
#define WIRE_PROCTITLE_BYTES 128 /* MAX_PROCTITLE_AUDIT_LEN, kernel/auditsc.c */
#define WIRE_NAME_BYTES	     4096 /* PATH_MAX */
#define WIRE_OBJECTS	     2 /* maximum objects in a syscall's arguments */
#define WIRE_ITEMS	     8 /* maximum PATH items of hooks per syscall */
#define WIRE_AUX_RECORDS     8 /* maximum auxiliary records per syscall */
#define WIRE_AUX_WORDS	     15 /* words of an auxiliary record */
#define WIRE_SYSCALLS	     1024 /* syscall numbers per ABI */
#define WIRE_URING_OPS	     128 /* io_uring operations */
#define WIRE_URING_FIRST     2048 /* index of operation 0 in the syscall table, after both ABIs */
#define WIRE_PLAN_ENTRIES    2176 /* entries of the syscall table per plan */
#define WIRE_FILESYSTEMS     16 /* maximum rules of the filesystem list */
#define WIRE_NO_SYSCALL	     0xffffffffu
#define WIRE_NO_FINGERPRINT  0xffffffffu /* a fingerprint has 30 bits */
#define WIRE_NO_VERDICT	     0xffffffffu
#define WIRE_RECORD	     0x80000000u /* flag in a verdict: record the event */
#define WIRE_RULE_BITS	     16 /* low bits of that value: the rule; above them the epoch */
#define WIRE_DENY	     0x40000000u /* flag: deny the syscall if it cannot be recorded */
#define WIRE_EPOCHS	     16384 /* epochs wrap to 0 here; a power of two */

/* ABIs, in the order of the syscall table. */
enum wire_abi {
	WIRE_B64,
	WIRE_B32,
	WIRE_ABIS,
};

_Static_assert(WIRE_URING_FIRST == WIRE_ABIS * WIRE_SYSCALLS, "calls of both ABIs come first");
_Static_assert(WIRE_PLAN_ENTRIES == WIRE_URING_FIRST + WIRE_URING_OPS, "operations come last");

/* Reasons for losing a whole event that a rule records. Index into wire_counts.lost. */
enum wire_lost {
	WIRE_LOST_RING_FULL,
	WIRE_LOST_NO_SLOT, /* no memory for the state of the syscall */
	WIRE_LOST_TAIL_CALL, /* a stub's tail call failed */
	WIRE_LOST_DENIED, /* ring full; the syscall was denied, or failed with EPERM */
	WIRE_LOST_MAX,
};

/* Parts missing from delivered events. Index into wire_counts.truncated. */
enum wire_trunc {
	WIRE_TRUNC_NAME, /* a name in user memory could not be read */
	WIRE_TRUNC_ARGV, /* argv was longer than WIRE_ARGV_BYTES, or could not be read */
	WIRE_TRUNC_PATH, /* a path was longer than WIRE_NAME_BYTES */
	WIRE_TRUNC_ENTER_STATE, /* there was no memory to save state at entry */
	WIRE_TRUNC_WATCHES, /* an object matched more watches, or has a longer path, than is compared */
	WIRE_TRUNC_SYSCALL_STATE, /* more state than a slot takes, or no slot */
	WIRE_TRUNC_TASK_MARK, /* the verdict of the task list could not be stored with the task */
	WIRE_TRUNC_AVC, /* an LSM record has no SYSCALL record */
	WIRE_TRUNC_DESCRIPTOR, /* a thread may have replaced the descriptor that an open returned */
	WIRE_TRUNC_RESULT, /* the result was gone when the end of the syscall was seen */
	WIRE_TRUNC_MAX,
};

/* Counters of one CPU; only that CPU writes them. In cache lines of their own. */
struct wire_counts {
	__u64 matched; /* events that a rule records */
	__u64 delivered; /* of these, events written to the ring */
	__u64 lost[WIRE_LOST_MAX];
	__u64 truncated[WIRE_TRUNC_MAX];
	__u64 unread; /* bytes in the ring when this CPU looked last */
	__u64 _pad[7];
};
_Static_assert(sizeof(struct wire_counts) == 192, "wire_counts layout");

#define WIRE_RING_OWNERS     4096 /* a power of two */
#define WIRE_FIRST_NAMESPACE 0xf0000000u /* PROC_DYNAMIC_FIRST, fs/proc/generic.c */

/* An owner of tasks that has added events to a ring more than half full. */
struct wire_ring_owner {
	__u64 used; /* bytes added, and in the high half since when: lib/ring_shares.bpf.h */
	__u64 lost; /* events for which the ring had no room */
	__u64 reported; /* of these, events that the log reports; written by the daemon */
	__u32 key; /* 1 + user, or 1 + number of a namespace; 0 if the place is free */
	__u32 _pad;
};
_Static_assert(sizeof(struct wire_ring_owner) == 32, "wire_ring_owner layout");

/* How the arguments identify an object. */
enum wire_lookup {
	WIRE_LOOKUP_NONE,
	WIRE_LOOKUP_PATH, /* string in `arg`, relative to the working directory */
	WIRE_LOOKUP_AT, /* string in `arg`, relative to the descriptor in `dir` */
	WIRE_LOOKUP_FD, /* descriptor in `arg` */
	WIRE_LOOKUP_OPENED, /* as PATH; the syscall returns its descriptor */
	WIRE_LOOKUP_OPENED_AT, /* as AT; the syscall returns its descriptor */
	WIRE_LOOKUP_EXEC, /* as PATH; the syscall executes it */
	WIRE_LOOKUP_EXEC_AT, /* as AT; the syscall executes it */
	WIRE_LOOKUP_TEXT, /* string in `arg` that is stored but not resolved (symlink target) */
	WIRE_LOOKUP_HOOKED, /* a PATH item recorded by a hook inside the kernel; `effect` is its nametype */
	WIRE_LOOKUP_AT_NAMED, /* as AT; with an empty string and a descriptor the kernel looks nothing up */
	WIRE_LOOKUP_RETURNED, /* the descriptor that the syscall returns; its name is empty */
	WIRE_LOOKUP_CWD, /* as PATH; becomes the working directory */
	WIRE_LOOKUP_AT_OR_CWD, /* as AT; an empty string is the working directory, or nothing */
	WIRE_LOOKUP_AT_OR_NULL, /* as AT; a null pointer is an empty string, and both are no name */
};

struct wire_shape {
	__u8 lookup; /* enum wire_lookup */
	__u8 dir; /* argument with the directory descriptor */
	__u8 arg; /* argument with the string or descriptor */
	__u8 effect; /* enum wire_effect */
};

/* What the syscall does to an object. CREATE and DELETE change its directory too. */
enum wire_effect {
	WIRE_EFFECT_USE,
	WIRE_EFFECT_CREATE,
	WIRE_EFFECT_DELETE,
};

/* Forms of kernel functions, bits of tlg_forms: the table in src/hooks/internal_hook.rs. */
enum wire_form {
	WIRE_FORM_PARENT_BY_NAME = 1 << 0, /* __filename_parentat() in place of path_parentat() */
	WIRE_FORM_CREATE_IN_PARENT = 1 << 1, /* vfs_create() without the directory */
	WIRE_FORM_MKDIR_DENTRY = 1 << 2, /* vfs_mkdir() returns a dentry */
	WIRE_FORM_NTP_ADJTIMEX = 1 << 3, /* ntp_adjtimex() in place of __do_adjtimex() */
	WIRE_FORM_NAMES_IN_ORDER = 1 << 4, /* the first of two names is copied first */
};

/* nametype= of the PATH item of a LOOKUP_HOOKED object. */
enum wire_nametype {
	WIRE_NAMETYPE_UNKNOWN,
	WIRE_NAMETYPE_NORMAL,
	WIRE_NAMETYPE_PARENT,
	WIRE_NAMETYPE_DELETE,
	WIRE_NAMETYPE_CREATE,
};

/* Facts that the tests of a syscall read: bits of wire_syscall.facts. */
#define WIRE_FACT_CREDS	       1
#define WIRE_FACT_TASK	       2
#define WIRE_FACT_OBJECTS      4
#define WIRE_FACT_EXE	       8
#define WIRE_FACT_OPEN_HOW     16 /* access mode in a struct open_how in user memory */
#define WIRE_FACT_OPEN_FLAGS   32 /* access mode in the flags argument; see wire_syscall.open_arg */
#define WIRE_FACT_ENTER_STATE  64 /* state is saved at entry */
#define WIRE_FACT_EXEC	       128 /* success starts a program: argv is recorded */
#define WIRE_FACT_FORKS	       256 /* also returns 0 in the new task; that return is not an event */
#define WIRE_FACT_HOOKED       512 /* hooks inside the kernel record its objects */
#define WIRE_FACT_HOOKED_NAMES 2048 /* hooks record every name that the kernel copies */
#define WIRE_FACT_WATCH_ONLY   1024 /* every rule needs a watch: tests_unwatched decides nothing */
#define WIRE_FACT_TASK_MARK    8192 /* with TASK: the verdict of the task list */
#define WIRE_FACT_AUX	       4096 /* hooks inside the kernel record its auxiliary data */
#define WIRE_FACT_SADDR	       16384 /* family of its socket address; see wire_syscall.address */
#define WIRE_FACT_DENY	       32768 /* a rule denies the syscall if it cannot be recorded */
#define WIRE_FACT_FOUND_ONLY   65536 /* with HOOKED: hooks record only objects that it finds */
#define WIRE_FACT_RESULT       131072 /* a rule tests its result */

/* Auxiliary record that can be read from registers and user memory at exit. */
enum wire_aux_source {
	WIRE_AUX_SOURCE_NONE,
	WIRE_AUX_SOURCE_PIPE, /* two descriptors at the first argument */
	WIRE_AUX_SOURCE_SOCKETPAIR, /* two descriptors at the fourth argument */
	WIRE_AUX_SOURCE_SOCKETCALL, /* arguments at the second argument */
	WIRE_AUX_SOURCE_MMAP,
	WIRE_AUX_SOURCE_OLD_MMAP, /* arguments at the first argument */
	WIRE_AUX_SOURCE_OPENAT2,
	WIRE_AUX_SOURCE_CAPSET,
	/* The task that the first or second argument names; `EARLY`: `EPERM` can come before lookup. */
	WIRE_AUX_SOURCE_TARGET_FIRST,
	WIRE_AUX_SOURCE_TARGET_SECOND,
	WIRE_AUX_SOURCE_TARGET_FIRST_EARLY,
	WIRE_AUX_SOURCE_TARGET_SECOND_EARLY,
	WIRE_AUX_SOURCE_TRACED, /* the second argument, if the first requests to trace it */
	WIRE_AUX_SOURCE_LOADED_PROGRAM, /* a BPF program behind the returned descriptor */
};

/* Which argument has the socket address. */
enum wire_address {
	WIRE_ADDRESS_NONE,
	WIRE_ADDRESS_SECOND, /* second argument; its length in or at the third */
	WIRE_ADDRESS_FIFTH, /* fifth argument; its length in or at the sixth */
	WIRE_ADDRESS_MSGHDR, /* in struct msghdr at the second argument */
	WIRE_ADDRESS_MMSGHDR, /* in an array of struct mmsghdr at the second argument */
	WIRE_ADDRESS_SOCKETCALL, /* socketcall: the first argument is the operation */
};
#define WIRE_ADDRESS_OUTPUT 128 /* flag: an output of the syscall */
#define WIRE_ADDRESS_EARLY  64 /* flag: copied before the file is known to be a socket */

/* What a syscall changes or reads of an object without opening it. */
enum wire_attribute {
	WIRE_ATTRIBUTE_NONE,
	WIRE_ATTRIBUTE_MODE,
	WIRE_ATTRIBUTE_OWNER,
	WIRE_ATTRIBUTE_LENGTH,
	WIRE_ATTRIBUTE_TIMES,
	WIRE_ATTRIBUTE_SET_XATTR,
	WIRE_ATTRIBUTE_REMOVE_XATTR,
	WIRE_ATTRIBUTE_GET_XATTR,
	WIRE_ATTRIBUTE_LIST_XATTR,
	WIRE_ATTRIBUTE_CWD,
	WIRE_ATTRIBUTE_ROOT,
	WIRE_ATTRIBUTE_MOUNT,
	WIRE_ATTRIBUTE_UMOUNT,
};

/*
 * Hooks that serve a syscall. Others can run during it, for an io_uring operation that no rule
 * names: between a stop of its tracer and its start, with its registers.
 */
#define WIRE_HOOKS_OPEN	   1 /* opens by name */
#define WIRE_HOOKS_NAMES   2 /* directories of names that are created or removed */
#define WIRE_HOOKS_ADDRESS 4 /* socket addresses */

/*
 * Rules and facts of one syscall. Index: abi * WIRE_SYSCALLS + number, or WIRE_URING_FIRST +
 * io_uring operation. The table has two halves, one for each plan; see lib/plan.bpf.h.
 */
struct wire_syscall {
	__u32 tests; /* index of its first test; WIRE_NO_SYSCALL if no rule names it */
	__u32 tests_unwatched; /* the same without rules that need a watch */
	__u32 facts; /* WIRE_FACT_* */
	__u8 open_arg; /* argument with open flags or open_how */
	__u8 watch_perm; /* access modes for which opened objects are compared with watches */
	__u16 epoch; /* epoch of its plan */
	__u8 aux_source; /* enum wire_aux_source */
	__u8 address; /* enum wire_address, optionally with WIRE_ADDRESS_OUTPUT */
	__u8 attribute; /* enum wire_attribute */
	__u8 hooks; /* WIRE_HOOKS_* */
	__u8 _pad[4];
	struct wire_shape objects[WIRE_OBJECTS];
};
_Static_assert(sizeof(struct wire_syscall) == 32, "wire_syscall layout");

/* What a test compares. */
enum wire_test_kind {
	WIRE_TEST_TRUE, /* holds: a rule without conditions */
	WIRE_TEST_END, /* no rule matched */
	WIRE_TEST_WORD, /* 32-bit word of the event against value */
	WIRE_TEST_WORDS, /* 32-bit word of the event against the word at index value */
	WIRE_TEST_GROUP, /* as WORD; also true for a supplementary group */
	WIRE_TEST_OBJECT, /* word of any object with a known inode against value */
	WIRE_TEST_OBJECTS, /* word of any object against the event's word at index value */
	WIRE_TEST_TYPE, /* file type of any object */
	WIRE_TEST_MAJOR, /* major of any object's dev or rdev */
	WIRE_TEST_MINOR, /* minor of any object's dev or rdev */
	WIRE_TEST_PATH, /* any object is watch `value`; with `word` 1, not by a name that any user can make */
	WIRE_TEST_DIR, /* any object is watch `value` or is below it; `word` as for PATH */
	WIRE_TEST_EXE, /* the program is watch `value` */
	WIRE_TEST_SAME, /* one object satisfies all of the `word` tests from index value on */
	WIRE_TEST_BY_WATCH, /* goes on at the first of the next rules whose watch was hit: `word` entries follow, from watch `value` on */
	WIRE_TEST_ENTRY, /* such an entry: `value` is the index in the first of these rules about its watch where to go on */
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

/* One step of a syscall's rules. If it holds and has no verdict, the next test follows; if it does not hold, the one at on_false. */
struct wire_test {
	__u32 value;
	__u32 on_false; /* absolute index */
	__u16 word; /* index of a 32-bit word in wire_event or wire_object */
	__u8 op; /* enum wire_op */
	__u8 kind; /* enum wire_test_kind */
	__u32 verdict; /* of the rule whose last test this is: WIRE_RECORD | rule, or the rule that suppresses the event; else WIRE_NO_VERDICT */
};
_Static_assert(sizeof(struct wire_test) == 16, "wire_test layout");

/* Key of tlg_watch_inode: the inode of a watched path. */
struct wire_inode_key {
	__u64 ino;
	__u32 dev;
	__u32 half; /* half of the plan that watches it */
};
_Static_assert(sizeof(struct wire_inode_key) == 16, "wire_inode_key layout");

/* An inode for as long as its file system is mounted. */
struct wire_identity {
	__u64 ino; /* 0: none */
	__u32 dev; /* watch_dev() */
	__u32 generation; /* i_generation: differs when the file system uses a number again */
};
_Static_assert(sizeof(struct wire_identity) == 16, "wire_identity layout");

/*
 * A watch, where a map leads to one or in a list of hits, is its number, or the index of a set of
 * watches that lead to the same object with this flag.
 */
#define WIRE_WATCH_SET	 0x40000
#define WIRE_WATCH_SETS	 1024 /* sets of one plan */
#define WIRE_SET_WATCHES 15

/* Value of tlg_watch_sets. */
struct wire_watch_set {
	__u32 count;
	__u32 watch[WIRE_SET_WATCHES]; /* numbers */
};
_Static_assert(sizeof(struct wire_watch_set) == 64, "wire_watch_set layout");

/* Value of tlg_watch_inode: the watch of an inode. */
struct wire_inode_watch {
	__u32 watch; /* or a set */
	__u32 sole_name; /* name_fingerprint() of the last component of the watched path; WIRE_NO_FINGERPRINT if another watch has this inode, or a name with that fingerprint */
	__u32 generation; /* as in struct wire_identity */
	__u32 _pad;
};
_Static_assert(sizeof(struct wire_inode_watch) == 16, "wire_inode_watch layout");

/* Value of tlg_watch_path: the watch of a name. */
struct wire_name_watch {
	__u32 watch; /* or a set */
	__u32 sole_name; /* for inodes that the name leads to later: see learn_inode() */
	struct wire_identity led_to[2]; /* the inodes that it led to last, newest first */
};
_Static_assert(sizeof(struct wire_name_watch) == 40, "wire_name_watch layout");

/* Syscall state saved at entry and used at exit. */
struct wire_enter_state {
	__u64 jiffies;
	__u64 args[4];
	__u32 nr;
	__u32 abi; /* enum wire_abi */
};
_Static_assert(sizeof(struct wire_enter_state) == 48, "wire_enter_state layout");

#define WIRE_EVENT_RETURNED    1 /* exit and success are meaningful */
#define WIRE_EVENT_SCRIPT      2 /* the executed file is a script, the inode its interpreter */
#define WIRE_EVENT_EXE	       4 /* the task has an executable; without this flag exe is (null) */
#define WIRE_EVENT_EXE_DELETED 8
#define WIRE_EVENT_CWD_DELETED 16
#define WIRE_EVENT_STARTED     32 /* the syscall executed a program: argv follows */
#define WIRE_EVENT_CWD	       64
#define WIRE_EVENT_URING       128 /* io_uring operation: args are 0 for rules */
#define WIRE_EVENT_STAMPED     256 /* of a kernel record, whose type and text are in wire_aux */
#define WIRE_EVENT_UNPROVEN    512 /* seccomp or a tracer may have answered the syscall */
#define WIRE_EVENT_DESCRIPTOR  1024 /* the returned descriptor may be of another object */
#define WIRE_EVENT_JOINED      2048 /* of a kernel record too: its type and stamp in wire_aux */
#define WIRE_EVENT_EXE_LONG    4096 /* the path of the executable is too long */
#define WIRE_EVENT_CWD_LONG    8192 /* the working directory is too long */
#define WIRE_EVENT_URING_ENTER 16384 /* operation in io_uring_enter, whose args and abi these are */
#define WIRE_EVENT_LOADED      32768 /* loaded a BPF program, whose id is the first wire_aux */

/*
 * One audited syscall. After it follow, without gaps: `objects` times a wire_object, its name and
 * its path, each padded to 8 bytes; `aux_count` times a wire_aux; the components of exe and cwd,
 * leaf first, each NUL-terminated; proctitle; argv; the socket address; subj; and with tlg_context
 * comm of the parent and the components of the control group. Tests address the header as 32-bit
 * words.
 */
struct wire_event {
	__u32 len; /* bytes, including this header */
	__u16 version; /* WIRE_VERSION */
	__u16 flags; /* WIRE_EVENT_* */
	__u64 jiffies; /* jiffies at entry, or at exit if entry is not hooked */
	__u64 args[4];
	__u64 exit; /* two's complement */
	__u32 abi; /* enum wire_abi */
	__u32 nr;
	__u32 rule; /* the verdict without WIRE_RECORD and WIRE_DENY; before it, the task mark */
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
	__u32 open_perm; /* AUDIT_PERM_* of an open, or the family of a socket address */
	__u32 argc; /* before argv is read: 1 if there is a socket address, else 0 */
	__u8 comm[WIRE_COMM_LEN]; /* bytes, NUL-padded */
	__u8 tty[WIRE_TTY_LEN]; /* NUL-padded; empty without a terminal */
	__u16 argv_len;
	__u16 exe_len;
	__u16 cwd_len;
	__u16 proctitle_len;
	__u16 sockaddr_len;
	__u16 subj_len; /* length of the task's AppArmor label */
	__u8 subj_mode; /* mode of its profile: enum profile_mode of the kernel */
	__u8 objects;
	__u8 aux_count;
	__u8 uring_op; /* io_uring operation, with EVENT_URING */
};
_Static_assert(sizeof(struct wire_event) == 184, "wire_event layout");

#define WIRE_OBJECT_INODE	1 /* `inode` is valid */
#define WIRE_OBJECT_PARENT	2 /* `parent` is valid */
#define WIRE_OBJECT_CREATED	4 /* the syscall created it */
#define WIRE_OBJECT_NAMED	8 /* a name follows */
#define WIRE_OBJECT_KERNEL	16 /* the name is the kernel's own copy */
#define WIRE_OBJECT_WALKED	32 /* the name is the object's path: components, leaf first */
#define WIRE_OBJECT_FS_EXCLUDED 64 /* on a file system that is excluded */
#define WIRE_OBJECT_REMOVED	128 /* its path no longer exists */

struct wire_inode {
	__u64 ino;
	__u32 dev;
	__u32 rdev;
	__u32 mode;
	__u32 uid;
	__u32 gid;
	__u32 generation; /* of its number: see struct wire_identity */
};
_Static_assert(sizeof(struct wire_inode) == 32, "wire_inode layout");

/* One object of the syscall; its name and its path follow, each padded to 8 bytes. */
struct wire_object {
	struct wire_inode inode;
	struct wire_inode parent;
	__u16 name_len; /* bytes, without a NUL */
	__u8 flags; /* WIRE_OBJECT_* */
	__u8 effect; /* from wire_shape, or enum wire_nametype */
	__u8 lookup; /* from wire_shape, or WIRE_LOOKUP_HOOKED */
	__u8 named_by; /* 1 + index of the object that has the name of this one, or 0 */
	__u16 path_len; /* bytes of the path as components, leaf first; 0 if unknown */
};
_Static_assert(sizeof(struct wire_object) == 72, "wire_object layout");

/* Type of an auxiliary record: its number in include/uapi/linux/audit.h. */
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
	WIRE_AUX_BPF = 1334, /* id of a program: the record is that of the kernel's audit */
	WIRE_AUX_OPENAT2 = 1337, /* flags, mode, resolve */
};

/* An auxiliary record: data of a syscall other than task and objects. */
struct wire_aux {
	__u32 kind; /* enum wire_aux_kind */
	__u32 _pad;
	__u64 word[WIRE_AUX_WORDS];
};
_Static_assert(sizeof(struct wire_aux) == 128, "wire_aux layout");

#endif /* TOLLGATE_WIRE_H */
