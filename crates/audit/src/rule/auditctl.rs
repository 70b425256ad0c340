//! The command line of `auditctl`, read as its two versions read it: the same messages in the same
//! order, the same status, and the same requests to the kernel.
//!
//! What a rule may look like is known to the parser of rule files, which is asked here option by
//! option; this module knows how `auditctl` strings options together, and where it stops. Carrying
//! the requests out is the caller's job.
//!
//! # Source
//! `setopt()`, `handle_request()` and `fileopt()` in `src/auditctl.c` of audit-userspace 3.0.9 and
//! 4.2.1, and what those two were seen to do.

mod file;
mod request;

use bstr::{BString, ByteSlice as _};

use super::diagnostic::{Diagnostic, Findings};
use super::lexer::Word;
use super::parse::draft::Draft;
use super::parse::number;
use super::parse::option::{self, Flag, Given, Options, Step};
use super::{Command, Dialect, RuleHost};

pub use file::{line, lines};
pub use request::{DaemonSignal, Invocation, Request};

/// Longest key, and longest sum of keys, in bytes.
const KEY_LIMIT_BYTES: usize = 256;

/// Status after any mistake.
pub const EXIT_FAILURE: u8 = 255;

/// What version 4 says after any mistake on a command line.
pub const PARAMETER_ERROR: &str = "There was an error while processing parameters";

/// Reads a command line without its first word. `-R FILE` alone is not for this function: see
/// [`lines`].
#[must_use]
pub fn arguments(words: &[&[u8]], dialect: Dialect, host: &dyn RuleHost) -> Invocation {
    if words.is_empty() {
        return Invocation {
            messages: Vec::new(),
            requests: vec![Request::Usage],
            status: 1,
        };
    }
    let words = words.iter().map(|&text| Word {
        text: text.to_vec(),
        span: 0..text.len(),
    });
    let mut diagnostics = Vec::new();
    let findings = Findings::on_command_line(&mut diagnostics);
    let mut answer = Reader::new(words.collect(), dialect, host, findings).read(None);
    if answer.status == EXIT_FAILURE && dialect == Dialect::V4 {
        answer.messages.push(PARAMETER_ERROR.into());
    }
    answer
}

/// Every option, as it is written: letters first.
pub fn options() -> impl Iterator<Item = String> {
    option::spellings()
}

/// Where reading stands, in the words of `auditctl`: negative results stop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing to send yet.
    Reply,
    /// There is a rule to send.
    Rule,
    /// Done, and nothing to send.
    NoReply,
    /// A mistake.
    Error,
    /// A rule that is passed over.
    Deprecated,
    /// The process ends here, with this status.
    Exit(u8),
}

/// Whether what follows is still looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// As far as [`Progress`] lets it.
    On,
    /// No: neither options, nor words that belong to none, nor keys.
    Finish,
}

struct Reader<'h, 'd> {
    dialect: Dialect,
    options: Options,
    findings: Findings<'d>,
    draft: Draft<'h>,
    requests: Vec<Request>,
    progress: Progress,
    /// Words of the command line, the program's name among them.
    count: usize,
    /// Words at the end that the last option has taken for itself.
    taken: usize,
}

impl<'h, 'd> Reader<'h, 'd> {
    fn new(
        words: Vec<Word>,
        dialect: Dialect,
        host: &'h dyn RuleHost,
        findings: Findings<'d>,
    ) -> Self {
        Self {
            dialect,
            count: words.len() + 1,
            options: Options::new(words),
            findings,
            draft: Draft::new(host, dialect),
            requests: Vec::new(),
            progress: Progress::Reply,
            taken: 0,
        }
    }

    fn read(mut self, line: Option<u32>) -> Invocation {
        let mut flow = Flow::On;
        while flow == Flow::On && matches!(self.progress, Progress::Reply | Progress::Rule) {
            let Some(step) = self.options.step(&mut self.findings) else {
                break;
            };
            flow = match step {
                Step::Given(given) => self.option(&given),
                Step::Bad(called) => {
                    self.bad_option(&called, line);
                    Flow::On
                }
            };
        }
        if flow == Flow::On {
            self.check_rest();
        }
        self.finish(flow)
    }

    fn bad_option(&mut self, called: &[u8], line: Option<u32>) {
        let place = line.map_or_else(String::new, |line| format!(" on line {line}"));
        self.fails(&[b"Option ", called, place.as_bytes(), b" is invalid"]);
    }

    /// Words that belong to no option, or come after one that ends the line.
    fn check_rest(&mut self) {
        if self.options.used_none() {
            self.progress = Progress::Error;
        } else if self.options.rest() > self.taken && self.progress != Progress::Error {
            self.fails(&[b"parameter passed without an option given"]);
        }
    }

