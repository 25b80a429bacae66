//! Who wrote which byte: finding data races.
//!
//! Every release has a number, in the order of releases. For each byte of the region its home knows
//! the number and the PE of the last release that changed it. Who releases a change of a byte that
//! another has released with a number above that of its own last acquire has not seen that: neither
//! of the two came before the other, as far as acquires and releases say. Races that end in the
//! same values are not seen, nor are reads.

use crate::base::error::{Error, Result};
use crate::base::shm::Plain;
use crate::job::Job;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::mutex::{Guard, Mutex};
use super::Region;

/// What checking takes.
pub(super) struct Check {
    /// Releases so far; whoever has it checks and releases alone.
    releases: Mutex<u64>,
    /// What it was at this PE's last acquire.
    acquired: AtomicU64,
}

/// A release under way.
pub(super) struct Release<'a> {
    number: Guard<'a, u64>,
    acquired: u64,
    race: Option<Error>,
}

impl Check {
    pub(super) fn new(job: &Job) -> Result<Self> {
        Ok(Check { releases: Mutex::new(job, &0)?, acquired: AtomicU64::new(0) })
    }

    pub(super) fn acquired(&self) -> Result<()> {
        self.acquired.store(*self.releases.lock()?, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn begin(&self) -> Result<Release<'_>> {
        let mut number = self.releases.lock()?;
        *number += 1;
        Ok(Release { number, acquired: self.acquired.load(Ordering::Relaxed), race: None })
    }
}

impl Release<'_> {
    /// This PE has changed these bytes of a page.
    pub(super) fn wrote<T: Plain>(
        &mut self,
        region: &Region<T>,
        page: usize,
        home: usize,
        bytes: &Range<usize>,
    ) -> Result<()> {
        let (pe, me) = (&region.pe, region.pe.me() as u64);
        let words = pe.route(home, region.writers_at(page) + 8 * bytes.start as u64);
        let mut writers = vec![0u64; bytes.len()];
        // SAFETY: private memory, as long as the words of these bytes.
        unsafe { words.get(pe, writers.as_mut_ptr().cast(), 8 * writers.len()) }?;
        let raced = |&word: &u64| word & 0xFFFF != me + 1 && word >> 16 > self.acquired;
        if let Some(at) = writers.iter().position(raced)
            && self.race.is_none()
        {
            self.race = Some(Error::DataRace {
                element: (page * region.page + bytes.start + at) / size_of::<T>(),
                first: (writers[at] & 0xFFFF) as usize - 1,
                second: region.pe.me(),
            });
        }
        writers.fill(*self.number << 16 | (me + 1));
        // SAFETY: as above.
        unsafe { words.put(pe, writers.as_ptr().cast(), 8 * writers.len()) }?;
        Ok(())
    }

    /// All is released: the next one may.
    pub(super) fn end(self) -> Result<()> {
        self.number.release()?;
        self.race.map_or(Ok(()), Err)
    }
}
