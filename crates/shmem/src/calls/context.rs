//! Communication contexts.
//!
//! A store to a near peer is complete when the processor has made it, so a context orders nothing
//! by itself. It numbers the members of its team, and gives the program a name for `fence` and
//! `quiet`.

use crate::state::contexts::{ALL, Made, get};
use crate::state::handle::{Ctx, Team};
use crate::state::{check_result, die, get as state, or_die};
use std::ffi::{c_int, c_long};

/// `SHMEM_CTX_SERIALIZED`, `SHMEM_CTX_PRIVATE` and `SHMEM_CTX_NOSTORE`.
const OPTIONS: c_long = 7;

pub unsafe fn create(call: &'static str, options: c_long, ctx: *mut Ctx) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { create_in_team(call, Team::WORLD, options, ctx) }
}

pub unsafe fn create_in_team(
    call: &'static str,
    team: Team,
    options: c_long,
    ctx: *mut Ctx,
) -> c_int {
    let state = state(call);
    check_result(call, "ctx", ctx);
    let give = |handle: Ctx| {
        // SAFETY: the program's variable.
        unsafe { *ctx = handle };
        c_int::from(handle == Ctx::INVALID)
    };
    if team == Team::INVALID || options & !OPTIONS != 0 {
        return give(Ctx::INVALID);
    }
    let members = match team {
        Team::WORLD => None,
        _ if state.team(call, team).len() == state.job.npes() && team == Team::SHARED => None,
        _ => Some(state.team(call, team).members().into()),
    };
    give(ALL.insert(Made { team, members }).map_or(Ctx::INVALID, Ctx))
}

pub unsafe fn destroy(call: &'static str, ctx: Ctx) {
    let state = state(call);
    match ctx {
        Ctx::INVALID => {}
        Ctx::DEFAULT => die(call, "ctx: SHMEM_CTX_DEFAULT cannot be destroyed"),
        _ => {
            get(call, ctx);
            // Destroying a context completes its operations.
            or_die(call, state.job.quiet());
            // SAFETY: programs do not destroy contexts that they use.
            drop(unsafe { ALL.remove(ctx.0) });
        }
    }
}

pub unsafe fn get_team(call: &'static str, ctx: Ctx, team: *mut Team) -> c_int {
    let _state = state(call);
    check_result(call, "team", team);
    let of = match ctx {
        Ctx::INVALID => Team::INVALID,
        Ctx::DEFAULT => Team::WORLD,
        _ => get(call, ctx).team,
    };
    // SAFETY: the program's variable.
    unsafe { *team = of };
    c_int::from(of == Team::INVALID)
}
