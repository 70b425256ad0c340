-- Which kernel modules were loaded, by whom?
SELECT time, host, auid, exe, success, exit
FROM audit
WHERE kind = 'event' AND syscall IN ('init_module', 'finit_module')
ORDER BY time, host
