"""Sends events by Debian's audisp-remote to tollgate-collect while that is killed, and compares lines.

usage: collect.py RELEASE DIRECTORY [EVENTS]

  RELEASE    directory of the programs tollgate-collect and tollgate-search
  DIRECTORY  where the logs are kept; it is emptied
  EVENTS     number of events (100,000)

audisp-remote reads its settings from one place only, which is another one in a mount namespace: this needs root.

Exit status: 0 if every line has arrived and no other one, 1 if not.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

from otlp import PATIENCE, event, free_port

SETTINGS = "/etc/audit/audisp-remote.conf"
KILLS = 5


class Place:
    """The listener, its peer, and the log of the only host."""

    def __init__(self, release, directory):
        self.release, self.directory = release, directory
        shutil.rmtree(directory, ignore_errors=True)
        for name in ["logs", "state"]:
            (directory / name).mkdir(parents=True)
        self.port = free_port()
        (directory / "collect.toml").write_text(
            f'listen = ["127.0.0.1:{self.port}"]\ndirectory = "{directory}/logs"\nspace_left = 0\n'
            'max_log_file = 8\nnum_logs = 999\n[hosts]\nweb1 = ["127.0.0.1"]\n'
        )

    def start_listener(self):
        with open(self.directory / "stderr", "a") as errors:
            words = [self.release / "tollgate-collect", "run", "--config", "collect.toml", "--state", "state"]
            return subprocess.Popen(words, cwd=self.directory, stderr=errors)

    def files(self):
        """The files of the log, the oldest first."""
        found = list((self.directory / "logs/web1").glob("audit.log*"))
        return sorted(found, key=lambda path: -int(path.suffix[1:] if path.suffix != ".log" else 0))

    def size(self):
        """Bytes of the log; while it is rotated they may be those of some files only."""
        total = 0
        for path in self.files():
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                pass
        return total


def start_peer(directory, port):
    """Starts audisp-remote, with its settings in a directory."""
    settings = directory / "audisp-remote.conf"
    settings.write_text(
        f"remote_server = 127.0.0.1\nport = {port}\ntransport = tcp\nmode = immediate\n"
        "queue_depth = 100000\nformat = managed\nnetwork_retry_time = 1\nmax_tries_per_record = 10\n"
        "max_time_per_record = 10\nheartbeat_timeout = 1\nnetwork_failure_action = syslog\n"
        "remote_ending_action = reconnect\n"
    )
    settings.chmod(0o640)
    # auditd starts its plugins with SIGPIPE ignored.
    script = f'mount --bind "$1" {SETTINGS} && trap "" PIPE && exec /sbin/audisp-remote'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", settings]
    return subprocess.Popen(words, stdin=subprocess.PIPE)


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"collect.py: {what}: not within {PATIENCE} seconds")
        time.sleep(0.01)


def cpu_seconds(pid):
    ticks = (pathlib.Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def feed(peer, text):
    peer.stdin.write(text)
    peer.stdin.flush()


def run(place, text, kills):
    """Sends a text while the listener is killed, and returns the seconds and CPU seconds of the last listener."""
    listener = place.start_listener()
    wait_for(lambda: "listens at" in (place.directory / "stderr").read_text(), "the listener")
    peer = start_peer(place.directory, place.port)
    begun = time.monotonic()
    feeder = threading.Thread(target=feed, args=(peer, text))
    feeder.start()
    for number in range(1, kills + 1):
        wait_for(lambda: place.size() > len(text) * number // (kills + 1), "part of the log")
        # Once it ends in order.
        listener.send_signal(signal.SIGTERM if number == 1 else signal.SIGKILL)
        listener.wait()
        listener = place.start_listener()
    wait_for(lambda: place.size() >= len(text), "the whole log")
    elapsed = time.monotonic() - begun
    feeder.join()
    peer.stdin.close()
    if peer.wait() != 0:
        sys.exit("collect.py: audisp-remote has records left")
    cpu = cpu_seconds(listener.pid)
    listener.terminate()
    listener.wait()
    return elapsed, cpu


def main():
    release, directory = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    events = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    if os.geteuid() != 0:
        print("collect: skipped: only root can give audisp-remote other settings")
        return 0
    lines = [line for number in range(events) for line in event(number).splitlines(keepends=True)]
    text = "".join(lines).encode()

    place = Place(release, directory)
    run(place, text, KILLS)
    found = [line for path in place.files() for line in path.read_text().splitlines(keepends=True)]
    missing, other = set(lines) - set(found), set(found) - set(lines)
    doubles = len(found) - len(set(found))
    ordered = list(dict.fromkeys(found)) == lines
    log = directory / "logs/web1/audit.log"
    search = [release / "tollgate-search", "--log", log, "--count"]
    counted = int(subprocess.run(search, check=True, capture_output=True, text=True).stdout.split()[0])
    print(
        f"collect: {events} events, {len(lines)} records, {KILLS} kills: {len(missing)} missing, {len(other)} others, "
        f"{doubles} twice, {'in order' if ordered else 'not in order'}; tollgate-search counts {counted} events"
    )
    place = Place(release, directory)
    elapsed, cpu = run(place, text, 0)
    print(
        f"collect: without kills {len(lines) / elapsed:,.0f} records/s from one host, "
        f"{len(lines) / cpu:,.0f} per second of CPU"
    )
    shutil.rmtree(directory)
    is_right = not missing and not other and ordered and counted == events and doubles == 0
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
