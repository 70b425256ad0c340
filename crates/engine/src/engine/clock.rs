//! Readings of the tick counter and the wall clock.

use std::io;

use libbpf_rs::ProgramInput;

use super::Engine;
use crate::error::EngineError;
use crate::hooks::program::Program;
use crate::ring::clock::{self, ClockReading, TickClock};

impl Engine<'_> {
    /// A clock for the timestamps of events. Keep it exact with [`TickClock::sync`] and
    /// [`Engine::read_clock`].
    ///
    /// # Errors
    /// [`EngineError::System`] when the kernel's clocks cannot be read.
    pub fn clock(&self) -> Result<TickClock, EngineError> {
        let tick = clock::tick().map_err(|errno| {
            EngineError::system("read the resolution of the clock")(errno.into())
        })?;
        Ok(TickClock::new(self.read_clock()?, tick))
    }

    /// Reads the tick counter and the coarse wall clock as a pair. Runs the program `daemon_register`, which
    /// also exempts this process from auditing.
    ///
    /// # Errors
    /// [`EngineError::System`] when the kernel's clocks cannot be read.
    pub fn read_clock(&self) -> Result<ClockReading, EngineError> {
        let failed = EngineError::system("read the tick count");
        // Both clocks advance in the same timer interrupt, but not atomically. The pair is valid when the wall
        // clock is the same before and after the ticks are read.
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
            .ok_or_else(|| failed(io::Error::other("the wall clock changes with each reading")))
    }
}