    fn finish(mut self, flow: Flow) -> Invocation {
        let is_masked = self.draft.is_masked();
        let command = match flow {
            Flow::On => self.draft.finish(&(0..0), &mut self.findings),
            Flow::Finish => None,
        };
        if self.findings.refused() && !matches!(self.progress, Progress::Exit(_)) {
            self.progress = Progress::Error;
        }
        let mut messages = std::mem::take(&mut self.findings.transcript.messages);
        let status = match self.progress {
            Progress::Reply if is_masked => {
                messages.push("Error - no list specified".into());
                EXIT_FAILURE
            }
            Progress::Reply | Progress::NoReply | Progress::Deprecated => 0,
            Progress::Rule => {
                self.requests.extend(command.map(Request::Command));
                0
            }
            Progress::Error => EXIT_FAILURE,
            Progress::Exit(status) => status,
        };
        Invocation {
            messages,
            requests: self.requests,
            status,
        }
    }

    fn fails(&mut self, message: &[&[u8]]) {
        self.findings.refuses(message);
        self.progress = Progress::Error;
    }

    /// A request after which nothing more is read, and what stands there is a mistake.
    fn last(&mut self, request: Request) -> Flow {
        self.requests.push(request);
        self.progress = Progress::NoReply;
        Flow::On
    }

    /// A request after which nothing more is looked at.
    fn end(&mut self, request: Request) -> Flow {
        self.last(request);
        Flow::Finish
    }

    /// As [`Self::last`] in version 4, as [`Self::end`] in version 3.
    fn last_or_end(&mut self, request: Request) -> Flow {
        self.last(request);
        match self.dialect {
            Dialect::V3 => Flow::Finish,
            Dialect::V4 => Flow::On,
        }
    }

    fn option(&mut self, given: &Given) -> Flow {
        let value = given.value.text.as_slice();
        match given.flag {
            Flag::Append
            | Flag::Insert
            | Flag::Delete
            | Flag::Watch
            | Flag::Unwatch
            | Flag::Perm
            | Flag::Key
            | Flag::Syscall
            | Flag::Field
            | Flag::Compare => self.part_of_rule(given),
            Flag::IgnoreErrors => self.last(Request::Command(Command::IgnoreErrors)),
            Flag::ContinueOnErrors => self.last(Request::Command(Command::ContinueOnErrors)),
            Flag::Enabled => self.level(value, b"Enable", Command::Enabled),
            Flag::Failure => self.level(value, b"Failure", Command::Failure),
            Flag::Rate => self.number(value, "Rate", Command::Rate),
            Flag::Backlog => self.number(value, "Backlog", Command::Backlog),
            Flag::BacklogWait => self.number(value, "Backlog_wait_time", Command::BacklogWait),
            Flag::LoginuidImmutable => {
                self.last_or_end(Request::Command(Command::LoginuidImmutable))
            }
            Flag::DeleteAll => self.delete_all(),
            Flag::List => self.list(),
            Flag::Status => self.status(),
            Flag::Message => self.message(value),
            Flag::ReadFile => {
                self.fails(&[b"Error - nested rule files not supported"]);
                Flow::On
            }
            Flag::Equivalent => self.equivalent(value),
            Flag::Trim => self.end(Request::Trim),
            Flag::ResetLost => self.last_or_end(Request::ResetLost),
            Flag::ResetBacklogWait => self.end(Request::ResetBacklogWait),
            Flag::Signal => self.signal(value),
            Flag::Version => self.last(Request::Version),
            Flag::Help => self.help(given),
        }
    }

    fn part_of_rule(&mut self, given: &Given) -> Flow {
        self.draft.take(given, &mut self.findings);
        let ends_here = given.flag == Flag::Insert && self.dialect == Dialect::V4;
        if self.findings.refused() {
            self.progress = Progress::Error;
        } else if self.draft.is_left_out() {
            self.progress = Progress::Deprecated;
            return if ends_here { Flow::On } else { Flow::Finish };
        } else if self.draft.has_rule() {
            self.progress = Progress::Rule;
        }
        Flow::On
    }

    fn level(&mut self, value: &[u8], called: &[u8], command: fn(u8) -> Command) -> Flow {
        match value {
            [digit @ b'0'..=b'2'] => self.requests.push(Request::Command(command(digit - b'0'))),
            _ => self.fails(&[called, b" must be 0, 1, or 2 was ", value]),
        }
        Flow::On
    }

    fn number(&mut self, value: &[u8], called: &str, command: fn(u32) -> Command) -> Flow {
        let Some(scanned) = number::scan(value) else {
            let what = called.as_bytes();
            self.fails(&[what, b" must be a numeric value was ", value]);
            return Flow::On;
        };
        match scanned.low_bits() {
            Some(number) => {
                self.requests.push(Request::Command(command(number)));
                Flow::On
            }
            None => {
                let what = called.to_ascii_lowercase();
                self.fails(&[b"Error converting ", what.as_bytes()]);
                Flow::Finish
            }
        }
    }

