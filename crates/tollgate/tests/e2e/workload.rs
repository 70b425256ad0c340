//! Workloads: this binary, started under another identity.
//!
//! A workload prints its calls, from which the test knows the expected log: for each step the syscall, the facts
//! of the objects that it names, and the result.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, chdir, chroot, geteuid, setgroups, setresgid, setresuid};

use super::raw_syscalls::{self, Arena};
use super::step::{Arg, WorkloadStep};

/// Size of the arena for strings and arrays.
const ARENA_BYTES: usize = 4 << 20;

/// The identity of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Real, effective and saved uid.
    pub(crate) uids: [u32; 3],
    pub(crate) gid: u32,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
}

impl Identity {
    /// The same number for all ids, and no supplementary groups.
    pub(crate) fn is(id: u32) -> Self {
        Self {
            uids: [id; 3],
            gid: id,
            groups: Vec::new(),
        }
    }
}

/// A workload.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) identity: Identity,
    /// Its working directory, below `root` if set.
    pub(crate) directory: PathBuf,
    /// Its root directory.
    pub(crate) root: PathBuf,
}

/// A syscall made by a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) arch: u32,
    pub(crate) number: u32,
    pub(crate) args: [u64; 4],
    /// `None` if the syscall did not return.
    pub(crate) result: Option<i64>,
    pub(crate) facts: Vec<Facts>,
}

/// Facts of an object named by a syscall, before or after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `object`, or `directory` of it.
    pub(crate) part: String,
    pub(crate) inode: u64,
    pub(crate) dev: String,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The calls of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadCalls {
    pub(crate) pid: u32,
    pub(crate) made: Vec<Made>,
}

impl Workload {
    /// A workload of one id in one directory.
    pub(crate) fn new(id: u32, directory: &Path) -> Self {
        Self {
            identity: Identity::is(id),
            directory: directory.into(),
            root: "/".into(),
        }
    }

    fn command(&self, name: &str) -> Command {
        let numbers = |numbers: &[u32]| {
            numbers
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "workload",
                name,
                &numbers(&self.identity.uids),
                &self.identity.gid.to_string(),
            ])
            .args([
                format!("g{}", numbers(&self.identity.groups)).into(),
                self.root.clone(),
                self.directory.clone(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// Runs the steps and waits for the end.
    #[track_caller]
    pub(crate) fn run(&self, steps: &[WorkloadStep]) -> WorkloadCalls {
        self.start(steps).finish()
    }

    /// Starts the steps.
    pub(crate) fn start(&self, steps: &[WorkloadStep]) -> RunningWorkload {
        let mut command = self.command("calls");
        command.args(steps.iter().flat_map(WorkloadStep::words));
        RunningWorkload(command.spawn().unwrap())
    }

    /// Opens and closes a file repeatedly.
    #[track_caller]
    pub(crate) fn burst(&self, file: &Path, pairs: u32) {
        let mut command = self.command("burst");
        let status = command.arg(file).arg(pairs.to_string()).status().unwrap();
        assert!(status.success(), "the burst ended with {status}");
    }

    /// Starts a program repeatedly, one after another.
    #[track_caller]
    pub(crate) fn spawn(&self, program: &Path, times: u32) {
        let mut command = self.command("spawn");
        let status = command.arg(program).arg(times.to_string()).status();
        assert!(status.unwrap().success(), "the programs were not started");
    }

    /// Runs a program with this workload's identity; returns its process id.
    #[track_caller]
    pub(crate) fn program(&self, words: &[&str]) -> u32 {
        let mut command = Command::new("setpriv");
        let child = command
            .args(["--reuid", &self.identity.uids[0].to_string()])
            .args([
                "--regid",
                &self.identity.gid.to_string(),
                "--clear-groups",
                "--",
            ])
            .args(words)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        child.wait_with_output().unwrap();
        pid
    }
}

/// A running workload.
#[derive(Debug)]
pub(crate) struct RunningWorkload(Child);

impl RunningWorkload {
    /// Waits for its end.
    #[track_caller]
    pub(crate) fn finish(self) -> WorkloadCalls {
        let pid = self.0.id();
        let output = self.0.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "the workload ended with {}",
            output.status
        );
        let said = String::from_utf8(output.stdout).unwrap();
        let mut made: Vec<Made> = Vec::new();
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["call", arch, number, args @ ..] => made.push(Made {
                    arch: arch.parse().unwrap(),
                    number: number.parse().unwrap(),
                    args: [0, 1, 2, 3].map(|index| args[index].parse().unwrap()),
                    ..Made::default()
                }),
                ["fact", part, inode, dev, mode, uid, gid] => {
                    made.last_mut().unwrap().facts.push(Facts {
                        part: (*part).to_owned(),
                        inode: inode.parse().unwrap(),
                        dev: (*dev).to_owned(),
                        mode: mode.parse().unwrap(),
                        uid: uid.parse().unwrap(),
                        gid: gid.parse().unwrap(),
                    });
                }
                ["result", result] => {
                    made.last_mut().unwrap().result = Some(result.parse().unwrap());
                }
                _ => panic!("the workload said: {line}"),
            }
        }
        WorkloadCalls { pid, made }
    }
}

