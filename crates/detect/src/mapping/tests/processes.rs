//! Tests of the table of processes: what it learns, keeps and believes.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use super::*;

/// A directory of the form of `/proc`.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        let proc = Self(tempfile::tempdir().unwrap());
        fs::create_dir(proc.0.path().join("self")).unwrap();
        let fields = "0 ".repeat(17);
        fs::write(
            proc.0.path().join("self/stat"),
            format!("1 (d) S 1 {fields}5000 0"),
        )
        .unwrap();
        proc
    }

    /// A process that began at a time; its program can be read, or it is of another user.
    fn add(&self, pid: u32, parent: u32, began: u32, command_line: &[u8], exe: Option<&str>) {
        let path = self.0.path().join(pid.to_string());
        fs::create_dir(&path).unwrap();
        let fields = "0 ".repeat(17);
        fs::write(
            path.join("stat"),
            format!("{pid} (a) b) S {parent} {fields}{began} 0"),
        )
        .unwrap();
        fs::write(path.join("cmdline"), command_line).unwrap();
        fs::write(path.join("status"), "Name:\ta\nUid:\t1000\t0\t0\t0\n").unwrap();
        exe.inspect(|exe| symlink(exe, path.join("exe")).unwrap());
    }
}

fn shown(table: &ProcessTable, pid: u32) -> Option<(u32, &str, &str)> {
    let process = table.get(None, pid)?;
    Some((process.parent, &process.image, &process.command_line))
}

fn exec(serial: u32, pid: u32, ppid: u32) -> String {
    syscall(
        serial,
        59,
        &format!("success=yes exit=0 a0=0 ppid={ppid} pid={pid}"),
    )
}

#[test]
fn table_of_processes_is_bounded_and_keeps_the_newest() {
    let mut mapping = mapping();
    let long = "61".repeat(3000);
    for pid in 1..=8000 {
        let text = syscall(
            pid,
            59,
            &format!("success=yes exit=0 a0=0 ppid={} pid={pid}", pid - 1),
        ) + &record(pid, &format!("EXECVE argc=1 a0={long}"));
        whole(&mut mapping, &text);
    }
    let table = mapping.processes();
    assert!(table.get(None, 8000).is_some() && table.get(None, 3000).is_some());
    assert!(table.get(None, 1).is_none() && table.get(None, 2000).is_none());
    assert_eq!(table.ancestors(None, 8000, 5).count(), 5);
    // Ids are used again in a circle, and by one process.
    for pid in [1, 2, 3, 1, 1] {
        let text = syscall(
            pid,
            59,
            &format!("success=yes exit=0 a0=0 ppid={} pid={pid}", pid % 3 + 1),
        );
        whole(&mut mapping, &text);
    }
    assert_eq!(mapping.processes().ancestors(None, 1, 64).count(), 64);
}

#[test]
fn processes_are_seeded_from_proc() {
    let proc = Proc::new();
    let place = &proc.0;
    proc.add(7, 3, 1, b"sh\0-c\0x\0", Some("/bin/sh"));
    proc.add(8, 7, 1, b"/usr/sbin/d\0-f\0", None);
    let root = "Name:\td\nUid:\t0\t0\t0\t0\nGid:\t1\t1\t1\t1\n";
    fs::write(place.path().join("8/status"), root).unwrap();
    proc.add(9, 2, 1, b"", None);
    // The argument of a user is no evidence, and an update of a program gives it no other name.
    proc.add(10, 7, 1, b"/usr/bin/apt\0", None);
    proc.add(
        11,
        7,
        1,
        b"nginx: master\0",
        Some("/usr/sbin/nginx (deleted)"),
    );
    let mut table = ProcessTable::default();
    table.seed(place.path());
    assert_eq!(shown(&table, 7), Some((3, "/bin/sh", "sh -c x")));
    assert_eq!(shown(&table, 8), Some((7, "/usr/sbin/d", "/usr/sbin/d -f")));
    assert_eq!(shown(&table, 9), None);
    assert_eq!(shown(&table, 10), None);
    let nginx = (7, "/usr/sbin/nginx", "nginx: master");
    assert_eq!(shown(&table, 11), Some(nginx));
}

#[test]
fn process_that_is_looked_up_is_a_fork_and_not_what_its_arguments_say() {
    let proc = Proc::new();
    proc.add(1, 0, 1, b"init\0", Some("/usr/sbin/init"));
    proc.add(7, 1, 9, b"bash\0", Some("/bin/bash"));
    let mut table = ProcessTable::default();
    table.seed(proc.0.path());
    let mut mapping = Mapping::new(Accounts::default(), table);
    mapping.look_up_in(proc.0.path());
    // A fork of a fork of the shell, one whose parent has ended, and one from before that is of another user.
    proc.add(20, 21, 6000, b"/usr/bin/apt\0", None);
    proc.add(21, 7, 6000, b"/usr/bin/apt\0", None);
    proc.add(22, 1, 6000, b"/usr/bin/apt\0", None);
    proc.add(23, 7, 4000, b"/usr/bin/apt\0", None);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let parents: Vec<Option<String>> = [20, 22, 23]
        .into_iter()
        .map(|ppid| {
            let text = exec(1, 30, ppid).replace("1700000000", &now.as_secs().to_string());
            let seen = whole(&mut mapping, &text);
            let (_, image) = seen[0].split_once(" ParentImage=")?;
            Some(image.to_owned())
        })
        .collect();
    let fork = "/bin/bash ParentCommandLine=bash".to_owned();
    assert_eq!(parents, [Some(fork), None, None]);
}

#[test]
fn programs_of_one_process_hide_no_other_that_lives() {
    let proc = Proc::new();
    let mut mapping = mapping();
    mapping.look_up_in(proc.0.path());
    whole(&mut mapping, &exec(1, 5, 4));
    proc.add(5, 4, 6000, b"", None);
    // Of these two only the one that starts programs is not forgotten without `/proc`.
    whole(&mut mapping, &(exec(2, 6, 4) + &exec(3, 7, 4)));
    for pid in 1000..40_000 {
        whole(&mut mapping, &exec(9, pid, 6));
    }
    let table = mapping.processes();
    assert_eq!(shown(table, 5).map(|(parent, ..)| parent), Some(4));
    assert!(table.get(None, 6).is_some() && table.get(None, 7).is_none());
}

#[test]
fn numbers_that_are_used_again_are_noticed() {
    let mut mapping = mapping();
    whole(&mut mapping, &(exec(1, 7, 3) + &exec(2, 8, 3)));
    // The process 8 has another program and executed none: it is a fork that nobody recorded.
    let open = "success=yes exit=3 a0=1 a1=0 ppid=7 pid=8";
    whole(&mut mapping, &syscall(4, 2, open));
    assert_eq!(shown(mapping.processes(), 8), Some((7, "/usr/bin/4", "")));
    // What was before is news no more.
    whole(&mut mapping, &syscall(3, 2, open));
    assert_eq!(shown(mapping.processes(), 8), Some((7, "/usr/bin/4", "")));
    // A fork in a pid namespace has a number of that, and one that executed a program before the call returns has that.
    let fork = "success=yes exit=7 a0=0 ppid=7 pid=8";
    whole(&mut mapping, &syscall(4, 56, fork));
    assert_eq!(shown(mapping.processes(), 7), Some((3, "/usr/bin/1", "")));
}
