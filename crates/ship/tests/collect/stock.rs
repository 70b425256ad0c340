//! The stock `audisp-remote` of Debian.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::*;

const PROGRAM: &str = "/sbin/audisp-remote";
/// Where it reads its settings, and nowhere else.
const SETTINGS: &str = "/etc/audit/audisp-remote.conf";

/// One that reads records from a pipe, in a mount namespace with settings of its own.
struct AudispRemote {
    child: Child,
    input: Option<ChildStdin>,
}

impl AudispRemote {
    /// Starts one; `None`, which is told, if this test may not mount.
    fn start(collector: &Collector, format: &str) -> Option<Self> {
        let settings = format!(
            "remote_server = 127.0.0.1\nport = {}\ntransport = tcp\nmode = immediate\nqueue_depth = 20000\n\
             format = {format}\nnetwork_retry_time = 1\nmax_tries_per_record = 3\nmax_time_per_record = 5\n\
             heartbeat_timeout = 1\nnetwork_failure_action = syslog\nremote_ending_action = reconnect\n\
             generic_error_action = syslog\noverflow_action = syslog\nstartup_failure_action = syslog\n",
            collector.port
        );
        let path = collector.path("audisp-remote.conf");
        fs::write(&path, settings).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing: run `sh scripts/setup.sh tests`"
        );
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: {SETTINGS} can be replaced for {PROGRAM} by root only");
            return None;
        }
        let in_namespace = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c"]);
            let mount = format!("mount --bind '{}' {SETTINGS} && {script}", path.display());
            command.arg(mount);
            command
        };
        if !in_namespace("true")
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
        {
            eprintln!("skipped: no mount namespace can be made here");
            return None;
        }
        // auditd starts its plugins with SIGPIPE ignored.
        let mut child = in_namespace(&format!("trap '' PIPE && exec {PROGRAM}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Some(Self { child, input })
    }

    fn write(&mut self, lines: &str) {
        self.input
            .as_mut()
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
    }

    /// Ends its input; it has sent all if it succeeds.
    fn end(mut self) -> bool {
        self.input = None;
        self.child.wait().unwrap().success()
    }
}

impl Drop for AudispRemote {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

fn lines(serials: std::ops::Range<u32>) -> String {
    serials
        .map(|serial| format!("node=web1.example {}", line(serial)))
        .collect()
}

/// Killed while records come, and started again.
#[test]
fn every_record_of_audisp_remote_arrives_over_kills() {
    const EACH: u32 = 1500;
    let mut collector = Collector::start("space_left = 0", "");
    let Some(mut stock) = AudispRemote::start(&collector, "managed") else {
        return;
    };
    let count =
        |collector: &Collector| u32::try_from(collector.log("web1").lines().count()).unwrap();
    for part in 0..4 {
        stock.write(&lines(part * EACH..(part + 1) * EACH));
        wait_until("some records", || {
            count(&collector) > part * EACH + EACH / 3
        });
        if part < 3 {
            collector.kill();
            collector.run_again();
        }
    }
    wait_until("all records", || count(&collector) >= 4 * EACH);
    assert!(stock.end());
    assert!(collector.log("web1") == lines(0..4 * EACH), "another log");
}

/// One that ends in order tells the peer, which reconnects when it has a record.
#[test]
fn audisp_remote_goes_on_after_an_orderly_end() {
    let mut collector = Collector::start("space_left = 0", "");
    let Some(mut stock) = AudispRemote::start(&collector, "managed") else {
        return;
    };
    for part in 0..3 {
        stock.write(&lines(part * 10..(part + 1) * 10));
        wait_until("records", || {
            collector.log("web1").lines().count() >= 10 * (usize::try_from(part).unwrap() + 1)
        });
        collector.end();
        collector.run_again();
    }
    assert!(stock.end());
    assert_eq!(collector.log("web1"), lines(0..30));
}

#[test]
fn ascii_lines_of_audisp_remote_arrive() {
    let collector = Collector::start("space_left = 0", "");
    let Some(mut stock) = AudispRemote::start(&collector, "ascii") else {
        return;
    };
    stock.write(&lines(0..500));
    wait_until("all records", || {
        collector.log("web1").lines().count() == 500
    });
    assert_eq!(collector.log("web1"), lines(0..500));
    assert!(stock.end());
}
