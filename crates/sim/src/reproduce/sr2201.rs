//! SR2201: remote DMA by command words, started directly and by system calls.

use super::area::Area;
use super::dimmnet1::nic;
use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::command_word::{CommandWord, Start, allow, build, start};
use crate::run::{Host, Options, run as run_on};

const KEY: u32 = 0x2201;
/// Longer transfers than this are less than 0.1 % faster.
const LONG_BYTES: usize = 4 << 20;
/// A curve visibly reaches its peak at this part of it.
const REACHED: f64 = 0.95;

/// The time of one way, in ns: half of a ping-pong between neighbours. Each word is built once and
/// started many times; the receiver spins on its flag.
fn one_way(bytes: usize, how: Start) -> Result<f64, Error> {
    let rounds = if bytes > 1 << 16 { 4 } else { 100 };
    let done = run_on(&Machine::load("sr2201")?, 2, &Options::default(), |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        let flag = bytes.next_multiple_of(8);
        let area = Area::new(&job, flag + 8);
        nic(allow(area.at(me, 0), flag as u64 + 8, KEY));
        let word = CommandWord {
            from: area.at(me, 0),
            to: area.at(other, 0),
            len: bytes as u32,
            key: KEY,
            flag: Some(area.at(other, flag).offset),
        };
        let word = nic(build(&word));
        job.barrier().expect("nobody dies in an experiment");
        let begin = Host::here().now();
        for _ in 0..rounds {
            if me == 0 {
                nic(start(word, how));
                area.wait_and_clear(flag, 1);
            } else {
                area.wait_and_clear(flag, 1);
                nic(start(word, how));
            }
        }
        (Host::here().now() - begin).as_ns() / (2 * rounds) as f64
    })?;
    Ok(done.results[0])
}

/// The bandwidth of transfers of a size, in MB/s.
fn bandwidth(bytes: usize, how: Start) -> Result<f64, Error> {
    Ok(bytes as f64 * 1000.0 / one_way(bytes, how)?)
}

/// The smallest transfer, in bytes, that reaches a part of the peak.
fn reaches(part: f64, peak: f64, how: Start) -> Result<f64, Error> {
    let (mut below, mut from) = (0, LONG_BYTES / 8);
    while from - below > 1 {
        let middle = (below + from) / 2;
        if bandwidth(middle * 8, how)? >= part * peak {
            from = middle;
        } else {
            below = middle;
        }
    }
    Ok((from * 8) as f64)
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let peak = bandwidth(LONG_BYTES, Start::Direct)?;
    let (direct, system) = (one_way(8, Start::Direct)?, one_way(8, Start::SystemCall)?);
    outcome.rows = vec![
        Row::predicted("sr2201.latency_8_bytes_direct_ns", "ns", direct).fitted(),
        Row::predicted("sr2201.latency_8_bytes_syscall_ns", "ns", system).fitted(),
        Row::predicted("sr2201.latency_ratio_direct_to_syscall", "x", direct / system)
            .fitted()
            .note("both latencies are fitted"),
        Row::predicted("sr2201.one_way_ns_below", "ns", direct).fitted(),
        Row::predicted("sr2201.bandwidth_mb_s_at_least", "MB/s", peak).note("the peak"),
        Row::predicted("sr2201.half_of_peak_at_bytes", "B", reaches(0.5, peak, Start::Direct)?),
        Row::predicted("sr2201.peak_reached_at_bytes", "B", reaches(REACHED, peak, Start::Direct)?)
            .note("direct start, within 5 % of the peak; published: at 20 to 30 KB"),
        Row::predicted(
            "sr2201.half_of_peak_at_bytes_syscall",
            "B",
            reaches(0.5, peak, Start::SystemCall)?,
        ),
        Row::predicted(
            "sr2201.peak_reached_at_bytes_syscall",
            "B",
            reaches(REACHED, peak, Start::SystemCall)?,
        ),
    ];
    outcome.notes = vec![
        "SR2201: each start method has one published latency, on which its constant is fitted; what is left to check is the shape of the curve, which the \
         link's rate and those latencies give."
            .into(),
    ];
    for (label, how) in [("direct start", Start::Direct), ("system call", Start::SystemCall)] {
        let points: Result<Vec<_>, Error> =
            (3..=22).map(|bit| Ok((f64::from(1 << bit), bandwidth(1 << bit, how)?))).collect();
        outcome.curves.push(Curve {
            figure: "sr2201: bandwidth",
            label: label.into(),
            x: "bytes",
            y: "MB/s",
            points: points?,
        });
    }
    Ok(outcome)
}
