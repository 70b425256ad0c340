//! Inodes of watched paths, read in the kernel.
//!
//! On btrfs and overlayfs, `stat(2)` returns other device and inode numbers than hooks see. Each path is opened with
//! `O_PATH`, and the BPF program `inode_identity` reads the inode of the descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use audit::plan::Plan;
use libbpf_rs::ProgramInput;

use super::Engine;
use crate::abi::watch;
use crate::compile::watches::{InodeIdentity, Watches};
use crate::error::EngineError;
use crate::hooks::program::Program;

impl Engine<'_> {
    /// Sets the directory that watched paths start from, and the mount namespaces in which their names count.
    ///
    /// # Errors
    /// [`EngineError::Watch`].
    pub(super) fn learn_root(&self) -> Result<(), EngineError> {
        let root = Path::new("/");
        let found = self.inode_identity(root)?;
        found.ok_or_else(|| unknown(root, io::ErrorKind::NotFound.into()))?;
        self.globals.set_root();
        Ok(())
    }

    /// Adds the inodes of watched paths. A path that another user has made unreachable, with a FUSE mount for
    /// example, must not stop the engine: it is watched by name, and [`Engine::take_name_only_watches`] reports it.
    ///
    /// # Errors
    /// [`EngineError::Watch`] names the path.
    pub(super) fn learn_inodes(
        &self,
        watches: &mut Watches,
        plan: &Plan,
    ) -> Result<(), EngineError> {
        watches.add_inodes(&plan.watches, self.hash, |path| self.inode_identity(path))?;
        let left_out = watches.left_out.iter().filter_map(|&watch| {
            let path = plan.watches.get(usize::try_from(watch).ok()?)?;
            Some(format!(
                "{path}: more than {} watches lead to its object, or more than {} objects have several",
                watch::SET_WATCHES,
                watch::WATCH_SETS
            ))
        });
        self.name_only_watches.borrow_mut().extend(left_out);
        Ok(())
    }

    /// Returns the watched paths that exist or may exist and could not be opened, each with the reason, since the
    /// last call. Only their names match.
    #[must_use]
    pub fn take_name_only_watches(&self) -> Vec<String> {
        self.name_only_watches.take()
    }

    /// The inode of a path, or `None` if the path does not exist. A symbolic link in the last component is not
    /// followed: a watch on a link is on the link, as in the kernel.
    fn inode_identity(&self, path: &Path) -> Result<Option<InodeIdentity>, EngineError> {
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) if is_shortage(&error) => return Err(unknown(path, error)),
            Err(error) => {
                let reason = format!("{}: {error}", path.display());
                self.name_only_watches.borrow_mut().push(reason);
                return Ok(None);
            }
        };
        let mut descriptor = i64::from(file.as_raw_fd()).to_ne_bytes();
        let input = ProgramInput {
            context_in: Some(&mut descriptor),
            ..ProgramInput::default()
        };
        self.globals.clear_inode_identity();
        self.program(Program::InodeIdentity)?
            .test_run(input)
            .map_err(|error| unknown(path, io::Error::other(error)))?;
        let found = self.globals.inode_identity();
        if found.ino == 0 {
            let hidden = io::Error::other("the kernel does not show the inode of a descriptor");
            return Err(unknown(path, hidden));
        }
        Ok(Some(found))
    }
}

/// Whether an open failed because the path does not exist. Such a path is watched by name.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG)
    )
}

/// Whether an open failed for lack of a resource of this process or of the machine.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}

fn unknown(path: &Path, source: io::Error) -> EngineError {
    EngineError::Watch {
        path: path.to_owned(),
        source,
    }
}
