-- Who failed to open /etc/shadow?
SELECT host, auid, uid, exe, exit, COUNT(*) AS event_count, MAX(time) AS last_time
FROM audit_paths
WHERE path_name = '/etc/shadow' AND NOT success
GROUP BY host, auid, uid, exe, exit
ORDER BY event_count DESC, host, auid, uid, exe, exit
