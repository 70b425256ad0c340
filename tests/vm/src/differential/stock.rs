//! Stock readers of both logs of one run: `tests/support/src/answers.rs`.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use audit::record::decode;
use bstr::ByteSlice as _;
use support::answers::{self, Both, Logs, Outcome};
use support::compare::compare;
use support::event;
use support::permitted::{Permitted, Setting};
use support::wait::wait_for;

use super::kernel::KernelAudit;
use super::steps::{self, Run};
use super::{B64, GROUP, KEY, SESSION};
use super::{events_of, exec, line_of_kernel, namespace, open};
use crate::daemon::Daemon;

const AUPARSE_DUMP: &str = "/bin/auparse_dump";
const SEND_LOGIN: &str = "/bin/send_login";
const AUDITCTL: &str = "/usr/sbin/auditctl";

/// The group of login tasks.
const LOGIN: u32 = 4343;
/// The unset login uid.
const UNSET: u32 = u32::MAX;

const LOGGED_IN: &str = include_str!("../../../differential/session.txt");
const REFUSED: &str = include_str!("../../../differential/refused.txt");

/// The daemon's setting to read the kernel's records from the multicast group.
pub(super) fn prepare() -> anyhow::Result<()> {
    let settings = "kernel_messages = \"multicast\"\n";
    fs::write("/tmp/differential.toml", settings).context("cannot write the settings")
}

/// Runs all questions.
pub(super) fn stock_readers_agree(daemon: &Daemon) -> anyhow::Result<()> {
    let line = line_of_kernel()?;
    let audit = KernelAudit::start(daemon.rules())?;
    // The message of a task with an audit context comes with records of its syscall; no task has a context where the
    // kernel's audit is used for messages only.
    audit.add(&format!("-a never,task -F gid={LOGIN}"))?;
    mark(daemon, "begin-of-run")?;
    login(UNSET, REFUSED)?;
    login(33, LOGGED_IN)?;
    mark(daemon, "middle-of-run")?;
    let middle = next_second()?;
    let mut families = Vec::new();
    for (test, runs) in families_of_calls() {
        families.push((test, steps::run(test, &runs)?));
    }
    let pids: Vec<u32> = families
        .iter()
        .flat_map(|(_, pids)| pids)
        .copied()
        .collect();
    let calls = events_of(daemon, &pids)?;
    mark(daemon, "end-of-run")?;
    let theirs = audit.stop()?;
    let by_kernel = event::parse_interleaved(&theirs)?;
    let ours = daemon.log_text()?;

    let mut events: Vec<Both> = Vec::new();
    for (test, pids) in &families {
        let comparison = compare(&by_kernel, &calls, pids);
        let mut permitted = Permitted::records(Setting {
            test,
            line: &line,
            engine: SESSION.engine(),
        })?;
        for difference in comparison.pairs.iter().flat_map(|pair| &pair.differences) {
            ensure!(
                permitted.permits_difference(difference),
                "not permitted: {difference}"
            );
        }
        events.extend(comparison.both);
    }
    let logs = Logs {
        kernel: &theirs,
        tollgate: &ours,
        marks: ["begin-of-run", "end-of-run"],
        events: &events,
    };
    let values = values(&events, &theirs, middle)?;
    let directory = Path::new("/tmp/answers");
    let Outcome {
        same,
        permitted,
        wrong,
    } = answers::compare(
        directory,
        Path::new(AUPARSE_DUMP),
        SESSION.engine(),
        &logs,
        &values,
    )?;
    for text in wrong.iter().flat_map(|text| text.lines()) {
        println!("vm: note {text}");
    }
    println!(
        "vm: note {} events: {same} answers are equal, {permitted} have permitted differences",
        events.len()
    );
    ensure!(wrong.is_empty(), "{} answers differ", wrong.len());
    Ok(())
}

/// The families with most of the data that the readers evaluate.
fn families_of_calls() -> [(&'static str, Vec<Run>); 3] {
    [
        ("open", open::runs(B64)),
        ("namespace", namespace::runs(B64)),
        ("exec", exec::runs(B64)),
    ]
}

/// Sends a message and waits until it is in tollgate's log, and so all earlier events.
fn mark(daemon: &Daemon, text: &str) -> anyhow::Result<()> {
    let mut command = Command::new(AUDITCTL);
    let status = command.args(["-m", text]).status();
    ensure!(
        status.context("cannot start auditctl")?.success(),
        "auditctl"
    );
    wait_for(text, || {
        Ok(daemon.log_text()?.contains_str(text).then_some(()))
    })
}

/// The messages of a login.
fn login(auid: u32, text: &str) -> anyhow::Result<()> {
    fs::write("/tmp/messages", text).context("cannot write messages")?;
    let mut command = Command::new(SEND_LOGIN);
    command.args([LOGIN.to_string(), auid.to_string()]);
    let file = File::open("/tmp/messages").context("cannot open messages")?;
    let status = command
        .stdin(file)
        .status()
        .context("cannot start send_login")?;
    ensure!(status.success(), "send_login ended with {status}");
    Ok(())
}

/// Waits for the start of a second without events.
fn next_second() -> anyhow::Result<u64> {
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|now| now.as_secs())
    };
    let before = now()?;
    wait_for("the next second", || {
        Ok(Some(now()?).filter(|&now| now > before))
    })
}

/// Values of the words in braces in the questions.
fn values(events: &[Both], log: &[u8], middle: u64) -> anyhow::Result<Vec<(&'static str, String)>> {
    let value = |line: &[u8], name: &str| -> anyhow::Result<String> {
        let record = decode::line(line).with_context(|| line.as_bstr().to_string())?;
        let mut fields = record.fields().filter_map(Result::ok);
        let field = fields.find(|field| field.name == name);
        Ok(field
            .with_context(|| format!("no {name}"))?
            .value
            .to_string())
    };
    let call = events.iter().find_map(|event| event.kernel.first());
    let call = call.context("no event")?;
    let login = log
        .lines()
        .find(|line| line.starts_with(b"type=LOGIN ") && line.contains_str(" auid=33 "));
    Ok(vec![
        ("key", KEY.into()),
        ("other", KEY.into()),
        ("uid", crate::machine::USER.to_string()),
        ("gid", GROUP.to_string()),
        ("pid", value(call, "pid")?),
        ("ppid", value(call, "ppid")?),
        ("file", format!("{}/file", steps::PLACE)),
        ("word", "file".into()),
        ("exe", "/tmp/programs/open0".into()),
        ("comm", "open0".into()),
        ("session", value(login.context("no LOGIN")?, "ses")?),
        ("middle", answers::date(middle)),
    ])
}
