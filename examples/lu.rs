//! Splits a dense matrix into a lower and an upper triangle, without pivoting:
//! `memonet run -n 4 target/release/examples/lu [SIZE]`.
//!
//! As in SPLASH, a page is a square block, whose home is the PE that works on it. Diagonals of
//! blocks are dealt out in turn, so that every PE has some of each row and column. Each copied
//! element is used for as many operations as a block has rows, and there are two barriers for so
//! many rows.

use memonet::Result;
use memonet::dsm::{Placement, Region, RegionOptions};

#[path = "common/report.rs"]
mod report;

/// Rows of a block.
const SIDE: usize = 32;
const AREA: usize = SIDE * SIDE;

fn main() -> Result<()> {
    let size = report::argument(1024).next_multiple_of(SIDE);
    let blocks = size / SIDE;
    let job = memonet::init()?;
    let options = RegionOptions::new().page(8 * AREA).placement(Placement::FirstTouch);
    let region = Region::with(&job, size * size, options)?;
    let matrix = Matrix { region, blocks, me: job.pe(), npes: job.npes() };
    for (row, column) in square(0..blocks).filter(|&(row, column)| matrix.is_mine(row, column)) {
        matrix.write(row, column, &initial(row, column, size))?;
    }
    matrix.region.barrier()?;

    let clock = report::Clock::start();
    matrix.split()?;
    let parallel = clock.seconds();

    let right = || {
        let mut alone: Vec<_> =
            square(0..blocks).map(|(row, column)| initial(row, column, size)).collect();
        let clock = report::Clock::start();
        split_all(&mut alone, blocks);
        let sequential = clock.seconds();
        // Bit for bit: each element goes through the same operations, also row by row.
        let same = matrix.region.read(0..size * size)?.to_vec() == alone.concat()
            && alone == row_by_row(blocks, size);
        Ok((same, sequential))
    };
    report::end(&job, right, parallel, &[matrix.region.stats()])
}

/// The matrix, and which of its blocks this PE works on.
struct Matrix {
    region: Region<f64>,
    blocks: usize,
    me: usize,
    npes: usize,
}

impl Matrix {
    fn is_mine(&self, row: usize, column: usize) -> bool {
        (row + column) % self.npes == self.me
    }

    fn place(&self, row: usize, column: usize) -> usize {
        (row * self.blocks + column) * AREA
    }

    fn read(&self, row: usize, column: usize, to: &mut [f64]) -> Result<()> {
        let start = self.place(row, column);
        self.region.read(start..start + AREA)?.read_into(start, to);
        Ok(())
    }

    fn write(&self, row: usize, column: usize, from: &[f64]) -> Result<()> {
        let start = self.place(row, column);
        self.region.write(start..start + AREA)?.write_from(start, from);
        Ok(())
    }

    /// Splits the whole matrix in place. *Collective.*
    fn split(&self) -> Result<()> {
        let blocks = self.blocks;
        let [mut own, mut left, mut above, mut corner] = std::array::from_fn(|_| vec![0.0; AREA]);
        for step in 0..blocks {
            if self.is_mine(step, step) {
                self.read(step, step, &mut own)?;
                split(&mut own);
                self.write(step, step, &own)?;
            }
            self.region.barrier()?;
            self.read(step, step, &mut corner)?;
            for other in step + 1..blocks {
                if self.is_mine(other, step) {
                    self.read(other, step, &mut own)?;
                    eliminate_below(&mut own, &corner);
                    self.write(other, step, &own)?;
                }
                if self.is_mine(step, other) {
                    self.read(step, other, &mut own)?;
                    eliminate_beside(&mut own, &corner);
                    self.write(step, other, &own)?;
                }
            }
            self.region.barrier()?;
            // No barrier follows: the PE that needs a block in the next step works on it here.
            for row in step + 1..blocks {
                self.read(row, step, &mut left)?;
                for column in (step + 1..blocks).filter(|&column| self.is_mine(row, column)) {
                    self.read(step, column, &mut above)?;
                    self.read(row, column, &mut own)?;
                    subtract(&mut own, &left, &above);
                    self.write(row, column, &own)?;
                }
            }
        }
        self.region.barrier()
    }
}

/// Rows and columns of blocks.
fn square(side: std::ops::Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let columns = side.clone();
    side.flat_map(move |row| columns.clone().map(move |column| (row, column)))
}

