//! Which PE runs when: programs on one side, the machine on the other.
//!
//! | state of a PE | ends when |
//! |---|---|
//! | it runs | it asks for something |
//! | its request lies in the PE's future; the engine has scheduled it | that time comes |
//! | it is in a call | the machine answers |
//! | it looks | the look samples the memory |
//! | it is parked | something changes in its memory, its deadline comes, or nothing else can happen; then it looks. A PE whose looks ask other PEs cannot see in its own memory when to ask again. It polls, at growing intervals: every 50 us, or every 128th part of the time that it has waited |
//! | it computes | its time has passed |
//!
//! **Programs that are ready at one moment run at once**, if they run by themselves, as processes
//! do. One is ready; as long as what happens next, at that same moment, makes another one ready,
//! that happens first; then all run. The machine does not change while they run, and what each of
//! them sees is what it would see if they ran one after the other:
//!
//! * R1: a program that runs changes only its own PE's memory. So whether another PE's look is in
//!   vain is the same before, during and after.
//! * R2: a request changes no PE's memory before a later event. Events of one moment come in the
//!   order in which they were put in, so those of the requests come behind the one that has made
//!   the last program ready. A request that is answered at once makes its program ready again, for
//!   the next time that programs run.
//! * R3: requests are taken in the order in which their programs became ready.
//!
//! R1 has an exception. Processes see in the job's memory who has left. Where one leaves or dies,
//! another one that runs at that moment, and waits for it, may hear of it at once, or a
//! millisecond later as others do.
//!
//! **While a coroutine unwinds, no other one runs,** as far as that goes. That a thread panics is
//! known of the thread, and all coroutines share one: what another PE drops meanwhile would count
//! as left by a panic. So that PE's calls are answered by the machine alone, and the others go on
//! when the panic was caught or has ended the PE. Their clocks then show the time that has passed.
//! Where the PE waits, as the last blocks of a channel may need answers, or makes many calls, as it
//! may poll, the others do run, and the thread's panic [is not theirs](unwinding). Should one of
//! them panic just then, what it holds counts as given back in order.
//!
//! **A job is stuck** when nothing is under way in the machine, and all that is left are polls of
//! parked PEs that ask in vain. These show that the job is not stuck: memory that changes, a wait
//! that ends or begins, a computation, a PE that ends, and a deadline of the program. These do not:
//! looks, at near or far memory, that have seen nothing new `LAST_LOOKS` times; and what the
//! library's ends of a channel repeat so that nothing is lost. Such ends ask and are answered for
//! ever when a program never does its part. An answer counts as progress only for the end that gets
//! it. That end says so when it parks: its next look is in vain if very many in a row have taught
//! it nothing.
//!
//! **When a run has failed, coroutines end by themselves.** What a PE waits for, and what it asks
//! for from then on, is refused at once, as calls are after any failure. So a program returns or
//! panics as its author has provided for, and its destructors may call the library. A program that
//! heeds no refusal is abandoned: its requests end in panics. Where it catches these, too, the
//! process is aborted: what a coroutine borrows must not end before it.

use crate::error::{Error, Waiting};
use crate::host::{Answer, GroupOp, HostOp, Op, Pe};
use crate::packet::Destination;
use crate::program::{Panic, Program, Ran};
pub use crate::program::{Reply, Request};
use crate::time::Ps;
use crate::usage::{PeUsage, Usage};
use crate::world::{Happened, Wake, World};
use memonet_core::unstable::fabric::Awaited;
use memonet_core::unstable::unwinding;

/// What the engine has to know of the job: which PEs have left, and whether it is to go on.
pub(crate) trait Outside {
    /// Whether the run is to end, wherever it is.
    fn is_stopped(&self) -> bool;

    /// How many PEs have left, whether they ended well or died.
    fn count(&self) -> u32;
    /// Whether this PE has left.
    fn has_left(&self, pe: Pe) -> bool;
    /// A PE's program has panicked.
    fn died(&self, pe: Pe);
}

