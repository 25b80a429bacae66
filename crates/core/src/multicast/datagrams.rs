//! Datagrams: the log goes once to all readers, and [`memonet_repair`] makes whole what arrives.
//!
//! What carries the datagrams is a [`Carrier`]: UDP sockets ([`super::sockets`]), or a fabric whose
//! network copies them ([`super::network`]). They are never waited for: whoever waits for anything
//! in this PE lets the channel work ([`Relay`]), as for the tree. So there is no thread and nothing
//! to hand over between threads, and while a PE waits it looks at its carriers as often as at
//! memory. A PE that computes answers later: its readers' buffers hold what comes meanwhile up to
//! the protocol's window, and the writer waits or repairs.
//!
//! The ring of each end is in its own segment. What the protocol has received in order up to some
//! position are whole records and perhaps the beginning of one more; a reader takes no record
//! before all of it is there. As all bytes of the log are received, nobody needs zeros behind
//! records. That a reader leaves it says in its line at the writer, by a signal.
//!
//! **In virtual time nobody looks without a reason**, so each end says when it is due though
//! nothing comes. A reader is when it misses something; a writer, while it waits for room or for
//! arrival. An end that waits for nothing is never due, and a job in which nobody else does
//! anything is seen to be stuck. An end that waits for what no program will do (a reader that never
//! reads) would ask for ever, and get answers: so it is due in vain when very many of its questions
//! in a row have taught it nothing. With loss alone that does not happen: of a thousand questions
//! one arrives, and its answer. Whoever ends is told of by the machine, so silence is no sign
//! there.

use super::ring::{Header, Ring};
use super::tree::Upstream;
use super::writer::{LEFT, PositionLine};
use crate::base::error::Result;
use crate::base::shm;
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

/// Their numbers are 16 bits of a datagram.
pub(super) const MOST_READERS: usize = u16::MAX as usize;
/// Bytes under way to a reader: what the smallest usual receive buffer holds, with what the kernel
/// needs around them.
const WINDOW: u64 = 128 << 10;
/// A writer that never waits looks at what has come each time that it has written so many bytes:
/// what readers miss is to be repaired long before they stop it.
const LOOK_EACH: u64 = WINDOW / 8;
/// Datagrams taken in one go,
pub(super) const MOST_AT_ONCE: usize = 64;
/// and how often in one look. It ends even where a stranger sends faster than this PE can refuse,
/// and the next look goes on.
pub(super) const MOST_GOES: usize = 16;

/// So many questions in a row may be lost, or be answered with nothing new; those after them are in
/// vain. More than a reader has gaps, each of which it asks for by itself.
const MOST_IN_VAIN: u32 = 1024;

/// What carries a channel's datagrams at one end.
pub(super) trait Carrier: Send {
    /// Where this PE hears what is for it alone, as a word for its peers; 0 where they know
    /// without.
    fn address(&self) -> u64 {
        0
    }

    /// Tells it the [`address`](Self::address) of the channel's writer.
    fn set_writer(&mut self, _address: u64) {}

    /// Gives `take` what has come, up to [`MOST_AT_ONCE`]; gives whether that was all.
    ///
    /// # Errors
    /// Where nothing will come any more.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Sends a datagram, at the latest when [`flush`](Self::flush) is called. One that cannot be
    /// sent now is lost, as any may be, and repaired.
    ///
    /// # Errors
    /// Where none can be sent any more.
    fn send(&mut self, datagram: &[u8], to: repair::To) -> Result<()>;

