//! What the code of each finding stands for: the long form of its message, the same for every rule.

/// Every code, sorted, with its explanation.
const CODES: &[(&str, &str)] = &[
    (
        "after-lock",
        "`-e 2` locks rules and settings until the machine restarts. `auditctl -R` sends the lines of a \
         file in order, so each change after `-e 2` fails with EPERM and is not made. `tollgate daemon` \
         reads all its rule files first and locks last.",
    ),
    (
        "arch-after-syscall",
        "Names of syscalls are looked up in the arch that stands before them. An arch after \
         `-S`, after `-F perm=`, which names syscalls too, or after a watch comes too late, \
         and `auditctl` refuses the rule.",
    ),
    (
        "arch-missing",
        "Syscalls have other numbers for 32-bit programs. A rule without an arch holds the \
         64-bit numbers and matches 32-bit calls by them, which are other calls, and misses \
         those that are meant. Write two rules, with `arch=b64` and `arch=b32`.",
    ),
    (
        "auditing-disabled",
        "`-e 0` disables auditing. The rules stay loaded and record nothing until `auditctl -e 1`.",
    ),
    (
        "bad-comparison",
        "`-C` compares two different fields of one family: user ids with user ids, group ids \
         with group ids. The kernel has a number for each pair that it can compare.",
    ),
    (
        "bad-key",
        "Several keys of a rule are stored with the byte 0x01 between them, so that no key \
         may hold it.",
    ),
    (
        "bad-list",
        "`-a`, `-A` and `-d` take a list and an action with one comma and no space between \
         them: `always,exit`. Lists are task, exit, user, exclude, filesystem and io_uring; \
         actions are always and never.",
    ),
    (
        "bad-number",
        "The field takes a number: decimal, hex after `0x`, octal after `0`.",
    ),
    (
        "bad-operator",
        "Not every operator makes sense for every field. `auditctl` refuses some, the kernel \
         others with EINVAL.",
    ),
    (
        "bad-perm",
        "`perm` and `-p` take up to four of the letters r, w, x and a.",
    ),
    ("bad-setting", "`-e` and `-f` take 0, 1 or 2."),
    (
        "carriage-return",
        "The file has the line ends of another system. `augenrules` takes the carriage return \
         away; `auditctl -R` would take it for a part of the last word, mostly of the key.",
    ),
    (
        "deprecated-action",
        "The action `possible` is of old kernels. `auditctl` passes over the rule.",
    ),
    (
        "dot-dot",
        "The kernel does not resolve `..` in a watch: the path has to be written as it is.",
    ),
    ("empty-key", "An empty key is no key; `auditctl` adds none."),
    (
        "expensive",
        "The rule is evaluated for nearly all syscalls, or for some that busy programs make \
         all the time. On every one of them the task that makes it pays for the evaluation. \
         Name the syscalls that matter, or add conditions that the syscall alone decides, \
         such as `perm`.",
    ),
    (
        "field-on-list",
        "Each list knows some fields only: a new task has no exit status, a record has no \
         path. `auditctl` refuses some combinations, the kernel others with EINVAL.",
    ),
    (
        "foreign-arch",
        "The rule is for another machine than this one. It is loaded, so that one file serves \
         several machines, and matches nothing here.",
    ),
    (
        "kernel-setting",
        "The line sets the queue of the kernel's own audit, or the time that tasks wait for room in \
         it. Here nobody waits. The daemon keeps the number and shows it with `auditctl -s`.",
    ),
    (
        "key-ends-list",
        "On the exclude and user lists the kernel looks at a few fields only, and a key is \
         none of them. Where it meets one it stops reading the list and keeps the record: the \
         rule drops nothing, and neither do the rules after it.",
    ),
    (
        "key-first",
        "A key labels what stands before it: syscalls, a watch, or one of perm, path, dir, \
         exe and fstype. `auditctl` refuses a key after anything else.",
    ),
    (
        "key-operator",
        "A key is a label and is not compared; its operator counts for nothing.",
    ),
    (
        "key-too-long",
        "All keys of a rule, with one byte between each two, may have 256 bytes.",
    ),
    (
        "label-condition",
        "Conditions on security labels are evaluated by a security module: SELinux compares all of \
         them, AppArmor `subj_role`, Smack `subj_user` and `obj_user`. Where none compares it, the kernel \
         takes the rule, and it matches nothing; tollgate does the same. Where one does, tollgate \
         refuses the rule, because it does not read labels.",
    ),
    (
        "line-too-long",
        "`auditctl` reads lines of up to 6144 bytes and takes what is beyond for another \
         line.",
    ),
    (
        "list-first",
        "What a condition may be depends on the list, so that `-a` or `-w` comes first.",
    ),
    (
        "matches-nothing",
        "Nothing can satisfy the rule: its conditions exclude each other, or its syscalls \
         lack what it asks for. Reading and looking, such as read and stat, are in no class \
         of `perm`; a call that names no object satisfies no condition on objects; one that \
         never returns has no success.",
    ),
    (
        "missing-field",
        "A condition is FIELD OPERATOR VALUE without spaces: `auid>=1000`.",
    ),
    (
        "missing-list",
        "A rule begins with its list and action, or is a watch.",
    ),
    (
        "missing-operator",
        "A condition is FIELD OPERATOR VALUE without spaces: `auid>=1000`. Operators are = != \
         < > <= >= & &=.",
    ),
    (
        "missing-sibling",
        "Linux keeps old syscalls and adds newer ones that do the same: openat2 beside \
         openat, fchmodat2 beside fchmodat. A program that uses one that no rule names is not \
         seen. Newer ones may take arguments elsewhere, so that conditions on `a0` to `a3` \
         need a rule of their own.",
    ),
    (
        "missing-value",
        "The option or condition has nothing to its right.",
    ),
    (
        "never-matches",
        "The condition cannot hold: the kernel compares without signs, so that nothing is \
         below 0; on the exclude and user lists it looks at a few fields only and stops at \
         any other; on the task list it does not know the program.",
    ),
    ("newline", "One line holds one command."),
    (
        "no-io-uring",
        "What a program asks of the kernel through io_uring is no syscall. The kernel's own audit \
         has a list of its own for it. Here rules for syscalls are about it too on the engine \
         fentry; on the engine tracepoint only the list is.",
    ),
    (
        "no-key",
        "Events carry the key of the rule that chose them. Without one they can only be found \
         by their content.",
    ),
    (
        "no-such-rule",
        "`-d` and `-W` take away the rule that is equal in all fields, in their order. None \
         of those loaded is.",
    ),
    (
        "not-a-number",
        "`auditctl` takes text that is no number for 0 in this field.",
    ),
    (
        "not-in-file",
        "The option is for the command line of `auditctl` and does nothing among rules.",
    ),
    (
        "nul-byte",
        "Rule files are text: a NUL byte is a sign of damage, and `auditctl` does not see \
         what follows it.",
    ),
    (
        "number-cut",
        "The kernel compares 32 bits; what is above them counts for nothing.",
    ),
    (
        "number-rest",
        "C reads a number up to the first byte that is no digit; the rest is passed over.",
    ),
    (
        "number-too-large",
        "The number does not fit the field. `auditctl` would keep its low 32 bits, so that \
         `uid=4294967296` is root.",
    ),
    (
        "one-arch",
        "On a 64-bit machine 32-bit programs make their own syscalls, and any user can \
         compile one. A rule with `arch=b64` alone does not see them.",
    ),
    (
        "panic-on-loss",
        "With `-f 2`, tollgate panics the kernel through `/proc/sysrq-trigger` when an event is lost on its \
         way to the log. The kernel's audit makes tasks wait for room in its queue first; tollgate does not, \
         so the panic comes sooner.",
    ),
    (
        "perm-first",
        "`-p` belongs to a watch, or to conditions that stand before it; `auditctl` refuses \
         it elsewhere.",
    ),
    (
        "positive-errno",
        "A call that fails returns the negative error: `exit=EACCES` is 13, which a failed \
         call never returns.",
    ),
    (
        "relative-path",
        "Paths in rules begin at the root. There are no quotes, no `~` and no working \
         directory.",
    ),
    (
        "rule-exists",
        "The kernel refuses a rule that it has already, and `auditctl -R` stops there.",
    ),
    (
        "shadowed",
        "The first rule of a list that matches decides. An earlier rule matches everything \
         that this one matches, so that this one never decides: its key is never logged, its \
         action never taken.",
    ),
    (
        "stray-word",
        "The word belongs to no option. Rules have no quotes: a space in a value is written \
         `\\ `, and a comment has a line of its own.",
    ),
    (
        "syscall-class",
        "The top 16 bits of the kernel's syscall mask stand for classes of syscalls, such as those \
         that write to directories: the kernel puts the calls of the class in their place. \
         `auditctl` never names them; only their numbers do.",
    ),
    (
        "syscall-on-list",
        "Only the exit and io_uring lists are about syscalls or operations.",
    ),
    (
        "syscall-with-watch",
        "A watch is for all syscalls; version 4 of `auditctl` refuses one after `-S`.",
    ),
    (
        "tab",
        "`auditctl` splits words at spaces only: a tab is a part of a word.",
    ),
    (
        "too-many-fields",
        "A rule has room for 63 conditions, arch and key among them.",
    ),
    (
        "trailing-slash",
        "The kernel answers EINVAL to a path that ends in a slash; a directory is watched \
         with `dir=`.",
    ),
    ("two-commands", "One line holds one command."),
    (
        "two-objects",
        "The kernel takes one of path, dir and inode, and one exe, in a rule, and answers \
         EINVAL to more.",
    ),
    ("two-rules", "One line holds one rule."),
    (
        "unknown-arch",
        "Archs are `b64` and `b32` of the machine at hand, names of machines such as \
         `aarch64`, or numbers of ELF machines.",
    ),
    (
        "unknown-errno",
        "Errors are named as in errno(3), with a minus for calls that failed: `-EACCES`.",
    ),
    (
        "unknown-field",
        "No version of `auditctl` knows a field of this name.",
    ),
    (
        "unknown-filetype",
        "File types are file, dir, socket, link, character, block and fifo.",
    ),
    (
        "unknown-fstype",
        "File systems are tracefs, debugfs, cgroup, cgroup2, or magic numbers of statfs(2).",
    ),
    (
        "unknown-group",
        "The name is in no group database of this machine. Rules hold numbers, so that the \
         name must be known where they are loaded.",
    ),
    (
        "unknown-msgtype",
        "Record types are named as in the log, such as CWD; numbers do as well.",
    ),
    ("unknown-option", "`auditctl` has no such option."),
    (
        "unknown-syscall",
        "The arch has no syscall of this name, and io_uring no operation that the kernel \
         audits. Numbers below 2048 are taken as they are.",
    ),
    (
        "unknown-user",
        "The name is in no user database of this machine. Rules hold numbers, so that the \
         name must be known where they are loaded.",
    ),
    (
        "unset-id",
        "Only login uids and sessions can be unset; the kernel answers EINVAL for others.",
    ),
    (
        "unsupported",
        "Mounts below watched directories are followed without being told.",
    ),
    ("unwanted-value", "The option takes no value."),
    (
        "value-too-long",
        "Paths have fewer than 4096 bytes, file names at most 255.",
    ),
    (
        "wildcard",
        "The kernel knows no wildcards: `*` and `?` are taken as they are.",
    ),
];

/// What a code stands for.
#[must_use]
pub fn explain(code: &str) -> Option<&'static str> {
    let index = CODES
        .binary_search_by_key(&code, |&(known, _)| known)
        .ok()?;
    CODES.get(index).map(|&(_, text)| text)
}

/// Every code, sorted.
pub fn all() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|&(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_explained() {
        assert!(CODES.is_sorted_by(|a, b| a.0 < b.0));
        for &(code, text) in CODES {
            assert!(text.ends_with('.'), "{code}");
            assert_eq!(explain(code), Some(text));
        }
        assert_eq!(explain("frobnicate"), None);
        assert_eq!(all().count(), CODES.len());
    }
}