/// How long it takes until the other PEs hear of a PE that has left.
const NEWS_OF_DEPARTURES: Ps = Ps::us(1000);
/// How often all parked PEs look in vain, when nothing else can happen, before the job is stuck.
const LAST_LOOKS: u32 = 64;
/// The longest poll interval of a PE whose looks ask other PEs, unless `PART_OF_WAIT` gives a
/// longer one.
const LONGEST_POLL_INTERVAL: Ps = Ps::us(50);
/// The poll interval may be this part of the time that the PE has waited. So a long wait takes few
/// looks, and ends late by a small part of its length.
const PART_OF_WAIT: u64 = 128;
/// Deadlines of waits that are over are forgotten when there are so many more than anything else.
const OLD_DEADLINES: usize = 64;
/// For how many calls of a PE that unwinds the others are held.
const CALLS_HELD: u32 = 64;
/// How many requests of a program are refused, when the run has failed, before it is abandoned:
/// more than a program makes that heeds refusals.
const REFUSALS: u32 = 100;
/// How many requests an abandoned program may make. One that unwinds may give back much, and each
/// time ask for something.
const REFUSALS_WHEN_ABANDONED: u32 = 100_000;

#[derive(Debug)]
enum State {
    /// Not started.
    New,
    /// It runs, or is ready to.
    Running,
    /// The PE's request lies in the PE's future.
    Ahead(Request),
    Calling,
    Looking,
    Parked {
        from: Ps,
        what: Awaited,
        /// Whether a look is scheduled.
        due: bool,
        /// Whether the PE will look at a moment of its own, and may see something new.
        may_wake: bool,
    },
    Computing,
    Ended,
}

struct Actor {
    state: State,
    /// The PE's own time. While the PE runs, this is the machine's time or later: later, when a
    /// look that succeeded is not over.
    at: Ps,
    /// Whether something in the PE's memory has changed since its last look.
    changed: bool,
    /// Whether the PE has called its NIC since its last look. Then its looks may ask other PEs.
    asked: bool,
    /// The PE's next poll interval.
    poll_interval: Ps,
    /// When the first look of the PE's wait began.
    waits_since: Ps,
    /// Number of the PE's calls so far, wrapping.
    calls: u32,
    usage: PeUsage,
    /// Number of the PE's parkings so far. It tells an old deadline from a new one.
    parkings: u32,
}

impl Actor {
    fn new() -> Actor {
        Actor {
            state: State::New,
            at: Ps::ZERO,
            changed: false,
            asked: false,
            poll_interval: Ps::ZERO,
            waits_since: Ps::ZERO,
            calls: 0,
            usage: PeUsage::default(),
            parkings: 0,
        }
    }
}

struct Unwinder {
    pe: Pe,
    /// Its calls since the panic.
    calls: u32,
}

/// The programs of a job on a machine.
pub(crate) struct Engine<'a, P> {
    world: World,
    programs: Vec<P>,
    actors: Vec<Actor>,
    /// Programs that are ready to run, and the times of their PEs.
    ready: Vec<(Pe, Ps)>,
    /// The PE that unwinds, and for which others are held.
    unwinding: Option<Pe>,
    /// PEs that called the machine while they unwound after a panic, and have not ended that.
    unwinders: Vec<Unwinder>,
    /// Whether the caller of the whole run unwinds.
    caller_unwinds: bool,
    /// PEs that go on when it has unwound, from when, and with these answers.
    held: Vec<(Pe, Ps, Answer)>,
    outside: &'a dyn Outside,
    /// Number of departures that the PEs have heard of.
    known_departures: u32,
    /// Whether the PEs are about to hear of more departures.
    news_due: bool,
    /// Number of programs that have not ended.
    left: usize,
    /// Deadlines among the world's events.
    deadlines: usize,
    /// Number of parked PEs for which something may still come.
    may_wake: usize,
    /// How often in a row all parked PEs have looked in vain.
    vain_looks: u32,
    panic: Option<Panic>,
    failed: Option<Error>,
    /// When the first program began.
    begin: Ps,
    /// When the last program ended.
    end: Ps,
}

