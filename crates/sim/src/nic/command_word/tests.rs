use super::*;
use crate::testing::{Bench, at, carries_the_library};
use proptest::prelude::*;

fn machine() -> Machine {
    Machine::load("sr2201").unwrap()
}

/// A word from PE 0 to PE 1 that carries this key.
fn word(len: u32, to: u64, key: u32, flag: Option<u64>) -> CommandWord {
    CommandWord { from: at(0, 0), to: at(1, to), len, key, flag }
}

/// When the flag of a started word is written, from the beginning of the start.
fn one_way(bench: &mut Bench, address: u64, how: Start) -> Ps {
    let begin = bench.world.now();
    bench.command(0, start(address, how));
    bench.run();
    bench.changed[1].unwrap() - begin
}

#[test]
fn the_library_runs_on_it() {
    carries_the_library(&machine(), 4);
    carries_the_library(&machine(), 1);
    carries_the_library(&Machine::load("sr2201/system-call").unwrap(), 3);
    carries_the_library(&Machine::load("sr2201/interrupts").unwrap(), 3);
}

/// More addresses than there is room for words: old ones make room, and nothing goes wrong.
#[test]
fn few_command_words() {
    let text = include_str!("../../../../../machines/sr2201.toml")
        .replace("command_words = { value = 1024", "command_words = { value = 4");
    let machine = Machine::parse("few", &text, None).unwrap();
    let mut bench = Bench::of(&machine, 2, 1);
    for round in 0..3 {
        for place in 0..20u64 {
            let store =
                HostOp::Store { to: at(1, 8 * place), word: Payload::word(8, place + round) };
            assert_eq!(bench.call(0, store).refused, None);
            assert_eq!(bench.call(0, HostOp::Quiet).refused, None);
        }
    }
    for place in 0..20u64 {
        assert_eq!(bench.bytes(at(1, 8 * place), 8), (place + 2).to_le_bytes());
    }
    bench.assert_conserved();
}

/// The first store to an address pays for building its word, in a system call; later ones do not.
#[test]
fn built_once() {
    let mut bench = Bench::of(&machine(), 2, 1);
    let mut times = Vec::new();
    for value in 0..3 {
        let begin = bench.world.now();
        let op = bench.begin(0, HostOp::Store { to: at(1, 8), word: Payload::word(8, value) });
        times.push(bench.answer(op).0 - begin);
        bench.run();
    }
    let system_call = machine().section("host").time("system_call").unwrap();
    assert_eq!(times[0], times[1] + system_call);
    assert_eq!(times[1], times[2]);
}

#[test]
fn restarted_words_carry_what_the_source_holds_then() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 512), 4096, 42));
    let address = bench.command(0, build(&word(3000, 512, 42, Some(512 + 3200))));
    for round in 1..4u8 {
        bench.set(at(0, 0), &[round; 3000]);
        bench.set(at(1, 512 + 3200), &[0; 8]);
        assert_eq!(bench.command(0, test(address)), DONE);
        bench.command(
            0,
            start(address, if round % 2 == 0 { Start::Direct } else { Start::SystemCall }),
        );
        assert_eq!(bench.command(0, test(address)), RUNNING);
        bench.run();
        assert_eq!(bench.command(0, test(address)), DONE);
        assert_eq!(bench.bytes(at(1, 512), 3000), [round; 3000]);
        assert_eq!(bench.bytes(at(1, 512 + 3200), 8), 1u64.to_le_bytes());
    }
    bench.assert_conserved();
}

/// The start methods differ by a system call less a direct start, whatever the length.
#[test]
fn start_methods() {
    for len in [8, 4096] {
        let mut bench = Bench::of(&machine(), 2, 1);
        bench.command(1, allow(at(1, 0), 1 << 16, 1));
        let address = bench.command(0, build(&word(len, 0, 1, Some(8000))));
        let direct = one_way(&mut bench, address, Start::Direct);
        let by_call = one_way(&mut bench, address, Start::SystemCall);
        let machine = machine();
        let host = machine.section("host");
        assert_eq!(
            by_call + host.time("direct_start").unwrap(),
            direct + host.time("system_call").unwrap()
        );
    }
}

