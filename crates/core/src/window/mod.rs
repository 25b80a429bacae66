//! Windows: memory of each PE that the other PEs can reach.

pub(crate) mod descriptors;
#[cfg(not(loom))]
pub(crate) mod event;
mod known;
pub(crate) mod local;
pub(crate) mod lock;
pub(crate) mod put;
pub(crate) mod remote;
pub(crate) mod restricted;
pub mod segment;
pub(crate) mod transfer;
pub(crate) mod until;

use crate::base::access::Access;
use crate::base::element::ElementName;
use crate::base::error::{Error, Result};
use crate::base::log::log;
use crate::base::shm::Plain;
use crate::base::shows;
use crate::endpoint::belongs::{Belongs, Owner};
use crate::endpoint::callers;
use crate::endpoint::fabric::FarAddress;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::endpoint::written::Written;
use crate::job::Job;
use crate::job::agree::{Collective, FAILED, KIND_FREE, KIND_RESTRICTED, KIND_WINDOW, UNKNOWN};
use crate::job::heap::KeySlot;
use crate::job::own_heap::OwnHeap;
use crate::job::pages;
use crate::window::descriptors::Socket;
use crate::window::restricted::{Exchange, Hold, OwnPart, Restricted, Rights};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// How [`Job::window_with`] makes a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowOptions {
    access: Access,
    populate: bool,
    element: ElementName,
}

impl WindowOptions {
    /// Other PEs may read and write; pages are made when they are touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// What other PEs may do with a PE's part. The owner may always read and write it.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Makes the pages now, as huge pages where the kernel can.
    pub fn populate(mut self, now: bool) -> Self {
        self.populate = now;
        self
    }

    /// What a front end calls the elements.
    pub fn elements(mut self, name: ElementName) -> Self {
        self.element = name;
        self
    }
}

/// Memory of each PE that the other PEs can reach: `len` elements of plain data on every PE, called
/// that PE's *part*, at the same place of every segment.
///
/// OpenSHMEM: symmetric memory from `shmem_malloc`; MPI: `MPI_Win`.
///
/// [`Job::window`] makes a window, collectively; its elements are zero at first. Handles are cheap
/// to clone. The memory is free for reuse once every PE has dropped its last handle and remote, at
/// the next collective call that makes or frees a window.
///
/// Peers may write at any time, so safe code gets no slices of a window. A PE reads and writes its
/// own part by copies: [`read`](Self::read), [`write`](Self::write),
/// [`read_into`](Self::read_into), [`write_from`](Self::write_from). It reaches other PEs' parts by
/// [`put`](Self::put), [`get`](Self::get), and, one word at a time, [`remote`](Self::remote).
///
/// ```
/// # use memonet_core::Job;
/// # Job::threads(2, |job| -> memonet_core::Result<()> {
/// let window = job.window::<f64>(100)?; // 100 numbers on every PE
/// if job.pe() == 0 {
///     window.put(1, 10, &[2.0, 3.0])?; // elements 10 and 11 of PE 1's part
/// }
/// job.barrier()?;
/// if job.pe() == 1 {
///     assert_eq!((window.read(10), window.read(11)), (2.0, 3.0));
/// }
/// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Window<T> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) reach: Reach,
    /// Set in a view opened by a key: the only PE it reaches, and the key's epoch.
    pub(crate) attached: Option<(usize, u64)>,
    element: PhantomData<fn(T) -> T>,
}

shows!([T] Window<T> as "Window", |it| element = std::any::type_name::<T>(), len = it.reach.bytes / size_of::<T>().max(1), attached = it.attached);

impl<T> Clone for Window<T> {
    fn clone(&self) -> Self {
        Window {
            inner: self.inner.clone(),
            reach: self.reach,
            attached: self.attached,
            element: PhantomData,
        }
    }
}

