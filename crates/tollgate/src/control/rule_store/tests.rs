//! Requests to a rule store with a fake pipeline.

mod reload;

use audit::ids::Dialect;
use audit::plan::labels::SecurityModule;
use audit::rule::Command;
use audit::rule::auditctl::{CliRequest, arguments};
use tempfile::TempDir;

use super::*;
use crate::config::capture::tests::USUAL;
use crate::host::{Planner, ThisMachine};
use crate::sinks::audit_log::LogConfig;

/// Records what it was asked to do.
#[derive(Default)]
struct FakePipeline {
    /// Number of rules of each applied plan.
    plans: Vec<usize>,
    records: Vec<String>,
    /// Settings applied last.
    applied: Option<(u8, u8)>,
    /// Whether `-f 2` fails.
    cannot_panic: bool,
    /// The stored lock note.
    locked: Vec<u8>,
    /// Whether the log is locked.
    log_is_held: bool,
    /// Whether locking fails.
    cannot_lock: bool,
    /// Error of the next replacement.
    refuses: Option<&'static str>,
    lost: u64,
    /// Number of records at the last flush.
    flushed: usize,
    /// Whether flushing fails.
    slow: bool,
}

impl PipelineControl for FakePipeline {
    fn rule_costs(&self, plan: &Plan) -> RuleCosts {
        let kernel = engine::KernelFeatures::V5_15;
        RuleCosts::of(
            plan,
            &engine::explain(plan, engine::EngineKind::Tracepoint, kernel),
        )
    }

    fn replace_plan(&mut self, plan: Plan) -> anyhow::Result<()> {
        if let Some(why) = self.refuses {
            anyhow::bail!(why);
        }
        self.plans.push(plan.rules.len());
        Ok(())
    }

    fn lock_log(&mut self) -> anyhow::Result<LockedLogSettings> {
        self.log_is_held = true;
        Ok(LogConfig::plain("/log".into()).locked_settings())
    }

    fn unlock_log(&mut self) {
        self.log_is_held = false;
    }

    fn lock(&mut self, note: Vec<u8>) -> anyhow::Result<LockResult> {
        anyhow::ensure!(!self.cannot_lock, "no room for a note");
        self.locked = note;
        Ok(Err("this is a test".to_owned()))
    }

    fn apply_settings(&mut self, settings: &AuditSettings) -> anyhow::Result<()> {
        anyhow::ensure!(
            settings.failure != 2 || !self.cannot_panic,
            "no way to panic"
        );
        self.applied = Some((settings.enabled, settings.failure));
        Ok(())
    }

    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        let body = String::from_utf8(body).unwrap();
        // The author is the process that runs the tests.
        let told = body
            .split(' ')
            .filter(|word| {
                !["pid=", "uid=", "auid=", "ses="]
                    .iter()
                    .any(|name| word.starts_with(name))
            })
            .collect::<Vec<_>>();
        self.records.push(format!("{} {}", kind.0, told.join(" ")));
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.slow, "the disk is slow");
        self.flushed = self.records.len();
        Ok(())
    }

    fn fill_status(&mut self, status: &mut Status) -> anyhow::Result<()> {
        status.counts.lost = [("ring full".to_owned(), self.lost)].into();
        Ok(())
    }
}

pub(super) struct Daemon {
    store: RuleStore,
    engine: FakePipeline,
    directory: TempDir,
}

impl Daemon {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let lock = LockFile::locate(Some(&directory.path().join("control")), None).unwrap();
        Self {
            store: RuleStore::new(
                RuleList::default(),
                initial_settings(&[], 250),
                Planner::for_this_machine(vec![]),
                250,
                (USUAL, lock),
            ),
            engine: FakePipeline::default(),
            directory,
        }
    }

    /// The next daemon.
    fn restart(self) -> Self {
        let lock = self.store.lock.clone();
        let locked = lock.read().unwrap().unwrap();
        Self {
            store: RuleStore::restore(&locked, 250, lock).unwrap(),
            engine: FakePipeline::default(),
            ..self
        }
    }

    pub(super) fn ask(&mut self, request: Request) -> Answer {
        self.store.handle(author().peer, request, &mut self.engine)
    }

    fn change(&mut self, steps: &[Step], forgive_from: Option<usize>) -> Vec<StepOutcome> {
        let request = Request::Change {
            steps: steps.to_vec(),
            forgive_from,
        };
        match self.ask(request) {
            Answer::Changed(outcomes) => outcomes,
            answer => panic!("{answer:?}"),
        }
    }

    /// Executes one step and returns the errno of a refusal.
    fn step(&mut self, step: Step) -> Result<StepOutcome, Errno> {
        match self.change(&[step], None).remove(0) {
            StepOutcome::Refused(refusal) => Err(Errno::from_raw(refusal.errno)),
            outcome => Ok(outcome),
        }
    }

    /// Keys of the rules, in order.
    fn keys(&mut self) -> Vec<String> {
        let Answer::Rules(forms) = self.ask(Request::Rules) else {
            panic!("no rules");
        };
        let key = |form: &RuleJson| form.rule().unwrap().keys[0].to_string();
        forms.iter().map(key).collect()
    }

    pub(super) fn settings(&mut self) -> AuditSettings {
        match self.ask(Request::Status) {
            Answer::Status(status) => status.settings,
            answer => panic!("{answer:?}"),
        }
    }
}

