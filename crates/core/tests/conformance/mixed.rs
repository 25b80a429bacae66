//! Collectives of all kinds, one after the other without a barrier between them, against a model
//! that has the elements of all members.

use crate::setup::{Dice, Setup, mark, sizes_here};
use memonet_core::{By, Job, Plain, Result, Sum, Team, Window};
use std::fmt::Debug;

on_every_fabric!(
    [also on copying, streams_dealt]
    of_the_world, of_two_teams_in_turn;
    about the choice of algorithms: reductions_about_every_limit,
);

/// Elements of each member: within a line of 56 bytes and just beyond, within an eager buffer and
/// just beyond, and more.
const LENGTHS: [usize; 10] = [0, 1, 6, 7, 8, 40, 127, 128, 129, 700];
const MOST: usize = 700;

/// A team's windows and chance.
struct Parts<'a> {
    team: &'a Team,
    to: &'a Window<u64>,
    from: &'a Window<u64>,
    /// All members throw alike.
    dice: Dice,
}

impl Parts<'_> {
    /// One collective of any kind. The source is overwritten as soon as the call has returned.
    fn one(&mut self, round: usize) -> Result<()> {
        let n = self.team.len();
        let call = Call {
            n,
            me: self.team.rank(),
            round,
            len: LENGTHS[self.dice.below(LENGTHS.len())],
            root: self.dice.below(n),
            is_whole: self.dice.below(2) == 0,
            kind: self.dice.below(12),
            in_place: self.dice.below(2) == 0,
        };
        let Call { me, len, kind, .. } = call;
        self.from.write_from(0, &call.source(me, n * len));
        self.to.fill(0..n * len, call.before());
        if call.in_place && (kind == 1 && me == call.root || (6..10).contains(&kind)) {
            self.to.write_from(0, &call.source(me, if kind == 1 { call.whole() } else { len }));
        }
        let what = self.make(&call)?;
        let expected = call.expected();
        self.from.fill(0..n * len, !0);
        let found = self.to.to_vec();
        let wrong = (0..n * len).find(|&i| found[i] != *expected.get(i).unwrap_or(&call.before()));
        let root = call.root;
        assert_eq!(wrong, None, "round {round}: {what} of {len} among {n}, root {root}");
        Ok(())
    }

    /// Makes the call, and gives its name.
    fn make(&self, call: &Call) -> Result<&'static str> {
        let &Call { n, me, len, root, in_place, .. } = call;
        let (team, whole) = (self.team, call.whole());
        let (to, from) = (|len: usize| self.to.span(0..len), |len: usize| self.from.span(0..len));
        // Broadcasts, reductions and scans may write where they read.
        let either = if in_place { self.to } else { self.from };
        Ok(match call.kind {
            0 => team.broadcast_into(root, to(whole)?, from(whole)?).map(|()| "broadcast")?,
            1 => team
                .broadcast_into(root, to(whole)?, either.span(0..whole)?)
                .map(|()| "broadcast")?,
            2 => team.scatter_into(root, to(len)?, from(n * len)?).map(|()| "scatter")?,
            3 => team.gather_into(root, to(n * len)?, from(len)?).map(|()| "gather")?,
            4 => team.all_gather_into(to(n * len)?, from(len)?).map(|()| "all_gather")?,
            5 => team.all_to_all_into(to(n * len)?, from(n * len)?).map(|()| "all_to_all")?,
            6 => {
                team.all_reduce_into(Sum, to(len)?, either.span(0..len)?).map(|()| "all_reduce")?
            }
            7 => team.reduce_into(Sum, root, to(len)?, either.span(0..len)?).map(|()| "reduce")?,
            8 => team.scan_into(Sum, to(len)?, either.span(0..len)?).map(|()| "scan")?,
            9 => {
                team.exclusive_scan_into(to(len)?, either.span(0..len)?)?;
                "exclusive_scan"
            }
            10 => {
                team.all_to_alls_into(to(n * len)?, 1, from(n * len)?, 1, len)?;
                "all_to_alls"
            }
            _ => {
                let all = (0..n).map(|rank| call.shorter(rank)).sum::<usize>();
                assert_eq!(team.collect_into(to(n * len)?, from(call.shorter(me))?)?, all);
                "collect"
            }
        })
    }
}

