//! The working tree: where it is, which files it holds, and how tools are started in it.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The working tree that this chore is about.
#[derive(Debug)]
pub(crate) struct Repository {
    /// The directory of the workspace's manifest.
    pub(crate) root: PathBuf,
}

/// A file of the repository, with its path from the root written with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Repository {
    /// The tree whose xtask cargo has started.
    ///
    /// Asked at run time: worktrees may share a target directory, and so this binary.
    ///
    /// # Errors
    /// When cargo has not started this program.
    pub(crate) fn find() -> Result<Self, Box<dyn Error>> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or("start me with `cargo xtask`")?;
        let root = Path::new(&manifest)
            .parent()
            .ok_or("xtask is not below a repository")?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.root.join("target"), |dir| self.root.join(dir))
    }

    /// A command to be run at the root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The cargo that has started this program, or the one in `PATH`.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments);
        command
    }

    /// Every file that is text, sorted by path; build output and git's own files left out.
    ///
    /// # Errors
    /// When a directory or file cannot be read.
    pub(crate) fn files(&self) -> io::Result<Vec<File>> {
        let mut files = Vec::new();
        let mut pending = vec![String::new()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(self.root.join(&directory))? {
                let entry = entry?;
                // A name that is not UTF-8 is no source of ours.
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let path = if directory.is_empty() {
                    name
                } else {
                    format!("{directory}/{name}")
                };
                let kind = entry.file_type()?;
                if kind.is_dir() && path != "target" && path != ".git" {
                    pending.push(path);
                } else if kind.is_file()
                    && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
                {
                    files.push(File { path, text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The C of the BPF programs, as arguments for clang-format.
    ///
    /// # Errors
    /// When a directory or file cannot be read.
    pub(crate) fn bpf_sources(&self) -> io::Result<Vec<String>> {
        let paths = self.files()?.into_iter().map(|file| file.path);
        Ok(paths.filter(|path| is_bpf_source(path)).collect())
    }
}

/// Whether the file is C of the kernel side.
pub(crate) fn is_bpf_source(path: &str) -> bool {
    path.starts_with("crates/engine/bpf/")
        && Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpf_sources_are_c_and_headers_of_the_engine() {
        assert!(is_bpf_source("crates/engine/bpf/exec.bpf.c"));
        assert!(is_bpf_source("crates/engine/bpf/kernel/task.h"));
        assert!(!is_bpf_source("crates/engine/bpf/README.md"));
        assert!(!is_bpf_source("tests/differential/load.c"));
    }

    #[test]
    fn files_hold_this_one_and_nothing_built() {
        let repository = Repository::find().unwrap();
        let files = repository.files().unwrap();
        assert!(
            files
                .iter()
                .any(|file| file.path == "xtask/src/repository.rs")
        );
        assert!(files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
