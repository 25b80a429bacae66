//! The switch: its tables, and what its copies are worth.

use super::*;

/// The tables alone say where a packet goes.
#[test]
fn a_changed_route_sends_packets_elsewhere() {
    for (machine, nodes) in [("dimmnet-1/D-switch", 8), ("dimmnet-1/D-tree", 20)] {
        let mut bench = Bench::new(machine, nodes);
        bench.command(0, command::map(0, &seed(nodes - 1, 0)));
        let mut got = |port, value: u64| {
            if let Some(port) = port {
                bench.command(0, command::route(0, Node(nodes - 1), Some(port)));
            }
            bench.command(0, command::kick(0, 8, Payload::word(2, value)));
            bench.settle();
            let all: Vec<_> = (0..nodes)
                .filter(|&node| bench.seen(node, 8, 2) == (value as u16).to_le_bytes())
                .collect();
            all
        };
        assert_eq!(got(None, 1), [nodes - 1], "{machine}");
        assert_eq!(got(Some(2), 2), [2], "{machine}");
        assert_eq!(got(Some(7), 3), [nodes - 1], "{machine}");
        let far = HostOp::Command(command::group(5, &[Node(nodes - 1)]));
        bench.command(0, command::route(0, Node(nodes - 1), Some(2)));
        assert!(bench.ask(0, far).refused.unwrap().contains("do not lead"), "{machine}");
        for (route, why) in [
            (command::route(9, Node(0), None), "9"),
            (command::route(0, Node(nodes), None), "nodes"),
            (command::route(0, Node(0), Some(8)), "no cable"),
        ] {
            assert!(bench.ask(0, HostOp::Command(route)).refused.unwrap().contains(why));
        }
    }
}

#[test]
fn what_has_no_route_is_dropped_and_told() {
    let mut bench = Bench::new("dimmnet-1/D-switch", 3);
    bench.command(0, command::map(0, &seed(1, 0)));
    bench.command(0, command::route(0, Node(1), None));
    let op = bench.begin(0, HostOp::Command(command::kick(0, 8, Payload::word(2, 7))));
    assert_eq!(bench.finish(op), Answer::default());
    let told = Happened::Unrouted(op, 0, Destination::Node(Node(1)));
    assert_eq!(bench.world.next(), Some(told));
    bench.settle();
    let counts = bench.world.counts();
    assert_eq!((counts.sent, counts.arrived, counts.absorbed), (1, 0, 1));
    assert!((0..3).all(|node| bench.seen(node, 8, 2) == [0, 0]));
}

/// What a group of receivers that all have the same process number costs their sender: one packet,
/// whose copies come within the time of one more.
#[test]
fn a_copy_by_the_switch_against_a_packet_for_each() {
    const PROCESS: u32 = 1 << 16;
    const PACKETS: u64 = 8;
    let members = [Node(1), Node(2), Node(3)];
    let time = |len: usize, to: &[Destination]| {
        let mut bench = Bench::new("dimmnet-1/D-switch", 4);
        bench.command(0, command::attach(7));
        bench.command(0, command::group(5, &members));
        for member in members {
            bench.command(member.0, command::attach(7));
            bench.command(member.0, command::register(7, PROCESS, 1, 0, 2));
        }
        let block = |slot: u64, to| {
            let header =
                Header { physical: false, process: PROCESS, region: 1, to, ..seed(0, slot * 512) };
            command::block(&header, Payload::copy(&vec![slot as u8 + 1; len]))
        };
        // Fills the receivers' TLBs.
        to.iter().for_each(|&to| {
            bench.command(0, block(0, to));
        });
        bench.settle();
        bench.world.recorder().clear();
        let start = bench.world.now();
        for slot in 0..PACKETS {
            to.iter().for_each(|&to| {
                bench.command(0, block(slot, to));
            });
        }
        let sent = bench.world.now() - start;
        bench.settle();
        for member in members {
            for slot in 0..PACKETS {
                let seen = bench.seen(member.0, 2 * 4096 + slot * 512, len as u32);
                assert_eq!(seen, vec![slot as u8 + 1; len], "slot {slot} of {member:?}");
            }
        }
        let stages = bench.world.recorder().stages().iter();
        let landed = stages.filter(|stage| stage.name == "llcm_write").map(|stage| stage.end).max();
        (sent, landed.unwrap() - start)
    };
    for len in [8, 464] {
        let one_by_one = time(len, &members.map(Destination::Node));
        let copied = time(len, &[Destination::Multicast(5)]);
        println!("{PACKETS} packets of {len}: one by one {one_by_one:?}, copied {copied:?}");
        assert_eq!(
            one_by_one.0,
            copied.0 * 3,
            "{len} bytes: what takes time is the host's writing"
        );
        assert!(copied.1 * 2 < one_by_one.1, "{len} bytes: {copied:?} against {one_by_one:?}");
    }
}

