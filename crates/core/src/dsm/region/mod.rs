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
//! **Near**, guards lead to the page at its home: one copy for all PEs. Release and acquire only
//! order accesses. [`get`](Reading::get) and [`set`](Writing::set) are a load and a store of the
//! page.
//!
//! *Why guards give no slices.* A `&[T]` says that nobody writes these bytes while it lives, and a
//! `&mut [T]` that nobody else reads them. Compilers rely on that: they read twice, or early. Under
//! release consistency only programs without races keep it, and a guard cannot see whether a
//! program is one: no lock belongs to a range, and asking for other PEs' write guards would take
//! messages. So safe calls of two PEs would make undefined behaviour. Slices of cells or atomics
//! change nothing: a cell is one thread's, and atomics are of words. Exclusion is the business of
//! locks: guards of [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock) are references to shared
//! data. A program that knows that no other PE writes a range may say so:
//! [`as_ptr`](Reading::as_ptr) gives its address.
//!
//! **Far** (and when checking), a PE keeps copies of pages in its own part of the window, each at
//! the offset that the page has at its home:
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
//! **I1.** *Several PEs may write a page.* Each puts only the elements that differ from its twin:
//! in a race-free program it has not changed what other PEs write, so it puts no old value over a
//! new one. A home writes its pages in place, and counts their versions up at release.
//!
//! **I2.** *An acquire sees all earlier releases.* A release puts its elements, fences, then counts
//! the versions up, and completes both. A PE that acquires afterwards makes all its copies stale.
//! Its next guard reads the version, finds it changed, and gets the page; or the version is that of
//! its copy, which then has everything.
//!
//! **I3.** *A copy is never older than its version says*, because the version is read before the
//! page. It may be newer.
//!
//! **I4.** *A release may give its own copy the new version.* After the release it reads the
//! versions. If one is a single step from that of this PE's copy, the step was its own, and the
//! copy is of the new version.
//!
//! *Threads.* Pages under a write guard keep their twin at a release (it becomes the released
//! page), and an acquire does not make them stale: drop guards before.
//!
//! *Deaths.* Guards, releases and acquires wait only for the fabric; [`Region::barrier`] ends with
//! `PeerFailed`. What a dead PE had not released is lost; so are pages whose home died, on fabrics
//! where memory dies with its PE.

mod check;
mod guards;
mod pages;

pub use guards::{Reading, Writing};

use crate::base::element::ElementName;
use crate::base::error::{Error, Result};
use crate::base::shm::{self, Plain};
use crate::base::shows;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::job::Job;
use crate::team::Team;
use crate::window::{Window, element_bytes};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::data::CacheLine;
use crate::endpoint::recorder::objects::{Counters, ObjectKind, Stats};
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
    element: ElementName,
}

