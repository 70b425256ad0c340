-- ClickHouse: views over the files of a `[parquet.NAME]` destination. Replace /srv/audit by its directory; a server
-- reads only what is below its `user_files_path`.
-- What differs from the other engines is here; the queries are the same for all.

-- All rows of all files. `date` and `host` come from the names of directories; ClickHouse does not decode them.
CREATE OR REPLACE VIEW audit_files AS
SELECT * REPLACE (decodeURLComponent(host) AS host)
FROM file('/srv/audit/*/*/*.parquet', Parquet)
SETTINGS use_hive_partitioning = 1;

-- Without doubles: an event is the same if host, boot, time, serial and records are. A filter on `date` reads only the
-- files of that date.
CREATE OR REPLACE VIEW audit AS
SELECT *
FROM audit_files
QUALIFY row_number() OVER (
  PARTITION BY date, host, boot, time, kind, serial, after, before, records ORDER BY time
) = 1;

-- A row for each key of an event.
CREATE OR REPLACE VIEW audit_keys AS
SELECT date, host, boot, time, serial, syscall, exe, auid, length(records) AS log_bytes, rule_key
FROM audit ARRAY JOIN key AS rule_key
WHERE kind = 'event';

-- A row for each object of an event.
CREATE OR REPLACE VIEW audit_paths AS
SELECT date, host, boot, time, serial, syscall, success, exit, auid, uid, exe, comm, cwd,
       tupleElement(object, 'name') AS path_name, tupleElement(object, 'nametype') AS nametype
FROM audit ARRAY JOIN path AS object
WHERE kind = 'event';

-- A row for each loss of a heartbeat.
CREATE OR REPLACE VIEW audit_losses AS
SELECT date, host, boot, time, loss, lost_count
FROM audit ARRAY JOIN mapKeys(lost) AS loss, mapValues(lost) AS lost_count
WHERE kind = 'heartbeat';
