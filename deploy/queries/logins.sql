-- Who logged in, from where, and how often did it fail?
SELECT host, acct, addr, SUM(CASE WHEN res = 'success' THEN 1 ELSE 0 END) AS succeeded,
       SUM(CASE WHEN res = 'success' THEN 0 ELSE 1 END) AS failed, MAX(time) AS last_time
FROM audit
WHERE kind = 'event' AND type IN ('USER_LOGIN', 'USER_AUTH')
GROUP BY host, acct, addr
ORDER BY failed DESC, succeeded DESC, host, acct, addr
