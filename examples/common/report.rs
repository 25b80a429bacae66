//! What the examples say at their end.

use memonet::dsm::Stats;
use memonet::{Job, Result, Sum};
use std::time::Instant;

/// The first argument, or what is usual.
pub fn argument(usual: usize) -> usize {
    std::env::args().nth(1).map_or(usual, |text| text.parse().expect("the argument is a number"))
}

/// A number that looks like chance, and is the same every time (splitmix64).
pub fn hash(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Compares with a sequential run, on PE 0 alone while the others wait, and prints speed-up and
/// what all PEs' objects have moved. Ends with status 1 if the result is wrong.
pub fn end(
    job: &Job,
    check: impl FnOnce() -> Result<(bool, f64)>,
    parallel: f64,
    objects: &[Stats],
) -> Result<()> {
    let sum = |of: fn(&Stats) -> u64| objects.iter().map(of).sum::<u64>();
    let mut all = [
        sum(|s| s.uses),
        sum(|s| s.hits),
        sum(|s| s.handovers),
        sum(|s| s.messages),
        sum(|s| s.bytes),
    ];
    job.world().all_reduce_slice(Sum, &mut all)?;
    if job.pe() == 0 {
        let (right, sequential) = check()?;
        println!(
            "{}: {} PEs {:.1} ms, sequential {:.1} ms, speed-up {:.2}; {} uses, {} hits, {} hand-overs, {} messages, {} bytes",
            if right { "right" } else { "WRONG" },
            job.npes(),
            parallel * 1e3,
            sequential * 1e3,
            sequential / parallel,
            all[0],
            all[1],
            all[2],
            all[3],
            all[4],
        );
        if !right {
            std::process::exit(1);
        }
    }
    job.barrier()
}
