-- Spark: views over the files of a `[parquet.NAME]` destination. Replace /srv/audit by its directory.
-- What differs from the other engines is here; the queries are the same for all.
SET TIME ZONE 'UTC';

-- All rows of all files. `date` and `host` come from the names of directories: `host` is text, also if it is a number,
-- and so is `date` until it is cast.
SET spark.sql.sources.partitionColumnTypeInference.enabled = false;

CREATE OR REPLACE TEMPORARY VIEW audit_rows USING parquet
OPTIONS (path '/srv/audit');

CREATE OR REPLACE TEMPORARY VIEW audit_files AS
SELECT * EXCEPT (date), CAST(date AS DATE) AS date
FROM audit_rows;

-- Without doubles: an event is the same if host, boot, time, serial and records are. A filter on `date` reads only the
-- files of that date.
CREATE OR REPLACE TEMPORARY VIEW audit AS
SELECT * EXCEPT (copy)
FROM (
  SELECT *, ROW_NUMBER() OVER (
    PARTITION BY date, host, boot, time, kind, serial, after, before, records ORDER BY time
  ) AS copy
  FROM audit_files
)
WHERE copy = 1;

-- A row for each key of an event.
CREATE OR REPLACE TEMPORARY VIEW audit_keys AS
SELECT date, host, boot, time, serial, syscall, exe, auid, octet_length(records) AS log_bytes, explode(key) AS rule_key
FROM audit
WHERE kind = 'event';

-- A row for each object of an event.
CREATE OR REPLACE TEMPORARY VIEW audit_paths AS
SELECT date, host, boot, time, serial, syscall, success, exit, auid, uid, exe, comm, cwd,
       object.name AS path_name, object.nametype AS nametype
FROM (SELECT *, explode(path) AS object FROM audit WHERE kind = 'event');

-- A row for each loss of a heartbeat.
CREATE OR REPLACE TEMPORARY VIEW audit_losses AS
SELECT date, host, boot, time, loss, lost_count
FROM (SELECT *, explode(lost) AS (loss, lost_count) FROM audit WHERE kind = 'heartbeat');
