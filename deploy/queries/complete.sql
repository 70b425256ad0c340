-- Is the archive complete? Serials of tollgate are dense: what is between the first and the last of a boot is there,
-- or told by a gap; else it is unexplained. For destinations without a filter.
SELECT host, boot, first_serial, last_serial, found, told, last_serial - first_serial + 1 - found - told AS unexplained
FROM (
  SELECT host, boot,
         MIN(CASE WHEN kind = 'event' THEN serial END) AS first_serial,
         MAX(CASE WHEN kind = 'event' THEN serial END) AS last_serial,
         COUNT(DISTINCT CASE WHEN kind = 'event' THEN serial END) AS found,
         SUM(CASE WHEN kind = 'gap' THEN missing ELSE 0 END) AS told
  FROM audit
  WHERE (kind = 'event' AND serial >= 2147483648) OR (kind = 'gap' AND after >= 2147483648)
  GROUP BY host, boot
) AS boots
ORDER BY unexplained DESC, host, boot
