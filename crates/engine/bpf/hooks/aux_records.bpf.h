/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hooks of the syscalls with auxiliary records: data other than task and objects, in a record type
 * of its own. The kernel's audit copies it in its __audit_*() functions, which run only while it
 * is enabled. So the callers of those functions are hooked.
 */
#ifndef TOLLGATE_HOOKS_AUX_RECORDS_BPF_H
#define TOLLGATE_HOOKS_AUX_RECORDS_BPF_H

#include "wire.h"
#include "lib/errno.bpf.h"
#include "lib/form.bpf.h"
#include "lib/function_call.bpf.h"
#include "lib/kernel.bpf.h"
#include "lib/kernel_symbols.bpf.h"
#include "lib/label.bpf.h"
#include "lib/load.bpf.h"
#include "lib/ring.bpf.h"
#include "lib/state_items.bpf.h"
#include "lib/syscall_state.bpf.h"
#include "lib/target_task.bpf.h"
#include "lib/task.bpf.h"

#define NSEC_PER_SEC	    1000000000
#define MQ_PRIO_MAX	    32768 /* include/uapi/linux/mqueue.h */
#define IPC_SET		    1 /* include/uapi/linux/ipc.h */
#define SHM_LOCK	    11 /* include/uapi/linux/shm.h */
#define SHM_UNLOCK	    12
#define SHM_STAT_ANY	    15
#define MSG_STAT_ANY	    13 /* include/uapi/linux/msg.h */
#define SEM_STAT_ANY	    20 /* include/uapi/linux/sem.h */
#define MODULE_NAME_BYTES   56 /* MODULE_NAME_LEN of 64-bit kernels */
#define NTP_WORDS	    12 /* struct audit_ntp_data */
#define ENTRY_OF_TIMEKEEPER 8 /* offset in tk_core, which has no named type before v6.13 */

/*
 * State of the syscall that the current task is in. If only watches can match, a syscall without
 * state has matched none and gets no state here.
 */
static __always_inline struct syscall_state *aux_state(struct task_struct *task)
{
	struct wire_syscall *syscall;
	__u32 key = hooked_syscall(task, &syscall);
	struct syscall_state *state;

	if (key == WIRE_NO_SYSCALL || !(syscall->facts & WIRE_FACT_AUX))
		return NULL;
	state = state_find(task, key, &syscall);
	if (state && !state->reserved)
		return state;
	if (syscall->facts & WIRE_FACT_HOOKED && syscall->facts & WIRE_FACT_WATCH_ONLY)
		return NULL;
	return state_claim(task, key, syscall);
}

/* Adds an auxiliary record to the syscall. */
static __always_inline struct wire_aux *aux_add(struct syscall_state *state, __u32 kind)
{
	struct wire_aux *aux;
	__u32 at = state->aux_count;

	if (at >= WIRE_AUX_RECORDS) {
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
		return NULL;
	}
	aux = &state->aux[at];
	aux->kind = kind;
	state->aux_count = at + 1;
	return aux;
}

/* Replaces the auxiliary records of the syscall: the last counts, as in the kernel's audit. */
static __always_inline struct wire_aux *aux_replace(__u32 kind)
{
	struct syscall_state *state = aux_state(current());

	if (!state)
		return NULL;
	state->aux_count = 0;
	return aux_add(state, kind);
}

/* Adds a target task. */
static __always_inline int aux_obj_pid(__u64 target)
{
	struct syscall_state *state = aux_state(current());
	struct wire_aux *aux = state ? aux_add(state, WIRE_AUX_OBJ_PID) : NULL;

	if (aux)
		fill_target(aux, target);
	return 0;
}

/*
 * fentry on audit_signal_info(sig, t), v5.5. Runs in the calling task for each target of a signal,
 * before the permission check, whether or not the kernel's audit is enabled.
 */
SEC("fentry/audit_signal_info")
int aux_signal(__u64 *ctx)
{
	struct function_call call;

	return at_entry(&call, ctx, 2) ? aux_obj_pid(call.arg[1]) : 0;
}

/*
 * fexit on ptrace_attach(task, request, addr, flags), v5.5: PTRACE_ATTACH and PTRACE_SEIZE with
 * valid options.
 */
