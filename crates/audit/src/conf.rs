//! Configuration files of the audit daemon: `auditd.conf` and `plugins.d`, parsed as `auditd` does.
//!
//! [`assignment`] splits lines into words. [`auditd`] and [`plugin`] interpret the keys. Questions about the host
//! go through [`ConfigHost`], so parsing itself is independent of the host.

pub mod assignment;
pub mod auditd;
pub mod plugin;

use bstr::BStr;

/// Questions about the host.
pub trait ConfigHost {
    /// Returns the gid of a group.
    fn group(&self, name: &[u8]) -> Option<u32>;

    /// Whether a program may be run as an action.
    ///
    /// # Errors
    /// The reason, such as ``is not owned by root``.
    fn may_run(&self, program: &BStr) -> Result<(), String>;

    /// Whether mail can be sent from here.
    fn can_mail(&self) -> bool;
}
