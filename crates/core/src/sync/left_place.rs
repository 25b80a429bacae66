//! Places in queues of locks that an interrupted thread has left behind.
//!
//! A PE cannot take itself out of a queue: the PE before knows it as the next one. So the place
//! stays, and the PE passes the lock on when its turn comes.
//!
//! * A1: *A lock that comes is passed on.* The place keeps the PE's claim, so no thread of this PE
//!   takes the grant. Each wait and test of the PE calls the [relay](LeftPlaces), and a PE that is
//!   to finalise [stays](leave_none) until its places are gone. Meanwhile PEs behind wait, as they
//!   would for a holder that computes.
//! * A2: *It is passed on once.* The relay alone looks at the place, under the mutex of the list.
//! * A3: *No PE stays for ever.* Where a PE has died, or left with the lock, the waits of all
//!   others for this lock end, and nobody needs the place.

use super::lock::Queue;
use crate::base::error::Quick;
use crate::base::lock;
use crate::endpoint::fabric::Due;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::wait::{self, Awaiting, Terms};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The places of one PE.
struct LeftPlaces {
    pe: Weak<Pe>,
    /// The locks' offsets, and the PEs before.
    places: Mutex<Vec<(u64, usize)>>,
}

/// The one list of a PE, made for its first place.
struct List(OnceLock<Arc<LeftPlaces>>);

impl Layer for List {
    fn new(_pe: &Pe) -> Self {
        List(OnceLock::new())
    }
}

/// Leaves the place behind a PE that this PE has in the queue of the lock at `offset`.
pub(crate) fn leave(pe: &Arc<Pe>, offset: u64, before: usize) {
    let list = pe.layer::<List>().0.get_or_init(|| {
        let list = Arc::new(LeftPlaces { pe: Arc::downgrade(pe), places: Mutex::new(Vec::new()) });
        let relay: Arc<dyn Relay> = list.clone();
        pe.register_relay(Arc::downgrade(&relay));
        list
    });
    lock(&list.places).push((offset, before));
}

impl Relay for LeftPlaces {
    fn relay(&self) -> Option<Due> {
        if let Some(pe) = self.pe.upgrade() {
            // A1, A2.
            lock(&self.places)
                .retain(|&(offset, before)| !Queue::new(&pe, offset).pass_over(before));
        }
        None
    }
}

/// Waits until this PE, which leaves the job, is in no queue that somebody may depend on.
pub(crate) fn leave_none(pe: &Pe) -> Quick<()> {
    let Some(list) = pe.layer::<List>().0.get() else { return Ok(()) };
    wait::until(pe, Terms::forever(Awaiting::Leave), || {
        list.relay();
        let is_needed = |&(offset, _): &(u64, usize)| !Queue::new(pe, offset).is_broken(); // A3
        (!lock(&list.places).iter().any(is_needed)).then_some(())
    })
}
