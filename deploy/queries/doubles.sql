-- How many events came twice, after a kill or a failure?
SELECT host, SUM(copies - 1) AS doubles, COUNT(*) AS events_found
FROM (
  SELECT host, boot, time, serial, records, COUNT(*) AS copies
  FROM audit_files
  WHERE kind = 'event'
  GROUP BY host, boot, time, serial, records
) AS found
GROUP BY host
ORDER BY doubles DESC, host