/// One collective call, as all members choose it alike.
struct Call {
    n: usize,
    me: usize,
    round: usize,
    len: usize,
    root: usize,
    /// Whether a broadcast has as many elements as an all-gather gives.
    is_whole: bool,
    kind: usize,
    in_place: bool,
}

impl Call {
    fn whole(&self) -> usize {
        if self.is_whole { self.n * self.len } else { self.len }
    }

    /// What a destination holds before the call.
    fn before(&self) -> u64 {
        mark(self.n + self.me, 0, self.round)
    }

    fn source(&self, rank: usize, len: usize) -> Vec<u64> {
        (0..len).map(|i| mark(rank, i, self.round)).collect()
    }

    /// Elements that a rank gives to a collect.
    fn shorter(&self, rank: usize) -> usize {
        self.len - self.len.min(rank)
    }

    fn sum(&self, ranks: std::ops::Range<usize>) -> Vec<u64> {
        let at =
            |i| ranks.clone().fold(0u64, |sum, rank| sum.wrapping_add(mark(rank, i, self.round)));
        (0..self.len).map(at).collect()
    }

    /// The block that this member gets of a rank's source, which has one for each member.
    fn mine(&self, rank: usize) -> Vec<u64> {
        let (me, len) = (self.me, self.len);
        (me * len..(me + 1) * len).map(|i| mark(rank, i, self.round)).collect()
    }

    /// The first elements of this member's destination after the call; the others are untouched.
    fn expected(&self) -> Vec<u64> {
        let &Call { n, me, len, root, in_place, .. } = self;
        let untouched = |len: usize| vec![self.before(); len];
        match self.kind {
            0 | 1 => self.source(root, self.whole()),
            2 => self.mine(root),
            3 if me != root => untouched(n * len),
            3 | 4 => (0..n).flat_map(|rank| self.source(rank, len)).collect(),
            5 | 10 => (0..n).flat_map(|rank| self.mine(rank)).collect(),
            7 if me != root && in_place => self.source(me, len),
            7 if me != root => untouched(len),
            6 | 7 => self.sum(0..n),
            8 => self.sum(0..me + 1),
            9 => self.sum(0..me),
            _ => (0..n).flat_map(|rank| self.source(rank, self.shorter(rank))).collect(),
        }
    }
}

fn rounds(setup: Setup) -> usize {
    if setup.is_near() { 600 } else { 80 }
}

fn windows(job: &Job) -> Result<[Window<u64>; 2]> {
    Ok([job.window(job.npes() * MOST)?, job.window(job.npes() * MOST)?])
}

pub fn of_the_world(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3, 5, 8, 9]), 3) {
        run.job(move |job| {
            let [to, from] = windows(job)?;
            let mut own = run.dice(job.pe());
            let mut parts =
                Parts { team: job.world(), to: &to, from: &from, dice: run.shared_dice() };
            for round in 0..rounds(setup) {
                own.dawdle();
                parts.one(round)?;
            }
            Ok(())
        });
    }
}