    fn delete_all(&mut self) -> Flow {
        let key = match self.count {
            0..=2 => None,
            4 => match self.key_after("Only the -k option is allowed") {
                Some(key) => Some(key),
                None => return Flow::On,
            },
            _ => {
                self.fails(&[b"Wrong number of options for Delete all request"]);
                return Flow::On;
            }
        };
        self.last(Request::Command(Command::DeleteAll(key)))
    }

    fn list(&mut self) -> Flow {
        const OTHERS: &str = "Only -k or -i options are allowed";
        match self.count {
            0..=2 => self.last(Request::List {
                key: None,
                interpret: false,
            }),
            3 if self.options.peek() == Some(b"-i") => {
                self.taken = 1;
                self.last(Request::List {
                    key: None,
                    interpret: true,
                })
            }
            4 => match self.key_after(OTHERS) {
                Some(key) => self.last(Request::List {
                    key: Some(key),
                    interpret: false,
                }),
                None => Flow::On,
            },
            3 => {
                self.fails(&[OTHERS.as_bytes()]);
                Flow::On
            }
            _ => {
                self.fails(&[b"Wrong number of options for list request"]);
                Flow::On
            }
        }
    }

    /// The key of `-k KEY` after the option; `None` after a mistake.
    fn key_after(&mut self, otherwise: &str) -> Option<BString> {
        let mut rest = self.options.unread();
        let (option, key) = (rest.next(), rest.next());
        let key: BString = match (option, key) {
            (Some(b"-k"), Some(key)) => key.into(),
            _ => {
                drop(rest);
                self.fails(&[otherwise.as_bytes()]);
                return None;
            }
        };
        drop(rest);
        self.taken = 2;
        if self.dialect == Dialect::V4 {
            if key.len() > KEY_LIMIT_BYTES {
                self.fails(&[b"key option exceeds size limit"]);
            } else if key.contains(&1) {
                self.fails(&[b"key ", &key, b" has illegal character"]);
            }
        }
        (!self.findings.refused()).then_some(key)
    }

    fn status(&mut self) -> Flow {
        let interpret = self.options.peek() == Some(b"-i");
        match self.count {
            0..=2 => {}
            3 if interpret => self.taken = 1,
            3 => {
                self.fails(&[b"Only -i option is allowed"]);
                return Flow::On;
            }
            _ => {
                self.fails(&[b"Too many options for status command"]);
                return Flow::On;
            }
        }
        self.last(Request::Status { interpret })
    }

    fn message(&mut self, text: &[u8]) -> Flow {
        if self.count > 3 {
            self.fails(&[b"The -m option must be only the only option and takes 1 parameter"]);
            return Flow::On;
        }
        // Bytes above 0x7f are negative there.
        if text.iter().any(|&byte| !(32..=127).contains(&byte)) {
            self.fails(&[b"Illegal character in audit event"]);
            return Flow::Finish;
        }
        self.end(Request::Message(text.into()))
    }

    fn equivalent(&mut self, value: &[u8]) -> Flow {
        if self.draft.is_masked() {
            self.fails(&[b"Syscall auditing requested for make equivalent"]);
            return Flow::On;
        }
        match value.split_once_str(",") {
            Some((mount, subtree)) if !subtree.is_empty() && !subtree.contains(&b',') => {
                self.end(Request::Equivalent {
                    mount: mount.into(),
                    subtree: subtree.into(),
                })
            }
            _ => {
                self.fails(&[b"Error parsing equivalent parts"]);
                Flow::On
            }
        }
    }

    fn signal(&mut self, name: &[u8]) -> Flow {
        let long = self.dialect == Dialect::V4;
        let signal = match name.to_ascii_lowercase().as_slice() {
            b"term" => DaemonSignal::Stop,
            b"hup" => DaemonSignal::Reload,
            b"usr1" => DaemonSignal::Rotate,
            b"usr2" => DaemonSignal::Resume,
            b"cont" => DaemonSignal::State,
            b"stop" if long => DaemonSignal::Stop,
            b"reload" if long => DaemonSignal::Reload,
            b"rotate" if long => DaemonSignal::Rotate,
            b"resume" if long => DaemonSignal::Resume,
            b"state" if long => DaemonSignal::State,
            _ => {
                self.fails(&[name, b" is an unsupported signal"]);
                if long {
                    self.progress = Progress::Exit(1);
                    return Flow::Finish;
                }
                return Flow::On;
            }
        };
        self.last(Request::Signal(signal))
    }

    /// Version 3 has no `--help`, and takes `-h` for a mistake.
    fn help(&mut self, given: &Given) -> Flow {
        match self.dialect {
            Dialect::V4 => self.last(Request::Usage),
            Dialect::V3 if given.name.text.starts_with(b"--") => {
                self.fails(&[b"Option ", &given.name.text, b" is invalid"]);
                Flow::On
            }
            Dialect::V3 => {
                self.requests.push(Request::Usage);
                self.progress = Progress::Error;
                Flow::On
            }
        }
    }
}

#[cfg(test)]
mod tests;
