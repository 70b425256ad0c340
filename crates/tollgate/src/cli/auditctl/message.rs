//! The text that `-m` sends: the user's message and its sender.

use std::fs;
use std::io::{IsTerminal as _, stderr, stdin, stdout};
use std::os::unix::ffi::OsStrExt as _;

use audit::record::quote;

const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Returns the text with program, host and terminal, as in the record.
///
/// # Source
/// `audit_log_user_message()` in `lib/audit_logging.c` of audit-userspace 4.2.
pub(super) fn text(text: &[u8]) -> Vec<u8> {
    let mut message = b"text=".to_vec();
    message.extend_from_slice(text);
    message.extend(b" exe=");
    match std::env::current_exe() {
        Ok(exe) => quote::untrusted(exe.as_os_str().as_bytes(), &mut message),
        Err(_) => message.push(b'?'),
    }
    message.extend(b" hostname=");
    // A malformed host name could imitate other fields.
    let host = fs::read(HOST_NAME).unwrap_or_default();
    let host = host.trim_ascii_end();
    message.extend_from_slice(if is_plain(host) { host } else { b"?" });
    message.extend(b" addr=? terminal=");
    message.extend_from_slice(terminal().as_deref().unwrap_or(b"?"));
    message.extend(b" res=success");
    message
}

/// Returns the terminal of the first standard stream that is one, without `/dev/`.
fn terminal() -> Option<Vec<u8>> {
    let streams = [
        stdin().is_terminal(),
        stdout().is_terminal(),
        stderr().is_terminal(),
    ];
    let number = streams.into_iter().position(|is_terminal| is_terminal)?;
    let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let name = path.as_os_str().as_bytes();
    let name = name.strip_prefix(b"/dev/").unwrap_or(name);
    is_plain(name).then(|| name.to_vec())
}

fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && !quote::needs_hex(name)
}

#[cfg(test)]
mod tests {
    use bstr::ByteSlice as _;

    use super::*;

    #[test]
    fn message_starts_with_the_text_and_ends_with_the_result() {
        let message = text(b"hello there");
        assert!(
            message.starts_with(b"text=hello there exe=\"/"),
            "{}",
            message.as_bstr()
        );
        assert!(message.ends_with(b" res=success"), "{}", message.as_bstr());
        for part in [" hostname=", " addr=? terminal="] {
            assert!(message.contains_str(part), "{}", message.as_bstr());
        }
    }
}
