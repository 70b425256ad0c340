//! Users, groups and host names, as the name service switch of this host (NSS) knows them.
//!
//! A static program has no NSS: glibc would load the modules of the host, such as `libnss_systemd.so.2`, with the C
//! library of the host, and abort if that is another version (`_dl_call_libc_early_init`, glibc 2.36). Static builds
//! read `/etc/passwd`, `/etc/group` and `/etc/hosts` only.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::{fs, io};

use audit::record::interpret::AccountNames as _;
use bstr::ByteSlice as _;
use nix::unistd::{Gid, Group, Uid, User};

use crate::accounts::Accounts;

/// Whether the C library is part of the program.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");

const HOSTS: &str = "/etc/hosts";

/// Name of a user.
///
/// # Errors
/// The user database cannot be read.
pub fn user_name(uid: u32) -> io::Result<Option<String>> {
    if IS_STATIC {
        return Ok(Accounts::read()?.user(uid).map(str::to_owned));
    }
    Ok(User::from_uid(Uid::from_raw(uid))?.map(|user| user.name))
}

/// Name of a group.
///
/// # Errors
/// The group database cannot be read.
pub fn group_name(gid: u32) -> io::Result<Option<String>> {
    if IS_STATIC {
        return Ok(Accounts::read()?.group(gid).map(str::to_owned));
    }
    Ok(Group::from_gid(Gid::from_raw(gid))?.map(|group| group.name))
}

/// Number of a user.
///
/// # Errors
/// The user database cannot be read.
pub fn uid(name: &str) -> io::Result<Option<u32>> {
    if IS_STATIC {
        return Ok(Accounts::read()?.uids(name).min());
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Number of a group.
///
/// # Errors
/// The group database cannot be read.
pub fn gid(name: &str) -> io::Result<Option<u32>> {
    if IS_STATIC {
        return Ok(Accounts::read()?.gids(name).min());
    }
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// First address of a host, or `None` if it has none.
///
/// # Errors
/// The name cannot be resolved.
pub fn address(host: &str) -> io::Result<Option<IpAddr>> {
    if IS_STATIC {
        return Ok(host_address(&fs::read(HOSTS)?, host.as_bytes()));
    }
    let mut addresses = (host, 0).to_socket_addrs()?;
    Ok(addresses.next().map(|address| address.ip()))
}

/// First address of a name in the text of `/etc/hosts`; see hosts(5).
fn host_address(hosts: &[u8], name: &[u8]) -> Option<IpAddr> {
    hosts.lines().find_map(|line| {
        let entry = line.split(|&byte| byte == b'#').next()?;
        let mut words = entry.fields();
        let address = words.next()?.to_str().ok()?.parse().ok()?;
        let is_named = words.any(|word| word.eq_ignore_ascii_case(name));
        is_named.then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number() {
        assert_eq!(user_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(group_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(
            (uid("root").unwrap(), gid("root").unwrap()),
            (Some(0), Some(0))
        );
        assert_eq!(uid("no such user").unwrap(), None);
        assert_eq!(gid("no such group").unwrap(), None);
    }

    #[test]
    fn addresses_of_hosts_are_found_by_any_name() {
        let hosts = b"127.0.0.1 localhost\n# 10.0.0.1 web\nnonsense web\n\n\
                      10.0.0.2\tweb.example.org WEB # web2\n::1 web\n";
        let found = |name: &str| host_address(hosts, name.as_bytes()).map(|it| it.to_string());
        assert_eq!(found("localhost").as_deref(), Some("127.0.0.1"));
        assert_eq!(found("web").as_deref(), Some("10.0.0.2"));
        assert_eq!(found("web2"), None);
        assert_eq!(found("10.0.0.2"), None);
    }
}
