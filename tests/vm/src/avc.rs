//! SELinux denials and their syscalls, compared with the records of the kernel's audit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::record::decode;
use bstr::{BStr, BString, ByteSlice as _, ByteVec as _};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use support::event::{self, Event};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::differential::kernel::KernelAudit;
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session, has_task_work};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "avc",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S rmdir -k rule\n-a always,exit -F arch=b64 -S bpf -k loads\n",
    ),
    tests: &[
        ("avc_record_has_its_syscall", avc_record_has_its_syscall),
        ("ausearch_finds_it_by_name", ausearch_finds_it_by_name),
        ("rule_for_the_syscall_matches", rule_for_the_syscall_matches),
        ("bpf_record_has_its_syscall", bpf_record_has_its_syscall),
    ],
    // Events that belong to a record of the kernel have its serial number.
    stop: Daemon::stop_last,
    after: |_log| Ok(()),
    stays: false,
};

const POLICY: &str = "/etc/selinux.policy";
const SELINUX: &str = "/sys/fs/selinux";
const BUSYBOX: &str = "/bin/busybox";
/// The events of the kernel's audit.
const BY_KERNEL: &str = "/tmp/avc.kernel.log";

/// Actions that SELinux denies, in one directory: `tests/vm/selinux/policy.conf` does not allow them.
const DENIED: [&[&str]; 3] = [
    &["rmdir", "/tmp/work/labelled/directory"],
    &["ln", "file", "/tmp/work/labelled/link"],
    &["cat", "./fifo"],
];
const WORK: &str = "/tmp/work/labelled";

fn prepare() -> anyhow::Result<()> {
    if Path::new(BY_KERNEL).exists() {
        return Ok(());
    }
    for session in ["avc", "avc_tracepoint"] {
        let settings = "kernel_messages = \"unicast\"\n";
        fs::write(format!("/tmp/{session}.toml"), settings).context("no settings")?;
    }
    fs::create_dir_all(Path::new(WORK).join("directory")).context("no directory")?;
    fs::write(Path::new(WORK).join("file"), "text").context("no file")?;
    mkfifo(&Path::new(WORK).join("fifo"), Mode::S_IRUSR).context("no fifo")?;
    let fs_type = Some("selinuxfs");
    mount(fs_type, SELINUX, fs_type, MsFlags::empty(), None::<&str>)
        .context("cannot mount selinuxfs")?;
    let policy = fs::read(POLICY).context("no policy")?;
    fs::write(Path::new(SELINUX).join("load"), policy).context("cannot load the policy")?;
    // Without rules, the kernel does not collect the names of syscalls.
    let rules = Path::new("/tmp/avc.kernel.rules");
    let rule = "-a always,exit -F arch=b64 -S reboot -F uid=54321\n";
    fs::write(rules, rule).context("no rules")?;
    let audit = KernelAudit::start(rules)?;
    let processes = trigger_all()?;
    let log = audit.stop()?;
    let found = denials(&log, &processes)?;
    ensure!(found.len() == DENIED.len(), "{}", log.as_bstr());
    fs::write(BY_KERNEL, found.join(&b'\n')).context("cannot keep the kernel's log")
}

/// Runs all denied actions; returns the process ids.
fn trigger_all() -> anyhow::Result<Vec<u32>> {
    let mut processes = Vec::new();
    for words in DENIED {
        let mut command = Command::new(BUSYBOX);
        command.args(words).current_dir(WORK);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start busybox")?;
        processes.push(child.id());
        let status = child.wait().context("cannot wait for busybox")?;
        ensure!(!status.success(), "{words:?} was not denied");
    }
    Ok(processes)
}

/// Events with an AVC record of these processes, each as the text that must be equal.
fn denials(log: &[u8], processes: &[u32]) -> anyhow::Result<Vec<BString>> {
    let events = event::parse(log)?;
    let mut found = Vec::new();
    for process in processes {
        let pid = process.to_string();
        let its = |event: &&Event| event.fields("AVC", "pid").contains(&pid);
        for event in events.iter().filter(its) {
            found.push(comparable(event)?);
        }
    }
    Ok(found)
}

/// The records of an event without what differs between runs. When the event is sent, the syscall's result is not
/// known; BPF programs do not know labels of tasks and objects, nor inodes of objects named by text.
fn comparable(event: &Event) -> anyhow::Result<BString> {
    const OTHER: [&str; 6] = ["pid", "ppid", "ino", "success", "exit", "key"];
    const KNOWN_OF_PATH: [&str; 2] = ["name", "nametype"];
    // Nor whether an object of a name exists.
    let kind_of_name = |value: &BStr| value.replace("UNKNOWN", "NORMAL");
    let mut records: Vec<BString> = Vec::new();
    for line in event.records.iter().map(|record| &record.line) {
        let record = decode::line(line)?;
        let mut text = vec![record.kind.to_owned()];
        for field in record.fields() {
            let field = field?;
            let name = field.name.to_str_lossy();
            let is_address =
                record.kind == "SYSCALL" && matches!(&*name, "a0" | "a1" | "a2" | "a3");
            let is_label = matches!(&*name, "subj" | "obj");
            let is_of_inode = record.kind == "PATH" && !KNOWN_OF_PATH.contains(&&*name);
            if !OTHER.contains(&&*name) && !is_address && !is_label && !is_of_inode {
                let value = kind_of_name(field.value).into_string_lossy();
                text.push(format!("{name}={value}").into());
            }
        }
        records.push(text.join(&b' ').into());
    }
    if has_task_work() {
        records.sort(); // docs/limits.md: the order of two names
    }
    Ok(records.join(&b' ').into())
}

