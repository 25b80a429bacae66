//! Answers to the launcher's question what waits are for.
//!
//! The launcher writes a number into the control page, the *question*, and wakes all sleepers of
//! its node. While the question stands, each thread that waits and looks in vain writes a
//! [`Report`] into the [place](crate::base::layout::ReportArea) of its PE, once. The launcher
//! collects the reports, and takes the question back.
//!
//! *Asking disturbs nothing.*
//!
//! * A1: A wait answers in its checks, after a look in vain, and goes on with the next look.
//!   Nothing in an answer ends a wait, moves its deadline, or waits itself: it reads memory that
//!   this process has mapped, and writes to memory that no other part of the library reads. Of far
//!   PEs it asks nothing, as their answers could take any time. A front end that tells the place of
//!   the call may wait for its interpreter, but for no PE: that is its [contract](callers::Caller).
//!   In C programs it walks the stack, for which it takes the lock of the loader for a moment.
//! * A2: No wake-up is lost by it. To the doorbell, the launcher is one more ringer: it writes the
//!   question, then rings. A sleeper that is woken so finds its announcement used up, and announces
//!   itself again before it looks again, as after any ring that brought it nothing.
//! * A3: Every wait answers within 50 ms, unless its thread does not run: by A2 a sleeper sees the
//!   question after the ring, as it sees a front end's [call](super::Attention); one that sleeps on
//!   a bell of its barrier looks by itself within that time, and one that is awake checks between
//!   its looks. In virtual time no PE looks while it is parked. There the question stands from the
//!   start, and a PE that parks gives an empty report. The launcher wakes the processes of those,
//!   which then [tell](tell) and sleep on: no virtual time passes. A PE takes its report back when
//!   its wait has ended. What a front end knows of the caller is asked before, as its interpreter
//!   may wait for this call.
//!   A call of a fabric that waits for a far PE by itself answers, too (`Seat::answer`).
//! * A4: Without a question, a check costs one more load, of the cache line in which it looks for
//!   departures. First looks are not touched.
//! * A5: What anybody else writes into question, reports or their count does no harm: a thread
//!   answers each number once, into the part that the count names if there is such a part, and
//!   whoever reads reports [believes nothing](super::report).

use super::quit;
use super::report::{Pes, Report};
use super::{Awaited, Awaiting, Patience, Terms};
use crate::base::clock::{cycles, monotonic_nanos};
use crate::base::error::Result;
use crate::base::layout::{REPORT_BYTES, REPORTS, Report as Place, ReportArea};
use crate::base::shm;
use crate::endpoint::callers;
use crate::endpoint::calls;
use crate::endpoint::control::Control;
use crate::endpoint::pe::Pe;
use std::cell::Cell;
use std::mem::{offset_of, transmute};
use std::ptr::NonNull;
use std::time::Duration;

/// The question that stands for as long as the job lasts: that of simulated machines.
pub(crate) const STANDING: u32 = u32::MAX;

/// Whether the launcher asks what waits are for.
#[inline(always)]
pub(super) fn is_asked(pe: &Pe) -> bool {
    cfg!(not(loom)) && pe.control().question() != 0
}

/// When this PE began to live: a moment by two clocks, by which cycles become time.
#[derive(Clone, Copy)]
pub(super) struct Born {
    cycles: u64,
    nanos: u64,
}

impl Born {
    /// Now. Processes of a simulated machine may not read the cycle counter.
    pub(super) fn now(pe: &Pe) -> Born {
        match pe.is_simulated() {
            true => Born { cycles: 0, nanos: 0 },
            false => Born { cycles: cycles(), nanos: monotonic_nanos() },
        }
    }

    /// Nanoseconds since a moment in cycles.
    fn since(self, moment: u64) -> u64 {
        let lived = cycles().saturating_sub(self.cycles).max(1);
        let nanos = monotonic_nanos().saturating_sub(self.nanos);
        let waited = (self.cycles + lived).saturating_sub(moment).min(lived);
        (u128::from(nanos) * u128::from(waited) / u128::from(lived)) as u64
    }
}