fn author() -> Requester {
    Requester::from_peer(Peer {
        pid: std::process::id().cast_signed(),
        uid: 0,
    })
}

fn form(line: &str) -> RuleJson {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    match arguments(&words, Dialect::V4, &ThisMachine)
        .requests
        .as_slice()
    {
        [CliRequest::Command(Command::Add { rule, .. })] => RuleJson::new(rule),
        _ => panic!("{line}"),
    }
}

fn rule(key: &str) -> RuleJson {
    form(&format!("-a always,exit -F arch=b64 -S rmdir -k {key}"))
}

#[test]
fn rules_are_appended_prepended_and_deleted() {
    let mut daemon = Daemon::new();
    assert_eq!(daemon.step(Step::Append(rule("a"))), Ok(StepOutcome::Done));
    assert_eq!(daemon.step(Step::Append(rule("b"))), Ok(StepOutcome::Done));
    assert_eq!(daemon.step(Step::Prepend(rule("c"))), Ok(StepOutcome::Done));
    assert_eq!(daemon.keys(), ["c", "a", "b"]);
    assert_eq!(daemon.step(Step::Append(rule("a"))), Err(Errno::EEXIST));
    assert_eq!(daemon.step(Step::Delete(rule("a"))), Ok(StepOutcome::Done));
    assert_eq!(daemon.step(Step::Delete(rule("a"))), Err(Errno::ENOENT));
    let some = Step::DeleteAll(Some(JsonBytes::new(b"b")));
    assert_eq!(daemon.step(some), Ok(StepOutcome::Remaining(1)));
    assert_eq!(
        daemon.step(Step::DeleteAll(None)),
        Ok(StepOutcome::Remaining(0))
    );
    assert_eq!(daemon.engine.plans, [1, 2, 3, 2, 1, 0]);
    let last = daemon.engine.records.pop().unwrap();
    assert_eq!(last, "1305 op=remove_rule key=\"c\" list=4 res=1");
}

#[test]
fn refused_step_changes_nothing() {
    let mut daemon = Daemon::new();
    daemon.step(Step::Append(rule("a"))).unwrap();
    let wrong = serde_json::to_string(&rule("b")).unwrap();
    let wrong = serde_json::from_str(&wrong.replace("exit", "filesystem")).unwrap();
    assert_eq!(daemon.step(Step::Append(wrong)), Err(Errno::EINVAL));
    daemon.store.state.planner.modules = vec![SecurityModule::Selinux];
    let labelled = form("-a always,exit -S rmdir -F subj_type=x -k b");
    let outcomes = daemon.change(&[Step::Append(rule("c")), Step::Append(labelled)], None);
    let [StepOutcome::Done, StepOutcome::Refused(refusal)] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert_eq!(refusal.errno, Errno::EOPNOTSUPP as i32);
    assert!(refusal.reason.contains("subj_type"), "{refusal:?}");
    assert_eq!(daemon.keys(), ["a"]);
    daemon.engine.refuses = Some("the kernel is full");
    let request = Request::Change {
        steps: vec![Step::Append(rule("d"))],
        forgive_from: None,
    };
    let Answer::Refused(refusal) = daemon.ask(request) else {
        panic!("not refused");
    };
    assert_eq!(
        refusal,
        Refusal::with_reason(Errno::EIO, "the kernel is full")
    );
    assert_eq!(daemon.keys(), ["a"]);
    assert_eq!(daemon.engine.plans, [1]);
}

