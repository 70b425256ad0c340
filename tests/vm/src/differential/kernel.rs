//! The kernel's own audit, with this process as its audit daemon.
//!
//! There is no `auditd` in the machine: this process registers in its place and writes the same log. The kernel
//! sends records in order, so a user message sent after all others marks the end of what has happened.

use std::fs;
use std::mem::take;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use audit::ids::{Arch, MsgType, NativeArch};
use audit::rule::{Insertion, Op, Rule, RuleHost, Value, parse_line};
use audit::table;
use bstr::ByteSlice as _;
use netlink::{AuditSocket, KernelAuditSettings, KernelRecord, RecordStream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const AUDITCTL: &str = "/usr/sbin/auditctl";

/// More records than any workload causes, so that no task waits and no record is lost.
const BACKLOG_RECORDS: u32 = 65_536;
const SOCKET_BYTES: usize = 64 << 20;
/// Records to receive at once.
const RECEIVE_LIMIT: usize = 1024;

const MARK_TIMEOUT: Duration = Duration::from_secs(60);

/// `AUDIT_TEST`: a user message that only carries text.
const AUDIT_TEST: MsgType = MsgType(1120);
/// The end of an event, which auditd does not write.
const AUDIT_EOE: MsgType = MsgType(1320);

/// The kernel's audit while it is enabled.
#[derive(Debug)]
pub(crate) struct KernelAudit {
    control: AuditSocket,
    records: RecordStream,
    /// Number of marks sent.
    marks: u32,
    /// The lost counter at the start.
    lost: u32,
    log: Vec<u8>,
    /// Settings to restore.
    before: KernelAuditSettings,
}

impl KernelAudit {
    /// Loads the rules of a file, with `auditctl` if this machine has it, and enables the kernel's audit.
    ///
    /// # Errors
    /// When the kernel or `auditctl` rejects something, or another process uses the kernel's audit.
    pub(crate) fn start(rules: &Path) -> anyhow::Result<Self> {
        let control = AuditSocket::open().context("cannot open the kernel's audit socket")?;
        let status = control.status().context("cannot read the audit status")?;
        let used = status.pid != 0 || status.settings.enabled != 0;
        ensure!(!used, "another process uses the kernel's audit");
        let records = RecordStream::register().context("cannot register as audit daemon")?;
        let audit = Self {
            control,
            records,
            marks: 0,
            lost: status.lost,
            log: Vec::new(),
            before: status.settings,
        };
        audit
            .records
            .set_socket_buffer(SOCKET_BYTES)
            .context("cannot enlarge the audit socket")?;
        let mut settings = KernelAuditSettings {
            failure: 0,
            rate_limit: 0,
            backlog_limit: BACKLOG_RECORDS,
            ..audit.before
        };
        audit.set(&settings)?;
        audit
            .control
            .delete_rules()
            .context("cannot delete the kernel's rules")?;
        let text = fs::read_to_string(rules).context("cannot read the rules")?;
        let (io_uring_rules, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| is_io_uring_rule(line));
        let known = rules.with_extension("known");
        fs::write(&known, others.join("\n") + "\n").context("cannot write the rules")?;
        if Path::new(AUDITCTL).exists() {
            load(&known)?;
        } else {
            others.iter().try_for_each(|line| audit.add(line))?;
        }
        io_uring_rules.iter().try_for_each(|line| audit.add(line))?;
        settings.enabled = 1;
        audit.set(&settings)?;
        Ok(audit)
    }

    /// Disables the kernel's audit and returns its log as `auditd` would have written it.
    ///
    /// # Errors
    /// When the kernel has lost records, or does not send them.
    pub(crate) fn stop(mut self) -> anyhow::Result<Vec<u8>> {
        self.drain()?;
        let status = self.control.status();
        let lost = status.context("cannot read the audit status")?.lost;
        ensure!(
            lost == self.lost,
            "the kernel has lost {} records",
            lost.wrapping_sub(self.lost)
        );
        Ok(take(&mut self.log))
    }

    /// Reads all records so far.
    ///
    /// # Errors
    /// When the kernel does not send them.
    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        self.marks += 1;
        let mark = format!("mark {}.", self.marks);
        self.control
            .send_user_message(AUDIT_TEST, &mark)
            .context("cannot send a user message")?;
        let deadline = Instant::now() + MARK_TIMEOUT;
        let (mut found, mut wrong) = (false, None);
        while !found {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).context("too long")?;
            let mut ready = [PollFd::new(self.records.as_fd(), PollFlags::POLLIN)];
            let count = poll(&mut ready, timeout).context("cannot wait for records")?;
            ensure!(count != 0, "the kernel's audit does not send `{mark}`");
            let log = &mut self.log;
            // An overrun of the socket is an error.
            self.records
                .receive(RECEIVE_LIMIT, |record| match record {
                    Ok(record) if record.kind == AUDIT_TEST => {
                        found |= record.text.contains_str(&mark);
                    }
                    Ok(record) if record.kind == AUDIT_EOE => {}
                    Ok(record) => write_record(log, record),
                    Err(error) => wrong = Some(error),
                })
                .context("cannot receive records")?;
        }
        wrong.map_or(Ok(()), |error| Err(error).context("a malformed record"))
    }

    /// Adds a rule of the `io_uring` list, which `auditctl` of Debian 12 does not know.
    ///
    /// # Errors
    /// When the rule is wrong, or the kernel rejects it.
    pub(crate) fn add(&self, line: &str) -> anyhow::Result<()> {
        let (command, findings) = parse_line(line.as_bytes(), &NoHost);
        let Some(audit::rule::Command::Add { rule, insertion }) = command else {
            bail!("not a rule: {line}: {findings:?}");
        };
        let bytes = encoded(&rule, insertion).with_context(|| line.to_owned())?;
        let added = self.control.add_rule(&bytes);
        added.with_context(|| format!("cannot add {line}"))
    }

    fn set(&self, settings: &KernelAuditSettings) -> anyhow::Result<()> {
        let set = self.control.set_settings(settings);
        set.with_context(|| format!("cannot set {settings:?}"))
    }
}

