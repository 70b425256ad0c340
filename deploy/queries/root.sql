-- Who became root: which users, by login uid, ran something as root that was not root at login?
SELECT host, auid, exe, COUNT(*) AS event_count, MIN(time) AS first_time, MAX(time) AS last_time
FROM audit
WHERE kind = 'event' AND syscall IN ('execve', 'execveat') AND success
  AND euid = 0 AND auid > 0 AND auid < 4294967295
GROUP BY host, auid, exe
ORDER BY event_count DESC, host, auid, exe
