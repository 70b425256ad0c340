//! The stock `ausearch` reads encoded records. The tests are skipped if it is not installed.

#[cfg(test)]
mod events;
#[cfg(test)]
mod skip;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use audit::record::encode;
    use bstr::ByteSlice as _;

    use crate::events;
    use crate::skip::skipped;

    /// A log of all events, removed at the end.
    struct Log {
        path: PathBuf,
        text: Vec<u8>,
    }

    impl Log {
        fn new(name: &str) -> Self {
            let mut text = Vec::new();
            for (_, event) in events::all() {
                encode::event(&event, &mut text);
            }
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::File::create(&path)
                .unwrap()
                .write_all(&text)
                .unwrap();
            Self { path, text }
        }

        /// Output of `ausearch`; `None` if it is not installed.
        fn search(&self, options: &[&str]) -> Option<Vec<u8>> {
            const AUSEARCH: &str = "/usr/sbin/ausearch";
            if !Path::new(AUSEARCH).exists() {
                let reason = format!("{AUSEARCH} is not installed (Debian package auditd)");
                skipped("ausearch", &reason);
                return None;
            }
            let output = Command::new(AUSEARCH)
                .arg("-if")
                .arg(&self.path)
                .args(options)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{options:?}: {}",
                output.stderr.as_bstr()
            );
            Some(output.stdout)
        }
    }

    impl Drop for Log {
        fn drop(&mut self) {
            std::fs::remove_file(&self.path).unwrap();
        }
    }

    #[test]
    fn raw_search_returns_the_log() {
        let log = Log::new("raw.log");
        let Some(found) = log.search(&["--raw"]) else {
            return;
        };
        assert_eq!(found.as_bstr(), log.text.as_bstr());
    }

    #[test]
    fn search_by_key_finds_events() {
        let log = Log::new("key.log");
        for (key, cases) in [("identity", 25), ("pci", 2)] {
            let Some(found) = log.search(&["--raw", "-k", key]) else {
                return;
            };
            assert_eq!(found.find_iter("type=SYSCALL ").count(), cases, "{key}");
        }
    }

    #[test]
    fn search_by_serial_interprets_events() {
        let log = Log::new("interpreted.log");
        for (name, event) in events::all() {
            let serial = event.serial.0.to_string();
            let Some(found) = log.search(&["-i", "-a", &serial]) else {
                return;
            };
            println!("{}", found.as_bstr());
            let once = format!(":{serial}) : arch=");
            assert_eq!(
                found.find_iter(&once).count(),
                1,
                "{name}:\n{}",
                found.as_bstr()
            );
        }
    }

    #[test]
    fn hostile_names_are_interpreted() {
        let log = Log::new("names.log");
        let Some(found) = log.search(&["-i"]) else {
            return;
        };
        for text in [
            "name=/etc/shadow inode=131074 dev=08:01 mode=file,640 ouid=root ",
            "name=\"quoted\" inode=",
            "a3=a b a4=say \"hi\" ",
            "exit=ENOENT(No such file or directory) ",
            "exit=EINTR(Interrupted system call) ",
            "auid=unset ",
            "proctitle=cat /etc/shadow",
            "exe=<too_long> ",
        ] {
            assert!(
                found.contains_str(text),
                "{text} is not in:\n{}",
                found.as_bstr()
            );
        }
    }
}
