//! Text and JSON of a few rules.

use super::*;
use audit::ids::Arch;
use audit::rule::{
    Action, Command, Field, FieldTest, Insertion, List, Op, Rule, SyscallMask, Value,
};
use audit::table;

fn number(field: Field, op: Op, value: u32) -> FieldTest {
    FieldTest {
        field,
        op,
        value: Value::Number(value),
    }
}

#[track_caller]
fn rule(arch: Arch, names: &[&str], key: &str) -> Rule {
    let mut syscalls = SyscallMask::none();
    for name in names {
        syscalls.insert(table::syscall_number(arch, name.as_bytes()).unwrap().0);
    }
    Rule {
        list: List::Exit,
        action: Action::Always,
        syscalls,
        fields: vec![number(Field::Arch, Op::Equal, arch.0)],
        keys: vec![key.into()],
    }
}

fn watch(path: &str, perm: u32, key: &str) -> Rule {
    let path = FieldTest {
        field: Field::Path,
        op: Op::Equal,
        value: Value::Text(path.into()),
    };
    Rule {
        syscalls: SyscallMask::all(),
        fields: vec![
            number(Field::Arch, Op::Equal, Arch::X86_64.0),
            path,
            number(Field::Perm, Op::Equal, perm),
        ],
        ..rule(Arch::X86_64, &[], key)
    }
}

fn explained(files: &[(&str, &[Rule])]) -> Explained {
    let lines = |rules: &[Rule]| {
        let add = |(number, rule): (u32, &Rule)| RuleLine {
            number,
            span: 0..1,
            command: Command::Add {
                rule: rule.clone(),
                insertion: Insertion::Append,
            },
        };
        (1..).zip(rules).map(add).collect()
    };
    Explained::new(
        files
            .iter()
            .map(|&(path, rules)| (path.into(), lines(rules), Vec::new())),
        EngineKind::Tracepoint,
        KernelFeatures::V5_15,
    )
}

const B64: Arch = Arch::X86_64;

