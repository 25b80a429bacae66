//! Collectives of values and slices, against a model that has the elements of all members. No
//! barrier stands between them, so that a member may be in the next call while another still reads
//! the result of the last.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, Setup, mark, sizes_here};
use memonet_core::unstable::layout::STAGING_BYTES;
use memonet_core::{By, Cause, Error, Job, JobOptions, Max, Min, Result, Sum, Team};

on_every_fabric!(
    [also on copying, streams_dealt]
    of_the_world,
    of_teams_in_slots_of_others,
    of_many_members,
    around_pieces,
    a_death_in_the_middle,
    in_an_operator,
    wrong_arguments,
    a_member_that_has_left,
    ; with threads of their own:
    one_thread_at_a_time,
    // Its long values do not fit the stack of a simulated PE.
    of_odd_types,
    of_wide_alignment,
);

/// Elements of each member, of 8 bytes: around lines, eager buffers and the shortest staging areas,
/// and the blocks of several members in one of these.
const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 57, 102, 103, 128, 129, 511, 512, 513, 1500];

/// Elements that the longest half of a staging area holds.
const PIECE: usize = STAGING_BYTES[1] as usize / 8;

/// Two affine maps modulo 2^32, composed: it shows the order of combination.
fn compose(a: u64, b: u64) -> u64 {
    let (a1, a0, b1, b0) = (a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32);
    u64::from(b1.wrapping_mul(a0).wrapping_add(b0)) << 32 | u64::from(b1.wrapping_mul(a1))
}

/// What the member with rank `rank` gives.
fn given(rank: usize, round: usize, len: usize) -> Vec<u64> {
    block_of(rank, round, 0, len)
}

/// Of more that it gives, the block with this number.
fn block_of(rank: usize, round: usize, number: usize, len: usize) -> Vec<u64> {
    (number * len..(number + 1) * len).map(|i| mark(rank, i, round)).collect()
}

/// The elements of some ranks, combined in order.
fn combined(ranks: std::ops::Range<usize>, round: usize, len: usize) -> Vec<u64> {
    (0..len).map(|i| ranks.clone().map(|r| mark(r, i, round)).reduce(compose).unwrap()).collect()
}

fn sums(ranks: std::ops::Range<usize>, round: usize, len: usize) -> Vec<u64> {
    let sum = |i| ranks.clone().fold(0u64, |sum, rank| sum.wrapping_add(mark(rank, i, round)));
    (0..len).map(sum).collect()
}

fn concat(n: usize, of: impl Fn(usize) -> Vec<u64>) -> Vec<u64> {
    (0..n).flat_map(of).collect()
}

/// Kinds of calls.
const KINDS: usize = 18;
/// The first of those that take slices.
const OF_SLICES: usize = 8;

/// One call of any kind, which all members choose alike.
fn one(team: &Team, dice: &mut Dice, round: usize) -> Result<()> {
    let root = dice.below(team.len());
    call(team, root, dice.below(KINDS), LENGTHS[dice.below(LENGTHS.len())], round)
}

