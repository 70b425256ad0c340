//! Rule and configuration files with errors: auditing goes on with the last good ones, and everybody is told.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use nix::sys::signal::Signal;

use super::daemon::{CommandOutput, Daemon, MachineFiles, program};
use super::handover::Bpf;
use super::kernel_audit::{Lock, State, auditctl};
use super::log_settings::{SPACE, rmdir};
use super::test_dir::TestDir;

fn rule(test_dir: &TestDir, key: &str) -> String {
    let id = test_dir.id;
    format!("-a always,exit -F arch=b64 -S rmdir -F uid={id} -k {key}\n")
}

/// Starts a daemon that must exit before it is ready.
#[track_caller]
fn refused(files: &MachineFiles) -> CommandOutput {
    let output = CommandOutput::of(Command::new(program()).args(files.arguments()));
    assert!(!output.stderr.contains("tollgate: auditing"), "{output:?}");
    output
}

/// Keys of the events of rules in the log.
fn keys(daemon: &Daemon) -> Vec<String> {
    daemon.flush();
    let events = daemon.events().into_iter();
    let keys = events
        .filter(|event| event.all("SYSCALL").count() != 0)
        .filter_map(|event| event.key());
    keys.map(|key| key.to_string()).collect()
}

/// One metric.
#[track_caller]
fn metric(files: &MachineFiles, name: &str) -> String {
    let mut stream = UnixStream::connect(&files.metrics).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_default().to_owned()
}

pub(crate) fn last_good_rules_are_used_at_a_start() {
    let test_dir = TestDir::new();
    let good = "# why\n".to_owned() + &rule(&test_dir, "good");
    let files = MachineFiles::prepare(&test_dir, "-a always,exit -F arch=b64 -S opne\n");
    let first = refused(&files);
    assert_eq!(first.code, Some(1), "{first:?}");
    assert!(first.stderr.contains("nothing is attached"), "{first:?}");
    assert!(!files.state.exists(), "{first:?}");

    fs::write(&files.rules, &good).unwrap();
    let daemon = Daemon::start_from_files(&test_dir, "");
    assert!(daemon.status()["refused"].is_null());
    assert_eq!(daemon.show_status().code, Some(0));
    assert_eq!(metric(&files, "tollgate_files_refused"), "0");
    daemon.stop_with(Signal::SIGTERM);

    // A typing error, and a user that was removed.
    let wrong = [
        "-a always,exit -F arch=b64 -S opne\n",
        "-a always,exit -F arch=b64 -S rmdir -F uid=nosuchuser -k x\n",
    ];
    for wrong in wrong {
        fs::write(&files.rules, format!("{}{wrong}", rule(&test_dir, "new"))).unwrap();
        fs::remove_file(&files.log).unwrap();
        let daemon = Daemon::start_from_files(&test_dir, "");
        assert!(daemon.has_printed("starting with the last good rules: 1 rule,"));
        // The good text, with its comments, is there to compare with.
        let name = files
            .rules
            .to_str()
            .unwrap()
            .trim_start_matches('/')
            .replace('/', "-");
        let copy = files.state.join("last-good-files").join(name);
        assert_eq!(fs::read_to_string(&copy).unwrap(), good);
        assert!(daemon.has_printed(&format!(
            "diff {} {}",
            copy.display(),
            files.rules.display()
        )));
        assert!(daemon.has_printed("the rule files are refused"));
        test_dir.workload().run(&[rmdir()]);
        assert_eq!(keys(&daemon), ["good"], "{wrong}");
        let status = daemon.status();
        let reason = status["refused"]["reason"].as_str().unwrap();
        assert!(
            reason.contains(&format!("{}:2: ", files.rules.display())),
            "{reason}"
        );
        assert!(
            status["refused"]["last_good"].as_u64().unwrap() > 0,
            "{status}"
        );
        let shown = daemon.show_status();
        assert_eq!(shown.code, Some(3), "{shown:?}");
        assert!(shown.stdout.contains("\nREFUSED "), "{}", shown.stdout);
        assert!(
            shown.stdout.contains("in force: the last good rules"),
            "{}",
            shown.stdout
        );
        assert_eq!(metric(&files, "tollgate_files_refused"), "1");
        let log = fs::read_to_string(&files.log).unwrap();
        assert!(log.contains("op=add_rule res=0"), "{log}");

        // A refused reload changes nothing; corrected rules end the state.
        assert!(!daemon.replace(&format!("{}-x\n", rule(&test_dir, "new"))));
        assert!(daemon.status()["refused"]["last_good"].as_u64().is_some());
        assert!(daemon.replace(&good));
        assert!(daemon.status()["refused"].is_null());
        assert_eq!(daemon.show_status().code, Some(0));
        daemon.stop_with(Signal::SIGTERM);
    }
}

