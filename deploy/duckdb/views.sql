-- DuckDB: views over the files of a `[parquet.NAME]` destination. Replace /srv/audit by its directory.
-- What differs from the other engines is here; the queries are the same for all.
SET TimeZone = 'UTC';

-- All rows of all files. `date` and `host` come from the names of directories: `host` is text, also if it is a number.
CREATE OR REPLACE VIEW audit_files AS
SELECT *
FROM read_parquet('/srv/audit/*/*/*.parquet', hive_partitioning = true, hive_types = {'date': DATE, 'host': VARCHAR});

-- Without doubles: an event is the same if host, boot, time, serial and records are. A filter on `date` reads only the
-- files of that date.
CREATE OR REPLACE VIEW audit AS
SELECT *
FROM audit_files
QUALIFY ROW_NUMBER() OVER (
  PARTITION BY date, host, boot, time, kind, serial, after, before, records ORDER BY time
) = 1;

-- A row for each key of an event.
CREATE OR REPLACE VIEW audit_keys AS
SELECT date, host, boot, time, serial, syscall, exe, auid, strlen(records) AS log_bytes, unnest(key) AS rule_key
FROM audit
WHERE kind = 'event';

-- A row for each object of an event.
CREATE OR REPLACE VIEW audit_paths AS
SELECT date, host, boot, time, serial, syscall, success, exit, auid, uid, exe, comm, cwd,
       object.name AS path_name, object.nametype AS nametype
FROM (SELECT *, unnest(path) AS object FROM audit WHERE kind = 'event');

-- A row for each loss of a heartbeat.
CREATE OR REPLACE VIEW audit_losses AS
SELECT date, host, boot, time, entry.key AS loss, entry.value AS lost_count
FROM (SELECT *, unnest(map_entries(lost)) AS entry FROM audit WHERE kind = 'heartbeat');
