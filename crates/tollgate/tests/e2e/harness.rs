//! Runs the tests one after another with `libtest-mimic`.
//!
//! All tests share the hooks and the audit state of one machine, so they never run in parallel.

use std::any::Any;
use std::env;
use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::unistd::geteuid;
use support::event::AUSEARCH;
use support::wait;

use super::workload;

/// A test: its name, and its function, which panics on failure.
pub(crate) type Test = (&'static str, fn());

/// Builds the table of tests from their paths.
macro_rules! tests {
    ($($module:ident :: $test:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}
pub(crate) use tests;

/// The panic payload of a skipped test: the missing requirement.
struct Missing(String);

/// Location and text of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());
/// Duration of each test that ran.
static DURATIONS: Mutex<Vec<(Duration, &str)>> = Mutex::new(Vec::new());

/// Number of slowest tests listed at the end.
const SLOWEST: usize = 10;

/// Runs the tests that the command line selects, or the workload of a test.
pub(crate) fn main(tests: &'static [Test]) -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "workload") {
        return workload::main(&arguments[1..]);
    }
    let mut options = Arguments::from_args();
    options.test_threads = Some(1);
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or_default();
        *PANIC.lock().unwrap() = format!("{place}: {text}");
    }));
    let trials = tests
        .iter()
        .map(|&(name, test)| Trial::ignorable_test(name, move || run(name, test)));
    let conclusion = libtest_mimic::run(&options, trials.collect());
    let mut durations = std::mem::take(&mut *DURATIONS.lock().unwrap());
    durations.sort_unstable();
    for (duration, name) in durations.iter().rev().take(SLOWEST) {
        println!("{:6.1} s  {name}", duration.as_secs_f64());
    }
    conclusion.exit_code()
}

fn run(name: &'static str, test: fn()) -> Result<Completion, Failed> {
    let started = Instant::now();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        needs(geteuid().is_root(), "root: loading BPF programs takes it");
        needs(
            Path::new(AUSEARCH).exists(),
            "ausearch, of Debian's package auditd",
        );
        test();
    }));
    DURATIONS.lock().unwrap().push((started.elapsed(), name));
    let is_ci = env::var_os("CI").is_some_and(|value| value == "true");
    match outcome.map_err(missing) {
        Ok(()) => Ok(Completion::Completed),
        Err(Some(what)) if is_ci => {
            Err(format!("needs {what}; CI=true forbids skipped tests").into())
        }
        Err(Some(what)) => Ok(Completion::ignored_with(format!("needs {what}"))),
        // Cloned: printing can panic, which takes the lock.
        Err(None) => Err(PANIC.lock().unwrap().clone().into()),
    }
}

/// The missing requirement, if the test was skipped.
fn missing(payload: Box<dyn Any + Send>) -> Option<String> {
    payload.downcast::<Missing>().ok().map(|missing| missing.0)
}

/// Skips the test unless a requirement is met.
pub(crate) fn needs(present: bool, what: &str) {
    if !present {
        panic::panic_any(Missing(what.to_owned()));
    }
}

/// Skips the test unless programs that use auparse can be compiled.
pub(crate) fn needs_auparse() {
    needs(
        Path::new("/usr/include/auparse.h").exists(),
        "auparse.h, of Debian's package libauparse-dev",
    );
}

/// Polls until `ask` returns a value; panics after [`wait::PATIENCE`].
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    match wait::wait_for(what, || Ok(ask())) {
        Ok(answer) => answer,
        Err(error) => panic!("{error:#}"),
    }
}