SEC("fexit/ptrace_attach")
int aux_ptrace(__u64 *ctx)
{
	struct function_call call;
	__s32 ret;

	if (!at_return(&call, ctx, 4, INSIDE_OTHER))
		return call.skips_return;
	ret = call.result;
	if (ret == -EIO || ret == -EINVAL)
		return 0;
	return aux_obj_pid(call.arg[0]);
}

/*
 * fexit on get_vfs_caps_from_disk(idmap, dentry, caps), v5.12 form: file capabilities of a program
 * that is about to start.
 */
SEC("fexit/get_vfs_caps_from_disk")
int aux_file_caps(__u64 *ctx)
{
	const struct cpu_vfs_cap_data *caps;
	struct syscall_state *state;
	struct function_call call;
	struct wire_aux *aux;
	__u64 addr;

	if (!at_return(&call, ctx, 3, INSIDE_FILE_CAPS))
		return call.skips_return;
	if ((__u32)call.result)
		return 0;
	caps = ARG(call, 2, cpu_vfs_cap_data);
	addr = (__u64)caps;
	state = aux_state(current());
	if (!state)
		return 0;
	state->aux_count = 0;
	aux = aux_add(state, WIRE_AUX_BPRM_FCAPS);
	if (!aux)
		return 0;
	aux->word[0] = caps->magic_etc;
	aux->word[1] = LOAD_WORD(AT(cpu_vfs_cap_data, addr, permitted));
	aux->word[2] = LOAD_WORD(AT(cpu_vfs_cap_data, addr, inheritable));
	aux->word[3] = caps->rootid.val;
	aux->word[14] = call.arg[1];
	return 0;
}

static __always_inline void copy_caps(__u64 *to, const struct cred *cred)
{
	__u64 addr = (__u64)cred;

	to[0] = LOAD_WORD(AT(cred, addr, cap_permitted));
	to[1] = LOAD_WORD(AT(cred, addr, cap_inheritable));
	to[2] = LOAD_WORD(AT(cred, addr, cap_effective));
	to[3] = LOAD_WORD(AT(cred, addr, cap_ambient));
}

/* Root of a user namespace, as a kernel uid. */
static __always_inline __u32 root_of(const struct user_namespace *ns)
{
	const struct uid_gid_map *map = &ns->uid_map;

	return map->nr_extents == 1 && !map->extent[0].first ? map->extent[0].lower_first : ~0U;
}

/*
 * fexit on cap_bprm_creds_from_file(bprm, file), v5.8: the capabilities of the new program are
 * decided. User space decides whether the kernel's audit would write a record.
 */
SEC("fexit/cap_bprm_creds_from_file")
int aux_exec_caps(__u64 *ctx)
{
	struct task_struct *task = current();
	const struct cred *old = FOLLOW(task_struct, task, cred);
	const struct file *file;
	const struct cred *new;
	struct syscall_state *state;
	struct function_call call;
	struct wire_aux *aux;

	if (!at_return(&call, ctx, 2, INSIDE_OTHER))
		return call.skips_return;
	state = aux_state(task);
	if ((__u32)call.result || !state)
		return 0;
	new = ARG(call, 0, linux_binprm)->cred;
	file = ARG(call, 1, file);
	aux = &state->aux[0];
	/* The record may belong to another file of the syscall. */
	if (!state->aux_count || aux->word[14] != (__u64)file->f_path.dentry) {
		aux->kind = WIRE_AUX_BPRM_FCAPS;
		state->aux_count = 1;
		for (int i = 0; i < 4; i++)
			aux->word[i] = 0;
	}
	copy_caps(&aux->word[4], old);
	copy_caps(&aux->word[8], new);
	aux->word[12] = (__u64) new->euid.val << 32 | new->uid.val;
	aux->word[13] = (__u64)old->uid.val << 32 | old->securebits;
	aux->word[14] = root_of(new->user_ns);
	return 0;
}

static __always_inline void copy_ipc_perm(struct wire_aux *aux, const struct kern_ipc_perm *perm)
{
	aux->word[0] = perm->uid.val;
	aux->word[1] = perm->gid.val;
	aux->word[2] = perm->mode;
}

