//! Multicast: blocks are whole and in order, nothing is overwritten that is still read, and nobody
//! waits for ever.

use super::*;
use crate::multicast::model::{Receiver, chain, ends};

/// PE 0 sends `count` words to all others.
fn stream(npes: usize, count: u64) {
    let (mut sender, receivers) = ends(&job(npes), false);
    let receive = |mut receiver: Receiver| {
        move || {
            for value in 1..=count {
                assert_eq!(receiver.receive().unwrap(), value);
            }
            receiver
        }
    };
    let threads: Vec<_> =
        receivers.into_iter().map(|receiver| thread::spawn(receive(receiver))).collect();
    for value in 1..=count {
        sender.send(value).unwrap();
    }
    threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
}

#[test]
fn two_words() {
    explore(3, || stream(2, 2));
}

/// The writer waits for room, and old words lie where headers are looked for.
#[test]
fn around_the_ring() {
    explore(2, || stream(2, 6));
}

#[test]
fn two_readers() {
    explore(1, || stream(3, 4));
}

/// The writer leaves: what it sent arrives, and then the end.
#[test]
fn the_end() {
    explore(3, || {
        let (mut sender, mut receivers) = ends(&job(2), false);
        let mut receiver = receivers.remove(0);
        let reading = thread::spawn(move || {
            assert_eq!(receiver.receive().unwrap(), 1);
            assert!(matches!(receiver.receive(), Err(Error::Closed { .. })));
        });
        sender.send(1).unwrap();
        drop(sender);
        reading.join().unwrap();
    });
}

/// A reader leaves while the writer waits for it.
#[test]
fn a_reader_leaves() {
    explore(2, || {
        let (mut sender, mut receivers) = ends(&job(2), false);
        let mut receiver = receivers.remove(0);
        let reading = thread::spawn(move || {
            assert_eq!(receiver.receive().unwrap(), 1);
        });
        for value in 1..=5 {
            sender.send(value).unwrap();
        }
        reading.join().unwrap();
    });
}

/// The writer goes on without a reader that is just reading: it gets what was sent, in order, until
/// it is told.
#[test]
fn a_reader_is_dropped() {
    explore(3, || {
        let (mut sender, mut receivers) = ends(&job(2), true);
        let mut receiver = receivers.remove(0);
        (1..=3).for_each(|value| sender.send(value).unwrap());
        let reading = thread::spawn(move || {
            for value in 1..=3 {
                match receiver.receive() {
                    Ok(seen) => assert_eq!(seen, value),
                    Err(Error::Dropped { .. }) => return,
                    Err(other) => panic!("{other}"),
                }
            }
        });
        sender.drop_those_behind(0);
        if sender.dropped() == 1 {
            (4..=6).for_each(|value| sender.send(value).unwrap());
        }
        reading.join().unwrap();
    });
}

/// Each reader passes on to the next, and leaves the job when it has had enough; so does the
/// writer. The last one gets all, and then the end.
fn through_those_that_leave(npes: usize, count: u64) {
    let pes = job(npes);
    let (mut sender, receivers) = chain(&pes);
    let reading = |(number, mut receiver): (usize, Receiver)| {
        let (pe, is_last) = (pes[1 + number].clone(), number + 2 == npes);
        thread::spawn(move || {
            for value in 1..=if is_last { count } else { 1 } {
                assert_eq!(receiver.receive().unwrap(), value);
            }
            assert!(!is_last || matches!(receiver.receive(), Err(Error::Closed { .. })));
            drop(receiver);
            pe.finalize().unwrap();
        })
    };
    let readers: Vec<_> = receivers.into_iter().enumerate().map(reading).collect();
    (1..=count).for_each(|value| sender.send(value).unwrap());
    drop(sender);
    pes[0].finalize().unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn a_tree_of_those_that_leave() {
    explore(1, || through_those_that_leave(3, 2));
}

/// Positions come back, and what was read is zeroed before it is put to again.
#[test]
fn around_the_rings_of_a_tree() {
    explore(1, || through_those_that_leave(2, 6));
}
