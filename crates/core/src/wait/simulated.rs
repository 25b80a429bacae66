//! A wait in virtual time, where a look has its price and no PE spins.

use super::{Terms, answer, attention};
use crate::base::error::Quick;
use crate::endpoint::fabric::Due;
use crate::endpoint::pe::Pe;

#[cold]
#[inline(never)]
pub(super) fn wait<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    let clock = pe.clock().expect("only a fabric with a clock simulates");
    let deadline = terms.patience.deadline(pe);
    // Where an errand has begun the wait, its last look was just now.
    if terms.since == 0 {
        clock.look();
    }
    let since = clock.now();
    loop {
        // Before the look: what relays take in may be what this wait is for, and nothing else would
        // tell of that.
        let relays = pe.relay_news();
        if let Some(found) = look() {
            return Ok(found);
        }
        if let Some(error) = terms.departed(pe).or_else(|| terms.patience.late(pe)) {
            // As in `check`.
            return look().ok_or_else(|| error.into());
        }
        if terms.is_called(pe)
            && let Some(error) = attention::attend(pe, &terms.awaiting)
        {
            return Err(error.into());
        }
        let end = deadline.map(|at| Due { at, vain: false });
        let park = || clock.park(Due::first(end, relays), terms.awaiting.plain());
        answer::while_parked(pe, &terms, since, clock.now(), park)?;
    }
}
