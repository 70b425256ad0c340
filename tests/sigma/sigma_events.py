"""Events of Sigma's log sources from the events of an audit log, as docs/detect.md documents them."""

import ipaddress
import posixpath
import pwd
from collections import namedtuple

from audit_log import Record, arguments, record_fields, syscall_names, text

EXECUTES = {"execve", "execveat"}
CONNECTS = {"connect", "socketcall", "accept", "accept4"}
OPENS = {"open": "a1", "openat": "a2", "open_by_handle_at": "a2"}
CREATES = set(
    "openat2 creat rename renameat renameat2 link linkat symlink symlinkat mknod mknodat truncate truncate64".split()
)
FORKS = {"clone", "clone3", "fork", "vfork"}
# O_WRONLY, O_RDWR, O_CREAT and O_TRUNC.
WRITES = 0o1103
# enum io_uring_op in include/uapi/linux/io_uring.h.
OPERATIONS = {13: "accept", 16: "connect", 18: "openat", 28: "openat2", 35: "renameat", 38: "symlinkat", 39: "linkat"}
# Where the directory descriptors are; other syscalls have none.
DIRECTORIES = {"symlinkat": ["a1"], "renameat": ["a0", "a2"], "renameat2": ["a0", "a2"], "linkat": ["a0", "a2"]}
FIRST_DIRECTORY = {"openat", "openat2", "open_by_handle_at", "mknodat"}
AT_FDCWD = 0xFFFFFF9C

Process = namedtuple("Process", "image command_line told")


def number(record, name, base=10):
    try:
        return int(record.raw[name], base)
    except (KeyError, ValueError):
        return None


def call_name(call):
    if call.kind == "URINGOP":
        return OPERATIONS.get(number(call, "uring_op"), "")
    return syscall_names(call.raw.get("arch")).get(text(call.raw.get("syscall", b"")), "")


def first(records, kind):
    return next((record for record in records if record.kind == kind), Record(kind, {}, {}, {}))


def value(records, kind, name):
    """The text of a field in the first record of a type."""
    found = first(records, kind).values.get(name)
    return None if found is None else text(found)


def calls(records):
    """The record of the syscall, and those of operations of io_uring."""
    found = [record for record in records if record.kind in ("SYSCALL", "URINGOP")]
    return sorted(found, key=lambda call: call.kind != "SYSCALL")


def record_events(records):
    """Fields of each record with those of its syscall, and those of the record alone."""
    call = next(iter(calls(records)), None)
    shared = record_fields(call) if call else {}
    for name in ("type", "items", "a0", "a1", "a2", "a3"):
        shared.pop(name, None)
    has_arguments = False
    for record in records:
        own = record_fields(record)
        if record.kind == "EXECVE":
            if has_arguments:
                continue
            has_arguments = True
            args = {f"a{at}": text(arg) for at, arg in enumerate(arguments(records))}
            own = {"type": "EXECVE", "argc": own.get("argc", "")} | args
        yield shared | own, own


def command_line(records):
    args = arguments(records)
    return " ".join(map(text, args)) if args else value(records, "PROCTITLE", "proctitle") or ""


def user(records, call):
    if "EUID" in call.enriched:
        return text(call.enriched["EUID"])
    euid = number(call, "euid") or 0
    try:
        return pwd.getpwuid(euid).pw_name
    except KeyError:
        return str(euid)


def written_files(name, call, records):
    flags = 0
    if name in OPENS:
        flags = number(call, OPENS[name], 16)
    elif name == "openat2" and call.kind == "SYSCALL":
        flags = number(first(records, "OPENAT2"), "oflag", 8)
    writes = name in ("creat", "truncate", "truncate64") or (flags or 0) & WRITES
    in_cwd = call.kind == "SYSCALL" and all(
        (number(call, arg, 16) or 0) & 0xFFFFFFFF == AT_FDCWD
        for arg in DIRECTORIES.get(name, ["a0"] if name in FIRST_DIRECTORY else [])
    )
    cwd = first(records, "CWD").values.get("cwd") if in_cwd else None
    names = {}
    for path in records:
        kind = path.raw.get("nametype")
        file = path.values.get("name")
        is_directory = ((number(path, "mode", 8) or 0) & 0o170000) == 0o040000
        if path.kind != "PATH" or file is None or is_directory or kind in (b"PARENT", b"DELETE", None):
            continue
        if not writes and kind != b"CREATE":
            continue
        if file.startswith(b"/") or cwd is not None:
            file = b"/" + posixpath.normpath(posixpath.join(cwd or b"/", file)).lstrip(b"/")
        names[text(file)] = None
    return names


