//! All that can happen in a small world: one writer, a few messages, and a network that delivers,
//! loses and doubles in every order, while time passes whenever it likes. Bounded by how often each
//! may happen; states that were seen before are not explored again.
//!
//! In every state what was received is what was written, and nothing is written over that somebody
//! needs; and from every state on, with a network that then loses nothing, everything arrives.

mod common;

use common::{Receiving, Sending, config};
use memonet_repair::{Config, Timing, To, wire};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// Bytes of a message; each is a datagram.
const MESSAGE: u64 = (wire::LEAST_DATAGRAM - wire::HEADER) as u64;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    writer: Sending,
    readers: Vec<Receiving>,
    /// Under way, sorted: to whom, and what.
    bag: Vec<(usize, Vec<u8>)>,
    /// What may still happen.
    messages: u32,
    losses: u32,
    doublings: u32,
    timeouts: u32,
    dropping: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Write,
    Deliver(usize),
    Lose(usize),
    Double(usize),
    Consume(usize),
    Wait,
    DropSlowest,
}

struct Bounds {
    readers: u16,
    messages: u32,
    losses: u32,
    doublings: u32,
    timeouts: u32,
    /// In messages.
    capacity: u64,
    /// Whether the writer may drop a reader.
    dropping: bool,
    /// Most datagrams under way.
    bag: usize,
}

fn small(bounds: &Bounds) -> Config {
    Config {
        capacity: bounds.capacity * MESSAGE,
        window: 2 * MESSAGE,
        datagram: wire::LEAST_DATAGRAM,
        // A unit of time is the shortest that matters: everything is due at the next timeout.
        timing: Timing {
            heartbeat_first: 1,
            heartbeat_most: 1,
            backoff_least: 1,
            backoff_most: 1,
            retry_first: 1,
            retry_most: 1,
            linger: 1,
            dead_after: u64::MAX,
        },
        ..config(bounds.readers)
    }
}

impl World {
    fn new(bounds: &Bounds) -> Self {
        let config = small(bounds);
        let readers = (0..bounds.readers).map(|number| Receiving::new(&config, number)).collect();
        let mut world = World {
            writer: Sending::new(&config),
            readers,
            bag: Vec::new(),
            messages: bounds.messages,
            losses: bounds.losses,
            doublings: bounds.doublings,
            timeouts: bounds.timeouts,
            dropping: bounds.dropping,
        };
        world.flush();
        world
    }

    /// Puts all that the ends have to send on its way.
    fn flush(&mut self) {
        let mut out = [0; 256];
        let ends = self.readers.len() + 1;
        let mut post = |from: usize, to: To, datagram: &[u8]| {
            let to_ends = match to {
                To::All => 0..ends,
                To::Writer => 0..1,
            };
            self.bag.extend(to_ends.filter(|&end| end != from).map(|end| (end, datagram.to_vec())));
        };
        while let Some(outgoing) = self.writer.machine.next(0, &self.writer.log, &mut out) {
            post(0, outgoing.to, &out[..outgoing.len]);
        }
        for (number, reader) in self.readers.iter_mut().enumerate() {
            while let Some(outgoing) = reader.machine.next(0, &mut out) {
                post(number + 1, outgoing.to, &out[..outgoing.len]);
            }
        }
        self.bag.sort();
    }

