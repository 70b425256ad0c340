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
use audit::record::interpret::{self, AccountNames};
use audit::table;

use crate::accounts::Accounts;
use crate::escaped::Escaped;
use crate::event_accounts::EventAccounts;
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

impl Interpret {
    fn names(&self) -> Option<&dyn AccountNames> {
        match self {
            Self::Raw => None,
            Self::Names(names) => Some(names),
        }
    }
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
                names: self.interpret.names(),
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
        let of_event = match &self.interpret {
            Interpret::Raw => None,
            Interpret::Names(of_host) => Some(EventAccounts::of(records, of_host)),
        };
        let names = of_event.as_ref().map(|names| names as &dyn AccountNames);
        self.block.clear();
        match SyscallEvent::of(records) {
            Some(mut event) => {
                for item in user_names(records) {
                    event.mark_user_name(item);
                }
                let event = &event.event();
                write!(self.block, "{}", Block { event, names })?;
                write!(self.block, "{}", messages::Denials(records))?;
            }
            None => {
                let event = messages::Message {
                    event: records,
                    names,
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
    /// `None` if numbers are shown.
    names: Option<&'a dyn AccountNames>,
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
            Some(exit) => match self.names {
                None => write!(f, "{BAD}{:<8}{BAD:#}", reported_exit(exit))?,
                Some(_) => write!(f, "{BAD}{:<8}{BAD:#}", interpret::exit(exit))?,
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
            Some(flags) if self.names.is_some() => {
                writeln!(f, "  {DIM}{flags}{DIM:#}")
            }
            _ => writeln!(f),
        }
    }

    fn inode(&self, inode: &Inode, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inode { mode, uid, gid, .. } = *inode;
        match self.names {
            None => write!(f, "  {mode:06o} {uid}:{gid}"),
            Some(names) => {
                let (user, group) = (interpret::user(names, uid), interpret::group(names, gid));
                write!(f, "  {} {user}:{group}", interpret::mode(mode))
            }
        }
    }

    fn user(&self, uid: u32) -> impl Display {
        fmt::from_fn(move |f| match self.names {
            None => write!(f, "uid {uid}"),
            Some(names) => write!(f, "{}", interpret::user(names, uid)),
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
        let event = self.event;
        let starts_at_cwd = || {
            let [a0, a1, a2, _] = event.args;
            let call = table::syscall_name(event.arch, event.syscall);
            call.is_some_and(|call| interpret::starts_at_cwd(call, [a0, a1, a2]))
        };
        let cwd = event.cwd.filter(|_| starts_at_cwd());
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
mod tests;
