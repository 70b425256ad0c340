//! Tests of the configuration file.

use inputs::fuzz::fuzz;

use super::*;
use crate::config_file::describe;
use crate::kafka::Codec;
use crate::otlp::Compression;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    let accounts = Accounts::parse(b"root:x:0:0::/:\n", b"root:x:0:\n");
    Config::parse(text, &accounts).map_err(|mistakes| {
        let shown = mistakes.iter().map(|mistake| describe(text, mistake));
        shown.collect()
    })
}

#[track_caller]
fn mistakes(text: &str) -> Vec<String> {
    parse(text).unwrap_err()
}

#[test]
fn settings_have_defaults() {
    let config = parse("[json.out]\nto = \"stdout\"\n").unwrap();
    assert_eq!(config.log, Path::new(DEFAULT_LOG));
    assert_eq!(config.heartbeat, Duration::from_secs(60));
    let host = fs::read_to_string(HOST).unwrap();
    assert_eq!(config.host, host.trim_end());
    let [destination] = &config.destinations[..] else {
        panic!("{config:?}");
    };
    assert_eq!(destination.name, "out");
    assert_eq!(destination.filter, Expression::Everything);
    assert_eq!(destination.start, Start::End);
    assert_eq!(destination.resend, Duration::from_secs(10));
    assert_eq!(destination.kind, Kind::JsonOutput);
}

