//! The reducer and the screens, from a fixture: two states of a daemon and the events in between.
//!
//! Expected screens are in `tests/golden/top`, and `docs/top.svg` is one of them; `make golden` rewrites both.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use crate::batch::lines;
use crate::control::Filter;
use crate::event::SeenEvent;
use crate::model::{Model, RuleOrder};
use crate::status::{RuleCosts, Status};
use crate::stream::Sample;
use crate::ui::{Action, Panel, Ui};
use crate::users::Users;
use crate::view;

const SECOND: Duration = Duration::from_secs(1);
const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);

/// Key, rule, cost and number of syscalls.
const RULES: [(&str, &str, &str, u64); 6] = [
    (
        "identity",
        "-w /etc/shadow -p rwa -k identity",
        "medium",
        68,
    ),
    (
        "exec",
        "-a always,exit -F arch=b64 -S execve,execveat -F key=exec",
        "low",
        2,
    ),
    (
        "delete",
        "-a always,exit -F arch=b64 -S rename,unlink,rmdir,renameat,unlinkat -F auid>=1000 -F auid!=-1 -F key=delete",
        "low",
        5,
    ),
    (
        "time-change",
        "-a always,exit -F arch=b64 -S settimeofday,adjtimex,clock_settime -F key=time-change",
        "low",
        3,
    ),
    (
        "access",
        "-a always,exit -F arch=b64 -S open,openat,truncate -F exit=-EACCES -F key=access",
        "medium",
        3,
    ),
    (
        "",
        "-a always,exit -F arch=b64 -S init_module,finit_module",
        "low",
        2,
    ),
];

fn status(seconds: u64, matched: [u64; 6], lost: u64) -> Status {
    let rules = RULES
        .iter()
        .zip(matched)
        .filter(|(_, matched)| *matched != 0);
    let by_rule: Vec<Value> = rules
        .map(|((key, rule, ..), matched)| {
            let lost = if *key == "access" {
                json!({"ring full": lost})
            } else {
                json!({})
            };
            json!({"rule": rule, "matched": matched, "lost": lost})
        })
        .collect();
    let all: u64 = matched.iter().sum();
    let status = json!({
        "settings": {"enabled": 1, "pid": 812, "backlog": 12},
        "version": "0.1.0", "engine": "fentry", "uptime_seconds": 11_000 + seconds,
        "rules": 6, "calls": 78, "hooks": vec!["hook"; 31],
        "counts": {"matched": all, "written": all.saturating_sub(lost + 12), "lost": {"ring full": lost}},
        "by_rule": by_rule,
        "kernel_messages": {"lost": 0},
        "json": {"left_out": 0},
    });
    serde_json::from_value(status).unwrap()
}

fn costs() -> RuleCosts {
    let rules = RULES.iter().map(|(key, rule, cost, syscalls)| {
        let keys = if key.is_empty() { vec![] } else { vec![*key] };
        json!({"rule": rule, "keys": keys, "cost": cost, "syscalls": syscalls})
    });
    let costs = json!({"every_syscall_ns": 0, "paying_syscall_ns": null,
        "rules": rules.collect::<Vec<_>>(), "omitted": 0});
    serde_json::from_value(costs).unwrap()
}

fn event(number: u64) -> SeenEvent {
    const PROGRAMS: [(&str, &str, u32, i32); 4] = [
        ("/usr/bin/find", "access", 1000, -13),
        ("/usr/sbin/sshd", "identity", 0, 3),
        ("/usr/bin/bash", "exec", 1000, 0),
        ("/usr/bin/git", "delete", 1001, 0),
    ];
    // Half of the events are of the first program.
    let (program, key, uid, exit) =
        PROGRAMS[usize::try_from((number % 8).saturating_sub(4)).unwrap()];
    let syscall = match key {
        "exec" => 59,
        "delete" => 87,
        _ => 257,
    };
    let success = if exit < 0 { "no" } else { "yes" };
    // A daemon has no login user.
    let auid = if uid == 0 { u32::MAX } else { uid };
    let (sec, milli) = (1_700_000_000 + number / 1000, number % 1000);
    let text = format!(
        "type=SYSCALL msg=audit({sec}.{milli:03}:{number}): arch=c000003e syscall={syscall} success={success} \
         exit={exit} a0=ffffff9c a1=7ffd12345678 a2=80000 a3=0 items=1 ppid=900 pid={} auid={auid} uid={uid} \
         gid={uid} euid={uid} comm=\"x\" exe=\"{program}\" key=\"{key}\"\n\
         type=CWD msg=audit({sec}.{milli:03}:{number}): cwd=\"/home/alice\"\n\
         type=PATH msg=audit({sec}.{milli:03}:{number}): item=0 name=\"/etc/shadow\" inode=131074 dev=08:01 \
         mode=0100640 ouid=0 ogid=42 rdev=00:00 nametype=NORMAL\n\
         type=PROCTITLE msg=audit({sec}.{milli:03}:{number}): proctitle=\"x\"\n",
        4000 + number
    );
    SeenEvent::read(text.as_bytes()).unwrap()
}

