-- Which programs ran on the last day that never ran before, on any host?
SELECT exe, COUNT(*) AS event_count, COUNT(DISTINCT host) AS host_count, MIN(host) AS first_host
FROM audit
WHERE kind = 'event' AND syscall IN ('execve', 'execveat') AND success
GROUP BY exe
HAVING MIN(date) = (SELECT MAX(date) FROM audit WHERE kind = 'event')
ORDER BY host_count DESC, exe
