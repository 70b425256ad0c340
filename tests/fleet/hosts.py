"""Logs of simulated hosts, shipped by the real program, and what is known of them."""

import shutil
import subprocess
import time
from pathlib import Path

FIRST = 0x80000001
# Midnight of 20 November 2026.
DAY_1 = 1795132800
DAY_2 = DAY_1 + 86400
UNSET = 4294967295


class Host:
    """A host with its log, the state of its shipper, and the directory of all files."""

    def __init__(self, name, programs, work):
        self.name = name
        self.programs = programs
        self.place = work / "hosts" / name.replace(":", "_")
        self.log = self.place / "log/audit.log"
        self.state = self.place / "state"
        # What was shipped, for `tollgate search`.
        self.whole = self.place / "whole.log"
        self.files = work / "audit"
        for directory in [self.log.parent, self.state, self.files]:
            directory.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        boots = [(DAY_1 - 3600, f"first-{name}"), (DAY_2 - 3600, f"second-{name}")]
        (self.state / "boots").write_text("".join(f"{at}000 {boot}\n" for at, boot in boots))

    def append(self, lines):
        for path in [self.log, self.whole]:
            with path.open("a") as log:
                log.write(lines)

    def ship(self, rows=400):
        (self.place / "ship.toml").write_text(
            f'log = "{self.log.resolve()}"\nhost = "{self.name}"\n'
            f'[parquet.archive]\ndirectory = "{self.files.resolve()}"\nstart = "begin"\nrows = {rows}\n'
        )
        command = [f"{self.programs}/tollgate-ship", "run", "--once", "--state", self.state]
        subprocess.run(command + ["--config", self.place / "ship.toml"], check=True, stderr=subprocess.DEVNULL)
        # Heartbeats of two runs have different times.
        time.sleep(0.01)

    def search(self, expression):
        command = [f"{self.programs}/tollgate-search", "--log", self.whole, "--count", expression]
        return int(subprocess.run(command, check=False, stdout=subprocess.PIPE).stdout)


def stamp(at, serial):
    return f"msg=audit({at // 1000}.{at % 1000:03}:{serial}): "


def call(at, serial, number=59, key='"exec"', exe="/usr/bin/id", success=True, code=0, auid=1000, uid=0, more=""):
    """A syscall; `more` is the records after the first, with `@` for the stamp."""
    head = stamp(at, serial)
    more = more or f'type=CWD @cwd="/"\ntype=PATH @item=0 name="{exe}" inode=7 dev=fe:00 mode=0100755 ouid=0 ogid=0 ' \
        "rdev=00:00 nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n"
    return (
        f"type=SYSCALL {head}arch=c000003e syscall={number} success={'yes' if success else 'no'} exit={code} a0=1 a1=2 "
        f"a2=3 a3=4 items=1 ppid=1 pid=77 auid={auid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} "
        f'sgid={uid} fsgid={uid} tty=pts0 ses=3 comm="x" exe="{exe}" subj=unconfined key={key}\n'
        + more.replace("@", head)
        + f'type=PROCTITLE {head}proctitle="x"\n'
    )


def calls(at, serial, count, **fields):
    """Calls with ascending serials, ten milliseconds apart."""
    return "".join(call(at + 10 * number, serial + number, **fields) for number in range(count))


def connect(address):
    return dict(number=42, key='"net"', exe="/usr/bin/curl", success=False, code=-115, uid=33,
                more=f"type=SOCKADDR @saddr={address}\n")


def user(at, serial, kind, message, auid=1000):
    return f"type={kind} {stamp(at, serial)}pid=9 uid=0 auid={auid} ses=3 subj=unconfined msg='{message}'\n"


