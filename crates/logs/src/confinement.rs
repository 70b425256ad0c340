//! Landlock: what a program that follows a log may do after it has opened what it needs.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, NetPort, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

/// Newest ABI whose rights are handled; rights of later ones are not restricted.
const LANDLOCK_ABI: ABI = ABI::V7;

/// What a program may use.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Directories that it may read, with what is in them.
    pub read: Vec<PathBuf>,
    /// Directories in which it may also write and replace files.
    pub write: Vec<PathBuf>,
    /// Directories in which it may also make directories.
    pub make: Vec<PathBuf>,
    /// TCP ports to which it may connect.
    pub connect: Vec<u16>,
}

/// Error of a confinement. A kernel without Landlock is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinementError {
    /// The rules cannot be made.
    #[error("cannot restrict this program with Landlock")]
    Ruleset(#[from] RulesetError),
    /// A directory cannot be opened.
    #[error("cannot open directory `{}`", .0.display())]
    Directory(PathBuf, #[source] PathFdError),
}

/// The directory in which a file is replaced, and that of the file to which it leads if it is a link.
#[must_use]
pub fn directories_of(file: &Path) -> Vec<PathBuf> {
    let target = file.canonicalize().ok();
    let mut directories = vec![directory_of(file)];
    directories.extend(target.map(|target| directory_of(&target)));
    directories
}

/// The directory in which a file is replaced.
#[must_use]
pub fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Lets this thread and those that it starts use what is allowed, and nothing else: no other file, no other TCP, no
/// signals to other processes. Returns what the kernel enforces.
///
/// # Errors
/// The rules cannot be made, or a directory cannot be opened. A kernel without Landlock is no error.
pub fn confine(allowed: &Allowed) -> Result<String, ConfinementError> {
    let read = AccessFs::from_read(LANDLOCK_ABI) & !AccessFs::Execute;
    let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
        .scope(Scope::from_all(LANDLOCK_ABI))?
        .create()?;
    let readable = allowed.read.iter().map(|path| (path, read));
    let writable = allowed.write.iter().map(|path| (path, read | write));
    let makeable = allowed.make.iter();
    let makeable = makeable.map(|path| (path, read | write | AccessFs::MakeDir));
    for (path, access) in readable.chain(writable).chain(makeable) {
        let directory =
            PathFd::new(path).map_err(|error| ConfinementError::Directory(path.clone(), error))?;
        ruleset = ruleset.add_rule(PathBeneath::new(directory, access))?;
    }
    for port in &allowed.connect {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    let status = ruleset.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "Landlock: fully enforced".to_owned(),
        RulesetStatus::PartiallyEnforced => {
            "Landlock: partially enforced by this kernel".to_owned()
        }
        RulesetStatus::NotEnforced => "Landlock: not available in this kernel".to_owned(),
    })
}
