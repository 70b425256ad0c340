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
mod aux;
mod child;
mod clock;
mod data;
mod decode;
mod descriptor;
mod engine;
mod error;
mod function;
mod heartbeat;
mod hints;
mod inherited;
mod items;
mod keys;
mod ledger;
mod load;
mod lower;
mod maps;
mod memory;
mod note;
mod passing;
mod pins;
mod probe;
mod program;
mod reap;
mod refusal;
mod ring;
mod spot;
mod stats;
mod survive;
mod thread;
mod tracefs;
pub mod uring;
mod watch;

pub use attach::Attached;
pub use child::unblock_signals;
pub use clock::{Clock, Moment};
pub use decode::{Context, DecodeError, Decoder, chosen_by, is_stamped, ticks};
pub use engine::{Detaching, Engine, Options, locked_in};
pub use error::EngineError;
pub use keys::{Epoch, Keys};
pub use ledger::{Mark, Receipt, Span};
pub use load::{Places, Storage};
pub use passing::{receive_with, send_with};
pub use pins::{PinError, Pins};
pub use probe::Probe;
pub use ring::{Events, Ring, Wake};
pub use stats::{Cut, Lost, Runs, Stats};
pub use survive::{Left, Survivors};
pub use thread::boost;
