//! Gates of the engine: what a first look at a record looks for.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use foldhash::fast::RandomState;

use crate::sigma::bucket::Bucket;
use crate::sigma::budget::Budget;
use crate::sigma::fields::is_shared;
use crate::sigma::gate::{Gate, Passed, SyscallGate};
use crate::sigma::literals::Literal;
use crate::sigma::search::Search;

/// Rules of records by their type, in upper case.
pub(super) type Buckets = HashMap<Box<[u8]>, Bucket, RandomState>;

/// The most frequent records, and their fields with those that `auditd` adds: no others decide for rules that name no type.
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
    /// Those of [`FIXED_RECORDS`].
    fixed: OnceLock<[RecordGate; FIXED_RECORDS.len()]>,
    /// Those of types that rules name.
    named: OnceLock<HashMap<Box<[u8]>, RecordGate, RandomState>>,
    /// That of types that no rule names.
    other: OnceLock<RecordGate>,
    /// Texts for [`SyscallGate`] of SYSCALL records, and what passes always; `None` if they are too many.
    syscall: OnceLock<Option<(Search, Passed)>>,
    /// Those of URINGOP records.
    uring: OnceLock<Option<(Search, Passed)>>,
}

/// The gate of records of a type.
#[derive(Debug)]
enum RecordGate {
    Open,
    Closed,
    Search {
        search: Box<Search>,
        ends_early: bool,
    },
}

impl RecordGate {
    /// The gate for rules that name a type, and those that name none. Its records may have fixed fields.
    fn new(
        fixed: Option<&[&str]>,
        typed: Option<&Bucket>,
        untyped: Option<&Bucket>,
        budget: &Budget,
    ) -> Self {
        let mut buckets = typed.into_iter().chain(untyped);
        if buckets.any(Bucket::is_always_evaluated) {
            return Self::Open;
        }
        let can_be = |literal: &&Literal| {
            let field = literal.field.as_deref();
            fixed
                .zip(field)
                .is_none_or(|(fixed, field)| fixed.contains(&field))
        };
        // Rules that name the type know its fields, also of other kernels.
        let typed = typed.into_iter().flat_map(Bucket::literals);
        let untyped = untyped.into_iter().flat_map(Bucket::literals);
        let literals: BTreeSet<&Literal> = typed.chain(untyped.filter(can_be)).collect();
        let ends_early =
            fixed.is_some() && literals.iter().all(|it| it.field.is_some() && can_be(it));
        if literals.is_empty() {
            return Self::Closed;
        }
        match Search::new(literals.into_iter().map(|literal| (literal, 0)), budget) {
            Some(search) => Self::Search {
                ends_early,
                search: Box::new(search),
            },
            None => Self::Open,
        }
    }

    fn gate(&self) -> Gate<'_> {
        match self {
            Self::Open => Gate::OPEN,
            Self::Closed => Gate::default(),
            Self::Search { search, ends_early } => Gate {
                search: Some(search),
                ends_early: *ends_early,
                is_open: false,
            },
        }
    }
}

impl Gates {
    /// The gate of records of a type, which are compared with rules that name it, and with those that name none.
    pub(super) fn record<'e>(
        &'e self,
        kind: &[u8],
        typed: &'e Buckets,
        untyped: Option<&'e Bucket>,
        budget: &Budget,
    ) -> Gate<'e> {
        let mut fixed = FIXED_RECORDS.iter();
        if let Some(number) = fixed.position(|(name, _)| name.as_bytes() == kind) {
            let new = |(kind, fields): (&str, &[&str])| {
                RecordGate::new(Some(fields), typed.get(kind.as_bytes()), untyped, budget)
            };
            let gates = self.fixed.get_or_init(|| FIXED_RECORDS.map(new));
            return gates.get(number).map_or(Gate::OPEN, RecordGate::gate);
        }
        let named = self.named.get_or_init(|| {
            let gate = |typed| RecordGate::new(None, Some(typed), untyped, budget);
            let gates = typed
                .iter()
                .map(|(kind, typed)| (kind.clone(), gate(typed)));
            gates.collect()
        });
        let other = || {
            self.other
                .get_or_init(|| RecordGate::new(None, None, untyped, budget))
        };
        named.get(kind).unwrap_or_else(other).gate()
    }

    /// The gate of a syscall's record, which is compared with rules as that of [`Gates::record`], and for rules that name
    /// other types.
    pub(super) fn syscall<'e>(
        &'e self,
        kind: &[u8],
        typed: &'e Buckets,
        untyped: Option<&'e Bucket>,
        budget: &Budget,
    ) -> SyscallGate<'e> {
        let gate = match kind {
            b"SYSCALL" => &self.syscall,
            b"URINGOP" => &self.uring,
            _ => return SyscallGate::OPEN,
        };
        let new = || {
            let own = self.record(kind, typed, untyped, budget).is_open;
            let search = syscall_search(kind, typed, untyped, budget)?;
            Some((search, Passed { own, shared: false }))
        };
        match gate.get_or_init(new) {
            Some((search, open)) => SyscallGate::new(search, *open),
            None => SyscallGate::OPEN,
        }
    }
}

/// Texts that rules require of a syscall's record, and in its fields of other records.
fn syscall_search(
    kind: &[u8],
    typed: &Buckets,
    untyped: Option<&Bucket>,
    budget: &Budget,
) -> Option<Search> {
    let buckets = [typed.get(kind), untyped];
    let others = typed.iter().filter(|(of, _)| &***of != kind);
    let others = others.map(|(_, bucket)| bucket);
    let shared = others.chain(untyped).flat_map(Bucket::literals);
    let shared = shared.filter(|literal| literal.field.as_deref().is_some_and(is_shared));
    let own = buckets.into_iter().flatten().flat_map(Bucket::literals);
    let own = own.filter(|literal| can_be(literal));
    let numbered: BTreeSet<(&Literal, usize)> = shared
        .map(|literal| (literal, SyscallGate::SHARED))
        .chain(own.map(|literal| (literal, SyscallGate::OWN)))
        .collect();
    Search::new(numbered.into_iter(), budget)
}

/// Whether the record of a syscall can have a text: its arguments are hexadecimal.
fn can_be(literal: &Literal) -> bool {
    let is_argument = matches!(literal.field.as_deref(), Some("a0" | "a1" | "a2" | "a3"));
    !is_argument || literal.text.bytes().all(|digit| digit.is_ascii_hexdigit())
}
