//! Runs the stock tools and ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bstr::ByteSlice as _;

/// What a tool said.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Answer {
    pub(crate) fn digest(&self) -> String {
        let status = self
            .status
            .map_or_else(|| "-".to_owned(), |status| status.to_string());
        format!(
            "{status}\t{:016x}\t{:016x}",
            digest(&self.out),
            digest(&self.err)
        )
    }
}

/// FNV-1a.
fn digest(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub(crate) fn answer(output: std::process::Output) -> Answer {
    Answer {
        status: output.status.code(),
        out: output.stdout,
        err: output.stderr,
    }
}

pub(crate) fn ours(tool: &str) -> PathBuf {
    PathBuf::from(match tool {
        "ausearch" => env!("CARGO_BIN_EXE_tollgate-ausearch"),
        _ => env!("CARGO_BIN_EXE_tollgate-aureport"),
    })
}

/// The stock tools and their version.
pub(crate) fn stock() -> Option<(PathBuf, String)> {
    let directory = std::env::var_os("TOLLGATE_STOCK")
        .map_or_else(|| PathBuf::from("/usr/sbin"), PathBuf::from);
    let output = Command::new(directory.join("ausearch"))
        .arg("-v")
        .output()
        .ok()?;
    let text = output.stdout.to_str_lossy().into_owned();
    let version = text.split_whitespace().nth(2)?.to_owned();
    Some((directory, version))
}

pub(crate) fn first_difference(theirs: &[u8], ours: &[u8]) -> String {
    let mut lines = theirs
        .lines_with_terminator()
        .zip(ours.lines_with_terminator());
    match lines.find(|(theirs, ours)| theirs != ours) {
        Some((theirs, ours)) => format!(
            "  stock {:?}\n  ours  {:?}\n",
            theirs.as_bstr(),
            ours.as_bstr()
        ),
        None => format!("  stock has {} bytes, ours {}\n", theirs.len(), ours.len()),
    }
}

/// Runs a tool in a directory.
pub(crate) fn run(program: &Path, words: &[&str], directory: &Path) -> Answer {
    let mut command = Command::new(program);
    command
        .args(words)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .env("TZ", "UTC");
    answer(command.stdin(Stdio::null()).output().unwrap())
}
