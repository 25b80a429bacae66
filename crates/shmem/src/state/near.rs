//! Symmetric memory on near peers: a first look that is a dozen instructions, where nearly every
//! call ends.
//!
//! Two areas of addresses are known: the heap, and the program's static data. In each, PE `pe`'s
//! counterpart of an address is mapped at `address + bias + pe * stride`. All that is needed stands
//! in one static object, which knows no PE while the library is not initialised, where peers are
//! far, and while all checks are on: then, and for everything unusual, callers take the long way
//! ([`State::spot`](crate::state::library::State::spot)), which also says what is wrong.

use crate::state::handle::Ctx;
use crate::state::inlined::{self, NEAR_PES};
use crate::state::shared::Shared;
use memonet_core::Job;
use memonet_core::polling::PERIOD;
use memonet_core::segment::{Segment, Written};
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// No word of C is larger. A word in the last so many bytes of an area goes the long way.
const WORD: usize = 64;
/// No address of a user's program is near it.
const NOWHERE: usize = 1 << 63;

/// What is known. The C header reads it too (`inline.rs` of the API's table lists the fields, and
/// has their places asserted), and a program that is not position-independent may have it in its
/// own memory: so it is exported, and this library asks the loader where it is.
///
/// # The header's own way
/// Where a program calls `shmem_long_p`, its compiler puts what the function would do in the usual
/// case: what [`word`] does, the store of `rma::p`, and what [`wrote`] does. The address is
/// compared with the same words. `apart` stands for the comparison of the PE's number, as it is 0
/// for every number that is none; and it is the same sum, made beforehand. The store is the same
/// instruction, in an assembly statement that no access moves across, so it is neither torn nor
/// merged with another nor left out; then come the same two marks. Where a comparison fails, the
/// function is called: for an address that is not symmetric, a PE that does not exist, a context of
/// the program's own, and whatever is asked while `apart` holds nothing but zeros. So what the
/// function says or does besides is not lost: on the way that both have in common it says and does
/// nothing else. A put of a word reads its source before it writes, as the function does.
///
/// `apart` is filled unless somebody has put a function of his own in the place of one that the
/// header inlines: a tool that looks on is not passed by. It is written when the library becomes
/// initialised and when it stops being so, between which programs make all their calls; so plain
/// loads in C see what they should.
#[repr(C, align(64))]
pub struct Near {
    pub heap: Area,
    /// What stores are remembered in.
    pub written: AtomicPtr<AtomicU8>,
    pub statics: Area,
    pub stride: AtomicUsize,
    /// 0: nobody is near.
    pub npes: AtomicUsize,
    pub me: AtomicUsize,
    /// For each of the first PEs, one more than its heap is mapped behind this PE's; 0: the header
    /// is not to use it.
    pub apart: [AtomicUsize; NEAR_PES],
}

#[repr(C)]
pub struct Area {
    pub start: AtomicUsize,
    /// Words of at most [`WORD`] bytes may begin up to here, from the start on.
    pub words: AtomicUsize,
    pub bias: AtomicUsize,
}

/// What reads go by: as [`Near`], where each PE has a CPU. Where PEs share CPUs, a program that
/// polls keeps the PE that it waits for from running. So there reads are counted: of each
/// [`PERIOD`] the library sees one, and yields if the program seems to poll.
///
/// The header reads `apart` here. Where the lowest bit is not set, it counts down `left`, by plain
/// accesses that threads may lose, and calls the function when nothing is left. That begins anew.
/// So reads that are not counted take as many instructions as writes.
#[repr(C, align(64))]
pub struct Reads {
    /// Reads until the next one that the library sees.
    pub left: AtomicUsize,
    /// 0: reads are counted, or nobody is near.
    pub npes: AtomicUsize,
    /// As [`Near::apart`]; where reads are counted, one more.
    pub apart: [AtomicUsize; NEAR_PES],
}

/// The segments of the job; null while nothing is found here.
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());

#[unsafe(export_name = "memonet_reads_1")]
static READS: Reads = Reads {
    left: AtomicUsize::new(0),
    npes: AtomicUsize::new(0),
    apart: [const { AtomicUsize::new(0) }; NEAR_PES],
};