/// When a word to a PE lands after its call, and when the quiet behind it returns after that.
fn there_and_back(machine: &str, pes: u32, target: u32) -> [Ps; 2] {
    let mut bench = Bench::new(machine, pes);
    let store = |value| HostOp::Store { to: to(target, 0), word: Payload::word(8, value) };
    bench.ask(0, store(1));
    bench.settle();
    bench.changed.clear();
    let begin = bench.world.now();
    bench.ask(0, store(2));
    bench.ask(0, HostOp::Quiet);
    let landed = bench.changed[0].0;
    [landed - begin, bench.world.now() - landed]
}

/// The way back has the links and switches that the way there has. It is a message, so it takes the
/// host's read besides; clocks are met at any phase.
#[test]
fn a_quiet_hears_of_its_writes_by_the_way_back() {
    for (machine, pes, target, links) in [
        ("dimmnet-1/D", 2, 1, 1),
        ("dimmnet-1/D-switch", 8, 7, 2),
        ("dimmnet-1/D-tree", 50, 1, 2),
        ("dimmnet-1/D-tree", 50, 49, 6),
        ("dimmnet-1/D-rhinet3-km", 2, 1, 2),
        ("dimmnet-1/B-oip", 8, 7, 3),
    ] {
        let [there, back] = there_and_back(machine, pes, target);
        let delay = Machine::load(machine).unwrap().section("link").time("delay").unwrap();
        let read = Machine::load(machine).unwrap().section("host").time("read").unwrap();
        assert!(back > delay * links, "{machine} to {target}: {back:?} by {links} links");
        let (least, most) = (there + read - Ps::ns(20), there + read + Ps::ns(20));
        assert!((least..most).contains(&back), "{machine} to {target}: {there:?}, {back:?} back");
    }
}

/// The last write to land is not always the last one of which its sender hears.
#[test]
fn a_quiet_hears_of_all_its_targets() {
    let mut bench = Bench::new("dimmnet-1/D-tree", 50);
    let store = |pe| HostOp::Store { to: to(pe, 0), word: Payload::word(8, 1) };
    for pe in [1, 49] {
        bench.ask(0, store(pe));
    }
    bench.settle();
    bench.changed.clear();
    for pe in [49, 1, 1] {
        bench.ask(0, store(pe));
    }
    bench.ask(0, HostOp::Quiet);
    let landed = |pe| bench.changed.iter().rfind(|(_, of)| *of == Pe(pe)).unwrap().0;
    let [_, near] = there_and_back("dimmnet-1/D-tree", 50, 1);
    let [_, far] = there_and_back("dimmnet-1/D-tree", 50, 49);
    assert!(far > near);
    let heard = (landed(1) + near).max(landed(49) + far);
    assert_eq!(bench.world.now(), heard);
}

/// A fence waits for the updates behind which it stands by the same way.
#[test]
fn a_fence_hears_of_a_signal_by_the_way_back() {
    for (target, links) in [(1, 2), (49, 6)] {
        let mut bench = Bench::new("dimmnet-1/D-core", 50);
        let signal = Signal { at: to(target, 0), op: SignalOp::Add, value: 1 };
        let data = Payload::copy(&[]);
        bench.ask(0, HostOp::Put { to: to(target, 0), data, signal: Some(signal), reuse: true });
        bench.ask(0, HostOp::Fence);
        let heard = bench.world.now() - bench.changed[0].0;
        let [_, back] = there_and_back("dimmnet-1/D-core", 50, target);
        assert_eq!(heard, back, "by {links} links");
        assert!(heard > Ps::ns(151) * links, "{heard:?} by {links} links");
    }
}
