//! The line between near and far: a resolved address is a pointer or an address on a fabric.

use crate::base::error::Quick;
use crate::base::shm::{self, AtomicOp, Word};
use crate::endpoint::calls;
use crate::endpoint::fabric::{FarAddress, SignalOp};
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder;
use std::panic::Location;

/// A resolved address in a PE's memory. [`Pe::route`] makes it from a checked range; it lives no
/// longer than that range.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// Mapped here.
    Near(*mut u8),
    /// Behind the fabric, or behind the [recorder](crate::endpoint::recorder), which records
    /// operations of the program on memory anywhere.
    Far(FarAddress),
}

// SAFETY: the pointer leads into a mapping that outlives the route, and is used only through
// `crate::base::shm`, which any thread may use.
unsafe impl Send for Route {}
// SAFETY: as above.
unsafe impl Sync for Route {}

impl Pe {
    /// The address of byte `offset` of a PE's segment. The caller has checked both.
    #[inline]
    pub(crate) fn route(&self, pe: usize, offset: u64) -> Route {
        debug_assert!(pe < self.npes() && offset <= self.control().geometry().segment_stride);
        match self.near_segment(pe) {
            Some(segment) => Route::Near(segment.wrapping_add(offset as usize)),
            None => Route::Far(FarAddress { pe: pe as u32, region: 0, offset }),
        }
    }

    /// [`route`](Self::route) for an operation of the program, which is recorded where this PE
    /// records.
    #[inline]
    pub(crate) fn program_route(&self, pe: usize, offset: u64) -> Route {
        self.recorded(pe, self.route(pe, offset))
    }

    /// A route to memory of `pe` for operations of the program.
    #[inline]
    pub(crate) fn recorded(&self, pe: usize, route: Route) -> Route {
        if self.recorder().is_some() { recorder::recorded(pe, route) } else { route }
    }
}

impl Route {
    /// The address `bytes` further on; the caller has checked that it is in the resolved range.
    #[inline]
    pub(crate) fn add(self, bytes: usize) -> Route {
        match self {
            Route::Near(p) => Route::Near(p.wrapping_add(bytes)),
            Route::Far(a) => Route::Far(FarAddress { offset: a.offset + bytes as u64, ..a }),
        }
    }

    /// The route that this one is where nothing is recorded.
    #[inline]
    pub(crate) fn unrecorded(self) -> Route {
        match self {
            Route::Far(at) if recorder::is_recorded(at) => recorder::unrecorded(at),
            _ => self,
        }
    }

    /// The address in this process, if the memory is mapped here.
    #[inline]
    pub(crate) fn mapped(self) -> Option<*mut u8> {
        match self.unrecorded() {
            Route::Near(p) => Some(p),
            Route::Far(_) => None,
        }
    }

