//! Lanes: what is stopped in one stops no other, and each stays in order.

use super::*;
use crate::trace::{Place, Track};

const TEXT: &str = include_str!("../../../../../../machines/dimmnet-2.toml");

/// The time in which a link carries a full packet.
const FULL: Ps = Ps::ns(2048 + 34);

/// DIMMnet-2 with lanes and these keys besides, `key = value` or `key = value, unit`.
fn lanes(keys: &[(&str, &str)]) -> Machine {
    let keys: String = keys
        .iter()
        .map(|(key, value)| format!("{key} = {{ value = {value}, assumed = \"a test\" }}\n"))
        .collect();
    let text = format!("{TEXT}\n[variant.tested]\nlike = \"lanes\"\n{keys}");
    Machine::parse("tested", &text, Some("tested")).unwrap()
}

/// Lanes on a tree, lanes whose links repeat what they lose, lanes with reliable connections, and
/// lanes without back-pressure.
fn kinds() -> Vec<Machine> {
    let tree = [
        ("switch.ports", "4"),
        ("topology.shape", "\"tree\""),
        ("topology.fat", "1"),
        ("switch.buffer", "100, unit = \"B\""),
    ];
    let repeats = [("link.loss", "0.2"), ("link.resend_buffer", "6, unit = \"KiB\"")];
    let connections = [("link.loss", "0.1"), ("nic.retransmit", "50, unit = \"us\"")];
    let both = [tree.as_slice(), &repeats].concat();
    let unbounded = TEXT.replace("like = \"credits\"\n", "");
    let unbounded = Machine::parse("unbounded", &unbounded, Some("lanes")).unwrap();
    let with = [&[], &tree[..], &repeats, &connections, &both].map(lanes);
    with.into_iter().chain([unbounded]).collect()
}

/// PEs 1 to 3 put blocks to PE 0, more than its link takes.
fn flood(bench: &mut Bench) {
    for block in 0..30 {
        for pe in 1..4 {
            let (to, data) = (at(0, 64 + 2048 * (block % 4)), Payload::copy(&[pe as u8; 2048]));
            bench.begin(pe, HostOp::Put { to, data, signal: None, reuse: false });
        }
    }
}

/// How long a datagram of PE 1 takes to PE 2, behind the flood.
fn datagram_takes(machine: &str) -> Ps {
    let mut bench = Bench::new(machine, 4);
    let group = join_for(&mut bench, &[0, 1, 2, 3], Wanted::Datagrams(0))[0] as u32;
    bench.run();
    let begin = bench.world.now();
    flood(&mut bench);
    bench.begin(1, send(group, Some(2), &[7; 100]));
    bench.run();
    bench.assert_conserved();
    assert_eq!(take(&mut bench, 2, group), [[7; 100]]);
    bench.changed[2].unwrap() - begin
}

/// Puts that no buffer has room for stop the datagrams behind them, unless those have a lane. Then
/// a datagram waits no longer than for a packet that has started.
#[test]
fn a_stopped_lane_stops_no_other() {
    let [free, credits, lanes] =
        ["dimmnet-2", "dimmnet-2/credits", "dimmnet-2/lanes"].map(datagram_takes);
    assert!(credits > free * 2, "{credits} {free}");
    assert!(lanes <= free + FULL, "{lanes} {free}");
}

/// How long a management packet of PE 1's takes to the switch and back, beside the flood.
fn management_takes(machine: &str, floods: bool) -> Ps {
    let mut bench = Bench::new(machine, 4);
    if floods {
        flood(&mut bench);
        let soon = bench.world.now() + Ps::us(60);
        bench.run_until(soon);
    }
    let begin = bench.world.now();
    let op = bench.begin(1, HostOp::Command(read_table(0, 0)));
    let took = bench.answer(op).0 - begin;
    bench.run();
    bench.assert_conserved();
    took
}

#[test]
fn management_waits_for_no_data() {
    let alone = management_takes("dimmnet-2/lanes", false);
    let credits = management_takes("dimmnet-2/credits", true);
    let lanes = management_takes("dimmnet-2/lanes", true);
    assert!(credits > alone + FULL * 3, "{credits} {alone}");
    assert!((alone..=alone + FULL * 2).contains(&lanes), "{lanes} {alone}");
}

/// Two senders, a lane each, share the link of a third by the weights of their lanes.
#[test]
fn weights_share_a_link() {
    let weights = [("lanes.0.low", "6000, unit = \"B\""), ("lanes.1.low", "2000, unit = \"B\"")];
    let high = ("lanes.1.high", "0, unit = \"B\"");
    let mut bench = Bench::of(&lanes(&[&weights[..], &[high]].concat()), 3, 1);
    let group = join_for(&mut bench, &[0, 1, 2], Wanted::Datagrams(0))[0] as u32;
    bench.run();
    bench.world.recorder().keep(true);
    for _ in 0..40 {
        let data = Payload::copy(&[1; 2048]);
        bench.begin(1, HostOp::Put { to: at(0, 0), data, signal: None, reuse: false });
        bench.begin(2, send(group, Some(0), &[2; 2048]));
    }
    bench.run();
    let (switch, port) = (Place::Switch(0), 0);
    let stages = bench.world.recorder().stages().iter();
    let link = stages.filter(|stage| stage.track == Track::Link(switch, port));
    let senders: Vec<u32> =
        link.filter(|stage| stage.name == "link").map(|stage| stage.op.pe.0).collect();
    // Once both wait, three of the one go for each of the other.
    let busy = &senders[10..30];
    assert_eq!(busy.iter().filter(|&&pe| pe == 1).count(), 15, "{senders:?}");
    bench.assert_conserved();
}

#[test]
fn lanes_carry_the_library() {
    for machine in kinds() {
        carries_the_library(&machine, 4);
        carries_the_library(&machine, 1);
    }
}

/// A signal is visible only after the data before it, whatever goes by other lanes and whatever is
/// lost.
#[test]
fn what_one_node_sends_to_another_stays_in_order() {
    for (machine, seed) in kinds().iter().cycle().zip(0..30) {
        let mut bench = Bench::of(machine, 7, seed);
        let group = join_for(&mut bench, &[0, 1, 6], Wanted::Datagrams(0))[0] as u32;
        for round in 1..=5u64 {
            let data = vec![round as u8; 20_000];
            let signal = Some(Signal { at: at(6, 0), op: SignalOp::Set, value: round });
            let (to, data_of) = (at(6, 64), Payload::copy(&data));
            bench.begin(0, HostOp::Put { to, data: data_of, signal, reuse: false });
            bench.begin(0, send(group, Some(6), &[1; 2000]));
            bench.begin(1, send(group, None, &[2; 9000]));
            while bench.bytes(at(6, 0), 8) != round.to_le_bytes() {
                let next = bench.world.now() + Ps::us(1);
                bench.run_until(next);
            }
            assert_eq!(bench.bytes(at(6, 64), data.len()), data, "seed {seed}");
        }
        bench.run();
        bench.assert_conserved();
    }
}

#[test]
fn levels_are_0_to_15_and_of_use_with_lanes() {
    let wrong = lanes(&[("nic.service", "16")]).check().unwrap_err().to_string();
    assert!(wrong.contains("levels of service are 0 to 15"), "{wrong}");
    let text =
        format!("{TEXT}\n[variant.tested]\nnic.service = {{ value = 1, assumed = \"a test\" }}\n");
    let alone = Machine::parse("alone", &text, Some("tested")).unwrap().check().unwrap_err();
    assert!(alone.to_string().contains("nic.service"), "{alone}");
}