/// A run that is over.
pub(crate) struct Finished {
    /// The world as the programs left it.
    pub(crate) world: World,
    pub(crate) usage: Usage,
    /// The first panic.
    pub(crate) panic: Option<Panic>,
    /// The error, if not all programs ended.
    pub(crate) result: Result<(), Error>,
}

impl<'a, P: Program> Engine<'a, P> {
    pub(crate) fn new(world: World, programs: Vec<P>, outside: &'a dyn Outside) -> Self {
        Engine {
            begin: world.now(),
            world,
            actors: programs.iter().map(|_| Actor::new()).collect(),
            left: programs.len(),
            ready: Vec::new(),
            unwinding: None,
            unwinders: Vec::new(),
            caller_unwinds: std::thread::panicking(),
            held: Vec::new(),
            programs,
            outside,
            known_departures: 0,
            news_due: false,
            deadlines: 0,
            may_wake: 0,
            vain_looks: 0,
            panic: None,
            failed: None,
            end: Ps::ZERO,
        }
    }

    /// Runs all programs to their ends.
    pub(crate) fn run(mut self) -> Finished {
        let result = self.run_all();
        if result.is_err() {
            self.end = self.end.max(self.world.now());
            for pe in 0..self.actors.len() {
                self.account(pe, self.end);
            }
        }
        if let Err(error) = &result
            && P::ENDS_WITH_RUN
        {
            self.end_programs(error);
        }
        let usage = Usage {
            begin: self.begin,
            end: self.end,
            pes: self.actors.iter().map(|actor| actor.usage).collect(),
            links: self.world.links(),
        };
        Finished { world: self.world, usage, panic: self.panic, result }
    }

    /// Adds the time since the PE has last run, until `at`, to what it was spent for.
    fn account(&mut self, pe: usize, at: Ps) {
        let actor = &mut self.actors[pe];
        let time = at.since(actor.at);
        match actor.state {
            State::New | State::Running | State::Ended | State::Ahead(_) => {}
            State::Calling => actor.usage.calling += time,
            State::Looking | State::Parked { .. } => actor.usage.waiting += time,
            State::Computing => actor.usage.computing += time,
        }
    }

    fn run_all(&mut self) -> Result<(), Error> {
        for pe in 0..self.programs.len() as u32 {
            while !self.ready.is_empty() && !self.programs[pe as usize].is_nearly_ready() {
                self.run_ready();
            }
            // Bringing the machine up may have taken time.
            self.resume(Pe(pe), self.world.now(), Answer::default());
            self.failed.take().map_or(Ok(()), Err)?;
        }
        while self.left > 0 {
            self.go_on()?;
            self.release();
            if self.left == 0 {
                break;
            }
            if !self.ready.is_empty() && !self.another_is_nearly_ready() {
                self.run_ready();
                self.failed.take().map_or(Ok(()), Err)?;
                continue;
            }
            if self.world.pending() == self.deadlines {
                if self.look_again() {
                    continue;
                }
                if self.may_wake == 0 {
                    return Err(self.deadlock());
                }
            }
            match self.world.next() {
                None => return Err(self.deadlock()),
                Some(Happened::Answered(op, answer)) => {
                    debug_assert!(
                        matches!(self.actors[op.pe.index()].state, State::Calling),
                        "an answer to nothing, {op:?}"
                    );
                    self.resume(op.pe, self.world.now(), answer);
                }
                Some(Happened::Changed(pe)) => {
                    self.vain_looks = 0;
                    self.look_soon(pe);
                }
                Some(Happened::News(pe)) => self.look_soon(pe),
                Some(Happened::Woken(wake)) => self.woken(wake),
                Some(Happened::Unrouted(op, switch, to)) => {
                    return Err(self.unrouted(op, switch, to));
                }
                Some(Happened::Nothing) => {}
            }
            self.failed.take().map_or(Ok(()), Err)?;
        }
        // What the programs sent last still arrives.
        while let Some(happened) = self.world.next() {
            self.go_on()?;
            if let Happened::Unrouted(op, switch, to) = happened {
                return Err(self.unrouted(op, switch, to));
            }
        }
        Ok(())
    }

