//! Random rule lists that the parsers of both auditors accept, with all kinds of conditions.

mod vocabulary;

use std::collections::BTreeSet;

use super::list_workload::{ListSubject, ListWorkload};
use super::random::Random;
use vocabulary::{
    ALL, ARGUMENTS, DIRECTORIES, EQUALITY, EXITS, FILES, FILESYSTEMS, OPERATIONS, ORDERED, PAIRS,
    PERMS, SYSCALLS_32, SYSCALLS_64,
};

/// The lines of the filesystem list; half of the runs have some.
pub(super) fn filesystems(random: &mut Random) -> Vec<String> {
    if random.once_in(2) {
        return Vec::new();
    }
    let chosen = random.some(&FILESYSTEMS, 2).into_iter();
    let lines = chosen.map(|condition| {
        let action = if random.once_in(4) { "always" } else { "never" };
        format!("-a {action},filesystem -F fstype{condition}")
    });
    lines.collect()
}

/// The subject of a list: its first random choice.
pub(super) fn subject(random: &mut Random) -> ListSubject {
    if random.once_in(6) {
        ListSubject::Operations
    } else {
        ListSubject::Calls
    }
}

/// The lines of one list.
pub(super) fn list(random: &mut Random, workload: &ListWorkload) -> Vec<String> {
    let subject = subject(random);
    let scope = random.pick(&[0, 1, 2, 3, 4, 5, 6]);
    let mut writer = Writer {
        scope: workload.scopes()[scope].clone(),
        workload,
        random,
        has_object: false,
        has_program: false,
        has_place: false,
    };
    let count = 1 + writer.random.below(6);
    // The kernel rejects a duplicate rule.
    let mut known = BTreeSet::new();
    let mut lines = Vec::new();
    for number in 0..count {
        let rule = match subject {
            ListSubject::Calls => writer.rule(),
            ListSubject::Operations => writer.of_operations(),
        };
        let line = rule + &writer.keys(number);
        if known.insert(line.clone()) {
            let verb = if writer.random.once_in(5) { "-A" } else { "-a" };
            lines.push(if line.starts_with("-w") {
                line
            } else {
                format!("{verb} {line}")
            });
        }
    }
    lines
}

struct Writer<'a> {
    /// A condition that only the list's task meets.
    scope: String,
    workload: &'a ListWorkload,
    random: &'a mut Random,
    /// Whether the rule has an `exe` field: the kernel accepts one per rule.
    has_program: bool,
    /// Whether the rule has a path, directory or inode: the kernel accepts one per rule.
    has_place: bool,
    /// Whether a rule names an object. The kernel evaluates rules with objects object by object, and stops at the first
    /// object that a rule names.
    has_object: bool,
}

