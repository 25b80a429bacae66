//! Locks: who holds one holds it alone, no hand-over is lost, and what the last holder wrote is
//! seen.

use super::*;
use crate::sync::lock::{AtOnce, Queue};

/// The lock is word 0 of the heap; what it protects, word 1 of PE 0.
fn queue(pe: &Pe) -> Queue<'_> {
    Queue::new(pe, pe.control().geometry().heap_offset)
}

/// A job whose threads share nothing that they have not touched.
fn job_with_lock(npes: usize) -> Vec<Arc<Pe>> {
    let pes = job(npes);
    for pe in &pes {
        // SAFETY: the aligned head of a word of the mapped heap.
        assert_eq!(unsafe { shm::load::<u32>(word(pe, 0).cast()) }, 0);
    }
    pes
}

/// Adds one to what the lock protects, in two steps.
fn add_one(home: &Pe) {
    let seen = read(home, 1);
    write(home, 1, seen + 1);
}

/// A PE's thread sets the lock, `times` times.
fn take(pes: &[Arc<Pe>], me: usize, times: usize) {
    for _ in 0..times {
        queue(&pes[me]).set().unwrap();
        add_one(&pes[0]);
        queue(&pes[me]).clear().unwrap();
    }
}

/// As [`take`], of a PE with one thread: what it can, it does at once.
fn take_at_once(pes: &[Arc<Pe>], me: usize, times: usize) {
    let pe = &pes[me];
    let (locks, offset) = (AtOnce::of(pe).unwrap(), pe.control().geometry().heap_offset);
    for _ in 0..times {
        // SAFETY: an aligned word of the mapped heap; the PE has one thread, here and below.
        if !unsafe { locks.set_by_only_thread(offset) } {
            queue(pe).set().unwrap();
        }
        add_one(&pes[0]);
        // SAFETY: as above.
        if !unsafe { locks.clear_by_only_thread(pe, offset) } {
            queue(pe).clear().unwrap();
        }
    }
}

type Take = fn(&[Arc<Pe>], usize, usize);

/// Runs a thread for each of `who`, the first one here; all of them `take` the lock, and it is free
/// when they have.
fn contend(npes: usize, who: &[usize], times: usize) {
    let who: Vec<(usize, Take)> = who.iter().map(|&me| (me, take as Take)).collect();
    contend_by(npes, &who, times);
}

/// [`contend`], each in a way of its own.
fn contend_by(npes: usize, who: &[(usize, Take)], times: usize) {
    let pes = job_with_lock(npes);
    let others: Vec<_> = who[1..]
        .iter()
        .map(|&(me, take)| {
            let pes = pes.clone();
            thread::spawn(move || take(&pes, me, times))
        })
        .collect();
    let (me, take) = who[0];
    take(&pes, me, times);
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(read(&pes[0], 1), (who.len() * times) as u64);
    for pe in &pes {
        assert_eq!(read(pe, 0), 0, "all is as it was");
        // SAFETY: as in `job_with_lock`.
        assert_eq!(unsafe { shm::load::<u32>(word(pe, 0).cast()) }, 0, "nobody is in the queue");
    }
}

#[test]
fn two_pes() {
    explore(4, || contend(2, &[0, 1], 1));
}

#[test]
fn two_pes_twice() {
    explore(3, || contend(2, &[0, 1], 2));
}

#[test]
fn three_pes() {
    explore(2, || contend(3, &[0, 1, 2], 1));
}

#[test]
fn two_pes_at_once() {
    explore(3, || contend_by(2, &[(0, take_at_once), (1, take_at_once)], 2));
}

#[test]
fn three_pes_at_once() {
    explore(2, || {
        contend_by(3, &[(0, take_at_once), (1, take_at_once), (2, take_at_once)], 1);
    });
}

/// A process with one thread, and one with two.
#[test]
fn one_pe_at_once() {
    explore(3, || contend_by(2, &[(0, take_at_once), (1, take)], 2));
    explore(2, || contend_by(2, &[(0, take_at_once), (1, take), (1, take)], 1));
}

#[test]
fn two_threads_of_one_pe() {
    explore(4, || contend(1, &[0, 0], 1));
}

#[test]
fn three_threads_of_one_pe() {
    explore(2, || contend(1, &[0, 0, 0], 1));
}

#[test]
fn two_threads_and_another_pe() {
    explore(2, || contend(2, &[1, 1, 0], 1));
}

/// Somebody who tries gets it, or does not and leaves nothing behind.
#[test]
fn one_tries() {
    one_tries_beside(take);
    one_tries_beside(take_at_once);
}

fn one_tries_beside(take: Take) {
    explore(3, move || {
        let pes = job_with_lock(2);
        let trying = {
            let pes = pes.clone();
            thread::spawn(move || {
                let got = queue(&pes[1]).test().unwrap();
                if got {
                    add_one(&pes[0]);
                    queue(&pes[1]).clear().unwrap();
                }
                got
            })
        };
        take(&pes, 0, 1);
        let tried = trying.join().unwrap();
        assert_eq!(read(&pes[0], 1), 1 + u64::from(tried));
        assert!(queue(&pes[0]).test().unwrap() && !queue(&pes[1]).test().unwrap());
    });
}

/// Of two threads one tries, and the other waits in line for it.
#[test]
fn one_thread_tries() {
    explore(3, || {
        let pes = job_with_lock(2);
        queue(&pes[1]).set().unwrap();
        let trying = {
            let pes = pes.clone();
            thread::spawn(move || assert!(!queue(&pes[0]).test().unwrap()))
        };
        let waiting = {
            let pes = pes.clone();
            thread::spawn(move || take(&pes, 0, 1))
        };
        trying.join().unwrap();
        queue(&pes[1]).clear().unwrap();
        waiting.join().unwrap();
        assert_eq!(read(&pes[0], 1), 1);
    });
}

/// The holder dies, or whoever came behind it: each wait names the dead.
#[test]
fn a_death_ends_waits() {
    explore(2, || {
        let pes = job_with_lock(3);
        let dying = {
            let pes = pes.clone();
            thread::spawn(move || {
                queue(&pes[1]).set().unwrap();
                pes[1].control().depart(1, State::Dead(Cause::Signal(9)));
            })
        };
        let waiting = pes[2].clone();
        let waiting = thread::spawn(move || wait_or_hear(&waiting));
        wait_or_hear(&pes[0]);
        dying.join().unwrap();
        waiting.join().unwrap();
    });
}

/// Takes the lock, if that was free, and keeps it; or hears of a death.
fn wait_or_hear(pe: &Pe) {
    match queue(pe).set().map_err(|error| *error) {
        Ok(()) => queue(pe).clear().map_err(|error| *error),
        Err(error) => Err(error),
    }
    .or_else(|error| match error {
        Error::PeerFailed { pe: 1, .. } => Ok(()),
        other => Err(other),
    })
    .unwrap();
}

/// The turn comes as the wait for it ends for another reason: the lock is not lost.
#[test]
fn a_death_as_the_turn_comes() {
    explore(2, || {
        let pes = job_with_lock(2);
        queue(&pes[0]).set().unwrap();
        let waiting = pes[0].clone();
        let waiting = thread::spawn(move || wait_or_hear(&waiting));
        let launcher = pes[1].clone();
        let launcher = thread::spawn(move || {
            assert!(launcher.control().depart(1, State::Dead(Cause::Signal(9))))
        });
        queue(&pes[0]).clear().unwrap();
        waiting.join().unwrap();
        launcher.join().unwrap();
        assert!(queue(&pes[0]).test().unwrap(), "it is free");
    });
}
