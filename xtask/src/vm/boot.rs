//! Boots one machine in QEMU and reads its serial ports.

use std::error::Error;
use std::fs::{self, File};
use std::mem;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::kernels::Doctor;
use super::ports;
use super::report::MachineReport;
use super::sessions::Sessions;
use super::target::Target;
use crate::test_results::TestResults;

/// The longest time without a line on the serial ports, on a slow and busy host.
const MAX_SILENCE: Duration = Duration::from_secs(300);
/// The longest run of one machine, on a slow and busy host.
const MAX_RUN: Duration = Duration::from_secs(2400);

/// Prints the kernel's warnings on the second serial port (the first is that of the tests), and exits at a panic
/// without a reboot. CPU mitigations and cleared memory (`init_on_alloc`) cost time and protect nothing in a test
/// machine; the emulator also counts each iteration of a repeated string instruction, so that clearing a page for a file
/// name would add 500 instructions. `no_timer_check`: on a busy host the emulated timer is late, and the kernel takes it
/// for broken and panics ("IO-APIC + timer doesn't work").
const KERNEL_OPTIONS: &str =
    "console=ttyS1 loglevel=5 panic=-1 oops=panic mitigations=off init_on_alloc=0 no_timer_check";

/// The same for arm64, where the emulated board has one serial port: the tests have one on the PCI bus.
const ARM64_KERNEL_OPTIONS: &str =
    "console=ttyAMA0 loglevel=5 panic=-1 oops=panic mitigations=off init_on_alloc=0";

/// A CPU that runs 32-bit programs too, and has no pointer authentication, whose emulation is slow.
const ARM64_CPU: &str = "cortex-a72";

/// The dentry hash table gets 4 Mi buckets (32 MiB) instead of 128 Ki; a name in the bucket of a measured one costs each
/// later call 6 instructions.
const SAME_PATHS: &str = "dhash_entries=4194304";

/// Number of parts of the general sessions, `GENERAL` in `tests/vm/src/main.rs`. A machine that has another number
/// runs no test and fails.
pub(crate) const PARTS: usize = 4;

/// [`Machine::seed`] of a first boot.
pub(crate) const FIRST_SEED: u32 = 1;

const RACE_OPTIONS: &str = "vm.race";

/// SELinux enforces its policy; no other LSM is active.
const SELINUX_OPTIONS: &str = "lsm=selinux,bpf selinux=1 enforcing=1 vm.selinux";

const PANIC_OPTIONS: &str = "vm.panic";

/// Emulation is about 30% faster without these: five-level page tables, access checks of the kernel at each use of user
/// memory, string instructions byte by byte instead of by words, and vector instructions in the C library.
const EMULATED_CPU: &str = "max,la57=off,smap=off,smep=off,erms=off,avx=off,avx2=off";

/// As it was when the counts in `docs/instructions.md` were made.
const COUNTING_CPU: &str = "max,la57=off";

/// One CPU, emulated.
const COUNTING: ([&str; 4], [&str; 2]) = (["-accel", "tcg", "-cpu", COUNTING_CPU], ["-smp", "1"]);

const KVM: [&str; 4] = ["-accel", "kvm", "-cpu", "host"];

/// The purpose of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Most tests. One host thread emulates both CPUs in turn.
    General,
    /// Programs whose threads change the arguments of each other's calls. The CPUs run in parallel, and QEMU
    /// may hit the race that [`Machine::run`] documents.
    Race,
    /// SELinux denies accesses.
    Selinux,
    /// The kernel panics.
    Panic,
    /// Counts instructions: one CPU, whose clocks advance by a nanosecond with each instruction and skip idle
    /// time.
    Count,
}

impl Purpose {
    /// All, those of the longest machines first.
    pub(crate) const ALL: [Self; 5] = [
        Self::General,
        Self::Selinux,
        Self::Race,
        Self::Panic,
        Self::Count,
    ];
}

/// A machine to boot.
#[derive(Clone, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) target: Target,
    pub(crate) purpose: Purpose,
    /// The kernel's name, such as `6.12-full`: the label of its output.
    pub(crate) line: &'a str,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: PathBuf,
    /// Selects the tests; `Filter` in `tests/vm/src/machine.rs` has the forms.
    pub(crate) filter: String,
    /// The part of the general sessions to run, from 1; all without it.
    pub(crate) part: Option<usize>,
    /// More kernel options, which the first process reads.
    pub(crate) options: String,
    /// Selects the random numbers of a machine that counts; all boots with one seed are the same.
    pub(crate) seed: u32,
    /// Where a debugger can connect. Such a machine has one CPU, whose instructions are those of one that counts.
    pub(crate) debugger: Option<PathBuf>,
}

/// The end of a machine.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The results of its tests, labelled with the kernel.
    pub(crate) results: TestResults,
    pub(crate) counts: Counts,
    /// What `tollgate doctor` found.
    pub(crate) doctor: Option<Doctor>,
    pub(crate) sessions: Sessions,
    /// Whether it failed as a whole.
    pub(crate) is_broken: bool,
}

