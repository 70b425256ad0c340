//! `ausearch` and `aureport`: the questions of the stock tools, with their answers, at the speed of the disk.
//!
//! Both read records line by line, group them into events, read the fields that the question needs, and print. What they
//! print, their messages, their exit status and their checkpoints are those of audit-userspace 4.2.1;
//! `docs/compat.md` lists the differences.
//!
//! [`fields`] reads fields for questions, [`interpret`] gives values their meaning, [`report`] draws a picture of a log.

#![forbid(unsafe_code)]

mod accounts;
mod aureport;
mod ausearch;
mod checkpoint;
mod command_line;
mod config;
mod escape;
mod event;
mod events;
mod fields;
mod filter;
mod grouping;
mod input;
mod interpret;
mod lines;
mod local_time;
mod log_file;
mod log_times;
#[cfg(test)]
mod manual;
mod narrow;
mod normalize;
mod part_reader;
mod record_type;
mod report;
mod time_range;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use command_line::Words;
use local_time::Clock;
use logs::ctext;

/// The version whose options and output the tools have.
const STOCK_VERSION: &str = "4.2.1";

/// Runs `ausearch` with these arguments.
pub fn ausearch(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    with_streams(|out, err| {
        let clock = Clock::new();
        let mut words = Words::new(arguments);
        let usage = || command_line::help("ausearch [options]", ausearch::options::OPTIONS);
        match ausearch::options::parse(&mut words, ausearch::options::host_machine(), &clock) {
            Ok(ausearch::options::Request::Search(options)) => {
                ausearch::run(&options, &clock, out, err)
            }
            Ok(ausearch::options::Request::Help) => {
                out.write_all(usage().as_bytes())?;
                Ok(0)
            }
            Ok(ausearch::options::Request::Version) => version("ausearch", out),
            Ok(ausearch::options::Request::Nothing) => {
                out.write_all(usage().as_bytes())?;
                Ok(1)
            }
            Err(message) => {
                err.write_all(message.as_bytes())?;
                Ok(1)
            }
        }
    })
}

fn version(name: &str, out: &mut dyn Write) -> io::Result<u8> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "{name} version {STOCK_VERSION} (tollgate {version})")?;
    Ok(0)
}

/// Runs a tool with buffered output. A reader that is gone is no error.
fn with_streams(run: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<u8>) -> ExitCode {
    const BUFFER_BYTES: usize = 1 << 16;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let mut err = BufWriter::new(io::stderr().lock());
    let status = run(&mut out, &mut err).and_then(|status| {
        out.flush()?;
        Ok(status)
    });
    match status.and_then(|status| err.flush().map(|()| status)) {
        Ok(status) => ExitCode::from(status),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // The streams are what fails; the standard error may not.
            let _unheard = writeln!(err, "cannot write the output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `aureport` with these arguments.
pub fn aureport(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    with_streams(|out, err| {
        let clock = Clock::new();
        let mut words = Words::new(arguments);
        let usage = || command_line::help("aureport [options]", aureport::options::OPTIONS);
        match aureport::options::parse(&mut words, &clock) {
            Ok(aureport::options::Request::Report(options)) => {
                aureport::run(&options, &clock, out, err)
            }
            Ok(aureport::options::Request::Help) => {
                out.write_all(usage().as_bytes())?;
                Ok(0)
            }
            Ok(aureport::options::Request::Version) => version("aureport", out),
            Err(aureport::options::Refusal::Mistake(message)) => {
                err.write_all(message.as_bytes())?;
                out.write_all(usage().as_bytes())?;
                Ok(1)
            }
            Err(aureport::options::Refusal::Unimplemented) => aureport::unimplemented(err),
        }
    })
}

/// Runs `tollgate report` with these arguments.
pub fn report(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    with_streams(|out, err| {
        let clock = Clock::new();
        match report::parse(&mut Words::new(arguments), &clock) {
            Ok(Some(options)) => report::run(&options, &clock, out, err),
            Ok(None) => {
                let help = command_line::help("tollgate report --html [options]", report::OPTIONS);
                out.write_all(help.as_bytes())?;
                Ok(0)
            }
            Err(message) => {
                err.write_all(message.as_bytes())?;
                Ok(2)
            }
        }
    })
}
