//! Rows of the simulated machine: how fast it is, and how large.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use memonet_core::unstable::fabric::FarAddress;
use memonet_sim::host::{HostOp, Op, Pe};
use memonet_sim::memory::PlainMemory;
use memonet_sim::packet::Payload;
use memonet_sim::random::Random;
use memonet_sim::world::{Happened, World};
use memonet_sim::{Machine, Options};

use crate::bench::row::{Effort, Row};
use crate::bench::rows::process::{cpu_ns, peak_kib};
use crate::bench::stats::{LIBRARY, Sample};

/// The machine of all simulated rows.
pub const MACHINE: &str = "rdma-100g";
/// Nodes that send each other blocks, packets of a block, and blocks that each node has in flight.
/// A NIC sends packet by packet, so that each node has about five events pending.
const NODES: u32 = 20_480;
const PACKETS: usize = 4;
const BLOCKS: usize = 8;
const BLOCK: usize = PACKETS * 4096;
/// Events of a sample.
const EVENTS: u64 = 2_000_000;
/// Entries of the bare heap.
const PENDING: u64 = 100_000;

/// Millions of events a second, beside pops and pushes of a bare heap. Which of the two comes first
/// changes from round to round.
pub fn events(_row: &Row, round: usize, effort: Effort) -> Result<Sample> {
    let count = effort.of(EVENTS as usize) as u64;
    Ok(match round.is_multiple_of(2) {
        true => vec![(LIBRARY, handled(count)?), ("binary heap", heap(count))],
        false => vec![("binary heap", heap(count)), (LIBRARY, handled(count)?)],
    })
}

/// Seconds of real time of a job of many PEs, all in one barrier.
pub fn barrier(row: &Row, _round: usize, _effort: Effort) -> Result<Sample> {
    Ok(vec![(LIBRARY, meet(row.pes)?)])
}

/// Peak MiB of such a job.
pub fn barrier_memory(row: &Row, _round: usize, _effort: Effort) -> Result<Sample> {
    meet(row.pes)?;
    Ok(vec![(LIBRARY, peak_kib()? / 1024.0)])
}

/// Millions of events a second.
fn handled(count: u64) -> Result<f64> {
    let memory = PlainMemory::new(NODES as usize, BLOCK);
    let mut world = World::build(&Machine::load(MACHINE)?, NODES, 1, Box::new(memory))?;
    let block = Payload::copy(&vec![7; BLOCK]);
    let send = |world: &mut World, pe: u32, number: u32| {
        let to = FarAddress { pe: (pe + 1 + number % (NODES - 1)) % NODES, region: 0, offset: 0 };
        let what = HostOp::Put { to, data: block.clone(), signal: None, reuse: false };
        world.begin(Op { pe: Pe(pe), number }, what);
    };
    for pe in 0..NODES {
        (0..BLOCKS as u32).for_each(|number| send(&mut world, pe, number));
    }
    let mut landed = vec![0usize; NODES as usize];
    let mut handle = |world: &mut World, until: u64| -> Result<()> {
        while world.counts().events < until {
            // A node sends its next block when it has received one.
            if let Happened::Changed(pe) = world.next().context("no event is left")? {
                landed[pe.index()] += 1;
                if landed[pe.index()].is_multiple_of(PACKETS) {
                    send(world, pe.0, (landed[pe.index()] / PACKETS + BLOCKS) as u32);
                }
            }
        }
        Ok(())
    };
    // Until the number of pending events is steady.
    handle(&mut world, EVENTS / 10)?;
    let (begun, start) = (world.counts().events, cpu_ns());
    handle(&mut world, begun + count)?;
    let time = cpu_ns() - start;
    let pending = world.pending();
    ensure!(pending >= PENDING as usize / 2, "only {pending} events were pending at the end");
    Ok(count as f64 * 1e3 / time as f64)
}

/// Millions of pops and pushes a second: each popped entry is pushed again, at a random later time.
fn heap(count: u64) -> f64 {
    let mut random = Random::new(1);
    let mut heap: BinaryHeap<Reverse<(u64, u64)>> =
        (0..PENDING).map(|number| Reverse((random.next_bits() >> 40, number))).collect();
    let start = cpu_ns();
    for _ in 0..count {
        if let Some(Reverse((at, number))) = heap.pop() {
            heap.push(Reverse((at + (random.next_bits() >> 40), number)));
        }
    }
    count as f64 * 1e3 / (cpu_ns() - start) as f64
}

/// Seconds of real time of a job that meets in one barrier.
fn meet(pes: usize) -> Result<f64> {
    let options = Options { segment: Some(2 << 20), stack: 128 << 10, ..Options::default() };
    let start = Instant::now();
    let done = memonet_sim::run(&Machine::load(MACHINE)?, pes, &options, |job| job.barrier())?;
    let time = start.elapsed().as_secs_f64();
    for result in done.results {
        result?;
    }
    Ok(time)
}
