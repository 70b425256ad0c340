//! The kernel's audit, and the records that it sends to its registered daemon.
//!
//! There is no `auditd` in the machine: this is its part, on the same socket and with the same text.
//! The kernel sends records in order, so that a record of our own behind all others tells when the
//! last one has come.
//!
//! # Source
//! `audit_receive_msg()` and `kauditd_send_queue()` in kernel/audit.c, `struct audit_status` in
//! include/uapi/linux/audit.h, Linux 6.1 and 6.12.

use std::fs;
use std::io::IoSlice;
use std::mem::take;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use audit::ids::{Arch, MsgType};
use audit::rule::{Insertion, Op, Rule, RuleHost, Value, parse_line};
use audit::table;
use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendmsg,
    setsockopt, socket, sockopt,
};

const AUDITCTL: &str = "/usr/sbin/auditctl";

/// More than any workload makes; nobody waits, and nothing is dropped.
const BACKLOG_RECORDS: u32 = 65_536;
const SOCKET_BYTES: usize = 64 << 20;

const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// Types of messages.
mod message {
    use std::ops::RangeInclusive;

    pub(super) const ERROR: u16 = 2;
    pub(super) const GET: u16 = 1000;
    pub(super) const SET: u16 = 1001;
    pub(super) const ADD_RULE: u16 = 1011;
    /// `AUDIT_USER` and `AUDIT_LOGIN`: records, too.
    pub(super) const EARLY_RECORDS: RangeInclusive<u16> = 1005..=1006;
    /// `AUDIT_FIRST_USER_MSG`: all others below are control messages.
    pub(super) const FIRST_RECORD: u16 = 1100;
    /// `AUDIT_TEST`: a record that only says what it was sent.
    pub(super) const MARK: u16 = 1120;
    pub(super) const EOE: u16 = 1320;
    /// Asks a daemon whether it lives, before another takes its place.
    pub(super) const REPLACE: u16 = 1329;
}

/// Flags of requests.
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Words of `struct audit_status`.
const STATUS_WORDS: usize = 11;

/// Places of words in `struct audit_status`. The first word says which of the others are set, by a bit
/// for each of the next five in order.
mod word {
    pub(super) const ENABLED: usize = 1;
    pub(super) const FAILURE: usize = 2;
    pub(super) const PID: usize = 3;
    pub(super) const RATE_LIMIT: usize = 4;
    pub(super) const BACKLOG_LIMIT: usize = 5;
    pub(super) const LOST: usize = 6;
}

/// The kernel's audit while it is on.
#[derive(Debug)]
pub(crate) struct KernelAudit {
    socket: OwnedFd,
    sequence: u32,
    lost: u32,
    log: Vec<u8>,
    /// What was set before, by the place of the word.
    before: Vec<(usize, u32)>,
}

