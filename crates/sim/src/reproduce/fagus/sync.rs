//! Fagus's global synchronisation of a parent and a child: `comm_sync`. The child sends an entry
//! and waits; the parent waits for the entry and sends a permit.
//!
//! **Over stores**, each message is an AOTF store into a word of the other's LLCM, at which the
//! other looks. Both initialise their word afterwards.
//!
//! **Over UDP**, a thread of Fagus receives, and hands each message over to the thread that waits
//! for it.
//!
//! Fagus's own software is charged where a message is sent.

use super::super::dimmnet1::{PLACE, nic, seed};
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Host, Options, run, sleep};
use crate::time::Ps;
use memonet_core::Cmp;

/// Synchronisations per mean, after one that is not measured.
const SYNCS: u64 = 200;

/// The mean time of `once`, in us, after a first time that fills what is cached.
fn mean(once: impl Fn(u64)) -> f64 {
    once(1);
    let start = Host::here().now();
    (2..SYNCS + 2).for_each(once);
    (Host::here().now() - start).as_ns() / SYNCS as f64 / 1000.0
}

/// The time over stores, in us. `own` is Fagus's own software for a message.
pub fn over_stores(machine: &Machine, own: Ps) -> Result<f64, Error> {
    let own = own.to_duration();
    let done = run(machine, 2, &Options::default(), |job| {
        let other = Node(1 - job.pe() as u32);
        nic(command::map(0, &seed(Destination::Node(other), PLACE)));
        let send = |phase| {
            sleep(own);
            nic(command::kick(0, 0, Payload::word(4, phase)));
        };
        let wait = |phase| nic(command::wait(PLACE, 4, u32::MAX.into(), phase, Looks::Words));
        let initialise = || nic(command::write(PLACE, Payload::word(4, 0)));
        mean(|phase| {
            if job.pe() == 0 {
                wait(phase);
                send(phase);
            } else {
                send(phase);
                wait(phase);
            }
            initialise();
        })
    })?;
    Ok(done.results[1])
}

/// The time over UDP, in us. `hand_over` passes from the thread that receives to the one that
/// waits.
pub fn over_udp(machine: &Machine, own: Ps, hand_over: Ps) -> Result<f64, Error> {
    let (own, hand_over) = (own.to_duration(), hand_over.to_duration());
    let done = run(machine, 2, &Options::default(), |job| {
        let words = job.window::<u64>(1).expect("a word each");
        let other = words.remote(1 - job.pe(), 0).expect("the other's word");
        job.barrier().expect("both are there");
        let send = |phase| {
            sleep(own);
            other.store(phase);
        };
        let wait = |phase| {
            words.wait_until(0, Cmp::Ge, phase).expect("the other comes");
            sleep(hand_over);
        };
        mean(|phase| {
            if job.pe() == 0 {
                wait(phase);
                send(phase);
            } else {
                send(phase);
                wait(phase);
            }
        })
    })?;
    Ok(done.results[1])
}
