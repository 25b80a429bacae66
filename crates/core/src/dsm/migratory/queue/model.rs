//! Explores all that can happen to a few PEs that use the queue: every interleaving of their steps,
//! every order of delivery of their writes, and stores that stay in the processor until a fence. A
//! call with a time limit may find its time up at any moment.
//!
//! A PE is the code itself. For each step its call runs again from the beginning, with the answers
//! that it got so far, and stops where it needs one more. States that were seen before are not
//! explored again.

use super::{Position, Queue, Word, World, beginning};
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// A PE's next operation.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Load(Word),
    Store(Word, u64),
    Publish(Word, u64),
    Swap(u64),
    Absent(usize, usize, u64, u64),
    Write(usize, Word, u64),
    Complete,
    Look(usize, Word),
    /// Is time up?
    Late,
    /// Holds the word's value if it is as wanted.
    Wait(Option<u64>),
    Fetch(usize),
    /// Reads the data, as the PE that is in.
    Read,
    /// Adds one to the data, and leaves.
    Add,
}

const TIME_IS_UP: u64 = u64::MAX;

/// The next answer is not known yet.
struct Stop;

/// A PE's call as far as its answers go.
struct Replay<'a> {
    me: usize,
    answers: &'a [u64],
    used: Cell<usize>,
    asks: Cell<Option<Ask>>,
    memory: &'a Words,
}

impl Replay<'_> {
    fn ask(&self, ask: Ask) -> Result<u64, Stop> {
        let used = self.used.get();
        if let Some(&answer) = self.answers.get(used) {
            self.used.set(used + 1);
            return Ok(answer);
        }
        if self.asks.get().is_none() {
            self.asks.set(Some(ask));
        }
        Err(Stop)
    }

    fn call(&self, queue: &mut Queue) -> Result<(), Stop> {
        if queue.enter(self)? {
            self.ask(Ask::Read)?;
            self.ask(Ask::Add)?;
            queue.leave(self)?;
        }
        Ok(())
    }
}

impl World for Replay<'_> {
    type Error = Stop;

    fn me(&self) -> usize {
        self.me
    }
    fn load(&self, word: Word) -> Result<u64, Stop> {
        self.ask(Ask::Load(word))
    }
    fn store(&self, word: Word, value: u64) -> Result<(), Stop> {
        self.ask(Ask::Store(word, value)).map(drop)
    }
    fn publish(&self, word: Word, value: u64) -> Result<(), Stop> {
        self.ask(Ask::Publish(word, value)).map(drop)
    }
    fn swap_last(&self, position: u64) -> Result<u64, Stop> {
        self.ask(Ask::Swap(position))
    }
    fn swap_absent(&self, pe: usize, slot: usize, expected: u64, new: u64) -> Result<u64, Stop> {
        self.ask(Ask::Absent(pe, slot, expected, new))
    }
    fn write(&self, pe: usize, word: Word, value: u64) -> Result<(), Stop> {
        self.ask(Ask::Write(pe, word, value)).map(drop)
    }
    fn complete(&self) -> Result<(), Stop> {
        self.ask(Ask::Complete).map(drop)
    }
    fn look(&self, pe: usize, slot: usize) -> Result<[u64; 2], Stop> {
        Ok([
            self.ask(Ask::Look(pe, Word::State(slot)))?,
            self.ask(Ask::Look(pe, Word::Absent(slot)))?,
        ])
    }
    fn notify(&self, pe: usize, news: u64) -> Result<(), Stop> {
        self.ask(Ask::Write(pe, Word::News, news)).map(drop)
    }
    fn is_late(&self) -> Result<bool, Stop> {
        self.ask(Ask::Late).map(|answer| answer == TIME_IS_UP)
    }
    fn wait(&self, word: Word, wanted: impl Fn(u64) -> bool) -> Result<Option<u64>, Stop> {
        let now = Some(*self.memory.at(word)).filter(|&now| wanted(now));
        let answer = self.ask(Ask::Wait(now))?;
        Ok(Some(answer).filter(|&answer| answer != TIME_IS_UP))
    }
    fn fetch(&self, from: usize) -> Result<(), Stop> {
        self.ask(Ask::Fetch(from)).map(drop)
    }
}

