//! Configuration text of the audit daemon: `auditd.conf` and `plugins.d`, read as `auditd` reads them.
//!
//! [`assignment`] takes lines apart into words, as `auditd` does it for all of its files; [`auditd`] and
//! [`plugin`] know the keys. What must be asked of the machine is asked through [`ConfigHost`], so that any text can be
//! read anywhere.

pub mod assignment;
pub mod auditd;
pub mod plugin;

use bstr::BStr;

/// What only the machine knows.
pub trait ConfigHost {
    /// Number of a group.
    fn group(&self, name: &[u8]) -> Option<u32>;

    /// Whether a program may be run as an action.
    ///
    /// # Errors
    /// What is the matter with it, such as ``belongs to another user than root``.
    fn may_run(&self, program: &BStr) -> Result<(), String>;

    /// Whether mail can be sent from here.
    fn can_mail(&self) -> bool;
}
