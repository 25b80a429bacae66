//! The physical limits: plain loads, stores, locked instructions and memcpy on the words that
//! memonet uses, without memonet.

pub mod barrier;
pub mod group;
pub mod libfabric;
pub mod multicast;
pub mod stream;
pub mod udp;

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memonet::{Job, Plain, Window};
use rustix::thread::futex;

/// A shared word that a peer may change.
///
/// # Safety
/// `pointer` is aligned and into a window that stays allocated for `'a`. All other accesses to the
/// word are atomic, and of 64 bits.
pub unsafe fn word<'a>(pointer: *mut u64) -> &'a AtomicU64 {
    // SAFETY: by the contract of this function, the word is aligned, lives for `'a`, and all
    // accesses are atomic.
    unsafe { AtomicU64::from_ptr(pointer) }
}

/// The first element of a window at `pe`, where each PE reaches all of them by memory: a limit that
/// uses it is there at all PEs, or at none.
pub fn near<T: Plain>(job: &Job, window: &Window<T>, pe: usize) -> Option<*mut T> {
    window.near_ptr(pe, 0).filter(|_| job.fabric().is_none())
}

/// A shared word of 32 bits.
///
/// # Safety
/// As for [`word`], with accesses of 32 bits.
pub unsafe fn half_word<'a>(pointer: *mut u32) -> &'a AtomicU32 {
    // SAFETY: by the contract of this function, the word is aligned, lives for `'a`, and all
    // accesses are atomic.
    unsafe { AtomicU32::from_ptr(pointer) }
}

/// Polls until the word is at least `value`.
#[inline(always)]
pub fn poll<const PAUSE: bool>(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) < value {
        if PAUSE {
            std::hint::spin_loop();
        }
    }
}

/// One PE's half of a round trip: PE 0 stores and waits, PE 1 waits and stores.
#[inline(always)]
pub fn trip<const PAUSE: bool>(me: usize, own: &AtomicU64, near: &AtomicU64, value: u64) {
    if me == 0 {
        near.store(value, Ordering::Release);
    }
    poll::<PAUSE>(own, value);
    if me == 1 {
        near.store(value, Ordering::Release);
    }
}

/// libc's memcpy, opaque to the compiler.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap. A peer may read or write the shared
/// range meanwhile.
#[inline(always)]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller grants both ranges. The compiler cannot assume that no peer accesses them:
    // memcpy is opaque to it.
    unsafe { libc::memcpy(black_box(to).cast(), black_box(from).cast(), len) };
}

/// Sleeps while the word holds `seen`; may return early.
pub fn futex_wait(word: &AtomicU32, seen: u32) {
    // An interrupted or refused sleep is a wake-up: every caller polls again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, None);
}

/// Wakes up to `count` sleepers.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // A wake cannot fail on a mapped, aligned word.
    let _ = futex::wake(word, futex::Flags::empty(), count);
}
