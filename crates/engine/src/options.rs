//! Settings of an engine.

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Size of the ring: what can wait while the reader is away. A power of two.
    pub ring_bytes: u32,
    /// Whether operations of `io_uring` are seen where they can be.
    pub uring: bool,
    /// Whether events carry what records have no room for, such as [`audit::event::Item::path`].
    pub context: bool,
    /// Start although the kernel can skip programs on tracepoints: see [`crate::SkipRisk`].
    pub allow_loss: bool,
    /// Whether there is room for what [`Engine::accompany`] sends.
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
