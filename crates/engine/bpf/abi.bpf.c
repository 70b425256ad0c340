// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Never loaded. Clang omits a struct from BTF unless a map, a global or a signature uses it. A
 * global of each type puts the layouts where the layout test in Rust reads them.
 */
#include "wire.h"

struct wire_counts abi_wire_counts;
struct wire_ring_owner abi_wire_ring_owner;
struct wire_shape abi_wire_shape;
struct wire_syscall abi_wire_syscall;
struct wire_test abi_wire_test;
struct wire_inode_key abi_wire_inode_key;
struct wire_identity abi_wire_identity;
struct wire_inode_watch abi_wire_inode_watch;
struct wire_watch_set abi_wire_watch_set;
struct wire_name_watch abi_wire_name_watch;
struct wire_enter_state abi_wire_enter_state;
struct wire_event abi_wire_event;
struct wire_inode abi_wire_inode;
struct wire_object abi_wire_object;
struct wire_aux abi_wire_aux;
