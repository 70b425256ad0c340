//! Numbers of record types that the tools treat specially.
//!
//! # Source
//! `include/uapi/linux/audit.h`, Linux 6.12, and `libaudit.h` for those of programs.

use std::ops::RangeInclusive;

use audit::ids::MsgType;
use audit::table;
use bstr::ByteSlice as _;

use crate::ctext;

macro_rules! types {
    ($($name:ident = $number:literal,)*) => {
        $(pub(crate) const $name: i32 = $number;)*
    };
}

types! {
    USER = 1005,
    LOGIN = 1006,
    USER_AUTH = 1100,
    USER_ACCT = 1101,
    USER_MGMT = 1102,
    CRED_ACQ = 1103,
    CRED_DISP = 1104,
    USER_START = 1105,
    USER_END = 1106,
    USER_AVC = 1107,
    USER_CHAUTHTOK = 1108,
    USER_ERR = 1109,
    CRED_REFR = 1110,
    USYS_CONFIG = 1111,
    USER_LOGIN = 1112,
    USER_LOGOUT = 1113,
    ADD_USER = 1114,
    DEL_USER = 1115,
    ADD_GROUP = 1116,
    DEL_GROUP = 1117,
    TRUSTED_APP = 1121,
    USER_CMD = 1123,
    USER_TTY = 1124,
    GRP_AUTH = 1126,
    SYSTEM_BOOT = 1127,
    SYSTEM_SHUTDOWN = 1128,
    SYSTEM_RUNLEVEL = 1129,
    SERVICE_START = 1130,
    SERVICE_STOP = 1131,
    GRP_MGMT = 1132,
    GRP_CHAUTHTOK = 1133,
    ACCT_LOCK = 1135,
    ACCT_UNLOCK = 1136,
    USER_DEVICE = 1137,
    SOFTWARE_UPDATE = 1138,
    DAEMON_START = 1200,
    DAEMON_ABORT = 1202,
    DAEMON_CONFIG = 1203,
    DAEMON_ACCEPT = 1207,
    SYSCALL = 1300,
    PATH = 1302,
    IPC = 1303,
    CONFIG_CHANGE = 1305,
    SOCKADDR = 1306,
    CWD = 1307,
    EXECVE = 1309,
    IPC_SET_PERM = 1311,
    MQ_OPEN = 1312,
    MQ_SENDRECV = 1313,
    MQ_NOTIFY = 1314,
    MQ_GETSETATTR = 1315,
    FD_PAIR = 1317,
    OBJ_PID = 1318,
    TTY = 1319,
    EOE = 1320,
    BPRM_FCAPS = 1321,
    CAPSET = 1322,
    MMAP = 1323,
    NETFILTER_PKT = 1324,
    NETFILTER_CFG = 1325,
    SECCOMP = 1326,
    PROCTITLE = 1327,
    FEATURE_CHANGE = 1328,
    KERN_MODULE = 1330,
    FANOTIFY = 1331,
    TIME_INJOFFSET = 1332,
    TIME_ADJNTPVAL = 1333,
    BPF = 1334,
    EVENT_LISTENER = 1335,
    URINGOP = 1336,
    OPENAT2 = 1337,
    DM_CTRL = 1338,
    DM_EVENT = 1339,
    AVC = 1400,
    SELINUX_ERR = 1401,
    AVC_PATH = 1402,
    MAC_POLICY_LOAD = 1403,
    MAC_STATUS = 1404,
    MAC_CONFIG_CHANGE = 1405,
    MAC_MAP_ADD = 1409,
    MAC_MAP_DEL = 1410,
    MAC_UNLBL_ALLOW = 1406,
    ANOM_PROMISCUOUS = 1700,
    ANOM_ABEND = 1701,
    ANOM_LINK = 1702,
    KERNEL = 2000,
    ANOM_LOGIN_FAILURES = 2100,
    ANOM_LOGIN_TIME = 2101,
    ANOM_LOGIN_SESSIONS = 2102,
    ANOM_LOGIN_LOCATION = 2104,
    ANOM_EXEC = 2112,
    ANOM_RBAC_INTEGRITY_FAIL = 2109,
    USER_ROLE_CHANGE = 2300,
    ROLE_ASSIGN = 2301,
    ROLE_REMOVE = 2302,
    LABEL_OVERRIDE = 2303,
    LABEL_LEVEL_CHANGE = 2304,
    USER_MAC_CONFIG_CHANGE = 2312,
    CRYPTO_KEY_USER = 2404,
    CRYPTO_SESSION = 2407,
    VIRT_CONTROL = 2500,
    VIRT_RESOURCE = 2501,
    VIRT_MACHINE_ID = 2502,
}

