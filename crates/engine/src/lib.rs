//! The kernel side and its loader: plan in, events out.
//!
//! [`Engine::start`] loads the programs, gives them the plan and attaches them to the hooks that the plan
//! needs; [`Ring`] hands over the events as bytes, and [`Decoder`] turns those into
//! [`audit::event::Event`]s. Dropping the engine detaches everything that is not pinned: [`Pins`] has names for
//! what outlives it, and [`Survivors`] are what a daemon before this one has left there.
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
mod ring;
mod skeleton;
mod stats;
mod sys;

pub use decode::rule_keys::Keys;
pub use decode::{Context, DecodeError, Decoder, chosen_by, is_stamped, ticks};
pub use engine::{Detaching, Engine};
pub use epoch::Epoch;
pub use error::EngineError;
pub use handover::lock_note::locked_in;
pub use handover::pins::{PinError, Pins};
pub use handover::{Left, Survivors};
pub use hooks::attach_point::Attached;
pub use hooks::kernel_probe::Probe;
pub use load::{Places, Storage};
pub use options::Options;
pub use ring::checkpoint::{Mark, Receipt, Span};
pub use ring::clock::{Clock, Moment};
pub use ring::{Events, Ring, Wake};
pub use stats::{Lost, Runs, Stats, Truncation};
pub use sys::fd_passing::{receive_with, send_with};
pub use sys::priority::boost;
pub use sys::signal_mask::unblock_signals;
