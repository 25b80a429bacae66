//! Back-pressure, repeats and source routing, on machines without programs.

use crate::host::{Answer, Command, HostOp};
use crate::machine::Machine;
use crate::nic::memory_slot::command;
use crate::packet::{Node, Payload};
use crate::testing::{Bench, at, carries_the_library};
use crate::time::Ps;
use crate::trace::{Place, Stage, Track};
use proptest::prelude::*;

const DIMMNET_1: &str = include_str!("../../../../machines/dimmnet-1.toml");

/// A variant of DIMMnet-1 with changed lines.
fn changed(variant: &str, changes: &[(&str, &str)]) -> Machine {
    let mut text = DIMMNET_1.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Machine::parse("changed", &text, Some(variant)).unwrap()
}

/// RHiNET-3 with buffers of so many bytes at inputs and for repeats, and with a loss.
fn rhinet3(variant: &str, buffer: u32, resend: u32, loss: f64) -> Machine {
    changed(
        variant,
        &[
            (
                "switch.buffer = { value = 16, unit = \"KiB\"",
                &format!("switch.buffer = {{ value = {buffer}, unit = \"B\""),
            ),
            (
                "resend_buffer = { value = 16, unit = \"KiB\"",
                &format!("resend_buffer = {{ value = {resend}, unit = \"B\""),
            ),
            ("link.loss = { value = 0,", &format!("link.loss = {{ value = {loss},")),
        ],
    )
}

fn store(to: u32, offset: u64, value: u64) -> HostOp {
    HostOp::Store { to: at(to, offset), word: Payload::word(8, value) }
}

/// Sum of the packets sent again, over all links.
fn repeated(bench: &Bench) -> u64 {
    bench.world.links().iter().map(|link| link.carried.repeated).sum()
}

fn stopped(bench: &Bench) -> Ps {
    bench.world.links().iter().fold(Ps::ZERO, |sum, link| sum + link.carried.stopped)
}

/// What was recorded of a link.
fn on_link(bench: &mut Bench, place: Place, port: u16) -> Vec<Stage> {
    let stages = bench.world.recorder().stages().iter();
    stages.filter(|stage| stage.track == Track::Link(place, port)).copied().collect()
}

#[test]
fn what_the_library_sends_arrives_whatever_fills_and_is_lost() {
    carries_the_library(&changed("D-rhinet3", &[]), 6);
    carries_the_library(&changed("B-oip", &[]), 6);
    for (buffer, resend) in [(1, 1), (64, 1000), (5000, 40)] {
        carries_the_library(&rhinet3("D-rhinet3", buffer, resend, 0.3), 6);
        let mut tree = rhinet3("D-rhinet3-tree", buffer, resend, 0.1);
        tree.set("switch.ports", 3.0).unwrap();
        carries_the_library(&tree, 6);
    }
    // A cable without a switch repairs, too; and so do other kinds, which wait without a queue.
    let loss = "loss = { value = 0.3, assumed = \"-\" }\nresend_buffer = { value = 1, unit = \"KiB\", assumed = \"-\" }";
    let text = format!("{DIMMNET_1}\n[link]\n{loss}\n");
    carries_the_library(&Machine::parse("cable", &text, Some("D")).unwrap(), 2);
    for (name, text) in [
        ("rdma-100g", include_str!("../../../../machines/rdma-100g.toml")),
        ("sr2201", include_str!("../../../../machines/sr2201.toml")),
    ] {
        let buffer = "[switch]\nbuffer = { value = 100, unit = \"B\", assumed = \"-\" }\n";
        let text = text.replacen("[switch]\n", buffer, 1).replacen(
            "[link]\n",
            &format!("[link]\n{loss}\n"),
            1,
        );
        carries_the_library(&Machine::parse(name, &text, None).unwrap(), 6);
    }
}