fn sample(events: u64, skipped: u64) -> Sample {
    let mut sample = Sample {
        skipped,
        ..Sample::default()
    };
    for number in 0..events {
        sample.add(event(number));
    }
    sample
}

/// A busy daemon with losses.
fn model() -> Model {
    let users = b"root:x:0:0::/:\nalice:x:1000:1000::/:\nbob:x:1001:1001::/:\n";
    let mut model = Model::new(Users::parse(users));
    model.costs = costs();
    let mut matched = [40_100, 9_000, 2_400, 0, 1_200_000, 3];
    let mut lost = 0;
    for second in 0..60 {
        let wave = if second % 20 < 10 {
            second % 20
        } else {
            20 - second % 20
        };
        for (matched, rate) in matched.iter_mut().zip([310, 42, 8, 0, 1_800 * wave, 0]) {
            *matched += rate;
        }
        lost += if second == 59 { 204 } else { 0 };
        model.update(status(second, matched, lost), SECOND);
        if second >= 55 {
            model.add_sample(sample(400, 1_760), SECOND);
        }
    }
    model
}

fn drawn(model: &Model, ui: &Ui, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, ui)).unwrap();
    terminal.backend().buffer().clone()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it.
#[track_caller]
fn compare(path: &str, expected: &str) {
    let file = root().join(path);
    if env::var_os("TOLLGATE_GOLDEN").is_some_and(|action| action == "write") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is stale: `make golden` writes it\n{expected}"
    );
}

#[track_caller]
fn compare_screens(name: &str, model: &Model, ui: &Ui) {
    for size in [SMALL, LARGE] {
        let path = format!("tests/golden/top/{name}-{}x{}.txt", size.0, size.1);
        compare(&path, &lines(&drawn(model, ui, size)).concat());
    }
}

fn press(ui: &mut Ui, model: &Model, code: KeyCode) -> Action {
    ui.key(KeyEvent::new(code, KeyModifiers::NONE), model)
}

#[test]
fn screens_are_as_in_golden_files() {
    let model = model();
    compare_screens("rules", &model, &Ui::default());
    for panel in [Panel::Programs, Panel::Losses] {
        let ui = Ui {
            focus: panel,
            ..Ui::default()
        };
        compare_screens(panel.title().to_lowercase().as_str(), &model, &ui);
    }
    let help = Ui {
        shows_help: true,
        ..Ui::default()
    };
    compare_screens("help", &model, &help);
}

#[test]
fn records_are_as_in_golden_files() {
    let model = model();
    let mut ui = Ui::default();
    let action = press(&mut ui, &model, KeyCode::Enter);
    let filter = Filter {
        keys: vec!["access".to_owned()],
        ..Filter::default()
    };
    assert_eq!(action, Action::Open(filter));
    let list = ui.records.as_mut().unwrap();
    list.add(sample(30, 7));
    press(&mut ui, &model, KeyCode::Down);
    compare_screens("records", &model, &ui);
    assert_eq!(press(&mut ui, &model, KeyCode::Esc), Action::Close);
    assert_eq!(ui.records, None);
}

#[test]
fn missing_daemon_and_alerts_are_shown() {
    let mut model = Model::new(Users::default());
    let none = lines(&drawn(&model, &Ui::default(), SMALL)).concat();
    assert!(none.contains("no rules are loaded"), "{none}");
    let mut status = status(0, [1; 6], 0);
    status.suspended = Some(crate::status::Suspended {
        reason: "no space".to_owned(),
        events: 7,
    });
    model.update(status, SECOND);
    let screen = lines(&drawn(&model, &Ui::default(), SMALL)).concat();
    assert!(
        screen.contains("! the log is suspended, 7 events not written: no space"),
        "{screen}"
    );
    model.error = Some("no daemon listens at `/run/x`".to_owned());
    let screen = lines(&drawn(&model, &Ui::default(), SMALL)).concat();
    assert!(
        screen.contains("! no daemon listens at `/run/x`"),
        "{screen}"
    );
    // Neither a tiny terminal nor an empty model is an error.
    for size in [(1, 1), (10, 3), (200, 5), (20, 60)] {
        drawn(&model, &Ui::default(), size);
        let mut ui = Ui::default();
        press(&mut ui, &model, KeyCode::Enter);
        ui.shows_help = true;
        drawn(&model, &ui, size);
    }
}

