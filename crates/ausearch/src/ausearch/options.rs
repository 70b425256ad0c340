//! The options of `ausearch`.

mod accounts;
mod specs;

use audit::ids::NativeArch;
use audit::table;
use bstr::ByteSlice as _;

use crate::accounts::Accounts;
use crate::command_line::{self, Words, is_negative, is_numeric};
use crate::ctext::{self, low_32, low_i32};
use crate::escape::Escape;
use crate::fields::{FAILED, SUCCEEDED};
use crate::filter::Filter;
use crate::interpret::{Machine, syscall_number};
use crate::local_time::Clock;
use crate::record_type;
use crate::time_range::Bound;

use specs::Id;
pub(crate) use specs::OPTIONS;

/// How events are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// As logged.
    Raw,
    /// With a line for the time.
    #[default]
    Default,
    /// With the meaning of values.
    Interpreted,
    /// As a table.
    Csv,
    /// As sentences.
    Text,
}

/// Columns that `--format csv` has on demand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) keys: bool,
    pub(crate) labels: bool,
    pub(crate) object2: bool,
    pub(crate) time: bool,
}

/// A command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) filter: Filter,
    pub(crate) format: Format,
    pub(crate) columns: Columns,
    pub(crate) escape: Escape,
    pub(crate) input: Option<Vec<u8>>,
    /// Read the logs even if the standard input is a pipe.
    pub(crate) force_logs: bool,
    pub(crate) checkpoint: Option<Vec<u8>>,
    /// Of the checkpoint only the time counts.
    pub(crate) checkpoint_time_only: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) just_one: bool,
    pub(crate) line_buffered: bool,
    pub(crate) debug: bool,
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    Search(Box<Options>),
    Help,
    Version,
    /// No option at all.
    Nothing,
}

/// Reads a command line.
///
/// # Errors
/// The message, as the stock tool words it.
pub(crate) fn parse(words: &mut Words, host: Machine, clock: &Clock) -> Result<Request, String> {
    if words.is_empty() {
        return Ok(Request::Nothing);
    }
    let mut parser = Parser {
        options: Options::default(),
        accounts: Accounts::default(),
        host,
    };
    let parsed = parser.parse(words, clock);
    let options = parser.options;
    let columns = options.columns;
    let lacks_table =
        (columns.time || columns.labels || columns.keys) && options.format != Format::Csv;
    let mut message = match parsed {
        Ok(Some(request)) => return Ok(request),
        Ok(None) => String::new(),
        Err(message) => message,
    };
    // This is checked whatever else is wrong.
    if lacks_table {
        message.push_str("--extra options requires format to be csv\n");
    }
    if message.is_empty() {
        Ok(Request::Search(Box::new(options)))
    } else {
        Err(message)
    }
}

struct Parser {
    options: Options,
    accounts: Accounts,
    host: Machine,
}

impl Parser {
    /// Reads all words. Returns a request that stands for itself.
    fn parse(&mut self, words: &mut Words, clock: &Clock) -> Result<Option<Request>, String> {
        while let Some(word) = words.next() {
            let spec = OPTIONS
                .iter()
                .find(|option| option.names.iter().any(|name| name.as_bytes() == word));
            let Some(spec) = spec else {
                return Err(format!(
                    "{} is an unsupported option\n",
                    word.to_str_lossy()
                ));
            };
            match spec.id {
                Id::Help => return Ok(Some(Request::Help)),
                Id::Version => return Ok(Some(Request::Version)),
                id => self.option(id, &word, words, clock)?,
            }
        }
        Ok(None)
    }

    fn option(
        &mut self,
        id: Id,
        name: &[u8],
        words: &mut Words,
        clock: &Clock,
    ) -> Result<(), String> {
        match id {
            Id::Debug => self.options.debug = true,
            Id::InputLogs => self.options.force_logs = true,
            Id::JustOne => self.options.just_one = true,
            Id::LineBuffered => self.options.line_buffered = true,
            Id::Word => self.options.filter.whole = true,
            Id::ExtraKeys => return set(&mut self.options.columns.keys, name, words),
            Id::ExtraLabels => return set(&mut self.options.columns.labels, name, words),
            Id::ExtraObject2 => return set(&mut self.options.columns.object2, name, words),
            Id::ExtraTime => return set(&mut self.options.columns.time, name, words),
            Id::Interpret => return self.interpret(name, words),
            Id::Raw => return self.raw(words),
            Id::Format => return self.format(name, words),
            Id::Start => return self.start(name, words, clock),
            Id::End => self.options.filter.end = words.time(name, Bound::End, clock)?,
            Id::Session => return self.session(&words.signed_value(name)?),
            Id::Exit => return self.exit(&words.signed_value(name)?),
            Id::Loginuid => return self.loginuid(&words.signed_value(name)?),
            Id::Message => return self.message(name, words),
            _ => {
                let value = words.value(name)?;
                return self.value(id, value);
            }
        }
        Ok(())
    }

