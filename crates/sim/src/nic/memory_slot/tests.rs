//! The NIC as a whole, without programs.

mod chipset;
mod core;
mod groups;
mod pemm;
mod protection;
mod stall;
mod switch;
mod users;

use super::command::{self, BANK, Header, Kind, Looks, LoopBack, Refusal};
use crate::host::{Answer, Command, HostOp, Op, Pe, Signal};
use crate::machine::Machine;
use crate::memory::PlainMemory;
use crate::packet::{Destination, Node, Payload};
use crate::time::Ps;
use crate::world::{Happened, World};
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEGMENT: usize = 1 << 16;

/// A machine and what its programs have done so far.
struct Bench {
    world: World,
    calls: u32,
    /// PEs whose memory changed, in order.
    changed: Vec<(Ps, Pe)>,
}

impl Bench {
    fn new(machine: &str, nodes: u32) -> Bench {
        Bench::of(&Machine::load(machine).unwrap(), nodes)
    }

    fn of(machine: &Machine, nodes: u32) -> Bench {
        let mut world =
            World::build(machine, nodes, 1, Box::new(PlainMemory::new(nodes as usize, SEGMENT)))
                .unwrap();
        world.recorder().keep(true);
        Bench { world, calls: 0, changed: Vec::new() }
    }

    fn begin(&mut self, pe: u32, what: HostOp) -> Op {
        self.calls += 1;
        let op = Op { pe: Pe(pe), number: self.calls };
        self.world.begin(op, what);
        op
    }

    /// Until this call is answered.
    fn finish(&mut self, op: Op) -> Answer {
        loop {
            match self.world.next().expect("a call is answered") {
                Happened::Answered(other, answer) if other == op => return answer,
                Happened::Changed(pe) => self.changed.push((self.world.now(), pe)),
                _ => {}
            }
        }
    }

    fn ask(&mut self, pe: u32, what: HostOp) -> Answer {
        let op = self.begin(pe, what);
        self.finish(op)
    }

    fn command(&mut self, pe: u32, command: Command) -> Answer {
        let answer = self.ask(pe, HostOp::Command(command));
        assert_eq!(answer.refused, None);
        answer
    }

    /// Until nothing happens any more.
    fn settle(&mut self) {
        while let Some(happened) = self.world.next() {
            if let Happened::Changed(pe) = happened {
                self.changed.push((self.world.now(), pe));
            }
        }
        let counts = self.world.counts();
        assert_eq!(counts.sent + counts.copied, counts.arrived + counts.lost + counts.absorbed);
        assert_eq!(counts.lost, 0);
        assert_eq!(self.world.under_way(), 0);
    }

    /// Bytes of the NIC's memory as its host reads them.
    fn seen(&mut self, pe: u32, at: u64, len: u32) -> Vec<u8> {
        self.command(pe, command::read(at, len, Looks::Words)).data.with(<[u8]>::to_vec)
    }

    fn segment(&mut self, pe: u32) -> Vec<u8> {
        let at = FarAddress { pe, region: 0, offset: 0 };
        self.world.memory().read(Pe(pe), at, SEGMENT).unwrap().with(<[u8]>::to_vec)
    }
}

fn seed(to: u32, address: u64) -> Header {
    Header {
        kind: Kind::Aotf,
        physical: true,
        promised: false,
        group: 7,
        len: 0,
        process: 0,
        region: 0,
        address,
        to: Destination::Node(Node(to)),
        from: Node(0),
    }
}

fn to(pe: u32, offset: u64) -> FarAddress {
    FarAddress { pe, region: 0, offset }
}

/// The rows of the stage table that a packet goes through, in ns.
fn stages(machine: &str) -> Vec<(&'static str, f64)> {
    let mut bench = Bench::new(machine, 1);
    bench.command(0, command::map(0, &seed(0, 0)));
    bench.command(0, command::kick(0, 8, Payload::word(4, 1)));
    bench.settle();
    bench.world.recorder().clear();
    let op = bench.begin(0, HostOp::Command(command::kick(0, 8, Payload::word(4, 1))));
    bench.settle();
    let breakdown = bench.world.recorder().breakdown(op);
    breakdown.into_iter().map(|(name, time)| (name, time.as_ns())).collect()
}

