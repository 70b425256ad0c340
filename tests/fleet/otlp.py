"""Sends a log to a collector of OpenTelemetry while both sides are killed, and compares serials; then measures.

usage: otlp.py SHIP COLLECTOR DIRECTORY [EVENTS]

  SHIP       program tollgate-ship
  COLLECTOR  program of collector/
  DIRECTORY  where logs and what the collector writes are kept; it is emptied
  EVENTS     number of events (120,000)

Exit status: 0 if every serial has arrived and nothing else, 1 if not.
"""

import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

FIRST = 0x8000_0001
PATIENCE = 120


def event(number):
    """The lines of an event, with a size that is usual for the start of a program."""
    stamp = f"msg=audit({1_790_000_000 + number // 1000}.{number % 1000:03}:{FIRST + number}): "
    return (
        f"type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 a0=55d0c0ffee10 a1=55d0c0ffee58 "
        f"a2=55d0c0ffee90 a3=8 items=2 ppid=1 pid={number} auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 "
        f'fsgid=0 tty=pts0 ses=1 comm="id" exe="/usr/bin/id" subj=unconfined key="exec"\n'
        f'type=EXECVE {stamp}argc=2 a0="id" a1="-u"\ntype=CWD {stamp}cwd="/root"\n'
        + "".join(
            f'type=PATH {stamp}item={item} name="{name}" inode={1000 + item} dev=fe:00 mode=0100755 ouid=0 ogid=0 '
            "rdev=00:00 nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n"
            for item, name in enumerate(["/usr/bin/id", "/lib64/ld-linux-x86-64.so.2"])
        )
        + f"type=PROCTITLE {stamp}proctitle=6964002D75\n"
    )


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Shipper:
    """A log, and the shipper with one destination, the table `destination` of its configuration."""

    def __init__(self, ship, directory):
        self.ship, self.directory = ship, directory
        shutil.rmtree(directory, ignore_errors=True)
        for name in ["log", "state", "out"]:
            (directory / name).mkdir(parents=True)
        self.log = directory / "log/audit.log"
        self.log.touch()

    def configure(self, destination):
        (self.directory / "ship.toml").write_text(f'log = "{self.log}"\nhost = "h"\n{destination}start = "begin"\n')

    def start_ship(self, *options):
        errors = open(self.directory / "ship.log", "a")
        command = [self.ship, "run", "--config", self.directory / "ship.toml", "--state", self.directory / "state"]
        return subprocess.Popen([*command, *options], stderr=errors)

    def append(self, numbers):
        with open(self.log, "a") as log:
            log.write("".join(map(event, numbers)))

    def rotate(self):
        """Renames the log, and its predecessors."""
        rotated = sorted(self.directory.glob("log/audit.log.*"), key=lambda path: -int(path.suffix[1:]))
        for path in rotated:
            path.rename(path.with_suffix(f".{int(path.suffix[1:]) + 1}"))
        self.log.rename(self.directory / "log/audit.log.1")
        self.log.touch()

    def status(self):
        command = [self.ship, "status", "--json", "--state", self.directory / "state"]
        output = subprocess.run(command, stdout=subprocess.PIPE).stdout
        return json.loads(output)["destinations"][0] if output else {}


class Place(Shipper):
    """A shipper and the collector."""

    def __init__(self, ship, collector, directory):
        super().__init__(ship, directory)
        self.collector = collector
        self.port = free_port()
        self.send_to(self.port)
        # With `rotation` the exporter does not hold back what it has confirmed.
        (directory / "collector.yaml").write_text(
            "receivers:\n  otlp:\n    protocols:\n      http:\n"
            f"        endpoint: 127.0.0.1:{self.port}\n"
            "exporters:\n  file:\n"
            f"    path: {directory}/out/logs.json\n"
            "    rotation:\n      max_megabytes: 100000\n"
            "service:\n  telemetry:\n    metrics:\n      level: none\n"
            "  pipelines:\n    logs:\n      receivers: [otlp]\n      exporters: [file]\n"
        )

    def send_to(self, port, settings=""):
        self.configure(f'[otlp.c]\nurl = "http://127.0.0.1:{port}/v1/logs"\n{settings}')

    def start_collector(self):
        errors = open(self.directory / "collector.log", "a")
        command = [self.collector, "--config", f"file:{self.directory}/collector.yaml"]
        process = subprocess.Popen(command, stderr=errors, stdout=errors)
        wait("the collector", lambda: is_listening(self.port) or process.poll() is not None)
        if process.poll() is not None:
            sys.exit("otlp: " + (self.directory / "collector.log").read_text())
        return process


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait(what, condition, patience=PATIENCE):
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > patience:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: waited too long for {what}")
        time.sleep(0.05)


def attributes(listed):
    return {entry["key"]: entry["value"] for entry in listed}