/// A call of one kind, of so many elements of each member.
fn call(team: &Team, root: usize, kind: usize, len: usize, round: usize) -> Result<()> {
    let (n, me) = (team.len(), team.rank());
    let mut mine = given(me, round, len);
    let value = mark(me, 0, round);
    let by = By(compose);
    let what = format!("round {round}: kind {kind}, {len} among {n}, root {root}");
    match kind {
        0 => assert_eq!(team.broadcast(root, value)?, mark(root, 0, round), "{what}"),
        1 => assert_eq!(team.all_reduce(by, value)?, combined(0..n, round, 1)[0], "{what}"),
        2 => {
            let expected = (me == root).then(|| combined(0..n, round, 1)[0]);
            assert_eq!(team.reduce(by, root, value)?, expected, "{what}");
        }
        3 => assert_eq!(team.scan(by, value)?, combined(0..me + 1, round, 1)[0], "{what}"),
        4 => assert_eq!(team.exclusive_scan(value)?, sums(0..me, round, 1)[0], "{what}"),
        5 => assert_eq!(team.all_gather(value)?, concat(n, |r| given(r, round, 1)), "{what}"),
        6 => {
            let expected = (me == root).then(|| concat(n, |r| given(r, round, 1)));
            assert_eq!(team.gather(root, value)?, expected, "{what}");
        }
        7 => {
            let all = if me == root { given(root, round, n) } else { vec![] };
            assert_eq!(team.scatter(root, &all)?, mark(root, me, round), "{what}");
        }
        8 => {
            team.broadcast_slice(root, &mut mine)?;
            assert_eq!(mine, given(root, round, len), "{what}");
        }
        9 => {
            team.all_reduce_slice(by, &mut mine)?;
            assert_eq!(mine, combined(0..n, round, len), "{what}");
        }
        10 => {
            team.reduce_slice(by, root, &mut mine)?;
            let here = if me == root { combined(0..n, round, len) } else { given(me, round, len) };
            assert_eq!(mine, here, "{what}");
        }
        11 => {
            team.scan_slice(by, &mut mine)?;
            assert_eq!(mine, combined(0..me + 1, round, len), "{what}");
        }
        12 => {
            team.exclusive_scan_slice(&mut mine)?;
            assert_eq!(mine, sums(0..me, round, len), "{what}");
        }
        13 => {
            let all = concat(n, |r| given(r, round, len));
            assert_eq!(team.all_gather_slice(&mine)?, all, "{what}");
        }
        14 => {
            let all = (me == root).then(|| concat(n, |r| given(r, round, len)));
            assert_eq!(team.gather_slice(root, &mine)?, all, "{what}");
        }
        15 => {
            let all = given(me, round, n * len);
            team.scatter_slice(root, &all, &mut mine)?;
            assert_eq!(mine, block_of(root, round, me, len), "{what}");
        }
        16 => {
            let all = team.all_to_all(&given(me, round, n * len))?;
            assert_eq!(all, concat(n, |rank| block_of(rank, round, me, len)), "{what}");
        }
        _ => {
            let shorter = |rank: usize| given(rank, round, len - len.min(rank));
            let all: Vec<_> = (0..n).map(shorter).collect();
            assert_eq!(team.collect(&shorter(me))?, all, "{what}");
        }
    }
    Ok(())
}

fn rounds(setup: Setup) -> usize {
    if setup.is_near() { 500 } else { 60 }
}

pub fn of_the_world(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3, 5, 8, 9]), 3) {
        run.job(move |job| {
            let (mut own, mut dice) = (run.dice(job.pe()), run.shared_dice());
            for round in 0..rounds(setup) {
                own.dawdle();
                one(job.world(), &mut dice, round)?;
            }
            Ok(())
        });
    }
}

/// Each PE is in the world, and in a team of the odd or of the even, ranked the other way round.
/// Calls of both, and of windows, alternate.
pub fn of_teams_in_slots_of_others(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[3, 5, 8]), 2) {
        run.job(move |job| {
            let members: Vec<usize> =
                (0..job.npes()).rev().filter(|pe| pe % 2 == job.pe() % 2).collect();
            let window = job.window::<u64>(1)?;
            let word = window.span(0..1)?;
            for _ in 0..3 {
                let team = job.team(&members)?.expect("it names itself");
                let mut dice = [run.shared_dice(), run.shared_dice()];
                for round in 0..rounds(setup) / 4 {
                    one(&team, &mut dice[0], round)?;
                    if round % 3 == 0 {
                        one(job.world(), &mut dice[1], round)?;
                    }
                    if round % 5 == 0 {
                        window.write(0, 1);
                        team.all_reduce_into(Sum, word, word)?;
                        assert_eq!(window.read(0), team.len() as u64);
                    }
                }
            }
            Ok(())
        });
    }
}

