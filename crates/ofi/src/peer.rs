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
    /// Signals that wait until their blocks are visible.
    pub(crate) deferred: usize,
    /// Signals that were queued, those that the peer has done for certain, and those of which it
    /// was asked whether it has.
    pub(crate) signals: u64,
    pub(crate) flushed: u64,
    pub(crate) flush_asked: u64,
    /// The last fence after which everything before was complete.
    pub(crate) fence: u64,
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
            deferred: 0,
            signals: 0,
            flushed: 0,
            flush_asked: 0,
            fence: 0,
            is_awaited: false,
            has_refused: false,
        }
    }

    /// What it has still to do, for a report.
    pub(crate) fn outstanding(&self) -> String {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!(" (on {host})"));
        let (writes, others) = (self.writes + self.deferred, self.others);
        let signals = self.signals - self.flushed;
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

    /// Whether all blocks are visible at it, and all signals on their way.
    pub(crate) fn has_written(&self) -> bool {
        self.writes == 0 && self.deferred == 0
    }

    /// Whether all that was written to it is visible.
    pub(crate) fn is_quiet(&self) -> bool {
        self.has_written() && self.flushed == self.signals
    }

    /// Nothing is awaited of it any more.
    pub(crate) fn end(&mut self, state: State) {
        self.state = state;
        self.queue = VecDeque::new();
        self.keys = Vec::new();
        (self.writes, self.deferred, self.flushed) = (0, 0, self.signals);
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
            State::Alive => failed(Cause::Exit(-1)),
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
