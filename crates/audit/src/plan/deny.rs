//! Denial: rules whose calls are refused when they could not be recorded.
//!
//! Which rules these are is said by their keys. The fentry engine has programs for them where the kernel asks
//! its security modules, after everything else that could refuse the call and before anything is done: there
//! the rules are asked as if the call were to succeed, and when the ring has no room for what they would
//! keep, the call fails with `EPERM`.

use bstr::{BStr, BString};

use crate::rule::{Action, Field, List, field};
use crate::table;

use super::inner::InternalHook;
use super::{Operand, Plan, RuleId, SyscallId, SyscallPlan, Test, UnsupportedRule};

/// The functions that may refuse a call; none for calls that nothing refuses.
///
/// # Source
/// Callers of `security_*` in `fs/namei.c`, `fs/open.c`, `fs/attr.c`, `fs/xattr.c`, `fs/exec.c`,
/// `fs/namespace.c`, `net/socket.c`, `kernel/signal.c`, `kernel/ptrace.c` and `kernel/module`, Linux 6.1 and
/// 6.12.
#[must_use]
pub fn of(call: SyscallId) -> &'static [InternalHook] {
    use InternalHook::{
        DenyBind, DenyConnect, DenyCreate, DenyExec, DenyKill, DenyLink, DenyLoadData, DenyMkdir,
        DenyMknod, DenyModule, DenyMount, DenyOpen, DenyPathMknod, DenyPtrace, DenyRename,
        DenyRmdir, DenyRmxattr, DenySetattr, DenySetxattr, DenySymlink, DenyUmount, DenyUnlink,
    };
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
        "open" | "openat" | "openat2" | "creat" => &[DenyOpen, DenyPathMknod],
        "execve" | "execveat" => &[DenyExec],
        "unlink" => &[DenyUnlink],
        "rmdir" => &[DenyRmdir],
        "unlinkat" => &[DenyUnlink, DenyRmdir],
        "mkdir" | "mkdirat" => &[DenyMkdir],
        "mknod" | "mknodat" => &[DenyMknod, DenyCreate],
        "symlink" | "symlinkat" => &[DenySymlink],
        "link" | "linkat" => &[DenyLink],
        "rename" | "renameat" | "renameat2" => &[DenyRename],
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "lchown" | "fchown"
        | "fchownat" | "chown32" | "lchown32" | "fchown32" | "truncate" | "truncate64"
        | "utime" | "utimes" | "futimesat" | "utimensat" | "utimensat_time64" => &[DenySetattr],
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[DenySetxattr],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[DenyRmxattr],
        "bind" => &[DenyBind],
        "connect" => &[DenyConnect],
        "mount" => &[DenyMount],
        "umount" | "umount2" => &[DenyUmount],
        "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo"
        | "pidfd_send_signal" => &[DenyKill],
        "ptrace" => &[DenyPtrace],
        "init_module" => &[DenyLoadData],
        "finit_module" => &[DenyModule],
        _ => &[],
    }
}

/// Functions beside those of [`of`] that newer kernels ask for some objects: see [`super::inner::newer`].
#[must_use]
pub fn newer(call: SyscallId) -> &'static [InternalHook] {
    match table::syscall_name(call.arch, call.syscall).unwrap_or_default() {
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[InternalHook::DenySetAcl],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => {
            &[InternalHook::DenyRemoveAcl]
        }
        _ => &[],
    }
}

impl Plan {
    /// Has the calls of rules with one of these keys denied when they could not be recorded. Rules for which
    /// that is not possible become [`Plan::unsupported`].
    pub fn deny(&mut self, keys: &[BString]) {
        for at in 0..self.rules.len() {
            let Some(planned) = self.rules.get_mut(at) else {
                break;
            };
            let Some(key) = planned.denied_by(keys) else {
                continue;
            };
            planned.denies = true;
            let (source, line) = (planned.source, planned.line);
            if let Err(reason) = self.can_deny(at) {
                let key = BStr::new(&key);
                self.unsupported.push(UnsupportedRule {
                    source,
                    line,
                    loses_records: true,
                    reason: format!("cannot be denied, as its key `{key}` asks for: {reason}"),
                });
            }
        }
    }

    /// Whether some rule of a call, or of an operation, has it denied.
    #[must_use]
    pub fn denies(&self, rules: &SyscallPlan) -> bool {
        rules.slots.iter().any(|slot| self.is_denied(slot.rule))
    }

