//! Random logs: records of many types with usual, odd and hostile values, interleaved and damaged.

use crate::random::Random;

/// Records of one event each, without the stamp; words in braces are replaced with values.
const EVENTS: &[&[&str]] = &[
    &[
        "SYSCALL arch=c000003e syscall={sys} success={yesno} exit={exit} a0={hex} a1={hex} a2={hex} a3={hex} items=1 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} subj={label} key={key}",
        "CWD cwd={path}",
        "PATH item=0 name={path} inode={n} dev=08:01 mode={mode} ouid={uid} ogid={uid} rdev=00:00 obj={label} nametype={kind} cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0",
        "PROCTITLE proctitle={title}",
    ],
    &[
        "SYSCALL arch={arch} syscall={sys} success={yesno} exit={exit} a0={hex} a1={hex} a2={hex} a3={hex} items=2 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} key={key}",
        "EXECVE argc=2 a0={name} a1={name} a2_len=3",
        "CWD cwd={path}",
        "PATH item=0 name={path} inode={n} dev=08:01 mode={mode} ouid={uid} ogid={uid} rdev=00:00 nametype=PARENT",
        "PATH item=1 name={path} nametype={kind}",
        "PROCTITLE proctitle={title}",
        "EOE ",
    ],
    &[
        "SYSCALL arch=c000003e syscall=42 success={yesno} exit={exit} a0=3 a1={hex} a2=10 a3=0 items=0 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} key={key}",
        "SOCKADDR saddr={saddr}",
    ],
    &[
        "AVC avc:  {avc}  { {perm} } for  pid={pid} comm={name} path={path} dev=\"sda1\" ino={n} scontext={label} tcontext={label} tclass=file permissive=0",
        "SYSCALL arch=c000003e syscall={sys} success=no exit=-13 a0={hex} a1={hex} a2={hex} a3={hex} items=0 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} subj={label} key=(null)",
    ],
    &[
        "AVC avc:  denied  { {perm} } for  pid={pid} comm={name} name={path} dev=\"sda1\" ino={n} scontext={label} tcontext={label} tclass=dir",
    ],
    &[
        "USER_AVC pid={pid} uid={uid} auid={uid} ses={ses} subj={label} msg='avc:  {avc}  { {perm} } for msgtype=method_call scontext={label} tcontext={label} tclass=dbus permissive=0  exe={path} sauid={uid} hostname={host} addr={host} terminal={tty}'",
    ],
    &[
        "USER_LOGIN pid={pid} uid={uid} auid={uid} ses={ses} msg='op=login id={uid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_LOGIN pid={pid} uid={uid} auid={uid} ses={ses} msg='op=login acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_AUTH pid={pid} uid={uid} auid={uid} ses={ses} msg='op=PAM:authentication grantors=pam_unix acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_ACCT pid={pid} uid={uid} auid={uid} msg='PAM: accounting acct={acct} : exe={path} (hostname={host}, addr={host}, terminal={tty} res={res})'",
    ],
    &[
        "USER_START pid={pid} uid={uid} auid={uid} ses={ses} subj={label} msg='op=PAM:session_open acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_END pid={pid} uid={uid} auid={uid} ses={ses} msg='op=PAM:session_close acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "CRED_ACQ pid={pid} uid={uid} auid={uid} ses={ses} msg='op=PAM:setcred acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_CMD pid={pid} uid={uid} auid={uid} ses={ses} msg='cwd={path} cmd={name} exe={path} terminal={tty} res={res}'",
    ],
    &[
        "USER_CHAUTHTOK pid={pid} uid={uid} auid={uid} ses={ses} msg='op=change password id={uid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "USER_MGMT pid={pid} uid={uid} auid={uid} ses={ses} msg='op=modify user acct={acct} id={uid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "ADD_USER pid={pid} uid={uid} auid={uid} ses={ses} msg='op=adding user acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "ADD_GROUP pid={pid} uid={uid} auid={uid} ses={ses} msg='op=adding group id={uid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "GRP_MGMT pid={pid} uid={uid} auid={uid} ses={ses} msg='op=modify-group grp={acct} new_gid={uid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "ROLE_ASSIGN pid={pid} uid={uid} auid={uid} ses={ses} msg='op=login-sename acct={acct} old-seuser=? new-role=r,r exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "LOGIN pid={pid} uid={uid} subj={label} old-auid={uid} auid={uid} tty={tty} old-ses={ses} ses={ses} res=1",
    ],
    &[
        "DAEMON_START op=start ver=3.0.9 format=enriched kernel=6.12 auid={uid} pid={pid} uid={uid} ses={ses} subj={label} res=success",
    ],
    &["DAEMON_END op=terminate auid={uid} uid={uid} ses={ses} pid={pid} subj={label} res=failed"],
    &["DAEMON_ACCEPT op=accept addr={host}:1024 port=60 res=success"],
    &["CONFIG_CHANGE auid={uid} ses={ses} op=add_rule key={key} list={n} res=1"],
    &["CONFIG_CHANGE op=set audit_enabled=1 old=0 auid={uid} ses={ses} res={bit}"],
    &[
        "CONFIG_CHANGE auid={uid} ses={ses} subj={label} op=remove_rule key={key} list=4 res=1",
        "SYSCALL arch=c000003e syscall=44 success=yes exit=1060 a0=5 a1={hex} a2=424 a3=0 items=0 ppid={pid} pid={pid} auid={uid} uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty={tty} ses={ses} comm=\"auditctl\" exe=\"/usr/sbin/auditctl\" key=(null)",
        "PROCTITLE proctitle={title}",
    ],
    &[
        "ANOM_ABEND auid={uid} uid={uid} gid={uid} ses={ses} subj={label} pid={pid} comm={name} exe={path} sig={sig} res=1",
    ],
    &["ANOM_PROMISCUOUS dev=eth0 prom=256 old_prom=0 auid={uid} uid={uid} gid={uid} ses={ses}"],
    &[
        "ANOM_LOGIN_FAILURES pid={pid} uid={uid} auid={uid} ses={ses} msg='pam_faillock acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "RESP_ACCT_LOCK pid={pid} uid={uid} auid={uid} ses={ses} msg='pam_faillock acct={acct} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "SECCOMP auid={uid} uid={uid} gid={uid} ses={ses} subj={label} pid={pid} comm={name} exe={path} sig={sig} arch=c000003e syscall={sys} compat=0 ip=0x7f code=0x{code}",
    ],
    &[
        "MAC_STATUS enforcing=1 old_enforcing=0 auid={uid} ses={ses} enabled=1 old-enabled=1 lsm=selinux res=1",
    ],
    &["MAC_POLICY_LOAD auid={uid} ses={ses} lsm=selinux res=1"],
    &[
        "INTEGRITY_DATA pid={pid} uid={uid} auid={uid} ses={ses} subj={label} op=appraise_data cause=missing-hash comm={name} name={path} dev=\"sda1\" ino={n} res={bit} errno={sig}",
    ],
    &["INTEGRITY_RULE file={path} hash=\"sha256:00\" ppid={pid} pid={pid} auid={uid} uid={uid}"],
    &[
        "CRYPTO_KEY_USER pid={pid} uid={uid} auid={uid} ses={ses} msg='op=destroy kind=server fp=SHA256:00:11 direction=? spid={pid} suid={uid}  exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "CRYPTO_SESSION pid={pid} uid={uid} auid={uid} ses={ses} msg='op=start direction=from-server cipher=aes256 ksize=256 mac=<implicit> pfs=curve25519 spid={pid} suid={uid} rport={n} laddr={host} lport=22  exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "VIRT_CONTROL pid={pid} uid={uid} auid={uid} ses={ses} msg='virt=kvm op=start reason=booted vm={name} uuid={uuid} vm-pid={pid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "VIRT_RESOURCE pid={pid} uid={uid} auid={uid} ses={ses} msg='virt=kvm resrc=disk reason=start vm={name} uuid={uuid} old-disk={path} new-disk={path} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "VIRT_MACHINE_ID pid={pid} uid={uid} auid={uid} ses={ses} msg='virt=kvm vm={name} uuid={uuid} vm-ctx={label} img-ctx={label} model=selinux exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "SERVICE_START pid=1 uid=0 auid={uid} ses={ses} subj={label} msg='unit=cron comm=\"systemd\" exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "SYSTEM_BOOT pid={pid} uid=0 auid={uid} ses={ses} msg=' comm=\"systemd-update-utmp\" exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "SOFTWARE_UPDATE pid={pid} uid={uid} auid={uid} ses={ses} msg='op=install sw={name} sw_type=rpm key_enforce=0 gpg_res=1 root_dir={path} comm={name} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &["TTY tty pid={pid} uid={uid} auid={uid} ses={ses} major=136 minor=1 comm={name} data={keys}"],
    &["USER_TTY pid={pid} uid={uid} auid={uid} ses={ses} data={keys} "],
    &[
        "SYSCALL arch=c000003e syscall=175 success=yes exit=0 a0={hex} a1={hex} a2={hex} a3=0 items=0 ppid={pid} pid={pid} auid={uid} uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty={tty} ses={ses} comm={name} exe={path} key={key}",
        "KERN_MODULE name={name}",
    ],
    &[
        "NETFILTER_CFG table=filter family=2 entries=4 op=register pid={pid} subj={label} comm={name}",
        "SYSCALL arch=c000003e syscall=54 success=yes exit=0 a0=4 a1=0 a2=40 a3={hex} items=0 ppid={pid} pid={pid} auid={uid} uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty={tty} ses={ses} comm={name} exe={path} key=(null)",
    ],
    &["NETFILTER_CFG table=nat:3 family=10 entries=4 op=nft_register_rule pid={pid} comm={name}"],
    &[
        "NETFILTER_PKT mark=0x1 saddr=192.0.2.7 daddr=192.0.2.8 proto=6 obj={label} hook=1 action=0 icmptype=8 macproto=0800",
    ],
    &[
        "SYSCALL arch=c000003e syscall=62 success=yes exit=0 a0={hex} a1={sig} a2=0 a3=0 items=0 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} key={key}",
        "OBJ_PID opid={pid} oauid={uid} ouid={uid} oses={ses} obj={label} ocomm={name}",
        "PROCTITLE proctitle={title}",
    ],
    &[
        "SYSCALL arch=c000003e syscall=9 success=yes exit=0 a0=0 a1={hex} a2={hex} a3={hex} items=0 ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} key={key}",
        "MMAP fd=3 flags=0x{hex}",
        "CAPSET pid={pid} cap_pi={hex} cap_pp={hex} cap_pe={hex} cap_pa={hex}",
        "BPRM_FCAPS fver=0 fp={hex} fi={hex} fe=0 old_pp={hex} old_pi=0 old_pe={hex} old_pa=0 pp={hex} pi=0 pe={hex} pa=0 frootid=0",
        "IPC ouid={uid} ogid={uid} mode={mode} obj={label}",
        "MQ_OPEN oflag={hex} mode={mode} mq_flags=0x0 mq_maxmsg=10 mq_msgsize=10 mq_curmsgs=0",
        "FD_PAIR fd0=3 fd1=4",
    ],
    &["BPF prog-id={n} op=LOAD"],
    &["FANOTIFY resp={bit} fan_type={bit} fan_info=3137 subj_trust={bit} obj_trust=2"],
    &[
        "FEATURE_CHANGE ppid={pid} pid={pid} auid={uid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} tty={tty} ses={ses} comm={name} exe={path} subj={label} feature=loginuid_immutable old=0 new=1 old_lock=0 new_lock=1 res={bit}",
    ],
    &[
        "EVENT_LISTENER pid={pid} uid={uid} auid={uid} tty={tty} ses={ses} subj={label} comm={name} exe={path} nl-mcgrp=1 op=connect res={bit}",
    ],
    &[
        "URINGOP uring_op={sys} success={yesno} exit={exit} items=0 ppid={pid} pid={pid} uid={uid} gid={uid} euid={uid} suid={uid} fsuid={uid} egid={uid} sgid={uid} fsgid={uid} subj={label} key={key}",
    ],
    &["KERNEL audit_lost=1 audit_rate_limit=0 audit_backlog_limit=64"],
    &["UNKNOWN[1999] auid={uid} x={hex}"],
    &[
        "USER pid={pid} uid={uid} auid={uid} ses={ses} msg='text={name} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
    &[
        "TRUSTED_APP pid={pid} uid={uid} auid={uid} ses={ses} msg='kind={hex} pid={pid} name={path} x={name} exe={path} res={res}'",
    ],
    &[
        "LABEL_LEVEL_CHANGE pid={pid} uid={uid} auid={uid} ses={ses} msg='printer=lp banners=none,none range=s0 exe={path} hostname={host}, addr={host}, terminal={tty} res={res}'",
    ],
    &[
        "USER_DEVICE pid={pid} uid={uid} auid={uid} ses={ses} msg='op=add device={name} uuid={uuid} exe={path} hostname={host} addr={host} terminal={tty} res={res}'",
    ],
];

/// Values of the words in braces. Accounts are those that every Debian has, or none.
#[expect(clippy::too_many_lines, reason = "a table")]
fn value(word: &str, random: &mut Random) -> String {
    let words: &[&str] = match word {
        "sys" => &[
            "0", "1", "2", "9", "10", "41", "42", "49", "54", "55", "56", "59", "62", "72", "82",
            "83", "86", "87", "88", "90", "92", "94", "101", "105", "106", "117", "133", "135",
            "157", "160", "165", "166", "200", "227", "257", "258", "260", "263", "264", "268",
            "272", "280", "288", "304", "308", "321", "322", "437", "439", "99999", "-1",
        ],
        "yesno" => &["yes", "no"],
        "exit" => &[
            "0",
            "3",
            "-2",
            "-13",
            "-512",
            "-4095",
            "140737",
            "18446744073709551615",
        ],
        "hex" => &[
            "0",
            "1",
            "2",
            "3",
            "6",
            "9",
            "a",
            "10",
            "11",
            "1d",
            "29",
            "1ff",
            "241",
            "80000",
            "ffffff9c",
            "ffffffff",
            "7ffc2ac86780",
            "1200011",
            "4000",
            "107",
            "12",
            "5401",
            "21",
            "xyz",
            "fffffffffffffffff",
            "8000000000000000",
        ],
        "pid" => &["1", "2", "777", "4242", "99999", "-1", "0"],
        "uid" => &["0", "1", "33", "4242", "4294967295", "65534"],
        "tty" => &["pts0", "(none)", "ssh", "/dev/pts/1", "?", "cron"],
        "ses" => &["1", "2", "4294967295", "77"],
        "name" => &[
            "\"cat\"",
            "\"systemd\"",
            "\"my prog\"",
            "6D792070726F67",
            "1B5B316D",
            "(null)",
            "\"a=b\"",
            "\"x,y\"",
            "C3A9",
            "61000062",
            "\"unended",
            "zz",
            "",
        ],
        "path" => &[
            "\"/usr/bin/cat\"",
            "\"/etc/passwd\"",
            "\"./x\"",
            "\"../y z\"",
            "2F746D702F612062",
            "(null)",
            "\"/tmp/a,b\"",
            "\"/usr/bin/bash\"",
            "\"/\"",
            "00616263",
            "2E2E2F78",
            "\"/home/../etc/shadow\"",
            "\"/usr/bin/python3\"",
            "?",
        ],
        "label" => &[
            "unconfined",
            "system_u:system_r:init_t:s0",
            "u:r:t:s0:c1,c2",
            "root:staff_r",
        ],
        "key" => &[
            "\"identity\"",
            "(null)",
            "\"pci\"",
            "6964656E746974790170636901",
            "\"a key\"",
            "1B01",
        ],
        "n" => &["0", "1", "4", "131074"],
        "mode" => &[
            "0100644", "040755", "0104755", "020620", "0120777", "0140777", "0177777", "01777", "0",
        ],
        "kind" => &["NORMAL", "PARENT", "CREATE", "DELETE", "UNKNOWN"],
        "title" => &[
            "636174002F6574632F706173737764",
            "\"ls\"",
            "6C73",
            "(null)",
            "7368002D6300781B",
            "63617",
        ],
        "arch" => &[
            "c000003e", "40000003", "c00000b7", "dead", "80000016", "xyz",
        ],
        "saddr" => &[
            "020000357F0000010000000000000000",
            "0A001F90000000000000000000000000000000000000000100000000",
            "01002F72756E2F6100",
            "0100006162630000",
            "100000000700000001000000",
            "0200",
            "0100",
            "FFFF0000",
            "11000300",
            "2800000000000000",
            "(null)",
            "z",
        ],
        "avc" => &["denied", "granted"],
        "perm" => &["read", "read write", "open"],
        "host" => &["192.0.2.7", "web1", "?", "::1", "-"],
        "res" => &["success", "failed", "1", "0"],
        "bit" => &["0", "1"],
        "acct" => &[
            "\"root\"",
            "\"alice\"",
            "726F6F74",
            "bob",
            "\"www-data\"",
            "28696E76616C6964207573657229",
            "1000",
        ],
        "sig" => &["6", "9", "11", "15", "64", "0"],
        "code" => &["0", "50000", "7ffc0000", "80000000", "7fff0000", "99"],
        "uuid" => &["01234567-89ab-cdef-0123-456789abcdef", "x", ":"],
        "keys" => &["6C730D", "1B5B41", "7F78226101", "nohex", "6"],
        _ => panic!("no values for {word}"),
    };
    random.pick(words).to_owned()
}

/// Replaces the words in braces.
fn filled(template: &str, random: &mut Random) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(before);
        let (word, after) = behind.split_once('}').unwrap();
        if word.chars().all(|letter| letter.is_ascii_lowercase()) && !word.is_empty() {
            text.push_str(&value(word, random));
            rest = after;
        } else {
            text.push('{');
            rest = behind;
        }
    }
    text + rest
}

/// The names that a daemon would add to a record, or something like them.
fn enrichment(random: &mut Random) -> &'static str {
    random.pick(&[
        "\x1dAUID=\"root\" UID=\"www-data\" GID=\"root\"",
        "\x1dARCH=x86_64 SYSCALL=openat AUID=\"unset\" UID=\"root\"",
        "\x1dSADDR={ saddr_fam=inet laddr=192.0.2.1 lport=1 }",
        "\x1dUID=\"unknown-x\" AUID=\"alice\"",
        "\x1d",
        "\x1dOUID=7720",
    ])
}