/// Each PE is in the world, and in a team of the odd or of the even, ranked the other way round.
pub fn of_two_teams_in_turn(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[3, 5, 8]), 3) {
        run.job(move |job| {
            let ([to, from], [to_half, from_half]) = (windows(job)?, windows(job)?);
            let mut own = run.dice(job.pe());
            let members: Vec<usize> =
                (0..job.npes()).rev().filter(|pe| pe % 2 == job.pe() % 2).collect();
            for _ in 0..3 {
                // It gets a slot that another team had before.
                let team = job.team(&members)?.expect("it names itself");
                let parts = |team, to, from| Parts { team, to, from, dice: run.shared_dice() };
                let (mut world, mut half) =
                    (parts(job.world(), &to, &from), parts(&team, &to_half, &from_half));
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

/// Elements whose sizes divide some, all or none of lines, eager buffers and parts. Their operators
/// show the order of combination: affine maps and triangular matrices.
pub fn reductions_about_every_limit(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 3, 5, 9]), 2) {
        run.job(move |job| {
            let nibbles =
                |(a, b): (u8, u8), (c, d): (u8, u8)| ((a * c) & 15) << 4 | ((b * c + d) & 15);
            let affine = move |x: u8, y: u8| nibbles((x >> 4, x & 15), (y >> 4, y & 15));
            about_every_limit(job, run.shared_dice(), |mark| mark as u8, affine)?;
            let triangular = |[a, b, c]: [u8; 3], [d, e, f]: [u8; 3]| {
                [
                    a.wrapping_mul(d),
                    a.wrapping_mul(e).wrapping_add(b.wrapping_mul(f)),
                    c.wrapping_mul(f),
                ]
            };
            about_every_limit(
                job,
                run.shared_dice(),
                |mark| [mark as u8, (mark >> 8) as u8, (mark >> 16) as u8],
                triangular,
            )?;
            let affine = |[a, b]: [u64; 2], [c, d]: [u64; 2]| {
                [a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d)]
            };
            about_every_limit(job, run.shared_dice(), |mark| [mark, !mark], affine)?;
            // An eager buffer has no room for one element of each of three members.
            let wide = move |x: [[u64; 2]; 25], y: [[u64; 2]; 25]| {
                std::array::from_fn(|i| affine(x[i], y[i]))
            };
            about_every_limit(job, run.shared_dice(), |mark| [[mark, !mark]; 25], wide)
        });
    }
}

fn about_every_limit<T: Plain + PartialEq + Debug>(
    job: &Job,
    mut dice: Dice,
    make: fn(u64) -> T,
    compose: impl Fn(T, T) -> T + Copy,
) -> Result<()> {
    const EAGER_BYTES: usize = 1024;
    const PART: usize = 64 << 10;
    /// A source repeats itself after so many elements.
    const PERIOD: usize = 1000;
    let (n, me, size) = (job.npes(), job.pe(), size_of::<T>());
    let (eager_buffer, round) = (EAGER_BYTES / size, PART / size * n);
    let several = EAGER_BYTES / (n * size) * n;
    let mut lengths = vec![
        1,
        n,
        n + 1,
        several,
        several + 1,
        eager_buffer,
        eager_buffer + 1,
        eager_buffer + n,
        3 * eager_buffer + 1,
    ];
    if n <= 3 {
        lengths.extend([round, round + 1, 2 * round + eager_buffer + 1]);
    }
    let most = lengths.iter().copied().max().unwrap_or_default();
    let (to, from) = (job.window::<T>(most)?, job.window::<T>(most)?);
    for (at, &len) in lengths.iter().enumerate() {
        for goal in 0..3 {
            let (root, in_place) = (dice.below(n), dice.below(2) == 0);
            let period = len.clamp(1, PERIOD);
            let periods = len.div_ceil(period);
            let given: Vec<Vec<T>> = (0..n)
                .map(|rank| (0..period).map(|i| make(mark(rank, i, 3 * at + goal))).collect())
                .collect();
            let before = make(!mark(me, at, goal));
            to.write_from(0, &vec![before; most]);
            let source = if in_place { &to } else { &from };
            source.write_from(0, &given[me].repeat(periods)[..len]);
            let (target, source) = (to.span(0..len)?, source.span(0..len)?);
            let ranks = match goal {
                0 => job.world().all_reduce_into(By(compose), target, source).map(|()| 0..n),
                1 => job.world().reduce_into(By(compose), root, target, source).map(|()| 0..n),
                _ => job.world().scan_into(By(compose), target, source).map(|()| 0..me + 1),
            }?;
            from.write_from(0, &vec![before; len]);
            let combined = |i: usize| ranks.clone().map(|rank| given[rank][i]).reduce(compose);
            let expected: Vec<T> = match goal == 1 && me != root {
                true if in_place => given[me].clone(),
                true => vec![before; period],
                false => (0..period).map(|i| combined(i).expect("one at least")).collect(),
            };
            let mut expected = expected.repeat(periods);
            expected.truncate(len);
            expected.resize(most, before);
            let found = to.to_vec();
            let wrong = (found != expected).then(|| (0..most).find(|&i| found[i] != expected[i]));
            assert_eq!(
                wrong, None,
                "goal {goal}, {len} of {size} bytes among {n}, root {root}, in place: {in_place}"
            );
        }
    }
    Ok(())
}
