//! Segments by byte offset: the calls of which front ends for other languages are built.
//!
//! Windows are for programs in Rust. A C program has addresses. An address is a byte offset in this
//! PE's segment, and the counterpart of the address at another PE is that offset in its segment. An
//! offset may lie in memory of the library, so every call that takes an offset is unsafe: the
//! caller promises that it lies in memory of the caller's own. [`Segment::at`] checks PE and range
//! once, and gives a [`Spot`], which on near peers is a pointer. A spot follows the contract of
//! remotes and windows.

mod locks;

use crate::base::compare::Cmp;
use crate::base::error::{Error, Result};
use crate::base::layout::ALIGNMENT;
pub use crate::base::memory::page_size;
pub use crate::base::shm::copy_overlapping as copy;
use crate::base::shm::{self, AtomicOp, Word};
use crate::base::shows;
use crate::endpoint::calls;
use crate::endpoint::fabric::{Signal, SignalOp};
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
pub use crate::endpoint::written::Written;
use crate::job::Job;
use crate::job::agree::{Collective, KIND_BLOCK, KIND_FREE_BLOCK, KIND_RESIZE, NO_LIMIT};
use crate::job::own_heap::OwnHeap;
use crate::job::pages;
use crate::sync::lock::AtOnce;
use crate::team::Team;
pub use crate::wait::Words;
use crate::wait::polling;
use crate::wait::pulse;
use crate::wait::{self, Awaiting, Terms};
use std::ops::Range;
use std::sync::Arc;

/// Begins a call of the program that may wait for other PEs, and ends when the result is dropped: a
/// report of long waits names it.
#[inline(always)]
pub fn begin_waiting(call: &'static str) -> Option<calls::Ends> {
    calls::begin(call, None, None)
}

/// Makes a collective call of a team, as a part of such a call.
pub fn of_team<R>(team: &Team, f: impl FnOnce() -> R) -> R {
    team.of_call(f)
}

/// The error of an earlier write, at the end of a collective call.
///
/// # Errors
/// That error.
pub fn surface(team: &Team) -> Result<()> {
    Ok(team.pe().surface_if_far()?)
}

/// The segments of a job, addressed by bytes. Made by [`Job::segment`].
pub struct Segment {
    pe: Arc<Pe>,
    /// This PE's segment.
    local: *mut u8,
    /// The place of PE 0's, where near PEs follow each other; the others' follow at a `stride`.
    zero: *mut u8,
    stride: usize,
    /// The near PEs.
    near: Range<usize>,
    /// The number of PEs where all are near and nothing is recorded; otherwise 0.
    all_near: usize,
    npes: usize,
    /// Offsets of the heap.
    heap: Range<u64>,
    locks: Option<AtOnce>,
}

shows!([] Segment as "Segment", |it| npes = it.npes, near = it.near);

// SAFETY: addresses in the mapping that `pe` keeps, used only through `crate::base::shm`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// What a front end allows blocks to take together. PEs have equal ones.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// The bytes of all blocks together; `None`: as much as there is.
    pub limit: Option<u64>,
    /// Those in use.
    pub used: u64,
}

impl Allowance {
    /// No limit.
    pub const ALL: Allowance = Allowance { limit: None, used: 0 };

    /// Whether it covers so many bytes more.
    fn covers(self, bytes: usize) -> bool {
        self.limit.is_none_or(|limit| self.used.saturating_add(bytes as u64) <= limit)
    }

    /// Its limit, as a word of a request.
    fn word(self) -> u64 {
        self.limit.unwrap_or(NO_LIMIT)
    }
}

impl Job {
    /// The job's segments, addressed by bytes.
    pub fn segment(&self) -> Segment {
        let geometry = self.pe.control().geometry();
        let (near, zero) = self
            .pe
            .near_parts(0)
            .map_or((0..0, std::ptr::null_mut()), |near| (near.pes, near.zero));
        Segment {
            local: self.pe.local(0),
            all_near: match near.len() == self.npes() && self.pe.recorder().is_none() {
                true => near.len(),
                false => 0,
            },
            near,
            zero,
            stride: geometry.segment_stride as usize,
            npes: self.npes(),
            heap: geometry.heap_offset..geometry.globals_offset,
            locks: AtOnce::of(&self.pe),
            pe: self.pe.clone(),
        }
    }