def host(address):
    """Address and port in hex; None if it is none of a host."""
    data = bytes.fromhex(text(address))
    if data[:2] == b"\x02\0" and len(data) >= 8:
        return str(ipaddress.IPv4Address(data[4:8])), str(int.from_bytes(data[2:4]))
    if data[:2] == b"\x0a\0" and len(data) >= 24:
        ip = ipaddress.IPv6Address(data[8:24])
        return str(ip.ipv4_mapped or ip), str(int.from_bytes(data[2:4]))
    return None


def whole_event(key, call, records, processes):
    """Log source and fields of the events that a call is."""
    name, exit_code = call_name(call), number(call, "exit") or 0
    success = call.raw.get("success") == b"yes"
    own_image, image = value([call], call.kind, "exe"), value(records, "SYSCALL", "exe")
    known = processes.get((key.node, number(call, "pid")))
    common = {"Image": own_image or image or known and known.image}
    common["LogonId"] = str(number(call, "uid") or 0)
    common["User"] = user(records, call)
    common["ProcessId"] = str(number(call, "pid"))
    if name in EXECUTES and success:
        parent = processes.get((key.node, number(call, "ppid")))
        common["Image"] = own_image
        common["CommandLine"] = command_line(records)
        common["CurrentDirectory"] = value(records, "CWD", "cwd")
        common["ParentProcessId"] = str(number(call, "ppid") or 0)
        common["ParentImage"] = parent and parent.image
        common["ParentCommandLine"] = parent and parent.command_line
        yield "process_creation", common
    elif (name in OPENS or name in CREATES) and success:
        for file in written_files(name, call, records):
            yield "file_event", common | {"TargetFilename": file}
    elif name in CONNECTS and (success or exit_code == -115 and name in ("connect", "socketcall")):
        operation = {b"3": "connect", b"5": "accept", b"12": "accept4"}.get(call.raw.get("a0"))
        name = operation if name == "socketcall" else name
        saddr = first(records, "SOCKADDR").raw.get("saddr")
        address = name and saddr and host(saddr)
        if address:
            side = "Destination" if name == "connect" else "Source"
            common |= {"Initiated": str(name == "connect").lower(), f"{side}Ip": address[0], f"{side}Port": address[1]}
            yield "network_connection", common


def whole_events(key, records, processes):
    """Events of an event as a whole; of each log source those of one call. Remembers processes."""
    done = set()
    for place, call in enumerate(calls(records)):
        found = [event for event in whole_event(key, call, records, processes) if event[0] not in done]
        yield from found
        done |= {source for source, _ in found}
        if place == 0:
            learn(key, call, records, processes)


def learn(key, call, records, processes):
    image = value([call], call.kind, "exe")
    name, pid = call_name(call), (key.node, number(call, "pid"))
    if image is None or not name:
        return
    image = image.removesuffix(" (deleted)")
    executed = name in EXECUTES and call.raw.get("success") == b"yes"
    known = processes.get(pid)
    if executed or known is None or known.told < key[1:] and known.image != image:
        line = command_line(records) if executed else value(records, "PROCTITLE", "proctitle") or ""
        processes[pid] = Process(image, line.encode()[:4096].decode("utf-8", "ignore"), key[1:])
    child = number(call, "exit") or 0
    if name in FORKS and child > 0:
        processes.setdefault((key.node, child), processes[pid]._replace(told=key[1:]))
