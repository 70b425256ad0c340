#!/usr/bin/env python3
"""measure-ship.py PROGRAM [EVENTS]: CPU time, memory and bytes of `tollgate ship` by destination, on one core.

Writes two logs of execve events, one whose events are alike and one of random names, arguments and numbers; sends each
three times to each destination, by turns, and prints the median.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
PATH = 'type=PATH {}item={} name="{}" inode={} dev=fe:00 mode=0100755 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL ' \
    "cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n"
DESTINATIONS = {
    "JSON lines": '[json.out]\nto = "stdout"\n',
    "Parquet files": '[parquet.out]\ndirectory = "PLACE/files"\n',
    "Parquet files, no event accepted": '[parquet.out]\ndirectory = "PLACE/files"\nfilter = "key=none"\n',
}


def event(number, exe, arguments, pids, inode, call, uid):
    stamp = f"msg=audit({1790000000 + number // 20000}.{number // 20 % 1000:03}:{0x80000001 + number}): "
    title = bytes.hex("\0".join(arguments).encode()).upper()
    argv = " ".join(f'a{at}="{argument}"' for at, argument in enumerate(arguments))
    return (
        f"type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 a0={call:x} a1={call * 7:x} a2={call * 9:x} "
        f"a3=8 items=2 ppid={pids[0]} pid={pids[1]} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} "
        f'egid={uid} sgid={uid} fsgid={uid} tty=pts0 ses=1 comm="{exe[9:24]}" exe="{exe}" subj=unconfined key="exec"\n'
        f'type=EXECVE {stamp}argc={len(arguments)} {argv}\ntype=CWD {stamp}cwd="/root"\n'
        + PATH.format(stamp, 0, exe, inode)
        + PATH.format(stamp, 1, "/lib64/ld-linux-x86-64.so.2", 2622)
        + f"type=PROCTITLE {stamp}proctitle={title}\n"
    )


def alike(number):
    arguments = ["id", "-u", f"user{number % 500}"]
    return event(number, "/usr/bin/id", arguments, (1000 + number % 97, 2000 + number % 30000), 1311, 0x55D0C8A51C60, 0)


def various(number):
    exe = f"/usr/bin/prog{random.randrange(300)}"
    name = f"/srv/data/{random.getrandbits(40):010x}/{random.randrange(20000)}.dat"
    pids = (random.randrange(2, 60000), random.randrange(2, 60000))
    arguments = [exe, "--in", name, f"{random.getrandbits(32):08x}"]
    return event(number, exe, arguments, pids, random.randrange(900000), random.getrandbits(40), random.randrange(4))


def run(program, place, log, destination):
    """CPU seconds, KiB of memory, and bytes written."""
    for name in ["state", "files"]:
        subprocess.run(["rm", "-rf", place / name], check=True)
        (place / name).mkdir()
    text = f'log = "{log}"\nhost = "web1"\n{destination}start = "begin"\n'.replace("PLACE", str(place))
    (place / "ship.toml").write_text(text)
    command = [program, "run", "--once", "--config", place / "ship.toml", "--state", place / "state"]
    with open(place / "stdout", "wb") as stdout:
        child = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"measure-ship: {program} failed")
    written = (place / "stdout").stat().st_size
    written += sum(path.stat().st_size for path in (place / "files").glob("date=2026-09-*/*/*"))
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, written


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300_000
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    random.seed(1)
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for make in [alike, various]:
            log = place / "audit.log"
            with log.open("w") as out:
                out.writelines(make(number) for number in range(count))
            print(f"{make.__name__}: {count} events, {log.stat().st_size / count:.0f} bytes of log each")
            found = {name: [] for name in DESTINATIONS}
            for _ in range(ROUNDS):
                for name, destination in DESTINATIONS.items():
                    found[name].append(run(program, place, log, destination))
            for name, results in found.items():
                seconds, memory, written = (statistics.median(column) for column in zip(*results))
                spread = [round(count / second) for second, *_ in results]
                print(f"  {name}: {count / seconds:,.0f} events/s of CPU {sorted(spread)}, "
                      f"{written / count:.0f} bytes/event, {memory / 1024:.0f} MiB")


main()
