//! What the value of a field is.
//!
//! # Source
//! The table of field types of `auparse` 4.2.1.

use crate::record_type as ty;

/// How the value of a field is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Unclassified,
    Uid,
    Gid,
    Syscall,
    Arch,
    Exit,
    Escaped,
    EscapedFile,
    EscapedKey,
    Perm,
    Mode,
    ModeShort,
    SockAddr,
    Promiscuous,
    Capability,
    Success,
    A0,
    A1,
    A2,
    A3,
    Signal,
    List,
    TtyData,
    Session,
    CapBitmap,
    NfProto,
    IcmpType,
    Protocol,
    Address,
    Personality,
    Seccomp,
    OFlag,
    Mmap,
    MacLabel,
    Proctitle,
    Hook,
    NetAction,
    MacProto,
    IoctlReq,
    Fanotify,
    NlMcGroup,
    Resolve,
    Trust,
    FanType,
    FanInfo,
    Errno,
}

/// Whether a text has hex digits only; the empty text has.
pub(crate) fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

/// Type of a field in a record of the type `kind`. Some names mean different things in different records.
pub(crate) fn of_field(kind: i32, name: &[u8], value: &[u8]) -> FieldType {
    let untrusted = || {
        if value.first() == Some(&b'"') || is_hex(value) {
            FieldType::Escaped
        } else {
            FieldType::Unclassified
        }
    };
    match (kind, name) {
        (ty::EXECVE, [b'a', ..]) if name != b"argc" && !contains_len(name) => FieldType::Escaped,
        (ty::AVC, b"saddr") | (ty::CRYPTO_KEY_USER, b"fp") => FieldType::Unclassified,
        (ty::USER_TTY, b"msg") => FieldType::Escaped,
        (ty::NETFILTER_PKT, b"saddr") => FieldType::Address,
        (_, b"acct") => untrusted(),
        (ty::MQ_OPEN, b"mode") => FieldType::ModeShort,
        (ty::ADD_GROUP | ty::GRP_MGMT | ty::DEL_GROUP, b"id") => FieldType::Gid,
        (ty::TRUSTED_APP, _) => match by_name(name) {
            FieldType::Unclassified if name != b"pid" || value.first() == Some(&b'"') => {
                untrusted()
            }
            known => known,
        },
        (ty::KERN_MODULE, b"name") => FieldType::Escaped,
        _ => by_name(name),
    }
}

fn contains_len(name: &[u8]) -> bool {
    bstr::ByteSlice::contains_str(name, "_len")
}

fn by_name(name: &[u8]) -> FieldType {
    match name {
        b"auid" | b"uid" | b"euid" | b"suid" | b"fsuid" | b"ouid" | b"oauid" | b"old-auid"
        | b"iuid" | b"id" | b"inode_uid" | b"sauid" | b"obj_uid" => FieldType::Uid,
        b"obj_gid" | b"gid" | b"egid" | b"sgid" | b"fsgid" | b"ogid" | b"igid" | b"inode_gid"
        | b"new_gid" => FieldType::Gid,
        b"syscall" | b"uring_op" => FieldType::Syscall,
        b"arch" => FieldType::Arch,
        b"exit" => FieldType::Exit,
        b"path" | b"comm" | b"exe" | b"file" | b"watch" | b"cwd" | b"cmd" | b"acct" | b"dir"
        | b"vm" | b"old-chardev" | b"new-chardev" | b"old-disk" | b"new-disk" | b"old-fs"
        | b"new-fs" | b"old-net" | b"new-net" | b"device" | b"cgroup" | b"apparmor"
        | b"operation" | b"denied_mask" | b"info" | b"profile" | b"requested_mask" | b"old-rng"
        | b"new-rng" | b"ocomm" | b"grp" | b"new_group" | b"invalid_context" | b"sw"
        | b"root_dir" => FieldType::Escaped,
        b"name" => FieldType::EscapedFile,
        b"key" => FieldType::EscapedKey,
        b"perm" | b"perm_mask" => FieldType::Perm,
        b"mode" => FieldType::Mode,
        b"saddr" => FieldType::SockAddr,
        b"prom" | b"old_prom" => FieldType::Promiscuous,
        b"capability" => FieldType::Capability,
        b"res" | b"result" => FieldType::Success,
        b"a0" => FieldType::A0,
        b"a1" => FieldType::A1,
        b"a2" => FieldType::A2,
        b"a3" => FieldType::A3,
        b"sig" | b"sigev_signo" => FieldType::Signal,
        b"list" => FieldType::List,
        b"data" => FieldType::TtyData,
        b"ses" => FieldType::Session,
        b"cap_pi" | b"cap_pe" | b"cap_pp" | b"cap_pa" | b"cap_fi" | b"cap_fp" | b"fp" | b"fi"
        | b"old_pp" | b"old_pi" | b"old_pe" | b"old_pa" | b"new_pp" | b"new_pi" | b"new_pe"
        | b"pp" | b"pi" | b"pe" | b"pa" => FieldType::CapBitmap,
        b"family" => FieldType::NfProto,
        b"icmptype" => FieldType::IcmpType,
        b"proto" => FieldType::Protocol,
        b"addr" => FieldType::Address,
        b"per" => FieldType::Personality,
        b"code" => FieldType::Seccomp,
        b"oflag" => FieldType::OFlag,
        b"flags" => FieldType::Mmap,
        b"subj" | b"obj" | b"scontext" | b"tcontext" | b"vm-ctx" | b"img-ctx" => {
            FieldType::MacLabel
        }
        b"proctitle" => FieldType::Proctitle,
        b"hook" => FieldType::Hook,
        b"action" => FieldType::NetAction,
        b"macproto" => FieldType::MacProto,
        b"ioctlcmd" => FieldType::IoctlReq,
        b"resp" => FieldType::Fanotify,
        b"nl-mcgrp" => FieldType::NlMcGroup,
        b"resolve" => FieldType::Resolve,
        b"subj_trust" | b"obj_trust" => FieldType::Trust,
        b"fan_type" => FieldType::FanType,
        b"fan_info" => FieldType::FanInfo,
        b"errno" => FieldType::Errno,
        _ => FieldType::Unclassified,
    }
}