/// What the hot paths need, in the handle itself: the way to the memory is one load shorter.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// This PE's part.
    pub(crate) local: *mut u8,
    /// Bytes of each part.
    bytes: usize,
    /// PE 0's part; the others follow at a `stride`.
    parts: *mut u8,
    stride: usize,
    /// How many PEs' parts may be read, and written, at that address without asking further: all,
    /// or none.
    readable: usize,
    writable: usize,
    /// Where other PEs are far: the first near PE, and how many from it on may be read, and
    /// written, at that address.
    first: usize,
    node_readable: usize,
    node_writable: usize,
    pub(crate) me: usize,
    written: Written,
}

// SAFETY: addresses in a mapping that the window's `Inner` holds, used only through
// `crate::base::shm`.
unsafe impl Send for Reach {}
// SAFETY: as above.
unsafe impl Sync for Reach {}

/// What all handles of a window share.
pub(crate) struct Inner {
    pub(crate) pe: Arc<Pe>,
    /// For the collective calls.
    world: Arc<crate::team::Team>,
    id: usize,
    bytes: usize,
    access: Access,
    /// This PE's part.
    local: *mut u8,
    place: Place,
    /// Where the program has made it.
    pub(crate) made: &'static Location<'static>,
}

// SAFETY: `local` is an address in a mapping that `pe` or `place` holds, used only through
// `crate::base::shm`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

enum Place {
    /// At this offset of each segment.
    Heap(u64),
    /// In memfds of its own.
    Restricted(Restricted),
}

/// A checked place in somebody's part, and what keeps it valid.
pub(crate) struct Target {
    pub(crate) route: Route,
    pub(crate) hold: Option<Hold>,
}

impl Inner {
    /// A restricted window in key slot 0 without memory.
    #[cfg(all(test, loom))]
    pub(crate) fn bare(pe: Arc<Pe>) -> Result<Self> {
        Ok(Inner {
            world: Arc::new(crate::team::Team::world(&pe)?),
            made: Location::caller(),
            id: 0,
            bytes: 0,
            access: Access::ReadWrite,
            local: std::ptr::null_mut(),
            place: Place::Restricted(Restricted::bare(pe.clone(), 0)),
            pe,
        })
    }

    /// Where it begins in each segment, if that is where it is.
    pub(crate) fn heap_offset(&self) -> Option<u64> {
        match self.place {
            Place::Heap(offset) => Some(offset),
            Place::Restricted(_) => None,
        }
    }

    pub(crate) fn restricted(&self) -> Option<&Restricted> {
        match &self.place {
            Place::Heap(_) => None,
            Place::Restricted(restricted) => Some(restricted),
        }
    }

    /// Resolves bytes of `pe`'s part, which the caller has found to be in range.
    #[inline]
    fn resolve(
        &self,
        pe: usize,
        offset: usize,
        wanted: Access,
        attached: Option<(usize, u64)>,
    ) -> Result<Target> {
        match &self.place {
            Place::Heap(base) => {
                if !self.access.allows(wanted) && pe != self.pe.me() {
                    return self.denied(pe, wanted);
                }
                Ok(Target { route: self.pe.program_route(pe, base + offset as u64), hold: None })
            }
            Place::Restricted(restricted) => {
                restricted.resolve(&self.pe, pe, offset, wanted, attached)
            }
        }
    }
}

impl Inner {
    fn reach(&self) -> Reach {
        let near = match self.place {
            Place::Heap(base) => self.pe.near_parts(base),
            // Each use of a right is counted.
            Place::Restricted(_) => None,
        };
        // Recorded operations go by the recorder.
        let near = near.filter(|_| self.pe.recorder().is_none());
        let (pes, parts, stride) =
            near.map_or((0..0, std::ptr::null_mut(), 0), |near| (near.pes, near.zero, near.stride));
        let count = |wanted| if self.access.allows(wanted) { pes.len() } else { 0 };
        let all = |count| if pes.len() == self.pe.npes() { count } else { 0 };
        let (readable, writable) = (count(Access::Read), count(Access::Write));
        Reach {
            local: self.local,
            bytes: self.bytes,
            parts,
            stride,
            readable: all(readable),
            writable: all(writable),
            first: pes.start,
            node_readable: readable,
            node_writable: writable,
            me: self.pe.me(),
            written: Written::of(&self.pe),
        }
    }

