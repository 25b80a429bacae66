//! The 133 MHz design of DIMMnet-1: remote write, and bandwidth of blocks sent from windows.

use super::dimmnet1::{PLACE, machine, nic, one_way, seed};
use super::dimmnet1_stages::hardware_alone;
use super::outcome::{Curve, Outcome, Row};
use super::rivals::compare;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, BANK, Header, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Host, Options, run as run_on};

/// The largest block.
const BLOCK_BYTES: usize = 464;
/// Blocks in a measurement.
const BLOCKS: u64 = 4000;
const PAGE_BYTES: u64 = 4096;

/// MB/s into the banks of the peers of all senders, together: blocks from window to bank, until a
/// store announces the last block.
fn bandwidth(machine: &Machine, senders: u32, block: usize) -> Result<f64, Error> {
    let done = run_on(machine, 2, &Options::default(), |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        nic(command::attach(1));
        nic(command::register(1, me, 1, 0, BANK / PAGE_BYTES));
        nic(command::map(0, &seed(Destination::Node(Node(other)), PLACE)));
        let header =
            Header { process: other, region: 1, ..seed(Destination::Node(Node(other)), 0) };
        // Both nodes begin together.
        nic(command::kick(0, 8, Payload::word(4, 1)));
        nic(command::wait(PLACE + 8, 4, u32::MAX.into(), 1, Looks::Words));
        let start = Host::here().now();
        if me < senders {
            let data = Payload::copy(&vec![1; block]);
            let per_page = PAGE_BYTES / block as u64;
            for number in 0..BLOCKS {
                let header = Header { address: number % per_page * block as u64, ..header };
                let send = if number == 0 { command::block } else { command::next_block };
                nic(send(&header, data.clone()));
            }
            nic(command::kick(0, 16, Payload::word(4, 1)));
        }
        if other < senders {
            nic(command::wait(PLACE + 16, 4, u32::MAX.into(), 1, Looks::Words));
        }
        (Host::here().now() - start).as_ns()
    })?;
    let slowest = done.results.into_iter().fold(0.0, f64::max);
    Ok(senders as f64 * (BLOCKS * block as u64) as f64 * 1000.0 / slowest)
}

pub fn run() -> Result<Outcome, Error> {
    const FIGURE: &str = "dimmnet-1 design: bandwidth of blocks";
    const SIZES: [usize; 7] = [8, 16, 32, 64, 128, 256, BLOCK_BYTES];
    let machine = machine("design")?;
    let mut outcome = Outcome::default();
    // Without the assumed burst, a line takes four uncacheable writes.
    let mut uncached = machine.clone();
    uncached.set(
        "host.line",
        4.0 * machine.section("host").time("write")?.as_ns()
            * machine.section("clock").megahertz("dimm")?
            / 1000.0,
    )?;
    let burst = "the link bounds it. That the host keeps up rests on an assumption: a line of 32 bytes in one burst of 4 cycles (host.line), chosen in knowledge of this figure";
    let row =
        |name: &str, unit, value| Row::predicted(format!("dimmnet-1.design.{name}"), unit, value);
    outcome.rows = vec![
        row("remote_write", "ns", hardware_alone(&machine)?)
            .note("hardware alone: the CPU's write and the stages from the slot to LLCM"),
        row("remote_write_with_software", "ns", one_way(&machine, 8)?)
            .note("half of a ping-pong of 8 bytes by one store, software and the receiver's look included"),
        row("unidirectional_mb_s", "MB/s", bandwidth(&machine, 1, BLOCK_BYTES)?).fitted().note(burst),
        row("bidirectional_mb_s", "MB/s", bandwidth(&machine, 2, BLOCK_BYTES)?).fitted().note(burst),
        Row::predicted(
            "dimmnet-1.design.unidirectional_mb_s_without_bursts",
            "MB/s",
            bandwidth(&uncached, 1, BLOCK_BYTES)?,
        )
        .note("the same where a line is four uncacheable writes, as published for the P3-850"),
    ];
    for (label, senders) in [("DIMMnet-1 design, one way", 1), ("DIMMnet-1 design, both ways", 2)] {
        let points: Result<Vec<_>, Error> = SIZES
            .iter()
            .map(|&size| Ok((size as f64, bandwidth(&machine, senders, size)?)))
            .collect();
        outcome.curves.push(Curve {
            figure: FIGURE,
            label: label.into(),
            x: "bytes of a block",
            y: "MB/s",
            points: points?,
        });
    }
    let (rows, curves) = compare(FIGURE, &SIZES)?;
    outcome.rows.extend(rows);
    outcome.curves.extend(curves);
    outcome.notes = vec![
        "A stream of blocks is one message: its software is paid once.".into(),
        "Memory Channel 2 and PCI-SCI have one fitted constant each, what both adapters take of a remote write; their bandwidths come from the cycles of PCI.".into(),
    ];
    Ok(outcome)
}
