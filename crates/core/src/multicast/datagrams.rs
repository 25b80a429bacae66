//! Datagrams: the log is sent once to all readers, and [`memonet_repair`] repairs losses.
//!
//! A [`Carrier`] carries the datagrams: UDP sockets ([`super::sockets`]), or a fabric whose network
//! copies datagrams ([`super::network`]). No call waits for datagrams: every wait of this PE,
//! whatever it waits for, moves the channel on ([`Relay`]), as for the tree. So there is no thread
//! and no hand-over between threads, and while a PE waits it polls its carriers as often as memory.
//! A PE that computes answers later. Meanwhile its readers' buffers hold arriving datagrams up to
//! the protocol's window, and the writer waits or repairs.
//!
//! The ring of each end is in its own segment. The bytes that the protocol has received in order
//! are whole records and perhaps the beginning of one more. A reader takes no record before all of
//! it is there. As all bytes of the log are received, no zeros are needed behind records. A reader
//! that leaves says so in its line at the writer, by a signal.
//!
//! **A PE that finalises has left the channel**, though it may still have its end. A writer says
//! that nothing follows, and stays until all readers that are there have everything, as nobody else
//! can repair. So a writer that finalises is no failure to its readers before it is gone. A reader
//! only says that it has left: its end alone writes to its ring, beyond what the program has
//! consumed, so a block that is shown stays as it is.
//!
//! **In virtual time a PE polls only when it has a reason**, so each end says when it is due if
//! nothing comes. A reader is due when it misses something; a writer, while it waits for room or
//! for arrival. An end that waits for nothing is never due, so the simulator sees that a job is
//! stuck in which no other PE acts. An end that waits for something that no program will do (a
//! reader that never reads) would ask for ever, and get answers. So it is *due in vain* when very
//! many of its questions in a row have brought nothing new. Loss alone does not cause that: of a
//! thousand questions, one arrives, and its answer. The machine reports PEs that end, so silence is
//! no sign there.
//!
//! **Silence is what an end has listened to.** The times of the protocol are those of a clock that
//! stands still while the end does not listen ([`ListeningClock`]): a program that computes, or a
//! stopped job, hears nobody. And an end judges only behind a look at all that has come, anew each
//! time: whoever is heard again is not silent any more.
//!
//! **A reader that is lost holds up nobody**, whatever the writer does meanwhile: any of its waits
//! drops a reader that has died, or on a channel that survives readers, is silent. The writer is
//! told when it publishes next. Where a death is to end the channel, it finds no more room, and the
//! wait for that names the dead.

use super::finalised;
use super::position::{LEFT, PositionLine, Upstream};
use super::ring::{Header, Ring};
use super::writer::silence;
use crate::base::error::{Error, Result};
use crate::base::shm;
use crate::base::status::State;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::Due;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::wait;
use crate::window::Inner;
use memonet_repair as repair;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most readers: their numbers are 16 bits of a datagram.
pub(super) const MOST_READERS: usize = u16::MAX as usize;
/// Bytes under way to a reader: as many as the smallest usual receive buffer holds, with the
/// kernel's overhead.
const WINDOW_BYTES: u64 = 128 << 10;
/// A writer that never waits receives statuses each time that it has written this much: losses must
/// be repaired long before they stop it.
const RECEIVE_EACH_BYTES: u64 = WINDOW_BYTES / 8;
/// Datagrams received in one go.
pub(super) const MOST_AT_ONCE: usize = 64;
/// Goes in one call. So the call ends even where an outsider sends faster than this PE can refuse;
/// the next call goes on.
pub(super) const MOST_GOES: usize = 16;

/// So many questions in a row may be lost, or be answered with nothing new; later ones are in vain.
/// It is more than a reader has gaps, as it asks for each gap.
const MOST_IN_VAIN: u32 = 1024;

/// Carries a channel's datagrams at one end.
pub(super) trait Carrier: Send {
    /// The address at which this PE receives datagrams for itself alone, as a word for its peers; 0
    /// where they need none.
    fn address(&self) -> u64 {
        0
    }

    /// Sets the [`address`](Self::address) of the channel's writer.
    fn set_writer(&mut self, _address: u64) {}

    /// Passes datagrams that have come to `take`, up to [`MOST_AT_ONCE`]. Gives whether these were
    /// all.
    ///
    /// # Errors
    /// Where no datagram will come any more.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sends a datagram, at the latest when [`flush`](Self::flush) is called. A datagram that
    /// cannot be sent now is lost, as any may be, and repaired.
    ///
    /// # Errors
    /// Where no datagram can be sent any more.
    fn send(&mut self, datagram: &[u8], to: repair::To) -> Result<()>;