thread_local! {
    /// The last question that this thread has answered.
    static ANSWERED: Cell<u32> = const { Cell::new(0) };
    /// What this thread waits for while it is parked in virtual time. What it points to outlives
    /// the parking, which is all the time that it is here.
    static PARKED: Cell<Option<NonNull<dyn Fn() -> Report>>> = const { Cell::new(None) };
    /// Whether this thread has told that since it fell asleep.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Answers the question, for a wait that has just looked in vain, unless this thread has.
#[cold]
#[inline(never)]
pub(super) fn answer(pe: &Pe, terms: &Terms<'_>) {
    let report = || report(pe, terms, pe.waits().born.since(terms.since), callers::place());
    give(pe.control(), pe.me(), report);
}

/// Whether the launcher asks what waits are for, and this thread has not answered.
pub(crate) fn is_open(control: &Control) -> bool {
    let question = control.question();
    !matches!(question, 0 | STANDING) && ANSWERED.get() != question || quit::is_open()
}

/// Answers the question, for a call of PE `me`'s fabric that has waited for a peer since that
/// moment. `outstanding`: what the peer has still to do.
#[cold]
pub(crate) fn answer_for_peer(
    control: &Control,
    me: usize,
    peer: usize,
    since: Duration,
    outstanding: String,
) {
    let (since, now) = (since.as_nanos() as u64, monotonic_nanos());
    give(control, me, || Report {
        members: Some(Pes::of([peer])),
        outstanding: Some(outstanding.clone()),
        ..begun(Awaited::Peer, now.saturating_sub(since), since, callers::place())
    });
}

/// Gives the answer of this thread, unless it has done so.
fn give(control: &Control, me: usize, report: impl Fn() -> Report) {
    quit::tell(me, control.geometry().npes, &report);
    let question = control.question();
    if question == 0 || question == STANDING || ANSWERED.replace(question) == question {
        return;
    }
    if let Some(place) = claim(control.reports(me), question) {
        let mut report = report();
        let bytes = report.write();
        write(place, question, &bytes);
        // To find the caller takes a moment, in a static program a long one.
        if calls::current().is_some_and(|call| call.at.is_none()) {
            report.caller = callers::instruction();
            // By then, the place may be that of an answer to the next question.
            if control.question() == question {
                lengthen(place, bytes.len(), &report.write());
            }
        }
    }
}

/// Parks this thread in virtual time, by `park`, in a wait that has lasted from `since` until
/// `now`. Meanwhile the thread [tells](tell) what the wait is for when it is woken for that.
pub(super) fn while_parked<R>(
    pe: &Pe,
    terms: &Terms<'_>,
    since: Duration,
    now: Duration,
    park: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if !is_asked(pe) {
        return park();
    }
    let waited = now.saturating_sub(since).as_nanos() as u64;
    let terms = Terms { since: since.as_nanos() as u64, ..*terms };
    let caller = callers::place();
    let report: &dyn Fn() -> Report = &|| report(pe, &terms, waited, caller);
    // SAFETY: only the lifetime changes. `_parked` takes the pointer back before `report` ends, and
    // `tell` uses it in between.
    let lasting = unsafe { transmute::<&dyn Fn() -> Report, &'static dyn Fn() -> Report>(report) };
    PARKED.set(Some(NonNull::from(lasting)));
    let _parked = Parked;
    park()
}

/// Sleeps until the machine passes the turn back, by `sleep`. If the thread is parked, an empty
/// report stands meanwhile, or what it [tells](tell). Where the machine has ended, for ever. Called
/// by one thread of a PE at a time.
pub(crate) fn while_asleep<R>(
    control: &Control,
    me: usize,
    sleep: impl FnOnce() -> Option<R>,
) -> Option<R> {
    if PARKED.get().is_none() {
        return sleep();
    }
    TOLD.set(false);
    let place = nth(control.reports(me), 0);
    write(place, STANDING, &[]);
    let woken = sleep()?;
    // SAFETY: an aligned word of the PE's own place, in the mapping that the PE holds.
    unsafe { shm::store(place.wrapping_add(offset_of!(Place, question)).cast(), 0u32) };
    Some(woken)
}

/// While this value lives, this thread is parked.
struct Parked;

impl Drop for Parked {
    fn drop(&mut self) {
        PARKED.set(None);
    }
}

/// Tells what this thread waits for, if it is parked and has not told. Called by the thread when
/// the launcher has woken it.
#[cold]
pub(crate) fn tell(control: &Control, me: usize) {
    let Some(report) = PARKED.get().filter(|_| !TOLD.replace(true)) else { return };
    // SAFETY: `while_parked` of this thread, which is below on its stack, holds the closure.
    let mut report = unsafe { report.as_ref() }();
    let (place, bytes) = (nth(control.reports(me), 0), report.write());
    write(place, STANDING, &bytes);
    // To find the caller takes a moment, in a static program a long one.
    if !report.call.is_empty() && report.at.is_empty() {
        report.caller = callers::instruction();
        lengthen(place, bytes.len(), &report.write());
    }
}

/// What this thread waits for.
fn report(pe: &Pe, terms: &Terms<'_>, waited: u64, caller: Option<&str>) -> Report {
    let awaiting = &terms.awaiting;
    let (done, missing) = parts(pe, awaiting);
    let mut report = Report {
        limited: !matches!(terms.patience, Patience::Forever),
        simulated: pe.is_simulated(),
        members: awaiting.members().map(|members| Pes::of(members.iter().copied())),
        done,
        missing,
        ..begun(awaiting.plain(), waited, terms.since, caller)
    };
    match *awaiting {
        Awaiting::Word(look) | Awaiting::WordOf(_, look) => {
            report.words = look.map(|look| look());
            let address = report.words.as_ref().map(|words| words.address as usize);
            if let Some(made) = address.and_then(callers::maker) {
                report.window = made.to_owned();
            }
        }
        Awaiting::Lock { holds, place, .. } => {
            report.lock = Some(place);
            let near = (0..pe.npes()).filter(|&other| pe.is_near(other));
            report.holders = Pes::of(near.filter(|&other| holds.is_some_and(|holds| holds(other))));
        }
        Awaiting::Barrier { meeting, .. } | Awaiting::Step { meeting, .. } => {
            report.meeting = Some((meeting.slot as u64, meeting.number));
        }
        Awaiting::Channel { .. } | Awaiting::Leave => {}
    }
    report
}

/// A report that says no more than the call of this thread, and the caller that a front end knows.
fn begun(what: Awaited, waited: u64, begun: u64, caller: Option<&str>) -> Report {
    let call = calls::current();
    let place = |at: Option<&std::panic::Location<'_>>| match at {
        Some(at) if !callers::are_known() => shown(at),
        _ => String::new(),
    };
    Report {
        thread: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
        waited,
        begun,
        limited: false,
        simulated: false,
        what,
        call: call.as_ref().map_or_else(String::new, |call| call.name.to_owned()),
        at: caller.map_or_else(|| place(call.as_ref().and_then(|call| call.at)), str::to_owned),
        caller: None,
        window: place(call.as_ref().and_then(|call| call.window)),
        team: call.and_then(|call| call.team).map(|team| (team.slot as u64, team.number)),
        meeting: None,
        members: None,
        done: Pes::default(),
        missing: Pes::default(),
        lock: None,
        holders: Pes::default(),
        words: None,
        outstanding: None,
    }
}

fn shown(at: &std::panic::Location<'_>) -> String {
    format!("{}:{}", at.file(), at.line())
}

/// The near PEs, but this one, that have done their part, and those that have not (A1).
fn parts(pe: &Pe, awaiting: &Awaiting<'_>) -> (Pes, Pes) {
    let done = match awaiting {
        Awaiting::Word(_) | Awaiting::WordOf(..) | Awaiting::Leave => None,
        _ => awaiting.done(),
    };
    let Some(done) = done else { return (Pes::default(), Pes::default()) };
    let everyone = 0..if awaiting.members().is_none() { pe.npes() } else { 0 };
    let members = awaiting.members().unwrap_or_default().iter().copied().chain(everyone);
    let near = members.filter(|&other| other != pe.me() && pe.is_near(other));
    let (done, missing) = near.partition::<Vec<_>, _>(|&other| done(other));
    (Pes::of(done), Pes::of(missing))
}

/// Address of the nth report of a PE.
fn nth(area: *mut u8, n: usize) -> *mut u8 {
    area.wrapping_add(offset_of!(ReportArea, reports) + n * size_of::<Place>())
}

/// The next place for an answer; none where all are taken.
fn claim(area: *mut u8, question: u32) -> Option<*mut u8> {
    let answers = area.wrapping_add(offset_of!(ReportArea, answers));
    loop {
        // SAFETY: an aligned word of the PE's own place, in the mapping that the PE holds.
        let seen: u64 = unsafe { shm::load(answers.cast()) };
        let before = if (seen >> 32) as u32 == question { seen as u32 } else { 0 };
        let next = u64::from(question) << 32 | u64::from(before.saturating_add(1));
        // SAFETY: as above.
        if unsafe { shm::compare_swap_sized(answers, 8, seen, next) } == seen {
            return ((before as usize) < REPORTS).then(|| nth(area, before as usize));
        }
    }
}

/// Writes a report, whose number comes last.
fn write(place: *mut u8, question: u32, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(REPORT_BYTES)];
    // SAFETY: `place` is that of a report, in the mapping that the PE holds; there is room for so
    // many bytes; words are aligned.
    unsafe {
        shm::store(place.wrapping_add(offset_of!(Place, question)).cast(), 0u32);
        shm::copy(place.wrapping_add(offset_of!(Place, bytes)), bytes.as_ptr(), bytes.len());
        shm::store(place.wrapping_add(offset_of!(Place, len)).cast(), bytes.len() as u32);
        shm::store(place.wrapping_add(offset_of!(Place, question)).cast(), question);
    }
}

