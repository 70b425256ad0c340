"""Runs each query in each engine, and compares the answers with each other, with those that are known, and with
`tollgate search`."""

import datetime
import decimal
import json
import shutil
import sys
import time
from pathlib import Path

import hosts

DEPLOY = Path("deploy")


def statements(engine, files):
    """The statements that define the views of an engine, for the files of the test."""
    text = (DEPLOY / engine / "views.sql").read_text().replace("/srv/audit", str(files))
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def value(column, found):
    """A value as all engines give it: times in microseconds since 1970."""
    if isinstance(found, decimal.Decimal):
        return int(found)
    if column.endswith("time") and found is not None:
        if isinstance(found, str):
            found = datetime.datetime.fromisoformat(found)
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.timezone.utc)
        return round(found.timestamp() * 1_000_000)
    return found


def rows(columns, found):
    answer = [tuple(value(column, cell) for column, cell in zip(columns, row)) for row in found]
    return list(columns), sorted(answer, key=repr)


class DuckDb:
    name = "duckdb"

    def __init__(self):
        import duckdb

        self.connection = duckdb.connect()
        self.execute = self.connection.execute

    def ask(self, query):
        cursor = self.connection.execute(query)
        return rows([column[0] for column in cursor.description], cursor.fetchall())


class ClickHouse:
    name = "clickhouse"

    def __init__(self):
        from chdb import session

        self.session = session.Session()
        self.execute = self.session.query
        self.execute("CREATE DATABASE fleet")
        self.execute("USE fleet")

    def ask(self, query):
        text = str(self.session.query(query, "JSONCompactEachRowWithNames")).splitlines()
        columns, *found = [json.loads(line) for line in text]
        return rows(columns, found)


class Spark:
    name = "spark"

    def __init__(self):
        from pyspark.sql import SparkSession

        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g",
                    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                    "spark.ui.showConsoleProgress": "false"}
        builder = SparkSession.builder.master("local[2]")
        for name, setting in settings.items():
            builder = builder.config(name, setting)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.execute = self.session.sql

    def ask(self, query):
        frame = self.session.sql(query)
        return rows(frame.columns, [tuple(row) for row in frame.collect()])


def define(engine, files):
    for statement in statements(engine.name, files):
        engine.execute(statement)


def with_damaged_date(files, copy):
    """Copies the files, and adds a date whose file has a footer and no readable data."""
    shutil.copytree(files, copy)
    whole = max(files.glob("date=*/host=web1/*-400.parquet")).read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    damaged = copy / "date=2027-01-01" / "host=web1"
    damaged.mkdir(parents=True)
    (damaged / "x.parquet").write_bytes(whole[:4] + b"U" * (len(whole) - footer - 4) + whole[-footer:])


def without_times(columns, answer):
    kept = [number for number, column in enumerate(columns) if not column.endswith("time")]
    return sorted((tuple(row[number] for number in kept) for row in answer), key=repr)


def searches(made, answers):
    """What `tollgate search` counts in the logs, and the queries in the files."""

    def total(query, column, where=lambda row: True):
        columns, found = answers[query]
        return sum(row[columns.index(column)] for row in found if where(row))

    expected = {
        "key=exec and type=SYSCALL": total("costs", "event_count", lambda row: row[0] == "exec") - 1,
        "key=exec": total("costs", "event_count", lambda row: row[0] == "exec"),
        "key=shadow": total("costs", "event_count", lambda row: row[0] == "shadow"),
        "path=/etc/shadow and success=no": total("shadow", "event_count"),
        "type=USER_LOGIN": total("logins", "succeeded") + total("logins", "failed"),
        "text~020001BB01020304": total("connections", "event_count", lambda row: row[2] == "1.2.3.4"),
        "type=USER_CMD": total("sudo", "event_count"),
        "serial>0": total("doubles", "events_found"),
    }
    return [
        f"`{expression}`: tollgate search counts {found}, the queries {count}"
        for expression, count in expected.items()
        if (found := sum(host.search(expression) for host in made.values())) != count
    ]


def main():
    programs, work = sys.argv[1], Path(sys.argv[2]).resolve()
    made = hosts.simulate(programs, work)
    files = work / "audit"
    names = sorted(path.stem for path in (DEPLOY / "queries").glob("*.sql"))
    with_damaged_date(files, work / "damaged")
    by_date = "SELECT host, COUNT(*) AS events FROM audit WHERE date = DATE '2026-11-20' GROUP BY host"
    answers, wrong = {}, []
    for engine in [DuckDb(), ClickHouse(), Spark()]:
        begun = time.monotonic()
        define(engine, files)
        answers[engine.name] = {name: engine.ask((DEPLOY / "queries" / f"{name}.sql").read_text()) for name in names}
        print(f"fleet: {engine.name}: {len(names)} queries in {time.monotonic() - begun:.1f} s")
        whole = engine.ask(by_date)
        # Only the files of the date are read.
        define(engine, work / "damaged")
        if engine.ask(by_date) != whole:
            wrong.append(f"{engine.name}: files of another date were read")
    duckdb = answers["duckdb"]
    for name in names:
        for engine in ["clickhouse", "spark"]:
            if answers[engine][name] != duckdb[name]:
                wrong.append(f"{name}: {engine} differs:\n  {answers[engine][name]}\n  {duckdb[name]}")
        found = without_times(*duckdb[name])
        if not found:
            wrong.append(f"{name}: no row")
        if name in hosts.KNOWN and found != sorted(hosts.KNOWN[name], key=repr):
            wrong.append(f"{name}: expected {sorted(hosts.KNOWN[name], key=repr)}\n  found {found}")
    wrong += searches(made, duckdb)
    for text in wrong:
        print(f"fleet: {text}")
    print(f"fleet: {len(names)} queries, {len(made)} hosts, {len(wrong)} differences")
    return 1 if wrong else 0


sys.exit(main())
