//! A wait that the machine of this PE makes for it, with the steps around it.

use super::answer;
use super::limit::Patience;
use super::{Terms, attention, until};
use crate::base::error::Quick;
use crate::base::shm;
use crate::endpoint::errand::Step;
use crate::endpoint::pe::Pe;

/// Goes on an [errand](crate::endpoint::errand). Returns how many steps the machine has made;
/// `None` where it makes none. Meanwhile this thread can tell what the steps wait for.
pub(crate) fn run(pe: &Pe, terms: Terms<'_>, steps: &[Step]) -> Option<Quick<usize>> {
    let clock = pe.clock()?;
    clock.recall(false); // E2
    shm::full_fence();
    if attention::is_called(pe) {
        return None;
    }
    let now = clock.now();
    let run = || clock.run(steps, terms.awaiting.plain()).transpose();
    let made = answer::while_parked(pe, &terms, now, now, run).transpose()?;
    Some(made.map_err(Into::into))
}

/// [`until`] for a look that gives something once words of this PE's memory pass tests, one after
/// the other: `words` gives these as steps.
#[inline(always)]
pub(crate) fn until_passed<R>(
    pe: &Pe,
    terms: Terms<'_>,
    words: impl FnOnce() -> Vec<Step>,
    look: impl FnMut() -> Option<R>,
) -> Quick<R> {
    let terms = if pe.is_simulated() { begin(pe, terms, words)? } else { terms };
    until(pe, terms, look)
}

/// Begins a wait by an errand, if this PE may go on one. What is left of the wait looks at once.
#[cold]
fn begin<'a>(pe: &Pe, terms: Terms<'a>, words: impl FnOnce() -> Vec<Step>) -> Quick<Terms<'a>> {
    if !matches!(terms.patience, Patience::Forever) || !pe.may_go() {
        return Ok(terms);
    }
    pe.wake_written();
    let mut steps = vec![Step::Look];
    steps.extend(words());
    match run(pe, terms, &steps) {
        None => Ok(terms),
        Some(made) => made.map(|_| terms.go_on(pe)),
    }
}
