//! The protocol between two to four PEs, over streams that take and give any part of what there is,
//! at any time and in any order between each other, and that break: against a model of memory, and
//! the contract.
//!
//! `TCP_SEEDS=N cargo test --release -p memonet-tcp --test simulator` runs N seeds instead of a
//! few.

mod common;

use common::{Dice, Memory, give, take};
use memonet_core::SignalOp;
use memonet_core::unstable::shm::AtomicOp;
use memonet_tcp::wire::{HEADER, Link, Place, ROOM, Role};
use std::collections::{BTreeSet, VecDeque};

/// What one PE writes of another's memory: a chain of words, a block and its signal, and a rest.
const CHAIN: usize = 6;
const SIGNAL: usize = 8 * CHAIN;
const BLOCK: usize = SIGNAL + 8;
const BLOCK_WORDS: usize = 5;
const FREE: usize = BLOCK + 8 * BLOCK_WORDS;
const LANE: usize = 16 << 10;
/// Words behind the lanes that all PEs update.
const ADDED: usize = 0;
const SWAPPED: usize = 8;
const SIGNALLED: usize = 16;
/// Bytes that a stream holds.
const CAPACITY: usize = 3000;

fn at(offset: usize) -> Place {
    Place { region: 0, offset: offset as u64 }
}

/// A request that is under way.
enum Asked {
    Get { ticket: u64, got: Box<[u8]>, expected: Vec<u8> },
    Add { ticket: u64, old: Box<u64> },
    Swap { ticket: u64, expected: u64, old: Box<u64> },
}

/// One PE's end of a stream to another, and what it knows of its lane there.
struct End {
    link: Link,
    /// What comes from the other.
    stream: VecDeque<u8>,
    lane: Vec<u8>,
    round: u64,
    /// The next word of the chain.
    next: usize,
    block: u64,
    /// Sources, until they were sent.
    sources: Vec<(u64, Box<[u8]>)>,
    asked: VecDeque<Asked>,
    /// Counted records at the last flush; the PE writes nothing until they are visible.
    quiet: Option<u64>,
    adds: u64,
    /// Additions without an answer.
    applied: u64,
    signals: u64,
    alive: bool,
}

struct World {
    n: usize,
    memories: Vec<Memory>,
    /// By PE and peer.
    ends: Vec<Vec<End>>,
    /// Of each PE's words: what atomics found there, and swaps that were done.
    found: Vec<BTreeSet<u64>>,
    swaps: Vec<u64>,
    dice: Dice,
}

impl World {
    fn new(n: usize, seed: u64) -> Self {
        let end = |me: usize, peer: usize| End {
            link: Link::new(
                me as u32,
                peer as u32,
                if me < peer { Role::Asked } else { Role::Accepted },
            ),
            stream: VecDeque::new(),
            lane: vec![0; LANE],
            round: 1,
            next: 0,
            block: 0,
            sources: Vec::new(),
            asked: VecDeque::new(),
            quiet: None,
            adds: 0,
            applied: 0,
            signals: 0,
            alive: true,
        };
        World {
            n,
            memories: (0..n).map(|_| Memory::new(n * LANE + 24)).collect(),
            ends: (0..n).map(|me| (0..n).map(|peer| end(me, peer)).collect()).collect(),
            found: vec![BTreeSet::new(); n],
            swaps: vec![0; n],
            dice: Dice(seed),
        }
    }

    /// Where a word that all update is.
    fn shared(&self, word: usize) -> usize {
        self.n * LANE + word
    }

