//! Splits a dense matrix into a lower and an upper triangle, without pivoting: `memonet run -n 4 target/release/examples/lu [SIZE]`.
//!
//! Rows are dealt out in turn, and pages are at home with who has their rows. In each step everybody needs one row of somebody else.

use memonet::Result;
use memonet::dsm::{Placement, Region, RegionOptions};

#[path = "common/report.rs"]
mod report;

fn main() -> Result<()> {
    // A row is a page.
    let size = report::argument(512).next_multiple_of(8);
    let job = memonet::init()?;
    let (me, n) = (job.pe(), job.npes());
    let options = RegionOptions::new().page(8 * size).placement(Placement::Cyclic);
    let matrix = Region::<f64>::with(&job, size * size, options)?;
    let row = |number: usize| number * size..(number + 1) * size;
    for number in (me..size).step_by(n) {
        matrix.write(row(number))?.write_from(number * size, &initial(size, number));
    }
    matrix.barrier()?;

    let clock = report::Clock::start();
    let (mut pivot, mut own) = (vec![0.0; size], vec![0.0; size]);
    for step in 0..size - 1 {
        // What stands left of the pivot is done.
        matrix.read(row(step))?.read_into(step * size + step, &mut pivot[step..]);
        for number in (step + 1..size).filter(|number| number % n == me) {
            let mut guard = matrix.write(row(number))?;
            guard.read_into(number * size + step, &mut own[step..]);
            eliminate(&mut own, &pivot, step);
            guard.write_from(number * size + step, &own[step..]);
        }
        matrix.barrier()?;
    }
    let parallel = clock.seconds();

    let right = || {
        let mut rows: Vec<Vec<f64>> = (0..size).map(|number| initial(size, number)).collect();
        let clock = report::Clock::start();
        for step in 0..size - 1 {
            let (above, below) = rows.split_at_mut(step + 1);
            below.iter_mut().for_each(|row| eliminate(row, &above[step], step));
        }
        let sequential = clock.seconds();
        // Bit for bit: each row goes through the same operations.
        Ok((matrix.read(0..size * size)?.to_vec() == rows.concat(), sequential))
    };
    report::end(&job, right, parallel, &[matrix.stats()])
}

/// A row of a matrix that needs no pivoting.
fn initial(size: usize, number: usize) -> Vec<f64> {
    let element = |column: usize| (report::hash((number * size + column) as u64) % 1000) as f64 / 1000.0;
    (0..size)
        .map(|column| element(column) + if column == number { size as f64 } else { 0.0 })
        .collect()
}

fn eliminate(row: &mut [f64], pivot: &[f64], step: usize) {
    let factor = row[step] / pivot[step];
    row[step] = factor;
    row[step + 1..]
        .iter_mut()
        .zip(&pivot[step + 1..])
        .for_each(|(own, above)| *own -= factor * above);
}
