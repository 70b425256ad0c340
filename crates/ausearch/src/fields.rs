//! The fields of an event that a question asks for.
//!
//! Each kind of record is read with a cursor that moves forward, as the stock tools do: a field is looked for after the
//! one before it, and a record that lacks a field it must have makes the whole event malformed, which no question
//! matches. Only the fields that a question needs are read.
//!
//! # Source
//! Behaviour of `ausearch` 4.2.1; `tests/golden/ausearch` has its answers.

mod cursor;
mod kernel;
mod objects;
mod programs;
mod task;

use std::borrow::Cow;

use crate::accounts::Accounts;
use crate::event::{Event, Record};
use crate::record_type as ty;

pub(crate) use cursor::{Malformed, unescape};

/// Text of a field: a part of the record, or decoded.
pub(crate) type FieldText<'e> = Cow<'e, [u8]>;

/// `uid` and `gid` when nothing is known.
pub(crate) const NO_ID: u32 = u32::MAX;
/// `auid` and `ses` when nothing is known; 4294967295 is a value that records have.
pub(crate) const NO_LOGIN: u32 = u32::MAX - 1;

bitflags::bitflags! {
    /// The fields that a question needs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Wanted: u32 {
        /// Process id.
        const PID = 1;
        /// Parent's process id.
        const PPID = 1 << 1;
        /// User.
        const UID = 1 << 2;
        /// Effective user.
        const EUID = 1 << 3;
        /// Login user.
        const AUID = 1 << 4;
        /// Group.
        const GID = 1 << 5;
        /// Effective group.
        const EGID = 1 << 6;
        /// Session.
        const SESSION = 1 << 7;
        /// Result.
        const SUCCESS = 1 << 8;
        /// Return value.
        const EXIT = 1 << 9;
        /// Arch.
        const ARCH = 1 << 10;
        /// Files and directories.
        const FILE = 1 << 11;
        /// Host or address.
        const HOST = 1 << 12;
        /// Terminal.
        const TERMINAL = 1 << 13;
        /// Executable.
        const EXE = 1 << 14;
        /// Command.
        const COMM = 1 << 15;
        /// Rule key.
        const KEY = 1 << 16;
        /// Label of the subject.
        const SUBJECT = 1 << 17;
        /// Label of the object.
        const OBJECT = 1 << 18;
        /// Name of a virtual machine.
        const VM = 1 << 19;
        /// UUID of a virtual machine.
        const UUID = 1 << 20;
        /// Names of users, and not only their numbers.
        const USER_NAMES = 1 << 21;
    }
}

/// A name in an event: of a `PATH` record, a socket, or a disk.
#[derive(Clone, Debug)]
pub(crate) struct FileName<'e> {
    pub(crate) name: FieldText<'e>,
    /// What follows `nametype=` in the record, to its end.
    pub(crate) kind: Option<&'e [u8]>,
}

/// Outcome of an access vector check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AvcResult {
    #[default]
    Unset,
    Denied,
    Granted,
}

/// An access vector check, or a label found elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Avc<'e> {
    pub(crate) subject: Option<&'e [u8]>,
    pub(crate) object: Option<&'e [u8]>,
    pub(crate) result: AvcResult,
    pub(crate) permission: Option<&'e [u8]>,
    pub(crate) class: Option<&'e [u8]>,
}

/// A user of an event: a number, and a name if the question has one.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) name: Option<Vec<u8>>,
}

impl User {
    const fn unset(id: u32) -> Self {
        Self { id, name: None }
    }
}

/// Result of an event: -1 unset, 0 failed, 1 success, or another number that a record has.
pub(crate) type Success = i32;
/// No result.
pub(crate) const UNSET: Success = -1;
/// Failed.
pub(crate) const FAILED: Success = 0;
/// Succeeded.
pub(crate) const SUCCEEDED: Success = 1;

/// What was found in an event.
#[derive(Clone, Debug)]
pub(crate) struct Found<'e> {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    pub(crate) uid: User,
    pub(crate) euid: User,
    pub(crate) auid: User,
    pub(crate) gid: u32,
    pub(crate) egid: u32,
    pub(crate) session: u32,
    pub(crate) success: Success,
    pub(crate) exit: Option<i64>,
    pub(crate) arch: u32,
    pub(crate) syscall: i32,
    pub(crate) files: Option<Vec<FileName<'e>>>,
    pub(crate) cwd: Option<FieldText<'e>>,
    pub(crate) host: Option<FieldText<'e>>,
    pub(crate) terminal: Option<FieldText<'e>>,
    pub(crate) exe: Option<FieldText<'e>>,
    pub(crate) comm: Option<FieldText<'e>>,
    pub(crate) account: Option<FieldText<'e>>,
    pub(crate) keys: Option<Vec<Vec<u8>>>,
    pub(crate) avcs: Option<Vec<Avc<'e>>>,
    pub(crate) vm: Option<FieldText<'e>>,
    pub(crate) uuid: Option<FieldText<'e>>,
}

