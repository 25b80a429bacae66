//! Collectives of teams.

use crate::calls::operation::Operator;
use crate::state::handle::Team;
use crate::state::{State, bytes, die, get, or_die};
use memonet_core::unstable::segment::{of_team, surface};
use memonet_core::{Broadcast, Destinations, Error, Goal, SymmetricRange};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

pub unsafe fn barrier_all(call: &'static str) {
    let state = get(call);
    // The job's barrier completes all writes and makes them visible before it ends.
    or_die(call, state.job.barrier());
}

/// Also completes puts, which is more than the standard asks for.
pub unsafe fn sync_all(call: &'static str) {
    or_die(call, get(call).job.barrier());
}

/// Calls `f` with a team and gives 0; not 0 for the invalid team.
fn with(call: &'static str, team: Team, f: impl FnOnce(&State, &memonet_core::Team)) -> c_int {
    let state = get(call);
    if team == Team::INVALID {
        return no_team(state, call);
    }
    let team = state.team(call, team);
    whole(call, team, || f(state, team));
    0
}

#[cold]
fn no_team(state: &State, call: &'static str) -> c_int {
    outside(state, call, "team: SHMEM_TEAM_INVALID is no team");
    -1
}

/// Reports a collective call of a PE that has no part in it, the first time: such a call does
/// nothing.
#[cold]
pub fn outside(state: &State, call: &'static str, why: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if state.check {
        die(call, why);
    }
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!(
            "memonet: PE {}: {call}: {why}: this call and later ones like it do nothing (MEMONET_CHECK=1 makes them an error)",
            state.job.pe()
        );
    }
}

/// A collective call of a team, at whose end the error of an earlier put ends the job.
pub fn whole(call: &'static str, team: &memonet_core::Team, f: impl FnOnce()) {
    of_team(team, f);
    or_die(call, surface(team));
}

pub unsafe fn sync(call: &'static str, team: Team) -> c_int {
    let state = get(call);
    if team == Team::INVALID {
        return no_team(state, call);
    }
    or_die(call, state.team(call, team).barrier());
    0
}

/// A symmetric array of `count` elements.
pub fn place<T>(
    state: &State,
    call: &'static str,
    argument: &'static str,
    array: *const T,
    count: usize,
) -> SymmetricRange {
    let bytes = bytes::<T>(call, count);
    // The address of an empty array means nothing.
    let offset =
        if bytes == 0 { 0 } else { state.symmetric(call, argument, array as usize, bytes) };
    match state.place(offset, bytes) {
        Some(place) => place,
        None => {
            die(call, format_args!("{argument}: {bytes} bytes at {array:p} are not all symmetric"))
        }
    }
}