impl Writer<'_> {
    fn rule(&mut self) -> String {
        self.has_program = false;
        self.has_place = false;
        let action = if self.random.once_in(4) {
            "never"
        } else {
            "always"
        };
        match self.random.below(12) {
            0 if !self.has_object => self.watch(),
            1 if !self.has_object => {
                (self.has_object, self.has_place) = (true, true);
                let name = self.random.pick(&FILES);
                let place = &self.workload.place;
                let object = format!(" -F path={place}/{name}");
                self.about_objects(action, &object)
            }
            2 if !self.has_object => {
                (self.has_object, self.has_place) = (true, true);
                let inode = self.workload.kept().map_or(1, |(inode, _)| inode);
                self.about_objects(action, &format!(" -F inode={inode}"))
            }
            3 | 4 => {
                self.has_place = true;
                let below = self.random.pick(&DIRECTORIES);
                let place = &self.workload.place;
                let object = format!(" -F dir={place}{below}");
                self.about_objects(action, &object)
            }
            5 => {
                let object = self.of_objects();
                self.about_objects(action, &object)
            }
            _ => {
                let (arch, calls) = self.calls();
                let fields = self.fields(3);
                let scope = self.scope.clone();
                format!("{action},exit{arch}{calls}{fields} -F {scope}")
            }
        }
    }

    /// A rule of the `io_uring` list.
    fn of_operations(&mut self) -> String {
        self.has_program = false;
        let action = if self.random.once_in(3) {
            "never"
        } else {
            "always"
        };
        let operations = if self.random.once_in(5) {
            "all".to_owned()
        } else {
            self.random.some(&OPERATIONS, 6).join(",")
        };
        let count = self.random.below(3);
        let fields: String = (0..count).map(|_| self.of_worker()).collect();
        let scope = &self.scope;
        format!("{action},io_uring -S {operations}{fields} -F {scope}")
    }

    /// Fields that the `io_uring` list accepts and that are equal for a worker and the program.
    fn of_worker(&mut self) -> String {
        let place = &self.workload.place;
        match self.random.below(6) {
            0 if !self.has_program => {
                self.has_program = true;
                let op = self.random.pick(&EQUALITY);
                let program = self.random.pick(&["wide", "ring"]);
                format!(" -F exe{op}{place}/{program}")
            }
            1 => {
                let parent = std::process::id();
                format!(" -F pid{}{parent}", self.random.pick(&ORDERED))
            }
            2 => format!(" -F pers{}0", self.random.pick(&ALL)),
            _ => self.of_ids(),
        }
    }

    fn watch(&mut self) -> String {
        self.has_object = true;
        let place = &self.workload.place;
        let name = self
            .random
            .pick(&["kept", "file", "secret", "new", "sub", "full", "link"]);
        let perm = self.random.pick(&PERMS);
        format!("-w {place}/{name} -p {perm}")
    }

    /// A rule with an object. `perm` precedes `arch`: after it, one version of `auditctl` would add syscalls to the
    /// rule and the other would not.
    fn about_objects(&mut self, action: &str, object: &str) -> String {
        let perm = if self.random.once_in(3) {
            String::new()
        } else {
            format!(" -F perm={}", self.random.pick(&PERMS))
        };
        let (arch, calls) = match self.random.below(3) {
            _ if perm.is_empty() => self.calls(),
            0 => self.calls(),
            1 => (self.arch(), " -S all".to_owned()),
            _ => (String::new(), " -S all".to_owned()),
        };
        let fields = self.fields(2);
        let scope = self.scope.clone();
        format!("{action},exit{perm}{arch}{calls}{object}{fields} -F {scope}")
    }

    fn arch(&mut self) -> String {
        self.random
            .pick(&[" -F arch=b64", " -F arch=b64", " -F arch=b32"])
            .to_owned()
    }

    /// Arch and syscalls; without an arch the numbers are those of the 64-bit table and apply to both ABIs.
    fn calls(&mut self) -> (String, String) {
        let arch = if self.random.once_in(6) {
            String::new()
        } else {
            self.arch()
        };
        let calls = if arch.ends_with("b32") {
            self.random.some(&SYSCALLS_32, 8)
        } else {
            self.random.some(&SYSCALLS_64, 12)
        };
        (arch, format!(" -S {}", calls.join(",")))
    }

    fn fields(&mut self, most: usize) -> String {
        let count = self.random.below(most + 1);
        (0..count).map(|_| self.field()).collect()
    }

    fn field(&mut self) -> String {
        match self.random.below(16) {
            0..=3 => self.of_ids(),
            4 | 5 => {
                let (op, value) = (self.random.pick(&ORDERED), self.random.pick(&EXITS));
                format!(" -F exit{op}{value}")
            }
            6 => {
                let (op, value) = (self.random.pick(&EQUALITY), self.random.pick(&["0", "1"]));
                format!(" -F success{op}{value}")
            }
            7..=9 => {
                let argument = self.random.below(4);
                let (op, value) = (self.random.pick(&ALL), self.random.pick(&ARGUMENTS));
                format!(" -F a{argument}{op}{value}")
            }
            10 | 11 => {
                let (left, right) = self.random.pick(&PAIRS).split_once(':').unwrap_or_default();
                let op = self.random.pick(&EQUALITY);
                let swapped = self.random.once_in(2);
                let (left, right) = if swapped {
                    (right, left)
                } else {
                    (left, right)
                };
                format!(" -C {left}{op}{right}")
            }
            12 => self.of_objects(),
            13 if !self.has_program => {
                self.has_program = true;
                let place = &self.workload.place;
                let op = self.random.pick(&EQUALITY);
                let program = self.random.pick(&["wide", "narrow", "end", "text"]);
                format!(" -F exe{op}{place}/{program}")
            }
            14 if self.random.once_in(2) => {
                let (op, family) = (
                    self.random.pick(&ORDERED),
                    self.random.pick(&["0", "1", "2", "10"]),
                );
                format!(" -F saddr_fam{op}{family}")
            }
            14 => {
                let (op, value) = (
                    self.random.pick(&ALL),
                    self.random.pick(&["0", "0x40000", "8"]),
                );
                format!(" -F pers{op}{value}")
            }
            13 => self.of_labels(),
            _ => self.of_task(),
        }
    }

    /// Fields that no LSM of a test machine compares.
    fn of_labels(&mut self) -> String {
        let field =
            self.random
                .pick(&["subj_user", "subj_type", "subj_clr", "obj_role", "obj_type"]);
        let op = self.random.pick(&EQUALITY);
        format!(" -F {field}{op}x")
    }

    fn of_ids(&mut self) -> String {
        let names = [
            "uid", "euid", "suid", "fsuid", "gid", "egid", "sgid", "fsgid", "auid",
        ];
        let name = self.random.pick(&names);
        let op = self.random.pick(&ORDERED);
        if name == "auid" && self.random.once_in(4) {
            return format!(" -F auid{}unset", self.random.pick(&EQUALITY));
        }
        let value = match self.random.below(10) {
            0 => "0".to_owned(),
            1 => "1000".to_owned(),
            2 => "7".to_owned(),
            _ => {
                (self.workload.ids + u32::try_from(self.random.below(12)).unwrap_or(0)).to_string()
            }
        };
        format!(" -F {name}{op}{value}")
    }

    fn of_task(&mut self) -> String {
        let parent = std::process::id().to_string();
        match self.random.below(4) {
            0 => format!(" -F ppid{}{parent}", self.random.pick(&ORDERED)),
            1 => format!(" -F pid{}{parent}", self.random.pick(&ORDERED)),
            2 => format!(" -F sessionid{}unset", self.random.pick(&EQUALITY)),
            _ => format!(" -F sessionid{}0", self.random.pick(&ORDERED)),
        }
    }

    fn of_objects(&mut self) -> String {
        let (inode, device) = self.workload.kept().unwrap_or_default();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff);
        let owner = self.workload.ids + u32::try_from(self.random.below(10)).unwrap_or(0);
        match self.random.below(8) {
            0 | 1 => {
                let types = ["file", "dir", "fifo", "link", "socket", "character"];
                let (op, kind) = (self.random.pick(&EQUALITY), self.random.pick(&types));
                format!(" -F filetype{op}{kind}")
            }
            2 | 3 => {
                let owner = self.random.pick(&[owner, owner, 0]);
                format!(" -F obj_uid{}{owner}", self.random.pick(&ORDERED))
            }
            4 | 5 => {
                let owner = self.random.pick(&[owner, owner, 0]);
                format!(" -F obj_gid{}{owner}", self.random.pick(&ORDERED))
            }
            6 if !self.has_place => {
                self.has_place = true;
                format!(" -F inode!={inode}")
            }
            6 => format!(" -F devmajor{}{major}", self.random.pick(&ORDERED)),
            _ => format!(" -F devminor{}{minor}", self.random.pick(&ALL)),
        }
    }

    fn keys(&mut self, number: usize) -> String {
        let list = self.workload.number;
        match self.random.below(8) {
            0 => String::new(),
            1 => format!(" -k l{list}r{number} -k second"),
            _ => format!(" -k l{list}r{number}"),
        }
    }
}

#[cfg(test)]
mod tests;
