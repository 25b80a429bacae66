//! Work that every wait of a PE does for others, whatever it waits for.

pub(crate) use super::moved::{Relay, Watcher};

use super::ending;
use super::fabric::{Due, Fabric};
use super::pe::Pe;
use crate::base::doorbell::{Doorbell, Ticket};
use crate::base::error::{Cause, Error};
use crate::base::shm;
use crate::base::status::State;
use crate::base::{lock, try_lock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Pe {
    /// Whether this PE has ever had a relay.
    #[inline]
    pub(crate) fn has_relays(&self) -> bool {
        self.progress.has_relays.load(Ordering::Relaxed)
    }

    /// Acts as if there had been a relay.
    #[cfg(loom)]
    pub(crate) fn pretend_relays(&self) {
        self.progress.has_relays.store(true, Ordering::Relaxed);
    }

    /// Does the work that other PEs depend on. Part of every wait and test. True if the fabric [did
    /// anything](super::fabric::Fabric::progress): then the awaited word may have changed.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        let moved = self.far_fabric().is_some_and(|fabric| {
            self.announce_departures(fabric);
            fabric.progress()
        });
        self.relay_news();
        moved
    }

    /// Sends what the fabric has kept back: what this PE is about to wait for may be the answer.
    #[inline]
    pub(crate) fn send_written(&self) {
        if let Some(fabric) = self.far_fabric() {
            fabric.send();
        }
    }

    /// Sleeps until `bell` is rung after `ticket`, until the fabric's descriptor is readable, or
    /// until `time` has passed. May wake spuriously.
    ///
    /// Near PEs ring only the doorbell, so a PE that has near peers sleeps on that. Without near
    /// peers, the fabric delivers everything but departures, which the PE sees after `time`.
    pub(crate) fn sleep(&self, bell: Doorbell, ticket: Ticket, time: Duration) {
        if let Some(fabric) = self.far_fabric() {
            if self.is_all_far() && self.progress.descriptor.sleep(fabric, bell, ticket, time) {
                return;
            }
            fabric.sleeps();
        }
        bell.sleep(ticket, time);
    }

    /// Announces PEs that are gone to the fabric, each once.
    ///
    /// *None is left out.* **D1.** A death is written before it is counted. **D2.** The count is
    /// read before the deaths. So a count that was dealt with stands for deaths that were seen.
    fn announce_departures(&self, fabric: &dyn Fabric) {
        let departures = &self.progress.departures;
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        let count = unsafe { shm::load(self.control().departures()) };
        if count == departures.counted.load(Ordering::Relaxed) {
            return;
        }
        // A thread that has the lock announces them.
        let Some(mut announced) = try_lock(&departures.announced) else { return };
        announced.resize(self.npes(), false);
        for (pe, announced) in announced.iter_mut().enumerate().filter(|(_, done)| !**done) {
            // D2
            if let Some(cause) = self.control().departure(pe) {
                *announced = true;
                fabric.departed(pe as u32, cause);
            }
        }
        departures.counted.store(count, Ordering::Relaxed);
    }

    /// The part of [`progress`](Self::progress) on which other PEs' barriers depend. Gives when it
    /// is due again even if nothing arrives, as [`Relay::relay`] does.
    #[inline]
    pub(crate) fn relay_news(&self) -> Option<Due> {
        if let Some(watch) = &self.progress.watch {
            watch.look(self.control());
        }
        if self.has_relays() { self.relay() } else { None }
    }

    /// Makes all waits call a relay as long as it lives.
    pub(crate) fn register_relay(&self, relay: Weak<dyn Relay>) {
        lock(&self.progress.relays).push(relay);
        self.progress.has_relays.store(true, Ordering::Relaxed);
    }

    /// Keeps a relay that the program drops while other PEs need it, until this PE has left.
    pub(crate) fn keep_relay(&self, relay: Arc<dyn Relay>) {
        lock(&self.progress.kept).push(relay);
    }

    /// Drops the relays that were kept. They refer to this PE, which would never be freed.
    pub(crate) fn drop_kept_relays(&self) {
        let kept = std::mem::take(&mut *lock(&self.progress.kept));
        drop(kept);
    }

    fn relay(&self) -> Option<Due> {
        // A process that the PE has forked off knows only what had come by then.
        if ending::refuse_child(self).is_err() {
            return None;
        }
        // A thread that has the lock relays. It may just miss news; then the next poll of a wait
        // relays them: a sleeper polls at least every `DEPARTURE_POLL`.
        let mut relays = try_lock(&self.progress.relays)?;
        let mut due = None;
        relays.retain(|relay| {
            relay.upgrade().is_some_and(|relay| {
                due = Due::first(due, relay.relay());
                true
            })
        });
        due
    }

    /// Whether no relay has anything to do until this PE makes another call.
    pub(crate) fn relays_rest(&self) -> bool {
        !self.has_relays()
            || try_lock(&self.progress.relays).is_some_and(|relays| {
                relays.iter().filter_map(Weak::upgrade).all(|relay| relay.rests())
            })
    }

    /// The error of a PE that a relay [lacks](Relay::lacks). Other PEs may wait for what this one
    /// cannot relay, and nobody else can tell them: so its waits end, whatever they are for.
    pub(crate) fn lost_neighbour(&self) -> Option<Error> {
        let fabric = self.far_fabric()?;
        if !self.has_relays() {
            return None;
        }
        let unreachable = fabric.unreachable();
        let is_lost = |lost: usize| {
            self.control().state(lost) == State::Done
                || unreachable.iter().any(|(pe, _)| *pe as usize == lost)
        };
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        let departures = unsafe { shm::load(self.control().departures()) };
        if unreachable.is_empty() && (departures == 0 || !(0..self.npes()).any(is_lost)) {
            return None;
        }
        // What another thread works on is seen at the next look.
        let relays: Vec<_> =
            try_lock(&self.progress.relays)?.iter().filter_map(Weak::upgrade).collect();
        let lost = relays.iter().find_map(|relay| relay.lacks(&is_lost))?;
        let unreachable = unreachable.into_iter().find(|(pe, _)| *pe as usize == lost);
        Some(unreachable.map_or_else(|| self.failed(lost, Cause::Finalized), |(_, error)| error))
    }

    /// The relays that are alive.
    pub(crate) fn live_relays(&self) -> Vec<Arc<dyn Relay>> {
        let relays = lock(&self.progress.relays);
        relays.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a launcher watches the PEs, publishes deaths, and ends all PEs when one asks for it.
    pub(crate) fn is_watched(&self) -> bool {
        self.progress.watch.is_none()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::Cause;
    use crate::base::status::State;
    use crate::far;
    use crate::job::Job;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    /// PE 1 sleeps until PE 0's store has arrived. Gives the time that took, and whether `progress`
    /// was true.
    fn sleep_until_stored(settings: &str) -> (Duration, bool) {
        let options = far::options(settings);
        // The store comes after the barrier, whose waits would deliver it, too.
        let ready = AtomicBool::new(false);
        let slept = Job::threads_with(&options, 2, |job| {
            let window = job.window::<u64>(1).unwrap();
            job.barrier().unwrap();
            let (pe, start) = (&job.pe, Instant::now());
            if job.pe() == 0 {
                while !ready.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                window.remote(1, 0).unwrap().store(1);
                return (Duration::ZERO, false);
            }
            let bell = pe.control().doorbell(1);
            ready.store(true, Ordering::Release);
            let mut moved = false;
            while window.read(0) == 0 && start.elapsed() < LONG {
                let ticket = bell.announce(true, pe.control().membarrier());
                if window.read(0) == 0 {
                    pe.sleep(bell, ticket, LONG);
                }
                moved |= pe.progress();
            }
            // The word may be visible before its sender makes the descriptor readable.
            while settings.contains("wake") && !moved && start.elapsed() < LONG {
                moved = pe.progress();
            }
            (start.elapsed(), moved)
        });
        slept.unwrap()[1]
    }

    #[test]
    fn what_is_delivered_ends_a_sleep() {
        for settings in ["", "wake=1", "delay_us=20000,wake=1"] {
            let (slept, moved) = sleep_until_stored(settings);
            assert!(slept < LONG, "{settings:?}: {slept:?}");
            assert!(moved || !settings.contains("wake"), "{settings:?}: nothing came?");
        }
    }

    /// Two threads of a PE sleep, one of them on the fabric's descriptor; a third rings.
    #[test]
    fn a_ring_of_its_own_threads_ends_a_sleep() {
        let job = Job::threads_with(&far::options("wake=1"), 2, |job| {
            let (pe, rung) = (&job.pe, AtomicBool::new(false));
            let bell = pe.control().doorbell(job.pe());
            let sleep = || {
                let start = Instant::now();
                while !rung.load(Ordering::SeqCst) && start.elapsed() < LONG {
                    let ticket = bell.announce(false, pe.control().membarrier());
                    if !rung.load(Ordering::SeqCst) {
                        pe.sleep(bell, ticket, LONG);
                    }
                }
                assert!(start.elapsed() < LONG, "no ring came");
            };
            for round in 0..200 {
                rung.store(false, Ordering::SeqCst);
                std::thread::scope(|scope| {
                    scope.spawn(sleep);
                    scope.spawn(sleep);
                    // At the moment of the announcement, or later.
                    while !bell.is_announced() {
                        std::thread::yield_now();
                    }
                    (0..round % 8).for_each(|_| std::thread::yield_now());
                    rung.store(true, Ordering::SeqCst);
                    pe.ring(job.pe());
                });
            }
        });
        job.unwrap();
    }

    /// However long a far PE computes, those that wait for it use no CPU: they sleep.
    #[test]
    fn who_waits_for_a_far_pe_sleeps() {
        for settings in ["", "nodes=2", "wake=1"] {
            let job = Job::threads_with(&far::options(settings), 4, |job| {
                let start = Instant::now();
                let sleeps = |pe: usize| job.pe.control().doorbell(pe).is_announced();
                while job.pe() == 0 && !(1..4).all(sleeps) {
                    assert!(start.elapsed() < LONG, "{settings:?}: somebody stays awake");
                    std::thread::yield_now();
                }
                job.barrier().unwrap();
            });
            job.unwrap();
        }
    }

    /// A PE that finalises and still serves others is not announced.
    #[test]
    fn each_departure_is_announced_to_the_fabric_once() {
        let job = Job::threads_with(&far::options(""), 3, |job| {
            job.barrier().unwrap();
            if job.pe() == 0 {
                let (pe, control) = (&job.pe, job.pe.control());
                while control.state(1) != State::Finalizing {
                    std::thread::yield_now();
                }
                let announced = |other: usize| {
                    // The test fabric panics at a second announcement.
                    (0..3).for_each(|_| _ = pe.progress());
                    lock(&pe.progress.departures.announced).get(other) == Some(&true)
                };
                assert!(!announced(1) && !announced(2), "both may serve others");
                control.depart(2, State::Dead(Cause::Exit(1)));
                assert!(announced(2) && !announced(1));
            }
        });
        job.unwrap();
    }
}
