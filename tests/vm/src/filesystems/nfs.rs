//! A directory of this machine, mounted by NFS from this machine.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};

use super::shell;

/// What the server exports: an ext4 file system.
const EXPORTED: &str = "/tmp/fs/nfs.exported";
const MOUNTED: &str = "/tmp/fs/nfs";
const CONTROL: &str = "/proc/fs/nfsd";

const PREPARE: &str = "
ifconfig lo 127.0.0.1 up
mkdir -p /tmp/fs/nfs /tmp/fs/nfs.exported
truncate -s 32M /tmp/fs/nfs.disk
/usr/sbin/mke2fs -q -t ext4 /tmp/fs/nfs.disk
mount -t ext4 -o loop /tmp/fs/nfs.disk /tmp/fs/nfs.exported
mount -t nfsd nfsd /proc/fs/nfsd
";

/// Starts the server of version 4 without a daemon in user space, and mounts what it exports.
///
/// # Errors
/// If the kernel lacks one, or refuses something.
///
/// # Source
/// `ip_map_parse` in `net/sunrpc/svcauth_unix.c`, `svc_export_parse` and `expkey_parse` in `fs/nfsd/export.c`, Linux 6.12:
/// what user space may tell the kernel before it asks.
pub(super) fn mount_loopback() -> anyhow::Result<()> {
    /// The end of the validity of an answer, in seconds since 1970.
    const NEVER: i32 = i32::MAX;
    /// `NFSEXP_INSECURE_PORT`, `NFSEXP_ASYNC`, `NFSEXP_NOSUBTREECHECK` and `NFSEXP_FSID` of
    /// `include/uapi/linux/nfsd/export.h`.
    const FLAGS: u32 = 0x2 | 0x10 | 0x400 | 0x2000;
    if Path::new(MOUNTED).exists() {
        return Ok(());
    }
    shell(PREPARE)?;
    let say = |file: &str, text: String| {
        fs::write(file, text).with_context(|| format!("cannot write {file}"))
    };
    let control = |file: &str, text: &str| say(&format!("{CONTROL}/{file}"), format!("{text}\n"));
    let tell = |cache: &str, text: String| say(&format!("/proc/net/rpc/{cache}/channel"), text);
    control("versions", "-2 -3 +4 +4.1 +4.2")
        .or_else(|_| control("versions", "-3 +4 +4.1 +4.2"))?;
    // Seconds in which no file is opened; fewer are refused.
    control("nfsv4gracetime", "10")?;
    // Newer kernels do not listen by themselves: `nfsd_startup_net()` in `fs/nfsd/nfssvc.c`.
    control("threads", "2")
        .or_else(|_| control("portlist", "tcp 2049").and_then(|()| control("threads", "2")))?;
    tell(
        "auth.unix.ip",
        format!("nfsd 127.0.0.1 {NEVER} this-machine\n"),
    )?;
    tell(
        "nfsd.export",
        format!("this-machine {EXPORTED} {NEVER} {FLAGS} 65534 65534 0\n"),
    )?;
    // Number 0 is the root of what is exported.
    tell(
        "nfsd.fh",
        format!("this-machine 1 \\x00000000 {NEVER} {EXPORTED}\n"),
    )?;
    let options = "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys,soft";
    mount(
        Some("127.0.0.1:/"),
        MOUNTED,
        Some("nfs4"),
        MsFlags::empty(),
        Some(options),
    )
    .context("cannot mount by NFS")
}
