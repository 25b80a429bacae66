//! Collectives against a model that has the elements of all members.

use crate::setup::{Setup, mark, sizes_here};
use memonet_core::{
    And, By, Error, Job, Max, Min, Operator, Or, Product, Result, Sum, Team, Window, Xor,
};

on_every_fabric!(
    [also on copying, streams_dealt]
    broadcasts,
    reductions,
    reductions_by_a_function_that_does_not_commute,
    floating_point_sums_are_the_same_everywhere,
    scans,
    all_gathers_and_gathers,
    collects,
    scatters,
    all_to_alls,
    one_after_the_other_without_pause,
    in_teams,
    of_odd_types,
    refusals,
);

/// None, one, odd numbers, around the 8-byte elements that an eager buffer holds, and several
/// blocks.
const LENGTHS: [usize; 8] = [0, 1, 7, 127, 128, 129, 1023, 5001];

/// For reductions; with two members, also more than one round over a fabric.
fn lengths(npes: usize) -> impl Iterator<Item = usize> {
    LENGTHS.into_iter().chain((npes == 2).then_some(20_001))
}
const PES: [usize; 6] = [1, 2, 3, 5, 8, 9];

/// The source of the member with rank `rank`.
fn source(rank: usize, len: usize) -> Vec<u64> {
    block(rank, 0, len)
}

/// Of a longer source, the block with this number.
fn block(rank: usize, number: usize, len: usize) -> Vec<u64> {
    (number * len..(number + 1) * len).map(|i| mark(rank, i, 0)).collect()
}

/// Two windows with one more word at either end, which must not change.
struct Words {
    to: Window<u64>,
    from: Window<u64>,
}

const EDGE: u64 = 0xED6E;

impl Words {
    fn new(job: &Job, to: usize, from: usize) -> Result<Self> {
        let words = Words { to: job.window(to + 2)?, from: job.window(from + 2)? };
        words.to.fill(0..to + 2, EDGE);
        words.from.fill(0..from + 2, EDGE);
        Ok(words)
    }

    fn contents(w: &Window<u64>) -> Vec<u64> {
        let all = w.to_vec();
        assert_eq!((all[0], all[all.len() - 1]), (EDGE, EDGE), "beyond the ends");
        all[1..all.len() - 1].to_vec()
    }
}

fn spans(w: &Window<u64>) -> Result<memonet_core::Span<'_, u64>> {
    w.span(1..w.len() - 1)
}

pub fn broadcasts(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            for len in LENGTHS {
                let words = Words::new(job, len, len)?;
                for root in 0..job.npes() {
                    words.from.write_from(1, &source(job.pe() + root, len));
                    job.world().broadcast_into(root, spans(&words.to)?, spans(&words.from)?)?;
                    assert_eq!(
                        Words::contents(&words.to),
                        source(2 * root, len),
                        "{len} from {root}"
                    );
                }
                // In place.
                let all = spans(&words.from)?;
                job.world().broadcast_into(0, all, all)?;
                assert_eq!(Words::contents(&words.from), source(job.npes() - 1, len));
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn reduce_with<O: Operator<u64> + Send + Sync>(
    team: &Team,
    operator: O,
    len: usize,
    words: &Words,
) -> Result<()> {
    let (n, me) = (team.len(), team.rank());
    let expected: Vec<u64> = (0..len)
        .map(|i| (0..n).map(|rank| mark(rank, i, 0)).reduce(|a, b| operator.combine(a, b)).unwrap())
        .collect();
    words.from.write_from(1, &source(me, len));
    team.all_reduce_into(operator, spans(&words.to)?, spans(&words.from)?)?;
    assert_eq!(Words::contents(&words.to), expected);
    assert_eq!(Words::contents(&words.from), source(me, len));
    for root in [0, n - 1] {
        words.to.fill(1..len + 1, 5);
        team.reduce_into(operator, root, spans(&words.to)?, spans(&words.from)?)?;
        let here = if me == root { expected.clone() } else { vec![5; len] };
        assert_eq!(Words::contents(&words.to), here);
    }
    // In place.
    let all = spans(&words.from)?;
    team.all_reduce_into(operator, all, all)?;
    assert_eq!(Words::contents(&words.from), expected);
    Ok(())
}

pub fn reductions(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            for len in lengths(job.npes()) {
                let words = Words::new(job, len, len)?;
                reduce_with(job.world(), Sum, len, &words)?;
                reduce_with(job.world(), Xor, len, &words)?;
            }
            let words = Words::new(job, 9, 9)?;
            reduce_with(job.world(), Product, 9, &words)?;
            reduce_with(job.world(), Min, 9, &words)?;
            reduce_with(job.world(), Max, 9, &words)?;
            reduce_with(job.world(), And, 9, &words)?;
            reduce_with(job.world(), Or, 9, &words)
        });
    }
}

