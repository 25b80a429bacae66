//! Teams.

use crate::state::handle::{Team, TeamConfig};
use crate::state::teams::{ALL, Made, get, made};
use crate::state::{check_result, contexts, die, fail, get as state};
use memonet_core::Error;
use std::ffi::{c_int, c_long, c_void};
use std::sync::Once;

/// `SHMEM_TEAM_NUM_CONTEXTS`.
const NUM_CONTEXTS: c_long = 1;

pub unsafe fn my_pe(call: &'static str, team: Team) -> c_int {
    let state = state(call);
    match team {
        Team::INVALID => -1,
        _ => state.team(call, team).rank() as c_int,
    }
}

pub unsafe fn n_pes(call: &'static str, team: Team) -> c_int {
    let state = state(call);
    match team {
        Team::INVALID => -1,
        _ => state.team(call, team).len() as c_int,
    }
}

pub unsafe fn get_config(
    call: &'static str,
    team: Team,
    config_mask: c_long,
    config: *mut TeamConfig,
) -> c_int {
    let _state = state(call);
    if team == Team::INVALID || config_mask & !NUM_CONTEXTS != 0 {
        return -1;
    }
    let known = match team {
        Team::WORLD | Team::SHARED => TeamConfig::default(),
        _ => made(call, team).config,
    };
    if config_mask & NUM_CONTEXTS != 0 {
        if config.is_null() {
            return -1;
        }
        // SAFETY: the program's variable.
        unsafe { *config = known };
    }
    0
}

pub unsafe fn translate_pe(
    call: &'static str,
    src_team: Team,
    src_pe: c_int,
    dest_team: Team,
) -> c_int {
    let state = state(call);
    if src_team == Team::INVALID || dest_team == Team::INVALID {
        return -1;
    }
    let (from, to) = (state.team(call, src_team), state.team(call, dest_team));
    let rank = usize::try_from(src_pe).ok().and_then(|rank| from.translate(rank, to));
    rank.map_or(-1, |rank| rank as c_int)
}

/// The configuration that the program gives for a new team.
///
/// # Safety
/// `config` is null or valid.
unsafe fn parameters(call: &'static str, config: *const TeamConfig, mask: c_long) -> TeamConfig {
    if mask & NUM_CONTEXTS == 0 {
        return TeamConfig::default();
    }
    if config.is_null() {
        die(call, "config: NULL has no parameters, but config_mask is not 0");
    }
    // SAFETY: the caller's promise.
    unsafe { *config }
}

/// A handle for a new team; `INVALID` where this PE is not a member.
fn hand_out(call: &'static str, team: Option<memonet_core::Team>, config: TeamConfig) -> Team {
    let Some(team) = team else { return Team::INVALID };
    // The table has as many places as the core has teams.
    ALL.insert(Made { team, config }).map_or_else(|| die(call, "there are too many teams"), Team)
}

pub unsafe fn split_strided(
    call: &'static str,
    parent_team: Team,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: *const TeamConfig,
    config_mask: c_long,
    new_team: *mut Team,
) -> c_int {
    let state = state(call);
    check_result(call, "new_team", new_team);
    // SAFETY: the program's variable.
    unsafe { *new_team = Team::INVALID };
    if parent_team == Team::INVALID {
        return -1;
    }
    // SAFETY: the program's variable, or null.
    let config = unsafe { parameters(call, config, config_mask) };
    let parent = state.team(call, parent_team);
    let split =
        parent.split_strided(start as usize, stride as isize, usize::try_from(size).unwrap_or(0));
    match split {
        Ok(team) => {
            // SAFETY: the program's variable.
            unsafe { *new_team = hand_out(call, team, config) };
            0
        }
        Err(error) => refused(call, parent, error),
    }
}

pub unsafe fn split_2d(
    call: &'static str,
    parent_team: Team,
    xrange: c_int,
    xaxis_config: *const TeamConfig,
    xaxis_mask: c_long,
    xaxis_team: *mut Team,
    yaxis_config: *const TeamConfig,
    yaxis_mask: c_long,
    yaxis_team: *mut Team,
) -> c_int {
    let state = state(call);
    check_result(call, "xaxis_team", xaxis_team);
    check_result(call, "yaxis_team", yaxis_team);
    // SAFETY: the program's variables.
    unsafe { (*xaxis_team, *yaxis_team) = (Team::INVALID, Team::INVALID) };
    if parent_team == Team::INVALID {
        return -1;
    }
    // SAFETY: the program's variables, or null.
    let configs = unsafe {
        [parameters(call, xaxis_config, xaxis_mask), parameters(call, yaxis_config, yaxis_mask)]
    };
    let parent = state.team(call, parent_team);
    match parent.split_2d(usize::try_from(xrange).unwrap_or(0)) {
        Ok((row, column)) => {
            // SAFETY: the program's variables.
            unsafe {
                *xaxis_team = hand_out(call, Some(row), configs[0]);
                *yaxis_team = hand_out(call, Some(column), configs[1]);
            }
            0
        }
        Err(error) => refused(call, parent, error),
    }
}

/// The result of a refused call. An error that all members get is a result other than 0; an error
/// that only some members get ends the job.
fn refused(call: &'static str, parent: &memonet_core::Team, error: Error) -> c_int {
    match error {
        Error::PeerFailed { .. } | Error::System { .. } => fail(call, error),
        _ => tell_once(call, "team", parent, error),
    }
    -1
}

/// Prints why a call makes nothing, the first time: many programs do not look at its result. All
/// members get an error alike, so only the first prints.
#[cold]
pub fn tell_once(call: &str, what: &str, members: &memonet_core::Team, error: Error) {
    static TOLD: Once = Once::new();
    if members.rank() == 0 {
        let error = error.of_call(None);
        TOLD.call_once(|| eprintln!("memonet: {call} makes no {what}: {error}"));
    }
}

pub unsafe fn destroy(call: &'static str, team: Team) {
    let _state = state(call);
    match team {
        Team::INVALID => {}
        Team::WORLD | Team::SHARED => die(call, "team: a predefined team cannot be destroyed"),
        _ => {
            get(call, team);
            // SAFETY: programs do not destroy teams that they use, nor contexts of such teams.
            unsafe {
                contexts::destroy_of(team);
                drop(ALL.remove(team.0));
            }
        }
    }
}

pub unsafe fn ptr(call: &'static str, team: Team, dest: *const c_void, pe: c_int) -> *mut c_void {
    let state = state(call);
    if team == Team::INVALID {
        return std::ptr::null_mut();
    }
    match usize::try_from(pe)
        .ok()
        .and_then(|rank| state.team(call, team).members().get(rank).copied())
    {
        Some(pe) => state.pointer(dest as usize, pe),
        None => die(call, format_args!("pe: there is no PE {pe} in this team")),
    }
}
