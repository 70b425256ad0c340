//! Parses the command line of `auditctl` as its versions 3 and 4 do: the same messages in the same order, the
//! same status, and the same requests to the kernel.
//!
//! The parser of rule files handles single options. This module handles their combination and the point where
//! `auditctl` stops. The caller executes the requests.
//!
//! # Source
//! `setopt()`, `handle_request()` and `fileopt()` in `src/auditctl.c` of audit-userspace 3.0.9 and
//! 4.2.1, and the observed behaviour of both.

mod request;
mod rule_file;

use bstr::{BString, ByteSlice as _};

use super::diagnostic::{Diagnostic, Findings};
use super::lexer::Word;
use super::parse::number;
use super::parse::option::{self, Flag, NextOption, Options, ParsedOption};
use super::parse::rule_builder::RuleBuilder;
use super::{Command, Dialect, RuleHost};

pub use request::{CliRequest, DaemonSignal, Invocation};
pub use rule_file::{line, lines};

/// Maximum length of a key, and of all keys together, in bytes.
const KEY_LIMIT_BYTES: usize = 256;

/// Exit status after an error.
pub const EXIT_FAILURE: u8 = 255;

/// Last message of version 4 after an error on the command line.
pub const PARAMETER_ERROR: &str = "There was an error while processing parameters";

/// Parses a command line without the program name. The caller handles `-R FILE` with [`lines`] and [`line`].
#[must_use]
pub fn arguments(words: &[&[u8]], dialect: Dialect, host: &dyn RuleHost) -> Invocation {
    if words.is_empty() {
        return Invocation {
            messages: Vec::new(),
            requests: vec![CliRequest::Usage],
            status: 1,
        };
    }
    let words = words.iter().map(|&text| Word {
        text: text.to_vec(),
        span: 0..text.len(),
    });
    let mut diagnostics = Vec::new();
    let findings = Findings::on_command_line(&mut diagnostics);
    let mut invocation =
        CommandLineParser::new(words.collect(), dialect, host, findings).read(None);
    if invocation.status == EXIT_FAILURE && dialect == Dialect::V4 {
        invocation.messages.push(PARAMETER_ERROR.into());
    }
    invocation
}

/// Every option with its dashes, letters first.
pub fn options() -> impl Iterator<Item = String> {
    option::spellings()
}

/// State of parsing. The names follow `auditctl`, where negative results end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing to send yet.
    Reply,
    /// A rule to send.
    Rule,
    /// Nothing more to send.
    NoReply,
    /// An error.
    Error,
    /// A rule that is skipped.
    Deprecated,
    /// The process exits with this status.
    Exit(u8),
}

/// Whether to parse further options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// If [`Progress`] permits.
    Continue,
    /// Stop, and check neither stray words nor keys.
    Stop,
}

struct CommandLineParser<'h, 'd> {
    dialect: Dialect,
    options: Options,
    findings: Findings<'d>,
    builder: RuleBuilder<'h>,
    requests: Vec<CliRequest>,
    progress: Progress,
    /// Number of words, including the program name.
    count: usize,
    /// Number of words after the last option that belong to it.
    consumed: usize,
}

