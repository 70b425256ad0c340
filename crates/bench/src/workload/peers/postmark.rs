//! Work on many small files in one directory, as of a mail server.
//!
//! # Source
//! Postmark (J. Katcher, `NetApp` TR-3022, 1997), which describes the transactions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::BLOCK_BYTES;
use super::files::{CountedWriter, read_file};
use super::random::Random;

/// Files at the beginning.
const FILES: u32 = 800;
/// Sizes of new files, Postmark's defaults.
const NEW_BYTES: (u32, u32) = (500, 10_000);
const MOST_APPENDED_BYTES: u32 = 4096;

/// Small files, and what has been done to them.
pub(super) struct Postmark {
    directory: PathBuf,
    random: Random,
    /// Names of the files that exist.
    files: Vec<u32>,
    /// Name of the next file.
    next: u32,
    calls: u64,
    block: [u8; BLOCK_BYTES],
}

impl Postmark {
    /// Creates a directory for the files.
    pub(super) fn new(directory: PathBuf, task: u32) -> io::Result<Self> {
        fs::create_dir(&directory)?;
        Ok(Self {
            directory,
            random: Random::new(task),
            files: Vec::new(),
            next: 0,
            calls: 1,
            block: [b'm'; BLOCK_BYTES],
        })
    }

    /// A transaction reads a file or appends to it, and creates or deletes another one.
    pub(super) fn run(mut self, transactions: u32) -> io::Result<u64> {
        for _ in 0..FILES {
            self.create()?;
        }
        for _ in 0..transactions {
            if self.random.below(2) == 0 {
                self.read()?;
            } else {
                self.append()?;
            }
            if self.random.below(2) == 0 {
                self.create()?;
            } else {
                self.delete()?;
            }
        }
        while !self.files.is_empty() {
            self.delete()?;
        }
        fs::remove_dir(&self.directory)?;
        Ok(self.calls + 1)
    }

    fn path(&self, file: u32) -> PathBuf {
        self.directory.join(file.to_string())
    }

    fn create(&mut self) -> io::Result<()> {
        let (least, most) = NEW_BYTES;
        let bytes = least + self.random.below(most - least);
        let file = File::create_new(self.path(self.next))?;
        self.files.push(self.next);
        self.next += 1;
        self.write(file, bytes)
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(&file) = self.random.pick(&self.files) else {
            return Ok(());
        };
        let bytes = 1 + self.random.below(MOST_APPENDED_BYTES);
        let file = OpenOptions::new().append(true).open(self.path(file))?;
        self.write(file, bytes)
    }

    /// Writes blocks, and closes the file.
    fn write(&mut self, file: File, bytes: u32) -> io::Result<()> {
        let mut file = CountedWriter::new(file);
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        while left != 0 {
            let part = left.min(BLOCK_BYTES);
            file.write_all(self.block.get(..part).unwrap_or_default())?;
            left -= part;
        }
        self.calls += file.calls + 2;
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let Some(&file) = self.random.pick(&self.files) else {
            return Ok(());
        };
        let path = self.path(file);
        self.calls += read_file(&path, &mut self.block, |_| Ok(()))?;
        Ok(())
    }

    fn delete(&mut self) -> io::Result<()> {
        let Some(place) = self.random.place(&self.files) else {
            return Ok(());
        };
        let file = self.files.swap_remove(place);
        fs::remove_file(self.path(file))?;
        self.calls += 1;
        Ok(())
    }
}
