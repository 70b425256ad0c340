-- Which commands were run by sudo, by whom?
SELECT host, auid, cmd, res, COUNT(*) AS event_count, MAX(time) AS last_time
FROM audit
WHERE kind = 'event' AND type = 'USER_CMD'
GROUP BY host, auid, cmd, res
ORDER BY event_count DESC, host, auid, cmd, res
