//! Sorts numbers, eight bits a pass, in memory that all PEs share:
//! `memonet run -n 4 target/release/examples/radix [COUNT]`.
//!
//! Each PE sorts its part by the digit in private memory, learns from everybody's counts where its
//! numbers of each digit go, and writes them there together: into pages that others write to as
//! well. One barrier of the region a step is all the communication there is.

use memonet::Result;
use memonet::dsm::Region;

#[path = "common/report.rs"]
mod report;

const DIGITS: usize = 256;

fn main() -> Result<()> {
    let count = report::argument(1 << 22);
    let job = memonet::init()?;
    let (me, n) = (job.pe(), job.npes());
    let mine = me * count / n..(me + 1) * count / n;
    let input = |range: std::ops::Range<usize>| {
        range.map(|i| report::hash(i as u64) as u32).collect::<Vec<_>>()
    };

    let keys = [Region::<u32>::new(&job, count)?, Region::<u32>::new(&job, count)?];
    let counts = Region::<u64>::new(&job, DIGITS * n)?;
    keys[0].write(mine.clone())?.write_from(mine.start, &input(mine.clone()));
    keys[0].barrier()?;

    let clock = report::Clock::start();
    let (mut part, mut sorted) = (vec![0; mine.len()], vec![0; mine.len()]);
    for pass in 0..4 {
        let (from, to) = (&keys[pass % 2], &keys[(pass + 1) % 2]);
        from.read(mine.clone())?.read_into(mine.start, &mut part);
        let ends = sort_by_digit(&part, &mut sorted, pass);
        let begins = |digit: usize| digit.checked_sub(1).map_or(0, |before| ends[before]);
        let own: Vec<u64> = (0..DIGITS).map(|digit| (ends[digit] - begins(digit)) as u64).collect();
        counts.write(DIGITS * me..DIGITS * (me + 1))?.write_from(DIGITS * me, &own);
        counts.barrier()?;

        // Numbers of a digit go behind all smaller digits, and behind this digit of the PEs before.
        let all = counts.read(0..DIGITS * n)?.to_vec();
        let mut place = 0;
        let mut guard = to.write(0..count)?;
        for digit in 0..DIGITS {
            let of = |pes: std::ops::Range<usize>| {
                pes.map(|pe| all[DIGITS * pe + digit]).sum::<u64>() as usize
            };
            guard.write_from(place + of(0..me), &sorted[begins(digit)..ends[digit]]);
            place += of(0..n);
        }
        drop(guard);
        to.barrier()?;
    }
    let parallel = clock.seconds();

    let right = || -> Result<(bool, f64)> {
        let mut expected = input(0..count);
        let clock = report::Clock::start();
        radix_sort(&mut expected);
        let sequential = clock.seconds();
        Ok((keys[0].read(0..count)?.to_vec() == expected, sequential))
    };
    report::end(&job, right, parallel, &[keys[0].stats(), keys[1].stats(), counts.stats()])
}

/// The same on one PE, in private memory.
fn radix_sort(keys: &mut Vec<u32>) {
    let mut other = vec![0; keys.len()];
    for pass in 0..4 {
        sort_by_digit(keys, &mut other, pass);
        std::mem::swap(keys, &mut other);
    }
}

/// Sorts by one digit, and says where the numbers of each end.
fn sort_by_digit(keys: &[u32], to: &mut [u32], pass: usize) -> [usize; DIGITS] {
    let digit = |key: u32| (key >> (8 * pass)) as usize % DIGITS;
    let mut place = [0; DIGITS + 1];
    keys.iter().for_each(|&key| place[digit(key) + 1] += 1);
    (0..DIGITS).for_each(|digit| place[digit + 1] += place[digit]);
    for &key in keys {
        to[place[digit(key)]] = key;
        place[digit(key)] += 1;
    }
    std::array::from_fn(|digit| place[digit])
}
