//! Remote memory access: a put copies to the address at which the target's memory is mapped, and a
//! `p` is one store.
//!
//! The long way stands in `extern "C"` functions. They do not unwind, and take their arguments in
//! the registers in which the caller has them. So the short way needs neither a stack frame nor
//! moves. Exported functions end in jumps to them, which leave no frame of the exported function.
//! Therefore the long way stands in the section of exported functions, by which errors and reports
//! find the program's call (`state/caller.rs`).

#![allow(
    improper_ctypes_definitions,
    reason = "this module's own functions, by a convention that suits them: no C program calls them"
)]

use crate::state::handle::Ctx;
use crate::state::{State, bytes, die, get as state, or_die};
use crate::state::{near, record};
use memonet_core::unstable::{polling, segment, shm};
use std::ffi::c_int;

/// Copies to a near PE. Gives false where the caller must take the long way.
///
/// # Safety
/// `source` has `nelems` elements.
#[inline(always)]
unsafe fn put_near<T>(ctx: Ctx, dest: *mut T, source: *const T, nelems: usize, pe: c_int) -> bool {
    if let Some(bytes) = nelems.checked_mul(size_of::<T>())
        && let Some(to) = near::block(ctx, dest as usize, bytes, pe)
    {
        // SAFETY: `near::block` gives `bytes` of a near PE's symmetric memory; the caller promises
        // that the source has as many.
        unsafe {
            if bytes == 8 {
                segment::copy(to, source.cast(), 8);
                near::wrote(pe);
            } else {
                put_block(to, source.cast(), bytes, pe);
            }
        }
        return true;
    }
    false
}

/// The end of each kind of put that is not one word.
///
/// # Safety
/// `to` has `bytes` of PE `pe`'s memory, and `source` has as many.
#[inline(never)]
unsafe extern "C" fn put_block(to: *mut u8, source: *const u8, bytes: usize, pe: c_int) {
    // SAFETY: the caller's promise.
    unsafe { segment::copy(to, source, bytes) };
    near::wrote(pe);
}

/// Copies to a near PE where accesses are counted. Gives false where the caller must take the long
/// way.
///
/// # Safety
/// `source` has `bytes` bytes.
unsafe fn put_counted(ctx: Ctx, dest: usize, source: *const u8, bytes: usize, pe: c_int) -> bool {
    let Some((to, _)) = near::block_to_count(ctx, dest, bytes, pe) else { return false };
    // SAFETY: `near::block_to_count` gives `bytes` of a near PE's symmetric memory; the caller
    // promises that the source has as many.
    unsafe { segment::copy(to, source, bytes) };
    near::has_written(pe);
    true
}

/// The end of a get that is not one word.
///
/// # Safety
/// Both addresses have `bytes` bytes.
#[inline(never)]
unsafe extern "C" fn get_block(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { segment::copy(to, from, bytes) };
}

/// The end of a get that is counted.
///
/// # Safety
/// Both addresses have `bytes` bytes.
#[inline(never)]
unsafe extern "C" fn get_counted(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes == 8 {
            segment::copy(to, from, 8);
        } else {
            segment::copy(to, from, bytes);
        }
        near::has_read(from as usize, || polling::digest(to, bytes));
    }
}

#[inline(always)]
pub unsafe fn put<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: the program's source has `nelems` elements.
    unsafe {
        if !put_near(ctx, dest, source, nelems, pe) {
            put_anywhere(dest, source, nelems, pe, ctx, call);
        }
    }
}

#[cold]
#[unsafe(link_section = "memonet_calls")]
unsafe extern "C" fn put_anywhere<T>(
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
    ctx: Ctx,
    call: &'static str,
) {
    let _call = record::call(call);
    let (state, bytes) = (state(call), bytes::<T>(call, nelems));
    // SAFETY: the program's source has `nelems` elements.
    if unsafe { put_counted(ctx, dest as usize, source.cast(), bytes, pe) } {
        return;
    }
    if bytes > 0 {
        let spot = state.spot(call, "dest", ctx, dest as usize, bytes, pe);
        state.check_local(call, "source", source as usize, bytes);
        // SAFETY: the program's source has `nelems` elements.
        or_die(call, unsafe { spot.put(source.cast()) });
    }
}

