//! The launcher's side of the count of PEs that are gone.

use crate::base::doorbell;
use crate::base::error::{Error, Result};
use crate::base::layout::JobHeader;
use crate::base::memory::{Mapping, page_size};
use crate::base::shm;
use crate::base::shows;
use crate::lifecycle::launch::JobFile;
use std::mem::offset_of;
use std::time::Duration;

/// The count of a job's PEs that are gone: dead, finalising or done.
pub struct Departures {
    mapping: Mapping,
}

shows!([] Departures as "Departures", |_it|);

impl Departures {
    /// The count of a job.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn of(job: &JobFile) -> Result<Self> {
        let fd = job.fd().try_clone_to_owned();
        let fd = fd.map_err(|e| Error::system("dup", e, "Raise `ulimit -n`"))?;
        Ok(Departures { mapping: Mapping::new(fd, page_size(), true)? })
    }

    fn word(&self) -> *const u32 {
        self.mapping.at(offset_of!(JobHeader, departures) as u64).cast()
    }

    /// PEs that are gone so far.
    pub fn count(&self) -> u32 {
        // SAFETY: an aligned word of the mapped page.
        unsafe { shm::load(self.word()) }
    }

    /// Sleeps while the count is `seen`, and at most for `limit`. May return early.
    pub fn sleep(&self, seen: u32, limit: Duration) {
        // SAFETY: an aligned word of the page, which `self` keeps mapped.
        unsafe { doorbell::sleep_while(self.word(), seen, limit) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::status::State;

    /// The test would last for hours if a departure woke nobody.
    #[test]
    fn each_departure_wakes_who_sleeps() {
        let job = JobFile::create(3, 1).unwrap();
        let departures = Departures::of(&job).unwrap();
        for pe in 0..3 {
            assert_eq!(departures.count(), pe);
            std::thread::scope(|scope| {
                scope.spawn(|| job.replicate(pe as usize, State::Done));
                while departures.count() == pe {
                    departures.sleep(pe, Duration::from_secs(3600));
                }
            });
        }
    }
}
