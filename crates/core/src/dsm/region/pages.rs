//! A PE's copies of pages.

use crate::base::error::{Quick, Result};
use crate::base::lock;
use crate::base::shm::{self, Plain};
use crate::endpoint::fabric::SignalOp;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::super::diff;
use super::Region;
use super::check::Release;

/// Versions of changed pages closer than this are got with one message: the versions between them
/// cost less than another round trip.
const APART_PAGES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Of this version or a newer one. The home is asked for its version before the next use.
    Stale(u64),
    Clean(u64),
}

struct Page {
    state: State,
    /// The page before this PE wrote to it.
    twin: Option<Box<[u8]>>,
    /// Whether this PE wrote to the page in place, as its home.
    written: bool,
    /// Number of write guards.
    guards: usize,
}

/// States of this PE's copies. The copies lie in its part of the window.
pub(super) struct Pages(Mutex<Known>);

pub(super) struct Known {
    pages: Vec<Page>,
    /// Unused twins: freeing and allocating them costs more than a page's copy does.
    spare: Vec<Box<[u8]>>,
}

impl Known {
    /// Memory for a twin of so many bytes.
    fn twin(&mut self, bytes: usize) -> Box<[u8]> {
        match self.spare.pop_if(|spare| spare.len() == bytes) {
            Some(spare) => spare,
            None => vec![0; bytes].into_boxed_slice(),
        }
    }

    /// Makes all copies stale, but for those with a write guard, or with changes that could not be
    /// released: to get them again would undo these.
    pub(super) fn make_stale(&mut self) {
        let may = |page: &&mut Page| page.guards == 0 && page.twin.is_none();
        for page in self.pages.iter_mut().filter(may) {
            if let State::Clean(version) = page.state {
                page.state = State::Stale(version);
            }
        }
    }
}

