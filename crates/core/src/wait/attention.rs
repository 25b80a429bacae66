//! Attention: how a front end asks what the waits of its PE are for, and interrupts them.
//!
//! For front ends only: Python's Ctrl-C, or a launcher that asks each PE what it waits for. A front
//! end sets one *hook* for its PE, and *calls* for attention when it has something to ask. While
//! the call stands, each thread of the PE that waits for long runs the hook at each check, until
//! the hook ends the wait or the call is dismissed.
//!
//! First looks are not disturbed, and no call costs a wait one relaxed load at each check.
//!
//! *A call reaches every wait.* A caller (C1) sets the flag, then (C2) rings the PE's doorbell, as
//! after any write. A sleeper (S1) announces itself, (S2) checks the flag, then (S3) sleeps. So the
//! doorbell's proof ([`crate::base::doorbell`]) holds with the flag as what the sleeper looks at:
//! S2 sees it, or C2 ends S3. A PE that sleeps on a bell of its barrier is not rung, and checks
//! within 50 ms. In virtual time a parked PE checks when its machine wakes it, for a change of its
//! memory or a deadline.

use super::Awaiting;
use crate::base::error::Error;
use crate::base::lock;
use crate::base::shows;
use crate::endpoint::awaiting::Awaited;
use crate::endpoint::pe::Pe;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) type Hook = dyn Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync;

/// A front end's call for the attention of the waits of its PE. Made by
/// [`Job::attention`](crate::Job::attention).
///
/// ```
/// # use memonet_core::{Cmp, Error, Job};
/// # use std::ops::ControlFlow;
/// # Job::threads(1, |job| {
/// let (word, attention) = (job.window::<u64>(1).unwrap(), job.attention());
/// attention.set_hook(|waiting| {
///     println!("waits for {waiting}");
///     ControlFlow::Break(())
/// });
/// attention.call(); // A handler of Ctrl-C, say.
/// let ended = word.wait_until(0, Cmp::Ne, 0);
/// assert!(matches!(ended, Err(Error::Interrupted { .. })));
/// attention.dismiss();
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Attention(Arc<Pe>);

shows!([] Attention as "Attention", |it| pe = it.0.me());

impl Attention {
    pub(crate) fn of(pe: &Arc<Pe>) -> Self {
        Attention(pe.clone())
    }

    /// Sets the hook, in place of an earlier one. Without a hook, a call ends every wait.
    ///
    /// A thread that waits runs the hook with what it waits for. Where the hook breaks, that wait
    /// ends, and its call gives [`Error::Interrupted`], unless a lock's turn came at that moment.
    /// Otherwise the wait goes on. The hook runs again at the next
    /// check while the call stands, so it [dismisses](Waiting::dismiss) a call that it has
    /// answered. It must not panic, nor make a call that waits.
    pub fn set_hook(&self, hook: impl Fn(&Waiting<'_>) -> ControlFlow<()> + Send + Sync + 'static) {
        *lock(&self.0.waits().hook) = Some(Arc::new(hook));
    }

    /// Calls for attention, from any thread or from a signal handler. The call stands until it is
    /// dismissed: waits that begin meanwhile run the hook, too.
    pub fn call(&self) {
        self.0.progress.attention.store(true, Ordering::SeqCst); // C1
        if let Some(clock) = self.0.clock() {
            clock.recall(true);
        }
        self.0.ring(self.0.me()); // C2
    }

    /// Dismisses the call.
    pub fn dismiss(&self) {
        self.0.progress.attention.store(false, Ordering::SeqCst);
    }
}

/// A wait, as a hook sees it. Displayed, it says what the wait is for and which PEs are missing.
pub struct Waiting<'a> {
    pe: &'a Pe,
    awaiting: &'a Awaiting<'a>,
}

shows!([] Waiting<'_> as "Waiting", |it| pe = it.pe.me());

impl Waiting<'_> {
    /// What the wait is for.
    pub fn what(&self) -> Awaited {
        self.awaiting.plain()
    }

    /// The other PEs that have not done their part yet: that have not arrived, hold the lock or are
    /// queued for it, or may write the word. Empty where any PE may end the wait.
    pub fn missing(&self) -> Vec<usize> {
        let done = self.awaiting.done();
        let is_missing = |&pe: &usize| pe != self.pe.me() && !done.is_some_and(|done| done(pe));
        match (self.awaiting, self.awaiting.members()) {
            (Awaiting::Word(_), _) => Vec::new(),
            (_, Some(members)) => members.iter().copied().filter(is_missing).collect(),
            (_, None) => (0..self.pe.npes()).filter(is_missing).collect(),
        }
    }

    /// Dismisses the call for attention.
    pub fn dismiss(&self) {
        self.pe.progress.attention.store(false, Ordering::SeqCst);
    }
}

/// Most PEs that a message names.
const NAMED: usize = 8;

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = self.missing();
        write!(f, "{}", self.what())?;
        let role = match self.what() {
            Awaited::WordOf => "writers",
            Awaited::Lock => "in its queue",
            _ => "missing",
        };
        for (at, pe) in missing.iter().take(NAMED).enumerate() {
            match at {
                0 => write!(f, " ({role}: PE {pe}"),
                _ => write!(f, ", PE {pe}"),
            }?;
        }
        match missing.len() {
            0 => Ok(()),
            1..=NAMED => f.write_str(")"),
            more => write!(f, " and {} more)", more - NAMED),
        }
    }
}

/// Whether a front end calls for the attention of this PE's waits.
#[inline(always)]
pub(super) fn is_called(pe: &Pe) -> bool {
    pe.progress.attention.load(Ordering::Relaxed)
}

/// Runs the hook for a wait that has just looked in vain. Gives the error with which the wait must
/// end, if it must.
#[cold]
#[inline(never)]
pub(super) fn attend(pe: &Pe, awaiting: &Awaiting<'_>) -> Option<Error> {
    let hook = lock(&pe.waits().hook).clone();
    let waiting = Waiting { pe, awaiting };
    match hook.map_or(ControlFlow::Break(()), |hook| hook(&waiting)) {
        ControlFlow::Continue(()) => None,
        ControlFlow::Break(()) => {
            Some(Error::Interrupted { waiting: waiting.to_string(), call: None })
        }
    }
}
