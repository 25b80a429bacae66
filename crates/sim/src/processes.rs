//! Programs as processes. Each PE is a process of its own, attached to the machine by shared pages.
//!
//! A process passes its turn to the engine with a list of questions, and sleeps until the last is
//! answered ([`Passages`]). While processes run, the engine sleeps. So the machine sees the calls
//! that it would see of coroutines, in one order.
//!
//! Processes that are ready at one moment run at once, and so do all at the start. One runs at a
//! time where computing takes the time that it takes here: others would make it longer.
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
use crate::run::{JobMemory, Run};
use crate::time::Ps;
use crate::trace::Recorder;
use crate::usage::Usage;
use crate::world::World;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::hosted::{Ask, Asked, Came, Hosted, Offers, Passages};
use std::cell::RefCell;
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
    /// Whether PEs run at once that are ready at one moment.
    pub at_once: bool,
}

/// Tells a thread that has a clock whether the PEs that run make progress, and lets it end the run.
/// The engine reads no clock.
#[derive(Debug, Default)]
pub struct Pace {
    /// Number of turns that have begun.
    turns: AtomicU64,
    /// One more than the PE that the engine waits for; 0 when it waits for none.
    running: AtomicU32,
    /// Number of PEs that run at once, and how many of them share a CPU.
    at_once: AtomicU32,
    share: AtomicU32,
    /// When the running PE has kept its turn for too long: for how long, in nanoseconds. Otherwise
    /// 0.
    silent: AtomicU64,
    /// Whether that PE has slept all the while.
    asleep: AtomicBool,
    stopped: AtomicBool,
}

impl Pace {
    /// The turn that the engine waits for. A thread that sees one turn for too long calls
    /// [`give_up`](Self::give_up).
    pub fn turn(&self) -> Option<Turn> {
        let pe = self.running.load(Ordering::SeqCst).checked_sub(1)?;
        Some(Turn {
            number: self.turns.load(Ordering::Relaxed),
            pe: pe as usize,
            share: self.share.load(Ordering::Relaxed).max(1),
        })
    }

    /// Whether what this PE writes now is to be passed on now: nothing that it writes is behind
    /// what another PE may still write.
    pub fn shows(&self, pe: usize) -> bool {
        self.at_once.load(Ordering::SeqCst) < 2
            || self.running.load(Ordering::SeqCst) == pe as u32 + 1
    }

    /// Ends the run, because the PE has kept its turn for the time `after`, in which its process
    /// has run or been `asleep`. The caller repeats this until the run has ended, as the engine may
    /// be about to sleep.
    pub fn give_up(&self, passages: &Passages, pe: usize, after: Duration, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
        self.silent.store(after.as_nanos() as u64, Ordering::Relaxed);
        passages.wake(pe);
    }

    /// Ends the run with [`Error::Stopped`], though packets are under way. PEs that still run are
    /// waited for.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn begins(&self, pe: u32) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // It may have been meant for a turn that ended just then.
        self.silent.store(0, Ordering::Relaxed);
        self.running.store(pe + 1, Ordering::SeqCst);
    }

    fn ends(&self) {
        self.running.store(0, Ordering::Relaxed);
    }
}

/// A turn of a PE, as another thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Number of turns that have begun.
    pub number: u64,
    /// The PE.
    pub pe: usize,
    /// Number of PEs that share its CPU, this among them.
    pub share: u32,
}

/// Starts processes, gives them CPUs, and passes on their output.
pub trait Launcher {
    /// Starts these PEs. PEs are started in order, from 0 on. Gives how many; the others will never
    /// run.
    fn start(&self, pes: &[usize]) -> usize;

    /// So many PEs are about to run at once. Gives the number of CPUs for them.
    fn begin(&self, at_once: usize) -> usize;

    /// PE `pe`, which sleeps, runs as number `number` of those.
    fn place(&self, pe: usize, number: usize);