impl Drop for KernelAudit {
    fn drop(&mut self) {
        // Restore as much as possible, whatever fails.
        let _result = self.control.set_settings(&self.before);
        let _result = self.control.delete_rules();
        if std::process::id() == 1 {
            // In a test machine, tasks that start later have no audit context.
            let _result = self.control.add_never_task();
        }
        let _result = self.control.unregister();
    }
}

/// Whether a line is a rule of the `io_uring` list.
pub(crate) fn is_io_uring_rule(line: &str) -> bool {
    line.contains(",io_uring ")
}

/// Encodes a rule without comparisons of fields.
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

/// A host without users and directories.
pub(crate) struct NoHost;

impl RuleHost for NoHost {
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
        NativeArch::BUILD.b64()
    }
}

/// Appends a line as `format_event()` of auditd makes it.
fn write_record(log: &mut Vec<u8>, record: KernelRecord<'_>) {
    let MsgType(number) = record.kind;
    let name = table::msg_type_name(record.kind);
    let name = name.map_or_else(|| format!("UNKNOWN[{number}]"), str::to_owned);
    log.extend(format!("type={name} msg=").as_bytes());
    let text = record.text;
    let text = text.trim_end_with(|char| matches!(char, '\n' | ' '));
    log.extend(
        text.iter()
            .map(|&byte| if byte == b'\n' { b' ' } else { byte }),
    );
    log.push(b'\n');
}

/// Loads a rule file with `auditctl -R`.
fn load(rules: &Path) -> anyhow::Result<()> {
    let output = Command::new(AUDITCTL)
        .arg("-R")
        .arg(rules)
        .stdin(Stdio::null())
        .output()
        .context("cannot start auditctl")?;
    ensure!(
        output.status.success(),
        "auditctl -R ended with {}: {}{}",
        output.status,
        output.stdout.as_bstr(),
        output.stderr.as_bstr()
    );
    Ok(())
}