    /// A number by which polls of different addresses are told apart: two addresses hardly ever
    /// have one number.
    pub(crate) fn place(self) -> usize {
        match self {
            Route::Near(p) => p as usize,
            Route::Far(at) => {
                at.offset as usize ^ (at.region as usize) << 40 ^ (at.pe as usize) << 48
            }
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn store<T: Word>(self, pe: &Pe, value: T) {
        match self {
            // SAFETY: a route's pointer is mapped, writable and aligned: checked when it was
            // resolved.
            Route::Near(p) => unsafe { shm::store(p.cast::<T>(), value) },
            Route::Far(to) => far_store(pe, to, size_of::<T>(), value.to_bits()),
        }
    }

    /// [`store`](Self::store) without an order against the program's plain accesses.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn post<T: Word>(self, pe: &Pe, value: T) {
        match self {
            // SAFETY: as in `store`.
            Route::Near(p) => unsafe { shm::post(p.cast::<T>(), value) },
            Route::Far(to) => far_store(pe, to, size_of::<T>(), value.to_bits()),
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn load<T: Word>(self, pe: &Pe) -> Quick<T> {
        match self {
            // SAFETY: as in `store`.
            Route::Near(p) => Ok(unsafe { shm::load(p.cast::<T>()) }),
            Route::Far(from) => far_load(pe, from, size_of::<T>()).map(T::from_bits),
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn fetch_op<T: Word>(self, pe: &Pe, op: AtomicOp, operand: T) -> Quick<T> {
        match self {
            Route::Near(p) => {
                // SAFETY: as in `store`.
                Ok(T::from_bits(unsafe { shm::fetch_op(p, size_of::<T>(), op, operand.to_bits()) }))
            }
            Route::Far(at) => {
                far_fetch_op(pe, at, size_of::<T>(), op, operand.to_bits()).map(T::from_bits)
            }
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn compare_swap<T: Word>(self, pe: &Pe, expected: T, new: T) -> Quick<T> {
        match self {
            // SAFETY: as in `store`.
            Route::Near(p) => Ok(T::from_bits(unsafe {
                shm::compare_swap_sized(p, size_of::<T>(), expected.to_bits(), new.to_bits())
            })),
            Route::Far(at) => {
                far_compare_swap(pe, at, size_of::<T>(), expected.to_bits(), new.to_bits())
                    .map(T::from_bits)
            }
        }
    }

    /// Copies `len` bytes to the address; the source may be reused on return.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes, and the route was resolved for `len` bytes, writable.
    #[inline]
    pub(crate) unsafe fn put(self, pe: &Pe, src: *const u8, len: usize) -> Quick<()> {
        match self {
            Route::Near(p) => {
                // SAFETY: the caller promises both ranges. They overlap only if a PE puts onto its
                // own source, which the callers of this exclude.
                unsafe { shm::copy(p, src, len) };
                Ok(())
            }
            // SAFETY: the caller promises the source.
            Route::Far(to) => Ok(unsafe { pe.fabric_of(to).put(to, src, len) }?),
        }
    }

    /// Copies `len` bytes from the address.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes, and the route was resolved for `len` bytes, readable.
    #[inline]
    pub(crate) unsafe fn get(self, pe: &Pe, dst: *mut u8, len: usize) -> Quick<()> {
        match self {
            Route::Near(p) => {
                // SAFETY: the caller promises both ranges.
                unsafe { shm::copy(dst, p, len) };
                Ok(())
            }
            // SAFETY: the caller promises the destination.
            Route::Far(from) => Ok(unsafe { pe.fabric_of(from).get(from, dst, len) }?),
        }
    }

    /// Stores a word by which the library notifies a PE. Near, wakes no PE.
    #[inline(always)]
    pub(crate) fn notify<T: Word>(self, pe: &Pe, value: T) -> Quick<()> {
        match self {
            Route::Near(p) => {
                // SAFETY: as in `store`.
                unsafe { shm::store(p.cast::<T>(), value) };
                Ok(())
            }
            Route::Far(at) => far_notify(pe, at, size_of::<T>(), value.to_bits()),
        }
    }

    /// Copies `len` bytes to the address, and then stores `value` in `word` of that PE, by which
    /// the library notifies it: a PE that sees the value sees the bytes. Near, wakes no PE.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes, both routes were resolved for writing, this one for `len`
    /// bytes, and nothing overlaps.
    #[inline(always)]
    pub(crate) unsafe fn put_and_notify(
        self,
        pe: &Pe,
        src: *const u8,
        len: usize,
        word: Route,
        value: u64,
    ) -> Quick<()> {
        match (self, word) {
            (Route::Far(to), Route::Far(at)) => {
                // SAFETY: the caller promises both ranges.
                Ok(unsafe { pe.fabric().put_notify(to, src, len, at, value) }?)
            }
            _ => {
                // SAFETY: as above. A near copy is visible before every later store.
                unsafe { self.put(pe, src, len)? };
                word.store(pe, value);
                Ok(())
            }
        }
    }

    /// Copies `len` bytes to the address, and then updates the signal word, of the PE that is given
    /// with it: a PE that sees the signal sees the bytes.
    ///
    /// # Safety
    /// As for [`put_and_notify`](Self::put_and_notify).
    pub(crate) unsafe fn put_signal(
        self,
        pe: &Pe,
        src: *const u8,
        len: usize,
        (word, target): (Route, usize),
        op: SignalOp,
        value: u64,
    ) -> Quick<()> {
        match (self, word) {
            (Route::Far(to), Route::Far(at)) => {
                // SAFETY: the caller promises both ranges.
                Ok(unsafe { pe.fabric_of(to).put_signal(to, src, len, at, op, value) }?)
            }
            _ => {
                // SAFETY: as above. A near copy is complete, for every later store, when it
                // returns.
                unsafe { self.put(pe, src, len) }?;
                word.signal(pe, target, op, value)
            }
        }
    }

    /// Updates a signal word and wakes its owner, `target`.
    #[inline(always)]
    pub(crate) fn signal(self, pe: &Pe, target: usize, op: SignalOp, value: u64) -> Quick<()> {
        match self {
            Route::Near(p) => {
                // SAFETY: as in `store`.
                unsafe {
                    match op {
                        SignalOp::Set => shm::store(p.cast::<u64>(), value),
                        SignalOp::Add => {
                            shm::fetch_op(p, 8, AtomicOp::Add, value);
                        }
                    }
                }
                pe.ring(target);
                Ok(())
            }
            Route::Far(to) => far_signal(pe, to, op, value),
        }
    }
}

// Out of line, so that the near path stays one branch and one instruction.

#[cold]
#[inline(never)]
#[track_caller]
fn far_store(pe: &Pe, to: FarAddress, size: usize, bits: u64) {
    let _call = pe.begin_at(to, "Remote::store");
    pe.fabric_of(to).store(to, size, bits);
}

#[cold]
#[inline(never)]
fn far_notify(pe: &Pe, at: FarAddress, size: usize, bits: u64) -> Quick<()> {
    Ok(pe.fabric().notify(at, size, bits)?)
}

#[cold]
#[inline(never)]
fn far_signal(pe: &Pe, to: FarAddress, op: SignalOp, value: u64) -> Quick<()> {
    // SAFETY: a block of no bytes needs no source.
    Ok(unsafe { pe.fabric_of(to).put_signal(to, std::ptr::null(), 0, to, op, value) }?)
}

#[cold]
#[inline(never)]
#[track_caller]
fn far_load(pe: &Pe, from: FarAddress, size: usize) -> Quick<u64> {
    if let Some(recorder) = pe.recorder().filter(|_| recorder::is_recorded(from)) {
        let _call = pe.begin_at(from, "Remote::load");
        return Ok(recorder.load(from, size)?);
    }
    let mut bits = 0u64;
    // SAFETY: `bits` has 8 bytes and `size` is at most 8; memonet runs on little-endian processors
    // only.
    let get = || unsafe { pe.fabric().get(from, (&raw mut bits).cast(), size) };
    calls::within("Remote::load", Some(Location::caller()), None, get)?;
    Ok(bits)
}

#[cold]
#[inline(never)]
#[track_caller]
fn far_fetch_op(pe: &Pe, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Quick<u64> {
    let _call = pe.begin_at(at, name_of(op));
    let ask = || pe.fabric_of(at).fetch_op(at, size, op, operand);
    Ok(calls::within(name_of(op), Some(Location::caller()), None, ask)?)
}

#[cold]
#[inline(never)]
#[track_caller]
fn far_compare_swap(pe: &Pe, at: FarAddress, size: usize, expected: u64, new: u64) -> Quick<u64> {
    let _call = pe.begin_at(at, "Remote::compare_swap");
    let ask = || pe.fabric_of(at).compare_swap(at, size, expected, new);
    Ok(calls::within("Remote::compare_swap", Some(Location::caller()), None, ask)?)
}

/// The call of a [`Remote`](crate::Remote) that makes an atomic.
pub(crate) fn name_of(op: AtomicOp) -> &'static str {
    match op {
        AtomicOp::Add => "Remote::fetch_add",
        AtomicOp::And => "Remote::fetch_and",
        AtomicOp::Or => "Remote::fetch_or",
        AtomicOp::Xor => "Remote::fetch_xor",
        AtomicOp::Swap => "Remote::swap",
    }
}
