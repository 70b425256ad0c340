-- Which hosts are silent: the last record is five minutes older than the newest one of the fleet?
SELECT host, MAX(time) AS last_time, MAX(serial) AS last_serial
FROM audit
GROUP BY host
HAVING MAX(time) < (SELECT MAX(time) FROM audit) - INTERVAL '5' MINUTE
ORDER BY last_time, host
