//! Parses the values of conditions, with one function per syntax.

use super::super::diagnostic::{Findings, escape_text};
use super::super::field::{FieldSpec, ValueKind};
use super::super::lexer::Word;
use super::super::{Dialect, Field, Op, RuleHost, Value, perm};
use super::number::{self, OversizeNumber};
use crate::ids::{Arch, MsgType};
use crate::table;

/// `PATH_MAX` of `include/uapi/linux/limits.h`.
pub(super) const PATH_LIMIT_BYTES: usize = 4096;

/// `AF_MAX` of Linux 6.12.
const SOCKET_FAMILIES: u32 = 46;

/// Parses the value of a condition; `None` after an error.
pub(super) fn read(
    spec: FieldSpec,
    op: Op,
    word: &Word,
    dialect: Dialect,
    host: &dyn RuleHost,
    findings: &mut Findings<'_>,
) -> Option<Value> {
    let number = match spec.kind {
        ValueKind::Path | ValueKind::Dir | ValueKind::Label => {
            return Some(text(spec, word, findings));
        }
        ValueKind::Unsigned if spec.field == Field::Success => success(spec, word, findings),
        ValueKind::Unsigned => number::field(spec.name, word, OversizeNumber::Refuse, findings),
        ValueKind::Low32 => number::field(spec.name, word, OversizeNumber::Truncate, findings),
        ValueKind::Argument if is_signed(word) => {
            number::signed(spec.name, word, OversizeNumber::Truncate, findings)
        }
        ValueKind::Argument => number::field(spec.name, word, OversizeNumber::Truncate, findings),
        ValueKind::User => user(spec, op, word, host, findings),
        ValueKind::Group => group(spec, word, host, findings),
        ValueKind::Arch => arch(word, host, findings).map(|arch| arch.0),
        ValueKind::MsgType => msg_type(spec, word, findings),
        ValueKind::Exit => exit(spec, op, word, findings),
        ValueKind::Session => session(spec, word, findings),
        ValueKind::SocketFamily => socket_family(spec, word, findings),
        ValueKind::FileType => file_type(word, findings),
        ValueKind::FsType => fs_type(spec, word, dialect, findings),
        ValueKind::Perm => perms(word, PermSyntax::Field, findings),
    };
    if number == Some(0) && op == Op::Less {
        findings.warning(
            "never-matches",
            &word.span,
            format!("`{}<0` never matches", spec.name),
            "the kernel compares unsigned numbers: for failed syscalls write `success=0` or an errno, \
             such as `exit=-EACCES`",
        );
    }
    number.map(Value::Number)
}

/// Option of the letters `rwxa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermSyntax {
    /// `-F perm=`
    Field,
    /// `-p`
    Option,
}

/// Parses letters of `rwxa`, ignoring case.
pub(super) fn perms(word: &Word, written: PermSyntax, findings: &mut Findings<'_>) -> Option<u32> {
    const ADVICE: &str = "write some of the letters `r`, `w`, `x` and `a`";
    if word.text.len() > 4 {
        match written {
            PermSyntax::Field => findings.auditctl_fails(&[b"String value too long"]),
            PermSyntax::Option => {
                findings.auditctl_fails(&[b"permission ", &word.text, b" is too long"]);
            }
        }
        findings.error(
            "bad-perm",
            &word.span,
            format!(
                "perm `{}` has more than four letters",
                escape_text(&word.text)
            ),
            ADVICE,
        );
        return None;
    }
    let mut bits = 0;
    for (at, &letter) in word.text.iter().enumerate() {
        bits |= match letter.to_ascii_lowercase() {
            b'r' => perm::READ,
            b'w' => perm::WRITE,
            b'x' => perm::EXEC,
            b'a' => perm::ATTR,
            _ => {
                match written {
                    PermSyntax::Field => {
                        findings.auditctl_fails(&[b"Permission can only contain  'rwxa'"]);
                    }
                    PermSyntax::Option => {
                        findings.auditctl_fails(&[b"Permission ", &[letter], b" isn't supported"]);
                    }
                }
                let span = word.part(at..at + 1).span;
                let message = format!("unknown perm letter `{}`", escape_text(&[letter]));
                findings.error("bad-perm", &span, message, ADVICE);
                return None;
            }
        };
    }
    Some(bits)
}

/// Whether the word is a number with an optional minus.
fn is_signed(word: &Word) -> bool {
    matches!(
        word.text.as_slice(),
        [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..]
    )
}

