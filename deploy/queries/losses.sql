-- What was lost where, and why? Heartbeats have the sums since the state of a destination began.
SELECT host, loss, MAX(lost_count) AS lost_sum
FROM audit_losses
GROUP BY host, loss
ORDER BY lost_sum DESC, host, loss
