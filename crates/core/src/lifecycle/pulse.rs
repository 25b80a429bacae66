//! The launcher's side of the [pulse](crate::wait::pulse) of a job.

use crate::base::error::{Error, Result};
use crate::base::memory::{Mapping, page_size};
use crate::base::shows;
use crate::lifecycle::launch::JobFile;
use crate::wait::pulse::Words;
use std::time::Duration;

/// The pulse of a job whose PEs share CPUs: it beats while they write to each other.
pub struct Pulse {
    mapping: Mapping,
}

shows!([] Pulse as "Pulse", |_it|);

impl Pulse {
    /// The pulse of a job.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn of(job: &JobFile) -> Result<Self> {
        let fd = job.fd().try_clone_to_owned();
        let fd = fd.map_err(|e| Error::system("dup", e, "Raise `ulimit -n`"))?;
        Ok(Pulse { mapping: Mapping::new(fd, page_size(), true)? })
    }

    fn words(&self) -> Words {
        // SAFETY: the mapping holds the job's first page, and `self` outlives the value.
        unsafe { Words::of(&self.mapping) }
    }

    /// The number of beats so far, which wraps.
    pub fn beats(&self) -> u32 {
        self.words().beats()
    }

    /// Adds a beat, which wakes sleepers.
    pub fn beat(&self) {
        self.words().beat();
    }

    /// Sleeps while the number of beats is `seen`, and at most for `limit`. May return early.
    pub fn sleep(&self, seen: u32, limit: Duration) {
        let words = self.words();
        let ticket = words.bell.announce(false, false);
        if words.beats() == seen {
            words.bell.sleep(ticket, limit);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_beat_wakes_a_sleeper() {
        let job = JobFile::create(1, 1).unwrap();
        let (pulse, other) = (Pulse::of(&job).unwrap(), Pulse::of(&job).unwrap());
        for seen in 0..100 {
            assert_eq!(pulse.beats(), seen);
            std::thread::scope(|scope| {
                scope.spawn(|| other.beat());
                while pulse.beats() == seen {
                    // Without wake-ups the test would last for hours.
                    pulse.sleep(seen, Duration::from_secs(3600));
                }
            });
        }
    }
}
