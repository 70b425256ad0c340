//! Tests of the columns.

use std::sync::{Arc, Mutex};

use anstream::adapter::strip_str;
use audit::event::Argv;
use audit::ids::{Arch, Dev, Serial, Syscall};

use super::*;

/// What the view wrote.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a console shows, without colours.
pub(super) fn on_screen(interpret: Interpret, print: impl FnOnce(&mut Console)) -> String {
    let screen = Screen::default();
    print(&mut Console::new(interpret, Box::new(screen.clone())));
    let written = screen.0.lock().unwrap();
    strip_str(std::str::from_utf8(&written).unwrap()).to_string()
}

fn shown(interpret: Interpret, event: &Event<'_>) -> String {
    on_screen(interpret, |console| console.event(event).unwrap())
}

fn names() -> Interpret {
    let passwd = b"root:x:0:0::/:\nalice:x:1000:1000::/:\n";
    Interpret::Names(Accounts::parse(passwd, b"shadow:x:42:\n"))
}

fn item(name: &'static [u8], nametype: NameType) -> PathItem<'static> {
    let dev = Dev(0);
    let inode = Inode {
        ino: 9,
        dev,
        mode: 0o100_640,
        uid: 0,
        gid: 42,
        rdev: dev,
    };
    PathItem {
        name: Some(name),
        source: NameSource::Kernel,
        inode: Some(inode),
        nametype,
        path: None,
    }
}

/// `rename`, since its names start at the working directory on every machine.
fn event(items: &[PathItem<'static>]) -> Event<'static> {
    Event {
        time: Timestamp {
            sec: 1_700_000_000,
            milli: 7,
        },
        serial: Serial(1),
        arch: Arch::X86_64,
        syscall: Syscall(82),
        uring_op: None,
        uring_enter: None,
        personality: 0,
        exit: Some(0),
        unproven: false,
        args: [0; 4],
        task: Task {
            ppid: 1,
            pid: 42,
            auid: Auid(1000),
            uid: 1000,
            gid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            ses: 1,
            tty: b"",
            comm: b"mv",
            exe: Some(b"/bin/mv"),
            subj: None,
        },
        key: Some(b"a\x01b"),
        argv: None,
        sockaddr: None,
        aux_records: [].into_iter().collect(),
        cwd: Some(b"/home"),
        items: items.iter().copied().collect(),
        proctitle: b"",
        task_context: None,
    }
}

#[test]
fn event_has_a_header_and_object_lines() {
    let event = event(&[
        item(b"/tmp/", NameType::Parent),
        item(b"/tmp/old", NameType::Delete),
        PathItem {
            source: NameSource::User,
            ..item(b"new one", NameType::Create)
        },
    ]);
    assert_eq!(
        shown(names(), &event),
        "22:13:20.007Z ok       rename       /bin/mv[42]  alice as root  [a, b]\n\
         \x20   gone  /tmp/old  -rw-r----- root:shadow\n\
         \x20   made~ '/home/new one'  -rw-r----- root:shadow\n"
    );
    assert_eq!(
        shown(Interpret::Raw, &event),
        "22:13:20.007Z ok       rename       /bin/mv[42]  uid 1000 as uid 0  [a, b]\n\
         \x20   gone  /tmp/old  100640 0:42\n\
         \x20   made~ '/home/new one'  100640 0:42\n"
    );
}

#[test]
fn failure_and_no_return_are_not_ok() {
    let mut event = event(&[]);
    event.exit = Some(-13);
    assert!(shown(names(), &event).contains("Z EACCES   rename "));
    assert!(shown(Interpret::Raw, &event).contains("Z -13      rename "));
    event.exit = None;
    assert!(shown(names(), &event).contains("Z ended    rename "));
}

#[test]
fn names_relative_to_a_descriptor_are_not_joined_with_cwd() {
    let mut event = event(&[item(b"x", NameType::Normal)]);
    (event.syscall, event.args) = (Syscall(263), [7, 0, 0, 0]);
    assert!(shown(names(), &event).contains("path  (fd)/x "));
    event.args = [0xffff_ff9c, 0, 0, 0];
    assert!(shown(names(), &event).contains("path  /home/x "));
    event.items = [item(b"target", NameType::Unknown)].into_iter().collect();
    assert!(shown(names(), &event).contains("name  target "));
}

#[test]
fn task_strings_cannot_control_the_terminal() {
    let hostile: &[u8] = Vec::leak((0..=255).collect());
    let mut event = event(&[]);
    event.task.comm = hostile;
    event.task.exe = Some(hostile);
    event.key = Some(hostile);
    event.argv = Some(Argv {
        argc: 70,
        bytes: hostile,
    });
    event.cwd = Some(hostile);
    event.items = [PathItem {
        name: Some(hostile),
        ..item(b"", NameType::Normal)
    }]
    .into_iter()
    .collect();
    let mut coloured = Vec::new();
    write!(
        coloured,
        "{}",
        Block {
            event: &event,
            names: names().names()
        }
    )
    .unwrap();
    let text = String::from_utf8(coloured).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(text.contains("... 68 more"));
    assert!(
        text.chars()
            .all(|letter| "\n\x1b".contains(letter) || !letter.is_control())
    );
    // Colours, which end with `m`, are the only sequences.
    assert!(text.split("\x1b[").skip(1).all(|rest| {
        rest.trim_start_matches(|letter| "0123456789;".contains(letter))
            .starts_with('m')
    }));
    assert_eq!(text.matches('\x1b').count(), text.matches("\x1b[").count());
}
