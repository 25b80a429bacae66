//! Sessions: hints about later calls on a context. The library checks them and ignores them.

use crate::state::handle::{Ctx, SessionConfig};
use crate::state::{die, get};
use std::ffi::c_long;

/// Whether a session can be on a context: on the invalid one, calls do nothing.
fn is_possible(call: &'static str, ctx: Ctx) -> bool {
    get(call);
    if ctx != Ctx::DEFAULT && ctx != Ctx::INVALID {
        crate::state::contexts::get(call, ctx);
    }
    ctx != Ctx::INVALID
}

pub unsafe fn start(
    call: &'static str,
    ctx: Ctx,
    _options: c_long,
    config: *const SessionConfig,
    config_mask: c_long,
) {
    if is_possible(call, ctx) && config.is_null() && config_mask != 0 {
        die(call, "config: NULL has no parameters, but config_mask is not 0");
    }
}

pub unsafe fn stop(call: &'static str, ctx: Ctx) {
    is_possible(call, ctx);
}
