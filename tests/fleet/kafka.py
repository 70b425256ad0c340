"""Sends a log to brokers of Kafka while they and the shipper are killed, and compares serials; then measures.

usage: kafka.py SHIP JARS DIRECTORY [EVENTS]

  SHIP       program tollgate-ship
  JARS       directory of the programs of broker/pom.xml
  DIRECTORY  where logs and what the brokers store are kept; it is emptied
  EVENTS     number of events (100,000)

Three brokers in KRaft mode have a topic with three replicas, two of which must have each record. They listen at the
loopback. The shipper authenticates with SCRAM. What they have is read by Kafka's own consumer.

Exit status: 0 if every serial has arrived, in order and in one partition, 1 if not.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from otlp import FIRST, Shipper, free_port, is_done, is_listening, once, wait

BROKERS = 3
PATIENCE = 600
USER, PASSWORD = "ship", "pencil"
KILLS_OF_BROKERS, KILLS_OF_SHIPPER = 6, 12


class Cluster:
    """Brokers, each of which is a controller, too."""

    def __init__(self, jars, directory):
        self.jars, self.directory = jars, directory
        # The ports of clients without and with SCRAM, and of controllers.
        self.ports = [[free_port() for _ in range(3)] for _ in range(BROKERS)]
        self.processes = [None] * BROKERS
        voters = ",".join(f"{number}@127.0.0.1:{ports[2]}" for number, ports in enumerate(self.ports))
        for number, (plain, scram, controller) in enumerate(self.ports):
            place = directory / f"broker{number}"
            place.mkdir(parents=True)
            (place / "server.properties").write_text(
                f"process.roles=broker,controller\nnode.id={number}\ncontroller.quorum.voters={voters}\n"
                f"listeners=PLAINTEXT://127.0.0.1:{plain},SCRAM://127.0.0.1:{scram},CONTROLLER://127.0.0.1:{controller}\n"
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SCRAM://127.0.0.1:{scram}\n"
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SCRAM:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
                "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
                "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
                "listener.name.scram.scram-sha-512.sasl.jaas.config="
                "org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
                f"log.dirs={place}/data\nauto.create.topics.enable=false\ndefault.replication.factor=3\n"
                "min.insync.replicas=2\noffsets.topic.replication.factor=3\noffsets.topic.num.partitions=1\n"
                "transaction.state.log.replication.factor=3\n"
            )
            scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
            settings = ["-t", "dG9sbGdhdGUtZmxlZXQtMQ", "-c", place / "server.properties", "--add-scram", scram]
            self.tool("kafka.tools.StorageTool", "format", *settings)

    def java(self, *words, heap=256):
        return ["java", f"-Xmx{heap}m", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*", *words]

    def tool(self, *words):
        run = subprocess.run(self.java(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            sys.exit(f"kafka: {words[0]}: {run.stdout}")
        return run.stdout

    def start(self, number):
        place = self.directory / f"broker{number}"
        with open(place / "output", "a") as output:
            words = self.java("kafka.Kafka", place / "server.properties", heap=512)
            self.processes[number] = subprocess.Popen(words, stdout=output, stderr=output)

    def wait(self):
        """Waits until each broker listens."""
        for number, process in enumerate(self.processes):
            port = self.ports[number][1]
            wait(f"broker {number}", lambda: is_listening(port) or process.poll() is not None, PATIENCE)
            if process.poll() is not None:
                sys.exit(f"kafka: broker {number}: " + (self.directory / f"broker{number}/output").read_text())

    def kill(self, number, kind=signal.SIGKILL):
        self.processes[number].send_signal(kind)
        self.processes[number].wait()

    def servers(self, listener):
        return [f"127.0.0.1:{ports[listener]}" for ports in self.ports]

    def create(self, topic):
        settings = ["--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"]
        settings += ["--config", "retention.ms=-1", "--bootstrap-server", ",".join(self.servers(0))]
        self.tool("org.apache.kafka.tools.TopicCommand", *settings)

    def in_sync(self, topic):
        """The fewest replicas in sync that a partition has."""
        settings = ["--describe", "--topic", topic, "--bootstrap-server", ",".join(self.servers(0))]
        lines = self.tool("org.apache.kafka.tools.TopicCommand", *settings)
        return min(len(found.split(",")) for found in re.findall(r"Isr: (\S+)", lines))

    def consume(self, topic):
        """Time, partition, key and value of each record."""
        words = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning"]
        words += ["--bootstrap-server", ",".join(self.servers(0)), "--timeout-ms", "20000"]
        for name in ["timestamp", "partition", "key"]:
            words += ["--formatter-property", f"print.{name}=true"]
        with subprocess.Popen(self.java(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
            for line in consumer.stdout:
                at, partition, key, value = line.split("\t", 3)
                yield int(at.removeprefix("CreateTime:")), int(partition.removeprefix("Partition:")), key, json.loads(value)

    def stored(self, topic):
        """Bytes of the log of the partition that has any, at each broker."""
        logs = (self.directory.glob(f"broker{number}/data/{topic}-*/*.log") for number in range(BROKERS))
        return [sum(path.stat().st_size for path in paths) for paths in logs]


class Place(Shipper):
    """A shipper, and the cluster."""

    def __init__(self, ship, jars, directory):
        super().__init__(ship, directory)
        (directory / "password").write_text(PASSWORD)
        self.cluster = Cluster(jars, directory / "out")

    def send_to(self, topic, settings=""):
        brokers = ", ".join(f'"{server}"' for server in self.cluster.servers(1))
        sasl = f'mechanism = "SCRAM-SHA-512", user = "{USER}", password_file = "{self.directory}/password"'
        self.configure(f'[kafka.k]\nbrokers = [{brokers}]\ntopic = "{topic}"\n{settings}sasl = {{ {sasl} }}\n')


def compare(place, topic, count):
    """Compares what the brokers have with the log. Returns whether every serial is there, and prints what is there twice."""
    seen, doubles, others, partitions, wrong, unordered, newest = bytearray(count), 0, 0, set(), 0, 0, -1
    for at, partition, key, value in place.cluster.consume(topic):
        partitions.add(partition)
        seconds, millis = value["time"].split(".")
        wrong += key != "h" or value["host"] != "h" or at != int(seconds) * 1000 + int(millis)
        others += value["kind"] == "gap"
        if value["kind"] != "event":
            continue
        number = value["serial"] - FIRST
        wrong += value["task"]["pid"] != number or value["task"]["exe"] != "/usr/bin/id"
        # What comes for the first time is the next one.
        unordered += number > newest + 1
        newest = max(newest, number)
        doubles += seen[number]
        seen[number] = 1
    missing = seen.count(0)
    print(
        f"kafka: {count} events, {KILLS_OF_BROKERS} ends of brokers, {KILLS_OF_SHIPPER} kills of the shipper, 4 rotations: "
        f"{missing} missing, {doubles} doubles, {others} gaps, {unordered} not in order, {wrong} wrong, "
        f"partitions {partitions}",
        flush=True,
    )
    return not (missing or others or unordered or wrong) and len(partitions) == 1


def kills(place, count):
    """Sends a log while both sides are killed. Returns whether every serial has arrived."""
    cluster = place.cluster
    cluster.create("audit")
    place.send_to("audit")
    ship = place.start_ship()
    batches = 24
    killed = None
    for batch in range(batches):
        place.append(range(batch * count // batches, (batch + 1) * count // batches))
        time.sleep(0.5)
        if batch % 2 == 1:
            ship.kill()
            ship.wait()
            ship = place.start_ship()
        if batch % 4 == 0:
            # One after another, so that two have each record; one of them is the leader.
            if killed is not None:
                cluster.start(killed)
                cluster.wait()
                wait("replicas", lambda: cluster.in_sync("audit") == BROKERS, PATIENCE)
            killed = batch // 4 % BROKERS
            cluster.kill(killed, signal.SIGTERM if batch == 8 else signal.SIGKILL)
        if batch % 6 == 5:
            place.rotate()
    cluster.start(killed)
    cluster.wait()
    wait("the end of the log", lambda: is_done(place.status(), count), PATIENCE)
    ship.terminate()
    ended = ship.wait()
    return compare(place, "audit", count) and ended == 0


def sent_bytes(ship, ports):
    """Bytes that a process has sent to ports, without heads of packets, which the peer's kernel has acknowledged."""
    lines = subprocess.run(["ss", "-tinpHO"], check=True, capture_output=True, text=True).stdout.splitlines()
    ours = [line for line in lines if f"pid={ship.pid}," in line and any(f":{port} " in line for port in ports)]
    return sum(int(found[1]) for line in ours if (found := re.search(r" bytes_acked:(\d+)", line)))


