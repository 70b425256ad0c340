//! Names of users and groups as an event itself has them: the host that wrote an enriched log knew them at that time.

use audit::record::assemble::EventRecords;
use audit::record::interpret::AccountNames;
use bstr::ByteSlice as _;

use crate::accounts::{Accounts, is_plain_name};

/// A name that an event gives to a number, or `None` if it says that there was none.
type Named = (u32, Option<String>);

/// Names of an event; those that it lacks are those of this host.
#[derive(Debug)]
pub struct EventAccounts<'a> {
    of_host: &'a Accounts,
    users: Vec<Named>,
    groups: Vec<Named>,
}

impl<'a> EventAccounts<'a> {
    /// Reads the names of an event.
    #[must_use]
    pub fn of(event: &EventRecords, of_host: &'a Accounts) -> Self {
        let mut names = Self {
            of_host,
            users: Vec::new(),
            groups: Vec::new(),
        };
        for record in event.records() {
            for name in record.enrichment().map_while(Result::ok) {
                let field = name.name.to_str_lossy().to_ascii_lowercase();
                let named = match field.as_str() {
                    _ if field.ends_with("uid") => &mut names.users,
                    _ if field.ends_with("gid") => &mut names.groups,
                    _ => continue,
                };
                let number = record.field(&field).map(|field| field.value);
                let number = number.and_then(|text| text.to_str().ok()?.parse().ok());
                if let Some(number) = number.filter(|number| get(named, *number).is_none()) {
                    let text = name.value.trim_with(|letter| letter == '"');
                    named.push((number, name_of(text)));
                }
            }
        }
        names
    }
}

impl AccountNames for EventAccounts<'_> {
    fn user(&self, uid: u32) -> Option<&str> {
        match get(&self.users, uid) {
            Some(name) => name,
            None => self.of_host.user(uid),
        }
    }

    fn group(&self, gid: u32) -> Option<&str> {
        match get(&self.groups, gid) {
            Some(name) => name,
            None => self.of_host.group(gid),
        }
    }
}

fn get(names: &[Named], number: u32) -> Option<Option<&str>> {
    let (_, name) = names.iter().find(|(known, _)| *known == number)?;
    Some(name.as_deref())
}

/// The name in an enriched record; `None` for `unset` and `unknown(N)`.
fn name_of(text: &[u8]) -> Option<String> {
    let is_name = is_plain_name(text) && text != b"unset" && !text.starts_with(b"unknown(");
    is_name.then(|| text.to_str_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;

    use super::*;

    #[test]
    fn names_of_the_event_come_first() {
        let line = "type=SYSCALL msg=audit(1.000:7): arch=c000003e syscall=2 auid=1000 uid=0 gid=7 euid=8 fsuid=9 \
                    obj=x\x1dARCH=x86_64 AUID=\"alice\" UID=\"root\" GID=\"unknown(7)\" FSUID=\"\x1b[2J\"\n";
        let mut assembler = EventAssembler::default();
        assembler.take(line.as_bytes(), 0).unwrap();
        assembler.end_all();
        let event = assembler.next_ended().unwrap();
        let passwd = b"bob:x:1000:1000::/:\ncarol:x:8:8::/:\ndan:x:9:9::/:\n";
        let of_host = Accounts::parse(passwd, b"seven:x:7:\n");
        let names = EventAccounts::of(&event, &of_host);
        assert_eq!(names.user(1000), Some("alice"));
        assert_eq!(names.user(0), Some("root"));
        assert_eq!((names.group(7), names.user(9)), (None, None));
        assert_eq!(names.user(8), Some("carol"));
    }
}
