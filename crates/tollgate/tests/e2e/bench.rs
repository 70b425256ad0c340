//! `tollgate bench`: every case works, and the machine's state is restored however a run ends.
//!
//! Runs are too short for meaningful figures; the figures are not checked.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::daemon::program;
use super::harness::{needs, wait_for};
use super::kernel_audit::{KernelAudit, Lock, State, auditctl};
use super::test_dir::TestDir;

/// Cases, and the programs they need.
const CASES: [(&str, &[&str]); 12] = [
    ("syscalls", &[]),
    ("fio", &["fio"]),
    ("uring", &[]),
    ("sysbench", &["sysbench"]),
    ("redis", &["redis-benchmark", "redis-check-rdb"]),
    ("loader", &[]),
    ("delay", &[]),
    ("pressure", &[]),
    ("idle", &[]),
    ("rules", &[]),
    ("burst", &[]),
    ("run", &["strace"]),
];

/// The program of Debian's package chromium-headless-shell.
const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";

/// The state that a benchmark must restore.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    audit: State,
    directories: Vec<String>,
}

impl Machine {
    #[track_caller]
    fn look(test_dir: &TestDir) -> Self {
        Self {
            audit: State::ask(),
            directories: left(&test_dir.work),
        }
    }
}

/// Directories of benchmarks below another one.
fn left(base: &Path) -> Vec<String> {
    fs::read_dir(base)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("tollgate-bench-"))
        .collect()
}

