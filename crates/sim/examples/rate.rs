//! Events that the machine handles in a second with some 100,000 pending: nodes that send each other blocks of many packets, without programs.

use memonet_core::fabric::FarAddress;
use memonet_sim::Machine;
use memonet_sim::host::{HostOp, Op, Pe};
use memonet_sim::memory::PlainMemory;
use memonet_sim::packet::Payload;
use memonet_sim::queue::Queue;
use memonet_sim::time::Ps;
use memonet_sim::world::{Happened, World};

const NODES: u32 = 128;
/// Packets of a block, and blocks that each node has under way.
const PACKETS: usize = 100;
const BLOCKS: usize = 8;
const BLOCK: usize = PACKETS * 4096;
const EVENTS: u64 = 6_000_000;

/// Seconds of a CPU that this process has had: other work on the machine does not count.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let machine = Machine::load("rdma-100g").unwrap_or_else(|e| panic!("{e}"));
    let memory = PlainMemory::new(NODES as usize, BLOCK);
    let mut world = World::build(&machine, NODES, 1, Box::new(memory)).unwrap_or_else(|e| panic!("{e}"));
    let block = Payload::copy(&vec![7; BLOCK]);
    let put = |pe: u32, number: u32| {
        let to = FarAddress {
            pe: (pe + 1 + number % (NODES - 1)) % NODES,
            region: 0,
            offset: 0,
        };
        let what = HostOp::Put {
            to,
            data: block.clone(),
            signal: None,
            reuse: false,
        };
        (Op { pe: Pe(pe), number }, what)
    };
    for (pe, number) in (0..NODES).flat_map(|pe| (0..BLOCKS as u32).map(move |number| (pe, number))) {
        let (op, what) = put(pe, number);
        world.begin(op, what);
    }
    let (mut least, mut most, mut looks, mut landed) = (usize::MAX, 0, 0u64, vec![0usize; NODES as usize]);
    let start = cpu_time();
    while world.counts().events < EVENTS {
        // A node sends the next block when it has got one.
        if let Happened::Changed(pe) = world.next().expect("there is always more") {
            landed[pe.index()] += 1;
            if landed[pe.index()] % PACKETS == 0 {
                let (op, what) = put(pe.0, (landed[pe.index()] / PACKETS + BLOCKS) as u32);
                world.begin(op, what);
            }
        }
        looks += 1;
        if looks % 10_000 == 0 {
            (least, most) = (least.min(world.pending()), most.max(world.pending()));
        }
    }
    let time = cpu_time() - start;
    println!(
        "machine: {:.2} M events/s, {least} to {most} pending",
        world.counts().events as f64 / time / 1e6
    );

    // The queue alone: each event taken is put in again, at a random later time.
    let mut queue = Queue::default();
    let mut random = memonet_sim::random::Random::new(1);
    for number in 0..100_000u64 {
        queue.push(Ps(random.next_bits() >> 40), number);
    }
    let start = cpu_time();
    for _ in 0..EVENTS {
        let (at, number) = queue.pop().expect("as many as before");
        queue.push(Ps(at.0 + (random.next_bits() >> 40)), number);
    }
    println!(
        "queue alone: {:.2} M pop and push a second, 100,000 pending",
        EVENTS as f64 / (cpu_time() - start) / 1e6
    );
}
