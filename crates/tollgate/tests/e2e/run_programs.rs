//! Real programs under `tollgate run`: they work as without it, and every syscall that the kernel's audit
//! records is recorded.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use bstr::ByteSlice as _;

use super::event::Event;
use super::harness::needs;
use super::kernel_audit::{KernelAudit, Lock};
use super::run::Run;
use super::test_dir::TestDir;

/// The rules of both auditors, to which `-F` and the user are appended.
const CALLS: &str = "-a always,exit -F arch=b64 \
                     -S execve,openat,unlink,unlinkat,rename,renameat,renameat2,mkdir,chmod,connect,bind";

/// Number of calls by syscall and outcome.
type Counts = BTreeMap<(String, String), usize>;

fn counts<'a>(events: impl Iterator<Item = &'a Event>) -> Counts {
    let mut counts = Counts::new();
    for event in events {
        let key = (
            event.syscall("syscall").to_owned(),
            event.syscall("success").to_owned(),
        );
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Runs a command while the kernel's audit records the same syscalls, and compares the counts. `id_field` is the
/// field that distinguishes the command's tasks from all others.
#[track_caller]
fn audited(test_dir: &TestDir, id_field: &str, make: impl FnOnce(&Run<'_>) -> Command) -> Output {
    let rules = format!("{CALLS} -F {id_field}={} -k program\n", test_dir.id);
    let mut run = Run::new(test_dir, &rules);
    run.log = test_dir.own.join("run.log");
    if id_field == "uid" {
        run.log = test_dir.work.join("run.log");
    }
    let command = &mut make(&run);
    let lock = Lock::take();
    let kernel = KernelAudit::start(&lock, test_dir, &rules);
    let output = command.output().unwrap();
    let mut last = run.plain(&["cat", "/the-end-of-the-program"]);
    if id_field == "gid" {
        last.uid(0);
    }
    let last = kernel
        .settle(&mut last, "/the-end-of-the-program")
        .to_string();
    let theirs = kernel.stop();
    drop(lock);
    let ran = run.ran(output);
    ran.succeeded();
    let exe = format!("\"{}\"", run.exe());
    let field = |event: &Event| event.syscall(id_field).to_owned();
    let theirs = theirs.iter().filter(|event| {
        let of_command = event.syscall("exe") != exe && event.syscall("pid") != last;
        of_command && field(event) == test_dir.id.to_string()
    });
    let theirs = counts(theirs);
    needs(!theirs.is_empty(), "a kernel audit that sends events");
    assert_eq!(
        theirs,
        counts(ran.events.iter()),
        "the kernel's counts, and ours"
    );
    ran.output
}

fn write(test_dir: &TestDir, name: &str, text: &str) {
    if let Some((directory, _)) = name.rsplit_once('/') {
        let mut path = String::new();
        for part in directory.split('/') {
            path.push_str(part);
            test_dir.directory(&path);
            path.push('/');
        }
    }
    test_dir.file(name, text);
}

pub(crate) fn a_c_build() {
    let test_dir = TestDir::new();
    write(
        &test_dir,
        "c/Makefile",
        "program: a.o b.o c.o d.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n",
    );
    for name in ["b", "c", "d"] {
        let text = format!(
            "#include <stdlib.h>\nint {name}(void) {{ return abs(-{}); }}\n",
            name.as_bytes()[0]
        );
        write(&test_dir, &format!("c/{name}.c"), &text);
    }
    write(
        &test_dir,
        "c/a.c",
        "#include <stdio.h>\nint b(void), c(void), d(void);\nint main(void) { printf(\"%d\\n\", b() + c() + d()); }\n",
    );
    audited(&test_dir, "uid", |run| {
        run.command(&[], &["make", "-C", "c", "-j2"])
    });
    let program = Command::new(test_dir.work.join("c/program"))
        .output()
        .unwrap();
    assert_eq!(program.stdout, b"297\n");
}

pub(crate) fn a_rust_build() {
    let cargo = std::env::var("CARGO").unwrap_or_default();
    needs(
        Path::new(&cargo).is_file(),
        "cargo, which has started this test",
    );
    let test_dir = TestDir::new();
    let manifest = |name: &str, more: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{more}\n")
    };
    write(
        &test_dir,
        "r/Cargo.toml",
        &manifest(
            "sum",
            "[dependencies]\none = { path = \"one\" }\n[workspace]\n",
        ),
    );
    write(
        &test_dir,
        "r/src/main.rs",
        "fn main() { println!(\"{}\", one::one() + 1); }\n",
    );
    write(&test_dir, "r/one/Cargo.toml", &manifest("one", ""));
    write(&test_dir, "r/one/src/lib.rs", "pub fn one() -> u32 { 1 }\n");
    // Only root may be able to run the toolchain: the group distinguishes the command.
    audited(&test_dir, "gid", |run| {
        let mut command = run.command(&[], &[&cargo, "build", "-j2", "--offline", "--quiet"]);
        command
            .uid(0)
            .current_dir(test_dir.work.join("r"))
            .env("HOME", std::env::var_os("HOME").unwrap_or_default())
            .env("CARGO_TARGET_DIR", test_dir.work.join("r/target"));
        command
    });
    let program = Command::new(test_dir.work.join("r/target/debug/sum"))
        .output()
        .unwrap();
    assert_eq!(program.stdout, b"2\n");
}

pub(crate) fn a_git_clone() {
    let test_dir = TestDir::new();
    needs(Path::new("/usr/bin/git").exists(), "git");
    let prepare = "git init -q from && cd from && git config user.name n && git config user.email e && \
                   for n in 1 2 3 4 5; do echo $n >file$n; git add .; git commit -qm $n; done";
    let run = Run::new(&test_dir, "");
    assert!(
        run.plain(&["sh", "-c", prepare])
            .status()
            .unwrap()
            .success()
    );
    audited(&test_dir, "uid", |run| {
        run.command(
            &[],
            &[
                "sh",
                "-c",
                "git clone -q --no-local from to && cd to && git fsck --strict",
            ],
        )
    });
    let log = |directory: &str| {
        let output = run
            .plain(&["git", "-C", directory, "log", "--format=%H %s"])
            .output();
        output.unwrap().stdout
    };
    assert_eq!(log("from"), log("to"));
    assert_eq!(log("to").lines().count(), 5);
}

pub(crate) fn a_python_test_run() {
    let test_dir = TestDir::new();
    write(
        &test_dir,
        "test_all.py",
        "\
import concurrent.futures, os, subprocess, tempfile, unittest
class All(unittest.TestCase):
    def test_processes(self):
        self.assertEqual(subprocess.check_output(['echo', 'x']), b'x\\n')
    def test_pool(self):
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            self.assertEqual(list(pool.map(abs, range(-9, 0))), list(range(9, 0, -1)))
    def test_files(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'f')
            with open(path, 'w') as file: file.write('x')
            os.rename(path, path + '2')
            self.assertFalse(os.path.exists(path))
    def test_refusal(self):
        with self.assertRaises(PermissionError): open('/etc/shadow')
",
    );
    let output = audited(&test_dir, "uid", |run| {
        run.command(
            &[],
            &["/usr/bin/python3", "-m", "unittest", "-v", "test_all"],
        )
    });
    assert!(
        output.stderr.contains_str("Ran 4 tests"),
        "{}",
        output.stderr.as_bstr()
    );
}

pub(crate) fn a_go_test_run() {
    let test_dir = TestDir::new();
    needs(
        Path::new("/usr/bin/go").exists(),
        "go, of Debian's package golang-go",
    );
    write(&test_dir, "g/go.mod", "module g\n\ngo 1.19\n");
    write(
        &test_dir,
        "g/g_test.go",
        "\
package g
import (\"os\"; \"sync\"; \"testing\")
func TestThreads(t *testing.T) {
\tvar all sync.WaitGroup
\tfor i := 0; i < 50; i++ {
\t\tall.Add(1)
\t\tgo func() {
\t\t\tdefer all.Done()
\t\t\tfor n := 0; n < 20; n++ {
\t\t\t\tif _, err := os.ReadFile(\"go.mod\"); err != nil { t.Error(err) }
\t\t\t}
\t\t}()
\t}
\tall.Wait()
}
",
    );
    let output = audited(&test_dir, "uid", |run| {
        let mut command = run.command(&[], &["/usr/bin/go", "test", "./..."]);
        command
            .current_dir(test_dir.work.join("g"))
            .env("GOPROXY", "off")
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env_remove("GOROOT");
        command
    });
    assert!(
        output.stdout.starts_with(b"ok"),
        "{}",
        output.stdout.as_bstr()
    );
}

pub(crate) fn a_redis_server_and_its_benchmark() {
    let test_dir = TestDir::new();
    let server = "/usr/bin/redis-check-rdb";
    needs(
        Path::new(server).exists(),
        "redis, of Debian's package redis-tools",
    );
    // The server and redis-check-rdb are one program; only this name serves.
    symlink(
        fs::canonicalize(server).unwrap(),
        test_dir.work.join("redis-server"),
    )
    .unwrap();
    let script = "./redis-server --port 0 --unixsocket ./s --save '' --appendonly no >server.log & \
                  n=0; until redis-cli -s ./s ping >/dev/null 2>&1; do \
                  n=$((n+1)); [ $n -lt 3000 ] || exit 9; sleep 0.02; done; \
                  redis-benchmark -s ./s -n 20000 -c 20 -q -t set,get >benchmark.log && \
                  redis-cli -s ./s dbsize && redis-cli -s ./s shutdown nosave; wait";
    let output = audited(&test_dir, "uid", |run| {
        run.command(&[], &["sh", "-c", script])
    });
    assert_eq!(output.stdout, b"1\n");
    let figures = fs::read_to_string(test_dir.work.join("benchmark.log")).unwrap();
    assert!(
        figures.contains("SET:") && figures.contains("GET:"),
        "{figures}"
    );
}
