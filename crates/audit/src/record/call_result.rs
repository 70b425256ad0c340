//! The fields of a SYSCALL record that differ in every call: result and arguments.

use super::digits::hex_digits;
use crate::event::{reported_exit, succeeded};

/// Room for an exit value and four hex numbers at their longest, with their labels, and for the 16 bytes that are stored
/// for the last number.
const ROOM: usize = " success=yes exit=".len() + 20 + 4 * (" a0=".len() + 16) + 16;

/// Result and arguments of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// Return value; `None` if the syscall did not return.
    pub exit: Option<i64>,
    /// The first four arguments.
    pub args: [u64; 4],
}

impl CallResult {
    /// Appends `success`, `exit` and the arguments. The first two are left out for a syscall that did not return.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let mut fields = Fields {
            bytes: [0; ROOM],
            len: 0,
        };
        if let Some(raw) = self.exit {
            let exit = reported_exit(raw);
            if succeeded(exit) {
                fields.push(b" success=yes exit=");
            } else {
                fields.push(b" success=no exit=");
            }
            fields.push(itoa::Buffer::new().format(exit).as_bytes());
        }
        let [a0, a1, a2, a3] = self.args;
        fields.hex(b" a0=", a0);
        fields.hex(b" a1=", a1);
        fields.hex(b" a2=", a2);
        fields.hex(b" a3=", a3);
        out.extend_from_slice(fields.bytes.get(..fields.len).unwrap_or_default());
    }
}

/// Fields on the stack: one copy to the buffer of the event, and digits are stored as whole words.
struct Fields {
    bytes: [u8; ROOM],
    len: usize,
}

impl Fields {
    fn push(&mut self, part: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + part.len()) {
            to.copy_from_slice(part);
            self.len += part.len();
        }
    }

    #[inline]
    fn hex(&mut self, label: &[u8; 4], value: u64) {
        let (digits, count) = hex_digits(value);
        if let Some(to) = self.bytes.get_mut(self.len..self.len + 20) {
            let (first, rest) = to.split_at_mut(label.len());
            first.copy_from_slice(label);
            rest.copy_from_slice(&digits);
            self.len += label.len() + count;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_that_of_fmt(
            exit in prop_oneof![Just(None), (-4200..10_i64).prop_map(Some), any::<i64>().prop_map(Some)],
            args: [u64; 4],
            shifts in proptest::array::uniform4(0..64_u32),
        ) {
            let mut args = args;
            for (arg, by) in args.iter_mut().zip(shifts) {
                *arg >>= by;
            }
            let mut text = b"before".to_vec();
            CallResult { exit, args }.append(&mut text);
            let result = exit.map(reported_exit).map_or_else(String::new, |exit| {
                let success = if succeeded(exit) { "yes" } else { "no" };
                format!(" success={success} exit={exit}")
            });
            let [a0, a1, a2, a3] = args;
            let expected = format!("before{result} a0={a0:x} a1={a1:x} a2={a2:x} a3={a3:x}");
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn longest_text_fits() {
        let mut text = Vec::new();
        let call = CallResult {
            exit: Some(i64::MIN),
            args: [u64::MAX; 4],
        };
        call.append(&mut text);
        assert!(text.ends_with(b" a3=ffffffffffffffff"));
        assert_eq!(text.len() + 16, ROOM);
    }
}