fn avc_record_has_its_syscall(daemon: &Daemon) -> anyhow::Result<()> {
    let processes = trigger_all()?;
    let found = wait_for("the denials", || {
        let found = denials(&daemon.log_text()?, &processes)?;
        Ok((found.len() == DENIED.len()).then_some(found))
    })?;
    let by_kernel = fs::read(BY_KERNEL).context("no log of the kernel's")?;
    for (found, by_kernel) in found.iter().zip(by_kernel.lines()) {
        ensure!(
            found == by_kernel,
            "{found}\nkernel: {}",
            by_kernel.as_bstr()
        );
    }
    ensure!(
        daemon.log_text()?.contains_str("success=no exit=-13"),
        "no event of a rule has the result"
    );
    Ok(())
}

/// The name is not in the AVC record but in those of the syscall.
fn ausearch_finds_it_by_name(daemon: &Daemon) -> anyhow::Result<()> {
    trigger_all()?;
    wait_for("the event in the output of ausearch", || {
        let output = Command::new("/usr/sbin/ausearch")
            .args(["-m", "AVC", "-f", "/tmp/work/labelled/link", "--raw", "-if"])
            .arg(daemon.log())
            .stdin(Stdio::null())
            .output()
            .context("cannot start ausearch")?;
        let found = event::parse(&output.stdout)?;
        Ok(found
            .iter()
            .any(|event| event.field("SYSCALL", "syscall") == "86")
            .then_some(()))
    })
}

/// The event of a rule for the syscall has the record's stamp, the rule's key and the syscall's result.
fn rule_for_the_syscall_matches(daemon: &Daemon) -> anyhow::Result<()> {
    let [process, ..] = *trigger_all()? else {
        anyhow::bail!("nothing was denied");
    };
    let found = found_by_key(daemon, "AVC", "rule", process)?;
    ensure!(
        found.field("SYSCALL", "exit") == "-13" && !found.is_from_tollgate(),
        "{}",
        found.summary()
    );
    let events = event::parse(&daemon.log_text()?)?;
    let pid = process.to_string();
    let of_process = |event: &&Event| event.fields("SYSCALL", "pid").contains(&pid);
    let syscalls = events.iter().filter(of_process).count();
    ensure!(syscalls == 1, "{syscalls} events of one call");
    Ok(())
}

/// The event with a record of this type and this key that `ausearch` finds.
fn found_by_key(daemon: &Daemon, kind: &str, key: &str, process: u32) -> anyhow::Result<Event> {
    let process = process.to_string();
    wait_for("the event in the output of ausearch", || {
        let found = event::ausearch(daemon.log(), &["--raw", "-m", kind, "-k", key])?;
        let is_its = |event: &Event| event.fields("SYSCALL", "pid").contains(&process);
        Ok(found.into_iter().find(is_its))
    })
}

/// The kernel's audit writes a record when a BPF program is loaded.
fn bpf_record_has_its_syscall(daemon: &Daemon) -> anyhow::Result<()> {
    const BPF: u32 = 321;
    const EXIT_GROUP: u32 = 231;
    const LOADER: &str = "/tmp/loader";
    const PROG_LOAD: i64 = 5;
    // r0 = 0; exit: of the type BPF_PROG_TYPE_SOCKET_FILTER.
    let instructions = [0xb7_u64, 0x95].map(u64::to_le_bytes).concat();
    let attr = Arg::Words(vec![
        (1_i64 | 2 << 32).into(),
        Arg::Bytes(instructions),
        Arg::Text("GPL"),
        0.into(),
        0.into(),
        0.into(),
    ]);
    Program::new(Entry::Syscall)
        .call(BPF, args![PROG_LOAD, attr, 48])
        .call(EXIT_GROUP, args![0])
        .write(Path::new(LOADER))?;
    let mut child = Command::new(LOADER).spawn().context("no loader")?;
    let process = child.id();
    ensure!(child.wait()?.success(), "the loader failed");
    let found = found_by_key(daemon, "BPF", "loads", process)?;
    ensure!(
        found.field("BPF", "op") == "LOAD" && found.field("SYSCALL", "success") == "yes",
        "{}",
        found.summary()
    );
    Ok(())
}
