//! Files with a secret: one line of ASCII. They are read for each connection, since they may be renewed while the program
//! runs, and never shown.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// Most bytes of a secret.
const MAX_BYTES: usize = 8 << 10;

/// The secret of a file, without blanks around it; `what` it is.
///
/// # Errors
/// The file cannot be read, or has no such line. It is not shown.
pub(crate) fn read(path: &Path, what: &str) -> anyhow::Result<String> {
    let shown = path.display();
    // Opening a pipe would wait.
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    ensure!(
        is_file,
        "the {what} cannot be read: `{shown}` is no file that this program may read"
    );
    let mut text = String::new();
    let limit = u64::try_from(MAX_BYTES + 1)?;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_string(&mut text))
        .with_context(|| format!("cannot read the {what} from file `{shown}`"))?;
    let secret = text.trim_ascii();
    ensure!(
        is_line(secret),
        "file `{shown}` has no {what}: it must be one line of ASCII with at most {MAX_BYTES} bytes"
    );
    Ok(secret.to_owned())
}

/// Whether a text is one line of ASCII, and not too long.
pub(crate) fn is_line(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_one_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let secret = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path, "token").map_err(|error| format!("{error:#}"))
        };
        assert_eq!(secret("Bearer abc\n").unwrap(), "Bearer abc");
        for bad in [
            "",
            "\n",
            "secret\r\nhost: x",
            "secret\u{e9}",
            &"s".repeat(MAX_BYTES + 1),
        ] {
            let error = secret(bad).unwrap_err();
            assert!(error.contains("has no token"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        read(place.path(), "token").unwrap_err();
    }
}
