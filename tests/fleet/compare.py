"""Runs each query in each engine, and compares the answers with each other, with those that are known, and with
`tollgate search`."""

import datetime
import decimal
import json
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


def duckdb_engine(files):
    import duckdb

    connection = duckdb.connect()
    for statement in statements("duckdb", files):
        connection.execute(statement)

    def ask(query):
        cursor = connection.execute(query)
        return rows([column[0] for column in cursor.description], cursor.fetchall())

    return ask


def clickhouse_engine(files):
    from chdb import session

    opened = session.Session()
    opened.query("CREATE DATABASE fleet")
    opened.query("USE fleet")
    for statement in statements("clickhouse", files):
        opened.query(statement)

    def ask(query):
        text = str(opened.query(query, "JSONCompactEachRowWithNames")).splitlines()
        columns, *found = [json.loads(line) for line in text]
        return rows(columns, found)

    return ask


def spark_engine(files):
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for statement in statements("spark", files):
        session.sql(statement)

    def ask(query):
        frame = session.sql(query)
        return rows(frame.columns, [tuple(row) for row in frame.collect()])

    return ask


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
    answers, wrong = {}, []
    for engine in [duckdb_engine, clickhouse_engine, spark_engine]:
        begun = time.monotonic()
        ask = engine(files)
        answers[engine] = {name: ask((DEPLOY / "queries" / f"{name}.sql").read_text()) for name in names}
        print(f"{engine.__name__}: {len(names)} queries in {time.monotonic() - begun:.1f} s")
    duckdb = answers[duckdb_engine]
    for name in names:
        for engine in [clickhouse_engine, spark_engine]:
            if answers[engine][name] != duckdb[name]:
                wrong.append(f"{name}: {engine.__name__} differs:\n  {answers[engine][name]}\n  {duckdb[name]}")
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
