//! Addresses and prefixes of peers.

use std::net::{IpAddr, Ipv6Addr};

/// The first bits of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix {
    /// Its other bits are 0.
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Parses `ADDRESS` or `ADDRESS/BITS`; `None` if it is neither, or has bits behind the prefix.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        if bits > most || is_mapped {
            return None;
        }
        let prefix = Self { address, bits };
        prefix.contains(address).then_some(prefix)
    }

    /// Whether it is a whole address.
    pub(super) fn is_address(self) -> bool {
        self.bits == if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Number of its bits.
    pub(super) const fn bits(self) -> u8 {
        self.bits
    }

    /// Whether an address, as of [`canonical`], has these first bits.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        let is_same_family = self.address.is_ipv4() == address.is_ipv4();
        // IPv4 addresses are the last 32 bits.
        let width = if address.is_ipv4() { 32 } else { 128 };
        let kept = u128::MAX.checked_shl(u32::from(width - self.bits.min(width)));
        let mask = kept.unwrap_or(0);
        is_same_family && bits_of(address) & mask == bits_of(self.address)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address of a peer: an IPv4 address that a socket of IPv6 tells is one of IPv4.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => Ipv6Addr::to_canonical(&v6),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The network of an address in which one host can have any address: 64 bits of IPv6.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_contain_addresses() {
        for (prefix, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "ffff::1", "1.2.3.4"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
            ("10.0.0.0/31", "10.0.0.1", "10.0.0.2"),
        ] {
            let prefix = Prefix::parse(prefix).unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{prefix:?}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{prefix:?}");
        }
        let mapped = canonical("::ffff:10.1.2.3".parse().unwrap());
        assert!(Prefix::parse("10.1.0.0/16").unwrap().contains(mapped));
    }

    #[test]
    fn other_texts_are_no_prefixes() {
        for text in [
            "",
            "web1",
            "10.1.2.3/16",
            "10.1.0.0/33",
            "10.1.0.0/",
            "10.1.0.0/+8",
            "10.1/16",
            "::/129",
            "::ffff:10.1.2.3",
        ] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }
}