impl Found<'_> {
    fn new() -> Self {
        Self {
            pid: -1,
            ppid: -1,
            uid: User::unset(NO_ID),
            euid: User::unset(NO_ID),
            auid: User::unset(NO_LOGIN),
            gid: NO_ID,
            egid: NO_ID,
            session: NO_LOGIN,
            success: UNSET,
            exit: None,
            arch: 0,
            syscall: 0,
            files: None,
            cwd: None,
            host: None,
            terminal: None,
            exe: None,
            comm: None,
            account: None,
            keys: None,
            avcs: None,
            vm: None,
            uuid: None,
        }
    }
}

/// Reads the fields of an event.
pub(crate) struct Reader<'a> {
    pub(crate) wanted: Wanted,
    pub(crate) accounts: &'a mut Accounts,
    /// Whether malformed records are reported.
    pub(crate) debug: bool,
    /// Lines for the standard error.
    pub(crate) messages: Vec<u8>,
    /// The first two arguments of each `SYSCALL` record, for the output: record and arguments.
    pub(crate) arguments: Vec<(usize, [u64; 2])>,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(wanted: Wanted, accounts: &'a mut Accounts) -> Self {
        Self {
            wanted,
            accounts,
            debug: false,
            messages: Vec::new(),
            arguments: Vec::new(),
        }
    }

    fn wants(&self, fields: Wanted) -> bool {
        self.wanted.intersects(fields)
    }

    /// A user with the name that this host has for it, if names are needed.
    fn user(&mut self, id: u32) -> User {
        let is_named = self.wants(Wanted::USER_NAMES);
        User {
            id,
            name: is_named.then(|| self.accounts.exact_user(id)).flatten(),
        }
    }

    /// Reads the fields of an event; `None` if a record is malformed.
    pub(crate) fn event<'e>(&mut self, event: &'e Event) -> Option<Found<'e>> {
        let mut found = Found::new();
        self.arguments.clear();
        for (index, record) in event.records().enumerate() {
            if let Err(malformed) = self.record(index, &record, &mut found) {
                if self.debug {
                    malformed.report(record.text, &mut self.messages);
                }
                return None;
            }
        }
        Some(found)
    }

    fn record<'e>(
        &mut self,
        index: usize,
        record: &Record<'e>,
        found: &mut Found<'e>,
    ) -> Result<(), Malformed> {
        let text = record.text;
        match record.kind {
            ty::SYSCALL | ty::URINGOP => task::syscall(self, index, record, found),
            ty::CWD => objects::cwd(self, text, found),
            ty::AVC_PATH => objects::avc_path(self, text, found),
            ty::PATH => objects::path(self, text, found),
            ty::USER_AVC | ty::AVC => objects::avc(self, record, found),
            ty::USER | 1100..=1106 | 1108..=1199 | 2100..=2999 => {
                programs::user(self, record, found, None)
            }
            ty::SOCKADDR => objects::sockaddr(self, text, found),
            ty::LOGIN => programs::login(self, text, found),
            ty::IPC | ty::OBJ_PID => {
                objects::labelled(self, text, found);
                Ok(())
            }
            1200..=1203 | 1205 | 1206 => programs::daemon(self, text, found),
            1207 | 1208 => programs::daemon_connection(self, text, found),
            ty::CONFIG_CHANGE => {
                let read = kernel::simple(self, record, found);
                // Only newer records have a path; without one that is no mistake.
                let _optional = objects::avc_path(self, text, found);
                read
            }
            ty::NETFILTER_PKT => objects::packet(self, text, found),
            ty::FEATURE_CHANGE | ty::ANOM_LINK | ty::DM_CTRL => task::info(self, text, found),
            ty::SECCOMP | ty::ANOM_PROMISCUOUS | ty::ANOM_ABEND => {
                kernel::anomaly(self, record, found)
            }
            1403..=1417 => kernel::simple(self, record, found),
            1800..=1805 => kernel::integrity(self, text, found),
            ty::NETFILTER_CFG | ty::EVENT_LISTENER => kernel::other(self, text, found),
            ty::TTY => kernel::tty(self, text, found),
            // Nothing that a question asks for.
            ty::KERNEL
            | ty::SELINUX_ERR
            | ty::EXECVE
            | ty::IPC_SET_PERM
            | ty::MQ_OPEN
            | ty::MQ_SENDRECV
            | ty::MQ_NOTIFY
            | ty::MQ_GETSETATTR
            | ty::FD_PAIR
            | ty::BPRM_FCAPS
            | ty::CAPSET
            | ty::MMAP
            | ty::PROCTITLE
            | ty::OPENAT2
            | ty::DM_EVENT
            | 1329..=1334 => Ok(()),
            unknown => {
                if self.debug {
                    let message = format!("Unparsed type:{unknown}\n - skipped");
                    self.messages.extend_from_slice(message.as_bytes());
                }
                Ok(())
            }
        }
    }
}
