//! Names of users and groups for the console, read once.
//!
//! Reads only `/etc/passwd` and `/etc/group`. A directory service could block the console thread, and its own
//! activity could be audited.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use audit::ids::{Arch, NativeArch};
use audit::record::interpret::AccountNames;
use audit::rule::RuleHost;
use bstr::ByteSlice as _;

/// Users and groups of this machine.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Accounts {
    /// Reads the accounts of this machine.
    ///
    /// # Errors
    /// `/etc/passwd` or `/etc/group` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(
            &fs::read("/etc/passwd")?,
            &fs::read("/etc/group")?,
        ))
    }

    /// Accounts in the text of `/etc/passwd` and `/etc/group`.
    #[must_use]
    pub fn parse(passwd: &[u8], group: &[u8]) -> Self {
        Self {
            users: names(passwd),
            groups: names(group),
        }
    }
}

impl Accounts {
    /// Numbers of the users with a name.
    pub fn uids<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        numbers(&self.users, name)
    }

    /// Numbers of the groups with a name.
    pub fn gids<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        numbers(&self.groups, name)
    }
}

fn numbers<'a>(names: &'a HashMap<u32, String>, name: &'a str) -> impl Iterator<Item = u32> + 'a {
    let matching = names.iter().filter(move |(_, other)| *other == name);
    matching.map(|(number, _)| *number)
}

/// This machine, for the parser of rules.
impl RuleHost for Accounts {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        self.uids(name.to_str().ok()?).next()
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        self.gids(name.to_str().ok()?).next()
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.to_path().is_ok_and(Path::is_dir)
    }

    fn native(&self) -> Arch {
        NativeArch::BUILD.b64()
    }
}

impl AccountNames for Accounts {
    fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    fn group(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }
}

/// Whether a name cannot confuse a terminal.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

/// First name of each number, as `getpwuid(3)` finds it, without names that could confuse a terminal.
fn names(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut parts = line.split_str(":").map(|part| part.to_str().ok());
        let (Some(Some(name)), Some(Some(id))) = (parts.next(), parts.nth(1)) else {
            continue;
        };
        if let Ok(id) = id.parse()
            && is_plain_name(name.as_bytes())
        {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_name_of_an_id_is_used() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n+\nbad:x:many:0\n\
                       \x1b[2J:x:7:7::/:\n\xff:x:8:8::/:\n";
        let accounts = Accounts::parse(passwd, b"shadow:x:42:\n");
        assert_eq!(accounts.user(0), Some("root"));
        assert_eq!(accounts.group(42), Some("shadow"));
        assert_eq!(
            (accounts.user(7), accounts.user(8), accounts.group(0)),
            (None, None, None)
        );
    }
}
