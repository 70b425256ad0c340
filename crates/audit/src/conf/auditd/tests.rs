//! Every key, with values that `auditd` accepts and values that it refuses.

use bstr::BStr;

use super::*;

/// A host with the group `adm` and the program `/sbin/room`.
struct TestHost;

impl ConfigHost for TestHost {
    fn group(&self, name: &[u8]) -> Option<u32> {
        (name == b"adm").then_some(4)
    }

    fn may_run(&self, program: &BStr) -> Result<(), String> {
        if program == "/sbin/room" {
            Ok(())
        } else {
            Err("does not exist".to_owned())
        }
    }

    fn can_mail(&self) -> bool {
        true
    }
}

/// The file of Debian 12, without its comments.
const DEBIAN: &str = "\
local_events = yes
write_logs = yes
log_file = /var/log/audit/audit.log
log_group = adm
log_format = ENRICHED
flush = INCREMENTAL_ASYNC
freq = 50
max_log_file = 8
num_logs = 5
priority_boost = 4
name_format = NONE
##name = mydomain
max_log_file_action = ROTATE
space_left = 75
space_left_action = SYSLOG
verify_email = yes
action_mail_acct = root
admin_space_left = 50
admin_space_left_action = SUSPEND
disk_full_action = SUSPEND
disk_error_action = SUSPEND
use_libwrap = yes
##tcp_listen_port = 60
tcp_listen_queue = 5
tcp_max_per_addr = 1
##tcp_client_ports = 1024-65535
tcp_client_max_idle = 0
transport = TCP
krb5_principal = auditd
##krb5_key_file = /etc/audit/audit.key
distribute_network = no
q_depth = 2000
overflow_action = SYSLOG
max_restarts = 10
plugin_dir = /etc/audit/plugins.d
end_of_event_timeout = 2
";

/// Lines that every valid file needs.
const SPACE: &str = "space_left = 75\nadmin_space_left = 50\n";