#[test]
fn a_store_goes_through_the_published_stages() {
    let rows = [
        ("A", [45.0, 30.0, 45.0, 15.0, 15.0, 64.0, 144.0, 15.0]),
        ("B", [30.0, 20.0, 30.0, 10.0, 10.0, 64.0, 144.0, 10.0]),
        ("C", [45.0, 30.0, 45.0, 15.0, 15.0, 40.0, 70.0, 15.0]),
        ("D", [30.0, 20.0, 30.0, 10.0, 10.0, 40.0, 70.0, 10.0]),
        ("E", [30.0, 20.0, 30.0, 10.0, 10.0, 40.0, 70.0, 10.0]),
        ("design", [22.5, 15.0, 22.5, 7.5, 7.5, 40.0, 70.0, 7.5]),
    ];
    let names = [
        "host_write",
        "transaction_queue",
        "header_tlb",
        "size_decision",
        "send_buffer_handshake",
        "swif_send",
        "swif_receive",
        "llcm_write",
    ];
    for (variant, times) in rows {
        let breakdown = stages(&format!("dimmnet-1/{variant}"));
        let nic: Vec<_> = breakdown.into_iter().filter(|(name, _)| names.contains(name)).collect();
        assert_eq!(nic, names.into_iter().zip(times).collect::<Vec<_>>(), "{variant}");
    }
}

#[test]
fn an_external_loop_is_an_internal_one_and_what_is_outside_of_swif() {
    for (variant, outside) in [("A", 108.0), ("B", 146.0), ("C", 145.0), ("D", 151.0), ("E", 130.0)]
    {
        let mut bench = Bench::new(&format!("dimmnet-1/{variant}"), 1);
        bench.command(0, command::map(0, &seed(0, 0)));
        bench.command(0, command::kick(0, 8, Payload::word(4, 1)));
        bench.settle();
        let mut visible = |mode| {
            bench.command(0, command::loop_back(mode));
            bench.world.recorder().clear();
            let op = bench.begin(0, HostOp::Command(command::kick(0, 8, Payload::word(4, 2))));
            let start = bench.world.now();
            bench.settle();
            let stages = bench.world.recorder().stages().iter();
            let end = stages
                .filter(|stage| stage.op == op && stage.name == "llcm_write")
                .map(|stage| stage.end)
                .max();
            end.unwrap() - start
        };
        let (internal, external) = (visible(LoopBack::Internal), visible(LoopBack::External));
        // Each pass waits for an edge of each clock, of which the slowest has 16 ns and 15 ns.
        let between = (external.as_ns() - internal.as_ns() - outside).abs();
        assert!(between < 31.0, "{variant}: {between} ns");
    }
}

#[test]
fn a_wait_sees_the_word_and_nothing_else() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::map(3, &seed(1, 0x2000)));
    let wait = bench
        .begin(1, HostOp::Command(command::wait(0x2010, 4, u32::MAX.into(), 0xabcd, Looks::Words)));
    bench.command(0, command::kick(3, 0x014, Payload::word(4, 0xabcd)));
    bench.command(0, command::kick(3, 0x010, Payload::word(4, 0xabce)));
    bench.command(0, command::kick(3, 0x010, Payload::word(4, 0xabcd)));
    assert_eq!(bench.finish(wait).value, 0xabcd);
    bench.settle();
    assert_eq!(bench.seen(1, 0x2010, 8), [0xcd, 0xab, 0, 0, 0xcd, 0xab, 0, 0]);
    assert_eq!(bench.seen(0, 0x2010, 8), [0; 8]);
}

#[test]
fn a_store_to_a_page_that_is_not_mapped_is_refused() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    let answer = bench.ask(0, HostOp::Command(command::kick(5, 0, Payload::word(1, 1))));
    assert!(answer.refused.unwrap().contains("not mapped"));
    for (offset, len) in [(1, 8), (0, 0)] {
        bench.command(0, command::map(5, &seed(1, 0)));
        let answer = bench.ask(0, HostOp::Command(command::kick(5, offset, Payload::word(len, 1))));
        assert!(answer.refused.unwrap().contains("within a word"));
    }
}

#[test]
fn misses_are_fetched_and_take_their_time() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    // Five pages of one set of four ways.
    for page in 0..5 {
        bench.command(0, command::map(page * 256, &seed(1, 0x1000 * u64::from(page))));
    }
    let mut missed = Vec::new();
    for page in [0, 0, 1, 2, 3, 0, 4, 0, 1] {
        bench.world.recorder().clear();
        let op = bench.begin(
            0,
            HostOp::Command(command::kick(page * 256, 0, Payload::word(1, u64::from(page) + 1))),
        );
        bench.settle();
        missed.push(
            bench.world.recorder().breakdown(op).iter().any(|(name, _)| *name == "htlb_refill"),
        );
    }
    assert_eq!(missed, [true, false, true, true, true, false, true, true, true]);
    for page in 0..5u8 {
        assert_eq!(bench.seen(1, 0x1000 * u64::from(page), 1), [page + 1]);
    }
}

