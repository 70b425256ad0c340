//! What is in the initramfs of the machines.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::build::Profile;
use super::initramfs::Archive;
use super::kernel::{self, Image};
use super::rulesets;
use super::sigma;
use super::target::Target;
use crate::repository::Repository;
use crate::step::succeeds;

const BUSYBOX: &str = "/bin/busybox";
const BASH: &str = "/bin/bash";
const AUSEARCH: &str = "/usr/sbin/ausearch";
const AUREPORT: &str = "/usr/sbin/aureport";
const AULAST: &str = "/usr/bin/aulast";
const AUDITCTL: &str = "/usr/sbin/auditctl";
const BPFTOOL: &str = "/usr/sbin/bpftool";
const MKFS_BTRFS: &str = "/usr/sbin/mkfs.btrfs";
const MKFS_EXT4: &str = "/usr/sbin/mke2fs";
const MKFS_XFS: &str = "/usr/sbin/mkfs.xfs";
const BINDFS: &str = "/usr/bin/bindfs";
const BTRFS: &str = "/usr/bin/btrfs";
const CHECKPOLICY: &str = "checkpolicy";

/// The header that programs with auparse include.
const AUPARSE_HEADER: &str = "/usr/include/auparse.h";

/// C programs of the tests in `tests/differential`, and their linker options.
const C_PROGRAMS: [(&str, &[&str]); 5] = [
    ("auparse_dump", &["-lauparse"]),
    ("bpf_lines", &[]),
    (CONTEND, &[]),
    ("send_login", &[]),
    ("uring_ops", &[]),
];

const CONTEND: &str = "contend";

/// Required programs and files.
pub(super) const TOOLS: [&str; 20] = [
    Target::X86_64.emulator(),
    BUSYBOX,
    BASH,
    AUSEARCH,
    AUREPORT,
    AULAST,
    AUPARSE_HEADER,
    AUDITCTL,
    BPFTOOL,
    MKFS_BTRFS,
    MKFS_EXT4,
    MKFS_XFS,
    BINDFS,
    BTRFS,
    "apt-cache",
    "apt-get",
    CHECKPOLICY,
    "dpkg-deb",
    "gcc",
    "ldd",
];

/// The initramfs of all machines of an architecture, with the modules of their kernels. `tollgate` is a daemon in place of
/// the one that was built, on `x86_64`.
///
/// # Errors
/// If a file cannot be read or fetched, or a program cannot be compiled.
pub(super) fn pack<'a>(
    repository: &Repository,
    target: Target,
    profile: Profile,
    tollgate: Option<&Path>,
    images: impl Iterator<Item = &'a Image>,
) -> Result<Vec<u8>, Box<dyn Error>> {
    match target {
        Target::X86_64 => pack_x86_64(repository, profile, tollgate, images),
        Target::Arm64 => pack_arm64(repository, profile),
    }
}

fn pack_x86_64<'a>(
    repository: &Repository,
    profile: Profile,
    tollgate: Option<&Path>,
    images: impl Iterator<Item = &'a Image>,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let programs = Target::X86_64.programs(repository, profile.directory());
    let tollgate = tollgate.map_or_else(|| programs.join("tollgate"), Path::to_owned);
    let mut archive = Archive::default();
    for (from, to) in [
        (programs.join("vm"), "/init"),
        (tollgate, "/bin/tollgate"),
        (programs.join("tollgate-detect"), "/bin/tollgate-detect"),
        (PathBuf::from(BUSYBOX), BUSYBOX),
        (PathBuf::from(BASH), BASH),
        (PathBuf::from(AUSEARCH), AUSEARCH),
        (PathBuf::from(AUREPORT), AUREPORT),
        (PathBuf::from(AULAST), AULAST),
        (PathBuf::from(AUDITCTL), AUDITCTL),
        (PathBuf::from(BPFTOOL), BPFTOOL),
        (PathBuf::from(MKFS_BTRFS), MKFS_BTRFS),
        (PathBuf::from(MKFS_EXT4), MKFS_EXT4),
        (PathBuf::from(MKFS_XFS), MKFS_XFS),
        (PathBuf::from(BINDFS), BINDFS),
        (PathBuf::from(BTRFS), BTRFS),
    ] {
        archive.program(&from, to)?;
    }
    for (name, libraries) in C_PROGRAMS {
        c_program(repository, "gcc", name, libraries, &mut archive)?;
    }
    for image in images {
        archive.directory(&image.modules, &format!("/modules/{}", image.release))?;
    }
    sigma::pack(repository, &mut archive)?;
    accounts(&mut archive);
    let policy = repository.target().join("vm").join("selinux.policy");
    let mut command = repository.command(CHECKPOLICY);
    // Both kernels accept this policy version.
    command.args(["-c", "33", "-U", "allow", "-o"]).arg(&policy);
    if !succeeds(command.arg("tests/vm/selinux/policy.conf"))? {
        return Err("cannot compile the SELinux policy".into());
    }
    archive.file("/etc/selinux.policy", 0o644, &fs::read(policy)?);
    rulesets::pack(repository, &mut archive)?;
    Ok(archive.finish())
}

/// Compiles a program of `tests/differential` and adds it.
fn c_program(
    repository: &Repository,
    compiler: &str,
    name: &str,
    options: &[&str],
    archive: &mut Archive,
) -> Result<(), Box<dyn Error>> {
    let program = repository.target().join("vm").join(name);
    let mut command = repository.command(compiler);
    command
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(format!("tests/differential/{name}.c"));
    if !succeeds(command.args(options))? {
        return Err(format!("cannot compile `{name}`").into());
    }
    archive.program(&program, &format!("/bin/{name}"))
}

/// Adds users and groups.
fn accounts(archive: &mut Archive) {
    archive.file(
        "/etc/passwd",
        0o644,
        b"root:x:0:0::/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n",
    );
    archive.file("/etc/group", 0o644, b"root:x:0:\n");
}

/// All programs are static.
fn pack_arm64(repository: &Repository, profile: Profile) -> Result<Vec<u8>, Box<dyn Error>> {
    let programs = Target::Arm64.programs(repository, profile.directory());
    let busybox = kernel::program(
        "busybox-static",
        "usr/bin/busybox",
        Target::Arm64,
        &repository.target().join("vm"),
    )?;
    let mut archive = Archive::default();
    for (from, to) in [
        (programs.join("vm"), "/init"),
        (programs.join("tollgate"), "/bin/tollgate"),
        // Answers as the stock tool, which is not static.
        (programs.join("tollgate-ausearch"), AUSEARCH),
        (busybox, BUSYBOX),
    ] {
        archive.program(&from, to)?;
    }
    let compiler = "aarch64-linux-gnu-gcc";
    c_program(repository, compiler, CONTEND, &["-static"], &mut archive)?;
    let example = "examples/first-aarch64.rules";
    let rules = fs::read(repository.root.join(example))?;
    archive.file("/etc/first.rules", 0o644, &rules);
    accounts(&mut archive);
    Ok(archive.finish())
}