    /// Wakes these PEs, which run at once, and have got their turns while they slept.
    fn wake(&self, pes: &[usize]);

    /// All of those have run. Passes on what is withheld of other PEs.
    fn end(&self, at_once: usize);

    /// Passes on the output of these PEs, in this order, before that of the PEs after them.
    fn pass_on(&self, pes: &[usize]);
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
    let shared = Shared {
        hosted,
        passages,
        launcher,
        pace,
        at_once: options.at_once,
        offers: world.offers(),
        ran: RefCell::default(),
    };
    let process = |pe| Process {
        pe,
        shared: &shared,
        asks: Asks::new(everybody.clone()),
        rules: Rules::default(),
        stage: Stage::New,
        now: Ps::ZERO,
        list: None,
        answered: 0,
    };
    let outside = Run { hosted, stopped: Some(&pace.stopped) };
    let Finished { mut world, usage, result, .. } =
        Engine::new(world, (0..pes).map(process).collect(), &outside).run();
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
    /// Whether PEs run at once that are ready at one moment.
    at_once: bool,
    offers: Offers,
    /// The PEs whose turns have ended since output was passed on, in order.
    ran: RefCell<Vec<usize>>,
}

impl Shared<'_> {
    /// Runs processes at once, until each has passed its turn. Their output is passed on in their
    /// order. Gives what they did, up to one that ends the run.
    fn run(&self, processes: &mut [Process<'_>], ready: &[Pe]) -> Vec<Ran> {
        let Shared { launcher, passages, pace, .. } = self;
        pace.at_once.store(ready.len() as u32, Ordering::SeqCst);
        let share = ready.len().div_ceil(launcher.begin(ready.len()));
        pace.share.store(share as u32, Ordering::Relaxed);
        let goes_on = matches!(ready, [pe] if *self.ran.borrow() == [pe.index()]);
        match goes_on {
            // What follows is its own output.
            true => self.ran.borrow_mut().clear(),
            false => self.pass_on(),
        }
        self.start(processes, ready);
        let mut asleep = Vec::new();
        let start = |(number, pe): (usize, &Pe)| {
            let sleeps = processes[pe.index()].start_turn(number)?;
            asleep.extend(sleeps.then_some(pe.index()));
            Ok(())
        };
        let started: Vec<_> = ready.iter().enumerate().map(start).collect();
        launcher.wake(&asleep);
        let mut all = Vec::with_capacity(ready.len());
        for ((number, &pe), started) in ready.iter().enumerate().zip(started) {
            if let Some(next) = ready.get(number + 1) {
                passages.expect(next.index());
            }
            let process = &mut processes[pe.index()];
            all.push(started.and_then(|()| process.end_turn()).unwrap_or_else(|ran| ran));
            self.ran.borrow_mut().push(pe.index());
            if let Some(Ran::Failed(_)) = all.last() {
                break;
            }
        }
        if ready.len() > 1 {
            self.pass_on();
        }
        pace.at_once.store(0, Ordering::SeqCst);
        launcher.end(ready.len());
        all
    }

    /// Starts those of these processes that are new.
    fn start(&self, processes: &mut [Process<'_>], ready: &[Pe]) {
        let pes = ready.iter().map(|pe| pe.index());
        let new: Vec<usize> = pes.filter(|&pe| processes[pe].stage == Stage::New).collect();
        if !new.is_empty() {
            let started = &new[..self.launcher.start(&new)];
            started.iter().for_each(|&pe| processes[pe].stage = Stage::Started);
        }
    }

    /// Passes on the output of the PEs whose turns have ended.
    fn pass_on(&self) {
        let mut ran = self.ran.borrow_mut();
        if !ran.is_empty() {
            self.launcher.pass_on(&ran);
            ran.clear();
        }
    }
}

/// A PE's process.
struct Process<'a> {
    pe: u32,
    shared: &'a Shared<'a>,
    asks: Asks,
    rules: Rules,
    stage: Stage,
    /// The PE's time when it was last resumed.
    now: Ps,
    /// The questions that the process waits for an answer to.
    list: Option<List>,
    /// The most bytes of the last answer.
    answered: usize,
}

