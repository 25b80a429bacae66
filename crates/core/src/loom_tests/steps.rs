//! Steps of collectives: what a member gets is what was sent for it, however far the others are
//! ahead.

use super::*;
use crate::base::error::Result;
use crate::base::layout::{StepLine, TURNS};
use crate::collective::{Broadcast, Destinations, SymmetricRange};
use crate::team::Team;

/// A job whose threads share nothing that they have not touched.
fn job_with_lines(npes: usize) -> Vec<Arc<Pe>> {
    let pes = job(npes);
    for pe in &pes {
        let slot = Pe::barrier_slot(0);
        let words = [offset_of!(BarrierSlot, done), offset_of!(BarrierSlot, gather)]
            .map(|offset| slot + offset as u64);
        let lines = (0..npes).flat_map(|rank| (0..TURNS).map(move |turn| (rank, turn)));
        let lines = lines.flat_map(|(rank, turn)| {
            let line = Pe::lines(0) + ((rank * TURNS + turn) * size_of::<StepLine>()) as u64;
            [line, line + offset_of!(StepLine, number) as u64]
        });
        for offset in words.into_iter().chain(lines) {
            // SAFETY: an aligned word of the PE's mapped segment.
            assert_eq!(unsafe { shm::load::<u64>(pe.local(offset).cast()) }, 0);
        }
    }
    pes
}

/// Words of the heap as a collective names them.
fn words(pe: &Pe, first: usize, count: usize) -> SymmetricRange {
    SymmetricRange::at(pe.control().geometry().heap_offset + 8 * first as u64, 8 * count)
}

/// What a member contributes to a call. Word 0 is its source, which it overwrites as soon as it
/// may.
fn value(rank: usize, call: usize) -> u64 {
    (1 + 10 * call + rank) as u64
}

fn broadcast(team: &Team, call: usize) -> Result<()> {
    let (pe, root) = (team.pe(), call % team.len());
    write(pe, 0, value(team.rank(), call));
    team.broadcast_places(Broadcast::new(root, words(pe, 1, 1), words(pe, 0, 1)))?;
    assert_eq!(read(pe, 1), value(root, call), "call {call}");
    Ok(())
}

fn from_first(team: &Team, call: usize) -> Result<()> {
    broadcast(team, call * team.len())
}

fn all_gather(team: &Team, call: usize) -> Result<()> {
    let pe = team.pe();
    write(pe, 0, value(team.rank(), call));
    team.gather_places(None, words(pe, 1, team.len()), words(pe, 0, 1), Destinations::InTheCall)?;
    for rank in 0..team.len() {
        assert_eq!(read(pe, 1 + rank), value(rank, call), "call {call}");
    }
    Ok(())
}

type Call = fn(&Team, usize) -> Result<()>;

fn all(npes: usize, calls: &'static [Call]) {
    let pes = job_with_lines(npes);
    let member = |me: usize| {
        let pe = pes[me].clone();
        move || {
            let team = Team::world(&pe).unwrap();
            calls.iter().enumerate().for_each(|(call, f)| f(&team, call).unwrap());
        }
    };
    let others: Vec<_> = (1..npes).map(|me| thread::spawn(member(me))).collect();
    member(0)();
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// The first to use a turn again.
#[test]
fn all_gathers() {
    explore(3, || all(2, &[all_gather as Call; TURNS + 1]));
}

/// A root that could be ahead by as much as it liked has to meet the others.
#[test]
fn broadcasts() {
    explore(3, || all(2, &[from_first as Call; TURNS + 1]));
}

#[test]
fn broadcasts_from_one_after_the_other() {
    explore(2, || all(2, &[broadcast as Call; TURNS + 2]));
}

#[test]
fn broadcasts_between_all_gathers() {
    explore(2, || all(2, &[broadcast, all_gather, broadcast, broadcast]));
}

/// A barrier is a meeting, too.
#[test]
fn broadcasts_and_barriers() {
    explore(2, || all(2, &[broadcast, broadcast, |team, _| team.barrier(), broadcast]));
}

#[test]
fn broadcasts_to_two() {
    explore(1, || all(3, &[from_first as Call; TURNS + 1]));
}
