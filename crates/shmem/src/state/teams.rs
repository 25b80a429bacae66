//! The teams that the program has made.

use crate::state::fatal::die;
use crate::state::handle::{Table, Team, TeamConfig};

/// The table of teams. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 1024> = Table::new();

/// A team that the program has made.
pub struct Made {
    /// The core's team.
    pub team: memonet_core::Team,
    /// The configuration that the program gave.
    pub config: TeamConfig,
}

/// The core's team of a handle that is not a constant. Ends the job if the handle stands for none.
#[inline]
pub fn get(call: &'static str, team: Team) -> &'static memonet_core::Team {
    &made(call, team).team
}

/// The team of a handle that is not a constant. Ends the job if the handle stands for none.
#[inline]
pub fn made(call: &'static str, team: Team) -> &'static Made {
    // SAFETY: programs do not destroy teams that they use.
    match unsafe { ALL.get(team.0) } {
        Some(made) => made,
        None if team == Team::INVALID => die(call, "team: SHMEM_TEAM_INVALID is no team"),
        None => die(call, "team: this is no team, or it was destroyed before"),
    }
}
