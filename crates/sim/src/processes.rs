//! Programs as processes: each PE a process of its own, attached to the machine by shared pages,
//! exactly one of them running.
//!
//! A process passes its turn to the engine with every question, and sleeps until its answer is
//! there ([`Passages`]). The engine sleeps meanwhile, and so do all other PEs. So a PE's program
//! goes on where it would as a coroutine, and the machine sees the same calls in the same order.
//!
//! Processes are started one after the other, each when the one before waits for something: what a
//! program does before it joins is in that order too.
//!
//! Nothing that a process writes is believed. What it asks is checked before the machine sees it:
//! addresses are memory of the job, words are aligned, a barrier's phases come one after the other,
//! time does not run out. It gets a refusal, as a call that fails. A process that breaks the rules
//! of turns ends the run.

use crate::engine::Engine;
use crate::error::Error;
use crate::fabric::{Asks, members};
use crate::host::{Atomic, Pe};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::nic::Feature;
use crate::packet::Payload;
use crate::program::{Program, Ran, Reply};
use crate::rules::Rules;
use crate::run::{JobMemory, Left};
use crate::time::Ps;
use crate::trace::Recorder;
use crate::world::World;
use memonet_core::fabric::FarAddress;
use memonet_core::hosted::{Ask, Came, Hosted, Passages};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How processes run, besides machine and program.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// Of all chance in the machine.
    pub seed: u64,
    /// Whether to record every stage.
    pub record: bool,
}

/// Whether the PE that runs gets on: for a thread that has a clock. The engine reads none.
#[derive(Debug, Default)]
pub struct Pace {
    /// Turns of PEs that have begun.
    turns: AtomicU64,
    /// The PE that runs, and 1; 0: none does.
    running: AtomicU32,
    /// For how long, in nanoseconds, the one that runs has not passed its turn, when that is too
    /// long; else 0.
    silent: AtomicU64,
    /// Whether it has slept all the while.
    asleep: AtomicBool,
}

impl Pace {
    /// The turn that is under way, of whom; nothing, while none is. Who sees the same one for too
    /// long tells [`give_up`](Self::give_up).
    pub fn turn(&self) -> Option<(u64, usize)> {
        let pe = self.running.load(Ordering::Relaxed).checked_sub(1)?;
        Some((self.turns.load(Ordering::Relaxed), pe as usize))
    }

    /// The PE whose turn it is has not passed it for so long, in which its process has run or been
    /// `asleep`: the run ends. To be repeated until it has, as the engine may be about to sleep.
    pub fn give_up(&self, passages: &Passages, pe: usize, after: Duration, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
        self.silent.store(after.as_nanos() as u64, Ordering::Relaxed);
        passages.nudge(pe);
    }

    fn begins(&self, pe: u32) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.running.store(pe + 1, Ordering::Relaxed);
    }

    fn ends(&self) {
        self.running.store(0, Ordering::Relaxed);
    }
}

/// Who starts the processes, and has their output.
pub trait Launcher {
    /// Starts PE `pe`, in order from 0 on. False: it will never run.
    fn start(&self, pe: usize) -> bool;

    /// Passes on what PE `pe` has written, before others write.
    fn pass_on(&self, pe: usize);
}

/// What came of processes that ran.
#[derive(Debug)]
pub struct Ended {
    /// When the last of them ended.
    pub end: Ps,
    /// What was recorded.
    pub recorder: Recorder,
    /// Why not all ended by themselves.
    pub result: Result<(), Error>,
}