    /// Ends all programs that have begun, when the run has failed. Those that unwind come first:
    /// until they have ended, the thread panics for all.
    fn end_programs(&mut self, error: &Error) {
        let mut order: Vec<Pe> = self.unwinders.iter().map(|unwinder| unwinder.pe).collect();
        let unwinders = order.len();
        order.extend((0..self.actors.len() as u32).map(Pe));
        for (number, pe) in order.into_iter().enumerate() {
            if matches!(self.actors[pe.index()].state, State::New | State::Ended) {
                continue;
            }
            let panic = self.end_program(pe, error);
            self.actors[pe.index()].state = State::Ended;
            // Those of others follow from the refusals.
            if let Some(panic) = panic.filter(|_| number < unwinders) {
                self.panic.get_or_insert(panic);
            }
        }
    }

    /// Refuses all that a program asks for, until it ends.
    fn end_program(&mut self, pe: Pe, error: &Error) -> Option<Panic> {
        let report = error.to_string();
        let brief = report.lines().next().unwrap_or_default();
        for refusals in 0..REFUSALS + REFUSALS_WHEN_ABANDONED {
            if refusals == REFUSALS {
                self.programs[pe.index()].abandon();
            }
            // A panic in a panic ends the process. Its message is then the last that is heard.
            let why = if self.panics() { &report } else { brief };
            let answer = Answer::refused(format!("the run has ended: {why}"));
            let now = self.end.max(self.actors[pe.index()].at);
            match self.run_program(pe, Reply { now, answer }) {
                Ran::Asks(..) => {}
                Ran::Panicked(panic) => return Some(panic),
                Ran::Ready | Ran::Ended | Ran::Failed(_) => return None,
            }
        }
        eprintln!("memonet: PE {} cannot be ended: it catches all panics. {report}", pe.0);
        std::process::abort();
    }

    fn go_on(&self) -> Result<(), Error> {
        match self.outside.is_stopped() {
            false => Ok(()),
            true => Err(Error::Stopped { at: self.world.now() }),
        }
    }

    /// Has a PE look, because there is something new for it to see.
    fn look_soon(&mut self, pe: Pe) {
        let actor = &mut self.actors[pe.index()];
        actor.changed = true;
        self.look_at_next(pe, self.world.now());
    }

    /// Schedules the first look of a parked PE that may see what happened at `changed`.
    fn look_at_next(&mut self, pe: Pe, changed: Ps) {
        let actor = &mut self.actors[pe.index()];
        let last = Op { pe, number: actor.calls.wrapping_sub(1) };
        let State::Parked { from, due, .. } = &mut actor.state else {
            return;
        };
        if !*due {
            *due = true;
            let reads = self.world.reads(last, actor.waits_since, *from, changed);
            self.world.wake(reads, Wake::Sample(pe));
        }
    }

