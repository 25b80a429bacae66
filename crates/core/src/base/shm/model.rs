#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the counterpart of private files, public for tests alone"
)]
//! A model of shared memory for loom: what is touched becomes a loom atomic.
//!
//! Bytes, pairs and 8-byte words live in cells of 8 bytes, as the library reads the bytes of a
//! barrier eight at a time; a store of less than a cell is a read-modify-write of it that acquires
//! nothing. Words of 4 bytes are cells of their own: nothing reads them at another width, and
//! neighbours in one cell would be ordered with each other.
//!
//! Loads are acquire, stores release, compare-and-swap both; `fetch_add` is also a full fence, as
//! on x86. The ringer's compiler fence and the sleeper's membarrier, which together order the
//! ringer's store before its look at the doorbell, are modelled as what they amount to: a
//! sequentially consistent fence on either side. Sleeps have no time-out here, and no wake-up
//! without a cause, so that a lost wake-up is a deadlock, which loom reports.
//!
//! Loom takes the making of an atomic for a write by the thread that touches it first: a test
//! touches all words that its threads will share before it starts them.

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use loom::sync::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;

/// No copy streams.
pub fn stream_from() -> usize {
    usize::MAX
}

/// By address.
type Table<V> = std::sync::Mutex<HashMap<usize, Arc<V>>>;

loom::lazy_static! {
    static ref CELLS: Table<AtomicU64> = Table::default();
    static ref WORDS: Table<AtomicU32> = Table::default();
    /// The kernel's queue for a word: wakes so far, and who sleeps.
    static ref QUEUES: Table<(Mutex<u64>, Condvar)> = Table::default();
}

fn entry<V>(table: &Table<V>, address: usize, make: impl FnOnce() -> V) -> Arc<V> {
    table.lock().unwrap().entry(address).or_insert_with(|| Arc::new(make())).clone()
}

/// The cell that holds `p`, and by how much to shift.
fn cell(p: *const u8) -> (Arc<AtomicU64>, u32) {
    let address = p as usize;
    let cell = entry(&CELLS, address & !7, || {
        // SAFETY: the address is that of memory of the test's own, which nothing writes; it holds
        // the initial value.
        AtomicU64::new(unsafe { ((address & !7) as *const u64).read() })
    });
    (cell, (address & 7) as u32 * 8)
}

fn word(p: *const u8) -> Arc<AtomicU32> {
    entry(&WORDS, p as usize, || {
        // SAFETY: as in `cell`.
        AtomicU32::new(unsafe { p.cast::<u32>().read() })
    })
}

macro_rules! parts {
    ($($t:ty: $load:ident $store:ident $cas:ident;)*) => {$(
        pub unsafe fn $load(p: *const u8) -> u64 {
            let (cell, shift) = cell(p);
            u64::from((cell.load(Acquire) >> shift) as $t)
        }
        pub unsafe fn $store(p: *mut u8, v: u64) {
            let (cell, shift) = cell(p);
            let _ = cell.fetch_update(Release, Relaxed, |all| Some(all & !(u64::from(<$t>::MAX) << shift) | u64::from(v as $t) << shift));
        }
        pub unsafe fn $cas(p: *mut u8, expected: u64, new: u64) -> u64 {
            let (cell, shift) = cell(p);
            let (Ok(old) | Err(old)) = cell.fetch_update(AcqRel, Acquire, |all| {
                ((all >> shift) as $t == expected as $t).then_some(all & !(u64::from(<$t>::MAX) << shift) | u64::from(new as $t) << shift)
            });
            u64::from((old >> shift) as $t)
        }
    )*};
}
parts! {
    u8: load1 store1 cas1;
    u16: load2 store2 cas2;
}

macro_rules! wholes {
    ($($t:ty, $get:expr; $load:ident $store:ident $cas:ident $add:ident $swap:ident;)*) => {$(
        pub unsafe fn $load(p: *const u8) -> u64 {
            u64::from($get(p).load(Acquire))
        }
        pub unsafe fn $store(p: *mut u8, v: u64) {
            $get(p).store(v as $t, Release);
        }
        pub unsafe fn $cas(p: *mut u8, expected: u64, new: u64) -> u64 {
            let (Ok(old) | Err(old)) = $get(p).compare_exchange(expected as $t, new as $t, AcqRel, Acquire);
            u64::from(old)
        }
        pub unsafe fn $add(p: *mut u8, v: u64) -> u64 {
            let old = $get(p).fetch_add(v as $t, AcqRel);
            fence(SeqCst);
            u64::from(old)
        }
        pub unsafe fn $swap(p: *mut u8, v: u64) -> u64 {
            u64::from($get(p).swap(v as $t, AcqRel))
        }
    )*};
}
wholes! {
    u32, word; load4 store4 cas4 fetch_add4 swap4;
    u64, |p| cell(p).0; load8 store8 cas8 fetch_add8 swap8;
}

pub use {store1 as post1, store2 as post2, store4 as post4, store8 as post8};

pub fn compiler_fence() {
    fence(AcqRel);
}

/// `announce_barrier` reaches into the threads that call this, so it is as strong for them.
pub fn light_fence() {
    fence(SeqCst);
}

pub fn full_fence() {
    fence(SeqCst);
}

pub fn pause() {
    loom::thread::yield_now();
}

/// A hint, which nothing here takes.
#[inline(always)]
pub fn prefetch_to_write(_p: *const u8) {}

/// As [`prefetch_to_write`].
#[inline(always)]
pub fn prefetch_to_read(_p: *const u8) {}

pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let aligned = [dst as usize, src as usize, len].iter().all(|n| n % 8 == 0);
    if aligned {
        for i in (0..len).step_by(8) {
            // SAFETY: the caller promises `len` bytes at both ends.
            unsafe { store8(dst.add(i), load8(src.add(i))) };
        }
        return;
    }
    for i in 0..len {
        // SAFETY: the caller promises `len` bytes at both ends.
        unsafe { store1(dst.add(i), load1(src.add(i))) };
    }
}

fn queue(p: *const u32) -> Arc<(Mutex<u64>, Condvar)> {
    entry(&QUEUES, p as usize, || (Mutex::new(0), Condvar::new()))
}

pub(crate) unsafe fn futex_wait(
    p: *const u32,
    expected: u32,
    _timeout: Option<std::time::Duration>,
) {
    let queue = queue(p);
    // As in the kernel, the comparison and going to sleep are one step with respect to a wake.
    let mut wakes = queue.0.lock().unwrap();
    // SAFETY: the caller promises a word.
    if unsafe { load4(p.cast()) } as u32 == expected {
        let before = *wakes;
        while *wakes == before {
            wakes = queue.1.wait(wakes).unwrap();
        }
    }
}

pub(crate) unsafe fn futex_wake(p: *const u32) {
    let queue = queue(p);
    *queue.0.lock().unwrap() += 1;
    queue.1.notify_all();
}

pub(crate) fn register_membarrier() -> bool {
    true
}

pub(crate) fn announce_barrier(_membarrier: bool) {
    fence(SeqCst);
}
