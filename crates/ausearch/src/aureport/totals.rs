//! Ranked totals, and the summary of everything.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::context::{NULL, belongs, syscall, user};
use super::options::Options;
use super::titles::Report;
use crate::ctext;
use crate::event::Event;
use crate::fields::{AvcResult, FAILED, Found, NO_LOGIN, SUCCEEDED};
use crate::interpret::Interpreter;
use crate::local_time::Clock;
use crate::record_type as ty;

/// Texts and how often each was seen, in the order in which they were seen first.
#[derive(Clone, Debug, Default)]
struct Texts {
    counts: Vec<(Rc<[u8]>, u32)>,
    index: HashMap<Rc<[u8]>, usize>,
}

impl Texts {
    fn add(&mut self, text: &[u8]) {
        if let Some(count) = self.index.get(text).and_then(|&at| self.counts.get_mut(at)) {
            count.1 = count.1.wrapping_add(1);
            return;
        }
        let text = Rc::<[u8]>::from(text);
        self.index.insert(Rc::clone(&text), self.counts.len());
        self.counts.push((text, 1));
    }

    fn len(&self) -> usize {
        self.counts.len()
    }

    /// The most frequent first; of two that are as frequent, the one that was seen first.
    fn ranked(&self) -> Vec<(&[u8], u32)> {
        let mut ranked: Vec<(&[u8], u32)> = self
            .counts
            .iter()
            .map(|(text, count)| (&text[..], *count))
            .collect();
        ranked.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        ranked
    }
}

/// Numbers of events by what happened.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    changes: u64,
    account_changes: u64,
    logins: u64,
    failed_logins: u64,
    authentications: u64,
    failed_authentications: u64,
    avcs: u64,
    mac: u64,
    failed_syscalls: u64,
    anomalies: u64,
    responses: u64,
    crypto: u64,
    integrity: u64,
    virt: u64,
    events: u64,
}

/// Times of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Of the first record.
    pub(super) first: (u64, u32),
    /// Of the last event of the last file.
    pub(super) last: (u64, u32),
}

/// Totals of a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    counts: Counts,
    users: Texts,
    terminals: Texts,
    hosts: Texts,
    executables: Texts,
    commands: Texts,
    files: Texts,
    keys: Texts,
    objects: Texts,
    syscalls: Texts,
    /// Processes, or record types.
    numbers: BTreeMap<i32, u32>,
}

impl Totals {
    /// Adds an event.
    pub(super) fn add(
        &mut self,
        event: &Event,
        found: &Found<'_>,
        options: &Options,
        interpreter: &mut Interpreter,
    ) {
        if options.report == Report::Summary {
            return self.add_to_summary(event, found);
        }
        if !belongs(options.report, event, found) {
            return;
        }
        match options.report {
            Report::Avc => {
                let decided = found
                    .avcs
                    .iter()
                    .flatten()
                    .filter(|avc| avc.result != AvcResult::Unset);
                for object in decided.filter_map(|avc| avc.object) {
                    self.objects.add(object);
                }
            }
            Report::Mac => {
                let is_counted = event.has_any(&(ty::MAC_POLICY_LOAD..=ty::MAC_MAP_DEL))
                    || event.has_any(&ty::LSPP);
                if is_counted {
                    self.add_number(event.kind);
                }
            }
            Report::Event if event.kind == -1 => {}
            Report::Integrity
            | Report::Virt
            | Report::Config
            | Report::Accounts
            | Report::Event
            | Report::Anomaly
            | Report::Response
            | Report::Crypto => self.add_number(event.kind),
            Report::Auth | Report::Login => {
                let is_unset = if options.report == Report::Auth {
                    found.auid.id == NO_LOGIN
                } else {
                    found.auid.id.cast_signed() < 0
                };
                match &found.account {
                    Some(account) if is_unset => self.users.add(account),
                    _ => self.users.add(&user(options, interpreter, found.auid.id)),
                }
            }
            Report::File => {
                for file in found.files.iter().flatten() {
                    self.files.add(&file.name);
                }
            }
            Report::Host => add(&mut self.hosts, found.host.as_deref()),
            Report::Pid if found.pid != -1 => self.add_number(found.pid),
            Report::Syscall if found.syscall > 0 => {
                let name = syscall(options, found);
                self.syscalls.add(name.as_bytes());
            }
            Report::Terminal => add(&mut self.terminals, found.terminal.as_deref()),
            Report::User if found.auid.id != NO_LOGIN => {
                self.users.add(&user(options, interpreter, found.auid.id));
            }
            Report::Executable => add(&mut self.executables, found.exe.as_deref()),
            Report::Comm => add(&mut self.commands, found.comm.as_deref()),
            Report::Key => self.add_keys(found),
            _ => {}
        }
    }