def simulate(programs, work):
    """Ships the logs of all hosts. Returns the hosts."""
    first, second = DAY_1 * 1000, DAY_2 * 1000
    made = {name: Host(name, programs, work) for name in ["web1", "web2", "db1", "12", "fd00::7"]}

    # Two boots; 500 events come twice, in files of other sizes, and 300 are written again to a file of the same name.
    web1 = made["web1"]
    web1.append(calls(first, FIRST, 500))
    web1.ship()
    position = web1.state / "archive.position"
    kept = position.read_text()
    web1.append(calls(first + 60_000, FIRST + 500, 500, key='"exec"\x1dARCH=x86_64'))
    web1.ship()
    position.write_text(kept)
    web1.append(calls(second, FIRST, 100))
    web1.ship(rows=300)
    kept = position.read_text()
    web1.append(calls(second + 60_000, FIRST + 100, 280, **connect("020001BB01020304")))
    web1.append(calls(second + 90_000, FIRST + 380, 20, exe="/tmp/new"))
    web1.ship()
    position.write_text(kept)
    web1.ship()

    # Serials that the log does not have, losses that it tells, and failed opens of /etc/shadow by one user.
    web2 = made["web2"]
    shadow = 'type=CWD @cwd="/etc"\ntype=PATH @item=0 name="shadow" inode=8 nametype=NORMAL\n'.replace(
        'name="shadow"', 'name="/etc/shadow"')
    web2.append(calls(first, FIRST, 50))
    web2.append(calls(first + 10_000, FIRST + 55, 7, number=257, key="6578656301736861646F77", exe="/usr/bin/cat",
                      success=False, code=-13, auid=1001, uid=1001, more=shadow))
    lost = 'type=DAEMON_ERR {}op=lost-events lost={} reason="{}" res=failed\n'
    web2.append(lost.format(stamp(first + 20_000, 1), 3, "ring-full"))
    web2.append(lost.format(stamp(first + 21_000, 2), 4, "ring-full"))
    web2.append(lost.format(stamp(first + 22_000, 3), 9, "log"))
    web2.append(calls(first + 30_000, FIRST + 70, 30, key="(null)"))
    web2.ship()

    # 200 events rotate away before they are sent.
    db1 = made["db1"]
    db1.append(calls(first, FIRST, 100))
    db1.ship()
    db1.log.unlink()
    db1.append(calls(first + 60_000, FIRST + 300, 60))
    db1.append(calls(first + 70_000, FIRST + 360, 5, **connect("0A00153800000000" + "20010DB8" + "0" * 23 + "1" + "0" * 8)))
    db1.append(calls(first + 71_000, FIRST + 365, 5, **connect("0100" + "/run/x".encode().hex().upper())))
    db1.append(calls(second, FIRST, 3, exe="/tmp/new"))
    db1.append(call(second + 1000, FIRST + 3, number=313, key='"modules"', exe="/usr/bin/kmod"))
    db1.ship()

    # A host that ended without a word: it has no heartbeat since.
    old = made["12"]
    old.append(calls(first, FIRST, 10))
    old.ship()
    today = time.strftime("date=%Y-%m-%d", time.gmtime())
    shutil.rmtree(old.files / today / "host=12")

    # The kernel's own audit, with logins.
    auditd = made["fd00::7"]
    auditd.append(calls(first, 100, 5))
    for number, result in enumerate(["failed", "failed", "failed", "success"]):
        login = f'op=login acct="root" exe="/usr/sbin/sshd" hostname=? addr=192.0.2.9 terminal=sshd res={result}'
        auditd.append(user(first + 1000 * number, 200 + number, "USER_LOGIN", login, auid=UNSET))
    for number in range(2):
        command = 'cwd="/" cmd=6964202D75 exe="/usr/bin/sudo" terminal=pts/0 res=success'
        auditd.append(user(first + 9000 + number, 210 + number, "USER_CMD", command))
    auditd.append(f"type=CONFIG_CHANGE {stamp(first + 9900, 220)}auid=1000 ses=3 subj=unconfined op=add_rule "
                  'key="exec" list=4 res=1\n')
    auditd.ship()
    return made


# Answers by query, without their times.
KNOWN = {
    "gaps": [
        ("db1", "first-db1", "rotated", 1, 200),
        ("web2", "first-web2", "absent", 2, 13),
    ],
    "silent": [("12", FIRST + 9)],
    "losses": [("web2", "events: ring-full", 7), ("web2", "events: log", 9)],
    "shadow": [("web2", 1001, 1001, "/usr/bin/cat", -13, 7)],
    "connections": [
        ("web1", "/usr/bin/curl", "1.2.3.4", 443, 280),
        ("db1", "/usr/bin/curl", "2001:db8::1", 5432, 5),
    ],
    "logins": [("fd00::7", "root", "192.0.2.9", 1, 3)],
    "sudo": [("fd00::7", 1000, "id -u", "success", 2)],
    "new_programs": [("/tmp/new", 23, 2, "db1")],
    "modules": [("db1", 1000, "/usr/bin/kmod", True, 0)],
    "doubles": [("web1", 500, 1400), ("12", 0, 10), ("db1", 0, 174), ("fd00::7", 0, 12), ("web2", 0, 90)],
    "complete": [
        ("12", "first-12", FIRST, FIRST + 9, 10, 0, 0),
        ("db1", "first-db1", FIRST, FIRST + 369, 170, 200, 0),
        ("db1", "second-db1", FIRST, FIRST + 3, 4, 0, 0),
        ("web1", "first-web1", FIRST, FIRST + 999, 1000, 0, 0),
        ("web1", "second-web1", FIRST, FIRST + 399, 400, 0, 0),
        ("web2", "first-web2", FIRST, FIRST + 99, 87, 13, 0),
    ],
}
