//! Tests of the configuration file.

use inputs::fuzz::fuzz;

use super::super::peers::{NameError, Writes};
use super::*;
use crate::config_file::describe;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text).map_err(|mistakes| {
        let shown = mistakes.iter().map(|mistake| describe(text, mistake));
        shown.collect()
    })
}

const TLS: &str = "[tls]\ncertificate = \"/a\"\nkey = \"/b\"\nca = \"/c\"\n";

#[test]
fn certificates_name_hosts() {
    let config = parse(&format!(
        "listen = []\n{TLS}[hosts]\nweb1 = [\"10.1.0.7\", \"Web1.example\"]\ndb1 = [\"db1.example\"]\n\
         [networks.all]\nprefixes = [\"10.0.0.0/8\"]\nhost = \"certificate\"\n\
         [networks.lab]\nprefixes = [\"10.2.0.0/16\"]\nhost = \"address\"\n"
    ))
    .unwrap();
    assert!(config.listen.is_empty());
    let tls = config.tls.unwrap();
    assert_eq!(tls.listen, ["0.0.0.0:6514".parse().unwrap()]);
    assert_eq!(tls.files().count(), 3);
    let find = |address: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        config
            .peers
            .find_certificate(address.parse().unwrap(), &names)
    };
    let host = |name: &str| Ok(Writes::Host(name.to_owned()));
    // Whatever the address, and the first name that is listed.
    assert_eq!(find("10.1.0.7", &["db1.example"]), host("db1"));
    assert_eq!(
        find("192.0.2.1", &["x", "web1.example", "db1.example"]),
        host("web1")
    );
    let member = |name: &str| Ok(Writes::Member(0, name.to_owned()));
    assert_eq!(
        find("::ffff:10.1.0.7", &["web2.example"]),
        member("web2.example")
    );
    // In no network, in one that names hosts otherwise, and a name that is no host or is listed.
    let unknown = |name: &str| Err(NameError::Unknown(name.to_owned()));
    assert_eq!(
        find("192.0.2.1", &["web2.example"]),
        unknown("web2.example")
    );
    assert_eq!(find("10.2.0.1", &["web2", "a"]), unknown("web2`, `a"));
    for name in ["*.example", "web1"] {
        assert_eq!(
            find("10.1.0.7", &[name]),
            Err(NameError::Host(name.to_owned()))
        );
    }
    assert_eq!(find("10.1.0.7", &[]), Err(NameError::None));
    // Without a certificate, the address of a host counts, and the network has none.
    let address = |text: &str| config.peers.find(text.parse().unwrap());
    assert_eq!(address("10.1.0.7"), Some(Writes::Host("web1".to_owned())));
    assert_eq!(address("10.1.0.8"), None);
    assert_eq!(config.peers.network_of("web2.example"), Some(0));
}

#[test]
fn settings_have_defaults() {
    let config = parse("[hosts]\nweb1 = [\"192.0.2.17\"]\n").unwrap();
    assert_eq!(config.listen, ["0.0.0.0:60".parse().unwrap()]);
    assert_eq!(config.tls, None);
    assert_eq!(config.directory, Path::new(DIRECTORY));
    let limits = config.limits;
    assert_eq!(
        (limits.connections, limits.connections_per_address),
        (1024, 4)
    );
    assert_eq!(
        (limits.idle, limits.privileged_ports),
        (Duration::from_secs(3600), false)
    );
    let logs = config.logs;
    assert_eq!((logs.file_bytes, logs.files), (8 << 20, 5));
    assert_eq!(logs.reserve_bytes, 256 << 20);
}

#[test]
fn the_longest_prefix_names_the_host() {
    let config = parse(
        "[hosts]\nweb1 = [\"10.1.0.7\", \"2001:db8::7\"]\n\
         [networks.all]\nprefixes = [\"10.0.0.0/8\"]\nhost = \"address\"\n\
         [networks.lab]\nprefixes = [\"10.1.0.0/16\", \"2001:db8::/32\"]\nhost = \"node\"\n",
    )
    .unwrap();
    let find = |address: &str| config.peers.find(address.parse().unwrap());
    let web1 = Some(Writes::Host("web1".to_owned()));
    assert_eq!(find("10.1.0.7"), web1);
    assert_eq!(find("::ffff:10.1.0.7"), web1);
    assert_eq!(find("2001:db8::7"), web1);
    assert_eq!(find("10.1.0.8"), Some(Writes::Node(1)));
    assert_eq!(find("2001:db8::8"), Some(Writes::Node(1)));
    assert_eq!(
        find("10.2.0.8"),
        Some(Writes::Member(0, "10.2.0.8".to_owned()))
    );
    assert_eq!(find("11.0.0.1"), None);
    // Directories that an earlier run has left.
    assert_eq!(config.peers.network_of("10.2.0.8"), Some(0));
    assert_eq!(config.peers.network_of("db1"), Some(1));
    assert_eq!(config.peers.network_of("11.0.0.1"), None);
}

