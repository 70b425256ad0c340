//! What rows and totals have in common: which events a report is about, and the names of users and syscalls.

use crate::aureport::options::Options;
use crate::aureport::titles::Report;
use crate::event::Event;
use crate::fields::{FAILED, Found, SUCCEEDED, Success};
use crate::interpret::{Interpreter, Machine};
use crate::record_type as ty;

/// Text of what is absent, as the C library prints it.
pub(super) const NULL: &[u8] = b"(null)";

/// Number or name of a user.
pub(super) fn user(options: &Options, interpreter: &mut Interpreter, uid: u32) -> Vec<u8> {
    if !options.interpret {
        return uid.cast_signed().to_string().into_bytes();
    }
    if uid == u32::MAX {
        return b"unset".to_vec();
    }
    match interpreter.accounts.user(uid) {
        Some(name) => name.to_vec(),
        None => format!("unknown({})", uid.cast_signed()).into_bytes(),
    }
}

/// Number or name of an event's syscall.
pub(super) fn syscall(options: &Options, found: &Found<'_>) -> String {
    if !options.interpret {
        return found.syscall.to_string();
    }
    let machine = Machine::of_arch(found.arch);
    if machine == Machine::Unknown {
        return "?".to_owned();
    }
    let name = machine.syscall_name(found.syscall);
    name.map_or_else(|| found.syscall.to_string(), str::to_owned)
}

/// Word for a result.
pub(super) const fn result(success: Success) -> &'static str {
    match success {
        FAILED => "no",
        SUCCEEDED => "yes",
        _ => "unset",
    }
}

/// Whether an event belongs to a report that its record types decide.
pub(super) fn belongs(report: Report, event: &Event, found: &Found<'_>) -> bool {
    match report {
        Report::Avc => event.has(ty::AVC) || event.has(ty::USER_AVC),
        Report::Integrity => event.has_any(&ty::INTEGRITY),
        Report::Virt => event.has_any(&ty::VIRTUALIZATION),
        Report::Config => {
            const KINDS: [i32; 6] = [
                ty::CONFIG_CHANGE,
                ty::DAEMON_CONFIG,
                ty::USYS_CONFIG,
                ty::NETFILTER_CFG,
                ty::FEATURE_CHANGE,
                ty::USER_MAC_CONFIG_CHANGE,
            ];
            KINDS.iter().any(|&kind| event.has(kind)) || event.has_any(&ty::MAC_CONFIG)
        }
        // Of the changes of accounts only failures are authentications.
        Report::Auth => {
            event.has(ty::USER_AUTH) || (event.has(ty::USER_MGMT) && found.success == FAILED)
        }
        Report::Login => event.has(ty::USER_LOGIN),
        Report::Accounts => {
            const KINDS: [i32; 3] = [ty::USER_CHAUTHTOK, ty::USER_MGMT, ty::GRP_MGMT];
            KINDS.iter().any(|&kind| event.has(kind))
                || event.has_any(&ty::ACCOUNTS)
                || event.has_any(&ty::ROLES)
        }
        Report::Anomaly => {
            event.has_any(&ty::ANOMALIES)
                || event.has_any(&ty::KERNEL_ANOMALIES)
                || event.has(ty::SECCOMP)
        }
        Report::Response => event.has_any(&ty::RESPONSES),
        Report::Crypto => event.has_any(&ty::KERNEL_CRYPTO) || event.has_any(&ty::CRYPTO),
        _ => true,
    }
}
