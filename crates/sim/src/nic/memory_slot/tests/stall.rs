//! Hosts whose queue is full because the link stands still.

use super::*;
use crate::host::{Atomic, GroupOp, Wanted};
use crate::trace::Stage;
use crate::world::Wake;
use memonet_core::unstable::shm::AtomicOp;
use std::sync::Arc;

/// DIMMnet-1 with a core processor, at a switch that takes 500 us for a packet and has room for
/// two. The queue of stores has room for `words`, that of blocks for `blocks`.
fn slow(per_node: u32, words: u32, blocks: u32) -> Machine {
    let text = include_str!("../../../../../../machines/dimmnet-1.toml");
    let text = text.replace(
        "[variant.D-rhinet3-km]",
        "topology.pes_per_node = { value = 1, assumed = \"a test\" }
core.handle = { value = 60, unit = \"cycles of dimm\", assumed = \"a test\" }
core.access = { value = 4, unit = \"cycles of dimm\", assumed = \"a test\" }
core.look = { value = 12, unit = \"cycles of dimm\", assumed = \"a test\" }
switch.port_time = { value = 500, unit = \"us\", assumed = \"a test\" }

[variant.D-rhinet3-km]",
    );
    let text = text.replace(
        "switch.buffer = { value = 16, unit = \"KiB\"",
        "switch.buffer = { value = 64, unit = \"B\"",
    );
    let mut machine = Machine::parse("slow", &text, Some("D-rhinet3-tree")).unwrap();
    machine.set("topology.pes_per_node", per_node.into()).unwrap();
    machine.set("send.aotf_queue", words.into()).unwrap();
    machine.set("send.botf_queue", blocks.into()).unwrap();
    machine
}

fn word(to: FarAddress, value: u64) -> HostOp {
    HostOp::Store { to, word: Payload::word(8, value) }
}

fn put(to: FarAddress, len: usize, signal: Option<(u64, SignalOp)>) -> HostOp {
    let at = |offset| FarAddress { offset, ..to };
    let signal = signal.map(|(offset, op)| Signal { at: at(offset), op, value: 1 });
    HostOp::Put { to, data: Payload::copy(&vec![1; len]), signal, reuse: true }
}

/// PEs 0 to 7 join.
fn join(bench: &mut Bench, wanted: Wanted) -> u32 {
    let members: Arc<[u32]> = (0..8).collect();
    let join = |pe| {
        let join = GroupOp::Join { members: members.clone(), wanted };
        bench.begin(pe, HostOp::Group(join))
    };
    let ops: Vec<Op> = (0..8).map(join).collect();
    let group = bench.finish(ops[0]).value as u32;
    bench.settle();
    group
}

/// Which of these calls find their queue full behind stores that wait for the link.
fn find_it_full(words: u32, blocks: u32) -> Vec<&'static str> {
    type Make = fn(u32, u32) -> HostOp;
    let calls: [(&str, Make); 11] = [
        ("store", |_, _| word(to(1, 0), 1)),
        ("put", |_, _| put(to(1, 0), 100, None)),
        ("put of nothing", |_, _| put(to(1, 0), 0, None)),
        ("signal", |_, _| put(to(1, 0), 0, Some((0, SignalOp::Set)))),
        ("signal that adds", |_, _| put(to(1, 0), 0, Some((0, SignalOp::Add)))),
        ("update", |_, _| HostOp::Atomic {
            at: to(1, 0),
            size: 8,
            what: Atomic::Op(AtomicOp::Add, 1),
        }),
        ("arrival", |barrier, _| HostOp::Group(GroupOp::Arrive(barrier))),
        ("copied word", |_, group| {
            let data = Payload::word(8, 1);
            HostOp::Group(GroupOp::Multicast { group, to: to(0, 0), data })
        }),
        ("copied block", |_, group| {
            let data = Payload::copy(&[1; 9]);
            HostOp::Group(GroupOp::Multicast { group, to: to(0, 0), data })
        }),
        ("fence", |_, _| HostOp::Fence),
        ("quiet", |_, _| HostOp::Quiet),
    ];
    let mut full = Vec::new();
    for (name, call) in calls {
        let mut bench = Bench::of(&slow(1, words, blocks), 8);
        let barrier = join(&mut bench, Wanted::Barrier);
        let group = join(&mut bench, Wanted::Multicast);
        for value in 0..20 {
            bench.ask(0, word(to(1, 0), value));
        }
        // Until the last one has come to the link.
        let later = bench.world.now() + Ps::us(5);
        bench.world.wake(later, Wake::Departures);
        while bench.world.now() < later {
            bench.world.next();
        }
        let op = bench.begin(0, call(barrier, group));
        bench.settle();
        let is_full = |stage: &Stage| stage.op == op && stage.name == "queue full";
        if bench.world.recorder().stages().iter().any(is_full) {
            full.push(name);
        }
    }
    full
}

#[test]
fn a_call_waits_for_the_queue_by_which_it_sends() {
    let blocks = ["put", "signal that adds", "update", "copied block"];
    assert_eq!(find_it_full(1000, 4), blocks);
    assert_eq!(find_it_full(4, 1000), ["store", "signal", "arrival", "copied word"]);
}

/// Who shares a NIC with a PE whose call waits goes on with what sends nothing, or goes by another
/// queue.
#[test]
fn a_stalled_user_does_not_stop_the_others() {
    let mut bench = Bench::of(&slow(2, 1000, 4), 4);
    for value in 0..20 {
        bench.ask(0, word(to(2, 0), value));
    }
    let begin = bench.world.now();
    bench.begin(0, put(to(2, 8), 100, None));
    for what in [HostOp::Fence, HostOp::Quiet, word(to(3, 0), 1)] {
        let op = bench.begin(1, what);
        assert_eq!(bench.finish(op).refused, None);
    }
    assert!(bench.world.now() - begin < Ps::us(10), "{:?}", bench.world.now() - begin);
    let behind = bench.begin(0, HostOp::Fence);
    bench.finish(behind);
    assert!(bench.world.now() - begin > Ps::us(500), "its own calls keep their order");
    bench.settle();
}
