//! Events that are made to match Sigma rules: the audit rules that are made for the rules record them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use audit::table;
use logs::accounts::Accounts;
use rsigma_parser::value::StringPart;
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Detections, Modifier, Quantifier, SigmaRule,
    SigmaValue,
};

use super::*;
use crate::explain::record_types::Origin;
use crate::mapping::tests::gates::Ungated;
use crate::mapping::{Mapping, ProcessTable};
use crate::sigma::document::documents;
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Engine as _, Source};

/// Most events that are tried for a rule.
const MAX_TRIES: usize = 200;

/// Values of fields; texts without a field have the empty name.
type Values = BTreeMap<String, String>;

/// The documents of loaded rules, in their order.
fn documents_of(sigma: &RuleFiles) -> Vec<String> {
    let text = |(path, line): &(PathBuf, usize)| {
        let text = fs::read_to_string(path).unwrap();
        let documents = documents(&text).unwrap();
        let document = documents
            .iter()
            .rev()
            .find(|document| document.lines_before < *line);
        document.unwrap().text.to_owned()
    };
    sigma.places.iter().map(text).collect()
}

fn parsed_rule(document: &str) -> SigmaRule {
    let mut parsed = rsigma_parser::parse_sigma_yaml(document).unwrap();
    parsed.rules.remove(0)
}

/// What may satisfy a condition.
fn satisfying(condition: &ConditionExpr, detections: &Detections) -> Vec<Values> {
    match condition {
        ConditionExpr::And(parts) => all(parts.iter().map(|part| satisfying(part, detections))),
        ConditionExpr::Or(parts) => parts
            .iter()
            .flat_map(|part| satisfying(part, detections))
            .collect(),
        ConditionExpr::Not(_) => vec![Values::new()],
        ConditionExpr::Identifier(name) => of_detection(&detections.named[name]),
        ConditionExpr::Selector {
            quantifier,
            pattern,
        } => {
            let mut named: Vec<_> = detections.named.iter().collect();
            named.sort_unstable_by_key(|(name, _)| *name);
            named.retain(|(name, _)| pattern.matches_detection_name(name));
            let parts = named.iter().map(|(_, detection)| of_detection(detection));
            match quantifier {
                Quantifier::All => all(parts),
                _ => parts.flatten().collect(),
            }
        }
    }
}

fn of_detection(detection: &Detection) -> Vec<Values> {
    match detection {
        Detection::AllOf(items) => all(items.iter().map(of_item)),
        Detection::AnyOf(parts) => parts.iter().flat_map(of_detection).collect(),
        Detection::And(parts) => all(parts.iter().map(of_detection)),
        Detection::Keywords(values) => {
            let keyword = |value| Values::from([(String::new(), text(value))]);
            values.iter().map(keyword).collect()
        }
        Detection::ArrayMatch { .. } | Detection::Conditional { .. } => Vec::new(),
    }
}

fn of_item(item: &DetectionItem) -> Vec<Values> {
    let has = |modifier| item.field.modifiers.contains(&modifier);
    let name = item.field.name.clone().unwrap_or_default();
    let one = |value: &SigmaValue| {
        let text = text(value);
        match (has(Modifier::StartsWith), has(Modifier::EndsWith)) {
            (true, _) => format!("{text}x"),
            (_, true) if text.starts_with('/') => format!("/x{text}"),
            (_, true) => format!("/x/{text}"),
            // `ip.src` and the like: the first address.
            _ if has(Modifier::Cidr) => text.split('/').next().unwrap_or_default().to_owned(),
            _ => text,
        }
    };
    let values = item.values.iter().map(one);
    match has(Modifier::All) && !name.is_empty() {
        true => vec![Values::from([(name, values.collect::<Vec<_>>().join(" "))])],
        false if has(Modifier::All) => {
            vec![Values::from([(name, values.collect::<Vec<_>>().join(" "))])]
        }
        false => values
            .map(|value| Values::from([(name.clone(), value)]))
            .collect(),
    }
}

