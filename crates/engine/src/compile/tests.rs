//! Tests of compiling rule text to map contents.

use audit::plan::rule_list::RuleList;
use audit::rule::parse_file;
use audit::table;
use inputs::host::TestHost;

use super::*;
use crate::engine_kind::EngineKind;
use crate::hooks::denial::is_deniable;
use crate::hooks::hook::KernelFeatures;

#[track_caller]
fn compiled(rules: &str) -> CompiledPlan {
    let (lines, mistakes) = parse_file(rules.as_bytes(), &TestHost);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let mut list = RuleList::default();
    assert!(list.load(0, lines).is_empty());
    let plan = Plan::compile(list.into_rules(), &[Arch::X86_64, Arch::I386]);
    assert!(plan.unsupported.is_empty(), "{:?}", plan.unsupported);
    compile(
        &plan,
        HookSelection::new(&plan, EngineKind::Tracepoint, KernelFeatures::ALL),
    )
}

#[test]
fn decision_of_denying_rule_is_marked() {
    let text = "-a always,exit -F arch=b64 -S openat -F path=/a -k deny\n\
                -a always,exit -F arch=b64 -S openat,close -k other\n";
    let mut list = RuleList::default();
    list.load(0, parse_file(text.as_bytes(), &TestHost).0);
    let mut plan = Plan::compile(list.into_rules(), &[Arch::X86_64, Arch::I386]);
    plan.deny(&["deny".into()], is_deniable);
    let compiled = compile(
        &plan,
        HookSelection::new(&plan, EngineKind::Fentry, KernelFeatures::ALL),
    );
    let (openat, close) = (
        compiled.of(Arch::X86_64, "openat").unwrap(),
        compiled.of(Arch::X86_64, "close").unwrap(),
    );
    assert_eq!(openat.facts & abi::FACT_DENY, abi::FACT_DENY);
    assert_eq!(close.facts & abi::FACT_DENY, 0);
    let all = |_: &WireTest| true;
    assert_eq!(
        compiled.verdict(openat.tests, all),
        Some(abi::RECORD | abi::DENY)
    );
    let no_watch = compiled.verdict(openat.tests_unwatched, all);
    assert_eq!(no_watch, Some(abi::RECORD | 1));
    assert!(
        compiled.denies
            && compiled
                .hooks
                .contains(&Hook::Internal(InternalHook::DenyOpen))
    );
}

impl CompiledPlan {
    fn of(&self, arch: Arch, name: &str) -> Option<WireSyscall> {
        let Syscall(number) = table::syscall_number(arch, name.as_bytes()).unwrap();
        let abi = if arch == Arch::I386 {
            abi::B32
        } else {
            abi::B64
        };
        self.syscalls.get(&(abi * abi::SYSCALLS + number)).copied()
    }

    /// The verdict of the tests from `first` on, when those hold that `holds` selects.
    fn verdict(&self, first: u32, holds: impl Fn(&WireTest) -> bool) -> Option<u32> {
        let mut at = usize::try_from(first).unwrap();
        loop {
            let test = &self.tests[at];
            match test.kind {
                abi::TEST_END => return None,
                // All rules are tested, also those whose watch was not hit.
                abi::TEST_BY_WATCH => at += 1 + usize::from(test.word),
                kind if kind == abi::TEST_TRUE || holds(test) => {
                    if test.verdict != abi::NO_VERDICT {
                        return Some(test.verdict);
                    }
                    at += 1;
                }
                _ => {
                    let next = usize::try_from(test.on_false).unwrap();
                    assert!(next > at, "a failed test leads forward");
                    at = next;
                }
            }
        }
    }
}

const LOADER: &str = "-a never,exit -F arch=b64 -S openat -F pid=7\n\
    -a always,exit -F arch=b64 -S openat,close -F uid=65534 -F a1=2 -k loader\n";

#[test]
fn only_named_syscalls_are_in_the_plan() {
    let compiled = compiled(LOADER);
    assert_eq!(compiled.syscalls.len(), 2);
    assert!(compiled.of(Arch::X86_64, "openat").is_some());
    assert!(compiled.of(Arch::X86_64, "open").is_none());
    let raw = [compiled.raw_enter, compiled.raw_exit];
    assert_eq!(
        raw,
        [SyscallSet::default(); 2],
        "each syscall has its own tracepoint"
    );
}