/// Runs a job's processes on the machine, until all have ended or none can go on. Whoever sees one
/// end, tells so by [`Passages::left`], after its state in the job's memory says how.
///
/// # Errors
/// [`Error::Machine`] for a file that is wrong, before anything is started.
pub fn run_processes(
    machine: &Machine,
    hosted: &Arc<Hosted>,
    passages: &Passages,
    options: &ProcessOptions,
    pace: &Pace,
    launcher: &dyn Launcher,
) -> Result<Ended, Error> {
    let pes = hosted.npes() as u32;
    let mut world =
        World::build(machine, pes, options.seed, Box::new(Unbelieved(JobMemory(hosted.clone()))))?;
    world.recorder().keep(options.record);
    let everybody: Arc<[u32]> = (0..pes).collect();
    let shared = Shared {
        hosted,
        passages,
        launcher,
        pace,
        offers: u64::from(world.has(Feature::Groups))
            | u64::from(world.has(Feature::Datagrams)) << 1,
        ran_last: Cell::new(0),
    };
    let process = |pe| Process {
        pe,
        shared: &shared,
        asks: Asks::new(everybody.clone()),
        rules: Rules::default(),
        asked: None,
    };
    let (mut world, end, _, result) =
        Engine::new(world, (0..pes).map(process).collect(), &Left(hosted)).run();
    Ok(Ended { end, recorder: std::mem::take(world.recorder()), result })
}

/// The job's memory, of which a process may take back what its own writes are still under way to:
/// those are written nowhere.
struct Unbelieved(JobMemory);

impl Memory for Unbelieved {
    fn write(&mut self, by: Pe, to: FarAddress, data: &Payload) -> Result<(), String> {
        // There was such memory when it was asked for.
        let _ = self.0.write(by, to, data);
        Ok(())
    }

    fn read(&mut self, by: Pe, from: FarAddress, len: usize) -> Result<Payload, String> {
        self.0.read(by, from, len)
    }

    fn atomic(&mut self, by: Pe, at: FarAddress, size: usize, what: Atomic) -> Result<u64, String> {
        self.0.atomic(by, at, size, what)
    }
}

/// What the processes of a job have in common.
struct Shared<'a> {
    hosted: &'a Hosted,
    passages: &'a Passages,
    launcher: &'a dyn Launcher,
    pace: &'a Pace,
    /// What the machine may have hardware for: bit 0, several PEs at once; bit 1, their datagrams.
    offers: u64,
    /// The PE whose turn was last.
    ran_last: Cell<u32>,
}

/// A PE's process.
struct Process<'a> {
    pe: u32,
    shared: &'a Shared<'a>,
    asks: Asks,
    rules: Rules,
    /// The question that the process waits for an answer to; nothing before it has begun.
    asked: Option<Ask>,
}

