//! What `auditctl -h` shows.

/// One option a line.
pub(super) const TEXT: &str = "\
usage: auditctl [--offline] [--compat 3|4] [--control SOCKET] [options]
    --offline         First argument: read the rest, list what would be loaded, ask nobody
    --compat 3|4      Messages and listing of this version of auditctl; 4 by default
    --control SOCKET  Where the daemon listens; /run/tollgate/control by default

    -a LIST,ACTION    Add a rule at the end of a list
    -A LIST,ACTION    Add a rule at the front of a list
    -d LIST,ACTION    Delete the equal rule
                      LIST: task, exit, user, exclude, filesystem, io_uring
                      ACTION: always, never
    -S SYSCALL,...    Syscalls of the rule, by name or number, or all
    -F FIELD OP VALUE Condition, without blanks; OP: = != < > <= >= & &=
    -C FIELD OP FIELD Comparison of two fields; OP: = !=
    -k KEY            Key by which events are found
    -p rwxa           Accesses: read, write, execute, change of attributes
    -w PATH           Watch a file, or a directory and all below it
    -W PATH           Delete a watch
    -D [-k KEY]       Delete all rules, or those whose key contains KEY
    -R FILE           Read commands from a file; the only option then
    -i                Ignore mistakes in a file; with -l and -s, words for numbers
    -c                Go on after mistakes in a file, and fail at its end
    -l [-i|-k KEY]    List the rules
    -s [-i]           Show the status
    -b NUMBER         Records that may wait
    -e 0|1|2          Disable, enable, lock until reboot
    -f 0|1|2          On failure: silent, printk, panic
    -r NUMBER         Records a second, 0 for no limit
    -m TEXT           Send a message
    -q MOUNT,SUBTREE  Let a watch hold for what is mounted below it
    -t                Forget directories that are gone
    -v                Show the version
    -h, --help        Show this
    --backlog_wait_time NUMBER
                      How long to wait when too many records wait
    --loginuid-immutable
                      Login uids cannot be changed once set
    --reset-lost      Zero the count of lost records
    --reset_backlog_wait_time_actual
                      Zero the time waited
    --signal SIGNAL   Tell the daemon: TERM or stop, HUP or reload, USR1 or rotate,
                      USR2 or resume, CONT or state
";