pub(crate) fn last_good_configuration_is_used_at_a_start() {
    let test_dir = TestDir::new();
    let files = MachineFiles::prepare(&test_dir, &rule(&test_dir, "good"));
    let toml = fs::read_to_string(&files.toml).unwrap();
    let conf = fs::read_to_string(&files.conf).unwrap();
    let daemon = Daemon::start_from_files(&test_dir, "");
    daemon.stop_with(Signal::SIGTERM);
    for (path, good, wrong) in [
        (&files.toml, &toml, "rulse = []\n"),
        (&files.conf, &conf, "flush = often\n"),
    ] {
        fs::write(path, format!("{good}{wrong}")).unwrap();
        let daemon = Daemon::start_from_files(&test_dir, "");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(daemon.has_printed(&format!("starting with the last good {name}")));
        let status = daemon.status();
        let reason = status["refused"]["reason"].as_str().unwrap();
        assert!(reason.contains(name), "{reason}");
        test_dir.workload().run(&[rmdir()]);
        daemon.flush();
        assert!(keys(&daemon).contains(&"good".to_owned()));
        if path == &files.toml {
            // A corrected file that has other settings than those in force is not in force.
            fs::write(path, format!("delay_ms = 20\n{good}")).unwrap();
            daemon.begin_to_replace(&rule(&test_dir, "good"));
            daemon.wait_for_line("rules replaced");
            super::harness::wait_for("the need for a restart", || {
                let status = daemon.status();
                let reason = status["refused"]["reason"].as_str().unwrap_or_default();
                reason.contains("need `systemctl restart").then_some(())
            });
        }
        fs::write(path, good).unwrap();
        daemon.begin_to_replace(&rule(&test_dir, "good"));
        daemon.wait_for_line("rules replaced");
        super::harness::wait_for("all files are in force", || {
            daemon.status()["refused"].is_null().then_some(())
        });
        daemon.stop_with(Signal::SIGTERM);
    }
    // Without a state directory the daemon does not start, as before.
    fs::write(&files.toml, "rulse = []\n").unwrap();
    fs::remove_dir_all(&files.state).unwrap();
    assert_eq!(refused(&files).code, Some(6));
}

