"""Runs Sigma rules on an audit log by pySigma and SQLite, and by tollgate-detect. See compare.sh."""

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from itertools import product
from pathlib import Path

from sigma.backends.sqlite import sqliteBackend
from sigma.rule import SigmaRule

from audit_log import events, text
from sigma_events import record_events, whole_events

CATEGORIES = ("process_creation", "file_event", "network_connection")
# Without /proc, parents are known from events only, as they are here.
WITHOUT_PROC = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
EVERYTHING = "--once --from-start --format ecs --level informational --window 0 --rate 1000000000".split()


def column(field):
    """Names in SQLite ignore case: those that auditd added, as UID beside uid, get an ending."""
    return f"{field}_enriched" if field.isupper() else field


class Backend(sqliteBackend):
    # Columns are texts.
    compare_op_expression = "CAST({field} AS REAL) {operator} {value}"

    def escape_and_quote_field(self, field):
        return super().escape_and_quote_field(column(field))


def table(source):
    """Table of a log source; None if audit logs have no events of it."""
    if source.product not in (None, "linux"):
        return None
    if source.category in CATEGORIES and source.service in (None, "auditd"):
        return source.category
    return "auditd" if source.service == "auditd" and source.category is None else None


def convert(path):
    """Queries of the rules by id, their titles, columns by table, and errors."""
    queries, titles, columns, errors = {}, {}, {}, []
    for file in sorted(path.rglob("*.yml")) if path.is_dir() else [path]:
        try:
            rule = SigmaRule.from_yaml(file.read_text())
            name = table(rule.logsource)
            if name:
                backend = Backend(table=name, fulltext_field="all_values")
                found = backend.convert_rule(rule)
                queries[str(rule.id)] = [query.replace("*", "DISTINCT event", 1) for query in found]
                titles[str(rule.id)] = rule.title
                columns.setdefault(name, set()).update(backend.required_fields(rule))
        except Exception as error:  # pySigma raises many types.
            errors.append(f"{file}: {error}")
    return queries, titles, columns, errors


def rows(fields, own, columns):
    """Rows of an event: one for each of its keys."""
    fields = fields | {"all_values": "\n".join(own.values())}
    found = [fields.get(name) for name in columns]
    keys = [value.split("\1") if name == "key" and value else [value] for name, value in zip(columns, found)]
    return product(*keys)


def name_of(event):
    """Name of an event, as tollgate-detect writes it."""
    node = f":{text(event.node)}" if event.node else ""
    return f"{event.sec}.{event.milli:03}:{event.serial}{node}"


def fill(database, lines, columns):
    """Makes the tables; returns the ids of the events, and the numbers of rows."""
    columns = {name: sorted(fields) for name, fields in columns.items()}
    for name, fields in columns.items():
        types = "".join(f', "{column(field)}" TEXT COLLATE NOCASE' for field in fields)
        database.execute(f"CREATE TABLE {name} (event INTEGER{types})")
    ids, counts, processes = [], Counter(), {}
    for key, records in events(lines):
        found = [("auditd", *fields) for fields in record_events(records)]
        found += [(name, fields, {}) for name, fields in whole_events(key, records, processes)]
        for name, fields, own in found:
            counts[name] += 1
            wanted = columns.get(name)
            for row in rows(fields, own, wanted) if wanted else ():
                marks = ", ?" * len(row)
                database.execute(f"INSERT INTO {name} VALUES (?{marks})", (len(ids), *row))
        ids.append(name_of(key))
    return ids, counts


def tollgate_matches(program, rules, log, directory):
    """Rule and event of each match, with their number: logs can have the name of an event twice."""
    state = tempfile.mkdtemp(dir=directory)
    command = [program, "run", rules, "--log", log, "--state", state, *EVERYTHING]
    output = subprocess.run([*WITHOUT_PROC, *command], check=True, stdout=subprocess.PIPE).stdout
    alerts = [json.loads(line) for line in output.splitlines()]
    rules = [(alert["rule"]["id"], alert["event"]["id"]) for alert in alerts]
    return Counter((rule, event.removeprefix(f"{rule}:")) for rule, event in rules)


def summary(matches):
    return f"{matches.total()} matches of {len({rule for rule, _ in matches})} rules"


def report(expected, matches, titles):
    """Prints the differences; whether one is not permitted."""
    permitted = tomllib.loads(Path(__file__).with_name("permitted.toml").read_text()).get("difference", [])
    reasons = {(entry["rule"], entry["side"]): entry["reason"] for entry in permitted}
    sides = ("pysigma", expected - matches), ("tollgate", matches - expected)
    found = [(rule, event, side) for side, only in sides for rule, event in only.elements()]
    for rule, event, side in sorted(found):
        print(f"{side} only: {event} {rule} {titles[rule]}: {reasons.get((rule, side), 'NOT PERMITTED')}")
    return any((rule, side) not in reasons for rule, _, side in found)


def main():
    rules, log, *programs = sys.argv[1:]
    queries, titles, columns, errors = convert(Path(rules))
    with tempfile.TemporaryDirectory() as directory, open(log, "rb") as lines:
        # The last line ends the events before it.
        lines = [*lines, b"type=EOE msg=audit(99999999999.000:1):\n"]
        whole_log = Path(directory, "log")
        whole_log.write_bytes(b"".join(lines))
        database = sqlite3.connect(Path(directory, "events"))
        database.create_function("REGEXP", 2, lambda regex, value: value is not None and bool(re.search(regex, value)))
        ids, counts = fill(database, lines, columns)
        expected = Counter()
        for rule, of_rule in queries.items():
            expected.update((rule, ids[at]) for at in {at for query in of_rule for (at,) in database.execute(query)})
        for error in errors:
            print(f"not converted: {error}")
        print(f"rules      {len(queries)} converted, {len(errors)} not")
        print(f"events     {len(ids)} of {len(lines) - 1} records;", *(f"{n} {name}" for name, n in counts.items()))
        print(f"pySigma    {summary(expected)}", flush=True)
        differs = False
        for program in programs:
            matches = tollgate_matches(program, rules, whole_log, directory)
            matches = Counter({match: count for match, count in matches.items() if match[0] in queries})
            print(f"tollgate   {summary(matches)}: {program}")
            differs |= report(expected, matches, titles)
    sys.exit(differs)


try:
    main()
except (OSError, subprocess.SubprocessError, sqlite3.Error) as error:
    print(f"compare: {error}", file=sys.stderr)
    sys.exit(2)
