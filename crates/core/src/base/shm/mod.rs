//! The one place that touches memory which a peer may write.
//!
//! Other processes read and write this memory at any time, at any width. For Rust (and C) such
//! accesses are data races, words read at another width than they were written are undefined
//! behaviour even when atomic, and a `&T` into such memory is a promise nobody can keep. So every
//! access is a small piece of inline assembly, whose meaning is the processor's and not the
//! language's: the compiler sees an opaque instruction that may read and write any memory, and
//! neither moves other accesses across it nor assumes anything about what it read.
//!
//! | primitive | ordering |
//! |---|---|
//! | [`load`] | acquire: what follows it is read after it |
//! | [`store`] | release: what precedes it is visible before it |
//! | `fetch_add`, `swap`, ... | both, and a full fence on x86 |
//! | [`post`] | as `store`, but only among accesses through this module |
//! | [`copy`] | none inside; whole copies keep their place between loads and stores |
//! | `full_fence` | store-load too |
//!
//! Under loom this module is a model of that memory (`model`); on processors without an assembly
//! file here, and under Miri, it is Rust's atomics.

use zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[path = "x86_64.rs"]
mod imp;
#[cfg(not(any(target_arch = "x86_64", loom)))]
#[path = "portable.rs"]
mod imp;
#[cfg(miri)]
#[path = "portable.rs"]
mod imp;
#[cfg(loom)]
#[path = "model.rs"]
pub mod imp;

/// What processors without an assembly file get, tried on this one.
#[cfg(all(test, target_arch = "x86_64", not(any(loom, miri))))]
#[allow(dead_code, unused_imports)]
#[path = "portable.rs"]
mod portable;

#[cfg(all(test, target_arch = "x86_64", not(any(loom, miri))))]
mod once;

mod futex;
mod threads;
pub(crate) use futex::{announce_barrier, futex_wait, futex_wake, register_membarrier};
pub(crate) use imp::{
    compiler_fence, full_fence, light_fence, pause, prefetch_to_read, prefetch_to_write,
};
pub(crate) use threads::is_single_threaded;

/// Plain data: any bytes are a valid value, no padding, no interior mutability. What windows may
/// hold: numbers, arrays of plain data, and a program's own structures with the attribute
/// `memonet::plain`.
///
/// The attribute stands for `#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]`, of which the
/// crate `zerocopy` (0.8) has the last three, and which a program may write itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data, which other PEs may read and write as bytes",
    label = "not plain data",
    note = "write `#[memonet::plain]` before a structure whose fields are numbers, arrays and other plain structures, without gaps between them",
    note = "references, `Vec`, `String`, `Box`, `bool`, `char` and enumerations are never plain: use indices, arrays and numbers instead"
)]
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}
#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Plain for T {}

/// So many elements of zeros. None of them is on the stack, which may have no room for one.
///
/// # Panics
/// Without memory.
pub(crate) fn zeroed<T: Plain>(count: usize) -> Vec<T> {
    T::new_vec_zeroed(count).unwrap_or_else(|_| {
        panic!("there is no memory for {count} elements of {} bytes", size_of::<T>())
    })
}

mod sealed {
    pub trait Sealed {}
}

/// A word: what one instruction stores, and nobody ever sees torn. 1, 2, 4 or 8 bytes.
pub trait Word: Plain + PartialEq + PartialOrd + std::fmt::Debug + sealed::Sealed {
    /// The value's bytes, zero-extended.
    fn to_bits(self) -> u64;
    /// The inverse of [`to_bits`](Self::to_bits); upper bytes are dropped.
    fn from_bits(bits: u64) -> Self;
}

/// A word on which processors do arithmetic atomically: 4- and 8-byte integers.
pub trait AtomicInt: Word + Eq + Ord {}

macro_rules! words {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Word for $t {
            #[inline(always)]
            fn to_bits(self) -> u64 { self.cast_unsigned_bits() }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self { <$t>::from_unsigned_bits(bits) }
        }
    )*};
}

