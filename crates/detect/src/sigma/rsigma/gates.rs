//! Gates of the engine: what a first look at a record looks for.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::sigma::bucket::Bucket;
use crate::sigma::fields::is_shared;
use crate::sigma::gate::{Gate, Passed, SyscallGate};
use crate::sigma::literals::Literal;
use crate::sigma::search::Search;

/// The most frequent records, and their fields with those that `auditd` adds.
///
/// # Source
/// `audit_log_name` in `kernel/audit.c` and `audit_log_exit` in `kernel/auditsc.c`, Linux 6.12; `enriched_format` in
/// `src/auditd-event.c`, audit-userspace 4.2.
const FIXED_RECORDS: [(&str, &[&str]); 4] = [
    ("CWD", &["cwd"]),
    ("PROCTITLE", &["proctitle"]),
    ("SOCKADDR", &["saddr", "SADDR"]),
    (
        "PATH",
        &[
            "item",
            "name",
            "inode",
            "dev",
            "mode",
            "ouid",
            "ogid",
            "rdev",
            "obj",
            "nametype",
            "cap_fp",
            "cap_fi",
            "cap_fe",
            "cap_fver",
            "cap_frootid",
            "OUID",
            "OGID",
        ],
    ),
];

/// Gates, made when they are asked. They are void when a rule is added.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Texts for [`SyscallGate`] of SYSCALL records; `None` if they are too many.
    syscall: OnceLock<Option<Search>>,
    /// Those of URINGOP records.
    uring: OnceLock<Option<Search>>,
    /// Which of [`FIXED_RECORDS`] can have fields of rules that name no type.
    untyped_reach: OnceLock<[bool; FIXED_RECORDS.len()]>,
}

impl Gates {
    /// The gate of records of a type, which are compared with rules that name it, and with those that name none.
    pub(super) fn record<'e>(&self, kind: &[u8], buckets: [Option<&'e Bucket>; 2]) -> Gate<'e> {
        let mut gate = Gate::default();
        for (bucket, slot) in buckets.into_iter().zip(&mut gate.searches) {
            match bucket.map(Bucket::gate) {
                Some(Some(search)) => *slot = Some(search),
                Some(None) => return Gate::OPEN,
                None => {}
            }
        }
        let [_, untyped] = &mut gate.searches;
        *untyped = untyped.filter(|search| self.can_reach(search, kind));
        gate
    }

    /// The gate of a syscall's record, which is compared with rules as that of [`Gates::record`], and for rules of `others`.
    pub(super) fn syscall<'e, B: Iterator<Item = &'e Bucket>>(
        &'e self,
        kind: &[u8],
        buckets: [Option<&'e Bucket>; 2],
        others: impl FnOnce() -> B,
    ) -> SyscallGate<'e> {
        let search = match kind {
            b"SYSCALL" => &self.syscall,
            b"URINGOP" => &self.uring,
            _ => return SyscallGate::OPEN,
        };
        match search.get_or_init(|| syscall_search(buckets, others())) {
            Some(search) => {
                let own = self.record(kind, buckets).is_open;
                SyscallGate::new(search, Passed { own, shared: false })
            }
            None => SyscallGate::OPEN,
        }
    }

    /// Whether records of a type can have a field of rules that name no type.
    fn can_reach(&self, untyped: &Search, kind: &[u8]) -> bool {
        let reach = self.untyped_reach.get_or_init(|| {
            FIXED_RECORDS.map(|(_, fields)| {
                let mut fields = fields.iter();
                fields.any(|field| untyped.wants(field.as_bytes()))
            })
        });
        let mut fixed = FIXED_RECORDS.iter().zip(reach);
        fixed
            .find(|((fixed, _), _)| fixed.as_bytes() == kind)
            .is_none_or(|(_, can_reach)| *can_reach)
    }
}

/// Texts that rules require of a syscall's record, and in its fields of other records.
fn syscall_search<'e>(
    buckets: [Option<&'e Bucket>; 2],
    others: impl Iterator<Item = &'e Bucket>,
) -> Option<Search> {
    let [_, untyped] = buckets;
    let shared = others.chain(untyped).flat_map(Bucket::literals);
    let shared = shared.filter(|literal| literal.field.as_deref().is_some_and(is_shared));
    let own = buckets.into_iter().flatten().flat_map(Bucket::literals);
    let own = own.filter(|literal| can_be(literal));
    let numbered: BTreeSet<(&Literal, usize)> = shared
        .map(|literal| (literal, SyscallGate::SHARED))
        .chain(own.map(|literal| (literal, SyscallGate::OWN)))
        .collect();
    Search::new(numbered.into_iter())
}

/// Whether the record of a syscall can have a text: its arguments are hexadecimal.
fn can_be(literal: &Literal) -> bool {
    let is_argument = matches!(literal.field.as_deref(), Some("a0" | "a1" | "a2" | "a3"));
    !is_argument || literal.text.bytes().all(|digit| digit.is_ascii_hexdigit())
}