def received(path):
    """How often each serial came, and how many gaps were told. A kill may have cut a line."""
    serials, gaps, cut = {}, 0, 0
    with open(path) as lines:
        for line in lines:
            parts = line.split('{"resourceLogs"')
            cut += len(parts) - 2
            try:
                logs = json.loads('{"resourceLogs"' + parts[-1])["resourceLogs"]
            except json.JSONDecodeError:
                cut += 1
                continue
            for resource_logs in logs:
                assert attributes(resource_logs["resource"]["attributes"])["host.name"] == {"stringValue": "h"}
                for record in resource_logs["scopeLogs"][0]["logRecords"]:
                    gaps += record["eventName"] == "audit.gap"
                    if record["eventName"] != "audit.event":
                        continue
                    found = attributes(record["attributes"])
                    serial = int(found["audit.serial"]["intValue"])
                    number = serial - FIRST
                    assert found["process.pid"] == {"intValue": str(number)}, record
                    assert record["body"]["stringValue"] + "\n" == event(number), record
                    serials[number] = serials.get(number, 0) + 1
    return serials, gaps, cut


def kills(place, count):
    """Sends a log while both sides are killed. Returns whether every serial has arrived."""
    collector, ship = place.start_collector(), place.start_ship()
    batches = 24
    for batch in range(batches):
        place.append(range(batch * count // batches, (batch + 1) * count // batches))
        time.sleep(0.1)
        match batch:
            case 3 | 11 | 19:
                collector.kill()
                collector.wait()
                time.sleep(0.5)
                collector = place.start_collector()
            case 7:
                collector.terminate()
                collector.wait()
                collector = place.start_collector()
            case 14:
                collector.send_signal(signal.SIGSTOP)
                time.sleep(3)
                collector.send_signal(signal.SIGCONT)
            case 2 | 9 | 16 | 21:
                ship.kill()
                ship.wait()
                ship = place.start_ship()
            case 5 | 10 | 15 | 20:
                place.rotate()
    wait("the end of the log", lambda: is_done(place.status(), count))
    ship.terminate()
    ended = ship.wait()
    collector.terminate()
    collector.wait()
    serials, gaps, cut = received(place.directory / "out/logs.json")
    missing = sorted(set(range(count)) - set(serials))
    unknown = sorted(set(serials) - set(range(count)))
    doubles = sum(times - 1 for times in serials.values())
    print(
        f"kills: {count} events, 3 kills, an end and a stop of the collector, 4 kills of the shipper, 4 rotations: "
        f"{len(missing)} missing, {doubles} doubles, {gaps} gaps, {cut} lines of the collector cut"
    )
    return ended == 0 and not missing and not unknown and gaps == 0


def is_done(status, count):
    return status.get("unconfirmed") == 0 and status["counts"]["sent"] == count and status["behind_bytes"] == 0


class Counter(http.server.BaseHTTPRequestHandler):
    """Counts the bytes of bodies."""

    protocol_version = "HTTP/1.1"
    bytes = requests = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Counter.bytes += len(body)
        Counter.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def once(place, name):
    """Sends the whole log on one core; prints CPU time and memory of the shipper."""
    for path in place.directory.glob("state/*"):
        path.unlink()
    begun = time.monotonic()
    ship = place.start_ship("--once")
    os.sched_setaffinity(ship.pid, {0})
    ended, memory = 0, 0
    while not ended:
        memory = peak_memory(ship.pid) or memory
        time.sleep(0.01)
        ended, status, used = os.wait4(ship.pid, os.WNOHANG)
    elapsed = time.monotonic() - begun
    cpu = used.ru_utime + used.ru_stime
    events = place.events
    print(
        f"{name}: {events / cpu:,.0f} events per second of CPU ({used.ru_utime:.2f} s user, {used.ru_stime:.2f} s "
        f"system), {events / elapsed:,.0f} per second, {memory / 1024:.1f} MiB"
    )
    assert status == 0


def peak_memory(pid):
    """Most memory of a process so far in KiB; None when it has ended."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) if found else None


def measure(place, count):
    place.events = count
    for path in place.directory.glob("log/*"):
        path.unlink()
    place.append(range(count))
    size = place.log.stat().st_size
    collector = place.start_collector()
    for compression in ["gzip", "none"]:
        place.send_to(place.port, f'compression = "{compression}"\n')
        for _ in range(3):
            once(place, f"to the collector, {compression}")
            (place.directory / "out/logs.json").write_bytes(b"")
    collector.terminate()
    collector.wait()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"log: {size / count:,.0f} bytes per event")
    for compression in ["gzip", "none"]:
        Counter.bytes = Counter.requests = 0
        place.send_to(server.server_address[1], f'compression = "{compression}"\n')
        once(place, f"to a counter, {compression}")
        print(f"{compression}: {Counter.bytes / count:,.0f} bytes per event, {Counter.requests} requests")


def main():
    ship, collector, directory = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 120_000
    place = Place(ship, collector, pathlib.Path(directory).absolute())
    is_complete = kills(place, count)
    measure(place, count)
    shutil.rmtree(place.directory)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
