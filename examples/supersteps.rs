//! Heat in a rod, by supersteps: `memonet run -n 4 target/release/examples/supersteps [CELLS]`.
//!
//! The ends of the rod are kept at 0 and 100 degrees. Each PE has a part of the cells. In each
//! superstep every cell becomes the mean of its neighbours, and PEs put the cells at the ends of
//! their parts to the neighbouring PEs. They do so twice: by supersteps in order, and by ones that
//! overlap, where the neighbours' cells are one superstep older and no PE waits for the barrier of
//! the superstep that it has just ended. Both come to the same temperatures.

use memonet::{Job, Max, Result, Supersteps};

#[path = "common/report.rs"]
#[allow(dead_code, reason = "other examples use the rest")]
mod report;

/// The ends of the rod, in degrees.
const COLD: f64 = 0.0;
const HOT: f64 = 100.0;
/// What all cells begin with.
const START: f64 = (COLD + HOT) / 2.0;
/// Degrees by which cells may miss the right temperature in the end.
const ENOUGH: f64 = 1e-3;

/// Elements that a PE receives: the cell left of its part, and the one right of it.
const LEFT: usize = 0;
const RIGHT: usize = 1;

fn main() -> Result<()> {
    let count = report::argument(24).max(1);
    let job = memonet::init()?;
    // The slowest part of the error falls to 1/e in every count^2 / 5 supersteps. Ones that overlap
    // may take twice as many.
    let supersteps = 6 * count * count + 100;
    for (name, steps) in
        [("in order", Supersteps::new(&job, 2)?), ("overlapped", Supersteps::overlapped(&job, 2)?)]
    {
        let clock = report::Clock::start();
        let error = solve(&job, count, supersteps, steps)?;
        let each = clock.seconds() / supersteps as f64;
        let worst = job.world().all_reduce(Max, error)?;
        if job.pe() == 0 {
            let right = if worst < ENOUGH { "right" } else { "wrong" };
            println!("{right}: {name}, {:.2} us a superstep", each * 1e6);
        }
        if worst >= ENOUGH {
            job.exit(1);
        }
    }
    job.barrier()
}

/// Smooths the cells of this PE's part, and says how far they are off in the end.
fn solve(job: &Job, count: usize, supersteps: usize, mut steps: Supersteps<f64>) -> Result<f64> {
    let (me, n) = (job.pe(), job.npes());
    let mine = me * count / n..(me + 1) * count / n;
    // Neighbours are PEs that have cells.
    let has_cells = |pe: &usize| pe * count / n < (pe + 1) * count / n;
    let left = (0..me).rev().find(has_cells);
    let right = (me + 1..n).find(has_cells);
    let mut cells = vec![START; mine.len()];
    let (mut border, mut next) = ([COLD, HOT], cells.clone());
    for _ in 0..supersteps {
        if let (Some(&first), Some(&last)) = (cells.first(), cells.last()) {
            left.map_or(Ok(()), |pe| steps.put(pe, RIGHT, &[first]))?;
            right.map_or(Ok(()), |pe| steps.put(pe, LEFT, &[last]))?;
        }
        steps.step()?;
        // Until the puts of the first superstep come, neighbours' cells are what they began with.
        let has_come = steps.superstep() > steps.delay();
        let received = |index| if has_come { steps.read(index) } else { START };
        if left.is_some() {
            border[LEFT] = received(LEFT);
        }
        if right.is_some() {
            border[RIGHT] = received(RIGHT);
        }
        for (index, next) in next.iter_mut().enumerate() {
            let before = index.checked_sub(1).map_or(border[LEFT], |before| cells[before]);
            let after = cells.get(index + 1).copied().unwrap_or(border[RIGHT]);
            *next = (before + after) / 2.0;
        }
        std::mem::swap(&mut cells, &mut next);
    }
    steps.free()?;
    let right_one = |cell: usize| COLD + (HOT - COLD) * (cell + 1) as f64 / (count + 1) as f64;
    Ok(mine.zip(&cells).map(|(cell, &value)| (value - right_one(cell)).abs()).fold(0.0, f64::max))
}