static __always_inline int aux_ipc(const struct kern_ipc_perm *perm)
{
	struct wire_aux *aux = aux_replace(WIRE_AUX_IPC);

	if (!aux)
		return 0;
	copy_ipc_perm(aux, perm);
	aux->word[3] = 0;
	return 0;
}

/* fentry on ipcperms(ns, ipcp, flag), v5.5: permission check of an IPC object. */
SEC("fentry/ipcperms")
int ipc_perms(__u64 *ctx)
{
	struct function_call call;

	return at_entry(&call, ctx, 2) ? aux_ipc(ARG(call, 1, kern_ipc_perm)) : 0;
}

/*
 * fexit on ipcctl_obtain_check(ns, ids, id, cmd, perm, extra_perm), v5.5: an object is about to be
 * changed or removed. Misses objects that the caller may not change: the function that looks them
 * up is inlined here.
 */
SEC("fexit/ipcctl_obtain_check")
int ipc_ctl(__u64 *ctx)
{
	const struct ipc64_perm *perm;
	struct function_call call;
	struct wire_aux *aux;

	if (!at_return(&call, ctx, 6, INSIDE_OTHER))
		return call.skips_return;
	if (IS_ERR(call.result))
		return 0;
	aux = aux_replace(WIRE_AUX_IPC);
	if (!aux)
		return 0;
	copy_ipc_perm(aux, POINTER(call.result, kern_ipc_perm));
	aux->word[3] = (__u32)call.arg[3] == IPC_SET;
	if (!aux->word[3])
		return 0;
	perm = ARG(call, 4, ipc64_perm);
	aux->word[4] = (__s32)call.arg[5];
	aux->word[5] = perm->uid;
	aux->word[6] = perm->gid;
	aux->word[7] = perm->mode;
	return 0;
}

/* Adds a record of argument 0 at the entry of a function if argument 1 is this command. */
static __always_inline int aux_ipc_command(__u64 *ctx, __u32 command)
{
	struct function_call call;

	if (!at_entry(&call, ctx, 2) || (__u32)call.arg[1] != command)
		return 0;
	return aux_ipc(ARG(call, 0, kern_ipc_perm));
}

/* fentry on security_msg_queue_msgctl(msq, cmd), v5.5. MSG_STAT_ANY checks no permission. */
SEC("fentry/security_msg_queue_msgctl")
int ipc_msgctl(__u64 *ctx)
{
	return aux_ipc_command(ctx, MSG_STAT_ANY);
}

/* fentry on security_sem_semctl(sma, cmd), v5.5. */
SEC("fentry/security_sem_semctl")
int ipc_semctl(__u64 *ctx)
{
	return aux_ipc_command(ctx, SEM_STAT_ANY);
}

/* fentry on security_shm_shmctl(shp, cmd), v5.5. */
SEC("fentry/security_shm_shmctl")
int ipc_shmctl(__u64 *ctx)
{
	struct function_call call;
	__u32 cmd;

	if (!at_entry(&call, ctx, 2))
		return 0;
	cmd = call.arg[1];
	if (cmd != SHM_LOCK && cmd != SHM_UNLOCK && cmd != SHM_STAT_ANY)
		return 0;
	return aux_ipc(ARG(call, 0, kern_ipc_perm));
}

/* Copies the first words of a struct mq_attr in kernel memory; 0 without one. */
static __always_inline void copy_mq_attr(__u64 *to, __u64 attr)
{
	for (int i = 0; i < 4; i++)
		to[i] = attr ? LOAD_WORD(attr + 8 * i) : 0;
}

/* fentry on do_mq_open(name, oflag, mode, attr), v5.5. */
SEC("fentry/do_mq_open")
int mq_open(__u64 *ctx)
{
	struct function_call call;
	struct wire_aux *aux;

	if (!at_entry(&call, ctx, 4))
		return 0;
	aux = aux_replace(WIRE_AUX_MQ_OPEN);
	if (!aux)
		return 0;
	aux->word[0] = call.arg[1];
	aux->word[1] = call.arg[2];
	copy_mq_attr(&aux->word[2], call.arg[3]);
	return 0;
}

