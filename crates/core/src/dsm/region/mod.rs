//! Memory of the whole job under release consistency.
//!
//! # The contract
//!
//! * A region is a sequence of elements, cut into pages. Each page has a *home*. A program reads
//!   and writes ranges by guards.
//! * Other PEs see for certain what a PE has written once it has [released](Region::release) and
//!   they have [acquired](Region::acquire) later; they may see it before. "Later" is what the
//!   program orders by a lock, a signal or a barrier. [`Region::barrier`] releases, meets and
//!   acquires in one call.
//! * Two PEs may write one page at the same time, but not the same element: that is a data race.
//!   Then one of the two values is kept, and the [checking](RegionOptions::checked) mode names both
//!   writers.
//!
//! # How it is kept
//!
//! **Near**, guards lead to the page at its home: one copy for all, nothing to do at release or
//! acquire but to order accesses. [`get`](Reading::get) and [`set`](Writing::set) are a load and a
//! store of it.
//!
//! *Why guards give no slices.* A `&[T]` says that nobody writes these bytes while it lives, and a
//! `&mut [T]` that nobody else reads them; compilers act on it: they read twice, or early. Release
//! consistency has that for programs without races alone, and no guard can see whether a program is
//! one: no lock belongs to a range, and others' write guards are words of other processes that
//! nobody asks. So safe calls of two PEs would make undefined behaviour. Slices of cells or atomics
//! change nothing: a cell is one thread's, and atomics are of words. To exclude others is what
//! locks are for: guards of [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock) are references to
//! shared data. And who knows that no other PE writes a range may say so:
//! [`as_ptr`](Reading::as_ptr) gives its place.
//!
//! **Far** (and when checking), a PE keeps copies of pages in its own part of the window, each page
//! at the same place as at its home:
//!
//! ```text
//!             guard: get                         write guard                     release
//!   absent ──────────────► clean ─────────────────────────────► dirty ──────────────────────► clean
//!                            │  ▲                  twin := page        put what differs from
//!                    acquire │  │ guard: same version at home?         the twin; count up the
//!                            ▼  │ else get                             version at home
//!                          stale
//! ```
//!
//! *Several writers of a page.* Each puts only the elements that differ from its twin, so nobody
//! puts an old value over another's new one: what others write in a race-free program, this PE has
//! not changed. A home writes its pages in place, and counts their versions up at release.
//!
//! *What acquire sees.* A release puts its elements, fences, then counts the versions up, and
//! completes both; nothing of that waits for anything but its end. Then it looks at them: where one
//! is a single step from that of this PE's copy, the step was its own, and the copy is of the new
//! version. Who acquires afterwards holds all its copies for stale; at the next guard it reads the
//! version, and finds it changed, and then gets the page, or finds that the copy has everything.
//! The version is read before the page: a copy may be newer than its version says, never older.
//!
//! *Threads.* Pages under a write guard keep their twin at a release (it becomes what was
//! released), and are not made stale by an acquire: drop guards before.
//!
//! *Deaths.* Guards, releases and acquires do not wait, but for the fabric; [`Region::barrier`]
//! ends with `PeerFailed`. What a PE that died had not released is lost; what a home that died had,
//! is lost on fabrics whose memory dies with it.

mod check;
mod guards;
mod pages;

use super::stats::Registry;
pub use guards::{Reading, Writing};

use crate::base::error::{Error, Result};
use crate::base::shm::{self, Plain};
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::team::Team;
use crate::window::{Window, element_bytes};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::data::CacheLine;
use super::stats::{Counters, Stats};
use check::Check;
use pages::Pages;

/// Which PE is the home of which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each PE is the home of an equal number of pages that lie together.
    #[default]
    Block,
    /// PEs are homes in turn.
    Cyclic,
    /// The first PE that asks for a range in the page is its home.
    FirstTouch,
}

/// How [`Region::with`] makes a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOptions {
    page: usize,
    placement: Placement,
    checked: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        RegionOptions { page: 4096, placement: Placement::Block, checked: false }
    }
}