/// The workload process: sets its identity and runs its steps.
pub(crate) fn main(words: &[OsString]) -> ExitCode {
    let text = |index: usize| words[index].to_str().unwrap();
    let numbers = |text: &str| -> Vec<u32> {
        text.split(',')
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().unwrap())
            .collect()
    };
    let uids: Vec<Uid> = numbers(text(1)).into_iter().map(Uid::from_raw).collect();
    let gid = Gid::from_raw(text(2).parse().unwrap());
    let groups: Vec<Gid> = numbers(text(3).trim_start_matches('g'))
        .into_iter()
        .map(Gid::from_raw)
        .collect();
    if words[4] != "/" {
        chroot(words[4].as_os_str()).unwrap();
    }
    chdir(words[5].as_os_str()).unwrap();
    // Under `tollgate run` it already has its identity and could not set it.
    if geteuid().is_root() {
        setgroups(&groups).unwrap();
        setresgid(gid, gid, gid).unwrap();
        setresuid(uids[0], uids[1], uids[2]).unwrap();
    }
    match text(0) {
        "calls" => make(&WorkloadStep::read_all(&words[6..])),
        "burst" => burst(Path::new(&words[6]), text(7).parse().unwrap()),
        "spawn" => spawn(Path::new(&words[6]), text(7).parse().unwrap()),
        name => panic!("there is no workload `{name}`"),
    }
    ExitCode::SUCCESS
}

fn make(steps: &[WorkloadStep]) {
    let mut arena = Arena::new(ARENA_BYTES);
    let mut results = Vec::new();
    for step in steps {
        let number = raw_syscalls::number(step.arch, &step.name);
        let mut args = [0; 6];
        for (to, arg) in args.iter_mut().zip(&step.args) {
            *to = arg.value(step.arch, &mut arena, &results);
        }
        // Output is flushed at once: the syscall may be the last one.
        let mut said = format!("call {} {number}", step.arch.0);
        for arg in args.iter().take(4) {
            write!(said, " {arg}").unwrap();
        }
        said.push('\n');
        said.push_str(&facts(step));
        io::stdout().write_all(said.as_bytes()).unwrap();
        io::stdout().flush().unwrap();
        let result = raw_syscalls::call(step.arch, number, args);
        results.push(result);
        let said = format!("{}result {result}\n", facts(step));
        io::stdout().write_all(said.as_bytes()).unwrap();
        io::stdout().flush().unwrap();
    }
}

/// Facts of the objects named by a step's strings, with and without following a final symlink.
fn facts(step: &WorkloadStep) -> String {
    let mut said = String::new();
    for arg in &step.args {
        let Arg::Text(text) = arg else { continue };
        let path = Path::new(std::ffi::OsStr::from_bytes(text));
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => path,
        };
        for (part, found) in [
            ("object", fs::symlink_metadata(path)),
            ("object", fs::metadata(path)),
            ("directory", fs::metadata(directory)),
        ] {
            let Ok(found) = found else { continue };
            let dev = found.dev();
            writeln!(
                said,
                "fact {part} {} {:02x}:{:02x} {} {} {}",
                found.ino(),
                libc::major(dev),
                libc::minor(dev),
                found.mode(),
                found.uid(),
                found.gid()
            )
            .unwrap();
        }
    }
    said
}

fn spawn(program: &Path, times: u32) {
    let mut command = Command::new(program);
    command.env_clear();
    for _ in 0..times {
        assert!(command.status().unwrap().success());
    }
}

fn burst(file: &Path, pairs: u32) {
    for _ in 0..pairs {
        drop(open(file, OFlag::O_RDONLY, Mode::empty()).unwrap());
    }
}