/// The start register is mapped, but a user's store to it is a fault, which traps, and starts
/// nothing: neither data nor anything else leaves the node. From privileged mode the same write
/// starts the word.
#[test]
fn the_start_register_takes_privileged_writes_only() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 0), 4096, 1));
    let address = bench.command(0, build(&word(64, 0, 1, None)));
    bench.set(at(0, 0), &[9; 64]);
    let begin = bench.world.now();
    let op = bench.begin(0, HostOp::Command(user_store(START_REGISTER, address)));
    let (end, answer) = bench.answer(op);
    assert!(answer.refused.unwrap().contains("privileged mode"));
    assert_eq!(end - begin, machine().section("host").time("system_call").unwrap());
    bench.run();
    assert_eq!(bench.world.counts().sent, 0);
    assert_eq!(bench.bytes(at(1, 0), 64), [0; 64]);
    for how in [Start::Direct, Start::SystemCall] {
        bench.set(at(1, 0), &[0; 64]);
        bench.command(0, start(address, how));
        bench.run();
        assert_eq!(bench.bytes(at(1, 0), 64), [9; 64]);
    }
    bench.assert_conserved();
}

/// Neither a store to where the words lie, nor the start of something else, nor a restart too early
/// does anything.
#[test]
fn out_of_reach() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 0), 4096, 1));
    let address = bench.command(0, build(&word(64, 0, 1, None)));
    bench.set(at(0, 0), &[9; 64]);
    let wrong = [
        user_store(address, 0x1234),
        user_store(START_REGISTER, address),
        start(address + 8, Start::Direct),
        start(address + 64, Start::Direct),
        start(0x4000, Start::SystemCall),
        test(0),
    ];
    for command in wrong {
        assert!(bench.call(0, HostOp::Command(command.clone())).refused.is_some(), "{command:?}");
    }
    bench.run();
    assert_eq!(bench.bytes(at(1, 0), 64), [0; 64]);
    bench.command(0, start(address, Start::Direct));
    assert!(
        bench.call(0, HostOp::Command(start(address, Start::Direct))).refused.is_some(),
        "it is under way"
    );
    bench.run();
    assert_eq!(bench.bytes(at(1, 0), 64), [9; 64]);
    let outside = CommandWord { to: at(2, 0), ..word(8, 0, 1, None) };
    assert!(bench.call(0, HostOp::Command(build(&outside))).refused.is_some());
    let foreign = CommandWord { from: at(1, 0), ..word(8, 0, 1, None) };
    assert!(bench.call(0, HostOp::Command(build(&foreign))).refused.is_some());
    bench.assert_conserved();
}

/// A store of the library's into an area with another key is refused, and the next quiet says so,
/// once.
#[test]
fn a_refused_store_surfaces() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 64), 64, 5));
    let store = |to| HostOp::Store { to: at(1, to), word: Payload::word(8, 77) };
    assert_eq!(bench.call(0, store(64)).refused, None);
    assert!(bench.call(0, HostOp::Quiet).refused.is_some());
    assert_eq!(bench.call(0, store(128)).refused, None);
    assert_eq!(bench.call(0, HostOp::Quiet).refused, None);
    assert_eq!(bench.bytes(at(1, 64), 8), [0; 8]);
    assert_eq!(bench.bytes(at(1, 128), 8), 77u64.to_le_bytes());
    bench.assert_conserved();
}

/// How long the CPU works for a put of `len` bytes from PE 0 to offset 4096 of PE 1.
fn returns(bench: &mut Bench, len: usize, signal: Option<Signal>, reuse: bool) -> Ps {
    let begin = bench.world.now();
    let data = Payload::copy(&vec![7; len]);
    let op = bench.begin(0, HostOp::Put { to: at(1, 4096), data, signal, reuse });
    let (end, answer) = bench.answer(op);
    assert_eq!(answer.refused, None);
    bench.run();
    end - begin
}

fn set(at: FarAddress, value: u64) -> Option<Signal> {
    Some(Signal { at, op: SignalOp::Set, value })
}

/// Has PE 0's NIC keep the word for such a put, or give it up. Returns how long that takes.
fn prepare(bench: &mut Bench, len: u32, signal: Option<Signal>, kept: bool) -> Ps {
    let begin = bench.world.now();
    let step = if kept { CommandStep::Keep } else { CommandStep::Drop };
    let op = bench.begin(0, HostOp::Prepare { to: at(1, 4096), len, signal, step });
    bench.answer(op).0 - begin
}