#[test]
fn text_of_64_bit_rules() {
    let never = Rule {
        list: List::Task,
        action: Action::Never,
        fields: Vec::new(),
        ..rule(B64, &[], "")
    };
    let elsewhere = FieldTest {
        field: Field::Path,
        op: Op::NotEqual,
        value: Value::Text("/etc/passwd".into()),
    };
    let refused = Rule {
        fields: vec![elsewhere],
        ..rule(B64, &["read"], "refused")
    };
    let rules = [
        never,
        rule(B64, &["execve", "execveat"], "exec"),
        rule(
            B64,
            &["open", "openat", "openat2", "truncate"],
            "bad\u{1b}[0m",
        ),
        rule(
            B64,
            &["open", "openat", "openat2", "truncate"],
            "bad\u{1b}[0m",
        ),
        refused,
    ];
    let expected = "\
a.rules: 3 rules, 1 not supported

rule    cost    syscalls  hooks                  key         names
line 1  none    6         new tasks                          open, execve, truncate +3
line 2  low     2         2 enter, 2 exit, exec  exec        execve, execveat
line 3  medium  4         4 exit                 bad\\x1b[0m  open, truncate, openat +1

notes
  line 1: is evaluated when a task is created; running tasks are not affected
  line 3: names are read from task memory, where another thread can change them, for truncate

not supported
  line 5: records are missed: `path` only takes `=`

refused while loading
  line 4: this rule is already loaded, from line 3

total, engine tracepoint
  6 of KNOWN 64-bit syscalls evaluate rules
  common syscalls that do not: read, write, getpid, futex, epoll_wait, stat
  hooks: 2 enter, 6 exit, exec, new tasks
  overhead: 43 ns for every syscall of the machine, because the kernel takes its slow path;
            about 200 ns more for a syscall that evaluates rules
            (measured on Linux 6.18, see docs/bench.md)
  not seen: io_uring operations equivalent to openat, openat2
  not known: whether the kernel executed a call of a task with a seccomp filter or a tracer (executed=?)
";
    let explained = explained(&[("a.rules", &rules)]);
    let known = explained.explanation.paying[0].known.to_string();
    assert_eq!(text::render(&explained), expected.replace("KNOWN", &known));
}

#[test]
fn text_of_32_bit_rules_in_two_files() {
    let first = [
        rule(Arch::I386, &["chmod"], "k"),
        rule(B64, &["stat", "getpid"], "k"),
    ];
    let both = Rule {
        fields: Vec::new(),
        ..rule(B64, &["chmod"], "k")
    };
    let explained = explained(&[("a", &first), ("b", &[both])]);
    let text = text::render(&explained);
    let table: Vec<&str> = text.lines().skip(2).take(4).collect();
    assert_eq!(
        table,
        [
            "rule  cost    syscalls  hooks     key  names",
            "a:1   low     1         raw exit  k    b32: chmod",
            "a:2   high    2         raw exit  k    stat, getpid",
            "b:1   medium  2         raw exit  k    b64: chmod; b32: mmap",
        ]
    );
    assert!(text.contains(
        "\n  common syscalls that evaluate rules: getpid, stat\
         \n  common syscalls that do not: read, write, futex, epoll_wait\n"
    ));
    assert!(text.contains("\n  a:1: covers 32-bit syscalls: needs the raw tracepoint\n"));
    assert!(
        text.contains(
            "\n  b:1: covers 32-bit syscalls: needs the raw tracepoint; add `-F arch=b64`"
        )
    );
    assert!(text.contains("\n  overhead: 76 ns for every syscall"));
}

#[test]
fn names_from_task_memory_are_noted_once() {
    let names = [
        &["rename"][..],
        &["unlink"],
        &["rmdir"],
        &["unlink", "link"],
        &["getpid"],
    ];
    let rules = names.map(|names| rule(B64, names, "k"));
    let text = text::render(&explained(&[("a", &rules)]));
    assert_eq!(text.matches("names are read").count(), 1);
    assert!(text.contains("\n  lines 1, 2, 3 +1: names are read"));
    assert!(text.contains("for link, rename, rmdir +1\n"));
}

#[test]
fn text_without_rules() {
    let text = text::render(&explained(&[("empty.rules", &[])]));
    assert!(text.starts_with("empty.rules: 0 rules\n"));
    assert!(text.ends_with("no hooks: no syscall has overhead\n"));
}

#[test]
fn lines_with_errors_are_counted() {
    let mistake = Diagnostic {
        severity: Severity::Error,
        code: "unknown-field",
        line: 1,
        column: 1,
        span: 0..1,
        message: "unknown".into(),
        advice: String::new(),
    };
    let warning = Diagnostic {
        severity: Severity::Warning,
        ..mistake.clone()
    };
    let files = [("a".into(), Vec::new(), vec![mistake, warning])];
    let explained = Explained::new(files, EngineKind::Tracepoint, KernelFeatures::V5_15);
    assert_eq!(explained.errors, 1);
    assert!(text::render(&explained).starts_with("a: 0 rules, 1 line with errors ignored"));
}

#[test]
fn json_names_the_engine() {
    for engine in [EngineKind::Fentry, EngineKind::Tracepoint] {
        let explained = Explained::new([], engine, KernelFeatures::V5_15);
        let document = json::render(&explained).unwrap();
        let value: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(value["engine"], engine.name());
    }
}

#[test]
fn json_has_what_the_text_shortens() {
    let document = json::render(&explained(&[("a", &[watch("/etc/passwd", 10, "w")])])).unwrap();
    let value: serde_json::Value = serde_json::from_str(&document).unwrap();
    let rule = &value["rules"][0];
    assert_eq!(rule["file"], "a");
    assert_eq!(rule["line"], 1);
    assert_eq!(rule["cost"], "medium");
    assert_eq!(rule["keys"][0], "w");
    let names: Vec<&str> = rule["syscalls"]["b64"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(names.len() > 25 && names.contains(&"renameat2") && !names.contains(&"read"));
    assert_eq!(rule["hooks"].as_array().unwrap().len(), names.len());
    assert_eq!(rule["notes"][0]["code"], "names-from-task");
    assert!(rule["notes"][0]["syscalls"].as_array().unwrap().len() > 20);
    assert_eq!(value["every_syscall_ns"], 30);
    assert_eq!(value["common"]["read"], false);
    assert_eq!(value["raw_tracepoint"], false);
    assert_eq!(value["paying"][0]["paying"], names.len());
    assert!(value["unsupported"].as_array().unwrap().is_empty());
}
