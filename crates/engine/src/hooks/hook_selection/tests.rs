//! Hooks of plans of a few syscalls.

use audit::ids::{Arch, Syscall};
use audit::table;

use super::*;
use crate::hooks::syscall_functions::function_candidates;

#[track_caller]
fn hooks_of(kernel: KernelFeatures, calls: &[(Arch, &str)]) -> Vec<String> {
    hooks_on(EngineKind::Tracepoint, kernel, calls)
}

#[track_caller]
fn hooks_on(engine: EngineKind, kernel: KernelFeatures, calls: &[(Arch, &str)]) -> Vec<String> {
    let mut plan = Plan::default();
    for &(arch, name) in calls {
        let syscall = table::syscall_number(arch, name.as_bytes()).unwrap();
        plan.syscalls
            .insert(SyscallId { arch, syscall }, SyscallPlan::default());
    }
    plan_hooks(&plan, engine, kernel)
        .iter()
        .map(ToString::to_string)
        .collect()
}

const B64: Arch = Arch::X86_64;
const B32: Arch = Arch::I386;

#[test]
fn the_engine_lsm_has_kprobes_and_lsm_programs_only() {
    let calls = [
        (B64, "openat"),
        (B64, "execve"),
        (B64, "exit_group"),
        (B32, "unlink"),
    ];
    assert_eq!(
        hooks_on(EngineKind::Lsm, KernelFeatures::ALL, &calls),
        [
            "kprobe:__ia32_sys_unlink",
            "kprobe:__x64_sys_execve",
            "kprobe:__x64_sys_openat",
            "kprobe:__x64_sys_exit_group",
            "lsm:bprm_committed_creds",
            "lsm:file_open",
            "kprobe.session:do_open_execat",
            "kprobe.session:capable_wrt_inode_uidgid",
            "kprobe:fput_close",
            "kprobe:do_unlinkat",
            "kprobe.session:path_parentat",
            "kprobe.session:may_delete",
            "kprobe.session:get_vfs_caps_from_disk",
            "kprobe.session:cap_bprm_creds_from_file",
            "kprobe.session:ptrace_notify",
            "kprobe.session:begin_new_exec",
        ]
    );
}

#[test]
fn ordinary_calls_need_their_exit() {
    assert_eq!(
        hooks_of(KernelFeatures::V5_15, &[(B64, "openat"), (B64, "stat")]),
        ["syscalls:sys_exit_newstat", "syscalls:sys_exit_openat"]
    );
}

#[test]
fn calls_that_wait_are_timed_at_their_entry() {
    assert_eq!(
        hooks_of(KernelFeatures::ALL, &[(B64, "accept4")]),
        ["syscalls:sys_enter_accept4", "syscalls:sys_exit_accept4"]
    );
}

#[test]
fn an_old_kernel_shows_exec_and_exit_only_at_their_entry() {
    assert_eq!(
        hooks_of(
            KernelFeatures::V5_15,
            &[(B64, "execve"), (B64, "exit_group")]
        ),
        [
            "syscalls:sys_enter_execve",
            "syscalls:sys_enter_exit_group",
            "syscalls:sys_exit_execve",
            "sched:sched_process_exec",
        ]
    );
}

#[test]
fn a_new_kernel_shows_exec_and_exit_for_nothing() {
    assert_eq!(
        hooks_of(KernelFeatures::ALL, &[(B64, "execve"), (B32, "exit_group")]),
        [
            "syscalls:sys_exit_execve",
            "sched:sched_prepare_exec",
            "sched:sched_process_exec",
            "sched:sched_process_exit",
        ]
    );
}

#[test]
fn sigreturn_is_seen_at_its_entry() {
    assert_eq!(
        hooks_of(
            KernelFeatures::ALL,
            &[(B64, "openat"), (B64, "rt_sigreturn")]
        ),
        [
            "syscalls:sys_enter_rt_sigreturn",
            "syscalls:sys_exit_openat"
        ]
    );
    assert_eq!(
        hooks_of(KernelFeatures::ALL, &[(B32, "sigreturn")]),
        ["raw_syscalls:sys_enter"]
    );
}

#[test]
fn one_32_bit_call_moves_its_sides_to_the_raw_tracepoint() {
    assert_eq!(
        hooks_of(KernelFeatures::V5_15, &[(B64, "openat"), (B32, "open")]),
        ["raw_syscalls:sys_exit"]
    );
    assert_eq!(
        hooks_of(KernelFeatures::V5_15, &[(B64, "execve"), (B32, "execve")]),
        [
            "raw_syscalls:sys_enter",
            "raw_syscalls:sys_exit",
            "sched:sched_process_exec",
        ]
    );
}

#[test]
fn a_32_bit_exit_leaves_the_other_exits_alone() {
    assert_eq!(
        hooks_of(KernelFeatures::ALL, &[(B64, "openat"), (B32, "exit")]),
        ["syscalls:sys_exit_openat", "sched:sched_process_exit"]
    );
}

#[test]
fn on_an_old_kernel_a_32_bit_exit_moves_the_entries_to_the_raw_tracepoint() {
    let calls = [(B64, "openat"), (B64, "exit_group"), (B32, "exit")];
    assert_eq!(
        hooks_of(KernelFeatures::V5_15, &calls),
        ["syscalls:sys_exit_openat", "raw_syscalls:sys_enter"]
    );
}

