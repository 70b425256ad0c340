//! What time it is, for the events of an engine.

use std::io;

use libbpf_rs::ProgramInput;

use super::Engine;
use crate::error::EngineError;
use crate::hooks::program::Program;
use crate::ring::clock::{self, ClockReading, TickClock};

impl Engine<'_> {
    /// A clock for the times of events, correct now; see [`TickClock::set`] and [`Engine::now`].
    ///
    /// # Errors
    /// [`EngineError::System`] when the kernel's clocks cannot be read.
    pub fn clock(&self) -> Result<TickClock, EngineError> {
        let tick = clock::tick().map_err(|errno| EngineError::System {
            what: "the length of a tick",
            source: errno.into(),
        })?;
        Ok(TickClock::new(self.read_clock()?, tick))
    }

    /// The last reading in ticks and on the wall.
    ///
    /// # Errors
    /// [`EngineError::System`] when the kernel's clocks cannot be read.
    pub fn read_clock(&self) -> Result<ClockReading, EngineError> {
        let failed = |source: io::Error| EngineError::System {
            what: "the tick count",
            source,
        };
        // Both clocks step together, but not in one instant: a pair is good when the wall clock was
        // the same on both sides of reading the ticks.
        for _ in 0..8 {
            let wall_ns = clock::wall_ns().map_err(|errno| failed(errno.into()))?;
            self.program(Program::DaemonRegister)?
                .test_run(ProgramInput::default())
                .map_err(|error| failed(io::Error::other(error)))?;
            let jiffies = self.globals.jiffies();
            let last_reading = ClockReading { jiffies, wall_ns };
            self.last_reading.set(Some(last_reading));
            if clock::wall_ns().map_err(|errno| failed(errno.into()))? == wall_ns {
                return Ok(last_reading);
            }
        }
        self.last_reading
            .get()
            .ok_or_else(|| failed(io::Error::other("the clocks never agree")))
    }
}