#[unsafe(export_name = "memonet_near_1")]
static NEAR: Near = Near {
    heap: Area::nowhere(),
    written: AtomicPtr::new(std::ptr::null_mut()),
    statics: Area::nowhere(),
    stride: AtomicUsize::new(0),
    npes: AtomicUsize::new(0),
    me: AtomicUsize::new(0),
    apart: [const { AtomicUsize::new(0) }; NEAR_PES],
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
pub fn open(job: &Job, segment: &'static Segment, statics: Option<&Shared>) {
    let Some(first) = segment.first() else { return };
    let heap = segment.heap();
    let start = segment.local() as usize + heap.start as usize;
    NEAR.heap.set(start, (heap.end - heap.start) as usize, first, heap.start);
    if let Some(shared) = statics {
        NEAR.statics.set(shared.pages.start, shared.pages.len(), first, shared.offset);
    }
    NEAR.me.store(job.pe(), Ordering::Relaxed);
    NEAR.stride.store(segment.size(), Ordering::Relaxed);
    NEAR.written.store(segment.written().as_ptr().cast_mut(), Ordering::Relaxed);
    SEGMENT.store(std::ptr::from_ref(segment).cast_mut(), Ordering::Release);
    NEAR.npes.store(job.npes(), Ordering::Release);
    let counts_reads = segment.counts_reads();
    if counts_reads {
        READS.left.store(PERIOD as usize, Ordering::Relaxed);
    } else {
        READS.npes.store(job.npes(), Ordering::Release);
    }
    if !inlined::are_replaced() {
        let bias = NEAR.heap.bias.load(Ordering::Relaxed);
        for (pe, (write, read)) in NEAR.apart.iter().zip(&READS.apart).take(job.npes()).enumerate()
        {
            // Distances are whole pages: never one less than 0.
            let apart = bias.wrapping_add(pe * segment.size()).wrapping_add(1);
            write.store(apart, Ordering::Release);
            read.store(apart + usize::from(counts_reads), Ordering::Release);
        }
    }
}

/// From now on nothing is found here.
pub fn close() {
    call_functions();
    NEAR.npes.store(0, Ordering::Release);
    READS.npes.store(0, Ordering::Release);
    SEGMENT.store(std::ptr::null_mut(), Ordering::Release);
    NEAR.statics.start.store(NOWHERE, Ordering::Relaxed);
}

/// From now on programs call the functions.
pub fn call_functions() {
    for apart in NEAR.apart.iter().chain(&READS.apart) {
        apart.store(0, Ordering::Release);
    }
}

/// Where PE `pe`'s counterpart of an address is mapped, if the address lies so in one of the areas:
/// `fits` is told the distance from the area's start, and how far words may begin. For reads, also
/// whether they are counted: that costs those nothing that are not.
#[inline(always)]
fn find<const READS_IT: bool>(
    address: usize,
    pe: c_int,
    fits: impl Fn(usize, usize) -> bool,
) -> Option<(*mut u8, bool)> {
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
    let is_near = |npes: &AtomicUsize| (pe as u32 as usize) < npes.load(Ordering::Relaxed);
    let mut counted = false;
    if !is_near(if READS_IT { &READS.npes } else { &NEAR.npes }) {
        if !READS_IT || !is_near(&NEAR.npes) {
            return None;
        }
        less_often();
        counted = true;
    }
    let part = pe as usize * NEAR.stride.load(Ordering::Relaxed);
    let there = address.wrapping_add(area.bias.load(Ordering::Relaxed)).wrapping_add(part);
    Some((there as *mut u8, counted))
}

/// Has the compiler move what comes after it out of the way.
#[cold]
fn less_often() {}

#[inline(always)]
fn find_word<const READS_IT: bool, T>(
    ctx: Ctx,
    address: *const T,
    pe: c_int,
) -> Option<(*mut T, bool)> {
    const { assert!(size_of::<T>() <= WORD) };
    if ctx != Ctx::DEFAULT {
        return None;
    }
    let (there, counted) = find::<READS_IT>(address as usize, pe, |at, words| at <= words)?;
    Some((there.cast(), counted))
}

#[inline(always)]
fn find_block<const READS_IT: bool>(
    ctx: Ctx,
    address: usize,
    bytes: usize,
    pe: c_int,
) -> Option<(*mut u8, bool)> {
    if ctx != Ctx::DEFAULT {
        return None;
    }
    let (there, counted) = find::<READS_IT>(address, pe, |at, words| {
        at.checked_add(bytes).is_some_and(|end| end <= words)
    })?;
    // One's own, as the program knows it: a copy within it has to find out whether its ends
    // overlap.
    let own = pe as usize == NEAR.me.load(Ordering::Relaxed);
    Some((if own { address as *mut u8 } else { there }, counted))
}

/// Where the word at a symmetric address is mapped.
#[inline(always)]
pub fn word<T>(ctx: Ctx, address: *const T, pe: c_int) -> Option<*mut T> {
    Some(find_word::<false, T>(ctx, address, pe)?.0)
}

/// Where `bytes` at a symmetric address are mapped.
#[inline(always)]
pub fn block(ctx: Ctx, address: usize, bytes: usize, pe: c_int) -> Option<*mut u8> {
    Some(find_block::<false>(ctx, address, bytes, pe)?.0)
}

/// [`word`], to be read; whether [`has_read`] is to be called then.
#[inline(always)]
pub fn word_to_read<T>(ctx: Ctx, address: *const T, pe: c_int) -> Option<(*mut T, bool)> {
    find_word::<true, T>(ctx, address, pe)
}

/// [`block`], to be read; whether [`has_read`] is to be called then.
#[inline(always)]
pub fn block_to_read(ctx: Ctx, address: usize, bytes: usize, pe: c_int) -> Option<(*mut u8, bool)> {
    find_block::<true>(ctx, address, bytes, pe)
}

/// To be called after a store where [`word`] or [`block`] have said.
#[inline(always)]
pub fn wrote(pe: c_int) {
    // SAFETY: the two have found that the library is open and has such a PE; the bytes live as long
    // as the process.
    unsafe { Written::kept(NEAR.written.load(Ordering::Relaxed)).to(pe as usize) };
}

/// Whether reads are counted, where a PE is near.
#[inline(always)]
pub fn counts_reads() -> bool {
    READS.npes.load(Ordering::Relaxed) == 0
}

/// Counts a read at `place`, of what `value` stands for.
#[inline(always)]
pub fn has_read(place: usize, value: impl FnOnce() -> Option<u64>) {
    let left = READS.left.load(Ordering::Relaxed) as isize - 1;
    READS.left.store(left as usize, Ordering::Relaxed);
    if left <= 0
        && let Some(value) = value()
    {
        look_at_read(place, value);
    }
}

#[cold]
#[inline(never)]
fn look_at_read(place: usize, value: u64) {
    READS.left.store(PERIOD as usize, Ordering::Relaxed);
    // SAFETY: null, or a segment that lives as long as the process.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() } {
        segment.has_read(place, value);
    }
}