#[test]
fn a_host_whose_queue_is_full_waits() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    // Every store misses, so the NIC takes longer than the host, and the queue fills.
    for page in 0..8 {
        bench.command(0, command::map(page * 256, &seed(1, 0)));
    }
    let mut stalls = Vec::new();
    for number in 0..4000u32 {
        let before = bench.world.now();
        bench.command(0, command::kick(number % 8 * 256, 0, Payload::word(4, number.into())));
        if bench.world.now() - before > Ps::ns(151 + 25 + 71) {
            stalls.push(number);
        }
    }
    // The host writes one each 247 ns; the NIC, with a refill of 1000 and a look-up of 30, takes
    // one each 1030.
    let first = 2048 * 1030 / (1030 - 247);
    let begins = *stalls.first().expect("the queue fills");
    assert!((first..first + 5).contains(&begins), "{begins} is not about {first}");
    bench.settle();
    assert_eq!(bench.seen(1, 0, 4), 3999u32.to_le_bytes());
    assert_eq!(bench.world.counts().arrived, 4000);
}

#[test]
fn a_65th_block_waits_for_a_slow_link() {
    let text = include_str!("../../../../../machines/dimmnet-1.toml")
        .replace("link.rate = { value = 500,", "link.rate = { value = 50,");
    let machine = Machine::parse("slow", &text, Some("D")).unwrap();
    let mut bench = Bench::of(&machine, 2);
    bench.command(0, command::attach(7));
    bench.command(1, command::attach(7));
    bench.command(1, command::register(7, 1, 1, 0, 16));
    let header = Header { process: 1, region: 1, ..seed(1, 0) };
    // The host writes a block in software 151 + 61 words of 71 and 25 ns; the link takes 488 bytes
    // at 20 ns.
    let (software, link) = (151, 488 * 20);
    let host = software + 61 * (71 + 25);
    let mut stalls = Vec::new();
    for number in 0..200 {
        let before = bench.world.now();
        bench.command(0, command::block(&header, Payload::copy(&[1; 464])));
        if bench.world.now() - before > Ps::ns(host) {
            stalls.push(number);
        }
    }
    // The first one leaves the queue 85 ns after it is written: chipset, host_write, and
    // transaction_queue. A block comes to its window behind the software.
    let leaves = |block: u64| host + 85 + block * link;
    let queued = |block: u64| {
        let comes = block * host + software;
        (0..block).filter(|&other| leaves(other) > comes).count()
    };
    let first = (0..200).find(|&block| queued(block) == 64);
    assert_eq!(stalls.first().copied(), first);
    bench.settle();
    assert_eq!(bench.world.counts().arrived, 200);
}

#[test]
fn software_undoes_the_twist_of_its_board() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::map(0, &seed(1, 0)));
    bench.command(0, command::kick(0, 0, Payload::word(8, 0x0123_4567_89ab_cdef)));
    bench.command(0, command::kick_twisted(0, 8, Payload::word(8, 0x0123_4567_89ab_cdef)));
    bench.settle();
    assert_eq!(bench.command(1, command::read(0, 8, Looks::Words)).value, 0x0123_4567_89ab_cdef);
    let twisted = bench.command(1, command::read(8, 8, Looks::Words)).value;
    // Each hexadecimal digit backwards.
    assert_eq!(twisted, 0x084c_2a6e_195d_3b7f);
    let straight = Bench::new("dimmnet-1/D-straight", 2).world.polling(Pe(0));
    assert_eq!(bench.world.polling(Pe(0)).interval, straight.interval + Ps::ns(25));
}

#[test]
fn what_comes_into_a_bank_is_seen_after_a_switch() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::map(0, &seed(1, BANK)));
    bench.command(0, command::kick(0, 0, Payload::word(4, 77)));
    bench.settle();
    assert_eq!(bench.command(1, command::read(BANK, 4, Looks::Words)).value, 0);
    let before = bench.world.now();
    bench.command(1, command::switch_banks());
    assert!(bench.world.now() - before >= Ps::us(1));
    assert_eq!(bench.command(1, command::read(BANK, 4, Looks::Words)).value, 77);
}

