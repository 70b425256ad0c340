//! One question to a tool.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::tools::{Answer, answer, first_difference};

/// A tool, its words, and how the log reaches it.
pub(crate) struct Question {
    pub(crate) tool: &'static str,
    pub(crate) words: Vec<String>,
    /// Name of the log in its directory.
    pub(crate) log: String,
    pub(crate) is_piped: bool,
}

impl Question {
    pub(crate) fn shown(&self) -> String {
        let how = if self.is_piped { "<" } else { "-if" };
        format!("{} {} {how} {}", self.tool, self.words.join(" "), self.log)
    }

    /// What the program answers, with the logs in `directory`.
    pub(crate) fn ask(&self, program: &Path, directory: &Path) -> Answer {
        let mut command = Command::new(program);
        command
            .args(&self.words)
            .current_dir(directory)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !self.is_piped {
            command.args(["-if", &self.log]);
            return answer(command.output().unwrap());
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let text = std::fs::read(directory.join(&self.log)).unwrap();
        let child = command.stdin(reader).spawn().unwrap();
        drop(command);
        let writing = std::thread::spawn(move || {
            // A tool that refuses its options does not read.
            let _ignored = writer.write_all(&text);
        });
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap();
        answer(output)
    }

    pub(crate) fn shown_difference(&self, theirs: &Answer, ours: &Answer) -> String {
        let mut text = format!(
            "{} ({:?}, {:?})\n",
            self.shown(),
            theirs.status,
            ours.status
        );
        if theirs.out != ours.out {
            text.push_str(&first_difference(&theirs.out, &ours.out));
        }
        if theirs.err != ours.err {
            text.push_str(&first_difference(&theirs.err, &ours.err));
        }
        text
    }
}