#[test]
fn rates_are_differences_over_time() {
    let mut model = Model::default();
    model.update(status(0, [100, 0, 0, 0, 0, 0], 0), SECOND);
    assert!(
        model.rates.matched.abs() < f64::EPSILON,
        "nothing to compare with"
    );
    model.update(status(2, [300, 50, 0, 0, 0, 0], 20), SECOND * 2);
    assert!(
        (model.rates.matched - 125.0).abs() < 1e-9,
        "{:?}",
        model.rates
    );
    assert!((model.rates.lost - 10.0).abs() < 1e-9, "{:?}", model.rates);
    model.costs = costs();
    let rules = model.rules(RuleOrder::Rate);
    let first = &rules[0];
    assert_eq!((first.keys[0].as_str(), first.matched), ("identity", 300));
    assert!((first.per_second - 100.0).abs() < 1e-9 && (first.share - 0.8).abs() < 1e-9);
    assert_eq!(
        rules.len(),
        RULES.len(),
        "rules without events are shown too"
    );
    let losses = model.losses();
    assert_eq!((losses[0].stage, losses[0].total), ("kernel", 20));
    assert!((losses[0].per_second - 10.0).abs() < 1e-9);
    // The counters of the next daemon start anew.
    let mut next = status(0, [1, 0, 0, 0, 0, 0], 0);
    next.settings.pid = 900;
    model.update(next, SECOND);
    assert!(model.rates.matched.abs() < f64::EPSILON);
    assert_eq!(
        model.history.iter().copied().collect::<Vec<_>>(),
        [0, 125, 0]
    );
}

#[test]
fn sample_stands_for_all_events() {
    let mut model = Model::default();
    model.add_sample(sample(80, 720), SECOND);
    model.add_sample(sample(80, 0), SECOND);
    assert_eq!(model.sampled(), (160, 880));
    let programs = model.programs();
    // (50 + 450 + 50) in two seconds: five eighths of the events.
    assert_eq!(programs[0].name, "/usr/bin/find");
    assert!(
        (programs[0].per_second - 275.0).abs() < 1e-9,
        "{programs:?}"
    );
    assert!((programs[0].share - 0.625).abs() < 1e-9, "{programs:?}");
    let users = model.users();
    assert_eq!((users[0].name.as_str(), users.len()), ("uid 1000", 3));
}

#[test]
fn costs_are_asked_for_when_rules_change() {
    let mut model = Model::default();
    assert!(model.lacks_costs());
    model.costs = costs();
    model.update(status(0, [1; 6], 0), SECOND);
    assert!(!model.lacks_costs());
    model.costs.rules.remove(2);
    assert!(model.lacks_costs());
}

#[test]
fn keys_move_between_tables_and_rows() {
    let model = model();
    let mut ui = Ui::default();
    press(&mut ui, &model, KeyCode::Down);
    press(&mut ui, &model, KeyCode::End);
    assert_eq!(ui.selected, RULES.len() - 1);
    press(&mut ui, &model, KeyCode::Down);
    assert_eq!(ui.selected, RULES.len() - 1);
    press(&mut ui, &model, KeyCode::BackTab);
    assert_eq!((ui.focus, ui.selected), (Panel::Losses, 0));
    assert_eq!(
        press(&mut ui, &model, KeyCode::Enter),
        Action::Draw,
        "losses have no records"
    );
    press(&mut ui, &model, KeyCode::Char('3'));
    let Action::Open(filter) = press(&mut ui, &model, KeyCode::Enter) else {
        panic!("{ui:?}");
    };
    assert_eq!(filter.users, [1000]);
    press(&mut ui, &model, KeyCode::Char('q'));
    press(&mut ui, &model, KeyCode::Char('p'));
    assert!(ui.is_paused);
    press(&mut ui, &model, KeyCode::Char('s'));
    assert_eq!(ui.order, RuleOrder::Total);
    assert_eq!(press(&mut ui, &model, KeyCode::Char('q')), Action::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(ui.key(control_c, &model), Action::Quit);
}

#[test]
fn selection_stays_at_its_event() {
    let mut list = crate::ui::RecordList::default();
    list.add(sample(3, 0));
    list.selected = 1;
    let selected = list.event().cloned();
    list.add(sample(2, 0));
    assert_eq!(list.event().cloned(), selected);
    list.selected = 0;
    list.add(sample(5, 0));
    assert_eq!(list.event(), Some(&event(4)), "the newest");
}

/// The picture of the README: the large screen with its colours.
#[test]
fn picture_is_fresh() {
    let mut text = String::new();
    let buffer = drawn(&model(), &Ui::default(), (150, 38));
    for row in buffer.content().chunks(usize::from(buffer.area.width)) {
        for cell in row {
            let mut codes = vec!["0".to_owned()];
            for (modifier, code) in [
                (Modifier::BOLD, "1"),
                (Modifier::DIM, "2"),
                (Modifier::REVERSED, "7"),
            ] {
                if cell.modifier.contains(modifier) {
                    codes.push(code.to_owned());
                }
            }
            let color = |color: Color| match color {
                Color::Black => Some(0),
                Color::Red => Some(1),
                Color::Green => Some(2),
                Color::Yellow => Some(3),
                Color::Cyan => Some(6),
                _ => None,
            };
            codes.extend(color(cell.fg).map(|color| (30 + color).to_string()));
            codes.extend(color(cell.bg).map(|color| (40 + color).to_string()));
            write!(text, "\x1b[{}m{}", codes.join(";"), cell.symbol()).unwrap();
        }
        text.push_str("\x1b[0m\n");
    }
    compare("docs/top.svg", &anstyle_svg::Term::new().render_svg(&text));
}