trait Bits {
    fn cast_unsigned_bits(self) -> u64;
    fn from_unsigned_bits(bits: u64) -> Self;
}
macro_rules! int_bits {
    ($($t:ty => $u:ty),*) => {$(impl Bits for $t {
        #[inline(always)]
        fn cast_unsigned_bits(self) -> u64 { self as $u as u64 }
        #[inline(always)]
        fn from_unsigned_bits(bits: u64) -> Self { bits as $t }
    })*};
}
int_bits!(u8 => u8, i8 => u8, u16 => u16, i16 => u16, u32 => u32, i32 => u32, u64 => u64, i64 => u64, usize => usize, isize => usize);
impl Bits for f32 {
    #[inline(always)]
    fn cast_unsigned_bits(self) -> u64 {
        u64::from(f32::to_bits(self))
    }
    #[inline(always)]
    fn from_unsigned_bits(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
}
impl Bits for f64 {
    #[inline(always)]
    fn cast_unsigned_bits(self) -> u64 {
        f64::to_bits(self)
    }
    #[inline(always)]
    fn from_unsigned_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}
words!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, f32, f64);
impl AtomicInt for u32 {}
impl AtomicInt for i32 {}
impl AtomicInt for u64 {}
impl AtomicInt for i64 {}
impl AtomicInt for usize {}
impl AtomicInt for isize {}

/// The read-modify-write operations of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Add, wrapping.
    Add,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Exchange.
    Swap,
}

impl AtomicOp {
    /// Whether the operation left the word at `old`. An addition of 0 is taken for a change: to
    /// look for it would cost all others.
    #[inline(always)]
    pub fn keeps(self, old: u64, operand: u64) -> bool {
        match self {
            AtomicOp::Add | AtomicOp::Xor => false,
            AtomicOp::And => old & operand == old,
            AtomicOp::Or => old | operand == old,
            AtomicOp::Swap => old == operand,
        }
    }
}

/// Loads a word.
///
/// # Safety
/// `p` is aligned to `T` and points into memory that stays mapped and readable during the call.
#[inline(always)]
pub unsafe fn load<T: Word>(p: *const T) -> T {
    // SAFETY: the caller's promise is what each of these asks for.
    T::from_bits(unsafe {
        match size_of::<T>() {
            1 => imp::load1(p.cast()),
            2 => imp::load2(p.cast()),
            4 => imp::load4(p.cast()),
            _ => imp::load8(p.cast()),
        }
    })
}

/// Stores a word.
///
/// # Safety
/// `p` is aligned to `T` and points into memory that stays mapped and writable during the call.
#[inline(always)]
pub unsafe fn store<T: Word>(p: *mut T, value: T) {
    let bits = value.to_bits();
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match size_of::<T>() {
            1 => imp::store1(p.cast(), bits),
            2 => imp::store2(p.cast(), bits),
            4 => imp::store4(p.cast(), bits),
            _ => imp::store8(p.cast(), bits),
        }
    }
}

/// Stores a word, in order with every other access through this module, but not with plain accesses
/// of the program: the compiler may keep those where they are cheapest. What a remote's store needs
/// and no more; a hot loop of them stays one instruction each.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
pub unsafe fn post<T: Word>(p: *mut T, value: T) {
    let bits = value.to_bits();
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match size_of::<T>() {
            1 => imp::post1(p.cast(), bits),
            2 => imp::post2(p.cast(), bits),
            4 => imp::post4(p.cast(), bits),
            _ => imp::post8(p.cast(), bits),
        }
    }
}

/// Applies `op` to a word of `size` bytes (1, 2, 4 or 8) and returns the old value's bits.
///
/// # Safety
/// `p` is aligned to `size` and points into memory that stays mapped and writable during the call.
#[inline(always)]
pub unsafe fn fetch_op(p: *mut u8, size: usize, op: AtomicOp, operand: u64) -> u64 {
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match op {
            AtomicOp::Add if size == 8 => imp::fetch_add8(p, operand),
            AtomicOp::Add if size == 4 => imp::fetch_add4(p, operand),
            AtomicOp::Swap if size == 8 => imp::swap8(p, operand),
            AtomicOp::Swap if size == 4 => imp::swap4(p, operand),
            _ => {
                // Words of 1 and 2 bytes, and the bitwise operations whose old value is wanted: a
                // loop of compare-and-swap, as the processor has no such instruction.
                let mut old = load_sized(p, size);
                loop {
                    let new = match op {
                        AtomicOp::Add => old.wrapping_add(operand),
                        AtomicOp::And => old & operand,
                        AtomicOp::Or => old | operand,
                        AtomicOp::Xor => old ^ operand,
                        AtomicOp::Swap => operand,
                    };
                    let seen = compare_swap_sized(p, size, old, new);
                    if seen == old {
                        return old;
                    }
                    old = seen;
                }
            }
        }
    }
}

/// Stores `new` if the word of `size` bytes holds `expected`; returns what it held.
///
/// # Safety
/// As for [`fetch_op`].
#[inline(always)]
pub unsafe fn compare_swap_sized(p: *mut u8, size: usize, expected: u64, new: u64) -> u64 {
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match size {
            1 => imp::cas1(p, expected, new),
            2 => imp::cas2(p, expected, new),
            4 => imp::cas4(p, expected, new),
            _ => imp::cas8(p, expected, new),
        }
    }
}

