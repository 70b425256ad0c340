//! Compares with `tests/golden/auditd/enriched.log`, which Debian's auditd 3.0.9 wrote from records of the
//! kernel and of programs (`crates/tollgate/tests/e2e/recorded.rs`).

use proptest::prelude::*;

use super::*;

/// Users and groups of the host that wrote the golden file.
struct GoldenHost;

impl AccountLookup for GoldenHost {
    fn user(&mut self, uid: u32) -> Option<&[u8]> {
        Some(match uid {
            1 => b"daemon",
            2 => b"bin",
            5 => b"games",
            33 => b"www-data",
            _ => return None,
        })
    }

    fn group(&mut self, gid: u32) -> Option<&[u8]> {
        Some(match gid {
            2 => b"bin",
            4 => b"adm",
            5 => b"tty",
            10 => b"uucp",
            33 => b"www-data",
            42 => b"shadow",
            _ => return None,
        })
    }
}

fn enriched(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    line(text, usize::MAX, &mut GoldenHost, &mut out);
    out
}

#[test]
fn enriched_lines_equal_those_of_auditd() {
    let golden = include_bytes!("../../../../../tests/golden/auditd/enriched.log");
    let mut enriched_lines = 0;
    for expected in golden.lines() {
        let raw = expected
            .split(|&byte| byte == SEPARATOR)
            .next()
            .unwrap_or_default();
        assert_eq!(enriched(raw).as_bstr(), expected.as_bstr());
        enriched_lines += usize::from(raw.len() != expected.len());
    }
    assert!(enriched_lines > 100, "{enriched_lines}");
}

#[test]
fn node_prefix_is_skipped() {
    let raw = b"node=web1 type=ADD_GROUP msg=audit(1.000:1): msg='id=4'";
    assert_eq!(
        enriched(raw).as_bstr(),
        [raw, &b"\x1dID=\"adm\""[..]].concat().as_bstr()
    );
}

#[test]
fn socketcall_and_ipc_calls_have_names() {
    let enrichment = |raw: &[u8]| {
        enriched(raw)
            .split_off(raw.len())
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        enrichment(b"type=SYSCALL msg=audit(1.000:1): arch=40000003 syscall=102 a0=3"),
        "\x1dARCH=i386 SYSCALL=socketcall(connect)"
    );
    assert_eq!(
        enrichment(b"type=SYSCALL msg=audit(1.000:1): arch=40000003 syscall=117 a0=18"),
        "\x1dARCH=i386 SYSCALL=ipc(shmctl)"
    );
    assert_eq!(
        enrichment(b"type=SYSCALL msg=audit(1.000:1): arch=c000003e syscall=99999"),
        "\x1dARCH=x86_64 SYSCALL=unknown-syscall(99999)"
    );
    assert_eq!(
        enrichment(b"type=SYSCALL msg=audit(1.000:1): arch=12345678"),
        "\x1dARCH=unknown-elf-type(12345678)"
    );
}

#[test]
fn socket_path_with_newline_is_hex() {
    let raw = b"type=SOCKADDR msg=audit(1.000:1): saddr=0100610A741D6200";
    assert!(enriched(raw).ends_with(b"\x1dSADDR={ saddr_fam=local path=610A741D62 }"));
}

#[test]
fn enrichment_ends_before_a_field_that_does_not_fit() {
    let raw = b"type=SYSCALL msg=audit(1.000:1): uid=33 arch=c000003e gid=4";
    let enrichment = |limit_bytes| {
        let mut out = Vec::new();
        line(raw, limit_bytes, &mut GoldenHost, &mut out);
        out.split_off(raw.len()).to_str().unwrap().to_owned()
    };
    let whole = "\x1dUID=\"www-data\" ARCH=x86_64 GID=\"adm\"";
    assert_eq!(enrichment(whole.len()), whole);
    assert_eq!(
        enrichment(whole.len() - 1),
        "\x1dUID=\"www-data\" ARCH=x86_64"
    );
    // A shorter field does not replace one before it.
    assert_eq!(enrichment(25), "\x1dUID=\"www-data\"");
    assert_eq!(enrichment(15), "\x1dUID=\"www-data\"");
    assert_eq!(enrichment(14), "");
    assert_eq!(enrichment(0), "");
}

proptest! {
    #[test]
    fn any_line_stays_one_line(raw in "[ -~]{0,60}( (uid|saddr|arch|syscall)=[0-9A-F(,:']{0,40}){0,3}") {
        let out = enriched(raw.as_bytes());
        prop_assert!(out.starts_with(raw.as_bytes()));
        let enrichment = &out[raw.len()..];
        prop_assert!(enrichment.is_empty() || enrichment[0] == SEPARATOR);
        prop_assert!(!enrichment.iter().skip(1).any(u8::is_ascii_control));
    }
}
