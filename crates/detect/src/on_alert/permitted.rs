//! Which programs may be started: those that no other user can replace.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, ensure};
use nix::unistd::geteuid;

/// Bits of modes: group and others may write, and only owners may remove entries of a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const EXECUTABLE: u32 = 0o111;

/// Checks that a program is named by an absolute path without links, and that it and all directories on the path belong
/// to root or this user and can be written by no other.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn check(program: &Path) -> anyhow::Result<()> {
    let shown = program.display();
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    ensure!(
        program.is_absolute() && program.components().all(is_plain),
        "`{shown}` is not an absolute path without `..`: name the program by one"
    );
    let mut path = PathBuf::new();
    for part in program.components() {
        path.push(part);
        let shown = path.display();
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(error) => bail!("cannot inspect `{shown}`: {error}"),
        };
        let mode = about.mode();
        ensure!(
            !about.is_symlink(),
            "`{shown}` is a link: name the program by the path without it"
        );
        ensure!(
            about.uid() == 0 || about.uid() == geteuid().as_raw(),
            "`{shown}` does not belong to root: run `chown root` on it"
        );
        // Others can add to a sticky directory, and replace nothing.
        let is_sticky = about.is_dir() && mode & STICKY != 0;
        ensure!(
            mode & WRITABLE_BY_OTHERS == 0 || is_sticky,
            "`{shown}` can be written by group or others: run `chmod go-w` on it"
        );
        if path == program {
            ensure!(
                about.is_file() && mode & EXECUTABLE != 0,
                "`{shown}` is not a program: name an executable file"
            );
            ensure!(
                has_format(&path),
                "`{shown}` is not a program: it has neither `#!` nor the format ELF"
            );
        }
    }
    Ok(())
}

/// Whether the kernel can start a file without a shell, which the C library starts for what the kernel refuses. A file
/// that cannot be read may be a program.
///
/// # Source
/// `execvp(3)`, "ENOEXEC".
fn has_format(program: &Path) -> bool {
    let mut start = Vec::new();
    let file = File::open(program);
    match file.and_then(|file| file.take(4).read_to_end(&mut start)) {
        Ok(_) => start.starts_with(b"#!") || start == b"\x7fELF",
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn programs_that_others_can_replace_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let directory = place.join("bin");
        let program = directory.join("program");
        fs::create_dir(&directory).unwrap();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        set(&directory, 0o755).unwrap();
        set(&program, 0o755).unwrap();
        check(&program).unwrap();
        symlink(&program, place.join("link")).unwrap();
        symlink(&directory, place.join("links")).unwrap();
        #[track_caller]
        fn refused(path: &Path, reason: &str) {
            let error = check(path).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        refused(&place.join("link"), "is a link");
        refused(&place.join("links/program"), "is a link");
        refused(Path::new("bin/program"), "is not an absolute path");
        refused(&place.join("bin/../bin/program"), "is not an absolute path");
        refused(&place.join("none"), "cannot inspect");
        refused(&directory, "is not a program");
        fs::write(&program, "echo a\n").unwrap();
        refused(&program, "it has neither `#!` nor the format ELF");
        fs::write(&program, b"\x7fELF\x02").unwrap();
        check(&program).unwrap();
        set(&program, 0o644).unwrap();
        refused(&program, "is not a program");
        set(&program, 0o757).unwrap();
        refused(&program, "can be written by group or others");
        set(&program, 0o755).unwrap();
        set(&directory, 0o775).unwrap();
        refused(&program, "can be written by group or others");
        set(&directory, 0o1777).unwrap();
        check(&program).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(54321), None).unwrap();
            refused(&program, "does not belong to root");
        }
    }
}
