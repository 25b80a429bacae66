//! What every wait of a PE moves on, whatever it waits for: others depend on it.

use super::control::Control;
use super::fabric::{Due, Fabric};
use super::pe::Pe;
use crate::base::lock;
use crate::base::shm;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

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
        let Ok(mut told) = departures.told.try_lock() else { return };
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
        // Another thread that has it does nearly the same: it may have passed a barrier just before
        // its news came. Then the next look of a wait does it: no sleeper goes for longer than
        // `DEPARTURE_POLL` without a look.
        let mut relays = self.progress.relays.try_lock().ok()?;
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
