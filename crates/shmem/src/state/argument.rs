//! Arguments of a call: what they mean, and whether a program may give them.

use crate::state::contexts;
use crate::state::fatal::die;
use crate::state::handle::{Ctx, Team};
use crate::state::library::{State, current};
use crate::state::teams;
use std::ffi::c_int;

/// Ends the job where a call has no place for its result. A fault would name neither the call nor
/// the argument.
#[inline(always)]
pub fn check_result<T>(call: &'static str, argument: &'static str, place: *mut T) {
    if place.is_null() || current().is_some_and(|state| state.check) {
        no_place(call, argument, place as usize, size_of::<T>());
    }
}

#[cold]
#[inline(never)]
fn no_place(call: &'static str, argument: &'static str, place: usize, bytes: usize) {
    if place == 0 {
        die(
            call,
            format_args!(
                "{argument}: NULL has no room for the result; give the address of a variable"
            ),
        );
    }
    if let Some(state) = current() {
        state.check_local(call, argument, place, bytes);
    }
}

/// The size of `count` elements in bytes.
#[inline(always)]
pub fn bytes<T>(call: &'static str, count: usize) -> usize {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => bytes,
        _ => die(
            call,
            format_args!(
                "{count} elements of {} bytes are more than memory can hold",
                size_of::<T>()
            ),
        ),
    }
}

impl State {
    /// The number in the job of PE `pe` of a context's team. Ends the job if there is none.
    pub fn pe_of(&self, call: &'static str, argument: &'static str, ctx: Ctx, pe: c_int) -> usize {
        let members = match ctx {
            Ctx::DEFAULT => None,
            _ => contexts::get(call, ctx).members(),
        };
        match members {
            None => {
                self.check_pe(call, argument, pe);
                pe as usize
            }
            Some(members) => match usize::try_from(pe).ok().and_then(|pe| members.get(pe)) {
                Some(&pe) => pe,
                None => die(
                    call,
                    format_args!(
                        "{argument}: there is no PE {pe} in the context's team of {}",
                        members.len()
                    ),
                ),
            },
        }
    }

    /// Ends the job if it has no PE with this number.
    #[inline(always)]
    pub fn check_pe(&self, call: &'static str, argument: &'static str, pe: c_int) {
        if pe as usize >= self.job.npes() {
            die(
                call,
                format_args!("{argument}: there is no PE {pe} in a job of {}", self.job.npes()),
            );
        }
    }

    /// The core's team of a handle. Ends the job if the handle stands for none.
    #[inline]
    pub fn team(&self, call: &'static str, team: Team) -> &memonet_core::Team {
        match team {
            Team::WORLD => self.job.world(),
            Team::SHARED => self.node(),
            _ => teams::get(call, team),
        }
    }
}
