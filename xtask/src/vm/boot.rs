//! One machine, from power on to power off.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::mem;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::report::Report;
use crate::step::Tally;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Longer than any test may take.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);
/// Longer than all of them take on a slow and busy host.
const LONGEST_RUN: Duration = Duration::from_secs(1200);

/// Makes warnings of the kernel visible and its end an end: no reboot, no waiting. Mitigations of
/// processor bugs cost time and protect nobody here.
const KERNEL_OPTIONS: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off";

/// Pages are not cleared when they are allocated: the emulator counts each step of an instruction
/// that repeats itself, and clearing a page for a file name hides what a call does under 500 of them.
/// The kernel's table of names gets 4 Mi buckets (32 MiB) in place of 128 Ki: a name that comes into the
/// bucket of a measured one costs each later call 6 instructions.
const COUNTING_OPTIONS: &str = "init_on_alloc=0 dhash_entries=4194304 vm.counts";

const RACING_OPTIONS: &str = "vm.races";

/// SELinux refuses what its policy does not allow, and no other module does.
const LABELLED_OPTIONS: &str = "lsm=selinux,bpf selinux=1 enforcing=1 vm.labels";

const DYING_OPTIONS: &str = "vm.dies";

const KVM: [&str; 4] = ["-accel", "kvm", "-cpu", "host"];

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Shows that the daemon works. One thread of the host emulates both processors in turn.
    Testing,
    /// Has one thread of a program change what the call of another is given: the processors run at the
    /// same time, and QEMU may lose the race that [`Machine::run`] speaks of.
    Racing,
    /// Has SELinux refuse things.
    Labelled,
    /// Goes down by a panic of its kernel.
    Dying,
    /// Counts instructions: one processor, whose clocks all advance by a nanosecond with each
    /// instruction, and that skips the time in which it would sleep.
    Counting,
}

/// What to boot.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) purpose: Purpose,
    /// What its output is labelled with.
    pub(crate) line: &'a str,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// Only tests whose name holds this.
    pub(crate) filter: &'a str,
    /// What else its first process is told.
    pub(crate) words: &'a str,
}

impl Machine<'_> {
    /// Boots it, prints a line for each test, and counts them.
    ///
    /// A machine whose emulator has lost a race is booted once more. QEMU before 8.1 may translate code while
    /// another processor writes it, and then goes on running what is no longer there (its commit
    /// deba78709ae8). A kernel that attaches programs to functions rewrites its own code all the time, by way
    /// of `int3`: one of a few thousand attachments then ends in an `int3` that nobody expects. With one
    /// thread for all processors there is no such race. What was said is shown either way.
    ///
    /// # Errors
    /// When the emulator cannot be started.
    pub(crate) fn run(&self) -> Result<(Tally, Counts), Box<dyn Error + Send + Sync>> {
        let started = Instant::now();
        let mut report = self.boot(started)?;
        if self.purpose == Purpose::Racing && report.emulator_lost() {
            self.finish(report);
            println!(
                "    {:<5} the emulator lost a race; booted once more",
                self.line
            );
            report = self.boot(started)?;
        }
        let counts = mem::take(&mut report.counts);
        if let Some(json) = counts.json(self.line) {
            let file = format!("counts-{}.json", self.line);
            fs::write(self.initramfs.with_file_name(file), json)?;
        }
        let tally = self.finish(report);
        let seconds = started.elapsed().as_secs_f64();
        println!("    {:<5} {tally} ({seconds:.1} s)", self.line);
        Ok((tally, counts))
    }

    /// Shows what has gone wrong outside of the tests.
    fn finish(&self, report: Report) -> Tally {
        let (tally, troubles) = report.finish();
        for trouble in troubles {
            println!("    {:<5} {trouble}", self.line);
        }
        tally
    }

    /// From power on to power off.
    fn boot(&self, started: Instant) -> Result<Report, Box<dyn Error + Send + Sync>> {
        let mut child = self.start()?;
        let mut report = Report::default();
        let lines = serial(&mut child)?;
        let outcome = loop {
            let left = LONGEST_RUN.saturating_sub(started.elapsed());
            match lines.recv_timeout(left.min(LONGEST_SILENCE)) {
                Ok(line) => {
                    if let Some(shown) = report.hear(&line) {
                        println!("    {:<5} {shown}", self.line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if left <= LONGEST_SILENCE => {
                    break Some("the tests take too long");
                }
                Err(RecvTimeoutError::Timeout) => break Some("the machine is silent"),
            }
        };
        if let Some(why) = outcome {
            report.stopped(why);
            child.kill()?;
        }
        child.wait()?;
        Ok(report)
    }

    fn start(&self) -> Result<Child, String> {
        // Page tables of five levels only make emulation slower.
        let emulated = |accelerator| ["-accel", accelerator, "-cpu", "max,la57=off"];
        let options = match self.purpose {
            Purpose::Testing => "",
            Purpose::Racing => RACING_OPTIONS,
            Purpose::Labelled => LABELLED_OPTIONS,
            Purpose::Dying => DYING_OPTIONS,
            Purpose::Counting => COUNTING_OPTIONS,
        };
        let (accelerator, processors) = match self.purpose {
            Purpose::Counting => (emulated("tcg"), ["-smp", "1"]),
            Purpose::Racing if has_kvm() => (KVM, ["-smp", "2"]),
            Purpose::Racing => (emulated("tcg"), ["-smp", "2"]),
            // Programs of the engine share areas of one processor each: two show when they do not.
            Purpose::Testing | Purpose::Labelled | Purpose::Dying if has_kvm() => {
                (KVM, ["-smp", "2"])
            }
            Purpose::Testing | Purpose::Labelled | Purpose::Dying => {
                (emulated("tcg,thread=single"), ["-smp", "2"])
            }
        };
        let mut command = Command::new(QEMU);
        if self.purpose == Purpose::Counting {
            command.args(["-icount", "shift=0,sleep=off"]);
            // The kernel places its data at random, and counts of two boots differ by a few. With the
            // same random numbers and the same date each boot is the same.
            command.args(["-seed", "1", "-rtc", "base=2026-01-01,clock=vm"]);
        }
        command
            .args(accelerator)
            .args(processors)
            .args(["-machine", "q35", "-m", "1024"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args([
                "-append",
                &format!(
                    "{KERNEL_OPTIONS} {options} vm.filter={} {}",
                    self.filter, self.words
                ),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {QEMU}: {error}; see `make setup`"))
    }
}

/// Lines of the serial port, as they come; ends with the machine.
fn serial(child: &mut Child) -> Result<Receiver<String>, &'static str> {
    let output = child.stdout.take().ok_or("no serial port")?;
    let (to, lines) = channel();
    thread::spawn(move || {
        // Firmware writes bytes that are no text.
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if to
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    Ok(lines)
}

/// Some hosts have the device without a processor that could run a machine.
fn has_kvm() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processor
        .split_whitespace()
        .any(|flag| matches!(flag, "vmx" | "svm"))
        && File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_ok()
}
