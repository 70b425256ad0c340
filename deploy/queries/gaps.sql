-- Which hosts have gaps: how many serials are missing, and since when?
SELECT host, boot, reason, COUNT(*) AS gap_count, SUM(missing) AS missing_serials,
       MIN(time) AS first_time, MAX(time) AS last_time
FROM audit
WHERE kind = 'gap'
GROUP BY host, boot, reason
ORDER BY missing_serials DESC, host, boot, reason