/// Loads a word whose size is known only at run time.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub unsafe fn load_sized(p: *const u8, size: usize) -> u64 {
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match size {
            1 => imp::load1(p),
            2 => imp::load2(p),
            4 => imp::load4(p),
            _ => imp::load8(p),
        }
    }
}

/// Stores a word whose size is known only at run time.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
pub unsafe fn store_sized(p: *mut u8, size: usize, bits: u64) {
    // SAFETY: the caller's promise is the one the primitives ask for.
    unsafe {
        match size {
            1 => imp::store1(p, bits),
            2 => imp::store2(p, bits),
            4 => imp::store4(p, bits),
            _ => imp::store8(p, bits),
        }
    }
}

/// Copies `len` bytes; the ranges may be written by others meanwhile, in which case any mixture of
/// old and new arrives. Each byte is written once. From [`stream_from`] bytes the copy bypasses the
/// caches and is complete, for every later store, when it returns.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, both stay mapped during the call, and they
/// do not overlap.
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise is the one `imp::copy` asks for.
    unsafe { imp::copy(dst, src, len) }
}

/// [`copy`] between ranges that may overlap, by way of private memory.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and both stay mapped during the call.
#[cold]
pub unsafe extern "C" fn move_within(dst: *mut u8, src: *const u8, len: usize) {
    if dst.cast_const() == src {
        return;
    }
    let mut buffer = [0u8; 4096];
    let mut move_part = |at: usize, n: usize| {
        // SAFETY: `at + n <= len`, so both ends lie in the caller's ranges; the buffer is private,
        // and has room for `n`.
        unsafe {
            copy(buffer.as_mut_ptr(), src.add(at), n);
            copy(dst.add(at), buffer.as_ptr(), n);
        }
    };
    let parts = (0..len).step_by(4096).map(|at| (at, 4096.min(len - at)));
    // What is overwritten has been read: towards the source's side.
    if dst.cast_const() < src {
        parts.for_each(|(at, n)| move_part(at, n));
    } else {
        parts.rev().for_each(|(at, n)| move_part(at, n));
    }
}

/// Reads an element: untorn, and in a register, where it is a word's size.
///
/// # Safety
/// `p` is aligned to `T`, and readable for its size; it stays mapped during the call.
#[inline(always)]
pub(crate) unsafe fn read_plain<T: Plain>(p: *const T) -> T {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    if matches!(size_of::<T>(), 1 | 2 | 4 | 8) && align_of::<T>() == size_of::<T>() {
        // SAFETY: the caller promises an aligned word of that size; its low bytes, which come
        // first, are the element's.
        return unsafe { std::mem::transmute_copy(&load_sized(p.cast(), size_of::<T>())) };
    }
    // SAFETY: the caller promises the source; the copy fills all of `value`, and any bytes are a
    // `T`.
    unsafe {
        copy(value.as_mut_ptr().cast(), p.cast(), size_of::<T>());
        value.assume_init()
    }
}

/// Sets `len` bytes to zero.
///
/// # Safety
/// `dst` is writable for `len` bytes and stays mapped during the call.
pub(crate) unsafe fn zero(dst: *mut u8, len: usize) {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(ZEROS.len());
        // SAFETY: `done + n <= len`, so the destination lies in the caller's range; ZEROS is
        // private memory of 4096 bytes.
        unsafe { copy(dst.add(done), ZEROS.as_ptr(), n) };
        done += n;
    }
}

pub use imp::stream_from;

