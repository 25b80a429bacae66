//! Updates by the core processor.

use super::*;
use crate::host::Atomic;
use memonet_core::unstable::shm::AtomicOp;

const MACHINE: &str = "dimmnet-1/D-core";

fn add(at: FarAddress, size: u8, value: u64) -> HostOp {
    HostOp::Atomic { at, size, what: Atomic::Op(AtomicOp::Add, value) }
}

/// The answers of calls that are under way, in any order.
fn answers(bench: &mut Bench, ops: &[Op]) -> Vec<(Ps, u64)> {
    let mut answers = BTreeMap::new();
    while answers.len() < ops.len() {
        if let Happened::Answered(op, answer) = bench.world.next().expect("calls are answered") {
            assert_eq!(answer.refused, None);
            answers.insert(op, (bench.world.now(), answer.value));
        }
    }
    ops.iter().map(|op| answers[op]).collect()
}

#[test]
fn words_of_any_size_are_updated_anywhere_in_a_page() {
    let mut bench = Bench::new(MACHINE, 2);
    for (size, offset) in [(1, 4095), (2, 4094), (4, 4092), (8, 4088), (8, 0), (4, 8)] {
        let what = |what| HostOp::Atomic { at: to(1, offset), size, what };
        let all = u64::MAX >> (64 - 8 * u32::from(size));
        for (step, old, new) in [
            (Atomic::Op(AtomicOp::Swap, all - 2), 0, all - 2),
            (Atomic::CompareSwap { expected: 1, new: 9 }, all - 2, all - 2),
            (Atomic::CompareSwap { expected: all - 2, new: all }, all - 2, all),
            (Atomic::Op(AtomicOp::Add, 8), all, 7),
            (Atomic::Op(AtomicOp::Xor, 7), 7, 0),
        ] {
            assert_eq!(bench.ask(0, what(step)).value, old, "{size} bytes at {offset}: {step:?}");
            let here = &bench.segment(1)[offset as usize..][..usize::from(size)];
            assert_eq!(here, &new.to_le_bytes()[..usize::from(size)]);
        }
    }
    bench.settle();
    assert!(bench.segment(0).iter().chain(&bench.segment(1)).all(|&byte| byte == 0));
}

/// The stages of one update, which is a request, the core processor's work, and an answer.
#[test]
fn an_update_takes_the_times_of_the_machine_file() {
    let mut bench = Bench::new(MACHINE, 2);
    bench.ask(0, add(to(1, 0), 8, 1));
    bench.settle();
    bench.world.recorder().clear();
    let begin = bench.world.now();
    let op = bench.begin(0, add(to(1, 0), 8, 1));
    assert_eq!(bench.finish(op).value, 1);
    let took = bench.world.now() - begin;
    let stages: BTreeMap<_, _> = bench.world.recorder().breakdown(op).into_iter().collect();
    // 60 cycles of 10 ns, and two accesses of 4.
    assert_eq!(stages["update"], Ps::ns(680));
    assert!(!stages.contains_key("agent"), "{stages:?}");
    // The request's 48 bytes come in at 2 ns each, which is longer than SWIF takes.
    assert_eq!(stages["swif_receive"], Ps::ns(96 + 70));
    // The host: software, six words of a window with 25 ns each of twist. The way: two messages.
    let host = 151 + 6 * (71 + 25);
    let (least, most) = (host + 680 + 2 * 500, host + 680 + 2 * 1100);
    assert!((Ps::ns(least)..Ps::ns(most)).contains(&took), "{took:?}");
    // An agent on the target's host does the same later.
    let mut agents = Bench::new("dimmnet-1/D-tree", 2);
    agents.ask(0, add(to(1, 0), 8, 1));
    let begin = agents.world.now();
    agents.ask(0, add(to(1, 0), 8, 1));
    let by_agent = agents.world.now() - begin;
    assert!(by_agent > took, "{by_agent:?} by an agent, {took:?} by the core processor");
}

#[test]
fn the_core_processor_serves_one_at_a_time() {
    let mut bench = Bench::new(MACHINE, 7);
    for pe in 1..7 {
        bench.ask(pe, add(to(0, 64), 8, 0));
    }
    bench.settle();
    bench.world.recorder().clear();
    let ops: Vec<Op> = (1..7).map(|pe| bench.begin(pe, add(to(0, 64), 8, 1))).collect();
    let mut seen = answers(&mut bench, &ops);
    seen.sort_by_key(|&(_, old)| old);
    assert!(seen.iter().map(|&(_, old)| old).eq(0..6), "{seen:?}");
    bench.settle();
    let stages = bench.world.recorder().stages().iter();
    let mut busy: Vec<_> = stages
        .filter(|stage| stage.name == "update")
        .map(|stage| (stage.start, stage.end))
        .collect();
    busy.sort();
    assert_eq!(busy.len(), 6);
    assert!(busy.is_sorted_by(|one, next| one.1 <= next.0), "{busy:?}");
    assert!(busy[5].1 - busy[0].0 < Ps::ns(6 * 680 + 100), "it does not idle: {busy:?}");
}

