//! Checks for which the kernel answers EINVAL to a well-formed rule.
//!
//! Rules of [`super::parse_line`] always pass. Rules of [`super::auditctl`] may not, because `auditctl` leaves many
//! checks to the kernel.

use super::field::{self, ValueKind};
use super::{Field, FieldTest, List, Op, Rule, Value, field_pairs, perm};

/// Maximum number of conditions in a rule. All keys together count as one.
///
/// # Source
/// `AUDIT_MAX_FIELDS` in `include/uapi/linux/audit.h`, Linux 6.12.
const FIELDS_LIMIT: usize = 64;
/// Maximum length of all keys with their separators, in bytes.
///
/// # Source
/// `AUDIT_MAX_KEY_LEN` in `include/uapi/linux/audit.h`, Linux 6.12.
const KEY_LIMIT_BYTES: usize = 256;
/// Maximum length of a path without its NUL, in bytes.
const PATH_LIMIT_BYTES: usize = 4095;
/// First address family that is unknown to the kernel.
///
/// # Source
/// `AF_MAX` in `include/linux/socket.h`, Linux 6.12.
const FAMILY_LIMIT: u32 = 46;
/// File type bits of a mode.
const TYPE_BITS: u32 = 0o170_000;
const PERM_BITS: u32 = perm::EXEC | perm::WRITE | perm::READ | perm::ATTR;

/// Checks whether the kernel accepts the rule.
///
/// # Errors
/// The reason for EINVAL.
///
/// # Source
/// `audit_data_to_entry()` and `audit_field_valid()` in `kernel/auditfilter.c`, Linux 6.12.
pub fn check_kernel_accepts(rule: &Rule) -> Result<(), String> {
    let count = rule.fields.len() + usize::from(!rule.keys.is_empty());
    if count > FIELDS_LIMIT {
        return Err(format!(
            "the rule has {count} conditions; the limit is {FIELDS_LIMIT}"
        ));
    }
    if rule.keys.iter().any(|key| key.contains(&1)) {
        return Err("a key contains the byte 0x01, which separates keys".into());
    }
    if bstr::join([1], &rule.keys).len() > KEY_LIMIT_BYTES {
        return Err(format!("the keys have more than {KEY_LIMIT_BYTES} bytes"));
    }
    rule.fields
        .iter()
        .try_for_each(|test| condition(rule.list, test))?;
    let objects = |test: &&FieldTest| {
        matches!(test.field, Field::Path | Field::Dir | Field::Inode)
            && !matches!(test.value, Value::Field(_))
    };
    if rule.fields.iter().filter(objects).count() > 1 {
        return Err("a rule takes only one of path, dir and inode".into());
    }
    let programs = rule.fields.iter().filter(|test| test.field == Field::Exe);
    if programs.count() > 1 {
        return Err("a rule takes only one exe".into());
    }
    Ok(())
}

fn condition(list: List, test: &FieldTest) -> Result<(), String> {
    let Some(spec) = field::spec(test.field) else {
        return Err("the rule has an unknown field".into());
    };
    let name = spec.name;
    let misplaced = || {
        let list = list.name();
        Err(format!("`{name}` is not valid on the {list} list"))
    };
    if list == List::Filesystem && test.field != Field::FsType {
        return misplaced();
    }
    if let Value::Field(other) = test.value {
        if !matches!(test.op, Op::Equal | Op::NotEqual)
            || field_pairs::find(test.field, other).is_none()
        {
            let other = field::name(other);
            return Err(format!(
                "`{name}` cannot be compared with `{other}` by this operator"
            ));
        }
        return Ok(());
    }
    let is_taken = match test.field {
        Field::MsgType => matches!(list, List::Exclude | List::User),
        Field::FsType => list == List::Filesystem,
        Field::Perm => list != List::IoUring,
        Field::Path | Field::Dir | Field::Inode => matches!(list, List::Exit | List::IoUring),
        _ => true,
    };
    if !is_taken {
        return misplaced();
    }
    let ops = match test.field {
        Field::Inode => field::OpSet::Equality,
        _ => spec.kernel_ops,
    };
    if !ops.contains(test.op) {
        return Err(format!("`{name}` only takes {}", ops.describe()));
    }
    match &test.value {
        Value::Text(text) => path_or_label(spec.kind, name, text),
        Value::Number(number) => self::number(spec.kind, test.field, name, *number),
        Value::Field(_) => Ok(()),
    }
}