/* A message; `until` is a struct timespec64 in kernel memory, or 0. */
static __always_inline int aux_mq_message(__u64 mqdes, __u64 len, __u32 priority, __u64 until)
{
	struct wire_aux *aux = aux_replace(WIRE_AUX_MQ_SENDRECV);

	if (!aux)
		return 0;
	aux->word[0] = mqdes;
	aux->word[1] = len;
	aux->word[2] = priority;
	aux->word[3] = until ? LOAD_WORD(until) : 0;
	aux->word[4] = until ? LOAD_WORD(until + 8) : 0;
	return 0;
}

/* fentry on do_mq_timedsend(mqdes, message, len, priority, until), v5.5. */
SEC("fentry/do_mq_timedsend")
int mq_send(__u64 *ctx)
{
	struct function_call call;

	if (!at_entry(&call, ctx, 5) || (__u32)call.arg[3] >= MQ_PRIO_MAX)
		return 0;
	return aux_mq_message(call.arg[0], call.arg[2], call.arg[3], call.arg[4]);
}

/* fentry on do_mq_timedreceive(mqdes, message, len, priority, until), v5.5. */
SEC("fentry/do_mq_timedreceive")
int mq_receive(__u64 *ctx)
{
	struct function_call call;

	if (!at_entry(&call, ctx, 5))
		return 0;
	return aux_mq_message(call.arg[0], call.arg[2], 0, call.arg[4]);
}

/* fentry on do_mq_notify(mqdes, notification), v5.5. */
SEC("fentry/do_mq_notify")
int mq_notify(__u64 *ctx)
{
	const struct sigevent *event;
	struct function_call call;
	struct wire_aux *aux;

	if (!at_entry(&call, ctx, 2))
		return 0;
	aux = aux_replace(WIRE_AUX_MQ_NOTIFY);
	if (!aux)
		return 0;
	event = ARG(call, 1, sigevent);
	aux->word[0] = call.arg[0];
	aux->word[1] = event ? event->sigev_signo : 0;
	return 0;
}

/* fexit on do_mq_getsetattr(mqdes, new, old), v5.5: attributes were set. */
SEC("fexit/do_mq_getsetattr")
int mq_setattr(__u64 *ctx)
{
	struct function_call call;
	struct wire_aux *aux;

	if (!at_return(&call, ctx, 3, INSIDE_OTHER))
		return call.skips_return;
	if (!call.arg[1] || (__u32)call.result)
		return 0;
	aux = aux_replace(WIRE_AUX_MQ_GETSETATTR);
	if (!aux)
		return 0;
	aux->word[0] = call.arg[0];
	copy_mq_attr(&aux->word[1], call.arg[1]);
	return 0;
}

/*
 * fentry on find_module_all(name, len, even_unformed), v5.5: lookup of the name of a module that
 * is loaded or unloaded. Misses modules that are refused earlier.
 */
SEC("fentry/find_module_all")
int module_name(__u64 *ctx)
{
	struct function_call call;
	struct wire_aux *aux;

	if (!at_entry(&call, ctx, 1))
		return 0;
	aux = aux_replace(WIRE_AUX_KERN_MODULE);
	if (aux && bpf_probe_read_kernel_str(aux->word, MODULE_NAME_BYTES, (void *)call.arg[0]) < 0)
		count_truncated(WIRE_TRUNC_NAME);
	return 0;
}

/*
 * fexit on __do_adjtimex(txc, ts, tai, ad), v5.3: changes of the NTP state. Since v6.17
 * ntp_adjtimex(timekeeper, txc, ts, tai, ad); the kernel audits only timekeeper 0.
 */
SEC("fexit/__do_adjtimex")
int clock_adjtimex(__u64 *ctx)
{
	struct syscall_state *state;
	struct function_call call;
	struct wire_aux *aux;
	__u64 changes;

	if (has_form(WIRE_FORM_NTP_ADJTIMEX)) {
		if (!at_return(&call, ctx, 5, INSIDE_OTHER))
			return call.skips_return;
		if ((__u32)call.arg[0])
			return 0;
		changes = call.arg[4];
	} else {
		if (!at_return(&call, ctx, 4, INSIDE_OTHER))
			return call.skips_return;
		changes = call.arg[3];
	}
	state = aux_state(current());
	aux = state ? aux_add(state, WIRE_AUX_TIME_ADJNTPVAL) : NULL;
	if (aux && bpf_probe_read_kernel(aux->word, NTP_WORDS * sizeof(__u64), (void *)changes))
		count_truncated(WIRE_TRUNC_SYSCALL_STATE);
	return 0;
}

