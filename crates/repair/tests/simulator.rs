//! The protocol under a network that loses, doubles, delays, reorders, damages and parts: every
//! byte arrives at every reader, in order, once.
//!
//! `REPAIR_SEEDS=N cargo test --release -p memonet-repair --test simulator` runs N seeds of each
//! network instead of a few.

mod common;

use common::{Dice, Faults, Network, Receiving, Sending, config};
use memonet_repair::{Config, Nanos};

const SECOND: Nanos = 1_000_000_000;

fn seeds(few: u64) -> std::ops::Range<u64> {
    let many = std::env::var("REPAIR_SEEDS").ok().and_then(|text| text.parse().ok());
    0..many.unwrap_or(few)
}

struct World {
    config: Config,
    now: Nanos,
    writer: Sending,
    readers: Vec<Receiving>,
    network: Network,
    /// How much of what it has a reader consumes at a time, per mille; 0: it has stopped reading.
    appetite: Vec<u64>,
    out: Vec<u8>,
}

impl World {
    fn new(config: Config, seed: u64, faults: Faults) -> Self {
        let readers = (0..config.readers).map(|number| Receiving::new(&config, number));
        World {
            config,
            now: 0,
            writer: Sending::new(&config),
            readers: readers.collect(),
            network: Network::new(1 + usize::from(config.readers), seed, faults),
            appetite: vec![1000; config.readers.into()],
            out: vec![0; config.datagram],
        }
    }

    /// Lets all that is due now happen, and goes on to the next moment at which something is.
    fn step(&mut self, dice: &mut Dice) {
        while let Some((end, datagram)) = self.network.take(self.now) {
            // What is refused changes nothing; the checks below say so.
            let _refused = match end {
                0 => self.writer.machine.receive(&datagram, self.now),
                reader => self.readers[reader - 1].receive(&datagram, self.now),
            };
        }
        for (reader, &appetite) in self.readers.iter_mut().zip(&self.appetite) {
            reader.check();
            reader.check_again();
            let waiting = reader.machine.received() - reader.machine.consumed();
            let bite =
                if appetite == 1000 { waiting } else { dice.below(waiting * appetite / 1000 + 1) };
            reader.machine.consume(reader.machine.consumed() + bite);
        }
        while let Some(outgoing) =
            self.writer.machine.next(self.now, &self.writer.log, &mut self.out)
        {
            self.network.send(self.now, 0, outgoing.to, &self.out[..outgoing.len]);
        }
        for (number, reader) in self.readers.iter_mut().enumerate() {
            while let Some(outgoing) = reader.machine.next(self.now, &mut self.out) {
                self.network.send(self.now, number + 1, outgoing.to, &self.out[..outgoing.len]);
            }
        }
        for (number, reader) in self.readers.iter().enumerate() {
            if !self.writer.machine.is_dropped(number as u16) {
                assert!(
                    self.writer.machine.limit() <= reader.machine.consumed() + self.config.capacity,
                    "it would be written over"
                );
            }
        }
        let readers = self.readers.iter().map(|reader| reader.machine.deadline());
        let next =
            readers.chain([self.writer.machine.deadline(), self.network.next_at()]).min().unwrap();
        self.now = next.max(self.now + 1);
    }

    /// Writes `bytes` in pieces of any size, and goes on until all have arrived.
    fn run(&mut self, bytes: u64, dice: &mut Dice) {
        let mut left = bytes;
        let give_up = self.now + 1000 * SECOND;
        while left > 0 || !self.writer.machine.is_complete() {
            if left > 0 {
                let piece = 1 + dice.below(3 * self.config.datagram as u64);
                left -= self.writer.write(piece.min(left));
            }
            self.step(dice);
            assert!(self.now < give_up, "it does not get on: {:?}", self.writer.machine);
        }
        for reader in &mut self.readers {
            reader.check();
            assert_eq!(reader.checked, self.writer.end);
        }
    }
}

fn arrives(few_seeds: u64, bytes: u64, faults: Faults, readers: &[u16]) {
    let mut datagrams = 0;
    for seed in seeds(few_seeds) {
        for &count in readers {
            let mut world = World::new(config(count), seed, faults);
            world.run(bytes, &mut Dice(!seed));
            datagrams += world.network.delivered;
        }
    }
    println!("{datagrams} datagrams delivered");
    assert!(datagrams > 0);
}

