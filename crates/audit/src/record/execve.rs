//! EXECVE records: the arguments of an executed program, split over as many records as needed.
//!
//! An argument that fits is written as `aN=`. A longer one is written in chunks `aN[0]=`, `aN[1]=`, ... after
//! `aN_len=`, which counts its encoded bytes without quotes. Either all chunks of an argument are quoted, or all
//! are hex. `argc=` is in the first record only and counts all arguments, including those that the engine
//! truncated: then the last record ends with `truncated=yes`.

use bstr::{BString, ByteSlice as _};

use super::decode::{DecodeError, Field, Record, parse};
use super::digits::decimal;
use super::encode::{LineWriter, Stamp};
use super::quote;
use crate::event::Argv;

/// Maximum bytes of arguments, labels included, in one record. A longer argument is always hex.
const MAX_EXECVE_AUDIT_LEN: usize = 7500;

/// Bytes that the kernel reserves for the label of an argument.
const LABEL_ROOM: usize = 96;

/// A record with less free space is full.
const MIN_ROOM: usize = LABEL_ROOM + 8;

const HEAD: &[u8] = b"type=EXECVE msg=";

/// Arguments in EXECVE records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Number of arguments of the program.
    pub argc: u32,
    /// The recorded arguments, from the first.
    pub args: Vec<BString>,
}

/// Collects the arguments from the EXECVE records of one event.
///
/// # Errors
/// [`DecodeError::Argument`] if an argument or a chunk is missing, and errors of [`Record::fields`] and
/// [`Record::text`].
pub fn arguments<'a, 'r>(
    records: impl IntoIterator<Item = &'r Record<'a>>,
) -> Result<Arguments, DecodeError>
where
    'a: 'r,
{
    let mut assembler = ArgumentAssembler::default();
    for record in records.into_iter().filter(|record| record.kind == "EXECVE") {
        for field in record.fields() {
            assembler.add(record, &field?)?;
        }
    }
    assembler.finish()
}

/// Collects the arguments before the first one that is missing, incomplete or out of order, and what is recorded of
/// that one: a log can end, or be cut, within them.
pub fn readable<'a, 'r>(records: impl IntoIterator<Item = &'r Record<'a>>) -> Arguments
where
    'a: 'r,
{
    let mut assembler = ArgumentAssembler::default();
    let records = records.into_iter().filter(|record| record.kind == "EXECVE");
    let mut fields = records.flat_map(|record| record.valid_fields().map(move |it| (record, it)));
    let _first_damaged = fields.try_for_each(|(record, field)| assembler.add(record, &field));
    let ArgumentAssembler { mut done, open } = assembler;
    done.args.extend(open.map(|open| open.bytes));
    done
}

/// Whether a field of an EXECVE record holds an argument or a chunk.
pub(super) fn is_argument(name: &[u8]) -> bool {
    matches!(
        part(name),
        Some((_, ArgumentPart::Whole | ArgumentPart::Chunk(_)))
    )
}

/// Appends the EXECVE records of an event.
///
/// # Source
/// `audit_log_execve_info` in `kernel/auditsc.c`, Linux 6.12.
pub(super) fn records(argv: &Argv<'_>, stamp: Stamp, out: &mut Vec<u8>) {
    let mut line = LineWriter::begin(HEAD, stamp, out);
    line.decimal(b"argc=", argv.argc);
    let mut room = MAX_EXECVE_AUDIT_LEN;
    for (number, bytes) in argv.args().enumerate() {
        line = argument(&Argument::new(number, bytes), &mut room, line, stamp);
    }
    if argv.is_truncated() {
        // The kernel, which writes all arguments, has no such field.
        line.out.extend_from_slice(b" truncated=yes");
    }
    line.end();
}

/// An argument and its encoding.
struct Argument<'a> {
    number: usize,
    bytes: &'a [u8],
    /// Whether it is encoded as hex rather than quoted.
    hex: bool,
}

impl<'a> Argument<'a> {
    fn new(number: usize, bytes: &'a [u8]) -> Self {
        let hex = bytes.len() >= MAX_EXECVE_AUDIT_LEN || quote::needs_hex(bytes);
        Self { number, bytes, hex }
    }

    /// Encoded length of `bytes` bytes, without quotes.
    const fn encoded(&self, bytes: usize) -> usize {
        if self.hex { bytes * 2 } else { bytes }
    }

