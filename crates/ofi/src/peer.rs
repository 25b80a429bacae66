//! What a PE knows of a peer.

use crate::memory::Granted;
use memonet_core::{Cause, Error};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Whether a peer can be reached.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Alive,
    /// An operation has failed, and nobody has said yet why.
    Broken(Instant, String),
    /// It has left the job.
    Gone(Cause),
    /// The pair has failed, though the peer may live.
    Failed(String),
}

/// Whether anything has passed between the two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contact {
    /// Nothing was sent yet.
    None,
    /// Something is being sent since then.
    Tried(Instant),
    /// As that takes long, the peer was asked whether its process runs.
    Doubted,
    /// It runs, as it has said then: so it is the endpoints that do not reach each other.
    Runs(Instant),
    /// Something has passed.
    Proved,
}

/// A key of a peer's memory, or that there is none for these offsets.
struct Key {
    region: u32,
    start: u64,
    end: u64,
    granted: Option<Granted>,
}

/// What a place's key is.
pub(crate) enum Found {
    /// The network's address of the place, and the key.
    At(u64, u64),
    Refused,
    Unknown,
}

/// Blocks that are not visible yet, and signals that wait for theirs. They end in any order, and
/// others begin meanwhile. Still one can wait for those that had begun at a moment: each belongs to
/// a generation, and a [mark](Self::mark) begins a new one.
#[derive(Default)]
pub(crate) struct Pending {
    /// The oldest generation with anything pending; the next one that begins, where nothing is.
    first: u64,
    /// How many are pending of each generation, from that one on.
    counts: VecDeque<usize>,
}

impl Pending {
    /// One more; gives its generation.
    pub(crate) fn begin(&mut self) -> u64 {
        match self.counts.back_mut() {
            Some(count) => *count += 1,
            None => self.counts.push_back(1),
        }
        self.first + self.counts.len() as u64 - 1
    }

    /// One of this generation has ended. One that was forgotten changes nothing.
    pub(crate) fn end(&mut self, generation: u64) {
        let Some(index) = generation.checked_sub(self.first) else { return };
        self.counts[index as usize] -= 1;
        while self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    /// What is pending now is of generations before this one.
    fn mark(&mut self) -> u64 {
        if self.counts.back().is_some_and(|&count| count > 0) {
            self.counts.push_back(0);
        }
        self.first + (self.counts.len() as u64).saturating_sub(1)
    }

    /// Whether all generations before this one have ended.
    fn has_ended(&self, mark: u64) -> bool {
        self.first >= mark
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Nothing of it is awaited any more.
    fn forget(&mut self) {
        self.first += self.counts.len() as u64;
        self.counts.clear();
    }
}

/// All that was written to a peer before a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// The generation before which everything is to end.
    mark: u64,
    /// So many signals are to be done. It is known when all that were deferred are queued.
    signals: Option<u64>,
}

/// How an operation goes to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By an access of the network.
    Access,
    /// By a message to the peer's CPU.
    Message,
}

/// Fences that operations of one way have passed.
#[derive(Clone, Copy, Default)]
struct Fences {
    passed: u64,
    /// The fence that is passed next, and what has to be visible first. It stays until it is
    /// reached: threads that fence again and again do not keep others waiting.
    next: Option<(u64, Goal)>,
}

/// A peer of this PE.
pub(crate) struct Peer {
    pub(crate) pe: u32,
    /// The host where it runs, for messages.
    host: Option<Arc<str>>,
    pub(crate) state: State,
    pub(crate) contact: Contact,
    /// Its endpoint's number, once its address has come.
    pub(crate) address: Option<u64>,
    /// Whether its address was asked for.
    pub(crate) asked: bool,
    /// Messages that are still to be sent, in order.
    pub(crate) queue: VecDeque<Vec<u8>>,
    keys: Vec<Key>,
    /// Places whose keys were asked for.
    pub(crate) keys_asked: Vec<(u32, u64)>,
    /// Operations that the provider has not completed.
    pub(crate) writes: usize,
    pub(crate) others: usize,
    /// Small and large buffers that its operations have. They count until the provider has given
    /// them back, also where the peer has ended.
    pub(crate) held: [usize; 2],
    /// Writes by which the provider reads memory of the program, which no registration keeps from
    /// it. They count as long, too.
    pub(crate) borrowed: usize,
    /// Signals that wait until their blocks are visible.
    pub(crate) deferred: usize,
    pub(crate) pending: Pending,
    /// Signals that were queued, those that the peer has done for certain, those of which it was
    /// asked whether it has, and those of which it is to be asked.
    pub(crate) signals: u64,
    pub(crate) flushed: u64,
    flush_asked: u64,
    flush_wanted: u64,
    /// Of accesses and of messages.
    fences: [Fences; 2],
    /// Whether a quiet has to look after it.
    pub(crate) is_awaited: bool,
    /// Whether a signal of the peer was refused here.
    pub(crate) has_refused: bool,
}

