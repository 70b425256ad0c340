//! The engines.

/// How an engine sees syscalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Programs on the kernel functions behind the syscalls of the plan.
    Fentry,
    /// Kprobes on these functions, LSM programs, and task work that runs when the syscall has ended: none of them is
    /// skipped when the kernel preempts itself.
    Lsm,
    /// Programs on tracepoints.
    Tracepoint,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fentry, Self::Lsm, Self::Tracepoint];

    /// Name in options and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Lsm => "lsm",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Number in pins.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Tracepoint => 0,
            Self::Fentry => 1,
            Self::Lsm => 2,
        }
    }

    /// The engine of a number in pins.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether its programs are on functions, so that `kernel.ftrace_enabled=0` stops them.
    pub(crate) const fn is_on_functions(self) -> bool {
        matches!(self, Self::Fentry | Self::Lsm)
    }
}