    #[cold]
    fn denied<R>(&self, pe: usize, wanted: Access) -> Result<R> {
        let (wanted, granted) = (wanted.name(), self.access);
        Err(Error::AccessDenied { pe, wanted, granted, call: None })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Before the number may be given to another: what is mapped under it now.
        drop(std::mem::replace(&mut self.place, Place::Heap(0)));
        callers::freed(self.local, self.bytes);
        self.pe.layer::<OwnHeap>().drop_window(self.id);
    }
}

/// Makes the compiler move the code that follows out of the hot path.
#[cold]
fn less_often() {}

impl<T> Belongs for Window<T> {
    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner::of_marks(self.reach.written.as_ptr())
    }
}

impl<T: Plain> Window<T> {
    pub(crate) fn view(inner: Arc<Inner>, attached: Option<(usize, u64)>) -> Self {
        Window { reach: inner.reach(), inner, attached, element: PhantomData }
    }

    /// Number of elements in each PE's part.
    #[allow(clippy::len_without_is_empty, reason = "see is_empty below")]
    #[inline]
    pub fn len(&self) -> usize {
        self.reach.bytes / size_of::<T>()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops this handle, and frees all windows that every PE has dropped. *Collective.*
    ///
    /// OpenSHMEM: `shmem_free`; MPI: `MPI_Win_free`. Dropping a handle suffices, too: the next
    /// collective call that makes a window then frees the memory.
    ///
    /// # Errors
    /// [`Error::Unequal`] when PEs free different windows, [`Error::PeerFailed`].
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let (pe, world, id) =
            (self.inner.pe.clone(), self.inner.world.clone(), self.inner.id as u64);
        pe.waiting_call("Window::free", Some(self.inner.made), || {
            drop(self);
            let mut call = Collective::begin(&pe, &world)?;
            call.agree(Ok([KIND_FREE, id, 0, 0, 0, 0, 0, 0]))?;
            call.close()
        })
    }

    /// Byte offset of `count` elements from `index`, if they are in range.
    #[inline]
    pub(crate) fn range(&self, index: usize, count: usize) -> Result<usize> {
        let len = self.len();
        match index.checked_add(count) {
            Some(end) if end <= len => Ok(index * size_of::<T>()),
            Some(_) => Err(Error::OutOfBounds { index, count, len, call: None }),
            None => Err(Error::Overflow { index, size: size_of::<T>(), call: None }),
        }
    }

    /// [`target`](Self::target) for the common case, in registers: a window of the segments, and a
    /// near PE. Everything else, errors included, is `None`.
    #[inline(always)]
    pub(crate) fn near(
        &self,
        pe: usize,
        index: usize,
        count: usize,
        wanted: Access,
    ) -> Option<*mut u8> {
        let reach = &self.reach;
        let end = index.checked_add(count)?;
        if pe >= wanted.least(reach.readable, reach.writable) {
            less_often();
            // Several nodes.
            let pes = wanted.least(reach.node_readable, reach.node_writable);
            if pe.wrapping_sub(reach.first) >= pes {
                return None;
            }
        }
        if end > self.len() {
            return None;
        }
        Some(reach.parts.wrapping_add(pe * reach.stride + index * size_of::<T>()))
    }

    /// To be called after a write where [`near`](Self::near) has said.
    ///
    /// # Safety
    /// `near` found this PE's part, writable.
    #[inline(always)]
    pub(crate) unsafe fn wrote_near(&self, pe: usize) {
        // SAFETY: where parts are near, there is one for each PE, and this is one of them; `inner`
        // keeps the bytes.
        unsafe { self.reach.written.to(pe) };
    }