    fn add_number(&mut self, number: i32) {
        *self.numbers.entry(number).or_default() += 1;
    }

    fn add_keys(&mut self, found: &Found<'_>) {
        for key in found.keys.iter().flatten().filter(|key| *key != NULL) {
            self.keys.add(key);
        }
    }

    fn add_to_summary(&mut self, event: &Event, found: &Found<'_>) {
        self.count(event, found);
        if found.auid.id != NO_LOGIN {
            self.users.add(found.auid.id.to_string().as_bytes());
        }
        add(&mut self.terminals, found.terminal.as_deref());
        add(&mut self.hosts, found.host.as_deref());
        add(&mut self.executables, found.exe.as_deref());
        add(&mut self.commands, found.comm.as_deref());
        for file in found.files.iter().flatten() {
            self.files.add(&file.name);
        }
        if found.pid != -1 {
            self.add_number(found.pid);
        }
        self.add_keys(found);
    }

    fn count(&mut self, event: &Event, found: &Found<'_>) {
        let counts = &mut self.counts;
        let has = |kinds: &[i32]| {
            u64::try_from(kinds.iter().filter(|&&kind| event.has(kind)).count()).unwrap_or(0)
        };
        let any = |kinds| u64::from(event.has_any(kinds));
        let (ok, failed) = (found.success == SUCCEEDED, found.success == FAILED);
        counts.events += 1;
        counts.changes += has(&[
            ty::CONFIG_CHANGE,
            ty::DAEMON_CONFIG,
            ty::USYS_CONFIG,
            ty::NETFILTER_CFG,
            ty::FEATURE_CHANGE,
            ty::USER_MAC_CONFIG_CHANGE,
        ]) + any(&ty::MAC_CONFIG);
        counts.account_changes += has(&[ty::USER_CHAUTHTOK, ty::USER_MGMT, ty::GRP_MGMT])
            + any(&ty::ACCOUNTS)
            + any(&ty::ROLES);
        counts.crypto += any(&ty::KERNEL_CRYPTO) + any(&ty::CRYPTO);
        if event.has(ty::USER_LOGIN) {
            counts.logins += u64::from(ok);
            counts.failed_logins += u64::from(failed);
        }
        if event.has(ty::USER_AUTH) || (!event.has(ty::USER_MGMT) && event.has(ty::GRP_AUTH)) {
            counts.authentications += u64::from(ok);
            counts.failed_authentications += u64::from(failed);
        } else if event.has(ty::USER_MGMT) {
            counts.failed_authentications += u64::from(failed);
        }
        counts.avcs += u64::from(event.has(ty::AVC) || event.has(ty::USER_AVC));
        counts.mac += any(&ty::MAC_CONFIG) + any(&ty::LSPP);
        counts.virt += any(&ty::VIRTUALIZATION);
        counts.integrity += any(&ty::INTEGRITY);
        counts.failed_syscalls += u64::from(failed && found.syscall > 0);
        counts.anomalies += any(&ty::ANOMALIES) + any(&ty::KERNEL_ANOMALIES);
        counts.responses += any(&ty::RESPONSES);
    }

