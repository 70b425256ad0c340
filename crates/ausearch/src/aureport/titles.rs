//! The reports: their headings, and the fields that they need.

use crate::fields::Wanted;

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Time,
    Summary,
    Avc,
    Mac,
    Integrity,
    Virt,
    Config,
    Auth,
    Login,
    Accounts,
    Event,
    File,
    Host,
    Pid,
    Syscall,
    Terminal,
    User,
    Executable,
    Comm,
    Anomaly,
    Response,
    Crypto,
    Key,
    Tty,
}

/// Headings of a report, and what it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title {
    report: Report,
    /// Lines above the events.
    pub(crate) detailed: &'static [&'static str],
    /// Lines above the totals; none if there are no totals.
    pub(crate) summary: &'static [&'static str],
    /// Whether the option may be followed by a word that chooses an object.
    pub(crate) takes_word: bool,
    pub(crate) wanted: Wanted,
}

/// The headings of a report.
pub(crate) fn of(report: Report) -> &'static Title {
    TITLES
        .iter()
        .find(|title| title.report == report)
        .unwrap_or(&TITLES[0])
}

const TITLES: &[Title] = &[
    Title {
        report: Report::Time,
        detailed: &["Log Time Range Report", "====================="],
        summary: &[],
        takes_word: false,
        wanted: Wanted::empty(),
    },
    Title {
        report: Report::Summary,
        detailed: &[],
        summary: &["Summary Report", "======================"],
        takes_word: false,
        wanted: Wanted::FILE
            .union(Wanted::HOST)
            .union(Wanted::TERMINAL)
            .union(Wanted::EXE)
            .union(Wanted::COMM)
            .union(Wanted::KEY)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Avc,
        detailed: &[
            "AVC Report",
            "===============================================================",
            "# date time comm subj syscall class permission obj result event",
            "===============================================================",
        ],
        summary: &[
            "Avc Object Summary Report",
            "=================================",
            "total  obj",
            "=================================",
        ],
        takes_word: false,
        wanted: Wanted::COMM.union(Wanted::SUBJECT).union(Wanted::OBJECT),
    },
    Title {
        report: Report::Mac,
        detailed: &[
            "MAC Report",
            "===================================",
            "# date time auid type success event",
            "===================================",
        ],
        summary: &[
            "MAC Summary Report",
            "==================",
            "total  type",
            "==================",
        ],
        takes_word: false,
        wanted: Wanted::AUID,
    },
    Title {
        report: Report::Integrity,
        detailed: &[
            "Integrity Report",
            "==============================",
            "# date time type success event",
            "==============================",
        ],
        summary: &[
            "Integrity Summary Report",
            "========================",
            "total  type",
            "========================",
        ],
        takes_word: false,
        wanted: Wanted::AUID,
    },
    Title {
        report: Report::Virt,
        detailed: &[
            "Virtualization Report",
            "==============================",
            "# date time type success event",
            "==============================",
        ],
        summary: &[
            "Virtualization Summary Report",
            "=============================",
            "total  type",
            "=============================",
        ],
        takes_word: false,
        wanted: Wanted::empty(),
    },
    Title {
        report: Report::Config,
        detailed: &[
            "Config Change Report",
            "===================================",
            "# date time type auid success event",
            "===================================",
        ],
        summary: &[
            "Config Change Summary Report",
            "============================",
            "total  type",
            "============================",
        ],
        takes_word: false,
        wanted: Wanted::AUID,
    },
    Title {
        report: Report::Auth,
        detailed: &[
            "Authentication Report",
            "============================================",
            "# date time acct host term exe success event",
            "============================================",
        ],
        summary: &[
            "Authentication Summary Report",
            "=============================",
            "total  acct",
            "=============================",
        ],
        takes_word: false,
        wanted: Wanted::EXE
            .union(Wanted::HOST)
            .union(Wanted::TERMINAL)
            .union(Wanted::UID),
    },
    Title {
        report: Report::Login,
        detailed: &[
            "Login Report",
            "============================================",
            "# date time auid host term exe success event",
            "============================================",
        ],
        summary: &[
            "Login Summary Report",
            "============================",
            "total  auid",
            "============================",
        ],
        takes_word: false,
        wanted: Wanted::EXE
            .union(Wanted::HOST)
            .union(Wanted::TERMINAL)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Accounts,
        detailed: &[
            "Account Modifications Report",
            "=================================================",
            "# date time auid addr term exe acct success event",
            "=================================================",
        ],
        summary: &[
            "Acct Modification Summary Report",
            "================================",
            "total  type",
            "================================",
        ],
        takes_word: false,
        wanted: Wanted::EXE
            .union(Wanted::HOST)
            .union(Wanted::TERMINAL)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Event,
        detailed: &[
            "Event Report",
            "===================================",
            "# date time event type auid success",
            "===================================",
        ],
        summary: &[
            "Event Summary Report",
            "======================",
            "total  type",
            "======================",
        ],
        takes_word: false,
        wanted: Wanted::AUID,
    },
    Title {
        report: Report::File,
        detailed: &[
            "File Report",
            "===============================================",
            "# date time file syscall success exe auid event",
            "===============================================",
        ],
        summary: &[
            "File Summary Report",
            "===========================",
            "total  file",
            "===========================",
        ],
        takes_word: true,
        wanted: Wanted::FILE.union(Wanted::EXE).union(Wanted::AUID),
    },
    Title {
        report: Report::Host,
        detailed: &[
            "Host Report",
            "===================================",
            "# date time host syscall auid event",
            "===================================",
        ],
        summary: &[
            "Host Summary Report",
            "===========================",
            "total  host",
            "===========================",
        ],
        takes_word: true,
        wanted: Wanted::HOST.union(Wanted::AUID),
    },
    Title {
        report: Report::Pid,
        detailed: &[
            "Process ID Report",
            "======================================",
            "# date time pid exe syscall auid event",
            "======================================",
        ],
        summary: &[
            "Pid Summary Report",
            "==========================",
            "total  pid",
            "==========================",
        ],
        takes_word: true,
        wanted: Wanted::EXE.union(Wanted::AUID),
    },
    Title {
        report: Report::Syscall,
        detailed: &[
            "Syscall Report",
            "=======================================",
            "# date time syscall pid comm auid event",
            "=======================================",
        ],
        summary: &[
            "Syscall Summary Report",
            "==========================",
            "total  syscall",
            "==========================",
        ],
        takes_word: true,
        wanted: Wanted::COMM.union(Wanted::AUID),
    },
    Title {
        report: Report::Terminal,
        detailed: &[
            "Terminal Report",
            "====================================",
            "# date time term host exe auid event",
            "====================================",
        ],
        summary: &[
            "Terminal Summary Report",
            "===============================",
            "total  terminal",
            "===============================",
        ],
        takes_word: true,
        wanted: Wanted::TERMINAL
            .union(Wanted::HOST)
            .union(Wanted::EXE)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::User,
        detailed: &[
            "User ID Report",
            "====================================",
            "# date time auid term host exe event",
            "====================================",
        ],
        summary: &[
            "User Summary Report",
            "===========================",
            "total  auid",
            "===========================",
        ],
        takes_word: true,
        wanted: Wanted::TERMINAL
            .union(Wanted::HOST)
            .union(Wanted::EXE)
            .union(Wanted::UID)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Executable,
        detailed: &[
            "Executable Report",
            "====================================",
            "# date time exe term host auid event",
            "====================================",
        ],
        summary: &[
            "Executable Summary Report",
            "=================================",
            "total  file",
            "=================================",
        ],
        takes_word: true,
        wanted: Wanted::TERMINAL
            .union(Wanted::HOST)
            .union(Wanted::EXE)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Comm,
        detailed: &[
            "Command Report",
            "====================================",
            "# date time comm term host auid event",
            "=====================================",
        ],
        summary: &[
            "Command Summary Report",
            "=================================",
            "total  command",
            "=================================",
        ],
        takes_word: true,
        wanted: Wanted::TERMINAL
            .union(Wanted::HOST)
            .union(Wanted::COMM)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Anomaly,
        detailed: &[
            "Anomaly Report",
            "=========================================",
            "# date time type exe term host auid event",
            "=========================================",
        ],
        summary: &[
            "Anomaly Summary Report",
            "======================",
            "total  type",
            "======================",
        ],
        takes_word: true,
        wanted: Wanted::TERMINAL
            .union(Wanted::HOST)
            .union(Wanted::EXE)
            .union(Wanted::COMM)
            .union(Wanted::AUID),
    },
    Title {
        report: Report::Response,
        detailed: &[
            "Response to Anomaly Report",
            "==============================",
            "# date time type success event",
            "==============================",
        ],
        summary: &[
            "Anomaly Response Summary Report",
            "===============================",
            "total  type",
            "===============================",
        ],
        takes_word: true,
        wanted: Wanted::empty(),
    },
    Title {
        report: Report::Crypto,
        detailed: &[
            "Crypto Report",
            "===================================",
            "# date time auid type success event",
            "===================================",
        ],
        summary: &[
            "Crypto Summary Report",
            "=====================",
            "total  type",
            "=====================",
        ],
        takes_word: false,
        wanted: Wanted::AUID,
    },
    Title {
        report: Report::Key,
        detailed: &[
            "Key Report",
            "===============================================",
            "# date time key success exe auid event",
            "===============================================",
        ],
        summary: &[
            "Key Summary Report",
            "===========================",
            "total  key",
            "===========================",
        ],
        takes_word: true,
        wanted: Wanted::EXE.union(Wanted::KEY).union(Wanted::AUID),
    },
    Title {
        report: Report::Tty,
        detailed: &[
            "TTY Report",
            "===============================================",
            "# date time event auid term sess comm data",
            "===============================================",
        ],
        summary: &[],
        takes_word: false,
        wanted: Wanted::SESSION
            .union(Wanted::AUID)
            .union(Wanted::TERMINAL)
            .union(Wanted::COMM),
    },
];