impl RegionOptions {
    /// Pages of 4096 bytes, placed in blocks, not checked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of a page: a multiple of 64, and of an element's size.
    pub fn page(mut self, bytes: usize) -> Self {
        self.page = bytes;
        self
    }

    /// Which PE is the home of which page.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Whether releases look for data races: elements that two PEs changed although the second PE
    /// had not acquired what the first one released. Then near PEs keep copies too, and each byte
    /// of the region has a word that says which PE wrote it.
    ///
    /// What is released before a PE acquires counts as seen by that PE, also where only chance put
    /// it first. After [`Region::barrier`], nothing that was written later counts as seen. A
    /// program that meets by other means calls [`Job::barrier`] once more after the acquire.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }
}

/// Memory of the whole job under release consistency: `len` elements, zero at first. See
/// [the contract](self).
///
/// MPI: a window between two `MPI_Win_fence`, where each PE writes its own elements.
///
/// ```
/// # use memonet_core::{Job, dsm::Region};
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let squares = Region::<u64>::new(&job, 300)?; // collective
/// let mine = job.pe() * 100..(job.pe() + 1) * 100;
/// let mut part = squares.write(mine.clone())?;
/// for i in mine {
///     part.set(i, (i * i) as u64);
/// }
/// drop(part);
/// squares.barrier()?;
/// assert_eq!(squares.read(0..300)?.get(299), 299 * 299);
/// job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Region<T> {
    pe: Arc<Pe>,
    world: Arc<Team>,
    len: usize,
    page: usize,
    placement: Placement,
    /// Of the region in each segment.
    offset: u64,
    /// Home of each page + 1, as far as it is known here.
    homes: Box<[AtomicU32]>,
    /// Where pages are kept that are not used in place.
    pages: Option<Pages>,
    check: Option<Check>,
    counters: Arc<Counters>,
    _window: Window<CacheLine>,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Plain> Region<T> {
    /// Makes a region of `len` elements with the default options. *Collective.*
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn new(job: &Job, len: usize) -> Result<Self> {
        Self::with(job, len, RegionOptions::new())
    }

    /// Makes a region of `len` elements with options. *Collective.*
    ///
    /// ```
    /// # use memonet_core::{Job, dsm::{Placement, Region, RegionOptions}};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let options = RegionOptions::new().placement(Placement::Cyclic).checked(true);
    /// let region = Region::<u32>::with(&job, 1 << 12, options)?;
    /// if job.pe() == 1 {
    ///     region.write(100..101)?.set(100, 7);
    /// }
    /// region.barrier()?; // would report a data race
    /// assert_eq!(region.read(100..101)?.get(100), 7);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`Job::window`]; [`Error::Misuse`] for a page size that does not fit;
    /// [`Error::Unequal`] when PEs give different page sizes or options.
    pub fn with(job: &Job, len: usize, options: RegionOptions) -> Result<Self> {
        let page = options.page;
        let sized = element_bytes::<T>(len).and_then(|bytes| {
            if page == 0 || !page.is_multiple_of(64) || !page.is_multiple_of(size_of::<T>()) || align_of::<T>() > 64 {
                return Err(Error::Misuse(
                    "a region's page is a multiple of 64 bytes and of its elements' size, and these are aligned to at most 64",
                ));
            }
            let (index, size) = (len, size_of::<T>());
            size_for(bytes, page, options.checked).ok_or(Error::Overflow { index, size })
        });
        // The others are not to wait for what this PE refuses.
        let (count, size) = sized.map_err(|error| job.refuse_window(error))?;
        let terms =
            [len, size_of::<T>(), page, options.placement as usize, usize::from(options.checked)];
        let window = super::window(job, NAME, size, &terms, |_| {})?;
        let offset = window.inner.heap_offset().expect("it is a window of the heap");
        let (pe, npes) = (job.pe.clone(), job.npes());
        let known = |number: usize| match options.placement {
            Placement::Block => number * npes / count + 1,
            Placement::Cyclic => number % npes + 1,
            Placement::FirstTouch => 0,
        };
        let counters = pe.layer::<Registry>().count(NAME);
        Ok(Region {
            world: job.world.clone(),
            homes: (0..count).map(|number| AtomicU32::new(known(number) as u32)).collect(),
            pages: (!pe.record().is_one_node() || options.checked).then(|| Pages::new(count)),
            check: options.checked.then(|| Check::new(job)).transpose()?,
            pe,
            len,
            page,
            placement: options.placement,
            offset,
            counters,
            _window: window,
            element: PhantomData,
        })
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty, reason = "as for a window")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A guard to read a range.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; what the fabric reports.
    pub fn read(&self, range: Range<usize>) -> Result<Reading<'_, T>> {
        let base = self.enter(&range, false)?;
        Ok(Reading { region: self, range, base })
    }

    /// A guard to read and write a range.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; what the fabric reports.
    pub fn write(&self, range: Range<usize>) -> Result<Writing<'_, T>> {
        let base = self.enter(&range, true)?;
        Ok(Writing { region: self, range, base })
    }

    /// Makes what this PE has written visible to the PEs that acquire later.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job, SignalOp, dsm::Region};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let (region, ready) = (Region::<f64>::new(&job, 1000)?, job.window::<u64>(1)?);
    /// if job.pe() == 0 {
    ///     region.write(0..1000)?.write_from(0, &[0.5; 1000]);
    ///     region.release()?;
    ///     ready.signal(1, 0, SignalOp::Set, 1)?;
    /// } else {
    ///     ready.wait_until(0, Cmp::Eq, 1)?;
    ///     region.acquire()?;
    ///     assert_eq!(region.read(0..1000)?.get(999), 0.5);
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// What the fabric reports; [`Error::DataRace`] when checking. Everything is released even
    /// then.
    pub fn release(&self) -> Result<()> {
        let raced = match &self.pages {
            Some(pages) => self.release_pages(pages),
            None => Ok(()),
        };
        self.pe.complete_writes()?;
        raced
    }

    /// Makes this PE see what other PEs have released before. It also releases what this PE has
    /// written.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn acquire(&self) -> Result<()> {
        shm::full_fence();
        let Some(pages) = &self.pages else { return Ok(()) };
        let raced = self.release();
        if let Some(check) = &self.check {
            check.acquired()?;
        }
        pages.make_stale();
        raced
    }

    /// Releases, waits until all PEs have called, and acquires. *Collective.*
    ///
    /// # Errors
    /// As for [`release`](Self::release), and [`Error::PeerFailed`].
    pub fn barrier(&self) -> Result<()> {
        // The others are not to wait for one that found a race.
        let raced = self.release();
        self.world.barrier()?;
        self.acquire()?;
        if self.check.is_some() {
            // What is written from here on comes after everybody's acquire.
            self.world.barrier()?;
        }
        raced
    }

    /// What this PE has done with the region so far. Uses are pages that guards asked for. Hits are
    /// pages that needed no data from another PE; hand-overs are pages that did.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    fn elements_per_page(&self) -> usize {
        self.page / size_of::<T>()
    }

    fn pages_of(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / self.elements_per_page()..(range.end - 1) / self.elements_per_page() + 1
    }

    /// Bytes of a page that are elements: all but of the last.
    fn bytes_of(&self, page: usize) -> usize {
        (self.len * size_of::<T>() - page * self.page).min(self.page)
    }

    /// Offset in a segment.
    fn page_at(&self, page: usize) -> u64 {
        self.offset + (page * self.page) as u64
    }

    fn version_at(&self, page: usize) -> u64 {
        self.page_at(self.homes.len()) + (page * VERSION) as u64
    }

    fn home_word_at(&self, page: usize) -> u64 {
        self.version_at(self.homes.len()) + (page * HOME) as u64
    }

    /// Of the words that tell who wrote a page, when checking: one for each of its bytes.
    fn writers_at(&self, page: usize) -> u64 {
        self.home_word_at(self.homes.len()) + 8 * (page * self.page) as u64
    }

    /// Offset in the home's segment of the page that all copies are of.
    fn original_at(&self, page: usize) -> u64 {
        match self.check {
            // What others put there must not look like what this PE writes.
            Some(_) => self.writers_at(self.homes.len()) + (page * self.page) as u64,
            None => self.page_at(page),
        }
    }

    /// Whether this PE uses a page with that home in place.
    fn in_place(&self, home: usize) -> bool {
        home == self.pe.me() && self.check.is_none()
    }

    /// The home of a page; this PE, if it has none.
    fn home(&self, page: usize) -> Result<usize> {
        match self.homes[page].load(Ordering::Relaxed) {
            0 => self.touch(page),
            known => Ok(known as usize - 1),
        }
    }

    #[cold]
    fn touch(&self, page: usize) -> Result<usize> {
        debug_assert_eq!(self.placement, Placement::FirstTouch);
        let me = self.pe.me() as u64 + 1;
        let word = self.pe.route(page % self.pe.npes(), self.home_word_at(page));
        let before = word.compare_swap(&self.pe, 0u64, me)?;
        self.counters.sent(usize::from(self.pe.has_far()), 0);
        let home = if before == 0 { me } else { before };
        self.homes[page].store(home as u32, Ordering::Relaxed);
        Ok(home as usize - 1)
    }

    /// Makes a range usable; gives where it begins, if all of it lies together.
    fn enter(&self, range: &Range<usize>, write: bool) -> Result<Option<*mut T>> {
        if range.start > range.end {
            return Err(Error::Misuse("a range of a region that ends before it begins"));
        }
        if range.end > self.len {
            return Err(Error::OutOfBounds {
                index: range.start,
                count: range.end - range.start,
                len: self.len,
            });
        }
        let pages = self.pages_of(range);
        match &self.pages {
            Some(cache) => self.fetch(cache, pages.clone(), write)?,
            None => pages.clone().for_each(|_| self.counters.used()),
        }
        let Some(first) = pages.clone().next() else {
            return Ok(Some(std::ptr::null_mut()));
        };
        let base = self.page_base(first)?;
        for page in pages {
            if self.page_base(page)? != base.wrapping_add((page - first) * self.page) {
                return Ok(None);
            }
        }
        Ok(Some(base.cast::<T>().wrapping_add(range.start % self.elements_per_page())))
    }

    /// Where this PE uses a page.
    fn page_base(&self, page: usize) -> Result<*mut u8> {
        if self.pages.is_some() {
            return Ok(self.pe.local(self.page_at(page)));
        }
        match self.pe.route(self.home(page)?, self.page_at(page)) {
            crate::endpoint::route::Route::Near(base) => Ok(base),
            crate::endpoint::route::Route::Far(_) => unreachable!("far pages are kept here"),
        }
    }

    /// Where this PE uses an element of a range that does not lie together.
    fn element(&self, index: usize) -> *mut T {
        let base =
            self.page_base(index / self.elements_per_page()).expect("its guard has asked for it");
        base.cast::<T>().wrapping_add(index % self.elements_per_page())
    }
}

/// Pages of so many bytes of data, and bytes of all that belongs to them.
fn size_for(bytes: usize, page: usize, checked: bool) -> Option<(usize, usize)> {
    let count = bytes.div_ceil(page);
    // Who wrote each byte; and the homes' pages, beside copies that are theirs alone.
    let checks = if checked { page.checked_mul(8 + 1)? } else { 0 };
    let each = page.checked_add(VERSION + HOME)?.checked_add(checks)?;
    let size = count.checked_mul(each).filter(|&size| size <= isize::MAX as usize)?;
    Some((count, size))
}

/// What it is called where its use is reported.
const NAME: &str = "region";
const VERSION: usize = 8;
const HOME: usize = 8;