/// Each text has a mistake that is told by a text that begins so.
#[track_caller]
fn check_mistakes(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let found = mistakes(text);
        assert!(
            found.iter().any(|found| found.starts_with(expected)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn mistakes_have_line_column_and_advice() {
    check_mistakes(&[
        ("", "1:1: no destination; add one, for example a table"),
        ("hots = 1\n", "1:1: unknown field `hots`, expected"),
        (
            "host = \"a b\"\n[json.o]\nto = \"stdout\"\n",
            "1:8: `a b` is no host name; use letters",
        ),
        (
            "host = \"..\"\n[json.o]\nto = \"stdout\"\n",
            "1:8: `..` is no host name; ",
        ),
        (
            "heartbeat = 0\n[json.o]\nto = \"stdout\"\n",
            "1:13: `heartbeat` is out of range; write a number of seconds from 1 ",
        ),
        (
            "[json.o]\nto = \"stdout\"\nresend = -1\n",
            "3:10: `resend` is out of range; ",
        ),
        (
            "[json.o]\nto = \"stdout\"\nfilter = \"key=a and exee=b\"\n",
            "3:21: unknown field `exee`; did you mean `exe`?",
        ),
        (
            "[json.o]\nto = \"stdout\"\nfilter = \"uid=nobody7\"\n",
            "3:10: no user or group of this machine is called `nobody7`; ",
        ),
        (
            "[json.o]\nto = \"stdout\"\nstart = \"now\"\n",
            "3:9: unknown variant `now`, expected",
        ),
        (
            "[json.\"A/B\"]\nto = \"stdout\"\n",
            "1:7: `A/B` is no name of a destination; ",
        ),
        (
            "[json.o]\nto = \"unix:x\"\n",
            "2:6: `to` is neither the standard output nor a socket with an absolute path; ",
        ),
        ("[json.o]\n", "1:1: missing field `to`"),
        ("[json.o]\nto = \"stdout\n", "2:13: invalid basic string"),
        (
            "[syslog.s]\naddress = \"siem\"\n",
            "2:11: `siem` is no address of TCP; ",
        ),
        (
            "[syslog.s]\naddress = \"::1:6514\"\n",
            "2:11: `::1:6514` is no address of TCP; ",
        ),
        (
            "[syslog.s]\naddress = \"a:1\"\n[syslog.s.tls]\nca = \"ca.pem\"\n",
            "4:6: `ca.pem` is no absolute path; ",
        ),
        (
            "[syslog.s]\naddress = \"a:1\"\n[syslog.s.tls]\nca = \"/c\"\nkey = \"/k\"\n",
            "5:7: `certificate` and `key` belong together; ",
        ),
        (
            "[syslog.s]\naddress = \"a:1\"\n[syslog.s.tls]\nca = \"/c\"\nserver_name = \"a b\"\n",
            "5:15: `a b` is no host name; ",
        ),
        (
            "[auditd.a]\naddress = \"logs.example\"\n",
            "2:11: `logs.example` is no address of TCP; write `HOST:PORT`",
        ),
        (
            "[auditd.a]\naddress = \"a:60\"\ntimeout = 0\n",
            "3:11: `timeout` is out of range; write a number of seconds from 1 to 300",
        ),
        (
            "[auditd.a]\naddress = \"a:60\"\nformat = \"ascii\"\n",
            "3:1: unknown field `format`, expected",
        ),
        ("[auditd.a]\ntimeout = 1\n", "1:1: missing field `address`"),
        (
            "[parquet.p]\ndirectory = \"audit\"\n",
            "2:13: `audit` is no absolute path; ",
        ),
        (
            "[parquet.p]\ndirectory = \"/a\"\nrows = 0\n",
            "3:8: `rows` is out of range; write a number of events from 1 to 10000000",
        ),
        (
            "[parquet.p]\ndirectory = \"/a\"\nseconds = 90000\n",
            "3:11: `seconds` is out of range; write a number of seconds from 1 ",
        ),
        (
            "[json.s]\nto = \"stdout\"\n[syslog.s]\naddress = \"[::1]:514\"\n",
            "3:9: two destinations are called `s`; rename one",
        ),
        (
            "[json.a]\nto = \"stdout\"\n[json.b]\nto = \"stdout\"\n",
            "1:1: two destinations are the standard output; ",
        ),
    ]);
    let found = mistakes("heartbeat = 0\nhost = \" \"\n[json.O]\nto = \"x\"\nresend = -1\n");
    assert_eq!(found.len(), 5, "{found:?}");
}

#[test]
fn mistakes_in_tables_of_collectors_are_told() {
    check_mistakes(&[
        (
            "[otlp.o]\nurl = \"collector:4318\"\n",
            "2:7: `url` begins neither with `http://` nor with `https://`; write",
        ),
        (
            "[otlp.o]\nurl = \"http://collector:4318\"\n",
            "2:7: `url` has no path; ",
        ),
        (
            "[otlp.o]\nurl = \"https://collector/v1/logs\"\n",
            "2:7: `https` needs a table `tls`; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.tls]\nca = \"/c\"\n",
            "2:7: a table `tls` needs `https`; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\ntimeout = 301\n",
            "3:11: `timeout` is out of range; write a number of seconds from 1 to 300",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\nresend = 1\n",
            "3:1: unknown field `resend`, expected",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.headers]\nhost = \"a\"\n",
            "4:1: `host` is no header that can be set; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.headers]\nx = \"a\\r\\nb: c\"\n",
            "4:1: header `x` has no value of a header; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.headers]\nx = \"a\"\nX = \"a\"\n",
            "4:1: two headers are called `x`; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.headers]\nx = { file = \"token\" }\n",
            "4:1: `token` is no absolute path; ",
        ),
        (
            "[otlp.o]\nurl = \"http://collector/\"\n[otlp.o.headers]\nx = 1\n",
            "4:5: expected a string, or `{ file = \"/PATH\" }`; ",
        ),
    ]);
}

#[test]
fn collector_has_a_port_and_files_that_the_program_may_use() {
    let text = "[otlp.o]\nurl = \"https://collector/v1/logs?key=s3cret\"\n\
        headers = { a = \"s3cret\", b = { file = \"/etc/token\" } }\n[otlp.o.tls]\nca = \"/etc/ca.pem\"\n";
    let config = parse(text).unwrap();
    let kind = &config.destinations[0].kind;
    assert_eq!(kind.ports(), [443]);
    assert!(kind.has_host_name());
    assert_eq!(
        kind.files(),
        [Path::new("/etc/ca.pem"), Path::new("/etc/token")]
    );
    assert_eq!(kind.description(), "OTLP to https://collector/v1/logs");
    let Kind::Otlp(endpoint, compression) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(*compression, Compression::Gzip);
    assert_eq!(endpoint.timeout, Duration::from_secs(30));
    assert_eq!(endpoint.tls.as_ref().unwrap().server_name, "collector");
    assert!(!format!("{:?}", endpoint.headers).contains("s3cret"));
}

#[test]
fn mistakes_in_tables_of_topics_are_told() {
    check_mistakes(&[
        (
            "[kafka.k]\nbrokers = []\ntopic = \"audit\"\n",
            "2:11: `brokers` has 0 addresses; write one to 16 brokers",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:9092\", \"b\"]\ntopic = \"audit\"\n",
            "2:22: `b` is no address of TCP; ",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a b\"\n",
            "3:9: `a b` is no topic; use at most 249 letters",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"..\"\n",
            "3:9: `..` is no topic; ",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\ncompression = \"lz4\"\n",
            "4:15: unknown variant `lz4`, expected",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\nresend = 1\n",
            "4:1: unknown field `resend`, expected",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\n[kafka.k.tls]\nca = \"/c\"\nserver_name = \"x\"\n",
            "6:15: `server_name` cannot be set for several brokers; ",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\n[kafka.k.sasl]\nmechanism = \"PLAIN\"\nuser = \"u\"\npassword_file = \"/p\"\n",
            "5:13: `PLAIN` without TLS shows the password to the network; add a table `tls`",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\n[kafka.k.sasl]\nmechanism = \"SCRAM-SHA-256\"\nuser = \"\"\npassword_file = \"p\"\n",
            "6:8: `` is no user; ",
        ),
        (
            "[kafka.k]\nbrokers = [\"a:1\"]\ntopic = \"a\"\n[kafka.k.sasl]\nmechanism = \"SCRAM-SHA-256\"\nuser = \"u\"\npassword_file = \"p\"\n",
            "7:17: `p` is no absolute path; ",
        ),
    ]);
}

#[test]
fn mistakes_of_buckets_have_line_column_and_advice() {
    let s3 = |settings: &str| {
        format!(
            "[parquet.p]\ndirectory = \"/d\"\n[parquet.p.s3]\naccess_key = \"A\"\nsecret_file = \"/s\"\n{settings}"
        )
    };
    for (settings, expected) in [
        ("", "3:1: missing field `url`"),
        (
            "url = \"https://a\"\n",
            "6:7: `url` has no path; write `https://HOST/BUCKET`",
        ),
        (
            "url = \"https://a/b\"\n",
            "6:7: `https` needs a table `tls`; ",
        ),
        (
            "url = \"http://a/b?c\"\n",
            "6:7: the path in `url` has letters that need an escape, or a query; ",
        ),
        (
            "url = \"http://a/b%20c\"\n",
            "6:7: the path in `url` has letters that need an escape, or a query; ",
        ),
        (
            "url = \"http://a/b\"\nregion = \"eu/1\"\n",
            "7:10: `eu/1` is no access key or region; ",
        ),
        (
            "url = \"http://a/b\"\ntimeout = 301\n",
            "7:11: `timeout` is out of range; ",
        ),
    ] {
        check_mistakes(&[(&s3(settings), expected)]);
    }
    let wrong = s3("url = \"http://a/b\"\n").replace("\"/s\"", "\"s\"");
    check_mistakes(&[(&wrong, "5:15: `s` is no absolute path; ")]);
    let wrong = s3("url = \"http://a/b\"\n").replace("\"A\"", "{ file = \"A\" }");
    check_mistakes(&[(&wrong, "4:14: `A` is no absolute path; ")]);
}

#[test]
fn bucket_has_ports_and_files_that_the_program_may_use() {
    let text = "[parquet.p]\ndirectory = \"/d\"\n[parquet.p.s3]\nurl = \"https://s3.example/b/c\"\n\
        access_key = { file = \"/etc/id\" }\nsecret_file = \"/etc/secret\"\nsession_token_file = \"/etc/token\"\n\
        [parquet.p.s3.tls]\nca = \"/etc/ca.pem\"\n";
    let config = parse(text).unwrap();
    let kind = &config.destinations[0].kind;
    assert_eq!(kind.ports(), [443]);
    assert!(kind.has_host_name());
    let files = ["/etc/ca.pem", "/etc/secret", "/etc/token", "/etc/id"];
    assert_eq!(kind.files(), files.map(Path::new));
    assert_eq!(
        kind.description(),
        "Parquet files at https://s3.example/b/c"
    );
    let Kind::Parquet(settings) = kind else {
        panic!("{kind:?}");
    };
    let s3 = settings.s3.as_ref().unwrap();
    assert_eq!(s3.region, "us-east-1");
    assert_eq!(s3.endpoint.timeout, Duration::from_secs(300));
}

#[test]
fn topic_has_ports_and_files_that_the_program_may_use() {
    let text = "[kafka.k]\nbrokers = [\"192.0.2.1:9092\", \"[::1]:9094\"]\ntopic = \"audit\"\n\
        [kafka.k.tls]\nca = \"/etc/ca.pem\"\n\
        [kafka.k.sasl]\nmechanism = \"PLAIN\"\nuser = \"u\"\npassword_file = \"/etc/password\"\n";
    let config = parse(text).unwrap();
    let kind = &config.destinations[0].kind;
    assert_eq!(kind.ports(), [9092, 9094]);
    // Brokers may have names, whatever the file has.
    assert!(kind.has_host_name());
    assert_eq!(
        kind.files(),
        [Path::new("/etc/ca.pem"), Path::new("/etc/password")]
    );
    assert_eq!(
        kind.description(),
        "topic audit of Kafka at 192.0.2.1:9092, [::1]:9094"
    );
    let Kind::Kafka(settings) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(settings.codec, Codec::Zstd);
    assert_eq!(settings.timeout, Duration::from_secs(30));
}

/// Settings of a table, of the error about one that is unknown.
fn known(table: &str) -> Vec<String> {
    let unknown = match table {
        "" => "unknown = 1\n".to_owned(),
        table => format!("[{table}]\nunknown = 1\n"),
    };
    let found = mistakes(&unknown);
    let (_, expected) = found[0].split_once("expected ").unwrap();
    let names = expected.split('`').skip(1).step_by(2);
    let names = names.filter(|name| !name.contains("tollgate"));
    names.map(str::to_owned).collect()
}

/// Tables: their names as settings, in the file, and in the manual.
const TABLES: [(&str, &str, &str); 9] = [
    ("json", "json.x", "[json. Ns Ar NAME Ns ]"),
    ("syslog", "syslog.x", "[syslog. Ns Ar NAME Ns ]"),
    ("auditd", "auditd.x", "[auditd. Ns Ar NAME Ns ]"),
    ("otlp", "otlp.x", "[otlp. Ns Ar NAME Ns ]"),
    (
        "tls",
        "syslog.x.tls",
        "[syslog. Ns Ar NAME Ns .tls], [otlp. Ns Ar NAME Ns .tls], [kafka. Ns Ar NAME Ns .tls], [parquet. Ns Ar NAME Ns .s3.tls]",
    ),
    ("kafka", "kafka.x", "[kafka. Ns Ar NAME Ns ]"),
    ("sasl", "kafka.x.sasl", "[kafka. Ns Ar NAME Ns .sasl]"),
    ("parquet", "parquet.x", "[parquet. Ns Ar NAME Ns ]"),
    ("s3", "parquet.x.s3", "[parquet. Ns Ar NAME Ns .s3]"),
];

#[test]
fn manual_and_example_have_every_setting() {
    let page = include_str!("../../../../man/tollgate-ship.toml.5");
    let example = include_str!("../../../../examples/ship.toml");
    // Settings that are not the default are commented out with `#`, without a blank.
    let is_setting =
        |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
    let shown = example.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if is_setting(setting) => setting,
        _ => line,
    });
    let shown = shown.collect::<Vec<_>>().join("\n");
    for text in [example, &shown] {
        assert!(parse(text).is_ok(), "{:?}", parse(text));
    }
    let mut settings: Vec<String> = known("");
    for (name, table, heading) in TABLES {
        assert!(settings.contains(&name.to_owned()), "{settings:?}");
        assert!(page.contains(&format!("\n.Ss {heading}\n")), "{heading}");
        settings.extend(known(table));
    }
    for setting in settings {
        if TABLES.iter().any(|(name, ..)| *name == setting) {
            continue;
        }
        assert!(
            page.contains(&format!("\n.It Cm {setting} No = ")),
            "{setting}"
        );
        assert!(shown.contains(&format!("\n{setting} = ")), "{setting}");
    }
}