/// One wrong file keeps all others from being applied, and settings that commands have changed are not those of files.
pub(crate) fn reload_applies_all_files_or_none() {
    let test_dir = TestDir::new();
    let old = rule(&test_dir, "old");
    let files = MachineFiles::prepare(&test_dir, &old);
    let conf = fs::read_to_string(&files.conf).unwrap();
    let daemon = Daemon::start_from_files(&test_dir, "");
    let log = || {
        test_dir.workload().run(&[rmdir()]);
        daemon.flush();
        fs::read_to_string(&files.log).unwrap()
    };
    fs::write(&files.conf, format!("{conf}flush = often\n")).unwrap();
    assert!(!daemon.replace(&rule(&test_dir, "new")));
    assert!(daemon.has_printed("the old rules stay in force, too: auditd.conf is refused"));
    assert!(daemon.status()["refused"]["reason"].as_str().is_some());
    assert!(log().contains("key=\"old\"") && !log().contains("key=\"new\""));
    fs::write(
        &files.conf,
        format!("{conf}name_format = user\nname = other\n"),
    )
    .unwrap();
    assert!(!daemon.replace("-x\n"));
    assert!(!log().contains("node=other"));
    assert!(daemon.auditctl(&["-e", "0"]).code == Some(0));
    assert!(daemon.replace(&rule(&test_dir, "new")));
    assert!(daemon.status()["refused"].is_null());
    assert_eq!(daemon.auditctl(&["-e", "1"]).code, Some(0));
    let text = log();
    assert!(
        text.contains("node=other type=SYSCALL") && text.contains("key=\"new\""),
        "{text}"
    );
    daemon.stop_with(Signal::SIGTERM);

    // `-e 0` was no setting of the files.
    fs::write(&files.rules, "-x\n").unwrap();
    let daemon = Daemon::start_from_files(&test_dir, "");
    assert!(daemon.has_printed("starting with the last good rules: 1 rule,"));
    let text = daemon.auditctl(&["-s"]).stdout;
    assert!(text.contains("enabled 1"), "{text}");
    daemon.stop_with(Signal::SIGTERM);
}

/// Rules without errors that the engine cannot load: `[on_loss]` needs another engine.
pub(crate) fn second_start_uses_the_last_good_rules() {
    let test_dir = TestDir::new();
    let files = MachineFiles::prepare(&test_dir, &rule(&test_dir, "good"));
    let toml = fs::read_to_string(&files.toml).unwrap() + "engine = \"tracepoint\"\n";
    fs::write(&files.toml, &toml).unwrap();
    Daemon::start_from_files(&test_dir, "").stop_with(Signal::SIGTERM);
    fs::write(&files.toml, format!("{toml}[on_loss]\ndeny = [\"good\"]\n")).unwrap();
    let failed = refused(&files);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed.stderr.contains("need the engine fentry"),
        "{failed:?}"
    );
    let daemon = Daemon::start_from_files(&test_dir, "");
    let status = daemon.status();
    let reason = status["refused"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("did not start with these rules"),
        "{reason}"
    );
    assert!(reason.contains("need the engine fentry"), "{reason}");
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["good"]);
    fs::write(&files.toml, &toml).unwrap();
    assert!(daemon.replace(&rule(&test_dir, "good")));
    assert!(daemon.status()["refused"].is_null());
    daemon.stop_with(Signal::SIGTERM);
}

/// `tollgate augenrules --load`, as `systemctl reload` runs it, tells whether the rules are in force.
pub(crate) fn reload_reports_refused_rules() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start_from_files(&test_dir, &rule(&test_dir, "old"));
    let files = MachineFiles::new(&test_dir);
    let directory = test_dir.own.join("rules.d");
    fs::create_dir(&directory).unwrap();
    let load = || {
        let mut command = Command::new(program());
        command.args(["augenrules", "--load", "--rules"]);
        command.arg(&directory).arg("--output").arg(&files.rules);
        CommandOutput::of(command.arg("--control").arg(&files.control))
    };
    let part = directory.join("10-a.rules");
    fs::write(&part, rule(&test_dir, "new")).unwrap();
    let loaded = load();
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["new"]);

    fs::write(&part, "-a always,exit -S opne\n").unwrap();
    let loaded = load();
    assert_eq!(loaded.code, Some(1), "{loaded:?}");
    for text in ["old ones stay in force", "opne", "tollgate check"] {
        assert!(loaded.stderr.contains(text), "{text}: {loaded:?}");
    }
    let status = daemon.status();
    assert!(
        status["refused"]["reason"]
            .as_str()
            .unwrap()
            .contains("opne"),
        "{status}"
    );
    assert!(status["refused"]["last_good"].is_null(), "{status}");
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["new", "new"]);

    // Without a directory, the rule file is written by hand.
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&files.rules, rule(&test_dir, "hand")).unwrap();
    assert_eq!(load().code, Some(0));
    assert!(daemon.status()["refused"].is_null());
    daemon.stop_with(Signal::SIGTERM);
    let gone = load();
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("no daemon listens"), "{gone:?}");
}

