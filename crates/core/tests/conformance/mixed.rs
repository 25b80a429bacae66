//! Collectives of all kinds, one after the other without a barrier between, compared with a model that has everybody's elements before it.

use crate::setup::{Dice, Setup, mark, sizes_here};
use memonet_core::{Job, Result, Sum, Team, Window};

on_every_fabric!(of_the_world, of_two_teams_in_turn);

/// Elements of each member: within a line of 56 bytes, just beyond, within an outbox, just beyond, and more.
const LENGTHS: [usize; 10] = [0, 1, 6, 7, 8, 40, 127, 128, 129, 700];
const MOST: usize = 700;

/// What the members of a team work with.
struct Parts<'a> {
    team: &'a Team,
    to: &'a Window<u64>,
    from: &'a Window<u64>,
    /// On which all agree.
    dice: Dice,
}

impl Parts<'_> {
    /// One collective of any kind. The source is overwritten as soon as the call has returned.
    fn one(&mut self, round: usize) -> Result<()> {
        let (n, me) = (self.team.len(), self.team.rank());
        let (len, root) = (LENGTHS[self.dice.below(LENGTHS.len())], self.dice.below(n));
        let source = |rank: usize, len: usize| -> Vec<u64> { (0..len).map(|i| mark(rank, i, round)).collect() };
        let sum = |ranks: std::ops::Range<usize>| -> Vec<u64> {
            let at = |i| ranks.clone().fold(0u64, |sum, rank| sum.wrapping_add(mark(rank, i, round)));
            (0..len).map(at).collect()
        };
        let of_all = || (0..n).flat_map(|rank| source(rank, len)).collect::<Vec<_>>();
        // The block of each rank that this member gets, of sources that have one for each.
        let mine = |rank: usize| source(rank, n * len)[me * len..(me + 1) * len].to_vec();
        let before = mark(n + me, 0, round);
        let untouched = |len: usize| vec![before; len];
        let whole = if self.dice.below(2) == 0 { n * len } else { len };
        self.from.write_from(0, &source(me, n * len));
        self.to.fill(0..n * len, before);
        let (to, from) = (|len: usize| self.to.span(0..len), |len: usize| self.from.span(0..len));
        let team = self.team;
        let (what, expected) = match self.dice.below(10) {
            0 | 1 => {
                team.broadcast(root, to(whole)?, from(whole)?)?;
                ("broadcast", source(root, whole))
            }
            2 => {
                team.scatter(root, to(len)?, from(n * len)?)?;
                ("scatter", mine(root))
            }
            3 => {
                team.gather(root, to(n * len)?, from(len)?)?;
                ("gather", if me == root { of_all() } else { untouched(n * len) })
            }
            4 => {
                team.all_gather(to(n * len)?, from(len)?)?;
                ("all_gather", of_all())
            }
            5 => {
                team.all_to_all(to(n * len)?, from(n * len)?)?;
                ("all_to_all", (0..n).flat_map(mine).collect())
            }
            6 => {
                team.all_reduce(Sum, to(len)?, from(len)?)?;
                ("all_reduce", sum(0..n))
            }
            7 => {
                team.reduce(Sum, root, to(len)?, from(len)?)?;
                ("reduce", if me == root { sum(0..n) } else { untouched(len) })
            }
            8 => {
                team.scan(Sum, to(len)?, from(len)?)?;
                ("scan", sum(0..me + 1))
            }
            _ => {
                let shorter = |rank: usize| len - len.min(rank);
                let all: Vec<u64> = (0..n).flat_map(|rank| source(rank, shorter(rank))).collect();
                assert_eq!(team.collect(to(n * len)?, from(shorter(me))?)?, all.len());
                ("collect", all)
            }
        };
        self.from.fill(0..n * len, !0);
        let found = self.to.to_vec();
        let wrong = (0..n * len).find(|&i| found[i] != *expected.get(i).unwrap_or(&before));
        assert_eq!(wrong, None, "round {round}: {what} of {len} among {n}, root {root}");
        Ok(())
    }
}

fn rounds(setup: Setup) -> usize {
    if setup.is_near() { 600 } else { 80 }
}

fn windows(job: &Job) -> Result<[Window<u64>; 2]> {
    Ok([job.window(job.npes() * MOST)?, job.window(job.npes() * MOST)?])
}

fn of_the_world(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3, 5, 8, 9]), 3) {
        run.job(move |job| {
            let [to, from] = windows(job)?;
            let mut own = run.dice(job.pe());
            let mut parts = Parts {
                team: job.world(),
                to: &to,
                from: &from,
                dice: run.shared_dice(),
            };
            for round in 0..rounds(setup) {
                own.dawdle();
                parts.one(round)?;
            }
            Ok(())
        });
    }
}

/// Each PE is in the world, and in a team of the odd or of the even, ranked the other way round.
fn of_two_teams_in_turn(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[3, 5, 8]), 3) {
        run.job(move |job| {
            let ([to, from], [to_half, from_half]) = (windows(job)?, windows(job)?);
            let mut own = run.dice(job.pe());
            let members: Vec<usize> = (0..job.npes()).rev().filter(|pe| pe % 2 == job.pe() % 2).collect();
            for _ in 0..3 {
                // It comes to a place that another team had before.
                let team = job.team(&members)?.expect("it names itself");
                let parts = |team, to, from| Parts {
                    team,
                    to,
                    from,
                    dice: run.shared_dice(),
                };
                let (mut world, mut half) = (parts(job.world(), &to, &from), parts(&team, &to_half, &from_half));
                for round in 0..rounds(setup) / 3 {
                    own.dawdle();
                    half.one(round)?;
                    if round % 3 == 0 {
                        world.one(round)?;
                    }
                }
            }
            Ok(())
        });
    }
}