    /// Number of quote bytes around a chunk.
    const fn quotes(&self) -> usize {
        if self.hex { 0 } else { 2 }
    }

    /// Number of bytes that fit in `room`, quotes included.
    const fn fitting(&self, room: usize) -> usize {
        if self.hex {
            room / 2
        } else {
            room.saturating_sub(2)
        }
    }
}

/// Writes one argument and starts new records where the kernel would. Returns the open record.
fn argument<'a>(
    arg: &Argument<'_>,
    room: &mut usize,
    mut line: LineWriter<'a>,
    stamp: Stamp,
) -> LineWriter<'a> {
    let mut rest = arg.bytes;
    let mut chunk = 0_u32;
    loop {
        if *room < MIN_ROOM {
            // The next label adds a second space after that of the stamp, as in the kernel.
            line.out.push(b'\n');
            line = LineWriter::begin(HEAD, stamp, line.out);
            *room = MAX_EXECVE_AUDIT_LEN;
        }
        let need = arg.encoded(rest.len()) + arg.quotes();
        let before = line.out.len();
        if chunk > 0 || need + LABEL_ROOM > *room {
            chunk_label(arg, chunk, &mut line);
            chunk += 1;
        } else {
            line.decimal(b" a", arg.number);
            line.out.push(b'=');
        }
        *room = room.saturating_sub(line.out.len() - before);

        let taken = if need > *room {
            arg.fitting(*room)
        } else {
            rest.len()
        };
        let (now, later) = rest.split_at_checked(taken).unwrap_or((rest, b""));
        if arg.hex {
            quote::hex(now, line.out);
        } else {
            quote::quoted(now, line.out);
        }
        *room = room.saturating_sub(arg.encoded(now.len()) + arg.quotes());
        rest = later;
        if rest.is_empty() {
            return line;
        }
    }
}

fn chunk_label(arg: &Argument<'_>, chunk: u32, line: &mut LineWriter<'_>) {
    if chunk == 0 {
        line.decimal(b" a", arg.number);
        line.decimal(b"_len=", arg.encoded(arg.bytes.len()));
    }
    line.decimal(b" a", arg.number);
    line.out.push(b'[');
    decimal(chunk, line.out);
    line.out.extend_from_slice(b"]=");
}

/// Kind of a field `aN...` of argument N.
#[derive(Clone, Copy)]
enum ArgumentPart {
    /// `aN`
    Whole,
    /// `aN_len`
    Length,
    /// `aN[M]`
    Chunk(usize),
}

fn part(name: &[u8]) -> Option<(usize, ArgumentPart)> {
    let text = name.strip_prefix(b"a")?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = text.split_at_checked(digits)?;
    let part = match suffix {
        b"" => ArgumentPart::Whole,
        b"_len" => ArgumentPart::Length,
        _ => ArgumentPart::Chunk(parse(suffix.strip_prefix(b"[")?.strip_suffix(b"]")?)?),
    };
    Some((parse(number)?, part))
}

/// Collects arguments.
#[derive(Default)]
struct ArgumentAssembler {
    done: Arguments,
    /// The argument whose chunks are being collected.
    open: Option<OpenArgument>,
}

struct OpenArgument {
    bytes: BString,
    /// Number of chunks so far.
    count: usize,
    /// Encoded bytes still to come.
    missing: usize,
    column: usize,
}

impl ArgumentAssembler {
    fn add(&mut self, record: &Record<'_>, field: &Field<'_>) -> Result<(), DecodeError> {
        let error = DecodeError::Argument {
            column: field.column,
        };
        if field.name == "argc" {
            self.done.argc = parse(field.value).ok_or(error)?;
            return Ok(());
        }
        let Some((number, part)) = part(field.name) else {
            return Ok(());
        };
        if number != self.done.args.len() {
            return Err(error);
        }
        match (part, &mut self.open) {
            (ArgumentPart::Whole, None) => {
                let bytes = record.text(field)?.ok_or(error)?;
                self.done.args.push(bytes.into_owned().into());
            }
            (ArgumentPart::Length, None) => {
                self.open = Some(OpenArgument {
                    bytes: BString::default(),
                    count: 0,
                    missing: parse(field.value).ok_or(error)?,
                    column: field.column,
                });
            }
            (ArgumentPart::Chunk(index), Some(open)) if index == open.count => {
                let value = field.value.trim_with(|byte| byte == '"');
                open.missing = open
                    .missing
                    .checked_sub(value.len())
                    .ok_or_else(|| error.clone())?;
                open.bytes
                    .extend_from_slice(&record.text(field)?.ok_or(error)?);
                open.count += 1;
                open.column = field.column;
                if open.missing == 0 {
                    let whole = std::mem::take(&mut open.bytes);
                    self.done.args.push(whole);
                    self.open = None;
                }
            }
            _ => return Err(error),
        }
        Ok(())
    }