/// A block of a matrix that needs no pivoting.
fn initial(row: usize, column: usize, size: usize) -> Vec<f64> {
    let element = |(r, c): (usize, usize)| {
        let (r, c) = (row * SIDE + r, column * SIDE + c);
        let random = (report::hash((r * size + c) as u64) % 1000) as f64 / 1000.0;
        random + if r == c { size as f64 } else { 0.0 }
    };
    square(0..SIDE).map(element).collect()
}

/// Subtracts so much of the pivot's row that the element in its column becomes zero, and keeps how
/// much there.
fn eliminate(row: &mut [f64], pivot: &[f64], column: usize) {
    let factor = row[column] / pivot[column];
    row[column] = factor;
    subtract_row(&mut row[column + 1..], factor, &pivot[column + 1..]);
}

fn subtract_row(own: &mut [f64], factor: f64, above: &[f64]) {
    own.iter_mut().zip(above).for_each(|(own, above)| *own -= factor * above);
}

/// A block of the diagonal.
fn split(own: &mut [f64]) {
    for step in 0..SIDE {
        let (above, below) = own.split_at_mut((step + 1) * SIDE);
        let rows = below.chunks_exact_mut(SIDE);
        rows.for_each(|row| eliminate(row, &above[step * SIDE..], step));
    }
}

/// A block in the column of one of the diagonal.
fn eliminate_below(own: &mut [f64], corner: &[f64]) {
    for row in own.chunks_exact_mut(SIDE) {
        let pivots = corner.chunks_exact(SIDE).enumerate();
        pivots.for_each(|(step, pivot)| eliminate(row, pivot, step));
    }
}

/// A block in the row of one of the diagonal.
fn eliminate_beside(own: &mut [f64], corner: &[f64]) {
    for step in 0..SIDE {
        let (above, below) = own.split_at_mut((step + 1) * SIDE);
        for (row, factors) in
            below.chunks_exact_mut(SIDE).zip(corner.chunks_exact(SIDE).skip(step + 1))
        {
            subtract_row(row, factors[step], &above[step * SIDE..]);
        }
    }
}

/// All other blocks: the product of the one to the left and the one above.
fn subtract(own: &mut [f64], left: &[f64], above: &[f64]) {
    for (row, factors) in own.chunks_exact_mut(SIDE).zip(left.chunks_exact(SIDE)) {
        let products = factors.iter().zip(above.chunks_exact(SIDE));
        products.for_each(|(&factor, above)| subtract_row(row, factor, above));
    }
}

/// Splits the whole matrix on one PE, in private memory and without copies.
fn split_all(all: &mut [Vec<f64>], blocks: usize) {
    for step in 0..blocks {
        split(&mut all[step * blocks + step]);
        let corner = all[step * blocks + step].clone();
        for other in step + 1..blocks {
            eliminate_below(&mut all[other * blocks + step], &corner);
            eliminate_beside(&mut all[step * blocks + other], &corner);
        }
        for row in step + 1..blocks {
            let (done, rest) = all.split_at_mut(row * blocks);
            let (left, rest) =
                rest[step..].split_first_mut().expect("a block of the pivots' column");
            let above = &done[step * blocks + step + 1..][..blocks - step - 1];
            rest.iter_mut().zip(above).for_each(|(own, above)| subtract(own, left, above));
        }
    }
}

/// Splits the whole matrix row by row, as in textbooks. The result is in blocks.
fn row_by_row(blocks: usize, size: usize) -> Vec<Vec<f64>> {
    let of_row = |row: usize| {
        (0..blocks).flat_map(move |column| {
            initial(row / SIDE, column, size)[row % SIDE * SIDE..][..SIDE].to_vec()
        })
    };
    let mut rows: Vec<Vec<f64>> = (0..size).map(|row| of_row(row).collect()).collect();
    for step in 0..size {
        let (above, below) = rows.split_at_mut(step + 1);
        below.iter_mut().for_each(|row| eliminate(row, &above[step], step));
    }
    let of_block = |(row, column): (usize, usize)| {
        let rows = rows[row * SIDE..][..SIDE].iter();
        rows.flat_map(|row| row[column * SIDE..][..SIDE].to_vec()).collect()
    };
    square(0..blocks).map(of_block).collect()
}
