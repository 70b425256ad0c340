//! Console output: a header line per event, and below it a line per object.
//!
//! ```text
//! 22:13:20.007Z ok       openat       /usr/bin/cat[4322]  root (login alice)  [identity]
//!     path  /etc/shadow  -rw-r----- root:shadow
//! ```
//!
//! Parent directories of created or removed objects are omitted: the objects' paths show them. A `~` after a label
//! marks a name read from the memory of the task, which another thread may have changed. No byte chosen by a task
//! reaches the terminal as a control character.

mod messages;
mod style;

use std::fmt::{self, Display};
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use audit::event::{
    Event, Inode, NameSource, NameType, PathItem, Task, Timestamp, reported_exit, succeeded,
};
use audit::ids::{Auid, Syscall};
use audit::plan::uring::UringOp;
use audit::record::assemble::EventRecords;
use audit::record::interpret;

use crate::accounts::Accounts;
use crate::escaped::Escaped;
use crate::event_context::user_names;
use crate::syscall_event::SyscallEvent;
use style::{BAD, BOLD, DIM, GOOD, KEY, ODD};

/// How numbers are shown.
#[derive(Debug)]
pub enum Interpret {
    /// As numbers.
    Raw,
    /// As names of users, groups, errors, flags and modes.
    Names(Accounts),
}

/// Prints events on a terminal.
pub struct Console {
    interpret: Interpret,
    out: Box<dyn Write + Send>,
    block: Vec<u8>,
}

impl Console {
    /// Prints to standard output, coloured according to `choice`.
    #[must_use]
    pub fn stdout(interpret: Interpret, choice: ColorChoice) -> Self {
        Self::new(interpret, Box::new(AutoStream::new(io::stdout(), choice)))
    }

    /// Prints to `out` with colours; [`AutoStream`] strips them if needed.
    #[must_use]
    pub fn new(interpret: Interpret, out: Box<dyn Write + Send>) -> Self {
        Self {
            interpret,
            out,
            block: Vec::new(),
        }
    }

    /// Prints an event.
    ///
    /// # Errors
    /// The write error; `BrokenPipe` for a closed pipe.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.block.clear();
        write!(
            self.block,
            "{}",
            Block {
                event,
                interpret: &self.interpret
            }
        )?;
        self.out.write_all(&self.block)?;
        self.out.flush()
    }

    /// Prints an event from its records. One without a syscall, such as a login, has a header line as well.
    ///
    /// # Errors
    /// The write error; `BrokenPipe` for a closed pipe.
    pub fn records(&mut self, records: &EventRecords) -> io::Result<()> {
        let interpret = &self.interpret;
        self.block.clear();
        match SyscallEvent::of(records) {
            Some(mut event) => {
                for item in user_names(records) {
                    event.mark_user_name(item);
                }
                let event = &event.event();
                write!(self.block, "{}", Block { event, interpret })?;
                write!(self.block, "{}", messages::Denials(records))?;
            }
            None => {
                let event = messages::Message {
                    event: records,
                    interpret,
                };
                write!(self.block, "{event}")?;
            }
        }
        self.out.write_all(&self.block)?;
        self.out.flush()
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal")
            .field("interpret", &self.interpret)
            .finish_non_exhaustive()
    }
}

struct Block<'a, 'e> {
    event: &'a Event<'e>,
    interpret: &'a Interpret,
}

impl Display for Block<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header(f)?;
        if let Some(argv) = self.event.argv {
            write!(f, "    {DIM}run  {DIM:#}")?;
            let mut known = 0;
            for arg in argv.args().take(MOST_ARGUMENTS) {
                write!(f, " {}", Escaped(arg))?;
                known += 1;
            }
            match argv.argc.saturating_sub(known) {
                0 => writeln!(f)?,
                more => writeln!(f, " {DIM}... {more} more{DIM:#}")?,
            }
        }
        let is_child =
            |item: &PathItem<'_>| matches!(item.nametype, NameType::Create | NameType::Delete);
        let children = self.event.items.iter().any(is_child);
        for item in &self.event.items {
            if !(children && item.nametype == NameType::Parent) {
                self.item(item, f)?;
            }
        }
        Ok(())
    }
}

/// Maximum number of printed arguments.
const MOST_ARGUMENTS: usize = 12;

