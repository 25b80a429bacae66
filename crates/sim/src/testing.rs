//! A machine without programs, for the tests of NIC kinds.

use crate::host::{Answer, Command, HostOp, Op, Signal};
use crate::machine::Machine;
use crate::memory::PlainMemory;
use crate::op::Pe;
use crate::packet::Payload;
use crate::time::Ps;
use crate::world::{Happened, Wake, World};
use memonet_core::unstable::fabric::{FarAddress, SignalOp};
use std::collections::BTreeMap;

/// Bytes of each PE.
pub(crate) const BYTES: usize = 1 << 16;

/// A machine whose PEs do what a test says, call by call.
pub(crate) struct Bench {
    pub(crate) world: World,
    numbers: Vec<u32>,
    answers: BTreeMap<Op, (Ps, Answer)>,
    /// When the memory of each PE has changed last.
    pub(crate) changed: Vec<Option<Ps>>,
}

pub(crate) fn at(pe: u32, offset: u64) -> FarAddress {
    FarAddress { pe, region: 0, offset }
}

impl Bench {
    pub(crate) fn new(machine: &str, pes: u32) -> Bench {
        Bench::of(&Machine::load(machine).unwrap(), pes, 1)
    }

    pub(crate) fn of(machine: &Machine, pes: u32, seed: u64) -> Bench {
        let memory = PlainMemory::new(pes as usize, BYTES);
        Bench {
            world: World::build(machine, pes, seed, Box::new(memory)).unwrap(),
            numbers: vec![0; pes as usize],
            answers: BTreeMap::new(),
            changed: vec![None; pes as usize],
        }
    }

    /// Begins a call now.
    pub(crate) fn begin(&mut self, pe: u32, what: HostOp) -> Op {
        let number = &mut self.numbers[pe as usize];
        *number += 1;
        let op = Op { pe: Pe(pe), number: *number };
        self.world.begin(op, what);
        op
    }

    fn step(&mut self) -> bool {
        match self.world.next() {
            None => return false,
            Some(Happened::Answered(op, answer)) => {
                let before = self.answers.insert(op, (self.world.now(), answer));
                assert!(before.is_none(), "{op:?} is answered twice");
            }
            Some(Happened::Changed(pe) | Happened::News(pe)) => {
                self.changed[pe.index()] = Some(self.world.now())
            }
            Some(Happened::Woken(_) | Happened::Nothing) => {}
            Some(unrouted @ Happened::Unrouted(..)) => panic!("{unrouted:?}"),
        }
        true
    }

    /// When a call returned, and what.
    pub(crate) fn answer(&mut self, op: Op) -> (Ps, Answer) {
        while !self.answers.contains_key(&op) {
            assert!(self.step(), "{op:?} is not answered, and nothing is left that could happen");
        }
        self.answers.remove(&op).unwrap()
    }

    /// A call from begin to end.
    pub(crate) fn call(&mut self, pe: u32, what: HostOp) -> Answer {
        let op = self.begin(pe, what);
        self.answer(op).1
    }

    /// A command that is not refused.
    pub(crate) fn command(&mut self, pe: u32, command: Command) -> u64 {
        let answer = self.call(pe, HostOp::Command(command));
        assert_eq!(answer.refused, None);
        answer.value
    }

    /// Until nothing is left that could happen.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    /// Until this time at least, if anything happens by then.
    pub(crate) fn run_until(&mut self, time: Ps) {
        // Nobody reads what it is for.
        self.world.wake(time, Wake::Departures);
        while self.world.now() < time && self.step() {}
    }

    pub(crate) fn bytes(&mut self, from: FarAddress, len: usize) -> Vec<u8> {
        let payload = self.world.memory().read(Pe(from.pe), from, len).unwrap();
        payload.with(<[u8]>::to_vec)
    }

    pub(crate) fn set(&mut self, to: FarAddress, bytes: &[u8]) {
        self.world.memory().write(Pe(to.pe), to, &Payload::copy(bytes)).unwrap();
    }

    /// Nothing is under way, nothing was lost or made, and what was promised has come.
    pub(crate) fn assert_conserved(&mut self) {
        let counts = self.world.counts();
        assert_eq!(self.world.under_way(), 0, "packets are under way");
        assert_eq!(
            counts.sent + counts.copied,
            counts.arrived + counts.lost + counts.absorbed,
            "{counts:?}"
        );
        for pe in 0..self.numbers.len() as u32 {
            assert!(
                self.world.is_quiet(Pe(pe)),
                "writes of PE {pe} have been promised, and have not landed"
            );
        }
    }
}

/// What any kind must do with what the library sends: puts of every length, stores, signals, and
/// what agents make of gets and atomics, from and to every PE, at once.
pub(crate) fn carries_the_library(machine: &Machine, pes: u32) {
    let mut bench = Bench::of(machine, pes, 7);
    let mut expected = vec![vec![0u8; BYTES]; pes as usize];
    let mut ops = Vec::new();
    for from in 0..pes {
        for to in 0..pes {
            let place = 4096 * u64::from(from) + 64;
            let bytes: Vec<u8> = (0..100 + 700 * to as usize)
                .map(|i| (i as u32 * 7 + from * 31 + to) as u8)
                .collect();
            let signal = Signal {
                at: at(to, 8 * u64::from(from)),
                op: SignalOp::Set,
                value: 1 + u64::from(from),
            };
            expected[to as usize][place as usize..][..bytes.len()].copy_from_slice(&bytes);
            expected[to as usize][8 * from as usize] = 1 + from as u8;
            let put = HostOp::Put {
                to: at(to, place),
                data: Payload::copy(&bytes),
                signal: Some(signal),
                reuse: from % 2 == 0,
            };
            ops.push(bench.begin(from, put));
            let add = Signal { at: at(to, 60_000), op: SignalOp::Add, value: 3 };
            let add =
                HostOp::Put { to: at(to, 0), data: Payload::EMPTY, signal: Some(add), reuse: true };
            ops.push(bench.begin(from, add));
        }
    }
    for expected in &mut expected {
        expected[60_000..60_008].copy_from_slice(&(3 * u64::from(pes)).to_le_bytes());
    }
    ops.extend((0..pes).map(|pe| bench.begin(pe, HostOp::Quiet)).collect::<Vec<_>>());
    for op in ops {
        assert_eq!(bench.answer(op).1.refused, None);
    }
    for pe in 0..pes {
        assert!(
            bench.bytes(at(pe, 0), BYTES) == expected[pe as usize],
            "memory of PE {pe} after quiet"
        );
    }
    // What agents or hardware read is what was written.
    for from in 0..pes {
        let to = (from + 1) % pes;
        let got = bench.call(from, HostOp::Get { from: at(to, 64), len: 9000 });
        got.data.with(|bytes| {
            assert!(bytes == &expected[to as usize][64..9064], "a long get of PE {from}")
        });
    }
    bench.run();
    bench.assert_conserved();
}