    /// Allocates a block of `bytes` (not 0) at one offset of every segment, aligned to `align` (a
    /// power of two, at most [`ALIGNMENT`]); gives the offset. *Collective*; ends with a barrier.
    /// Where each PE is a process, the address of its own block is aligned too. With `zeroed` the
    /// bytes are zero, otherwise they are anything.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Unequal`] when PEs ask for different blocks,
    /// [`Error::PeerFailed`].
    pub fn allocate(&self, bytes: usize, align: usize, zeroed: bool) -> Result<u64> {
        let allocated = self.allocate_within(bytes, align, zeroed, Allowance::ALL)?;
        Ok(allocated.expect("nothing forbids it"))
    }

    /// [`allocate`](Self::allocate) where a front end has a limit; `None` where that forbids it.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), and [`Error::Unequal`] when PEs have different limits.
    pub fn allocate_within(
        &self,
        bytes: usize,
        align: usize,
        zeroed: bool,
        allowance: Allowance,
    ) -> Result<Option<u64>> {
        let mut call = Collective::begin(&self.pe, self.world())?;
        let possible = if bytes > 0 && align.is_power_of_two() && align as u64 <= ALIGNMENT {
            let zeroed = u64::from(zeroed);
            Ok([KIND_BLOCK, bytes as u64, align as u64, zeroed, allowance.word(), 0, 0, 0])
        } else {
            Err(Error::misuse(
                "a block has at least one byte, and its alignment is a power of two up to 1 GiB",
            ))
        };
        call.agree(possible)?;
        // Equal on all PEs, so all of them leave through the same door: the limit, too, of which
        // no PE may take its leave before the others know that it is theirs.
        if !allowance.covers(bytes) {
            return call.close().map(|()| None);
        }
        let allocated = call.heap.allocate_block(bytes as u64, align as u64);
        if let Ok((range, dirty)) = &allocated {
            let to_zero = if zeroed { dirty.clone() } else { dirty.start..dirty.start };
            pages::open(&self.pe, range, &to_zero, false);
        }
        call.close()?;
        allocated.map(|(range, _)| Some(range.start))
    }

    /// Whether a block of [`allocate`](Self::allocate) has room for so many bytes where it is: the
    /// same at all PEs.
    pub fn fits(&self, offset: u64, bytes: usize) -> bool {
        self.pe.layer::<OwnHeap>().blocks().fits(offset, bytes as u64)
    }

    /// Gives a block of [`allocate`](Self::allocate) another size, not 0, that
    /// [fits](Self::fits) where it is; false where the limit forbids that. *Collective*: begins and
    /// ends with a barrier. What lies in the bytes that it gets is anything.
    ///
    /// # Errors
    /// [`Error::Misuse`] when it does not fit, [`Error::Unequal`] when PEs ask for different sizes
    /// or blocks, or have different limits, [`Error::PeerFailed`].
    pub fn resize(&self, offset: u64, bytes: usize, allowance: Allowance) -> Result<bool> {
        let mut call = Collective::begin(&self.pe, self.world())?;
        let asked = if bytes > 0 && self.fits(offset, bytes) {
            Ok([KIND_RESIZE, bytes as u64, offset, 0, allowance.word(), 0, 0, 0])
        } else {
            Err(Error::misuse("a block keeps its place where it has room for its new size"))
        };
        call.agree(asked)?;
        let allowed = allowance.covers(bytes);
        if allowed && let Some([kept, left]) = call.heap.resize_block(offset, bytes as u64) {
            pages::shorten(&self.pe, &kept, &left);
        }
        call.close()?;
        Ok(allowed)
    }

    /// Frees a block of [`allocate`](Self::allocate). *Collective*: the block is freed when this
    /// PE's writes are complete and all PEs have called.
    ///
    /// # Errors
    /// [`Error::Misuse`] when there is no such block, [`Error::Unequal`] when PEs free different
    /// ones, [`Error::PeerFailed`].
    pub fn release(&self, offset: u64) -> Result<()> {
        let mut call = Collective::begin(&self.pe, self.world())?;
        call.agree(Ok([KIND_FREE_BLOCK, offset, 0, 0, 0, 0, 0, 0]))?;
        let freed = call.heap.free_block(offset);
        if let Some(range) = &freed {
            pages::shut(&self.pe, range);
        }
        call.close()?;
        freed.map(drop).ok_or(Error::misuse(
            "there is no allocated block at this address; was it freed before?",
        ))
    }

