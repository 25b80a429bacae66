//! All-to-all of elements with strides, against a model that has the elements of all members; and
//! the conditions on places, of which front ends make collectives.

use crate::setup::{Dice, OwnBlocks, Setup, mark, segment_of, sizes_here};
use memonet_core::{
    Broadcast, Destinations, Elements, Error, Goal, Job, Plain, Result, SymmetricRange, Window,
};

on_every_fabric!(
    [also on copying, streams_dealt]
    at_strides,
    far_apart,
    of_all_sizes,
    one_between_the_other,
    one_after_the_other,
    in_a_team,
    refusals,
    places,
    places_that_do_not_fit,
);

const GAP: u64 = 0x6A9;

/// Element `index` of the source of `rank`.
fn sent(rank: usize, index: usize) -> u64 {
    mark(rank, index, 1)
}

/// Elements at every `stride`-th place, with gaps between.
fn spread(elements: &[u64], stride: usize, len: usize) -> Vec<u64> {
    let mut all = vec![GAP; len];
    elements.iter().enumerate().for_each(|(i, &element)| all[i * stride] = element);
    all
}

/// The destination of `rank` among `n`.
fn model(rank: usize, n: usize, count: usize) -> Vec<u64> {
    let block = |from: usize| (0..count).map(move |i| sent(from, rank * count + i));
    (0..n).flat_map(block).collect()
}

fn reach(elements: usize, stride: usize) -> usize {
    elements.saturating_sub(1) * stride + elements.min(1)
}

fn check(
    job: &Job,
    to: &Window<u64>,
    from: &Window<u64>,
    strides: (usize, usize),
    count: usize,
) -> Result<()> {
    let (me, n) = (job.pe(), job.npes());
    let all = n * count;
    let elements: Vec<u64> = (0..all).map(|i| sent(me, i)).collect();
    let source = spread(&elements, strides.1, from.len());
    from.write_from(0, &source);
    to.fill(0..to.len(), GAP);
    // Windows without a gap after the last element.
    let spans = (to.span(1..1 + reach(all, strides.0))?, from.span(0..reach(all, strides.1))?);
    job.world().all_to_alls_into(spans.0, strides.0, spans.1, strides.1, count)?;
    let received = to.to_vec();
    assert_eq!(received[0], GAP);
    assert_eq!(
        received[1..],
        spread(&model(me, n, count), strides.0, to.len() - 1),
        "{count} elements at {strides:?}"
    );
    assert_eq!(from.to_vec(), source);
    job.barrier()
}

fn at_strides(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3, 5, 8]), 2) {
        run.job(move |job| {
            // Around the sizes of an eager buffer, and of what is moved at once.
            let eager_buffer = 128 / job.npes();
            let far = if setup.is_near() { 1 } else { 2 };
            for count in [0, 1, 2, 7, eager_buffer, eager_buffer + 1, 1030 / far] {
                let most = job.npes() * count.max(1) * 4 + 2;
                let (to, from) = (job.window(most)?, job.window(most)?);
                for strides in [(1, 1), (1, 2), (3, 1), (2, 2), (4, 3)] {
                    check(job, &to, &from, strides, count)?;
                }
            }
            Ok(())
        });
    }
}

/// So far apart that a fabric moves each element by itself.
fn far_apart(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3]), 1) {
        run.job(|job| {
            let count = 150 / job.npes();
            for strides in [(2, 150), (150, 3), (129, 129), (130, 128)] {
                let most = job.npes() * count * 150 + 2;
                let (to, from) = (job.window(most)?, job.window(most)?);
                check(job, &to, &from, strides, count)?;
            }
            Ok(())
        });
    }
}

/// Elements of type `T`, made of a number.
fn of_size<T: Plain + PartialEq + std::fmt::Debug>(
    job: &Job,
    count: usize,
    make: fn(u64) -> T,
) -> Result<()> {
    let (me, n) = (job.pe(), job.npes());
    let (to, from) = (job.window::<T>(3 * n * count)?, job.window::<T>(2 * n * count)?);
    for i in 0..n * count {
        from.write(2 * i, make(sent(me, i)));
    }
    let spans = (to.span(0..to.len())?, from.span(0..from.len())?);
    job.world().all_to_alls_into(spans.0, 3, spans.1, 2, count)?;
    for (i, element) in model(me, n, count).into_iter().enumerate() {
        assert_eq!(to.read(3 * i), make(element), "{i}");
        assert_ne!(to.read(3 * i + 1), make(element), "{i}");
    }
    job.barrier()
}