/// Changes of the MAC configuration.
pub(crate) const MAC_CONFIG: RangeInclusive<i32> = MAC_POLICY_LOAD..=1417;
/// Labelled networking.
pub(crate) const MAC_NETWORK: RangeInclusive<i32> = MAC_UNLBL_ALLOW..=1419;
/// Accounts and groups.
pub(crate) const ACCOUNTS: RangeInclusive<i32> = ADD_USER..=DEL_GROUP;
/// Roles.
pub(crate) const ROLES: RangeInclusive<i32> = ROLE_ASSIGN..=ROLE_REMOVE;
/// Of the kernel's cryptography.
pub(crate) const KERNEL_CRYPTO: RangeInclusive<i32> = 1600..=1699;
/// Anomalies that the kernel reports.
pub(crate) const KERNEL_ANOMALIES: RangeInclusive<i32> = 1700..=1799;
/// Integrity measurement.
pub(crate) const INTEGRITY: RangeInclusive<i32> = 1800..=1899;
/// Anomalies that programs report.
pub(crate) const ANOMALIES: RangeInclusive<i32> = 2100..=2199;
/// Responses to anomalies.
pub(crate) const RESPONSES: RangeInclusive<i32> = 2200..=2299;
/// Labelled security of programs.
pub(crate) const LSPP: RangeInclusive<i32> = 2300..=2399;
/// Cryptography of programs.
pub(crate) const CRYPTO: RangeInclusive<i32> = 2400..=2499;
/// Virtual machines.
pub(crate) const VIRTUALIZATION: RangeInclusive<i32> = 2500..=2599;

/// Number of the type called `name`; -1 if there is none.
pub(crate) fn by_name(name: &[u8]) -> i32 {
    if let Some(MsgType(number)) = table::msg_type_number(name) {
        return i32::from(number);
    }
    if let Some(rest) = name.strip_prefix(b"UNKNOWN[") {
        return match rest.find_byte(b']') {
            // More digits are not looked at.
            Some(end) => number(rest.get(..end.min(7)).unwrap_or_default()),
            None => -1,
        };
    }
    if name.first().is_some_and(u8::is_ascii_digit) {
        return number(name);
    }
    -1
}

fn number(digits: &[u8]) -> i32 {
    ctext::low_i32(ctext::signed(digits, 10).1.value)
}

/// Name of a type.
pub(crate) fn name(number: i32) -> Option<&'static str> {
    table::msg_type_name(MsgType(u16::try_from(number).ok()?))
}

/// Whether an event is complete with a record of this type, or has no other.
pub(crate) fn ends_event(number: i32) -> bool {
    matches!(number, USER | PROCTITLE | EOE | 1007..=1299 | KERNEL | 2100..)
        || MAC_NETWORK.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_types_are_read_by_their_number() {
        assert_eq!(by_name(b"SYSCALL"), SYSCALL);
        assert_eq!(by_name(b"syscall"), SYSCALL);
        assert_eq!(by_name(b"UNKNOWN[1339]"), 1339);
        assert_eq!(by_name(b"UNKNOWN[1339"), -1);
        assert_eq!(by_name(b"1339"), 1339);
        assert_eq!(by_name(b"NONE"), -1);
        assert_eq!(by_name(b""), -1);
    }
}