    fn finish(self) -> Result<Arguments, DecodeError> {
        match self.open {
            Some(open) => Err(DecodeError::Argument {
                column: open.column,
            }),
            None => Ok(self.done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Timestamp;
    use crate::ids::Serial;
    use crate::record::decode;

    /// Bodies of the records of these arguments, with runs of `x` replaced by their length.
    fn encode_bodies(args: &[&[u8]]) -> Vec<String> {
        let bytes: Vec<u8> = args
            .iter()
            .flat_map(|arg| [arg, b"\0".as_slice()].concat())
            .collect();
        let argv = Argv {
            argc: args.len().try_into().unwrap(),
            bytes: &bytes,
        };
        let mut out = Vec::new();
        let stamp = Stamp::write(Timestamp { sec: 1, milli: 0 }, Serial(1), &mut out);
        let start = out.len();
        records(&argv, stamp, &mut out);
        out[start..]
            .lines()
            .map(|line| shorten_runs(decode::line(line).unwrap().body()))
            .collect()
    }

    fn shorten_runs(body: &[u8]) -> String {
        let mut text = body.to_str().unwrap().to_owned();
        for run in ["x", "78"] {
            let longest = (100..8000)
                .rev()
                .find(|&len| text.contains(&run.repeat(len)));
            if let Some(len) = longest {
                text = text.replace(&run.repeat(len), &format!("{run}*{len}"));
            }
        }
        text
    }

    #[test]
    fn argument_filling_a_record_is_one_chunk() {
        let arg = [b'x'; 7410];
        assert_eq!(
            encode_bodies(&[&arg, b"end"]),
            ["argc=2 a0_len=7410 a0[0]=\"x*7410\"", "a1=\"end\""]
        );
    }

    #[test]
    fn long_quoted_argument_continues_in_next_record() {
        let arg = [b'x'; 7499];
        let rest = "x".repeat(20);
        assert_eq!(
            encode_bodies(&[&arg, b"end"]),
            [
                "argc=2 a0_len=7499 a0[0]=\"x*7479\"".to_owned(),
                format!("a0[1]=\"{rest}\" a1=\"end\"")
            ]
        );
    }

    #[test]
    fn argument_longer_than_a_record_is_hex() {
        let arg = [b'x'; 7500];
        assert_eq!(
            encode_bodies(&[&arg]),
            [
                "argc=1 a0_len=15000 a0[0]=78*3740",
                "a0[1]=78*3746",
                "a0[2]=7878787878787878787878787878"
            ]
        );
    }

    #[test]
    fn arguments_that_are_cut_are_read_up_to_there() {
        let lines = [
            "type=EXECVE msg=audit(1.000:1): argc=4 a0=\"sh\" a1=\"-c\" a2_len=8 a2[0]=6162",
            "type=EXECVE msg=audit(1.000:1): a2[1]=63",
            "type=EXECVE msg=audit(1.000:1): a3=\"after\"",
        ];
        let records = lines.map(|line| decode::line(line.as_bytes()).unwrap());
        arguments(&records).unwrap_err();
        for records in [&records[..2], &records[..]] {
            let found = readable(records);
            assert_eq!((found.argc, found.args.len()), (4, 3));
            assert_eq!(found.args, ["sh", "-c", "abc"]);
        }
        assert_eq!(readable(&records[1..]), Arguments::default());
    }

    #[test]
    fn argument_field_names_are_recognised() {
        for name in ["a0", "a12", "a1[0]", "a4294967295[7]"] {
            assert!(is_argument(name.as_bytes()), "{name}");
        }
        for name in [
            "a", "argc", "a1_len", "a1[", "a1[]", "a1[x]", "ab", "a1]", "b1", "a1[0]x",
        ] {
            assert!(!is_argument(name.as_bytes()), "{name}");
        }
    }
}