/// Copies between ranges that may overlap.
///
/// # Safety
/// Both are valid for `bytes`.
#[inline(always)]
pub unsafe fn copy_overlapping(to: *mut u8, from: *const u8, bytes: usize) {
    // A word is read before it is written.
    if bytes == 8 || (to as usize).abs_diff(from as usize) >= bytes {
        // SAFETY: the caller's promise; they are apart.
        unsafe { copy(to, from, bytes) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { move_within(to, from, bytes) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn copy_moves_exactly_the_range(len in 0usize..5000, from in 0usize..80, to in 0usize..80, seed: u8) {
            let src: Vec<u8> = (0..len + 160).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            let mut dst = vec![0xEEu8; len + 160];
            // SAFETY: both vectors are 160 bytes longer than `len`, and the offsets stay below 80.
            unsafe { copy(dst.as_mut_ptr().add(to), src.as_ptr().add(from), len) };
            prop_assert_eq!(&dst[to..to + len], &src[from..from + len]);
            prop_assert!(dst[..to].iter().chain(&dst[to + len..]).all(|&b| b == 0xEE));
        }

        #[test]
        fn moves_within_are_moves(len in 0usize..20_000, from in 0usize..9000, to in 0usize..9000) {
            let mut bytes: Vec<u8> = (0..30_000).map(|i| (i * 7 % 251) as u8).collect();
            let mut expected = bytes.clone();
            expected.copy_within(from..from + len, to);
            // SAFETY: both ranges end below 30,000.
            unsafe { move_within(bytes.as_mut_ptr().add(to), bytes.as_ptr().add(from), len) };
            prop_assert!(bytes == expected);
        }

        #[test]
        fn atomics_do_what_integers_do(a: u64, b: u64) {
            let mut cell = a;
            let p = (&raw mut cell).cast::<u8>();
            // SAFETY: `cell` lives on this stack frame, is aligned to 8, and nobody else knows it.
            unsafe {
                for (op, want) in [(AtomicOp::Add, a.wrapping_add(b)), (AtomicOp::And, a & b), (AtomicOp::Or, a | b), (AtomicOp::Xor, a ^ b), (AtomicOp::Swap, b)] {
                    for size in [1usize, 2, 4, 8] {
                        let mask = u64::MAX >> (64 - 8 * size);
                        store_sized(p, 8, a);
                        prop_assert_eq!(fetch_op(p, size, op, b & mask), a & mask);
                        prop_assert_eq!(load_sized(p, size), want & mask);
                        prop_assert_eq!(load_sized(p, 8) & !mask, a & !mask);
                    }
                }
                for size in [1usize, 2, 4, 8] {
                    let mask = u64::MAX >> (64 - 8 * size);
                    store_sized(p, 8, a);
                    prop_assert_eq!(compare_swap_sized(p, size, a & mask, b & mask), a & mask);
                    prop_assert_eq!(load_sized(p, 8), (a & !mask) | (b & mask));
                    prop_assert_eq!(compare_swap_sized(p, size, !b & mask, a & mask), b & mask);
                    prop_assert_eq!(load_sized(p, size), b & mask);
                }
            }
        }
    }

    proptest! {
        #[test]
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        fn portable_copies_move_exactly_the_range(len in 0usize..200, from in 0usize..16, to in 0usize..16) {
            let src: Vec<u8> = (0..232).collect();
            let mut dst = vec![0xEEu8; 232];
            // SAFETY: both vectors are 32 bytes longer than `len`, and the offsets stay below 16.
            unsafe { portable::copy(dst.as_mut_ptr().add(to), src.as_ptr().add(from), len) };
            prop_assert_eq!(&dst[to..to + len], &src[from..from + len]);
            prop_assert!(dst[..to].iter().chain(&dst[to + len..]).all(|&b| b == 0xEE));
        }
    }

    /// Whoever looks at an element while it is copied to sees all or nothing of it, wherever it
    /// comes from.
    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn portable_copies_tear_no_element() {
        use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
        // Aligned to 4, and no more.
        let target = [const { AtomicU32::new(0) }; 4];
        let element = &target[if target.as_ptr().addr().is_multiple_of(8) { 1 } else { 2 }];
        let sources = [[0u8; 8], [0xFF; 8]];
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..400_000 {
                    // SAFETY: four bytes of a source, at any alignment; the element, which others
                    // use as an atomic.
                    unsafe {
                        portable::copy(
                            element.as_ptr().cast(),
                            sources[round % 2].as_ptr().add(round / 2 % 4),
                            4,
                        )
                    };
                }
                ended.store(true, Ordering::Relaxed);
            });
            while !ended.load(Ordering::Relaxed) {
                assert!([0, u32::MAX].contains(&element.load(Ordering::Relaxed)));
            }
        });
    }

    #[test]
    fn streamed_copies_arrive_whole() {
        let len = stream_from().min(64 << 20) + 12345;
        let src: Vec<u8> = (0..len + 7).map(|i| (i * 7 % 251) as u8).collect();
        let mut dst = vec![0u8; len + 64];
        for offset in [0usize, 1, 31] {
            // SAFETY: `offset + len` stays below the vectors' lengths for `dst`, and `7 + len` for
            // `src`.
            unsafe { copy(dst.as_mut_ptr().add(offset), src.as_ptr().add(7), len) };
            assert!(dst[offset..offset + len] == src[7..]);
        }
    }
}
