"""Writes a log with events made from the commands of a file, and variants of them. See compare.sh."""

import ipaddress
import random
import shlex
import sys

VARIANTS = 60
PIECES = [b"", b" ", b"-", b"/", b"0", b"6", b" 10.", b"x86_64", b"*", b"?", b"%", b"_", b"\\", b"'", b'"', b"\n"]
PIECES += [b"/tmp/", b"-i", b"--help", b"/.x", b"\xff\xe2\x84", b"y" * 200, *(s.encode() for s in "é\u212a\u017f")]
HOSTS = "127.0.0.2 10.1.2.3 192.0.2.7 203.0.113.9 ::1 fe80::1 2001:db8::7 ::ffff:203.0.113.9".split()
PORTS = [22, 53, 443, 888, 2003, 3333, 4444, 8080, 43957]
dice = random.Random(1)
serial = 0


def encoded(value):
    plain = all(0x20 < byte < 0x7F and byte != 0x22 for byte in value)
    return b'"%b"' % value if plain else value.hex().upper().encode()


def write(pid, exe, number, args, *records, result="yes exit=0"):
    """An event of a syscall, with the fields of auditd in some."""
    global serial
    serial += 1
    key = dice.choice([b'"sigma"', b'"susp_activity"', b"73757370010273757370", b"(null)"])
    uid, euid = dice.choice([(0, 0), (33, 33), (1000, 0), (54321, 54321)])
    args = " ".join(f"a{at}={arg:x}" for at, arg in enumerate(args))
    text = f"arch=c000003e syscall={number} success={result} {args} items=1 ppid={pid // 2} pid={pid} auid=1000"
    text = f"{text} uid={uid} gid=0 euid={euid} tty=(none) comm=".encode() + encoded(exe.rpartition(b"/")[2][:15])
    text += b" exe=%b key=%b" % (encoded(exe), key)
    if serial % 3 == 0:
        text += b'\x1dARCH=x86_64 AUID="maria" UID="maria" EUID="www-data"'
    stamp = b"msg=audit(%d.%03d:%d):" % (1790000000 + serial // 100, serial % 1000, serial)
    for record in (b"SYSCALL " + text, *records, b"PROCTITLE proctitle=" + encoded(exe + b"\0-x")):
        kind, _, body = record.partition(b" ")
        log.write(b"type=%b %b %b\n" % (kind, stamp, body))


def varied(word):
    at = dice.randrange(len(word) + 1)
    piece = dice.choice(PIECES)
    inserted = word[:at] + piece + word[at:]
    return dice.choice([word.upper(), word.swapcase(), inserted, word[:at] + piece, word[at:], word])


def variant(words):
    words = list(words)
    at = dice.randrange(len(words))
    match dice.randrange(5):
        case 0:
            words.insert(at, dice.choice(PIECES))
        case 1:
            words = words[:at] + words[at + 1 :] or words
        case 2:
            words = [varied(word) for word in words]
        case _:
            words[at] = varied(words[at])
    return words


def opened(pid, exe, name, flags, kind):
    path = b"PATH item=0 name=%b inode=7 mode=0100644 nametype=%b" % (encoded(name), kind)
    write(pid, exe, 257, (0xFFFFFF9C, 1, flags), b'CWD cwd="/srv/x"', path)


def do(words, pid, vary):
    """The events of a command; the parent of a process has half of its number."""
    verb, inner = words[0], []
    if verb in ("as", "at", "via", "new"):
        words = words[1:]
    if verb == "via":
        words, inner = [words[0], "-c", *words[1:]], commands(words[1])
    words = [word.encode() for word in words]
    words = variant(words) if vary else words
    exe = words[0] if b"/" in words[0] else b"/usr/bin/" + words[0]
    if verb == "new":
        return opened(pid, b"/usr/bin/bash", words[0], 0o101, b"CREATE")
    if verb in ("open_af_alg", "make_node"):
        return write(pid, exe, *((41, (38, 5, 0)) if verb == "open_af_alg" else (133, (1, 0o10644, 0))))
    args = b"".join(b" a%d=%b" % (at, encoded(word)) for at, word in enumerate(words))
    cwd = b"CWD cwd=" + encoded(dice.choice([b"/", b"/tmp", exe]))
    write(pid, exe, 59, (1, 2, 3, 4), b"EXECVE argc=%d%b" % (len(words), args), cwd)
    for word in words:
        if b"/" in word:
            flags, kind = dice.choice([(0, b"NORMAL"), (0o1101, b"NORMAL"), (0o101, b"CREATE"), (0, b"PARENT")])
            opened(pid, exe, word, flags, kind)
    ip, port = ipaddress.ip_address(dice.choice(HOSTS)), dice.choice(PORTS).to_bytes(2)
    address = b"\x02\0" + port + ip.packed if ip.version == 4 else b"\x0a\0" + port + bytes(4) + ip.packed + bytes(4)
    saddr = b"SOCKADDR saddr=" + address.hex().upper().encode()
    result = dice.choice(["yes exit=0", "no exit=-115", "no exit=-111"])
    write(pid, exe, dice.choice([42, 43]), (3, 1, 16), saddr, result=result)
    for command in inner:
        do(command, 2 * pid, vary)


def commands(text):
    """The words of each command in a script."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&{}")
    lexer.commenters, lexer.whitespace_split = "", True
    parts = [[]]
    for word in lexer:
        if word and set(word) <= set(";|&{}"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [words for words in parts if words]


with open(sys.argv[1]) as lines, open(sys.argv[2], "wb") as log:
    texts = [line.split(": ", 1)[1] for line in lines if line.strip() and line[0] not in "#-"]
    for vary in range(VARIANTS):
        for place, text in enumerate(texts):
            for command in commands(text):
                do(command, 100 + 2 * place, vary)
