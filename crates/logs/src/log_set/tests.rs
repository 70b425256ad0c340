//! Tests of the files of a log.

use super::*;

fn names(set: &LogSet) -> Vec<String> {
    let name = |file: &LogFile| file.path().file_name().unwrap().display().to_string();
    set.as_files().iter().map(name).collect()
}

#[test]
fn pipe_among_rotated_files_is_refused() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("audit.log"), "").unwrap();
    let pipe = place.path().join("audit.log.1");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let error = LogSet::rotated(place.path()).unwrap_err();
    assert!(matches!(error, LogError::NotAFile { path } if path == pipe));
}

#[test]
fn files_that_cannot_be_opened_are_among_the_entries() {
    let place = tempfile::tempdir().unwrap();
    let archive = "audit.log.000003.zst";
    for name in ["audit.log", "audit.log.2", archive] {
        fs::write(place.path().join(name), name).unwrap();
    }
    fs::create_dir(place.path().join("audit.log.1")).unwrap();
    let pipe = "audit.log.000002.zst";
    nix::unistd::mkfifo(&place.path().join(pipe), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(LogFile::open(&place.path().join(pipe)).is_err());
    let link = "audit.log.000001.zst";
    std::os::unix::fs::symlink("/nonexistent", place.path().join(link)).unwrap();
    let mut failed = Vec::new();
    let entries = LogEntries::rotated(place.path()).unwrap();
    let set = entries.readable(|error| {
        failed.push(error.path().unwrap().file_name().unwrap().to_owned());
    });
    assert_eq!(names(&set), ["audit.log.2", "audit.log"]);
    assert_eq!(failed, [link, pipe, archive, "audit.log.1"]);
    assert!(LogSet::rotated(place.path()).is_err());
    let with = |log: &str| {
        let entries = LogEntries::rotated(place.path()).unwrap();
        let mut others = 0;
        let set = entries.readable_with(&place.path().join(log), |_| others += 1);
        (set.map(|set| names(&set).len()).ok(), others)
    };
    assert_eq!(with("audit.log"), (Some(2), 4));
    assert_eq!(with("audit.log.1"), (None, 3));
}

#[test]
fn old_logs_that_cannot_be_opened_do_not_hide_others() {
    let place = tempfile::tempdir().unwrap();
    let path = |number: u32| place.path().join(format!("audit.log.{number}"));
    fs::write(path(1), "x").unwrap();
    fs::create_dir(path(2)).unwrap();
    nix::unistd::mkfifo(&path(3), nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::write(path(4), "x").unwrap();
    std::os::unix::fs::symlink(path(4), path(5)).unwrap();
    fs::write(path(6), b"\x1f\x8b\x08\x00").unwrap();
    let found = old_logs(&place.path().join("audit.log")).unwrap();
    let files: Vec<&Path> = found.files.iter().map(LogFile::path).collect();
    assert_eq!(files, [path(4), path(1)]);
    let refused: Vec<PathBuf> = found.refused.into_iter().map(|(path, _)| path).collect();
    assert_eq!(refused, [6, 5, 3, 2].map(path));
}

#[test]
fn rotated_files_are_oldest_first_and_other_files_are_ignored() {
    let place = tempfile::tempdir().unwrap();
    for name in [
        "audit.log",
        "audit.log.1",
        "audit.log.2",
        "audit.log.10",
        "audit.log.01",
        "audit.log.1.gz",
        "audit.logs",
        "other",
    ] {
        fs::write(place.path().join(name), name).unwrap();
    }
    let expected = ["audit.log.10", "audit.log.2", "audit.log.1", "audit.log"];
    let set = LogSet::rotated(place.path()).unwrap();
    assert_eq!(names(&set), expected);
    let set = LogSet::rotated(&place.path().join("audit.log")).unwrap();
    assert_eq!(names(&set), expected);
    let set = LogSet::files(&[place.path().join("other")]).unwrap();
    assert_eq!(names(&set), ["other"]);
}

#[test]
fn file_with_two_names_is_opened_once() {
    let place = tempfile::tempdir().unwrap();
    let current = place.path().join("audit.log");
    fs::write(&current, "x").unwrap();
    fs::hard_link(&current, place.path().join("audit.log.1")).unwrap();
    assert_eq!(names(&LogSet::rotated(&current).unwrap()), ["audit.log"]);
}

#[test]
fn missing_current_log_leaves_the_predecessors() {
    let place = tempfile::tempdir().unwrap();
    let error = LogSet::rotated(place.path()).unwrap_err();
    assert!(error.to_string().contains("has no file `audit.log`"));
    fs::write(place.path().join("audit.log.1"), "x").unwrap();
    let set = LogSet::rotated(place.path()).unwrap();
    assert_eq!(names(&set), ["audit.log.1"]);
    let error = LogSet::rotated(&place.path().join("other")).unwrap_err();
    assert!(error.is_missing());
}

#[test]
fn compressed_files_devices_and_directories_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("audit.log.1.gz");
    fs::write(&path, b"\x1f\x8b\x08\x00").unwrap();
    let text = LogFile::open(&path).unwrap_err().to_string();
    assert!(text.contains("gzip: pipe the output of `zcat /"), "{text}");
    for path in [place.path(), Path::new("/dev/null")] {
        let text = LogFile::open(path).unwrap_err().to_string();
        assert!(text.ends_with("is not a file"), "{text}");
    }
}
