//! Symmetric memory on near peers: a first look that is a dozen instructions, where nearly every call ends.
//!
//! Two areas of addresses are known: the heap, and the program's static data. In each, PE `pe`'s counterpart of an address is mapped at
//! `address + bias + pe * stride`. All that is needed stands in one static object, which knows no PE while the library is not
//! initialised, where peers are far, and while all checks are on: then, and for everything unusual, callers take the long way
//! ([`State::spot`](crate::state::State::spot)), which also says what is wrong.

use crate::handle::Ctx;
use crate::statics::Shared;
use memonet_core::Job;
use memonet_core::segment::{Segment, Written};
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// No word of C is larger. A word in the last so many bytes of an area goes the long way.
const WORD: usize = 64;
/// No address of a user's program is near it.
const NOWHERE: usize = 1 << 63;

#[repr(align(64))]
struct Near {
    heap: Area,
    statics: Area,
    /// 0: nobody is near.
    npes: AtomicU32,
    me: AtomicU32,
    stride: AtomicUsize,
    /// What stores are remembered in.
    written: AtomicPtr<AtomicU8>,
}

struct Area {
    start: AtomicUsize,
    /// Words of at most [`WORD`] bytes may begin up to here, from the start on.
    words: AtomicUsize,
    bias: AtomicUsize,
}

static NEAR: Near = Near {
    heap: Area::nowhere(),
    statics: Area::nowhere(),
    npes: AtomicU32::new(0),
    me: AtomicU32::new(0),
    stride: AtomicUsize::new(0),
    written: AtomicPtr::new(std::ptr::null_mut()),
};

impl Area {
    const fn nowhere() -> Area {
        Area {
            start: AtomicUsize::new(NOWHERE),
            words: AtomicUsize::new(0),
            bias: AtomicUsize::new(0),
        }
    }

    fn set(&self, start: usize, bytes: usize, first: *mut u8, offset: u64) {
        let bias = (first as usize).wrapping_add(offset as usize).wrapping_sub(start);
        self.bias.store(bias, Ordering::Relaxed);
        self.words.store(bytes.saturating_sub(WORD), Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
    }
}

/// From now on, symmetric memory of a job all of whose PEs are near is found here.
pub fn open(job: &Job, segment: &Segment, statics: Option<&Shared>) {
    let Some(first) = segment.first() else { return };
    let heap = segment.heap();
    let start = segment.local() as usize + heap.start as usize;
    NEAR.heap.set(start, (heap.end - heap.start) as usize, first, heap.start);
    if let Some(shared) = statics {
        NEAR.statics.set(shared.pages.start, shared.pages.len(), first, shared.offset);
    }
    NEAR.me.store(job.pe() as u32, Ordering::Relaxed);
    NEAR.stride.store(segment.size(), Ordering::Relaxed);
    NEAR.written.store(segment.written().as_ptr().cast_mut(), Ordering::Relaxed);
    NEAR.npes.store(job.npes() as u32, Ordering::Release);
}

/// From now on nothing is found here.
pub fn close() {
    NEAR.npes.store(0, Ordering::Release);
    NEAR.statics.start.store(NOWHERE, Ordering::Relaxed);
}

/// Where PE `pe`'s counterpart of an address is mapped, if the address lies so in one of the areas: `fits` is told the distance from the area's start,
/// and how far words may begin.
#[inline(always)]
fn find(address: usize, pe: c_int, fits: impl Fn(usize, usize) -> bool) -> Option<*mut u8> {
    let within = |area: &Area| {
        fits(
            address.wrapping_sub(area.start.load(Ordering::Relaxed)),
            area.words.load(Ordering::Relaxed),
        )
    };
    let area = if within(&NEAR.heap) {
        &NEAR.heap
    } else {
        less_often();
        if !within(&NEAR.statics) {
            return None;
        }
        &NEAR.statics
    };
    if pe as u32 >= NEAR.npes.load(Ordering::Relaxed) {
        return None;
    }
    let part = pe as usize * NEAR.stride.load(Ordering::Relaxed);
    Some(address.wrapping_add(area.bias.load(Ordering::Relaxed)).wrapping_add(part) as *mut u8)
}

/// Has the compiler move what comes after it out of the way.
#[cold]
fn less_often() {}

/// Where the word at a symmetric address is mapped.
#[inline(always)]
pub fn word<T>(ctx: Ctx, address: *const T, pe: c_int) -> Option<*mut T> {
    const { assert!(size_of::<T>() <= WORD) };
    if ctx != Ctx::DEFAULT {
        return None;
    }
    Some(find(address as usize, pe, |at, words| at <= words)?.cast())
}

/// Where `bytes` at a symmetric address are mapped.
#[inline(always)]
pub fn block(ctx: Ctx, address: usize, bytes: usize, pe: c_int) -> Option<*mut u8> {
    if ctx != Ctx::DEFAULT {
        return None;
    }
    let there = find(address, pe, |at, words| at.checked_add(bytes).is_some_and(|end| end <= words))?;
    // One's own, as the program knows it: a copy within it has to find out whether its ends overlap.
    let own = pe as u32 == NEAR.me.load(Ordering::Relaxed);
    Some(if own { address as *mut u8 } else { there })
}

/// To be called after a store where [`word`] or [`block`] have said.
#[inline(always)]
pub fn wrote(pe: c_int) {
    // SAFETY: the two have found that the library is open and has such a PE; the bytes live as long as the process.
    unsafe { Written::kept(NEAR.written.load(Ordering::Relaxed)).to(pe as usize) };
}