    /// The bytes that the program asked for of the allocated block around the byte at `offset`;
    /// `None` where there is no such block.
    pub fn block_around(&self, offset: u64) -> Option<Range<u64>> {
        self.pe.layer::<OwnHeap>().blocks().around(offset)
    }

    /// Offsets at which allocated blocks start.
    pub fn blocks(&self) -> Vec<u64> {
        self.pe.layer::<OwnHeap>().blocks().starts()
    }

    /// The parts of the `bytes` from `offset` on, in this PE's segment, that may hold anything but
    /// zeros, as distances from `offset`.
    ///
    /// # Panics
    /// When the range does not lie in the segment.
    pub fn touched(&self, offset: u64, bytes: usize) -> impl Iterator<Item = Range<usize>> {
        let geometry = self.pe.control().geometry();
        let end = offset.checked_add(bytes as u64).filter(|&end| end <= geometry.segment_stride);
        assert!(
            end.is_some(),
            "{bytes} bytes from {offset} on, in a segment of {}",
            geometry.segment_stride
        );
        let start = geometry.segment(self.pe()) + offset;
        let parts = self.pe.control().mapping().with_pages(start..start + bytes as u64);
        parts.map(move |part| (part.start - start) as usize..(part.end - start) as usize)
    }

    /// Makes this process's static data symmetric: copies the contents of `pages` to the globals of
    /// this PE's segment, from `at` bytes on, and maps these over the pages. Gives their offset in
    /// the segment.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the globals of the segment have no room for the pages from `at`
    /// on; [`Error::System`].
    ///
    /// # Safety
    /// `pages` are whole pages of this process's private writable memory, which no other thread
    /// writes during the call: best, before there are other threads. `touched` says of each page
    /// whether it holds anything but zeros.
    pub unsafe fn share_globals(
        &self,
        pages: Range<usize>,
        at: usize,
        touched: &dyn Fn(usize) -> bool,
    ) -> Result<u64> {
        let geometry = self.pe.control().geometry();
        let end = (at + pages.len()) as u64;
        if end > geometry.globals_size() {
            return Err(Error::OutOfMemory {
                bytes: end,
                capacity: geometry.globals_size(),
                free: geometry.globals_size() - at as u64,
                call: None,
            });
        }
        let offset = geometry.globals_offset + at as u64;
        let page = page_size();
        for start in pages.clone().step_by(page) {
            if touched(start) {
                // SAFETY: the page is readable, as the caller promises; its copy lies in this PE's
                // segment, checked above.
                unsafe {
                    shm::copy(
                        self.pe.local(offset + (start - pages.start) as u64),
                        start as *const u8,
                        page,
                    )
                };
            }
        }
        let file_offset = geometry.segment(self.pe()) + offset;
        // SAFETY: the caller promises private pages that nobody uses in between; from now on they
        // show the copy.
        unsafe { self.pe.control().mapping().map_over(pages, file_offset) }?;
        self.pe.add_range(&(offset..geometry.globals_offset + end));
        Ok(offset)
    }

    /// The first `bytes` of the part for static data come into use, for words of the front end's
    /// own; once, before any PE accesses them.
    pub fn open_globals(&self, bytes: usize) {
        let start = self.pe.control().geometry().globals_offset;
        self.pe.add_range(&(start..start + bytes as u64));
    }
}

impl Segment {
    pub(crate) fn pe(&self) -> &Pe {
        &self.pe
    }

    /// This PE's own segment.
    #[inline(always)]
    pub fn local(&self) -> *mut u8 {
        self.local
    }