#[test]
fn a_number_without_a_name_is_only_seen_by_the_raw_tracepoint() {
    let mut plan = Plan::default();
    plan.syscalls.insert(
        SyscallId {
            arch: B64,
            syscall: Syscall(1500),
        },
        SyscallPlan::default(),
    );
    let hooks = plan_hooks(&plan, EngineKind::Tracepoint, KernelFeatures::ALL);
    assert_eq!(hooks.into_iter().collect::<Vec<_>>(), [Hook::RawSysExit]);
}

/// A plan of the 64-bit syscalls with these numbers.
fn plan_of(numbers: std::ops::Range<u32>) -> Plan {
    let mut plan = Plan::default();
    for number in numbers {
        let syscall = Syscall(number);
        plan.syscalls
            .insert(SyscallId { arch: B64, syscall }, SyscallPlan::default());
    }
    plan
}

/// Syscalls whose exits have their own hook, and those whose exits are seen at the raw tracepoint.
fn exits(selection: HookSelection, plan: &Plan) -> (usize, usize) {
    let calls = plan.syscalls.keys().filter(|call| call.returns());
    let hooks: Vec<Hook> = calls.map(|&call| selection.exit(call)).collect();
    let raw = hooks.iter().filter(|&&hook| hook == Hook::RawSysExit);
    let raw = raw.count();
    (hooks.len() - raw, raw)
}

#[test]
fn very_many_syscalls_share_the_raw_tracepoint() {
    let many = plan_of(0..300);
    for engine in [EngineKind::Fentry, EngineKind::Tracepoint] {
        let selection = HookSelection::new(&many, engine, KernelFeatures::ALL);
        assert_eq!(exits(selection, &many), (0, 297), "{engine:?}");
        let few = plan_of(0..100);
        let selection = HookSelection::new(&few, engine, KernelFeatures::ALL);
        assert_eq!(exits(selection, &few), (98, 0), "{engine:?}");
    }
}

#[test]
fn syscalls_whose_task_work_can_be_late_have_a_session() {
    let plan = plan_of(0..100);
    let kernel = KernelFeatures {
        late_work: true,
        ..KernelFeatures::ALL
    };
    for (kernel, is_late) in [(kernel, true), (KernelFeatures::ALL, false)] {
        let selection = HookSelection::new(&plan, EngineKind::Lsm, kernel);
        for &call in plan.syscalls.keys().filter(|call| call.returns()) {
            let hooks = selection.syscall_hooks(call);
            assert_eq!(hooks.contains(&Hook::CallSession(call)), is_late);
            assert_eq!(hooks.contains(&Hook::CallExit), is_late);
            assert_eq!(hooks.contains(&Hook::CallEnter(call)), !is_late);
        }
    }
}

#[test]
fn tracepoints_of_single_syscalls_are_not_used_where_the_kernel_skips_them() {
    let plan = plan_of(0..100);
    let kernel = KernelFeatures {
        skips_single_syscalls: true,
        ..KernelFeatures::ALL
    };
    let hooks = plan_hooks(&plan, EngineKind::Tracepoint, kernel);
    assert!(hooks.contains(&Hook::RawSysExit) && hooks.contains(&Hook::RawSysEnter));
    let single = hooks.iter().filter(|hook| {
        matches!(
            hook,
            Hook::SysExit(_) | Hook::SysEnter(_) | Hook::SysEnterNoReturn(_)
        )
    });
    assert_eq!(single.count(), 0, "{hooks:?}");
    let on_functions = plan_hooks(&plan, EngineKind::Fentry, kernel);
    assert!(!on_functions.contains(&Hook::RawSysExit));
}

#[test]
fn a_replacement_moves_no_syscall_between_its_own_hook_and_the_raw_tracepoint() {
    let (few, many) = (plan_of(0..50), plan_of(0..300));
    for engine in [EngineKind::Fentry, EngineKind::Tracepoint] {
        let selection = HookSelection::new(&few, engine, KernelFeatures::ALL);
        let own = |hook: Hook| -> Result<bool, std::convert::Infallible> {
            let (Hook::FunctionExit(call) | Hook::SysExit(call)) = hook else {
                return Ok(false);
            };
            Ok(call.syscall.0 < 50)
        };
        let Ok(selection) = selection.for_replacement(&many, own, &SyscallSet::default());
        assert_eq!(exits(selection, &many), (49, 248), "{engine:?}");
        let mut raw = SyscallSet::default();
        for (&call, _) in many.syscalls.iter().skip(50) {
            raw.insert(call);
        }
        let less = plan_of(40..70);
        let Ok(selection) = selection.for_replacement(&less, own, &raw);
        assert_eq!(exits(selection, &less), (10, 19), "{engine:?}");
        let Ok(selection) = selection.for_replacement(&less, own, &SyscallSet::default());
        assert_eq!(exits(selection, &less), (29, 0), "{engine:?}");
    }
}

/// A program that is attached to a function, or detached, makes the kernel skip the programs at its end for the tasks that
/// sleep inside: syscalls with one function have the same programs there.
#[test]
fn syscalls_of_a_shared_function_all_wait() {
    let numbered = (0..1024).map(|number| SyscallId {
        arch: Arch::I386,
        syscall: Syscall(number),
    });
    let named: Vec<SyscallId> = numbered
        .filter(|syscall| syscall.name().is_some())
        .collect();
    let (waiting, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|&call| waits(call));
    for wait in waiting {
        let functions = function_candidates(wait);
        for &other in &others {
            let shared = function_candidates(other);
            let shared = shared.iter().find(|name| functions.contains(name));
            assert_eq!(shared, None, "{:?} and {:?}", wait.name(), other.name());
        }
    }
}
