-- Who changed what is audited, or ended the daemon?
SELECT time, host, type, op, auid, records
FROM audit
WHERE kind = 'event' AND type IN ('CONFIG_CHANGE', 'DAEMON_CONFIG', 'DAEMON_START', 'DAEMON_END', 'DAEMON_ABORT')
ORDER BY time, host, type
