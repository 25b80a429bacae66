//! Slices of a row, each about as long as asked for: what `measure.c` does, for two sides.

use crate::page::Side;
use anyhow::Result;
use std::time::Instant;

const SLICES: u64 = 8;
/// A library's memory is touched for the first time before the slices. Aeron's log has 192 MiB,
/// which a stream goes through in 0.3 s.
const WARM_UP_SECONDS: f64 = 0.6;

/// What a figure is, of `n` repetitions in `ns` nanoseconds.
#[derive(Clone, Copy)]
pub enum Figure {
    /// How many in a microsecond, with so many in each repetition.
    Millions(f64),
    /// How many bytes in a microsecond, of so many in each repetition.
    Megabytes(f64),
    /// Nanoseconds for one half of a repetition: there and back.
    OneWay,
}

impl Figure {
    fn of(self, ns: f64) -> (&'static str, f64) {
        match self {
            Figure::Millions(each) => ("M/s", each * 1e3 / ns),
            Figure::Megabytes(bytes) => ("MB/s", bytes * 1e3 / ns),
            Figure::OneWay => ("ns", ns / 2.0),
        }
    }
}

/// Runs `body` on both sides, and prints a line for each slice: row, sides, unit, figure, and the
/// round trips before and after. `body` is told how many repetitions, and is done when this side
/// is; a slice ends when both are.
pub fn measure(
    side: &Side,
    row: &str,
    seconds: f64,
    figure: Figure,
    mut body: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut once = |count: u64| -> Result<f64> {
        side.meet();
        let start = Instant::now();
        body(count)?;
        side.meet();
        Ok(start.elapsed().as_nanos() as f64)
    };
    let slice = seconds / SLICES as f64 * 1e9;
    let mut count = 8;
    loop {
        let taken = once(count)?;
        let next = (slice / taken * count as f64) as u64;
        count = side.from_first(next.clamp(1, 16 * count));
        if side.from_first((taken > slice / 4.0) as u64) == 1 {
            break;
        }
    }
    let mut warm = 0.0;
    while side.from_first((warm < WARM_UP_SECONDS * 1e9) as u64) == 1 {
        warm += once(count)?;
    }
    for _ in 0..SLICES {
        let before = side.round_trip();
        let (mut taken, mut done) = (0.0, 0);
        loop {
            taken += once(count)?;
            done += count;
            if side.from_first((taken > slice * 0.8) as u64) == 1 {
                break;
            }
        }
        let after = side.round_trip();
        if side.me == 0 {
            let (unit, value) = figure.of(taken / done as f64);
            println!("{row} 2 {unit} {value:.5} {before:.1} {after:.1}");
        }
    }
    Ok(())
}