    /// How many rules have calls denied.
    #[must_use]
    pub fn denying(&self) -> usize {
        self.rules.iter().filter(|planned| planned.denies).count()
    }

    /// Whether a rule has its calls denied.
    #[must_use]
    pub fn is_denied(&self, RuleId(rule): RuleId) -> bool {
        let planned = self.rules.get(usize::from(rule));
        planned.is_some_and(|planned| planned.denies)
    }

    /// The calls of rules that have them denied which nothing can refuse, by name, each once.
    #[must_use]
    pub fn undeniable_syscalls(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self
            .syscalls
            .iter()
            .filter(|&(&call, rules)| of(call).is_empty() && self.denies(rules))
            .filter_map(|(call, _)| table::syscall_name(call.arch, call.syscall))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether what a rule asks for is known when a call may still be refused, and some of its calls can be.
    fn can_deny(&self, at: usize) -> Result<(), String> {
        let list = self.rules.get(at).map(|planned| planned.rule.list);
        if list != Some(List::Exit) {
            return Err("it is no rule of the exit list".to_owned());
        }
        let calls = self.syscalls.iter().filter_map(|(call, rules)| {
            let slot = rules
                .slots
                .iter()
                .find(|slot| usize::from(slot.rule.0) == at)?;
            Some((*call, slot))
        });
        let mut any = false;
        for (call, slot) in calls {
            if let Some(late) = slot.tests.iter().find_map(known_late) {
                return Err(format!("`{late}` is known only when the call has ended"));
            }
            any |= !of(call).is_empty();
        }
        if any {
            Ok(())
        } else {
            Err("nothing can refuse its calls".to_owned())
        }
    }
}

impl super::PlannedRule {
    /// The first of its keys that is one of these.
    fn denied_by(&self, keys: &[BString]) -> Option<BString> {
        let mut own = self.rule.keys.iter();
        let is_always = self.rule.action == Action::Always;
        own.find(|key| is_always && keys.contains(key)).cloned()
    }
}

/// The field of a condition that can only be evaluated when the call has ended.
fn known_late(test: &Test) -> Option<&'static str> {
    let is_late = |&field: &Field| {
        matches!(
            field,
            Field::Exit
                | Field::Success
                | Field::ObjUid
                | Field::ObjGid
                | Field::Inode
                | Field::DevMajor
                | Field::DevMinor
                | Field::FileType
                | Field::SaddrFam
        )
    };
    let late = match &test.operand {
        Operand::Field(field) => is_late(field).then_some(*field),
        Operand::Fields(left, right) => [*left, *right].into_iter().find(is_late),
        _ => None,
    };
    late.map(field::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::planned;

    fn denied(lines: &[&str]) -> Plan {
        let mut plan = planned(lines);
        plan.deny(&["deny".into()]);
        plan
    }

    #[test]
    fn rules_are_chosen_by_any_of_their_keys() {
        let plan = denied(&[
            "-a always,exit -F arch=b64 -S openat -F path=/a -k other -k deny",
            "-a always,exit -F arch=b64 -S openat -F path=/b -k other",
            "-a never,exit -F arch=b64 -S openat -F path=/c -k deny",
        ]);
        assert_eq!(plan.unsupported, []);
        let denies: Vec<bool> = plan.rules.iter().map(|rule| rule.denies).collect();
        assert_eq!(denies, [true, false, false]);
        assert!(plan.denying() == 1 && plan.syscalls.values().all(|rules| plan.denies(rules)));
    }

    #[test]
    fn what_cannot_be_denied_is_said() {
        for (rule, word) in [
            (
                "-a always,exit -F arch=b64 -S openat -F success=1 -k deny",
                "success",
            ),
            (
                "-a always,exit -F arch=b64 -S unlink -F obj_uid=0 -k deny",
                "obj_uid",
            ),
            (
                "-a always,exit -F arch=b64 -S chmod -C uid!=obj_uid -k deny",
                "obj_uid",
            ),
            ("-a always,exit -F arch=b64 -S getpid -k deny", "nothing"),
        ] {
            let plan = denied(&[rule]);
            let [refused] = plan.unsupported.as_slice() else {
                panic!("{rule}: {:?}", plan.unsupported);
            };
            assert!(
                refused.loses_records && refused.reason.contains(word),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn calls_that_nothing_refuses_are_named() {
        let plan = denied(&["-a always,exit -F arch=b64 -S openat -S read -k deny"]);
        assert_eq!(plan.unsupported, []);
        assert_eq!(plan.undeniable_syscalls(), ["read"]);
    }
}
