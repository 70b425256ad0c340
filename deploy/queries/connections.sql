-- Where do hosts connect to? A connection that is not waited for ends with EINPROGRESS (115).
SELECT host, exe, saddr_address, saddr_port, COUNT(*) AS event_count
FROM audit
WHERE kind = 'event' AND syscall = 'connect' AND saddr_fam IN (2, 10) AND (success OR exit = -115)
GROUP BY host, exe, saddr_address, saddr_port
ORDER BY event_count DESC, host, exe, saddr_address, saddr_port