/// How far a process has come with its start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    /// It runs, and has not joined the machine.
    Started,
    Joined,
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
    /// The process runs, with the answer that it has now.
    Run,
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
        match passages.look(self.pe()) {
            Came::Mine => return Ok(()),
            // From now on, this PE's output is passed on as it comes.
            _ => self.shared.pass_on(),
        }
        pace.begins(self.pe);
        let came = loop {
            match passages.wait(self.pe()) {
                Came::Mine => break Ok(()),
                Came::Gone if passages.has_ended(self.pe()) => break Err(Ran::Ended),
                Came::Gone => break Err(self.out_of_turn()),
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

    fn out_of_turn(&self) -> Ran {
        Ran::Failed(Error::OutOfTurn { pe: self.pe() })
    }

    /// Writes the process's answer. `made` of its questions have been answered before, or with
    /// this.
    fn answer(&self, made: usize, answer: Result<(u64, &[u8]), &str>) {
        self.shared.passages.answer(self.pe(), self.now.to_duration(), made, answer);
    }

    /// Lets the process run, as number `number` of those that do. Says whether it has to be woken.
    fn start_turn(&mut self, number: usize) -> Result<bool, Ran> {
        let Shared { launcher, passages, .. } = *self.shared;
        match self.stage {
            Stage::New => return Err(Ran::Ended),
            Stage::Started => return Ok(false),
            Stage::Joined => {}
        }
        launcher.place(self.pe(), number);
        passages.give(self.pe()).ok_or_else(|| match passages.has_ended(self.pe()) {
            true => Ran::Ended,
            false => self.out_of_turn(),
        })
    }

    /// Waits until the process has passed its turn, and takes what it asks.
    fn end_turn(&mut self) -> Result<Ran, Ran> {
        self.await_turn()?;
        let passages = self.shared.passages;
        if self.stage == Stage::Started {
            self.stage = Stage::Joined;
            let Some(Asked { ask: Ask::Begin, .. }) = passages.ask(self.pe(), 0) else {
                return Err(self.out_of_turn());
            };
            self.answer(1, Ok((self.shared.offers.to_bits(), &[])));
            return Ok(Ran::Ready);
        }
        let Some(count) = passages.count(self.pe()) else {
            self.answer(0, Err("this is no list of questions"));
            return Ok(Ran::Ready);
        };
        let (ask, spent) = (Ask::Begin, Ps::ZERO);
        self.go_on(Next::Read(List { count, at: 0, ask, spent, looked: false, room: 0 }))
    }

    /// Goes on behind a question that was answered.
    fn advance(&mut self, list: List, answer: &Answer) -> Next {
        let next = List { at: list.at + 1, ..list };
        if let Some(why) = &answer.refused {
            self.answer(list.at, Err(why));
        } else if next.at < list.count {
            return Next::Read(next);
        } else {
            self.answered = list.ask.takes();
            answer.data.with(|bytes| self.answer(next.at, Ok((answer.value, bytes))));
        }
        Next::Run
    }

    /// Reads the question at the list's place, and asks it if it passes the checks. Questions that
    /// take no time are answered here.
    fn read(&mut self, list: List) -> Result<Next, Ran> {
        let asked = self.shared.passages.ask(self.pe(), list.at);
        let checked = asked.ok_or("this is no question").and_then(|asked| {
            let spent = list.spent + Ps::from_duration(asked.spent);
            self.rules.check(self.shared.hosted, self.pe, asked.ask, self.now + spent)?;
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
                self.answer(list.at, Err(why));
                return Ok(Next::Run);
            }
        };
        let list = List { ask, spent: Ps::ZERO, room, ..list };
        match ask {
            Ask::Map { .. } | Ask::Unmap { .. } | Ask::Mark { .. } => {
                let answer = self.at_once(ask).map_or_else(Answer::refused, |()| Answer::value(0));
                if answer.refused.is_none() && spent > Ps::ZERO {
                    self.list = Some(list);
                    return Err(Ran::Asks(self.asks.request(ask, block), spent));
                }
                Ok(self.advance(list, &answer))
            }
            Ask::Await { .. } => Ok(Next::Watch(List { spent, ..list })),
            _ => {
                self.list = Some(list);
                Err(Ran::Asks(self.asks.request(ask, block), spent))
            }
        }
    }

    /// Whether the word that a list's question waits for has come.
    fn has_come(&self, list: &List) -> bool {
        let Ask::Await { offset, test, .. } = list.ask else { return true };
        let at = FarAddress { pe: self.pe, region: 0, offset };
        self.shared.hosted.load(self.pe, at).is_some_and(|word| test.passes(word))
    }

    /// Looks at the word that the PE waits for, as the PE would.
    fn watch(&mut self, list: List) -> Result<Next, Ran> {
        let Ask::Await { what, .. } = list.ask else { unreachable!("only waits are watched") };
        let Shared { hosted, passages, .. } = *self.shared;
        let request = if list.spent > Ps::ZERO && (list.looked || self.has_come(&list)) {
            Request::Compute(Ps::ZERO)
        } else if self.has_come(&list) {
            return Ok(self.advance(list, &Answer::value(0)));
        } else if !list.looked {
            Request::Look
        } else if hosted.departures() > 0 || passages.is_recalled(self.pe()) {
            // The PE itself must see to that: it ends the wait, or goes on.
            self.answer(list.at, Ok((0, &[])));
            return Ok(Next::Run);
        } else {
            Request::Park { due: None, vain: false, what }
        };
        let looked = list.looked || matches!(request, Request::Look);
        self.list = Some(List { looked, spent: Ps::ZERO, ..list });
        Err(Ran::Asks(request, list.spent))
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

    /// Takes the reply to the process's question.
    fn take(&mut self, Reply { now, answer }: &Reply) -> Next {
        self.now = *now;
        match self.list.take() {
            None => Next::Run,
            Some(list @ List { ask: Ask::Await { .. }, .. }) => Next::Watch(list),
            Some(list) => {
                self.asks.answered(list.ask, answer);
                self.rules.answered(list.ask, answer);
                self.advance(list, answer)
            }
        }
    }

    /// Goes through the process's questions until one takes time, or all are answered.
    fn go_on(&mut self, mut next: Next) -> Result<Ran, Ran> {
        loop {
            // A process that was killed asks no more.
            if self.shared.passages.has_ended(self.pe()) {
                return Err(Ran::Ended);
            }
            next = match next {
                Next::Run => return Ok(Ran::Ready),
                Next::Read(list) => self.read(list)?,
                Next::Watch(list) => self.watch(list)?,
            };
        }
    }
}

impl Program for Process<'_> {
    const ENDS_WITH_RUN: bool = false;

    fn abandon(&mut self) {
        unreachable!("a process is ended by its launcher")
    }

    fn resume(&mut self, reply: Reply) -> Ran {
        let next = self.take(&reply);
        self.go_on(next).unwrap_or_else(|ran| ran)
    }

    fn is_nearly_ready(&self) -> bool {
        let answers_last = |list: &List| list.at + 1 == list.count && self.has_come(list);
        self.shared.at_once && self.list.as_ref().is_none_or(answers_last)
    }

    fn run(processes: &mut [Self], ready: &[Pe]) -> Vec<Ran> {
        let Some(first) = ready.first() else { return Vec::new() };
        let shared = processes[first.index()].shared;
        shared.run(processes, ready)
    }
}
