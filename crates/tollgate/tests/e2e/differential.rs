//! Tollgate's records of a workload equal those of the kernel's audit, except for the differences in
//! `tests/differential/known.toml`.

use support::compare::{Comparison, compare_all};
use support::permitted::{Permitted, Setting};

use super::daemon::Daemon;
use super::event::Event;
use super::harness::needs;
use super::kernel_audit::{KernelAudit, Lock};
use super::scenario;
use super::test_dir::TestDir;

pub(crate) fn kernel_and_tollgate_agree() {
    let lock = Lock::take();
    let test_dir = TestDir::new();
    scenario::prepare(&test_dir);
    let rules = scenario::rules(&test_dir);
    let kernel = KernelAudit::start(&lock, &test_dir, &rules);
    let daemon = Daemon::start(&test_dir, &rules);
    scenario::run(&test_dir);
    let ours = daemon.stop().events.clone();
    let mut theirs = kernel.stop();
    theirs.retain(|event| scenario::holds(&test_dir, event));
    drop(lock);

    needs(!theirs.is_empty(), "a kernel audit that sends events");
    expect_permitted("daemon", &theirs, &ours);
}

/// Fails if a difference is not permitted in this test, or a permitted difference does not occur.
#[track_caller]
pub(crate) fn expect_permitted(test: &str, theirs: &[Event], ours: &[Event]) -> Comparison {
    let setting = Setting {
        test,
        line: "host",
        engine: "tracepoint",
    };
    let mut permitted = Permitted::records(setting).unwrap();
    let comparison = compare_all(theirs, ours);
    let mut unknown = Vec::new();
    for pair in &comparison.pairs {
        let before = unknown.len();
        for difference in &pair.differences {
            if !permitted.permits_difference(difference) {
                unknown.push(difference.to_string());
            }
        }
        if unknown.len() > before {
            unknown.extend(pair.text.iter().cloned());
        }
    }
    let unused = permitted.uses().filter(|(uses, _)| *uses == 0);
    unknown.extend(unused.map(|(_, entry)| format!("permitted but not seen: {}", entry.summary())));
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    comparison
}