fn text(value: &SigmaValue) -> String {
    match value {
        SigmaValue::String(text) => {
            let part = |part: &StringPart| match part {
                StringPart::Plain(text) => text.clone(),
                StringPart::Special(_) => "x".to_owned(),
            };
            text.parts.iter().map(part).collect()
        }
        SigmaValue::Integer(number) => number.to_string(),
        SigmaValue::Bool(value) => value.to_string(),
        SigmaValue::Float(number) => number.to_string(),
        SigmaValue::Null => String::new(),
    }
}

fn all(parts: impl Iterator<Item = Vec<Values>>) -> Vec<Values> {
    parts.fold(vec![Values::new()], |left, right| {
        let pairs = left.iter().flat_map(|left| {
            right.iter().map(move |right| {
                let mut both = left.clone();
                for (name, value) in right {
                    let known = both.entry(name.clone()).or_default();
                    match known.is_empty() {
                        true => known.clone_from(value),
                        false => *known = format!("{known} {value}"),
                    }
                }
                both
            })
        });
        pairs.take(MAX_TRIES).collect()
    })
}

/// A log with an event that has values.
#[derive(Debug, Default)]
pub(super) struct Log {
    text: String,
    serial: u32,
}

impl Log {
    pub(super) fn record(&mut self, kind: &str, fields: &str) {
        let serial = self.serial;
        let _infallible = writeln!(
            self.text,
            "type={kind} msg=audit(1700000000.000:{serial}): {fields}"
        );
    }

    /// The record of a syscall; `own` replaces fields.
    pub(super) fn syscall(&mut self, name: &str, own: &[(&str, &str)]) {
        self.serial += 1;
        let arch = NativeArch::BUILD.b64();
        let number = table::syscall_number(arch, name.as_bytes()).unwrap().0;
        let mut line = format!("arch={:x} syscall={number}", arch.0);
        for (field, usual) in [
            ("success", "yes"),
            ("exit", "0"),
            ("a0", "0"),
            ("a1", "0"),
            ("a2", "0"),
            ("a3", "0"),
            ("items", "0"),
            ("ppid", "10"),
            ("pid", "11"),
            ("auid", "1000"),
            ("uid", "1000"),
            ("gid", "1000"),
            ("euid", "1000"),
            ("suid", "1000"),
            ("fsuid", "1000"),
            ("egid", "1000"),
            ("sgid", "1000"),
            ("fsgid", "1000"),
            ("tty", "pts0"),
            ("ses", "1"),
            ("comm", "x"),
            ("exe", "/usr/bin/x"),
        ] {
            let own = own.iter().rev().find(|(name, _)| *name == field);
            let value = own.map_or(usual, |(_, value)| value);
            let value = match field {
                "comm" | "exe" => encoded(value),
                _ => value.to_owned(),
            };
            let _infallible = write!(line, " {field}={value}");
        }
        self.record("SYSCALL", &line);
    }

    pub(super) fn execution(&mut self, own: &[(&str, &str)], arguments: &[&str]) {
        self.syscall("execve", own);
        let mut line = format!("argc={}", arguments.len());
        for (number, argument) in arguments.iter().enumerate() {
            let _infallible = write!(line, " a{number}={}", encoded(argument));
        }
        self.record("EXECVE", &line);
    }

    pub(super) fn path(&mut self, item: u32, name: &str, nametype: &str) {
        if item == 0 {
            self.record("CWD", "cwd=\"/\"");
        }
        let name = encoded(name);
        self.record(
            "PATH",
            &format!("item={item} name={name} inode=5 dev=08:01 mode=0100644 ouid=0 ogid=0 rdev=00:00 nametype={nametype}"),
        );
    }

