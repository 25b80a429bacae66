//! Programs as processes. Each PE is a process of its own, attached to the machine by shared pages.
//! One of them runs at a time.
//!
//! A process passes its turn to the engine with a list of questions, and sleeps until the last is
//! answered ([`Passages`]). While a process runs, the engine and all other PEs sleep. So the
//! machine sees the calls that it would see of coroutines, in one order.
//!
//! Processes are started one after the other, each when the one before waits for something. So what
//! programs do before they join is in the order of PEs too.
//!
//! Nothing that a process writes is believed. Its questions are checked before the machine sees
//! them ([`Rules`]): addresses are memory of the job, words are aligned, a barrier's phases come
//! one after the other, time does not run out. A question that fails a check is refused, as a call
//! that fails. A process that breaks the rules of turns ends the run.

use crate::engine::{Engine, Finished};
use crate::error::Error;
use crate::fabric::{Asks, members};
use crate::host::{Answer, Atomic, Pe};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::packet::Payload;
use crate::program::{Program, Ran, Reply, Request};
use crate::rules::Rules;
use crate::run::{JobMemory, Left};
use crate::time::Ps;
use crate::trace::Recorder;
use crate::usage::Usage;
use crate::world::World;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::hosted::{Ask, Asked, Came, Hosted, Offers, Passages};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Options of a run of processes.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// The seed of all random numbers of the machine.
    pub seed: u64,
    /// Whether to record every stage.
    pub record: bool,
}

/// Tells a thread that has a clock whether the running PE makes progress. The engine reads no
/// clock.
#[derive(Debug, Default)]
pub struct Pace {
    /// Number of turns that have begun.
    turns: AtomicU64,
    /// One more than the PE that runs; 0 when none runs.
    running: AtomicU32,
    /// When the running PE has kept its turn for too long: for how long, in nanoseconds. Otherwise
    /// 0.
    silent: AtomicU64,
    /// Whether that PE has slept all the while.
    asleep: AtomicBool,
}

impl Pace {
    /// The number of the turn that is under way, and its PE. A thread that sees one turn for too
    /// long calls [`give_up`](Self::give_up).
    pub fn turn(&self) -> Option<(u64, usize)> {
        let pe = self.running.load(Ordering::Relaxed).checked_sub(1)?;
        Some((self.turns.load(Ordering::Relaxed), pe as usize))
    }

    /// Ends the run, because the PE has kept its turn for the time `after`, in which its process
    /// has run or been `asleep`. The caller repeats this until the run has ended, as the engine may
    /// be about to sleep.
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

/// Starts processes, and passes on their output.
pub trait Launcher {
    /// Starts PE `pe`. PEs are started in order, from 0 on. False, when the PE will never run.
    fn start(&self, pe: usize) -> bool;

    /// Passes on the output of PE `pe`, before other PEs write.
    fn pass_on(&self, pe: usize);
}

/// The outcome of a run of processes.
#[derive(Debug)]
pub struct Ended {
    /// What the run has used, also when it has failed.
    pub usage: Usage,
    /// The stages that were recorded.
    pub recorder: Recorder,
    /// The error, if not all processes ended by themselves.
    pub result: Result<(), Error>,
}

/// Runs a job's processes on the machine, until all have ended or none can go on. A thread that
/// sees a process end calls [`Passages::left`], after the process's state in the job's memory says
/// how it ended.
///
/// # Errors
/// [`Error::Machine`] for a wrong machine file, before any process is started.
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
    let shared =
        Shared { hosted, passages, launcher, pace, offers: world.offers(), ran_last: Cell::new(0) };
    let process = |pe| Process {
        pe,
        shared: &shared,
        asks: Asks::new(everybody.clone()),
        rules: Rules::default(),
        list: None,
        answered: 0,
    };
    let Finished { mut world, usage, result, .. } =
        Engine::new(world, (0..pes).map(process).collect(), &Left(hosted)).run();
    Ok(Ended { usage, recorder: std::mem::take(world.recorder()), result })
}

/// The job's memory. A process may give memory back while its own writes to that memory are under
/// way. Such writes are dropped.
struct Unbelieved(JobMemory);

