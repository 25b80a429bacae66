//! A PE's copies of pages.

use crate::base::error::{Quick, Result};
use crate::base::lock;
use crate::base::shm::{self, Plain};
use crate::endpoint::fabric::SignalOp;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::super::diff;
use super::Region;

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

struct Known {
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
}

impl Pages {
    pub(super) fn new(count: usize) -> Self {
        let page = || Page { state: State::Absent, twin: None, written: false, guards: 0 };
        Pages(Mutex::new(Known { pages: (0..count).map(|_| page()).collect(), spare: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Makes all copies without a write guard stale.
    pub(super) fn make_stale(&self) {
        for page in self.lock().pages.iter_mut().filter(|page| page.guards == 0) {
            if let State::Clean(version) = page.state {
                page.state = State::Stale(version);
            }
        }
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
            all[page].state = State::Clean(version);
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
        get.map_or(Ok(()), |run| self.get(run, home))
    }

    fn get(&self, pages: Range<usize>, home: usize) -> Quick<()> {
        let bytes = (pages.len() - 1) * self.page + self.bytes_of(pages.end - 1);
        self.counters.sent(1, bytes);
        let (from, to) = (self.original_at(pages.start), self.pe.local(self.page_at(pages.start)));
        // SAFETY: the pages lie in this PE's part. None of them has a twin, so no guard writes to
        // the copies.
        unsafe { self.pe.route(home, from).get(&self.pe, to, bytes) }
    }

    /// Puts this PE's changes to the homes of their pages.
    pub(super) fn release_pages(&self, cache: &Pages) -> Result<()> {
        let mut known = cache.lock();
        let Known { pages: all, spare } = &mut *known;
        let mut check = self.check.as_ref().map(|check| check.begin()).transpose()?;
        let mut changed = Vec::new();
        let mut now = Vec::new();
        for (number, page) in all.iter_mut().enumerate() {
            if page.twin.is_none() && !page.written {
                continue;
            }
            let home = self.home(number)?;
            let mut put = page.written && page.twin.is_none();
            if let Some(mut twin) = page.twin.take() {
                now.resize(twin.len(), 0u8);
                // SAFETY: the page lies in this PE's part; `now` is private and as long.
                unsafe {
                    shm::copy(now.as_mut_ptr(), self.pe.local(self.page_at(number)), now.len())
                };
                let mut result = Ok(());
                // I1
                diff::changed_runs(&now, &twin, size_of::<T>(), |run| {
                    put = true;
                    let mut one = || -> Result<()> {
                        if let Some(check) = &mut check {
                            check.wrote(self, number, home, &run)?;
                        }
                        let to = self.pe.route(home, self.original_at(number) + run.start as u64);
                        self.counters.sent(1, run.len());
                        // SAFETY: the source is a run of a private copy; the target is that run of
                        // the original page.
                        Ok(unsafe { to.put(&self.pe, now[run.clone()].as_ptr(), run.len()) }?)
                    };
                    if result.is_ok() {
                        result = one();
                    }
                });
                result?;
                if page.guards > 0 {
                    twin.copy_from_slice(&now);
                    page.twin = Some(twin);
                } else {
                    spare.push(twin);
                }
            }
            page.written &= page.guards > 0;
            if put {
                changed.push((number, home));
            }
        }
        // I2
        self.pe.fence()?;
        for &(page, home) in &changed {
            let version = self.pe.route(home, self.version_at(page));
            version.signal(&self.pe, home, SignalOp::Add, 1)?;
            self.counters.sent(usize::from(self.pe.has_far()), 0);
        }
        self.pe.complete_writes()?;
        self.keep_current(all, changed)?;
        check.map_or(Ok(()), |check| check.end())
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