/// A PE's words as all PEs see them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Words {
    state: [u64; 2],
    absent: [u64; 2],
    next: [u64; 2],
    passed: [u64; 2],
    news: u64,
}

impl Words {
    fn at(&self, word: Word) -> &u64 {
        match word {
            Word::State(slot) => &self.state[slot],
            Word::Absent(slot) => &self.absent[slot],
            Word::Next(slot) => &self.next[slot],
            Word::Passed(slot) => &self.passed[slot],
            Word::News => &self.news,
        }
    }

    fn set(&mut self, word: Word, value: u64) {
        *match word {
            Word::State(slot) => &mut self.state[slot],
            Word::Absent(slot) => &mut self.absent[slot],
            Word::Next(slot) => &mut self.next[slot],
            Word::Passed(slot) => &mut self.passed[slot],
            Word::News => &mut self.news,
        } = value;
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pe {
    words: Words,
    /// Stores that only this PE sees so far.
    stored: Vec<(Word, u64)>,
    data: u64,
    /// What it read; `None` unless it is in.
    read: Option<u64>,
    queue: Queue,
    /// Answers to the call under way.
    answers: Vec<u64>,
    /// The calls to come, last first: whether each may wait for ever.
    calls: Vec<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    pes: Vec<Pe>,
    last: u64,
    /// Writes on their way, sorted: writer, target, word, value.
    under_way: Vec<(usize, usize, Word, u64)>,
    /// How often a PE was in.
    turns: u64,
}

/// A guarantee that the queue depends on; tests take it away.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    Fences,
    Completion,
}

impl State {
    fn new(calls: &[&[bool]]) -> Self {
        let (last, word, open) = beginning(0);
        let pe = |(number, calls): (usize, &&[bool])| {
            let mut words = Words::default();
            if number == 0 {
                words.set(word, open);
            }
            Pe {
                words,
                stored: Vec::new(),
                data: 0,
                read: None,
                queue: Queue::new(number == 0),
                answers: Vec::new(),
                calls: calls.iter().rev().copied().collect(),
            }
        };
        State {
            pes: calls.iter().enumerate().map(pe).collect(),
            last,
            under_way: Vec::new(),
            turns: 0,
        }
    }

    /// The PE's next operation, if it has a call to make.
    fn asks(&mut self, me: usize) -> Option<Ask> {
        let pe = &mut self.pes[me];
        while !pe.calls.is_empty() {
            let mut queue = pe.queue.clone();
            let replay = Replay {
                me,
                answers: &pe.answers,
                used: Cell::new(0),
                asks: Cell::new(None),
                memory: &pe.words,
            };
            if replay.call(&mut queue).is_err() {
                return replay.asks.get();
            }
            pe.calls.pop();
            pe.answers.clear();
            pe.queue = queue;
        }
        None
    }

    /// Runs operations that no other PE can observe or influence.
    fn settle(mut self, broken: Broken) -> State {
        for me in 0..self.pes.len() {
            while let Some(ask @ (Ask::Store(..) | Ask::Complete)) = self.asks(me)
                && let Some(answer) = self.answer(me, ask, broken)
            {
                self.pes[me].answers.push(answer);
            }
        }
        self
    }

    /// All states that can come next.
    fn successors(&self, broken: Broken) -> Vec<State> {
        let mut all = Vec::new();
        for index in 0..self.under_way.len() {
            let mut state = self.clone();
            let (_, pe, word, value) = state.under_way.remove(index);
            state.pes[pe].words.set(word, value);
            all.push(state);
        }
        for me in 0..self.pes.len() {
            if !self.pes[me].stored.is_empty() {
                let mut state = self.clone();
                let (word, value) = state.pes[me].stored.remove(0);
                state.pes[me].words.set(word, value);
                all.push(state);
            }
            let mut state = self.clone();
            let Some(ask) = state.asks(me) else { continue };
            let impatient = state.pes[me].calls.last() == Some(&false);
            if let (Ask::Wait(_) | Ask::Late, true) = (ask, impatient) {
                let mut state = state.clone();
                state.pes[me].answers.push(TIME_IS_UP);
                all.push(state);
            }
            if let Some(answer) = state.answer(me, ask, broken) {
                state.pes[me].answers.push(answer);
                all.push(state);
            }
        }
        all.into_iter().map(|state| state.settle(broken)).collect()
    }