    fn woken(&mut self, wake: Wake) {
        let now = self.world.now();
        match wake {
            Wake::Begin(pe) => {
                let actor = &mut self.actors[pe.index()];
                match std::mem::replace(&mut actor.state, State::Calling) {
                    State::Ahead(request) => {
                        if let Some(answer) = self.begin(pe, request) {
                            self.resume(pe, now, answer);
                        }
                    }
                    other => unreachable!("PE {} began what it had not asked for, {other:?}", pe.0),
                }
            }
            Wake::Sample(pe) => {
                let actor = &mut self.actors[pe.index()];
                self.may_wake -=
                    usize::from(matches!(actor.state, State::Parked { may_wake: true, .. }));
                (actor.changed, actor.asked) = (false, false);
                let polling = self.world.polling(pe);
                self.resume(pe, now + (polling.interval - polling.sample), Answer::default());
            }
            Wake::Computed(pe) => {
                self.vain_looks = 0;
                self.resume(pe, now, Answer::default());
            }
            Wake::Departures => {
                self.news_due = false;
                self.known_departures = self.outside.count();
                for pe in (0..self.actors.len() as u32).map(Pe) {
                    self.look_at_next(pe, now);
                    if self.outside.has_left(pe) {
                        self.world.left(pe);
                    }
                }
            }
            Wake::Deadline { pe, parking } => {
                self.deadlines -= 1;
                if self.actors[pe.index()].parkings == parking {
                    self.look_at_next(pe, now);
                }
            }
        }
    }

    /// Whether what happens next makes another program ready, too, at this moment.
    fn another_is_nearly_ready(&mut self) -> bool {
        let next = self.world.next_to_go_on();
        next.is_some_and(|pe| self.programs[pe.index()].is_nearly_ready())
    }

    /// Runs the programs that are ready, and takes what they ask for in the order in which they
    /// became ready.
    fn run_ready(&mut self) {
        let (pes, times): (Vec<Pe>, Vec<Ps>) = std::mem::take(&mut self.ready).into_iter().unzip();
        let all = P::run(&mut self.programs, &pes);
        for ((pe, at), ran) in pes.into_iter().zip(times).zip(all) {
            self.take(pe, at, ran);
        }
    }

    /// Lets a PE go on, at `at` by its own time.
    fn resume(&mut self, pe: Pe, at: Ps, answer: Answer) {
        if self.unwinding.is_some_and(|unwinding| unwinding != pe) {
            return self.held.push((pe, at, answer));
        }
        self.account(pe.index(), at);
        let ran = self.run_program(pe, Reply { now: at, answer });
        self.take(pe, at, ran);
    }

    /// Whether a coroutine of this thread unwinds.
    fn panics(&self) -> bool {
        std::thread::panicking() && !self.caller_unwinds
    }

    /// Runs a program until it asks or stops, and notes whether it unwinds.
    fn run_program(&mut self, pe: Pe, reply: Reply) -> Ran {
        let before = self.panics();
        let is_unwinder = self.unwinders.iter().any(|unwinder| unwinder.pe == pe);
        let outer = unwinding::of_others(before && !is_unwinder);
        let ran = self.programs[pe.index()].resume(reply);
        unwinding::of_others(outer);
        match self.panics() {
            false => self.unwinders.clear(),
            // The panic has begun just now.
            true if !before => self.unwinders.push(Unwinder { pe, calls: 0 }),
            true => {}
        }
        self.unwinding = None;
        match &ran {
            Ran::Asks(request, _) => {
                let waits = matches!(request, Request::Park { .. });
                if let Some(own) = self.unwinders.iter_mut().find(|unwinder| unwinder.pe == pe) {
                    own.calls += 1;
                    self.unwinding = (!waits && own.calls <= CALLS_HELD).then_some(pe);
                }
            }
            _ => self.unwinders.retain(|unwinder| unwinder.pe != pe),
        }
        ran
    }

    /// Lets those go on that were held, if none unwinds any more.
    fn release(&mut self) {
        if self.unwinding.is_none() {
            for (pe, at, answer) in std::mem::take(&mut self.held) {
                self.resume(pe, at.max(self.world.now()), answer);
            }
        }
    }

