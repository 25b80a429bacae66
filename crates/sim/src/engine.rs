//! Who runs when: programs on the one side, the machine on the other.
//!
//! | a PE | until |
//! |---|---|
//! | runs | it asks for something |
//! | has asked at a time of its own that has not come yet | that time |
//! | is in a call | the machine answers |
//! | looks | the look's sample |
//! | is parked | something changes in its memory, its deadline, or nothing else can happen; then it looks. Where a look asks other PEs, nothing in its own memory tells when to ask again: it looks by itself, ever less often: every 50 us, or every 128th part of the time that it has waited |
//! | computes | so much time has passed |
//!
//! **A job is stuck** when nothing is under way in the machine and all that is left to happen are
//! parked PEs' looks, at moments of their own, for what they have asked for in vain. What counts
//! against that: memory that changes, a wait that ends or begins, a computation, a PE that ends,
//! and a deadline of a program's own. What does not: looks that have seen nothing new, far or near,
//! often enough (`LAST_LOOKS`); and what the library's ends of a channel repeat so that nothing is
//! lost. They ask and are answered for ever where a program never does its part. An answer counts
//! as news only for the end that gets it, which says so when it parks: its next look is in vain if
//! very many in a row have taught it nothing.

use crate::error::{Error, Waiting};
use crate::host::{Answer, GroupOp, HostOp, Op, Pe};
use crate::packet::Destination;
use crate::program::{Panic, Program, Ran};
pub use crate::program::{Reply, Request};
use crate::time::Ps;
use crate::world::{Happened, Wake, World};
use memonet_core::fabric::Awaited;

/// What the engine must know of the job besides: who has left it.
pub(crate) trait Departures {
    /// How many PEs have left, in order or not.
    fn count(&self) -> u32;
    /// Whether this one has.
    fn has_left(&self, pe: Pe) -> bool;
    /// A PE's program has panicked.
    fn died(&self, pe: Pe);
}

/// How long it takes until the others hear of a PE that has left.
const NEWS: Ps = Ps::us(1000);
/// How often all that are parked look in vain, when nothing else can happen, before that counts.
const LAST_LOOKS: u32 = 64;
/// The longest that a PE whose looks ask other PEs goes without one, or that part of its wait: so
/// the looks of no wait are too many, and none ends much too late.
const LONGEST_NAP: Ps = Ps::us(50);
const PART_OF_WAIT: u64 = 128;

#[derive(Debug)]
enum State {
    /// Not started.
    New,
    /// Has asked, and its own time has not come yet.
    Ahead(Request),
    Calling,
    Looking,
    Parked {
        from: Ps,
        what: Awaited,
        due: bool,
        /// It will look at a moment of its own, and something may come of that.
        hopeful: bool,
    },
    Computing,
    Ended,
}

struct Actor {
    state: State,
    /// Its own time: not before the machine's when it runs, later when a look is not over that has
    /// seen what it wanted.
    at: Ps,
    /// Something has changed in its memory since its last look.
    changed: bool,
    /// It has called its NIC since its last look: that look was, or may have been, at other PEs'
    /// memory too.
    asked: bool,
    /// How long it will do without a look by itself.
    nap: Ps,
    /// The first look of its wait.
    waits_since: Ps,
    /// Calls so far.
    calls: u32,
    /// Parkings so far, to tell an old deadline from a new one.
    parkings: u32,
}

/// The programs of a job on a machine.
pub(crate) struct Engine<'a, P> {
    world: World,
    programs: Vec<P>,
    actors: Vec<Actor>,
    departures: &'a dyn Departures,
    /// Of which all have been told.
    known_departures: u32,
    /// Whether all are about to be told of more.
    news_due: bool,
    left: usize,
    /// Deadlines among the world's events.
    deadlines: usize,
    /// PEs that are parked with hope.
    hopeful: usize,
    vain_looks: u32,
    panic: Option<Panic>,
    failed: Option<Error>,
    end: Ps,
}

impl<'a, P: Program> Engine<'a, P> {
    pub(crate) fn new(world: World, programs: Vec<P>, departures: &'a dyn Departures) -> Self {
        let actor = || Actor {
            state: State::New,
            at: Ps::ZERO,
            changed: false,
            asked: false,
            nap: Ps::ZERO,
            waits_since: Ps::ZERO,
            calls: 0,
            parkings: 0,
        };
        Engine {
            world,
            actors: programs.iter().map(|_| actor()).collect(),
            left: programs.len(),
            programs,
            departures,
            known_departures: 0,
            news_due: false,
            deadlines: 0,
            hopeful: 0,
            vain_looks: 0,
            panic: None,
            failed: None,
            end: Ps::ZERO,
        }
    }

    /// Runs all programs to their ends. Gives the world as they left it, when the last ended, and
    /// the first panic; and why not all ended.
    pub(crate) fn run(mut self) -> (World, Ps, Option<Panic>, Result<(), Error>) {
        let result = self.run_all();
        (self.world, self.end, self.panic, result)
    }

