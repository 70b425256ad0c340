//! Where `tollgate run` works, and what it says where it does not. The settings of Yama are tried in
//! `tests/vm`.

use std::fs;
use std::path::Path;

use bstr::ByteSlice as _;

use super::daemon::program;
use super::harness::needs;
use super::place::Place;
use super::run::Run;

const RULES: &str = "-a always,exit -F arch=b64 -S openat -k open\n";

/// Namespaces of their own for users, processes and mounts, and not one capability.
pub(crate) fn a_container_without_rights() {
    let place = Place::new();
    let run = Run::new(&place, RULES);
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

/// `scripts/run.sh`, which is `make run`, by a user without rights.
pub(crate) fn make_run_without_root() {
    let place = Place::new();
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for (directory, name) in [("scripts", "run.sh"), ("examples", "first.rules")] {
        place.directory(directory);
        let text = fs::read_to_string(repository.join(directory).join(name)).unwrap();
        place.file(&format!("{directory}/{name}"), &text);
    }
    place.directory("target");
    place.directory("target/release");
    place.program("target/release/tollgate", program().to_str().unwrap());
    let run = Run::new(&place, RULES);
    let mut command = run.plain(&["sh", "scripts/run.sh"]);
    // It is built.
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

/// Sandboxes that answer EPERM to one call.
pub(crate) fn what_a_sandbox_forbids_is_named() {
    let place = Place::new();
    let run = Run::new(&place, RULES);
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
