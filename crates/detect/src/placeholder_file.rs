//! The file of `--placeholders`.

use std::path::{Path, PathBuf};

use logs::escaped::Escaped;

use crate::bounded_file;
use crate::sigma::placeholder::Placeholders;

/// Arguments of the commands that load rules.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PlaceholderArgs {
    /// Fill in the placeholders of rules (`expand`) from FILE, in TOML
    #[arg(long = "placeholders", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl PlaceholderArgs {
    /// Reads the file; without one there are no values.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake, which is named with file and line.
    pub(crate) fn read(&self) -> anyhow::Result<Placeholders> {
        self.file
            .as_deref()
            .map_or_else(|| Ok(Placeholders::default()), read)
    }
}

/// Reads a file, which is no larger than files of rules are.
fn read(path: &Path) -> anyhow::Result<Placeholders> {
    let read = bounded_file::read(path).and_then(|text| Placeholders::parse(&text));
    read.map_err(|mistake| {
        let path = Escaped(path.as_os_str().as_encoded_bytes());
        anyhow::anyhow!("{path}:{}: {mistake}", mistake.line)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn large_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("large.toml");
        File::create(&path).unwrap().set_len(100 << 20).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("large.toml:1: the file has more than 262144 bytes; split it"),
            "{error}"
        );
    }
}