#[test]
fn first_matching_rule_decides() {
    let compiled = compiled(LOADER);
    let openat = compiled.of(Arch::X86_64, "openat").unwrap();
    let pid = word!(WireEvent.pid);
    let uid = word!(WireEvent.uid);
    assert_eq!(
        compiled.verdict(openat.tests, |_| true),
        Some(0),
        "rule 0 suppresses"
    );
    assert_eq!(
        compiled.verdict(openat.tests, |test| test.word != pid),
        Some(abi::RECORD | 1)
    );
    assert_eq!(
        compiled.verdict(openat.tests, |test| ![pid, uid].contains(&test.word)),
        None
    );
    let close = compiled.of(Arch::X86_64, "close").unwrap();
    assert_eq!(
        compiled.verdict(close.tests, |_| true),
        Some(abi::RECORD | 1)
    );
    assert_eq!(compiled.verdict(close.tests, |_| false), None);
}

#[test]
fn argument_and_id_tests_use_event_offsets() {
    let compiled = compiled(LOADER);
    let words: Vec<(u16, u32)> = compiled
        .tests
        .iter()
        .filter(|test| test.kind == abi::TEST_WORD)
        .map(|test| (test.word, test.value))
        .collect();
    assert!(words.contains(&(word!(WireEvent.uid), 65534)));
    assert!(words.contains(&(word!(WireEvent.args) + 2, 2)));
}

#[test]
fn saddr_fam_is_tested_only_with_an_address() {
    let compiled = compiled("-a always,exit -F arch=b64 -S connect,recvmsg -F saddr_fam!=2\n");
    let connect = compiled.of(Arch::X86_64, "connect").unwrap();
    let recvmsg = compiled.of(Arch::X86_64, "recvmsg").unwrap();
    assert_eq!(connect.address, abi::ADDRESS_SECOND | abi::ADDRESS_EARLY);
    assert_eq!(recvmsg.address, abi::ADDRESS_MSGHDR | abi::ADDRESS_OUTPUT);
    assert_ne!(connect.facts & abi::FACT_SADDR, 0);
    let holds = |word| move |test: &WireTest| test.word == word;
    let has_address = holds(word!(WireEvent.argc));
    let is_of_family = holds(word!(WireEvent.open_perm));
    assert_eq!(compiled.verdict(connect.tests, is_of_family), None);
    assert_eq!(compiled.verdict(connect.tests, has_address), None);
    let both = |test: &WireTest| has_address(test) || is_of_family(test);
    assert_eq!(compiled.verdict(connect.tests, both), Some(abi::RECORD));
}

#[test]
fn unwatched_tests_omit_watch_rules() {
    let compiled = compiled(
        "-w /etc/shadow -p wa -k shadow\n-w /etc/conf.d -p r -k conf\n\
         -a always,exit -F arch=b64 -S openat -F exit=-13 -k denied\n",
    );
    let openat = compiled.of(Arch::X86_64, "openat").unwrap();
    assert_ne!(openat.tests, openat.tests_unwatched);
    assert_eq!(compiled.verdict(openat.tests, |_| true), Some(abi::RECORD));
    assert_eq!(
        compiled.verdict(openat.tests_unwatched, |_| true),
        Some(abi::RECORD | 2)
    );
    // Both reads and writes are tested; an open changes no attributes.
    assert_eq!(u32::from(openat.watch_perm), 2 | 4);
    // chmod is in class `a`: only the first watch applies, and no access mode is compared.
    let chmod = compiled.of(Arch::X86_64, "chmod").unwrap();
    assert_eq!(compiled.verdict(chmod.tests, |_| true), Some(abi::RECORD));
    assert_eq!(compiled.verdict(chmod.tests_unwatched, |_| true), None);
}

#[test]
fn watches_are_tested_first() {
    let compiled =
        compiled("-a always,exit -F arch=b64 -S openat -F perm=wa -F uid=5 -F dir=/etc\n");
    let openat = compiled.of(Arch::X86_64, "openat").unwrap();
    let first = usize::try_from(openat.tests).unwrap();
    assert_eq!(compiled.tests[first].kind, abi::TEST_DIR);
}

