//! One machine, from power on to power off.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Report;
use crate::step::Tally;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Longer than any test may take.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// Longer than all of them take on a slow and busy host.
const LONGEST_RUN: Duration = Duration::from_secs(300);

/// Makes warnings of the kernel visible and its end an end: no reboot, no waiting. Mitigations of
/// processor bugs cost time and protect nobody here.
const KERNEL_OPTIONS: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off";

/// What to boot.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    /// What its output is labelled with.
    pub(crate) line: &'a str,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// Only tests whose name holds this.
    pub(crate) filter: &'a str,
}

impl Machine<'_> {
    /// Boots it, prints a line for each test, and counts them.
    ///
    /// # Errors
    /// When the emulator cannot be started.
    pub(crate) fn run(&self) -> Result<Tally, Box<dyn Error>> {
        let started = Instant::now();
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
        let (tally, troubles) = report.finish();
        for trouble in troubles {
            println!("    {:<5} {trouble}", self.line);
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("    {:<5} {tally} ({seconds:.1} s)", self.line);
        Ok(tally)
    }

    fn start(&self) -> Result<Child, String> {
        // Programs of the engine share areas of one processor each: two show when they do not.
        let (accelerator, processor) = if has_kvm() {
            ("kvm", "host")
        } else {
            // Page tables of five levels only make emulation slower.
            ("tcg", "max,la57=off")
        };
        Command::new(QEMU)
            .args(["-accel", accelerator, "-cpu", processor])
            .args(["-machine", "q35", "-smp", "2", "-m", "1024"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args([
                "-append",
                &format!("{KERNEL_OPTIONS} vm.filter={}", self.filter),
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