impl Block<'_, '_> {
    fn header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.event;
        write!(f, "{DIM}{}{DIM:#} ", clock(event.time))?;
        match event.exit {
            None => write!(f, "{ODD}{:<8}{ODD:#}", "ended")?,
            Some(exit) if succeeded(reported_exit(exit)) => write!(f, "{GOOD}{:<8}{GOOD:#}", "ok")?,
            Some(exit) => match self.interpret {
                Interpret::Raw => write!(f, "{BAD}{:<8}{BAD:#}", reported_exit(exit))?,
                Interpret::Names(_) => write!(f, "{BAD}{:<8}{BAD:#}", interpret::exit(exit))?,
            },
        }
        let operation = event.uring_op.and_then(UringOp::numbered);
        match operation.filter(|_| event.syscall == Syscall::NONE) {
            Some(UringOp { name, .. }) => write!(f, " {BOLD}{name:<12}{BOLD:#} ")?,
            None => {
                let call = interpret::syscall(event.arch, event.syscall);
                write!(f, " {BOLD}{call:<12}{BOLD:#} ")?;
            }
        }
        if event.uring_op.is_some() {
            f.write_str("by io_uring ")?;
        }
        program(&event.task, f)?;
        f.write_str("  ")?;
        self.who(f)?;
        if let Some(key) = event.key {
            write!(f, "  {KEY}[")?;
            for (number, key) in key.split(|&byte| byte == 1).enumerate() {
                write!(f, "{}{}", if number == 0 { "" } else { ", " }, Escaped(key))?;
            }
            write!(f, "]{KEY:#}")?;
        }
        writeln!(f)
    }

    /// Writes the user, the effective user and the login user where they differ.
    fn who(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Task {
            uid, euid, auid, ..
        } = self.event.task;
        write!(f, "{}", self.user(uid))?;
        if euid != uid {
            write!(f, " as {}", self.user(euid))?;
        }
        match auid {
            Auid::UNSET => write!(f, " {DIM}(no login){DIM:#}"),
            Auid(login) if login != uid => write!(f, " (login {})", self.user(login)),
            Auid(_) => Ok(()),
        }
    }

    fn item(&self, item: &PathItem<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, style) = match item.nametype {
            NameType::Unknown => ("name", ODD),
            NameType::Normal => ("path", DIM),
            NameType::Parent => ("in", DIM),
            NameType::Delete => ("gone", BAD),
            NameType::Create => ("made", GOOD),
        };
        let mark = if item.source == NameSource::User {
            '~'
        } else {
            ' '
        };
        write!(f, "    {style}{label:>4}{style:#}{ODD}{mark}{ODD:#} ")?;
        match item.name {
            Some(name) => write!(f, "{}", Escaped(&self.path(item, name)))?,
            None => write!(f, "{DIM}(by descriptor){DIM:#}")?,
        }
        if let Some(inode) = &item.inode {
            self.inode(inode, f)?;
            if item.name.is_none() {
                write!(
                    f,
                    "  inode {} on {}:{}",
                    inode.ino,
                    inode.dev.major(),
                    inode.dev.minor()
                )?;
            }
        }
        match interpret::open_flags(self.event) {
            Some(flags) if matches!(self.interpret, Interpret::Names(_)) => {
                writeln!(f, "  {DIM}{flags}{DIM:#}")
            }
            _ => writeln!(f),
        }
    }

    fn inode(&self, inode: &Inode, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inode { mode, uid, gid, .. } = *inode;
        match self.interpret {
            Interpret::Raw => write!(f, "  {mode:06o} {uid}:{gid}"),
            Interpret::Names(names) => {
                let (user, group) = (interpret::user(names, uid), interpret::group(names, gid));
                write!(f, "  {} {user}:{group}", interpret::mode(mode))
            }
        }
    }

    fn user(&self, uid: u32) -> impl Display {
        fmt::from_fn(move |f| match self.interpret {
            Interpret::Raw => write!(f, "uid {uid}"),
            Interpret::Names(names) => write!(f, "{}", interpret::user(names, uid)),
        })
    }

    /// Path from the root; `(fd)` stands for a directory that the event does not name.
    fn path(&self, item: &PathItem<'_>, name: &[u8]) -> Vec<u8> {
        // A name that a successful call did not resolve is data: the target of a new link.
        let done = self
            .event
            .exit
            .is_some_and(|exit| succeeded(reported_exit(exit)));
        let data = done && item.nametype == NameType::Unknown;
        if name.starts_with(b"/") || data {
            return name.to_vec();
        }
        let cwd = self
            .event
            .cwd
            .filter(|_| interpret::starts_at_cwd(self.event));
        let directory = cwd.unwrap_or(b"(fd)");
        match name {
            b"" | b"." => directory.to_vec(),
            _ if directory.ends_with(b"/") => [directory, name].concat(),
            _ => [directory, name].join(&b'/'),
        }
    }
}

/// Writes the program, and the task's name if it differs.
fn program(task: &Task<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match task.exe {
        Some(exe) => {
            let file = exe.rsplit(|&byte| byte == b'/').next().unwrap_or(exe);
            write!(f, "{}", Escaped(exe))?;
            if !file.starts_with(task.comm) {
                write!(f, " ({})", Escaped(task.comm))?;
            }
        }
        None => write!(f, "{}", Escaped(task.comm))?,
    }
    write!(f, "{DIM}[{}]{DIM:#}", task.pid)
}

/// Time of day in UTC.
fn clock(Timestamp { sec, milli }: Timestamp) -> impl Display {
    let [hours, minutes, seconds] = [sec / 3600 % 24, sec / 60 % 60, sec % 60];
    fmt::from_fn(move |f| write!(f, "{hours:02}:{minutes:02}:{seconds:02}.{milli:03}Z"))
}

#[cfg(test)]
mod tests {
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

    fn shown(interpret: Interpret, event: &Event<'_>) -> String {
        let screen = Screen::default();
        Console::new(interpret, Box::new(screen.clone()))
            .event(event)
            .unwrap();
        let written = screen.0.lock().unwrap();
        strip_str(std::str::from_utf8(&written).unwrap()).to_string()
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
                interpret: &names()
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
}