    /// PE `me` does something to `peer`.
    fn act(&mut self, me: usize, peer: usize) {
        let (start, shared) =
            (me * LANE, [ADDED, SWAPPED, SIGNALLED].map(|word| self.shared(word)));
        let (dice, end) = (&mut self.dice, &mut self.ends[me][peer]);
        // What is written during a get may be seen by it.
        let gets = end.asked.iter().any(|asked| matches!(asked, Asked::Get { .. }));
        if !end.alive || end.quiet.is_some() || gets || !end.link.may_ask() {
            return;
        }
        match dice.below(10) {
            0 => end.chain(start, dice.below(2) == 0),
            1 => end.signalled_block(start, dice.below(2) == 0),
            2 | 3 => end.put(start, dice),
            4 => {
                let size = 1 << dice.below(4);
                let offset = FREE.next_multiple_of(8) + dice.below(50) * size;
                let bits = dice.roll() & (u64::MAX >> (64 - 8 * size));
                end.link.store(at(start + offset), size, bits);
                end.lane[offset..offset + size].copy_from_slice(&bits.to_le_bytes()[..size]);
            }
            5 => end.get(start, dice),
            6 => {
                let mut old = Box::new(u64::MAX);
                // SAFETY: the box lives until the answer, or the link's end.
                let ticket =
                    unsafe { end.link.update(at(shared[0]), 8, AtomicOp::Add, 1, &raw mut *old) };
                end.adds += 1;
                end.asked.push_back(Asked::Add { ticket, old });
            }
            7 => {
                let (mut old, expected) = (Box::new(u64::MAX), self.swaps[peer]);
                // SAFETY: as above.
                let ticket = unsafe {
                    let new = expected + 1;
                    end.link.compare_swap(at(shared[1]), 8, expected, new, &raw mut *old)
                };
                end.asked.push_back(Asked::Swap { ticket, expected, old });
            }
            8 => {
                end.link.apply(at(shared[0]), 8, AtomicOp::Add, 1);
                end.applied += 1;
            }
            _ => {
                end.link.signal(at(shared[2]), SignalOp::Add, 1);
                end.signals += 1;
                end.link.flush();
                end.quiet = Some(end.link.needed());
            }
        }
    }

    /// A part of what `me` has to send goes on its way.
    fn send(&mut self, me: usize, peer: usize) -> bool {
        let room = CAPACITY - self.ends[peer][me].stream.len().min(CAPACITY);
        let most = self.dice.some(CAPACITY).min(room);
        let mut stream = std::mem::take(&mut self.ends[peer][me].stream);
        let end = &mut self.ends[me][peer];
        let sent = take(&mut end.link, most, &mut stream);
        // A source that was sent may change (W9).
        let written = end.link.written();
        end.sources.retain_mut(|(until, source)| {
            let done = written >= *until;
            if done {
                source.fill(0xEE);
            }
            !done
        });
        self.ends[peer][me].stream = stream;
        sent > 0
    }

    /// A part of what has come to `me` is read.
    fn receive(&mut self, me: usize, peer: usize) -> bool {
        let count = self.dice.some(CAPACITY);
        let end = &mut self.ends[me][peer];
        let some = !end.stream.is_empty();
        let came = give(&mut end.link, &mut end.stream, count, &self.memories[me]);
        came.expect("records that can be");
        assert!(end.link.buffered() <= 4 * ROOM, "W8");
        self.take_answers(me, peer);
        if self.ends[me][peer].alive {
            self.check_lane(me, peer);
        }
        some
    }

    fn take_answers(&mut self, me: usize, peer: usize) {
        let end = &mut self.ends[me][peer];
        let answered = end.link.answered();
        let ticket = |asked: &Asked| match *asked {
            Asked::Get { ticket, .. } | Asked::Add { ticket, .. } | Asked::Swap { ticket, .. } => {
                ticket
            }
        };
        while end.asked.front().is_some_and(|asked| ticket(asked) <= answered) {
            match end.asked.pop_front().unwrap() {
                Asked::Get { got, expected, .. } => {
                    assert!(got[..] == expected[..], "W1: all before the get is in it");
                }
                Asked::Add { old, .. } => {
                    assert!(self.found[peer].insert(*old), "an addition was found twice: {old}");
                }
                Asked::Swap { expected, old, .. } => {
                    let done = *old == expected;
                    self.swaps[peer] = self.swaps[peer].max(if done { expected + 1 } else { *old });
                }
            }
        }
        if end.quiet.is_some_and(|goal| end.link.acknowledged() >= goal) {
            end.quiet = None;
            let there = self.memories[peer].read(me * LANE, LANE);
            assert!(there == end.lane, "W4: what is quiet is visible");
        }
    }