    /// Carries out an operation; `None` if it has to wait.
    fn answer(&mut self, me: usize, ask: Ask, broken: Broken) -> Option<u64> {
        match ask {
            Ask::Load(word) => {
                let pe = &self.pes[me];
                let own = pe.stored.iter().rev().find(|(stored, _)| *stored == word);
                return Some(own.map_or(*pe.words.at(word), |&(_, value)| value));
            }
            Ask::Publish(word, value) if broken != Broken::Fences => {
                let pe = &mut self.pes[me];
                if !pe.stored.is_empty() {
                    return None;
                }
                pe.words.set(word, value);
            }
            Ask::Store(word, value) | Ask::Publish(word, value) => {
                self.pes[me].stored.push((word, value))
            }
            Ask::Swap(position) => return Some(std::mem::replace(&mut self.last, position)),
            Ask::Absent(pe, slot, expected, new) => {
                let absent = &mut self.pes[pe].words.absent[slot];
                let was = *absent;
                if was == expected {
                    *absent = new;
                }
                return Some(was);
            }
            Ask::Write(pe, word, value) => {
                self.under_way.push((me, pe, word, value));
                self.under_way.sort_unstable();
            }
            Ask::Complete => {
                let left = self.under_way.iter().any(|&(from, ..)| from == me);
                if left && broken != Broken::Completion {
                    return None;
                }
            }
            Ask::Look(pe, word) => return Some(*self.pes[pe].words.at(word)),
            Ask::Late => {}
            Ask::Wait(now) => return now,
            Ask::Fetch(from) => {
                assert!(self.pes[from].read.is_none(), "PE {me} gets what PE {from} is changing");
                self.pes[me].data = self.pes[from].data;
            }
            Ask::Read => {
                assert!(self.pes.iter().all(|pe| pe.read.is_none()), "two are in");
                assert_eq!(self.pes[me].data, self.turns, "PE {me} has an old version");
                self.pes[me].read = Some(self.turns);
            }
            Ask::Add => {
                let pe = &mut self.pes[me];
                pe.data = pe.read.take().expect("it is in") + 1;
                self.turns += 1;
            }
        }
        Some(0)
    }
}

/// A hash by folded products. The standard one took half of the time here.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The first digits of pi and of e.
        let (left, right) = (self.0 ^ 0x243F_6A88_85A3_08D3, word ^ 0xB7E1_5162_8AED_2A6B);
        let product = u128::from(left) * u128::from(right);
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23).wrapping_add(word);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Explores all states of PEs that make these calls, and gives their number. `true` is a call
/// without a time limit.
fn explore(calls: &[&[bool]], broken: Broken) -> usize {
    let patient =
        calls.iter().map(|calls| calls.iter().filter(|&&time| time).count() as u64).sum::<u64>();
    let start = State::new(calls);
    // 64 bits of hash stand for a state: a collision among so few states is not to be expected.
    let hasher = BuildHasherDefault::<Folded>::new();
    let mut seen = HashSet::from([hasher.hash_one(&start)]);
    let mut open = vec![start];
    while let Some(mut state) = open.pop() {
        let next = state.successors(broken);
        if next.is_empty() {
            let waits = (0..state.pes.len()).find(|&pe| state.asks(pe).is_some());
            assert!(waits.is_none(), "PE {waits:?} waits for ever: {state:#?}");
            assert!(state.turns >= patient);
        }
        for state in next {
            if seen.insert(hasher.hash_one(&state)) {
                open.push(state);
            }
        }
    }
    seen.len()
}

/// A call without a time limit, and one whose time may be up whenever it waits.
const LOCK: bool = true;
const TRY: bool = false;

fn all_goes_well(calls: &[&[bool]]) {
    assert!(explore(calls, Broken::Nothing) > 1000);
}

#[test]
fn two_lock() {
    all_goes_well(&[&[LOCK, LOCK], &[LOCK, LOCK]]);
}