    /// Sets an option that has a value.
    fn value(&mut self, id: Id, value: Vec<u8>) -> Result<(), String> {
        const PATH_MAX: usize = 4096;
        let shown = value.to_str_lossy().into_owned();
        let filter = &mut self.options.filter;
        match id {
            Id::Event => return self.event(&value),
            Id::Timeout => self.options.timeout_seconds = Some(command_line::timeout(&value)?),
            Id::Comm => filter.comm = Some(value),
            Id::File if value.len() >= PATH_MAX => {
                return Err(format!("File name is too long {shown}\n"));
            }
            Id::File => filter.file = Some(value),
            Id::Key => filter.key = Some(value),
            Id::Host => filter.host = Some(value),
            Id::Object => filter.object = Some(value),
            Id::Subject => filter.subject = Some(value),
            Id::Context => {
                filter.subject = Some(value.clone());
                filter.object = Some(value);
                filter.any_label = true;
            }
            Id::Terminal => filter.terminal = Some(value),
            Id::Uuid => filter.uuid = Some(value),
            Id::VmName => filter.vm = Some(value),
            Id::Executable => filter.exe = Some(value),
            Id::Node => filter.nodes.push(value),
            Id::Checkpoint => self.options.checkpoint = Some(value),
            Id::Input if value.len() >= PATH_MAX - 32 => {
                return Err(format!("File name is too longs {shown}\n"));
            }
            Id::Input => self.options.input = Some(value),
            Id::Escape => {
                let mode = Escape::by_name(&value);
                self.options.escape = mode.ok_or_else(|| format!("Unknown option ({shown})\n"))?;
            }
            Id::Pid => filter.pid = Some(process("Process", &value)?),
            Id::Ppid => filter.ppid = Some(process("Parent process", &value)?),
            Id::Syscall => return self.syscall(&value),
            Id::Arch => return self.arch(&value),
            Id::Success => filter.success = Some(success(&value)?),
            Id::Gid | Id::GidAll | Id::GidEffective => return self.group(id, &value),
            _ => return self.user(id, &value),
        }
        Ok(())
    }

    fn event(&mut self, value: &[u8]) -> Result<(), String> {
        if !is_numeric(value) {
            let shown = value.to_str_lossy();
            return Err(format!(
                "Audit event id must be a numeric value, was {shown}\n"
            ));
        }
        let serial = command_line::unsigned(value, u32::MAX.into());
        let serial = low_32(serial.ok().ok_or("Illegal value for audit event ID")?);
        self.options.filter.serial = (serial != u32::MAX).then_some(serial);
        Ok(())
    }

    fn interpret(&mut self, name: &[u8], words: &Words) -> Result<(), String> {
        let shown = name.to_str_lossy();
        let mut messages = String::new();
        if self.options.format == Format::Default {
            self.options.format = Format::Interpreted;
        } else {
            messages = format!("Conflicting output format {shown}\n");
        }
        if let Err(message) = words.no_value(&shown) {
            messages.push_str(&message);
        }
        if messages.is_empty() {
            Ok(())
        } else {
            Err(messages)
        }
    }

    fn raw(&mut self, words: &Words) -> Result<(), String> {
        let mut messages = String::new();
        if self.options.format == Format::Default {
            self.options.format = Format::Raw;
        } else {
            messages = "Conflicting output format --raw\n".to_owned();
        }
        if let Err(message) = words.no_value("--raw") {
            messages.push_str(&message);
        }
        if messages.is_empty() {
            Ok(())
        } else {
            Err(messages)
        }
    }

    fn format(&mut self, name: &[u8], words: &mut Words) -> Result<(), String> {
        if self.options.format != Format::Default {
            return Err("Multiple output formats, use only 1\n".to_owned());
        }
        let value = words.value(name)?;
        self.options.format = match value.as_slice() {
            b"raw" => Format::Raw,
            b"default" => Format::Default,
            b"csv" => Format::Csv,
            b"text" => Format::Text,
            value if value.starts_with(b"interp") => Format::Interpreted,
            value => return Err(format!("Unknown option ({})\n", value.to_str_lossy())),
        };
        Ok(())
    }

    fn start(&mut self, name: &[u8], words: &mut Words, clock: &Clock) -> Result<(), String> {
        // The word stands alone: what follows it would be a time.
        if words.peek() == Some(b"checkpoint") && !words.has_two_values() {
            words.skip();
            self.options.checkpoint_time_only = true;
            return Ok(());
        }
        self.options.filter.start = words.time(name, Bound::Start, clock)?;
        Ok(())
    }

    fn message(&mut self, name: &[u8], words: &mut Words) -> Result<(), String> {
        let read = words.value(name).and_then(|value| self.kinds(&value));
        read.map_err(|message| format!("{message}Valid message types are: ALL {}\n", valid_kinds()))
    }