/// A put with a signal starts one command word, whatever value the signal has, and copies nothing
/// unless the program may change the source. The signal comes after the data.
#[test]
fn a_signal_is_the_flag_of_its_put() {
    let (machine, mut bench) = (machine(), Bench::of(&machine(), 2, 1));
    let host = machine.section("host");
    let start = host.time("software").unwrap() + host.time("direct_start").unwrap();
    for len in [1, 8, 1024, 1025, 5000] {
        let first = returns(&mut bench, len, set(at(1, 64), 1), false);
        assert_eq!(first, start + host.time("system_call").unwrap(), "its word is built");
        for value in [2, u64::MAX, 0] {
            assert_eq!(returns(&mut bench, len, set(at(1, 64), value), false), start, "{len}");
            assert_eq!(bench.bytes(at(1, 64), 8), value.to_le_bytes());
            assert_eq!(bench.bytes(at(1, 4096), len), vec![7; len]);
        }
        let copied = returns(&mut bench, len, set(at(1, 64), 9), true);
        assert_eq!(copied, start + host.rate("copy").unwrap().time(len as u64));
    }
    // A signal without data has a word of its own.
    assert_eq!(
        returns(&mut bench, 0, set(at(1, 64), 5), false),
        start + host.time("system_call").unwrap()
    );
    assert_eq!(bench.bytes(at(1, 64), 8), 5u64.to_le_bytes());
    bench.assert_conserved();
}

/// The library's transfers start as the machine file says.
#[test]
fn the_library_starts_as_the_machine_says() {
    let direct = machine();
    let host = direct.section("host");
    let [software, trap] = ["software", "system_call"].map(|name| host.time(name).unwrap());
    for (name, start) in [
        ("sr2201", host.time("direct_start").unwrap()),
        ("sr2201/system-call", trap),
        ("sr2201/interrupts", trap),
    ] {
        let mut bench = Bench::new(name, 2);
        returns(&mut bench, 100, None, false);
        assert_eq!(returns(&mut bench, 100, None, false), software + start, "{name}");
    }
}

/// On a machine that interrupts, a quiet ends an interrupt and a context switch after the answer
/// that it has waited for, whatever blocking itself took.
#[test]
fn a_quiet_sleeps_until_the_interrupt() {
    let took = |name: &str| {
        let mut bench = Bench::new(name, 2);
        returns(&mut bench, 1 << 15, None, false);
        let data = Payload::copy(&vec![7; 1 << 15]);
        bench.call(0, HostOp::Put { to: at(1, 4096), data, signal: None, reuse: false });
        let begin = bench.world.now();
        let quiet = bench.begin(0, HostOp::Quiet);
        bench.answer(quiet).0 - begin
    };
    let machine = Machine::load("sr2201/interrupts").unwrap();
    let host = machine.section("host");
    let [wakes, look] = [
        host.time("interrupt").unwrap() + host.time("context_switch").unwrap(),
        host.time("look").unwrap(),
    ];
    let (spins, sleeps) = (took("sr2201/system-call"), took("sr2201/interrupts"));
    assert!(spins + wakes <= sleeps + look && sleeps <= spins + wakes + look, "{spins} {sleeps}");
}

/// A word whose flag the receiver refuses writes neither flag nor the packet's data.
#[test]
fn a_refused_flag() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 64), 64, 5));
    returns(&mut bench, 8, set(at(1, 64), 1), false);
    assert!(bench.call(0, HostOp::Quiet).refused.is_some());
    assert_eq!(bench.bytes(at(1, 64), 8), [0; 8]);
    assert_eq!(bench.bytes(at(1, 4096), 8), [0; 8]);
    bench.assert_conserved();
}

/// Where packets before the last were refused, the flag does not say that all has come.
#[test]
fn a_flag_behind_refused_packets() {
    let mut bench = Bench::of(&machine(), 2, 1);
    bench.command(1, allow(at(1, 4096), 64, 5));
    returns(&mut bench, 1 << 15, set(at(1, 64), 1), false);
    assert!(bench.call(0, HostOp::Quiet).refused.is_some());
    assert_eq!(bench.bytes(at(1, 64), 8), [0; 8]);
    bench.assert_conserved();
}