fn bench(test_dir: &TestDir, words: &[&str]) -> Command {
    // It is installed beside tollgate.
    let mut command = Command::new(program());
    command.arg("bench");
    // User nobody must be able to enter its directory.
    command
        .args(words)
        .env("TMPDIR", &test_dir.work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn is_there(program: &str) -> bool {
    ["/usr/bin", "/usr/sbin"]
        .iter()
        .any(|directory| Path::new(directory).join(program).exists())
}

/// Runs every case with every state, and checks the page in a browser.
pub(crate) fn every_case_runs_and_is_reported() {
    let lock = Lock::take();
    for (case, programs) in CASES {
        for program in programs {
            needs(
                is_there(program),
                &format!("{program}, for the case {case}"),
            );
        }
    }
    needs(
        Path::new(CHROMIUM).exists(),
        "chromium-headless-shell, of Debian's package of that name",
    );
    let test_dir = TestDir::new();
    let before = Machine::look(&test_dir);
    let (json, html) = (
        test_dir.own.join("report.json"),
        test_dir.own.join("report.html"),
    );
    let output = bench(&test_dir, &["--brief", "--runs", "1"])
        .arg("--json")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .arg("--out")
        .arg(&test_dir.own)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(Machine::look(&test_dir), before);
    drop(lock);

    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let mut samples = 0;
    for (case, _) in CASES {
        let found = report["cases"].as_array().unwrap().iter();
        let measured = found.into_iter().find(|found| found["name"] == case);
        let measured = measured.unwrap_or_else(|| panic!("{case} is missing: {said}"));
        for figure in measured["figures"].as_array().unwrap() {
            for variant in figure["variants"].as_array().unwrap() {
                let taken = variant["samples"].as_array().unwrap();
                assert_eq!(taken.len(), 1, "{case}: {variant}");
                samples += 1;
            }
        }
    }
    assert!(
        fs::read_to_string(test_dir.own.join("report.md"))
            .unwrap()
            .contains("\n## burst\n")
    );
    assert!(test_dir.own.join("overhead.svg").exists());
    looks_right(&test_dir, &fs::read_to_string(&html).unwrap(), samples);
}

/// A workload of eAudit with a stand-in for eAudit, and without the kernel's audit.
pub(crate) fn a_case_of_peers_runs_beside_eaudit() {
    let _lock = Lock::take();
    let test_dir = TestDir::new();
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/tests/eaudit/eauditd.py");
    fs::copy(stand_in, test_dir.own.join("eauditd.py")).unwrap();
    fs::write(test_dir.own.join("ecapd.so"), "").unwrap();
    let before = Machine::look(&test_dir);
    let json = test_dir.own.join("report.json");
    let words = [
        "readwrite2",
        "--brief",
        "--runs",
        "1",
        "--against",
        "tollgate",
    ];
    let output = bench(&test_dir, &words)
        .arg("--eaudit")
        .arg(&test_dir.own)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(Machine::look(&test_dir), before);
    assert_eq!(left(Path::new("/dev/shm")), [""; 0]);

    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let figures = report["cases"][0]["figures"].as_array().unwrap();
    let sample = |figure: &str, variant: &str| {
        let figure = figures.iter().find(|one| one["name"] == figure).unwrap();
        let mut variants = figure["variants"].as_array().unwrap().iter();
        let found = variants.find(|one| one["name"] == variant);
        found.unwrap_or_else(|| panic!("{variant}: {figure}"))["samples"][0].clone()
    };
    assert!(sample("time", "off").as_f64() > Some(0.0));
    // Two tasks read and write ten bytes; what else they do is recorded too.
    assert!(sample("recorded", "tollgate").as_f64() >= Some(40.0));
    assert_eq!(sample("lost", "tollgate"), 0.0);
    let of_eaudit = ["recorded", "log", "lost"].map(|name| sample(name, "eaudit"));
    assert_eq!(of_eaudit, [10.0, 17.0, 3.0]);
}

/// Lets Chromium lay out the page and measure it.
#[track_caller]
fn looks_right(test_dir: &TestDir, html: &str, samples: usize) {
    assert!(!html.contains("<script"));
    // The page forbids scripts; the copy that measures itself allows them.
    let (head, _) = html.split_once("<meta http-equiv").unwrap();
    let (_, rest) = html.split_once("<title>tollgate bench").unwrap();
    let probe = "<script>
        const box = e => e.getBoundingClientRect();
        const outside = [...document.querySelectorAll('svg')].flatMap(svg => {
            const all = box(svg);
            return [...svg.querySelectorAll('text, circle, rect')].filter(e => {
                const own = box(e);
                return own.left < all.left - 1 || own.right > all.right + 1
                    || own.top < all.top - 1 || own.bottom > all.bottom + 1;
            });
        });
        const flat = [...document.querySelectorAll('svg text, svg circle, svg rect')]
            .filter(e => box(e).width === 0 || box(e).height === 0);
        const clash = [...document.querySelectorAll('g.series')].filter(g =>
            box(g.querySelector('.name')).right > box(g.querySelector('.value')).left);
        const result = document.createElement('pre');
        result.id = 'measured';
        result.textContent = [document.querySelectorAll('svg').length,
            document.querySelectorAll('circle').length, outside.length, flat.length,
            clash.length, document.querySelectorAll('table').length].join(' ');
        document.body.append(result);
    </script></body>";
    let page = format!("{head}<title>tollgate bench{rest}").replace("</body>", probe);
    let file = test_dir.own.join("probe.html");
    fs::write(&file, page).unwrap();
    let output = Command::new(CHROMIUM)
        .args(["--no-sandbox", "--disable-gpu", "--window-size=1200,900"])
        .arg(format!(
            "--user-data-dir={}",
            test_dir.own.join("browser").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let measured = dom
        .split_once("<pre id=\"measured\">")
        .and_then(|(_, rest)| rest.split_once('<'))
        .map(|(measured, _)| measured.split(' ').collect::<Vec<_>>());
    let Some(measured) = measured else {
        panic!(
            "no measured page: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let [charts, dots, outside, flat, clash, tables] = measured[..] else {
        panic!("{measured:?}");
    };
    assert_eq!(dots, samples.to_string(), "a dot for each sample");
    assert!(charts.parse::<usize>().unwrap() >= CASES.len(), "{charts}");
    assert_eq!(
        (outside, flat, clash),
        ("0", "0", "0"),
        "outside, flat, clash"
    );
    // One for each case, and the summary; a brief run has no goals.
    assert_eq!(tables, (CASES.len() + 1).to_string(), "tables");
}

/// Starts a benchmark in its own process group; returns when it has reached this case and this state of the
/// kernel's audit.
#[track_caller]
fn start(test_dir: &TestDir, cases: &[&str], enabled: &str) -> Child {
    let mut words = vec!["--brief", "--runs", "50"];
    words.extend(cases);
    let mut child = bench(test_dir, &words).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next().expect("it ends before it measures").unwrap();
        if line.contains("run 1 of 50") {
            break;
        }
    }
    // The pipe closes: that must not keep the benchmark from restoring the state.
    drop(lines);
    let wanted = format!("enabled {enabled}\n");
    wait_for("that state", || {
        auditctl(&["-s"]).starts_with(&wanted).then_some(())
    });
    child
}

/// A rule loaded before the benchmark, which must be restored.
struct Foreign;

impl Foreign {
    fn load() -> Self {
        auditctl(&[
            "-a",
            "never,exit",
            "-F",
            "arch=b64",
            "-S",
            "getrandom",
            "-F",
            "uid=4242",
            "-k",
            "foreign",
        ]);
        auditctl(&["-b", "777"]);
        Self
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        auditctl(&["-D"]);
        auditctl(&["-b", "64"]);
    }
}

/// Signals at three moments: without auditing, with tollgate, and with the kernel's audit.
pub(crate) fn interrupted_run_restores_state() {
    let _lock = Lock::take();
    let test_dir = TestDir::new();
    let _foreign = Foreign::load();
    let before = Machine::look(&test_dir);
    for (signal, case, enabled) in [
        (Signal::SIGINT, "syscalls", "1"),
        (Signal::SIGTERM, "burst", "1"),
        (Signal::SIGHUP, "redis", "0"),
        (Signal::SIGQUIT, "loader", "0"),
    ] {
        let mut child = start(&test_dir, &[case], enabled);
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal as i32), "{case}");
        assert_eq!(Machine::look(&test_dir), before, "{signal} in {case}");
    }
}

/// The supervisor process, which restores the state.
fn restorer(child: &Child) -> Pid {
    let id = child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let restorer = children.split_whitespace().find(|child| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap();
        words.ends_with(b"\0--restorer\0")
    });
    Pid::from_raw(restorer.expect("no restorer").parse().unwrap())
}

/// If its process group is killed, a process of another session restores the state.
pub(crate) fn killed_run_is_restored_at_once() {
    let _lock = Lock::take();
    let test_dir = TestDir::new();
    let _foreign = Foreign::load();
    let before = Machine::look(&test_dir);
    let mut child = start(&test_dir, &["syscalls"], "1");
    assert_ne!(Machine::look(&test_dir), before);
    kill(Pid::from_raw(-child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    wait_for("the state before", || {
        (Machine::look(&test_dir) == before).then_some(())
    });
}

/// The next run restores the state after a run and its restorer were killed; `--restore` does too.
pub(crate) fn killed_run_is_restored_later() {
    let _lock = Lock::take();
    let test_dir = TestDir::new();
    let _foreign = Foreign::load();
    let before = Machine::look(&test_dir);
    for words in [
        &["--restore"][..],
        &["uring", "--brief", "--runs", "1", "--against", "tollgate"],
    ] {
        let mut child = start(&test_dir, &["syscalls"], "1");
        kill(restorer(&child), Signal::SIGKILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(Machine::look(&test_dir), before, "it was killed too late");
        let output = bench(&test_dir, words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("an earlier benchmark was killed"), "{said}");
        assert_eq!(Machine::look(&test_dir), before, "{words:?}");
    }
}

/// The state saved by a killed benchmark is older than the rules of a running `auditd`.
pub(crate) fn running_auditd_keeps_its_rules() {
    const NOTE: &str = "/run/tollgate-bench.json";
    let lock = Lock::take();
    let test_dir = TestDir::new();
    let note = format!(
        "{{\"work\":\"{}\",\"audit\":{{\"enabled\":0,\"failure\":1,\"rate_limit\":0,\"backlog_limit\":64,\
         \"backlog_wait_time\":15000,\"rules\":[]}}}}",
        test_dir.own.join("gone").display()
    );
    let rules = "-a always,exit -F arch=b64 -S rmdir -F uid=4242 -k today\n";
    let audit = KernelAudit::start(&lock, &test_dir, rules);
    let before = State::ask();
    fs::write(NOTE, &note).unwrap();
    let output = bench(&test_dir, &["--restore"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let (now, left) = (State::ask(), fs::read_to_string(NOTE).unwrap());
    drop(audit);
    let later = bench(&test_dir, &["--restore"]).output().unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("an audit daemon is running"), "{said}");
    assert_eq!(now, before);
    assert_eq!(left, note, "it is for later");
    assert!(later.status.success(), "{later:?}");
    State::unused(&lock);
}