    /// Sends the datagrams that [`send`](Self::send) kept back to send several at once.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Between two looks at what has come, at most this part of the time to death passes.
const UNHEARD_PART: repair::Nanos = 10;

/// The time of the protocol at an end. It stands still while the end does not listen: buffers hold
/// only the beginning of what the others say meanwhile, and these may have been stopped, too.
///
/// In virtual time, where nobody counts as silent, it is the PE's time.
pub(super) struct ListeningClock {
    most: repair::Nanos,
    /// The PE's time at the last look at what has come, and the protocol's.
    looked: repair::Nanos,
    was: repair::Nanos,
}

impl ListeningClock {
    fn new(dead_after: repair::Nanos, now: repair::Nanos) -> Self {
        ListeningClock { most: dead_after / UNHEARD_PART, looked: now, was: now }
    }

    fn now(&self, pe: &Pe) -> repair::Nanos {
        self.was + wait::nanos(pe).saturating_sub(self.looked).min(self.most)
    }

    /// Notes that the end looks at what has come.
    fn look(&mut self, pe: &Pe) {
        (self.was, self.looked) = (self.now(pe), wait::nanos(pe));
    }

    /// Whether the clock stands still soon.
    fn is_late(&self, pe: &Pe) -> bool {
        wait::nanos(pe).saturating_sub(self.looked) >= self.most / 2
    }
}

/// An end's carrier, with its configuration, its clock and a buffer.
pub(super) struct Link {
    pub(super) config: repair::Config,
    clock: ListeningClock,
    carrier: Box<dyn Carrier>,
    out: Box<[u8]>,
}

impl Link {
    pub(super) fn new(
        config: repair::Config,
        now: repair::Nanos,
        carrier: Box<dyn Carrier>,
    ) -> Self {
        let clock = ListeningClock::new(config.timing.dead_after, now);
        Link { config, clock, carrier, out: vec![0; config.datagram].into() }
    }

    /// The protocol's time at this end.
    pub(super) fn now(&self, pe: &Pe) -> repair::Nanos {
        self.clock.now(pe)
    }
}

/// The protocol's configuration, equal at both ends.
pub(super) fn config(
    pe: &Pe,
    channel: u32,
    readers: u16,
    capacity: u64,
    datagram: usize,
) -> repair::Config {
    let (job, timing) = match pe.is_simulated() {
        // A simulation must not depend on a number that is drawn anew for each job, and has no
        // other job.
        true => {
            let never = repair::Nanos::MAX;
            (0, repair::Timing { dead_after: never, ..repair::Timing::LOCAL })
        }
        false => (pe.control().job_id(), repair::Timing::LOCAL),
    };
    repair::Config {
        job,
        channel,
        // Channel numbers are never reused.
        epoch: 0,
        readers,
        capacity,
        window: WINDOW_BYTES.min(capacity),
        datagram,
        timing,
    }
}

impl repair::Log for Ring {
    fn read(&self, position: u64, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let at = position + done as u64;
            let len = (to.len() - done).min((self.len() - (at & (self.len() - 1))) as usize);
            // SAFETY: the bytes lie in the ring, up to its end; `to` is private memory.
            unsafe { shm::copy(to[done..].as_mut_ptr(), self.at(at), len) };
            done += len;
        }
    }
}

impl repair::Store for Ring {
    fn write(&mut self, position: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = position + done as u64;
            let len = (from.len() - done).min((self.len() - (at & (self.len() - 1))) as usize);
            // SAFETY: as above. The protocol stores only bytes that were missing, which the reader
            // does not read yet.
            unsafe { shm::copy(self.at(at), from[done..].as_ptr(), len) };
            done += len;
        }
    }
}

/// Counts how often an end was due since it last learnt something.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    learnt: u64,
    at: repair::Nanos,
    times: u32,
}

impl Repeats {
    /// Notes that the end is due next at `at`, and has learnt `learnt` things so far.
    pub(super) fn due(&mut self, at: repair::Nanos, learnt: u64) -> Due {
        if std::mem::replace(&mut self.learnt, learnt) != learnt {
            self.times = 0;
        } else if std::mem::replace(&mut self.at, at) != at {
            self.times = self.times.saturating_add(1);
        }
        Due { at: Duration::from_nanos(at), vain: self.times > MOST_IN_VAIN }
    }
}

