//! Memory Channel 2 and PCI-SCI, with which the 133 MHz design of DIMMnet-1 was compared: stores to
//! the other node's memory, in one direction and in both.

use super::area::{Area, ask};
use super::dimmnet1::mean;
use super::outcome::{Curve, Row};
use crate::error::Error;
use crate::host::HostOp;
use crate::machine::Machine;
use crate::packet::Payload;
use crate::run::{Host, Options, run as run_on};

/// The machine's name in files, and in reports.
const RIVALS: [(&str, &str); 2] =
    [("memory-channel-2", "Memory Channel 2"), ("pci-sci", "PCI-SCI")];
/// Lengths of pauses between two stores, in ns.
const PAUSES: u64 = 100;
/// Bytes of a stream whose bandwidth is that of the machine.
const LONG: usize = 4 << 10;

/// Half of a ping-pong of 8 bytes by one store each, in ns.
fn remote_write(machine: &Machine) -> Result<f64, Error> {
    let done = run_on(machine, 2, &Options::default(), |job| {
        let area = Area::new(&job, 8);
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        let store =
            |number| ask(HostOp::Store { to: area.at(other, 0), word: Payload::word(8, number) });
        // Each node answers after another pause, so that looks have all phases. Pauses do not
        // count.
        let pause = |number: u64| number * [37, 71][me as usize] % PAUSES;
        job.barrier().expect("nobody dies in an experiment");
        mean(|number| {
            if me == 0 {
                job.compute(pause(number));
                store(number);
                area.wait_and_clear(0, number);
            } else {
                area.wait_and_clear(0, number);
                job.compute(pause(number));
                store(number);
            }
        })
    })?;
    Ok(done.results[0] / 2.0 - (PAUSES - 1) as f64 / 2.0)
}

/// MB/s into the memories of the peers of so many senders, together: blocks, until the word after
/// the last block is seen.
fn bandwidth(machine: &Machine, senders: u32, block: usize) -> Result<f64, Error> {
    let blocks = (1 << 20) / block;
    let done = run_on(machine, 2, &Options::default(), |job| {
        let area = Area::new(&job, block.next_multiple_of(8) + 8);
        let flag = block.next_multiple_of(8);
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        let data = Payload::copy(&vec![1; block]);
        job.barrier().expect("nobody dies in an experiment");
        let begin = Host::here().now();
        if me < senders {
            for _ in 0..blocks {
                ask(HostOp::Put {
                    to: area.at(other, 0),
                    data: data.clone(),
                    signal: None,
                    reuse: true,
                });
            }
            ask(HostOp::Store { to: area.at(other, flag), word: Payload::word(8, 1) });
        }
        if other < senders {
            area.wait_and_clear(flag, 1);
        }
        (Host::here().now() - begin).as_ns()
    })?;
    let slowest = done.results.into_iter().fold(0.0, f64::max);
    Ok(senders as f64 * (blocks * block) as f64 * 1000.0 / slowest)
}

/// Rows of both machines, and their curves for a figure, over these block sizes.
pub fn compare(figure: &'static str, sizes: &[usize]) -> Result<(Vec<Row>, Vec<Curve>), Error> {
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for (machine_name, name) in RIVALS {
        let machine = Machine::load(machine_name)?;
        let row = |name: &str, unit, simulated| {
            Row::predicted(format!("{machine_name}.{name}"), unit, simulated)
        };
        let both = row("bidirectional_mb_s", "MB/s", bandwidth(&machine, 2, LONG)?);
        rows.extend([
            row("remote_write", "ns", remote_write(&machine)?).fitted(),
            row("unidirectional_mb_s", "MB/s", bandwidth(&machine, 1, LONG)?)
                .note("bursts of the CPU's stores on PCI"),
            match machine_name {
                "memory-channel-2" => {
                    both.note("both directions share the PCI bus, whose rate is the bound")
                }
                _ => both.note("both directions share the PCI bus"),
            },
        ]);
        for (label, senders) in [("one way", 1), ("both ways", 2)] {
            let points: Result<Vec<_>, Error> = sizes
                .iter()
                .map(|&size| Ok((size as f64, bandwidth(&machine, senders, size)?)))
                .collect();
            curves.push(Curve {
                figure,
                label: format!("{name}, {label}"),
                x: "bytes of a block",
                y: "MB/s",
                points: points?,
            });
        }
    }
    Ok((rows, curves))
}
