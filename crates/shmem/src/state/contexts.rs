//! The contexts that the program has made.

use crate::state::fatal::die;
use crate::state::handle::{Ctx, Table, Team};
use std::sync::Arc;

/// The table of contexts. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 65536> = Table::new();

/// A context that the program has made.
pub struct Made {
    /// The team of the context.
    pub team: Team,
    /// The PEs of the team in their order; `None`: all PEs of the job.
    pub members: Option<Arc<[usize]>>,
}

impl Made {
    /// The PEs of the team in their order; `None`: all PEs of the job.
    #[inline]
    pub fn members(&self) -> Option<&[usize]> {
        self.members.as_deref()
    }
}

/// The context of a handle other than the default one. Ends the job if the handle stands for none.
#[inline]
pub fn get(call: &'static str, ctx: Ctx) -> &'static Made {
    // SAFETY: programs do not destroy contexts that they use.
    match unsafe { ALL.get(ctx.0) } {
        Some(made) => made,
        None if ctx == Ctx::INVALID => die(call, "ctx: SHMEM_CTX_INVALID is no context"),
        None => die(call, "ctx: this is no context, or it was destroyed before"),
    }
}

/// Whether the program has made this context, and not destroyed it.
#[inline]
pub fn is_there(ctx: Ctx) -> bool {
    // SAFETY: programs do not destroy contexts that they use.
    unsafe { ALL.get(ctx.0) }.is_some()
}

/// Destroys all contexts of a team.
///
/// # Safety
/// No other thread uses them. Contexts of other teams may be in use, and be destroyed meanwhile.
pub unsafe fn destroy_of(team: Team) {
    // SAFETY: the caller's promise.
    unsafe { ALL.remove_where(|made| made.team == team) };
}
