//! A channel with its logs, and a network that does to datagrams what it is told.

#![allow(dead_code, reason = "each test binary uses its own part")]

use memonet_repair::{Config, Log, Nanos, Reader, Store, Timing, To, Writer};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Chance that repeats (splitmix64).
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit.max(1)
    }

    /// True in so many of a thousand cases.
    pub fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

pub fn config(readers: u16) -> Config {
    Config {
        job: 0x1234_5678_9ABC_DEF0,
        channel: 3,
        epoch: 7,
        readers,
        capacity: 1 << 12,
        window: 1 << 11,
        datagram: 256,
        timing: Timing::LOCAL,
    }
}

/// What stands at a position of the log: nothing that repeats at a power of two.
pub fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8 ^ (position >> 12) as u8
}

/// The ring of one end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ring(pub Vec<u8>);

impl Ring {
    pub fn new(config: &Config) -> Self {
        Ring(vec![0; config.capacity as usize])
    }

    fn at(&self, position: u64) -> usize {
        (position % self.0.len() as u64) as usize
    }

    pub fn get(&self, position: u64) -> u8 {
        self.0[self.at(position)]
    }

    pub fn set(&mut self, position: u64, value: u8) {
        let at = self.at(position);
        self.0[at] = value;
    }
}

impl Log for Ring {
    fn read(&self, position: u64, to: &mut [u8]) {
        for (to, position) in to.iter_mut().zip(position..) {
            *to = self.get(position);
        }
    }
}

impl Store for Ring {
    fn write(&mut self, position: u64, from: &[u8]) {
        for (&from, position) in from.iter().zip(position..) {
            self.set(position, from);
        }
    }
}

/// The writer, its log, and how far that goes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    pub machine: Writer,
    pub log: Ring,
    pub end: u64,
}

impl Sending {
    pub fn new(config: &Config) -> Self {
        Sending { machine: Writer::new(config, 0), log: Ring::new(config), end: 0 }
    }

    /// Writes up to `len` bytes, as far as the limit allows.
    pub fn write(&mut self, len: u64) -> u64 {
        let end = (self.end + len).min(self.machine.limit());
        for position in self.end..end {
            self.log.set(position, byte(position));
        }
        let written = end - self.end;
        self.end = end;
        self.machine.commit(end);
        written
    }
}

/// A reader and its log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receiving {
    pub machine: Reader,
    pub log: Ring,
    /// Looked at up to here.
    pub checked: u64,
}

impl Receiving {
    pub fn new(config: &Config, number: u16) -> Self {
        Receiving { machine: Reader::new(config, number, 0), log: Ring::new(config), checked: 0 }
    }

    /// What has been received since the last call is what was written.
    pub fn check(&mut self) {
        let received = self.machine.received();
        assert!(received >= self.checked, "received falls");
        for position in self.checked..received {
            assert_eq!(self.log.get(position), byte(position), "at {position}");
        }
        self.checked = received;
    }

    /// What is unread has not been touched since it was received.
    pub fn check_again(&self) {
        for position in self.machine.consumed()..self.checked {
            assert_eq!(
                self.log.get(position),
                byte(position),
                "at {position}, after it was received"
            );
        }
    }

    pub fn receive(&mut self, datagram: &[u8], now: Nanos) -> Result<(), memonet_repair::Refused> {
        let Receiving { machine, log, .. } = self;
        machine.receive(datagram, now, log)
    }
}

/// What the network does, per mille of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub doubling: u64,
    pub damage: u64,
    /// Longer datagrams do not pass; 0: all do.
    pub longest: usize,
    /// A datagram takes from `delay.0` to `delay.1` nanoseconds; what differs more than datagrams
    /// are apart is reordered.
    pub delay: (Nanos, Nanos),
}

/// When, in which order, to whom, and what.
type Flight = Reverse<(Nanos, u64, usize, Vec<u8>)>;

/// The writer is end 0, reader n end n + 1.
pub struct Network {
    pub dice: Dice,
    pub faults: Vec<Faults>,
    /// Ends that nothing reaches, and that reach nobody.
    pub cut: Vec<bool>,
    queue: BinaryHeap<Flight>,
    order: u64,
    pub sent: u64,
    pub delivered: u64,
}

impl Network {
    pub fn new(ends: usize, seed: u64, faults: Faults) -> Self {
        Network {
            dice: Dice(seed),
            faults: vec![faults; ends],
            cut: vec![false; ends],
            queue: BinaryHeap::new(),
            order: 0,
            sent: 0,
            delivered: 0,
        }
    }

    pub fn send(&mut self, now: Nanos, from: usize, to: To, datagram: &[u8]) {
        self.sent += 1;
        let ends = match to {
            To::All => 0..self.cut.len(),
            To::Writer => 0..1,
        };
        for end in ends.filter(|&end| end != from) {
            let faults = self.faults[end];
            let too_long = faults.longest > 0 && datagram.len() > faults.longest;
            if self.cut[from] || self.cut[end] || too_long || self.dice.happens(faults.loss) {
                continue;
            }
            let copies = 1 + u64::from(self.dice.happens(faults.doubling));
            for _ in 0..copies {
                let mut datagram = datagram.to_vec();
                if self.dice.happens(faults.damage) {
                    damage(&mut self.dice, &mut datagram);
                }
                let (least, most) = faults.delay;
                let at = now + least + self.dice.below(most - least + 1);
                self.order += 1;
                self.queue.push(Reverse((at, self.order, end, datagram)));
            }
        }
    }

    pub fn next_at(&self) -> Nanos {
        self.queue.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at)
    }

    pub fn take(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        if self.next_at() > now {
            return None;
        }
        let Reverse((_, _, end, datagram)) = self.queue.pop()?;
        self.delivered += 1;
        Some((end, datagram))
    }
}

/// Changes a datagram somehow: bits, bytes, its length.
pub fn damage(dice: &mut Dice, datagram: &mut Vec<u8>) {
    for _ in 0..1 + dice.below(4) {
        let len = datagram.len() as u64;
        match dice.below(6) {
            0 => datagram.truncate(dice.below(len + 1) as usize),
            1 => datagram.extend((0..dice.below(40)).map(|i| i as u8)),
            _ if len == 0 => {}
            2 => {
                let at = dice.below(len) as usize;
                datagram[at] = dice.roll() as u8;
            }
            3 => {
                let (from, to) = (dice.below(len) as usize, dice.below(len) as usize);
                datagram.swap(from, to);
            }
            _ => {
                let at = dice.below(len) as usize;
                datagram[at] ^= 1 << dice.below(8);
            }
        }
    }
}
