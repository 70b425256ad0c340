//! The kernel side and its loader: plan in, events out.
//!
//! [`Engine::start`] loads the programs, gives them the plan and attaches them to the hooks that the plan
//! needs; [`Ring`] hands over the events as bytes, and [`Decoder`] turns those into
//! [`audit::event::Event`]s. Dropping the engine detaches everything that is not pinned: [`PinDirectory`] has names for
//! what outlives it, and [`InheritedState`] are what a daemon before this one has left there.
//!
//! What events mean, how they are written and where they go is
//! left to the crates `audit` and `tollgate`.

mod abi;
mod attach;
mod compile;
mod decode;
mod engine;
mod epoch;
mod error;
mod handover;
mod hooks;
mod load;
mod options;
mod preemption;
mod ring;
mod skeleton;
mod stats;
mod sys;

pub use decode::rule_keys::RuleKeys;
pub use decode::{
    DecodeError, Decoder, EventContext, has_kernel_stamp, sample_jiffies, sample_rule,
};
pub use engine::{Engine, PendingDetach};
pub use epoch::Epoch;
pub use error::EngineError;
pub use handover::lock_note::read_lock_note;
pub use handover::pins::{PinDirectory, PinError};
pub use handover::{InheritedState, PinnedState};
pub use hooks::attach_point::AttachedHooks;
pub use hooks::kernel_probe::KernelProbe;
pub use load::{ObjectSlots, ObjectStorage};
pub use options::EngineOptions;
pub use preemption::{Preemption, SkipRisk};
pub use ring::checkpoint::{CommitToken, FileRange, Position};
pub use ring::clock::{ClockReading, TickClock};
pub use ring::{Ring, RingReader, Wake};
pub use stats::{EngineStats, LossReason, ProgramRuns, Truncation};
pub use sys::fd_passing::{recv_with_fd, send_with_fd};
pub use sys::priority::set_nice;
pub use sys::signal_mask::unblock_signals;