#[test]
fn change_is_atomic() {
    let steps = [
        Step::DeleteAll(None),
        Step::BacklogLimit(8192),
        Step::Append(rule("b")),
        Step::Append(rule("b")),
        Step::Append(rule("c")),
    ];
    let mut daemon = Daemon::new();
    daemon.step(Step::Append(rule("a"))).unwrap();
    let outcomes = daemon.change(&steps, None);
    assert_eq!(outcomes.len(), 4);
    assert_eq!(daemon.keys(), ["a"]);
    assert_eq!(daemon.settings().backlog_limit, 64);
    assert_eq!(daemon.engine.plans, [1], "nothing was put in force");

    assert_eq!(daemon.change(&steps, Some(3)).len(), 5);
    assert_eq!(daemon.keys(), ["b", "c"]);
    assert_eq!(daemon.settings().backlog_limit, 8192);
    assert_eq!(daemon.engine.plans, [1, 2], "all of it at once");
}

#[test]
fn disabled_audit_attaches_no_plan() {
    let mut daemon = Daemon::new();
    daemon.step(Step::Append(rule("a"))).unwrap();
    daemon.step(Step::Enabled(0)).unwrap();
    let told = daemon.engine.records.len();
    assert!(daemon.engine.records[told - 1].contains("audit_enabled=0 old=1"));
    daemon.step(Step::Append(rule("b"))).unwrap();
    assert_eq!(
        daemon.ask(Request::Message(JsonBytes::new(b"x"))),
        Answer::Done
    );
    assert_eq!(daemon.ask(Request::Trim), Answer::Done);
    assert_eq!(daemon.engine.records.len(), told);
    assert_eq!(daemon.engine.plans, [1, 0]);
    daemon.step(Step::Enabled(1)).unwrap();
    assert_eq!(daemon.engine.plans, [1, 0, 2]);
    assert!(daemon.engine.records[told].contains("audit_enabled=1 old=0"));
}

#[test]
fn locked_rules_persist_for_the_next_daemon() {
    let mut daemon = Daemon::new();
    for step in [
        Step::Append(rule("a")),
        Step::Prepend(rule("a")),
        Step::Append(rule("b")),
        Step::RateLimit(7),
        Step::Enabled(2),
    ] {
        daemon.step(step).unwrap();
    }
    for step in [
        Step::Append(rule("c")),
        Step::Delete(rule("a")),
        Step::DeleteAll(None),
        Step::Enabled(1),
        Step::Failure(2),
    ] {
        assert_eq!(daemon.step(step), Err(Errno::EPERM));
    }
    assert!(String::from_utf8_lossy(&daemon.engine.locked).contains("boot_id"));
    assert!(daemon.engine.log_is_held);
    let noted = daemon.store.lock.read().unwrap().unwrap();
    assert_eq!(
        noted.log,
        Some(LogConfig::plain("/log".into()).locked_settings())
    );
    let mut next = daemon.restart();
    assert_eq!(next.keys(), ["a", "a", "b"]);
    let settings = next.settings();
    assert_eq!((settings.enabled, settings.rate_limit), (2, 7));
    assert_eq!(next.step(Step::DeleteAll(None)), Err(Errno::EPERM));
    let mut files = RuleList::default();
    files.push(0, 1, form("-w /x -p w -k x").rule().unwrap());
    next.store
        .load(author(), (files, &[]), Planner::default(), &mut next.engine)
        .unwrap_err();
    assert_eq!(next.keys(), ["a", "a", "b"]);
    let told = next.engine.records.pop().unwrap();
    assert_eq!(told, "1305 op=remove_rule audit_enabled=2 res=0");
}

/// A failed lock undoes the whole change.
#[test]
fn failed_lock_leaves_nothing_half_applied() {
    let steps = [
        Step::DeleteAll(None),
        Step::Append(rule("b")),
        Step::Append(rule("c")),
        Step::Failure(0),
        Step::Enabled(2),
    ];
    let refused = |daemon: &mut Daemon| {
        let request = Request::Change {
            steps: steps.to_vec(),
            forgive_from: None,
        };
        match daemon.ask(request) {
            Answer::Refused(refusal) => refusal.reason,
            answer => panic!("{answer:?}"),
        }
    };
    let mut daemon = Daemon::new();
    daemon.step(Step::Append(rule("a"))).unwrap();
    let place = daemon.directory.path().join("locked");
    std::fs::create_dir(&place).unwrap();
    assert!(refused(&mut daemon).contains("was not written by tollgate"));
    assert!(!daemon.engine.log_is_held);
    std::fs::remove_dir(&place).unwrap();
    daemon.engine.cannot_lock = true;
    assert!(refused(&mut daemon).contains("no room for a note"));
    assert!(!daemon.engine.log_is_held);
    assert_eq!(daemon.engine.plans, [1, 2, 1, 2, 1]);
    assert_eq!(daemon.engine.applied, Some((1, 1)));
    assert_eq!(daemon.keys(), ["a"]);
    assert_eq!(daemon.settings().enabled, 1);
    assert_eq!(daemon.store.lock.read().unwrap(), None);
    // Equal rules are no change.
    daemon.step(Step::DeleteAll(None)).unwrap();
    daemon.step(Step::Append(rule("b"))).unwrap();
    assert_eq!(daemon.engine.plans, [1, 2, 1, 2, 1, 0, 1]);
}