    /// Bytes of a segment.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.stride
    }

    /// The near PEs, where they follow each other; otherwise none.
    pub fn near_pes(&self) -> Range<usize> {
        self.near.clone()
    }

    /// The address that PE 0's segment has, or would have if it were near. The segment of each
    /// [near PE](Self::near_pes) is [`size`](Self::size) bytes further on for each PE before it.
    pub fn zero(&self) -> *mut u8 {
        self.zero
    }

    /// The marks of written PEs, in which the caller remembers a store into a near PE's segment
    /// that does not go through a [`Spot`].
    pub fn written(&self) -> Written {
        Written::of(&self.pe)
    }

    /// Wakes PE `pe` if it sleeps: after a signal that did not go through a [`Spot`].
    ///
    /// # Panics
    /// When there is no such PE.
    #[inline(always)]
    pub fn ring(&self, pe: usize) {
        self.pe.ring(pe);
    }

    /// [`Job::quiet`] where it neither waits nor fails, and nobody records it. False: nothing was
    /// done, whatever the reason.
    #[inline(always)]
    pub fn quiet_at_once(&self) -> bool {
        self.pe.quiet_at_once()
    }

    /// [`Job::fence`], likewise.
    #[inline(always)]
    pub fn fence_at_once(&self) -> bool {
        self.pe.fence_at_once()
    }

    /// Offsets of the heap, in which blocks are allocated.
    #[inline]
    pub fn heap(&self) -> Range<u64> {
        self.heap.clone()
    }

    /// The `bytes` from `offset` on, in `pe`'s segment, if there is such a PE and such a range.
    ///
    /// # Safety
    /// While the spot or a part of it is used, the bytes are memory that the caller got from
    /// [`Job::allocate`] and has not released, or that it shared by [`Job::share_globals`]. All
    /// other bytes are words of the library, or shared data to which a guard may have given a
    /// reference.
    #[inline(always)]
    pub unsafe fn at(&self, pe: usize, offset: u64, bytes: usize) -> Option<Spot<'_>> {
        let end = offset.checked_add(bytes as u64)?;
        if end > self.stride as u64 {
            return None;
        }
        let route = match pe < self.all_near {
            true => Route::Near(self.zero.wrapping_add(pe * self.stride + offset as usize)),
            false if pe < self.npes => self.pe.program_route(pe, offset),
            false => return None,
        };
        Some(Spot { owner: &self.pe, pe, bytes, route })
    }

    /// The word of 8 bytes at `offset` of `pe`'s segment, for the front end itself: nobody records
    /// that it is read.
    ///
    /// # Errors
    /// Only on a far PE: what the fabric reports.
    ///
    /// # Panics
    /// When there is no such PE, or no such aligned word.
    pub fn own_word(&self, pe: usize, offset: u64) -> Result<u64> {
        assert!(pe < self.npes && offset.is_multiple_of(8) && offset + 8 <= self.stride as u64);
        Ok(self.pe.route(pe, offset).load(&self.pe)?)
    }

    /// Waits until `look` gives something. `look` reads words of this PE's own memory through
    /// [`shm`]; any PE may write these words.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when any PE dies.
    #[inline(always)]
    pub fn wait<R>(&self, look: impl FnMut() -> Option<R>) -> Result<R> {
        Ok(wait::until(&self.pe, Terms::forever(Awaiting::Word(None)), look)?)
    }

    /// [`wait`](Self::wait) for words that `words` shows as they are then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline(always)]
    pub fn wait_for<R>(
        &self,
        words: impl Fn() -> Words,
        look: impl FnMut() -> Option<R>,
    ) -> Result<R> {
        Ok(wait::until(&self.pe, Terms::forever(Awaiting::Word(Some(&words))), look)?)
    }

    /// Says for a timeline what the next [`wait`](Self::wait) looks at: a word of `bytes` bytes at
    /// this offset of this PE's segment, if it lies there, and its comparison with `value`.
    pub fn note_word(&self, offset: Option<u64>, bytes: usize, cmp: Cmp, value: u64) {
        self.pe.note_word_at(offset, bytes, cmp, value);
    }

    /// Polls once, as [`wait`](Self::wait) does. It also moves other PEs on that depend on this
    /// one, so a program may poll until it succeeds.
    #[inline(always)]
    pub fn test<R>(&self, look: impl FnOnce() -> Option<R>) -> Option<R> {
        wait::test(&self.pe, look)
    }
}

