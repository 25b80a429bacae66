//! The 133 MHz design of DIMMnet-1: remote write, and bandwidth of blocks sent from windows.

use super::dimmnet1::{PLACE, machine, nic, round_trip, seed};
use super::published::published;
use super::{Curve, Outcome, Row};
use crate::error::Error;
use crate::nic::memory_slot::command::{self, BANK, Header, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Host, Options, run as run_on};

/// Bytes of the largest block.
const BLOCK: usize = 464;
/// Blocks of a measurement.
const BLOCKS: u64 = 1000;
const PAGE: u64 = 4096;

/// MB/s that come into the bank of each of `senders` peers, together: blocks from window to bank, until the last has been announced by a store.
fn bandwidth(variant: &str, senders: u32, block: usize) -> Result<f64, Error> {
    let done = run_on(&machine(variant)?, 2, &Options::default(), |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        nic(command::attach(1));
        nic(command::register(1, me, 1, 0, BANK / PAGE));
        nic(command::map(0, &seed(Destination::Node(Node(other)), PLACE)));
        let header = Header {
            process: other,
            region: 1,
            ..seed(Destination::Node(Node(other)), 0)
        };
        // Both begin together.
        nic(command::kick(0, 8, Payload::word(4, 1)));
        nic(command::wait(PLACE + 8, 4, u32::MAX.into(), 1, Looks::Words));
        let start = Host::here().now();
        if me < senders {
            let data = Payload::copy(&vec![1; block]);
            let per_page = PAGE / block as u64;
            for number in 0..BLOCKS {
                let header = Header {
                    address: number % per_page * block as u64,
                    ..header
                };
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
    let mut outcome = Outcome::default();
    let remote_write = round_trip("design", 8)? / 2.0;
    outcome.rows = vec![
        Row::predicted("dimmnet-1.design.remote_write", "ns", remote_write)
            .note("half of a ping-pong of 8 bytes by one store, software and the receiver's look included"),
        Row::predicted("dimmnet-1.design.unidirectional_mb_s", "MB/s", bandwidth("design", 1, BLOCK)?),
        Row::predicted("dimmnet-1.design.bidirectional_mb_s", "MB/s", bandwidth("design", 2, BLOCK)?),
    ];
    for (label, senders) in [("one way", 1), ("both ways", 2)] {
        let sizes = [8, 16, 32, 64, 128, 256, BLOCK];
        let points: Result<Vec<_>, Error> = sizes
            .iter()
            .map(|&size| Ok((size as f64, bandwidth("design", senders, size)?)))
            .collect();
        outcome.curves.push(Curve {
            figure: "dimmnet-1 design: bandwidth of blocks",
            label: label.into(),
            x: "bytes of a block",
            y: "MB/s",
            points: points?,
        });
    }
    outcome.notes = vec!["A stream of blocks is one message: its software is paid once.".into()];
    for (rival, name) in [("memory-channel-2", "Memory Channel 2"), ("pci-sci", "PCI-SCI")] {
        let figure = |name: &str| published(&format!("{rival}.{name}")).unwrap_or(f64::NAN);
        outcome.notes.push(format!(
            "Published for {name}: remote write {} ns, {} MB/s one way, {} MB/s both ways.",
            figure("remote_write"),
            figure("unidirectional_mb_s"),
            figure("bidirectional_mb_s")
        ));
    }
    Ok(outcome)
}