impl KernelAudit {
    /// Loads the rules of a file and switches the kernel's audit on.
    ///
    /// # Errors
    /// What the kernel or `auditctl` refuses, or that somebody else uses it.
    pub(crate) fn start(rules: &Path) -> anyhow::Result<Self> {
        let opened = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkAudit,
        );
        let socket = opened.context("cannot open the kernel's audit socket")?;
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES)
            .context("cannot make room in the audit socket")?;
        let mut audit = Self {
            socket,
            sequence: 0,
            lost: 0,
            log: Vec::new(),
            before: Vec::new(),
        };
        let used = audit.status(word::PID)? != 0 || audit.status(word::ENABLED)? != 0;
        ensure!(!used, "somebody else uses the kernel's audit");
        for (setting, value) in [
            (word::FAILURE, 0),
            (word::RATE_LIMIT, 0),
            (word::BACKLOG_LIMIT, BACKLOG_RECORDS),
        ] {
            let before = audit.status(setting)?;
            audit.before.push((setting, before));
            audit.set(setting, value)?;
        }
        audit.set(word::PID, std::process::id())?;
        audit.lost = audit.status(word::LOST)?;
        auditctl(&["-D"])?;
        let text = fs::read_to_string(rules).context("cannot read the rules")?;
        let (of_operations, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| is_of_operations(line));
        let known = rules.with_extension("known");
        fs::write(&known, others.join("\n") + "\n").context("cannot write the rules")?;
        auditctl(&["-R", known.to_str().context("a path that is no text")?])?;
        of_operations.iter().try_for_each(|line| audit.add(line))?;
        audit.set(word::ENABLED, 1)?;
        Ok(audit)
    }

    /// Switches it off; gives back its log as `auditd` would have written it.
    ///
    /// # Errors
    /// What the kernel refuses, or that it has lost records.
    pub(crate) fn stop(mut self) -> anyhow::Result<Vec<u8>> {
        self.drain()?;
        let lost = self.status(word::LOST)?;
        ensure!(
            lost == self.lost,
            "the kernel has lost {} records",
            lost.wrapping_sub(self.lost)
        );
        Ok(take(&mut self.log))
    }

    /// Reads all that has happened so far.
    ///
    /// # Errors
    /// When the kernel does not send it.
    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        let mark = format!("mark {}", self.sequence);
        // The kernel puts a NUL over the last byte.
        self.send(message::MARK, NLM_F_REQUEST, format!("{mark}\0").as_bytes())?;
        self.hear("its own mark", |kind, text| {
            (kind == message::MARK && text.contains_str(&mark)).then_some(())
        })
    }

    /// Adds a rule of the `io_uring` list, which `auditctl` of Debian 12 does not know.
    ///
    /// # Errors
    /// What is wrong with it, or what the kernel refuses.
    pub(crate) fn add(&mut self, line: &str) -> anyhow::Result<()> {
        let (command, findings) = parse_line(line.as_bytes(), &Nobody);
        let Some(audit::rule::Command::Add { rule, insertion }) = command else {
            bail!("not a rule: {line}: {findings:?}");
        };
        let bytes = encoded(&rule, insertion).with_context(|| line.to_owned())?;
        self.send(message::ADD_RULE, NLM_F_REQUEST | NLM_F_ACK, &bytes)?;
        self.taken().with_context(|| format!("cannot add {line}"))
    }

    fn set(&mut self, word: usize, value: u32) -> anyhow::Result<()> {
        let mut words = [0; STATUS_WORDS];
        for (at, value) in [(0, 1 << (word - 1)), (word, value)] {
            *words.get_mut(at).context("no such word")? = value;
        }
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.send(message::SET, NLM_F_REQUEST | NLM_F_ACK, &bytes)?;
        self.taken()
            .with_context(|| format!("cannot set word {word} to {value}"))
    }

    /// Waits until the kernel has taken what was sent.
    fn taken(&mut self) -> anyhow::Result<()> {
        let code = self.hear("an answer", |kind, bytes| {
            let code = bytes.first_chunk().copied().map(i32::from_ne_bytes);
            code.filter(|_| kind == message::ERROR)
        })?;
        ensure!(code == 0, "{}", Errno::from_raw(-code));
        Ok(())
    }

    fn status(&mut self, word: usize) -> anyhow::Result<u32> {
        self.send(message::GET, NLM_F_REQUEST, &[])?;
        self.hear("the state of the kernel's audit", |kind, bytes| {
            let (words, _) = bytes.as_chunks();
            let word = words.get(word).copied().map(u32::from_ne_bytes);
            word.filter(|_| kind == message::GET)
        })
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> anyhow::Result<()> {
        self.sequence += 1;
        let length = u32::try_from(HEADER_BYTES + payload.len()).context("too long")?;
        let mut bytes = length.to_ne_bytes().to_vec();
        for half in [kind, flags] {
            bytes.extend(half.to_ne_bytes());
        }
        for word in [self.sequence, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(payload);
        let kernel = NetlinkAddr::new(0, 0);
        let (socket, parts) = (self.socket.as_raw_fd(), [IoSlice::new(&bytes)]);
        sendmsg(socket, &parts, &[], MsgFlags::empty(), Some(&kernel))
            .context("cannot ask the kernel's audit")?;
        Ok(())
    }

    /// Reads messages until one is wanted; records go to the log.
    fn hear<T>(
        &mut self,
        what: &str,
        wanted: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + LONGEST_ANSWER;
        let mut buffer = vec![0; 16 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).context("too long")?;
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let count = poll(&mut ready, timeout).context("cannot wait for the kernel's audit")?;
            ensure!(count != 0, "the kernel's audit does not send {what}");
            // An overrun of the socket is an error here.
            let size = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())
                .context("cannot read what the kernel's audit sends")?;
            // The length in the header of a record leaves out the header; a datagram has its own.
            let message = buffer.get(..size).unwrap_or_default();
            let (header, payload) = message
                .split_at_checked(HEADER_BYTES)
                .context("a message without header")?;
            let (halves, _) = header.as_chunks();
            let kind = halves.get(2).copied().map_or(0, u16::from_ne_bytes);
            if let Some(answer) = wanted(kind, payload) {
                return Ok(answer);
            }
            let is_record = kind >= message::FIRST_RECORD || message::EARLY_RECORDS.contains(&kind);
            if is_record && ![message::EOE, message::REPLACE].contains(&kind) {
                write_record(&mut self.log, kind, payload);
            }
        }
    }
}