/// With all checks on: ends the job where members of a team call different collectives, or pass
/// different values of arguments that must be equal.
pub fn check_alike(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    arguments: &[(&'static str, u64)],
) {
    if state.check {
        or_die(call, team.compare(call, arguments));
    }
}

/// With all checks on: ends the job where two arrays overlap. With `same`, they may be the same
/// array.
pub fn check_apart(
    state: &State,
    call: &'static str,
    to: SymmetricRange,
    from: SymmetricRange,
    same: bool,
) {
    if state.check && (to.overlaps(from) && !(same && to.is_apart(from))) {
        die(call, OVERLAP);
    }
}

const OVERLAP: &str = "dest and source overlap: use memory that they do not share";

/// The number of elements in the arrays of all members together.
pub fn of_all(call: &'static str, count: usize, members: usize) -> usize {
    match count.checked_mul(members) {
        Some(all) => all,
        None => die(
            call,
            format_args!("{count} elements of each of {members} PEs are more than memory can hold"),
        ),
    }
}

/// The rank of the root. Ends the job if the root is not a member.
pub fn root(call: &'static str, team: &memonet_core::Team, root: c_int) -> usize {
    match usize::try_from(root) {
        Ok(rank) if rank < team.len() => rank,
        _ => die(call, format_args!("PE_root: there is no PE {root} in a team of {}", team.len())),
    }
}

pub unsafe fn broadcast<T>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    pe_root: c_int,
) -> c_int {
    with(call, team, |state, team| {
        check_alike(state, call, team, &[("nelems", nelems as u64), ("PE_root", pe_root as u64)]);
        let (to, from) = (
            place(state, call, "dest", dest, nelems),
            place(state, call, "source", source, nelems),
        );
        check_apart(state, call, to, from, true);
        let what = Broadcast::new(root(call, team, pe_root), to, from);
        let what = Broadcast { writable: Destinations::Ready, ..what };
        or_die(call, team.broadcast_places(what));
    })
}

/// Collects into `dest`. Only the part that the collective fills must be symmetric.
pub fn collect_in<T>(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) {
    check_alike(state, call, team, &[]);
    let from = place(state, call, "source", source, nelems);
    // The number of bytes that will arrive is not known yet, so the room is all that there is. An
    // empty result needs none.
    let room = match dest.is_null() && nelems == 0 {
        true => 0..0,
        false => state.room(call, "dest", dest as usize),
    };
    // With all checks on, the result must not reach the source.
    let before_source = (source as usize).wrapping_sub(dest as usize) as u64;
    let free = match state.check && nelems > 0 && before_source < room.end - room.start {
        true => before_source,
        false => room.end - room.start,
    };
    let to = match state.place(room.start, free as usize) {
        Some(to) => to,
        None => die(call, format_args!("dest: {dest:p} is not symmetric")),
    };
    if state.check && from.overlaps(state.place(room.start, usize::from(nelems > 0)).unwrap_or(to))
    {
        die(call, OVERLAP);
    }
    match team.collect_places(to, from) {
        Err(Error::Length { left, .. }) if left > free as usize && free < room.end - room.start => {
            die(call, OVERLAP)
        }
        collected => drop(or_die(call, collected)),
    }
}

pub unsafe fn collect<T>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    with(call, team, |state, team| collect_in(state, call, team, dest, source, nelems))
}

pub fn fcollect_in<T>(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) {
    check_alike(state, call, team, &[("nelems", nelems as u64)]);
    let to = place(state, call, "dest", dest, of_all(call, nelems, team.len()));
    let from = place(state, call, "source", source, nelems);
    check_apart(state, call, to, from, false);
    or_die(call, team.gather_places(None, to, from, Destinations::Ready));
}

pub unsafe fn fcollect<T>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    with(call, team, |state, team| fcollect_in(state, call, team, dest, source, nelems))
}

pub fn alltoall_in<T>(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) {
    check_alike(state, call, team, &[("nelems", nelems as u64)]);
    let all = of_all(call, nelems, team.len());
    let (to, from) =
        (place(state, call, "dest", dest, all), place(state, call, "source", source, all));
    check_apart(state, call, to, from, false);
    or_die(call, team.all_to_all_places(to, from, Destinations::Ready));
}

pub unsafe fn alltoall<T>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    with(call, team, |state, team| alltoall_in(state, call, team, dest, source, nelems))
}

/// Whether two strided arrays of `count` elements of `size` bytes have a byte in common. `to` and
/// `from` are the address of an array and the distance of its elements, both in bytes.
fn strided_overlap(to: (usize, usize), from: (usize, usize), size: usize, count: usize) -> bool {
    let [to, to_step, from, from_step, size] =
        [to.0, to.1, from.0, from.1, size].map(|bytes| bytes as i128);
    (0..count as i128).map(|i| to + i * to_step).any(|at| {
        // The first element of `from` that ends behind `at`.
        let j = (at - size - from).div_euclid(from_step) + 1;
        let j = j.max(0);
        j < count as i128 && from + j * from_step < at + size
    })
}

