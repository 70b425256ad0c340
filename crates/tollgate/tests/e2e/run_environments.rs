//! Environments of `tollgate run`: where it works, and its messages where it does not. `tests/vm` tests the
//! settings of Yama.

use std::fs;
use std::path::Path;

use bstr::ByteSlice as _;

use super::daemon::program;
use super::harness::needs;
use super::run::Run;
use super::test_dir::TestDir;

const RULES: &str = "-a always,exit -F arch=b64 -S openat -k open\n";

/// New user, PID and mount namespaces without capabilities.
pub(crate) fn unprivileged_container() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, RULES);
    let container = [
        "unshare",
        "--map-current-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--",
    ];
    let probe = run
        .plain(&[&container[..], &["true"]].concat())
        .output()
        .unwrap();
    needs(
        probe.status.success(),
        "namespaces for users without rights",
    );
    for options in [&[][..], &["--no-result"]] {
        let inner = run.command(
            options,
            &["sh", "-c", "grep CapEff /proc/self/status; exit 3"],
        );
        let words = std::iter::once(inner.get_program()).chain(inner.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let output = run
            .plain(&[&container[..], &words].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(output.stdout.as_bstr(), "CapEff:\t0000000000000000\n");
        let ran = run.ran(output);
        let status = |event: &&super::event::Event| event.paths() == ["NORMAL /proc/self/status"];
        assert_eq!(ran.events.iter().filter(status).count(), 1);
    }
}

/// `scripts/run.sh`, which `make run` calls, without root.
pub(crate) fn make_run_without_root() {
    let test_dir = TestDir::new();
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for (directory, name) in [("scripts", "run.sh"), ("examples", "first.rules")] {
        test_dir.directory(directory);
        let text = fs::read_to_string(repository.join(directory).join(name)).unwrap();
        test_dir.file(&format!("{directory}/{name}"), &text);
    }
    test_dir.directory("target");
    test_dir.directory("target/release");
    test_dir.program("target/release/tollgate", program().to_str().unwrap());
    let run = Run::new(&test_dir, RULES);
    let mut command = run.plain(&["sh", "scripts/run.sh"]);
    // The build is up to date.
    let output = command
        .env("MAKE", "true")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    let said = output.stderr.as_bstr();
    assert!(output.status.success(), "{said}");
    for word in [
        "[exec]",
        "[mode]",
        "[rename]",
        "[delete]",
        "[denied]",
        "EACCES",
        "lost 0",
        " events; ",
    ] {
        assert!(said.contains_str(word), "{word} in\n{said}");
    }
    assert!(
        output.stdout.starts_with(b"uid="),
        "{}",
        output.stdout.as_bstr()
    );
}

/// Sandboxes that fail one syscall with EPERM.
pub(crate) fn sandbox_restrictions_are_named() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, RULES);
    let sandbox = "\
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
code = struct.pack('HBBI', 0x20, 0, 0, 0) + struct.pack('HBBI', 0x15, 0, 1, int(sys.argv[1]))
code += struct.pack('HBBI', 6, 0, 0, 0x50001) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxQ', 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[2], sys.argv[2:])
";
    for (call, options, said) in [
        (libc::SYS_ptrace, &[][..], "forbids ptrace(2)"),
        (
            libc::SYS_process_vm_readv,
            &["--no-result"],
            "process_vm_readv(2)",
        ),
        (libc::SYS_seccomp, &["--no-result"], "forbids seccomp(2)"),
    ] {
        let inner = run.command(options, &["echo", "ran"]);
        let number = call.to_string();
        let mut words = vec!["/usr/bin/python3", "-c", sandbox, number.as_str()];
        words.push(inner.get_program().to_str().unwrap());
        words.extend(inner.get_args().map(|word| word.to_str().unwrap()));
        let output = run.plain(&words).output().unwrap();
        let text = output.stderr.as_bstr();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains_str(said), "{text}");
        assert_eq!(output.stdout.as_bstr(), "", "the command was not run");
    }
}
