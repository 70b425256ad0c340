//! A syscall by its name, with arguments that give the result that a rule requires.

use audit::rule::{Field, Rule, Value, perm};
use bstr::ByteSlice as _;

use super::fixtures::{END, ID};
use crate::differential::steps::{CWD, ProgramStep, numbers, step};
use crate::program::{Arg, args};

pub(super) const O_WRONLY: i64 = 1;

/// The required result of a syscall.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Any,
    Success,
    /// EACCES because of a mode.
    Denied,
    /// EPERM, also for root.
    Forbidden,
    /// EINVAL because of its arguments.
    Invalid,
}

/// The object of a syscall.
pub(super) struct Target {
    pub(super) path: Vec<u8>,
    pub(super) outcome: Outcome,
}

impl Target {
    fn path(&self) -> Arg {
        text(&self.path)
    }

    /// A name in its directory.
    fn beside(&self, name: &str) -> Arg {
        let end = self.path.rfind_byte(b'/').map_or(0, |slash| slash + 1);
        let directory = self.path.get(..end).unwrap_or_default();
        text(&[directory, name.as_bytes()].concat())
    }
}

fn text(path: &[u8]) -> Arg {
    Arg::Bytes([path, b"\0"].concat())
}

/// The steps that make a syscall of this name, the last of them. A syscall whose result does not matter gets
/// arguments without effect.
pub(super) fn calls(name: &'static str, rule: &Rule, target: &Target) -> Vec<ProgramStep> {
    let id = i64::from(ID);
    let open = if target.outcome == Outcome::Forbidden || writes_only(rule) {
        O_WRONLY
    } else {
        0
    };
    let (path, victim) = (|| target.path(), || target.beside("victim"));
    let made = || target.beside("made");
    // Creates the object of a removal first, if possible.
    let doomed = || match target.outcome {
        Outcome::Any | Outcome::Success | Outcome::Invalid => victim(),
        Outcome::Denied | Outcome::Forbidden => path(),
    };
    let mut steps = match name {
        "ftruncate" => vec![step!("open", path(), 2).save("descriptor")],
        "fchmod" | "fchown" | "fsetxattr" | "fremovexattr" => {
            vec![step!("open", path(), 0).save("descriptor")]
        }
        "unlink" | "unlinkat" | "rename" | "renameat" | "renameat2" => {
            vec![step!("creat", doomed(), 0o666)]
        }
        "mkdir" | "mkdirat" => vec![step!("rmdir", made())],
        "rmdir" => vec![step!("mkdir", made(), 0o777)],
        "link" | "linkat" | "symlink" | "symlinkat" | "mknod" | "mknodat" => {
            vec![step!("unlink", made())]
        }
        "removexattr" | "lremovexattr" => {
            vec![step!("setxattr", path(), "user.x", "v", 1, 0)]
        }
        "connect" => return connect(name, rule),
        _ => Vec::new(),
    };
    let descriptor = || Arg::Saved("descriptor");
    let fifo = 0o010_600;
    let args = match name {
        "open" => args![path(), open, 0o666],
        "creat" => args![path(), 0o666],
        "openat" => args![CWD, path(), open, 0o666],
        "openat2" => {
            let how = numbers([open.cast_unsigned(), 0, 0].map(u64::to_ne_bytes));
            args![CWD, path(), how, 24]
        }
        "open_by_handle_at" => args![CWD, 0, open],
        "truncate" => args![path(), 1],
        "ftruncate" => args![descriptor(), 1],
        "chmod" => args![path(), 0o777],
        "fchmod" => args![descriptor(), 0o777],
        "fchmodat" => args![CWD, path(), 0o777],
        "fchmodat2" => args![CWD, path(), 0o777, 0],
        "chown" | "lchown" => args![path(), id, id],
        "fchown" => args![descriptor(), id, id],
        "fchownat" => args![CWD, path(), id, id, 0],
        "setxattr" | "lsetxattr" => args![path(), "user.x", "v", 1, 0],
        "fsetxattr" => args![descriptor(), "user.x", "v", 1, 0],
        "removexattr" | "lremovexattr" => args![path(), "user.x"],
        "fremovexattr" => args![descriptor(), "user.x"],
        "unlink" => args![doomed()],
        "unlinkat" => args![CWD, doomed(), 0],
        "rename" => args![doomed(), target.beside("moved")],
        "renameat" | "renameat2" => args![CWD, doomed(), CWD, target.beside("moved"), 0],
        "mkdir" => args![made(), 0o777],
        "mkdirat" => args![CWD, made(), 0o777],
        "rmdir" => args![made()],
        "link" => args![path(), made()],
        "linkat" => args![CWD, path(), CWD, made(), 0],
        "symlink" => args!["nowhere", made()],
        "symlinkat" => args!["nowhere", CWD, made()],
        "mknod" => args![made(), fifo, 0],
        "mknodat" => args![CWD, made(), fifo, 0],
        "execve" if is_about_objects(rule) => {
            args![path(), Arg::Words(vec![path(), 0.into()]), 0]
        }
        "execve" => args![END, Arg::Texts(&[END]), 0],
        _ => args![0, 0, 0, 0, 0, 0],
    };
    steps.push(named(name, args));
    steps
}

/// A connection to the socket itself, with an address of the required length.
fn connect(name: &'static str, rule: &Rule) -> Vec<ProgramStep> {
    let asked = rule.fields.iter().find_map(|test| match test.value {
        Value::Number(length) if test.field == Field::A2 => Some(length),
        _ => None,
    });
    let length = asked.unwrap_or(16);
    let mut bytes = 1_u16.to_ne_bytes().to_vec();
    bytes.extend(b"\0rules");
    bytes.resize(usize::try_from(length).unwrap_or(16), 0);
    let address = || Arg::Bytes(bytes.clone());
    let socket = || Arg::Saved("socket");
    let length = i64::from(length);
    vec![
        step!("socket", 1, 2, 0).save("socket"),
        step!("bind", socket(), address(), length),
        named(name, args![socket(), address(), length]),
    ]
}

fn is_about_objects(rule: &Rule) -> bool {
    let mut fields = rule.fields.iter().map(|test| test.field);
    fields.any(|field| matches!(field, Field::Path | Field::Dir))
}

/// Whether the rule requires write access.
fn writes_only(rule: &Rule) -> bool {
    rule.fields.iter().any(|test| {
        matches!((test.field, &test.value), (Field::Perm, Value::Number(bits))
            if bits & (perm::READ | perm::WRITE) == perm::WRITE)
    })
}

/// A step.
pub(super) const fn named(name: &'static str, args: Vec<Arg>) -> ProgramStep {
    ProgramStep {
        name,
        args,
        saved: None,
        stores: Vec::new(),
    }
}