#[test]
fn remote_dma_moves_what_the_host_has_written_and_switched() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    let bytes: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    bench.command(0, command::attach(7));
    bench.command(1, command::attach(7));
    for page in 0..3 {
        bench.command(1, command::register(7, 1, 1, page, BANK / 4096 + page));
    }
    bench.command(0, command::write(BANK + 64, Payload::copy(&bytes)));
    bench.command(0, command::switch_banks());
    let header = Header { process: 1, region: 1, ..seed(1, 1000) };
    bench.command(0, command::dma(&header, 64, 5000));
    bench.settle();
    assert_eq!(bench.world.counts().sent, 12, "5000 bytes in packets of 464 that end at pages");
    bench.command(1, command::switch_banks());
    assert_eq!(bench.seen(1, BANK + 1000, 5000), bytes);
}

#[test]
fn one_packet_comes_to_all_members() {
    for (machine, nodes, members) in [
        ("dimmnet-1/D-switch", 8, vec![1, 2, 5, 7]),
        ("dimmnet-1/D-tree", 20, vec![1, 6, 7, 13, 14, 19]),
    ] {
        let mut bench = Bench::new(machine, nodes);
        let list: Vec<Node> = members.iter().map(|&member| Node(member)).collect();
        bench.command(3, command::group(5, &list));
        let to_all = Header { to: Destination::Multicast(5), ..seed(0, 0x3000) };
        bench.command(3, command::map(9, &to_all));
        bench.command(3, command::kick(9, 0x40, Payload::word(2, 0x1234)));
        bench.settle();
        assert_eq!(bench.world.counts().sent, 1);
        assert_eq!(bench.world.counts().arrived, members.len() as u64);
        for node in 0..nodes {
            let expected = if members.contains(&node) { 0x1234 } else { 0 };
            assert_eq!(
                bench.command(node, command::read(0x3040, 2, Looks::Words)).value,
                expected,
                "node {node} of {machine}"
            );
        }
    }
    let refused =
        Bench::new("dimmnet-1/D", 2).ask(0, HostOp::Command(command::group(1, &[Node(1)]))).refused;
    assert!(refused.unwrap().contains("switch"));
}