/// Parses a label or a path. `auditctl` checks only the length of paths; the other checks are the kernel's.
fn text(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> Value {
    let name = spec.name;
    let shown = escape_text(&word.text);
    let value = Value::Text(word.text.clone().into());
    let (code, message, advice) = if word.text.len() > PATH_LIMIT_BYTES {
        findings.auditctl_fails(&[b"String value too long"]);
        let message = format!("value of `{name}` has {} bytes", word.text.len());
        (
            "value-too-long",
            message,
            format!("the kernel accepts at most {PATH_LIMIT_BYTES}"),
        )
    } else if spec.kind == ValueKind::Label || word.text.starts_with(b"/") {
        if spec.kind == ValueKind::Path && word.text.ends_with(b"/") {
            (
                "trailing-slash",
                format!("`{name}` path `{shown}` ends in `/`"),
                if spec.field == Field::Path {
                    "the kernel answers EINVAL: remove the `/`, or write `dir=` to watch the \
                     directory tree"
                        .to_owned()
                } else {
                    "the kernel answers EINVAL: name the program".to_owned()
                },
            )
        } else {
            let is_pattern = word.text.iter().any(|byte| matches!(byte, b'*' | b'?'));
            if is_pattern && spec.kind != ValueKind::Label {
                findings.warning(
                    "wildcard",
                    &word.span,
                    format!("wildcards in `{name}` path `{shown}` are taken literally"),
                    "list the files in rules of their own, or watch the directory with `dir=`",
                );
            }
            return value;
        }
    } else {
        (
            "relative-path",
            format!("`{name}` path `{shown}` does not begin with `/`"),
            "the kernel answers EINVAL: write an absolute path".to_owned(),
        )
    };
    findings.error(code, &word.span, message, advice);
    value
}

fn user(
    spec: FieldSpec,
    op: Op,
    word: &Word,
    host: &dyn RuleHost,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let id = match word.text.as_slice() {
        b"unset" => u32::MAX,
        _ if is_signed(word) => number::signed(spec.name, word, OversizeNumber::Refuse, findings)?,
        name => {
            let Some(id) = host.uid(name) else {
                findings.auditctl_fails(&[b"Unknown user: ", name]);
                findings.error(
                    "unknown-user",
                    &word.span,
                    format!("unknown user `{}`", escape_text(name)),
                    "this host has no such user: write a number or correct the name",
                );
                return None;
            };
            id
        }
    };
    if id == u32::MAX && spec.field != Field::Auid {
        findings.error(
            "unset-id",
            &word.span,
            format!("`{}` is never unset", spec.name),
            "the kernel answers EINVAL: only `auid` and `sessionid` can be unset",
        );
    } else if id == u32::MAX && !matches!(op, Op::Equal | Op::NotEqual) {
        findings.error(
            "bad-operator",
            &word.span,
            "`auid` cannot be ordered relative to unset",
            "the kernel answers EINVAL: write `auid=unset` or `auid!=unset`",
        );
    }
    Some(id)
}

fn group(
    spec: FieldSpec,
    word: &Word,
    host: &dyn RuleHost,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    let id = if word.text.first().is_some_and(u8::is_ascii_digit) {
        number::unsigned(spec.name, word, OversizeNumber::Refuse, findings)?
    } else if let Some(id) = host.gid(&word.text) {
        id
    } else {
        findings.auditctl_fails(&[b"Unknown group: ", &word.text]);
        findings.error(
            "unknown-group",
            &word.span,
            format!("unknown group `{}`", escape_text(&word.text)),
            "this host has no such group: write a number or correct the name",
        );
        return None;
    };
    if id == u32::MAX {
        findings.error(
            "unset-id",
            &word.span,
            format!("`{}` is never unset", spec.name),
            "the kernel answers EINVAL: a group always has a number",
        );
    }
    Some(id)
}

/// Parses a number. Suggests one for `yes` and `no`, which only records use.
fn success(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    let number = match word.text.as_slice() {
        b"yes" => 1,
        b"no" => 0,
        _ => return number::field(spec.name, word, OversizeNumber::Refuse, findings),
    };
    number::refuse_field(spec.name, findings);
    findings.error(
        "bad-number",
        &word.span,
        format!(
            "`{}` is not a number for `success`",
            escape_text(&word.text)
        ),
        format!("write `success={number}`"),
    );
    None
}

/// Parses `b32`, `b64`, a machine name, hex, or a number.
fn arch(word: &Word, host: &dyn RuleHost, findings: &mut Findings<'_>) -> Option<Arch> {
    let native = host.native();
    let text = word.text.as_slice();
    let found = if text.eq_ignore_ascii_case(b"b64") {
        Some(native)
    } else if text.eq_ignore_ascii_case(b"b32") {
        table::arch_32(native)
    } else {
        table::arch_by_name(text).or_else(|| arch_number(word, findings))
    };
    if found.is_none() {
        findings.auditctl_fails(&[b"arch elf mapping not found"]);
        let known = ["b64", "b32"].into_iter().chain(table::arch_names());
        let otherwise = "write `b64` or `b32`, the machine's name, or its number in hex";
        findings.unknown("unknown-arch", "arch", word, known, otherwise);
    }
    found
}

/// Parses an ELF number: as C does if it begins with a digit, otherwise as hex.
fn arch_number(word: &Word, findings: &mut Findings<'_>) -> Option<Arch> {
    let number = match number::scan(&word.text) {
        Some(scanned) => {
            number::warn_of_rest(word, scanned.used, findings);
            scanned.value?
        }
        None => u64::from_str_radix(std::str::from_utf8(&word.text).ok()?, 16).ok()?,
    };
    let arch = Arch(u32::try_from(number).ok()?);
    table::arch_name(arch).map(|_| arch)
}

/// Parses a record type: digits, a name, or `UNKNOWN[N]`.
fn msg_type(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    if word.text.first().is_some_and(u8::is_ascii_digit) {
        return number::unsigned(spec.name, word, OversizeNumber::Refuse, findings);
    }
    let unnamed = word
        .text
        .strip_prefix(b"UNKNOWN[")
        .and_then(|rest| rest.strip_suffix(b"]"))
        .and_then(number::scan)
        .and_then(|scanned| u16::try_from(scanned.value?).ok())
        .map(MsgType);
    let found = table::msg_type_number(&word.text).or(unnamed);
    if found.is_none() {
        findings.auditctl_fails(&[b"-F unknown message type - ", spec.name.as_bytes()]);
        let otherwise = "`ausearch -m` lists the names; a number is also accepted";
        let known = table::msg_type_names();
        findings.unknown("unknown-msgtype", "record type", word, known, otherwise);
    }
    found.map(|number| number.0.into())
}

fn exit(spec: FieldSpec, op: Op, word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    let (negative, name) = match word.text.as_slice() {
        [b'-', name @ ..] => (true, name),
        name => (false, name),
    };
    if name.first().is_some_and(u8::is_ascii_digit) {
        return number::signed(spec.name, word, OversizeNumber::Refuse, findings);
    }
    let Some(errno) = table::errno_number(name).and_then(|errno| u32::try_from(errno).ok()) else {
        findings.auditctl_fails(&[b"-F unknown errno - ", spec.name.as_bytes()]);
        let bare = Word {
            text: name.to_vec(),
            span: word.span.clone(),
        };
        let otherwise = "write a number, or an errno name with a minus, such as `-EACCES`";
        findings.unknown(
            "unknown-errno",
            "errno",
            &bare,
            table::errno_names(),
            otherwise,
        );
        return None;
    };
    if negative {
        return Some(errno.wrapping_neg());
    }
    if op == Op::Equal {
        findings.warning(
            "positive-errno",
            &word.span,
            format!(
                "`exit={}` does not match a failed syscall",
                escape_text(name)
            ),
            format!(
                "a failed syscall returns the negative: write `exit=-{}`",
                escape_text(name)
            ),
        );
    }
    Some(errno)
}

fn session(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    match word.text.as_slice() {
        b"unset" => Some(u32::MAX),
        _ if is_signed(word) => number::signed(spec.name, word, OversizeNumber::Refuse, findings),
        _ => Some(read_as_zero(spec, word, findings)),
    }
}

fn socket_family(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    let family = match word.text.as_slice() {
        _ if is_signed(word) => number::signed(spec.name, word, OversizeNumber::Refuse, findings)?,
        _ => read_as_zero(spec, word, findings),
    };
    if family >= SOCKET_FAMILIES {
        findings.auditctl_fails(&[b"value is too large for field: ", spec.name.as_bytes()]);
        findings.error(
            "number-too-large",
            &word.span,
            format!("{family} is not a socket family"),
            format!("families are below {SOCKET_FAMILIES}: 2 is IPv4, 10 is IPv6"),
        );
    }
    Some(family)
}

/// Returns 0 with a warning, for fields whose value `auditctl` passes to `strtoul(3)` unchecked.
fn read_as_zero(spec: FieldSpec, word: &Word, findings: &mut Findings<'_>) -> u32 {
    findings.warning(
        "not-a-number",
        &word.span,
        format!(
            "`{}` is not a number for `{}`",
            escape_text(&word.text),
            spec.name
        ),
        "auditctl and tollgate read it as 0: write a number",
    );
    0
}

fn file_type(word: &Word, findings: &mut Findings<'_>) -> Option<u32> {
    let found = table::file_type_number(&word.text);
    if found.is_none() {
        findings.auditctl_fails(&[b"-F unknown file type -  filetype"]);
        let otherwise = "write file, dir, socket, link, character, block or fifo";
        let known = table::file_type_names();
        findings.unknown("unknown-filetype", "file type", word, known, otherwise);
    }
    found
}

fn fs_type(
    spec: FieldSpec,
    word: &Word,
    dialect: Dialect,
    findings: &mut Findings<'_>,
) -> Option<u32> {
    if word.text.first().is_some_and(u8::is_ascii_digit) {
        return number::unsigned(spec.name, word, OversizeNumber::Refuse, findings);
    }
    let found = table::fs_type_number(&word.text, dialect);
    if found.is_none() {
        findings.auditctl_fails(&[b"file system type is unknown for field: fstype"]);
        let otherwise = "write tracefs, debugfs, cgroup, cgroup2 or the magic number of statfs(2)";
        let known = table::fs_type_names();
        findings.unknown("unknown-fstype", "file system", word, known, otherwise);
    }
    found
}