/// A key of `[on_loss] deny` that no rule has would turn off denial in silence.
pub(crate) fn denied_key_without_a_rule_is_refused() {
    let test_dir = TestDir::new();
    let files = MachineFiles::prepare(&test_dir, &rule(&test_dir, "good"));
    let toml = fs::read_to_string(&files.toml).unwrap();
    let deny = format!("{toml}[on_loss]\ndeny = [\"godo\"]\n");
    fs::write(&files.toml, &deny).unwrap();
    let first = refused(&files);
    assert_eq!(first.code, Some(1), "{first:?}");
    assert!(
        first.stderr.contains("no rule has the key `godo`"),
        "{first:?}"
    );
    let check = CommandOutput::of(
        Command::new(program())
            .args(["config", "check"])
            .arg(&files.toml),
    );
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(
        check.stdout.contains("no rule has the key `godo`"),
        "{check:?}"
    );

    // Auditing that was on stays on.
    fs::write(&files.toml, &toml).unwrap();
    let daemon = Daemon::start_from_files(&test_dir, "");
    fs::write(&files.toml, &deny).unwrap();
    assert!(!daemon.replace(&rule(&test_dir, "good")));
    assert!(daemon.has_printed("no rule has the key `godo`"));
    daemon.stop_with(Signal::SIGTERM);
    let daemon = Daemon::start_from_files(&test_dir, "");
    assert!(daemon.has_printed("starting with the last good rules"));
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["good"]);
    daemon.stop_with(Signal::SIGTERM);
}

/// One log has one writer.
pub(crate) fn log_has_one_writer() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rule(&test_dir, "one"));
    let start = |log: &str, control: &str| {
        let own = |name: &str| test_dir.own.join(name);
        let mut command = Command::new(program());
        command
            .args(["daemon", "--foreground", "--rules"])
            .arg(own("rules"));
        command
            .arg("--log")
            .arg(own(log))
            .arg("--control")
            .arg(own(control));
        CommandOutput::of(&mut command)
    };
    let second = start("audit.log", "second/control");
    assert_eq!(second.code, Some(1), "{second:?}");
    let expected = format!("is written by another daemon, process {}", daemon.pid());
    assert!(second.stderr.contains(&expected), "{second:?}");
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["one"]);
    // The kernel releases the lock of a killed daemon.
    daemon.kill();
    drop(daemon);
    let next = Daemon::start(&test_dir, &rule(&test_dir, "two"));
    let second = start("audit.log", "second/control");
    assert!(
        second.stderr.contains("is written by another daemon"),
        "{second:?}"
    );
    next.stop_with(Signal::SIGTERM);
    assert!(!test_dir.own.join(".audit.log.lock").exists());
}