/// Due now: there are more datagrams to receive.
pub(super) fn at_once(pe: &Pe) -> Due {
    Due { at: wait::now(pe), vain: false }
}

/// The writer's end.
pub(super) struct Sending {
    pub(super) pe: Arc<Pe>,
    pub(super) ring: Ring,
    /// The readers, and their lines in this PE's segment.
    pub(super) readers: Vec<(usize, PositionLine)>,
    pub(super) limit: AtomicU64,
    /// The limit for which the writer waits, or has waited last.
    pub(super) wanted: AtomicU64,
    pub(super) complete: AtomicBool,
    /// The number of a silent reader, plus 1. Where readers may die, it is lost instead.
    pub(super) silent: AtomicU64,
    /// Whether the writer has to be told of [`SendingWork::lost`].
    pub(super) has_lost: AtomicBool,
    /// Whether a reader may die.
    pub(super) survive: bool,
    pub(super) work: Mutex<SendingWork>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct SendingWork {
    pub(super) machine: repair::Writer,
    pub(super) link: Link,
    /// The end of the log.
    pub(super) end: u64,
    /// The log has its last record.
    pub(super) ended: bool,
    /// The end of the log when statuses were received last.
    pub(super) received_at: u64,
    /// Readers that were dropped, of which the writer does not know.
    pub(super) lost: Vec<usize>,
    /// The reader whose death has ended the channel: the writer gets no more room.
    pub(super) ended_by: Option<usize>,
    pub(super) repeats: Repeats,
}

impl Sending {
    /// The position up to which the log may be written.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Notes that the writer waits for this limit.
    pub(super) fn want(&self, limit: u64) {
        self.wanted.store(limit, Ordering::Relaxed);
    }

    /// Sends the log, which is written up to `end`.
    pub(super) fn commit(&self, end: u64) {
        self.advance(&mut lock(&self.work), end);
    }

    /// Leaves the channel, with this last record, unless there is one.
    pub(super) fn end(&self, last: Header) {
        self.close(&mut lock(&self.work), last);
    }

    fn close(&self, work: &mut SendingWork, last: Header) {
        if !work.ended {
            // It replaces the zero behind the last record.
            self.ring.set_word(work.end, last.to_word());
            self.advance(work, work.end + 8);
            work.ended = true;
        }
    }

    fn advance(&self, work: &mut SendingWork, end: u64) {
        if work.ended {
            return; // Another thread has finalised: readers are told that nothing follows.
        }
        work.end = end;
        work.machine.commit(end);
        self.complete.store(false, Ordering::Relaxed);
        if end - work.received_at >= RECEIVE_EACH_BYTES || work.link.clock.is_late(&self.pe) {
            work.received_at = end;
            // The next call receives the rest.
            let _all = self.receive(work);
        }
        self.send(work);
    }

    /// Goes on without readers that are gone or silent, in a PE that finalises.
    fn drop_absent(&self, work: &mut SendingWork) {
        let SendingWork { machine, link, .. } = work;
        for (number, &(pe, _)) in self.readers.iter().enumerate() {
            if matches!(self.pe.control().state(pe), State::Dead(_) | State::Done)
                && !machine.is_dropped(number as u16)
            {
                machine.drop_reader(number as u16);
            }
        }
        while let Some(number) = machine.silent(link.now(&self.pe)) {
            if !self.survive {
                self.pe.surface_later(silence(self.readers[usize::from(number)].0));
            }
            machine.drop_reader(number);
        }
    }

    /// Whether all that are still readers have received the whole committed log.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// A silent reader.
    pub(super) fn silent(&self) -> Option<usize> {
        if self.silent.load(Ordering::Acquire) != 0 {
            // The program may have done other things since.
            self.relay();
        }
        let number = self.silent.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.readers[number as usize].0)
    }

    /// The time after which a PE counts as silent.
    pub(super) fn dead_after() -> Duration {
        Duration::from_nanos(repair::Timing::LOCAL.dead_after)
    }

    /// Goes on without a reader.
    pub(super) fn forget(&self, pe: usize) {
        if let Some(number) = self.readers.iter().position(|&(reader, _)| reader == pe) {
            let mut work = lock(&self.work);
            if !work.machine.is_dropped(number as u16) {
                work.machine.drop_reader(number as u16);
                self.silent.store(0, Ordering::Release);
                self.send(&mut work);
            }
        }
    }

    /// The readers that were lost since the last call.
    pub(super) fn take_lost(&self) -> Vec<usize> {
        match self.has_lost.swap(false, Ordering::Relaxed) {
            true => std::mem::take(&mut lock(&self.work).lost),
            false => Vec::new(),
        }
    }