    pub(super) fn address(&mut self, host: &str, port: u16) {
        let address: std::net::Ipv4Addr = host.parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST);
        let bytes: String = address
            .octets()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.record(
            "SOCKADDR",
            &format!("saddr=0200{port:04x}{bytes}0000000000000000"),
        );
    }

    pub(super) fn events(&self) -> Vec<EventRecords> {
        let end = format!("type=EOE msg=audit(1700000000.000:{}): \n", self.serial);
        events(&[self.text.as_str(), &end].concat())
    }

    /// The log, with the keys of the audit rule that records the last event; `None` if none does.
    pub(super) fn recorded(&self, rules: &[Rule]) -> Option<Vec<EventRecords>> {
        let events = self.events();
        let rule = recording(rules, events.last()?)?;
        let keys: Vec<String> = rule.keys.iter().map(ToString::to_string).collect();
        let stamp = format!("type=SYSCALL msg=audit(1700000000.000:{}): ", self.serial);
        let keyed = format!("{stamp}key={} ", encoded(&keys.join("\u{1}")));
        let log = Self {
            text: self.text.replace(&stamp, &keyed),
            serial: self.serial,
        };
        Some(log.events())
    }
}

/// A value as the kernel writes it.
fn encoded(value: &str) -> String {
    match value
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"')
    {
        true => format!("\"{value}\""),
        false => value.bytes().map(|byte| format!("{byte:02X}")).collect(),
    }
}

/// A log whose last event has the values; `None` if audit rules do not decide about it.
fn log(source: Source, values: &Values) -> Option<Log> {
    let mut log = Log::default();
    let get = |name: &str, usual: &str| {
        values
            .get(name)
            .cloned()
            .unwrap_or_else(|| usual.to_owned())
    };
    let mut own: Vec<(&str, &str)> = values
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let image = get("Image", "/usr/bin/x");
    own.push(("exe", &image));
    if get("User", "") == "root" {
        own.push(("euid", "0"));
    }
    let pid = get("ProcessId", "11");
    own.push(("pid", &pid));
    let uid = get("LogonId", "1000");
    own.push(("uid", &uid));
    match source {
        Source::Process => {
            let (parent, line) = (
                get("ParentImage", "/sbin/init"),
                get("ParentCommandLine", "init"),
            );
            let words: Vec<&str> = line.split(' ').collect();
            log.execution(&[("exe", &parent), ("pid", "10"), ("ppid", "1")], &words);
            log.record("EOE", "");
            let line = get("CommandLine", "x");
            let words: Vec<&str> = line.split(' ').collect();
            log.execution(&own, &words);
            log.record(
                "CWD",
                &format!("cwd={}", encoded(&get("CurrentDirectory", "/"))),
            );
        }
        Source::File => {
            own.extend([("a0", "ffffff9c"), ("a2", "241")]);
            log.syscall("openat", &own);
            log.path(0, &get("TargetFilename", "/x"), "CREATE");
        }
        Source::Network => {
            let is_in = get("Initiated", "true") == "false"
                || values.keys().any(|name| name.starts_with("Source"));
            log.syscall(if is_in { "accept4" } else { "connect" }, &own);
            let (ip, port) = match is_in {
                true => (get("SourceIp", "10.1.1.1"), get("SourcePort", "80")),
                false => (
                    get("DestinationIp", "10.1.1.1"),
                    get("DestinationPort", "80"),
                ),
            };
            log.address(&ip, port.parse().ok()?);
        }
        Source::Record => record(&mut log, values)?,
    }
    Some(log)
}