    /// [`target`](Self::target) for the common case of another PE that is far, in registers: a
    /// window of the segments. Everything else, errors included, is `None`.
    #[inline(always)]
    pub(crate) fn far(
        &self,
        pe: usize,
        index: usize,
        count: usize,
        wanted: Access,
    ) -> Option<FarAddress> {
        let inner = &*self.inner;
        let Place::Heap(base) = inner.place else { return None };
        let end = index.checked_add(count)?;
        if end > self.len() || pe >= inner.pe.npes() || pe == self.reach.me {
            return None;
        }
        match inner.pe.program_route(pe, base + (index * size_of::<T>()) as u64) {
            Route::Far(at) if inner.access.allows(wanted) => Some(at),
            _ => None,
        }
    }

    /// Resolves `count` elements from `index` of `pe`'s part.
    #[inline]
    pub(crate) fn target(
        &self,
        pe: usize,
        index: usize,
        count: usize,
        wanted: Access,
    ) -> Result<Target> {
        self.inner.pe.check_pe(pe)?;
        let offset = self.range(index, count)?;
        self.inner.resolve(pe, offset, wanted, self.attached)
    }

    /// Resolves a word of `size` bytes at a byte offset of `pe`'s part.
    pub(crate) fn word_target(
        &self,
        pe: usize,
        offset: usize,
        size: usize,
        wanted: Access,
    ) -> Result<Target> {
        self.inner.pe.check_pe(pe)?;
        let end = offset.checked_add(size).ok_or(Error::Overflow {
            index: offset,
            size: 1,
            call: None,
        })?;
        if end > self.inner.bytes {
            return Err(Error::OutOfBounds {
                index: offset,
                count: size,
                len: self.inner.bytes,
                call: None,
            });
        }
        if !offset.is_multiple_of(size) {
            return Err(Error::Misaligned { offset, size, call: None });
        }
        self.inner.resolve(pe, offset, wanted, self.attached)
    }
}

