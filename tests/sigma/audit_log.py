"""Reads the events of an audit log.

Written from the formats of audit-userspace and from docs/detect.md, without the code of tollgate.
"""

import re
from collections import namedtuple
from functools import cache

# Fields of these names are in quotes or in hex: AUPARSE_TYPE_ESCAPED in auparse/typetab.h of audit-userspace 4.2.
ENCODED = set(
    "name comm exe cwd key proctitle path ocomm file watch cmd acct dir vm device cgroup data old-disk new-disk"
    " old-fs new-fs".split()
)
HEADER = re.compile(rb"(?:node=(\S+) )?type=(\S+) msg=audit\((\d+)\.(\d{3}):(\d+)\):")
FIELD = re.compile(rb"""([^ =]+)=("[^"]*"|'.*?'(?= |$)|\{[^}]*\}|[^ ]*)""")
ARGUMENT = re.compile(r"a(\d+)(?:\[\d+\])?")
NOTHING = (b"(null)", b"(none)", b"?")
# x86: number of the architecture, and header with the numbers of its syscalls.
HEADERS = {b"c000003e": "unistd_64.h", b"40000003": "unistd_32.h"}

# node, seconds, milliseconds, serial
Id = namedtuple("Id", "node sec milli serial")
# Values are bytes: raw as written, decoded otherwise. `enriched` is what auditd added.
Record = namedtuple("Record", "kind raw values enriched")


@cache
def syscall_names(arch):
    """Names by numbers."""
    if arch not in HEADERS:
        return {}
    with open(f"/usr/include/x86_64-linux-gnu/asm/{HEADERS[arch]}") as header:
        return {number: name for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read())}


def text(value):
    return value.decode("utf-8", "replace")


def fields(body):
    return [(text(name), value) for name, value in FIELD.findall(body)]


def decoded(kind, name, value):
    """The bytes of a value; None if there are none."""
    if name not in ENCODED and not (kind == "EXECVE" and ARGUMENT.fullmatch(name)):
        return value.strip(b'"')
    if value in NOTHING:
        return None
    if value.startswith(b'"'):
        return value.strip(b'"')
    try:
        return bytes.fromhex(text(value))
    except ValueError:
        return value


def blanks(arguments):
    """Arguments that end with NUL, with blanks between them."""
    return arguments.removesuffix(b"\0").replace(b"\0", b" ")


def record(kind, body):
    kernel, _, added = body.partition(b"\x1d")
    raw = {}
    for name, value in fields(kernel):
        nested = name == "msg" and value.startswith(b"'")
        for name, value in fields(value[1:-1]) if nested else [(name, value)]:
            raw.setdefault(name, value)
    enriched = {name: value.strip(b'"') for name, value in fields(added)}
    decoded_values = ((name, decoded(kind, name, value)) for name, value in raw.items())
    values = {name: value for name, value in decoded_values if value is not None}
    if "proctitle" in values:
        values["proctitle"] = blanks(values["proctitle"])
    return Record(kind, raw, values, enriched)


def record_fields(record):
    """Texts by the names of fields, with the name of the syscall."""
    found = {name: text(value) for name, value in (record.enriched | record.values).items()}
    name = syscall_names(record.raw.get("arch")).get(text(record.raw.get("syscall", b"")))
    if name:
        found.setdefault("SYSCALL", name)
    return {"type": record.kind} | found


def arguments(records):
    """All arguments of the executed program."""
    args = {}
    for part in records:
        for name, value in part.values.items():
            if part.kind == "EXECVE" and (match := ARGUMENT.fullmatch(name)):
                number = int(match[1])
                args[number] = args.get(number, b"") + value
    return list(args.values())


def events(lines):
    """Ids and records of the events, in the order in which they end: with EOE or PROCTITLE, or two seconds later."""
    opened = {}
    for line in lines:
        header = HEADER.match(line)
        if not header:
            continue
        node, kind, sec, milli, serial = header.groups()
        key = Id(node, int(sec), int(milli), int(serial))
        for old in [old for old in opened if old.sec + 2 <= key.sec]:
            yield old, opened.pop(old)
        if kind != b"EOE":
            body = line[header.end() :].rstrip(b"\n")
            opened.setdefault(key, []).append(record(text(kind), body))
        if kind in (b"EOE", b"PROCTITLE") and key in opened:
            yield key, opened.pop(key)
    yield from opened.items()