static __always_inline int aux_time_offset(__u64 seconds, __u64 nanoseconds)
{
	struct syscall_state *state = aux_state(current());
	struct wire_aux *aux = state ? aux_add(state, WIRE_AUX_TIME_INJOFFSET) : NULL;

	if (!aux)
		return 0;
	aux->word[0] = seconds;
	aux->word[1] = nanoseconds;
	return 0;
}

/* fexit on timekeeping_inject_offset(ts), v5.5: the clock was stepped. */
SEC("fexit/timekeeping_inject_offset")
int clock_inject(__u64 *ctx)
{
	struct function_call call;

	if (!at_return(&call, ctx, 1, INSIDE_OTHER))
		return call.skips_return;
	if ((__u32)call.result)
		return 0;
	return aux_time_offset(LOAD_WORD(call.arg[0]), LOAD_WORD(call.arg[0] + 8));
}

#define ADJ_SETOFFSET 0x0100 /* include/uapi/linux/timex.h */
#define ADJ_NANO      0x2000

/*
 * fentry on ntp_adjtimex(timekeeper, txc, ts, tai, ad), v6.17, where timekeeping_inject_offset()
 * is inlined: the clock was stepped just before. `txc` is the kernel's copy and changes later.
 */
SEC("fentry/ntp_adjtimex")
int clock_inject_ntp(__u64 *ctx)
{
	struct function_call call;
	__u64 at, fraction;
	__u32 modes;

	if (!at_entry(&call, ctx, 2))
		return 0;
	at = call.arg[1];
	modes = LOAD(__kernel_timex, at, modes);
	fraction = LOAD(__kernel_timex, at, time.tv_usec);
	if ((__u32)call.arg[0] || !(modes & ADJ_SETOFFSET))
		return 0;
	return aux_time_offset(LOAD(__kernel_timex, at, time.tv_sec),
			       modes & ADJ_NANO ? fraction : fraction * 1000);
}

/* Address of the timekeeper, or 0. */
static __always_inline __u64 timekeeper(void)
{
	return tlg_symbols.tk_core ?: tlg_symbols.timekeeper_data;
}

/* wall_to_monotonic: the two words of a struct timespec64. */
static __always_inline __u64 wall_word(__u32 index)
{
	__u64 core = timekeeper();
	__u64 clock = core + ENTRY_OF_TIMEKEEPER;

	if (bpf_core_type_exists(struct tk_data))
		clock = AT(tk_data, core, timekeeper);
	return LOAD_WORD(AT(timekeeper, clock, wall_to_monotonic) + 8 * index);
}

/* fentry on do_settimeofday64(ts), v5.5: saves the offset before the clock is set. */
SEC("fentry/do_settimeofday64")
int clock_set_enter(__u64 *ctx)
{
	struct function_call call;

	if (!timekeeper() || !at_entry(&call, ctx, 1))
		return 0;
	return aux_time_offset(wall_word(0), wall_word(1));
}

/* fexit on do_settimeofday64(ts), v5.5: by how much the clock was set. */
SEC("fexit/do_settimeofday64")
int clock_set_exit(__u64 *ctx)
{
	struct wire_syscall *syscall;
	struct syscall_state *state;
	struct function_call call;
	struct wire_aux *aux;

	if (!at_return(&call, ctx, 1, INSIDE_OTHER))
		return call.skips_return;
	state = state_current(&syscall);
	if (!state || !state->aux_count)
		return 0;
	if ((__u32)call.result) {
		state->aux_count = 0;
		return 0;
	}
	aux = &state->aux[0];
	aux->word[0] -= wall_word(0);
	aux->word[1] -= wall_word(1);
	if ((__s64)aux->word[1] < 0) {
		aux->word[0]--;
		aux->word[1] += NSEC_PER_SEC;
	} else if (aux->word[1] >= NSEC_PER_SEC) {
		aux->word[0]++;
		aux->word[1] -= NSEC_PER_SEC;
	}
	return 0;
}

#endif /* TOLLGATE_HOOKS_AUX_RECORDS_BPF_H */