fn of_all_sizes(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 3]), 1) {
        run.job(|job| {
            for count in [1, 30, 700] {
                // No element is 0, the value of the gaps.
                of_size::<u8>(job, count, |x| x as u8 | 1)?;
                of_size::<u16>(job, count, |x| x as u16 | 1)?;
                of_size::<[u8; 3]>(job, count, |x| [x as u8, (x >> 8) as u8, 3])?;
                of_size::<u32>(job, count, |x| x as u32 | 1)?;
                of_size::<u128>(job, count, |x| u128::from(x) << 60 | 1)?;
                of_size::<[u64; 5]>(job, count, |x| [x, 1, !x, 2, x + 1])?;
                of_size::<[u64; 1500]>(job, count.min(2), |x| [x; 1500])?;
            }
            Ok(())
        });
    }
}

/// Source and destination are the odd and the even elements of one window.
fn one_between_the_other(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3]), 1) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            for count in [3, 300] {
                let all = n * count;
                let w = job.window::<u64>(2 * all)?;
                for source_first in [true, false] {
                    let (to, from) = if source_first { (1, 0) } else { (0, 1) };
                    (0..all).for_each(|i| w.write(2 * i + from, sent(me, i)));
                    let span = |first: usize| w.span(first..first + 2 * all - 1);
                    job.world().all_to_alls_into(span(to)?, 2, span(from)?, 2, count)?;
                    let received: Vec<u64> = (0..all).map(|i| w.read(2 * i + to)).collect();
                    assert_eq!(received, model(me, n, count));
                    let left: Vec<u64> = (0..all).map(|i| w.read(2 * i + from)).collect();
                    assert_eq!(left, (0..all).map(|i| sent(me, i)).collect::<Vec<_>>());
                    job.barrier()?;
                }
            }
            Ok(())
        });
    }
}

/// Without a pause between them, small and large.
fn one_after_the_other(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 5]), 2) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let (mut dice, mut shared): (Dice, Dice) = (run.dice(me), run.shared_dice());
            let (to, from) = (job.window::<u64>(n * 400)?, job.window::<u64>(n * 400)?);
            for round in 0..40 {
                let count = [1, 5, 100][shared.below(3)];
                let (a, b) = (1 + shared.below(4), 1 + shared.below(4));
                (0..n * count).for_each(|i| from.write(i * b, mark(me, i, round)));
                dice.dawdle();
                let spans = (to.span(0..n * 400)?, from.span(0..n * 400)?);
                job.world().all_to_alls_into(spans.0, a, spans.1, b, count)?;
                for rank in 0..n {
                    for i in 0..count {
                        assert_eq!(
                            to.read((rank * count + i) * a),
                            mark(rank, me * count + i, round)
                        );
                    }
                }
                // A large call has ended for all members when this returns; a small one reads no
                // other member's window.
            }
            job.barrier()
        });
    }
}

fn in_a_team(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[5]), 1) {
        run.job(|job| {
            let team = job.world().split_strided(4, -2, 3)?;
            let (to, from) = (job.window::<u64>(3000)?, job.window::<u64>(3000)?);
            if let Some(team) = team {
                for count in [2, 300] {
                    (0..3 * count).for_each(|i| from.write(i * 2, sent(team.rank(), i)));
                    team.all_to_alls_into(to.span(0..3000)?, 3, from.span(0..3000)?, 2, count)?;
                    let received: Vec<u64> = (0..3 * count).map(|i| to.read(i * 3)).collect();
                    assert_eq!(received, model(team.rank(), 3, count));
                    team.barrier()?;
                }
            }
            job.barrier()
        });
    }
}

