//! The two engines.

/// How an engine sees syscalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Programs on the kernel functions behind the syscalls of the plan.
    Fentry,
    /// Programs on tracepoints.
    Tracepoint,
}

impl EngineKind {
    /// Name in options and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Tracepoint => "tracepoint",
        }
    }
}
