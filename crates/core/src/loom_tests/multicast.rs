//! Multicast: blocks are whole and in order, nothing is overwritten that is still read, and nobody waits for ever.

use super::*;
use crate::multicast::model::{Receiver, ends};

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
    let threads: Vec<_> = receivers.into_iter().map(|receiver| thread::spawn(receive(receiver))).collect();
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
            assert!(matches!(receiver.receive(), Err(Error::Closed)));
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

/// The writer goes on without a reader that is just reading: it gets what was sent, in order, until it is told.
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
                    Err(Error::Dropped) => return,
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