/// Where nothing waits and nothing is lost, buffers and repeats take no time.
#[test]
fn a_packet_alone_takes_the_time_that_it_took_without_buffers() {
    let times = |machine: &Machine| {
        let mut bench = Bench::of(machine, 5, 1);
        let calls = (0..40u32).map(|i| (i % 5, (i * 3 + 1) % 5, u64::from(i)));
        let calls: Vec<_> = calls.filter(|(from, to, _)| from != to).collect();
        let landed = calls.into_iter().map(|(from, to, i)| {
            let begin = bench.world.now();
            bench.call(from, store(to, 8 * i, i));
            bench.run();
            bench.changed[to as usize].unwrap() - begin
        });
        landed.collect::<Vec<_>>()
    };
    let slow = [(
        "link.rate = { value = 10, unit = \"Gbit/s\"",
        "link.rate = { value = 500, unit = \"MB/s\"",
    )];
    assert_eq!(times(&changed("D-rhinet3", &slow)), times(&changed("D-switch", &[])));
}

/// A packet starts when the sender has heard that there is room, and the time until then is
/// counted.
#[test]
fn a_full_buffer_stops_the_sender_until_it_hears_of_room() {
    // A word's packet has 32 bytes: there is room for one.
    let mut bench = Bench::of(&rhinet3("D-rhinet3", 32, 1 << 20, 0.0), 3, 1);
    bench.world.recorder().keep(true);
    for value in 1..=3 {
        bench.call(1, store(0, 8 * value, value));
    }
    bench.run();
    bench.assert_conserved();
    let in_link = on_link(&mut bench, Place::Node(Node(1)), 0);
    let sent: Vec<_> = in_link.iter().filter(|stage| stage.name == "link").collect();
    let stops: Vec<_> = in_link.iter().filter(|stage| stage.name == "no room").collect();
    let out: Vec<_> = on_link(&mut bench, Place::Switch(0), 0);
    assert_eq!((sent.len(), out.len()), (3, 3));
    // The stage of a link ends at its far end, as far away as the sender that is told.
    for (next, left) in sent[1..].iter().zip(&out) {
        assert!(next.start >= left.end, "{next:?} before {left:?}");
    }
    assert_eq!(stops.last().map(|stop| stop.end), Some(out[stops.len() - 1].end));
    let sum = stops.iter().fold(Ps::ZERO, |sum, stop| sum + (stop.end - stop.start));
    assert!(sum > Ps::ZERO && sum == stopped(&bench), "{sum:?}");
}

/// Two nodes flood a third one. A packet of one of them to a fourth waits behind the flood.
#[test]
fn back_pressure_spreads_to_who_is_not_involved() {
    const FLOOD: u64 = 60;
    let victim = |machine: &Machine| {
        let mut bench = Bench::of(machine, 4, 1);
        for i in 0..FLOOD {
            let ops = [1, 2].map(|from| bench.begin(from, store(0, 8 * (i % 64), i)));
            for op in ops {
                bench.answer(op);
            }
        }
        let begin = bench.world.now();
        bench.call(1, store(3, 8, 1));
        bench.run();
        bench.assert_conserved();
        (bench.changed[3].unwrap() - begin, stopped(&bench))
    };
    let (free, never) = victim(&changed(
        "D-switch",
        &[("switch.port_time = { value = 240", "switch.port_time = { value = 2400")],
    ));
    let slow = rhinet3("D-rhinet3", 128, 1 << 20, 0.0);
    let mut slow = slow;
    slow.set("switch.port_time", 2400.0).unwrap();
    let (held, some) = victim(&slow);
    assert_eq!(never, Ps::ZERO);
    assert!(some > Ps::ZERO);
    // Most of the flood, at 2.4 us a packet, was before it.
    assert!(held > free + Ps::ns(2400 * FLOOD), "{held:?} against {free:?}");
}

/// A host whose queue is full because the link stands still waits, and nothing is lost.
#[test]
fn a_stopped_link_fills_the_queue_and_stops_the_host() {
    let mut machine = rhinet3("D-rhinet3", 64, 1 << 20, 0.0);
    machine.set("switch.port_time", 5000.0).unwrap();
    machine.set("send.aotf_queue", 4.0).unwrap();
    let mut bench = Bench::of(&machine, 2, 1);
    bench.world.recorder().keep(true);
    let start = bench.world.now();
    for i in 1..=40u64 {
        bench.call(1, store(0, 8 * i, i));
    }
    // All but what queue and buffer hold have gone through the port by now.
    let taken = bench.world.now() - start;
    assert!(taken > Ps::ns(5000 * 28), "{taken:?}");
    bench.run();
    bench.assert_conserved();
    let words: Vec<u64> = bench
        .bytes(at(0, 8), 320)
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, (1..=40).collect::<Vec<_>>());
    assert!(bench.world.recorder().stages().iter().any(|stage| stage.name == "queue full"));
}

