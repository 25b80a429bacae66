//! What the NICs let through at a time, and in which order.

use super::*;
use crate::host::Signal;
use crate::testing::{BYTES, Bench, at};

/// A machine of this name with numbers of its own.
fn machine(name: &str, numbers: &[(&str, f64)]) -> Machine {
    let mut machine = Machine::load(name).unwrap();
    for &(key, number) in numbers {
        machine.set(key, number).unwrap();
    }
    machine
}

fn put(to: u32, offset: u64, len: usize) -> HostOp {
    let data = Payload::copy(&vec![7; len]);
    HostOp::Put { to: at(to, offset), data, signal: None, reuse: true }
}

/// A long message moves at the rate of the slowest part of its way, the CPU that copies or the
/// link: while one packet is copied, the one before travels.
#[test]
fn packets_leave_as_they_are_pushed() {
    for name in ["memory-channel-2", "pci-sci", "gigabit-ethernet-udp"] {
        let machine = Machine::load(name).unwrap();
        let landed = |len| {
            let mut bench = Bench::of(&machine, 2, 1);
            bench.begin(0, put(1, 0, len));
            bench.run();
            bench.changed[1].unwrap()
        };
        let (nic, half) = (machine.section("nic"), BYTES / 2);
        let (packet, header) = (nic.bytes("packet").unwrap(), nic.bytes("header").unwrap());
        let wire = half as u64 + header * (half as u64).div_ceil(packet);
        let push = nic.rate("send_byte").unwrap().time(half as u64);
        let link = machine.section("link").rate("rate").unwrap().time(wire);
        let took = landed(BYTES) - landed(half);
        let slowest = push.max(link).as_ns();
        let error = (took.as_ns() - slowest).abs() / slowest;
        assert!(error < 0.02, "{name}: {took}, pushed in {push} and sent in {link}");
    }
}

/// A NIC is as fast inside as its link.
#[test]
fn a_node_sends_to_itself_no_faster_than_by_the_link() {
    let machine = Machine::load("rdma-100g").unwrap();
    let landed = |to: u32| {
        let mut bench = Bench::of(&machine, 2, 1);
        bench.begin(0, put(to, 0, BYTES));
        bench.run();
        bench.changed[to as usize].unwrap()
    };
    let link = machine.section("link").rate("rate").unwrap().time(BYTES as u64);
    assert!(landed(0) >= link && landed(0) <= landed(1), "{} {} {link}", landed(0), landed(1));
}

/// What a slow receiver takes is no more than a message in each gap, however many send.
#[test]
fn the_gap_holds_at_receivers() {
    let (pes, each) = (9, 20);
    let gap = Ps::us(3);
    let machine = machine("rdma-100g", &[("nic.gap", gap.0 as f64 / 1000.0)]);
    let mut bench = Bench::of(&machine, pes, 1);
    for from in 1..pes {
        for number in 0..each {
            let to = at(0, 8 * u64::from(from * each + number));
            let word = Payload::word(8, 1);
            bench.begin(from, HostOp::Store { to, word });
        }
    }
    bench.run();
    let took = bench.changed[0].unwrap();
    let messages = u64::from((pes - 1) * each);
    assert!(took >= gap * (messages - 1), "{messages} messages in {took}");
    assert!(took < gap * (messages + 2), "{messages} messages in {took}");
}

/// The gap lies between messages: it makes none slower that comes alone.
#[test]
fn a_lone_message_waits_for_no_gap() {
    let landed = |gap: f64| {
        let mut bench = Bench::of(&machine("rdma-100g", &[("nic.gap", gap)]), 2, 1);
        bench.begin(0, HostOp::Store { to: at(1, 0), word: Payload::word(8, 1) });
        bench.run();
        bench.changed[1].unwrap()
    };
    assert_eq!(landed(0.0), landed(5000.0));
}

/// A NIC that many read from serves them packet by packet in turn. So all that ask at once have
/// theirs at nearly one time, as has who asks for little while others get much.
#[test]
fn those_who_get_at_once_are_served_in_turn() {
    let (pes, len) = (9, BYTES as u32);
    let mut bench = Bench::new("rdma-100g", pes);
    let get = |len| HostOp::Get { from: at(0, 0), len };
    let long: Vec<_> = (1..pes - 1).map(|pe| bench.begin(pe, get(len))).collect();
    let short = bench.begin(pes - 1, get(4096));
    let short = bench.answer(short).0;
    let ends: Vec<_> = long.into_iter().map(|op| bench.answer(op).0).collect();
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    // The first to ask has a head start of some packets.
    assert!(*first * 4 > *last * 3, "from {first} to {last}");
    let packet = Ps::ns(335);
    assert!(short < Ps::us(3) + packet * u64::from(pes), "4 KiB in {short}");
    bench.run();
    bench.assert_conserved();
}

/// What one PE sends to two others goes to both at once; and to each of them in order.
#[test]
fn those_who_are_sent_to_at_once_are_served_in_turn() {
    let mut bench = Bench::new("rdma-100g", 3);
    let signal = |pe| Signal { at: at(pe, 0), op: SignalOp::Set, value: 1 };
    let put = |pe| {
        let data = Payload::copy(&vec![7; BYTES - 8]);
        HostOp::Put { to: at(pe, 8), data, signal: Some(signal(pe)), reuse: true }
    };
    for pe in [1, 2] {
        let op = bench.begin(0, put(pe));
        bench.answer(op);
    }
    let mut landed = [None; 2];
    while bench.world.next().is_some() {
        for (landed, pe) in landed.iter_mut().zip(1..) {
            if landed.is_none() && bench.bytes(at(pe, 0), 1) == [1] {
                assert!(bench.bytes(at(pe, 8), BYTES - 8).iter().all(|&byte| byte == 7));
                *landed = Some(bench.world.now());
            }
        }
    }
    let [first, second] = landed.map(|landed| landed.expect("the signal comes"));
    assert!(second < first + Ps::us(1), "one after the other: {first}, {second}");
}

/// On a bus that both directions share, what comes in waits for a packet of what goes out, and not
/// for the whole message.
#[test]
fn the_bus_is_shared_packet_by_packet() {
    let mut bench = Bench::new("memory-channel-2", 2);
    let long = bench.begin(0, put(1, 0, BYTES));
    bench.begin(1, HostOp::Store { to: at(0, 0), word: Payload::word(8, 1) });
    bench.answer(long);
    bench.run();
    let came = bench.changed[0].unwrap();
    assert!(came < Ps::us(20), "8 bytes in {came}");
}

#[test]
fn all_that_the_library_sends_is_carried() {
    for name in ["rdma-100g", "fast-ethernet-udp"] {
        crate::testing::carries_the_library(&Machine::load(name).unwrap(), 5);
    }
    crate::testing::carries_the_library(&Machine::load("memory-channel-2").unwrap(), 2);
}