    /// All that may happen now. Of equal datagrams one is enough.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.messages > 0 && self.writer.machine.limit() >= self.writer.end + MESSAGE {
            steps.push(Step::Write);
        }
        for index in (0..self.bag.len())
            .filter(|&index| index == 0 || self.bag[index] != self.bag[index - 1])
        {
            steps.push(Step::Deliver(index));
            if self.losses > 0 {
                steps.push(Step::Lose(index));
            }
            if self.doublings > 0 {
                steps.push(Step::Double(index));
            }
        }
        let hungry = |reader: &Receiving| reader.machine.consumed() < reader.machine.received();
        steps.extend(
            (0..self.readers.len())
                .filter(|&reader| hungry(&self.readers[reader]))
                .map(Step::Consume),
        );
        if self.timeouts > 0 {
            steps.push(Step::Wait);
        }
        if self.dropping
            && self.messages > 0
            && self.writer.machine.limit() < self.writer.end + MESSAGE
        {
            steps.push(Step::DropSlowest);
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write => {
                self.messages -= 1;
                assert_eq!(self.writer.write(MESSAGE), MESSAGE);
            }
            Step::Deliver(index) => {
                let (end, datagram) = self.bag.remove(index);
                self.deliver(end, &datagram);
            }
            Step::Double(index) => {
                self.doublings -= 1;
                let (end, datagram) = self.bag[index].clone();
                self.deliver(end, &datagram);
            }
            Step::Lose(index) => {
                self.losses -= 1;
                self.bag.remove(index);
            }
            Step::Consume(reader) => {
                let machine = &mut self.readers[reader].machine;
                machine.consume(machine.received());
            }
            Step::Wait => {
                self.timeouts -= 1;
                self.pass_time();
            }
            Step::DropSlowest => {
                self.dropping = false;
                let slowest = self.writer.machine.slowest().unwrap();
                self.writer.machine.drop_reader(slowest);
            }
        }
        self.flush();
    }

    fn deliver(&mut self, end: usize, datagram: &[u8]) {
        // Doubles are refused; that they change nothing is what the checks say.
        let _refused = match end {
            0 => self.writer.machine.receive(datagram, 0),
            reader => self.readers[reader - 1].receive(datagram, 0),
        };
    }

    /// To the next deadline, from which time counts anew.
    fn pass_time(&mut self) {
        let deadlines = self.readers.iter().map(|reader| reader.machine.deadline());
        let next = deadlines.chain([self.writer.machine.deadline()]).min().unwrap();
        self.writer.machine.rebase(next);
        self.readers.iter_mut().for_each(|reader| reader.machine.rebase(next));
    }

    fn check(&mut self, config: &Config) {
        for (number, reader) in self.readers.iter_mut().enumerate() {
            reader.check();
            reader.check_again();
            assert!(reader.machine.received() <= self.writer.end);
            if !self.writer.machine.is_dropped(number as u16) {
                assert!(self.writer.machine.limit() <= reader.machine.consumed() + config.capacity);
                assert!(!reader.machine.is_dropped());
            }
        }
    }

    /// From now on nothing goes wrong.
    fn check_that_all_arrives(mut self, config: &Config) {
        for _ in 0..400 {
            while self.messages > 0 && self.writer.machine.limit() >= self.writer.end + MESSAGE {
                self.messages -= 1;
                self.writer.write(MESSAGE);
                self.flush();
            }
            while !self.bag.is_empty() {
                self.take(Step::Deliver(0));
                self.check(config);
                (0..self.readers.len()).for_each(|reader| self.take(Step::Consume(reader)));
            }
            let told = |(number, reader): (usize, &Receiving)| {
                reader.machine.is_dropped() == self.writer.machine.is_dropped(number as u16)
            };
            if self.messages == 0
                && self.writer.machine.is_complete()
                && self.readers.iter().enumerate().all(told)
            {
                return;
            }
            self.pass_time();
            self.flush();
        }
        panic!("it does not get on: {:#?}", self.writer.machine);
    }
}

fn explore(bounds: &Bounds) -> usize {
    let config = small(bounds);
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    // Two hashes of a state stand for it.
    let name = |world: &World| (hasher.hash_one(world), hasher.hash_one((world, 1)));
    let mut seen = HashSet::new();
    let first = World::new(bounds);
    seen.insert(name(&first));
    let mut open = vec![first];
    while let Some(mut world) = open.pop() {
        world.check(&config);
        world.clone().check_that_all_arrives(&config);
        for step in world.steps() {
            let mut next = world.clone();
            next.take(step);
            if next.bag.len() <= bounds.bag && seen.insert(name(&next)) {
                open.push(next);
            }
        }
    }
    println!("{} states", seen.len());
    seen.len()
}

/// Delivery in every order.
#[test]
fn one_reader() {
    let states = explore(&Bounds {
        readers: 1,
        messages: 3,
        losses: 1,
        doublings: 1,
        timeouts: 2,
        capacity: 4,
        dropping: false,
        bag: 3,
    });
    assert!(states > 10_000);
}

#[test]
fn two_readers() {
    let states = explore(&Bounds {
        readers: 2,
        messages: 2,
        losses: 1,
        doublings: 0,
        timeouts: 1,
        capacity: 4,
        dropping: false,
        bag: 4,
    });
    assert!(states > 10_000);
}

/// The log is as short as two messages: the writer waits for readers, and its ring goes round.
#[test]
fn a_short_log() {
    let states = explore(&Bounds {
        readers: 1,
        messages: 3,
        losses: 1,
        doublings: 0,
        timeouts: 2,
        capacity: 2,
        dropping: false,
        bag: 4,
    });
    assert!(states > 10_000);
}

/// A reader may be dropped when the log is full.
#[test]
fn dropping() {
    let states = explore(&Bounds {
        readers: 2,
        messages: 2,
        losses: 1,
        doublings: 0,
        timeouts: 1,
        capacity: 1,
        dropping: true,
        bag: 3,
    });
    assert!(states > 10_000);
}
