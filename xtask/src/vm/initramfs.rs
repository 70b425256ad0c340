//! The file system that a kernel unpacks into memory at boot.
//!
//! # Source
//! The `newc` format of cpio, as `Documentation/driver-api/early-userspace/buffer-format.rst` of the
//! kernel describes it: a header of `070701` and thirteen numbers in eight hex digits, the name with a
//! NUL, the content; header with name, and content, each filled up to a multiple of four.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// An archive that grows.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    /// Paths that are in it.
    paths: BTreeSet<String>,
}

impl Archive {
    /// Adds a program at a path, and the libraries that it is linked to at theirs.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(crate) fn program(&mut self, from: &Path, to: &str) -> Result<(), Box<dyn Error>> {
        self.file(to, 0o755, &read(from)?);
        // It fails for a program without libraries, and says nothing that looks like one.
        let output = Command::new("ldd").arg(from).output()?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            self.file(library, 0o755, &read(Path::new(library))?);
        }
        Ok(())
    }

    /// Adds the files of a directory.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(crate) fn directory(&mut self, from: &Path, to: &str) -> Result<(), Box<dyn Error>> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().ok_or("the name of a file is no text")?;
            self.file(&format!("{to}/{name}"), 0o644, &read(&entry.path())?);
        }
        Ok(())
    }

    /// Adds a file and the directories above it. A path that is there already stays as it is.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        for (end, _) in path.match_indices('/').skip(1) {
            let directory = path.get(..end).unwrap_or_default();
            if self.paths.insert(directory.to_owned()) {
                self.entry(directory, DIRECTORY, &[]);
            }
        }
        if self.paths.insert(path.to_owned()) {
            self.entry(path, FILE | mode, content);
        }
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let name = path.trim_start_matches('/');
        let size = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        self.entries += 1;
        let (links, content_size, name_size) = (1, size(content.len()), size(name.len() + 1));
        let (owner, time, device) = (0, 0, 0);
        self.bytes.extend(b"070701");
        for number in [
            self.entries,
            mode,
            owner,
            owner,
            links,
            time,
            content_size,
            device,
            device,
            device,
            device,
            name_size,
            0, // no checksum in this format
        ] {
            self.bytes.extend(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.fill_up();
        self.bytes.extend(content);
        self.fill_up();
    }

    fn fill_up(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// Paths in what `ldd` prints: `NAME => PATH (ADDRESS)`, or for the loader `PATH (ADDRESS)`.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (path, _) = line.rsplit_once(" (0x")?;
        let path = path.rsplit(" => ").next()?.trim();
        path.starts_with('/').then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and content of each entry.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let number = |index: usize| {
                let digits = &bytes[6 + 8 * index..14 + 8 * index];
                u32::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = str::from_utf8(&bytes[110..110 + name_size - 1]).unwrap();
            let at = (110 + name_size).next_multiple_of(4);
            entries.push((name.to_owned(), mode, bytes[at..at + size].to_vec()));
            bytes = &bytes[(at + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn directories_come_before_their_files_and_once() {
        let mut archive = Archive::default();
        archive.file("/usr/sbin/a", 0o755, b"abc");
        archive.file("/usr/lib/b", 0o644, b"");
        archive.file("/usr/sbin/a", 0o600, b"again");
        let entry = |name: &str, mode, content: &[u8]| (name.to_owned(), mode, content.to_vec());
        assert_eq!(
            entries(&archive.finish()),
            [
                entry("usr", 0o040_755, b""),
                entry("usr/sbin", 0o040_755, b""),
                entry("usr/sbin/a", 0o100_755, b"abc"),
                entry("usr/lib", 0o040_755, b""),
                entry("usr/lib/b", 0o100_644, b""),
                entry("TRAILER!!!", 0, b""),
            ]
        );
    }

    #[test]
    fn libraries_are_read_off_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007fff)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        let found: Vec<_> = libraries(text).collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }
}