    fn run_all(&mut self) -> Result<(), Error> {
        for pe in 0..self.programs.len() as u32 {
            // The machine may have been at work before, coming up.
            self.resume(Pe(pe), self.world.now(), Answer::default());
            self.failed.take().map_or(Ok(()), Err)?;
        }
        while self.left > 0 {
            if self.world.pending() == self.deadlines {
                if self.look_once_more() {
                    continue;
                }
                if self.hopeful == 0 {
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
            }
            self.failed.take().map_or(Ok(()), Err)?;
        }
        // What the programs sent last arrives, whoever is there to see it.
        while let Some(happened) = self.world.next() {
            if let Happened::Unrouted(op, switch, to) = happened {
                return Err(self.unrouted(op, switch, to));
            }
        }
        Ok(())
    }

    /// There is something new for a PE to see.
    fn look_soon(&mut self, pe: Pe) {
        let actor = &mut self.actors[pe.index()];
        actor.changed = true;
        self.look_at_next(pe, self.world.now());
    }

    /// A parked PE's first look that may see what happened at `changed` becomes due.
    fn look_at_next(&mut self, pe: Pe, changed: Ps) {
        let State::Parked { from, due, .. } = &mut self.actors[pe.index()].state else {
            return;
        };
        if !*due {
            *due = true;
            let reads = self.world.polling(pe).reads(*from, changed);
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
                self.hopeful -=
                    usize::from(matches!(actor.state, State::Parked { hopeful: true, .. }));
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
                self.known_departures = self.departures.count();
                for pe in (0..self.actors.len() as u32).map(Pe) {
                    self.look_at_next(pe, now);
                    if self.departures.has_left(pe) {
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

    /// A PE goes on at `at`, by its own time, until it waits for something.
    fn resume(&mut self, pe: Pe, mut at: Ps, mut answer: Answer) {
        loop {
            self.actors[pe.index()].at = at;
            let ran = self.programs[pe.index()].resume(Reply { now: at, answer });
            self.hear_of_departures();
            if let Ran::Asks(_, spent) = ran {
                at += spent;
                self.actors[pe.index()].at = at;
            }
            let ended = match ran {
                Ran::Asks(request, _) if at > self.world.now() => {
                    self.actors[pe.index()].state = State::Ahead(request);
                    self.world.wake(at, Wake::Begin(pe));
                    return;
                }
                Ran::Asks(request, _) => match self.begin(pe, request) {
                    Some(at_once) => {
                        answer = at_once;
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
                self.departures.died(pe);
                self.panic.get_or_insert(panic);
                self.hear_of_departures();
            }
            return;
        }
    }

    fn hear_of_departures(&mut self) {
        let count = self.departures.count();
        if count != self.known_departures && !self.news_due {
            self.news_due = true;
            let at = self.world.now() + NEWS;
            self.world.wake(at, Wake::Departures);
        }
    }

    /// A PE's request is begun, now. Gives what can be answered at once.
    fn begin(&mut self, pe: Pe, request: Request) -> Option<Answer> {
        let now = self.world.now();
        let actor = &mut self.actors[pe.index()];
        match request {
            Request::Host(what) => {
                actor.state = State::Calling;
                // What may come from its own NIC wakes it, as its memory does.
                actor.asked |= !matches!(
                    what,
                    HostOp::Group(GroupOp::Phase(_) | GroupOp::Receive(_) | GroupOp::Result(_))
                );
                let op = Op { pe, number: actor.calls };
                actor.calls = actor.calls.wrapping_add(1);
                self.world.begin(op, what);
            }
            Request::Look => {
                // The first look of a wait: whoever comes to a new one has got on, and may have
                // written to its own memory what others ask for.
                self.vain_looks = 0;
                actor.state = State::Looking;
                let polling = self.world.polling(pe);
                (actor.nap, actor.waits_since) = (polling.interval, now);
                let reads = now + polling.sample;
                self.world.wake(reads, Wake::Sample(pe));
            }
            Request::Park { due, vain, what } => {
                actor.parkings = actor.parkings.wrapping_add(1);
                // Without that, what would be asked for ever is a deadlock that nobody sees.
                let asks = actor.asked && self.vain_looks < LAST_LOOKS;
                let by_itself = asks.then(|| now + actor.nap);
                let hopeful = asks || due.is_some() && !vain;
                self.hopeful += usize::from(hopeful);
                actor.state = State::Parked { from: now, what, due: false, hopeful };
                if actor.changed {
                    self.look_at_next(pe, now);
                } else if let Some(at) = due.into_iter().chain(by_itself).min() {
                    let part = Ps(now.since(actor.waits_since).0 / PART_OF_WAIT);
                    actor.nap = LONGEST_NAP.max(part).min(actor.nap * 2);
                    self.deadlines += 1;
                    let wake = Wake::Deadline { pe, parking: actor.parkings };
                    self.world.wake(at.max(now), wake);
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

    /// When only deadlines are left to happen, or nothing: whether all that are parked get a look,
    /// in case something has changed that is no part of the machine.
    fn look_once_more(&mut self) -> bool {
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