impl Default for RegionOptions {
    fn default() -> Self {
        RegionOptions {
            page: 4096,
            placement: Placement::Block,
            checked: false,
            element: ElementName::default(),
        }
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

    /// What a front end calls the elements.
    pub fn elements(mut self, name: ElementName) -> Self {
        self.element = name;
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
    /// Where the region begins in each segment.
    offset: u64,
    /// Home of each page + 1; 0: not known here.
    homes: Box<[AtomicU32]>,
    /// Copies of pages; `None` where all pages are used in place.
    pages: Option<Pages>,
    check: Option<Check>,
    counters: Counters,
    _window: Window<CacheLine>,
    element: PhantomData<fn(T) -> T>,
}

shows!([T] Region<T> as "Region", |it| element = std::any::type_name::<T>(), len = it.len, page = it.page);

impl<T: Plain> Region<T> {
    /// Makes a region of `len` elements with the default options. *Collective.*
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    #[track_caller]
    pub fn new(job: &Job, len: usize) -> Result<Self> {
        job.pe.waiting_call("Region::new", None, || Self::make(job, len, RegionOptions::new()))
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
    #[track_caller]
    pub fn with(job: &Job, len: usize, options: RegionOptions) -> Result<Self> {
        job.pe.waiting_call("Region::with", None, || Self::make(job, len, options))
    }

    fn make(job: &Job, len: usize, options: RegionOptions) -> Result<Self> {
        let page = options.page;
        let sized = element_bytes::<T>(len).and_then(|bytes| {
            if page == 0 || !page.is_multiple_of(64) || !page.is_multiple_of(size_of::<T>()) || align_of::<T>() > 64 {
                return Err(Error::misuse(
                    "a region's page is a multiple of 64 bytes and of its elements' size, and these are aligned to at most 64",
                ));
            }
            let (index, size) = (len, size_of::<T>());
            size_for(bytes, page, options.checked).ok_or(Error::Overflow { index, size, call: None })
        });
        // The error must reach the other PEs, which would wait for this one.
        let (count, size) = sized.map_err(|error| job.refuse_window(error))?;
        let terms =
            [len, size_of::<T>(), page, options.placement as usize, usize::from(options.checked)];
        let window = super::window(job, ObjectKind::Region, size, &terms, options.element, |_| {})?;
        let offset = window.inner.heap_offset().expect("it is a window of the heap");
        let (pe, npes) = (job.pe.clone(), job.npes());
        let known = |number: usize| match options.placement {
            Placement::Block => number * npes / count + 1,
            Placement::Cyclic => number % npes + 1,
            Placement::FirstTouch => 0,
        };
        let counters = pe.count_object(ObjectKind::Region);
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
    #[track_caller]
    pub fn read(&self, range: Range<usize>) -> Result<Reading<'_, T>> {
        self.pe.call("Region::read", None, || {
            let base = self.enter(&range, false)?;
            Ok(Reading { region: self, range, base })
        })
    }

    /// A guard to read and write a range.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; what the fabric reports.
    #[track_caller]
    pub fn write(&self, range: Range<usize>) -> Result<Writing<'_, T>> {
        self.pe.call("Region::write", None, || {
            let base = self.enter(&range, true)?;
            Ok(Writing { region: self, range, base })
        })
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
    #[track_caller]
    pub fn release(&self) -> Result<()> {
        self.pe.call("Region::release", None, || {
            ending::refuse_child(&self.pe)?;
            let raced = match &self.pages {
                Some(pages) => self.release_pages(&mut pages.lock()),
                None => Ok(()),
            };
            self.pe.first_error(raced, self.pe.complete_writes().map_err(|error| *error))
        })
    }

    /// Makes this PE see what other PEs have released before. It also releases what this PE has
    /// written.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    #[track_caller]
    pub fn acquire(&self) -> Result<()> {
        self.pe.call("Region::acquire", None, || {
            ending::refuse_child(&self.pe)?;
            shm::full_fence();
            let Some(pages) = &self.pages else { return Ok(()) };
            // At once: another thread may write to a page in between, which would keep its copy.
            let mut known = pages.lock();
            let raced = self.release_pages(&mut known);
            let acquired = self.check.as_ref().map_or(Ok(()), Check::acquired);
            known.make_stale();
            self.pe.first_error(raced, acquired)
        })
    }

    /// Releases, waits until all PEs have called, and acquires. *Collective.*
    ///
    /// # Errors
    /// As for [`release`](Self::release), and [`Error::PeerFailed`].
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.pe.waiting_call("Region::barrier", None, || {
            // A PE that found a race still meets the others, which would wait for it.
            let raced = self.release();
            if let Err(error) = self.world.inner_barrier() {
                return self.pe.first_error(Err(error), raced);
            }
            let acquired = self.pe.first_error(raced, self.acquire());
            // Writes after this barrier come after every PE's acquire.
            let settled = self.check.as_ref().map_or(Ok(()), |_| self.world.inner_barrier());
            self.pe.first_error(acquired, settled)?;
            Ok(self.pe.surface_if_far()?)
        })
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

    /// Bytes of a page that are elements: fewer in the last page.
    fn bytes_of(&self, page: usize) -> usize {
        (self.len * size_of::<T>() - page * self.page).min(self.page)
    }

    /// Offset of a page in a segment.
    fn page_at(&self, page: usize) -> u64 {
        self.offset + (page * self.page) as u64
    }

    fn version_at(&self, page: usize) -> u64 {
        self.page_at(self.homes.len()) + (page * VERSION_BYTES) as u64
    }

    fn home_word_at(&self, page: usize) -> u64 {
        self.version_at(self.homes.len()) + (page * HOME_BYTES) as u64
    }

    /// Offset of the words that record the writers of a page, one for each byte, when checking.
    fn writers_at(&self, page: usize) -> u64 {
        self.home_word_at(self.homes.len()) + 8 * (page * self.page) as u64
    }

    /// Offset of the original page in its home's segment.
    fn original_at(&self, page: usize) -> u64 {
        match self.check {
            // The home needs a twin of its own writes, which puts of other PEs must not change.
            Some(_) => self.writers_at(self.homes.len()) + (page * self.page) as u64,
            None => self.page_at(page),
        }
    }

    /// Whether this PE uses pages of that home in place.
    fn in_place(&self, home: usize) -> bool {
        home == self.pe.me() && self.check.is_none()
    }

    /// The home of a page. A page without a home gets this PE.
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
        self.counters.sent(usize::from(self.pe.has_fabric()), 0);
        let home = if before == 0 { me } else { before };
        self.homes[page].store(home as u32, Ordering::Relaxed);
        Ok(home as usize - 1)
    }

    /// Makes a range usable. Gives its address, if all of it lies together.
    fn enter(&self, range: &Range<usize>, write: bool) -> Result<Option<*mut T>> {
        ending::refuse_child(&self.pe)?;
        if range.start > range.end {
            return Err(Error::misuse("a range of a region that ends before it begins"));
        }
        if range.end > self.len {
            return Err(Error::OutOfBounds {
                index: range.start,
                count: range.end - range.start,
                len: self.len,
                call: None,
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

    /// Address of a page for this PE.
    fn page_base(&self, page: usize) -> Result<*mut u8> {
        if self.pages.is_some() {
            return Ok(self.pe.local(self.page_at(page)));
        }
        match self.pe.route(self.home(page)?, self.page_at(page)) {
            Route::Near(base) => Ok(base),
            Route::Far(_) => unreachable!("far pages have copies here"),
        }
    }

    /// Address of an element of a range that does not lie together.
    fn element(&self, index: usize) -> *mut T {
        let base =
            self.page_base(index / self.elements_per_page()).expect("its guard has asked for it");
        base.cast::<T>().wrapping_add(index % self.elements_per_page())
    }
}

/// Number of pages for so many bytes of data, and bytes that each PE's part needs for them.
fn size_for(bytes: usize, page: usize, checked: bool) -> Option<(usize, usize)> {
    let count = bytes.div_ceil(page);
    // A word for each byte's writer; and the original pages beside the homes' own copies.
    let checks = if checked { page.checked_mul(8 + 1)? } else { 0 };
    let each = page.checked_add(VERSION_BYTES + HOME_BYTES)?.checked_add(checks)?;
    let size = count.checked_mul(each).filter(|&size| size <= isize::MAX as usize)?;
    Some((count, size))
}

const VERSION_BYTES: usize = 8;
const HOME_BYTES: usize = 8;
