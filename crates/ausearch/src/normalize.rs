//! Says in one line who did what to what, as `auparse_normalize` does: for `--format csv` and `--format text`.
//!
//! # Source
//! Behaviour of `auparse` 4.2.1.

mod actions;
mod compound;
mod objects;
mod simple;
mod walk;

use crate::interpret::{FieldType, Interpreter};
use crate::record_type as ty;

pub(crate) use walk::{FieldPosition, Walk, events};

/// Kind of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    #[default]
    Unknown,
    Fifo,
    CharacterDevice,
    Directory,
    BlockDevice,
    File,
    FileSystem,
    Symlink,
    Socket,
    Process,
    Firewall,
    Service,
    Account,
    UserSession,
    VirtualMachine,
    Printer,
    System,
    AuditRule,
    AuditConfig,
    SecurityPolicy,
    Memory,
    Keystrokes,
    Software,
    SecurityModules,
    ProcessGroup,
}

impl ObjectKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fifo => "fifo",
            Self::CharacterDevice => "character-device",
            Self::Directory => "directory",
            Self::BlockDevice => "block-device",
            Self::File => "file",
            Self::FileSystem => "file-system",
            Self::Symlink => "symlink",
            Self::Socket => "socket",
            Self::Process => "process",
            Self::Firewall => "firewall",
            Self::Service => "service",
            Self::Account => "account",
            Self::UserSession => "user-session",
            Self::VirtualMachine => "virtual-machine",
            Self::Printer => "printer",
            Self::System => "system",
            Self::AuditRule => "admin-defined-rule",
            Self::AuditConfig => "audit-config",
            Self::SecurityPolicy => "security-policy",
            Self::Memory => "memory",
            Self::Keystrokes => "keystrokes",
            Self::Software => "software",
            Self::SecurityModules => "security-modules",
            Self::ProcessGroup => "process-group",
        }
    }
}

/// Who did what to what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sentence {
    pub(crate) kind: Option<&'static str>,
    pub(crate) session: Option<FieldPosition>,
    pub(crate) subject: Option<FieldPosition>,
    pub(crate) subject2: Option<FieldPosition>,
    pub(crate) subject_kind: Option<&'static str>,
    pub(crate) subject_attributes: Vec<FieldPosition>,
    pub(crate) action: Option<Vec<u8>>,
    pub(crate) object: Option<FieldPosition>,
    pub(crate) object_secondary: Option<FieldPosition>,
    pub(crate) object2: Option<FieldPosition>,
    pub(crate) object_attributes: Vec<FieldPosition>,
    pub(crate) object_kind: ObjectKind,
    pub(crate) result: Option<FieldPosition>,
    pub(crate) how: Option<Vec<u8>>,
    pub(crate) key: Option<FieldPosition>,
}

/// Makes a sentence of an event.
pub(crate) struct Normalizer<'a> {
    pub(crate) walk: &'a mut Walk,
    pub(crate) interpreter: &'a mut Interpreter,
    /// Whether the attributes of subject and object are wanted too.
    pub(crate) with_attributes: bool,
    sentence: Sentence,
    /// Whether the syscall succeeded: -1 if that is unknown.
    succeeded: isize,
}

/// Makes a sentence of an event; `None` if the event cannot be understood.
pub(crate) fn normalize(
    walk: &mut Walk,
    interpreter: &mut Interpreter,
    with_attributes: bool,
) -> (Sentence, bool) {
    walk.first_record();
    let count = walk.count();
    let mut normalizer = Normalizer {
        walk,
        interpreter,
        with_attributes,
        sentence: Sentence::default(),
        succeeded: -1,
    };
    let understood = if count > 1 {
        normalizer.compound()
    } else {
        normalizer.simple()
    };
    let sentence = normalizer.sentence;
    walk.first_record();
    (sentence, understood)
}

