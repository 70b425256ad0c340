//! Explanations of finding codes.

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
        "Syscall names depend on the arch, which must come first. `auditctl` refuses an arch after `-S`, \
         after `-F perm=`, which also selects syscalls, or after a watch.",
    ),
    (
        "arch-missing",
        "Syscalls have other numbers for 32-bit programs. A rule without an arch contains the \
         64-bit numbers. It matches other 32-bit syscalls with these numbers, and misses the intended \
         ones. Write two rules, with `arch=b64` and `arch=b32`.",
    ),
    (
        "auditing-disabled",
        "`-e 0` disables auditing. The rules stay loaded and record nothing until `auditctl -e 1`.",
    ),
    (
        "bad-comparison",
        "`-C` compares two different fields of the same kind: user ids with user ids, group ids \
         with group ids. The kernel supports a fixed list of pairs.",
    ),
    (
        "bad-key",
        "The byte 0x01 separates the keys of a rule, so a key cannot contain it.",
    ),
    (
        "bad-list",
        "`-a`, `-A` and `-d` take a list and an action with one comma and no space between \
         them: `always,exit`. Lists are task, exit, user, exclude, filesystem and io_uring; \
         actions are always and never.",
    ),
    (
        "bad-number",
        "The value must be a number: decimal, hex after `0x`, or octal after `0`.",
    ),
    (
        "bad-operator",
        "Not every operator is valid for every field. `auditctl` refuses some combinations; the kernel \
         answers EINVAL to others.",
    ),
    (
        "bad-perm",
        "`perm` and `-p` accept up to four of the letters r, w, x and a.",
    ),
    ("bad-setting", "`-e` and `-f` accept 0, 1 or 2."),
    (
        "byte-order-mark",
        "Some editors write the bytes EF BB BF at the start of a file. They become part of its first word, so that line \
         is no rule.",
    ),
    (
        "carriage-return",
        "The file has Windows line ends. `augenrules` removes the carriage return. `auditctl -R` \
         takes it as part of the last word, usually the key.",
    ),
    (
        "deprecated-action",
        "The action `possible` was removed from the kernel. `auditctl` skips the rule.",
    ),
    (
        "dot-dot",
        "The kernel does not resolve `..` in a watch. Write the path without it.",
    ),
    ("empty-key", "`auditctl` ignores an empty key."),
    (
        "expensive",
        "The rule is evaluated for nearly all syscalls, or for frequent ones. Each evaluation costs \
         time in the calling task. Name the relevant syscalls, or add conditions that select syscalls, \
         such as `perm`.",
    ),
    (
        "field-on-list",
        "Each list supports some fields only: a new task has no exit status, a record has no \
         path. `auditctl` refuses some combinations; the kernel answers EINVAL to others.",
    ),
    (
        "foreign-arch",
        "The rule is for another architecture. It is loaded but matches nothing on this host, so \
         one file can serve different hosts.",
    ),
    (
        "kernel-setting",
        "The line sets the backlog limit of kernel audit, or the time that tasks wait for it. tollgate \
         never makes tasks wait. The daemon stores the number and `auditctl -s` shows it.",
    ),
    (
        "key-ends-list",
        "On the exclude and user lists the kernel evaluates only a few fields, and a key is not one \
         of them. At a key it stops evaluating the list and keeps the record. Neither this rule nor the \
         rules after it exclude anything.",
    ),
    (
        "key-first",
        "A key must follow syscalls, a watch, or one of perm, path, dir, exe and fstype. `auditctl` \
         refuses it elsewhere.",
    ),
    (
        "key-operator",
        "A key is a label and is not compared. Its operator has no effect.",
    ),
    (
        "key-too-long",
        "All keys of a rule, with one separator between them, are limited to 256 bytes.",
    ),
    (
        "label-condition",
        "Security modules evaluate conditions on security labels: SELinux all of them, AppArmor \
         `subj_role`, Smack `subj_user` and `obj_user`. Without such a module the kernel accepts the rule, \
         which then matches nothing; tollgate does the same. With such a module tollgate refuses the \
         rule, because it does not evaluate labels.",
    ),
    (
        "line-too-long",
        "`auditctl` reads lines of up to 6144 bytes and takes the rest as another line.",
    ),
    (
        "list-first",
        "The valid conditions depend on the list, so `-a` or `-w` must come first.",
    ),
    (
        "locks",
        "After `-e 2` nobody can change rules, settings or the log until the machine restarts. Every later daemon \
         continues with them, whatever its files and options say, and only the same build of tollgate can: \
         a daemon that was started for a trial binds those after it, and an upgrade needs a reboot.",
    ),
    (
        "matches-nothing",
        "The rule cannot match: its conditions exclude each other, or its syscalls never have the \
         required property. Syscalls such as read and stat are in no class of `perm`. A syscall that names \
         no object matches no condition on objects. A syscall that never returns has no success.",
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
        "Linux adds new syscalls for the same operation: openat2 and openat, fchmodat2 and fchmodat. \
         Rules do not match programs that use a variant that they do not name. New variants may \
         have other arguments: conditions on `a0` to `a3` then need a separate rule.",
    ),
    ("missing-value", "The option or condition has no value."),
    (
        "never-matches",
        "The condition cannot match. The kernel compares unsigned numbers, so nothing is less than 0. \
         On the exclude and user lists it evaluates only a few fields and stops at any other. On the \
         task list it does not know the program.",
    ),
    ("newline", "One line holds one command."),
    (
        "no-io-uring",
        "An io_uring operation is not a syscall. Kernel audit has a separate list for these operations. \
         In tollgate, rules for syscalls also match them on the engine fentry; on the engine tracepoint \
         only rules of the list do.",
    ),
    (
        "no-key",
        "Events contain the key of the matching rule. Without a key they can only be found by their \
         content.",
    ),
    (
        "no-such-rule",
        "`-d` and `-W` delete the rule with the same fields in the same order. No such rule is loaded.",
    ),
    (
        "not-a-number",
        "`auditctl` reads text that is not a number as 0 in this field.",
    ),
    (
        "not-in-file",
        "The option is for the command line of `auditctl` and has no effect in rule files.",
    ),
    (
        "nul-byte",
        "Rule files are text. A NUL byte indicates a damaged file, and `auditctl` ignores the text \
         after it.",
    ),
    (
        "number-cut",
        "The kernel compares the low 32 bits and ignores the others.",
    ),
    (
        "number-rest",
        "`auditctl` parses a number up to the first byte that is not a digit and ignores the rest.",
    ),
    (
        "number-too-large",
        "The number is too large for the field. `auditctl` would use its low 32 bits: \
         `uid=4294967296` is root.",
    ),
    (
        "one-arch",
        "On a 64-bit host 32-bit programs use other syscall numbers, and any user can compile one. \
         A rule with `arch=b64` does not match them.",
    ),
    (
        "panic-on-loss",
        "With `-f 2`, tollgate panics the kernel through `/proc/sysrq-trigger` when an event is lost on its \
         way to the log. The kernel's audit makes tasks wait for room in its queue first; tollgate does not, \
         so the panic comes sooner.",
    ),
    (
        "pasted-dash",
        "Options begin with the hyphen of the keyboard (U+002D). Text that was copied from a web page or a \
         document often has a dash that looks like it; `auditctl` takes the word for a stray one.",
    ),
    (
        "perm-first",
        "`-p` must follow a watch or a condition. `auditctl` refuses it elsewhere.",
    ),
    (
        "positive-errno",
        "A failed syscall returns the negative errno: `exit=EACCES` is 13, which a failed syscall never \
         returns.",
    ),
    (
        "quoted-key",
        "Rules have no quotes: those around a key are part of it, and a search for the key without them finds nothing.",
    ),
    (
        "relative-path",
        "Paths in rules must be absolute. Rules have no quotes, no `~` and no working directory.",
    ),
    (
        "rule-exists",
        "The kernel refuses a rule that is already loaded, and `auditctl -R` stops at it.",
    ),
    (
        "shadowed",
        "The first matching rule of a list decides. An earlier rule matches everything that this \
         rule matches, so this rule has no effect: its key is never logged and its action is never \
         taken.",
    ),
    (
        "stray-word",
        "The word belongs to no option. Rules have no quotes: write a space in a value as `\\ `, and \
         a comment on a separate line.",
    ),
    (
        "syscall-class",
        "The top 16 bits of the kernel's syscall mask are classes of syscalls, such as those that \
         write to directories. The kernel replaces each with the syscalls of the class. `auditctl` has no \
         names for them, only numbers.",
    ),
    (
        "syscall-on-list",
        "Only rules of the exit and io_uring lists have syscalls or operations.",
    ),
    (
        "syscall-with-watch",
        "A watch covers all syscalls. Version 4 of `auditctl` refuses a watch after `-S`.",
    ),
    (
        "tab",
        "`auditctl` splits words at spaces only. A tab is part of a word.",
    ),
    (
        "too-many-fields",
        "A rule has at most 63 conditions, including arch and key.",
    ),
    (
        "trailing-slash",
        "The kernel answers EINVAL to a path that ends in a slash. Use `dir=` to watch a directory.",
    ),
    ("two-commands", "One line holds one command."),
    (
        "two-objects",
        "The kernel accepts one of path, dir and inode, and one exe, in a rule, and answers EINVAL \
         to more.",
    ),
    ("two-rules", "One line holds one rule."),
    (
        "unknown-arch",
        "Archs are `b64` and `b32` of this host, machine names such as `aarch64`, or ELF machine \
         numbers.",
    ),
    (
        "unknown-errno",
        "Errors have the names of errno(3), with a minus for failed syscalls: `-EACCES`.",
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
        "This host has no group of this name. Rules contain numbers, so the name must exist on the \
         host that loads them.",
    ),
    (
        "unknown-msgtype",
        "Record types have the names of the log, such as CWD, or numbers.",
    ),
    ("unknown-option", "`auditctl` has no such option."),
    (
        "unknown-syscall",
        "The arch has no syscall of this name, or io_uring has no audited operation of this name. \
         Numbers below 2048 are always accepted.",
    ),
    (
        "unknown-user",
        "This host has no user of this name. Rules contain numbers, so the name must exist on the \
         host that loads them.",
    ),
    (
        "unset-id",
        "Only the login uid and the session can be unset. The kernel answers EINVAL for other fields.",
    ),
    (
        "unsupported",
        "Watches always include mounts below the watched directory.",
    ),
    ("unwanted-value", "The option does not accept a value."),
    (
        "value-too-long",
        "Paths have at most 4095 bytes, file names at most 255.",
    ),
    (
        "wildcard",
        "The kernel has no wildcards: `*` and `?` are literal characters, so the condition matches only a file \
         whose name contains them.",
    ),
];

/// Returns the explanation of a code.
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
