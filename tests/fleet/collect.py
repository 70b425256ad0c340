"""Sends events to tollgate-collect while that is killed, and compares lines: by Debian's audisp-remote, and by tollgate-ship
with OTLP and with syslog over TLS.

usage: collect.py RELEASE DIRECTORY [EVENTS]

  RELEASE    directory of the programs tollgate-collect, tollgate-ship and tollgate-search
  DIRECTORY  where the logs are kept; it is emptied
  EVENTS     number of events of each (100,000)

audisp-remote reads its settings from one place only, which is another one in a mount namespace: this needs root. Certificates
are made by certtool, of Debian's gnutls-bin.

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
# The shipper sends again what it has sent in some three seconds before a kill, and the listener finds what is in the last 8 MiB.
PACE = 2000


class Place:
    """The listener, audisp-remote as its peer, and the log of the only host."""

    def __init__(self, release, directory):
        self.release, self.directory = release, directory
        shutil.rmtree(directory, ignore_errors=True)
        for name in ["logs", "state"]:
            (directory / name).mkdir(parents=True)
        self.port = free_port()
        self.configure()

    def configure(self):
        self.write_config("", "127.0.0.1")

    def write_config(self, tables, peer):
        (self.directory / "collect.toml").write_text(
            f'listen = ["127.0.0.1:{self.port}"]\ndirectory = "{self.directory}/logs"\nspace_left = 0\n'
            f'max_log_file = 8\nnum_logs = 999\n{tables}[hosts]\nweb1 = ["{peer}"]\n'
        )

    def start_listener(self):
        with open(self.directory / "stderr", "a") as errors:
            words = [self.release / "tollgate-collect", "run", "--config", "collect.toml", "--state", "state"]
            return subprocess.Popen(words, cwd=self.directory, stderr=errors)

    def start_peer(self):
        return start_peer(self.directory, self.port)

    def send(self, peer, text):
        feed(peer, text)

    def end(self, peer):
        peer.stdin.close()
        if peer.wait() != 0:
            sys.exit("collect.py: audisp-remote has records left")

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


def feed(peer, text):
    peer.stdin.write(text)
    peer.stdin.flush()


class ShipPlace(Place):
    """The same with tollgate-ship as the peer, by OTLP or syslog, over TLS with certificates of both sides."""

    def __init__(self, release, directory, kind, has_pace):
        self.kind, self.has_pace = kind, has_pace
        super().__init__(release, directory)

    def configure(self):
        directory = self.directory
        for name in ["ship-log", "ship-state", "certificates"]:
            (directory / name).mkdir()
        self.log = directory / "ship-log/audit.log"
        self.log.touch()
        certificate(directory, "ca", "ca\ncert_signing_key\n")
        certificate(directory, "localhost", "dns_name = localhost\ntls_www_server\nsigning_key\n", "ca")
        certificate(directory, "web1", "dns_name = web1.example\ntls_www_client\nsigning_key\n", "ca")
        files = f'ca = "{directory}/certificates/ca.pem"\n' + "".join(
            f'{name} = "{directory}/certificates/NAME.{end}"\n' for name, end in [("certificate", "pem"), ("key", "key")]
        )
        port = free_port()
        listen = f'[tls]\nlisten = ["127.0.0.1:{port}"]\n'
        self.write_config(listen + files.replace("NAME", "localhost"), "web1.example")
        destination = {
            "otlp": f'url = "https://localhost:{port}/v1/logs"\n',
            "syslog": f'address = "localhost:{port}"\nresend = 1\n',
        }[self.kind]
        (directory / "ship.toml").write_text(
            f'log = "{self.log}"\nhost = "web1"\n[{self.kind}.c]\nstart = "begin"\n{destination}[{self.kind}.c.tls]\n'
            + files.replace("NAME", "web1")
        )

    def start_peer(self):
        words = [self.release / "tollgate-ship", "run", "--config", "ship.toml", "--state", "ship-state"]
        with open(self.directory / "ship-stderr", "a") as errors:
            return subprocess.Popen(words, cwd=self.directory, stderr=errors)

    def send(self, peer, text):
        with open(self.log, "ab", buffering=0) as log:
            if not self.has_pace:
                log.write(text)
                return
            end = b"type=PROCTITLE"
            for part in parts(text, len(text) * PACE // 10 // text.count(end)):
                log.write(part)
                time.sleep(0.1)

    def end(self, peer):
        peer.terminate()
        if peer.wait() != 0:
            sys.exit("collect.py: tollgate-ship has failed")


def parts(text, size):
    """Parts of some size, with whole lines."""
    at = 0
    while at < len(text):
        end = text.find(b"\n", at + size) + 1 or len(text)
        yield text[at:end]
        at = end


def certificate(directory, name, lines, authority=None):
    """Makes NAME.key and NAME.pem."""
    place = directory / "certificates"
    (place / f"{name}.template").write_text(f"cn = {name}\nexpiration_days = 2\n{lines}")
    common = ["--template", f"{name}.template", "--load-privkey", f"{name}.key", "--outfile", f"{name}.pem"]
    made = ["--generate-self-signed", *common]
    if authority:
        ca = ["--load-ca-certificate", f"{authority}.pem", "--load-ca-privkey", f"{authority}.key"]
        made = ["--generate-certificate", *ca, *common]
    for words in [["--generate-privkey", "--key-type", "ed25519", "--outfile", f"{name}.key"], made]:
        subprocess.run(["certtool", *words], cwd=place, check=True, capture_output=True)


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"collect.py: {what}: not within {PATIENCE} seconds")
        time.sleep(0.01)


def cpu_seconds(pid):
    ticks = (pathlib.Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def run(place, text, kills):
    """Sends a text while the listener is killed, and returns the seconds and CPU seconds of the last listener."""
    listener = place.start_listener()
    is_listening = lambda: "listens at" in (place.directory / "stderr").read_text()
    wait_for(lambda: is_listening() or listener.poll() is not None, "the listener")
    if listener.poll() is not None:
        sys.exit("collect.py: " + (place.directory / "stderr").read_text())
    peer = place.start_peer()
    begun = time.monotonic()
    feeder = threading.Thread(target=place.send, args=(peer, text))
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
    place.end(peer)
    cpu = cpu_seconds(listener.pid)
    listener.terminate()
    listener.wait()
    return elapsed, cpu


def check(name, make, release, directory, events):
    """Sends events with kills, compares lines, and measures without kills. Returns whether every line has arrived once."""
    lines = [line for number in range(events) for line in event(number).splitlines(keepends=True)]
    text = "".join(lines).encode()
    place = make(True)
    run(place, text, KILLS)
    found = [line for path in place.files() for line in path.read_text().splitlines(keepends=True)]
    missing, other = set(lines) - set(found), set(found) - set(lines)
    doubles = len(found) - len(set(found))
    ordered = list(dict.fromkeys(found)) == lines
    log = directory / "logs/web1/audit.log"
    search = [release / "tollgate-search", "--log", log, "--count"]
    counted = int(subprocess.run(search, check=True, capture_output=True, text=True).stdout.split()[0])
    print(
        f"collect: {name}: {events} events, {len(lines)} records, {KILLS} kills: {len(missing)} missing, {len(other)} others, "
        f"{doubles} twice, {'in order' if ordered else 'not in order'}; tollgate-search counts {counted} events",
        flush=True,
    )
    elapsed, cpu = run(make(False), text, 0)
    print(
        f"collect: {name}: without kills {len(lines) / elapsed:,.0f} records/s from one host, "
        f"{len(lines) / max(cpu, 0.01):,.0f} per second of CPU",
        flush=True,
    )
    shutil.rmtree(directory)
    return not missing and not other and ordered and counted == events and doubles == 0


def main():
    release, directory = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    events = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    kinds = {
        "OTLP over TLS": lambda has_pace: ShipPlace(release, directory, "otlp", has_pace),
        "syslog over TLS": lambda has_pace: ShipPlace(release, directory, "syslog", has_pace),
    }
    if os.geteuid() == 0:
        kinds["audisp-remote"] = lambda _: Place(release, directory)
    else:
        print("collect: audisp-remote is skipped: only root can give it other settings")
    results = [check(name, make, release, directory, events) for name, make in kinds.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