impl Segment {
    /// Whether this PE shares its CPU. Then the caller reports some reads by
    /// [`has_read`](Self::has_read), and writes by [`has_written`](Self::has_written).
    pub fn shares_cpu(&self) -> bool {
        self.pe.polls()
    }

    /// Reports one in [`PERIOD`](crate::wait::polling::PERIOD) reads of near memory that did not go
    /// through a [`Spot`]: its address, and the value. Yields if the program seems to poll.
    pub fn has_read(&self, place: usize, value: u64) {
        polling::look_at_read(&self.pe, place, value);
    }

    /// Reports `writes` writes to near memory that did not go through a [`Spot`]. Gives the number
    /// of writes after which the caller reports again. Lets other PEs have the CPU that may wait
    /// for what was written.
    pub fn has_written(&self, writes: u32) -> u32 {
        pulse::has_written(&self.pe, writes)
    }

    /// Loads a word of this PE's own memory for a program that may do so until the word changes: a
    /// [`test`](Self::test) that succeeds when it has changed.
    ///
    /// # Safety
    /// The word can be read, and is aligned.
    pub unsafe fn poll<T: Word>(&self, word: *const T) -> T {
        // SAFETY: the caller's promise.
        let look = || unsafe { shm::load(word) };
        let mut seen = T::from_bits(0);
        self.test(|| {
            seen = look();
            let polling = polling::of(&self.pe)?;
            polling.is_news(word as usize, seen.to_bits()).then_some(())
        });
        seen
    }
}

/// A checked range of a PE's segment. It may be copied.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    owner: &'a Pe,
    pe: usize,
    bytes: usize,
    route: Route,
}