/// Mutated files give mistakes that lie in the text, or the settings that they say.
#[test]
fn fuzz_ship_configuration() {
    const WORDS: &[&str] = &[
        "[json.a]",
        "[syslog.b]",
        "[syslog.b.tls]",
        "[auditd.e]",
        "timeout =",
        "[otlp.c]",
        "[otlp.c.headers]",
        "url =",
        "\"https://a:1/\"",
        "[parquet.d]",
        "[parquet.d.s3]",
        "access_key =",
        "secret_file =",
        "region =",
        "directory =",
        "\"/x\"",
        "rows =",
        "seconds =",
        "to =",
        "\"stdout\"",
        "\"unix:/x\"",
        "address =",
        "\"a:1\"",
        "\"[::1]:65535\"",
        "filter =",
        "\"key=a and (\"",
        "'uid=nobody7'",
        "\"\\u00e9=1\"",
        "start =",
        "resend =",
        "-1",
        "99999999999999999999",
        "heartbeat =",
        "host =",
        "\"\u{e9}\"",
        "\"\"\"",
        "#",
        "\n",
        "{",
        "}",
        "=",
        ".",
    ];
    let example = include_str!("../../../../examples/ship.toml");
    let whole = example.replace("\n#", "\n");
    let corpus = [
        example,
        &whole,
        "[json.o]\nto = \"stdout\"\nfilter = \"exee=a\"\n",
    ];
    let corpus: Vec<Vec<u8>> = corpus.map(|text| text.as_bytes().to_vec()).into();
    fuzz("fuzz_ship_configuration", &corpus, WORDS, 2000, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match Config::parse(&text, &Accounts::default()) {
            Ok(config) => {
                assert!((1..=MAX_DESTINATIONS).contains(&config.destinations.len()));
                for destination in &config.destinations {
                    assert!(destination.name.len() <= MAX_NAME);
                    assert!(!destination.name.contains('/'), "{}", destination.name);
                }
            }
            Err(mistakes) => {
                assert!(!mistakes.is_empty());
                for mistake in &mistakes {
                    assert!(mistake.span.end <= text.len(), "{mistake:?}");
                    assert!(!mistake.advice.is_empty());
                    describe(&text, mistake);
                }
            }
        }
    });
}