impl Peer {
    pub(crate) fn new(pe: u32, host: Option<Arc<str>>) -> Self {
        Peer {
            pe,
            host,
            state: State::Alive,
            contact: Contact::None,
            address: None,
            asked: false,
            queue: VecDeque::new(),
            keys: Vec::new(),
            keys_asked: Vec::new(),
            writes: 0,
            others: 0,
            held: [0; 2],
            borrowed: 0,
            deferred: 0,
            pending: Pending::default(),
            signals: 0,
            flushed: 0,
            flush_asked: 0,
            flush_wanted: 0,
            fences: Default::default(),
            is_awaited: false,
            has_refused: false,
        }
    }

    /// What it has still to do, for a report.
    pub(crate) fn outstanding(&self) -> String {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!(" (on {host})"));
        let (writes, others) = (self.writes + self.deferred, self.others);
        let signals = self.undone();
        format!("writes: {writes}, signals: {signals}, other operations: {others}{host}")
    }

    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state, State::Alive)
    }

    /// Whether nothing will come of it any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Gone(_) | State::Failed(_))
    }

    /// Whether the pair has failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Whether all that was written to it is visible.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.is_empty() && self.flushed == self.signals
    }

    /// A signal waits for its block; gives its generation.
    pub(crate) fn defer(&mut self) -> u64 {
        self.deferred += 1;
        self.pending.begin()
    }

    /// A signal waits no more.
    pub(crate) fn end_deferred(&mut self, generation: u64) {
        self.deferred = self.deferred.saturating_sub(1);
        self.pending.end(generation);
    }

    /// All that has been written to it so far.
    pub(crate) fn goal(&mut self) -> Goal {
        Goal { mark: self.pending.mark(), signals: None }
    }

    /// Whether all of a goal is visible. What is written meanwhile does not count.
    pub(crate) fn has_reached(&mut self, goal: &mut Goal) -> bool {
        if !self.pending.has_ended(goal.mark) {
            return false;
        }
        let signals = *goal.signals.get_or_insert(self.signals);
        self.flush_wanted = self.flush_wanted.max(signals);
        self.flushed >= signals
    }

    /// Signals of which it is not known whether it has done them.
    pub(crate) fn undone(&self) -> u64 {
        self.signals - self.flushed
    }

    /// Whether it is to be asked about all signals, as it was not asked about so many.
    pub(crate) fn wants_flush_after(&mut self, many: u64) -> bool {
        let wants = self.signals - self.flush_asked >= many;
        if wants {
            self.flush_wanted = self.signals;
        }
        wants
    }

    /// So many signals it has to be asked about now; nothing where it was asked.
    pub(crate) fn take_flush(&mut self) -> Option<u64> {
        let asks = self.flush_asked < self.flush_wanted && self.is_alive();
        asks.then(|| {
            self.flush_asked = self.signals;
            self.signals
        })
    }

    /// Whether operations of this way have passed the fence.
    #[inline]
    pub(crate) fn has_passed(&self, way: Way, fence: u64) -> bool {
        self.fences[way as usize].passed >= fence
    }

    /// Passes fences up to this one, as far as that is possible now; `last` is the last that there
    /// is. Accesses may overtake messages, and messages accesses, but no message another one.
    pub(crate) fn pass(&mut self, way: Way, fence: u64, last: u64) -> bool {
        let mut fences = self.fences[way as usize];
        while fences.passed < fence {
            // What was written before any fence so far has begun by now.
            let (next, mut goal) = fences.next.take().unwrap_or_else(|| (last, self.goal()));
            let is_reached = match way {
                Way::Message => self.pending.has_ended(goal.mark),
                Way::Access => self.has_reached(&mut goal),
            };
            if !is_reached {
                fences.next = Some((next, goal));
                break;
            }
            fences.passed = next;
        }
        self.fences[way as usize] = fences;
        fences.passed >= fence
    }

    /// Nothing is awaited of it any more.
    pub(crate) fn end(&mut self, state: State) {
        self.state = state;
        self.queue = VecDeque::new();
        self.keys = Vec::new();
        (self.writes, self.deferred, self.flushed) = (0, 0, self.signals);
        self.pending.forget();
    }

    /// What an operation fails with that needs the peer.
    pub(crate) fn error(&self) -> Error {
        let failed = |cause| Error::PeerFailed {
            pe: self.pe as usize,
            cause,
            host: self.host.clone(),
            call: None,
        };
        match &self.state {
            State::Gone(cause) => failed(*cause),
            State::Failed(why) | State::Broken(_, why) => {
                let on = self.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
                crate::error::failed(format!("PE {}{on} cannot be reached: {why}", self.pe))
            }
            State::Alive => failed(Cause::Unreachable),
        }
    }

    /// The key of `len` bytes.
    pub(crate) fn key(&self, region: u32, offset: u64, len: u64) -> Found {
        let end = offset + len;
        let around = |key: &&Key| match &key.granted {
            Some(_) => key.start <= offset && offset < key.end,
            None => key.start == offset,
        };
        let mut keys = self.keys.iter().filter(|key| key.region == region);
        match keys.find(around) {
            None => Found::Unknown,
            Some(Key { granted: Some(granted), .. }) if end <= granted.end => {
                Found::At(granted.base + (offset - granted.start), granted.key)
            }
            Some(_) => Found::Refused,
        }
    }

    /// A key has come, or that there is none.
    pub(crate) fn learn(&mut self, region: u32, offset: u64, granted: Option<Granted>) {
        let Some(index) = self.keys_asked.iter().position(|&asked| asked == (region, offset))
        else {
            return;
        };
        self.keys_asked.swap_remove(index);
        let (start, end) = granted.map_or((offset, offset + 1), |all| (all.start, all.end));
        self.keys.insert(0, Key { region, start, end, granted });
    }

    /// Keys of these offsets are good no more.
    pub(crate) fn forget(&mut self, region: u32, start: u64, end: u64) {
        let is_other = |key: &Key| key.region != region || key.end <= start || end <= key.start;
        self.keys.retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_after_a_mark_is_not_awaited() {
        let mut pending = Pending::default();
        let none = pending.mark();
        assert!(pending.has_ended(none), "nothing has begun");
        let [one, two] = [pending.begin(), pending.begin()];
        let first = pending.mark();
        let third = pending.begin();
        let second = pending.mark();
        assert_eq!(pending.mark(), second, "nothing has begun since");
        pending.end(third);
        pending.end(one);
        assert!(!pending.has_ended(first));
        let fourth = pending.begin();
        pending.end(two);
        assert!(pending.has_ended(first) && pending.has_ended(second) && !pending.is_empty());
        let last = pending.mark();
        pending.forget();
        assert!(pending.has_ended(last) && pending.is_empty());
        pending.end(fourth);
        assert!(pending.is_empty());
        let fifth = pending.begin();
        let mark = pending.mark();
        assert!(!pending.has_ended(mark));
        pending.end(fifth);
        assert!(pending.has_ended(mark) && pending.is_empty());
    }

    #[test]
    fn a_fence_waits_for_what_was_before_it_alone() {
        let mut peer = Peer::new(1, None);
        let before = peer.pending.begin();
        peer.signals = 3;
        assert!(!peer.pass(Way::Message, 1, 1), "the block is not visible");
        assert!(!peer.pass(Way::Access, 1, 1));
        let after = peer.pending.begin();
        peer.pending.end(before);
        assert!(peer.pass(Way::Message, 1, 1), "signals come in order");
        assert!(!peer.pass(Way::Message, 2, 2), "another block is not visible now");
        assert!(!peer.pass(Way::Access, 1, 2), "three signals may not have been done");
        assert_eq!((peer.take_flush(), peer.take_flush()), (Some(3), None));
        peer.signals = 5;
        peer.flushed = 3;
        assert!(peer.pass(Way::Access, 1, 2), "other signals came after the fence");
        assert!(!peer.pass(Way::Access, 2, 2));
        peer.pending.end(after);
        assert!(peer.pass(Way::Message, 2, 2) && !peer.pass(Way::Access, 2, 2));
        assert_eq!(peer.take_flush(), Some(5));
        peer.flushed = 5;
        assert!(peer.pass(Way::Access, 2, 2) && peer.has_passed(Way::Access, 2));
    }

    #[test]
    fn keys_are_known_until_they_are_forgotten() {
        let mut peer = Peer::new(1, None);
        let is_at = |peer: &Peer, offset, len| match peer.key(0, offset, len) {
            Found::At(at, key) => Some((at, key)),
            _ => None,
        };
        let granted = Granted { start: 100, end: 200, base: 5000, key: 7 };
        peer.learn(0, 120, Some(granted));
        assert_eq!(is_at(&peer, 120, 8), None, "it was not asked for");
        peer.keys_asked.push((0, 120));
        peer.learn(0, 120, Some(granted));
        assert_eq!(is_at(&peer, 120, 80), Some((5020, 7)));
        assert!(matches!(peer.key(0, 120, 81), Found::Refused));
        assert!(matches!(peer.key(0, 200, 8), Found::Unknown));
        assert!(matches!(peer.key(1, 120, 8), Found::Unknown));
        peer.forget(0, 200, 300);
        assert!(is_at(&peer, 100, 1).is_some(), "they lie side by side");
        peer.forget(0, 150, 151);
        assert_eq!(is_at(&peer, 100, 1), None);
        peer.keys_asked.push((2, 0));
        peer.learn(2, 0, None);
        assert!(matches!(peer.key(2, 0, 8), Found::Refused));
    }
}