#[test]
fn packets_to_one_port_of_the_switch_wait_for_each_other() {
    let mut bench = Bench::new("dimmnet-1/D-switch", 8);
    for node in 1..8 {
        bench.command(node, command::map(0, &seed(0, 0)));
        bench.command(node, command::kick(0, 64, Payload::word(1, 1)));
    }
    bench.settle();
    bench.world.recorder().clear();
    for node in 1..8 {
        bench.begin(
            node,
            HostOp::Command(command::kick(0, node as u16, Payload::word(1, node.into()))),
        );
    }
    bench.settle();
    let mut ends: Vec<Ps> = bench
        .world
        .recorder()
        .stages()
        .iter()
        .filter(|stage| stage.name == "llcm_write")
        .map(|stage| stage.end)
        .collect();
    ends.sort();
    // The receiver takes each at the next edge of its slot's clock of 10 ns.
    let apart = |two: &[Ps]| (two[1] - two[0]).as_ns() - 240.0;
    assert!(ends.windows(2).all(|two| apart(two).abs() < 10.0), "{ends:?}");
    assert_eq!(bench.seen(0, 0, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_signal_does_not_overtake_data_in_a_bank() {
    let mut bench = Bench::of(&with_llcm_for_blocks("D", false), 2);
    // The signal's page is in LLCM.
    let store = bench.begin(0, HostOp::Store { to: to(1, 8), word: Payload::word(8, 1) });
    bench.finish(store);
    bench.settle();
    bench.changed.clear();
    let put = HostOp::Put {
        to: to(1, 8192),
        data: Payload::copy(&[9; 3000]),
        signal: Some(Signal { at: to(1, 8), op: SignalOp::Set, value: 2 }),
        reuse: true,
    };
    bench.ask(0, put);
    loop {
        let happened = bench.world.next().expect("the signal lands");
        let segment = bench.segment(1);
        if segment[8] == 2 {
            assert_eq!(segment[8192..8192 + 3000], [9; 3000]);
            break;
        }
        drop(happened);
    }
    let mut stages = bench.world.recorder().stages().iter();
    assert!(stages.any(|stage| stage.name == "bank_switch"), "a bank had to be switched");
    // What is small and has its page in LLCM does not wait for banks.
    let before = bench.world.now();
    bench.ask(0, HostOp::Store { to: to(1, 16), word: Payload::word(8, 1) });
    bench.ask(0, HostOp::Quiet);
    assert!(bench.world.now() - before < Ps::us(3));
}

/// DIMMnet-1, whose LLCM is kept for words and for blocks of one packet, or is not.
fn with_llcm_for_blocks(variant: &str, for_blocks: bool) -> Machine {
    let mut machine = Machine::load(&format!("dimmnet-1/{variant}")).unwrap();
    if !for_blocks {
        machine.set("receive.llcm_for_words", 128.0).unwrap();
    }
    machine
}

fn put(at: u64, data: &[u8]) -> HostOp {
    HostOp::Put { to: to(1, at), data: Payload::copy(data), signal: None, reuse: true }
}

fn switches(bench: &mut Bench) -> usize {
    let stages = bench.world.recorder().stages().iter();
    stages.filter(|stage| stage.name == "bank_switch").count()
}

/// The driver of Fagus's machine takes 20 ms for a switch.
#[test]
fn blocks_take_no_switch_while_llcm_has_room() {
    let mut bench = Bench::new("dimmnet-1/fagus", 2);
    // Fifteen pages of 31: sixteen are kept.
    for (at, len) in [(0, 10_000), (12_288, 1000), (16_384, 4096), (20_480, 40_960)] {
        bench.ask(0, put(at, &vec![7; len]));
        bench.ask(0, HostOp::Quiet);
        assert_eq!(bench.segment(1)[at as usize..][..len], vec![7; len]);
    }
    assert_eq!(switches(&mut bench), 0);
    assert!(bench.world.now() < Ps::us(20_000));
    // Another page does not fit, and one that has its place still does.
    bench.ask(0, put(61_440, &[8; 500]));
    bench.settle();
    assert_eq!((bench.segment(1)[61_440], switches(&mut bench)), (8, 1));
    bench.ask(0, put(0, &[9; 10_000]));
    bench.settle();
    assert_eq!((bench.segment(1)[9_999], switches(&mut bench)), (9, 1));
}

/// All packets of a block that is in the bank before the driver looks, whatever its length.
#[test]
fn one_switch_shows_all_of_a_block() {
    let machine = with_llcm_for_blocks("fagus", false);
    for len in [465usize, 4096, 20_000, 50_000] {
        let mut bench = Bench::of(&machine, 2);
        bench.ask(0, put(0, &vec![5; len]));
        bench.ask(0, HostOp::Quiet);
        assert_eq!(bench.segment(1)[..len], vec![5; len]);
        // The first packet calls for a switch. What the second shows had come before the first
        // was over.
        assert!(switches(&mut bench) <= 2, "{len}: {}", switches(&mut bench));
    }
}

/// The host reads each block once, 8 bytes at a time, wherever it lies. Its look reads a word.
#[test]
fn reading_a_block_has_its_price() {
    for for_blocks in [true, false] {
        let machine = with_llcm_for_blocks("D", for_blocks);
        let arrival = |bytes: usize| {
            let mut bench = Bench::of(&machine, 2);
            bench.ask(0, put(0, &vec![1; bytes]));
            bench.settle();
            (switches(&mut bench), bench.changed.last().unwrap().0)
        };
        // One packet lies in LLCM either way. Read, write and twist of 8 bytes: 141, 71 and 25 ns.
        let ((none, short), (_, long)) = (arrival(8), arrival(464));
        let more = long.since(short);
        assert!(more >= Ps::ns(57 * (141 + 71 + 2 * 25)), "{more:?}");
        assert_eq!((none, arrival(4096).0 == 0), (0, for_blocks));
    }
}

/// The host copies what one switch has shown it while the next packets come. No signal passes a
/// block that its sender has put before, in the bank or in LLCM.
#[test]
fn blocks_keep_their_order() {
    [true, false].into_iter().for_each(keep_their_order);
}

fn keep_their_order(in_llcm: bool) {
    const BLOCK: usize = 2008;
    let place = |sender: usize, number: usize| 4096 * (1 + 5 * (sender - 1) + number);
    for seed in 1..100 {
        let mut random = crate::random::Random::new(seed);
        let mut bench = Bench::of(&with_llcm_for_blocks("D-switch", in_llcm), 4);
        for sender in 1..4 {
            // The signals' page is in LLCM.
            let signal = to(0, 8 * u64::from(sender));
            bench.ask(sender, HostOp::Store { to: signal, word: Payload::word(8, 0) });
        }
        let steps = |bench: &mut Bench, most: u64| {
            for _ in 0..most {
                let ended = bench.world.next().is_none();
                let segment = bench.segment(0);
                for sender in 1..4 {
                    for number in 0..usize::from(segment[8 * sender]) {
                        let start = place(sender, number);
                        let block = &segment[start..start + BLOCK];
                        let whole = block.iter().all(|&byte| usize::from(byte) == 1 + number);
                        assert!(whole, "signal {number} of node {sender} has passed its block");
                    }
                }
                if ended {
                    break;
                }
            }
        };
        for number in 0..5 {
            for sender in 1..4 {
                let put = HostOp::Put {
                    to: to(0, place(sender, number) as u64),
                    data: Payload::copy(&[1 + number as u8; BLOCK]),
                    signal: Some(Signal {
                        at: to(0, 8 * sender as u64),
                        op: SignalOp::Set,
                        value: 1 + number as u64,
                    }),
                    reuse: true,
                };
                bench.begin(sender as u32, put);
                steps(&mut bench, random.next_bits() % 12);
            }
        }
        steps(&mut bench, 1 << 20);
        assert_eq!([1, 2, 3].map(|sender| bench.segment(0)[8 * sender]), [5; 3]);
    }
}

#[test]
fn a_bank_that_is_full_is_an_error_that_says_so() {
    let text = include_str!("../../../../../machines/dimmnet-1.toml")
        .replace("bank = { value = 64, unit = \"MiB\"", "bank = { value = 8, unit = \"KiB\"")
        .replace("words = { value = 64, unit = \"KiB\"", "words = { value = 128, unit = \"KiB\"");
    let machine = Machine::parse("small", &text, Some("D")).unwrap();
    let mut world = World::build(&machine, 2, 1, Box::new(PlainMemory::new(2, SEGMENT))).unwrap();
    let op = Op { pe: Pe(0), number: 1 };
    let what =
        HostOp::Put { to: to(1, 0), data: Payload::copy(&[1; 9000]), signal: None, reuse: true };
    world.begin(op, what);
    match world.next() {
        Some(Happened::Answered(_, answer)) => {
            assert!(answer.refused.unwrap().contains("receive.bank"))
        }
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Store { pe: u32, to: u32, word: u64, size: u8, value: u64 },
    Put { pe: u32, to: u32, offset: u64, len: usize, byte: u8 },
}

fn any_step(pes: u32) -> impl Strategy<Value = Step> {
    let store = (0..pes, 0..pes, 0u64..8000, 0u32..4, any::<u64>()).prop_map(
        |(pe, to, word, size, value)| Step::Store { pe, to, word, size: 1 << size, value },
    );
    let put = (0..pes, 0..pes, 0u64..50_000, 1usize..9000, any::<u8>())
        .prop_map(|(pe, to, offset, len, byte)| Step::Put { pe, to, offset, len, byte });
    prop_oneof![3 => store, 1 => put]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is stored and put, by whom and in what order: it arrives where it should, once, and
    /// nothing else changes.
    #[test]
    fn memory_becomes_what_was_written(variant in prop_oneof![Just("A"), Just("D-switch"), Just("D-straight"), Just("design")], steps in proptest::collection::vec(any_step(2), 1..40)) {
        let mut bench = Bench::new(&format!("dimmnet-1/{variant}"), 2);
        let mut plain = vec![vec![0u8; SEGMENT]; 2];
        for step in steps {
            // One after the other, as two PEs' writes to one place have no order.
            let (pe, what) = match step {
                Step::Store { pe, to: target, word, size, value } => {
                    let at = word * 8;
                    plain[target as usize][at as usize..][..usize::from(size)].copy_from_slice(&value.to_le_bytes()[..usize::from(size)]);
                    (pe, HostOp::Store { to: to(target, at), word: Payload::word(size.into(), value) })
                }
                Step::Put { pe, to: target, offset, len, byte } => {
                    plain[target as usize][offset as usize..][..len].fill(byte);
                    (pe, HostOp::Put { to: to(target, offset), data: Payload::copy(&vec![byte; len]), signal: None, reuse: true })
                }
            };
            prop_assert_eq!(bench.ask(pe, what).refused, None);
            bench.ask(pe, HostOp::Quiet);
            prop_assert!(bench.world.is_quiet(Pe(pe)));
        }
        bench.settle();
        for pe in 0..2 {
            prop_assert!(bench.segment(pe) == plain[pe as usize], "segment of PE {}", pe);
        }
    }
}
