//! The deprecated collectives over active sets: a first PE, the logarithm of a stride, and a number
//! of PEs.
//!
//! The first call on a set makes a team of it, which stays until the library is finalised. So the
//! library neither reads nor writes the work arrays that programs pass, some of which are too
//! small.
//!
//! A job has room for a limited number of teams, and a program may use ever different sets. The
//! library cannot destroy one team to make room for another: the members of the first would have to
//! agree, and they may be anywhere. So once the members of a set have little room left, the set is
//! a team for one call at a time. That is slower and never runs out of room. All members decide
//! alike whether the team stays, by the room that they found in common when they made it.

use crate::calls::collective::{
    alltoall_in, alltoalls_in, check_alike, check_apart, collect_in, combine_in, fcollect_in,
    outside, place, root, whole,
};
use crate::calls::operation::Operator;
use crate::state::lock::lock;
use crate::state::{State, die, get, or_die};
use memonet_core::{Broadcast, Destinations, Goal, Team};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::sync::{Arc, Mutex};

/// The first PE, the logarithm of the stride, and the number of PEs.
type Set = (c_int, c_int, c_int);

/// The number of teams for which active sets leave room: for teams of the program, and for sets
/// that are teams for one call.
const LEFT_TO_OTHERS: usize = 128;

/// The teams of active sets that stay.
static TEAMS: Mutex<BTreeMap<Set, Arc<Team>>> = Mutex::new(BTreeMap::new());

/// Destroys the teams of all sets.
pub fn clear() {
    lock(&TEAMS).clear();
}

/// The PEs of a set in a job of `npes`, or the mistake in it. It checks before it builds the list,
/// so a huge set costs nothing.
fn members((start, log_stride, size): Set, npes: usize) -> Result<Vec<usize>, String> {
    let what = || {
        format!(
            "PE_start, logPE_stride, PE_size: an active set of {size} PEs from PE {start} on, each 2^{log_stride} further,"
        )
    };
    let fix = "name PEs of the job, and at least one";
    if start < 0 || size < 1 || !(0..31).contains(&log_stride) {
        return Err(format!("{} cannot be: {fix}", what()));
    }
    let last = i64::from(start) + (i64::from(size - 1) << log_stride);
    if last >= npes as i64 {
        return Err(format!("{} ends with PE {last}, in a job of {npes}: {fix}", what()));
    }
    Ok((0..size as usize).map(|i| start as usize + (i << log_stride)).collect())
}

/// Calls `f` with the team of a set. A PE outside of the set does nothing, because libraries for
/// which such programs were written did nothing; a message says so once.
fn with(state: &State, call: &'static str, set: Set, f: impl FnOnce(&Team)) {
    let f = |team: &Team| whole(call, team, || f(team));
    let (start, log_stride, size) = set;
    // The stride means nothing in a set of one PE.
    let log_stride = if size == 1 { log_stride.min(0) } else { log_stride };
    let set = (start, log_stride, size);
    if start == 0 && log_stride == 0 && size as usize == state.job.npes() {
        return f(state.job.world());
    }
    let known = lock(&TEAMS).get(&set).cloned();
    if let Some(team) = known {
        return f(&team);
    }
    let pes = members(set, state.job.npes()).unwrap_or_else(|why| die(call, why));
    if !pes.contains(&state.job.pe()) {
        return outside(state, call, "this PE is not in the active set whose collective it calls");
    }
    let team = Arc::new(or_die(call, state.job.team_among(&pes)));
    if team.room() >= LEFT_TO_OTHERS {
        lock(&TEAMS).insert(set, team.clone());
    }
    f(&team)
}

pub unsafe fn barrier(
    call: &'static str,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    with(get(call), call, (pe_start, log_pe_stride, pe_size), |team| or_die(call, team.barrier()));
}

pub unsafe fn sync(
    call: &'static str,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    psync: *mut c_long,
) {
    // SAFETY: the caller's promise.
    unsafe { barrier(call, pe_start, log_pe_stride, pe_size, psync) };
}

/// `pe_root` is a rank in the set. The root's destination keeps its contents.
pub unsafe fn broadcast<T>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe_root: c_int,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    let state = get(call);
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        check_alike(state, call, team, &[("nelems", nelems as u64), ("PE_root", pe_root as u64)]);
        let root = root(call, team, pe_root);
        let from = place(state, call, "source", source, nelems);
        let to = place(state, call, "dest", dest, nelems);
        check_apart(state, call, to, from, true);
        let what = Broadcast::new(root, to, from);
        let what = Broadcast { root_keeps: true, writable: Destinations::Ready, ..what };
        or_die(call, team.broadcast_places(what));
    });
}

pub unsafe fn collect<T>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    let state = get(call);
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        collect_in(state, call, team, dest, source, nelems)
    });
}

pub unsafe fn fcollect<T>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    let state = get(call);
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        fcollect_in(state, call, team, dest, source, nelems)
    });
}

pub unsafe fn alltoall<T>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    let state = get(call);
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        alltoall_in(state, call, team, dest, source, nelems)
    });
}

pub unsafe fn alltoalls<T>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _psync: *mut c_long,
) {
    let state = get(call);
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        alltoalls_in(state, call, team, (dest, source), (dst, sst), nelems);
    });
}

pub unsafe fn to_all<T: Copy, O: Operator<T> + Default>(
    call: &'static str,
    dest: *mut T,
    source: *const T,
    nreduce: c_int,
    pe_start: c_int,
    log_pe_stride: c_int,
    pe_size: c_int,
    _work: *mut T,
    _psync: *mut c_long,
) {
    let state = get(call);
    let Ok(count) = usize::try_from(nreduce) else {
        die(call, format_args!("nreduce: {nreduce} elements"))
    };
    with(state, call, (pe_start, log_pe_stride, pe_size), |team| {
        combine_in::<T, O>(state, call, team, Goal::All, (dest, source), count);
    });
}

#[cfg(test)]
mod tests {
    use super::members;

    #[test]
    fn sets_and_garbage() {
        assert_eq!(members((0, 0, 3), 4), Ok(vec![0, 1, 2]));
        assert_eq!(members((1, 1, 3), 6), Ok(vec![1, 3, 5]));
        assert_eq!(members((3, 30, 1), 4), Ok(vec![3]));
        for garbage in [
            (0, 0, 5),
            (1, 1, 3),
            (4, 0, 1),
            (-1, 0, 2),
            (0, 0, 0),
            (0, -1, 2),
            (0, 31, 2),
            (0, 30, i32::MAX),
            (i32::MAX, 0, i32::MAX),
        ] {
            let why = members(garbage, 4).unwrap_err();
            assert!(
                why.contains(&format!(
                    "an active set of {} PEs from PE {} on",
                    garbage.2, garbage.0
                )),
                "{why}"
            );
        }
    }
}
