//! Events of one record.

use super::actions::action;
use super::{FieldPosition, Normalizer, ObjectKind, event_kind};
use crate::record_type as ty;

impl Normalizer<'_> {
    /// Understands an event of one record; whether that is possible.
    pub(super) fn simple(&mut self) -> bool {
        let kind = self.walk.kind();
        if kind == ty::SYSCALL {
            // Older systems have no command line.
            return self.compound();
        }
        self.sentence.kind = Some(event_kind(kind));
        match kind {
            ty::CONFIG_CHANGE
            | ty::FEATURE_CHANGE
            | ty::SECCOMP
            | ty::ANOM_ABEND
            | ty::ANOM_PROMISCUOUS => {
                self.of_kernel(kind);
            }
            ty::LOGIN => self.login(),
            ty::NETFILTER_CFG => self.netfilter(),
            ty::AVC => self.avc(),
            1200..1299 => self.daemon(kind),
            ty::BPF => self.bpf(),
            ty::EVENT_LISTENER => self.listener(),
            1406..=1499 => self.labelled_network(kind),
            _ => self.of_program(kind),
        }
        true
    }

    fn subject_attributes_simple(&mut self) {
        if self.with_attributes {
            self.walk.first_record();
            self.add_subject_attribute("pid", 0);
            self.add_subject_attribute("subj", 0);
        }
    }

    fn of_kernel(&mut self, kind: i32) {
        self.set_subject("auid", 0);
        self.add_session(0);
        self.subject_attributes_simple();
        if kind == ty::CONFIG_CHANGE {
            self.change(kind);
        } else {
            self.set_action(action(kind));
            self.walk.first_record();
        }
        match kind {
            ty::FEATURE_CHANGE => {
                self.second_user();
                self.set_how("exe");
                self.set_object("feature", 0);
                self.sentence.object_kind = ObjectKind::System;
            }
            ty::SECCOMP => {
                self.second_user();
                self.set_how("exe");
                if !self.set_object("syscall", 0) {
                    self.walk.first_record();
                }
                self.sentence.object_kind = ObjectKind::Process;
                if self.walk.find("code") {
                    self.sentence.result = Some(self.walk.place_in(0));
                }
                return;
            }
            ty::ANOM_ABEND => {
                self.second_user();
                if !self.set_object("exe", 0) {
                    self.walk.first_record();
                }
                self.sentence.object_kind = ObjectKind::Process;
                self.set_how("sig");
            }
            ty::ANOM_PROMISCUOUS => {
                self.walk.first_field();
                self.set_object("dev", 0);
                self.set_subject2("uid", 0);
                self.sentence.object_kind = ObjectKind::Socket;
            }
            _ => {}
        }
        self.set_result(0);
    }

    fn second_user(&mut self) {
        self.walk.first_field();
        if !self.set_subject2("uid", 0) {
            self.walk.first_record();
        }
    }

    /// A change of the audit configuration.
    fn change(&mut self, kind: i32) {
        self.walk.first_field();
        if self.walk.find("op") {
            let operation = self.walk.text(self.interpreter);
            let operation = operation.strip_prefix(b"\"").unwrap_or(&operation);
            let action = if operation.starts_with(b"add_rule") {
                Some("added-audit-rule")
            } else if operation.starts_with(b"remove_rule") {
                Some("deleted-audit-rule")
            } else {
                None
            };
            if action.is_some() {
                self.set_action(action);
                self.sentence.object = self.simple_object(kind);
                return;
            }
        }
        self.set_action(action(kind));
        self.sentence.object = self.simple_object(kind);
        self.walk.first_record();
    }

    fn login(&mut self) {
        if !self.set_subject2("uid", 0) {
            self.walk.first_record();
        }
        self.subject_attributes_simple();
        if !self.set_subject("old-auid", 0) {
            self.walk.first_record();
        }
        if !self.set_object("auid", 0) {
            self.walk.first_record();
        }
        self.sentence.object_kind = ObjectKind::UserSession;
        self.add_session(0);
        self.set_result(0);
        self.set_action(action(ty::LOGIN));
    }

    fn netfilter(&mut self) {
        self.subject_attributes_simple();
        self.set_how("comm");
        self.set_action(Some("loaded-firewall-rule-to"));
        self.walk.first_record();
        self.set_object_here("table");
        self.sentence.subject_kind = Some("system");
        self.sentence.object_kind = ObjectKind::Firewall;
    }

    fn avc(&mut self) {
        if !self.set_how("comm") {
            self.walk.first_record();
        }
        self.set_subject("scontext", 0);
        self.sentence.subject_kind = Some("unknown-acct");
        self.walk.first_record();
        if self.with_attributes {
            self.set_object("tcontext", 0);
            self.walk.first_record();
        }
        self.sentence.object_kind = ObjectKind::Unknown;
        self.set_action(action(ty::AVC));
        self.walk.first_record();
        if self.walk.find("seresult") {
            self.sentence.result = Some(self.walk.place_in(0));
        }
    }

    fn daemon(&mut self, kind: i32) {
        self.set_subject("auid", 0);
        if !self.set_subject2("uid", 0) {
            self.walk.first_record();
        }
        if !self.add_session(0) {
            self.walk.first_record();
        }
        self.subject_attributes_simple();
        self.sentence.subject_kind = Some("auditd");
        self.set_action(action(kind));
        self.sentence.object_kind = ObjectKind::Service;
        let how = match kind {
            ty::DAEMON_START => Some("init"),
            ty::DAEMON_ABORT => None,
            kind if kind < ty::DAEMON_ACCEPT => Some("signal"),
            _ => None,
        };
        self.sentence.how = how.map(|how| how.as_bytes().to_vec());
        self.set_result(0);
    }

    fn bpf(&mut self) {
        self.sentence.subject_kind = Some("system");
        let action = self.bpf_action();
        self.set_action(Some(action));
        self.sentence.object_kind = ObjectKind::Process;
        self.set_program_object();
    }

    fn listener(&mut self) {
        self.set_subject("auid", 0);
        self.walk.first_record();
        self.set_subject2("uid", 0);
        self.walk.first_record();
        self.add_session(0);
        self.subject_attributes_simple();
        let action = self.listener_action();
        self.set_action(Some(action));
        self.set_program_object();
        self.sentence.object_kind = ObjectKind::Socket;
        self.walk.first_record();
        self.set_how("exe");
        self.walk.first_record();
        self.set_result(0);
    }

    fn labelled_network(&mut self, kind: i32) {
        self.set_subject("auid", 0);
        self.set_subject_kind();
        self.add_session(0);
        self.add_subject_attribute("subj", 0);
        if kind == ty::MAC_UNLBL_ALLOW {
            if self.walk.find("unlbl_accept") {
                let is_allowed = self.walk.number() == 1;
                self.set_action(Some(if is_allowed {
                    "is-allowing-unlabeled-network-traffic"
                } else {
                    "is-disallowing-unlabeled-network-traffic"
                }));
            } else {
                self.walk.first_record();
            }
        } else {
            self.set_action(action(kind));
        }
        if matches!(kind, ty::MAC_MAP_ADD | ty::MAC_MAP_DEL) && !self.set_object("nlbl_domain", 0) {
            self.walk.first_record();
        }
        self.sentence.object_kind = ObjectKind::SecurityPolicy;
        self.set_result(0);
    }

    fn of_program(&mut self, kind: i32) {
        if kind == ty::USER_LOGIN {
            // A login that failed has no login user yet.
            if self.set_subject("id", 0) {
                self.set_subject_kind();
            } else {
                self.walk.first_record();
                if self.set_subject("acct", 0) {
                    self.set_subject_kind();
                }
            }
            self.walk.first_record();
        } else {
            if !self.set_subject2("uid", 0) {
                self.walk.first_record();
            }
            self.set_subject("auid", 0);
        }
        self.add_session(0);
        self.subject_attributes_simple();
        if matches!(kind, 1100..1199 | 2100..2999) {
            self.program_attributes(kind);
        }
        if kind == ty::USER_AVC {
            self.user_avc();
        } else {
            self.set_result(0);
        }
        self.set_action(action(kind));
        if kind == ty::USER_DEVICE {
            self.walk.first_record();
            if self.walk.find("op") {
                self.sentence.action = self.walk.value().map(<[u8]>::to_vec);
            }
        }
        if kind != ty::USER_AVC {
            self.program_object(kind);
        }
        self.program_how(kind);
    }

    fn program_attributes(&mut self, kind: i32) {
        if !self.with_attributes {
            return;
        }
        self.add_subject_attribute("hostname", 0);
        self.add_subject_attribute("addr", 0);
        // The terminal is the object of sessions.
        if !matches!(kind, ty::USER_START | ty::USER_END | ty::USER_ERR) {
            self.add_subject_attribute("terminal", 0);
        }
    }

    fn user_avc(&mut self) {
        self.walk.first_record();
        if self.walk.find("seresult") {
            self.sentence.result = Some(self.walk.place_in(0));
        }
        self.walk.first_record();
        self.set_subject("scontext", 0);
        if self.with_attributes {
            self.walk.first_record();
            self.set_object("tcontext", 0);
        }
    }

    fn program_object(&mut self, kind: i32) {
        self.walk.first_record();
        self.sentence.object = self.simple_object(kind);
        self.sentence.object_secondary = match kind {
            ty::CRYPTO_SESSION => self.other_object("rport"),
            ty::SOFTWARE_UPDATE => self.other_object("sw_type"),
            _ => {
                self.walk.first_field();
                None
            }
        };
        self.sentence.object2 = match kind {
            ty::VIRT_CONTROL | ty::VIRT_RESOURCE => self.other_object("vm"),
            ty::SOFTWARE_UPDATE => self.other_object("root_dir"),
            _ => {
                self.walk.first_field();
                None
            }
        };
        if self.with_attributes {
            if kind == ty::USER_DEVICE {
                self.add_object_attribute("uuid", 0);
            } else if kind == ty::SOFTWARE_UPDATE {
                self.walk.first_record();
                self.add_object_attribute("key_enforce", 0);
                self.add_object_attribute("gpg_res", 0);
            }
        }
    }

    fn other_object(&mut self, name: &str) -> Option<FieldPosition> {
        self.walk.first_field();
        self.walk.find(name).then(|| self.walk.place_in(0))
    }

    fn program_how(&mut self, kind: i32) {
        match kind {
            ty::SYSTEM_BOOT | ty::SYSTEM_SHUTDOWN => {
                self.sentence.object_kind = if kind == ty::SYSTEM_BOOT {
                    ObjectKind::System
                } else {
                    ObjectKind::Service
                };
                self.set_how("exe");
            }
            ty::ANOM_EXEC => {
                self.walk.first_record();
                self.set_how("terminal");
            }
            ty::TTY => {
                self.walk.first_record();
                self.set_how("comm");
            }
            _ => {
                self.walk.first_record();
                self.set_how_to_program();
            }
        }
    }

    /// Finds the object of a record, and sets its kind.
    pub(super) fn simple_object(&mut self, kind: i32) -> Option<FieldPosition> {
        use ObjectKind::{
            Account, AuditConfig, FileSystem, Keystrokes, Printer, Process, SecurityPolicy,
            Service, Software, System, UserSession, VirtualMachine,
        };
        self.walk.first_field();
        let (name, object_kind, from_start) = match kind {
            ty::SERVICE_START | ty::SERVICE_STOP => ("unit", Service, false),
            ty::SYSTEM_RUNLEVEL => ("new-level", System, false),
            ty::USER_ROLE_CHANGE => ("selected-context", UserSession, false),
            ty::ROLE_ASSIGN
            | ty::ROLE_REMOVE
            | ty::USER_MGMT
            | ty::ACCT_LOCK
            | ty::ACCT_UNLOCK
            | ty::ADD_USER
            | ty::DEL_USER
            | ty::ADD_GROUP
            | ty::DEL_GROUP
            | ty::GRP_MGMT => {
                self.sentence.object_kind = Account;
                if self.walk.find("id") {
                    return Some(self.walk.place_in(0));
                }
                ("acct", Account, true)
            }
            ty::USER_START | ty::USER_END | ty::USER_ERR | ty::USER_LOGIN | ty::USER_LOGOUT => {
                ("terminal", UserSession, false)
            }
            ty::USER_AUTH
            | ty::USER_ACCT
            | ty::CRED_ACQ
            | ty::CRED_REFR
            | ty::CRED_DISP
            | ty::USER_CHAUTHTOK
            | ty::GRP_CHAUTHTOK
            | ty::ANOM_LOGIN_FAILURES
            | ty::ANOM_LOGIN_TIME
            | ty::ANOM_LOGIN_SESSIONS
            | ty::ANOM_LOGIN_LOCATION => ("acct", UserSession, false),
            ty::ANOM_EXEC | ty::USER_CMD => ("cmd", Process, false),
            ty::USER_TTY | ty::TTY => ("data", Keystrokes, true),
            ty::USER_DEVICE => ("device", Keystrokes, true),
            ty::SOFTWARE_UPDATE => ("sw", Software, true),
            ty::VIRT_MACHINE_ID => ("vm", VirtualMachine, false),
            ty::VIRT_RESOURCE => ("resrc", VirtualMachine, false),
            ty::VIRT_CONTROL => ("op", VirtualMachine, false),
            ty::LABEL_LEVEL_CHANGE => ("printer", Printer, false),
            ty::CONFIG_CHANGE => {
                self.sentence.object_kind = AuditConfig;
                return self.changed_object();
            }
            ty::MAC_CONFIG_CHANGE => ("bool", SecurityPolicy, false),
            ty::MAC_STATUS => ("enforcing", SecurityPolicy, false),
            ty::MAC_POLICY_LOAD | ty::LABEL_OVERRIDE | 2307..=ty::USER_MAC_CONFIG_CHANGE => {
                self.sentence.object_kind = SecurityPolicy;
                return None;
            }
            ty::USER => ("addr", self.sentence.object_kind, false),
            ty::USYS_CONFIG => {
                self.sentence.object_kind = System;
                if self.walk.find("op") {
                    self.sentence.action = Some(self.walk.text(self.interpreter));
                }
                return None;
            }
            ty::CRYPTO_KEY_USER => ("fp", UserSession, false),
            ty::CRYPTO_SESSION => ("addr", UserSession, false),
            ty::ANOM_RBAC_INTEGRITY_FAIL => ("hostname", FileSystem, false),
            _ => return None,
        };
        if from_start {
            self.walk.first_record();
        }
        self.sentence.object_kind = object_kind;
        self.walk.find(name).then(|| self.walk.place_in(0))
    }

    /// What was changed in the audit configuration.
    fn changed_object(&mut self) -> Option<FieldPosition> {
        const OBJECTS: [&str; 6] = [
            "audit_enabled",
            "audit_pid",
            "audit_backlog_limit",
            "audit_failure",
            "actions",
            "list",
        ];
        self.walk.first_record();
        if self.walk.find("key") && self.walk.value() != Some(b"(null)") {
            return Some(self.walk.place_in(0));
        }
        for name in OBJECTS {
            self.walk.first_record();
            if self.walk.find(name) {
                return Some(self.walk.place_in(0));
            }
        }
        None
    }
}
