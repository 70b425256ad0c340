//! JSON form of a rule: fields by name, syscalls by number, users and groups resolved.
//!
//! The bytes are untrusted: only rules that [`audit::rule::check_kernel_accepts`] accepts are converted.

use audit::rule::{
    Action, Field, FieldTest, List, Op, Rule, SyscallMask, Value, check_kernel_accepts,
};
use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleJson {
    list: String,
    action: ActionJson,
    syscalls: SyscallsJson,
    fields: Vec<FieldJson>,
    keys: Vec<JsonBytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ActionJson {
    Always,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum SyscallsJson {
    All(All),
    Numbers(Vec<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum All {
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldJson {
    field: String,
    op: String,
    value: ValueJson,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum ValueJson {
    Number(u32),
    /// Another field, of `-C`.
    Field {
        field: String,
    },
    Text(JsonBytes),
}

impl RuleJson {
    /// Converts a rule to its JSON form.
    pub(crate) fn new(rule: &Rule) -> Self {
        let numbers = || {
            (0..SyscallMask::LIMIT)
                .filter(|&number| rule.syscalls.contains(number))
                .collect()
        };
        Self {
            list: rule.list.name().to_owned(),
            action: match rule.action {
                Action::Always => ActionJson::Always,
                Action::Never => ActionJson::Never,
            },
            syscalls: if rule.syscalls.is_all() {
                SyscallsJson::All(All::All)
            } else {
                SyscallsJson::Numbers(numbers())
            },
            fields: rule.fields.iter().map(FieldJson::new).collect(),
            keys: rule.keys.iter().map(|key| JsonBytes::new(key)).collect(),
        }
    }

    /// Converts back to a rule.
    ///
    /// # Errors
    /// The kernel would refuse the rule, or it is malformed.
    pub(crate) fn rule(&self) -> Result<Rule, String> {
        let list = List::called(&self.list)
            .ok_or_else(|| format!("there is no list `{}`", self.list.escape_debug()))?;
        let mut syscalls = SyscallMask::none();
        match &self.syscalls {
            SyscallsJson::All(All::All) => syscalls = SyscallMask::all(),
            SyscallsJson::Numbers(numbers) => {
                for &number in numbers {
                    if number >= SyscallMask::LIMIT {
                        return Err(format!("syscall {number} is out of range for a rule"));
                    }
                    syscalls.insert(number);
                }
            }
        }
        let keys = self
            .keys
            .iter()
            .map(JsonBytes::bytes)
            .collect::<Option<_>>();
        let rule = Rule {
            list,
            action: match self.action {
                ActionJson::Always => Action::Always,
                ActionJson::Never => Action::Never,
            },
            // Naming every number means the same as `all`.
            syscalls: if syscalls.is_all() {
                SyscallMask::all()
            } else {
                syscalls
            },
            fields: self
                .fields
                .iter()
                .map(FieldJson::test)
                .collect::<Result<_, _>>()?,
            keys: keys.ok_or("a key has invalid hexadecimal digits")?,
        };
        check_kernel_accepts(&rule)?;
        Ok(rule)
    }
}

impl FieldJson {
    fn new(test: &FieldTest) -> Self {
        Self {
            field: test.field.name().to_owned(),
            op: test.op.symbol().to_owned(),
            value: match &test.value {
                Value::Number(number) => ValueJson::Number(*number),
                Value::Text(text) => ValueJson::Text(JsonBytes::new(text)),
                Value::Field(other) => ValueJson::Field {
                    field: other.name().to_owned(),
                },
            },
        }
    }

    fn test(&self) -> Result<FieldTest, String> {
        let op = Op::written(&self.op)
            .ok_or_else(|| format!("there is no operator `{}`", self.op.escape_debug()))?;
        let value = match &self.value {
            ValueJson::Number(number) => Value::Number(*number),
            ValueJson::Text(text) => Value::Text(
                text.bytes()
                    .ok_or("a value has invalid hexadecimal digits")?,
            ),
            ValueJson::Field { field } => Value::Field(parse_field(field)?),
        };
        Ok(FieldTest {
            field: parse_field(&self.field)?,
            op,
            value,
        })
    }
}

fn parse_field(name: &str) -> Result<Field, String> {
    Field::called(name).ok_or_else(|| format!("there is no field `{}`", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use audit::ids::Dialect;
    use audit::rule::Command;
    use audit::rule::auditctl::{CliRequest, arguments};

    use super::*;
    use crate::host::ThisMachine;

    fn rule(line: &str) -> Rule {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let answer = arguments(&words, Dialect::V4, &ThisMachine);
        match answer.requests.as_slice() {
            [CliRequest::Command(Command::Add { rule, .. })] => rule.clone(),
            _ => panic!("{line}: {:?}", answer.messages),
        }
    }

    #[test]
    fn rules_round_trip() {
        for line in [
            "-a always,exit -F arch=b64 -S openat,2040 -F auid>=1000 -F auid!=unset -k a -k b",
            "-w /etc/passwd -p wa -k x",
            "-a always,exit -F dir=/tmp -F perm=w",
            "-a never,exclude -F msgtype=CWD",
            "-a always,io_uring -S openat -F uid!=0 -k u",
            "-a always,exit -S all -C auid!=obj_uid -F exe=/bin/ls -F a0&1",
            "-a never,task",
        ] {
            let rule = rule(line);
            let text = serde_json::to_string(&RuleJson::new(&rule)).unwrap();
            let form: RuleJson = serde_json::from_str(&text).unwrap();
            assert_eq!(form.rule().as_ref(), Ok(&rule), "{text}");
        }
    }

    #[test]
    fn malformed_rules_are_refused_with_the_reason() {
        let sound = serde_json::to_string(&RuleJson::new(&rule("-w /x -p wa -k k"))).unwrap();
        for (part, other, why) in [
            ("\"exit\"", "\"frob\"", "no list `frob`"),
            ("\"all\"", "[2048]", "syscall 2048"),
            ("\"path\"", "\"a\\u001b\"", "no field `a\\u{1b}`"),
            ("\"=\"", "\"~\"", "no operator `~`"),
            ("\"/x\"", "\"x\"", "absolute path"),
            ("\"/x\"", "{\"field\":\"uid\"}", "cannot be compared"),
            ("\"k\"", "{\"hex\":\"0\"}", "hexadecimal"),
        ] {
            let text = sound.replacen(part, other, 1);
            assert_ne!(text, sound);
            let form: RuleJson = serde_json::from_str(&text).unwrap();
            let error = form.rule().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
