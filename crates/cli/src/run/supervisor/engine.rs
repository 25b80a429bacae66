//! The main thread's part in a simulated machine: it serves the engine.

use std::time::Instant;

use anyhow::Result;
use memonet_control::events::listen;

use super::super::machine::{News, Simulation};
use super::super::starts::Starts;
use super::{MACHINE, Supervisor};

impl Supervisor {
    /// Lets the engine of this machine decide when PEs are started.
    pub fn simulate(&mut self, simulation: Simulation) -> Result<()> {
        listen(&self.events, simulation.wakeup(), MACHINE)?;
        self.simulation = Some(simulation);
        Ok(())
    }

    /// Carries out the requests for which the engine waits.
    pub(super) fn serve_engine(&mut self, starts: &mut Starts<'_>) -> Result<()> {
        while let Some(news) = self.simulation.as_mut().and_then(Simulation::news) {
            match news {
                News::Start(pe, done) => {
                    let starting = self.processes.phase.starts();
                    if starting {
                        self.start(pe, starts)?;
                    }
                    let _ = done.send(starting);
                }
                News::PassOn(pe, done) => {
                    self.course.read_all(pe);
                    let _ = done.send(());
                }
                News::Ended(result) => {
                    self.simulation = None;
                    if let Err(error) = result {
                        self.course.fail(&format!("{error:#}"), 1);
                        self.processes.hurry(Instant::now());
                    }
                }
            }
        }
        Ok(())
    }

    /// Notifies the engine that a PE's process has ended, after the end was published.
    pub(super) fn tell_engine(&self, pe: usize) {
        if let Some(simulation) = &self.simulation {
            simulation.left(pe);
        }
    }

    /// The same for the PEs whose ends nobody reports.
    pub(super) fn tell_engine_of_unreported(&mut self) {
        for pe in self.processes.take_unreported() {
            self.tell_engine(pe);
        }
    }
}