impl Drop for KernelAudit {
    fn drop(&mut self) {
        // Whatever fails here must not keep the rest from being put back.
        let _off = self.set(word::ENABLED, 0);
        let _rules = auditctl(&["-D"]);
        if std::process::id() == 1 {
            // In a test machine, new tasks pay nothing for an audit that was on.
            let _spared = auditctl(&["-a", "task,never"]);
        }
        for (setting, value) in take(&mut self.before) {
            let _restored = self.set(setting, value);
        }
        let _pid = self.set(word::PID, 0);
    }
}

/// Whether a line is a rule of the `io_uring` list.
pub(crate) fn is_of_operations(line: &str) -> bool {
    line.contains(",io_uring ")
}

/// A rule without comparisons of fields, as the kernel takes it.
///
/// # Source
/// `struct audit_rule_data` in include/uapi/linux/audit.h.
fn encoded(rule: &Rule, insertion: Insertion) -> anyhow::Result<Vec<u8>> {
    const FIELDS: usize = 64;
    const KEY: u32 = 210;
    const AT_HEAD: u32 = 0x10;
    let length = |text: &[u8]| u32::try_from(text.len()).context("too long");
    let mut strings = Vec::new();
    let mut conditions = Vec::new();
    for test in &rule.fields {
        let value = match &test.value {
            Value::Number(number) => *number,
            Value::Text(text) => {
                strings.extend_from_slice(text);
                length(text)?
            }
            Value::Field(_) => bail!("a comparison of fields"),
        };
        conditions.push([test.field as u32, value, test.op as u32]);
    }
    if !rule.keys.is_empty() {
        let key = bstr::join([1], &rule.keys);
        conditions.push([KEY, length(&key)?, Op::Equal as u32]);
        strings.extend(key);
    }
    let at_head = if insertion == Insertion::Prepend {
        AT_HEAD
    } else {
        0
    };
    let count = u32::try_from(conditions.len()).context("too many")?;
    let mut words = vec![rule.list as u32 | at_head, rule.action as u32, count];
    for word in 0..64 {
        let bits = (0..32).filter(|bit| rule.syscalls.contains(word * 32 + bit));
        words.push(bits.fold(0, |all, bit| all | 1 << bit));
    }
    for part in 0..3 {
        let mut column: Vec<u32> = conditions.iter().map(|condition| condition[part]).collect();
        column.resize(FIELDS, 0);
        words.extend(column);
    }
    words.push(length(&strings)?);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.extend(strings);
    Ok(bytes)
}

/// A machine of which rules ask nothing.
struct Nobody;

impl RuleHost for Nobody {
    fn uid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn gid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn is_directory(&self, _path: &[u8]) -> bool {
        false
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}

/// One line, as `format_event()` of auditd makes it.
fn write_record(log: &mut Vec<u8>, kind: u16, text: &[u8]) {
    let name = table::msg_type_name(MsgType(kind));
    let name = name.map_or_else(|| format!("UNKNOWN[{kind}]"), str::to_owned);
    log.extend(format!("type={name} msg=").as_bytes());
    let text = text.trim_end_with(|char| matches!(char, '\0' | '\n' | ' '));
    log.extend(
        text.iter()
            .map(|&byte| if byte == b'\n' { b' ' } else { byte }),
    );
    log.push(b'\n');
}

fn auditctl(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(AUDITCTL)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start auditctl")?;
    ensure!(
        output.status.success(),
        "auditctl {arguments:?} ended with {}: {}{}",
        output.status,
        output.stdout.as_bstr(),
        output.stderr.as_bstr()
    );
    Ok(())
}
