//! Atomic memory operations: instructions with a lock prefix on near peers.

use crate::state::handle::Ctx;
use crate::state::{check_result, die, get, or_die};
use crate::state::{near, record};
use memonet_core::unstable::segment::Spot;
use memonet_core::unstable::shm::{self, AtomicOp, Word};
use std::ffi::c_int;

/// The address at which the word of a near PE is mapped, if it is aligned.
#[inline(always)]
fn aligned<T: Word>(ctx: Ctx, address: *const T, pe: c_int) -> Option<*mut T> {
    let near = near::word(ctx, address, pe)?;
    (near as usize).is_multiple_of(size_of::<T>()).then_some(near)
}

/// As [`aligned`], where accesses are counted.
fn aligned_to_count<T: Word>(ctx: Ctx, address: *const T, pe: c_int) -> Option<*mut T> {
    let (near, _) = near::word_to_count(ctx, address, pe)?;
    (near as usize).is_multiple_of(size_of::<T>()).then_some(near)
}

#[cold]
fn anywhere<T: Word>(
    call: &'static str,
    argument: &'static str,
    ctx: Ctx,
    address: *const T,
    pe: c_int,
) -> Spot<'static> {
    let (at, size) = (address as usize, size_of::<T>());
    if !at.is_multiple_of(size) {
        die(
            call,
            format_args!(
                "{argument}: {at:#x} is not aligned to the {size} bytes of its type: no atomic works on it"
            ),
        );
    }
    get(call).spot(call, argument, ctx, at, size, pe)
}

#[inline(always)]
fn update<T: Word>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    op: AtomicOp,
    value: T,
    pe: c_int,
) -> T {
    update_near(ctx, dest, op, value, pe)
        .unwrap_or_else(|| update_anywhere(call, ctx, dest, op, value, pe))
}

/// The operations without a result.
#[inline(always)]
fn apply<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, op: AtomicOp, value: T, pe: c_int) {
    if update_near(ctx, dest, op, value, pe).is_none() {
        apply_anywhere(call, ctx, dest, op, value, pe);
    }
}

#[inline(always)]
fn update_near<T: Word>(ctx: Ctx, dest: *mut T, op: AtomicOp, value: T, pe: c_int) -> Option<T> {
    let word = aligned(ctx, dest, pe)?;
    // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
    let old = unsafe { shm::fetch_op(word.cast(), size_of::<T>(), op, value.to_bits()) };
    near::wrote(pe);
    Some(T::from_bits(old))
}

#[cold]
fn update_anywhere<T: Word>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    op: AtomicOp,
    value: T,
    pe: c_int,
) -> T {
    let _call = record::call(call);
    if let Some(word) = aligned_to_count(ctx, dest, pe) {
        // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
        let old = unsafe { shm::fetch_op(word.cast(), size_of::<T>(), op, value.to_bits()) };
        updated(word, old, !op.keeps(old, value.to_bits()), pe);
        return T::from_bits(old);
    }
    or_die(call, anywhere(call, "dest", ctx, dest, pe).fetch_op(op, value))
}

#[cold]
fn apply_anywhere<T: Word>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    op: AtomicOp,
    value: T,
    pe: c_int,
) {
    let _call = record::call(call);
    if aligned_to_count(ctx, dest, pe).is_some() {
        update_anywhere(call, ctx, dest, op, value, pe);
    } else {
        or_die(call, anywhere(call, "dest", ctx, dest, pe).apply(op, value));
    }
}

/// The end of an operation on a near word whose value was `old`, where accesses are counted. An
/// operation that has changed nothing counts as a read.
fn updated<T: Word>(word: *mut T, old: u64, changed: bool, pe: c_int) {
    if changed {
        near::has_written(pe);
    } else {
        near::has_read(word as usize, || Some(old));
    }
}

fn one<T: Word>() -> T {
    T::from_bits(1)
}

#[inline(always)]
pub unsafe fn fetch<T: Word>(call: &'static str, ctx: Ctx, source: *const T, pe: c_int) -> T {
    if let Some((word, counted)) = near::word_to_count(ctx, source, pe)
        && (word as usize).is_multiple_of(size_of::<T>())
    {
        // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
        let value = unsafe { shm::load(word) };
        if counted {
            near::has_read(word as usize, || Some(value.to_bits()));
        }
        return value;
    }
    fetch_anywhere(call, ctx, source, pe)
}

#[cold]
fn fetch_anywhere<T: Word>(call: &'static str, ctx: Ctx, source: *const T, pe: c_int) -> T {
    let _call = record::call(call);
    or_die(call, anywhere(call, "source", ctx, source, pe).fetch())
}

