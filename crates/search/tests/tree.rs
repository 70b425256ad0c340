//! `tollgate-search --tree` on families that are deep, wide, or use ids again.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::{Command, Output};

    /// A log in which each process, a child of the other number, opened a file.
    fn log(family: impl Iterator<Item = (u32, u32)>) -> (tempfile::TempDir, PathBuf) {
        let events = family.enumerate().map(|(serial, (pid, ppid))| {
            let stamp = format!("msg=audit(1700000000.000:{serial}): ");
            format!(
                "type=SYSCALL {stamp}arch=c000003e syscall=2 success=yes exit=3 a0=0 a1=0 a2=0 a3=0 items=1 ppid={ppid} \
                 pid={pid} auid=0 uid=0 comm=\"x\" exe=\"/bin/x\" key=(null)\n\
                 type=PATH {stamp}item=0 name=\"/of-{pid}\" nametype=NORMAL\n"
            )
        });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        fs::write(&path, events.collect::<String>()).unwrap();
        (directory, path)
    }

    fn tree(log: &PathBuf, pid: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-search"));
        let output = command
            .args(["--tree", pid, "--log"])
            .arg(log)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        output
    }

    fn lines_of(output: &Output) -> Vec<&str> {
        str::from_utf8(&output.stdout).unwrap().lines().collect()
    }

    #[test]
    fn nobody_hides_behind_many_levels() {
        let (_directory, log) = log((101..=300).map(|pid| (pid, pid - 1)));
        let below = tree(&log, "101");
        let opened = lines_of(&below)
            .iter()
            .filter(|line| line.contains("/of-"))
            .count();
        assert_eq!(opened, 200);
        let above = tree(&log, "300");
        let above = lines_of(&above);
        assert_eq!(above[0], "(no event)[100]");
        assert_eq!(above[1], "  /bin/x[101]");
        assert_eq!(above[32].trim_start(), "(136 more)");
        assert_eq!(above[33].trim_start(), "/bin/x[268]");
        assert_eq!(above[64].trim_start(), "/bin/x[299]");
        assert!(above[65].contains("[300]"), "{}", above[65]);
    }

    #[test]
    fn nobody_hides_behind_many_siblings() {
        let children = (1001..=7000).map(|pid| (pid, 1000));
        let family = [(1000, 1)].into_iter().chain(children);
        let (_directory, log) = log(family.chain([(9000, 7000)]));
        let tree = tree(&log, "1000");
        let tree = lines_of(&tree);
        let opened = tree.iter().filter(|line| line.contains("/of-")).count();
        assert_eq!(opened, 6002);
        let last = tree.iter().find(|line| line.contains("[9000]")).unwrap();
        assert!(last.starts_with("      2"), "{last}");
    }

    #[test]
    fn processes_of_other_nodes_are_others() {
        let (_directory, log) = log([(20, 10), (21, 20), (20, 11), (22, 20)].into_iter());
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().enumerate();
        let of_nodes: String = lines
            .map(|(at, line)| format!("node={} {line}\n", ["a", "b"][at / 4]))
            .collect();
        fs::write(&log, of_nodes).unwrap();
        let tree = tree(&log, "20");
        let tree = lines_of(&tree);
        assert_eq!(tree[0], "(no event)[11]");
        assert!(
            tree.iter()
                .any(|line| line.contains(" b ") && line.contains("[22]"))
        );
        assert!(!tree.iter().any(|line| line.contains("[21]")), "{tree:?}");
    }

    #[test]
    fn ids_that_are_used_again_make_no_endless_tree() {
        let (_directory, log) = log([(500, 499), (499, 500), (501, 499)].into_iter());
        assert_eq!(lines_of(&tree(&log, "500"))[0], "/bin/x[499]");
    }
}
