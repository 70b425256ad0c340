//! The log that stock `auditd` writes for recorded messages instead of the kernel's.
//!
//! `tests/golden/auditd` has the messages, one per line with the number of the type and the text, and the logs
//! of `auditd` 3.0.9, which [`auditd_logs_match_golden_files`] checks; `make golden` rewrites them. A unit test
//! of tollgate's log compares its output with them.

use std::env;
use std::fs;
use std::io::IoSlice;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;

use bstr::{BString, ByteSlice as _, ByteVec as _};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

use super::harness::needs;
use super::kernel_audit::{Lock, auditctl, auditd};
use super::test_dir::TestDir;

const MESSAGES: &str = include_str!("../../../../tests/golden/auditd/messages.txt");

/// The golden logs, and the lines of `auditd.conf` for each.
const LOGS: [(&str, &str); 4] = [
    ("raw.log", "log_format = RAW\nname_format = NONE\n"),
    (
        "raw-node.log",
        "log_format = RAW\nname_format = USER\nname = web1\n",
    ),
    (
        "enriched.log",
        "log_format = ENRICHED\nname_format = NONE\n",
    ),
    (
        "enriched-node.log",
        "log_format = ENRICHED\nname_format = USER\nname = web1\n",
    ),
];

/// A message as the kernel sends it: the length in the header does not include the header.
fn packet(line: &str) -> Vec<u8> {
    let (kind, text) = line.split_once(' ').unwrap();
    let kind: u16 = kind.parse().unwrap();
    let text = Vec::unescape_bytes(text);
    let length = u32::try_from(text.len()).unwrap();
    let mut packet = length.to_ne_bytes().to_vec();
    packet.extend(kind.to_ne_bytes());
    packet.extend([0; 10]);
    packet.extend(text);
    packet
}

/// The lines that `auditd` writes, without those about itself.
#[track_caller]
fn written(test_dir: &TestDir, preloaded: &Path, format: &str) -> BString {
    let (mut auditd, log) = auditd(test_dir, format);
    let _gone = fs::remove_file(&log);
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    let mut child = auditd
        .env("LD_PRELOAD", preloaded)
        .stdin(Stdio::from(theirs))
        .spawn()
        .unwrap();
    drop(auditd);
    for line in MESSAGES.lines() {
        let packet = packet(line);
        let parts = [IoSlice::new(&packet)];
        sendmsg::<()>(ours.as_raw_fd(), &parts, &[], MsgFlags::MSG_NOSIGNAL, None).unwrap();
    }
    drop(ours);
    assert!(child.wait().unwrap().success());
    let text = fs::read(&log).unwrap();
    let of_kernel = text
        .lines_with_terminator()
        .filter(|line| !line.contains_str("type=DAEMON_"));
    bstr::concat(of_kernel).into()
}

pub(crate) fn auditd_logs_match_golden_files() {
    let version = auditctl(&["-v"]);
    needs(
        version.contains(" 3.0.9"),
        "auditd 3.0.9, that of Debian 12",
    );
    // The lock protects auditd's PID file; the kernel's audit is not used.
    let _lock = Lock::take();
    let test_dir = TestDir::new();
    let options = ["-shared", "-fPIC"];
    let preloaded = test_dir.compiled("recorded.so", include_str!("recorded.c"), &options);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/auditd");
    for (name, format) in LOGS {
        let written = written(&test_dir, &preloaded, format);
        let path = kept.join(name);
        if env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(&path, &written).unwrap();
        }
        let kept = BString::from(fs::read(&path).unwrap());
        for (number, (written, kept)) in written.lines().zip(kept.lines()).enumerate() {
            assert_eq!(written.as_bstr(), kept.as_bstr(), "{name}:{}", number + 1);
        }
        assert_eq!(written, kept, "{name}");
    }
}
