//! Prints events: in columns, as JSON, or as logged.

use std::collections::HashMap;
use std::io::{self, Write as _};

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::interpret;
use audit::table;
use bstr::{BString, ByteSlice as _};
use jiff::tz::TimeZone;
use logs::accounts::Accounts;
use logs::console::{Console, Interpret};
use logs::escaped::{Escaped, EscapedJson};
use logs::event_accounts::EventAccounts;
use logs::event_values::ENRICHED;
use logs::expression::evaluate;
use logs::expression::field::{self, Field, Kind};
use logs::json;

/// Most values that `--top` counts, and most bytes of them; further ones are counted together.
const MAX_VALUES: usize = 1 << 20;
const MAX_VALUE_BYTES: usize = 128 << 20;

/// How events are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people; with numbers if true.
    Columns(bool),
    /// JSON lines.
    Json,
    /// As logged.
    Raw,
}

/// Where events are printed.
pub(crate) struct Output {
    form: Form,
    console: Console,
    out: io::BufWriter<AutoStream<io::Stdout>>,
}

impl Output {
    pub(crate) fn new(form: Form, color: &str, accounts: Accounts) -> Self {
        let choice = match color {
            "always" => ColorChoice::Always,
            "never" => ColorChoice::Never,
            _ => ColorChoice::Auto,
        };
        let interpret = match form {
            Form::Columns(true) => Interpret::Raw,
            _ => Interpret::Names(accounts),
        };
        Self {
            form,
            console: Console::stdout(interpret, choice),
            // What a log contains is printed as it is; only the columns have colours.
            out: io::BufWriter::new(AutoStream::new(io::stdout(), ColorChoice::AlwaysAnsi)),
        }
    }

    /// Prints an event.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn event(&mut self, event: &EventRecords) -> anyhow::Result<()> {
        self.indented(event, 0)
    }

    /// Prints an event of a process that is `depth` levels below another.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn indented(&mut self, event: &EventRecords, depth: usize) -> anyhow::Result<()> {
        let written = match self.form {
            Form::Raw => self.out.write_all(event.text()),
            Form::Json => {
                let object = json::object(event, |_| ());
                writeln!(self.out, "{}", EscapedJson(&object))
            }
            Form::Columns(_) => self.columns(event, depth),
        };
        written.context("cannot write to standard output")
    }

    fn columns(&mut self, event: &EventRecords, depth: usize) -> io::Result<()> {
        let seconds = event.time().sec;
        let date = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        write!(self.out, "{:width$}", "", width = depth * 2)?;
        match date {
            Some(date) => write!(self.out, "{} ", TimeZone::UTC.to_datetime(date).date())?,
            None => write!(self.out, "@{seconds} ")?,
        }
        if let Some(node) = event.node() {
            write!(self.out, "{} ", Escaped(node))?;
        }
        self.out.flush()?;
        self.console.records(event)
    }

    /// Whether people read it: only then what is no event is printed among events.
    pub(crate) const fn is_for_people(&self) -> bool {
        matches!(self.form, Form::Columns(_))
    }

    /// Prints a line.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{line}").context("cannot write to standard output")
    }

    /// Prints the most frequent values.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn top(&mut self, top: &Top, limit: usize) -> anyhow::Result<()> {
        for (value, count) in top.sorted().into_iter().take(limit) {
            let value = top.shown(value);
            self.line(&format!("{count:>9}  {value}"))?;
        }
        if top.others > 0 {
            self.line(&format!("{:>9}  (other values)", top.others))?;
        }
        Ok(())
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.out.flush().context("cannot write to standard output")
    }
}

/// Prints the names of fields.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn print_fields(names: impl Iterator<Item = &'static str>) -> anyhow::Result<()> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    writeln!(io::stdout(), "{}", names.join("\n")).context("cannot write to standard output")
}

/// Counts the values of a field.
pub(crate) struct Top {
    field: Field,
    /// Numbers are not shown as names.
    is_numeric: bool,
    accounts: Accounts,
    counts: HashMap<BString, u64>,
    /// Bytes of the values.
    bytes: usize,
    others: u64,
}

impl Top {
    /// Counts the values of the field called `name`; they are shown as numbers if `is_numeric`.
    ///
    /// # Errors
    /// There is no such field.
    pub(crate) fn new(name: &str, is_numeric: bool, accounts: Accounts) -> anyhow::Result<Self> {
        let field = field::find(name).with_context(|| match field::similar(name) {
            Some(similar) => format!("--top: unknown field `{name}`; did you mean `{similar}`?"),
            None => format!("--top: unknown field `{name}`; --fields lists the fields"),
        })?;
        Ok(Self {
            field,
            is_numeric,
            accounts,
            counts: HashMap::new(),
            bytes: 0,
            others: 0,
        })
    }

    /// Counts the values of an event, each once.
    pub(crate) fn add(&mut self, event: &EventRecords) {
        let mut found: Vec<BString> = Vec::new();
        evaluate::values(&self.field, event, |value| {
            if !value.starts_with(&[ENRICHED]) && !found.iter().any(|other| *other == *value) {
                found.push(value.into());
            }
        });
        for mut value in found {
            if !self.is_numeric
                && let Some(name) = self.name(&value, event)
            {
                value = name.into();
            }
            let has_room =
                self.counts.len() < MAX_VALUES && self.bytes + value.len() <= MAX_VALUE_BYTES;
            match self.counts.get_mut(&value) {
                Some(count) => *count += 1,
                None if has_room => {
                    self.bytes += value.len();
                    self.counts.insert(value, 1);
                }
                None => self.others += 1,
            }
        }
    }

    fn sorted(&self) -> Vec<(&BString, u64)> {
        let counts = self.counts.iter();
        let mut counts: Vec<_> = counts.map(|(value, count)| (value, *count)).collect();
        counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        counts
    }

    /// The name of a number that differs between hosts or archs, as far as the event is not of this one.
    fn name(&self, number: &[u8], event: &EventRecords) -> Option<String> {
        let number = number.to_str().ok()?.parse().ok()?;
        match self.field.kind {
            Kind::User => {
                let names = EventAccounts::of(event, &self.accounts);
                Some(interpret::user(&names, number).to_string())
            }
            Kind::Group => {
                let names = EventAccounts::of(event, &self.accounts);
                Some(interpret::group(&names, number).to_string())
            }
            Kind::Syscall => {
                let arch = Arch(evaluate::arch(event)?);
                table::syscall_name(arch, Syscall(number)).map(str::to_owned)
            }
            _ => None,
        }
    }

    fn shown(&self, value: &BString) -> String {
        let number = value.to_str().ok().filter(|_| !self.is_numeric);
        match self.field.kind {
            Kind::Exit => match number.and_then(|text| text.parse().ok()) {
                Some(exit) => interpret::exit(exit).to_string(),
                None => Escaped(value).to_string(),
            },
            _ => Escaped(value).to_string(),
        }
    }
}
