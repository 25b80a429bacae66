//! The main thread's part in a simulated machine: it serves the engine.

use std::time::Instant;

use anyhow::Result;

use super::super::machine::{News, Simulation};
use super::super::source::Target;
use super::super::starts::Starts;
use super::{LAST_READS, MACHINE, Supervisor, listen};

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
                    let starting = self.phase.starts();
                    if starting {
                        self.start(pe, starts)?;
                    }
                    let _ = done.send(starting);
                }
                News::PassOn(pe, done) => {
                    for target in [Target::Stdout, Target::Stderr] {
                        self.read_stream(pe, target, LAST_READS);
                    }
                    let _ = done.send(());
                }
                News::Ended(result) => {
                    self.simulation = None;
                    if let Err(error) = result {
                        self.say(&format!("{error:#}"));
                        self.status.get_or_insert(1);
                        self.hurry(Instant::now());
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
}
