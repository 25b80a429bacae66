//! Deaths in the middle of collectives. A PE dies when it sends for the k-th time, for every k, so
//! it dies between any two of the messages that a call is made of. All others end: with what the
//! call gives, or with an error that names the dead.

use crate::setup::within;
use memonet_core::unstable::far::DIES;
use memonet_core::{Cause, Error, Job, Result, Sum, Team, Window};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// More than a root serves by itself.
const PES: usize = 6;
/// Elements of a broadcast that goes in parts.
const MANY: usize = (32 << 10) / size_of::<u64>();
/// Elements of a reduction, more than fit an eager buffer.
const SOME: usize = 300;

/// What the PEs make before they call.
struct Tools {
    words: Window<u64>,
    floats: Window<f64>,
    /// Every other PE.
    half: Option<Team>,
}

impl Tools {
    fn new(job: &Job) -> Result<Tools> {
        let half: Vec<usize> = (job.pe() % 2..PES).step_by(2).collect();
        Ok(Tools {
            words: job.window(MANY)?,
            floats: job.window(2 * SOME)?,
            half: job.world().team(&half)?,
        })
    }

    /// The sums of the members' numbers, as elements of the result.
    fn sums(&self, team: &Team, pe: usize, len: usize) -> Result<Vec<f64>> {
        self.floats.fill(0..len, pe as f64 + 0.5);
        team.all_reduce_into(Sum, self.floats.span(len..2 * len)?, self.floats.span(0..len)?)?;
        Ok(self.floats.to_vec()[len..2 * len].to_vec())
    }
}

type Call = fn(&Job, &Tools) -> Result<bool>;

/// Broadcasts; whether all data are there.
fn broadcast(job: &Job, tools: &Tools) -> Result<bool> {
    tools.words.fill(0..MANY, job.pe() as u64);
    let all = tools.words.span(0..MANY)?;
    job.world().broadcast_into(1, all, all)?;
    Ok(tools.words.to_vec() == [1; MANY])
}

/// Sums floating-point numbers of all PEs and of half of them.
fn sums(job: &Job, tools: &Tools) -> Result<bool> {
    let sum = |team: &Team| team.members().iter().map(|&pe| pe as f64 + 0.5).sum::<f64>();
    let half = tools.half.as_ref().expect("this PE is in one");
    for len in [1, 20, SOME] {
        for team in [half, job.world()] {
            if tools.sums(team, job.pe(), len)? != vec![sum(team); len] {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether an error names the dead, or one that has left because of the dead: a team without the
/// victim goes on, until a member that heard of the death in another team has left.
fn names(victim: usize, pe: usize, cause: Cause) -> bool {
    pe == victim || (pe % 2 != victim % 2 && cause == Cause::Finalized)
}

/// Runs jobs in which `victim` dies at its first message, at its second, and so on, until it lives.
fn dies_at_every_message(fabric: &str, victim: usize, call: Call) {
    for k in 1.. {
        let spec = format!("{fabric},victim={victim},dies={k}");
        let label = spec.clone();
        let (complaints, lived) = within(&label, move || {
            let complaints: Arc<Mutex<Vec<String>>> = Arc::default();
            let options = memonet_fabrics::options(&spec).unwrap();
            let ended = catch_unwind(AssertUnwindSafe(|| {
                Job::threads_with(&options, PES, |job| {
                    let result = Tools::new(&job).and_then(|tools| call(&job, &tools));
                    let right = match &result {
                        Ok(whole) => *whole,
                        Err(Error::PeerFailed { pe, cause, .. }) => names(victim, *pe, *cause),
                        Err(_) => false,
                    };
                    if !right {
                        complaints.lock().unwrap().push(format!("PE {}: {result:?}", job.pe()));
                    }
                })
                .map(drop)
            }));
            let lived = match ended {
                Ok(ended) => {
                    ended.unwrap();
                    true
                }
                Err(panic) => {
                    assert_eq!(panic.downcast_ref(), Some(&DIES));
                    false
                }
            };
            (Arc::into_inner(complaints).unwrap().into_inner().unwrap(), lived)
        });
        assert!(complaints.is_empty(), "{label}: {complaints:#?}");
        if lived {
            assert!(k > PES, "{label}: the victim sends to all others at least");
            return;
        }
    }
}

#[test]
fn within_a_broadcast_in_parts() {
    for victim in [0, 1] {
        dies_at_every_message("far:copies=0", victim, broadcast);
    }
    dies_at_every_message("far:delay_us=40,reorder=1", 1, broadcast);
}

#[test]
fn within_a_copied_broadcast() {
    for victim in [0, 1] {
        dies_at_every_message("far:copies=1", victim, broadcast);
    }
    dies_at_every_message("far:delay_us=40,reorder=1,copies=1", 1, broadcast);
}

#[test]
fn within_sums_of_floats_by_all_and_by_half() {
    dies_at_every_message("far:copies=0", 2, sums);
    dies_at_every_message("far:copies=1", 3, sums);
}
