//! The short way to symmetric memory of near peers: a dozen instructions, which serve nearly every
//! call.
//!
//! The table below covers two areas of addresses: the heap and the program's static data. In each,
//! near PE `pe`'s counterpart of an address is mapped at `address + bias + pe * stride`. The table
//! lists no PE while the library is not initialised, while all checks are on, and while the PE
//! records. Where some PEs are far, it lists the near ones if their numbers follow each other. For
//! PEs that are not listed, and for everything unusual, callers take the long way
//! ([`State::spot`](crate::state::library::State::spot)), which also reports mistakes.

use crate::state::handle::Ctx;
use crate::state::inlined::{self, NEAR_PES};
use crate::state::shared::Shared;
use memonet_core::Job;
use memonet_core::unstable::polling::PERIOD;
use memonet_core::unstable::segment::{Segment, Written};
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// The size in bytes of the largest C type. A word in the last `WORD_BYTES` bytes of an area takes
/// the long way.
const WORD_BYTES: usize = 64;
/// An address that is far from every address of a user's program.
const NOWHERE: usize = 1 << 63;

/// The table of near memory.
///
/// The C header reads it too: `near.rs` of `memonet-shmem-api` lists the fields, and the generated
/// code asserts their offsets. A program that is not position-independent may hold the object in
/// its own memory. Therefore the object is exported, and this library asks the loader for its
/// address.
///
/// # The code that the header inlines
///
/// Where a program calls `shmem_long_p`, its compiler inserts the function's usual case: the work
/// of [`word`], the store of `rma::p`, and the work of [`wrote`]. The inlined code is equivalent to
/// the function:
///
/// * N1: It compares the address with the words that the function compares it with.
/// * N2: `apart` replaces the check of the PE's number, because `apart` is 0 for every number that
///   is not a PE. It also replaces the function's sum, which it holds precomputed.
/// * N3: The store is the function's instruction, in an assembly statement that no access moves
///   across: the compiler neither tears, merges nor drops it. The two marks of [`wrote`] follow.
/// * N4: Where a comparison fails, the inlined code calls the function: for an address that is not
///   symmetric, a PE that does not exist, a context of the program's own, and for everything while
///   `apart` holds zeros.
/// * N5: On the path that both have in common, the function does nothing else. So the inlined code
///   loses no message and no effect. What the function does where accesses are counted is not on
///   that path: there `apart` is even.
/// * N6: A put of a word reads its source before it writes, as the function does.
///
/// `apart` stays zero where a tool has replaced a function that the header inlines, so that the
/// tool sees each call. The library writes `apart` when it becomes initialised and when it is
/// finalised. All calls of a program lie between the two, so plain loads in C suffice.
#[repr(C, align(64))]
pub struct Near {
    pub heap: Area,
    /// The marks that stores set: one byte for all PEs, then one for each.
    pub written: AtomicPtr<AtomicU8>,
    pub statics: Area,
    pub stride: AtomicUsize,
    /// The number of PEs where all are near; 0: accesses are counted, or some PEs are far.
    pub npes: AtomicUsize,
    pub me: AtomicUsize,
    /// For each of the first PEs: the distance in bytes from an address of this PE's heap to its
    /// counterpart, plus 1; where accesses are counted, 1 more. 0, or an even number: the header
    /// must call the function.
    pub apart: [AtomicUsize; NEAR_PES],
}

#[repr(C)]
pub struct Area {
    pub start: AtomicUsize,
    /// The largest distance from the start at which a word of at most [`WORD_BYTES`] bytes may
    /// begin.
    pub words: AtomicUsize,
    pub bias: AtomicUsize,
}

/// The table for accesses that are counted. Where each PE has a CPU, none is, and all follow
/// [`Near`]. Where PEs share CPUs, a program that polls keeps the PE that it waits for from
/// running. There the library counts reads: it looks at one read of each [`PERIOD`], and yields if
/// the program seems to poll. It counts writes, too: another PE may wait for what was written.
///
/// The header reads `apart` here. Where the lowest bit of an entry is 0, the header counts `left`
/// down, by plain accesses; threads may lose counts. It calls the function when `left` reaches 0,
/// and the function restarts the count. So reads that are not counted take as many instructions as
/// writes.
#[repr(C, align(64))]
pub struct Reads {
    /// Reads until the next one that the library sees.
    pub left: AtomicUsize,
    /// The number of PEs where all are near; 0: accesses are not counted, or some PEs are far.
    pub npes: AtomicUsize,
    /// As [`Near::apart`]. An even number: the header counts the read.
    pub apart: [AtomicUsize; NEAR_PES],
}

