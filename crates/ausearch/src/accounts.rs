//! Names of users and groups: of this host, and those that the log gives.

use std::collections::HashMap;

use bstr::ByteSlice as _;
use logs::name_service;

/// Users and groups of this host, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: HashMap<u32, Option<Vec<u8>>>,
    groups: HashMap<u32, Option<Vec<u8>>>,
    ids: HashMap<Vec<u8>, Option<u32>>,
}

impl Accounts {
    /// Name of a user in the user database.
    pub(crate) fn user(&mut self, uid: u32) -> Option<&[u8]> {
        self.users
            .entry(uid)
            .or_insert_with(|| {
                let name = name_service::user_name(uid).ok().flatten();
                name.map(String::into_bytes)
            })
            .as_deref()
    }

    /// Name of a group in the group database.
    pub(crate) fn group(&mut self, gid: u32) -> Option<&[u8]> {
        self.groups
            .entry(gid)
            .or_insert_with(|| {
                let name = name_service::group_name(gid).ok().flatten();
                name.map(String::into_bytes)
            })
            .as_deref()
    }

    /// Name of a user, `root` and `unset` without a look-up.
    pub(crate) fn exact_user(&mut self, uid: u32) -> Option<Vec<u8>> {
        match uid {
            0 => Some(b"root".to_vec()),
            u32::MAX => Some(b"unset".to_vec()),
            _ => self.user(uid).map(<[u8]>::to_vec),
        }
    }

    /// Number of the user called `name`.
    pub(crate) fn user_number(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(known) = self.ids.get(name) {
            return *known;
        }
        let text = name.to_str().ok();
        let id = text.and_then(|name| name_service::uid(name).ok().flatten());
        self.ids.insert(name.to_vec(), id);
        id
    }
}

/// Number of the group called `name`.
pub(crate) fn group_number(name: &[u8]) -> Option<u32> {
    name_service::gid(name.to_str().ok()?).ok().flatten()
}

/// The names that a record's end gives to its numbers, as in `UID="root"`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Translations {
    names: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Translations {
    /// Reads what is behind the separator of a record.
    pub(crate) fn new(text: Option<&[u8]>) -> Self {
        let Some(text) = text else {
            return Self::default();
        };
        if let Some(address) = text.strip_prefix(b"SADDR=") {
            let start = address.find_byte(b'{');
            let value = start.and_then(|start| address.get(start..));
            let whole = value.filter(|value| value.contains(&b'}'));
            let names = whole.map(|value| (b"saddr".to_vec(), value.to_vec()));
            return Self {
                names: names.into_iter().collect(),
            };
        }
        let names = text.split(|&byte| byte == b' ').filter_map(|word| {
            let (name, value) = word.split_once_str(b"=")?;
            Some((name.to_ascii_lowercase(), value.to_vec()))
        });
        Self {
            names: names.collect(),
        }
    }

    /// The text of a field as it stands.
    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let (_, value) = self.names.iter().find(|(name, _)| name == field)?;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_are_found_by_lower_case_names() {
        let names = Translations::new(Some(
            b"ARCH=x86_64 SYSCALL=openat UID=\"www data\" AUID=\"root\"",
        ));
        assert_eq!(names.get(b"syscall"), Some(&b"openat"[..]));
        assert_eq!(names.get(b"auid"), Some(&b"\"root\""[..]));
        assert_eq!(names.get(b"SYSCALL"), None);
        let address = Translations::new(Some(b"SADDR={ saddr_fam=local path=/run/x }"));
        assert_eq!(
            address.get(b"saddr"),
            Some(&b"{ saddr_fam=local path=/run/x }"[..])
        );
        assert_eq!(
            Translations::new(Some(b"SADDR=unknown-family(9)")).get(b"saddr"),
            None
        );
    }
}
