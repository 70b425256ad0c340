//! Syscalls as an auditor recorded them: the syscall, arguments, result and key of each event.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context as _;
use audit::ids::{Arch, Syscall};
use audit::record::decode;
use audit::table;
use bstr::ByteSlice as _;
use serde::Deserialize;

/// Result of an operation that is to be retried.
const AGAIN: &str = "-11";

/// The syscalls that an auditor recorded, by process, in the order of its log.
#[derive(Debug, Default)]
pub(crate) struct RecordedCalls(BTreeMap<u32, Vec<RecordedCall>>);

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordedCall {
    /// Name of the syscall, with prefix `32:` for the 32-bit table.
    pub(crate) call: String,
    args: [String; 4],
    /// `None` if the syscall did not return.
    pub(crate) exit: Option<String>,
    /// As in the record.
    key: String,
}

/// The auditor that recorded the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Kernel,
    Tollgate,
    /// Both, by different rules.
    Key,
}

/// An event that only one auditor recorded, or that both recorded by different rules.
#[derive(Clone, Debug)]
pub(crate) struct CallDifference {
    pub(crate) side: Side,
    pub(crate) call: RecordedCall,
    /// Tollgate's key, if both recorded the event.
    pub(crate) key: String,
}

impl fmt::Display for CallDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, call, key } = self;
        write!(f, "{side:?}: {call} {key}")
    }
}

impl RecordedCalls {
    /// Parses a log.
    ///
    /// # Errors
    /// If a SYSCALL or URINGOP record lacks a mandatory field.
    pub(crate) fn read(log: &[u8]) -> anyhow::Result<Self> {
        let mut calls = Self::default();
        let is_head =
            |line: &&[u8]| line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ");
        for line in log.lines().filter(is_head) {
            let (pid, call) =
                RecordedCall::read(line).with_context(|| line.as_bstr().to_string())?;
            if !call.is_independent_of_rules() {
                calls.0.entry(pid).or_default().push(call);
            }
        }
        Ok(calls)
    }

    /// The recorded syscalls of one process.
    pub(crate) fn of(&self, pid: u32) -> &[RecordedCall] {
        self.0.get(&pid).map_or(&[], Vec::as_slice)
    }
}

impl RecordedCall {
    /// Parses a SYSCALL or URINGOP record; the number is that of the process.
    pub(crate) fn read(line: &[u8]) -> anyhow::Result<(u32, Self)> {
        let record = decode::line(line)?;
        let fields: BTreeMap<String, String> = record
            .fields()
            .map_while(Result::ok)
            .map(|field| {
                (
                    field.name.to_string(),
                    field.value.as_bytes().as_bstr().to_string(),
                )
            })
            .collect();
        let field = |name: &str| fields.get(name).with_context(|| format!("no `{name}`"));
        let pid = field("pid")?.parse()?;
        if let Some(number) = fields.get("uring_op") {
            let name = number.parse().ok().and_then(table::uring_op_name);
            let call = Self {
                call: format!("uring:{}", name.unwrap_or(number)),
                args: Default::default(),
                // The kernel records the result of its function, and retries operations that would wait.
                exit: fields.get("exit").cloned().filter(|exit| exit == AGAIN),
                key: field("key")?.clone(),
            };
            return Ok((pid, call));
        }
        let arch = Arch(u32::from_str_radix(field("arch")?, 16)?);
        let number = Syscall(field("syscall")?.parse()?);
        let name =
            table::syscall_name(arch, number).map_or_else(|| number.0.to_string(), str::to_owned);
        let narrow = if arch == Arch::I386 { "32:" } else { "" };
        let call = Self {
            call: format!("{narrow}{name}"),
            args: [field("a0")?, field("a1")?, field("a2")?, field("a3")?].map(Clone::clone),
            exit: fields.get("exit").cloned(),
            key: field("key")?.clone(),
        };
        Ok((pid, call))
    }

    /// Whether the event does not depend on the rules: setting the login uid, the first try of an operation, and the
    /// syscall that submits operations.
    fn is_independent_of_rules(&self) -> bool {
        let is_tried_again = self.call.starts_with("uring:") && self.exit.as_deref() == Some(AGAIN);
        is_tried_again || ["write", "32:write", "io_uring_enter"].contains(&self.call.as_str())
    }

    fn is_same_call(&self, other: &Self) -> bool {
        (&self.call, &self.args, &self.exit) == (&other.call, &other.args, &other.exit)
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exit = self.exit.as_deref().unwrap_or("none");
        write!(
            f,
            "{}({})={exit} key={}",
            self.call,
            self.args.join(" "),
            self.key
        )
    }
}

/// The differences. Events of one process are in the same order.
pub(crate) fn differences(theirs: &[RecordedCall], ours: &[RecordedCall]) -> Vec<CallDifference> {
    let difference = |side, call: &RecordedCall, key: &str| CallDifference {
        side,
        call: call.clone(),
        key: key.to_owned(),
    };
    let mut found = Vec::new();
    let mut rest = ours;
    for their in theirs {
        let Some(at) = rest.iter().position(|our| our.is_same_call(their)) else {
            found.push(difference(Side::Kernel, their, ""));
            continue;
        };
        let (only_ours, after) = rest.split_at(at);
        found.extend(
            only_ours
                .iter()
                .map(|our| difference(Side::Tollgate, our, "")),
        );
        if after[0].key != their.key {
            found.push(difference(Side::Key, their, &after[0].key));
        }
        rest = &after[1..];
    }
    found.extend(rest.iter().map(|our| difference(Side::Tollgate, our, "")));
    found
}
