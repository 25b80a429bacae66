use super::super::interface::{prefetch, read, read_window};
use super::*;
use crate::host::HostOp;
use crate::machine::Machine;
use crate::testing::{Bench, at};
use crate::time::Ps;
use proptest::prelude::*;

/// The times of dimmnet-2.toml, in nanoseconds.
const LOOK: u64 = 269;
const WRITE: u64 = 106;
const DECODE: u64 = 100;
const READ: u64 = 120;
const CYCLE: u64 = 10;

fn bench() -> Bench {
    let mut bench = Bench::new("dimmnet-2", 2);
    let bytes: Vec<u8> = (0..crate::testing::BYTES).map(|i| (i * i % 251) as u8).collect();
    bench.set(at(0, 0), &bytes);
    bench
}

/// A call of PE 0: what it took, and the bytes that it brought.
fn took(bench: &mut Bench, command: Command) -> (Ps, Vec<u8>) {
    let begin = bench.world.now();
    let op = bench.begin(0, HostOp::Command(command));
    let (end, answer) = bench.answer(op);
    assert_eq!(answer.refused, None);
    (end - begin, answer.data.with(<[u8]>::to_vec))
}

/// The host does not wait for the core logic, and then reads at the slot's speed.
#[test]
fn what_is_prefetched_waits_for_the_host() {
    let mut bench = bench();
    assert_eq!(took(&mut bench, prefetch(0, at(0, 64), 800)).0, Ps::ns(WRITE));
    let (time, bytes) = took(&mut bench, read_window(0, 800));
    assert_eq!(bytes, bench.bytes(at(0, 64), 800));
    assert_eq!(time, Ps::ns(DECODE + READ + 100 * CYCLE + 100 * LOOK));
    assert_eq!(took(&mut bench, read_window(80, 21)), (Ps::ns(3 * LOOK), bytes[80..101].to_vec()));
    let (time, direct) = took(&mut bench, read(at(0, 64), 800));
    assert_eq!((time, direct), (Ps::ns(100 * (LOOK + READ + CYCLE)), bytes));
    bench.run();
    bench.assert_conserved();
}

/// A read waits for prefetches of what it reads, and for no others.
#[test]
fn halves_of_the_window_are_filled_and_read_by_turns() {
    let mut bench = bench();
    took(&mut bench, prefetch(0, at(0, 0), 2048));
    took(&mut bench, prefetch(2048, at(0, 4096), 2048));
    let first = DECODE + READ + 256 * CYCLE - WRITE;
    let (time, bytes) = took(&mut bench, read_window(0, 2048));
    assert_eq!((time, bytes), (Ps::ns(first + 256 * LOOK), bench.bytes(at(0, 0), 2048)));
    // The second came while the first was read.
    let (time, bytes) = took(&mut bench, read_window(2048, 2048));
    assert_eq!((time, bytes), (Ps::ns(256 * LOOK), bench.bytes(at(0, 4096), 2048)));
}

/// What comes into the memory later is not in the window; a read without the window sees it.
#[test]
fn the_window_is_no_cache() {
    let mut bench = bench();
    took(&mut bench, prefetch(0, at(0, 64), 8));
    bench.run();
    let before = bench.bytes(at(0, 64), 8);
    let word = Payload::word(8, u64::MAX);
    bench.call(1, HostOp::Store { to: at(0, 64), word });
    bench.call(1, HostOp::Quiet);
    assert_eq!(took(&mut bench, read_window(0, 8)).1, before);
    assert_eq!(took(&mut bench, read(at(0, 64), 8)).1, [255; 8]);
    took(&mut bench, prefetch(0, at(0, 64), 8));
    assert_eq!(took(&mut bench, read_window(0, 8)).1, [255; 8]);
}

