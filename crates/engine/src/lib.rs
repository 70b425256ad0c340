//! BPF programs and their loader: takes a plan, delivers events.
//!
//! [`Engine::start`] loads the programs, writes the plan into their maps and attaches them to the hooks that
//! the plan needs. [`Ring`] delivers events as bytes; [`Decoder`] parses them into [`audit::event::Event`]s.
//! Dropping the engine detaches everything that is not pinned. [`PinDirectory`] is the directory of pins;
//! [`InheritedState`] is the state that a previous daemon pinned there.
//!
//! The crate `audit` defines events and encodes records; the crate `tollgate` writes them.
//!
//! | module | does |
//! | --- | --- |
//! | `hooks` | finds attach points for the hooks of a plan |
//! | `compile` | compiles a plan into map contents |
//! | `load` | loads programs, writes maps and globals |
//! | `attach` | attaches and detaches programs |
//! | `engine` | the running engine: start, replace the plan, pin, adopt, detach |
//! | `handover` | pins, and the state that a previous daemon pinned |
//! | `ring` | reads the ring; the checkpoint; ticks to wall-clock time |
//! | `decode` | parses ring bytes into events |
//! | `stats` | counters of the programs |
//! | `abi` | `bpf/wire.h` in Rust |
//! | `sys` | wrappers of system calls |

mod abi;
mod attach;
mod compile;
mod decode;
mod engine;
mod engine_kind;
mod epoch;
mod error;
mod handover;
mod hooks;
mod load;
mod native_functions;
mod options;
mod preemption;
mod ring;
mod skeleton;
mod stats;
mod sys;

pub use decode::repeated::{RepeatedEvent, RepeatedEvents};
pub use decode::rule_keys::RuleKeys;
pub use decode::{
    DecodeError, Decoder, EventContext, has_kernel_record, has_kernel_stamp, loaded_program,
    sample_jiffies, sample_rule,
};
pub use engine::check::CheckedPrograms;
pub use engine::{Engine, PendingDetach};
pub use engine_kind::EngineKind;
pub use epoch::Epoch;
pub use error::EngineError;
pub use handover::lock_note::read_lock_note;
pub use handover::pins::{PinDirectory, PinError};
pub use handover::plan_switch::PlanSwitch;
pub use handover::{InheritedState, PinnedState};
pub use hooks::attach_point::AttachedHooks;
pub use hooks::denial::{is_deniable, undeniable_syscalls};
pub use hooks::explain::{Explanation, Paying, Price, RuleCost, RuleNote, explain};
pub use hooks::hook::{Hook, KernelFeatures};
pub use hooks::hook_report::{HookReport, HookState, hooked_syscalls};
pub use hooks::internal_hook::{InternalHook, InternalHookSet};
pub use hooks::kernel_probe::KernelProbe;
pub use load::{ObjectSlots, ObjectStorage};
pub use options::EngineOptions;
pub use preemption::{Preemption, SkipRisk, SkippablePrograms};
pub use ring::checkpoint::{CommitToken, FileRange, Position};
pub use ring::clock::{ClockReading, TickClock};
pub use ring::{Ring, RingReader, Wake};
pub use stats::owner_losses::{OwnerLoss, OwnerLosses, TaskOwner};
pub use stats::{EngineStats, LossReason, ProgramRuns, Truncation};
pub use sys::fd_passing::{recv_with_fd, send_with_fd};
pub use sys::kernel_symbols::read_kernel_symbols;
pub use sys::lease::is_open_elsewhere;
pub use sys::priority::set_nice;
pub use sys::signal_mask::unblock_signals;
