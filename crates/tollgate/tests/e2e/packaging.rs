//! Installed files: the systemd unit, the drop-in for journald, and shell completions.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::daemon::{CommandOutput, Daemon, program};
use super::handover::Bpf;
use super::harness::needs;
use super::test_dir::TestDir;

const ANALYZE: &str = "/usr/bin/systemd-analyze";
const JOURNALD: &str = "/lib/systemd/systemd-journald";
/// Ends the configuration that journald reads in a test.
const LAST_UNKNOWN_KEY: &str = "LastUnknownKey";
/// Starts journald, `$2`, with the configuration `$1`, on an empty `/run`; it ends after a minute.
const START_JOURNALD: &str = r#"
mount -t tmpfs none /run && mkdir -p /run/systemd/journal &&
mount --bind "$1" /etc/systemd/journald.conf && exec timeout 60 "$2"
"#;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Completes a command line as bash does: calls the function that the script has registered for the program,
/// with the words of the line. The last word is completed.
const COMPLETE: &str = r#"
source "$1" && shift || exit
[[ $(complete -p tollgate) =~ -F\ ([^\ ]+)\ tollgate$ ]] || exit
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
"${BASH_REMATCH[1]}" tollgate "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

pub(crate) fn unit_files_are_valid() {
    needs(
        Path::new(ANALYZE).exists(),
        "systemd-analyze, of Debian's package systemd",
    );
    let test_dir = TestDir::new();
    // systemd-analyze also reports errors of other units.
    let mistakes = |name: &str, unit: &str| {
        // The test does not need installed programs.
        let installed = "/usr/sbin/tollgate";
        assert!(unit.contains(installed));
        let here = test_dir.own.join(name);
        fs::write(&here, unit.replace(installed, program().to_str().unwrap())).unwrap();
        let mut verify = Command::new(ANALYZE);
        let verified = CommandOutput::of(verify.args(["verify", "--man=no"]).arg(&here));
        let about = verified.stderr.lines().filter(|line| line.contains(name));
        about.map(str::to_owned).collect::<Vec<_>>()
    };
    for name in [
        "tollgate.service",
        "tollgate-collect.service",
        "tollgate-detect.service",
        "tollgate-ship.service",
    ] {
        let unit = fs::read_to_string(Path::new(ROOT).join("packaging").join(name)).unwrap();
        assert_eq!(mistakes(name, &unit), [""; 0]);
        // systemd-analyze reports a mistake.
        assert_ne!(
            mistakes(name, &unit.replace("[Service]", "[Service]\nType=notice")),
            [""; 0]
        );
    }
}

/// The lock is a file beside the default socket, or in a directory of pins.
pub(crate) fn upgrade_does_not_restart_a_locked_daemon() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let own = |name: &str| test_dir.own.join(name).to_str().unwrap().to_owned();
    let script = fs::read_to_string(Path::new(ROOT).join("packaging/deb/postinst")).unwrap();
    let mut here = script;
    for (there, name) in [
        ("/run/tollgate/locked", "locked"),
        ("/proc/mounts", "mounts"),
        ("/run/systemd/system", "systemd"),
    ] {
        assert!(here.contains(there), "{there}");
        here = here.replace(there, &own(name));
    }
    let mounts = format!("none /tmp tmpfs rw 0 0\nbpf {} bpf rw 0 0\n", own("bpf"));
    fs::write(own("mounts"), mounts).unwrap();
    fs::create_dir(own("systemd")).unwrap();
    fs::write(own("postinst"), here).unwrap();
    let stubs =
        "systemd-tmpfiles() { :; }; systemctl() { :; }; deb-systemd-invoke() { echo \"$@\"; }";
    let restarts = || {
        // Only bash accepts such function names.
        let text = format!("{stubs}; set -- configure 1.0; . {}", own("postinst"));
        let asked = CommandOutput::of(Command::new("bash").args(["-c", &text]));
        assert_eq!(asked.code, Some(0), "{asked:?}");
        let restarts = asked.stdout.contains("try-restart tollgate.service\n");
        let says_why = asked
            .stderr
            .contains("the new version starts at the next boot");
        assert_eq!(restarts, !says_why, "{asked:?}");
        assert!(says_why || asked.stderr.is_empty(), "{asked:?}");
        restarts
    };
    fs::create_dir(bpf.pins()).unwrap();
    assert!(restarts());
    for locked in [PathBuf::from(own("locked")), bpf.pins().join("locked")] {
        fs::create_dir(&locked).unwrap();
        assert!(!restarts(), "{}", locked.display());
        fs::remove_dir(&locked).unwrap();
    }
    assert!(restarts());
}