    /// Sends what was kept back, so that several go at once.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An end's carrier, with all that its end of the protocol needs.
pub(super) struct Link {
    pub(super) config: repair::Config,
    carrier: Box<dyn Carrier>,
    out: Box<[u8]>,
}

impl Link {
    pub(super) fn new(config: repair::Config, carrier: Box<dyn Carrier>) -> Self {
        Link { config, carrier, out: vec![0; config.datagram].into() }
    }
}

/// What both ends are configured with.
pub(super) fn config(
    pe: &Pe,
    channel: u32,
    readers: u16,
    capacity: u64,
    datagram: usize,
) -> repair::Config {
    let (job, timing) = match pe.is_simulated() {
        // What happens in a simulation is not to depend on a number that is drawn anew for each
        // job; nor is there another job.
        true => {
            let never = repair::Nanos::MAX;
            (0, repair::Timing { dead_after: never, ..repair::Timing::LOCAL })
        }
        false => (pe.control().job_id(), repair::Timing::LOCAL),
    };
    repair::Config {
        job,
        channel,
        // No number is given twice.
        epoch: 0,
        readers,
        // Of a larger ring the rest lies idle.
        capacity: capacity.min(repair::wire::MOST_APART),
        window: WINDOW.min(capacity),
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
            // SAFETY: inside of the ring, up to its end; `to` is private memory.
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
            // SAFETY: as above; the protocol stores only what was missing, which nobody reads yet.
            unsafe { shm::copy(self.at(at), from[done..].as_ptr(), len) };
            done += len;
        }
    }
}

/// How often an end has done what it does though nothing comes, since it last learnt something.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    learnt: u64,
    at: repair::Nanos,
    times: u32,
}

impl Repeats {
    /// It will again at `at`, and has learnt so much.
    pub(super) fn due(&mut self, at: repair::Nanos, learnt: u64) -> Due {
        if std::mem::replace(&mut self.learnt, learnt) != learnt {
            self.times = 0;
        } else if std::mem::replace(&mut self.at, at) != at {
            self.times = self.times.saturating_add(1);
        }
        Due { at: Duration::from_nanos(at), vain: self.times > MOST_IN_VAIN }
    }
}

/// There is more to take in, now.
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
    /// The writer waits, or has waited, for this limit.
    pub(super) wanted: AtomicU64,
    pub(super) complete: AtomicBool,
    /// One more than the number of a reader that is not heard of.
    pub(super) silent: AtomicU64,
    pub(super) work: Mutex<SendingWork>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct SendingWork {
    pub(super) machine: repair::Writer,
    pub(super) link: Link,
    /// How far the log was written at the last look at what has come.
    pub(super) looked_at: u64,
    pub(super) repeats: Repeats,
}

impl Sending {
    /// The log may be written so far.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// The writer waits for the log to be allowed so far.
    pub(super) fn want(&self, limit: u64) {
        self.wanted.store(limit, Ordering::Relaxed);
    }

    /// The log is written so far.
    pub(super) fn commit(&self, end: u64) {
        let mut work = lock(&self.work);
        work.machine.commit(end);
        self.complete.store(false, Ordering::Relaxed);
        if end - work.looked_at >= LOOK_EACH {
            work.looked_at = end;
            // What is left is taken at the next look.
            let _all = self.hear(&mut work);
        }
        self.send(&mut work);
    }

