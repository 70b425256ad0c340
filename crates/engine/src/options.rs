//! Options of an engine.

/// Options of an engine, fixed when it loads its programs.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Size of the ring, a power of two.
    pub ring_bytes: u32,
    /// Hook `io_uring` operations, on kernels where that is possible.
    pub uring: bool,
    /// Events carry data that records have no field for: [`audit::event::PathItem::path`] and
    /// [`audit::event::TaskContext`].
    pub context: bool,
    /// Start although the kernel can skip programs on tracepoints; see [`crate::SkipRisk`].
    pub allow_loss: bool,
    /// Reserve the scratch memory that [`crate::Engine::attach_avc_hook`] needs.
    pub avc: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            uring: true,
            context: false,
            allow_loss: false,
            avc: false,
        }
    }
}