/// Lengths around one piece, the blocks of all members in one, and several pieces. Calls of two
/// teams take turns.
fn around_pieces(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        run.job(move |job| {
            let pair = job.team(&[2, 0])?;
            let lengths = [PIECE - 1, PIECE, PIECE + 1, PIECE / 3, PIECE / 3 + 1, 2 * PIECE + 5];
            for kind in OF_SLICES..KINDS {
                let some = if setup.is_near() { 0..lengths.len() } else { kind % 6..kind % 6 + 1 };
                for &len in &lengths[some] {
                    call(job.world(), kind % 3, kind, len, kind)?;
                    if let Some(pair) = &pair {
                        call(pair, kind % 2, kind, len, kind)?;
                    }
                }
            }
            Ok(())
        });
    }
}

/// A member dies between two pieces, or within one. The others get an error, and get it again.
fn a_death_in_the_middle(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        let die = |job: &Job, ()| {
            let left = std::cell::Cell::new(PIECE / 3 + 100);
            let last = By(|a: u64, b: u64| {
                match left.get() {
                    0 => std::panic::resume_unwind(Box::new("in an operator")),
                    more => left.set(more - 1),
                }
                a + b
            });
            let mut mine = vec![1; 4 * PIECE];
            // In a scan each member combines, whatever the way.
            let call = || job.world().scan_slice(last, &mut mine);
            let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            assert!(died.is_err(), "the operator ends it: {died:?}");
            Ok(())
        };
        let survive = |job: &Job, _: &()| {
            let (team, mut mine) = (job.world(), vec![1u64; 4 * PIECE]);
            blames(team.scan_slice(Sum, &mut mine), 1, Cause::Panic, "in the call");
            blames(team.all_gather_slice(&mine), 1, Cause::Panic, "the next call");
            Ok(())
        };
        with_a_death(run, 1, |_| Ok(()), die, survive);
    }
}

fn of_odd_types(setup: Setup) {
    /// Longer than the shortest staging area.
    const LONG: usize = 1025;
    for run in setup.runs(&sizes_here(&[1, 3])) {
        run.job(|job| {
            let (team, me, n) = (job.world(), job.pe(), job.npes());
            let triple = |pe: usize| [pe as u8, 1, 2 * pe as u8];
            let add = By(|a: [u8; 3], b: [u8; 3]| std::array::from_fn(|i| a[i] + b[i]));
            let total = (0..n).map(triple).reduce(|a, b| (add.0)(a, b)).unwrap();
            for len in [1, 1364, 1365, 1366, 3000] {
                let mut all = vec![triple(me); len];
                team.all_reduce_slice(add, &mut all)?;
                assert_eq!(all, vec![total; len]);
            }
            let long = |pe: usize| [pe as u32 + 1; LONG];
            let by = By(|a: [u32; LONG], b: [u32; LONG]| std::array::from_fn(|i| 7 * a[i] + b[i]));
            let upto = |end: usize| (0..end).map(long).reduce(|a, b| (by.0)(a, b));
            assert_eq!(team.all_reduce(by, long(me))?, upto(n).unwrap());
            assert_eq!(team.scan(by, long(me))?, upto(me + 1).unwrap());
            assert_eq!(team.reduce(by, n - 1, long(me))?, upto(n).filter(|_| me == n - 1));
            assert_eq!(team.broadcast(n - 1, long(me))?, long(n - 1));
            assert_eq!(team.all_gather(long(me))?, (0..n).map(long).collect::<Vec<_>>());
            let all: Vec<_> = (0..n).map(long).collect();
            assert_eq!(team.scatter(0, &all)?, long(me));
            assert_eq!(team.all_to_all(&all)?, vec![long(me); n]);
            // Elements without a size.
            assert_eq!(team.all_gather([0u64; 0])?, vec![[0u64; 0]; n]);
            team.broadcast(0, ())?;
            let nothing = team.all_reduce(By(|(), ()| ()), ());
            assert!(matches!(nothing, Err(Error::Misuse { .. })), "{nothing:?}");
            // Floating-point numbers: the same bits everywhere.
            let sum = team.all_reduce(Sum, 0.1 * (me as f64 + 1.0))?;
            assert!(team.all_gather(sum)?.iter().all(|other| other.to_bits() == sum.to_bits()));
            assert_eq!(
                (team.all_reduce(Max, me as i8)?, team.all_reduce(Min, me)?),
                (n as i8 - 1, 0)
            );
            Ok(())
        });
    }
}