    /// Whether all that was committed has been received by all that are still readers.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// A reader that is not heard of.
    pub(super) fn silent(&self) -> Option<usize> {
        let number = self.silent.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.readers[number as usize].0)
    }

    /// After how long a reader counts as silent.
    pub(super) fn dead_after() -> Duration {
        Duration::from_nanos(repair::Timing::LOCAL.dead_after)
    }

    /// Goes on without a reader.
    pub(super) fn forget(&self, pe: usize) {
        if let Some(number) = self.readers.iter().position(|&(reader, _)| reader == pe) {
            let mut work = lock(&self.work);
            work.machine.drop_reader(number as u16);
            self.silent.store(0, Ordering::Release);
            self.send(&mut work);
        }
    }

    /// The readers that do not allow to write up to `end`.
    pub(super) fn slow(&self, end: u64) -> Option<usize> {
        let work = lock(&self.work);
        let slowest = work.machine.slowest().filter(|_| work.machine.limit() < end)?;
        Some(self.readers[usize::from(slowest)].0)
    }

    /// Takes what readers say; whether that was all.
    fn hear(&self, work: &mut SendingWork) -> bool {
        let SendingWork { machine, link, .. } = work;
        for (number, (_, line)) in self.readers.iter().enumerate() {
            if line.has_left() && !machine.is_dropped(number as u16) {
                machine.drop_reader(number as u16);
            }
        }
        // One that is refused changes nothing; who sent it is not this job's business.
        let mut take = |datagram: &[u8]| {
            let _refused = machine.receive(datagram, wait::nanos(&self.pe));
        };
        for _ in 0..MOST_GOES {
            match link.carrier.receive(&mut take) {
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

    /// Sends what is to be sent now; gives when there will be more, though nothing happens.
    fn send(&self, work: &mut SendingWork) -> Option<Due> {
        let SendingWork { machine, link, repeats, .. } = work;
        while let Some(outgoing) = machine.next(wait::nanos(&self.pe), &self.ring, &mut link.out) {
            if let Err(error) = link.carrier.send(&link.out[..outgoing.len], outgoing.to) {
                self.pe.surface_later(error);
                return None;
            }
        }
        if let Err(error) = link.carrier.flush() {
            self.pe.surface_later(error);
            return None;
        }
        self.limit.store(machine.limit(), Ordering::Release);
        self.complete.store(machine.is_complete(), Ordering::Release);
        if let Some(silent) = machine.silent(wait::nanos(&self.pe)) {
            self.silent.store(u64::from(silent) + 1, Ordering::Release);
        }
        let waits = !machine.is_complete() || machine.limit() < self.wanted.load(Ordering::Relaxed);
        waits.then(|| repeats.due(machine.deadline(), machine.learnt()))
    }
}

impl Relay for Sending {
    fn relay(&self) -> Option<Due> {
        // A thread that has it does the same work.
        let mut work = try_lock(&self.work)?;
        let all = self.hear(&mut work);
        let due = self.send(&mut work);
        if all { due } else { Some(at_once(&self.pe)) }
    }
}

/// A reader's end.
pub(super) struct Receiving {
    pub(super) pe: Arc<Pe>,
    /// Where it says that it has left.
    pub(super) upstream: Upstream,
    pub(super) received: AtomicU64,
    pub(super) consumed: AtomicU64,
    pub(super) dropped: AtomicBool,
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
            // What is wrong with it is found by who reads it.
            Ok(Header::Padding { .. } | Header::End) | Err(_) => true,
        }
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(super) fn is_writer_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// This PE is done with what lies below `position`.
    pub(super) fn consume(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
        self.relay();
    }

    pub(super) fn leave(&self) {
        self.upstream.add(&self.pe, LEFT);
    }
}

impl Relay for Receiving {
    fn relay(&self) -> Option<Due> {
        // A thread that has it does the same work.
        let mut work = try_lock(&self.work)?;
        let worked = self.work(&mut work);
        worked.unwrap_or_else(|error| {
            self.pe.surface_later(error);
            None
        })
    }
}

impl Receiving {
    fn work(&self, work: &mut ReceivingWork) -> Result<Option<Due>> {
        let ReceivingWork { machine, ring, link, repeats } = work;
        for _ in 0..MOST_GOES {
            let all = link.carrier.receive(&mut |datagram| {
                // As above.
                let _refused = machine.receive(datagram, wait::nanos(&self.pe), ring);
            })?;
            self.received.store(machine.received(), Ordering::Release);
            // In a padding, what was consumed may not have come yet.
            let consumed = self.consumed.load(Ordering::Acquire).min(machine.received());
            if consumed > machine.consumed() {
                machine.consume(consumed);
            }
            self.dropped.store(machine.is_dropped(), Ordering::Release);
            self.silent.store(machine.is_writer_silent(wait::nanos(&self.pe)), Ordering::Release);
            while let Some(outgoing) = machine.next(wait::nanos(&self.pe), &mut link.out) {
                link.carrier.send(&link.out[..outgoing.len], outgoing.to)?;
            }
            link.carrier.flush()?;
            if all {
                let asks = Some(machine.asks_at()).filter(|&at| at != repair::Nanos::MAX);
                return Ok(asks.map(|at| repeats.due(at, machine.learnt())));
            }
        }
        Ok(Some(at_once(&self.pe)))
    }
}
