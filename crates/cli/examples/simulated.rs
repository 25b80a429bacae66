//! Programs that know nothing of simulated machines, for the tests of `memonet run --machine`; chosen by the first argument.

use memonet::{Cmp, Job, Result};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let begun = Instant::now();
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap_or_default();
    let number = args.next().map_or(0, |number| number.parse().expect("a number"));
    let job = memonet::init()?;
    match program.as_str() {
        "ping-pong" => ping_pong(&job, number),
        "clocks" => clocks(&job, begun),
        other => panic!("there is no program {other:?}"),
    }
}

/// Words to and fro between PEs 0 and 1; says how long each took.
fn ping_pong(job: &Job, times: u64) -> Result<()> {
    let window = job.window::<u64>(1)?;
    job.barrier()?;
    let start = Instant::now();
    if job.pe() < 2 {
        let other = window.remote(1 - job.pe(), 0)?;
        for round in 1..=times {
            if job.pe() == 0 {
                other.store(round);
            }
            window.wait_until(0, Cmp::Ge, round)?;
            if job.pe() == 1 {
                other.store(round);
            }
        }
    }
    let time = start.elapsed();
    job.barrier()?;
    println!("PE {}: {times} round trips in {} ns", job.pe(), time.as_nanos());
    Ok(())
}

/// Time passes when the program sleeps, and for a program that waits for it.
fn clocks(_job: &Job, begun: Instant) -> Result<()> {
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(3600));
    println!("slept for {:?}", start.elapsed());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(10) {}
    println!("waited for {} ms", start.elapsed().as_millis());
    println!(
        "since 1970: {:?}",
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
    );
    println!("in all {:?}", begun.elapsed().as_secs());
    Ok(())
}
