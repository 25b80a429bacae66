//! Order and completion. One order for all contexts: near, a context would have nothing of its own
//! to order.

use crate::state::handle::Ctx;
use crate::state::{get, or_die};
use std::ffi::c_int;

/// Whether there is anything to do: nothing on the invalid context.
#[inline(always)]
fn is_valid(call: &'static str, ctx: Ctx) -> bool {
    match ctx {
        Ctx::DEFAULT => true,
        Ctx::INVALID => false,
        _ => {
            crate::state::contexts::get(call, ctx);
            true
        }
    }
}

pub unsafe fn fence(call: &'static str, ctx: Ctx) {
    let state = get(call);
    if is_valid(call, ctx) {
        or_die(call, state.job.fence());
    }
}

pub unsafe fn quiet(call: &'static str, ctx: Ctx) {
    let state = get(call);
    if is_valid(call, ctx) {
        or_die(call, state.job.quiet());
    }
}

/// Completes more than it is asked to.
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
        // SAFETY: the program's array of so many numbers.
        state.pe_of(call, "target_pes", ctx, unsafe { *target_pes.add(i) });
    }
    or_die(call, state.job.quiet());
}