#[inline(always)]
pub unsafe fn put_nbi<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: the program's source has `nelems` elements, which the program does not change before
    // its next quiet.
    unsafe {
        if !put_near(ctx, dest, source, nelems, pe) {
            put_nbi_anywhere(dest, source, nelems, pe, ctx, call);
        }
    }
}

#[cold]
#[unsafe(link_section = "memonet_calls")]
unsafe extern "C" fn put_nbi_anywhere<T>(
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
    ctx: Ctx,
    call: &'static str,
) {
    let _call = record::call(call);
    let (state, bytes) = (state(call), bytes::<T>(call, nelems));
    // SAFETY: the program's source has `nelems` elements.
    if unsafe { put_counted(ctx, dest as usize, source.cast(), bytes, pe) } {
        return;
    }
    if bytes > 0 {
        let spot = state.spot(call, "dest", ctx, dest as usize, bytes, pe);
        state.check_local(call, "source", source as usize, bytes);
        // SAFETY: the program's source has `nelems` elements, which the program does not change
        // before its next quiet.
        or_die(call, unsafe { spot.put_nbi(source.cast()) });
    }
}

#[inline(always)]
pub unsafe fn get<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
) {
    if let Some(bytes) = nelems.checked_mul(size_of::<T>())
        && let Some((from, counted)) = near::block_to_count(ctx, source as usize, bytes, pe)
    {
        // SAFETY: `near::block_to_count` gives `bytes` of a near PE's symmetric memory; the
        // program's destination has room for `nelems` elements.
        return unsafe {
            if counted {
                get_counted(dest.cast(), from, bytes);
            } else if bytes == 8 {
                segment::copy(dest.cast(), from, 8);
            } else {
                get_block(dest.cast(), from, bytes);
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { get_anywhere(dest, source, nelems, pe, ctx, call) };
}

#[cold]
#[unsafe(link_section = "memonet_calls")]
unsafe extern "C" fn get_anywhere<T>(
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
    ctx: Ctx,
    call: &'static str,
) {
    let _call = record::call(call);
    let (state, bytes) = (state(call), bytes::<T>(call, nelems));
    if bytes > 0 {
        let spot = state.spot(call, "source", ctx, source as usize, bytes, pe);
        state.check_local(call, "dest", dest as usize, bytes);
        // SAFETY: the program's destination has room for `nelems` elements.
        unsafe {
            or_die(call, spot.get(dest.cast()));
            spot.has_read(dest.cast());
        }
    }
}

/// Completes before it returns, which the standard allows.
#[inline(always)]
pub unsafe fn get_nbi<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: the caller's promise.
    unsafe { get(call, ctx, dest, source, nelems, pe) };
}

#[inline(always)]
pub unsafe fn p<T: Copy>(call: &'static str, ctx: Ctx, dest: *mut T, value: T, pe: c_int) {
    if let Some(to) = near::word(ctx, dest, pe) {
        // N3 and N5 of `Near`: inlined code makes this store and calls for these marks.
        // SAFETY: `near::word` gives a near PE's symmetric object of the value's type.
        unsafe { store(to, value) };
        return near::wrote(pe);
    }
    p_anywhere(dest, value, pe, ctx, call);
}

#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
extern "C" fn p_anywhere<T: Copy>(dest: *mut T, value: T, pe: c_int, ctx: Ctx, call: &'static str) {
    let _call = record::call(call);
    if let Some((to, _)) = near::word_to_count(ctx, dest, pe) {
        // SAFETY: `near::word_to_count` gives a near PE's symmetric object of the value's type.
        unsafe { store(to, value) };
        return near::has_written(pe);
    }
    let spot = state(call).spot(call, "dest", ctx, dest as usize, size_of::<T>(), pe);
    // SAFETY: each arm reads the bytes of `value`, whose size the arm matches.
    unsafe {
        match size_of::<T>() {
            // A member of a packed structure, for example.
            _ if !dest.is_aligned() => or_die(call, spot.put((&raw const value).cast())),
            1 => spot.store::<u8>(std::mem::transmute_copy(&value)),
            2 => spot.store::<u16>(std::mem::transmute_copy(&value)),
            4 => spot.store::<u32>(std::mem::transmute_copy(&value)),
            8 => spot.store::<u64>(std::mem::transmute_copy(&value)),
            _ => or_die(call, spot.put((&raw const value).cast())),
        }
    }
}

#[inline(always)]
pub unsafe fn g<T: Copy>(call: &'static str, ctx: Ctx, source: *const T, pe: c_int) -> T {
    if let Some((from, counted)) = near::word_to_count(ctx, source, pe) {
        // SAFETY: `near::word_to_count` gives a near PE's symmetric object of this type.
        let value = unsafe { load(from) };
        if counted {
            // SAFETY: `value` is a local variable of this size.
            near::has_read(from as usize, || unsafe {
                polling::digest((&raw const value).cast(), size_of::<T>())
            });
        }
        return value;
    }
    g_anywhere(source, pe, ctx, call)
}

#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
extern "C" fn g_anywhere<T: Copy>(source: *const T, pe: c_int, ctx: Ctx, call: &'static str) -> T {
    let _call = record::call(call);
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    let to = value.as_mut_ptr();
    // SAFETY: `value` has room for one element, and each way fills it or ends the job.
    unsafe {
        let word = || state(call).spot(call, "source", ctx, source as usize, size_of::<T>(), pe);
        match size_of::<T>() {
            // A member of a packed structure, for example.
            _ if !source.is_aligned() => get_anywhere(to, source, 1, pe, ctx, call),
            1 => to.cast::<u8>().write(or_die(call, word().load::<u8>())),
            2 => to.cast::<u16>().write(or_die(call, word().load::<u16>())),
            4 => to.cast::<u32>().write(or_die(call, word().load::<u32>())),
            8 => to.cast::<u64>().write(or_die(call, word().load::<u64>())),
            _ => get_anywhere(to, source, 1, pe, ctx, call),
        }
        value.assume_init()
    }
}

/// Stores a value; a word is never torn.
///
/// # Safety
/// `to` can be written.
#[inline(always)]
unsafe fn store<T: Copy>(to: *mut T, value: T) {
    // SAFETY: the caller promises that `to` can be written; each arm reads the bytes of `value`,
    // whose size the arm matches.
    unsafe {
        match size_of::<T>() {
            1 => shm::store::<u8>(to.cast(), std::mem::transmute_copy(&value)),
            2 => shm::store::<u16>(to.cast(), std::mem::transmute_copy(&value)),
            4 => shm::store::<u32>(to.cast(), std::mem::transmute_copy(&value)),
            8 => shm::store::<u64>(to.cast(), std::mem::transmute_copy(&value)),
            _ => shm::copy(to.cast(), (&raw const value).cast(), size_of::<T>()),
        }
    }
}

/// Loads a value; a word is never torn.
///
/// # Safety
/// `from` can be read.
#[inline(always)]
unsafe fn load<T: Copy>(from: *const T) -> T {
    // SAFETY: the caller promises that `from` can be read; `T` is a C type, so any bytes are a
    // value.
    unsafe {
        match size_of::<T>() {
            1 => std::mem::transmute_copy(&shm::load::<u8>(from.cast())),
            2 => std::mem::transmute_copy(&shm::load::<u16>(from.cast())),
            4 => std::mem::transmute_copy(&shm::load::<u32>(from.cast())),
            8 => std::mem::transmute_copy(&shm::load::<u64>(from.cast())),
            _ => {
                let mut value = std::mem::MaybeUninit::<T>::uninit();
                shm::copy(value.as_mut_ptr().cast(), from.cast(), size_of::<T>());
                value.assume_init()
            }
        }
    }
}

/// The layout of the elements of a strided call. All distances are in bytes.
struct Strides {
    bytes: usize,
    blocks: usize,
    remote: usize,
    local: usize,
    /// From the first remote byte to the end of the last remote block.
    span: usize,
}

impl Strides {
    fn new<T>(
        call: &'static str,
        [remote, local]: [(&str, isize); 2],
        block: usize,
        blocks: usize,
    ) -> Strides {
        let least = isize::try_from(block).unwrap_or(isize::MAX).max(1);
        for (name, stride) in [remote, local] {
            if stride < least {
                die(
                    call,
                    format_args!(
                        "{name}: a stride of {stride} elements; it must be {least} at least, so that none overlap"
                    ),
                );
            }
        }
        let bytes = bytes::<T>(call, block);
        // With one block, no stride is used, so it may wrap. With several, the check of the span
        // also covers the stride.
        let step = |stride: isize| (stride as usize).wrapping_mul(size_of::<T>());
        let last = (remote.1 as usize).checked_mul(blocks.saturating_sub(1));
        let span = last.and_then(|last| last.checked_mul(size_of::<T>())?.checked_add(bytes));
        Strides {
            bytes,
            blocks,
            remote: step(remote.1),
            local: step(local.1),
            span: span.unwrap_or_else(|| {
                die(call, "nelems: so many elements at this stride are more than memory can hold")
            }),
        }
    }

    /// Calls `copy` for each block, with its place in the remote array and in the local one.
    fn each(&self, mut copy: impl FnMut(usize, usize)) {
        for block in 0..self.blocks {
            copy(block * self.remote, block * self.local);
        }
    }
}

fn scatter(
    state: &'static State,
    call: &'static str,
    ctx: Ctx,
    dest: usize,
    source: *const u8,
    strides: &Strides,
    pe: c_int,
) {
    if strides.blocks == 0 || strides.bytes == 0 {
        return;
    }
    let whole = state.spot(call, "dest", ctx, dest, strides.span, pe);
    strides.each(|_, here| {
        state.check_local(call, "source", (source as usize).wrapping_add(here), strides.bytes)
    });
    strides.each(|there, here| {
        // SAFETY: the blocks lie in the span, which was checked; the program's source has as many
        // at its stride.
        or_die(call, unsafe { whole.part(there, strides.bytes).put(source.add(here)) })
    });
}

fn gather(
    state: &'static State,
    call: &'static str,
    ctx: Ctx,
    dest: *mut u8,
    source: usize,
    strides: &Strides,
    pe: c_int,
) {
    if strides.blocks == 0 || strides.bytes == 0 {
        return;
    }
    let whole = state.spot(call, "source", ctx, source, strides.span, pe);
    strides.each(|_, here| {
        state.check_local(call, "dest", (dest as usize).wrapping_add(here), strides.bytes)
    });
    strides.each(|there, here| {
        // SAFETY: the blocks lie in the span, which was checked; the program's destination has as
        // many at its stride.
        or_die(call, unsafe { whole.part(there, strides.bytes).get(dest.add(here)) })
    });
}

pub unsafe fn iput<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: the caller's promise.
    unsafe { ibput(call, ctx, dest, source, dst, sst, 1, nelems, pe) };
}

pub unsafe fn iget<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    pe: c_int,
) {
    // SAFETY: the caller's promise.
    unsafe { ibget(call, ctx, dest, source, dst, sst, 1, nelems, pe) };
}

pub unsafe fn ibput<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    bsize: usize,
    nblocks: usize,
    pe: c_int,
) {
    let _call = record::call(call);
    let state = state(call);
    scatter(
        state,
        call,
        ctx,
        dest as usize,
        source.cast(),
        &Strides::new::<T>(call, [("dst", dst), ("sst", sst)], bsize, nblocks),
        pe,
    );
}

pub unsafe fn ibget<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    bsize: usize,
    nblocks: usize,
    pe: c_int,
) {
    let _call = record::call(call);
    let state = state(call);
    gather(
        state,
        call,
        ctx,
        dest.cast(),
        source as usize,
        &Strides::new::<T>(call, [("sst", sst), ("dst", dst)], bsize, nblocks),
        pe,
    );
}