const NEAR: (Nanos, Nanos) = (10_000, 30_000);
const FAR: (Nanos, Nanos) = (10_000, 3_000_000);

#[test]
fn a_perfect_network() {
    let faults = Faults { delay: (10_000, 10_000), ..Faults::default() };
    arrives(2, 300_000, faults, &[1, 2, 3, 17]);
}

#[test]
fn loss() {
    for loss in [10, 50, 300, 700] {
        let faults = Faults { loss, delay: NEAR, ..Faults::default() };
        arrives(3, 150_000, faults, &[1, 2, 5]);
    }
}

#[test]
fn doubling_and_reordering() {
    let faults = Faults { doubling: 200, delay: FAR, ..Faults::default() };
    arrives(4, 150_000, faults, &[1, 3]);
}

#[test]
fn damage() {
    let faults = Faults { damage: 200, delay: NEAR, ..Faults::default() };
    arrives(4, 150_000, faults, &[1, 3]);
}

#[test]
fn everything_at_once() {
    let faults = Faults { loss: 200, doubling: 100, damage: 100, delay: FAR, ..Faults::default() };
    arrives(4, 200_000, faults, &[1, 2, 3, 9]);
}

/// A link on the way to one of the readers takes less than those of all ends.
#[test]
fn a_narrow_link() {
    for seed in seeds(4) {
        for loss in [0, 100] {
            let faults = Faults { loss, delay: NEAR, ..Faults::default() };
            let jumbo = Config { capacity: 1 << 18, window: 1 << 17, datagram: 8900, ..config(3) };
            let mut world = World::new(jumbo, seed, faults);
            let mut dice = Dice(!seed);
            world.run(500_000, &mut dice);
            let large = world.network.sent;
            world.network.faults[2].longest = 1400;
            let before = world.now;
            world.run(500_000, &mut dice);
            assert!(world.now - before < 10 * SECOND, "it took {} ns", world.now - before);
            assert!(world.network.sent > 2 * large, "datagrams have become small");
        }
    }
}

/// Losses alone do not make datagrams small, nor does a reader that was away.
#[test]
fn datagrams_stay_large() {
    let jumbo = Config { capacity: 1 << 18, window: 1 << 17, datagram: 8900, ..config(3) };
    let faults = Faults { loss: 100, delay: NEAR, ..Faults::default() };
    let (mut world, mut dice) = (World::new(jumbo, 1, faults), Dice(1));
    for _ in 0..10 {
        world.run(500_000, &mut dice);
        world.network.cut[3] = true;
        let until = world.now + SECOND / 2;
        while world.now < until {
            world.writer.write(100);
            world.step(&mut dice);
        }
        world.network.cut[3] = false;
    }
    world.run(500_000, &mut dice);
    let (before, bytes) = (world.network.sent, 2_000_000);
    world.run(bytes, &mut dice);
    let each = (world.network.sent - before) * 4000 / bytes;
    assert!(each <= 4, "{each} datagrams for each 4000 bytes");
}

/// Writer and readers are cut off now and then, some of them for long.
#[test]
fn partition() {
    for seed in seeds(6) {
        let faults = Faults { loss: 50, delay: NEAR, ..Faults::default() };
        let (mut world, mut dice) = (World::new(config(3), seed, faults), Dice(seed ^ 77));
        for _ in 0..20 {
            for end in 0..4 {
                world.network.cut[end] = dice.happens(300);
            }
            let until = world.now + dice.below(SECOND);
            while world.now < until {
                world.writer.write(1 + dice.below(500));
                world.step(&mut dice);
            }
        }
        world.network.cut.fill(false);
        world.run(1, &mut dice);
    }
}

/// Readers that take their time stop the writer, and nothing is written over.
#[test]
fn slow_readers() {
    for seed in seeds(5) {
        let faults = Faults { loss: 50, delay: NEAR, ..Faults::default() };
        let mut world = World::new(config(3), seed, faults);
        world.appetite = vec![1000, 200, 20];
        world.run(100_000, &mut Dice(seed));
        // One that does not read at all stops it at the bound.
        world.appetite[2] = 0;
        let before = world.readers[2].machine.consumed();
        let mut dice = Dice(seed);
        for _ in 0..20_000 {
            world.writer.write(100);
            world.step(&mut dice);
        }
        assert_eq!(world.writer.end, before + world.config.capacity);
        // Without it the others go on.
        assert_eq!(world.writer.machine.slowest(), Some(2));
        world.writer.machine.drop_reader(2);
        let end = world.writer.end + 50_000;
        for _ in 0..20_000 {
            world.writer.write((end - world.writer.end).min(100));
            world.step(&mut dice);
        }
        assert_eq!(world.writer.end, end);
        assert!(world.writer.machine.is_complete());
        assert!(world.readers[2].machine.is_dropped(), "it was told");
        assert_eq!(
            world.readers[2].machine.received(),
            before + world.config.capacity,
            "what it had stays"
        );
        world.readers[2].check_again();
    }
}

