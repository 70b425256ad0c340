//! Trees of files: made from a seed, listed, and read as for an archive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;

use super::BLOCK_BYTES;
use super::random::Random;

/// Size of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeSize {
    pub(crate) directories: u32,
    pub(crate) files: u32,
}

/// Name of the tree.
pub(super) const TREE: &str = "tree";
/// Where output goes that nobody reads.
const SINK: &str = "/dev/null";
/// Files of the tree have fewer bytes.
const MOST_BYTES: u32 = 8192;
/// Bytes of a block of an archive: 20 records, as `tar` writes by default.
const ARCHIVE_BLOCK_BYTES: usize = 10_240;

/// Makes a tree whose shape and contents follow from a seed. It is renamed when it is complete.
pub(super) fn make_tree(directory: &Path, size: TreeSize) -> io::Result<()> {
    let tree = directory.join(TREE);
    if tree.exists() {
        return Ok(());
    }
    let mut random = Random::new(0);
    let part = directory.join("tree.part");
    fs::create_dir(&part)?;
    let mut directories = vec![part.clone()];
    for number in 1..size.directories {
        let made = random
            .pick(&directories)
            .unwrap_or(&part)
            .join(format!("directory{number}"));
        fs::create_dir(&made)?;
        directories.push(made);
    }
    for number in 0..size.files {
        let file = random
            .pick(&directories)
            .unwrap_or(&part)
            .join(format!("file{number}"));
        let length = random.below(MOST_BYTES);
        fs::write(file, random.bytes(length))?;
    }
    fs::rename(part, tree)
}

/// Visits the files of a tree; returns the opens and closes of its directories.
pub(super) fn walk(tree: &Path, mut visit: impl FnMut(&Path) -> io::Result<()>) -> io::Result<u64> {
    let mut calls = 0;
    let mut left = vec![tree.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            } else {
                visit(&entry.path())?;
            }
        }
        calls += 2;
    }
    Ok(calls)
}

/// Prints the names of all files to nobody.
pub(super) fn find(tree: &Path) -> io::Result<u64> {
    let mut names = BufWriter::with_capacity(BLOCK_BYTES, CountedWriter::sink()?);
    let calls = walk(tree, |file| {
        names.write_all(file.as_os_str().as_encoded_bytes())?;
        names.write_all(b"\n")
    })?;
    names.flush()?;
    Ok(calls + names.get_ref().calls)
}

/// Reads all files, and writes their contents to nobody.
pub(super) fn archive(tree: &Path) -> io::Result<u64> {
    let mut output = BufWriter::with_capacity(ARCHIVE_BLOCK_BYTES, CountedWriter::sink()?);
    let mut block = [0; ARCHIVE_BLOCK_BYTES];
    let mut of_files = 0;
    let of_directories = walk(tree, |file| {
        of_files += read_file(file, &mut block, |part| output.write_all(part))?;
        Ok(())
    })?;
    output.flush()?;
    Ok(of_directories + of_files + output.get_ref().calls)
}

/// Reads a file to its end; returns the number of calls.
pub(super) fn read_file(
    file: &Path,
    block: &mut [u8],
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut file = File::open(file)?;
    let mut calls = 2;
    loop {
        calls += 1;
        match file.read(block)? {
            0 => return Ok(calls),
            length => take(block.get(..length).unwrap_or_default())?,
        }
    }
}

/// A writer that counts its calls.
pub(super) struct CountedWriter {
    file: File,
    pub(super) calls: u64,
}

impl CountedWriter {
    pub(super) fn new(file: File) -> Self {
        Self { file, calls: 0 }
    }

    /// A writer whose output nobody reads.
    pub(super) fn sink() -> io::Result<Self> {
        Ok(Self::new(OpenOptions::new().write(true).open(SINK)?))
    }
}

impl Write for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
