-- Which rule (key) costs most across the fleet: events, bytes of log, hosts?
SELECT rule_key, COUNT(*) AS event_count, SUM(log_bytes) AS log_bytes_sum, COUNT(DISTINCT host) AS host_count
FROM audit_keys
GROUP BY rule_key
ORDER BY log_bytes_sum DESC, rule_key
