/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What hooks inside the kernel see of a call's objects, kept until the call ends: names where only the
 * kernel could write them, inodes, and the watches that they hit.
 *
 * A call may sleep between what a hook sees and its end, so this is kept by thread. Slots are found by
 * the thread's number, a few places further when one is taken: no update copies a slot, and nothing is
 * allocated. When all places are taken, the oldest call gives way, if it is old: it hangs, or has died
 * inside. A call without a slot has its names read from user memory at its end, marked so.
 *
 * An operation of io_uring has a slot beside that of the call: the kernel does it on the way out of any call,
 * or in the middle of an exec.
 */
#ifndef TOLLGATE_SEEN_BPF_H
#define TOLLGATE_SEEN_BPF_H

#define PF_IO_WORKER   0x10 /* include/linux/sched.h */
#define SEEN_SLOTS     1024 /* a power of two */
#define SEEN_PROBES    4
#define SEEN_TEXT      8192 /* names of one call together; a power of two */
#define SHORT_TEXT     64 /* a name that is copied faster than a helper does */
#define SEEN_ADDRESS   128 /* struct sockaddr_storage */
#define SEEN_FACTS     (WIRE_FACT_SEEN | WIRE_FACT_AUX)
#define SEEN_OLD       10000 /* ticks after which a slot is taken from a call that has not ended */
#define SEEN_OPERATION 0x80000000U /* beside the number of a thread: its operation of io_uring */

struct seen {
	__u32 thread; /* whose call it is, or with SEEN_OPERATION whose operation; 0 when the slot is free */
	__u32 call; /* index in the call table */
	__u32 epoch; /* of the plan that it was made under, and that decides about the call */
	__u64 since; /* kernel ticks */
	__u32 items;
	__u32 text_used;
	__u32 open_flags; /* that the kernel opens with */
	__u32 open_mode;
	__u32 opened; /* the two above are known */
	__u32 hits;
	__u32 hit[HITS_MAX];
	__u64 mnt; /* mount of the directory seen last */
	__u64 filename[WIRE_ITEMS]; /* struct filename behind an item's name */
	__u64 dir[WIRE_ITEMS]; /* inode of a PARENT item */
	__u64 last[WIRE_ITEMS]; /* hash and length of the last component of its name */
	__u32 name_at[WIRE_ITEMS];
	__u32 path_at[WIRE_ITEMS];
	__u32 path_used; /* of struct seen_paths */
	__u32 address_len;
	__u8 address[SEEN_ADDRESS]; /* of a socket */
	__u32 may_delete; /* how often the kernel has allowed this call to remove something */
	__u32 refused; /* the item added last is what an open found and may not have: its name is to come */
	__u32 details;
	struct wire_aux detail[WIRE_AUX];
	struct wire_object item[WIRE_ITEMS];
	__u8 text[SEEN_TEXT + WIRE_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* SEEN_SLOTS where the engine has hooks inside the kernel */
	__type(key, __u32);
	__type(value, struct seen);
} tlg_seen SEC(".maps");

/* Once a slot was missing: from then on a call without one may have hit a watch all the same. */
__u32 tlg_seen_short;

/* Whether operations of io_uring may be hooked. */
volatile __u32 tlg_uring;

/* Whether the engine has hooks inside the kernel at all. */
const volatile __u32 tlg_hooked;

static __always_inline struct seen *seen_at(__u32 index)
{
	__u32 key = index & (SEEN_SLOTS - 1);

	return bpf_map_lookup_elem(&tlg_seen, &key);
}

/* What stands in the slot of a thread's call, or of its operation. */
static __always_inline __u32 seen_owner(__u32 thread, __u32 key)
{
	return key < WIRE_URING_FIRST ? thread : thread | SEEN_OPERATION;
}

/* The slot that an owner has, or NULL. */
static __always_inline struct seen *seen_of(__u32 thread)
{
	for (__u32 i = 0; i < SEEN_PROBES; i++) {
		struct seen *seen = seen_at(thread + i);

		if (!seen || seen->thread == thread)
			return seen;
	}
	return NULL;
}

/*
 * The slot of a thread's call, or NULL. `call` is what the plan in force says about the call, and becomes
 * what the plan of the slot says. A slot whose plan is gone is none: two plans have come since.
 */
static __always_inline struct seen *seen_find(__u32 thread, __u32 key, struct wire_call **call)
{
	struct seen *seen = seen_of(seen_owner(thread, key));
	struct wire_call *before;

	if (!seen || seen->call != key)
		return NULL;
	if (seen->epoch == (*call)->epoch)
		return seen;
	if (seen->epoch != tlg_epoch_before)
		return NULL;
	before = call_of(seen->epoch, key);
	if (!before)
		return NULL;
	*call = before;
	return seen;
}

/* A slot for a call of the current task: its own of before, emptied, or a free one, or an old one. */
static __always_inline struct seen *seen_claim(const struct task_struct *task, __u32 key,
					       const struct wire_call *call)
{
	__u32 thread = seen_owner(task->pid, key);
	__u64 now = bpf_jiffies64();
	struct seen *seen = NULL;

	for (__u32 i = 0; i < SEEN_PROBES && !seen; i++) {
		struct seen *place = seen_at(thread + i);

		if (!place)
			return NULL;
		if (place->thread == thread ||
		    !__sync_val_compare_and_swap(&place->thread, 0, thread))
			seen = place;
	}
	for (__u32 i = 0; i < SEEN_PROBES && !seen; i++) {
		struct seen *place = seen_at(thread + i);
		__u32 owner;

		tlg_seen_short = 1;
		if (!place)
			return NULL;
		owner = place->thread;
		if (now - place->since > SEEN_OLD &&
		    __sync_val_compare_and_swap(&place->thread, owner, thread) == owner)
			seen = place;
	}
	if (!seen) {
		count_cut(WIRE_CUT_SEEN);
		return NULL;
	}
	seen->call = key;
	seen->epoch = call->epoch;
	seen->since = now;
	seen->items = seen->text_used = seen->open_flags = seen->hits = 0;
	seen->may_delete = seen->refused = 0;
	seen->details = seen->opened = 0;
	seen->mnt = 0;
	seen->address_len = 0;
	if (tlg_context)
		seen->path_used = 0;
	return seen;
}

/* The slot that the call has already, or a new one. */
static __always_inline struct seen *seen_slot(const struct task_struct *task, __u32 key,
					      struct wire_call **call)
{
	struct seen *seen = seen_find(task->pid, key, call);

