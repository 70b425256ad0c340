//! Names of users, from `/etc/passwd` only: a directory service could block, and its own activity could be audited.

use std::collections::HashMap;
use std::fs;

use bstr::ByteSlice as _;

use crate::status::escaped;

/// Names by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads the users of this machine; none if the file cannot be read.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read("/etc/passwd").unwrap_or_default())
    }

    pub(crate) fn parse(passwd: &[u8]) -> Self {
        let mut users = HashMap::new();
        for line in passwd.lines() {
            let mut parts = line.split_str(":");
            let name = parts.next().unwrap_or_default();
            let uid = parts.nth(1).and_then(|uid| uid.to_str().ok()?.parse().ok());
            if let Some(uid) = uid.filter(|_| !name.is_empty()) {
                users.entry(uid).or_insert_with(|| escaped(name));
            }
        }
        Self(users)
    }

    /// The name of a user, or its number.
    pub(crate) fn name(&self, uid: u32) -> String {
        match self.0.get(&uid) {
            Some(name) => name.clone(),
            None => format!("uid {uid}"),
        }
    }
}