/// The PEs of this node, where others are far.
struct Node {
    first: AtomicUsize,
    /// 0: none.
    pes: AtomicUsize,
    /// As `pes`, where accesses are counted.
    counted: AtomicUsize,
}

static NODE: Node =
    Node { first: AtomicUsize::new(0), pes: AtomicUsize::new(0), counted: AtomicUsize::new(0) };

/// Writes until the next one that the library looks at, and writes from one look to the next.
/// Threads may lose counts.
static WRITES_LEFT: AtomicUsize = AtomicUsize::new(1);
static WRITES_STEP: AtomicUsize = AtomicUsize::new(1);

/// The segments of the job; null while the table is closed.
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
        self.words.store(bytes.saturating_sub(WORD_BYTES), Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
    }
}

/// Opens the table for a job's near PEs.
pub fn open(job: &Job, segment: &'static Segment, statics: Option<&Shared>) {
    let pes = segment.near_pes();
    if pes.is_empty() {
        return;
    }
    let (zero, heap) = (segment.zero(), segment.heap());
    let start = segment.local() as usize + heap.start as usize;
    NEAR.heap.set(start, (heap.end - heap.start) as usize, zero, heap.start);
    if let Some(shared) = statics {
        NEAR.statics.set(shared.pages.start, shared.pages.len(), zero, shared.offset);
    }
    NEAR.me.store(job.pe(), Ordering::Relaxed);
    NEAR.stride.store(segment.size(), Ordering::Relaxed);
    NEAR.written.store(segment.written().as_ptr().cast_mut(), Ordering::Relaxed);
    NODE.first.store(pes.start, Ordering::Relaxed);
    SEGMENT.store(std::ptr::from_ref(segment).cast_mut(), Ordering::Release);
    let counts = segment.shares_cpu();
    if counts {
        READS.left.store(PERIOD as usize, Ordering::Relaxed);
    }
    let count = match (pes.len() == job.npes(), counts) {
        (true, false) => &NEAR.npes,
        (true, true) => &READS.npes,
        (false, false) => &NODE.pes,
        (false, true) => &NODE.counted,
    };
    count.store(pes.len(), Ordering::Release);
    if !inlined::are_replaced() {
        let bias = NEAR.heap.bias.load(Ordering::Relaxed);
        for pe in pes.take_while(|&pe| pe < NEAR_PES) {
            // Distances are whole pages, so adding 1 never gives 0.
            let apart = bias.wrapping_add(pe * segment.size()).wrapping_add(1);
            let apart = apart + usize::from(counts);
            NEAR.apart[pe].store(apart, Ordering::Release);
            READS.apart[pe].store(apart, Ordering::Release);
        }
    }
}

/// Closes the table: each call takes the long way from now on.
pub fn close() {
    call_functions();
    for count in [&NEAR.npes, &READS.npes, &NODE.pes, &NODE.counted] {
        count.store(0, Ordering::Release);
    }
    SEGMENT.store(std::ptr::null_mut(), Ordering::Release);
    NEAR.statics.start.store(NOWHERE, Ordering::Relaxed);
}

/// This process has private copies of the static data: from now on, accesses to static data take
/// the long way, which knows them.
pub fn has_own_statics() {
    call_functions();
    NEAR.statics.start.store(NOWHERE, Ordering::Relaxed);
}

/// From now on, inlined code calls the functions.
pub fn call_functions() {
    for apart in NEAR.apart.iter().chain(&READS.apart) {
        apart.store(0, Ordering::Release);
    }
}

/// The address at which PE `pe`'s counterpart of an address is mapped, if `fits` accepts the
/// address for one of the areas. `fits` receives the distance from the area's start, and the
/// largest distance at which a word may begin. Where accesses are counted there is one only with
/// `COUNTED`; the flag says whether that is so. Reads that are not counted do not pay for it.
#[inline(always)]
fn find<const COUNTED: bool>(
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
    let is_of_node = |pes: &AtomicUsize| {
        let from_first = (pe as u32 as usize).wrapping_sub(NODE.first.load(Ordering::Relaxed));
        from_first < pes.load(Ordering::Relaxed)
    };
    let mut counted = false;
    if !is_near(&NEAR.npes) {
        less_often();
        if !is_of_node(&NODE.pes) {
            if !COUNTED || !is_near(&READS.npes) && !is_of_node(&NODE.counted) {
                return None;
            }
            counted = true;
        }
    }
    let part = pe as usize * NEAR.stride.load(Ordering::Relaxed);
    let there = address.wrapping_add(area.bias.load(Ordering::Relaxed)).wrapping_add(part);
    Some((there as *mut u8, counted))
}