/// The core logic does one thing at a time: what is being sent delays a prefetch and a read, and a
/// prefetch delays what is sent.
#[test]
fn sends_and_prefetches_share_the_core_logic() {
    let put = || {
        let data = Payload::copy(&[7; 2048]);
        HostOp::Put { to: at(1, 0), data, signal: None, reuse: false }
    };
    let alone = took(&mut bench(), read(at(0, 0), 8)).0;
    let mut busy = bench();
    busy.call(0, put());
    let (time, _) = took(&mut busy, read(at(0, 0), 8));
    let sending = DECODE + READ + (2048 + 34_u64).div_ceil(8) * CYCLE + CYCLE;
    assert_eq!(time, alone + Ps::ns(sending - LOOK));
    let lands = |before: Option<Command>| {
        let mut bench = bench();
        let begin = bench.world.now();
        if let Some(command) = before {
            took(&mut bench, command);
        }
        bench.call(0, put());
        bench.run();
        bench.changed[1].unwrap() - begin
    };
    // The driver's own time for the put hides a part of the prefetch.
    let late = lands(Some(prefetch(0, at(0, 0), 4096))) - lands(None);
    assert_eq!(late, Ps::ns(WRITE + DECODE + READ + 512 * CYCLE - 324 - WRITE));
}

#[test]
fn what_cannot_be_prefetched_is_refused() {
    let mut bench = bench();
    let mut refused = |command| bench.call(0, HostOp::Command(command)).refused.unwrap();
    assert!(refused(prefetch(0, at(0, 0), 4097)).contains("which has 4096"));
    assert!(refused(prefetch(4090, at(0, 0), 7)).contains("which has 4096"));
    assert!(refused(prefetch(u64::MAX, at(0, 0), 7)).contains("which has 4096"));
    assert!(refused(read_window(4096, 1)).contains("which has 4096"));
    assert!(refused(prefetch(0, at(1, 0), 8)).contains("in another"));
    assert!(refused(read(at(1, 0), 8)).contains("in another"));
    assert!(refused(prefetch(0, at(0, 1 << 16), 1)).contains("no 1 bytes"));
    assert!(refused(read(at(0, 0), 1 << 21)).contains("more than"));
    assert!(refused(read(at(0, 0), (1 << 16) + 1)).contains("no 65537 bytes"));
    let without = include_str!("../../../../../../machines/dimmnet-2.toml")
        .lines()
        .filter(|line| !line.starts_with("window = "))
        .collect::<Vec<_>>()
        .join("\n");
    let machine = Machine::parse("without", &without, None).unwrap();
    let mut bench = Bench::of(&machine, 2, 1);
    for command in [prefetch(0, at(0, 0), 8), read_window(0, 8)] {
        let why = bench.call(0, HostOp::Command(command)).refused.unwrap();
        assert!(why.contains("no window") && why.contains("nic.window"), "{why}");
    }
    assert_eq!(took(&mut bench, read(at(0, 0), 5)).1, [0; 5]);
}

#[derive(Debug, Clone)]
enum Step {
    Prefetch { at: u64, from: u64, len: u64 },
    ReadWindow { at: u64, len: u64 },
    Read { from: u64, len: u64 },
    Write { at: u64, byte: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..4096u64).prop_flat_map(|at| (Just(at), 0..=4096 - at));
    prop_oneof![
        (place(), 0..60_000u64).prop_map(|((at, len), from)| Step::Prefetch { at, from, len }),
        place().prop_map(|(at, len)| Step::ReadWindow { at, len }),
        place().prop_map(|(from, len)| Step::Read { from, len }),
        (0..60_000u64, any::<u8>()).prop_map(|(at, byte)| Step::Write { at, byte }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Against a plain array, where memory changes only after all prefetches are over.
    #[test]
    fn the_window_has_what_was_prefetched(steps in prop::collection::vec(step(), 1..30)) {
        let mut bench = bench();
        let mut window = vec![0; 4096];
        for step in steps {
            match step {
                Step::Prefetch { at: place, from, len } => {
                    took(&mut bench, prefetch(place, at(0, from), len));
                    let bytes = bench.bytes(at(0, from), len as usize);
                    window[place as usize..][..len as usize].copy_from_slice(&bytes);
                }
                Step::ReadWindow { at, len } => {
                    let (_, bytes) = took(&mut bench, read_window(at, len));
                    prop_assert_eq!(&bytes[..], &window[at as usize..][..len as usize]);
                }
                Step::Read { from, len } => {
                    let (_, bytes) = took(&mut bench, read(at(0, from), len));
                    prop_assert_eq!(bytes, bench.bytes(at(0, from), len as usize));
                }
                Step::Write { at: place, byte } => {
                    bench.run();
                    bench.set(at(0, place), &[byte]);
                }
            }
        }
        bench.run();
        bench.assert_conserved();
    }
}
