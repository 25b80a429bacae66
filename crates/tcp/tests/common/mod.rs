//! What tests of the protocol share: memory, chance, and streams that are queues.

#![allow(dead_code, reason = "not every test needs all of it")]

use memonet_core::Access;
use memonet_core::unstable::shm;
use memonet_tcp::wire::{Bad, Came, Home, Link, Piece};
use std::collections::VecDeque;

/// Chance (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }

    /// Mostly small, sometimes up to `limit`.
    pub fn some(&mut self, limit: usize) -> usize {
        let limit = if self.below(3) == 0 { limit } else { limit.min(40) };
        1 + self.below(limit)
    }
}

/// Words around a PE's memory that nobody may write.
const GUARD: usize = 64;
const FENCE: u64 = 0xFEFE_FEFE_FEFE_FEFE;

/// A PE's memory, as regions 0 and 2.
pub struct Memory {
    words: Vec<u64>,
    len: usize,
}

impl Memory {
    /// So many bytes in region 0, and 64 in region 2.
    pub fn new(len: usize) -> Self {
        let mut words = vec![0; len / 8 + 8 + 3 * GUARD];
        words[..GUARD].fill(FENCE);
        words[GUARD + len / 8..][..GUARD].fill(FENCE);
        let end = words.len() - GUARD;
        words[end..].fill(FENCE);
        Memory { words, len }
    }

    fn start(&self) -> *mut u8 {
        self.words.as_ptr().wrapping_add(GUARD).cast_mut().cast()
    }

    /// Bytes of region 0.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: within the vector; only this thread touches it, by addresses.
        unsafe { shm::copy(bytes.as_mut_ptr(), self.start().wrapping_add(offset), len) };
        bytes
    }

    pub fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().unwrap())
    }

    /// Nobody has written beside the regions.
    pub fn check(&self) {
        let guards = [0, GUARD + self.len / 8, self.words.len() - GUARD];
        for start in guards {
            let guard = self.words[start..].as_ptr();
            // SAFETY: within the vector.
            let right = (0..GUARD).all(|at| unsafe { guard.add(at).read_volatile() } == FENCE);
            assert!(right, "somebody wrote beside the memory, at word {start}");
        }
    }
}

// SAFETY: what it gives lies in the vector, which never moves nor shrinks.
unsafe impl Home for Memory {
    fn place(&self, by: u32, _: Access, region: u16, offset: u64, len: u64) -> Option<*mut u8> {
        let (start, size) = match region {
            0 => (self.start(), self.len as u64),
            2 if by < 2 => (self.start().wrapping_add(self.len + 8 * GUARD), 64),
            _ => return None,
        };
        let is_in = offset.checked_add(len).is_some_and(|end| end <= size);
        is_in.then(|| start.wrapping_add(offset as usize))
    }
}

/// Takes at most `most` bytes that a link has to send.
pub fn take(link: &mut Link, most: usize, into: &mut VecDeque<u8>) -> usize {
    let mut pieces = [Piece { start: std::ptr::null(), len: 0 }; 4];
    let (count, mut taken) = (link.output(&mut pieces), 0);
    for piece in &pieces[..count] {
        let some = piece.len.min(most - taken);
        let mut bytes = vec![0; some];
        // SAFETY: a link's pieces are readable (W9).
        unsafe { shm::copy(bytes.as_mut_ptr(), piece.start, some) };
        into.extend(bytes);
        taken += some;
    }
    link.sent(taken);
    taken
}

/// Gives a link the first `count` bytes of a stream, where they belong.
pub fn give(
    link: &mut Link,
    stream: &mut VecDeque<u8>,
    count: usize,
    home: &Memory,
) -> Result<Came, Bad> {
    let mut bytes: Vec<u8> = stream.drain(..count.min(stream.len())).collect();
    let direct = link.direct().map_or(0, |(to, len)| {
        let some = len.min(bytes.len());
        // SAFETY: a link says where a payload goes, which it has checked.
        unsafe { shm::copy(to, bytes.as_ptr(), some) };
        bytes.drain(..some);
        some
    });
    link.received(direct, &bytes, home)
}