impl Job {
    /// Makes a window of `len` elements on every PE. The elements are zero, and all PEs may read
    /// and write them. *Collective*; ends with a barrier.
    ///
    /// OpenSHMEM: `shmem_calloc`; MPI: `MPI_Win_allocate`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let words = job.window::<u64>(8)?; // 8 words on every PE
    /// assert_eq!((words.len(), words.read(7)), (8, 0));
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Unequal`] when PEs ask for different windows,
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    #[track_caller]
    pub fn window<T: Plain>(&self, len: usize) -> Result<Window<T>> {
        self.make_window("Job::window", len, WindowOptions::new())
    }

    /// [`window`](Self::window) with options. *Collective.*
    ///
    /// # Errors
    /// As for [`window`](Self::window).
    #[track_caller]
    pub fn window_with<T: Plain>(&self, len: usize, options: WindowOptions) -> Result<Window<T>> {
        self.make_window("Job::window_with", len, options)
    }

    #[track_caller]
    fn make_window<T: Plain>(
        &self,
        name: &'static str,
        len: usize,
        options: WindowOptions,
    ) -> Result<Window<T>> {
        let made = Location::caller();
        self.pe.waiting_call(name, None, || {
            let shape = align_of::<T>() as u64;
            let terms = WindowTerms { kind: KIND_WINDOW, shape, more: 0, digest: [0; 2], made };
            self.window_of(terms, len, options, |_| {})
        })
    }

    /// The window of something that is made collectively, on the same terms at all PEs. `start` is
    /// given the offset of the window, zeros by then, before any PE can use it.
    pub(crate) fn window_of<T: Plain>(
        &self,
        terms: WindowTerms,
        len: usize,
        options: WindowOptions,
        start: impl FnOnce(u64),
    ) -> Result<Window<T>> {
        let pe = &self.pe;
        let mut call = Collective::begin(pe, self.world())?;
        let bits = options.access.bits() | u64::from(options.populate) << 8 | terms.more << 16;
        let ([name, row], [first, second]) = (options.element.words(), terms.digest);
        let request = element_bytes::<T>(len)
            .map(|bytes| [terms.kind, bytes as u64, terms.shape, bits, name, row, first, second]);
        call.agree(request)?;
        let bytes = len * size_of::<T>();
        let allocated = call.heap.allocate(bytes as u64, align_of::<T>() as u64);
        // Equal on all PEs, so all of them leave through the same door.
        let allocation = match allocated {
            Ok(allocation) => allocation,
            Err(error) => {
                call.close()?;
                return Err(error);
            }
        };
        let range = &allocation.range;
        let made = || callers::place().map_or_else(|| terms.made.to_string(), str::to_owned);
        log!(Debug, pe.me(), "{bytes} bytes at {:#x} for what is made at {}", range.start, made());
        let inner = Inner {
            pe: pe.clone(),
            world: self.world.clone(),
            id: allocation.id,
            bytes,
            access: options.access,
            local: pe.local(allocation.range.start),
            place: Place::Heap(allocation.range.start),
            made: terms.made,
        };
        pages::open(pe, &allocation.range, &allocation.dirty, options.populate);
        start(allocation.range.start);
        call.close()?;
        callers::made(inner.local, bytes);
        Ok(Window::view(Arc::new(inner), None))
    }

    /// What [`window_of`](Self::window_of) would be called for, when this PE finds that it cannot
    /// be: the others are not to wait.
    pub(crate) fn refuse_window(&self, error: Error) -> Error {
        let refused =
            Collective::begin(&self.pe, self.world()).and_then(|mut call| call.agree(Err(error)));
        refused.expect_err("a refused request is refused")
    }

    /// Makes a restricted window, of which each PE reaches only the parts to which it has a right.
    /// *Collective*; `right` must be the same function on every PE, and is called before anything
    /// else happens.
    ///
    /// `right(home, holder)` says what PE `holder` may do with the part of PE `home`; the home
    /// itself may always read and write. Each part is memory of its own, never part of the job's
    /// memory. A PE maps only the parts to which it has a right, read-only where it may only read.
    /// So a stray store by another PE faults in that PE and leaves the memory untouched.
    /// [`Window::revoke`] takes rights back.
    ///
    /// PEs that are threads of one process ([`Job::threads`]) share an address space: there the
    /// rights are checked, but the processor does not enforce them. Over TCP the home checks them,
    /// and its part goes with its last handle: what others do there afterwards is refused.
    ///
    /// ```
    /// # use memonet_core::{Access, Job};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// // PE 0's part may be written by PE 1 alone; all PEs may read every part.
    /// let log = job.restricted::<u64>(16, |home, holder| match (home, holder) {
    ///     (0, 1) => Access::ReadWrite,
    ///     _ => Access::Read,
    /// })?;
    /// let written = log.put(0, 0, &[7]);
    /// assert_eq!(written.is_ok(), job.pe() < 2);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`window`](Self::window); [`Error::Unequal`] when PEs disagree about the rights.
    #[track_caller]
    pub fn restricted<T: Plain>(
        &self,
        len: usize,
        right: impl Fn(usize, usize) -> Access,
    ) -> Result<Window<T>> {
        self.restricted_of(len, ElementName::default(), right)
    }