/// A reader that is gone is noticed, and so is a writer.
#[test]
fn silence() {
    let faults = Faults { delay: NEAR, ..Faults::default() };
    let (mut world, mut dice) = (World::new(config(2), 1, faults), Dice(1));
    world.run(10_000, &mut dice);
    let idle = world.now + 30 * SECOND;
    while world.now < idle {
        world.step(&mut dice);
        assert_eq!(world.writer.machine.silent(world.now), None, "idle is not silent");
        assert!(world.readers.iter().all(|reader| !reader.machine.is_writer_silent(world.now)));
    }
    world.network.cut[2] = true;
    let gone = world.now + world.config.timing.dead_after + SECOND;
    while world.now < gone {
        world.step(&mut dice);
    }
    assert_eq!(world.writer.machine.silent(world.now), Some(1));
    assert!(
        world.readers[1].machine.is_writer_silent(world.now)
            && !world.readers[0].machine.is_writer_silent(world.now)
    );
    world.writer.machine.drop_reader(1);
    assert_eq!(world.writer.machine.silent(world.now), None);
    world.readers[1].machine = world.readers[0].machine.clone();
    world.readers.truncate(1);
    world.network.cut.truncate(2);
    world.run(10_000, &mut dice);
}

/// An idle channel costs a few datagrams a second.
#[test]
fn an_idle_channel_is_quiet() {
    let faults = Faults { delay: NEAR, ..Faults::default() };
    let (mut world, mut dice) = (World::new(config(2), 1, faults), Dice(1));
    world.run(10_000, &mut dice);
    let before = world.network.sent;
    let until = world.now + 10 * SECOND;
    while world.now < until {
        world.step(&mut dice);
    }
    let each_second = (world.network.sent - before) / 10;
    assert!((50..=200).contains(&each_second), "{each_second} datagrams a second");
}

/// A loss at one reader costs about what was lost, and not a storm.
#[test]
fn repairs_are_few() {
    for readers in [1, 3, 17] {
        let faults = Faults { delay: NEAR, ..Faults::default() };
        let mut world = World::new(config(readers), 5, faults);
        world.network.faults[1].loss = 50;
        let bytes = 1_000_000;
        world.run(bytes, &mut Dice(5));
        let data = bytes / (world.config.datagram as u64 - memonet_repair::wire::HEADER as u64);
        let statuses = u64::from(readers) * bytes / (world.config.window / 4);
        let most = 13 * (data + statuses) / 10;
        assert!(
            world.network.sent < most,
            "{readers} readers: {} datagrams, of {data} with data",
            world.network.sent
        );
    }
}

/// The whole of many readers loses the same: one asks, and the others wait for the repair.
#[test]
fn naks_are_suppressed() {
    let readers = 50;
    let faults = Faults {
        // A repair takes longer than to hear of each other.
        delay: (25_000, 25_000),
        ..Faults::default()
    };
    let (mut world, mut dice) = (World::new(config(readers), 9, faults), Dice(9));
    world.run(1000, &mut dice);
    let mut naks = 0;
    const LOSSES: u64 = 200;
    for _ in 0..LOSSES {
        // The first datagram reaches nobody.
        world.writer.write(200);
        let lost = world.writer.machine.next(world.now, &world.writer.log, &mut world.out);
        assert!(lost.is_some());
        world.writer.write(200);
        let end = world.writer.end;
        while world.readers.iter().any(|reader| reader.machine.received() < end) {
            world.step(&mut dice);
        }
        naks = world.readers.iter().map(|reader| reader.machine.naks()).sum::<u64>();
    }
    let each = naks / LOSSES;
    println!("{each} NAKs for each loss");
    assert!(
        (1..=u64::from(readers) / 3).contains(&each),
        "{each} NAKs for each loss, by {readers} readers"
    );
}
