//! Barriers and collectives after computations of uneven length: each PE comes first now and then,
//! last now and then, and finds what it waits for, or does not.

use memonet::{Job, Result, Sum};
use std::time::Duration;

const ROUNDS: u64 = 36;
/// Words of a block: more than go with a notification, and more than a page.
const BLOCK: usize = 520;

/// Runs the rounds, and gives the moment at which each of them ended.
pub fn run(job: &Job, seed: u64, now: impl Fn() -> Duration) -> Result<Vec<Duration>> {
    let (me, n) = (job.pe(), job.npes());
    let (from, to) = (job.window::<u64>(BLOCK * n)?, job.window::<u64>(BLOCK * n)?);
    let members: Vec<usize> = (0..n).step_by(2).collect();
    let team = job.world().team(&members)?;
    let split = job.world().new_barrier()?;
    let mut random = numbers(seed.wrapping_mul(1000) + me as u64);
    let mut moments = Vec::new();
    job.barrier()?;
    let start = now();
    for round in 0..ROUNDS {
        // One in three comes at once.
        job.compute([0, random() % 300, random() % 40_000][(random() % 3) as usize]);
        match round % 9 {
            0 | 5 => job.barrier()?,
            1 => {
                from.fill(0..BLOCK * n, round << 32 | me as u64);
                job.world().all_to_all_into(to.span(0..BLOCK * n)?, from.span(0..BLOCK * n)?)?;
                for other in 0..n {
                    assert_eq!(to.read(BLOCK * other), round << 32 | other as u64, "round {round}");
                }
            }
            // From here to its end, other waits have to relay the arrivals of this barrier.
            2 => split.step()?,
            3 => {
                from.write(0, me as u64 + round);
                job.world().all_reduce_into(Sum, to.span(0..1)?, from.span(0..1)?)?;
                let sum: u64 = (0..n as u64).map(|pe| pe + round).sum();
                assert_eq!(to.read(0), sum, "round {round}");
            }
            4 => split.wait()?,
            6 => job.world().all_gather_into(to.span(0..3 * n)?, from.span(0..3)?)?,
            7 => team.iter().try_for_each(|team| team.barrier())?,
            _ => job.world().all_gather_into(to.span(0..80 * n)?, from.span(0..80)?)?,
        }
        moments.push(now() - start);
    }
    job.barrier()?;
    Ok(moments)
}

/// Numbers of 31 bits that look random.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}
