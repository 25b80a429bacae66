//! A random program of puts, gets, signals and atomics: each PE writes to the next one's memory,
//! and knows what that must hold.
//!
//! The blocks have all lengths up to those that pass every limit on their way. What each PE does
//! follows from a seed, so the PE whose memory it is can tell what was written there, without a
//! word from the writer.

use memonet::{Job, Result, SignalOp, Window};
use std::ops::Range;
use std::time::Duration;

/// The longest block.
const LONGEST: usize = 32 << 20;
/// Bytes of memory that each PE has for the one before it.
const ROOM: usize = LONGEST + 4096;
/// Lengths around each limit of what a block passes through: a word, a page, and the block from
/// which on the machine gives shared pages back.
const LIMITS: [usize; 11] =
    [1, 8, 9, 4095, 4096, 4097, 300_000, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, LONGEST];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Put,
    PutNbi,
    PutSignal,
    Get,
    Store,
    Add,
    Swap,
    CompareSwap,
}

/// What a PE does with some bytes of the next PE's memory.
#[derive(Debug, Clone)]
struct Step {
    kind: Kind,
    at: Range<usize>,
    /// Where the bytes that it writes begin in the noise; or its operand.
    operand: usize,
}

/// Numbers of 31 bits that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn block(&mut self, kind: Kind, len: usize) -> Step {
        let start = self.below(ROOM - len + 1);
        Step { kind, at: start..start + len, operand: self.below(ROOM - len + 1) }
    }

    /// Of any order of magnitude alike, and not long.
    fn short_block(&mut self, kind: Kind) -> Step {
        let most = 1 << self.below(15);
        let len = 1 + self.below(most);
        self.block(kind, len)
    }

    fn word(&mut self) -> Step {
        // Few places, so that many steps meet.
        let start = 8 * self.below(16);
        Step {
            kind: [Kind::Store, Kind::Add, Kind::Swap, Kind::CompareSwap][self.below(4)],
            at: start..start + 8,
            operand: self.below(1 << 31),
        }
    }
}

/// All that PE `pe` does: its share of the lengths, in random order. A long get comes right before
/// a put, and a long put right before a get: what one leaves behind is in the way of the other.
fn steps(pe: usize, npes: usize, seed: u64) -> Vec<Step> {
    let (mut lengths, mut common) = (LIMITS, Random(seed));
    (1..lengths.len()).for_each(|last| lengths.swap(last, common.below(last + 1)));
    let mut random = Random(seed << 8 | pe as u64);
    let mut steps = Vec::new();
    for len in lengths.into_iter().skip(pe).step_by(npes) {
        let kind = [Kind::Put, Kind::PutNbi, Kind::PutSignal][random.below(3)];
        steps.extend([random.block(Kind::Get, len), random.short_block(kind), random.word()]);
        steps.extend([random.block(kind, len), random.short_block(Kind::Get), random.word()]);
        steps.extend([
            random.short_block(Kind::Put),
            random.short_block(Kind::PutNbi),
            random.word(),
        ]);
    }
    steps
}

/// Memory as it must be.
struct Model(Vec<u8>);

impl Model {
    fn word(&self, at: &Range<usize>) -> u64 {
        u64::from_le_bytes(self.0[at.clone()].try_into().expect("8 bytes"))
    }

    fn apply(&mut self, step: &Step, noise: &[u8]) {
        let (at, operand) = (step.at.clone(), step.operand as u64);
        let word = match step.kind {
            Kind::Get => return,
            Kind::Put | Kind::PutNbi | Kind::PutSignal => {
                self.0[at].copy_from_slice(&noise[step.operand..][..step.at.len()]);
                return;
            }
            Kind::Add => self.word(&at).wrapping_add(operand),
            Kind::Store | Kind::Swap | Kind::CompareSwap => operand,
        };
        self.0[at].copy_from_slice(&word.to_le_bytes());
    }
}

/// A PE's means.
struct Writer<'a> {
    job: &'a Job,
    next: usize,
    memory: &'a Window<u8>,
    signals: &'a Window<u64>,
    /// In a window too, for what is read from there later.
    noise: (&'a [u8], &'a Window<u8>),
    /// What has been written, and may not be visible yet.
    under_way: Vec<Range<usize>>,
    model: Model,
}

impl Writer<'_> {
    fn take(&mut self, step: &Step) -> Result<()> {
        let (at, next) = (&step.at, self.next);
        // Only then it is in order.
        if self.under_way.iter().any(|range| range.start < at.end && at.start < range.end) {
            self.job.quiet()?;
            self.under_way.clear();
        }
        let from = step.operand..step.operand + at.len();
        let word = || self.memory.remote_word::<u64>(next, at.start);
        let held = match step.kind {
            Kind::Put => self.memory.put(next, at.start, &self.noise.0[from]).map(|()| None)?,
            Kind::PutNbi => {
                self.memory.put_nbi(next, at.start, self.noise.1, from).map(|()| None)?
            }
            Kind::PutSignal => {
                let block = &self.noise.0[from];
                self.memory.put_signal(next, at.start, block, self.signals, 0, SignalOp::Add, 1)?;
                None
            }
            Kind::Get => {
                let mut block = vec![0; at.len()];
                self.memory.get(next, at.start, &mut block)?;
                assert!(block == self.model.0[at.clone()], "PE {}: {step:?}", self.job.pe());
                return Ok(());
            }
            Kind::Store => {
                word()?.store(step.operand as u64);
                None
            }
            Kind::Add => Some(word()?.fetch_add(step.operand as u64)?),
            Kind::Swap => Some(word()?.swap(step.operand as u64)?),
            Kind::CompareSwap => {
                Some(word()?.compare_swap(self.model.word(at), step.operand as u64)?)
            }
        };
        match held {
            Some(held) => assert_eq!(held, self.model.word(at), "PE {}: {step:?}", self.job.pe()),
            None => self.under_way.push(at.clone()),
        }
        self.model.apply(step, self.noise.0);
        Ok(())
    }
}

/// Does all of it, and panics where any memory is not as it must be. Gives the time that it took,
/// by `now`.
pub fn run(job: &Job, seed: u64, now: impl Fn() -> Duration) -> Result<Duration> {
    let mut noise = vec![0; ROOM];
    let mut random = Random(seed);
    noise
        .chunks_mut(4)
        .for_each(|word| word.copy_from_slice(&random.below(1 << 31).to_le_bytes()[..4]));
    let (memory, source) = (job.window::<u8>(ROOM)?, job.window::<u8>(ROOM)?);
    let signals = job.window::<u64>(1)?;
    source.write_from(0, &noise);
    job.barrier()?;

    let start = now();
    let mut writer = Writer {
        job,
        next: (job.pe() + 1) % job.npes(),
        memory: &memory,
        signals: &signals,
        noise: (&noise, &source),
        under_way: Vec::new(),
        model: Model(vec![0; ROOM]),
    };
    let (me, n) = (job.pe(), job.npes());
    steps(me, n, seed).iter().try_for_each(|step| writer.take(step))?;
    job.barrier()?;
    let time = now() - start;

    let before = steps((me + n - 1) % n, n, seed);
    let mut expected = Model(vec![0; ROOM]);
    before.iter().for_each(|step| expected.apply(step, &noise));
    assert!(memory.to_vec() == expected.0, "the memory of PE {} is not what was written", job.pe());
    let signalled = before.iter().filter(|step| matches!(step.kind, Kind::PutSignal)).count();
    assert_eq!(signals.read(0), signalled as u64, "signals to PE {}", job.pe());
    Ok(time)
}