shows!([] Spot<'_> as "Spot", |it| pe = it.pe, bytes = it.bytes);

impl Spot<'_> {
    /// The `bytes` of this range from `from` on.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn part(&self, from: usize, bytes: usize) -> Self {
        assert!(
            from <= self.bytes && bytes <= self.bytes - from,
            "{bytes} bytes from {from} on, of {}",
            self.bytes
        );
        Spot { bytes, route: self.route.add(from), ..*self }
    }

    /// This memory at another address of this process, so that copies within it see whether their
    /// ends overlap.
    ///
    /// # Safety
    /// The memory is mapped there too, for as long as the spot is used.
    #[must_use]
    pub unsafe fn as_seen_at(&self, address: *mut u8) -> Self {
        match self.route.mapped() {
            Some(_) => Spot { route: self.owner.recorded(self.pe, Route::Near(address)), ..*self },
            None => *self,
        }
    }

    /// Call it after a get of the range into `seen`: it yields if the program seems to poll.
    ///
    /// # Safety
    /// `seen` is readable for as many bytes as the range has.
    pub unsafe fn has_read(&self, seen: *const u8) {
        if polling::is_on()
            // SAFETY: the caller's promise.
            && let Some(value) = unsafe { polling::digest(seen, self.bytes) }
        {
            polling::has_read(self.owner, self.route.place(), value);
        }
    }

    /// Address of the range in this process, if it is mapped.
    #[inline(always)]
    pub fn near(&self) -> Option<*mut u8> {
        self.route.mapped()
    }

    /// The word here. Segments begin at pages, and so do the places of
    /// [`as_seen_at`](Self::as_seen_at): an offset is aligned where its address is.
    #[inline(always)]
    fn word<T: Word>(&self) -> Route {
        let (place, size) = match self.route {
            Route::Near(at) => (at as usize, size_of::<T>()),
            Route::Far(at) => (at.offset as usize, size_of::<T>()),
        };
        assert!(
            size <= self.bytes && place.is_multiple_of(size),
            "no aligned word of {size} bytes among {} at {place:#x}",
            self.bytes
        );
        self.route
    }

    /// Stores a word at the range's start.
    ///
    /// # Panics
    /// When the range is shorter than the word, or not aligned to it; this holds for all calls with
    /// words.
    #[inline(always)]
    pub fn store<T: Word>(&self, value: T) {
        self.word::<T>().store(self.owner, value);
        self.wrote();
    }

    /// Loads the word at the range's start.
    ///
    /// # Errors
    /// Only on a far PE: what the fabric reports; this holds for all calls of a spot.
    #[inline(always)]
    pub fn load<T: Word>(&self) -> Result<T> {
        let value = self.word::<T>().load::<T>(self.owner)?;
        if polling::is_on() {
            polling::has_read(self.owner, self.route.place(), value.to_bits());
        }
        Ok(value)
    }

    /// Loads the word at the range's start as an atomic: in order with other atomics on it, on
    /// every fabric.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn fetch<T: Word>(&self) -> Result<T> {
        match self.route {
            Route::Near(_) => self.load(),
            // An atomic that changes nothing, so that the fabric orders it with its other atomics:
            // it replaces 0 by 0.
            Route::Far(_) => self.compare_swap(T::from_bits(0), T::from_bits(0)),
        }
    }

    /// Updates the word at the range's start atomically; gives what it held.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    #[inline(always)]
    pub fn fetch_op<T: Word>(&self, op: AtomicOp, operand: T) -> Result<T> {
        let old = self.word::<T>().fetch_op(self.owner, op, operand)?;
        self.updated(!op.keeps(old.to_bits(), operand.to_bits()), old);
        Ok(old)
    }

    /// Updates the word at the range's start, of 4 or 8 bytes, atomically. Far, this is a write: it
    /// waits for no answer.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn apply<T: Word>(&self, op: AtomicOp, operand: T) -> Result<()> {
        let Route::Far(at) = self.word::<T>() else {
            return self.fetch_op(op, operand).map(drop);
        };
        self.owner.fabric_of(at).apply(at, size_of::<T>(), op, operand.to_bits())?;
        self.wrote();
        Ok(())
    }

    /// Replaces the word at the range's start by `new` if it holds `expected`, bit for bit; gives
    /// what it held.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    #[inline(always)]
    pub fn compare_swap<T: Word>(&self, expected: T, new: T) -> Result<T> {
        let old = self.word::<T>().compare_swap(self.owner, expected, new)?;
        self.updated(old.to_bits() == expected.to_bits() && old.to_bits() != new.to_bits(), old);
        Ok(old)
    }

    /// The end of an atomic operation, which has found `old`. One that has changed nothing is a
    /// read.
    #[inline(always)]
    fn updated<T: Word>(&self, changed: bool, old: T) {
        if !polling::is_on() {
            self.owner.wrote(self.pe);
        } else if changed {
            self.wrote();
        } else {
            polling::has_read(self.owner, self.route.place(), old.to_bits());
        }
    }

    /// The end of a write.
    #[inline(always)]
    fn wrote(&self) {
        self.owner.wrote(self.pe);
        self.has_written();
    }

    /// Where PEs share CPUs, lets a near PE have the CPU that may wait for what was written.
    #[inline(always)]
    fn has_written(&self) {
        if polling::is_on() && self.near().is_some() {
            pulse::has_written(self.owner, 1);
        }
    }

    /// Copies the bytes at `from` into the range. The source may be reused on return, and may
    /// overlap with the range.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    ///
    /// # Safety
    /// `from` is readable for as many bytes.
    #[inline(always)]
    pub unsafe fn put(&self, from: *const u8) -> Result<()> {
        match self.route {
            // SAFETY: the caller promises the source; the range was checked.
            Route::Near(to) => unsafe { shm::copy_overlapping(to, from, self.bytes) },
            // SAFETY: as above.
            Route::Far(to) => unsafe { self.owner.fabric_of(to).put(to, from, self.bytes) }?,
        }
        self.wrote();
        Ok(())
    }

    /// [`put`](Self::put) of a source that does not change until the next quiet.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    ///
    /// # Safety
    /// As for [`put`](Self::put), until quiet returns.
    #[inline(always)]
    pub unsafe fn put_nbi(&self, from: *const u8) -> Result<()> {
        match self.route {
            // SAFETY: the caller promises the source; the range was checked.
            Route::Near(to) => unsafe { shm::copy_overlapping(to, from, self.bytes) },
            // SAFETY: as above.
            Route::Far(to) => unsafe { self.owner.fabric_of(to).put_nbi(to, from, self.bytes) }?,
        }
        self.wrote();
        Ok(())
    }

    /// Copies the range's bytes to `to`, which may overlap with it.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    ///
    /// # Safety
    /// `to` is writable for as many bytes.
    #[inline(always)]
    pub unsafe fn get(&self, to: *mut u8) -> Result<()> {
        match self.route {
            // SAFETY: the caller promises the destination; the range was checked.
            Route::Near(from) => unsafe { shm::copy_overlapping(to, from, self.bytes) },
            // SAFETY: as above.
            Route::Far(from) => unsafe { self.owner.fabric_of(from).get(from, to, self.bytes) }?,
        }
        Ok(())
    }

    /// Updates the signal word at the range's start, and wakes the PE that owns it.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    #[inline(always)]
    pub fn signal(&self, op: SignalOp, value: u64) -> Result<()> {
        self.word::<u64>().signal(self.owner, self.pe, op, value)?;
        self.has_written();
        Ok(())
    }

    /// [`put`](Self::put), and then [`signal`](Self::signal) of a word of that PE. A PE that sees
    /// the signal sees the bytes.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn put_signal(
        &self,
        from: *const u8,
        signal: &Spot<'_>,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        debug_assert_eq!(self.pe, signal.pe);
        match (self.route, signal.route) {
            (Route::Far(to), Route::Far(word)) => {
                // SAFETY: the caller promises the source; both ranges were checked.
                unsafe {
                    self.owner.fabric_of(to).put_signal(to, from, self.bytes, word, op, value)
                }?;
                Ok(())
            }
            _ => {
                // SAFETY: the caller promises the source.
                unsafe { self.put(from) }?;
                signal.signal(op, value)
            }
        }
    }

    /// The signal of a command whose put goes to a far PE.
    fn far_signal(signal: Option<(&Spot<'_>, SignalOp, u64)>) -> Option<Signal> {
        signal.and_then(|(word, op, value)| match word.route.unrecorded() {
            Route::Far(at) => Some(Signal { at, op, value }),
            Route::Near(_) => None,
        })
    }

    /// Has the fabric keep a command for a [`put_nbi`](Self::put_nbi) or
    /// [`put_signal_nbi`](Self::put_signal_nbi) that is made again and again, or drop it.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn keep_command(
        &self,
        signal: Option<(&Spot<'_>, SignalOp, u64)>,
        kept: bool,
    ) -> Result<()> {
        let Route::Far(to) = self.route.unrecorded() else { return Ok(()) };
        let (fabric, signal) = (self.owner.fabric(), Self::far_signal(signal));
        match kept {
            true => fabric.keep_command(to, self.bytes, signal),
            false => fabric.drop_command(to, self.bytes, signal),
        }
    }

    /// Whether the last put of the kept command is visible; nothing where the fabric tells that of
    /// all puts alone.
    ///
    /// # Errors
    /// The error of the put.
    pub fn command_is_complete(
        &self,
        signal: Option<(&Spot<'_>, SignalOp, u64)>,
    ) -> Result<Option<bool>> {
        let Route::Far(to) = self.route.unrecorded() else { return Ok(None) };
        self.owner.fabric().command_is_complete(to, self.bytes, Self::far_signal(signal))
    }

    /// Completes the last put of the kept command alone; false where the fabric completes all puts
    /// together.
    ///
    /// # Errors
    /// As for [`command_is_complete`](Self::command_is_complete).
    pub fn complete_command(&self, signal: Option<(&Spot<'_>, SignalOp, u64)>) -> Result<bool> {
        let Route::Far(to) = self.route.unrecorded() else { return Ok(false) };
        self.owner.fabric().complete_command(to, self.bytes, Self::far_signal(signal))
    }

    /// [`put_signal`](Self::put_signal) of a source that stays as it is until the next quiet.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    ///
    /// # Safety
    /// As for [`put`](Self::put), until quiet returns.
    pub unsafe fn put_signal_nbi(
        &self,
        from: *const u8,
        signal: &Spot<'_>,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        debug_assert_eq!(self.pe, signal.pe);
        let (Route::Far(to), Route::Far(at)) = (self.route, signal.route) else {
            // SAFETY: the caller promises more than this asks for.
            return unsafe { self.put_signal(from, signal, op, value) };
        };
        // SAFETY: the caller promises the source; both ranges were checked.
        unsafe { self.owner.fabric_of(to).put_signal_nbi(to, from, self.bytes, at, op, value) }
    }
}
