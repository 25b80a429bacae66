//! Turns of an attached process and the machine: one at a time, nothing lost, and an end when the
//! process has ended. And the gate at which the process's threads wait for theirs.

use super::*;
use crate::hosted::gate::Gate;
use crate::hosted::turn::{Came, Side, Turn};

/// The turn's word, and one that only the side whose turn it is touches.
fn turn(pe: &Pe) -> Turn {
    // SAFETY: an aligned word of the mapped heap, which `pe` keeps.
    unsafe { Turn::new(word(pe, 0).cast()) }
}

/// A job in which both words have been touched: the turn's is half a word of the heap.
fn pages() -> Arc<Pe> {
    let pe = job(1).remove(0);
    // SAFETY: as above.
    assert_eq!(unsafe { shm::load(word(&pe, 0).cast::<u32>()) }, 0);
    pe
}

fn await_turn(pe: &Pe, me: Side) -> Came {
    loop {
        match turn(pe).wait(me) {
            Came::Late => {}
            came => return came,
        }
    }
}

/// So many questions, each of which is answered.
fn are_answered(questions: u64) -> impl Fn() + Send + Sync {
    move || {
        let pe = pages();
        let process = pe.clone();
        let process = thread::spawn(move || {
            for question in 1..=questions {
                write(&process, 1, 10 * question);
                assert!(turn(&process).pass(Side::Pe));
                assert_eq!(await_turn(&process, Side::Pe), Came::Mine);
                assert_eq!(read(&process, 1), 10 * question + 1);
            }
        });
        for _ in 0..questions {
            assert_eq!(await_turn(&pe, Side::Machine), Came::Mine);
            write(&pe, 1, read(&pe, 1) + 1);
            assert!(turn(&pe).pass(Side::Machine));
        }
        process.join().unwrap();
    }
}

#[test]
fn a_question_is_answered() {
    explore(0, are_answered(1));
}

/// Which begins with what the first question has left.
#[test]
fn a_second_question_is_answered() {
    explore(5, are_answered(2));
}

/// The machine has another thread wake the process, if it sleeps, and may sleep before that thread
/// has.
#[test]
fn another_thread_wakes() {
    explore(0, || {
        let pe = pages();
        // The machine's turn has come.
        assert!(turn(&pe).pass(Side::Pe));
        let process = pe.clone();
        let process = thread::spawn(move || {
            assert_eq!(await_turn(&process, Side::Pe), Came::Mine);
            assert_eq!(read(&process, 1), 1);
            assert!(turn(&process).pass(Side::Pe));
        });
        write(&pe, 1, 1);
        let waker = pe.clone();
        let sleeps = turn(&pe).give(Side::Machine).unwrap();
        let waker = sleeps.then(|| thread::spawn(move || turn(&waker).wake()));
        assert_eq!(await_turn(&pe, Side::Machine), Came::Mine);
        waker.into_iter().for_each(|waker| waker.join().unwrap());
        process.join().unwrap();
    });
}

/// Whoever watches the process tells of its end while the machine waits, or works.
#[test]
fn an_end_ends_the_wait() {
    explore(0, || {
        let pe = pages();
        let watcher = pe.clone();
        let watcher = thread::spawn(move || {
            // The process's last question; then its end.
            assert!(turn(&watcher).pass(Side::Pe));
            turn(&watcher).leave();
        });
        if await_turn(&pe, Side::Machine) == Came::Mine && turn(&pe).pass(Side::Machine) {
            assert_eq!(await_turn(&pe, Side::Machine), Came::Gone);
        }
        watcher.join().unwrap();
        assert_eq!(await_turn(&pe, Side::Machine), Came::Gone);
        assert!(!turn(&pe).pass(Side::Machine));
    });
}

/// A gate whose words have been touched.
fn gate() -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    gate.touch();
    gate
}

/// Threads enter a gate one at a time, and each gets in.
#[test]
fn a_gate_lets_all_in_one_by_one() {
    explore(3, || {
        let (pe, gate) = (pages(), gate());
        write(&pe, 1, 0);
        let pass = |pe: &Pe, gate: &Gate| {
            gate.enter();
            write(pe, 1, read(pe, 1) + 1);
            gate.leave();
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (pe, gate) = (pe.clone(), gate.clone());
                thread::spawn(move || pass(&pe, &gate))
            })
            .collect();
        pass(&pe, &gate);
        others.into_iter().for_each(|other| other.join().unwrap());
        gate.enter();
        assert_eq!(read(&pe, 1), 3);
    });
}

/// A thread that listens hears of a call that ends.
#[test]
fn the_end_of_a_call_is_heard() {
    explore(0, || {
        let gate = gate();
        let (before, caller) = (gate.ended(), gate.clone());
        let caller = thread::spawn(move || caller.tell());
        while gate.ended() == before {
            gate.listen(before, std::time::Duration::ZERO);
        }
        caller.join().unwrap();
    });
}
