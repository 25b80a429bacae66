//! The queue in front of shared data: who is alone is alone, nobody is forgotten, and what the last
//! one wrote is seen.

use super::*;
use crate::sync::tickets::{Mode, Tickets};

const SLOTS: u64 = 128;
/// What the queue protects: two words, behind everything else.
const DATA: u64 = 4096;

fn at(pe: &Pe, byte: u64) -> *mut u8 {
    let (geometry, control) = (pe.control().geometry(), pe.control());
    control.mapping().at(geometry.segment(0) + geometry.heap_offset + byte)
}

fn tickets(pe: &Pe) -> Tickets {
    // SAFETY: both places are in the mapped heap of PE 0, apart, aligned, and zero at first.
    unsafe { Tickets::new(at(pe, 0), at(pe, SLOTS), pe) }
}

fn load(pe: &Pe, byte: u64) -> u64 {
    // SAFETY: an aligned word of the mapped heap.
    unsafe { shm::load(at(pe, byte).cast()) }
}

fn store(pe: &Pe, byte: u64, value: u64) {
    // SAFETY: as in `load`.
    unsafe { shm::store(at(pe, byte).cast(), value) }
}

/// A job whose threads share nothing that they have not touched.
fn job_with_tickets(npes: usize) -> Vec<Arc<Pe>> {
    let pes = job(npes);
    for byte in [0, 8, DATA, DATA + 8].into_iter().chain((0..5).map(|slot| SLOTS + 8 * slot)) {
        assert_eq!(load(&pes[0], byte), 0);
    }
    for half in [16, 20].into_iter().chain((0..npes as u64).map(|pe| SLOTS + 8 * 64 + 4 * pe)) {
        // SAFETY: as in `load`.
        assert_eq!(unsafe { shm::load::<u32>(at(&pes[0], half).cast()) }, 0);
    }
    pes
}

/// Adds one to both words, alone; or looks whether they are equal.
fn take(pe: &Pe, mode: Mode, has_been_in: bool) {
    let own = if has_been_in && mode == Mode::Exclusive { tickets(pe).enter_own() } else { None };
    let ticket = own.map_or_else(|| tickets(pe).enter(pe, mode).unwrap(), |left| left as u32);
    let (a, b) = (load(pe, DATA), load(pe, DATA + 8));
    assert_eq!(a, b);
    if mode == Mode::Exclusive {
        store(pe, DATA, a + 1);
        store(pe, DATA + 8, b + 1);
    }
    tickets(pe).leave(pe, ticket, mode);
}

/// Each of these PEs, in a thread of its own, the first one here. None stands for one that gives
/// up.
fn meet(npes: usize, who: &'static [(usize, Option<Mode>)]) {
    meet_often(npes, 1, who);
}

/// As [`meet`], each so many times.
fn meet_often(npes: usize, times: usize, who: &'static [(usize, Option<Mode>)]) {
    let pes = job_with_tickets(npes);
    let act = move |pe: &Pe, mode: Option<Mode>| {
        (0..times).for_each(|time| match mode {
            Some(mode) => take(pe, mode, time > 0),
            None => drop(tickets(pe).draw_and_give_up(pe, Mode::Exclusive)),
        });
    };
    let others: Vec<_> = who[1..]
        .iter()
        .map(|&(me, mode)| {
            let pe = pes[me].clone();
            thread::spawn(move || act(&pe, mode))
        })
        .collect();
    act(&pes[who[0].0], who[0].1);
    others.into_iter().for_each(|other| other.join().unwrap());
    let written = who.iter().filter(|(_, mode)| *mode == Some(Mode::Exclusive)).count();
    assert_eq!(load(&pes[0], DATA), (written * times) as u64);
    // No ticket waits any more: who comes now comes in at once.
    for mode in [Mode::Shared, Mode::Exclusive] {
        let ticket = tickets(&pes[0]).try_enter(&pes[0], mode).unwrap().expect("nobody is in");
        tickets(&pes[0]).leave(&pes[0], ticket, mode);
    }
}

const ALONE: Option<Mode> = Some(Mode::Exclusive);
const SHARED: Option<Mode> = Some(Mode::Shared);

#[test]
fn two_alone() {
    explore(0, || meet(2, &[(0, ALONE), (1, ALONE)]));
}

/// A PE that has been in may come in again before the one that waits.
#[test]
fn two_alone_twice() {
    explore(3, || meet_often(2, 2, &[(0, ALONE), (1, ALONE)]));
}

#[test]
fn one_alone_and_a_reader_twice() {
    explore(3, || meet_often(2, 2, &[(0, ALONE), (1, SHARED)]));
}

#[test]
fn one_alone_twice_and_one_that_gives_up() {
    explore(3, || meet_often(2, 2, &[(0, ALONE), (1, None)]));
}

#[test]
fn three_alone() {
    explore(2, || meet(3, &[(0, ALONE), (1, ALONE), (2, ALONE)]));
}

#[test]
fn two_threads_of_one_pe() {
    explore(3, || meet(1, &[(0, ALONE), (0, ALONE)]));
}

#[test]
fn a_reader_and_a_writer() {
    explore(3, || meet(2, &[(0, SHARED), (1, ALONE)]));
}

#[test]
fn readers_and_a_writer() {
    explore(2, || meet(3, &[(0, ALONE), (1, SHARED), (2, SHARED)]));
}

#[test]
fn writers_and_a_reader() {
    explore(2, || meet(3, &[(0, SHARED), (1, ALONE), (2, ALONE)]));
}

#[test]
fn one_gives_up() {
    explore(3, || meet(2, &[(0, ALONE), (1, None)]));
}

/// Between two others, or before or behind them.
#[test]
fn one_of_three_gives_up() {
    explore(2, || meet(3, &[(0, ALONE), (1, None), (2, ALONE)]));
}

#[test]
fn two_of_three_give_up() {
    explore(2, || meet(3, &[(0, ALONE), (1, None), (2, None)]));
}

#[test]
fn one_gives_up_between_readers() {
    explore(2, || meet(3, &[(0, SHARED), (1, None), (2, SHARED)]));
}

/// A PE that dies with it, or in front of others, is named by all that wait.
#[test]
fn a_death_ends_waits() {
    explore(2, || {
        let pes = job_with_tickets(2);
        let dying = {
            let pe = pes[1].clone();
            thread::spawn(move || {
                tickets(&pe).enter(&pe, Mode::Exclusive).unwrap();
                pe.control().depart(1, State::Dead(Cause::Signal(9)));
            })
        };
        match tickets(&pes[0]).enter(&pes[0], Mode::Exclusive).map_err(|error| *error) {
            Ok(ticket) => tickets(&pes[0]).leave(&pes[0], ticket, Mode::Exclusive),
            Err(Error::PeerFailed { pe: 1, .. }) => {}
            Err(error) => panic!("{error}"),
        }
        dying.join().unwrap();
    });
}