/// Ranks are combined in order: the function is associative, but not commutative.
fn reductions_by_a_function_that_does_not_commute(setup: Setup) {
    /// Two halves as an affine function, composed.
    fn compose(a: u64, b: u64) -> u64 {
        let (a1, a0, b1, b0) = (a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32);
        let factor = a1.wrapping_mul(b1);
        u64::from(factor) | u64::from(b1.wrapping_mul(a0).wrapping_add(b0)) << 32
    }
    for run in setup.runs(&sizes_here(&[2, 3, 5, 9])) {
        run.job(|job| {
            for len in [1, 300] {
                let words = Words::new(job, len, len)?;
                reduce_with(job.world(), By(compose), len, &words)?;
            }
            Ok(())
        });
    }
}

pub fn floating_point_sums_are_the_same_everywhere(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 8])) {
        run.job(|job| {
            for len in [3, 700] {
                let value = |rank: usize, i: usize| {
                    0.1 * (rank + 1) as f64 * 10f64.powi((i % 17) as i32 - 8)
                };
                let w = job.window::<f64>(len)?;
                (0..len).for_each(|i| w.write(i, value(job.pe(), i)));
                let all = w.span(0..len)?;
                job.world().all_reduce_into(Sum, all, all)?;
                for i in 0..len {
                    let expected =
                        (1..job.npes()).fold(value(0, i), |sum, rank| sum + value(rank, i));
                    assert_eq!(w.read(i).to_bits(), expected.to_bits());
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

pub fn scans(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            let me = job.pe();
            for len in lengths(job.npes()) {
                let words = Words::new(job, len, len)?;
                let sum = |ranks: std::ops::Range<usize>| -> Vec<u64> {
                    let at = |i| {
                        ranks.clone().fold(0u64, |sum, rank| sum.wrapping_add(mark(rank, i, 0)))
                    };
                    (0..len).map(at).collect()
                };
                words.from.write_from(1, &source(me, len));
                job.world().scan_into(Sum, spans(&words.to)?, spans(&words.from)?)?;
                assert_eq!(Words::contents(&words.to), sum(0..me + 1));
                job.world().exclusive_scan_into(spans(&words.to)?, spans(&words.from)?)?;
                assert_eq!(Words::contents(&words.to), sum(0..me));
                let all = spans(&words.from)?;
                job.world().exclusive_scan_into(all, all)?;
                assert_eq!(Words::contents(&words.from), sum(0..me), "in place");
                words.from.write_from(1, &source(me, len));
                job.world().scan_into(Sum, all, all)?;
                assert_eq!(Words::contents(&words.from), sum(0..me + 1), "in place");
                let zeros = job.window::<f64>(len)?;
                zeros.fill(0..len, -0.0);
                job.world().exclusive_scan_into(zeros.span(0..len)?, zeros.span(0..len)?)?;
                let expected = if me == 0 { 0.0f64 } else { -0.0 };
                let is_expected = |zero: &f64| zero.to_bits() == expected.to_bits();
                assert!(zeros.to_vec().iter().all(is_expected), "{len} zeros");
                job.barrier()?;
            }
            Ok(())
        });
    }
}

pub fn all_gathers_and_gathers(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            let n = job.npes();
            for len in LENGTHS {
                let words = Words::new(job, n * len, len)?;
                words.from.write_from(1, &source(job.pe(), len));
                let expected: Vec<u64> = (0..n).flat_map(|rank| source(rank, len)).collect();
                job.world().all_gather_into(spans(&words.to)?, spans(&words.from)?)?;
                assert_eq!(Words::contents(&words.to), expected);
                words.to.fill(1..n * len + 1, 3);
                job.world().gather_into(n / 2, spans(&words.to)?, spans(&words.from)?)?;
                let here = if job.pe() == n / 2 { expected } else { vec![3; n * len] };
                assert_eq!(Words::contents(&words.to), here);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn collects(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            let n = job.npes();
            for most in LENGTHS {
                let length = |rank: usize| (rank * 7 + most) % (most + 1);
                let words = Words::new(job, n * most, most)?;
                words.from.write_from(1, &source(job.pe(), most));
                let expected: Vec<u64> =
                    (0..n).flat_map(|rank| source(rank, length(rank))).collect();
                let from = words.from.span(1..1 + length(job.pe()))?;
                assert_eq!(job.world().collect_into(spans(&words.to)?, from)?, expected.len());
                assert_eq!(Words::contents(&words.to)[..expected.len()], expected);
                job.barrier()?;
            }
            // One destination is too small: all get an error.
            let words = Words::new(job, 8 * n, 8)?;
            let to = words.to.span(1..if job.pe() == 0 { 8 * n } else { 8 * n + 1 })?;
            let refused = job.world().collect_into(to, spans(&words.from)?);
            assert!(matches!(refused, Err(Error::Length { .. })), "{refused:?}");
            job.barrier()
        });
    }
}

fn scatters(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            let (n, me) = (job.npes(), job.pe());
            for len in LENGTHS {
                let words = Words::new(job, len, n * len)?;
                for root in [0, n - 1] {
                    words.from.write_from(1, &source(me, n * len));
                    job.world().scatter_into(root, spans(&words.to)?, spans(&words.from)?)?;
                    assert_eq!(Words::contents(&words.to), block(root, me, len));
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn all_to_alls(setup: Setup) {
    for run in setup.runs(&sizes_here(&PES)) {
        run.job(|job| {
            let (n, me) = (job.npes(), job.pe());
            for len in LENGTHS {
                let words = Words::new(job, n * len, n * len)?;
                words.from.write_from(1, &source(me, n * len));
                job.world().all_to_all_into(spans(&words.to)?, spans(&words.from)?)?;
                let expected: Vec<u64> = (0..n).flat_map(|rank| block(rank, me, len)).collect();
                assert_eq!(Words::contents(&words.to), expected);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// However far apart the members are, no eager buffer is overwritten before it has been read.
fn one_after_the_other_without_pause(setup: Setup) {
    let rounds = if setup.is_near() { 400 } else { 60 };
    for run in setup.many_runs(&sizes_here(&[2, 3, 8]), 3) {
        run.job(move |job| {
            let (n, mut dice) = (job.npes() as u64, run.dice(job.pe()));
            let w = job.window::<u64>(2)?;
            let (to, from) = (w.span(0..1)?, w.span(1..2)?);
            for round in 0..rounds {
                w.write(1, round * n + job.pe() as u64);
                dice.dawdle();
                if round % 3 == 0 {
                    job.world().broadcast_into((round % n) as usize, to, from)?;
                    assert_eq!(w.read(0), round * n + round % n);
                } else {
                    job.world().all_reduce_into(Sum, to, from)?;
                    assert_eq!(w.read(0), round * n * n + n * (n - 1) / 2);
                }
            }
            Ok(())
        });
    }
}

fn in_teams(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 8])) {
        run.job(|job| {
            let n = job.npes();
            let words = Words::new(job, 200, 200)?;
            let mine: Vec<usize> = (0..n).rev().filter(|pe| pe % 2 == job.pe() % 2).collect();
            let team = job.team(&mine)?.expect("it is in its own team");
            for len in [1, 200] {
                let words = Words { to: words.to.clone(), from: words.from.clone() };
                if len == 200 {
                    reduce_with(&team, Sum, len, &words)?;
                }
                let (to, from) = (words.to.span(1..1 + len)?, words.from.span(1..1 + len)?);
                words.from.write_from(1, &source(job.pe(), len));
                team.broadcast_into(0, to, from)?;
                assert_eq!(words.to.to_vec()[1..1 + len], source(mine[0], len));
            }
            job.barrier()
        });
    }
}

fn of_odd_types(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        run.job(|job| {
            for len in [1, 3, 999, 3001] {
                let bytes = job.window::<u8>(len)?;
                bytes.fill(0..len, job.pe() as u8 + 1);
                let all = bytes.span(0..len)?;
                job.world().all_reduce_into(Product, all, all)?;
                assert_eq!(bytes.to_vec(), vec![6; len]);
                let triples = job.window::<[u16; 3]>(len)?;
                triples.fill(0..len, [job.pe() as u16, 1, 2]);
                let all = triples.span(0..len)?;
                let add = By(|a: [u16; 3], b: [u16; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
                job.world().scan_into(add, all, all)?;
                let k = job.pe() as u16 + 1;
                assert_eq!(triples.to_vec(), vec![[k * (k - 1) / 2, k, 2 * k]; len]);
            }
            job.barrier()
        });
    }
}

fn refusals(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (w, team) = (job.window::<u64>(10)?, job.world());
            let span = |from, to| w.span(from..to);
            assert!(matches!(w.span(0..11), Err(Error::OutOfBounds { .. })));
            #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
            let backwards = w.span(5..4);
            assert!(matches!(backwards, Err(Error::Misuse { .. })));
            let restricted = job.restricted::<u64>(4, |_, _| memonet_core::Access::ReadWrite)?;
            assert!(matches!(restricted.span(0..4), Err(Error::Misuse { .. })));
            assert!(matches!(
                team.broadcast_into(2, span(0, 2)?, span(2, 4)?),
                Err(Error::NoSuchPe { .. })
            ));
            assert!(matches!(
                team.broadcast_into(0, span(0, 2)?, span(2, 5)?),
                Err(Error::Length { .. })
            ));
            assert!(matches!(
                team.all_reduce_into(Sum, span(0, 2)?, span(1, 3)?),
                Err(Error::Misuse { .. })
            ));
            assert!(matches!(
                team.all_gather_into(span(0, 4)?, span(2, 4)?),
                Err(Error::Misuse { .. })
            ));
            assert!(matches!(
                team.all_gather_into(span(0, 3)?, span(4, 6)?),
                Err(Error::Length { .. })
            ));
            assert!(matches!(
                team.all_to_all_into(span(0, 3)?, span(4, 7)?),
                Err(Error::Length { .. })
            ));
            job.barrier()
        });
    }
}
