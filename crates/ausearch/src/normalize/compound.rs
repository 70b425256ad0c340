//! Events of several records: syscalls.

use super::actions::{Purpose, action, purpose};
use super::{Normalizer, ObjectKind, event_kind};
use crate::record_type as ty;

impl Normalizer<'_> {
    /// Understands an event with a `SYSCALL` record; whether that is possible.
    pub(super) fn compound(&mut self) -> bool {
        let first_kind = self.walk.kind();
        let mut kind = first_kind;
        // Often the first record says what the event is about, and the syscall follows.
        while kind != 0 && kind != ty::SYSCALL {
            self.walk.next_record();
            kind = self.walk.kind();
        }
        if kind == 0 {
            return false;
        }
        self.sentence.kind = Some(event_kind(first_kind));
        let record = self.walk.record_number();
        let syscall = self
            .walk
            .find("syscall")
            .then(|| self.walk.text(self.interpreter));
        if self.walk.find("success") {
            self.succeeded = isize::from(self.walk.value() != Some(b"no"));
            self.sentence.result = Some(self.walk.place_in(record));
        } else if !self.walk.go_to_record(record) {
            return false;
        }
        if !self.set_subject("auid", record) && !self.walk.go_to_record(record) {
            return false;
        }
        // The acting user comes before the login user.
        if !self.set_subject2("uid", record) && !self.walk.go_to_record(record) {
            return false;
        }
        self.subject_attributes();
        self.walk.first_field();
        if !self.set_how_to_program() && !self.walk.go_to_record(record) {
            return false;
        }
        if self.walk.find("key") && self.walk.value() != Some(b"(null)") {
            self.sentence.key = Some(self.walk.place_in(record));
        }
        match first_kind {
            ty::ANOM_LINK => self.link(),
            ty::CONFIG_CHANGE => {
                self.walk.first_record();
                if self.walk.find("op") {
                    self.sentence.action = Some(self.walk.text(self.interpreter));
                    self.sentence.object = self.simple_object(ty::CONFIG_CHANGE);
                }
            }
            _ => {
                self.syscall(syscall.as_deref().unwrap_or_default());
                if first_kind == ty::MAC_POLICY_LOAD {
                    self.set_program_object();
                }
            }
        }
        true
    }

    fn subject_attributes(&mut self) {
        const ATTRIBUTES: [&str; 10] = [
            "ppid", "pid", "gid", "euid", "suid", "fsuid", "egid", "sgid", "fsgid", "tty",
        ];
        self.walk.first_record();
        loop {
            let record = self.walk.record_number();
            if self.walk.kind() == ty::SYSCALL {
                if !self.with_attributes {
                    self.add_session(record);
                    return;
                }
                for name in ATTRIBUTES {
                    self.add_subject_attribute(name, record);
                }
                self.add_session(record);
                self.add_subject_attribute("subj", record);
                return;
            }
            if !self.walk.next_record() {
                return;
            }
        }
    }

    /// A link that was not followed.
    fn link(&mut self) {
        self.set_action(action(ty::ANOM_LINK));
        self.set_file_object(3);
        if self.sentence.object.is_some() {
            return;
        }
        for record in 1..self.walk.count() {
            if self.walk.go_to_record(record) && self.walk.kind() == ty::PATH {
                self.walk.first_field();
                self.set_object("name", record);
                self.sentence.object_kind = ObjectKind::Symlink;
                break;
            }
        }
        if self.sentence.object.is_none() {
            self.walk.first_record();
            if self.set_object_here("path") || self.set_object_here("cwd") {
                self.sentence.object_kind = ObjectKind::Symlink;
            }
        }
    }

    /// What an event is about that a record beside the syscall says.
    fn other_purpose(&mut self) -> (Purpose, Option<&'static str>, i32) {
        self.walk.first_record();
        loop {
            let kind = self.walk.kind();
            let purpose = match kind {
                ty::AVC => {
                    return (
                        Purpose::Unknown,
                        Some("accessed-mac-policy-controlled-object"),
                        kind,
                    );
                }
                ty::FANOTIFY => {
                    return (
                        Purpose::Unknown,
                        Some("accessed-policy-controlled-file"),
                        kind,
                    );
                }
                ty::SELINUX_ERR => Purpose::MacErr,
                ty::NETFILTER_CFG => Purpose::Iptables,
                ty::ANOM_PROMISCUOUS => Purpose::Promiscuous,
                ty::KERN_MODULE => Purpose::FileLdmod,
                ty::MAC_POLICY_LOAD => Purpose::MacLoad,
                ty::MAC_STATUS => Purpose::MacEnforce,
                ty::MAC_CONFIG_CHANGE => Purpose::MacConfig,
                ty::TIME_INJOFFSET | ty::TIME_ADJNTPVAL => Purpose::SystemTime,
                ty::BPF => Purpose::Bpf,
                ty::EVENT_LISTENER => Purpose::EvListen,
                _ if self.walk.next_record() => continue,
                _ => return (Purpose::Unknown, None, kind),
            };
            return (purpose, None, kind);
        }
    }

    fn syscall(&mut self, syscall: &[u8]) {
        let (other, policy_action, kind) = self.other_purpose();
        let purpose = if other == Purpose::Unknown {
            purpose(&syscall.to_ascii_lowercase())
        } else {
            other
        };
        let action = self.object_of(purpose, syscall, kind);
        self.set_action(policy_action.or(action));
    }

    /// Finds the object of a syscall; returns the action.
    #[expect(clippy::too_many_lines, reason = "one arm for each purpose")]
    fn object_of(&mut self, purpose: Purpose, syscall: &[u8], kind: i32) -> Option<&'static str> {
        use ObjectKind::{
            File, FileSystem, Memory, Process, SecurityModules, SecurityPolicy, Socket, System,
        };
        let succeeded = self.succeeded;
        Some(match purpose {
            Purpose::File => self.file(File, 2, "opened-file"),
            Purpose::FileChattr => {
                let record = if syscall == b"fsetxattr" { 1 } else { 2 };
                self.file_after(File, record, "changed-file-attributes-of")
            }
            Purpose::FileChperm => {
                self.sentence.object_kind = File;
                self.set_file_object(if syscall == b"fchmod" { 1 } else { 2 });
                self.mode_of(syscall);
                self.file_attributes();
                "changed-file-permissions-of"
            }
            Purpose::FileChown => {
                self.sentence.object_kind = File;
                self.owner_of(syscall);
                if syscall != b"fchown" {
                    self.set_file_object(2);
                    self.file_attributes();
                }
                "changed-file-ownership-of"
            }
            Purpose::FileLdmod => {
                self.sentence.object_kind = File;
                self.walk.go_to_record(1);
                self.set_object("name", 1);
                "loaded-kernel-module"
            }
            Purpose::FileUnldmod => {
                self.sentence.object_kind = File;
                "unloaded-kernel-module"
            }
            Purpose::FileDir => self.file_after(File, 3, "created-directory"),
            Purpose::FileMount => {
                self.sentence.object_kind = FileSystem;
                if succeeded == 1 {
                    self.set_object2("name", 2);
                }
                self.set_file_object(2_usize.saturating_add_signed(succeeded));
                // There may be four paths; the attributes are those of this one.
                self.path_attributes();
                "mounted"
            }
            Purpose::FileRename => {
                self.sentence.object_kind = File;
                self.set_object2("name", 5);
                self.set_file_object(4);
                self.file_attributes();
                "renamed"
            }
            Purpose::FileStat => self.file(File, 2, "checked-metadata-of"),
            Purpose::FileSysStat => self.file(FileSystem, 2, "checked-filesystem-metadata-of"),
            Purpose::FileLnk => {
                self.sentence.object_kind = File;
                self.set_object2("name", 2);
                self.set_file_object(4);
                self.file_attributes();
                "symlinked"
            }
            Purpose::FileUmnt => self.file(FileSystem, 2, "unmounted"),
            Purpose::FileDel => self.file(File, 2, "deleted"),
            Purpose::FileTime => self.file(File, 2, "changed-timestamp-of"),
            Purpose::Exec => self.file_after(File, 3, "executed"),
            Purpose::SocketAccept => self.socket("accepted-connection-from"),
            Purpose::SocketBind => self.socket("bound-socket"),
            Purpose::SocketConn => self.socket("connected-to"),
            Purpose::SocketRecv => self.socket("received-from"),
            Purpose::SocketSend => self.socket("sent-to"),
            Purpose::Pid => self.processes(),
            Purpose::MacLoad => {
                self.sentence.object_kind = SecurityPolicy;
                return action(kind);
            }
            Purpose::MacConfig | Purpose::MacEnforce => {
                self.set_object_here(if purpose == Purpose::MacConfig {
                    "bool"
                } else {
                    "enforcing"
                });
                self.sentence.object_kind = SecurityPolicy;
                return action(kind);
            }
            Purpose::MacErr => {
                self.sentence.object_kind = System;
                "caused-mac-policy-error"
            }
            Purpose::Iptables => {
                self.walk.first_record();
                self.set_object_here("table");
                self.sentence.object_kind = ObjectKind::Firewall;
                "loaded-firewall-rule-to"
            }
            Purpose::Promiscuous => {
                self.walk.first_record();
                self.set_object_here("dev");
                self.sentence.object_kind = Socket;
                if !self.walk.find("prom") {
                    return None;
                }
                if self.walk.number() == 0 {
                    "left-promiscuous-mode-on-device"
                } else {
                    "entered-promiscuous-mode-on-device"
                }
            }
            Purpose::Uid | Purpose::Gid => {
                self.program(syscall);
                self.identity_of(syscall);
                "changed-identity-of"
            }
            Purpose::SystemTime => {
                self.sentence.object_kind = System;
                "changed-system-time"
            }
            Purpose::MakeDev => {
                self.set_file_object(2);
                self.file_attributes();
                match self.sentence.object_kind {
                    ObjectKind::CharacterDevice => "made-character-device",
                    ObjectKind::BlockDevice => "made-block-device",
                    _ => "make-device",
                }
            }
            Purpose::SystemName => {
                self.sentence.object_kind = System;
                "changed-system-name"
            }
            Purpose::SystemMemory => {
                self.sentence.object_kind = Memory;
                if succeeded == 1 {
                    self.walk.first_record();
                    self.set_object_here("comm");
                    "allocated-memory-in"
                } else {
                    "allocated-memory"
                }
            }
            Purpose::Scheduler => {
                self.program(syscall);
                "adjusted-scheduling-policy-of"
            }
            Purpose::Bpf => {
                let action = self.bpf_action();
                self.sentence.object_kind = Process;
                self.set_program_object();
                action
            }
            Purpose::EvListen => {
                let action = self.listener_action();
                self.sentence.object_kind = Socket;
                self.set_program_object();
                action
            }
            Purpose::SecurityPolicy => {
                self.program(syscall);
                "adjusted-security-policy-of"
            }
            Purpose::SecurityAttr => {
                self.sentence.object_kind = Process;
                self.set_program_object();
                "retrieved-security-attr-of"
            }
            Purpose::SecurityList => {
                self.sentence.object_kind = SecurityModules;
                "listed-security-modules"
            }
            Purpose::Unknown => self.rule(),
        })
    }

    /// A syscall that only the rules know.
    fn rule(&mut self) -> &'static str {
        self.walk.first_record();
        self.sentence.object_kind = ObjectKind::AuditRule;
        if self.walk.find("key") && self.walk.value() != Some(b"(null)") {
            self.sentence.object = Some(self.walk.place());
            "triggered-audit-rule"
        } else {
            "triggered-unknown-audit-rule"
        }
    }

    /// A file in the first path from `record` on.
    fn file(&mut self, kind: ObjectKind, record: usize, action: &'static str) -> &'static str {
        // Only for opened files the kind is not that of the path.
        if action == "opened-file" {
            self.set_file_object(record);
            self.sentence.object_kind = kind;
            self.file_attributes();
            return action;
        }
        self.file_after(kind, record, action)
    }

    /// As [`Self::file`], whose kind is that of the path if the path has one.
    fn file_after(
        &mut self,
        kind: ObjectKind,
        record: usize,
        action: &'static str,
    ) -> &'static str {
        self.sentence.object_kind = kind;
        self.set_file_object(record);
        self.file_attributes();
        action
    }

    fn socket(&mut self, action: &'static str) -> &'static str {
        self.sentence.object_kind = ObjectKind::Socket;
        self.walk.go_to_record(1);
        self.walk.first_field();
        self.set_object("saddr", 1);
        action
    }

    /// A program that changes itself; the syscall is how.
    fn program(&mut self, syscall: &[u8]) {
        self.sentence.object_kind = ObjectKind::Process;
        self.set_program_object();
        if self.sentence.how.is_some() {
            self.sentence.how = Some(syscall.to_vec());
        }
    }

    fn processes(&mut self) -> &'static str {
        self.sentence.object_kind = ObjectKind::Process;
        for record in 1..self.walk.count() {
            self.walk.go_to_record(record);
            if self.walk.kind() != ty::OBJ_PID {
                continue;
            }
            self.walk.first_field();
            if self.walk.find("opid") {
                let place = self.walk.place();
                self.sentence.object_attributes.push(place);
            }
        }
        if self.sentence.object_attributes.len() > 1 {
            self.sentence.object_kind = ObjectKind::ProcessGroup;
            return "killed-list-of-pids";
        }
        "killed-pid"
    }

    pub(super) fn bpf_action(&mut self) -> &'static str {
        self.walk.first_record();
        match self
            .walk
            .find("op")
            .then(|| self.walk.value() == Some(b"LOAD"))
        {
            Some(true) => "loaded-bpf-program",
            Some(false) => "unloaded-bpf-program",
            None => "bpf-program",
        }
    }

    pub(super) fn listener_action(&mut self) -> &'static str {
        self.walk.first_record();
        match self
            .walk
            .find("op")
            .then(|| self.walk.value() == Some(b"connect"))
        {
            Some(true) => "connected-to",
            Some(false) => "disconnected-from",
            None => "connected",
        }
    }
}