/// A signal that adds comes after its data and what its sender has put before, wherever it lies;
/// what follows a fence comes after it.
#[test]
fn a_signal_that_adds_keeps_its_place() {
    for in_llcm in [true, false] {
        let machine = with_llcm_for_blocks("D-core", in_llcm);
        let mut bench = Bench::of(&machine, 2);
        let word =
            |offset, value| HostOp::Store { to: to(1, offset), word: Payload::word(8, value) };
        // The pages of both words lie in LLCM.
        for offset in [0, 4096] {
            bench.ask(0, word(offset, 0));
        }
        bench.settle();
        for round in 1..=3u64 {
            let signal = Signal { at: to(1, 0), op: SignalOp::Add, value: 1 };
            let data = Payload::copy(&vec![round as u8; 5000]);
            let put = HostOp::Put { to: to(1, 8192), data, signal: Some(signal), reuse: true };
            let put = bench.begin(0, put);
            let fence = bench.begin(0, HostOp::Fence);
            let mut is_behind = None;
            while is_behind.is_none() || bench.world.pending() > 0 {
                let Some(happened) = bench.world.next() else { break };
                if matches!(happened, Happened::Answered(op, _) if op == fence) {
                    is_behind = Some(bench.begin(0, word(4096, round)));
                }
                let segment = bench.segment(1);
                let (signal, after) = (u64::from(segment[0]), u64::from(segment[4096]));
                assert!(after <= signal, "what follows the fence has passed the signal");
                if signal == round {
                    let data = &segment[8192..][..5000];
                    assert!(data.iter().all(|&byte| u64::from(byte) == round), "round {round}");
                }
            }
            assert!(is_behind.is_some() && bench.world.is_quiet(put.pe));
            assert_eq!((bench.segment(1)[0], bench.segment(1)[4096]), (round as u8, round as u8));
        }
        assert_eq!(switches(&mut bench) == 0, in_llcm);
        bench.settle();
    }
}

#[test]
fn a_program_cannot_send_requests_of_the_library() {
    let mut bench = Bench::new(MACHINE, 2);
    bench.command(0, command::attach(7));
    for kind in [Kind::Request, Kind::Answer, Kind::Arrival, Kind::Announcement] {
        let forged = Header { kind, physical: false, process: 1, ..seed(1, 0) };
        bench.command(0, command::block(&forged, Payload::copy(&[1; 24])));
        bench.command(0, command::map(0, &forged));
        bench.command(0, command::kick(0, 0, Payload::word(8, 1)));
    }
    bench.settle();
    assert_eq!(bench.command(1, command::dropped(Some(Refusal::Group))).value, 8);
}

/// The stages of kick 5, the first that misses the TLB: how long its refill took.
fn refill(machine: &Machine, before: impl Fn(&mut Bench)) -> Ps {
    let nodes = if machine.name().ends_with("core") { 3 } else { 2 };
    let mut bench = Bench::of(machine, nodes);
    bench.command(0, command::map(5, &seed(1, 0x2000)));
    before(&mut bench);
    let op = bench.begin(0, HostOp::Command(command::kick(5, 0, Payload::word(8, 1))));
    bench.settle();
    let stages: BTreeMap<_, _> = bench.world.recorder().breakdown(op).into_iter().collect();
    stages["htlb_refill"]
}

#[test]
fn the_host_sees_a_miss_at_its_next_look_and_refills() {
    let load = |variant| Machine::load(&format!("dimmnet-1/{variant}")).unwrap();
    assert_eq!(refill(&load("D"), |_| {}), Ps::us(1), "by the core processor");
    let look = Bench::new("dimmnet-1/D-host-refill", 2).world.polling(Pe(0)).interval;
    let by_host = refill(&load("D-host-refill"), |_| {});
    assert!((Ps::ns(600)..=Ps::ns(600) + look + look).contains(&by_host), "{by_host:?}");
}