impl Pages {
    pub(super) fn new(count: usize) -> Self {
        let page = || Page { state: State::Absent, twin: None, written: false, guards: 0 };
        Pages(Mutex::new(Known { pages: (0..count).map(|_| page()).collect(), spare: Vec::new() }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Ends a write guard of these pages.
    pub(super) fn written(&self, pages: Range<usize>) {
        self.lock().pages[pages].iter_mut().for_each(|page| page.guards -= 1);
    }
}

impl<T: Plain> Region<T> {
    /// Brings this PE's copies of `pages` up to date, and gives them twins if `write`.
    pub(super) fn fetch(&self, cache: &Pages, pages: Range<usize>, write: bool) -> Result<()> {
        let mut all = cache.lock();
        let homes = pages.clone().map(|page| self.home(page)).collect::<Result<Vec<_>>>()?;
        // One message asks for neighbouring pages of one home.
        let first = pages.start;
        let mut start = pages.start;
        while start < pages.end {
            let home = homes[start - first];
            let end =
                (start..pages.end).find(|&page| homes[page - first] != home).unwrap_or(pages.end);
            (start..end).for_each(|_| self.counters.used());
            if !self.in_place(home) {
                self.refresh(&mut all.pages, start..end, home)?;
            }
            start = end;
        }
        for page in if write { pages } else { 0..0 } {
            let here = self.in_place(homes[page - first]);
            let (bytes, at) = (self.bytes_of(page), self.pe.local(self.page_at(page)));
            let known = &mut all.pages[page];
            known.guards += 1;
            known.written |= here;
            if known.twin.is_none() && !here {
                let mut twin = all.twin(bytes);
                // SAFETY: the page lies in this PE's part; the twin is private and as long.
                unsafe { shm::copy(twin.as_mut_ptr(), at, bytes) };
                all.pages[page].twin = Some(twin);
            }
        }
        Ok(())
    }

    /// Gets those pages of one home that are not up to date.
    fn refresh(&self, all: &mut [Page], pages: Range<usize>, home: usize) -> Quick<()> {
        if all[pages.clone()].iter().all(|page| matches!(page.state, State::Clean(_))) {
            return Ok(());
        }
        // I3: versions before pages.
        let versions = self.versions(pages.clone(), home)?;
        let mut get: Option<Range<usize>> = None;
        let mut got = Vec::new();
        for (page, version) in pages.clone().zip(versions) {
            let usable = match all[page].state {
                State::Clean(_) => true,
                State::Stale(have) => have == version,
                State::Absent => false,
            };
            if usable {
                if let State::Stale(have) = all[page].state {
                    all[page].state = State::Clean(have);
                }
                continue;
            }
            got.push((page, version));
            self.counters.missed();
            self.counters.handed_over();
            match &mut get {
                Some(run) if run.end == page => run.end += 1,
                run => {
                    if let Some(run) = run.replace(page..page + 1) {
                        self.get(run, home)?;
                    }
                }
            }
        }
        get.map_or(Ok(()), |run| self.get(run, home))?;
        // Not before: a copy that could not be got must not pass for one at the next access.
        for (page, version) in got {
            all[page].state = State::Clean(version);
        }
        Ok(())
    }

    fn get(&self, pages: Range<usize>, home: usize) -> Quick<()> {
        let bytes = (pages.len() - 1) * self.page + self.bytes_of(pages.end - 1);
        self.counters.sent(1, bytes);
        let (from, to) = (self.original_at(pages.start), self.pe.local(self.page_at(pages.start)));
        // SAFETY: the pages lie in this PE's part. None of them has a twin, so no guard writes to
        // the copies.
        unsafe { self.pe.route(home, from).get(&self.pe, to, bytes) }
    }

    /// Puts this PE's changes to the homes of their pages. A home that cannot be reached does not
    /// keep the others from learning of theirs; its changes stay to be released again.
    pub(super) fn release_pages(&self, known: &mut Known) -> Result<()> {
        let Known { pages: all, spare } = known;
        let mut check = self.check.as_ref().map(|check| check.begin()).transpose()?;
        let mut changed = Vec::new();
        let mut now = Vec::new();
        let mut released = Ok(());
        for (number, page) in all.iter_mut().enumerate() {
            if page.twin.is_none() && !page.written {
                continue;
            }
            let put = self.home(number).and_then(|home| {
                let put = self.release_page(number, page, home, &mut now, spare, &mut check)?;
                Ok((put, home))
            });
            match put {
                Ok((true, home)) => changed.push((number, home)),
                Ok((false, _)) => {}
                Err(error) => released = released.and(Err(error)),
            }
        }
        // I2
        if let Err(error) = self.pe.fence() {
            released = released.and(Err(*error));
            changed.clear();
        }
        for &(page, home) in &changed {
            let version = self.pe.route(home, self.version_at(page));
            let signalled = version.signal(&self.pe, home, SignalOp::Add, 1);
            released = released.and(signalled.map_err(|error| *error));
            self.counters.sent(usize::from(self.pe.has_fabric()), 0);
        }
        let completed = self.pe.complete_writes().and_then(|()| self.keep_current(all, changed));
        let raced = check.map_or(Ok(()), Release::end);
        self.pe.first_error(raced, released.and(completed.map_err(|error| *error)))
    }

    /// Puts what this PE has changed in a page to its home. Gives whether there was anything; `now`
    /// is room for a copy.
    fn release_page(
        &self,
        number: usize,
        page: &mut Page,
        home: usize,
        now: &mut Vec<u8>,
        spare: &mut Vec<Box<[u8]>>,
        check: &mut Option<Release<'_>>,
    ) -> Result<bool> {
        let mut put = page.written && page.twin.is_none();
        if let Some(mut twin) = page.twin.take() {
            now.resize(twin.len(), 0u8);
            // SAFETY: the page lies in this PE's part; `now` is private and as long.
            unsafe { shm::copy(now.as_mut_ptr(), self.pe.local(self.page_at(number)), now.len()) };
            let mut result = Ok(());
            // I1
            diff::changed_runs(now, &twin, size_of::<T>(), |run| {
                put = true;
                let mut one = || -> Result<()> {
                    if let Some(check) = check.as_mut() {
                        check.wrote(self, number, home, &run)?;
                    }
                    let to = self.pe.route(home, self.original_at(number) + run.start as u64);
                    self.counters.sent(1, run.len());
                    // SAFETY: the source is a run of a private copy; the target is that run of the
                    // original page.
                    Ok(unsafe { to.put(&self.pe, now[run.clone()].as_ptr(), run.len()) }?)
                };
                if result.is_ok() {
                    result = one();
                }
            });
            if result.is_err() {
                page.twin = Some(twin);
                result?;
            } else if page.guards > 0 {
                twin.copy_from_slice(now);
                page.twin = Some(twin);
            } else {
                spare.push(twin);
            }
        }
        page.written &= page.guards > 0;
        Ok(put)
    }

    /// I4: after a release, gives copies that no other PE has changed the new version. Other copies
    /// keep their old version, and are got again.
    fn keep_current(&self, all: &mut [Page], mut changed: Vec<(usize, usize)>) -> Quick<()> {
        changed.retain(|&(page, _)| matches!(all[page].state, State::Clean(_)));
        changed.sort_unstable_by_key(|&(page, home)| (home, page));
        for run in changed.chunk_by(|a, b| a.1 == b.1 && b.0 - a.0 < APART_PAGES) {
            let ((first, home), (last, _)) = (run[0], run[run.len() - 1]);
            let versions = self.versions(first..last + 1, home)?;
            for &(page, _) in run {
                let now = versions[page - first];
                if let State::Clean(have) = all[page].state
                    && have + 1 == now
                {
                    all[page].state = State::Clean(now);
                }
            }
        }
        Ok(())
    }

    /// Versions of pages of one home. Those of pages between them that have another home mean
    /// nothing.
    fn versions(&self, pages: Range<usize>, home: usize) -> Quick<Vec<u64>> {
        let mut versions = vec![0u64; pages.len()];
        // SAFETY: private memory, as long as the versions of these pages.
        unsafe {
            self.pe.route(home, self.version_at(pages.start)).get(
                &self.pe,
                versions.as_mut_ptr().cast(),
                8 * versions.len(),
            )
        }?;
        self.counters.sent(1, 8 * versions.len());
        Ok(versions)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::{Cause, Error};
    use crate::base::status;
    use crate::dsm::{Placement, RegionOptions};
    use crate::far;
    use crate::job::Job;
    use std::sync::Barrier;
    use std::sync::atomic::Ordering;

    /// A release tells the living of their pages, and fails as long as a page has a dead home.
    #[test]
    fn a_dead_home_keeps_no_other_page_from_being_released() {
        const PAGE: usize = 512;
        let meeting = Barrier::new(4);
        let job = Job::threads_with(&far::options(""), 4, |job| -> Result<()> {
            let options = RegionOptions::new().placement(Placement::FirstTouch);
            let region = Region::<u64>::with(&job, 4 * PAGE, options)?;
            let read = |at: usize| region.read(at..at + 1).map(|part| part.get(at));
            read(PAGE * job.pe())?;
            job.barrier()?;
            if job.pe() == 3 {
                assert_eq!(read(PAGE)?, 0, "so it has a copy");
            }
            job.barrier()?;
            // All have left the barrier, which a departure would end.
            meeting.wait();
            let mut released = Vec::new();
            if job.pe() == 0 {
                for page in [1, 2] {
                    region.write(PAGE * page..PAGE * page + 1)?.set(PAGE * page, 5);
                }
                job.pe.control().depart(2, status::State::Dead(Cause::Exit(1)));
                job.pe.progress();
                // Puts to the dead need no answer, and do not fail. Asking for a home does.
                region.homes[2].store(0, Ordering::Relaxed);
                released.extend([region.release(), region.release()]);
            }
            meeting.wait();
            let acquired = region.acquire();
            let seen = read(PAGE)?;
            meeting.wait();
            for released in released {
                let blames = matches!(released, Err(Error::PeerFailed { pe: 2, .. }));
                assert!(blames, "{released:?}");
            }
            assert_eq!((acquired.is_ok(), seen), (job.pe() != 0, 5));
            Ok(())
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }
}