#[inline(always)]
pub unsafe fn set<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) {
    match aligned(ctx, dest, pe) {
        Some(word) => {
            // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
            unsafe { shm::store(word, value) };
            near::wrote(pe);
        }
        None => drop(update(call, ctx, dest, AtomicOp::Swap, value, pe)),
    }
}

#[inline(always)]
pub unsafe fn swap<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) -> T {
    update(call, ctx, dest, AtomicOp::Swap, value, pe)
}

#[inline(always)]
pub unsafe fn compare_swap<T: Word>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    cond: T,
    value: T,
    pe: c_int,
) -> T {
    if let Some(word) = aligned(ctx, dest, pe) {
        // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
        let old = unsafe {
            shm::compare_swap_sized(word.cast(), size_of::<T>(), cond.to_bits(), value.to_bits())
        };
        near::wrote(pe);
        return T::from_bits(old);
    }
    compare_swap_anywhere(call, ctx, dest, cond, value, pe)
}

#[cold]
fn compare_swap_anywhere<T: Word>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    cond: T,
    value: T,
    pe: c_int,
) -> T {
    let _call = record::call(call);
    if let Some(word) = aligned_to_count(ctx, dest, pe) {
        // SAFETY: `word` is aligned, and `near` found that it is symmetric memory of a near PE.
        let old = unsafe {
            shm::compare_swap_sized(word.cast(), size_of::<T>(), cond.to_bits(), value.to_bits())
        };
        updated(word, old, old == cond.to_bits() && old != value.to_bits(), pe);
        return T::from_bits(old);
    }
    or_die(call, anywhere(call, "dest", ctx, dest, pe).compare_swap(cond, value))
}

#[inline(always)]
pub unsafe fn fetch_inc<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, pe: c_int) -> T {
    update(call, ctx, dest, AtomicOp::Add, one(), pe)
}

#[inline(always)]
pub unsafe fn inc<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, pe: c_int) {
    apply(call, ctx, dest, AtomicOp::Add, one(), pe);
}

/// Operations with an operand: with a result, without one, and with a result in a variable. The
/// last complete before they return, which the standard allows.
macro_rules! with_operand {
    ($($fetch:ident $plain:ident $nbi:ident $op:ident;)*) => {$(
        #[inline(always)]
        pub unsafe fn $fetch<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) -> T {
            update(call, ctx, dest, AtomicOp::$op, value, pe)
        }

        #[inline(always)]
        pub unsafe fn $plain<T: Word>(call: &'static str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) {
            apply(call, ctx, dest, AtomicOp::$op, value, pe);
        }

        #[inline(always)]
        pub unsafe fn $nbi<T: Word>(call: &'static str, ctx: Ctx, fetch: *mut T, dest: *mut T, value: T, pe: c_int) {
            check_result(call, "fetch", fetch);
            let old = update(call, ctx, dest, AtomicOp::$op, value, pe);
            // SAFETY: the program's variable.
            unsafe { fetch.write(old) };
        }
    )*};
}

with_operand! {
    fetch_add add fetch_add_nbi Add;
    fetch_and and fetch_and_nbi And;
    fetch_or or fetch_or_nbi Or;
    fetch_xor xor fetch_xor_nbi Xor;
}

pub unsafe fn fetch_nbi<T: Word>(
    call: &'static str,
    ctx: Ctx,
    result: *mut T,
    source: *const T,
    pe: c_int,
) {
    check_result(call, "fetch", result);
    // SAFETY: the program's variable.
    unsafe { result.write(fetch(call, ctx, source, pe)) };
}

pub unsafe fn swap_nbi<T: Word>(
    call: &'static str,
    ctx: Ctx,
    fetch: *mut T,
    dest: *mut T,
    value: T,
    pe: c_int,
) {
    check_result(call, "fetch", fetch);
    // SAFETY: the program's variable.
    unsafe { fetch.write(swap(call, ctx, dest, value, pe)) };
}

pub unsafe fn compare_swap_nbi<T: Word>(
    call: &'static str,
    ctx: Ctx,
    fetch: *mut T,
    dest: *mut T,
    cond: T,
    value: T,
    pe: c_int,
) {
    check_result(call, "fetch", fetch);
    // SAFETY: the program's variable.
    unsafe { fetch.write(compare_swap(call, ctx, dest, cond, value, pe)) };
}

pub unsafe fn fetch_inc_nbi<T: Word>(
    call: &'static str,
    ctx: Ctx,
    fetch: *mut T,
    dest: *mut T,
    pe: c_int,
) {
    check_result(call, "fetch", fetch);
    // SAFETY: the program's variable.
    unsafe { fetch.write(fetch_inc(call, ctx, dest, pe)) };
}
