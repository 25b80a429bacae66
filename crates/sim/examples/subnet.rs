//! DIMMnet-2's subnet manager at work, to look at: a cable is cut under a program, the manager
//! stops, and another cable is cut.
//!
//! ```sh
//! cargo run -p memonet-sim --example subnet -- dimmnet-2/mesh 4 subnet.json
//! ```
//!
//! The arguments are a machine, the number of PEs, and perhaps a file for the timeline, which
//! ui.perfetto.dev opens. PE 0 and PE 1 exchange a word all the time. PE 2 cuts the cable between
//! their switches, mends it, stops the manager of node 0, and cuts the cable again. For each of
//! these, PE 0 prints the longest time of a word there and back, which the NICs had to send again
//! until there was a way, and the time at the end.

use memonet_core::{Cmp, Job, Result};
use memonet_sim::host::Command;
use memonet_sim::nic::infiniband::{cut, mend, stop_manager};
use memonet_sim::{Done, Host, Machine, Options, now, run, sleep};
use std::fs::File;
use std::time::Duration;

/// How long PE 0 and PE 1 go on after each command.
const STEP: Duration = Duration::from_millis(12);
const STEPS: [&str; 5] = ["at first", "cable cut", "mended", "manager stopped", "cable cut again"];

fn command(command: Command) {
    // SAFETY: these commands write nothing.
    unsafe { Host::here().command(command) }.expect("the machine has such a cable and manager");
}

/// Exchanges words with the other PE until `end`. Returns the longest time there and back, and the
/// last one.
fn exchange(job: &Job, end: Duration, word: &mut u64) -> Result<[Duration; 2]> {
    let window = job.window::<u64>(1)?;
    let other = window.remote(1 - job.pe(), 0)?;
    let mut times = [Duration::ZERO; 2];
    job.barrier()?;
    loop {
        *word += 1;
        let begin = now();
        // The last word says so.
        let sent = *word << 1 | u64::from(begin >= end);
        if job.pe() == 0 {
            other.store(sent);
            window.wait_until(0, Cmp::Ge, sent)?;
            let time = now() - begin;
            times = [times[0].max(time), time];
        } else {
            window.wait_until(0, Cmp::Ge, *word << 1)?;
            other.store(window.read(0));
        }
        if window.read(0) & 1 == 1 {
            job.barrier()?;
            return Ok(times);
        }
    }
}

fn program(job: &Job) -> Result<Vec<[Duration; 2]>> {
    let mut word = 0;
    let begin = now();
    let mut all = Vec::new();
    for step in 0..STEPS.len() {
        let end = begin + STEP * (step as u32 + 1);
        match job.pe() {
            0 | 1 => all.push(exchange(job, end, &mut word)?),
            pe => {
                job.window::<u64>(1)?;
                job.barrier()?;
                sleep(Duration::from_micros(100));
                match step {
                    // Port n of a switch leads to switch n, or to the one behind it.
                    1 | 4 if pe == 2 => command(cut(0, 1)),
                    2 if pe == 2 => command(mend(0, 1)),
                    3 if pe == 2 => command(stop_manager(0)),
                    _ => {}
                }
                job.barrier()?;
            }
        }
    }
    Ok(all)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, pes, file @ ..] = &arguments[..] else {
        return Err("the arguments are a machine, a number of PEs, and perhaps a file".into());
    };
    let (machine, pes) = (Machine::load(machine)?, pes.parse::<usize>()?);
    if pes < 3 {
        return Err("two PEs exchange words, and a third cuts cables".into());
    }
    let options = Options { record: !file.is_empty(), ..Options::default() };
    let done: Done<Result<_>> = run(&machine, pes, &options, |job| program(&job))?;
    let Some(Ok(times)) = done.results.first() else {
        return Err(format!("a PE has failed: {:?}", done.results).into());
    };
    for (name, [longest, last]) in STEPS.iter().zip(times) {
        let us = |time: &Duration| time.as_nanos() as f64 / 1000.0;
        println!("{name:16} longest {:8.1} us, last {:5.1} us", us(longest), us(last));
    }
    if let Some(file) = file.first() {
        done.write_chrome(&mut File::create(file)?)?;
    }
    Ok(())
}