    /// Takes what a PE did, until it waits for something or is ready to run.
    fn take(&mut self, pe: Pe, mut at: Ps, mut ran: Ran) {
        loop {
            self.actors[pe.index()].at = at;
            self.hear_of_departures();
            if let Ran::Asks(_, spent) = ran {
                at += spent;
                let actor = &mut self.actors[pe.index()];
                actor.at = at;
                actor.usage.computing += spent;
            }
            let ended = match ran {
                Ran::Ready => {
                    self.actors[pe.index()].state = State::Running;
                    self.ready.push((pe, at));
                    return;
                }
                Ran::Asks(request, _) if at > self.world.now() => {
                    self.actors[pe.index()].state = State::Ahead(request);
                    self.world.wake(at, Wake::Begin(pe));
                    return;
                }
                Ran::Asks(request, _) => match self.begin(pe, request) {
                    Some(answer) => {
                        ran = self.run_program(pe, Reply { now: at, answer });
                        continue;
                    }
                    None => return,
                },
                Ran::Ended => None,
                Ran::Panicked(panic) => Some(panic),
                Ran::Failed(error) => {
                    self.failed.get_or_insert(error);
                    None
                }
            };
            self.actors[pe.index()].state = State::Ended;
            self.left -= 1;
            self.vain_looks = 0;
            self.end = self.end.max(at);
            if let Some(panic) = ended {
                self.outside.died(pe);
                self.panic.get_or_insert(panic);
                self.hear_of_departures();
            }
            return;
        }
    }

    fn hear_of_departures(&mut self) {
        let count = self.outside.count();
        if count != self.known_departures && !self.news_due {
            self.news_due = true;
            let at = self.world.now() + NEWS_OF_DEPARTURES;
            self.world.wake(at, Wake::Departures);
        }
    }

    /// Begins a PE's request, now. Returns the answer if there is one at once.
    fn begin(&mut self, pe: Pe, request: Request) -> Option<Answer> {
        let now = self.world.now();
        let actor = &mut self.actors[pe.index()];
        match request {
            Request::Host(what) => {
                actor.state = State::Calling;
                actor.usage.called(&what);
                // News from its own NIC wakes a PE, as a change of its memory does.
                actor.asked |= !matches!(
                    what,
                    HostOp::Group(
                        GroupOp::Step(_)
                            | GroupOp::Phase(_)
                            | GroupOp::Receive(_)
                            | GroupOp::Result(_)
                    )
                );
                let op = Op { pe, number: actor.calls };
                actor.calls = actor.calls.wrapping_add(1);
                self.world.begin(op, what);
            }
            Request::Look => {
                // This is the first look of a wait. A PE that comes to a new wait has made
                // progress, and may have written to its own memory what other PEs ask for.
                self.vain_looks = 0;
                actor.state = State::Looking;
                let polling = self.world.polling(pe);
                (actor.poll_interval, actor.waits_since) = (polling.interval, now);
                let reads = now + polling.sample;
                self.world.wake(reads, Wake::Sample(pe));
            }
            Request::Park { due, vain, what } => {
                actor.parkings = actor.parkings.wrapping_add(1);
                // PEs that polled for ever would hide a deadlock.
                let asks = actor.asked && self.vain_looks < LAST_LOOKS;
                let by_itself = asks.then(|| now + actor.poll_interval);
                let may_wake = asks || due.is_some() && !vain;
                self.may_wake += usize::from(may_wake);
                actor.state = State::Parked { from: now, what, due: false, may_wake };
                if actor.changed {
                    self.look_at_next(pe, now);
                } else if let Some(at) = due.into_iter().chain(by_itself).min() {
                    let part = Ps(now.since(actor.waits_since).0 / PART_OF_WAIT);
                    actor.poll_interval =
                        LONGEST_POLL_INTERVAL.max(part).min(actor.poll_interval * 2);
                    self.deadlines += 1;
                    let wake = Wake::Deadline { pe, parking: actor.parkings };
                    self.world.wake(at.max(now), wake);
                    self.forget_old_deadlines();
                }
            }
            Request::Compute(time) => {
                actor.state = State::Computing;
                self.world.wake(now + time, Wake::Computed(pe));
            }
            Request::IsQuiet => return Some(Answer::value(self.world.is_quiet(pe).into())),
        }
        None
    }

