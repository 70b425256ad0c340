//! Finds rules in files and directories, and loads them.
//!
//! Files are untrusted: their size, number and depth are bounded, and what is no regular file is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bounded_file::read;
use crate::sigma::document::{Document, documents};
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Engine, Mistake};

/// Most files and directories that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// Most directories that are in each other.
const MAX_DEPTH: usize = 32;
/// Most rules that are loaded.
const MAX_RULES: usize = 20_000;

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, or the directory that cannot be read.
    pub path: PathBuf,
    /// What and where; lines count in the file.
    pub mistake: Mistake,
}

/// Rules from files.
#[derive(Debug)]
pub struct RuleFiles {
    /// The loaded rules.
    pub engine: Box<dyn Engine>,
    /// File and line of each loaded rule.
    pub places: Vec<(PathBuf, usize)>,
    /// What cannot be loaded.
    pub problems: Vec<Problem>,
    /// Number of files that were read.
    pub files: usize,
    entries: usize,
}

impl RuleFiles {
    /// Loads the rules of files, and of directories with the files `*.yml` and `*.yaml` below them. Hidden entries of
    /// directories are left out, as `.git`.
    #[must_use]
    pub fn load(paths: &[PathBuf]) -> Self {
        let mut rules = Self {
            engine: Box::new(Rsigma::default()),
            places: Vec::new(),
            problems: Vec::new(),
            files: 0,
            entries: 0,
        };
        for path in paths {
            match path.is_dir() {
                true => rules.add_directory(path, 0),
                false => rules.add_file(path),
            }
        }
        rules
    }

    /// Problems that are mistakes, not rules for other log sources.
    pub fn mistakes(&self) -> impl Iterator<Item = &Problem> {
        let problems = self.problems.iter();
        problems.filter(|problem| problem.mistake.foreign.is_none())
    }

    fn add_directory(&mut self, path: &Path, depth: usize) {
        if depth >= MAX_DEPTH {
            let reason = format!("the directory is below {MAX_DEPTH} others");
            self.refuse(path, Mistake::new(1, reason, "name it as an argument"));
            return;
        }
        let entries = match fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => {
                let reason = format!("the directory cannot be read: {error}");
                self.refuse(path, Mistake::new(1, reason, "make it readable"));
                return;
            }
        };
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort_unstable();
        for path in paths {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                let reason = format!("only the first {MAX_ENTRIES} files and directories are read");
                self.refuse(&path, Mistake::new(1, reason, "name fewer directories"));
                return;
            }
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let is_rule = name.ends_with(b".yml") || name.ends_with(b".yaml");
            match fs::symlink_metadata(&path) {
                _ if name.starts_with(b".") => {}
                Ok(about) if about.is_dir() => self.add_directory(&path, depth + 1),
                Ok(about) if about.is_symlink() && (is_rule || path.is_dir()) => {
                    let reason = "links in directories are not followed";
                    self.refuse(
                        &path,
                        Mistake::new(1, reason, "name its target as an argument"),
                    );
                }
                _ if is_rule => self.add_file(&path),
                _ => {}
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        let text = match read(path) {
            Ok(text) => text,
            Err(mistake) => return self.refuse(path, mistake),
        };
        self.files += 1;
        match documents(&text) {
            Ok(documents) if documents.is_empty() => {
                self.refuse(path, Mistake::new(1, "the file is empty", "remove it"));
            }
            Ok(documents) => documents
                .iter()
                .for_each(|document| self.add_document(path, document)),
            Err(mistake) => self.refuse(path, mistake),
        }
    }

    fn add_document(&mut self, path: &Path, document: &Document<'_>) {
        let added = match self.places.len() < MAX_RULES {
            true => document
                .check()
                .and_then(|()| self.engine.add(document.text)),
            false => Err(Mistake::new(
                1,
                format!("only the first {MAX_RULES} rules are loaded"),
                "name fewer directories",
            )),
        };
        let blank = document.text.lines();
        let blank = blank.take_while(|line| line.trim().is_empty()).count();
        match added {
            Ok(()) => {
                let line = document.lines_before + blank + 1;
                self.places.push((path.to_owned(), line));
            }
            Err(mut mistake) => {
                mistake.line = document.lines_before + mistake.line.max(blank + 1);
                self.refuse(path, mistake);
            }
        }
    }

    fn refuse(&mut self, path: &Path, mistake: Mistake) {
        let path = path.to_owned();
        self.problems.push(Problem { path, mistake });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const RULE: &str = "title: T\nlogsource:\n    category: file_event\ndetection:\n    a:\n        TargetFilename: /x\n    condition: a\n";

    fn named(rules: &RuleFiles) -> Vec<(String, usize, String)> {
        let problem = |problem: &Problem| {
            let name = problem.path.file_name().unwrap().to_str().unwrap();
            (
                name.to_owned(),
                problem.mistake.line,
                problem.mistake.reason.clone(),
            )
        };
        rules.problems.iter().map(problem).collect()
    }

    #[test]
    fn every_file_is_loaded_or_named() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        fs::create_dir(path(".git")).unwrap();
        let other = RULE.replace("title: T", "title: U");
        for (name, text) in [
            ("README.md", "# no rule\n"),
            (".git/x.yml", "no rule\n"),
            ("sub/a.yaml", RULE),
            (
                "b.yml",
                &format!("# head\n---\n\n{other}---\n{RULE}---\ntitle: V\n"),
            ),
            ("empty.yml", "# nothing\n"),
            ("big.yml", &"#\n".repeat(200_000)),
        ] {
            fs::write(path(name), text).unwrap();
        }
        fs::write(path("bytes.yml"), b"a: 1\nb: \xff\n").unwrap();
        symlink(path("b.yml"), path("link.yml")).unwrap();
        nix::unistd::mkfifo(&path("pipe.yml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let rules = RuleFiles::load(&[place.path().to_owned(), path("absent.yml")]);
        let titles: Vec<&str> = rules
            .engine
            .rules()
            .iter()
            .map(|rule| &*rule.title)
            .collect();
        assert_eq!(titles, ["U", "T"]);
        assert_eq!(rules.places[0], (path("b.yml"), 4));
        let problem = |name: &str, line, reason: &str| (name.to_owned(), line, reason.to_owned());
        let found = named(&rules);
        assert_eq!(found[0].0, "b.yml");
        assert_eq!(found[0].1, 20);
        assert_eq!(
            found[1..],
            [
                problem("big.yml", 1, "the file has more than 262144 bytes"),
                problem("bytes.yml", 2, "the line is not UTF-8"),
                problem("empty.yml", 1, "the file is empty"),
                problem("link.yml", 1, "links in directories are not followed"),
                problem("pipe.yml", 1, "it is not a regular file"),
                problem("a.yaml", 1, "another rule has the id `T`"),
                problem(
                    "absent.yml",
                    1,
                    "the file cannot be read: No such file or directory (os error 2)"
                ),
            ]
        );
    }
}