/// Adds what a report has beyond its first `old` bytes. A reader sees it as it was, or as it is.
fn lengthen(place: *mut u8, old: usize, bytes: &[u8]) {
    let more = bytes.get(old..).filter(|_| bytes.len() <= REPORT_BYTES).unwrap_or_default();
    // SAFETY: as in `write`.
    unsafe {
        let to = place.wrapping_add(offset_of!(Place, bytes) + old);
        shm::copy(to, more.as_ptr(), more.len());
        let len = (old + more.len()) as u32;
        shm::store(place.wrapping_add(offset_of!(Place, len)).cast(), len);
    }
}

/// How many threads of a PE have begun to answer a question.
pub(crate) fn count(control: &Control, pe: usize, question: u32) -> usize {
    let answers = control.reports(pe).wrapping_add(offset_of!(ReportArea, answers));
    // SAFETY: an aligned word of the control part, which the launcher has mapped.
    let seen: u64 = unsafe { shm::load(answers.cast_const().cast()) };
    if (seen >> 32) as u32 == question { seen as u32 as usize } else { 0 }
}

/// The answers of a PE to a question, as bytes that may be anything.
pub(crate) fn answers(control: &Control, pe: usize, question: u32) -> Vec<Vec<u8>> {
    let area = control.reports(pe);
    (0..REPORTS).filter_map(|n| read(nth(area, n), question)).collect()
}

fn read(place: *const u8, question: u32) -> Option<Vec<u8>> {
    let word = |offset: usize| {
        // SAFETY: an aligned word of a report in the control part, which the launcher has mapped.
        unsafe { shm::load::<u32>(place.wrapping_add(offset).cast()) }
    };
    if word(offset_of!(Place, question)) != question {
        return None;
    }
    let mut bytes = vec![0u8; (word(offset_of!(Place, len)) as usize).min(REPORT_BYTES)];
    // SAFETY: as above; so many bytes are there.
    unsafe {
        let from = place.wrapping_add(offset_of!(Place, bytes));
        shm::copy(bytes.as_mut_ptr(), from, bytes.len());
    }
    // A wait in virtual time may have ended meanwhile.
    (word(offset_of!(Place, question)) == question).then_some(bytes)
}
