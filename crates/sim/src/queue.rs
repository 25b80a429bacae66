//! The event queue: earliest first, and what is due at the same time in the order in which it was
//! put in.
//!
//! Time only grows, so a radix heap does what a binary heap does without its cache misses: an event
//! lies in the bucket of the highest bit in which its time differs from that of the last event
//! taken. Taking finds the lowest bucket with something in it, makes its least time the last, and
//! puts its events into lower buckets. An event moves down at most once per bit of time.
//!
//! **Why equal times keep their order** without a sequence number: at every moment all events of
//! one time lie in one bucket, the one of the highest bit in which that time differs from the last.
//! (When the last moves on, it does so within the bucket that is emptied: bits above it do not
//! change, so what lies in higher buckets stays right, and what lay in this one is put where it
//! belongs now.) Events enter a bucket at its end and are moved in order, so within it the
//! earlier-put stands before the later-put.

use crate::time::Ps;

const BUCKETS: usize = 65;

/// Events of type `T` by time.
pub struct Queue<T> {
    /// Time of the last event taken.
    last: u64,
    /// Bucket 0 holds those due at `last`; bucket k > 0 those whose times differ from it in bit k -
    /// 1 and in none above.
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Bit k: bucket k has something in it. Bucket 0 is known by `taken`.
    occupied: u128,
    /// Events of bucket 0 that have been taken.
    taken: usize,
    len: usize,
}

impl<T: Copy> Default for Queue<T> {
    fn default() -> Self {
        Queue { last: 0, buckets: [const { Vec::new() }; BUCKETS], occupied: 0, taken: 0, len: 0 }
    }
}

impl<T: Copy> Queue<T> {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn bucket(&self, at: u64) -> usize {
        64 - (at ^ self.last).leading_zeros() as usize
    }

    /// Puts in an event.
    ///
    /// # Panics
    /// When it is due before the last that was taken.
    #[inline]
    pub fn push(&mut self, at: Ps, event: T) {
        assert!(
            at.0 >= self.last,
            "an event in the past: due at {at}, and it is {}",
            Ps(self.last)
        );
        let bucket = self.bucket(at.0);
        self.occupied |= 1 << bucket;
        self.buckets[bucket].push((at.0, event));
        self.len += 1;
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Ps, T)> {
        if self.taken == self.buckets[0].len() {
            if self.len == 0 {
                return None;
            }
            self.refill();
        }
        let (at, event) = self.buckets[0][self.taken];
        self.taken += 1;
        self.len -= 1;
        Some((Ps(at), event))
    }

    /// Moves time on to the next event, whose bucket it spreads over lower ones. There is one.
    fn refill(&mut self) {
        self.buckets[0].clear();
        self.taken = 0;
        self.occupied &= !1;
        let lowest = self.occupied.trailing_zeros() as usize;
        let mut events = std::mem::take(&mut self.buckets[lowest]);
        self.occupied &= !(1 << lowest);
        self.last = events.iter().map(|&(at, _)| at).min().expect("its bit says that there is one");
        for &(at, event) in &events {
            let bucket = self.bucket(at);
            self.occupied |= 1 << bucket;
            self.buckets[bucket].push((at, event));
        }
        // Its room is used again.
        events.clear();
        self.buckets[lowest] = events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    proptest! {
        /// It is a queue by (time, order of putting), whatever the pattern.
        #[test]
        fn against_a_plain_heap(steps in proptest::collection::vec((any::<bool>(), 0u32..64, any::<u64>()), 1..400)) {
            let (mut queue, mut plain) = (Queue::default(), BinaryHeap::new());
            let mut now = 0u64;
            for (number, (take, bits, random)) in steps.into_iter().enumerate() {
                if take {
                    let expected = plain.pop().map(|Reverse((at, number))| (Ps(at), number));
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |(at, _)| at.0);
                } else {
                    let at = now.saturating_add(random & ((1 << bits) - 1));
                    queue.push(Ps(at), number);
                    plain.push(Reverse((at, number)));
                }
                prop_assert_eq!(queue.len(), plain.len());
            }
            while let Some(Reverse((at, number))) = plain.pop() {
                prop_assert_eq!(queue.pop(), Some((Ps(at), number)));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let mut queue = Queue::default();
        queue.push(Ps::NEVER, 1);
        queue.push(Ps(5), 2);
        queue.push(Ps::NEVER, 3);
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(Ps(5), 2), (Ps::NEVER, 1), (Ps::NEVER, 3)]);
    }

    #[test]
    #[should_panic(expected = "an event in the past")]
    fn nothing_happens_in_the_past() {
        let mut queue = Queue::default();
        queue.push(Ps(10), ());
        queue.pop();
        queue.push(Ps(9), ());
    }
}