/// The sender goes back when it has heard: two delays after the damaged packet's end.
#[test]
fn a_damaged_packet_and_what_follows_are_sent_again() {
    let mut machine = changed("D-rhinet3-km", &[]);
    machine.set("link.loss", 0.1).unwrap();
    let mut bench = Bench::of(&machine, 2, 3);
    bench.world.recorder().keep(true);
    for i in 0..200u64 {
        bench.call(0, store(1, 8 * i, i + 1));
    }
    bench.run();
    bench.assert_conserved();
    let words = bench.bytes(at(1, 0), 1600);
    let words = words.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    assert!(words.eq(1..=200));
    let delay = Ps::ns(5151);
    let (mut damaged, mut discarded) = (0, 0);
    for (place, port) in [(Place::Node(Node(0)), 0), (Place::Switch(0), 1)] {
        let stages = on_link(&mut bench, place, port);
        let stages: Vec<_> =
            stages.into_iter().filter(|stage| stage.name != "unacknowledged").collect();
        discarded += stages.iter().filter(|stage| stage.name == "discarded").count();
        for (place, bad) in stages.iter().enumerate().filter(|(_, stage)| stage.name == "damaged") {
            damaged += 1;
            let again = stages[place + 1..].iter().find(|stage| stage.op == bad.op).unwrap();
            let heard = bad.end + delay;
            assert!(again.start >= heard && again.start < heard + Ps::ns(300), "{bad:?} {again:?}");
        }
    }
    assert!(damaged > 10 && discarded > damaged, "{damaged} damaged, {discarded} discarded");
    assert_eq!(repeated(&bench), (damaged + discarded) as u64);
}

/// A window smaller than what the fibre holds makes the sender wait for acknowledgements.
#[test]
fn a_small_window_bounds_the_rate() {
    let time = |resend| {
        let mut machine = rhinet3("D-rhinet3-km", 1 << 20, resend, 0.0);
        machine.set("link.loss", 0.0).unwrap();
        let mut bench = Bench::of(&machine, 2, 1);
        for i in 0..100u64 {
            bench.call(0, store(1, 8 * i, i));
        }
        bench.run();
        bench.changed[1].unwrap()
    };
    // Two packets of 32 bytes, then 10.3 us until they are acknowledged.
    let (narrow, wide) = (time(64), time(16_384));
    assert!(narrow > Ps::ns(10_302 * 49) && wide < Ps::ns(60_000), "{narrow:?} {wide:?}");
}

fn way(bench: &mut Bench, from: u32, to: u32, ports: &[u16]) {
    bench.command(from, command::way(Node(to), ports));
}

/// What the links have carried for one word from node 0 to another node, link by link, and when
/// the word was there.
fn word_to(bench: &mut Bench, to: u32) -> (Vec<u64>, Ps) {
    bench.world.recorder().clear();
    let before: u64 = bench.world.links().iter().map(|link| link.carried.bytes).sum();
    let op = bench.begin(0, store(to, 8, 1));
    bench.run();
    let stages = bench.world.recorder().stages().iter();
    let links: Vec<Stage> = stages
        .filter(|stage| stage.op == op && matches!(stage.track, Track::Link(..)))
        .copied()
        .collect();
    let after: u64 = bench.world.links().iter().map(|link| link.carried.bytes).sum();
    let took = links.last().unwrap().end - links[0].start;
    (vec![links.len() as u64, after - before], took)
}

/// A header has a byte for each switch that is still before it, and each further switch adds its
/// own time, a link's, and that of the packet's head.
#[test]
fn headers_grow_with_the_switches_on_the_way() {
    let mut bench = Bench::of(&changed("B-oip", &[]), 5, 1);
    bench.world.recorder().keep(true);
    let (direct, short) = word_to(&mut bench, 2);
    // Two switches: 34, 33 and 32 bytes.
    assert_eq!(direct, [3, 34 + 33 + 32]);
    // By switch 1: port 1 of switch 0, port 2 of switch 1, port 0 of switch 2.
    way(&mut bench, 0, 2, &[1, 2, 0]);
    let (detour, long) = word_to(&mut bench, 2);
    assert_eq!(detour, [4, 35 + 34 + 33 + 32]);
    // 8 bytes at 2.5 Gbit/s, the cable, the switch.
    assert_eq!(long - short, Ps(25_600) + Ps::ns(146) + Ps::ns(240));
    way(&mut bench, 0, 2, &[]);
    assert_eq!(word_to(&mut bench, 2).0, direct);
}