fn refusals(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (w, v) = (job.window::<u64>(100)?, job.window::<u64>(100)?);
            let (all, other) = (w.span(0..100)?, v.span(0..100)?);
            let team = job.world();
            let length = |result: Result<()>| {
                assert!(matches!(result, Err(Error::Length { .. })), "{result:?}")
            };
            let misuse = |result: Result<()>| {
                assert!(matches!(result, Err(Error::Misuse { .. })), "{result:?}")
            };
            length(team.all_to_alls_into(all, 1, other, 1, 51));
            length(team.all_to_alls_into(all, 100, other, 1, 1));
            length(team.all_to_alls_into(all, 1, other, 34, 2));
            length(team.all_to_alls_into(all, usize::MAX, other, 1, 1));
            length(team.all_to_alls_into(all, 1, other, usize::MAX / 8, 1));
            assert!(team.all_to_alls_into(all, 1, other, 1, usize::MAX).is_err());
            assert!(team.all_to_alls_into(all, 1, other, 1, usize::MAX / 2).is_err());
            misuse(team.all_to_alls_into(all, 0, other, 1, 1));
            misuse(team.all_to_alls_into(all, 1, other, 0, 1));
            misuse(team.all_to_alls_into(all, 2, all, 2, 5));
            misuse(team.all_to_alls_into(w.span(0..50)?, 2, w.span(1..50)?, 3, 5));
            misuse(team.all_to_alls_into(w.span(0..50)?, 2, w.span(4..50)?, 2, 5));
            // No elements always fit.
            team.all_to_alls_into(all, 7, all, 9, 0)?;
            team.all_to_alls_into(all, 99, other, 33, 1)?;
            job.barrier()
        });
    }
}

/// Blocks of `len` words, one behind the other, in a symmetric allocation.
struct Blocks<'a> {
    job: &'a Job,
    segment: OwnBlocks,
    base: u64,
    len: usize,
}

impl Blocks<'_> {
    /// Some of the blocks, as a place.
    fn at(&self, index: usize, blocks: usize) -> SymmetricRange {
        let bytes = 8 * self.len;
        let offset = self.base + (index * bytes) as u64;
        self.segment.place(offset, blocks * bytes).expect("it is inside")
    }

    /// This PE's words of a block.
    #[allow(clippy::mut_from_ref, reason = "it is other PEs' memory as well")]
    fn words(&self, index: usize) -> &mut [u64] {
        let start = self.base as usize + 8 * index * self.len;
        // SAFETY: aligned, and inside of this PE's part, to which other PEs write only in
        // collectives.
        unsafe {
            let first = self.segment.local().add(start).cast::<u64>();
            std::slice::from_raw_parts_mut(first, self.len)
        }
    }

    /// What a PE sends in a block.
    fn sent(&self, pe: usize, block: usize) -> Vec<u64> {
        (0..self.len).map(|i| sent(pe, block * self.len + i)).collect()
    }

    /// Fills the first blocks with what this PE sends.
    fn fill(&self, blocks: usize) {
        let me = self.job.pe();
        (0..blocks).for_each(|block| self.words(block).copy_from_slice(&self.sent(me, block)));
    }

    fn broadcasts(&self) -> Result<()> {
        let (job, me, n) = (self.job, self.job.pe(), self.job.npes());
        for (root_keeps, writable) in [
            (false, Destinations::InTheCall),
            (false, Destinations::Ready),
            (true, Destinations::Ready),
            (true, Destinations::InTheCall),
        ] {
            self.words(n).fill(7);
            self.fill(1);
            job.barrier()?;
            let what = Broadcast::new(n - 1, self.at(n, 1), self.at(0, 1));
            job.world().broadcast_places(Broadcast { root_keeps, writable, ..what })?;
            let keeps = root_keeps && me == n - 1;
            let expected = if keeps { vec![7; self.len] } else { self.sent(n - 1, 0) };
            assert_eq!(self.words(n), expected);
            assert_eq!(self.words(0), self.sent(me, 0));
        }
        Ok(())
    }

    fn exchanges(&self) -> Result<()> {
        let (job, me, n) = (self.job, self.job.pe(), self.job.npes());
        for writable in [Destinations::InTheCall, Destinations::Ready] {
            (n..2 * n).for_each(|index| self.words(index).fill(0));
            job.barrier()?;
            job.world().gather_places(None, self.at(n, n), self.at(0, 1), writable)?;
            (0..n).for_each(|rank| assert_eq!(self.words(n + rank), self.sent(rank, 0)));
            self.fill(n);
            job.barrier()?;
            job.world().all_to_all_places(self.at(n, n), self.at(0, n), writable)?;
            (0..n).for_each(|rank| assert_eq!(self.words(n + rank), self.sent(rank, me)));
        }
        Ok(())
    }

    fn exchange_at_strides(&self) -> Result<()> {
        let (job, me, n) = (self.job, self.job.pe(), self.job.npes());
        let (to, from) = ((self.at(2 * n, 2 * n), 2), (self.at(0, n), 1));
        job.world().all_to_alls_places(to, from, 8, self.len)?;
        let received = (0..2 * n).flat_map(|block| self.words(2 * n + block).to_vec()).step_by(2);
        let expected = (0..n).flat_map(|rank| self.sent(rank, me));
        assert_eq!(received.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        Ok(())
    }

    fn reduction(&self) -> Result<()> {
        let n = self.job.npes();
        let combine = |into: *mut u8, with: *const u8, count: usize| {
            for i in 0..count {
                // SAFETY: the library passes addresses of so many words.
                unsafe { *into.cast::<u64>().add(i) ^= *with.cast::<u64>().add(i) };
            }
        };
        let xor = Elements { size: 8, combine: &combine, numbers: None };
        self.job.world().combine_places(&xor, Goal::All, self.at(n, 1), self.at(0, 1))?;
        let xored = (0..self.len).map(|i| (0..n).fold(0, |all, rank| all ^ sent(rank, i)));
        assert_eq!(self.words(n), xored.collect::<Vec<_>>());
        Ok(())
    }
}

