//! State of what the waits of a PE move on, for [`progress`](super::progress).

use super::control::Control;
use super::descriptor::Descriptor;
use super::virtual_clock::Due;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, Weak};

/// Work that waits do for other PEs, such as a barrier that needs help after its arrival.
pub(crate) trait Relay: Send + Sync {
    /// Passes on what has arrived. Gives the PE's time at which to call it again even if nothing
    /// arrives.
    fn relay(&self) -> Option<Due>;

    /// Whether there is nothing to pass on until this PE makes a call that begins something.
    fn rests(&self) -> bool {
        false
    }

    /// A lost PE from which this relay still needs something, or which still needs something of it.
    /// Lost is a PE that the fabric cannot reach, or that has left.
    fn lacks(&self, _is_lost: &dyn Fn(usize) -> bool) -> Option<usize> {
        None
    }

    /// Drops what it keeps for others, as this PE has left.
    fn let_go(&self) {}

    /// Called before other PEs can see that this PE leaves the job in order.
    fn before_departure(&self) {}

    /// Called when this PE leaves the job in order. True while other PEs need the relay: then the
    /// PE stays and relays.
    fn depart(&self) -> bool {
        false
    }

    /// Whether the program may have references into memory that departing would free.
    fn shows_memory(&self) -> bool {
        false
    }
}

/// Watches the processes of the other PEs where no launcher does.
pub(crate) trait Watcher: Send + Sync {
    /// Publishes deaths of other PEs, unless it looked for them just now.
    fn look(&self, control: &Control);
}

/// Departures that were announced to the fabric.
#[derive(Default)]
pub(super) struct Departures {
    /// The count of departures for which all PEs' states were last read.
    pub(super) counted: AtomicU32,
    /// Whether each PE's departure was announced.
    pub(super) announced: Mutex<Vec<bool>>,
}

/// State of a PE's progress.
pub(crate) struct Progress {
    pub(super) departures: Departures,
    pub(super) relays: Mutex<Vec<Weak<dyn Relay>>>,
    /// Relays that other PEs may need after the program has dropped them.
    pub(super) kept: Mutex<Vec<Arc<dyn Relay>>>,
    /// Whether there has ever been a relay.
    pub(super) has_relays: AtomicBool,
    pub(super) watch: Option<Box<dyn Watcher>>,
    /// Number of channel ends that only waits of this PE poll: while there are any, it may not
    /// sleep for long.
    pub(crate) sockets: AtomicU32,
    /// Number of datagrams received from these ends.
    pub(crate) heard: AtomicU32,
    /// Whether this PE's front end wants the attention of its waits.
    pub(crate) attention: AtomicBool,
    /// Where a thread of this PE sleeps on its fabric's descriptor.
    pub(super) descriptor: Arc<Descriptor>,
}

impl Progress {
    pub(crate) fn new(watch: Option<Box<dyn Watcher>>) -> Self {
        Progress {
            departures: Departures::default(),
            relays: Mutex::new(Vec::new()),
            kept: Mutex::new(Vec::new()),
            has_relays: AtomicBool::new(false),
            watch,
            sockets: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            attention: AtomicBool::new(false),
            descriptor: Arc::default(),
        }
    }
}
