//! Sessions: hints about later calls on a context. The library checks them and ignores them.

use crate::state::handle::{Ctx, SessionConfig};
use crate::state::{die, get};
use std::ffi::c_long;

fn check(call: &'static str, ctx: Ctx) {
    get(call);
    if ctx != Ctx::DEFAULT && ctx != Ctx::INVALID {
        crate::state::contexts::get(call, ctx);
    }
}

pub unsafe fn start(
    call: &'static str,
    ctx: Ctx,
    _options: c_long,
    config: *const SessionConfig,
    config_mask: c_long,
) {
    check(call, ctx);
    if config.is_null() && config_mask != 0 {
        die(call, "config: NULL has no parameters, but config_mask is not 0");
    }
}

pub unsafe fn stop(call: &'static str, ctx: Ctx) {
    check(call, ctx);
}