/// After a daemon that was killed, the package has the only tool that detaches the programs.
pub(crate) fn removal_detaches_what_a_killed_daemon_left() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let script = fs::read_to_string(Path::new(ROOT).join("packaging/deb/prerm")).unwrap();
    let pins = bpf.pins().to_str().unwrap().to_owned();
    let mut here = script;
    for (there, path) in [
        ("/sys/fs/bpf/tollgate", pins.as_str()),
        ("/run/systemd/system", "/nonexistent"),
    ] {
        assert!(here.contains(there), "{there}");
        here = here.replace(there, path);
    }
    let prerm = test_dir.own.join("prerm");
    fs::write(&prerm, here).unwrap();
    let program = program();
    let program = program.to_str().unwrap();
    let remove = || {
        // Only bash accepts such function names.
        let text = format!(
            "tollgate-alternatives() {{ :; }}; systemctl() {{ :; }}; tollgate() {{ {program} \"$@\" {pins}; }}; \
             set -- remove; . {}",
            prerm.display()
        );
        CommandOutput::of(Command::new("bash").args(["-c", &text]))
    };
    let nothing = remove();
    assert_eq!(
        (nothing.code, nothing.stderr.as_str()),
        (Some(0), ""),
        "{nothing:?}"
    );
    let rules = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k left\n",
        test_dir.id
    );
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    daemon.kill();
    assert!(bpf.pins().join("header").exists());
    let removed = remove();
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(
        removed.stderr.contains("removed the BPF objects"),
        "{removed:?}"
    );
    assert!(!bpf.pins().exists());
}

/// The drop-in is found where it is installed, overrides other settings, and has only keys that journald knows.
pub(crate) fn journald_drop_in_keeps_kernel_audit() {
    needs(
        Path::new(ANALYZE).exists() && Path::new(JOURNALD).exists(),
        "systemd-analyze and journald, of Debian's package systemd",
    );
    for prefix in ["/usr", "/usr/local"] {
        let test_dir = TestDir::new();
        let root = install(&test_dir, prefix);
        let main = root.join("etc/systemd/journald.conf");
        fs::create_dir_all(main.parent().unwrap()).unwrap();
        fs::write(main, "[Journal]\nAudit=yes\n").unwrap();
        let mut analyze = Command::new(ANALYZE);
        let root = format!("--root={}", root.display());
        let config =
            CommandOutput::of(analyze.args(["cat-config", &root, "systemd/journald.conf"]));
        let said: Vec<&str> = config
            .stdout
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        assert_eq!(
            said,
            ["[Journal]", "Audit=yes", "[Journal]", "Audit="],
            "{prefix}"
        );
    }
    let drop_in = fs::read_to_string(Path::new(ROOT).join("packaging/journald.conf")).unwrap();
    assert_eq!(journald_unknown_keys(&drop_in), Vec::<String>::new());
    let misspelt = drop_in.replace("\nAudit=", "\nAudits=");
    assert_eq!(journald_unknown_keys(&misspelt), ["Audits"]);
}

/// Keys of a configuration that journald reports as unknown. It reads the configuration at its start, here in
/// namespaces where it reaches neither the running journald nor the kernel's audit. The last key must be
/// unknown.
#[track_caller]
fn journald_unknown_keys(config: &str) -> Vec<String> {
    let test_dir = TestDir::new();
    let file = test_dir.own.join("journald.conf");
    fs::write(&file, format!("{config}[Journal]\n{LAST_UNKNOWN_KEY}=\n")).unwrap();
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["sh", "-c", START_JOURNALD, "sh"])
        .arg(&file)
        .arg(JOURNALD)
        .env("SYSTEMD_LOG_TARGET", "console")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let keys = lines.map_while(Result::ok).filter_map(|line| {
        let (_, key) = line.split_once("Unknown key '")?;
        Some(key.split_once('\'')?.0.to_owned())
    });
    let mut found = Vec::new();
    let mut is_complete = false;
    for key in keys {
        is_complete = key == LAST_UNKNOWN_KEY;
        if is_complete {
            break;
        }
        found.push(key);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        is_complete,
        "journald has not read its configuration: {found:?}"
    );
    found
}