    /// Drops a reader that has died, or is silent.
    fn lose(&self, work: &mut SendingWork, number: u16) {
        work.machine.drop_reader(number);
        if self.survive {
            work.lost.push(self.readers[usize::from(number)].0);
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a reader has left the channel.
    pub(super) fn has_left(&self, pe: usize) -> bool {
        self.readers.iter().any(|&(reader, line)| reader == pe && line.has_left())
    }

    /// Drops the slowest reader, if it does not allow to write up to `end`.
    pub(super) fn drop_slow(&self, end: u64) -> Option<usize> {
        let mut work = lock(&self.work);
        let slowest = work.machine.slowest().filter(|_| work.machine.limit() < end)?;
        work.machine.drop_reader(slowest);
        self.send(&mut work);
        Some(self.readers[usize::from(slowest)].0)
    }

    /// Receives statuses of readers, and judges who is silent. Gives whether these were all.
    fn receive(&self, work: &mut SendingWork) -> bool {
        work.link.clock.look(&self.pe);
        let all = self.receive_statuses(work);
        let mut silent = work.machine.silent(work.link.clock.now(&self.pe));
        while let Some(number) = silent.filter(|_| self.survive) {
            self.lose(work, number);
            silent = work.machine.silent(work.link.clock.now(&self.pe));
        }
        self.silent.store(silent.map_or(0, |silent| u64::from(silent) + 1), Ordering::Release);
        all
    }

    fn receive_statuses(&self, work: &mut SendingWork) -> bool {
        for (number, &(pe, line)) in self.readers.iter().enumerate() {
            let number = number as u16;
            if work.machine.is_dropped(number) {
                continue;
            }
            // The state comes first: who is gone has said before that it has left.
            let has_died = matches!(self.pe.control().state(pe), State::Dead(_));
            if line.has_left() {
                work.machine.drop_reader(number);
            } else if has_died {
                if !self.survive {
                    work.ended_by.get_or_insert(pe);
                }
                self.lose(work, number);
            }
        }
        let SendingWork { machine, link, .. } = work;
        // A refused datagram changes nothing, and any host may have sent it: not an error.
        let Link { clock, carrier, .. } = link;
        let mut take = |datagram: &[u8]| {
            let _refused = machine.receive(datagram, clock.now(&self.pe));
        };
        for _ in 0..MOST_GOES {
            match carrier.receive(&mut take) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    self.pe.surface_later(error);
                    return true;
                }
            }
        }
        false
    }

    /// Sends the datagrams that are due. Gives the time of the next one if nothing comes.
    fn send(&self, work: &mut SendingWork) -> Option<Due> {
        let SendingWork { machine, link, repeats, ended_by, .. } = work;
        while let Some(outgoing) = machine.next(link.clock.now(&self.pe), &self.ring, &mut link.out)
        {
            if let Err(error) = link.carrier.send(&link.out[..outgoing.len], outgoing.to) {
                self.pe.surface_later(error);
                return None;
            }
        }
        if let Err(error) = link.carrier.flush() {
            self.pe.surface_later(error);
            return None;
        }
        if ended_by.is_none() {
            self.limit.store(machine.limit(), Ordering::Release);
        }
        self.complete.store(machine.is_complete(), Ordering::Release);
        let waits = !machine.is_complete() || machine.limit() < self.wanted.load(Ordering::Relaxed);
        waits.then(|| repeats.due(machine.deadline(), machine.learnt()))
    }
}

impl Relay for Sending {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut work = try_lock(&self.work)?;
        let all = self.receive(&mut work);
        let due = self.send(&mut work);
        if all { due } else { Some(at_once(&self.pe)) }
    }

    fn depart(&self) -> bool {
        let mut work = lock(&self.work);
        // The next look receives the rest.
        let _all = self.receive(&mut work);
        // Needed where the program still holds the end of the channel.
        let failed = work.ended_by;
        self.close(&mut work, Header::End { failed });
        self.drop_absent(&mut work);
        self.send(&mut work);
        !work.machine.is_complete()
    }
}

