//! Formats socket addresses as `auditd` does.

use core::fmt::{self, Write as _};
use core::net::{Ipv4Addr, Ipv6Addr};

use bstr::ByteSlice as _;
use smallvec::SmallVec;

/// Adapter to format into a byte buffer.
struct FmtBytes<'a>(&'a mut Vec<u8>);

impl fmt::Write for FmtBytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends the text of an address given in hex.
///
/// # Source
/// `print_sockaddr` in `auparse/interpret.c` and `auparse/famtab.h`, audit-userspace 3.0.9.
pub(super) fn interpret(value: &[u8], out: &mut Vec<u8>) {
    let Some(bytes) = decode_hex(value) else {
        out.extend_from_slice(b"malformed-host(");
        out.extend_from_slice(value);
        out.push(b')');
        return;
    };
    let number = u16::from_ne_bytes([at(&bytes, 0), at(&bytes, 1)]);
    let Some((_, family)) = FAMILIES.iter().find(|(known, _)| *known == number) else {
        // Writing to a buffer cannot fail.
        let _ok = write!(FmtBytes(out), "unknown-family({number})");
        return;
    };
    let _ok = write!(FmtBytes(out), "{{ saddr_fam={family} ");
    match *family {
        "local" => local(&bytes, out),
        "inet" => inet(&bytes, out),
        "inet6" => inet6(&bytes, out),
        "netlink" => netlink(&bytes, out),
        _ => out.extend_from_slice(b"(unsupported)"),
    }
    out.extend_from_slice(b" }");
}

fn local(bytes: &[u8], out: &mut Vec<u8>) {
    /// Length of `sun_path`.
    const PATH_BYTES: usize = 108;
    if bytes.len() < 4 {
        return out.extend_from_slice(b"sockaddr len too short");
    }
    let path = bytes.get(2..).unwrap_or_default();
    // The name of an abstract socket begins with a NUL.
    let path = path.strip_prefix(b"\0").unwrap_or(path);
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    let path = path.get(..PATH_BYTES).unwrap_or(path);
    out.extend_from_slice(b"path=");
    if path.iter().any(u8::is_ascii_control) {
        super::quote::hex(path, out);
    } else {
        out.extend_from_slice(path);
    }
}

fn inet(bytes: &[u8], out: &mut Vec<u8>) {
    let Some([_, _, high, low, a, b, c, d]) = bytes.first_chunk().filter(|_| bytes.len() >= 16)
    else {
        return out.extend_from_slice(b"sockaddr len too short");
    };
    let port = u16::from_be_bytes([*high, *low]);
    let address = Ipv4Addr::new(*a, *b, *c, *d);
    let _ok = write!(FmtBytes(out), "laddr={address} lport={port}");
}

fn inet6(bytes: &[u8], out: &mut Vec<u8>) {
    let Some(whole) = bytes.first_chunk::<28>() else {
        return out.extend_from_slice(b"sockaddr6 len too short");
    };
    let port = u16::from_be_bytes([whole[2], whole[3]]);
    let mut address = [0; 16];
    address.copy_from_slice(&whole[8..24]);
    let scope = u32::from_ne_bytes([whole[24], whole[25], whole[26], whole[27]]);
    let words = Ipv6Addr::from(address).segments();
    out.extend_from_slice(b"laddr=");
    let _ok = if words[..6] == [0; 6] && words[6] != 0 {
        let [.., a, b, c, d] = address;
        write!(FmtBytes(out), "::{}", Ipv4Addr::new(a, b, c, d))
    } else {
        write!(FmtBytes(out), "{}", Ipv6Addr::from(address))
    };
    if scope != 0 {
        let _ok = write!(FmtBytes(out), "%{scope}");
    }
    let _ok = write!(FmtBytes(out), " lport={port}");
}

fn netlink(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() < 12 {
        return out.extend_from_slice(b"len too short");
    }
    let family = u16::from_ne_bytes([at(bytes, 0), at(bytes, 1)]);
    let port = u32::from_ne_bytes([at(bytes, 4), at(bytes, 5), at(bytes, 6), at(bytes, 7)]);
    let _ok = write!(FmtBytes(out), "nlnk-fam={family} nlnk-pid={port}");
}

fn at(bytes: &[u8], index: usize) -> u8 {
    bytes.get(index).copied().unwrap_or_default()
}

/// Decodes hex; `None` if malformed. The stack buffer holds the kernel's longest address.
fn decode_hex(value: &[u8]) -> Option<SmallVec<[u8; 128]>> {
    let digits = value.to_str().ok()?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}

/// Names of address families.
///
/// # Source
/// `include/linux/socket.h`, Linux 6.12; names of `auparse/famtab.h`.
const FAMILIES: &[(u16, &str)] = &[
    (1, "local"),
    (2, "inet"),
    (3, "ax25"),
    (4, "ipx"),
    (5, "appletalk"),
    (6, "netrom"),
    (7, "bridge"),
    (8, "atmpvc"),
    (9, "x25"),
    (10, "inet6"),
    (11, "rose"),
    (12, "decnet"),
    (13, "netbeui"),
    (14, "security"),
    (15, "key"),
    (16, "netlink"),
    (17, "packet"),
    (18, "ash"),
    (19, "econet"),
    (20, "atmsvc"),
    (21, "rds"),
    (22, "sna"),
    (23, "irda"),
    (24, "pppox"),
    (25, "wanpipe"),
    (26, "llc"),
    (29, "can"),
    (30, "tipc"),
    (31, "bluetooth"),
    (32, "iucv"),
    (33, "rxrpc"),
    (34, "isdn"),
    (35, "phonet"),
    (36, "ieee802154"),
    (37, "caif"),
    (38, "alg"),
    (39, "nfc"),
    (40, "vsock"),
    (41, "kcm"),
    (42, "qipcrtr"),
    (43, "smc"),
    (44, "xdp"),
];