    /// Whatever has come, it has come in order.
    fn check_lane(&self, me: usize, writer: usize) {
        let (memory, start) = (&self.memories[me], writer * LANE);
        let chain: Vec<u64> = (0..CHAIN).map(|link| memory.word(start + 8 * link)).collect();
        assert!(chain.is_sorted_by(|one, next| one >= next), "W1: {chain:?}");
        let signal = memory.word(start + SIGNAL);
        let block = (0..BLOCK_WORDS).map(|word| memory.word(start + BLOCK + 8 * word));
        assert!(block.into_iter().all(|word| word >= signal), "W1: before its block, {signal}");
    }

    /// The stream between two PEs is no more.
    fn reset(&mut self, one: usize, other: usize) {
        for (me, peer) in [(one, other), (other, one)] {
            let end = &mut self.ends[me][peer];
            end.link.end();
            end.stream.clear();
            end.alive = false;
            end.quiet = None;
            end.asked.clear();
        }
    }

    fn pair(&mut self) -> (usize, usize) {
        let me = self.dice.below(self.n);
        (me, (me + 1 + self.dice.below(self.n - 1)) % self.n)
    }

    /// All that is under way arrives.
    fn drain(&mut self) {
        let pairs: Vec<(usize, usize)> = (0..self.n)
            .flat_map(|me| (0..self.n).map(move |peer| (me, peer)))
            .filter(|(me, peer)| me != peer)
            .collect();
        for &(me, peer) in &pairs {
            let end = &mut self.ends[me][peer];
            if end.alive {
                end.link.need_all();
                end.link.flush();
                end.quiet = Some(end.link.needed());
            }
        }
        for round in 0.. {
            let mut moved = false;
            for &(me, peer) in &pairs {
                moved |= self.send(me, peer) | self.receive(me, peer);
            }
            if !moved {
                break;
            }
            assert!(round < 100_000, "it never ends");
        }
        for &(me, peer) in &pairs {
            let end = &self.ends[me][peer];
            if end.alive {
                assert!(end.asked.is_empty() && end.quiet.is_none(), "W3: {me} waits for {peer}");
                assert!(end.link.is_idle() && end.sources.is_empty(), "{me}, {peer}");
            }
        }
    }

    /// Each atomic was applied once; where streams broke, at most once.
    fn check_words(&self) {
        for (peer, memory) in self.memories.iter().enumerate() {
            memory.check();
            let others = || self.ends.iter().enumerate().filter(|&(me, _)| me != peer);
            let asked: u64 = others().map(|(_, ends)| ends[peer].adds).sum();
            let applied: u64 = others().map(|(_, ends)| ends[peer].applied).sum();
            let signals: u64 = others().map(|(_, ends)| ends[peer].signals).sum();
            let whole = others().all(|(_, ends)| ends[peer].alive);
            let (added, signalled) =
                (memory.word(self.shared(ADDED)), memory.word(self.shared(SIGNALLED)));
            let answered = self.found[peer].len() as u64;
            let all = asked + applied;
            assert!(answered <= added && added <= all, "{answered}, {added}, {all}");
            assert!(signalled <= signals);
            assert!(self.swaps[peer] <= memory.word(self.shared(SWAPPED)));
            if whole {
                assert_eq!((added, signalled, answered), (all, signals, asked));
                assert_eq!(self.swaps[peer], memory.word(self.shared(SWAPPED)));
            }
        }
    }
}

impl End {
    /// The next word of the chain becomes that of this round.
    fn chain(&mut self, start: usize, notifies: bool) {
        let (offset, round) = (8 * self.next, self.round);
        let to = at(start + offset);
        if notifies {
            // SAFETY: there is no block.
            unsafe { self.link.notify(None, (to, 8), round) };
        } else {
            self.link.store(to, 8, round);
        }
        self.lane[offset..offset + 8].copy_from_slice(&round.to_le_bytes());
        self.next = (self.next + 1) % CHAIN;
        self.round += u64::from(self.next == 0);
    }