/// Makes the compiler move the code that follows out of the hot path.
#[cold]
fn less_often() {}

#[inline(always)]
fn find_word<const COUNTED: bool, T>(
    ctx: Ctx,
    address: *const T,
    pe: c_int,
) -> Option<(*mut T, bool)> {
    const { assert!(size_of::<T>() <= WORD_BYTES) };
    if ctx != Ctx::DEFAULT {
        return None;
    }
    let (there, counted) = find::<COUNTED>(address as usize, pe, |at, words| at <= words)?;
    Some((there.cast(), counted))
}

#[inline(always)]
fn find_block<const COUNTED: bool>(
    ctx: Ctx,
    address: usize,
    bytes: usize,
    pe: c_int,
) -> Option<(*mut u8, bool)> {
    if ctx != Ctx::DEFAULT {
        return None;
    }
    let (there, counted) = find::<COUNTED>(address, pe, |at, words| {
        at.checked_add(bytes).is_some_and(|end| end <= words)
    })?;
    // The program's own address for its own memory: a copy within that memory must find out whether
    // source and destination overlap.
    let own = pe as usize == NEAR.me.load(Ordering::Relaxed);
    Some((if own { address as *mut u8 } else { there }, counted))
}

/// The address at which the word of a PE is mapped, where accesses are not counted.
#[inline(always)]
pub fn word<T>(ctx: Ctx, address: *const T, pe: c_int) -> Option<*mut T> {
    Some(find_word::<false, T>(ctx, address, pe)?.0)
}

/// The address at which `bytes` of a PE are mapped, where accesses are not counted.
#[inline(always)]
pub fn block(ctx: Ctx, address: usize, bytes: usize, pe: c_int) -> Option<*mut u8> {
    Some(find_block::<false>(ctx, address, bytes, pe)?.0)
}

/// As [`word`], also where accesses are counted; the flag says whether they are. Then the caller
/// must call [`has_read`] or [`has_written`].
#[inline(always)]
pub fn word_to_count<T>(ctx: Ctx, address: *const T, pe: c_int) -> Option<(*mut T, bool)> {
    find_word::<true, T>(ctx, address, pe)
}

/// As [`block`], also where accesses are counted; the flag says whether they are. Then the caller
/// must call [`has_read`] or [`has_written`].
#[inline(always)]
pub fn block_to_count(
    ctx: Ctx,
    address: usize,
    bytes: usize,
    pe: c_int,
) -> Option<(*mut u8, bool)> {
    find_block::<true>(ctx, address, bytes, pe)
}

/// Marks PE `pe` as written. Callers call it after a store to an address that [`word`] or [`block`]
/// gave.
#[inline(always)]
pub fn wrote(pe: c_int) {
    // SAFETY: `word` or `block`, or its like that counts, found `pe` below `npes`, so the table was
    // open and `written` has a byte for the PE. The bytes live as long as the process.
    unsafe { Written::kept(NEAR.written.load(Ordering::Relaxed)).to(pe as usize) };
}

/// Marks PE `pe` as written, and counts the write: after a store to an address that
/// [`word_to_count`] or [`block_to_count`] gave.
pub fn has_written(pe: c_int) {
    wrote(pe);
    let left = WRITES_LEFT.load(Ordering::Relaxed) as isize - 1;
    WRITES_LEFT.store(left as usize, Ordering::Relaxed);
    if left <= 0 {
        look_at_write();
    }
}

#[cold]
#[inline(never)]
fn look_at_write() {
    // SAFETY: null, or a segment that lives as long as the process.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() } {
        let step = segment.has_written(WRITES_STEP.load(Ordering::Relaxed) as u32) as usize;
        WRITES_STEP.store(step, Ordering::Relaxed);
        WRITES_LEFT.store(step, Ordering::Relaxed);
    }
}

/// Counts a read at `place`; `value` computes a number that stands for the value read.
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