pub(crate) fn shells_complete_the_commands() {
    let test_dir = TestDir::new();
    let root = install(&test_dir, "/usr");
    let bash = root.join("usr/share/bash-completion/completions/tollgate");
    let complete = |words: &[&str]| {
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "-c", COMPLETE, "bash"]);
        let asked = CommandOutput::of(command.arg(&bash).args(words));
        assert_eq!(asked.stderr, "", "{words:?}");
        asked.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut commands = shown_by_help("Commands:");
    let companions = shown_by_help("Installed companions:");
    // `tollgate-replay` is a link that only scripts/install.sh makes.
    assert_eq!(
        companions,
        [
            "aureport", "ausearch", "bench", "collect", "detect", "report", "search", "ship", "top"
        ]
    );
    commands.extend(companions);
    commands.sort_unstable();
    let first = complete(&["tollgate", ""]);
    let (options, mut offered): (Vec<String>, Vec<String>) =
        first.into_iter().partition(|word| word.starts_with('-'));
    offered.sort_unstable();
    assert_eq!(offered, commands);
    assert!(options.contains(&"--version".to_owned()));
    assert_eq!(complete(&["tollgate", "sta"]), ["status"]);
    let mut options = complete(&["tollgate", "status", "--"]);
    options.sort_unstable();
    assert_eq!(
        options,
        ["--control", "--help", "--json", "--pins", "--watch"]
    );
    let shells = complete(&["tollgate", "completions", ""]);
    assert!(shells.ends_with(&["bash", "elvish", "fish", "powershell", "zsh"].map(str::to_owned)));

    let fish = root.join("usr/share/fish/vendor_completions.d/tollgate.fish");
    let script = "source $argv[1]; complete --do-complete 'tollgate '";
    let arguments = [
        "--no-config".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        fish.as_os_str(),
    ];
    if let Some(asked) = if_installed("fish", &arguments) {
        assert_eq!(asked.stderr, "");
        let mut offered: Vec<&str> = asked
            .stdout
            .lines()
            .filter_map(|line| line.split('\t').next())
            .filter(|word| !word.starts_with('-'))
            .collect();
        let mut commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        offered.sort_unstable();
        commands.sort_unstable();
        assert_eq!(offered, commands);
    }

    let zsh = root.join("usr/share/zsh/vendor-completions/_tollgate");
    // The completion function prints its words instead of a menu.
    let script = "autoload -U compinit && compinit -D && source $1 && print $_comps[tollgate]\n\
                  _describe() { print -l ${(P)4} }\n_tollgate_commands";
    let arguments = [
        "-f".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        "zsh".as_ref(),
        zsh.as_os_str(),
    ];
    if let Some(asked) = if_installed("zsh", &arguments) {
        assert_eq!(asked.stderr, "");
        let mut words = asked
            .stdout
            .lines()
            .filter_map(|line| line.split(':').next());
        assert_eq!(words.next(), Some("_tollgate"));
        assert!(
            words.eq(commands.iter().map(String::as_str)),
            "{}",
            asked.stdout
        );
    }
}

/// The output of a shell, if it is installed.
fn if_installed(shell: &str, arguments: &[&OsStr]) -> Option<CommandOutput> {
    match Command::new(shell).arg("-c").arg("exit").status() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        _ => Some(CommandOutput::of(Command::new(shell).args(arguments))),
    }
}