impl Normalizer<'_> {
    /// Finds the login user; whether there is one.
    fn set_subject(&mut self, name: &str, record: usize) -> bool {
        let found = self.walk.find(name);
        if found {
            self.sentence.subject = Some(self.walk.place_in(record));
        }
        found
    }

    /// Finds the acting user and says what account that is; whether both is known.
    fn set_subject2(&mut self, name: &str, record: usize) -> bool {
        if !self.walk.find(name) {
            return false;
        }
        self.sentence.subject2 = Some(self.walk.place_in(record));
        self.set_subject_kind()
    }

    /// Says what account the current field is; whether that is known.
    fn set_subject_kind(&mut self) -> bool {
        let uid = if self.walk.field_type() == FieldType::Uid {
            Some(self.walk.number())
        } else if self.walk.name() == Some(b"acct") {
            let account = self.walk.text(self.interpreter);
            self.interpreter
                .accounts
                .user_number(&account)
                .map(u32::cast_signed)
        } else {
            None
        };
        self.sentence.subject_kind = Some(match uid {
            Some(0) => "privileged-acct",
            Some(-1) => "unset-acct",
            Some(uid) if uid < 1000 => "service-acct",
            Some(uid) if uid < 60_000 => "user-acct",
            _ => "unknown-acct",
        });
        uid.is_some()
    }

    fn add_subject_attribute(&mut self, name: &str, record: usize) {
        if self.walk.find(name) {
            let place = self.walk.place_in(record);
            self.sentence.subject_attributes.push(place);
        } else {
            self.walk.go_to_record(record);
        }
    }

    /// Adds an attribute of the object; whether there is one.
    fn add_object_attribute(&mut self, name: &str, record: usize) -> bool {
        let found = self.walk.find(name);
        if found {
            let place = self.walk.place_in(record);
            self.sentence.object_attributes.push(place);
        } else {
            self.walk.go_to_record(record);
        }
        found
    }

    fn set_object(&mut self, name: &str, record: usize) -> bool {
        let found = self.walk.find(name);
        if found {
            self.sentence.object = Some(self.walk.place_in(record));
        }
        found
    }

    /// Sets the object to the field called `name` from here on.
    fn set_object_here(&mut self, name: &str) -> bool {
        let found = self.walk.find(name);
        if found {
            self.sentence.object = Some(self.walk.place());
        }
        found
    }

    fn add_session(&mut self, record: usize) -> bool {
        let found = self.walk.find("ses");
        if found {
            self.sentence.session = Some(self.walk.place_in(record));
        } else {
            self.walk.first_record();
        }
        found
    }

    fn set_result(&mut self, record: usize) {
        if self.walk.find("res") {
            self.sentence.result = Some(self.walk.place_in(record));
        }
    }

    /// Sets how it was done to the meaning of a field; whether there is one.
    fn set_how(&mut self, name: &str) -> bool {
        let found = self.walk.find(name);
        if found {
            self.sentence.how = Some(self.walk.text(self.interpreter));
        }
        found
    }

    fn set_action(&mut self, action: Option<&str>) {
        if let Some(action) = action {
            self.sentence.action = Some(action.as_bytes().to_vec());
        }
    }

    /// Sets the program: for BPF and the like what they are about, otherwise the executable, or the script.
    fn set_program_object(&mut self) {
        self.walk.first_record();
        let name = match self.walk.kind() {
            ty::BPF => "prog-id",
            ty::EVENT_LISTENER => "nl-mcgrp",
            ty::MAC_POLICY_LOAD => "lsm",
            _ => {
                if self.walk.find("exe") {
                    let exe = self.walk.text(self.interpreter);
                    if is_interpreter(&exe) {
                        self.step_back_to_command();
                        self.walk.find("comm");
                    }
                    self.sentence.object = Some(self.walk.place());
                }
                return;
            }
        };
        self.set_object_here(name);
    }

    /// Steps back by a field, where the command usually is, or to the first record.
    fn step_back_to_command(&mut self) {
        match self.walk.field_number().checked_sub(1) {
            Some(field) => {
                self.walk.go_to_field(field);
            }
            None => self.walk.first_record(),
        }
    }

    /// Sets how it was done to the executable, or to the script that it runs.
    fn set_how_to_program(&mut self) -> bool {
        if !self.set_how("exe") {
            return false;
        }
        if self.sentence.how.as_deref().is_some_and(is_interpreter) {
            self.step_back_to_command();
            self.set_how("comm");
        }
        true
    }
}

/// Whether an executable runs scripts.
fn is_interpreter(exe: &[u8]) -> bool {
    const INTERPRETERS: [&[u8]; 4] = [
        b"/usr/bin/python",
        b"/usr/bin/sh",
        b"/usr/bin/bash",
        b"/usr/bin/perl",
    ];
    INTERPRETERS
        .iter()
        .any(|interpreter| exe.starts_with(interpreter))
}

/// Kind of an event, by the type of its first record.
fn event_kind(kind: i32) -> &'static str {
    match kind {
        1100 | 1101 | 1103..=1106 | 1108..=1110 | 1112 | 1113 | ty::LOGIN => "user-login",
        1126 | 1119 => "group-change",
        1102 | 1114..=1117 | 1132 | 1133 | 1135 | 1136 => "user-account",
        ty::KERNEL | 1127..=1131 => "system-services",
        1111 | 1305 | 1325 | 1328 | 1332 | 1333 | 1137 | 1138 => "configuration",
        ty::SECCOMP => "dac-decision",
        1120 | 1121 | 1123 | 1125 => "user-space",
        ty::USER_TTY | ty::TTY => "TTY",
        ty::EVENT_LISTENER | 1200..=1299 => "audit-daemon",
        1122 | 1107 | 1502 | 1503 | 1506 | 1400..=1402 => "mac-decision",
        1800..=1899 | ty::ANOM_RBAC_INTEGRITY_FAIL => "integrity",
        1700..=1799 | 2100..=2108 | 2110..=2199 => "anomaly",
        2200..=2299 => "anomaly-response",
        1403..=1499 | 1500 | 1501 | 1504 | 1505 | 2300..=2399 => "mac",
        1600..=1699 | 2400..=2499 => "crypto",
        2500..=2599 => "virt",
        1300..=1304 | 1306..=1315 | 1317 | 1318 | 1321..=1324 | ty::URINGOP => "audit-rule",
        ty::FANOTIFY => "av-decision",
        ty::BPF => "bpf-program",
        _ => "unknown",
    }
}
