//! The text of `auditctl -h`.

/// One option per line.
pub(super) const TEXT: &str = "\
usage: auditctl [--offline] [--compat 3|4] [--control SOCKET] [options]
    --offline         Print what would be loaded, without a daemon and without root
    --compat 3|4      Print messages and listings of this version; 4 by default
    --control SOCKET  Connect to the daemon at SOCKET; /run/tollgate/control by default
                      These three must precede the other options.

    -a LIST,ACTION    Append a rule to a list
    -A LIST,ACTION    Insert a rule at the front of a list
    -d LIST,ACTION    Delete the rule that equals this one
                      LIST: task, exit, user, exclude, filesystem, io_uring
                      ACTION: always, never
    -S SYSCALL,...    Syscalls of the rule, by name or number, or all
    -F FIELD OP VALUE Condition, without spaces; OP: = != < > <= >= & &=
    -C FIELD OP FIELD Compare two fields; OP: = !=
    -k KEY            Key of the events, for ausearch -k
    -p rwxa           Accesses: read, write, execute, change attributes
    -w PATH           Watch a file, or a directory and everything below it
    -W PATH           Delete a watch
    -D [-k KEY]       Delete all rules, or those whose key contains KEY
    -R FILE           Read options from a file; must be the only option
    -i                Ignore errors in a file; with -l and -s, print names
    -c                Continue after errors in a file, and fail at its end
    -l [-i|-k KEY]    List the rules
    -s [-i]           Print the status
    -b NUMBER         Set the backlog limit (no effect on tollgate)
    -e 0|1|2          Disable, enable, lock until reboot
    -f 0|1|2          When events are lost: silent, printk, panic
    -r NUMBER         Limit records per second; 0 is no limit
    -m TEXT           Write a message to the log
    -q MOUNT,SUBTREE  Apply the watches of a directory to a mounted subtree
    -t                Trim subtrees whose directories are gone
    -v                Print the version
    -h, --help        Print this help
    --backlog_wait_time NUMBER
                      Set the wait time of the backlog (no effect on tollgate)
    --loginuid-immutable
                      Do not allow changes of login uids once they are set
    --reset-lost      Reset the counter of lost records
    --reset_backlog_wait_time_actual
                      Reset the total wait time
    --signal SIGNAL   Signal the daemon: TERM or stop, HUP or reload, USR1 or rotate,
                      USR2 or resume, CONT or state
";