/// The first word of each help line under a heading.
fn shown_by_help(heading: &str) -> Vec<String> {
    let help = CommandOutput::of(Command::new(program()).arg("--help"));
    help.stdout
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Installs the program below another root, as `make install` does.
fn install(test_dir: &TestDir, prefix: &str) -> PathBuf {
    let root = test_dir.own.join("root");
    // Scripts replace the programs, which are large with debug information.
    for name in [
        "tollgate",
        "tollgate-ausearch",
        "tollgate-aureport",
        "tollgate-bench",
        "tollgate-collect",
        "tollgate-detect",
        "tollgate-report",
        "tollgate-search",
        "tollgate-ship",
        "tollgate-top",
    ] {
        let binary = test_dir.own.join(name);
        let program = program().with_file_name(name);
        let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display());
        fs::write(&binary, text).unwrap();
        fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
    }
    run_script(test_dir, "install.sh", &root, prefix);
    root
}

/// Runs a script on the programs of `install()`.
fn run_script(test_dir: &TestDir, name: &str, root: &Path, prefix: &str) {
    let mut command = Command::new("sh");
    command.arg(Path::new(ROOT).join("scripts").join(name));
    let output = CommandOutput::of(command.arg(&test_dir.own).arg(root).arg(prefix));
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
}

/// `make uninstall` removes every file of `make install` and no other.
pub(crate) fn uninstall_removes_what_was_installed() {
    fn files(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                files(&entry.path(), found);
            } else {
                found.push(entry.path());
            }
        }
    }
    let test_dir = TestDir::new();
    let root = install(&test_dir, "/usr/local");
    let other = root.join("usr/local/sbin/other");
    fs::write(&other, "").unwrap();
    let mut before = Vec::new();
    files(&root, &mut before);
    assert!(before.len() > 20, "{before:?}");
    run_script(&test_dir, "uninstall.sh", &root, "/usr/local");
    let mut after = Vec::new();
    files(&root, &mut after);
    assert_eq!(after, [other]);
    assert!(!root.join("usr/local/lib/tollgate").exists());
    assert!(!root.join("usr/local/share/tollgate").exists());
    assert!(!root.join("etc/tollgate").exists());
}

/// Building and running need few packages; browsers, emulators and Go come with the tests.
pub(crate) fn setup_installs_what_is_needed() {
    let test_dir = TestDir::new();
    let bin = test_dir.own.join("bin");
    fs::create_dir(&bin).unwrap();
    // Nothing is installed, and the user is not root: the script names what is missing.
    for (name, text) in [
        ("dpkg-query", "echo absent"),
        ("apt-get", "exit 1"),
        ("id", "echo 1000"),
    ] {
        let stub = bin.join(name);
        fs::write(&stub, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&stub, Permissions::from_mode(0o755)).unwrap();
    }
    let missing = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command
            .arg(Path::new(ROOT).join("scripts/setup.sh"))
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let output = CommandOutput::of(&mut command);
        let line = output
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("setup: missing: "));
        let packages = line.unwrap_or_default().split(' ').map(str::to_owned);
        (output.code, packages.collect::<Vec<_>>())
    };
    let build = "clang-19 gcc libc6-dev libelf-dev zlib1g-dev pkg-config make auditd";
    let build: Vec<String> = build.split(' ').map(str::to_owned).collect();
    assert_eq!(missing(&["packages"]), (Some(1), build.clone()));
    assert_eq!(missing(&[]).1, build);
    for (mode, package) in [
        ("tests", "qemu-system-x86"),
        ("tests", "golang-go"),
        ("packaging", "lintian"),
        ("arm64", "gcc-aarch64-linux-gnu"),
    ] {
        let (_, packages) = missing(&[mode]);
        assert!(packages.starts_with(&build), "{packages:?}");
        assert!(packages.iter().any(|one| one == package), "{packages:?}");
    }
    let (_, packages) = missing(&["packaging", "arm64"]);
    for package in ["lintian", "gcc-aarch64-linux-gnu"] {
        assert!(packages.iter().any(|one| one == package), "{packages:?}");
    }
    let (_, packages) = missing(&["tests", "packaging"]);
    let of_both = packages.iter().filter(|one| *one == "qemu-system-x86");
    assert_eq!(of_both.count(), 1);
    assert_eq!(missing(&["test"]).0, Some(2));
    assert_eq!(missing(&["tests", "test"]).0, Some(2));
}
