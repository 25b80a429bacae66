//! Signals: a put of a block and of the word that announces it.

use crate::state::handle::Ctx;
use crate::state::{State, bytes, die, get, or_die};
use crate::state::{near, record};
use memonet_core::SignalOp;
use memonet_core::unstable::segment;
use memonet_core::unstable::segment::Spot;
use memonet_core::unstable::shm::{self, AtomicOp};
use std::ffi::c_int;

/// The operation of a `SHMEM_SIGNAL_...` constant. Ends the job for another number.
pub fn op(call: &'static str, sig_op: c_int) -> SignalOp {
    match sig_op {
        0 => SignalOp::Set,
        1 => SignalOp::Add,
        _ => die(
            call,
            format_args!("sig_op: {sig_op} is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD"),
        ),
    }
}

/// When the program may change the source of a put.
#[derive(Clone, Copy)]
enum Source {
    /// As soon as the call returns.
    Copied,
    /// After the next quiet.
    Kept,
}

pub unsafe fn put_signal<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    sig_addr: *mut u64,
    signal: u64,
    sig_op: c_int,
    pe: c_int,
) {
    let to = (sig_addr, signal, sig_op);
    // SAFETY: the caller's promise.
    unsafe { put(call, ctx, dest, (source, Source::Copied), nelems, to, pe) };
}

#[inline(always)]
unsafe fn put<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    (source, kind): (*const T, Source),
    nelems: usize,
    (sig_addr, signal, sig_op): (*mut u64, u64, c_int),
    pe: c_int,
) {
    let (state, op) = (get(call), op(call, sig_op));
    let bytes = bytes::<T>(call, nelems);
    if let Some(to) = near::block(ctx, dest as usize, bytes, pe)
        && let Some(word) = near_word(ctx, sig_addr, pe)
    {
        // SAFETY: `near::block` gives `bytes` of a near PE's symmetric memory; the program's source
        // has `nelems` elements.
        unsafe { segment::copy(to, source.cast(), bytes) };
        return update(state, word, op, signal, pe);
    }
    // SAFETY: the caller's promise.
    unsafe {
        put_signal_anywhere(
            call,
            ctx,
            (dest.cast(), (source.cast(), kind), bytes),
            (sig_addr, op, signal),
            pe,
        )
    };
}

/// The address at which an aligned signal word of a near PE is mapped.
#[inline(always)]
fn near_word(ctx: Ctx, sig_addr: *mut u64, pe: c_int) -> Option<*mut u64> {
    near::word(ctx, sig_addr, pe).filter(|word| word.is_aligned())
}

/// A signal word of a near or far PE. Ends the job if it is not aligned or not symmetric.
#[cold]
pub fn word(call: &'static str, ctx: Ctx, sig_addr: *mut u64, pe: c_int) -> Spot<'static> {
    if !sig_addr.is_aligned() {
        die(
            call,
            format_args!(
                "sig_addr: {sig_addr:p} is not aligned to the 8 bytes of a signal: use a variable of type uint64_t"
            ),
        );
    }
    get(call).spot(call, "sig_addr", ctx, sig_addr as usize, 8, pe)
}

/// Updates the mapped signal word of a near PE, and wakes the PE.
#[inline(always)]
fn update(state: &State, word: *mut u64, op: SignalOp, signal: u64, pe: c_int) {
    // SAFETY: `near_word` gave the address of an aligned symmetric word of a near PE.
    unsafe {
        match op {
            SignalOp::Set => shm::store(word, signal),
            SignalOp::Add => drop(shm::fetch_op(word.cast(), 8, AtomicOp::Add, signal)),
        }
    }
    state.segment.ring(pe as usize);
}

#[cold]
unsafe fn put_signal_anywhere(
    call: &'static str,
    ctx: Ctx,
    (dest, (source, kind), bytes): (*mut u8, (*const u8, Source), usize),
    (sig_addr, op, signal): (*mut u64, SignalOp, u64),
    pe: c_int,
) {
    let _call = record::call(call);
    let state = get(call);
    let word = word(call, ctx, sig_addr, pe);
    if bytes == 0 {
        return or_die(call, word.signal(op, signal));
    }
    let spot = state.spot(call, "dest", ctx, dest as usize, bytes, pe);
    state.check_local(call, "source", source as usize, bytes);
    // SAFETY: the program's source has `bytes` bytes, and stays as it is for as long as its kind
    // says.
    let put = unsafe {
        match kind {
            Source::Copied => spot.put_signal(source, &word, op, signal),
            Source::Kept => spot.put_signal_nbi(source, &word, op, signal),
        }
    };
    or_die(call, put);
}

pub unsafe fn put_signal_nbi<T: Copy>(
    call: &'static str,
    ctx: Ctx,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    sig_addr: *mut u64,
    signal: u64,
    sig_op: c_int,
    pe: c_int,
) {
    let to = (sig_addr, signal, sig_op);
    // SAFETY: the caller's promise.
    unsafe { put(call, ctx, dest, (source, Source::Kept), nelems, to, pe) };
}

#[inline(always)]
fn signal_word(
    call: &'static str,
    ctx: Ctx,
    sig_addr: *mut u64,
    op: SignalOp,
    signal: u64,
    pe: c_int,
) {
    let state = get(call);
    match near_word(ctx, sig_addr, pe) {
        Some(word) => update(state, word, op, signal, pe),
        None => signal_anywhere(call, ctx, sig_addr, op, signal, pe),
    }
}

#[cold]
fn signal_anywhere(
    call: &'static str,
    ctx: Ctx,
    sig_addr: *mut u64,
    op: SignalOp,
    signal: u64,
    pe: c_int,
) {
    let _call = record::call(call);
    or_die(call, word(call, ctx, sig_addr, pe).signal(op, signal));
}

pub unsafe fn add(call: &'static str, ctx: Ctx, sig_addr: *mut u64, signal: u64, pe: c_int) {
    signal_word(call, ctx, sig_addr, SignalOp::Add, signal, pe);
}

pub unsafe fn set(call: &'static str, ctx: Ctx, sig_addr: *mut u64, signal: u64, pe: c_int) {
    signal_word(call, ctx, sig_addr, SignalOp::Set, signal, pe);
}

pub unsafe fn fetch(call: &'static str, sig_addr: *const u64) -> u64 {
    // SAFETY: the program's own signal word.
    unsafe { get(call).segment.poll(sig_addr) }
}

pub unsafe fn wait_until(
    call: &'static str,
    sig_addr: *mut u64,
    cmp: c_int,
    cmp_value: u64,
) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { crate::calls::sync::wait_for(call, "sig_addr", sig_addr, cmp, cmp_value) }
}
