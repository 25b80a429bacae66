//! Back-pressure and repeats, to look at: all PEs store words to PE 0, and PE 1 then one to PE 2.
//!
//! ```sh
//! cargo run -p memonet-sim --example flood -- dimmnet-1/D-rhinet3 8 3000 flood.json
//! ```
//!
//! The arguments are a machine, how many PEs, how many words each stores, and perhaps a file for
//! the timeline, which ui.perfetto.dev opens. On links, "no room" is a packet that back-pressure
//! stops, "damaged" and "discarded" are packets that are sent again.

use memonet_core::{Cmp, Job, Result};
use memonet_sim::{Done, Machine, Options, now, run};
use std::fs::File;
use std::time::Duration;

/// How long the last word was on its way, as PE 2 sees it.
fn flood(job: &Job, words: u64) -> Result<Duration> {
    let window = job.window::<u64>(1)?;
    let to = |pe| window.remote(pe, 0);
    job.barrier()?;
    if job.pe() > 0 {
        (0..words).try_for_each(|word| to(0).map(|place| place.store(word)))?;
    }
    let mut took = Duration::ZERO;
    if job.pe() == 1 {
        to(2)?.store(now().as_nanos() as u64);
    } else if job.pe() == 2 {
        let sent = Duration::from_nanos(window.wait_until(0, Cmp::Ne, 0)?);
        took = now() - sent;
    }
    job.barrier()?;
    Ok(took)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, pes, words, file @ ..] = &arguments[..] else {
        return Err("the arguments are a machine, PEs, words, and perhaps a file".into());
    };
    let machine = Machine::load(machine)?;
    let (pes, words) = (pes.parse::<usize>()?.max(3), words.parse()?);
    let options = Options { record: !file.is_empty(), ..Options::default() };
    let done: Done<Result<Duration>> = run(&machine, pes, &options, |job| flood(&job, words))?;
    let [_, _, Ok(took), ..] = &done.results[..] else {
        return Err(format!("a PE has failed: {:?}", done.results).into());
    };
    print!("{}", done.usage);
    println!("PE 2 had the last word of PE 1 after {:.3} us", took.as_nanos() as f64 / 1000.0);
    if let Some(file) = file.first() {
        done.write_chrome(&mut File::create(file)?)?;
    }
    Ok(())
}
