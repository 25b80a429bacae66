//! Split-phase barriers, an extension.

use crate::calls::team::tell_once;
use crate::state::handle::{Barrier, Table, Team};
use crate::state::{check_result, die, fail, get as state, or_die};
use std::ffi::c_int;

/// The table of barriers. It is static because most of its pages are never touched.
pub static ALL: Table<memonet_core::Barrier, 256> = Table::new();

fn made(call: &'static str, barrier: Barrier) -> &'static memonet_core::Barrier {
    // SAFETY: programs do not destroy barriers that they use.
    match unsafe { ALL.get(barrier.0) } {
        Some(made) => made,
        None => die(call, "barrier: this is no barrier, or it was destroyed before"),
    }
}

/// Collective over the team.
pub unsafe fn create(call: &'static str, team: Team, barrier: *mut Barrier) -> c_int {
    let state = state(call);
    check_result(call, "barrier", barrier);
    let handle = match team {
        Team::INVALID => None,
        _ => {
            let members = state.team(call, team);
            match members.new_barrier() {
                Ok(made) => ALL.insert(made),
                // All members get this error alike.
                Err(error @ memonet_core::Error::TooMany { .. }) => {
                    tell_once(call, "barrier", members, error);
                    None
                }
                Err(error) => fail(call, error),
            }
        }
    };
    // SAFETY: the program's variable.
    unsafe { *barrier = Barrier(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Arrives at the next phase, after the phase before is complete.
pub unsafe fn arrive(call: &'static str, barrier: Barrier) {
    // SAFETY: the caller's promise.
    unsafe { step(call, barrier) };
}

pub unsafe fn test(call: &'static str, barrier: Barrier) -> c_int {
    let _state = state(call);
    c_int::from(or_die(call, made(call, barrier).test()))
}

pub unsafe fn wait(call: &'static str, barrier: Barrier) {
    let _state = state(call);
    or_die(call, made(call, barrier).wait());
}

/// Completes the phase before and arrives at the next: one call for each phase.
pub unsafe fn step(call: &'static str, barrier: Barrier) {
    let _state = state(call);
    or_die(call, made(call, barrier).step());
}

/// [`step`], if it need not wait. Gives 1 while the phase before is not complete, as the reduced
/// barrier code does, and 0 after it has arrived.
pub unsafe fn try_step(call: &'static str, barrier: Barrier) -> c_int {
    let _state = state(call);
    c_int::from(!or_die(call, made(call, barrier).try_step()))
}

/// Destroys a barrier whose last phase is complete.
pub unsafe fn destroy(call: &'static str, barrier: Barrier) {
    let _state = state(call);
    made(call, barrier);
    // SAFETY: programs do not destroy what they use.
    drop(unsafe { ALL.remove(barrier.0) });
}