/// What is done to a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    /// One line in this many is damaged; none if zero.
    pub(crate) once_in: usize,
    pub(crate) interleaved: bool,
    pub(crate) enriched: bool,
    pub(crate) nodes: bool,
}

/// A random log.
pub(crate) fn log(random: &mut Random, events: usize, damage: Damage) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let (mut seconds, mut millis) = (1_700_000_000_u64, 0);
    for serial in 1..=events {
        millis += random.below(900);
        seconds += u64::try_from(millis / 1000).unwrap() + u64::from(random.once_in(20)) * 60;
        millis %= 1000;
        let node = if damage.nodes {
            random.pick(&["node=web1 ", "node=web2 ", ""])
        } else {
            ""
        };
        let stamp = format!("msg=audit({seconds}.{millis:03}:{serial}): ");
        for record in random.pick(EVENTS) {
            let (kind, body) = record.split_once(' ').unwrap();
            let body = filled(body, random);
            let mut line = format!("{node}type={kind} {stamp}{body}").into_bytes();
            if damage.enriched && !random.once_in(4) {
                line.extend_from_slice(enrichment(random).as_bytes());
            }
            line.push(b'\n');
            lines.push(line);
        }
    }
    if damage.interleaved {
        for at in 1..lines.len() {
            if random.once_in(3) {
                lines.swap(at, at - 1);
            }
        }
    }
    if damage.once_in != 0 {
        for line in &mut lines {
            if random.once_in(damage.once_in) {
                spoil(line, random);
            }
        }
    }
    lines.concat()
}

/// Damages a line.
fn spoil(line: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(line.len());
    match random.below(7) {
        0 => line.truncate(at),
        1 => line.insert(
            at,
            *random.pick(&[&0_u8, &1, &0x1b, &0x1d, &b'\n', &b'"', &b'=', &b' ', &0xff]),
        ),
        2 => {
            let end = (at + random.below(40)).min(line.len());
            line.drain(at..end);
        }
        3 => {
            let copy = line.clone();
            line.extend_from_slice(&copy);
        }
        4 => line
            .splice(0..0, b"garbage ".iter().copied())
            .for_each(drop),
        5 => {
            // Longer than any record.
            let long = vec![b'x'; 9000];
            line.splice(at..at, long).for_each(drop);
        }
        _ => line[at] = *random.pick(&[&b'0', &b':', &b'(', &b')', &b'\'', &b',']),
    }
}
