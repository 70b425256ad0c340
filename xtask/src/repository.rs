//! The working tree: its path, its files, and commands that run in it.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories with C in the kernel's style.
const FORMATTED: [&str; 5] = [
    "crates/engine/bpf/",
    "crates/bench/src/",
    "crates/tollgate/tests/",
    "tests/differential/",
    "tests/vm/",
];

/// What CI leaves out of its builds, because it takes minutes of CPU and changes nothing that tests look at: link-time
/// optimisation of each program and crate, line numbers in backtraces, and what the next build of the same tree would
/// use again.
pub(crate) const CI_PROFILES: [(&str, &str); 5] = [
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG", "0"),
];

/// The working tree.
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

/// Whether a value of the variable `CI` is that of CI.
pub(crate) fn is_ci(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "true")
}

impl Repository {
    /// The tree in which cargo started this program.
    ///
    /// The path is read at run time: worktrees may share a target directory and so this binary.
    ///
    /// # Errors
    /// If cargo has not started this program.
    pub(crate) fn find() -> Result<Self, Box<dyn Error>> {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").ok_or("run this program with `cargo xtask`")?;
        let root = Path::new(&manifest)
            .parent()
            .ok_or("xtask is not in a repository")?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Cargo's target directory.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.root.join("target"), |dir| self.root.join(dir))
    }

    /// A command that runs in the root directory.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The cargo that has started this program, or the one in `PATH`.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments);
        if is_ci(env::var_os("CI").as_deref()) {
            command.envs(CI_PROFILES);
        }
        command
    }

    /// Every UTF-8 file, sorted by path, without `target` and `.git`.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub(crate) fn files(&self) -> io::Result<Vec<File>> {
        let mut files = Vec::new();
        let mut pending = vec![String::new()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(self.root.join(&directory))? {
                let entry = entry?;
                // No source file has a name that is not UTF-8.
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

    /// C files that clang-format formats: BPF programs, and the workload of the benchmark.
    ///
    /// # Errors
    /// If a directory or file cannot be read.
    pub(crate) fn c_sources(&self) -> io::Result<Vec<String>> {
        let paths = self.files()?.into_iter().map(|file| file.path);
        Ok(paths.filter(|path| is_c_source(path)).collect())
    }
}

/// Whether clang-format formats this file.
pub(crate) fn is_c_source(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(OsStr::to_str);
    FORMATTED
        .iter()
        .any(|directory| path.starts_with(directory))
        && matches!(extension, Some("c" | "h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_sources_are_c_files_and_headers() {
        assert!(is_c_source("crates/engine/bpf/exec.bpf.c"));
        assert!(is_c_source("crates/engine/bpf/kernel/task.h"));
        assert!(is_c_source("crates/bench/src/workload_uring.c"));
        assert!(is_c_source("tests/differential/auparse_dump.c"));
        assert!(!is_c_source("crates/engine/bpf/README.md"));
        assert!(!is_c_source("examples/plugin.c"));
    }

    #[test]
    fn files_include_sources_and_no_build_output() {
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
