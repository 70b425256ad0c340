//! Records as the kernel writes them: their fields are found at their places, without a look at all of them.
//!
//! A record with any other form is none, so that nobody who writes a name or an argument chooses what is found: a value
//! in quotes has no other quote in it.

use bstr::ByteSlice as _;
use smallvec::SmallVec;

use super::head::leading_number;

/// A PATH record that names a file, whose name is not in hex.
///
/// # Source
/// `audit_log_name` in `kernel/audit.c`, Linux 6.12.
pub(super) struct UsualPath<'a> {
    pub(super) name: &'a [u8],
    /// The fields behind the name.
    pub(super) rest: &'a [u8],
}

impl<'a> UsualPath<'a> {
    /// The record with this text, which is that of the kernel.
    pub(super) fn of(text: &'a [u8]) -> Option<Self> {
        let (_, rest) = leading_number(text.strip_prefix(b" item=")?)?;
        let (name, rest) = quoted(rest.strip_prefix(b" name=")?)?;
        Some(Self { name, rest })
    }
}

/// An EXECVE record that has all arguments, none of them in hex or in parts.
///
/// # Source
/// `audit_log_execve_info` in `kernel/auditsc.c`, Linux 6.12.
pub(super) struct UsualArguments<'a> {
    /// Their number as it is written.
    pub(super) count: &'a [u8],
    pub(super) args: SmallVec<[&'a [u8]; 16]>,
}

impl<'a> UsualArguments<'a> {
    /// The record with this text, which is that of the kernel.
    pub(super) fn of(text: &'a [u8]) -> Option<Self> {
        let counted = text.strip_prefix(b" argc=")?;
        let (_, mut rest) = leading_number(counted)?;
        let count = counted.strip_suffix(rest)?;
        let mut args = SmallVec::new();
        while !rest.is_empty() {
            let numbered = rest.strip_prefix(b" a")?;
            let (number, after) = leading_number(numbered)?;
            let digits = numbered.len() - after.len();
            let is_padded = digits > 1 && numbered.starts_with(b"0");
            if is_padded || usize::try_from(number).ok()? != args.len() {
                return None;
            }
            let (arg, after) = quoted(after.strip_prefix(b"=")?)?;
            args.push(arg);
            rest = after;
        }
        Some(Self { count, args })
    }
}

/// The text in quotes that a text begins with, which is all of a value, and what follows.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (value, rest) = text.split_at_checked(text.find_byte(b'"')?)?;
    let rest = rest.get(1..)?;
    matches!(rest.first(), None | Some(b' ')).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_kernel_are_usual() {
        let name = |text: &'static str| {
            UsualPath::of(text.as_bytes()).map(|path| (path.name.as_bstr(), path.rest.as_bstr()))
        };
        let usual = name(" item=10 name=\"/a=b\" inode=1 nametype=NORMAL");
        assert_eq!(
            usual,
            Some(("/a=b".into(), " inode=1 nametype=NORMAL".into()))
        );
        assert_eq!(name(" item=0 name=\"\""), Some(("".into(), "".into())));
        for text in [
            " item=0 name=(null) inode=1",
            " item=0 name=2F61 inode=1",
            " item=0 name=\"/a\"b inode=1",
            " item=0 name=\"/a",
            " item= name=\"/a\"",
            " item=x name=\"/a\"",
            " item=0 x=1 name=\"/a\"",
            "item=0 name=\"/a\"",
            "",
        ] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn arguments_in_quotes_are_usual() {
        let args = |text: &'static str| {
            UsualArguments::of(text.as_bytes()).map(|usual| {
                let args: Vec<&'static str> =
                    usual.args.iter().map(|arg| arg.to_str().unwrap()).collect();
                (usual.count.as_bstr(), args)
            })
        };
        let usual = args(" argc=3 a0=\"sh\" a1=\"-c\" a2=\"a1=\"");
        assert_eq!(usual, Some(("3".into(), vec!["sh", "-c", "a1="])));
        assert_eq!(args(" argc=0"), Some(("0".into(), vec![])));
        for text in [
            "  a1=\"x\"",
            " argc=2 a0=\"sh\" a1=2D63",
            " argc=2 a0=\"sh\" a1_len=2 a1[0]=\"-c\"",
            " argc=2 a1=\"sh\" a0=\"-c\"",
            " argc=1 a00=\"sh\"",
            " argc=2 a0=\"sh\" a01=\"-c\"",
            " argc=1 a0=\"sh\"x",
            " argc=1 a0=\"sh\" ",
            " argc=1 a0=\"sh\" truncated=yes",
            " argc=1 a0=(null)",
            " argc=x a0=\"sh\"",
            " argc=1 a0=\"sh",
            "",
        ] {
            assert_eq!(args(text), None, "{text}");
        }
    }
}
