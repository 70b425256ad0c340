"""Sends events by tollgate-ship to Debian's auditd while both sides are killed, and compares lines; then measures.

usage: auditd.py SHIP DIRECTORY [EVENTS]

  SHIP       program tollgate-ship
  DIRECTORY  where the logs are kept; it is emptied
  EVENTS     number of events (100,000)

With `local_events = no` auditd changes nothing in the kernel's audit. Its PID file has one place, which is another one in a
mount namespace: this needs root.

Exit status: 0 if every line has arrived, in order, and no other one but parts of lines that kills have cut, 1 if not.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from collect import cpu_seconds, feed, start_peer
from otlp import Shipper, event, free_port, is_done, is_listening, peak_memory, wait


class Place(Shipper):
    """A shipper and an auditd."""

    def __init__(self, ship, directory):
        super().__init__(ship, directory)
        self.port = free_port()
        self.configure(f'[auditd.a]\naddress = "127.0.0.1:{self.port}"\n')
        (directory / "plugins.d").mkdir()
        settings = directory / "auditd.conf"
        settings.write_text(
            f"local_events = no\ntcp_listen_port = {self.port}\ntransport = TCP\nuse_libwrap = no\nname_format = NONE\n"
            f"log_file = {directory}/out/audit.log\nlog_format = RAW\nlog_group = root\nflush = INCREMENTAL_ASYNC\n"
            "freq = 50\nmax_log_file = 8\nmax_log_file_action = ROTATE\nnum_logs = 99\nspace_left = 2\n"
            "space_left_action = IGNORE\nadmin_space_left = 1\nadmin_space_left_action = IGNORE\n"
            "disk_full_action = SUSPEND\ndisk_error_action = SUSPEND\npriority_boost = 0\n"
            f"plugin_dir = {directory}/plugins.d\n"
        )
        settings.chmod(0o640)

    def start_auditd(self):
        script = 'mount -t tmpfs none /run && exec /sbin/auditd -n -c "$1"'
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh", self.directory])
        wait("auditd", lambda: is_listening(self.port) or process.poll() is not None)
        if process.poll() is not None:
            sys.exit("auditd.py: auditd does not start: look at syslog")
        return process

    def received(self):
        """The lines that came, without the node."""
        files = sorted(
            self.directory.glob("out/audit.log*"),
            key=lambda path: -int(path.suffix[1:] if path.suffix != ".log" else 0),
        )
        lines = (line for path in files for line in path.read_text().splitlines(keepends=True))
        return [line.removeprefix("node=h ") for line in lines if line.startswith("node=")]


def kills(place, count):
    """Sends a log while both sides are killed. Returns whether every line has arrived."""
    auditd, ship = place.start_auditd(), place.start_ship()
    batches = 24
    for batch in range(batches):
        place.append(range(batch * count // batches, (batch + 1) * count // batches))
        time.sleep(0.1)
        match batch:
            case 3 | 11 | 19:
                auditd.kill()
                auditd.wait()
                auditd = place.start_auditd()
            case 7:
                auditd.terminate()
                auditd.wait()
                auditd = place.start_auditd()
            case 2 | 9 | 16 | 21:
                ship.kill()
                ship.wait()
                ship = place.start_ship()
            case 5 | 10 | 15 | 20:
                place.rotate()
    wait("the end of the log", lambda: is_done(place.status(), count))
    ship.terminate()
    ended = ship.wait()
    auditd.terminate()
    auditd.wait()
    lines = [line for number in range(count) for line in event(number).splitlines(keepends=True)]
    known, received = set(lines), place.received()
    found = [line for line in received if line in known]
    missing, others = known - set(found), set(received) - known
    cut = {line for line in others if is_cut(line, lines)}
    doubles = len(found) - len(set(found))
    is_ordered = list(dict.fromkeys(found)) == lines
    print(
        f"auditd: {count} events, {len(lines)} records, 3 kills and an end of auditd, 4 kills of the shipper, 4 "
        f"rotations: {len(missing)} missing, {len(others - cut)} others, {doubles} twice, {len(cut)} cut by kills, "
        f"{'in order' if is_ordered else 'not in order'}"
    )
    return ended == 0 and is_ordered and others == cut


def is_cut(line, lines):
    """Whether a line is what a kill has left of one: of the write of auditd, before its first line when it starts again, or
    of a message of the shipper."""
    part = line.rstrip("\n").partition("type=DAEMON_START ")[0]
    return any(whole.startswith(part) for whole in lines)


def measure(place, count):
    """Sends a log once, and a tenth of it by audisp-remote."""
    place.append(range(count))
    auditd = place.start_auditd()
    begun = time.monotonic()
    ship = place.start_ship("--once")
    ended, memory = 0, 0
    while not ended:
        memory = peak_memory(ship.pid) or memory
        time.sleep(0.01)
        ended, status, used = os.wait4(ship.pid, os.WNOHANG)
    elapsed = time.monotonic() - begun
    cpu, records = used.ru_utime + used.ru_stime, 6 * count
    print(
        f"auditd: by tollgate-ship {records / elapsed:,.0f} records/s; {records / cpu:,.0f} per second of CPU of the "
        f"shipper, {records / cpu_seconds(auditd.pid):,.0f} of auditd; {memory / 1024:.1f} MiB"
    )
    assert status == 0 and len(place.received()) == records
    some = [line for number in range(count // 10) for line in event(number).splitlines(keepends=True)]
    peer = start_peer(place.directory, place.port)
    begun = time.monotonic()
    feeder = threading.Thread(target=feed, args=(peer, "".join(f"node=a {line}" for line in some).encode()))
    feeder.start()
    wait("audisp-remote", lambda: is_last(place, "node=a " + some[-1]))
    print(f"auditd: by audisp-remote {len(some) / (time.monotonic() - begun):,.0f} records/s")
    feeder.join()
    peer.stdin.close()
    peer.wait()
    auditd.terminate()
    auditd.wait()


def is_last(place, line):
    """Whether the log ends with a line."""
    with open(place.directory / "out/audit.log", "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - len(line)))
        return log.read() == line.encode()


def main():
    ship, directory = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    if os.geteuid() != 0:
        print("auditd: skipped: only root can start auditd")
        return 0
    is_complete = kills(Place(ship, directory), count)
    measure(Place(ship, directory), count)
    shutil.rmtree(directory)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