#[test]
fn one_gives_up() {
    all_goes_well(&[&[LOCK, LOCK], &[TRY, LOCK]]);
}

#[test]
fn both_give_up() {
    all_goes_well(&[&[TRY, LOCK], &[TRY, TRY]]);
}

#[test]
fn three_lock() {
    all_goes_well(&[&[LOCK], &[LOCK], &[LOCK]]);
}

/// Without optimisation this takes minutes, so only the first world runs. `make loom` runs all.
#[test]
fn larger_worlds() {
    let worlds: &[&[&[bool]]] = &[
        &[&[LOCK], &[], &[TRY, TRY, LOCK]],
        &[&[LOCK, LOCK, LOCK], &[LOCK, LOCK, LOCK]],
        &[&[LOCK, LOCK, LOCK], &[TRY, TRY, LOCK]],
        &[&[TRY, TRY, TRY, LOCK], &[TRY, TRY, TRY]],
        &[&[LOCK], &[LOCK, LOCK], &[LOCK]],
        &[&[LOCK], &[TRY], &[TRY, LOCK]],
        &[&[LOCK], &[TRY, LOCK], &[LOCK]],
    ];
    let optimised = !cfg!(debug_assertions);
    worlds
        .iter()
        .take(if optimised { worlds.len() } else { 1 })
        .for_each(|calls| all_goes_well(calls));
}

/// The model finds the errors that missing guarantees cause.
#[test]
fn without_fences_or_completion_it_fails() {
    for broken in [Broken::Fences, Broken::Completion] {
        let failed = std::panic::catch_unwind(|| explore(&[&[LOCK, LOCK], &[LOCK, LOCK]], broken));
        assert!(failed.is_err());
    }
}

/// A world in which the PE before this one comes back and gives up between any two looks.
struct Restless {
    /// Each look finds it waiting, and it notifies of each change; or each look finds it away.
    notifies: bool,
    looks: Cell<u32>,
}

impl World for Restless {
    type Error = Stop;

    fn me(&self) -> usize {
        1
    }
    fn load(&self, _: Word) -> Result<u64, Stop> {
        Ok(0)
    }
    fn store(&self, _: Word, _: u64) -> Result<(), Stop> {
        Ok(())
    }
    fn publish(&self, _: Word, _: u64) -> Result<(), Stop> {
        Ok(())
    }
    fn swap_last(&self, _: u64) -> Result<u64, Stop> {
        Ok(Position { pe: 0, number: 1 }.bits())
    }
    fn swap_absent(&self, _: usize, _: usize, _: u64, _: u64) -> Result<u64, Stop> {
        Ok(0)
    }
    fn write(&self, _: usize, _: Word, _: u64) -> Result<(), Stop> {
        Ok(())
    }
    fn complete(&self) -> Result<(), Stop> {
        Ok(())
    }
    fn look(&self, _: usize, _: usize) -> Result<[u64; 2], Stop> {
        self.looks.set(self.looks.get() + 1);
        assert!(self.looks.get() < 100, "it looks, though its time is up");
        Ok([super::BUSY, if self.notifies { 0 } else { super::AWAY }])
    }
    fn notify(&self, _: usize, _: u64) -> Result<(), Stop> {
        Ok(())
    }
    fn is_late(&self) -> Result<bool, Stop> {
        Ok(self.looks.get() >= 10)
    }
    fn wait(&self, word: Word, _: impl Fn(u64) -> bool) -> Result<Option<u64>, Stop> {
        Ok(Some(if word == Word::News { super::AWAY } else { 0 }))
    }
    fn fetch(&self, _: usize) -> Result<(), Stop> {
        Ok(())
    }
}

#[test]
fn one_before_that_comes_and_goes_does_not_keep_others() {
    for notifies in [false, true] {
        let world = Restless { notifies, looks: Cell::new(0) };
        assert!(matches!(Queue::new(false).enter(&world), Ok(false)));
    }
}

#[test]
fn positions_are_words() {
    for (pe, number) in [(0, 1), (7, 2), ((1 << 20) - 1, (1 << 42) - 1)] {
        let position = Position { pe, number };
        assert_eq!(Position::of(position.bits() << 2 >> 2), position);
    }
}