/// The collectives of windows, on places in a block.
fn places(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 3, 5]), 1) {
        run.job(|job| {
            for len in [3, 700, 4200] {
                let base = job.allocate(4 * job.npes() * 8 * len, 8, true)?;
                let blocks = Blocks { job, segment: segment_of(job), base, len };
                blocks.broadcasts()?;
                blocks.exchanges()?;
                blocks.exchange_at_strides()?;
                blocks.reduction()?;
                job.release(base)?;
            }
            Ok(())
        });
    }
}

fn places_that_do_not_fit(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (team, segment) = (job.world(), segment_of(job));
            let base = job.allocate(4096, 8, true)?;
            let place =
                |at: u64, bytes: usize| segment.place(base + at, bytes).expect("it is inside");
            assert!(segment.place(segment.size() as u64 - 8, 16).is_none());
            assert!(segment.place(u64::MAX, 1).is_none());
            let length = |result: Result<()>| {
                assert!(matches!(result, Err(Error::Length { .. })), "{result:?}")
            };
            for small in [8, 1600] {
                let (to, from) = (place(0, small), place(2000, small + 8));
                length(team.broadcast_places(Broadcast::new(0, to, from)));
                length(team.gather_places(
                    None,
                    place(0, small),
                    place(2000, small),
                    Destinations::InTheCall,
                ));
                length(team.gather_places(
                    Some(1),
                    place(0, small),
                    place(2000, small),
                    Destinations::InTheCall,
                ));
                length(team.all_to_all_places(
                    place(0, small),
                    place(2000, 2 * small),
                    Destinations::InTheCall,
                ));
                let words = Elements { size: 8, combine: &|_, _, _| {}, numbers: None };
                length(team.combine_places(
                    &words,
                    Goal::All,
                    place(0, small),
                    place(2000, small + 8),
                ));
                length(team.combine_places(
                    &words,
                    Goal::All,
                    place(0, small + 1),
                    place(2000, small + 1),
                ));
            }
            length(team.all_to_all_places(place(0, 7), place(8, 7), Destinations::InTheCall));
            let nothing = Elements { size: 0, combine: &|_, _, _| {}, numbers: None };
            let refused = team.combine_places(&nothing, Goal::All, place(0, 8), place(8, 8));
            assert!(matches!(refused, Err(Error::Misuse { .. })));
            let refused =
                team.gather_places(Some(2), place(0, 16), place(16, 8), Destinations::InTheCall);
            assert!(matches!(refused, Err(Error::NoSuchPe { .. })));
            job.barrier()
        });
    }
}
