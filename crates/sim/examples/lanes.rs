//! Virtual lanes, to look at: all PEs put blocks of 2 KiB to PE 0, and PE 1 then publishes a word
//! to the PEs behind it, which goes by datagrams.
//!
//! ```sh
//! cargo run -p memonet-sim --example lanes -- dimmnet-2/credits 4 64
//! cargo run -p memonet-sim --example lanes -- dimmnet-2/lanes 4 64 lanes.json
//! ```
//!
//! The arguments are a machine, how many PEs, how many blocks each puts, and perhaps a file for the
//! timeline, which ui.perfetto.dev opens.

use memonet_core::{Job, MulticastOptions, Result};
use memonet_sim::{Done, Machine, Options, now, run};
use std::fs::File;
use std::time::Duration;

/// Words of 2 KiB.
const WORDS: usize = 256;

/// How long the published word was on its way, as PE 2 sees it.
fn flood(job: &Job, blocks: usize) -> Result<Duration> {
    let window = job.window::<u64>(WORDS * job.npes())?;
    let readers: Vec<usize> = (2..job.npes()).collect();
    let mut channel = job.multicast::<u64>(1, &readers, MulticastOptions::new())?;
    job.barrier()?;
    if job.pe() > 0 {
        let own = WORDS * job.pe();
        (0..blocks).try_for_each(|_| window.put(0, own, &[1; WORDS]))?;
    }
    let mut took = Duration::ZERO;
    if job.pe() == 1 {
        channel.publish(&[now().as_nanos() as u64])?;
    } else if job.pe() > 1 {
        let mut word = Vec::new();
        channel.recv(&mut word)?;
        took = now() - Duration::from_nanos(word[0]);
    }
    job.barrier()?;
    Ok(took)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, pes, blocks, file @ ..] = &arguments[..] else {
        return Err("the arguments are a machine, PEs, blocks, and perhaps a file".into());
    };
    let machine = Machine::load(machine)?;
    let (pes, blocks) = (pes.parse::<usize>()?.max(4), blocks.parse()?);
    let options = Options { record: !file.is_empty(), ..Options::default() };
    let done: Done<Result<Duration>> = run(&machine, pes, &options, |job| flood(&job, blocks))?;
    let [_, _, Ok(took), ..] = &done.results[..] else {
        return Err(format!("a PE has failed: {:?}", done.results).into());
    };
    print!("{}", done.usage);
    println!("PE 2 had the word of PE 1 after {:.3} us", took.as_nanos() as f64 / 1000.0);
    if let Some(file) = file.first() {
        done.write_chrome(&mut File::create(file)?)?;
    }
    Ok(())
}
