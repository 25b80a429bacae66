//! Finds data races: records the writer of each byte.
//!
//! Releases are numbered in their order. For each byte of the region, its home has the number and
//! the PE of the last release that changed it. A race is found when a PE releases a change of a
//! byte that another PE released with a number above that of this PE's last acquire: this PE has
//! not seen that release, so neither change came before the other, as far as acquires and releases
//! say. Races that write equal values are not found, nor are races with reads.

use crate::base::error::{Error, Result};
use crate::base::shm::Plain;
use crate::job::Job;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::mutex::{Guard, Mutex};
use super::Region;

/// Bits of the word of a byte that have its writer: its PE's number and one more. The rest is the
/// number of the release.
const WRITER_BITS: u32 = 20;
const WRITER: u64 = (1 << WRITER_BITS) - 1;
const _: () = assert!(crate::base::layout::MAX_HOSTED < 1 << WRITER_BITS);

/// A PE's state for checking.
pub(super) struct Check {
    /// Number of releases. The PE that holds the mutex checks and releases alone.
    releases: Mutex<u64>,
    /// Number of releases at this PE's last acquire.
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
    /// Records that this release changes these bytes of a page, and notes a race.
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
        let raced = |&word: &u64| word & WRITER != me + 1 && word >> WRITER_BITS > self.acquired;
        if let Some(at) = writers.iter().position(raced)
            && self.race.is_none()
        {
            self.race = Some(Error::DataRace {
                element: (page * region.page + bytes.start + at) / size_of::<T>(),
                first: (writers[at] & WRITER) as usize - 1,
                second: region.pe.me(),
                call: None,
            });
        }
        writers.fill(*self.number << WRITER_BITS | (me + 1));
        // SAFETY: as above; a put only reads them.
        unsafe { words.put(pe, writers.as_ptr().cast(), 8 * writers.len()) }?;
        Ok(())
    }

    /// Ends the release, so that the next may begin, and reports a race.
    pub(super) fn end(self) -> Result<()> {
        self.number.release()?;
        self.race.map_or(Ok(()), Err)
    }
}
