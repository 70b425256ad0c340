//! A fake machine that records actions.

use std::sync::{Arc, Mutex};

use bstr::BStr;

use super::super::system::{RunId, SyslogSeverity, System};
use crate::helper::Runlevel;

/// Actions requested from the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedActions {
    notes: Arc<Mutex<Vec<String>>>,
    runs: u32,
    pub(super) ended: Arc<Mutex<Vec<RunId>>>,
}

impl RecordedActions {
    fn record(&self, text: String) {
        self.notes.lock().unwrap().push(text);
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap())
    }
}

impl System for RecordedActions {
    fn syslog(&mut self, severity: SyslogSeverity, text: &str) {
        self.record(format!("{severity:?}: {text}"));
    }

    fn mail(&mut self, to: &BStr, subject: &str, _text: &str) {
        self.record(format!("mail {to}: {subject}"));
    }

    fn run(&mut self, program: &BStr) -> Option<RunId> {
        self.record(format!("run {program}"));
        self.runs += 1;
        Some(RunId(self.runs))
    }

    fn has_running_program(&self) -> bool {
        false
    }

    fn take_ended_programs(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.ended.lock().unwrap())
    }

    fn change_runlevel(&mut self, to: Runlevel) {
        self.record(format!("go {to:?}"));
    }
}