/// Programs that a daemon left behind are named, with what to type.
pub(crate) fn status_without_a_daemon_names_the_pins() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let daemon = Daemon::start_pinned(&test_dir, &rule(&test_dir, "left"), &bpf.pins());
    let status = || {
        let mut command = Command::new(program());
        command.arg("status").arg("--control").arg(&daemon.control);
        CommandOutput::of(command.arg("--pins").arg(bpf.pins()))
    };
    assert_eq!(status().code, Some(0));
    daemon.signal(Signal::SIGQUIT);
    daemon.wait();
    let left = status();
    assert_eq!(left.code, Some(1), "{left:?}");
    let pinned = format!("are still attached, pinned in `{}`", bpf.pins().display());
    for text in [
        pinned.as_str(),
        "no daemon has read their events since 20",
        "systemctl start tollgate",
        "tollgate unpin",
        "no daemon listens",
    ] {
        assert!(left.stderr.contains(text), "{text}: {}", left.stderr);
    }
    let mut command = Command::new(program());
    command.args(["status", "--json", "--control"]);
    command.arg(&daemon.control).arg("--pins").arg(bpf.pins());
    let left = CommandOutput::of(&mut command);
    assert_eq!(left.code, Some(1), "{left:?}");
    let report: serde_json::Value = serde_json::from_str(&left.stdout).unwrap();
    assert_eq!(report["leftover"]["locked"], false, "{report}");
    assert!(
        report["leftover"]["attached"].as_u64() > Some(0),
        "{report}"
    );
    let unpin = [OsStr::new("unpin"), bpf.pins().as_os_str()].map(OsStr::to_owned);
    assert_eq!(
        CommandOutput::of(Command::new(program()).args(unpin)).code,
        Some(0)
    );
    assert!(!status().stderr.contains("still attached"));
}

/// The stock `auditctl` beside the daemon: its rules slow down every syscall, and its `-D` takes the daemon's rule.
pub(crate) fn rules_in_the_kernels_audit_are_reported() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let test_dir = TestDir::new();
    let log = test_dir.own.join("audit.log");
    let rules = rule(&test_dir, "beside");
    let conf = format!("{SPACE}log_format = RAW\n");
    let daemon = Daemon::start_with_messages(&test_dir, &rules, &log, &conf, "unicast");
    let state = |daemon: &Daemon| daemon.status()["kernel_audit"].clone();
    assert_eq!(state(&daemon)["slows_syscalls"], false);
    let stock = [
        "always,exit",
        "-F",
        "arch=b64",
        "-S",
        "rmdir",
        "-k",
        "stock",
    ];
    auditctl(&[&["-a"], stock.as_slice()].concat());
    let seen = state(&daemon);
    auditctl(&[&["-d"], stock.as_slice()].concat());
    assert_eq!(
        (&seen["rules"], &seen["slows_syscalls"]),
        (&1.into(), &true.into())
    );
    let wait_for_text =
        |text: &str| super::harness::wait_for(text, || daemon.has_printed(text).then_some(()));
    wait_for_text("the kernel's own audit is also active (enabled, 1 rule)");
    auditctl(&["-D"]);
    assert_eq!(State::ask().rules, ["No rules"]);
    assert_eq!(state(&daemon)["never_task"], false);
    assert_eq!(State::ask().rules, ["-a never,task"]);
    wait_for_text("loaded it again");
    assert_eq!(state(&daemon)["slows_syscalls"], false);
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
}

/// A daemon that replaces auditd takes the kernel's audit over once the rules of auditd are deleted there.
pub(crate) fn kernels_audit_is_taken_over_after_auditds_rules() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let test_dir = TestDir::new();
    auditctl(&[
        "-a",
        "always,exit",
        "-F",
        "arch=b64",
        "-S",
        "rmdir",
        "-k",
        "auditd",
    ]);
    let log = test_dir.own.join("audit.log");
    let rules = rule(&test_dir, "beside");
    let conf = format!("{SPACE}log_format = RAW\n");
    let daemon = Daemon::start_with_messages(&test_dir, &rules, &log, &conf, "unicast");
    let status = daemon.status();
    let left = State::ask().rules;
    auditctl(&["-D"]);
    assert_eq!(status["kernel_audit"]["slows_syscalls"], true);
    assert_eq!(left.len(), 1, "rules of others stay: {left:?}");
    // The answer has the state before the repair.
    daemon.status();
    assert_eq!(State::ask().rules, ["-a never,task"]);
    assert_eq!(State::ask().number("enabled"), 1);
    assert!(daemon.has_printed("this daemon took it over"));
    assert_eq!(daemon.status()["kernel_audit"]["slows_syscalls"], false);
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
}
