//! memonet: multicast channels, `dsm::Mutex`, and programs for a simulated machine.

use crate::channels::{End, Read, Write, stream, there_and_back};
use crate::locks::measure_lock;
use crate::page::Side;
use anyhow::{Result, bail};
use memonet::dsm::Mutex;
use memonet::{Job, Multicast, MulticastOptions, SignalOp};
use std::time::Instant;

struct Channel(Multicast<u64>);

impl Write for Channel {
    fn copied(&mut self, message: &[u64]) -> Result<()> {
        Ok(self.0.publish(message)?)
    }

    fn in_place(&mut self, len: usize, word: u64) -> Result<()> {
        let mut claim = self.0.claim(len)?;
        claim.fill(word);
        Ok(claim.commit()?)
    }
}

impl Read for Channel {
    fn messages(&mut self, _: u64, see: &mut impl FnMut(&[u64])) -> Result<u64> {
        let block = self.0.peek()?;
        see(&block);
        block.pop();
        Ok(1)
    }

    fn copies(
        &mut self,
        _: u64,
        to: &mut Vec<u64>,
        see: &mut impl FnMut(&[u64]),
    ) -> Result<u64> {
        to.clear();
        self.0.recv(to)?;
        see(to);
        Ok(1)
    }
}

pub fn row(job: &Job, side: &Side, row: &str, seconds: f64) -> Result<()> {
    let make = |writer: usize| job.multicast(writer, &[1 - writer], MulticastOptions::new());
    if row.starts_with("lock") {
        let mutex = Mutex::new(job, &0u64)?;
        measure_lock(side, row, seconds, || {
            let mut number = mutex.lock()?;
            *number += 1;
            Ok(*number)
        })?;
    } else if row.starts_with("latency") {
        let (there, back) = (Channel(make(0)?), Channel(make(1)?));
        let (write, read) = if side.me == 0 { (there, back) } else { (back, there) };
        there_and_back(side, row, seconds, write, read)?;
    } else {
        let len = if row.starts_with("64_KiB") { 8192 } else { 8 };
        let channel = Channel(make(0)?);
        let end = if side.me == 0 { End::Write(channel) } else { End::Read(channel) };
        stream(side, row, seconds, len, end)?;
    }
    Ok(job.barrier()?)
}

/// A program for the simulated machine: the same as `smpi.c`.
pub fn simulated(job: &Job, what: &str) -> Result<()> {
    match what {
        "barriers" => (0..200).try_for_each(|_| job.barrier())?,
        "exchanges" => {
            let bytes = 4096 * job.npes();
            let (from, to) = (job.window::<u8>(bytes)?, job.window::<u8>(bytes)?);
            from.put(job.pe(), 0, &vec![job.pe() as u8; bytes])?;
            for _ in 0..20 {
                job.world().all_to_all_into(to.span(0..bytes)?, from.span(0..bytes)?)?;
            }
        }
        "start" => {}
        "times" => times(job)?,
        _ => bail!("no program {what}"),
    }
    Ok(())
}

/// One-way times of a word, and of a block and its signal, in the machine's time.
fn times(job: &Job) -> Result<()> {
    const TRIPS: u64 = 10;
    let (blocks, flag) = (job.window::<u8>(1 << 20)?, job.window::<u64>(1)?);
    let source = vec![1u8; 1 << 20];
    let mut turn = 0;
    for bytes in [8, 1 << 20] {
        job.barrier()?;
        let start = Instant::now();
        for _ in 0..TRIPS {
            turn += 1;
            let send = || {
                let to = 1 - job.pe();
                if bytes == 8 {
                    return Ok(flag.remote(to, 0)?.store(turn));
                }
                blocks.put_signal(to, 0, &source[..bytes], &flag, 0, SignalOp::Set, turn)
            };
            if job.pe() == 0 {
                send()?;
            }
            flag.wait_until(0, memonet::Cmp::Ge, turn)?;
            if job.pe() == 1 {
                send()?;
            }
        }
        if job.pe() == 0 {
            let us = start.elapsed().as_nanos() as f64 / 2e3 / TRIPS as f64;
            println!("{bytes} 2 us {us:.3} - -");
        }
    }
    Ok(())
}