def measure(place, count):
    """Sends the whole log by each compression: CPU time on one core, bytes on the wire and in the logs of the brokers."""
    place.events = count
    for path in place.directory.glob("log/*"):
        path.unlink()
    place.append(range(count))
    size = place.log.stat().st_size
    print(f"kafka: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; log: {size / count:,.0f} bytes per event")
    for compression in ["zstd", "gzip", "none"]:
        for number in range(3):
            topic = f"{compression}{number}"
            place.cluster.create(topic)
            place.send_to(topic, f'compression = "{compression}"\n')
            once(place, f"kafka: {compression}")
        stored = max(place.cluster.stored(topic))
        for path in place.directory.glob("state/*"):
            path.unlink()
        ship = place.start_ship()
        wait("the end of the log", lambda: is_done(place.status(), count), PATIENCE)
        sent = sent_bytes(ship, [ports[1] for ports in place.cluster.ports])
        ship.terminate()
        ship.wait()
        print(
            f"kafka: {compression}: {sent / count:,.0f} bytes per event on the wire, {stored / count:,.0f} in the log of a broker",
            flush=True,
        )


def main():
    ship, jars, directory = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 100_000
    place = Place(ship, jars, pathlib.Path(directory).absolute())
    try:
        for number in range(BROKERS):
            place.cluster.start(number)
        place.cluster.wait()
        is_complete = kills(place, count)
        measure(place, count)
    finally:
        for process in place.cluster.processes:
            if process and process.poll() is None:
                process.kill()
    shutil.rmtree(place.directory)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