fn record(log: &mut Log, values: &Values) -> Option<()> {
    let own: Vec<(&str, &str)> = values
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let get = |name: &str| values.get(name).map(String::as_str);
    let has_arguments = values.keys().any(|name| {
        name.strip_prefix('a')
            .is_some_and(|number| number.parse::<u8>().is_ok())
    });
    let kind = match get("type").map(str::to_ascii_uppercase) {
        Some(kind) => kind,
        None if get("name").is_some() => "PATH".to_owned(),
        None if has_arguments => "EXECVE".to_owned(),
        None => "SYSCALL".to_owned(),
    };
    match &*kind {
        "EXECVE" => {
            let own: Vec<_> = own.into_iter().filter(|(name, _)| name.len() > 2).collect();
            let mut words = vec!["x".to_owned(); 8];
            for (number, word) in words.iter_mut().enumerate() {
                if let Some(value) = get(&format!("a{number}")) {
                    value.clone_into(word);
                }
            }
            words.extend(
                get("")
                    .into_iter()
                    .flat_map(|line| line.split(' '))
                    .map(str::to_owned),
            );
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            log.execution(&own, &words);
        }
        "PATH" => {
            log.syscall(
                get("SYSCALL").unwrap_or("openat"),
                &[own, vec![("a0", "ffffff9c"), ("a2", "241")]].concat(),
            );
            log.path(
                0,
                get("name").unwrap_or("/x"),
                get("nametype").unwrap_or("NORMAL"),
            );
        }
        "SYSCALL" => {
            let name = get("SYSCALL").unwrap_or("execve");
            table::syscall_number(NativeArch::BUILD.b64(), name.as_bytes())?;
            log.syscall(name, &own);
        }
        "SOCKADDR" => {
            log.syscall("connect", &own);
            log.address("10.1.1.1", 80);
        }
        other => {
            assert!(
                matches!(Origin::of(other), Origin::Programs | Origin::Kernel),
                "{other}"
            );
            return None;
        }
    }
    Some(())
}

/// Makes events for rules, which match the same without gates. Returns the number of rules that match one, and the titles of those that match none.
fn check(sigma: &RuleFiles) -> (usize, Vec<String>) {
    let audit_rules = parsed(&made(sigma, true));
    let (mut matching, mut others) = (0, Vec::new());
    let report = Report::new(sigma, None, true);
    let documents = documents_of(sigma);
    let mut ungated = Rsigma::default();
    for document in &documents {
        ungated.add(document).unwrap();
    }
    let rules = sigma
        .engine
        .rules()
        .iter()
        .zip(&documents)
        .zip(&report.explained);
    for (number, ((rule, document), explained)) in rules.enumerate() {
        let document = parsed_rule(document);
        assert_eq!(rule.title, crate::sigma::one_line(&document.title));
        let detections = &document.detection;
        let candidates = detections
            .conditions
            .iter()
            .flat_map(|condition| satisfying(condition, detections));
        let logs = candidates.filter_map(|values| log(rule.source?, &values));
        let is_matched = |events: &[EventRecords]| {
            let accounts = Accounts::parse(b"root:x:0:0::/:\n", b"");
            let new = || Mapping::new(accounts.clone(), ProcessTable::default());
            let (mut mapping, mut plain) = (new(), new());
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            for event in events {
                found.clear();
                expected.clear();
                mapping.find(&*sigma.engine, event, &mut found);
                plain.find(&Ungated(&ungated), event, &mut expected);
                // The engine keeps selections in no order.
                let matches = found.iter_mut().chain(&mut expected);
                matches.for_each(|found| found.fields.sort_unstable());
                assert_eq!(found, expected);
            }
            found.iter().any(|found| found.rule == number)
        };
        let mut has_matched = false;
        for log in logs.take(MAX_TRIES) {
            if let Some(events) = log.recorded(&audit_rules) {
                has_matched |= is_matched(&events);
            } else {
                let events = log.events();
                assert!(
                    !is_matched(&events),
                    "{} is not fed: {}\n{explained:?}",
                    rule.title,
                    log.text
                );
            }
        }
        match has_matched {
            true => matching += 1,
            false => others.push(rule.title.clone()),
        }
    }
    (matching, others)
}

#[test]
fn made_events_that_match_are_recorded() {
    let (matching, others) = check(&fixtures());
    assert_eq!(
        others,
        ["Hostname", "Own Key", "Stopped Firewall", "Failed Login"]
    );
    assert_eq!(matching, fixtures().places.len() - others.len());
    if let Some(sigma) = public_rules() {
        let (matching, others) = check(&sigma);
        eprintln!(
            "{matching} of {} rules match an event that is recorded; not: {others:#?}",
            sigma.places.len()
        );
        assert!(matching >= 200, "{matching}");
    }
}