impl Process<'_> {
    fn pe(&self) -> usize {
        self.pe as usize
    }

    /// Waits until the process has passed its turn; gives why it never will.
    fn await_turn(&self) -> Result<(), Ran> {
        let Shared { passages, pace, .. } = *self.shared;
        pace.begins(self.pe);
        let came = loop {
            match passages.wait(self.pe()) {
                Came::Mine => break Ok(()),
                Came::Gone if passages.has_ended(self.pe()) => break Err(Ran::Ended),
                Came::Gone => break Err(Ran::Failed(Error::OutOfTurn { pe: self.pe() })),
                Came::Late => match pace.silent.load(Ordering::Relaxed) {
                    0 => {}
                    nanos => {
                        break Err(Ran::Failed(Error::Silent {
                            pe: self.pe(),
                            patience: Duration::from_nanos(nanos),
                            asleep: pace.asleep.load(Ordering::Relaxed),
                        }));
                    }
                },
            }
        };
        pace.ends();
        came
    }

    /// Answers, which ends the machine's turn.
    fn answer(&self, now: Ps, answer: Result<(u64, &[u8]), &str>) -> Result<(), Ran> {
        let answered = self.shared.passages.answer(self.pe(), now.to_duration(), answer);
        if !answered && !self.shared.passages.has_ended(self.pe()) {
            return Err(Ran::Failed(Error::OutOfTurn { pe: self.pe() }));
        }
        Ok(())
    }

    /// The process starts, and joins.
    fn begin(&mut self, now: Ps) -> Result<(), Ran> {
        if !self.shared.launcher.start(self.pe()) {
            return Err(Ran::Ended);
        }
        self.asked = Some(Ask::Begin);
        self.await_turn()?;
        match self.shared.passages.ask(self.pe()) {
            Some((Ask::Begin, _)) => self.answer(now, Ok((self.shared.offers, &[]))),
            _ => Err(Ran::Failed(Error::OutOfTurn { pe: self.pe() })),
        }
    }

    /// Goes on with the reply to what it asked.
    fn go_on(&mut self, ask: Ask, reply: &Reply) -> Result<(), Ran> {
        let answer = &reply.answer;
        self.asks.answered(ask, answer);
        self.rules.answered(ask, answer);
        if let Some(why) = &answer.refused {
            return self.answer(reply.now, Err(why));
        }
        answer.data.with(|bytes| self.answer(reply.now, Ok((answer.value, bytes))))
    }

    /// What it asks next, when that can be asked: as a request, and how long it has computed
    /// before.
    fn next(&mut self, now: Ps) -> Result<Ran, Ran> {
        loop {
            self.await_turn()?;
            let asked = self.shared.passages.ask(self.pe());
            let checked = asked.ok_or("this is no question").and_then(|(ask, spent)| {
                let spent = Ps::from_duration(spent);
                self.rules.check(self.shared.hosted, self.pe, ask, now + spent)?;
                Ok((ask, self.block(ask)?, spent))
            });
            // Not before: the question's block lies where the last answer was.
            let answered = self.asked.map_or(0, Ask::takes);
            let given = asked.map_or(0, |(ask, _)| ask.gives());
            self.shared.passages.give_back(self.pe(), answered.max(given));
            match checked {
                Ok((ask @ (Ask::Map { .. } | Ask::Unmap { .. }), _, _)) => {
                    let mapped = self.map(ask);
                    self.answer(
                        now,
                        mapped.as_ref().map(|()| (0, &[][..])).map_err(|why| why.as_str()),
                    )?;
                }
                Ok((ask, block, spent)) => {
                    self.asked = Some(ask);
                    return Ok(Ran::Asks(self.asks.request(ask, block), spent));
                }
                Err(why) => self.answer(now, Err(why))?,
            }
        }
    }

    /// Takes over, or forgets, a part of a restricted window.
    fn map(&self, ask: Ask) -> Result<(), String> {
        let hosted = self.shared.hosted;
        match ask {
            Ask::Map { pe, region, len, file } => {
                hosted.open_region(self.pe, pe, region, file, len)
            }
            Ask::Unmap { pe, region } => {
                hosted.unmap_region(self.pe, pe, region);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The block that goes with what it asks.
    fn block(&self, ask: Ask) -> Result<Payload, &'static str> {
        let block = match ask.gives() {
            0 => Payload::EMPTY,
            len => {
                let bytes = self.shared.passages.block(self.pe(), len);
                Payload::copy(&bytes.ok_or("no block is that long")?)
            }
        };
        if let Ask::JoinDatagrams { .. } = ask {
            let mut members = members(&block);
            let inside = members.contains(&self.pe)
                && members.iter().all(|&pe| (pe as usize) < self.shared.hosted.npes());
            members.sort_unstable();
            if !inside || members.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(
                    "a group's members are PEs of the job, each named once, and this one is among them",
                );
            }
        }
        Ok(block)
    }

    fn run(&mut self, reply: &Reply) -> Result<Ran, Ran> {
        let before = self.shared.ran_last.replace(self.pe);
        if before != self.pe {
            self.shared.launcher.pass_on(before as usize);
        }
        match self.asked {
            None => self.begin(reply.now)?,
            Some(ask) => self.go_on(ask, reply)?,
        }
        self.next(reply.now)
    }
}

impl Program for Process<'_> {
    fn resume(&mut self, reply: Reply) -> Ran {
        self.run(&reply).unwrap_or_else(|ended| ended)
    }
}
