//! Collectives that go by nodes, on more shapes: nodes of three and of one, nodes to which PEs are
//! dealt in turn, and teams that hold some PEs of a node, in any order.

use crate::setup::{MIXED, Setup, mark};
use crate::{collectives, mixed};
use memonet_core::{CollectiveAlgorithm, Result, Sum, Team, Window};

/// Nodes of three PEs; the last one has fewer.
const THREES: Setup = Setup::of("nodes of three", "far:nodes=3,delay_us=40,reorder=1");
/// As many, to which PEs are dealt in turn.
const DEALT_THREES: Setup =
    Setup::of("dealt to nodes of three", "far:nodes=3,deal=1,delay_us=40,reorder=1");

#[test]
fn mixtures_on_uneven_nodes() {
    mixed::of_the_world(THREES);
    mixed::of_the_world(DEALT_THREES);
}

#[test]
fn teams_on_uneven_nodes() {
    mixed::of_two_teams_in_turn(THREES);
    mixed::of_two_teams_in_turn(DEALT_THREES);
}

#[test]
fn limits_on_uneven_nodes() {
    mixed::reductions_about_every_limit(THREES);
    mixed::reductions_about_every_limit(DEALT_THREES);
}

#[test]
fn each_kind_on_uneven_nodes() {
    for setup in [THREES, DEALT_THREES] {
        collectives::broadcasts(setup);
        collectives::reductions(setup);
        collectives::floating_point_sums_are_the_same_everywhere(setup);
        collectives::scans(setup);
        collectives::all_gathers_and_gathers(setup);
    }
}

const MOST: usize = 3000;

/// One collective of each kind that goes by nodes, short and long.
fn some_of_each_kind(team: &Team, to: &Window<u64>, from: &Window<u64>) -> Result<()> {
    let (n, me) = (team.len(), team.rank());
    for (round, len) in [1, 20, 200, MOST].into_iter().enumerate() {
        let given = |rank: usize, i: usize| mark(rank, i, round);
        let sum = |i: usize| (0..n).fold(0u64, |sum, rank| sum.wrapping_add(given(rank, i)));
        from.write_from(0, &(0..len).map(|i| given(me, i)).collect::<Vec<_>>());
        for root in [0, n - 1] {
            team.broadcast_into(root, to.span(0..len)?, from.span(0..len)?)?;
            assert!((0..len).all(|i| to.read(i) == given(root, i)), "{len} from {root}");
            team.reduce_into(Sum, root, to.span(0..len)?, from.span(0..len)?)?;
            assert!(me != root || (0..len).all(|i| to.read(i) == sum(i)), "{len} to {root}");
        }
        team.all_reduce_into(Sum, to.span(0..len)?, from.span(0..len)?)?;
        assert!((0..len).all(|i| to.read(i) == sum(i)), "{len} to all");
        team.all_gather_into(to.span(0..n * len)?, from.span(0..len)?)?;
        assert!((0..n * len).all(|i| to.read(i) == given(i / len, i % len)), "{len} of all");
        team.barrier()?;
    }
    Ok(())
}

/// Nodes of 3, 1 and 2 PEs; runs of ranks that are none of PEs; nodes whose ranks alternate.
#[test]
fn teams_of_some_pes_of_a_node() {
    for members in [vec![0, 1, 2, 3, 6, 7], vec![7, 6, 1, 0], vec![0, 3, 1, 4, 2, 5], vec![3, 0, 6]]
    {
        for run in THREES.runs(&[8]) {
            let members = members.clone();
            run.job(move |job| {
                let (to, from) = (job.window(job.npes() * MOST)?, job.window(MOST)?);
                let team = job.world().team(&members)?;
                team.as_ref().map_or(Ok(()), |team| some_of_each_kind(team, &to, &from))
            });
        }
    }
}

/// A team with more members than lines goes by nodes, too: a member has a line for each member of
/// its node, and for some others.
#[test]
fn more_members_than_lines() {
    for run in Setup::of("nodes of 17", "far:nodes=17").runs(&[66]) {
        run.job(|job| {
            assert_eq!(job.world().collective_algorithm(8), CollectiveAlgorithm::Nodes);
            let (to, from) = (job.window(job.npes() * MOST)?, job.window(MOST)?);
            some_of_each_kind(job.world(), &to, &from)
        });
    }
}

/// A member that ends its part of a broadcast may leave the job, while others still wait for what
/// it has sent.
#[test]
fn a_root_may_leave_before_its_data_have_arrived() {
    for run in MIXED.runs(&[8]) {
        let results = run.results(|job| {
            let window = job.window::<u64>(1)?;
            window.write(0, if job.pe() == 0 { 7 } else { 0 });
            if job.pe() == 2 {
                crate::setup::nap(std::time::Duration::from_millis(100));
            }
            let all = window.span(0..1)?;
            job.world().broadcast_into(0, all, all)?;
            Ok::<_, memonet_core::Error>(window.read(0))
        });
        for (pe, result) in results.into_iter().enumerate() {
            assert_eq!(result.map_err(|e| e.to_string()), Ok(7), "PE {pe}");
        }
    }
}

/// A member that does not come, and leaves, ends the call at those that depend on it by others.
#[test]
fn a_member_that_does_not_come() {
    for absent in [0, 1, 2, 5] {
        for run in MIXED.runs(&[6]) {
            let results = run.results(move |job| {
                let window = job.window::<u64>(1)?;
                let all = window.span(0..1)?;
                if job.pe() == absent {
                    return Ok(());
                }
                job.world().all_reduce_into(Sum, all, all)
            });
            for (pe, result) in results.into_iter().enumerate() {
                assert_eq!(result.is_err(), pe != absent, "PE {pe} without PE {absent}");
            }
        }
    }
}