impl Memory for Unbelieved {
    fn write(&mut self, by: Pe, to: FarAddress, data: &Payload) -> Result<(), String> {
        // A failure means that the process has given the memory back since it asked for the write.
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
    offers: Offers,
    /// The PE that had the last turn.
    ran_last: Cell<u32>,
}

/// A PE's process.
struct Process<'a> {
    pe: u32,
    shared: &'a Shared<'a>,
    asks: Asks,
    rules: Rules,
    /// The questions that the process waits for an answer to; nothing before it has begun.
    list: Option<List>,
    /// The most bytes of the last answer.
    answered: usize,
}

/// A list of questions, and how far the machine has come with it.
#[derive(Clone, Copy)]
struct List {
    count: usize,
    /// The question that is asked now.
    at: usize,
    ask: Ask,
    /// Time that the process has computed, for the next request.
    spent: Ps,
    /// Whether a look has come before in this list.
    looked: bool,
    /// Bytes of the room for blocks that the questions use.
    room: usize,
}

/// What comes next for a process.
enum Next {
    /// The process runs.
    Listen,
    /// The question at this place of the list is read.
    Read(List),
    /// The list's question is a wait for a word, which is looked at.
    Watch(List),
}

impl Process<'_> {
    fn pe(&self) -> usize {
        self.pe as usize
    }

    /// Waits until the process has passed its turn, or never will.
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

    /// Passes on the output of the PE that has run last, before this one runs.
    fn pass_on(&self) {
        let before = self.shared.ran_last.replace(self.pe);
        if before != self.pe {
            self.shared.launcher.pass_on(before as usize);
        }
    }

    /// Answers the process, which ends the machine's turn. `made` of its questions have been
    /// answered before, or with this.
    fn answer(&self, now: Ps, made: usize, answer: Result<(u64, &[u8]), &str>) -> Result<(), Ran> {
        self.pass_on();
        let answered = self.shared.passages.answer(self.pe(), now.to_duration(), made, answer);
        if !answered && !self.shared.passages.has_ended(self.pe()) {
            return Err(Ran::Failed(Error::OutOfTurn { pe: self.pe() }));
        }
        Ok(())
    }

    /// Starts the process, and lets it join.
    fn begin(&mut self, now: Ps) -> Result<(), Ran> {
        self.pass_on();
        if !self.shared.launcher.start(self.pe()) {
            return Err(Ran::Ended);
        }
        self.await_turn()?;
        match self.shared.passages.ask(self.pe(), 0) {
            Some(Asked { ask: Ask::Begin, .. }) => {
                self.answer(now, 1, Ok((self.shared.offers.to_bits(), &[])))
            }
            _ => Err(Ran::Failed(Error::OutOfTurn { pe: self.pe() })),
        }
    }

    /// Goes on behind a question that was answered.
    fn advance(&mut self, now: Ps, list: List, answer: &Answer) -> Result<Next, Ran> {
        let next = List { at: list.at + 1, ..list };
        if let Some(why) = &answer.refused {
            self.answer(now, list.at, Err(why))?;
        } else if next.at < list.count {
            return Ok(Next::Read(next));
        } else {
            self.answered = list.ask.takes();
            answer.data.with(|bytes| self.answer(now, next.at, Ok((answer.value, bytes))))?;
        }
        Ok(Next::Listen)
    }

    /// Lets the process run until it passes its turn, with a list.
    fn listen(&mut self, now: Ps) -> Result<Next, Ran> {
        self.await_turn()?;
        let spent = Ps::ZERO;
        match self.shared.passages.count(self.pe()) {
            Some(count) => {
                let ask = Ask::Begin;
                Ok(Next::Read(List { count, at: 0, ask, spent, looked: false, room: 0 }))
            }
            None => {
                self.answer(now, 0, Err("this is no list of questions"))?;
                Ok(Next::Listen)
            }
        }
    }

    /// Reads the question at the list's place, and asks it if it passes the checks. Questions that
    /// take no time are answered here.
    fn read(&mut self, now: Ps, list: List) -> Result<Result<Next, Ran>, Ran> {
        let asked = self.shared.passages.ask(self.pe(), list.at);
        let checked = asked.ok_or("this is no question").and_then(|asked| {
            let spent = list.spent + Ps::from_duration(asked.spent);
            self.rules.check(self.shared.hosted, self.pe, asked.ask, now + spent)?;
            Ok((asked, self.block(asked)?, spent))
        });
        let room = asked.map_or(0, |asked| asked.block.saturating_add(asked.ask.gives()));
        let room = list.room.max(room);
        let is_last = list.at + 1 == list.count || checked.is_err();
        if is_last {
            // Only now: the questions' blocks lie where the last answer was.
            self.shared.passages.give_back(self.pe(), room.max(self.answered));
        }
        let (Asked { ask, .. }, block, spent) = match checked {
            Ok(checked) => checked,
            Err(why) => {
                self.answer(now, list.at, Err(why))?;
                return Ok(Ok(Next::Listen));
            }
        };
        let list = List { ask, spent: Ps::ZERO, room, ..list };
        match ask {
            Ask::Map { .. } | Ask::Unmap { .. } | Ask::Mark { .. } => {
                let answer = self.at_once(ask).map_or_else(Answer::refused, |()| Answer::value(0));
                self.advance(now, list, &answer).map(Ok)
            }
            Ask::Await { .. } => Ok(Ok(Next::Watch(List { spent, ..list }))),
            _ => {
                self.list = Some(list);
                Ok(Err(Ran::Asks(self.asks.request(ask, block), spent)))
            }
        }
    }

    /// Looks at the word that the PE waits for, as the PE would.
    fn watch(&mut self, now: Ps, list: List) -> Result<Result<Next, Ran>, Ran> {
        let Ask::Await { offset, test, what } = list.ask else {
            unreachable!("only waits are watched")
        };
        let hosted = self.shared.hosted;
        let word = hosted.load(self.pe, FarAddress { pe: self.pe, region: 0, offset });
        if word.is_some_and(|word| test.passes(word)) {
            return self.advance(now, list, &Answer::value(0)).map(Ok);
        }
        let request = if !list.looked {
            Request::Look
        } else if hosted.departures() > 0 || self.shared.passages.is_recalled(self.pe()) {
            // The PE itself must see to that: it ends the wait, or goes on.
            self.answer(now, list.at, Ok((0, &[])))?;
            return Ok(Ok(Next::Listen));
        } else {
            Request::Park { due: None, vain: false, what }
        };
        self.list = Some(List { looked: true, spent: Ps::ZERO, ..list });
        Ok(Err(Ran::Asks(request, list.spent)))
    }

    /// Carries out what takes no time.
    fn at_once(&self, ask: Ask) -> Result<(), String> {
        let (hosted, pe) = (self.shared.hosted, self.pe);
        match ask {
            Ask::Map { pe: other, region, len, file } => {
                hosted.open_region(pe, other, region, file, len)
            }
            Ask::Unmap { pe: other, region } => {
                hosted.unmap_region(pe, other, region);
                Ok(())
            }
            Ask::Mark { offset, value } => {
                let at = FarAddress { pe, region: 0, offset };
                let written = hosted.write(pe, at, &value.to_le_bytes());
                written.then_some(()).ok_or_else(|| "there is no such word".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The block that goes with a question.
    fn block(&self, Asked { ask, block, .. }: Asked) -> Result<Payload, &'static str> {
        let block = match ask.gives() {
            0 => Payload::EMPTY,
            len => {
                let bytes = self.shared.passages.block(self.pe(), block, len);
                Payload::copy(&bytes.ok_or("no block is that long")?)
            }
        };
        if let Ask::JoinDatagrams { .. } | Ask::Join { len: 4.. } | Ask::JoinCopies { len: 4.. } =
            ask
        {
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

    /// What the process does with the reply to its question, until it asks again.
    fn run(&mut self, reply: &Reply) -> Result<Ran, Ran> {
        let Reply { now, answer } = reply;
        let mut next = match self.list.take() {
            None => {
                self.begin(*now)?;
                Next::Listen
            }
            Some(list @ List { ask: Ask::Await { .. }, .. }) => Next::Watch(list),
            Some(list) => {
                self.asks.answered(list.ask, answer);
                self.rules.answered(list.ask, answer);
                self.advance(*now, list, answer)?
            }
        };
        loop {
            // A process that was killed asks no more.
            if self.shared.passages.has_ended(self.pe()) {
                return Err(Ran::Ended);
            }
            next = match next {
                Next::Listen => self.listen(*now)?,
                Next::Read(list) => match self.read(*now, list)? {
                    Ok(next) => next,
                    Err(ran) => return Ok(ran),
                },
                Next::Watch(list) => match self.watch(*now, list)? {
                    Ok(next) => next,
                    Err(ran) => return Ok(ran),
                },
            };
        }
    }
}

impl Program for Process<'_> {
    fn resume(&mut self, reply: Reply) -> Ran {
        self.run(&reply).unwrap_or_else(|ended| ended)
    }
}
