"""Puts Parquet files into a bucket of moto, which checks signatures, while the shipper is killed, the store stopped and the
log rotated, and compares serials.

usage: s3.py SHIP DIRECTORY [EVENTS]

  SHIP       program tollgate-ship
  DIRECTORY  where logs and objects are kept; it is emptied
  EVENTS     number of events (100,000)

Exit status: 0 if every serial is in the bucket and nothing else, 1 if not.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import boto3
import duckdb

from otlp import FIRST, Shipper, free_port, is_listening, wait

KILLS = 10
ROTATIONS = 4
REGION = "eu-central-1"
# Actions that make a bucket, and for two users user, policy and key: moto asks for no signature until then.
FREE_ACTIONS = 1 + 2 * 3


class Store:
    """moto, with a user who may put objects and one who may read them."""

    def __init__(self, directory):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(FREE_ACTIONS)}
        command = [sys.executable, "-m", "moto.server", "--port", str(self.port)]
        log = open(directory / "moto.log", "a")
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait("moto", lambda: is_listening(self.port))
        nobody = ("nobody", "nothing")
        place = {"LocationConstraint": REGION}
        self.client("s3", nobody).create_bucket(Bucket="lake", CreateBucketConfiguration=place)
        self.shipper = self.user("ship", ["s3:PutObject"], nobody)
        self.reader = self.user("read", ["s3:GetObject", "s3:ListBucket"], nobody)

    def client(self, service, key):
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=key[0],
            aws_secret_access_key=key[1],
        )

    def user(self, name, actions, nobody):
        """A user who may do so; the key."""
        statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
        iam = self.client("iam", nobody)
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def serials(self, directory):
        """Serials of the events in all objects."""
        client = self.client("s3", self.reader)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix="audit/date=")
        names = [found["Key"] for page in pages for found in page.get("Contents", [])]
        for number, name in enumerate(names):
            client.download_file("lake", name, str(directory / f"{number}.parquet"))
        rows = duckdb.sql(f"SELECT serial FROM '{directory}/*.parquet' WHERE kind = 'event'").fetchall()
        return [serial for (serial,) in rows]


def main():
    ship, directory = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
    place = Shipper(ship, directory)
    store = Store(directory)
    (directory / "secret").write_text(store.shipper[1] + "\n")
    (directory / "spool").mkdir()
    bucket = (
        f'url = "{store.url}/lake/audit", region = "{REGION}", access_key = "{store.shipper[0]}", '
        f'secret_file = "{directory}/secret", timeout = 10'
    )
    place.configure(f'[parquet.lake]\ndirectory = "{directory}/spool"\nrows = 5000\nseconds = 2\ns3 = {{ {bucket} }}\n')
    part = count // KILLS
    for number in range(KILLS):
        place.append(range(number * part, (number + 1) * part))
        run = place.start_ship()
        if number % 3 == 1:
            store.stop()
        time.sleep(1)
        store.go_on()
        run.kill()
        run.wait()
        if number % (KILLS // ROTATIONS) == 0:
            place.rotate()
    run = place.start_ship()

    def is_done():
        destination = place.status()
        return destination.get("behind_bytes") == 0 and destination.get("unconfirmed") == 0

    wait("everything to be confirmed", is_done)
    run.terminate()
    assert run.wait() == 0, (directory / "ship.log").read_text()
    received = store.serials(directory / "out")
    store.process.kill()
    expected = {FIRST + number for number in range(part * KILLS)}
    serials = set(received)
    print(
        f"s3: {len(expected)} events, {KILLS} kills, {ROTATIONS} rotations: {len(expected - serials)} absent, "
        f"{len(serials - expected)} others, {len(received) - len(serials)} doubles"
    )
    return 0 if serials == expected else 1


if __name__ == "__main__":
    sys.exit(main())
