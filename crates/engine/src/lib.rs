//! The kernel side and its loader: plan in, events out.
//!
//! [`Engine::start`] loads the programs, gives them the plan and attaches them to the hooks that the plan
//! needs; [`Ring`] hands over the events as bytes, and [`Decoder`] turns those into
//! [`audit::event::Event`]s. Dropping the engine detaches everything.
//!
//! All `unsafe` of the workspace is here. What events mean, how they are written and where they go is
//! left to the crates `audit` and `tollgate`.

mod abi;
mod attach;
mod aux;
mod clock;
mod decode;
mod descriptor;
mod function;
mod heartbeat;
mod items;
mod kaudit;
mod load;
mod lower;
mod maps;
mod probe;
mod refusal;
mod ring;
pub mod seccomp;
mod stats;
mod tracefs;
mod watch;

pub use attach::Attached;
pub use clock::{Clock, Moment};
pub use decode::{Context, DecodeError, Decoder, ticks};
pub use kaudit::KernelAudit;
pub use load::{Engine, EngineError, Options, Storage, boost};
pub use probe::kernel;
pub use ring::{Ring, Wake};
pub use stats::{Cut, Lost, Stats};