	return seen ? seen : seen_claim(task, key, *call);
}

/* Gives back the slot of a thread's call, or operation, unless it has been taken from it. */
static __always_inline void seen_free(struct seen *seen, __u32 owner)
{
	__sync_val_compare_and_swap(&seen->thread, owner, 0);
}

/* Frees the slot of a call which the plan in force does not decide about. Returns whether there was one. */
static __always_inline __u32 seen_forget(__u32 thread, __u32 key)
{
	__u32 owner = seen_owner(thread, key);
	struct seen *seen = seen_of(owner);

	if (!seen || seen->call != key)
		return 0;
	seen_free(seen, owner);
	return 1;
}

/*
 * Whether the current task may do operations of io_uring, itself or as a worker: what it submits it does in
 * io_uring_enter, or on its way out of any call or interrupt.
 */
static __always_inline int does_operations(const struct task_struct *task)
{
	if (!tlg_uring)
		return 0;
	/* Loaded as it stands: a cast costs every open more. */
	return task->flags & PF_IO_WORKER ||
	       (bpf_core_field_exists(task->io_uring) && task->io_uring);
}

/*
 * Frees the slot of an operation in the middle of which the hooks were replaced: none is under way when a call
 * of the same thread ends. The call has no slot then, for the hooks took it for the operation.
 */
static __always_inline void seen_settle(const struct task_struct *task, __u32 thread)
{
	struct seen *seen;

	if (!does_operations(task))
		return;
	seen = seen_of(thread | SEEN_OPERATION);
	if (seen)
		seen_free(seen, thread | SEEN_OPERATION);
}

/*
 * Which call the current task is in, when hooks are to look at it: its index in the call table, or
 * WIRE_NO_CALL. Other calls run through the hooked functions too, and pay for no more than this.
 */
static __always_inline __u32 seen_call(struct task_struct *task, struct wire_call **call)
{
	__u32 nr = task_regs(task)->orig_ax;
	__u32 key = task_abi(task) * WIRE_SYSCALLS + nr;

	if (does_operations(task)) {
		struct seen *seen = seen_of(task->pid | SEEN_OPERATION);

		if (seen) {
			key = seen->call;
			*call = call_now(key);
			return *call && (*call)->facts & SEEN_FACTS ? key : WIRE_NO_CALL;
		}
		if (task->flags & PF_IO_WORKER)
			return WIRE_NO_CALL; /* its registers are those of who has started it */
	}
	if (nr >= WIRE_SYSCALLS)
		return WIRE_NO_CALL;
	*call = call_now(key);
	if (!*call || (*call)->tests == WIRE_NO_CALL || !((*call)->facts & SEEN_FACTS))
		return WIRE_NO_CALL;
	if (is_self(task))
		return WIRE_NO_CALL;
	return key;
}

/* The slot of the call that the current task is in, if an earlier hook has made one, and the call. */
static __always_inline struct seen *seen_current(struct wire_call **call)
{
	struct task_struct *task = current();
	__u32 key;

	*call = NULL; /* the verifier lets nobody copy what was never set */
	key = seen_call(task, call);
	return key == WIRE_NO_CALL ? NULL : seen_find(task->pid, key, call);
}

/*
 * Whether hooks have looked at a call that ends now without a slot: not when they may have done so by a plan
 * that had no rule for it.
 */
static __always_inline __u32 seen_all(const struct wire_call *call)
{
	return tlg_hooked && call->facts & WIRE_FACT_SEEN && !tlg_seen_short &&
	       bpf_jiffies64() - tlg_replaced >= SEEN_OLD;
}

/* Adds an item without name and inode. */
static __always_inline struct wire_object *seen_add(struct seen *seen, __u32 part)
{
	__u32 at = seen->items;
	struct wire_object *item;

	if (at >= WIRE_ITEMS) {
		count_cut(WIRE_CUT_SEEN);
		return NULL;
	}
	barrier_var(at); /* v6.1 forgets the bound of what is kept on the stack in between */
	at &= WIRE_ITEMS - 1;
	item = &seen->item[at];
	item->name_len = 0;
	item->flags = 0;
	item->effect = part;
	item->place = WIRE_PLACE_SEEN;
	item->named_by = 0;
	item->path_len = 0;
	seen->filename[at] = 0;
	seen->dir[at] = 0;
	seen->last[at] = 0;
	seen->items = at + 1;
	return item;
}

/* Room for a name of the item added last. */
static __always_inline __u8 *seen_room(struct seen *seen)
{
	__u32 at = seen->text_used;

	if (at > SEEN_TEXT - 1) {
		count_cut(WIRE_CUT_SEEN);
		return NULL;
	}
	return &seen->text[at & (SEEN_TEXT - 1)];
}

/* Says what has been put into the room. */
static __always_inline void seen_name(struct seen *seen, struct wire_object *item, __u32 len,
				      __u32 flags)
{
	seen->name_at[(seen->items - 1) & (WIRE_ITEMS - 1)] = seen->text_used;
	seen->text_used += len;
	item->name_len = len;
	item->flags |= WIRE_OBJECT_NAMED | flags;
}

/* Gives the item added last a name that the kernel has copied. */
static __always_inline void seen_set_name(struct seen *seen, struct wire_object *item,
					  const struct filename *filename)
{
	__u8 *room = seen_room(seen);
	long len;

	if (!room)
		return;
	len = bpf_probe_read_kernel_str(room, WIRE_NAME_BYTES, FOLLOW(filename, filename, name));
	if (len <= 0) {
		count_cut(WIRE_CUT_NAME);
		return;
	}
	seen->filename[(seen->items - 1) & (WIRE_ITEMS - 1)] = (__u64)filename;
	seen_name(seen, item, len - 1, WIRE_OBJECT_KERNEL);
}

/* Adds an item with a name that the kernel has copied. */
static __always_inline struct wire_object *seen_add_named(struct seen *seen, __u32 part,
							  const struct filename *filename)
{
	struct wire_object *item = seen_add(seen, part);

	if (item)
		seen_set_name(seen, item, filename);
	return item;
}

/*
 * Adds the object that a directory entry stands for, below the directory that the call named it in:
 * audit_inode_child(). The kernel hashes a name with its directory, so the hash tells two names in one
 * directory apart. A file system below this one, whose directory the call has not named, adds nothing.
 */
static __always_inline struct wire_object *seen_add_child(struct seen *seen, __u32 part, __u64 dir,
							  const struct dentry *dentry)
{
	__u64 last = (__u64)dentry->d_name.len << 32 | dentry->d_name.hash;
	struct wire_object *item;
	__u32 parent = WIRE_ITEMS;

	for (__u32 i = 0; i < WIRE_ITEMS; i++) {
		if (i >= seen->items)
			break;
		if (seen->dir[i] != dir)
			continue;
		if (parent == WIRE_ITEMS || seen->last[i] == last)
			parent = i;
		if (seen->last[i] == last)
			break;
	}
	if (parent == WIRE_ITEMS)
		return NULL;
	item = seen_add(seen, part);
	if (!item)
		return NULL;
	item->named_by = parent + 1;
	if (tlg_filesystems)
		item->flags = seen->item[parent & (WIRE_ITEMS - 1)].flags & WIRE_OBJECT_LEFT_OUT;
	return item;
}

static __always_inline void seen_inode(struct wire_object *item, const struct inode *inode)
{
	if (!inode)
		return;
	if (is_left_out(inode->i_sb)) {
		item->flags |= WIRE_OBJECT_LEFT_OUT;
		return;
	}
	copy_inode(&item->inode, inode);
	item->flags |= WIRE_OBJECT_INODE;
}

/* Compares what lies in `s->object[0]` with watches; `s->hits` says how many it hits. */
__noinline int seen_watch(struct scratch *s, __u32 leaves)
{
	struct object *object;
	struct hits hits;

	if (!s)
		return 0;
	object = &s->object[0];
	s->hits = 0;
	hits.count = &s->hits;
	hits.list = s->hit;
	if (!watch_ancestors(s, &hits, object->dentry, object->mnt, HIT_LEAF))
		return 0;
	if (object->last) {
		__u32 depth = s->depth;

		s->name = object->last;
		s->prefix[(depth + 1) & PREFIX_MASK] =
			mix(s->prefix[depth & PREFIX_MASK], hash_name(s));
		s->depth = depth + 1;
	}
	watch_prefixes(s, &hits, leaves);
	return 0;
}

/* Whether a call's rules look at watches at all. */
static __always_inline __u32 seen_compares(const struct wire_call *call)
{
	return call->tests != call->tests_unwatched;
}

static __always_inline void seen_hit(struct seen *seen, __u32 hit)
{
	struct hits hits = { .count = &seen->hits, .list = seen->hit };

	add_hit(&hits, hit);
}

/* Keeps what seen_watch() has found. */
static __always_inline void seen_keep_hits(struct seen *seen, const struct scratch *s)
{
	for (__u32 i = 0; i < HITS_MAX; i++) {
		if (i >= s->hits)
			break;
		seen_hit(seen, s->hit[i]);
	}
}

/* Has the rules look at what the hooks have found. */
static __always_inline void seen_hits(struct scratch *s, const struct seen *seen)
{
	for (__u32 i = 0; i < HITS_MAX; i++)
		s->hit[i] = seen->hit[i];
	s->hits = seen->hits;
}

/* Whether an inode itself is watched: for what lies in a directory that was compared already. */
static __always_inline void seen_watch_inode(struct seen *seen, const struct inode *inode)
{
	struct wire_inode_key key = {
		.ino = inode->i_ino,
		.dev = inode->i_sb->s_dev,
		.half = seen->epoch & 1,
	};
	struct wire_watched *watched = bpf_map_lookup_elem(&tlg_inodes, &key);

	if (watched && !is_left_out(inode->i_sb))
		seen_hit(seen, watched->watch | HIT_LEAF);
}

#endif /* TOLLGATE_SEEN_BPF_H */
