//! The main thread's part in a simulated machine: it serves the engine.

use std::time::{Duration, Instant};

use anyhow::Result;
use memonet_control::events::listen;
use memonet_sim::{Error, Ps, Waiting};
use rustix::process::Pid;

use super::super::machine::{News, ONE_THREAD, Simulation};
use super::super::seats::{Start, bind};
use super::super::starts::Starts;
use super::super::waits::{self, Standing};
use super::{MACHINE, Supervisor, TO_HEAR_ALL};

/// What is said after a run in which no PE has joined. Under a shell or an interpreter, a program
/// of MPI shows only then.
const UNUSED: &str = "no PE has joined the job: the program does not use memonet. If it uses MPI, each process was alone, rank 0 of 1: a simulated machine has no MPI";

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
                News::Start(pes, done) => {
                    // A job that is being ended starts no more.
                    let mut started = 0;
                    for Start { pe, cpu } in pes {
                        if self.processes.phase.starts() {
                            self.start(pe, starts)?;
                            self.seat(pe, cpu);
                            started += 1;
                        }
                    }
                    let _ = done.send(started);
                }
                News::PassOn(pes, done) => {
                    pes.into_iter().for_each(|pe| self.course.read_all(pe, false));
                    let _ = done.send(());
                }
                News::Ended(result) => {
                    let simulation = self.simulation.take();
                    let mut pes = self.processes.pes();
                    let nobody = pes.len() > 1 && !pes.any(|pe| self.job().has_joined(pe));
                    if result.is_ok() && nobody {
                        self.say(UNUSED);
                    }
                    if let Err(error) = result {
                        let text = match error.downcast_ref() {
                            // Why is told by what has stopped it.
                            Some(Error::Stopped { .. }) => continue,
                            Some(Error::Deadlock { at, waits }) => {
                                if let Some(simulation) = &simulation {
                                    self.hear_parked(simulation, TO_HEAR_ALL);
                                }
                                self.describe_deadlock(*at, waits)
                            }
                            _ => format!("{error:#}"),
                        };
                        self.course.fail(&text, 1);
                        self.processes.hurry(Instant::now());
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a PE that has just been started its CPU.
    fn seat(&self, pe: usize, cpu: Option<usize>) {
        let pid = self.processes.process(pe).and_then(Pid::from_raw);
        if let (Some(pid), Some(cpu)) = (pid, cpu) {
            // One that has just been killed needs none.
            let _ = bind(Some(pid), cpu);
        }
    }

    /// Has parked PEs say what they wait for, and waits until they have: for the first time after
    /// the last one has, and for the second in all.
    pub(super) fn hear_parked(&self, simulation: &Simulation, [patience, most]: [Duration; 2]) {
        let last = Instant::now() + most;
        let (mut fewest, mut end) = (usize::MAX, last);
        loop {
            let is_silent = |&pe: &usize| waits::is_silent(&self.processes, pe);
            let silent: Vec<usize> = self.processes.pes().filter(is_silent).collect();
            if silent.len() < fewest {
                (fewest, end) = (silent.len(), last.min(Instant::now() + patience));
            }
            if silent.is_empty() || Instant::now() >= end {
                return;
            }
            simulation.wake(&silent);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What PEs wait for on a machine on which nothing is under way.
    fn describe_deadlock(&self, at: Ps, waits: &[Waiting]) -> String {
        let mut answers = waits::standing(&self.processes);
        for Waiting { pe, what, .. } in waits {
            // Of what its NIC does for it, a PE does not report.
            if let Some(answer) = answers.get_mut(*pe).filter(|answer| answer.waits.is_empty()) {
                answer.standing = Standing::Waits(what.clone());
            }
        }
        let title = format!("deadlock at {at}: nothing is under way, and {} PEs wait", waits.len());
        let mut text = waits::report(&title, &answers, None);
        if answers.iter().any(|answer| answer.threads.all > 1) {
            text += "\n  ";
            text += ONE_THREAD;
        }
        text
    }

    /// Notifies the engine that a PE's process has ended, after the end was published.
    pub(super) fn tell_engine(&self, pe: usize) {
        if let Some(simulation) = &self.simulation {
            simulation.left(pe);
        }
    }

    /// Stops the engine of a job that was ended and has no PE any more.
    pub(super) fn stop_engine(&self) {
        if let Some(simulation) = &self.simulation
            && self.processes.phase.has_terminated()
            && !self.processes.are_alive()
        {
            simulation.stop();
        }
    }

    /// The same for the PEs whose ends nobody reports.
    pub(super) fn tell_engine_of_unreported(&mut self) {
        for pe in self.processes.take_unreported() {
            self.tell_engine(pe);
        }
    }
}