    fn signalled_block(&mut self, start: usize, notifies: bool) {
        self.block += 1;
        let word = self.block.to_le_bytes();
        let bytes = word.repeat(BLOCK_WORDS);
        let (to, signal) = (at(start + BLOCK), at(start + SIGNAL));
        if notifies {
            let block = Some((to, bytes.as_ptr(), bytes.len()));
            // SAFETY: so short a block is copied.
            let end = unsafe { self.link.notify(block, (signal, 8), self.block) };
            assert_eq!(end, 0);
        } else {
            // SAFETY: so short a block is copied.
            let end = unsafe { self.link.put(to, bytes.as_ptr(), bytes.len()) };
            assert_eq!(end, 0);
            self.link.signal(signal, SignalOp::Set, self.block);
        }
        self.lane[BLOCK..FREE].copy_from_slice(&bytes);
        self.lane[SIGNAL..BLOCK].copy_from_slice(&word);
    }

    fn put(&mut self, start: usize, dice: &mut Dice) {
        let len = match dice.below(4) {
            0 => dice.below(20),
            1 => 4000 + dice.below(6000),
            _ => dice.below(600),
        };
        let offset = FREE + dice.below(LANE - FREE - len + 1);
        let source = vec![dice.roll() as u8; len].into_boxed_slice();
        // SAFETY: the source lives until it was sent, or the link's end.
        let until = unsafe { self.link.put(at(start + offset), source.as_ptr(), len) };
        self.lane[offset..offset + len].copy_from_slice(&source);
        if until > 0 {
            self.sources.push((until, source));
        }
    }

    fn get(&mut self, start: usize, dice: &mut Dice) {
        let len = if dice.below(3) == 0 { dice.below(9000) } else { dice.below(100) };
        let offset = dice.below(LANE - len + 1);
        let mut got = vec![0; len].into_boxed_slice();
        // SAFETY: the block lives until the answer, or the link's end.
        let ticket = unsafe { self.link.get(at(start + offset), got.as_mut_ptr(), len) };
        // Nobody else writes there.
        let expected = self.lane[offset..offset + len].to_vec();
        self.asked.push_back(Asked::Get { ticket, got, expected });
    }
}

fn run(seed: u64, breaks: bool) {
    let n = 2 + seed as usize % 3;
    let mut world = World::new(n, seed);
    for _ in 0..300 {
        let (me, peer) = world.pair();
        match world.dice.below(10) {
            0..4 => world.act(me, peer),
            4..7 => _ = world.send(me, peer),
            7..10 if !breaks || world.dice.below(200) > 0 => _ = world.receive(me, peer),
            _ => world.reset(me, peer),
        }
    }
    world.drain();
    world.check_words();
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let many = std::env::var("TCP_SEEDS").ok().and_then(|text| text.parse().ok());
    0..many.unwrap_or(few)
}

#[test]
fn whole_streams() {
    seeds(1500).for_each(|seed| run(seed, false));
}

#[test]
fn streams_that_break() {
    seeds(1500).for_each(|seed| run(seed << 32, true));
}

/// Two that send as much as they can, and read only what they must, both go on (W3), in memory that
/// is bounded (W8).
#[test]
fn two_that_both_send_go_on() {
    for seed in 0..20 {
        let mut world = World::new(2, seed);
        let source = vec![7u8; 4000];
        let mut done = [0; 2];
        let mut rounds = 0;
        while done.iter().any(|&puts| puts < 200) {
            rounds += 1;
            assert!(rounds < 1_000_000, "{done:?}");
            let me = world.dice.below(2);
            let end = &mut world.ends[me][1 - me];
            if end.link.has_room() && done[me] < 200 {
                // SAFETY: so short a source is copied.
                unsafe { end.link.put(at(me * LANE + FREE), source.as_ptr(), source.len()) };
                end.lane[FREE..FREE + 4000].copy_from_slice(&source);
                done[me] += 1;
                assert!(end.link.buffered() <= ROOM + 4000 + 2 * HEADER);
            } else if !world.send(me, 1 - me) {
                world.receive(me, 1 - me);
            }
        }
        world.drain();
    }
}