#[test]
fn settings_are_limited_as_in_the_kernel() {
    let mut daemon = Daemon::new();
    for step in [
        Step::Enabled(3),
        Step::Failure(3),
        Step::BacklogWaitTime(600 * 250 + 1),
    ] {
        assert_eq!(daemon.step(step), Err(Errno::EINVAL));
    }
    let Ok(StepOutcome::Set(set)) = daemon.step(Step::BacklogWaitTime(600 * 250)) else {
        panic!("not set");
    };
    assert_eq!(set.backlog_wait_time, 150_000);
}

#[test]
fn lost_is_counted_from_the_last_reset() {
    let mut daemon = Daemon::new();
    daemon.engine.lost = 7;
    assert_eq!(daemon.settings().lost, 7);
    assert_eq!(daemon.ask(Request::ResetLost), Answer::Was(7));
    daemon.engine.lost = 9;
    assert_eq!(daemon.settings().lost, 2);
    let told = daemon.engine.records.pop().unwrap();
    assert_eq!(told, "1305 op=set lost=0 old=7 res=1");
}

/// # Source
/// `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12, of `AUDIT_STATUS_BACKLOG_WAIT_TIME_ACTUAL`.
#[test]
fn reset_of_the_backlog_wait_time_is_recorded() {
    let mut daemon = Daemon::new();
    assert_eq!(daemon.ask(Request::ResetBacklogWait), Answer::Was(0));
    let told = daemon.engine.records.pop().unwrap();
    assert_eq!(told, "1305 op=set backlog_wait_time_actual=0 old=0 res=1");
}

#[test]
fn user_messages_are_validated_and_recorded() {
    let mut daemon = Daemon::new();
    let request = Request::Message(JsonBytes::new(b"text=it's res=success"));
    assert_eq!(daemon.ask(request.clone()), Answer::Done);
    assert_eq!(daemon.engine.flushed, 1, "who searches at once finds it");
    let told = daemon.engine.records.pop().unwrap();
    assert_eq!(told, "1005 msg='text=it's res=success'");
    for text in [&b"a\nb"[..], b"\xff", &[b'x'; 9000]] {
        let answer = daemon.ask(Request::Message(JsonBytes::new(text)));
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    daemon.engine.slow = true;
    for request in [Request::Flush, request] {
        let Answer::Refused(refusal) = daemon.ask(request) else {
            panic!("flushed");
        };
        assert_eq!(refusal.reason, "the disk is slow");
    }
}

#[test]
fn rule_files_set_initial_settings() {
    let commands = [
        Command::Backlog(8192),
        Command::Enabled(2),
        Command::Failure(2),
        Command::LoginuidImmutable,
    ];
    let settings = initial_settings(&commands, 250);
    let found = (settings.enabled, settings.failure, settings.backlog_limit);
    assert_eq!(found, (2, 2, 8192));
    assert_eq!(settings.backlog_wait_time, 15_000);
}

#[test]
fn failed_settings_are_rolled_back() {
    let mut daemon = Daemon::new();
    daemon.step(Step::Failure(0)).unwrap();
    assert_eq!(daemon.engine.applied, Some((1, 0)));
    daemon.engine.cannot_panic = true;
    let request = Request::Change {
        steps: vec![Step::Failure(2)],
        forgive_from: None,
    };
    let Answer::Refused(refusal) = daemon.ask(request) else {
        panic!("it was not refused");
    };
    assert!(refusal.reason.contains("no way to panic"), "{refusal:?}");
    assert_eq!(daemon.store.state.settings.failure, 0);
    daemon.step(Step::Enabled(0)).unwrap();
    assert_eq!(daemon.engine.applied, Some((0, 0)));
}