fn path_or_label(kind: ValueKind, name: &str, text: &[u8]) -> Result<(), String> {
    if text.is_empty() || text.len() > PATH_LIMIT_BYTES || text.contains(&0) {
        return Err(format!(
            "the value of `{name}` is empty, too long, or contains a NUL"
        ));
    }
    match kind {
        ValueKind::Label => Ok(()),
        ValueKind::Path | ValueKind::Dir if !text.starts_with(b"/") => {
            Err(format!("`{name}` takes an absolute path"))
        }
        ValueKind::Path if text.ends_with(b"/") => Err(format!(
            "`{name}` takes a path that does not end in a slash"
        )),
        ValueKind::Path | ValueKind::Dir => Ok(()),
        _ => Err(format!("`{name}` takes a number")),
    }
}

fn number(kind: ValueKind, field: Field, name: &str, number: u32) -> Result<(), String> {
    let in_range = match kind {
        ValueKind::Path | ValueKind::Dir | ValueKind::Label => {
            return Err(format!("`{name}` takes text"));
        }
        // The kernel converts `auid` compared with unset to the field `loginuid_set`.
        ValueKind::User => number != u32::MAX || field == Field::Auid,
        ValueKind::Group => number != u32::MAX,
        ValueKind::Perm => number & !PERM_BITS == 0,
        ValueKind::FileType => number & !TYPE_BITS == 0,
        ValueKind::SocketFamily => number < FAMILY_LIMIT,
        _ => true,
    };
    if in_range {
        Ok(())
    } else {
        Err(format!("`{name}` cannot be {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::auditctl::{CliRequest, arguments};
    use super::super::test_host::TestHost;
    use super::super::{Command, Dialect};
    use super::*;

    fn rule(line: &str) -> Rule {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let answer = arguments(&words, Dialect::V4, &TestHost);
        match answer.requests.as_slice() {
            [CliRequest::Command(Command::Add { rule, .. })] => rule.clone(),
            _ => panic!("{line}: {:?}", answer.messages),
        }
    }

    #[test]
    fn valid_rules_are_accepted() {
        for line in [
            "-a always,exit -F arch=b64 -S openat -F auid>=1000 -F auid!=unset -k a -k b",
            "-w /etc/passwd -p wa -k x",
            "-a always,exit -F dir=/ -F perm=w",
            "-a never,exclude -F msgtype=CWD",
            "-a never,filesystem -F fstype=tracefs",
            "-a always,exit -S 1 -C auid!=obj_uid -F exe=/bin/ls -F a0&1",
            "-a never,task",
        ] {
            assert_eq!(check_kernel_accepts(&rule(line)), Ok(()), "{line}");
        }
    }

    #[test]
    fn rules_with_einval_are_refused() {
        for (line, why) in [
            ("-a always,exit -F path!=/etc/x", "`path` only takes `=`"),
            (
                "-a always,exit -F path=/x -F inode=3",
                "one of path, dir and inode",
            ),
            ("-a always,exit -F uid&1", "`uid` only takes"),
            ("-a always,exit -F uid=-1", "`uid` cannot be 4294967295"),
            ("-a always,exit -F exe=x -k k", "absolute path"),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            // `auditctl` refuses some of them, depending on its version.
            let answer = arguments(&words, Dialect::V4, &TestHost);
            let [CliRequest::Command(Command::Add { rule, .. })] = answer.requests.as_slice()
            else {
                continue;
            };
            let refused = check_kernel_accepts(rule).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    #[test]
    fn rules_not_expressible_as_text_are_refused() {
        let sound = rule("-w /etc/passwd -p wa -k x");
        let with = |field, op, value| {
            let mut rule = sound.clone();
            rule.fields = vec![FieldTest { field, op, value }];
            rule
        };
        for (field, op, value) in [
            (Field::Path, Op::Equal, Value::Number(1)),
            (Field::Uid, Op::Equal, Value::Text("root".into())),
            (Field::Path, Op::Equal, Value::Text("/etc/".into())),
            (Field::Dir, Op::Equal, Value::Text("/a\0b".into())),
            (Field::Perm, Op::Equal, Value::Number(16)),
            (Field::SaddrFam, Op::Equal, Value::Number(46)),
            (Field::Uid, Op::Equal, Value::Field(Field::Gid)),
            (Field::FsType, Op::Equal, Value::Number(1)),
        ] {
            let rule = with(field, op, value);
            assert!(check_kernel_accepts(&rule).is_err(), "{rule:?}");
        }
        let mut keyed = sound.clone();
        keyed.keys = vec!["a".repeat(200).into(), "b".repeat(100).into()];
        assert!(check_kernel_accepts(&keyed).is_err());
        keyed.keys = vec!["a\u{1}b".into()];
        assert!(check_kernel_accepts(&keyed).is_err());
        let mut long = sound;
        long.fields = vec![
            FieldTest {
                field: Field::Pid,
                op: Op::Equal,
                value: Value::Number(1),
            };
            65
        ];
        assert!(check_kernel_accepts(&long).is_err());
    }
}
