//! What every wait of a PE moves on, whatever it waits for: others depend on it.

use super::control::Control;
use super::fabric::{Due, Fabric};
use super::pe::Pe;
use crate::base::doorbell::{Doorbell, Ticket};
use crate::base::shm;
use crate::base::{lock, try_lock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// What a wait moves on while it waits for something else.
pub(crate) trait Relay: Send + Sync {
    /// Passes on what has arrived. Gives when it has to be called again, though nothing arrives, in
    /// the PE's time.
    fn relay(&self) -> Option<Due>;

    /// This PE leaves the job, in order. Gives whether others still need what it passes on: until
    /// they do not, it stays, and relays.
    fn depart(&self) -> bool {
        false
    }

    /// Whether the program may have references into memory that departing gives away.
    fn shows_memory(&self) -> bool {
        false
    }
}

/// Looks after the processes of the other PEs, where no launcher does.
pub(crate) trait Watcher: Send + Sync {
    /// Looks whether others have died, unless that was done just now, and publishes it.
    fn look(&self, control: &Control);
}

/// What the fabric has been told of PEs that are gone.
#[derive(Default)]
struct Departures {
    /// How many PEs had left, in order or not, when it was last looked who.
    counted: AtomicU32,
    /// Of which PEs the fabric has been told.
    told: Mutex<Vec<bool>>,
}

/// What a PE moves on.
pub(crate) struct Progress {
    departures: Departures,
    relays: Mutex<Vec<Weak<dyn Relay>>>,
    /// Whether there has been one.
    has_relays: AtomicBool,
    watch: Option<Box<dyn Watcher>>,
    /// Ends of channels that only waits of this PE look after: it may not sleep for long.
    pub(crate) sockets: AtomicU32,
    /// Counts datagrams that were taken from them.
    pub(crate) heard: AtomicU32,
    /// Whether this PE's front end calls for the attention of its waits.
    pub(crate) attention: AtomicBool,
}

impl Progress {
    pub(crate) fn new(watch: Option<Box<dyn Watcher>>) -> Self {
        Progress {
            departures: Departures::default(),
            relays: Mutex::new(Vec::new()),
            has_relays: AtomicBool::new(false),
            watch,
            sockets: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            attention: AtomicBool::new(false),
        }
    }
}

impl Pe {
    /// Whether there has ever been something that waits move on.
    #[inline]
    pub(crate) fn has_relays(&self) -> bool {
        self.progress.has_relays.load(Ordering::Relaxed)
    }

    /// As if there had been something.
    #[cfg(loom)]
    pub(crate) fn pretend_relays(&self) {
        self.progress.has_relays.store(true, Ordering::Relaxed);
    }

    /// Lets others get on who depend on this PE: part of every wait and test. Gives whether the
    /// fabric [did anything](super::fabric::Fabric::progress): then a look is worth its while.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        let moved = self.far_fabric().is_some_and(|fabric| {
            self.tell_departures(fabric);
            fabric.progress()
        });
        self.relay_news();
        moved
    }

    /// Sleeps until `bell` is rung after `ticket`, until the fabric has something to do, where it
    /// can say so, or until `time` has passed. Wakes for nothing, too.
    ///
    /// Near PEs ring the doorbell alone, so with some of them a PE sleeps on that. Without, what
    /// comes is delivered by the fabric, and a departure, which rings, is seen when the time has
    /// passed.
    pub(crate) fn sleep(&self, bell: Doorbell, ticket: Ticket, time: Duration) {
        let fd = self.far_fabric().filter(|_| !self.has_near_peers()).and_then(Fabric::wake_fd);
        match fd {
            None => bell.sleep(ticket, time),
            // Rung before it slept.
            Some(_) if bell.stale(ticket) => {}
            Some(fd) => {
                let most =
                    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
                // Interrupted, it wakes for nothing.
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most));
            }
        }
    }

    /// Tells the fabric of PEs that are gone, once of each.
    ///
    /// None is left out: a death is written before it is counted (D1), and the count is read before
    /// the deaths (D2). So a count that was dealt with stands for deaths that were seen.
    fn tell_departures(&self, fabric: &dyn Fabric) {
        let departures = &self.progress.departures;
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        let count = unsafe { shm::load(self.control().departures()) };
        if count == departures.counted.load(Ordering::Relaxed) {
            return;
        }
        // Another thread does it.
        let Some(mut told) = try_lock(&departures.told) else { return };
        told.resize(self.npes(), false);
        for (pe, told) in told.iter_mut().enumerate().filter(|(_, told)| !**told) {
            // D2.
            if let Some(cause) = self.control().departure(pe) {
                *told = true;
                fabric.departed(pe as u32, cause);
            }
        }
        departures.counted.store(count, Ordering::Relaxed);
    }

    /// The part of [`progress`](Self::progress) that other PEs' barriers wait for. Gives when it is
    /// due again though nothing happens, as [`Relay::relay`] does.
    #[inline]
    pub(crate) fn relay_news(&self) -> Option<Due> {
        if let Some(watch) = &self.progress.watch {
            watch.look(self.control());
        }
        if self.has_relays() { self.relay() } else { None }
    }

    /// Has a barrier moved on by all waits, for as long as it lives.
    pub(crate) fn register_relay(&self, relay: Weak<dyn Relay>) {
        lock(&self.progress.relays).push(relay);
        self.progress.has_relays.store(true, Ordering::Relaxed);
    }

    fn relay(&self) -> Option<Due> {
        // Another thread that has it does nearly the same: the news may have come just behind that
        // thread. Then the next look of a wait passes it on: no sleeper goes for longer than
        // `DEPARTURE_POLL` without a look.
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

    /// What waits of this PE move on now.
    pub(crate) fn live_relays(&self) -> Vec<Arc<dyn Relay>> {
        let relays = lock(&self.progress.relays);
        relays.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a launcher watches the PEs, tells them of deaths, and ends all when one asks for it.
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
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    /// PE 1 sleeps until PE 0's store has come; gives how long, and what progress says then.
    fn sleep_until_stored(settings: &str) -> (Duration, bool) {
        let options = far::options(settings);
        // Waits of the barrier take what has come, too, so the store comes after them.
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
            // The word may be seen before the sender has said that it came.
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

    /// Of each PE that is gone, once; of one that finalises and still serves others, not.
    #[test]
    fn the_fabric_hears_of_each_departure_once() {
        let job = Job::threads_with(&far::options(""), 3, |job| {
            job.barrier().unwrap();
            if job.pe() == 0 {
                let (pe, control) = (&job.pe, job.pe.control());
                while control.state(1) != State::Finalizing {
                    std::thread::yield_now();
                }
                let told = |other: usize| {
                    // The test fabric panics when it is told twice.
                    (0..3).for_each(|_| _ = pe.progress());
                    lock(&pe.progress.departures.told).get(other) == Some(&true)
                };
                assert!(!told(1) && !told(2), "both may serve others");
                control.depart(2, State::Dead(Cause::Exit(1)));
                assert!(told(2) && !told(1));
            }
        });
        job.unwrap();
    }
}
