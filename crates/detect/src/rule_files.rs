//! Finds rules in files and directories, and loads them.
//!
//! Files are untrusted: their size, number and depth are bounded, and what is no regular file is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bounded_file::read;
use crate::sigma::correlation::{Correlations, resolve};
use crate::sigma::document::{Document, DocumentKind, documents};
use crate::sigma::placeholder::Placeholders;
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Engine, Mistake, Rule};

/// Most files and directories that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// Most directories that are in each other.
const MAX_DEPTH: usize = 32;
/// Most rules that are loaded.
const MAX_RULES: usize = 20_000;
/// Most bytes of documents. All rules of `SigmaHQ` have 7 MiB.
const MAX_BYTES: usize = 64 << 20;

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
    /// The loaded rules, but for correlation rules.
    pub engine: Box<dyn Engine>,
    /// The loaded correlation rules.
    pub correlations: Correlations,
    /// File and line of each loaded rule: those of the engine, then correlation rules.
    pub places: Vec<(PathBuf, usize)>,
    /// What cannot be loaded, in the order of the files.
    pub problems: Vec<Problem>,
    /// Number of files that were read.
    pub files: usize,
    /// Number of loaded filters.
    pub filters: usize,
}

impl RuleFiles {
    /// Loads the rules of files, and of directories with the files `*.yml` and `*.yaml` below them. Hidden entries of
    /// directories are left out, as `.git`. Filters apply to all rules, whatever their order is.
    #[must_use]
    pub fn load(paths: &[PathBuf], placeholders: &Placeholders) -> Self {
        let mut found = FoundDocuments::default();
        for path in paths {
            match path.is_dir() {
                true => found.add_directory(path, 0),
                false => found.add_file(path),
            }
        }
        let mut engine = Box::new(Rsigma::new(placeholders.clone()));
        let (mut places, mut filters) = (Vec::new(), Vec::new());
        let documents = &mut found.documents;
        for (number, document) in documents.iter_mut().enumerate() {
            if document.kind == Some(DocumentKind::Filter) {
                match engine.add_filter(&document.text) {
                    Ok(()) => filters.push(number),
                    Err(mistake) => document.refuse(mistake),
                }
            }
        }
        for document in documents.iter_mut() {
            if document.kind == Some(DocumentKind::Rule) {
                let added = match places.len() < MAX_RULES {
                    true => engine.add(&document.text),
                    false => Err(Mistake::new(
                        1,
                        format!("only the first {MAX_RULES} rules are loaded"),
                        "name fewer directories",
                    )),
                };
                match added {
                    Ok(()) => places.push((document.path.clone(), document.line(1))),
                    Err(mistake) => document.refuse(mistake),
                }
            }
        }
        for (filter, mistake) in engine.filter_mistakes() {
            let document = filters.get(filter).and_then(|at| documents.get_mut(*at));
            if let Some(document) = document {
                document.refuse(mistake);
            }
        }
        let is_correlation =
            |document: &FoundDocument| document.kind == Some(DocumentKind::Correlation);
        let texts: Vec<&str> = documents
            .iter()
            .filter(|document| is_correlation(document))
            .map(|document| document.text.as_str())
            .collect();
        let (correlations, mistakes) = resolve(&mut *engine, &texts);
        let correlated = documents
            .iter_mut()
            .filter(|document| is_correlation(document));
        for (document, mistake) in correlated.zip(mistakes) {
            match mistake {
                None => places.push((document.path.clone(), document.line(1))),
                Some(mistake) => document.refuse(mistake),
            }
        }
        let problems = found.documents.into_iter().flat_map(|document| {
            let path = document.path;
            let problem = move |mistake| Problem {
                path: path.clone(),
                mistake,
            };
            document.mistakes.into_iter().map(problem)
        });
        Self {
            engine,
            correlations,
            places,
            problems: problems.collect(),
            files: found.files,
            filters: filters.len(),
        }
    }

    /// All rules, by their number.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.engine.rules().iter().chain(self.correlations.rules())
    }

    /// A rule.
    #[must_use]
    pub fn rule(&self, number: usize) -> Option<&Rule> {
        let own = self.engine.rules();
        match number.checked_sub(own.len()) {
            None => own.get(number),
            Some(number) => self.correlations.rules().get(number),
        }
    }

    /// Problems that are mistakes, not rules for other log sources.
    pub fn mistakes(&self) -> impl Iterator<Item = &Problem> {
        let problems = self.problems.iter();
        problems.filter(|problem| problem.mistake.foreign.is_none())
    }
}

/// Documents of files, in their order.
#[derive(Debug, Default)]
struct FoundDocuments {
    documents: Vec<FoundDocument>,
    files: usize,
    entries: usize,
    /// Bytes of the texts.
    bytes: usize,
}

/// A document, or a file that has none.
#[derive(Debug)]
struct FoundDocument {
    path: PathBuf,
    /// Lines of the file before its first one.
    lines_before: usize,
    /// Blank lines at its begin.
    blank: usize,
    /// What it is; `None` if it cannot be used.
    kind: Option<DocumentKind>,
    text: String,
    /// Lines count in the file.
    mistakes: Vec<Mistake>,
}

impl FoundDocument {
    /// Line in the file of a line of the document.
    fn line(&self, line: usize) -> usize {
        self.lines_before + line.max(self.blank + 1)
    }

    fn refuse(&mut self, mut mistake: Mistake) {
        mistake.line = self.line(mistake.line);
        self.mistakes.push(mistake);
    }
}

impl FoundDocuments {
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
        let lines = document.text.lines();
        let mut found = FoundDocument {
            path: path.to_owned(),
            lines_before: document.lines_before,
            blank: lines.take_while(|line| line.trim().is_empty()).count(),
            kind: None,
            text: String::new(),
            mistakes: Vec::new(),
        };
        self.bytes += document.text.len();
        let kind = match self.bytes <= MAX_BYTES {
            true => document.check().and_then(|()| document.kind()),
            false => Err(Mistake::new(
                1,
                format!("only the first {MAX_BYTES} bytes of rules are read"),
                "name fewer directories",
            )),
        };
        match kind {
            Ok(kind) => {
                found.kind = Some(kind);
                document.text.clone_into(&mut found.text);
            }
            Err(mistake) => found.refuse(mistake),
        }
        self.documents.push(found);
    }

    /// Notes what is wrong with a file or directory.
    fn refuse(&mut self, path: &Path, mistake: Mistake) {
        self.documents.push(FoundDocument {
            path: path.to_owned(),
            lines_before: 0,
            blank: 0,
            kind: None,
            text: String::new(),
            mistakes: vec![mistake],
        });
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
        let rules = RuleFiles::load(
            &[place.path().to_owned(), path("absent.yml")],
            &Placeholders::default(),
        );
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
