//! What a NIC holds for its host: the window of prefetches, and how far a read of the buffer memory
//! is. This is pure state; `prefetch` says how it is used.

use crate::op::Op;
use crate::packet::Payload;
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use std::collections::VecDeque;
use std::ops::Range;

/// A node's window.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Up to the last byte that was prefetched; zeros are behind it.
    bytes: Vec<u8>,
    /// The places that prefetches are still to fill, in their order, and when each is over.
    awaited: VecDeque<(Range<usize>, Ps)>,
}

impl Window {
    /// A prefetch will fill this place, and is over at `at`, after all before it.
    pub fn await_fill(&mut self, place: Range<usize>, at: Ps) {
        self.awaited.push_back((place, at));
    }

    /// When the last prefetch is over that fills a byte of this place, if any is to come.
    pub fn filled(&self, place: &Range<usize>) -> Option<Ps> {
        let overlaps = |other: &Range<usize>| other.start < place.end && place.start < other.end;
        self.awaited.iter().filter(|(other, _)| overlaps(other)).map(|&(_, at)| at).max()
    }

    /// The oldest prefetch is over, and has brought these bytes, unless their memory is gone.
    pub fn fill(&mut self, brought: Option<Payload>) {
        let (place, _) = self.awaited.pop_front().expect("prefetches end in their order");
        let Some(data) = brought else { return };
        self.bytes.resize(self.bytes.len().max(place.end), 0);
        data.with(|data| self.bytes[place].copy_from_slice(data));
    }

    /// The bytes of a place, with zeros where nothing was prefetched.
    pub fn read(&self, place: Range<usize>) -> Payload {
        let there = self.bytes.get(place.start..).unwrap_or(&[]);
        let mut bytes = there[..place.len().min(there.len())].to_vec();
        bytes.resize(place.len(), 0);
        Payload::copy(&bytes)
    }
}

/// A read of the buffer memory that goes on word by word.
#[derive(Debug, Clone)]
pub struct Reading {
    pub op: Op,
    pub next: FarAddress,
    /// Bytes that are to be read.
    pub left: usize,
    /// What has been read.
    pub got: Vec<u8>,
}