#[test]
fn object_shapes_match_syscall_arguments() {
    let compiled = compiled(
        "-a always,exit -F arch=b64 -S renameat2,execve,openat2,fchmod,symlink,getpid -F path=/x\n\
         -a always,exit -F arch=b64 -S getpid\n",
    );
    let shape = |name| {
        compiled
            .of(Arch::X86_64, name)
            .unwrap()
            .objects
            .map(|shape| (shape.lookup, shape.dir, shape.arg, shape.effect))
    };
    let none = (0, 0, 0, 0);
    assert_eq!(
        shape("renameat2"),
        [
            (abi::lookup::AT, 0, 1, abi::EFFECT_DELETE),
            (abi::lookup::AT, 2, 3, abi::EFFECT_CREATE)
        ]
    );
    assert_eq!(
        shape("execve"),
        [(abi::lookup::EXEC, 0, 0, abi::EFFECT_USE), none]
    );
    assert_eq!(
        shape("openat2"),
        [(abi::lookup::OPENED_AT, 0, 1, abi::EFFECT_USE), none]
    );
    assert_eq!(
        shape("fchmod"),
        [(abi::lookup::FD, 0, 0, abi::EFFECT_USE), none]
    );
    assert_eq!(shape("getpid"), [none, none]);
}

#[test]
fn facts_are_limited_to_what_rules_need() {
    let compiled = compiled(
        "-a always,exit -F arch=b64 -S openat -F perm=w -F path=/x\n\
         -a always,exit -F arch=b64 -S close -F gid=5 -F auid=6\n\
         -a always,exit -F arch=b64 -S unlink -F obj_uid=7\n\
         -a always,exit -F arch=b64 -S clone,execve,accept\n\
         -a always,exit -F arch=b64 -S mkdir -F success=0\n\
         -a always,exit -F arch=b64 -S rmdir -F exit=-EPERM\n",
    );
    let facts = |name| compiled.of(Arch::X86_64, name).unwrap().facts;
    assert_eq!(facts("openat"), abi::FACT_OPEN_FLAGS | abi::FACT_WATCH_ONLY);
    assert_eq!(facts("close"), abi::FACT_CREDS | abi::FACT_TASK);
    assert_eq!(facts("unlink"), abi::FACT_OBJECTS);
    assert_eq!(facts("clone"), abi::FACT_FORKS);
    assert_eq!(facts("execve"), abi::FACT_ENTER_STATE | abi::FACT_EXEC);
    assert_eq!(facts("accept"), abi::FACT_ENTER_STATE);
    assert_eq!(facts("mkdir"), abi::FACT_RESULT);
    assert_eq!(facts("rmdir"), abi::FACT_RESULT);
}

#[test]
fn b32_syscall_moves_both_abis_to_raw_exit() {
    let compiled =
        compiled("-a always,exit -F arch=b32 -S open\n-a always,exit -F arch=b64 -S open\n");
    assert!(compiled.of(Arch::I386, "open").is_some());
    assert_eq!(
        compiled.hooks.iter().collect::<Vec<_>>(),
        [&Hook::RawSysExit]
    );
    assert!(
        compiled
            .raw_exit
            .0
            .iter()
            .all(|bits| bits.iter().any(|&word| word != 0))
    );
}

#[test]
fn uring_operations_follow_syscalls_in_plan_map() {
    let compiled = compiled("-a always,io_uring -S openat -F uid=0\n");
    assert!(compiled.uring);
    let index = abi::URING_FIRST + 18;
    assert_eq!(
        compiled.syscalls.keys().copied().collect::<Vec<_>>(),
        [index]
    );
    let openat = compiled.syscalls[&index];
    assert_eq!(compiled.verdict(openat.tests, |_| true), Some(abi::RECORD));
    assert_eq!(compiled.verdict(openat.tests, |_| false), None);
    assert_eq!(compiled.hooks, BTreeSet::from([Hook::UringComplete]));
}

#[test]
fn completions_test_the_syscall_that_they_ran_in() {
    let compiled = compiled("-a always,exit -S io_uring_enter -F uid=0\n");
    let close = compiled.syscalls[&(abi::URING_FIRST + 19)];
    let in_call = |entered: bool, abi: u32| {
        compiled.verdict(close.tests, |test| match test.word {
            word if word == word!(WireEvent.version) => {
                entered && test.value == u32::from(abi::EVENT_URING_ENTER) << 16
            }
            word if word == word!(WireEvent.abi) => test.value == abi,
            _ => true,
        })
    };
    assert_eq!(in_call(true, abi::B64), Some(abi::RECORD));
    assert_eq!(in_call(true, abi::B32), Some(abi::RECORD));
    assert_eq!(in_call(false, abi::B64), None);
    assert!(compiled.hooks.contains(&Hook::UringComplete));
}