    /// Bounds the queue: the deadline of a wait stays in it when the wait ends earlier. What is
    /// left keeps its order, and the deadlines that go would have done nothing.
    fn forget_old_deadlines(&mut self) {
        let others = self.world.pending() - self.deadlines;
        if self.deadlines <= OLD_DEADLINES + 2 * self.actors.len() + others {
            return;
        }
        let actors = &self.actors;
        self.world.keep_wakes(|wake| match *wake {
            Wake::Deadline { pe, parking } => actors[pe.index()].parkings == parking,
            _ => true,
        });
        self.deadlines = self.world.pending() - others;
    }

    /// Has all parked PEs look, when nothing but deadlines is left: something may have changed that
    /// is no part of the machine. Returns false when they have looked often enough.
    fn look_again(&mut self) -> bool {
        if self.vain_looks == LAST_LOOKS {
            return false;
        }
        self.vain_looks += 1;
        let now = self.world.now();
        (0..self.actors.len() as u32).for_each(|pe| self.look_at_next(Pe(pe), now));
        true
    }

    fn unrouted(&self, op: Op, switch: u32, to: Destination) -> Error {
        Error::Unrouted { at: self.world.now(), pe: op.pe.index(), switch, to }
    }

    fn deadlock(&self) -> Error {
        let wait = |(pe, actor): (usize, &Actor)| {
            let (what, since) = match &actor.state {
                State::Parked { what, from, .. } => (what.to_string(), *from),
                State::Calling => ("the end of a call to its NIC".to_owned(), actor.at),
                _ => return None,
            };
            Some(Waiting { pe, what, since })
        };
        Error::Deadlock {
            at: self.world.now(),
            waits: self.actors.iter().enumerate().filter_map(wait).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coroutine::Task;
    use crate::machine::Machine;
    use crate::memory::PlainMemory;
    use std::cell::Cell;

    /// A run that is stopped when it has been asked so often.
    struct StoppedAt(Cell<u32>);

    impl Outside for StoppedAt {
        fn is_stopped(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }

        fn count(&self) -> u32 {
            0
        }

        fn has_left(&self, _: Pe) -> bool {
            false
        }

        fn died(&self, _: Pe) {}
    }

    #[test]
    fn deadlines_of_waits_that_are_over_do_not_pile_up() {
        let machine = Machine::load("rdma-100g").unwrap();
        let world = World::build(&machine, 2, 1, Box::new(PlainMemory::new(2, 0))).unwrap();
        let outside = StoppedAt(Cell::new(0));
        let mut engine = Engine::<Task>::new(world, Vec::new(), &outside);
        engine.actors = vec![Actor::new(), Actor::new()];
        let mut park = |pe, due| {
            let due = Some(Ps::us(due));
            engine.begin(Pe(pe), Request::Park { due, vain: false, what: Awaited::Word });
            engine.world.pending()
        };
        park(1, 5000);
        assert!((0..1000).map(|wait| park(0, 1_000_000 + wait)).max().unwrap() < 100);
        let mut live = Vec::new();
        while let Some(happened) = engine.world.next() {
            if let Happened::Woken(Wake::Deadline { pe, parking }) = happened
                && engine.actors[pe.index()].parkings == parking
            {
                live.push((pe, engine.world.now()));
            }
        }
        assert_eq!(live, [(Pe(1), Ps::us(5000)), (Pe(0), Ps::us(1_000_999))]);
    }

    #[test]
    fn a_run_is_stopped_though_events_follow() {
        let machine = Machine::load("rdma-100g").unwrap();
        let mut world = World::build(&machine, 2, 1, Box::new(PlainMemory::new(2, 0))).unwrap();
        (1..=9).for_each(|us| world.wake(Ps::us(us), Wake::Departures));
        let outside = StoppedAt(Cell::new(5));
        let ran = Engine::<Task>::new(world, Vec::new(), &outside).run();
        assert!(matches!(ran.result, Err(Error::Stopped { at }) if at == Ps::us(5)));
    }
}