pub fn alltoalls_in<T>(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    (dest, source): (*mut T, *const T),
    (dst, sst): (isize, isize),
    nelems: usize,
) {
    for (name, stride) in [("dst", dst), ("sst", sst)] {
        if stride < 1 {
            die(call, format_args!("{name}: a stride of {stride} elements; it must be 1 at least"));
        }
    }
    check_alike(
        state,
        call,
        team,
        &[("nelems", nelems as u64), ("dst", dst as u64), ("sst", sst as u64)],
    );
    let all = of_all(call, nelems, team.len());
    let span = |stride: isize| match all {
        0 => 0,
        _ => of_all(call, all - 1, stride as usize) + 1,
    };
    let (to, from) = (
        place(state, call, "dest", dest, span(dst)),
        place(state, call, "source", source, span(sst)),
    );
    let elements = |array: usize, stride: isize| (array, stride as usize * size_of::<T>());
    if state.check
        && strided_overlap(
            elements(dest as usize, dst),
            elements(source as usize, sst),
            size_of::<T>(),
            all,
        )
    {
        die(call, OVERLAP);
    }
    let (to, from) = ((to, dst as usize), (from, sst as usize));
    or_die(call, team.all_to_alls_places(to, from, size_of::<T>(), nelems));
}

pub unsafe fn alltoalls<T>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
) -> c_int {
    with(call, team, |state, team| {
        alltoalls_in(state, call, team, (dest, source), (dst, sst), nelems)
    })
}

/// Reductions and scans.
pub fn combine_in<T: Copy, O: Operator<T> + Default>(
    state: &State,
    call: &'static str,
    team: &memonet_core::Team,
    goal: Goal,
    (dest, source): (*mut T, *const T),
    count: usize,
) {
    let name = if let Goal::All = goal { "nreduce" } else { "nelems" };
    check_alike(state, call, team, &[(name, count as u64)]);
    let (to, from) =
        (place(state, call, "dest", dest, count), place(state, call, "source", source, count));
    check_apart(state, call, to, from, true);
    let operator = O::default();
    // SAFETY: `T` is a C type, so any bytes are a value.
    let combined = unsafe { team.combine_values::<T>(operator, goal, to, from) };
    or_die(call, combined);
}

fn combine<T: Copy, O: Operator<T> + Default>(
    call: &'static str,
    team: Team,
    goal: Goal,
    arrays: (*mut T, *const T),
    count: usize,
) -> c_int {
    with(call, team, |state, team| combine_in::<T, O>(state, call, team, goal, arrays, count))
}

pub unsafe fn reduce<T: Copy, O: Operator<T> + Default>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nreduce: usize,
) -> c_int {
    combine::<T, O>(call, team, Goal::All, (dest, source), nreduce)
}

pub unsafe fn inscan<T: Copy, O: Operator<T> + Default>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    combine::<T, O>(call, team, Goal::Inclusive, (dest, source), nelems)
}

pub unsafe fn exscan<T: Copy, O: Operator<T> + Default>(
    call: &'static str,
    team: Team,
    dest: *mut T,
    source: *const T,
    nelems: usize,
) -> c_int {
    combine::<T, O>(call, team, Goal::Exclusive, (dest, source), nelems)
}

#[cfg(test)]
mod tests {
    use super::strided_overlap;

    #[test]
    fn strided_arrays_overlap_where_an_element_does() {
        for (to, from, size, count) in
            (0..24).flat_map(|to| (1..5).map(move |size| (to, 12, size, 3)))
        {
            for (to_step, from_step) in
                [(size, size), (2 * size, size), (size, 3 * size), (2 * size, 2 * size)]
            {
                let of = |start: usize, step: usize| {
                    (0..count).flat_map(move |i| start + i * step..start + i * step + size)
                };
                let expected =
                    of(to, to_step).any(|byte| of(from, from_step).any(|other| other == byte));
                let found = strided_overlap((to, to_step), (from, from_step), size, count);
                assert_eq!(
                    found, expected,
                    "{to} by {to_step}, {from} by {from_step}, {count} of {size}"
                );
            }
        }
    }
}
