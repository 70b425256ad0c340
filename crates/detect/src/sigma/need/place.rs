//! Places of names that audit rules can choose.

/// Where a name is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// This path.
    Path(String),
    /// This directory or below it; without a slash at the end.
    Below(String),
    /// Nothing is known.
    Anywhere,
}

impl Place {
    /// The place of a name that is this text.
    #[must_use]
    pub fn at(name: &str) -> Self {
        match is_writable(name) {
            true => Self::Path(name.to_owned()),
            false => Self::starting_with(name),
        }
    }

    /// The place of names that begin with this text: the directory down to which it is whole.
    #[must_use]
    pub fn starting_with(text: &str) -> Self {
        let mut parts = text.split('/').skip(1).peekable();
        while let Some(part) = parts.next() {
            // Its target is elsewhere, or it is written otherwise in other names.
            if matches!(part, "" | "." | "..") && parts.peek().is_some() {
                return Self::Anywhere;
            }
        }
        let mut rest = text;
        while let Some((directory, _)) = rest.rsplit_once('/') {
            if directory.is_empty() {
                break;
            }
            if is_writable(directory) {
                return Self::Below(directory.to_owned());
            }
            rest = directory;
        }
        Self::Anywhere
    }

    /// Whether every name is this directory or below it.
    #[must_use]
    pub fn is_at_or_below(&self, directory: &str) -> bool {
        let (Self::Path(path) | Self::Below(path)) = self else {
            return false;
        };
        let rest = path.strip_prefix(directory.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether every name of the other place is one of this.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Anywhere, _) => true,
            (Self::Below(directory), _) => other.is_at_or_below(directory),
            _ => self == other,
        }
    }
}

/// Whether a path is absolute, resolved, and can be written in an audit rule: `auditctl` splits at blanks.
fn is_writable(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    path.starts_with('/')
        && parts.all(|part| !matches!(part, "" | "." | ".."))
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"'#".contains(&byte))
        && path.len() < MAX_PATH_BYTES
}

/// Most bytes of a path in an audit rule, with those of the rule's other fields.
///
/// # Source
/// `PATH_MAX` in `include/uapi/linux/limits.h`, which `audit_unpack_string` applies; far less is safe in every tool.
const MAX_PATH_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_that_a_rule_can_name() {
        let below = |directory: &str| Place::Below(directory.to_owned());
        assert_eq!(Place::at("/etc/x"), Place::Path("/etc/x".to_owned()));
        assert_eq!(Place::at("/etc/"), below("/etc"));
        assert_eq!(Place::at("/a b/c"), Place::Anywhere);
        assert_eq!(Place::at("/a/b c/d"), below("/a"));
        for name in ["", "x", "./x", "/", "/x\n"] {
            assert_eq!(Place::at(name), Place::Anywhere, "{name}");
        }
        assert_eq!(Place::at("/etc/../x"), Place::Anywhere);
        assert_eq!(Place::starting_with("/etc//x"), Place::Anywhere);
        assert_eq!(Place::starting_with("/etc/cron."), below("/etc"));
        assert_eq!(Place::starting_with("/etc/cron.d/"), below("/etc/cron.d"));
        assert_eq!(Place::starting_with("/etc"), Place::Anywhere);
        assert_eq!(Place::starting_with("etc/x"), Place::Anywhere);
    }

    #[test]
    fn directories_include_what_is_below_them() {
        let below = |directory: &str| Place::Below(directory.to_owned());
        assert!(below("/etc").includes(&Place::at("/etc/x")));
        assert!(below("/etc").includes(&below("/etc")));
        assert!(!below("/etc").includes(&below("/etcetera")));
        assert!(!Place::at("/etc/x").includes(&below("/etc/x")));
        assert!(Place::Anywhere.includes(&below("/etc")));
        assert!(!below("/etc").includes(&Place::Anywhere));
    }
}