/// The words of prepared transfers stay where they are, however many others come; those of others
/// make room.
#[test]
fn prepared_words_stay() {
    let mut bench = Bench::of(&machine(), 2, 1);
    let system_call = machine().section("host").time("system_call").unwrap();
    let others = |bench: &mut Bench| {
        for place in 0..1500 {
            let store =
                HostOp::Store { to: at(1, 8192 + 8 * place), word: Payload::word(8, place) };
            assert_eq!(bench.call(0, store).refused, None);
        }
        bench.run();
    };
    let signal = set(at(1, 64), 3);
    assert_eq!(prepare(&mut bench, 2000, signal, true), system_call, "the word is built");
    assert_eq!(prepare(&mut bench, 2000, signal, true), Ps::ZERO, "it is there");
    let start = returns(&mut bench, 2000, signal, false);
    assert!(start < system_call);
    for kept in [true, false] {
        others(&mut bench);
        assert_eq!(returns(&mut bench, 2000, signal, false), start, "{kept}");
        assert_eq!(prepare(&mut bench, 2000, signal, false), Ps::ZERO, "{kept}");
    }
    others(&mut bench);
    assert_eq!(returns(&mut bench, 2000, signal, false), start + system_call, "nobody keeps it");
    assert_eq!(prepare(&mut bench, 2000, signal, false), Ps::ZERO, "once too often");
    bench.assert_conserved();
}

/// Programs that prepare more than there is room for, and never give up: half of the words is left.
#[test]
fn half_of_the_words_is_left() {
    let text = include_str!("../../../../../machines/sr2201.toml")
        .replace("command_words = { value = 1024", "command_words = { value = 4");
    let mut bench = Bench::of(&Machine::parse("few", &text, None).unwrap(), 2, 1);
    for len in 1..20 {
        prepare(&mut bench, len, set(at(1, 64), 1), true);
    }
    let system_call = machine().section("host").time("system_call").unwrap();
    for len in [1, 2, 19, 7, 1, 2] {
        let time = returns(&mut bench, len, set(at(1, 64), 1), false);
        assert_eq!(time < system_call, len <= 2, "{len}");
    }
    bench.assert_conserved();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A packet is written if and only if its range, and its flag, are in an area of its key, of
    /// which later ones go before earlier ones; otherwise memory is left alone, and the status says
    /// so. The flag is written only if all packets were.
    #[test]
    fn keys(areas in prop::collection::vec((0u64..4096, 1u64..8192, 0u32..2), 0..6),
            to in 0u64..4096, len in 1u32..4000, key in 0u32..2, flag in prop::option::of(0u64..1000)) {
        let mut bench = Bench::of(&machine(), 2, 1);
        let flag = flag.map(|flag| 8 * flag);
        let mut owner = vec![None; 1 << 14];
        for (number, &(start, len, key)) in areas.iter().enumerate() {
            bench.command(1, allow(at(1, start), len, key));
            owner[start as usize..(start + len) as usize].fill(Some((number, key)));
        }
        bench.set(at(0, 0), &[0xab; 4000]);
        let mut expected = bench.bytes(at(1, 0), 1 << 14);
        let address = bench.command(0, build(&word(len, to, key, flag)));
        bench.command(0, start(address, Start::Direct));
        bench.run();
        let fits = |start: usize, len: usize| {
            let range = &owner[start..start + len];
            range[0].is_some_and(|(_, its)| its == key) && range.iter().all(|byte| *byte == range[0])
        };
        let mut status = DONE;
        for sent in (0..len as usize).step_by(1024) {
            let (start, part) = (to as usize + sent, 1024.min(len as usize - sent));
            let flag = flag.filter(|_| sent + part == len as usize);
            if fits(start, part) && flag.is_none_or(|flag| fits(flag as usize, 8)) {
                expected[start..start + part].fill(0xab);
                if let Some(flag) = flag.filter(|_| status == DONE) {
                    expected[flag as usize..][..8].copy_from_slice(&1u64.to_le_bytes());
                }
            } else {
                status = REFUSED;
            }
        }
        prop_assert_eq!(bench.command(0, test(address)), status);
        prop_assert!(bench.bytes(at(1, 0), 1 << 14) == expected);
        bench.assert_conserved();
    }
}

mod processes;
