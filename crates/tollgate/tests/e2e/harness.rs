//! Runs the tests one after another and says how each ended.
//!
//! The tests share one machine, whose hooks and audit state are one for all: there is nothing to be
//! won by running two at a time.

use std::any::Any;
use std::env;
use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::unistd::geteuid;

use super::workload;

/// A test: its name and what it does. It fails by panicking.
pub(crate) type Test = (&'static str, fn());

/// Makes the table of tests, so that no name is written twice.
macro_rules! tests {
    ($($module:ident :: $test:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}
pub(crate) use tests;

/// What a test panics with when something that it needs is missing from the machine.
struct Missing(String);

/// Where the panic that ended a test came from, and what it said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Runs the tests that the command line names, or is the workload of one.
pub(crate) fn main(tests: &[Test]) -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "workload") {
        return workload::main(&arguments[1..]);
    }
    let wanted: Vec<String> = arguments
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned())
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let strict = env::var_os("CI").is_some_and(|value| value == "true");

    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or_default();
        *PANIC.lock().unwrap() = format!("{place}: {text}");
    }));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in tests.iter().filter(|(name, _)| is_wanted(name)) {
        let started = Instant::now();
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            needs(geteuid().is_root(), "root: loading BPF programs takes it");
            needs(
                Path::new(super::event::AUSEARCH).exists(),
                "ausearch, of Debian's package auditd",
            );
            test();
        }));
        let seconds = started.elapsed().as_secs_f64();
        match outcome.map_err(missing) {
            Ok(()) => {
                passed += 1;
                println!("ok    {seconds:5.1} s  {name}");
            }
            Err(Some(what)) if !strict => {
                skipped += 1;
                println!("skip  {seconds:5.1} s  {name}: needs {what}");
            }
            Err(Some(what)) => {
                failed += 1;
                println!(
                    "FAIL  {seconds:5.1} s  {name}: needs {what}, and CI=true forbids to skip"
                );
            }
            Err(None) => {
                failed += 1;
                // Copied: what keeps a line from being shown is a panic, too.
                let said = PANIC.lock().unwrap().clone();
                println!("FAIL  {seconds:5.1} s  {name}\n{said}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What was missing, when that is why a test ended.
fn missing(payload: Box<dyn Any + Send>) -> Option<String> {
    payload.downcast::<Missing>().ok().map(|missing| missing.0)
}

/// Skips the test unless the machine has what it needs.
pub(crate) fn needs(present: bool, what: &str) {
    if !present {
        panic::panic_any(Missing(what.to_owned()));
    }
}

/// Skips the test unless programs can be made that use auparse.
pub(crate) fn needs_auparse() {
    needs(
        Path::new("/usr/include/auparse.h").exists(),
        "auparse.h, of Debian's package libauparse-dev",
    );
}

/// Asks until the answer is there; fails when that takes more than ten seconds.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        poll(&mut [], PollTimeout::from(5_u8)).unwrap();
    }
}