    /// Appends the totals.
    pub(super) fn print(
        &self,
        options: &Options,
        interpreter: &mut Interpreter,
        clock: &Clock,
        times: Times,
        out: &mut Vec<u8>,
    ) {
        let escape = interpreter.escape;
        match options.report {
            Report::Summary => self.print_summary(options, clock, times, out),
            Report::Avc => print_texts(&self.objects, out, |text, out| out.extend_from_slice(text)),
            Report::Host => print_texts(&self.hosts, out, |text, out| out.extend_from_slice(text)),
            Report::Terminal => print_texts(&self.terminals, out, |text, out| {
                out.extend_from_slice(text);
            }),
            Report::File => print_texts(&self.files, out, |text, out| escape.push(text, out)),
            Report::Executable => {
                print_texts(&self.executables, out, |text, out| escape.push(text, out));
            }
            Report::Comm => print_texts(&self.commands, out, |text, out| escape.push(text, out)),
            Report::Key => print_texts(&self.keys, out, |text, out| escape.push(text, out)),
            Report::Syscall => print_texts(&self.syscalls, out, |text, out| escape.push(text, out)),
            Report::Auth | Report::Login | Report::User => {
                print_texts(&self.users, out, |text, out| {
                    // A number is that of a user, whoever wrote it.
                    let is_number = matches!(text, [b'-' | b'0'..=b'9', ..]);
                    if is_number {
                        let uid = ctext::low_32(ctext::signed(text, 10).1.value);
                        escape.push(&user(options, interpreter, uid), out);
                    } else {
                        escape.push(text, out);
                    }
                });
            }
            Report::Pid => self.print_numbers(out, |number| number.to_string()),
            _ if options.interpret => self.print_numbers(out, |number| {
                ty::name(number).map_or_else(|| "(null)".to_owned(), str::to_owned)
            }),
            _ => self.print_numbers(out, |number| number.to_string()),
        }
    }

    fn print_numbers(&self, out: &mut Vec<u8>, name: impl Fn(i32) -> String) {
        let mut ranked: Vec<(i32, u32)> = self
            .numbers
            .iter()
            .map(|(&number, &count)| (number, count))
            .collect();
        ranked.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        if ranked.is_empty() {
            out.extend_from_slice(super::NOTHING);
        }
        for (number, count) in ranked {
            out.extend_from_slice(format!("{count}  {}\n", name(number)).as_bytes());
        }
    }

    fn print_summary(&self, options: &Options, clock: &Clock, times: Times, out: &mut Vec<u8>) {
        let at = |(seconds, millis): (u64, u32)| {
            format!("{}.{millis:03}", clock.date_time(seconds.cast_signed()))
        };
        let first = clock.date_time(times.first.0.cast_signed());
        let start = if options.start == 0 {
            first
        } else {
            clock.date_time(options.start)
        };
        let end = if options.end == 0 {
            at(times.last)
        } else {
            clock.date_time(options.end)
        };
        let counts = &self.counts;
        let numbers = |texts: &Texts| u64::try_from(texts.len()).unwrap_or_default();
        let lines = [
            ("changes in configuration", counts.changes),
            (
                "changes to accounts, groups, or roles",
                counts.account_changes,
            ),
            ("logins", counts.logins),
            ("failed logins", counts.failed_logins),
            ("authentications", counts.authentications),
            ("failed authentications", counts.failed_authentications),
            ("users", numbers(&self.users)),
            ("terminals", numbers(&self.terminals)),
            ("host names", numbers(&self.hosts)),
            ("executables", numbers(&self.executables)),
            ("commands", numbers(&self.commands)),
            ("files", numbers(&self.files)),
            ("AVC's", counts.avcs),
            ("MAC events", counts.mac),
            ("failed syscalls", counts.failed_syscalls),
            ("anomaly events", counts.anomalies),
            ("responses to anomaly events", counts.responses),
            ("crypto events", counts.crypto),
            ("integrity events", counts.integrity),
            ("virt events", counts.virt),
            ("keys", numbers(&self.keys)),
            (
                "process IDs",
                u64::try_from(self.numbers.len()).unwrap_or_default(),
            ),
            ("events", counts.events),
        ];
        let range = format!(
            "Range of time in logs: {} - {}\n",
            at(times.first),
            at(times.last)
        );
        out.extend_from_slice(range.as_bytes());
        out.extend_from_slice(format!("Selected time for report: {start} - {end}\n").as_bytes());
        for (name, number) in lines {
            out.extend_from_slice(format!("Number of {name}: {number}\n").as_bytes());
        }
        out.push(b'\n');
    }
}

fn add(texts: &mut Texts, text: Option<&[u8]>) {
    if let Some(text) = text {
        texts.add(text);
    }
}

fn print_texts(texts: &Texts, out: &mut Vec<u8>, mut print: impl FnMut(&[u8], &mut Vec<u8>)) {
    if texts.len() == 0 {
        out.extend_from_slice(super::NOTHING);
    }
    for (text, count) in texts.ranked() {
        out.extend_from_slice(format!("{count}  ").as_bytes());
        print(text, out);
        out.push(b'\n');
    }
}
