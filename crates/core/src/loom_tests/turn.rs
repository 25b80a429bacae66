//! Turns at making teams: one set at a time at each PE, meetings that nobody passes alone, and an
//! end to all of it.

use super::*;
use crate::base::layout::{MAX_CALLS, Turns};
use crate::team::turn::Turn;

/// A job whose threads share nothing that they have not touched.
fn job_with_turns(npes: usize) -> Vec<Arc<Pe>> {
    let pes = job(npes);
    for pe in &pes {
        const {
            assert!(
                offset_of!(Turns, turn) == 8 * MAX_CALLS
                    && offset_of!(Turns, begins) == 8 * (MAX_CALLS + 1)
            )
        };
        let turns = (0..MAX_CALLS + 2).map(|word| offset_of!(SystemArea, turns) + 8 * word);
        let mail = (0..npes).map(|from| pe.control().geometry().mail(from) as usize);
        for offset in turns.chain(mail) {
            // SAFETY: an aligned word of the PE's mapped segment.
            assert_eq!(unsafe { shm::load::<u64>(pe.local(offset as u64).cast()) }, 0);
        }
    }
    pes
}

/// A PE's thread takes its turn in these sets, one after the other: alone in it at its PE, and past
/// a meeting only with the others there.
fn take(pes: &[Arc<Pe>], me: usize, sets: &[&[usize]]) {
    for &set in sets {
        let turn = Turn::wait(&pes[me], set).unwrap();
        assert_eq!(read(&pes[me], 0), 0, "another set has the turn");
        write(&pes[me], 0, 1);
        let round = read(&pes[me], 1) + 1;
        write(&pes[me], 1, round);
        turn.meet().unwrap();
        for &member in set {
            assert!(
                read(&pes[member], 1) >= round.min(1),
                "PE {me} has met PE {member} before it came"
            );
        }
        write(&pes[me], 0, 0);
        turn.end();
    }
}

/// Runs a thread for each of `who`, the first one here.
fn contend(npes: usize, who: &'static [(usize, &'static [&'static [usize]])]) {
    let pes = job_with_turns(npes);
    let others: Vec<_> = who[1..]
        .iter()
        .map(|&(me, sets)| {
            let pes = pes.clone();
            thread::spawn(move || take(&pes, me, sets))
        })
        .collect();
    take(&pes, who[0].0, who[0].1);
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn two_pes() {
    explore(2, || contend(2, &[(0, &[&[0, 1]]), (1, &[&[1, 0]])]));
}

#[test]
fn again() {
    explore(1, || contend(2, &[(0, &[&[0, 1], &[0, 1]]), (1, &[&[0, 1], &[0, 1]])]));
}
