//! DIMMnet-2's prefetch, to look at: a host reads what lies in the buffer memory of its own NIC.
//!
//! ```sh
//! cargo run -p memonet-sim --example prefetch -- dimmnet-2 64 prefetch.json
//! ```
//!
//! The arguments are a machine, how many KiB the host reads, and perhaps a file for the timeline,
//! which ui.perfetto.dev opens. The host reads them three times: word by word through the core
//! logic; by blocks that it has prefetched into the NIC's window; and with the window in two
//! halves, so that it reads one while the core logic fills the other.

use memonet_core::unstable::fabric::FarAddress;
use memonet_core::{Access, Job, Result};
use memonet_sim::host::Command;
use memonet_sim::nic::infiniband::{prefetch, read, read_window};
use memonet_sim::{Done, Host, Machine, Options, now, run};
use std::fs::File;
use std::time::Duration;

/// The region of the first restricted window of a job.
const REGION: u32 = 1;
/// Bytes of a half of the window.
const HALF: u64 = 2048;

/// A command to the NIC of this PE, and the numbers in its answer.
fn command(command: Command) -> Vec<u64> {
    // SAFETY: these commands write nothing.
    let answer = unsafe { Host::here().command(command) }.expect("the machine has a window");
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
    answer.data.with(|bytes| bytes.chunks_exact(8).map(word).collect())
}

/// How long this took, and that it brought what it should.
fn timed(expected: u64, bring: impl FnOnce() -> u64) -> Duration {
    let begin = now();
    assert_eq!(bring(), expected, "the host has read something else");
    now() - begin
}

/// The times of the three ways to read so many blocks of half a window.
fn three_ways(job: &Job, blocks: u64) -> Result<[Duration; 3]> {
    let words = (blocks * HALF / 8) as usize;
    let memory = job.restricted::<u64>(words, |_, _| Access::ReadWrite)?;
    (0..words).for_each(|index| memory.write(index, index as u64));
    let expected = (0..words as u64).sum();
    let block = |number| FarAddress { pe: 0, region: REGION, offset: number * HALF };
    let fetch = |number| {
        if number < blocks {
            command(prefetch(number % 2 * HALF, block(number), HALF));
        }
    };
    let sum = |number| command(read_window(number % 2 * HALF, HALF)).iter().sum::<u64>();
    let direct =
        timed(expected, || (0..blocks).flat_map(|number| command(read(block(number), HALF))).sum());
    let waiting = timed(expected, || {
        let one = |number| {
            fetch(number);
            sum(number)
        };
        (0..blocks).map(one).sum()
    });
    let ahead = timed(expected, || {
        fetch(0);
        let one = |number| {
            fetch(number + 1);
            sum(number)
        };
        (0..blocks).map(one).sum()
    });
    Ok([direct, waiting, ahead])
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, kib, file @ ..] = &arguments[..] else {
        return Err("the arguments are a machine, KiB, and perhaps a file".into());
    };
    let machine = Machine::load(machine)?;
    let blocks = kib.parse::<u64>()? * 1024 / HALF;
    let options = Options { record: !file.is_empty(), ..Options::default() };
    let done: Done<Result<_>> = run(&machine, 1, &options, |job| three_ways(&job, blocks))?;
    let [Ok(times)] = &done.results[..] else {
        return Err(format!("the PE has failed: {:?}", done.results).into());
    };
    for (name, time) in ["word by word", "prefetched", "prefetched ahead"].iter().zip(times) {
        println!("{name:16} {:9.1} us", time.as_nanos() as f64 / 1000.0);
    }
    if let Some(file) = file.first() {
        done.write_chrome(&mut File::create(file)?)?;
    }
    Ok(())
}