/// The host does not take part in updates, nor the core processor in the host's refills.
#[test]
fn a_refill_waits_for_the_core_processor() {
    let text = include_str!("../../../../../../machines/dimmnet-1.toml");
    let hosts = text.replace(
        "like = \"D-tree\"\ncore.handle",
        "like = \"D-tree\"\nsend.htlb_refill_by_host = { value = 600, unit = \"ns\", assumed = \"a test\" }\ncore.handle",
    );
    let hosts = Machine::parse("hosts", &hosts, Some("D-core")).unwrap();
    let updating = |bench: &mut Bench| {
        for pe in 1..3 {
            bench.ask(pe, add(to(0, 0), 8, 1));
        }
        bench.settle();
        // When the first update is carried out, the core processor begins the second.
        for pe in 1..3 {
            bench.begin(pe, add(to(0, 0), 8, 1));
        }
        while !matches!(bench.world.next(), Some(Happened::Changed(Pe(0)))) {}
    };
    let core = Machine::load(MACHINE).unwrap();
    let (alone, waits) = (refill(&core, |_| {}), refill(&core, updating));
    assert_eq!(alone, Ps::us(1));
    // The miss is found 332 ns after that: software, twist, write, chipset, and 50 ns in the NIC.
    assert_eq!(waits, Ps::ns(1000 + 680 - 332));
    assert!(refill(&hosts, updating) < Ps::ns(1000));
}

/// Members and others ask for barriers; those that share a NIC are told by a packet each.
#[test]
fn barriers_are_their_members_alone() {
    use crate::host::{GroupOp, Wanted};
    let text = include_str!("../../../../../../machines/dimmnet-1.toml");
    let text = text.replace(
        "core.look =",
        "topology.pes_per_node = { value = 2, assumed = \"a test\" }\ncore.look =",
    );
    let machine = Machine::parse("shared", &text, Some("D-core-barrier")).unwrap();
    for machine in [machine, Machine::load("dimmnet-1/D-core-barrier").unwrap()] {
        let mut bench = Bench::of(&machine, 6);
        let members: std::sync::Arc<[u32]> = [1, 2, 3, 5].into();
        let join = || GroupOp::Join { members: members.clone(), wanted: Wanted::Barrier };
        let asked: Vec<Op> =
            members.iter().map(|&pe| bench.begin(pe, HostOp::Group(join()))).collect();
        let group = answers(&mut bench, &asked)[0].1 as u32;
        let ask = |bench: &mut Bench, pe, what| bench.ask(pe, HostOp::Group(what));
        for phase in 1..4 {
            for (come, &pe) in members.iter().enumerate() {
                for &other in members.iter() {
                    let seen = ask(&mut bench, other, GroupOp::Phase(group)).value;
                    assert_eq!(seen, phase - 1, "{come} have come");
                }
                assert_eq!(ask(&mut bench, pe, GroupOp::Arrive(group)).refused, None);
                while bench.world.next().is_some() {}
            }
            for &pe in members.iter() {
                assert_eq!(ask(&mut bench, pe, GroupOp::Phase(group)).value, phase);
            }
        }
        for pe in [0, 4] {
            for what in [GroupOp::Arrive(group), GroupOp::Phase(group), GroupOp::Leave(group)] {
                assert!(ask(&mut bench, pe, what).refused.is_some_and(|why| why.contains("no ")));
            }
        }
        for &pe in members.iter() {
            assert_eq!(ask(&mut bench, pe, GroupOp::Leave(group)).refused, None);
        }
        assert!(ask(&mut bench, 1, GroupOp::Leave(group)).refused.is_some(), "it has ended");
        bench.settle();
    }
}

/// An answer of the core processor, and one of an agent, passes between the packets of a block that
/// the host of the same NIC writes.
#[test]
fn an_answer_does_not_wait_for_the_end_of_a_block() {
    for machine in [MACHINE, "dimmnet-1/D-tree"] {
        let mut bench = Bench::new(machine, 3);
        let mut update = |begin_block: bool| {
            if begin_block {
                let data = Payload::copy(&[1; 60_000]);
                bench.begin(0, HostOp::Put { to: to(1, 0), data, signal: None, reuse: true });
            }
            let begin = bench.world.now();
            bench.ask(2, add(to(0, 64), 8, 1));
            bench.world.now() - begin
        };
        let (_, alone, beside) = (update(false), update(false), update(true));
        // At most one packet of 488 bytes, at 2 ns each, is before it at SWIF.
        assert!(beside < alone + Ps::ns(2 * 976), "{machine}: {alone:?} alone, {beside:?} beside");
        bench.settle();
        assert_eq!(bench.segment(1)[..60_000], [1; 60_000]);
    }
}
