//! This machine: users, groups, programs and security modules, for the parsers of rules and configuration.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::anyhow;
use audit::conf;
use audit::ids::{Arch, NativeArch};
use audit::plan::Plan;
use audit::plan::labels::SecurityModule;
use audit::plan::rule_list::RuleEntry;
use audit::rule::RuleHost;
use bstr::{BStr, BString, ByteSlice as _};
use engine::KernelProbe;
use logs::name_service;
use nix::unistd::{AccessFlags, Gid, access};

use crate::messages::warn;

/// The program that sends mail.
pub(crate) const SENDMAIL: &str = "/usr/lib/sendmail";
/// Modes that the program of an action may have.
const PROGRAM_MODES: [u32; 4] = [0o750, 0o755, 0o550, 0o555];
const PERMISSIONS: u32 = 0o777;

/// Compiles rules for this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planner {
    /// The active security modules: rules that they evaluate are not supported.
    pub(crate) modules: Vec<SecurityModule>,
    /// Keys of the rules that deny a syscall which cannot be recorded.
    deny: Vec<BString>,
}

impl Planner {
    /// A planner for this machine. Rules with a key in `deny` deny.
    pub(crate) fn for_this_machine(deny: Vec<BString>) -> Self {
        let mut modules = SecurityModule::ALL.to_vec();
        modules.retain(|&module| is_active(module));
        Self { modules, deny }
    }

    /// Returns this planner with other keys of rules that deny.
    pub(crate) fn denying(&self, deny: Vec<BString>) -> Self {
        let modules = self.modules.clone();
        Self { modules, deny }
    }

    /// Keys of the rules that deny.
    pub(crate) fn denies(&self) -> &[BString] {
        &self.deny
    }

    /// Compiles rules.
    pub(crate) fn plan(&self, rules: Vec<RuleEntry>) -> Plan {
        let mut plan = Plan::compile(rules, &NativeArch::BUILD.abis());
        for &module in &self.modules {
            plan.refuse_label_rules(module);
        }
        plan.deny(&self.deny, engine::is_deniable);
        plan
    }
}

/// The group whose members may watch. Without it only root may, and a warning says so.
pub(crate) fn watch_group(name: &str) -> Option<Gid> {
    match name_service::gid(name) {
        Ok(Some(gid)) => Some(Gid::from_raw(gid)),
        Ok(None) => {
            warn(&format!(
                "{}; {}",
                absent_watch_group(name),
                watch_group_advice(name)
            ));
            None
        }
        Err(error) => {
            warn(&format!(
                "cannot look up the group `{name}` of `watch_group`, so only root can watch: {error}"
            ));
            None
        }
    }
}

/// Says that the group that may watch does not exist.
pub(crate) fn absent_watch_group(name: &str) -> String {
    format!("the group `{name}` of `watch_group` does not exist: only root can watch")
}

/// What to type if the group that may watch does not exist.
pub(crate) fn watch_group_advice(name: &str) -> String {
    format!("create it with `groupadd {name}`, then restart the daemon")
}

/// Whether a security module is active.
///
/// # Source
/// `init_sel_fs` in `security/selinux/selinuxfs.c` and `init_smk_fs` in `security/smack/smackfs.c`, Linux
/// 6.12, create these directories if the module is active, mounted or not.
fn is_active(module: SecurityModule) -> bool {
    match module {
        SecurityModule::AppArmor => std::fs::read("/sys/module/apparmor/parameters/enabled")
            .is_ok_and(|text| text.starts_with(b"Y")),
        SecurityModule::Selinux => Path::new("/sys/fs/selinux").exists(),
        SecurityModule::Smack => Path::new("/sys/fs/smackfs").exists(),
    }
}

/// The machine that tollgate runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisMachine;

impl RuleHost for ThisMachine {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        name_service::uid(name.to_str().ok()?).ok()?
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        name_service::gid(name.to_str().ok()?).ok()?
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.to_path().is_ok_and(Path::is_dir)
    }

    fn native(&self) -> Arch {
        NativeArch::BUILD.b64()
    }
}

impl conf::ConfigHost for ThisMachine {
    fn group(&self, name: &[u8]) -> Option<u32> {
        self.gid(name)
    }

    /// # Source
    /// `check_exe_name` in `src/auditd-config.c`, audit-userspace 4.2.1.
    fn may_run(&self, program: &BStr) -> Result<(), String> {
        let about = program
            .to_path()
            .map_err(|error| error.to_string())
            .and_then(|path| {
                std::fs::metadata(path).map_err(|error| format!("cannot be run: {error}"))
            })?;
        if !about.is_file() {
            return Err("is not a regular file".to_owned());
        }
        if about.uid() != 0 {
            return Err("is not owned by root".to_owned());
        }
        let mode = about.mode() & PERMISSIONS;
        if !PROGRAM_MODES.contains(&mode) {
            return Err(format!("has mode {mode:04o}"));
        }
        Ok(())
    }

    fn can_mail(&self) -> bool {
        access(SENDMAIL, AccessFlags::X_OK).is_ok()
    }
}

/// The BTF of the kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Reads what this kernel offers to BPF programs.
///
/// # Errors
/// The kernel has no BTF, or it cannot be read.
pub(crate) fn kernel_probe() -> anyhow::Result<KernelProbe> {
    KernelProbe::read().map_err(|error| btf_error(Path::new(BTF), error.into()))
}

fn btf_error(btf: &Path, error: anyhow::Error) -> anyhow::Error {
    let shown = btf.display();
    if btf.exists() {
        return error.context(format!("cannot read the kernel's BTF, `{shown}`"));
    }
    anyhow!(
        "this kernel has no BTF (`{shown}` is missing), which every BPF engine needs: use a kernel built with \
         CONFIG_DEBUG_INFO_BTF, or audit single commands with `tollgate run`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_btf_is_named() {
        let cause = || anyhow!("No such process");
        let missing = format!("{:#}", btf_error(Path::new("/missing/vmlinux"), cause()));
        assert!(
            missing.contains("has no BTF (`/missing/vmlinux` is missing)"),
            "{missing}"
        );
        assert!(missing.contains("CONFIG_DEBUG_INFO_BTF") && !missing.contains("No such process"));
        let other = format!("{:#}", btf_error(Path::new("/"), cause()));
        assert_eq!(other, "cannot read the kernel's BTF, `/`: No such process");
    }
}