/// A reader's end.
pub(super) struct Receiving {
    pub(super) pe: Arc<Pe>,
    /// The word by which it says that it has left.
    pub(super) upstream: Upstream,
    pub(super) received: AtomicU64,
    pub(super) consumed: AtomicU64,
    pub(super) dropped: AtomicBool,
    /// This PE has left the channel. It may still have its end, if it has left the job.
    pub(super) left: AtomicBool,
    pub(super) silent: AtomicBool,
    pub(super) work: Mutex<ReceivingWork>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct ReceivingWork {
    pub(super) machine: repair::Reader,
    pub(super) ring: Ring,
    pub(super) link: Link,
    pub(super) repeats: Repeats,
}

impl Receiving {
    /// Whether all of the record at `position` is there.
    #[inline(never)]
    pub(super) fn has(&self, ring: &Ring, position: u64) -> bool {
        let received = self.received.load(Ordering::Acquire);
        if received < position + 8 {
            return false;
        }
        match ring.decode(position, ring.word(position)) {
            Ok(Header::Block { len, .. }) => position + ring.record(len) <= received,
            // A wrong header is an error of the call that reads it.
            Ok(Header::Padding { .. } | Header::End { .. }) | Err(_) => true,
        }
    }

    /// Checks that this PE is still a reader.
    ///
    /// # Errors
    /// [`Error::Misuse`] once it has left the job, [`Error::Dropped`].
    pub(super) fn check(&self) -> Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Err(finalised());
        }
        match self.dropped.load(Ordering::Acquire) {
            true => Err(Error::Dropped { call: None }),
            false => Ok(()),
        }
    }

    pub(super) fn is_writer_silent(&self) -> bool {
        if self.silent.load(Ordering::Acquire) {
            // As in `Sending::silent`.
            self.relay();
        }
        self.silent.load(Ordering::Acquire)
    }

    /// Reports that this PE has consumed all below `position`.
    pub(super) fn consume(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
        self.relay();
    }

    pub(super) fn leave(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.upstream.add(&self.pe, LEFT);
        }
    }
}

impl Relay for Receiving {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut work = try_lock(&self.work)?;
        let worked = self.work(&mut work);
        worked.unwrap_or_else(|error| {
            self.pe.surface_later(error);
            None
        })
    }

    fn depart(&self) -> bool {
        self.leave();
        false
    }
}

