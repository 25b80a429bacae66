//! The primitives of [`crate::base::shm`] as Rust atomics: for processors without an assembly file,
//! and for Miri.
//!
//! Mixed-width accesses (the barrier's bytes, read eight at a time; two bytes of a lock's word as
//! one) are beyond what the language defines; every processor this can be compiled for defines
//! them.

use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*, compiler_fence as fence_compiler, fence,
};

/// No copy streams.
pub fn stream_from() -> usize {
    usize::MAX
}

macro_rules! word {
    ($($atomic:ident $t:ty: $load:ident $store:ident $cas:ident;)*) => {$(
        #[inline(always)]
        pub unsafe fn $load(p: *const u8) -> u64 {
            // SAFETY: the caller promises a mapped, aligned word at `p`.
            u64::from(unsafe { $atomic::from_ptr(p.cast_mut().cast()) }.load(Acquire))
        }
        #[inline(always)]
        pub unsafe fn $store(p: *mut u8, v: u64) {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`.
            unsafe { $atomic::from_ptr(p.cast()) }.store(v as $t, Release);
        }
        #[inline(always)]
        pub unsafe fn $cas(p: *mut u8, expected: u64, new: u64) -> u64 {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`.
            let (Ok(old) | Err(old)) = unsafe { $atomic::from_ptr(p.cast()) }.compare_exchange(expected as $t, new as $t, SeqCst, SeqCst);
            u64::from(old)
        }
    )*};
}
word! {
    AtomicU8 u8: load1 store1 cas1;
    AtomicU16 u16: load2 store2 cas2;
    AtomicU32 u32: load4 store4 cas4;
    AtomicU64 u64: load8 store8 cas8;
}

macro_rules! exchange {
    ($($atomic:ident $t:ty: $add:ident $swap:ident;)*) => {$(
        #[inline(always)]
        pub unsafe fn $add(p: *mut u8, v: u64) -> u64 {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`.
            u64::from(unsafe { $atomic::from_ptr(p.cast()) }.fetch_add(v as $t, SeqCst))
        }
        #[inline(always)]
        pub unsafe fn $swap(p: *mut u8, v: u64) -> u64 {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`.
            u64::from(unsafe { $atomic::from_ptr(p.cast()) }.swap(v as $t, SeqCst))
        }
    )*};
}
exchange! {
    AtomicU32 u32: fetch_add4 swap4;
    AtomicU64 u64: fetch_add8 swap8;
}

pub use {store1 as post1, store2 as post2, store4 as post4, store8 as post8};

/// Orders stores before later stores and loads before later loads.
#[inline(always)]
pub fn compiler_fence() {
    fence_compiler(SeqCst);
    fence(AcqRel);
}

/// As `compiler_fence`; `announce_barrier` makes it more where it has to be.
#[inline(always)]
pub fn light_fence() {
    compiler_fence();
}

/// Every earlier store is visible before any later load.
#[inline(always)]
pub fn full_fence() {
    fence(SeqCst);
}

/// Tells the processor that this is a spin loop.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// A hint, which nothing here takes.
#[inline(always)]
pub fn prefetch_to_write(_p: *const u8) {}

/// As [`prefetch_to_write`].
#[inline(always)]
pub fn prefetch_to_read(_p: *const u8) {}

/// Of every word that the destination aligns, in one piece: who waits for an element never sees a
/// part of it.
///
/// # Safety
/// As for [`crate::base::shm::copy`].
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    while done < len {
        let unit =
            (1 << (dst as usize + done).trailing_zeros().min(3)).min(1 << (len - done).ilog2());
        // SAFETY: `done + unit <= len`, so both ends lie in what the caller promises; the
        // destination is a multiple of the unit.
        unsafe {
            let (to, from) = (dst.add(done), src.add(done));
            match unit {
                8 => AtomicU64::from_ptr(to.cast()).store(gather(from, 8), Relaxed),
                4 => AtomicU32::from_ptr(to.cast()).store(gather(from, 4) as u32, Relaxed),
                2 => AtomicU16::from_ptr(to.cast()).store(gather(from, 2) as u16, Relaxed),
                _ => AtomicU8::from_ptr(to).store(gather(from, 1) as u8, Relaxed),
            }
        }
        done += unit;
    }
    fence(AcqRel);
}

/// A word of `unit` bytes (1, 2, 4 or 8), in one piece if it is aligned.
///
/// # Safety
/// `from` is readable for so many.
#[inline(always)]
unsafe fn gather(from: *const u8, unit: usize) -> u64 {
    let p = from.cast_mut();
    // SAFETY: the caller's promise; words are read as such only where they are aligned.
    unsafe {
        match unit {
            _ if !from.addr().is_multiple_of(unit) => {
                let mut bytes = [0; 8];
                for (i, byte) in bytes[..unit].iter_mut().enumerate() {
                    *byte = AtomicU8::from_ptr(p.add(i)).load(Relaxed);
                }
                u64::from_le_bytes(bytes)
            }
            8 => AtomicU64::from_ptr(p.cast()).load(Relaxed),
            4 => u64::from(AtomicU32::from_ptr(p.cast()).load(Relaxed)),
            2 => u64::from(AtomicU16::from_ptr(p.cast()).load(Relaxed)),
            _ => u64::from(AtomicU8::from_ptr(p).load(Relaxed)),
        }
    }
}
