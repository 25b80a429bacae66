//! Places in queues of locks that a thread has left behind: its wait was interrupted, or failed.
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
//!   others for this lock end, and nobody needs the place. Where this PE cannot reach another one,
//!   it leaves with its claim, which ends the waits of those that it can reach.
//! * A4: *No thread waits for itself.* Waits call the relay, and a PE that finalises calls it in a
//!   wait. So the relay waits for nothing: neither for a PE behind whose link is late, which a
//!   later call finds, nor for a thread that has the list, as that one relays.
//! * A5: *The word stays a lock.* A place keeps the window that has the lock's word, which is freed
//!   once all PEs have dropped it: the relay writes into nothing else. A PE that has finalised
//!   or panicked keeps none, as windows keep their PE.

use super::lock::Queue;
use crate::base::error::Quick;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::Due;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::wait::{self, Awaiting, Terms};
use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// What keeps a lock's word what it is.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// A place that nobody waits in.
pub(crate) struct Place {
    /// The lock's offset.
    offset: u64,
    /// A5. A program in C keeps the word itself.
    _keeper: Option<Keeper>,
    /// The PE before.
    pub(super) before: usize,
    /// Whether a PE is known to come behind, which may not have linked itself yet.
    pub(super) is_followed: bool,
}

/// The places of one PE.
struct LeftPlaces {
    pe: Weak<Pe>,
    places: Mutex<Vec<Place>>,
}

/// The one list of a PE, made for its first place.
struct List(OnceLock<Arc<LeftPlaces>>);

impl Layer for List {
    fn new(_pe: &Pe) -> Self {
        List(OnceLock::new())
    }
}

/// Waits for the lock at `offset`. Where that fails, leaves the place of this PE in the queue, with
/// the lock's keeper.
#[inline]
pub(crate) fn set(pe: &Arc<Pe>, offset: u64, keeper: impl FnOnce() -> Option<Keeper>) -> Quick<()> {
    let queue = Queue::new(pe, offset);
    queue.set().inspect_err(|_| {
        if let Some(before) = queue.abandoned_behind() {
            leave(pe, Place { offset, _keeper: keeper(), before, is_followed: false });
        }
    })
}

#[cold]
fn leave(pe: &Arc<Pe>, place: Place) {
    let list = pe.layer::<List>().0.get_or_init(|| {
        let list = Arc::new(LeftPlaces { pe: Arc::downgrade(pe), places: Mutex::new(Vec::new()) });
        let relay: Arc<dyn Relay> = list.clone();
        pe.register_relay(Arc::downgrade(&relay));
        list
    });
    lock(&list.places).push(place);
}

impl Relay for LeftPlaces {
    fn relay(&self) -> Option<Due> {
        // A4.
        if let (Some(pe), Some(mut places)) = (self.pe.upgrade(), try_lock(&self.places)) {
            // A1, A2.
            places.retain_mut(|place| !Queue::new(&pe, place.offset).pass_over(place));
        }
        None
    }
}

/// Waits until this PE, which leaves the job, is in no queue that somebody may depend on.
pub(crate) fn leave_none(pe: &Pe) -> Quick<()> {
    let Some(list) = pe.layer::<List>().0.get() else { return Ok(()) };
    let left = wait::until(pe, Terms::forever(Awaiting::Leave), || {
        list.relay();
        let is_needed = |place: &Place| !Queue::new(pe, place.offset).is_broken(); // A3
        (!lock(&list.places).iter().any(is_needed)).then_some(())
    });
    forget(pe);
    left
}

/// Keeps no window any more, for a PE that has left the job (A5).
pub(crate) fn forget(pe: &Pe) {
    if let Some(list) = pe.layer::<List>().0.get() {
        let places = std::mem::take(&mut *lock(&list.places));
        drop(places);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::{Error, Result};
    use crate::far;
    use crate::job::Job;
    use crate::sync::lock::raw;
    use std::sync::Barrier;
    use std::time::Duration;

    /// A5.
    #[test]
    fn a_place_keeps_no_pe_that_has_panicked() {
        let (left, meeting) = (Mutex::new(None), Barrier::new(2));
        let run = |job: Job| {
            let words = job.window::<u64>(1).unwrap();
            let lock = words.lock(0).unwrap();
            if job.pe() == 1 {
                std::mem::forget(lock.lock().unwrap());
            }
            job.barrier().unwrap();
            if job.pe() == 0 {
                *left.lock().unwrap() = Some(Arc::downgrade(&job.pe));
                job.attention().call();
                let interrupted = lock.lock().map(drop);
                meeting.wait();
                interrupted.expect("nobody gives it back");
            }
            meeting.wait();
        };
        let job = std::panic::AssertUnwindSafe(|| Job::threads(2, run));
        assert!(std::panic::catch_unwind(job).is_err());
        let pe = left.into_inner().unwrap().expect("PE 0 was there");
        assert!(pe.upgrade().is_none());
    }

    /// A PE that leaves the job has a place whose lock has come. The PE behind has not linked
    /// itself yet.
    #[test]
    fn a_late_link_is_awaited_at_the_end() {
        for settings in [None, Some("")] {
            let meeting = Barrier::new(3);
            let options = settings.map(far::options).unwrap_or_default();
            let job = Job::threads_with(&options, 3, |job| -> Result<()> {
                let words = job.window::<u64>(1)?;
                let offset = words.inner.heap_offset().expect("of the heap");
                let lock = words.lock(0)?;
                job.barrier()?;
                let held = if job.pe() == 1 { Some(lock.lock()?) } else { None };
                meeting.wait();
                if job.pe() == 0 {
                    job.attention().call();
                    assert!(matches!(lock.lock(), Err(Error::Interrupted { .. })));
                    job.attention().dismiss();
                }
                meeting.wait();
                if job.pe() == 2 {
                    assert_eq!(raw::swap_tail(&job.pe, offset)?, 1, "PE 0 is the last");
                }
                meeting.wait();
                drop(held);
                if job.pe() == 2 {
                    // PE 0 has the lock by then, and is about to leave.
                    std::thread::sleep(Duration::from_millis(50));
                    raw::link(&job.pe, offset, 0);
                    raw::await_turn(&job.pe, offset)?;
                    Queue::new(&job.pe, offset).clear()?;
                }
                Ok(())
            });
            job.unwrap().into_iter().for_each(|result| result.unwrap());
        }
    }
}