/// RHiNET-3 asks its tables, unless a packet carries ports; then tables do not matter.
#[test]
fn tables_and_ports_stand_side_by_side() {
    let mut bench = Bench::of(&changed("D-rhinet3-tree", &[]), 20, 1);
    bench.world.recorder().keep(true);
    // 7 nodes at a switch; three switches, and one above them.
    assert_eq!(word_to(&mut bench, 1).0, [2, 64]);
    assert_eq!(word_to(&mut bench, 13).0, [4, 128]);
    way(&mut bench, 0, 13, &[7, 1, 6]);
    bench.command(0, command::route(0, Node(13), None));
    assert_eq!(word_to(&mut bench, 13).0, [4, 35 + 34 + 33 + 32]);
    // Up and down again, though both nodes are at one switch.
    way(&mut bench, 0, 1, &[7, 0, 1]);
    assert_eq!(word_to(&mut bench, 1).0, [4, 35 + 34 + 33 + 32]);
}

#[test]
fn ways_that_lead_elsewhere_are_refused() {
    let refused = |machine: &str, command: Command, why: &str| {
        let mut bench = Bench::new(machine, 12);
        let Answer { refused, .. } = bench.call(0, HostOp::Command(command));
        let said = refused.unwrap_or_else(|| panic!("{machine} takes it, despite {why}"));
        assert!(said.contains(why), "{said}");
    };
    let (tree, oip) = ("dimmnet-1/D-rhinet3-tree", "dimmnet-1/B-oip");
    refused("dimmnet-1/D-tree", command::way(Node(1), &[1]), "tables alone");
    refused(tree, command::way(Node(1), &[2]), "lead from node 0 to node 2, not to node 1");
    refused(tree, command::way(Node(1), &[7]), "switch 2, not to node 1");
    refused(tree, command::way(Node(1), &[1, 0]), "node 1, and on");
    refused(tree, command::way(Node(1), &[9]), "without a cable");
    refused(tree, command::way(Node(1), &[9, 1]), "without a cable");
    refused(tree, command::way(Node(12), &[1]), "there are 12 nodes");
    refused(tree, command::way(Node(1), &[7, 1, 7, 0, 1]), "rise and then fall");
    refused(oip, command::route(1, Node(0), Some(1)), "no table");
    refused(oip, command::group(5, &[Node(1)]), "needs tables");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever the sizes and losses, words of each sender come to each receiver in their order,
    /// and nothing stays under way.
    #[test]
    fn order_is_kept(
        buffer in 1u32..300, resend in 1u32..300, loss in 0.0..0.6f64, seed: u64,
        sends in proptest::collection::vec((0u32..10, 0u32..10), 1..80),
    ) {
        let mut bench = Bench::of(&rhinet3("D-rhinet3-tree", buffer, resend, loss), 10, seed);
        bench.world.recorder().keep(true);
        let mut ops = Vec::new();
        for (number, &(from, to)) in sends.iter().enumerate() {
            let op = bench.begin(from, store(to, 0, 1 + number as u64));
            bench.answer(op);
            ops.push((op, from, to));
        }
        bench.run();
        bench.assert_conserved();
        let came = bench.world.recorder().stages().iter().filter(|stage| stage.name == "llcm_write");
        let came: Vec<_> = came.map(|stage| stage.op).collect();
        prop_assert_eq!(came.len(), sends.len());
        for pair in (0..10).flat_map(|from| (0..10).map(move |to| (from, to))) {
            let sent = ops.iter().filter(|(_, from, to)| (*from, *to) == pair).map(|(op, ..)| *op);
            let sent: Vec<_> = sent.collect();
            let came: Vec<_> = came.iter().filter(|op| sent.contains(op)).copied().collect();
            prop_assert_eq!(came, sent);
        }
    }
}
