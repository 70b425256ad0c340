//! The address at which metrics are served: a Unix socket, or a port on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// The address of the metrics server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum MetricsAddress {
    /// A Unix socket that only root can open.
    Unix(PathBuf),
    /// A loopback address, unreachable from other machines.
    Loopback(SocketAddr),
}

impl TryFrom<String> for MetricsAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(address) => Err(format!(
                "other machines can reach `{address}`: use a loopback address"
            )),
            Err(_) => Err(format!(
                "`{text}` is neither an absolute path nor an address with a port, such as 127.0.0.1:9465"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_and_paths_are_accepted() {
        let address = |text: &str| MetricsAddress::try_from(text.to_owned());
        assert_eq!(address("/run/x"), Ok(MetricsAddress::Unix("/run/x".into())));
        for text in ["127.0.0.1:9465", "[::1]:9465"] {
            assert_eq!(
                address(text),
                Ok(MetricsAddress::Loopback(text.parse().unwrap()))
            );
        }
        for (text, word) in [
            ("0.0.0.0:9465", "other machines"),
            ("10.0.0.1:1", "other machines"),
            ("localhost:9465", "neither"),
            ("x", "neither"),
        ] {
            assert!(address(text).unwrap_err().contains(word), "{text}");
        }
    }
}