    fn kinds(&mut self, value: &[u8]) -> Result<(), String> {
        if value.eq_ignore_ascii_case(b"ALL") {
            return Ok(());
        }
        let is_list = value.contains(&b',');
        for name in value
            .split(|&byte| byte == b',')
            .filter(|name| !is_list || !name.is_empty())
        {
            let kind = if is_numeric(name) {
                let number = command_line::unsigned(name, i32::MAX.cast_unsigned().into());
                low_i32(number.map_err(|error| {
                    let shown = name.to_str_lossy();
                    format!("Numeric message type conversion error ({error}) for {shown}\n")
                })?)
            } else {
                record_type::by_name(name)
            };
            if kind < 0 {
                return Err(String::new());
            }
            self.options.filter.kinds.get_or_insert_default().push(kind);
        }
        Ok(())
    }

    fn exit(&mut self, value: &[u8]) -> Result<(), String> {
        let shown = value.to_str_lossy();
        let exit = if is_numeric(value) || is_negative(value) {
            command_line::signed(value)
                .ok()
                .ok_or_else(|| format!("Error converting {shown}\n"))?
        } else {
            let (negated, name) = match value.strip_prefix(b"-") {
                Some(name) => (true, name),
                None => (false, value),
            };
            let number = table::errno_number(name).map(i64::from);
            let number = number.ok_or_else(|| format!("Unknown errno, was {shown}\n"))?;
            if negated { -number } else { number }
        };
        self.options.filter.exit = Some(exit);
        Ok(())
    }

    fn syscall(&mut self, value: &[u8]) -> Result<(), String> {
        let shown = value.to_str_lossy();
        let number = if is_numeric(value) {
            let number = command_line::unsigned(value, i32::MAX.cast_unsigned().into());
            low_i32(number.map_err(|error| {
                format!("Syscall numeric conversion error ({error}) for {shown}\n")
            })?)
        } else {
            let machine = *self.options.filter.machine.get_or_insert(self.host);
            let number = match machine {
                Machine::Arch(arch) => syscall_number(arch, value),
                Machine::Uring => {
                    table::uring_op_number(value).and_then(|number| i32::try_from(number).ok())
                }
                Machine::Unknown => None,
            };
            number.ok_or_else(|| format!("Syscall {shown} not found\n"))?
        };
        self.options.filter.syscall = Some(number);
        Ok(())
    }

    fn arch(&mut self, value: &[u8]) -> Result<(), String> {
        if self.options.filter.machine.is_some() {
            return Err(if self.options.filter.syscall.is_some() {
                "Arch needs to be defined before the syscall\n".to_owned()
            } else {
                "Arch is already defined\n".to_owned()
            });
        }
        let machine = self.machine(value);
        let machine = machine.ok_or_else(|| format!("Unknown arch {}\n", value.to_str_lossy()))?;
        self.options.filter.machine = Some(machine);
        Ok(())
    }

    fn machine(&self, value: &[u8]) -> Option<Machine> {
        let Machine::Arch(host) = self.host else {
            return None;
        };
        if value.eq_ignore_ascii_case(b"b64") {
            return host.is_64_bit().then_some(self.host);
        }
        if value.eq_ignore_ascii_case(b"b32") {
            return Some(Machine::Arch(table::arch_32(host).unwrap_or(host)));
        }
        if let Some(arch) = table::arch_by_name(value) {
            return Some(Machine::Arch(arch));
        }
        let number = ctext::unsigned(value, 16);
        let machine = Machine::of_arch(low_32(number.value));
        (!number.overflow && machine != Machine::Unknown).then_some(machine)
    }
}

fn set(flag: &mut bool, name: &[u8], words: &Words) -> Result<(), String> {
    *flag = true;
    words.no_value(&name.to_str_lossy())
}

fn process(kind: &str, value: &[u8]) -> Result<i32, String> {
    let number = command_line::unsigned(value, i32::MAX.cast_unsigned().into());
    match number {
        Ok(number) if is_numeric(value) => Ok(low_i32(number)),
        _ => {
            let shown = value.to_str_lossy();
            Err(format!("{kind} id must be a numeric value, was {shown}\n"))
        }
    }
}

fn success(value: &[u8]) -> Result<i32, String> {
    if !value.contains_str("yes") && !value.contains_str("no") {
        return Err("Success must be 'yes' or 'no'.\n".to_owned());
    }
    Ok(if value == b"yes" { SUCCEEDED } else { FAILED })
}

/// Names of all record types that events of programs and of the kernel have.
fn valid_kinds() -> String {
    let names = (1005..=1006)
        .chain(1100..=2599)
        .filter_map(record_type::name);
    names.map(|name| format!("{name} ")).collect()
}

/// The arch of this host.
pub(crate) fn host_machine() -> Machine {
    let arch = nix::sys::utsname::uname().ok().and_then(|name| {
        let machine = name.machine().to_str()?.to_owned();
        table::arch_by_name(machine.as_bytes())
    });
    arch.map_or(Machine::Arch(NativeArch::BUILD.b64()), Machine::Arch)
}
