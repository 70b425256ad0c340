//! The address in a `SOCKADDR` record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A socket address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketAddress {
    pub(crate) family: u16,
    pub(crate) place: Place,
}

/// Where a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path, or a name of the abstract namespace. It may be empty.
    Local {
        is_abstract: bool,
        name: Vec<u8>,
    },
    Host {
        address: IpAddr,
        port: u16,
    },
    /// One of another family, or an address that is cut.
    Other,
}

impl SocketAddress {
    /// Parses the value of `saddr`; `None` if it has a digit that is none, or no family.
    ///
    /// # Source
    /// `struct sockaddr_in`, `sockaddr_in6` and `sockaddr_un`.
    pub(crate) fn parse(hex: &[u8]) -> Option<Self> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let pairs = hex.chunks_exact(2).map(|pair| {
            let [high, low] = pair else { return None };
            u8::try_from(digit(high)? * 16 + digit(low)?).ok()
        });
        let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
        let (family, rest) = bytes.split_first_chunk::<2>()?;
        // In the byte order of the machine; those with another one are not supported.
        let family = u16::from_le_bytes(*family);
        let place = place(family, rest).unwrap_or(Place::Other);
        Some(Self { family, place })
    }
}

/// What is behind the family.
fn place(family: u16, rest: &[u8]) -> Option<Place> {
    let host = |address, high, low| Place::Host {
        address,
        port: u16::from_be_bytes([high, low]),
    };
    Some(match (family, rest) {
        (1, path) => {
            let (is_abstract, path) = match path.strip_prefix(b"\0") {
                Some(path) => (true, path),
                None => (false, path),
            };
            let name = path.split(|&byte| byte == 0).next().unwrap_or_default();
            Place::Local {
                is_abstract,
                name: name.to_vec(),
            }
        }
        (2, &[high, low, a, b, c, d, ..]) => host(Ipv4Addr::new(a, b, c, d).into(), high, low),
        (10, &[high, low, _, _, _, _, ref address @ ..]) => host(
            Ipv6Addr::from(*address.first_chunk::<16>()?).into(),
            high,
            low,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let local = |is_abstract, name: &[u8]| Place::Local {
            is_abstract,
            name: name.to_vec(),
        };
        let host = |address: &str, port| Place::Host {
            address: address.parse().unwrap(),
            port,
        };
        for (hex, family, place) in [
            ("01002F72756E00FF", 1, local(false, b"/run")),
            ("0100006E616D65", 1, local(true, b"name")),
            ("0100", 1, local(false, b"")),
            ("020001BB0A0000010000000000000000", 2, host("10.0.0.1", 443)),
            ("020001bb0a000001", 2, host("10.0.0.1", 443)),
            (
                "0A00003500000000FE8000000000000000000000000000010000000",
                10,
                host("fe80::1", 53),
            ),
            ("0A000035000000000000", 10, Place::Other),
            ("0200", 2, Place::Other),
            ("1000000000000000", 16, Place::Other),
        ] {
            let expected = SocketAddress { family, place };
            assert_eq!(
                SocketAddress::parse(hex.as_bytes()),
                Some(expected),
                "{hex}"
            );
        }
        for hex in ["", "02", "02000+BB", "0x00"] {
            assert_eq!(SocketAddress::parse(hex.as_bytes()), None, "{hex}");
        }
    }
}