impl Machine<'_> {
    /// Boots the machine and prints a line for each test.
    ///
    /// QEMU before 8.1 may translate code while another CPU writes it, and then keeps running the old code (QEMU commit
    /// deba78709ae8). A kernel that attaches programs to functions patches its own code through `int3`: one of a few
    /// thousand attachments then ends in an unexpected `int3`. With one host thread for all CPUs the race cannot
    /// happen; a machine for races can hit it.
    ///
    /// # Errors
    /// If the emulator cannot be started.
    pub(crate) fn run(&self) -> Result<Ended, Box<dyn Error + Send + Sync>> {
        let started = Instant::now();
        let mut report = self.boot(started)?;
        let counts = mem::take(&mut report.counts);
        let doctor = mem::take(&mut report.doctor);
        let sessions = mem::take(&mut report.sessions);
        if let Some(json) = counts.json(self.line) {
            let file = format!("counts-{}.json", self.line);
            fs::write(self.initramfs.with_file_name(file), json)?;
        }
        let is_broken = report.is_broken();
        let results = self.finish(report);
        let tally = results.tally;
        let seconds = started.elapsed().as_secs_f64();
        println!("    {:<9} {tally} ({seconds:.1} s)", self.line);
        Ok(Ended {
            results,
            counts,
            doctor,
            sessions,
            is_broken,
        })
    }

    /// Prints failures outside of the tests; returns the results, labelled with the kernel.
    fn finish(&self, report: MachineReport) -> TestResults {
        let (mut results, shown) = report.finish();
        for line in shown {
            println!("    {:<9} {line}", self.line);
        }
        for line in results.failures.iter_mut().chain(&mut results.skips) {
            *line = format!("{} {line}", self.line);
        }
        results
    }

    /// Runs the machine from power on to power off.
    fn boot(&self, started: Instant) -> Result<MachineReport, Box<dyn Error + Send + Sync>> {
        let mut child = self.start()?;
        let mut report = MachineReport::default();
        let (tests, kernel) = (child.stdout.take(), child.stderr.take());
        let lines = ports::lines(tests.ok_or("no port")?, kernel.ok_or("no port")?);
        let outcome = loop {
            let left = MAX_RUN.saturating_sub(started.elapsed());
            match lines.recv_timeout(left.min(MAX_SILENCE)) {
                Ok(line) => {
                    if let Some(shown) = report.line(&line) {
                        println!("    {:<9} {shown}", self.line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if left <= MAX_SILENCE => {
                    break Some("timeout: the tests take too long");
                }
                Err(RecvTimeoutError::Timeout) => {
                    break Some("timeout: no output from the machine");
                }
            }
        };
        if let Some(reason) = outcome {
            report.stopped(reason);
            child.kill()?;
        }
        child.wait()?;
        Ok(report)
    }

    /// Starts the emulator, with the serial ports as its standard output and error.
    pub(super) fn start(&self) -> Result<Child, String> {
        let emulated = |accelerator| ["-accel", accelerator, "-cpu", EMULATED_CPU];
        let options = match self.purpose {
            Purpose::General if self.debugger.is_some() => SAME_PATHS,
            Purpose::General => "",
            Purpose::Race => RACE_OPTIONS,
            Purpose::Selinux => SELINUX_OPTIONS,
            Purpose::Panic => PANIC_OPTIONS,
            Purpose::Count => &format!("{SAME_PATHS} vm.count"),
        };
        let (accelerator, processors) = match self.purpose {
            Purpose::Count => COUNTING,
            Purpose::General if self.debugger.is_some() => COUNTING,
            Purpose::Race if has_kvm() => (KVM, ["-smp", "2"]),
            Purpose::Race => (emulated("tcg"), ["-smp", "2"]),
            // The engine's programs use per-CPU areas: a second CPU reveals sharing between CPUs.
            Purpose::General | Purpose::Selinux | Purpose::Panic if has_kvm() => {
                (KVM, ["-smp", "2"])
            }
            Purpose::General | Purpose::Selinux | Purpose::Panic => {
                (emulated("tcg,thread=single"), ["-smp", "2"])
            }
        };
        let part = self.part.map(|number| format!("vm.part={number}/{PARTS}"));
        let emulator = self.target.emulator();
        let mut command = Command::new(emulator);
        if self.purpose == Purpose::Count {
            command.args(["-icount", "shift=0,sleep=off"]);
            // The kernel randomizes its layout, and counts of two boots differ by a few. With the same
            // random numbers and date each boot is the same.
            command.args(["-seed", &self.seed.to_string()]);
            command.args(["-rtc", "base=2026-01-01,clock=vm"]);
        }
        if let Some(port) = &self.debugger {
            let port = port.display();
            command.args(["-gdb", &format!("unix:{port},server=on,wait=off")]);
        }
        let kernel_options = match self.target {
            Target::X86_64 => {
                command
                    .args(accelerator)
                    .args(processors)
                    .args(["-machine", "q35"])
                    .args(["-serial", "stdio", "-serial", "file:/proc/self/fd/2"]);
                KERNEL_OPTIONS
            }
            Target::Arm64 => {
                command
                    .args(["-accel", "tcg,thread=single", "-cpu", ARM64_CPU])
                    .args(["-smp", "2", "-machine", "virt"])
                    .args(["-serial", "file:/proc/self/fd/2"])
                    .args(["-chardev", "stdio,id=tests"])
                    .args(["-device", "pci-serial,chardev=tests"]);
                ARM64_KERNEL_OPTIONS
            }
        };
        command
            .args(["-m", "1024"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .args([
                "-append",
                &format!(
                    "{kernel_options} {options} vm.filter={} {} {}",
                    self.filter,
                    part.unwrap_or_default(),
                    self.options
                ),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {emulator}: {error}; see `make setup`"))
    }
}

/// Whether KVM works: some hosts have the device but no CPU support.
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
