//! Socket addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::{self, find};
use super::unescape;
use crate::ctext::until_nul;

/// A socket address for people.
pub(super) fn interpret(value: &[u8]) -> Vec<u8> {
    let Some(bytes) = unescape(value) else {
        return [b"malformed-host(", value, b")"].concat();
    };
    // The digits that are no hex count too: the memory behind is zero.
    let length = value.len() / 2;
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let family = u16::from_ne_bytes([at(0), at(1)]);
    let Some(name) = find(names::ADDRESS_FAMILIES, i64::from(family)) else {
        return format!("unknown-family({family})").into_bytes();
    };
    let mut out = format!("{{ saddr_fam={name} ").into_bytes();
    let word = |start: usize| [at(start), at(start + 1), at(start + 2), at(start + 3)];
    let port = u16::from_be_bytes([at(2), at(3)]);
    let text = match name {
        "local" if length == 2 => "unnamed socket".to_owned(),
        "local" if length < 4 => TOO_SHORT.to_owned(),
        "local" => {
            let start = if at(2) == 0 { 3 } else { 2 };
            out.extend_from_slice(b"path=");
            out.extend_from_slice(string(&bytes, start, 108));
            String::new()
        }
        "inet" if length < 16 => TOO_SHORT.to_owned(),
        "inet" => {
            let [a, b, c, d] = word(4);
            format!("laddr={} lport={port}", Ipv4Addr::new(a, b, c, d))
        }
        "ax25" if length < 16 => TOO_SHORT.to_owned(),
        "ax25" => {
            out.extend_from_slice(b"call=");
            out.extend((2..9).map(at));
            String::new()
        }
        "atmpvc" if length < 8 => TOO_SHORT.to_owned(),
        "atmpvc" => format!("int={}", i16::from_ne_bytes([at(2), at(3)])),
        "x25" => {
            out.extend_from_slice(b"laddr=");
            out.extend_from_slice(string(&bytes, 2, 15));
            String::new()
        }
        "inet6" if length < 28 => "sockaddr6 len too short".to_owned(),
        "inet6" => format!("laddr={} lport={port}", inet6_host(&bytes)),
        "netlink" if length < 12 => "len too short".to_owned(),
        "netlink" => format!("nlnk-fam={family} nlnk-pid={}", u32::from_ne_bytes(word(4))),
        _ => "(unsupported)".to_owned(),
    };
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b" }");
    out
}

const TOO_SHORT: &str = "sockaddr len too short";

/// At most `limit` bytes of a string in an address.
fn string(bytes: &[u8], start: usize, limit: usize) -> &[u8] {
    let text = until_nul(bytes.get(start..).unwrap_or_default());
    text.get(..limit).unwrap_or(text)
}

/// The host in an IPv6 socket address, with its scope.
pub(crate) fn inet6_host(bytes: &[u8]) -> String {
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let mut octets = [0; 16];
    for (index, octet) in octets.iter_mut().enumerate() {
        *octet = at(8 + index);
    }
    let address = Ipv6Addr::from(octets);
    let scope = u32::from_ne_bytes([at(24), at(25), at(26), at(27)]);
    let [a, b, c, d, e, f, g, h] = address.segments();
    // The C library writes the low bytes of a compatible address as IPv4.
    let host = if [a, b, c, d, e, f] == [0; 6] && g != 0 {
        let [ga, gb] = g.to_be_bytes();
        let [ha, hb] = h.to_be_bytes();
        format!("::{}", Ipv4Addr::new(ga, gb, ha, hb))
    } else {
        address.to_string()
    };
    if scope == 0 {
        host
    } else {
        format!("{host}%{scope}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_by_family() {
        for (value, text) in [
            (
                "020000357F0000010000000000000000",
                "{ saddr_fam=inet laddr=127.0.0.1 lport=53 }",
            ),
            ("0200", "{ saddr_fam=inet sockaddr len too short }"),
            ("01002F72756E2F7800", "{ saddr_fam=local path=/run/x }"),
            ("01000061627300", "{ saddr_fam=local path=abs }"),
            ("0100", "{ saddr_fam=local unnamed socket }"),
            (
                "100000000700000001000000",
                "{ saddr_fam=netlink nlnk-fam=16 nlnk-pid=7 }",
            ),
            ("FFFF", "unknown-family(65535)"),
            ("x", "malformed-host(x)"),
        ] {
            assert_eq!(interpret(value.as_bytes()), text.as_bytes(), "{value}");
        }
    }
}
