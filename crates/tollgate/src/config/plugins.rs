//! The plugin configuration files in `plugin_dir`, usually `/etc/audit/plugins.d`.

use std::fs;
use std::path::{Path, PathBuf};

use audit::conf::auditd::Settings;
use audit::conf::plugin::{self, Plugin, is_plugin};
use bstr::ByteSlice as _;

use super::{ConfigFile, FileRequirements};

/// Stricter than for other files, because root runs the programs that they name. Distributions use links in
/// `plugins.d`.
const REQUIREMENTS: FileRequirements = FileRequirements {
    links: true,
    forbidden_mode: 0o022,
    forbidden_mode_message: "is writable by group or others: run `chmod go-w` on it",
    limit_bytes: 1 << 16,
};

/// Returns the plugin files, sorted.
pub(crate) fn files(settings: &Settings) -> Vec<PathBuf> {
    let Ok(directory) = settings.plugin_dir.to_path() else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| is_plugin(name.as_encoded_bytes()))
        .map(|name| directory.join(name))
        .collect();
    files.sort();
    files
}

/// Reads all plugin files. Returns their names and contents.
pub(crate) fn read_all(settings: &Settings) -> Vec<(String, anyhow::Result<ConfigFile<Plugin>>)> {
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (name.into_owned(), read(&path))
    };
    files(settings).into_iter().map(named).collect()
}

/// Reads a plugin file; follows links.
///
/// # Errors
/// When the file cannot be read, or users other than root can write it.
pub(crate) fn read(path: &Path) -> anyhow::Result<ConfigFile<Plugin>> {
    ConfigFile::read(path, REQUIREMENTS, plugin::parse)
}
