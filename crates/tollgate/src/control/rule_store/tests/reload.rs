//! Reloading of rule files.

use bstr::BString;

use super::{Daemon, author};
use crate::rule_files::{RULES_UNCHANGED, RuleFile, RuleFiles, compile};

impl Daemon {
    /// Reloads a rule file with these lines.
    fn load(&mut self, lines: &str) -> anyhow::Result<()> {
        let deny = self.store.planner().denies().to_vec();
        self.load_denying(lines, deny)
    }

    fn load_denying(&mut self, lines: &str, deny: Vec<BString>) -> anyhow::Result<()> {
        let files = vec![RuleFile::parse("rules".into(), lines.into())];
        let planner = self.store.planner().denying(deny);
        let listing = compile(RuleFiles { files }, false, &planner, RULES_UNCHANGED).unwrap();
        let asked = (listing.rules, listing.settings.as_slice());
        self.store.load(author(), asked, planner, &mut self.engine)
    }
}

/// `SIGHUP` has the effect of `auditctl -R` with the same file, and writes the same records.
#[test]
fn reload_applies_settings_of_rule_files() {
    let mut daemon = Daemon::new();
    let rule = |key: &str| format!("-a always,exit -F arch=b64 -S rmdir -k {key}\n");
    daemon
        .load(&format!("{}{}-r 5\n", rule("a"), rule("b")))
        .unwrap();
    let told = daemon.engine.records.len();
    daemon
        .load(&format!(
            "-D\n-b 111\n-f 2\n--backlog_wait_time 4000000\n{}",
            rule("c")
        ))
        .unwrap();
    assert_eq!(daemon.keys(), ["c"]);
    let settings = daemon.settings();
    let found = (
        settings.failure,
        settings.backlog_limit,
        settings.rate_limit,
    );
    assert_eq!(found, (2, 111, 5), "what is not named stays as it is");
    assert_eq!(settings.backlog_wait_time, 150_000);
    assert_eq!(daemon.engine.applied, Some((1, 2)));
    let expected = [
        "1305 op=set audit_backlog_limit=111 old=64 res=1",
        "1305 op=set audit_failure=2 old=1 res=1",
        "1305 op=set audit_backlog_wait_time=150000 old=15000 res=1",
        "1305 op=remove_rule key=\"a\" list=4 res=1",
        "1305 op=remove_rule key=\"b\" list=4 res=1",
        "1305 op=add_rule key=\"c\" list=4 res=1",
    ];
    assert_eq!(daemon.engine.records[told..], expected);

    // A failed reload changes nothing.
    let told = daemon.engine.records.len();
    daemon.engine.refuses = Some("the kernel is full");
    daemon.load(&format!("-r 7\n{}", rule("d"))).unwrap_err();
    daemon.engine.refuses = None;
    assert_eq!(
        (daemon.settings().rate_limit, daemon.keys()),
        (5, vec!["c".to_owned()])
    );
    assert_eq!(daemon.engine.records.len(), told);
    let Daemon { store, engine, .. } = &mut daemon;
    store.record_failed_load(&author(), engine);
    let last = daemon.engine.records.pop().unwrap();
    assert_eq!(last, "1305 op=add_rule res=0");

    daemon.load(&format!("-e 0\n{}", rule("d"))).unwrap();
    let last = daemon.engine.records.pop().unwrap();
    assert_eq!(last, "1305 op=set audit_enabled=0 old=1 res=1");
    assert_eq!(daemon.engine.plans, [2, 1, 0]);

    // The lock comes last, wherever it is in the file.
    daemon.load(&format!("-e 2\n-r 9\n{}", rule("e"))).unwrap();
    let settings = daemon.settings();
    assert_eq!((settings.enabled, settings.rate_limit), (2, 9));
    daemon.load(&rule("f")).unwrap_err();
    let Daemon { store, engine, .. } = &mut daemon;
    store.record_failed_load(&author(), engine);
    let last = daemon.engine.records.pop().unwrap();
    assert_eq!(last, "1305 op=add_rule audit_enabled=2 res=0");
    assert_eq!(daemon.restart().keys(), ["e"]);
}

#[test]
fn reload_replaces_plan_when_denied_keys_change() {
    let mut daemon = Daemon::new();
    let rule = "-a always,exit -F arch=b64 -S rmdir -k a\n";
    daemon.load(rule).unwrap();
    daemon.load(rule).unwrap();
    assert_eq!(daemon.engine.plans, [1], "they are in force");
    daemon.load_denying(rule, vec!["a".into()]).unwrap();
    assert_eq!(daemon.engine.plans, [1, 1]);
}