    /// For front ends: [`restricted`](Self::restricted), of elements that are called so.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`restricted`](Self::restricted).
    #[track_caller]
    pub fn restricted_of<T: Plain>(
        &self,
        len: usize,
        name: ElementName,
        right: impl Fn(usize, usize) -> Access,
    ) -> Result<Window<T>> {
        let here = Location::caller();
        self.pe.waiting_call("Job::restricted", None, || {
            let n = self.npes();
            // The caller's function is done with before any lock is taken: it may call the job
            // itself.
            let rights = Rights::ask(self.pe(), n, right);
            let mut call = Collective::begin(&self.pe, self.world())?;
            // Bound before anybody sends to it.
            let socket = Socket::of(&self.pe);
            let [name, row] = name.words();
            let request = element_bytes::<T>(len).map(|bytes| {
                let (size, align) = (bytes as u64, align_of::<T>() as u64);
                [KIND_RESTRICTED, size, align, rights.digest, name, row, 0, 0]
            });
            call.agree(request)?;
            let bytes = len * size_of::<T>();
            let KeySlot { id, slot, generation } = match call.heap.allocate_key() {
                Ok(key) => key,
                Err(error) => {
                    call.close()?;
                    return Err(error);
                }
            };
            let made = self.exchange_parts(&call, slot, generation, socket, bytes, &rights)?;
            let mut restricted = match made {
                Ok(restricted) => restricted,
                Err(error) => {
                    self.pe.layer::<OwnHeap>().drop_window(id);
                    call.close()?;
                    return Err(error);
                }
            };
            restricted.close_own_part();
            restricted.learn_grants(&self.pe)?;
            // Grants may be revoked from here on; before, everybody must have read them.
            call.close()?;
            let inner = Inner {
                pe: self.pe.clone(),
                world: self.world.clone(),
                id,
                bytes,
                access: Access::ReadWrite,
                local: restricted.local(),
                place: Place::Restricted(restricted),
                made: here,
            };
            let inner = Arc::new(inner);
            self.pe.register_restricted(&inner);
            Ok(Window::view(inner, None))
        })
    }

    /// Makes this PE's part of a restricted window, and maps the parts to which it has a right. The
    /// outer error ends the call; the inner one is that of a window that not all PEs could make.
    fn exchange_parts(
        &self,
        call: &Collective<'_>,
        slot: usize,
        generation: u64,
        socket: Result<Arc<Socket>>,
        bytes: usize,
        rights: &Rights,
    ) -> Result<Result<Restricted>> {
        // All PEs get the window or none does: they compare the outcome of every step.
        let refused = |error: Option<Error>, pe: usize| {
            Ok(Err(error.unwrap_or_else(|| {
                let there = std::io::Error::other(format!(
                    "PE {pe} could not make or map a part; its own error says why"
                ));
                Error::system("making a restricted window", there, "")
            })))
        };
        call.publish(1, UNKNOWN);
        let made = socket.and_then(|socket| Ok((socket, OwnPart::make(bytes)?)));
        if let Some(pe) = call.failed(0, made.is_ok())? {
            return refused(made.err(), pe);
        }
        let (socket, own) = made?;
        let exchange = Exchange {
            pe: &self.pe,
            socket: &socket,
            slot,
            generation,
            // Other PEs may be waiting for a part that this PE cannot send.
            fail: &|| {
                call.publish(1, FAILED);
                self.pe.wake_all(0..self.npes());
            },
            has_failed: &|pe| Ok(call.outcome(1, pe)? == FAILED),
        };
        let exchanged = Restricted::create(&exchange, bytes, own, rights);
        match call.failed(1, exchanged.is_ok())? {
            Some(pe) => refused(exchanged.err(), pe),
            None => Ok(exchanged),
        }
    }
}

/// What all PEs have to ask for alike, beside a window's length and options.
pub(crate) struct WindowTerms {
    /// One of [`agree`](crate::job::agree)'s kinds.
    pub(crate) kind: u64,
    /// What decides which bytes of the window are accessed as what, as errors name it.
    pub(crate) shape: u64,
    /// What else errors name: up to 48 bits.
    pub(crate) more: u64,
    /// Of all that is asked for. References depend on it.
    pub(crate) digest: [u64; 2],
    /// Where the program makes the window: not compared.
    pub(crate) made: &'static Location<'static>,
}

/// What every mapping is aligned to.
const MOST_ALIGNED: usize = 4096;

pub(crate) fn element_bytes<T>(len: usize) -> Result<usize> {
    if size_of::<T>() == 0 {
        return Err(Error::misuse("elements of windows and channels must have a size"));
    }
    if align_of::<T>() > MOST_ALIGNED {
        return Err(Error::misuse(
            "elements of windows and channels cannot be aligned to more than a page of 4096 bytes",
        ));
    }
    len.checked_mul(size_of::<T>())
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or(Error::Overflow { index: len, size: size_of::<T>(), call: None })
}