/// Elements may ask for wider alignment than the lines and buffers that they pass through.
fn of_wide_alignment(setup: Setup) {
    #[derive(
        Clone, Copy, PartialEq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
    )]
    #[repr(C, align(128))]
    struct Wide([u64; 16]);
    #[derive(
        Clone, Copy, PartialEq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
    )]
    #[repr(C, align(4096))]
    struct Page([u64; 512]);
    for run in setup.runs(&sizes_here(&[1, 2, 3])) {
        run.job(|job| {
            let (team, me, n) = (job.world(), job.pe() as u64, job.npes() as u64);
            let sum: u64 = (0..n).sum();
            let wide = By(|a: Wide, b: Wide| Wide(std::array::from_fn(|i| a.0[i] + b.0[i])));
            let page = By(|a: Page, b: Page| Page(std::array::from_fn(|i| a.0[i] + b.0[i])));
            for _ in 0..3 {
                assert_eq!(team.all_reduce(wide, Wide([me; 16]))?, Wide([sum; 16]));
                assert_eq!(team.all_reduce(page, Page([me; 512]))?, Page([sum; 512]));
                let upto = (0..=me).sum();
                assert_eq!(team.scan(wide, Wide([me; 16]))?, Wide([upto; 16]));
                let mut many = vec![Wide([me; 16]); 100];
                team.all_reduce_slice(wide, &mut many)?;
                assert_eq!(many, vec![Wide([sum; 16]); 100]);
            }
            let window = job.window::<Wide>(8)?;
            window.write_from(0, &[Wide([me; 16]); 4]);
            team.all_reduce_into(wide, window.span(4..8)?, window.span(0..4)?)?;
            assert_eq!(window.to_vec()[4..], [Wide([sum; 16]); 4]);
            Ok(())
        });
    }
}

/// So many members that their blocks do not go through one area, and so few bytes that they do.
pub fn of_many_members(setup: Setup) {
    const PES: usize = 65;
    if !setup.is_near() || sizes_here(&[PES]).is_empty() {
        return;
    }
    for run in setup.runs(&[PES]) {
        run.job(|job| {
            let (team, me) = (job.world(), job.pe());
            for len in [1, 7, 8, 13] {
                let mine = given(me, len, PES * len);
                let block = |rank| block_of(rank, len, me, len);
                assert_eq!(team.all_to_all(&mine)?, concat(PES, block));
                let all = concat(PES, |rank| given(rank, len, len));
                assert_eq!(team.all_gather_slice(&mine[..len])?, all);
                assert_eq!(team.gather_slice(3, &mine[..len])?, (me == 3).then_some(all));
                let mut part = vec![0; len];
                team.scatter_slice(64, &mine, &mut part)?;
                assert_eq!(part, block(64));
                let found = team.collect(&mine[..me % len + 1])?;
                assert_eq!(found[64], given(64, len, 64 % len + 1));
            }
            Ok(())
        });
    }
}

/// An operator that calls its own team is refused, and nobody waits for its PE.
fn in_an_operator(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let team = job.world();
            let nested = By(|a: u64, b: u64| {
                let inner = team.all_reduce(Sum, a);
                assert!(matches!(inner, Err(Error::Misuse { .. })), "{inner:?}");
                a + b
            });
            assert_eq!(team.all_reduce(nested, 4)?, 8);
            assert_eq!(team.all_reduce(Sum, 1)?, 2);
            Ok(())
        });
    }
}