impl<'h, 'd> CommandLineParser<'h, 'd> {
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
            builder: RuleBuilder::new(host, dialect),
            requests: Vec::new(),
            progress: Progress::Reply,
            consumed: 0,
        }
    }

    fn read(mut self, line: Option<u32>) -> Invocation {
        let mut next = Next::Continue;
        while next == Next::Continue && matches!(self.progress, Progress::Reply | Progress::Rule) {
            let Some(option) = self.options.next_option(&mut self.findings) else {
                break;
            };
            next = match option {
                NextOption::Valid(given) => self.option(&given),
                NextOption::Invalid(called) => {
                    self.bad_option(&called, line);
                    Next::Continue
                }
            };
        }
        if next == Next::Continue {
            self.check_rest();
        }
        self.finish(next)
    }

    fn bad_option(&mut self, called: &[u8], line: Option<u32>) {
        let place = line.map_or_else(String::new, |line| format!(" on line {line}"));
        self.fails(&[b"Option ", called, place.as_bytes(), b" is invalid"]);
    }

    /// Reports words that belong to no option.
    fn check_rest(&mut self) {
        if self.options.consumed_none() {
            self.progress = Progress::Error;
        } else if self.options.remaining() > self.consumed && self.progress != Progress::Error {
            self.fails(&[b"parameter passed without an option given"]);
        }
    }

    fn finish(mut self, next: Next) -> Invocation {
        let has_syscalls = self.builder.has_syscalls();
        let command = match next {
            Next::Continue => self.builder.finish(&(0..0), &mut self.findings),
            Next::Stop => None,
        };
        if self.findings.auditctl_failed() && !matches!(self.progress, Progress::Exit(_)) {
            self.progress = Progress::Error;
        }
        let mut messages = std::mem::take(&mut self.findings.transcript.messages);
        let status = match self.progress {
            Progress::Reply if has_syscalls => {
                messages.push("Error - no list specified".into());
                EXIT_FAILURE
            }
            Progress::Reply | Progress::NoReply | Progress::Deprecated => 0,
            Progress::Rule => {
                self.requests.extend(command.map(CliRequest::Command));
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
        self.findings.auditctl_fails(message);
        self.progress = Progress::Error;
    }

    /// Adds the last request. Further words are an error.
    fn then_expect_end(&mut self, request: CliRequest) -> Next {
        self.requests.push(request);
        self.progress = Progress::NoReply;
        Next::Continue
    }

    /// Adds the last request. Further words are ignored.
    fn then_stop(&mut self, request: CliRequest) -> Next {
        self.then_expect_end(request);
        Next::Stop
    }

    /// As [`Self::then_expect_end`] in version 4, as [`Self::then_stop`] in version 3.
    fn then_end_or_stop(&mut self, request: CliRequest) -> Next {
        self.then_expect_end(request);
        match self.dialect {
            Dialect::V3 => Next::Stop,
            Dialect::V4 => Next::Continue,
        }
    }

    fn option(&mut self, given: &ParsedOption) -> Next {
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
            | Flag::Compare => self.rule_option(given),
            Flag::IgnoreErrors => self.then_expect_end(CliRequest::Command(Command::IgnoreErrors)),
            Flag::ContinueOnErrors => {
                self.then_expect_end(CliRequest::Command(Command::ContinueOnErrors))
            }
            Flag::Enabled => self.level(value, b"Enable", Command::Enabled),
            Flag::Failure => self.level(value, b"Failure", Command::Failure),
            Flag::Rate => self.number(value, "Rate", Command::Rate),
            Flag::Backlog => self.number(value, "Backlog", Command::Backlog),
            Flag::BacklogWait => self.number(value, "Backlog_wait_time", Command::BacklogWait),
            Flag::LoginuidImmutable => {
                self.then_end_or_stop(CliRequest::Command(Command::LoginuidImmutable))
            }
            Flag::DeleteAll => self.delete_all(),
            Flag::List => self.list(),
            Flag::Status => self.status(),
            Flag::Message => self.message(value),
            Flag::ReadFile => {
                self.fails(&[b"Error - nested rule files not supported"]);
                Next::Continue
            }
            Flag::Equivalent => self.equivalent(value),
            Flag::Trim => self.then_stop(CliRequest::Trim),
            Flag::ResetLost => self.then_end_or_stop(CliRequest::ResetLost),
            Flag::ResetBacklogWait => self.then_stop(CliRequest::ResetBacklogWait),
            Flag::Signal => self.signal(value),
            Flag::Version => self.then_expect_end(CliRequest::Version),
            Flag::Help => self.help(given),
        }
    }

    fn rule_option(&mut self, given: &ParsedOption) -> Next {
        self.builder.take(given, &mut self.findings);
        let ends_here = given.flag == Flag::Insert && self.dialect == Dialect::V4;
        if self.findings.auditctl_failed() {
            self.progress = Progress::Error;
        } else if self.builder.is_skipped() {
            self.progress = Progress::Deprecated;
            return if ends_here {
                Next::Continue
            } else {
                Next::Stop
            };
        } else if self.builder.has_rule() {
            self.progress = Progress::Rule;
        }
        Next::Continue
    }

    fn level(&mut self, value: &[u8], called: &[u8], command: fn(u8) -> Command) -> Next {
        match value {
            [digit @ b'0'..=b'2'] => self
                .requests
                .push(CliRequest::Command(command(digit - b'0'))),
            _ => self.fails(&[called, b" must be 0, 1, or 2 was ", value]),
        }
        Next::Continue
    }

    fn number(&mut self, value: &[u8], called: &str, command: fn(u32) -> Command) -> Next {
        let Some(scanned) = number::scan(value) else {
            let what = called.as_bytes();
            self.fails(&[what, b" must be a numeric value was ", value]);
            return Next::Continue;
        };
        match scanned.low_bits() {
            Some(number) => {
                self.requests.push(CliRequest::Command(command(number)));
                Next::Continue
            }
            None => {
                let what = called.to_ascii_lowercase();
                self.fails(&[b"Error converting ", what.as_bytes()]);
                Next::Stop
            }
        }
    }

    fn delete_all(&mut self) -> Next {
        let key = match self.count {
            0..=2 => None,
            4 => match self.key_after("Only the -k option is allowed") {
                Some(key) => Some(key),
                None => return Next::Continue,
            },
            _ => {
                self.fails(&[b"Wrong number of options for Delete all request"]);
                return Next::Continue;
            }
        };
        self.then_expect_end(CliRequest::Command(Command::DeleteAll(key)))
    }

    fn list(&mut self) -> Next {
        const OTHERS: &str = "Only -k or -i options are allowed";
        match self.count {
            0..=2 => self.then_expect_end(CliRequest::List {
                key: None,
                interpret: false,
            }),
            3 if self.options.peek() == Some(b"-i") => {
                self.consumed = 1;
                self.then_expect_end(CliRequest::List {
                    key: None,
                    interpret: true,
                })
            }
            4 => match self.key_after(OTHERS) {
                Some(key) => self.then_expect_end(CliRequest::List {
                    key: Some(key),
                    interpret: false,
                }),
                None => Next::Continue,
            },
            3 => {
                self.fails(&[OTHERS.as_bytes()]);
                Next::Continue
            }
            _ => {
                self.fails(&[b"Wrong number of options for list request"]);
                Next::Continue
            }
        }
    }

    /// Returns the key of a following `-k KEY`; `None` after an error.
    fn key_after(&mut self, otherwise: &str) -> Option<BString> {
        let mut remaining = self.options.unread();
        let (option, key) = (remaining.next(), remaining.next());
        let key: BString = match (option, key) {
            (Some(b"-k"), Some(key)) => key.into(),
            _ => {
                drop(remaining);
                self.fails(&[otherwise.as_bytes()]);
                return None;
            }
        };
        drop(remaining);
        self.consumed = 2;
        if self.dialect == Dialect::V4 {
            if key.len() > KEY_LIMIT_BYTES {
                self.fails(&[b"key option exceeds size limit"]);
            } else if key.contains(&1) {
                self.fails(&[b"key ", &key, b" has illegal character"]);
            }
        }
        (!self.findings.auditctl_failed()).then_some(key)
    }

    fn status(&mut self) -> Next {
        let interpret = self.options.peek() == Some(b"-i");
        match self.count {
            0..=2 => {}
            3 if interpret => self.consumed = 1,
            3 => {
                self.fails(&[b"Only -i option is allowed"]);
                return Next::Continue;
            }
            _ => {
                self.fails(&[b"Too many options for status command"]);
                return Next::Continue;
            }
        }
        self.then_expect_end(CliRequest::Status { interpret })
    }

    fn message(&mut self, text: &[u8]) -> Next {
        if self.count > 3 {
            self.fails(&[b"The -m option must be only the only option and takes 1 parameter"]);
            return Next::Continue;
        }
        // `auditctl` compares signed chars: bytes above 0x7f are negative.
        if text.iter().any(|&byte| !(32..=127).contains(&byte)) {
            self.fails(&[b"Illegal character in audit event"]);
            return Next::Stop;
        }
        self.then_stop(CliRequest::Message(text.into()))
    }

    fn equivalent(&mut self, value: &[u8]) -> Next {
        if self.builder.has_syscalls() {
            self.fails(&[b"Syscall auditing requested for make equivalent"]);
            return Next::Continue;
        }
        match value.split_once_str(",") {
            Some((mount, subtree)) if !subtree.is_empty() && !subtree.contains(&b',') => self
                .then_stop(CliRequest::Equivalent {
                    mount: mount.into(),
                    subtree: subtree.into(),
                }),
            _ => {
                self.fails(&[b"Error parsing equivalent parts"]);
                Next::Continue
            }
        }
    }

    fn signal(&mut self, name: &[u8]) -> Next {
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
                    return Next::Stop;
                }
                return Next::Continue;
            }
        };
        self.then_expect_end(CliRequest::Signal(signal))
    }

    /// Version 3 has no `--help` and fails after `-h`.
    fn help(&mut self, given: &ParsedOption) -> Next {
        match self.dialect {
            Dialect::V4 => self.then_expect_end(CliRequest::Usage),
            Dialect::V3 if given.name.text.starts_with(b"--") => {
                self.fails(&[b"Option ", &given.name.text, b" is invalid"]);
                Next::Continue
            }
            Dialect::V3 => {
                self.requests.push(CliRequest::Usage);
                self.progress = Progress::Error;
                Next::Continue
            }
        }
    }
}

#[cfg(test)]
mod tests;