fn read(line: &str) -> (Settings, Vec<(&'static str, u32, u32)>) {
    let text = format!("{SPACE}{line}\n");
    let (settings, findings) = parse(text.as_bytes(), &TestHost);
    for finding in &findings {
        assert!(!finding.advice.is_empty() && finding.span.end <= text.len());
    }
    let key_positions = findings
        .iter()
        .map(|finding| (finding.code, finding.line, finding.column))
        .collect();
    (settings, key_positions)
}

#[track_caller]
fn assert_accepted(line: &str) -> Settings {
    let (settings, findings) = read(line);
    assert_eq!(findings, [], "{line}");
    settings
}

#[track_caller]
fn assert_refused(line: &str, code: &str, column: u32) {
    let (_, findings) = read(line);
    assert_eq!(findings, [(code, 3, column)], "{line}");
}

#[test]
fn debian_auditd_conf_parses() {
    let (settings, findings) = parse(DEBIAN.as_bytes(), &TestHost);
    assert_eq!(findings, []);
    let expected = Settings {
        log_group: 4,
        flush: Flush::IncrementalAsync,
        freq: 50,
        num_logs: 5,
        max_log_file: 8,
        max_log_file_action: MaxLogFileAction::Rotate,
        space_left: SpaceLimit::Mebibytes(75),
        space_left_action: Action::Syslog,
        admin_space_left: SpaceLimit::Mebibytes(50),
        admin_space_left_action: Action::Suspend,
        disk_full_action: Action::Suspend,
        disk_error_action: Action::Suspend,
        ignored: vec![
            "use_libwrap",
            "tcp_listen_queue",
            "tcp_max_per_addr",
            "tcp_client_max_idle",
            "transport",
            "krb5_principal",
            "distribute_network",
            "end_of_event_timeout",
        ],
        ..Settings::default()
    };
    assert_eq!(settings, expected);
}

/// `keywords` in `src/auditd-config.c`, audit-userspace 3.0.9 and 4.2.1.
const AUDITD_KEYS: &str = "\
action_mail_acct admin_space_left admin_space_left_action disk_error_action \
disk_full_action disp_qos dispatcher distribute_network enable_krb5 \
end_of_event_timeout flush freq krb5_key_file krb5_principal local_events log_file \
log_format log_group max_log_file max_log_file_action max_restarts name name_format \
num_logs overflow_action plugin_dir priority_boost q_depth report_interval space_left \
space_left_action tcp_client_max_idle tcp_client_ports tcp_listen_port tcp_listen_queue \
tcp_max_per_addr tls_allowed_clients tls_auth tls_cipher_suites tls_crypto_profile \
tls_key_exchange tls_psk_file tls_psk_identity tls_require_pqc transport use_libwrap \
verify_email write_logs";

#[test]
fn every_key_of_auditd_is_known() {
    for key in AUDITD_KEYS.split_whitespace() {
        let (_, findings) = read(&format!("{key} = 1"));
        let unknown = findings.iter().any(|(code, ..)| *code == "unknown-key");
        assert!(!unknown, "{key}");
    }
}

#[test]
fn empty_file_gives_the_defaults() {
    let (settings, findings) = parse(b"", &TestHost);
    assert_eq!((settings, findings), (Settings::default(), vec![]));
}

#[test]
fn values_ignore_case() {
    assert!(!assert_accepted("Write_Logs = NO").write_logs);
    assert!(!assert_accepted("log_format = nolog").write_logs);
    assert_eq!(
        assert_accepted("log_format = Raw").log_format,
        LogFormat::Raw
    );
    assert_eq!(assert_accepted("flush = Data").flush, Flush::Data);
    assert_eq!(assert_accepted("flush = SYNC").flush, Flush::Sync);
    assert_eq!(assert_accepted("log_group = 0").log_group, 0);
    assert_eq!(assert_accepted("log_group = 12").log_group, 12);
    assert_eq!(
        assert_accepted("name_format = numeric").name_format,
        NameFormat::Numeric
    );
    assert_eq!(assert_accepted("name = web1").name.unwrap(), "web1");
    assert_eq!(
        read("space_left = 80%").0.space_left,
        SpaceLimit::Percent(80)
    );
    assert_eq!(
        assert_accepted("report_interval = 15m")
            .report_interval
            .as_secs(),
        900
    );
    assert_eq!(
        assert_accepted("report_interval = 40d")
            .report_interval
            .as_secs(),
        3_456_000
    );
    assert_eq!(
        assert_accepted("overflow_action = halt").overflow_action,
        OverflowAction::Halt
    );
    assert_eq!(assert_accepted("plugin_dir = /p").plugin_dir, "/p");
    assert_eq!(
        assert_accepted("tcp_client_ports = 1-1023").ignored,
        ["tcp_client_ports"]
    );
    assert_eq!(
        assert_accepted("dispatcher = /sbin/audispd").ignored,
        ["dispatcher"]
    );
}

#[test]
fn each_key_accepts_its_own_actions() {
    let exec = Action::Exec("/sbin/room".into());
    assert_eq!(
        assert_accepted("disk_full_action = exec /sbin/room").disk_full_action,
        exec
    );
    let settings = assert_accepted("max_log_file_action = EXEC /sbin/room");
    assert_eq!(
        settings.max_log_file_action,
        MaxLogFileAction::Exec("/sbin/room".into())
    );
    assert_eq!(
        assert_accepted("space_left_action = email").space_left_action,
        Action::Email
    );
    let settings = assert_accepted("admin_space_left_action = halt");
    assert_eq!(settings.admin_space_left_action, Action::Halt);
    assert_refused("space_left_action = halt", "bad-value", 21);
    assert_refused("disk_full_action = email", "bad-value", 20);
    assert_refused("disk_error_action = rotate", "bad-value", 21);
    assert_refused("max_log_file_action = single", "bad-value", 23);
    assert_refused("disk_full_action = exec", "incomplete-line", 20);
    assert_refused("disk_full_action = exec room", "bad-value", 25);
    assert_refused("disk_full_action = exec /sbin/nothing", "bad-program", 25);
    assert_refused("disk_full_action = suspend /sbin/room", "extra-word", 20);
    assert_refused("disk_full_action = exec /sbin/room x", "extra-word", 36);
}

#[test]
fn out_of_range_numbers_are_refused() {
    for line in [
        "num_logs = 1000",
        "num_logs = -1",
        "num_logs = 5x",
        "freq = 2147483648",
        "max_log_file = 99999999999999999999",
        "space_left = 100%",
        "space_left = 5%5",
        "q_depth = 0",
        "q_depth = 100000",
        "tcp_listen_queue = 0",
        "tcp_max_per_addr = 1025",
        "tcp_client_ports = 9-8",
        "tcp_client_ports = -8",
        "report_interval = 41d",
        "report_interval = 5x",
        "report_interval = m",
    ] {
        let column = line.find("= ").unwrap() + 3;
        assert_refused(line, "bad-number", u32::try_from(column).unwrap());
    }
}

#[test]
fn unsupported_settings_are_refused() {
    assert_refused("local_events = no", "not-supported", 16);
    assert_refused("tcp_listen_port = 60", "not-supported", 19);
    assert_refused("name_format = fqd", "not-supported", 15);
    assert_refused("log_levle = x", "unknown-key", 1);
    assert_refused("log_group = nobody-here", "unknown-group", 13);
    assert_refused("log_file = audit.log", "bad-value", 12);
    assert_refused("log_file = /a/x", "bad-value", 12);
    assert_refused("action_mail_acct = a;b", "bad-value", 20);
    assert_refused("action_mail_acct = a@b", "bad-value", 20);
    assert_refused("flush = NONE # comment", "extra-word", 14);
}

#[test]
fn mail_address_is_verified_unless_disabled_before() {
    let settings = assert_accepted("verify_email = no\naction_mail_acct = a;b");
    assert_eq!(settings.action_mail_acct, "a;b");
    let (_, findings) = read("action_mail_acct = a;b\nverify_email = no");
    assert_eq!(findings, [("bad-value", 3, 20)]);
}

#[test]
fn conflicting_settings_are_refused() {
    let conflict = |line: &str| read(line).1;
    assert_eq!(conflict("admin_space_left = 75")[0].0, "set-twice");
    let (_, findings) = parse(b"flush = NONE\n", &TestHost);
    assert_eq!(findings[0].code, "conflict");
    assert_eq!(
        assert_accepted("admin_space_left_action = ignore\n").space_left,
        SpaceLimit::Mebibytes(75)
    );
    assert_eq!(conflict("flush = INCREMENTAL"), [("conflict", 3, 1)]);
    assert_eq!(conflict("flush = SYNC\nfreq = 3"), [("conflict", 4, 1)]);
    assert_eq!(conflict("name_format = user"), [("conflict", 3, 1)]);
    let (_, findings) = read("log_group = adm\nlog_file = /var/log/audit.log");
    assert_eq!(findings, [("conflict", 4, 1)]);
}

#[test]
fn duplicate_keys_are_reported() {
    let (settings, findings) = read("num_logs = 3\nnum_logs = 4");
    assert_eq!(settings.num_logs, 4);
    assert_eq!(findings, [("set-twice", 4, 1)]);
}

/// Prints the locked keys and parses them again.
#[test]
fn locked_keys_round_trip() {
    let others = [
        Action::Ignore,
        Action::Syslog,
        Action::Rotate,
        Action::Exec("/sbin/room".into()),
        Action::Suspend,
        Action::Single,
        Action::Halt,
    ];
    let sizes = [
        MaxLogFileAction::Ignore,
        MaxLogFileAction::Syslog,
        MaxLogFileAction::Exec("/sbin/room".into()),
        MaxLogFileAction::Suspend,
        MaxLogFileAction::Rotate,
        MaxLogFileAction::KeepLogs,
    ];
    for ((number, action), size) in (0..).zip(&others).zip(sizes.iter().cycle()) {
        let of = |not: &[Action]| {
            if not.contains(action) {
                Action::Email
            } else {
                action.clone()
            }
        };
        let settings = Settings {
            write_logs: number % 2 == 0,
            num_logs: number,
            max_log_file: 8,
            max_log_file_action: size.clone(),
            space_left: SpaceLimit::Percent(20),
            space_left_action: of(&[Action::Halt]),
            admin_space_left: SpaceLimit::Mebibytes(50),
            admin_space_left_action: action.clone(),
            disk_full_action: action.clone(),
            disk_error_action: match action {
                Action::Rotate => Action::Ignore,
                action => action.clone(),
            },
            ..Settings::default()
        };
        let mut text = Vec::new();
        for (key, value) in settings.locked_keys() {
            text.extend([key.as_bytes(), b" = ", &value, b"\n"].concat());
        }
        let (read, findings) = parse(&text, &TestHost);
        assert_eq!(findings, []);
        assert_eq!(read, settings);
        assert_eq!(Settings::default().with_locked_keys_of(read), settings);
    }
}
