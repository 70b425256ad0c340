//! The directory of a test, and an unused user id.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::workload::Workload;

/// The directory of a test; removed on drop.
#[derive(Debug)]
pub(crate) struct TestDir {
    _root: TempDir,
    /// The uid and gid of its workloads.
    pub(crate) id: u32,
    /// Directory owned by the workload's id.
    pub(crate) work: PathBuf,
    /// Directory that only root can enter, for logs and rules.
    pub(crate) own: PathBuf,
}

impl TestDir {
    /// Creates the directories.
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("tollgate-e2e.")
            .tempdir_in("/tmp")
            .unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let id = 100_000 + std::process::id();
        let (work, own) = (root.path().join("work"), root.path().join("own"));
        for (path, id, mode) in [(&work, id, 0o755), (&own, 0, 0o700)] {
            fs::create_dir(path).unwrap();
            chown(path, Some(id), Some(id)).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        Self {
            _root: root,
            id,
            work,
            own,
        }
    }

    /// A workload with this id in [`Self::work`].
    pub(crate) fn workload(&self) -> Workload {
        Workload::new(self.id, &self.work)
    }

    /// Creates a file owned by the workload's id.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.join(name);
        fs::write(&path, text).unwrap();
        chown(&path, Some(self.id), Some(self.id)).unwrap();
        path
    }

    /// Copies a program, owned by the workload's id.
    pub(crate) fn program(&self, name: &str, from: &str) -> PathBuf {
        let path = self.work.join(name);
        fs::copy(from, &path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(self.id), Some(self.id)).unwrap();
        path
    }

    /// Compiles C to a program or library with these options.
    #[track_caller]
    pub(crate) fn compiled(&self, name: &str, text: &str, options: &[&str]) -> PathBuf {
        let (source, path) = (self.own.join(format!("{name}.c")), self.own.join(name));
        fs::write(&source, text).unwrap();
        let mut command = Command::new("gcc");
        command.args(["-Wall", "-Wextra", "-Werror", "-o"]);
        let built = command.args([&path, &source]).args(options).status();
        assert!(built.unwrap().success(), "{name}.c");
        path
    }

    /// Creates a directory owned by the workload's id.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.work.join(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(self.id), Some(self.id)).unwrap();
        path
    }
}
