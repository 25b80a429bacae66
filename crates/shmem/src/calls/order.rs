//! Order and completion. All contexts share one order: near, a context has nothing of its own to
//! order.

use crate::state::handle::Ctx;
use crate::state::{contexts, current, get, or_die, record};
use memonet_core::unstable::segment::Segment;
use std::ffi::c_int;

/// Whether the context is valid: calls on the invalid context do nothing.
#[inline(always)]
fn is_valid(call: &'static str, ctx: Ctx) -> bool {
    match ctx {
        Ctx::DEFAULT => true,
        Ctx::INVALID => false,
        _ => {
            contexts::get(call, ctx);
            true
        }
    }
}

/// The segments, for what is done at once with a context that there is.
#[inline(always)]
fn segment(ctx: Ctx) -> Option<&'static Segment> {
    let is_there = ctx == Ctx::DEFAULT || contexts::is_there(ctx);
    current().filter(|_| is_there).map(|state| &state.segment)
}

#[inline(always)]
pub unsafe fn fence(call: &'static str, ctx: Ctx) {
    if !segment(ctx).is_some_and(Segment::fence_at_once) {
        fence_slowly(call, ctx);
    }
}

#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
fn fence_slowly(call: &'static str, ctx: Ctx) {
    let _call = record::brief(call);
    let state = get(call);
    if is_valid(call, ctx) {
        or_die(call, state.job.fence());
    }
}

#[inline(always)]
pub unsafe fn quiet(call: &'static str, ctx: Ctx) {
    if !segment(ctx).is_some_and(Segment::quiet_at_once) {
        quiet_slowly(call, ctx);
    }
}

#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
fn quiet_slowly(call: &'static str, ctx: Ctx) {
    let _call = record::call(call);
    let state = get(call);
    if is_valid(call, ctx) {
        or_die(call, state.job.quiet());
    }
}

/// Completes operations to all PEs, not only to `target_pes`.
pub unsafe fn pe_quiet(call: &'static str, ctx: Ctx, target_pes: *const c_int, npes: usize) {
    let state = get(call);
    if !is_valid(call, ctx) {
        return;
    }
    state.check_local(
        call,
        "target_pes",
        target_pes as usize,
        npes.saturating_mul(size_of::<c_int>()),
    );
    for i in 0..npes {
        // SAFETY: the program's array has `npes` numbers.
        state.pe_of(call, "target_pes", ctx, unsafe { *target_pes.add(i) });
    }
    or_die(call, state.job.quiet());
}