/// A member's own wrong arguments are its error at once, and the team is as it was.
fn wrong_arguments(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let team = job.world();
            assert!(matches!(team.broadcast(2, 1), Err(Error::NoSuchPe { pe: 2, npes: 2, .. })));
            assert!(matches!(team.broadcast_slice::<u8>(2, &mut []), Err(Error::NoSuchPe { .. })));
            assert!(matches!(team.reduce(Sum, 7, 1), Err(Error::NoSuchPe { .. })));
            assert!(matches!(team.gather(2, 1), Err(Error::NoSuchPe { .. })));
            assert!(matches!(team.scatter(2, &[1, 2]), Err(Error::NoSuchPe { .. })));
            let short = team.scatter(job.pe(), &[1]);
            assert!(matches!(short, Err(Error::Length { left: 1, right: 2, .. })), "{short:?}");
            assert!(matches!(team.all_to_all(&[1, 2, 3]), Err(Error::Length { .. })));
            assert_eq!(team.all_reduce(Sum, 1)?, 2);
            Ok(())
        });
    }
}

/// Calls that depend on a member that has left fail, then and later.
fn a_member_that_has_left(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        run.job(|job| {
            let team = job.world();
            assert_eq!(team.all_reduce(Sum, 1)?, 3);
            if job.pe() == 1 {
                return Ok(());
            }
            let left = |result: Result<()>| match result {
                Err(Error::PeerFailed { pe: 1 | 2, cause: Cause::Finalized, .. }) => {}
                other => panic!("{other:?}"),
            };
            left(team.all_reduce(Sum, 1).map(drop));
            left(team.all_gather_slice(&[1u64; 2000]).map(drop));
            left(team.all_reduce_slice(Sum, &mut [1u64; 2000]));
            left(team.all_to_all(&[1u64; 3]).map(drop));
            Ok(())
        });
    }
}

/// A second thread is refused while the first is in a call, and harms nothing.
fn one_thread_at_a_time(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let (team, window) = (job.world(), job.window::<u64>(1)?);
            if job.pe() == 1 {
                // The first thread of PE 0 waits until the second has been refused.
                window.wait_until(0, memonet_core::Cmp::Ne, 0)?;
                assert_eq!(team.all_reduce(Sum, 1)?, 4);
                return Ok(());
            }
            std::thread::scope(|scope| {
                let first = scope.spawn(|| {
                    loop {
                        match team.all_reduce(Sum, 3) {
                            // The second thread was in a call of its own.
                            Err(Error::Misuse { .. }) => crate::setup::yield_now(),
                            result => break result,
                        }
                    }
                });
                let mut refused = false;
                while !refused {
                    // Wrong for PE 1, so it is refused even where this thread comes first.
                    refused = match team.scatter(0, &[1u64]) {
                        Err(Error::Length { .. }) => {
                            matches!(team.all_to_all(&[0u64; 0]), Err(Error::Misuse { .. }))
                        }
                        other => panic!("{other:?}"),
                    };
                    crate::setup::yield_now();
                }
                window.put_one(1, 0, 1)?;
                job.quiet()?;
                assert_eq!(first.join().expect("it does not panic")?, 4);
                Ok(())
            })
        });
    }
}

#[test]
fn members_that_call_with_unequal_lengths_are_told() {
    let options = JobOptions::new().check(true);
    let results = Job::threads_with(&options, 2, |job| {
        let mut mine = vec![1u64; PIECE + job.pe()];
        job.world().broadcast_slice(0, &mut mine)
    });
    for result in results.unwrap() {
        assert!(matches!(result, Err(Error::Unequal { .. })), "{result:?}");
    }
}

#[test]
fn members_that_call_with_windows_and_with_values_are_told() {
    let options = JobOptions::new().check(true);
    let texts = Job::threads_with(&options, 2, |job| {
        let window = job.window::<u64>(1)?;
        let word = window.span(0..1)?;
        match job.pe() {
            0 => job.world().all_reduce(Sum, 1u64).map(drop),
            _ => job.world().all_reduce_into(Sum, word, word),
        }
    });
    for text in texts.unwrap().into_iter().map(|result| result.unwrap_err().to_string()) {
        assert!(text.contains("all_reduce_into by Sum of u64"), "{text}");
    }
}