#[test]
fn mistakes_have_line_column_and_advice() {
    let host = "[hosts]\na = [\"10.0.0.1\"]\n";
    for (text, expected) in [
        ("", "1:1: no peers; add a table `[hosts]`"),
        ("lisen = 1\n", "1:1: unknown field `lisen`, expected"),
        (
            &format!("listen = []\n{host}"),
            "1:10: `listen` has 0 addresses; write 1 to 16",
        ),
        (
            &format!("listen = [\"h:60\"]\n{host}"),
            "1:11: `h:60` is no address to listen at; ",
        ),
        (
            &format!("directory = \"logs\"\n{host}"),
            "1:13: `logs` is no absolute path; ",
        ),
        (
            &format!("idle = 9\n{host}"),
            "1:8: `idle` is out of range; write a number of seconds from 10 ",
        ),
        (
            &format!("num_logs = 1\n{host}"),
            "1:12: `num_logs` is out of range; write a number of files from 2 ",
        ),
        (
            &format!("connections = 0\n{host}"),
            "1:15: `connections` is out of range; ",
        ),
        (
            &format!("max_log_file = -1\n{host}"),
            "1:16: `max_log_file` is out of range; ",
        ),
        (
            "[hosts]\n\"../a\" = [\"10.0.0.1\"]\n",
            "2:1: `../a` is no host name; ",
        ),
        (
            "[hosts]\n\"..\" = [\"10.0.0.1\"]\n",
            "2:1: `..` is no host name; ",
        ),
        (
            "[hosts]\n\"10.0.0.2\" = [\"10.0.0.1\"]\n",
            "2:1: host `10.0.0.2` has the name of an address; ",
        ),
        (
            "[hosts]\na = []\n",
            "2:1: host `a` has no address or name; ",
        ),
        (
            "[hosts]\na = [\"b\"]\n",
            "2:6: `b` is the name of a certificate, and peers have none; write an address, or",
        ),
        (
            "[hosts]\na = [\"10.0.0.300\"]\n",
            "2:6: `10.0.0.300` is no address or prefix; ",
        ),
        (
            &format!("{TLS}[hosts]\na = [\"a.b\"]\nb = [\"A.B\"]\n"),
            "7:6: `A.B` is written twice; ",
        ),
        (
            &format!("{TLS}[hosts]\na = [\"*.b\"]\n"),
            "6:6: `*.b` is no address or prefix; ",
        ),
        (
            "[tls]\ncertificate = \"a\"\nkey = \"/b\"\nlisten = []\n[hosts]\na = [\"10.0.0.1\"]\n",
            "2:15: `a` is no absolute path; ",
        ),
        (
            "[tls]\ncertificate = \"/a\"\nkey = \"/b\"\nlisten = []\n[hosts]\na = [\"10.0.0.1\"]\n",
            "4:10: `listen` has 0 addresses; write 1 to 16",
        ),
        ("[tls]\ncertificate = \"/a\"\n", "1:1: missing field `key`"),
        (
            "[networks.a]\nprefixes = []\nhost = \"certificate\"\n",
            "1:11: hosts are named by certificates, and peers have none; ",
        ),
        (
            "[hosts]\na = [\"10.0.0.0/8\"]\n",
            "2:6: `10.0.0.0/8` is a prefix; ",
        ),
        (
            &format!("{host}b = [\"10.0.0.1\"]\n"),
            "3:6: `10.0.0.1` is written twice; ",
        ),
        ("[networks.a]\nprefixes = []\n", "1:1: missing field `host`"),
        (
            "[networks.a]\nprefixes = []\nhost = \"name\"\n",
            "3:8: unknown variant `name`, expected",
        ),
        (
            "[networks.a]\nprefixes = []\nhost = \"node\"\n[networks.b]\nprefixes = []\nhost = \"node\"\n",
            "4:11: a second network names its hosts by `node=` or certificates: each could",
        ),
        (
            "[networks.a]\nprefixes = [\"10.0.0.0/8\"]\nhost = \"node\"\nmax_hosts = 0\n",
            "4:13: `max_hosts` is out of range; ",
        ),
        (
            &format!(
                "{host}[networks.a]\nprefixes = [\"::/0\"]\nhost = \"node\"\nmax_hosts = 4096\n"
            ),
            "1:1: up to 4097 hosts, with `max_hosts` of each network; stay below 4096",
        ),
    ] {
        let found = parse(text).unwrap_err();
        let is_told = found.iter().any(|found| found.starts_with(expected));
        assert!(is_told, "{text}: {found:?}");
    }
}

#[test]
fn example_has_each_setting() {
    let example = include_str!("../../../../../examples/collect.toml");
    parse(example).unwrap();
    // Comments have a blank behind the sign.
    let whole = example.replace("\n# ", "\n## ").replace("\n#", "\n");
    parse(&whole).unwrap();
    for setting in [
        "listen",
        "directory",
        "connections",
        "connections_per_address",
        "idle",
        "privileged_ports",
        "max_log_file",
        "num_logs",
        "space_left",
        "prefixes",
        "host",
        "max_hosts",
        "certificate",
        "key",
        "ca",
    ] {
        assert!(whole.contains(&format!("{setting} = ")), "{setting}");
    }
}

/// Names of hosts are names of directories.
#[test]
fn fuzz_collect_configuration() {
    const WORDS: &[&str] = &[
        "[hosts]",
        "[networks.a]",
        "prefixes =",
        "host =",
        "\"node\"",
        "\"address\"",
        "\"certificate\"",
        "[tls]",
        "key =",
        "ca =",
        "max_hosts =",
        "listen =",
        "[\"10.0.0.1\"]",
        "[\"::/0\"]",
        "\"/x\"",
        "-1",
        "99999999999999999999",
        "..",
        "/",
        "\n",
        "#",
    ];
    let corpus = vec![
        include_bytes!("../../../../../examples/collect.toml").to_vec(),
        b"[hosts]\na = [\"10.0.0.1\"]\n".to_vec(),
    ];
    fuzz(
        "fuzz_collect_configuration",
        &corpus,
        WORDS,
        2000,
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            match Config::parse(&text) {
                Ok(config) => {
                    for name in config.peers.hosts() {
                        assert!(!name.contains('/') && name != "." && name != "..", "{name}");
                        assert!(name.parse::<IpAddr>().is_err());
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
        },
    );
}