impl Receiving {
    fn work(&self, work: &mut ReceivingWork) -> Result<Option<Due>> {
        let ReceivingWork { machine, ring, link, repeats } = work;
        let Link { clock, carrier, out, .. } = link;
        clock.look(&self.pe);
        for _ in 0..MOST_GOES {
            let all = carrier.receive(&mut |datagram| {
                // As in `Sending::receive_statuses`.
                let _refused = machine.receive(datagram, clock.now(&self.pe), ring);
            })?;
            self.received.store(machine.received(), Ordering::Release);
            // A padding record counts as consumed when its header is read, before all of it has
            // come.
            let consumed = self.consumed.load(Ordering::Acquire).min(machine.received());
            if consumed > machine.consumed() {
                machine.consume(consumed);
            }
            self.dropped.store(machine.is_dropped(), Ordering::Release);
            self.silent.store(machine.is_writer_silent(clock.now(&self.pe)), Ordering::Release);
            while let Some(outgoing) = machine.next(clock.now(&self.pe), out) {
                carrier.send(&out[..outgoing.len], outgoing.to)?;
            }
            carrier.flush()?;
            if all {
                let asks = Some(machine.asks_at()).filter(|&at| at != repair::Nanos::MAX);
                return Ok(asks.map(|at| repeats.due(at, machine.learnt())));
            }
        }
        Ok(Some(at_once(&self.pe)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::make::{Channel, MulticastOptions, Places};
    use super::super::ring::Fragment;
    use super::*;
    use crate::job::Job;
    use std::collections::VecDeque;
    use std::time::Instant;

    /// Datagrams under way in one direction.
    type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

    /// Loses and reorders nothing.
    struct Wire {
        to: Queue,
        from: Queue,
    }

    impl Carrier for Wire {
        fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool> {
            for _ in 0..MOST_AT_ONCE {
                match lock(&self.from).pop_front() {
                    Some(datagram) => take(&datagram),
                    None => return Ok(true),
                }
            }
            Ok(false)
        }

        fn send(&mut self, datagram: &[u8], _to: repair::To) -> Result<()> {
            lock(&self.to).push_back(datagram.to_vec());
            Ok(())
        }
    }

    const DEAD_AFTER: Duration = Duration::from_millis(20);
    const RING_BYTES: u64 = 4096;

    /// Both ends of a channel at one PE, with a short time to death and a wire between them.
    fn with_ends(f: impl Fn(&Sending, &Receiving) + Send + Sync) {
        let job = Job::threads(1, |job| {
            let windows = [(); 2].map(|()| job.window::<u64>(1024).unwrap());
            let [lines, other] =
                [0, 1].map(|end: usize| windows[end].inner.heap_offset().expect("of the heap"));
            let config = repair::Config {
                timing: repair::Timing {
                    dead_after: DEAD_AFTER.as_nanos() as u64,
                    ..repair::Timing::LOCAL
                },
                ..config(&job.pe, 0, 1, RING_BYTES, 1024)
            };
            let wires: [Queue; 2] = Default::default();
            let link = |to: usize| {
                let wire = Wire { to: wires[to].clone(), from: wires[1 - to].clone() };
                Link::new(config, wait::nanos(&job.pe), Box::new(wire))
            };
            let options = MulticastOptions::new();
            let channel = |ring: u64| Channel {
                pe: &job.pe,
                writer: 0,
                readers: &[0],
                options: &options,
                places: Places {
                    lines,
                    front: 0,
                    ring,
                    bytes: RING_BYTES,
                    unit: 8,
                    lap: RING_BYTES,
                },
                arity: 1,
                window: windows[0].inner.clone(),
            };
            let sending = channel(lines + 128).sending(link(0));
            let receiving = channel(other).receiving(0, link(1));
            f(&sending, &receiving);
        });
        job.unwrap();
    }

    /// It publishes so little that nothing makes it receive.
    #[test]
    fn a_writer_that_never_waits_hears_its_readers() {
        with_ends(|sending, receiving| {
            let start = Instant::now();
            while start.elapsed() < 4 * DEAD_AFTER {
                sending.commit(8);
                receiving.relay();
                assert_eq!(sending.silent(), None);
            }
        });
    }

    #[test]
    fn a_reader_is_silent_until_it_is_heard() {
        with_ends(|sending, receiving| {
            sending.commit(8);
            while sending.silent().is_none() {
                sending.relay();
            }
            receiving.relay();
            assert_eq!(sending.silent(), None);
        });
    }

    #[test]
    fn a_writer_is_silent_until_it_is_heard() {
        with_ends(|sending, receiving| {
            while !receiving.is_writer_silent() {
                receiving.relay();
            }
            sending.commit(8);
            assert!(!receiving.is_writer_silent());
        });
    }

    /// The program has its end, and makes no call of it any more.
    #[test]
    fn a_writer_that_finalises_stays_until_all_has_come() {
        with_ends(|sending, receiving| {
            sending.ring.set_word(0, Header::Block { len: 8, part: Fragment::WHOLE }.to_word());
            sending.commit(16);
            assert!(sending.depart(), "nothing was heard of the reader");
            receiving.relay();
            let ring = lock(&receiving.work).ring;
            assert!(receiving.has(&ring, 0) && receiving.has(&ring, 16));
            let last = ring.decode(16, ring.word(16)).unwrap();
            assert_eq!(last, Header::End { failed: None });
            while sending.depart() {
                receiving.relay();
            }
            // As a writer does that is dropped afterwards.
            sending.end(Header::End { failed: Some(0) });
            assert!(!sending.depart() && receiving.check().is_ok());
            assert_eq!(lock(&sending.work).end, 24);
        });
    }

    #[test]
    fn a_writer_that_finalises_does_not_stay_for_a_silent_reader() {
        with_ends(|sending, _| {
            sending.commit(16);
            while sending.depart() {}
            let said = sending.pe.quiet_all().expect_err("the reader got nothing");
            assert!(matches!(*said, Error::Silent { pe: 0, .. }), "{said}");
        });
    }

    /// The program has its end, and reads no more.
    #[test]
    fn a_reader_that_finalises_has_left() {
        with_ends(|sending, receiving| {
            sending.commit(16);
            assert!(!receiving.depart() && !receiving.depart());
            assert!(sending.readers[0].1.has_left());
            assert!(matches!(receiving.check(), Err(Error::Misuse { .. })));
            assert!(!sending.depart(), "nobody is left who needs it");
        });
    }

    /// As after a stop of the whole job: both ends find that nothing has come.
    #[test]
    fn who_has_not_listened_calls_nobody_silent() {
        with_ends(|_, receiving| {
            std::thread::sleep(2 * DEAD_AFTER);
            receiving.relay();
            assert!(!receiving.is_writer_silent());
        });
        with_ends(|sending, _| {
            std::thread::sleep(2 * DEAD_AFTER);
            sending.relay();
            assert_eq!(sending.silent(), None);
        });
    }
}
