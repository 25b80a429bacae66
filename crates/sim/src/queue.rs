//! The event queue: earliest first, and events of one time in the order in which they were put in.
//!
//! Time only grows, so a radix heap serves, which has fewer cache misses than a binary heap. `last`
//! is the time of the event that was taken last. An event lies in the bucket of the highest bit in
//! which its time differs from `last`. Taking an event finds the lowest bucket that is not empty,
//! makes the least time in it `last`, and moves its events into lower buckets. An event moves at
//! most once per bit of time.
//!
//! **Equal times keep their order**, without a sequence number:
//!
//! * Q1: at every moment, an event lies in the bucket of the highest bit in which its time differs
//!   from `last`. A push puts it there. When `last` changes, it takes the least time of the bucket
//!   that is emptied, so bits above that bucket's do not change: events in higher buckets stay
//!   right, and the events of this bucket are put anew.
//! * Q2: so all events of one time lie in one bucket.
//! * Q3: events enter a bucket at its end, and a bucket is emptied in order. So, of two events of
//!   one time, the one put in first stands first.

use crate::time::Ps;

const BUCKETS: usize = 65;

/// Events of type `T` by time.
pub struct Queue<T> {
    /// Time of the last event taken.
    last: u64,
    /// Bucket 0 holds the events that are due at `last`. Bucket k > 0 holds those whose times
    /// differ from `last` in bit k - 1 and in no bit above (Q1).
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Bit k > 0: bucket k is not empty. For bucket 0, `taken` tells.
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
    /// When the event is due before the last one that was taken.
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

    /// Drops all events but those that `keep` chooses. Takes a look at each.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.buckets[0].drain(..self.taken);
        self.taken = 0;
        // Q1 to Q3: the others stay where they are, in their order.
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.retain(|(_, event)| keep(event));
            if bucket.is_empty() {
                self.occupied &= !(1 << number);
            }
        }
        self.len = self.buckets.iter().map(Vec::len).sum();
    }

    /// The next event, if it is due at the time of the last one that was taken.
    pub fn next_now(&self) -> Option<&T> {
        self.buckets[0].get(self.taken).map(|(_, event)| event)
    }

    /// Moves time on to the next event, and moves the events of its bucket to lower ones. The queue
    /// is not empty.
    fn refill(&mut self) {
        self.buckets[0].clear();
        self.taken = 0;
        self.occupied &= !1;
        let lowest = self.occupied.trailing_zeros() as usize;
        let mut events = std::mem::take(&mut self.buckets[lowest]);
        self.occupied &= !(1 << lowest);
        self.last = events.iter().map(|&(at, _)| at).min().expect("its bit says that there is one");
        // Q3: in order.
        for &(at, event) in &events {
            let bucket = self.bucket(at);
            self.occupied |= 1 << bucket;
            self.buckets[bucket].push((at, event));
        }
        // The bucket keeps its allocation.
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
                let due_now = plain.peek().filter(|Reverse((at, _))| *at == now);
                prop_assert_eq!(queue.next_now(), due_now.map(|Reverse((_, number))| number));
                if take {
                    let expected = plain.pop().map(|Reverse((at, number))| (Ps(at), number));
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |(at, _)| at.0);
                } else if random % 16 == 0 {
                    queue.retain(|event| event % 3 != 0);
                    plain.retain(|Reverse((_, event))| event % 3 != 0);
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
