//! What a wait is for: one vocabulary for the library's waits and for the fabric that is told of
//! them.

use crate::base::bells::Bells;

/// What a wait is for, with what decides whether it can still succeed.
///
/// The functions say of a PE that has left in order whether it had done its part before: then its
/// leaving does not end the wait.
#[derive(Clone, Copy)]
pub(crate) enum Awaiting<'a> {
    /// A word that any PE may write. Which PE is missing is not known: PEs that have left end the
    /// wait once no other is left that could write.
    Word,
    /// A word that these PEs may write; of none, the wait depends on no other PE's life.
    WordOf(&'a [usize]),
    /// A lock. All PEs live, and none leaves with the lock or its place in the queue.
    Lock {
        /// Whether a PE holds nothing of the lock.
        is_free_of: &'a dyn Fn(usize) -> bool,
    },
    /// The end of a phase of a barrier.
    Barrier {
        /// PEs of the barrier.
        members: &'a [usize],
        /// Whether a member has arrived.
        arrived: &'a dyn Fn(usize) -> bool,
        /// Where all members sleep, if the algorithm has them sleep together.
        bells: Option<Bells>,
    },
    /// A step of a collective.
    Step {
        /// PEs of the team.
        members: &'a [usize],
        /// Whether nothing of a member is missing.
        done: &'a dyn Fn(usize) -> bool,
    },
    /// A block of a multicast channel, or room for one.
    Channel {
        /// PEs at the other ends.
        ends: &'a [usize],
        /// Whether nothing of an end is missing.
        done: &'a dyn Fn(usize) -> bool,
    },
    /// The other PEs, before this one leaves the job. It depends on no other PE's life.
    Leave,
}

impl<'a> Awaiting<'a> {
    /// The PEs whose death ends the wait; `None`: any PE's.
    #[inline]
    pub(crate) fn members(&self) -> Option<&'a [usize]> {
        match *self {
            Awaiting::Word | Awaiting::Lock { .. } => None,
            Awaiting::WordOf(members)
            | Awaiting::Barrier { members, .. }
            | Awaiting::Step { members, .. }
            | Awaiting::Channel { ends: members, .. } => Some(members),
            Awaiting::Leave => Some(&[]),
        }
    }

    /// Whether a PE has done its part; `None` for words, of which that is not known.
    #[inline]
    pub(crate) fn done(&self) -> Option<&'a dyn Fn(usize) -> bool> {
        match *self {
            Awaiting::Word | Awaiting::WordOf(_) => None,
            Awaiting::Lock { is_free_of: done }
            | Awaiting::Barrier { arrived: done, .. }
            | Awaiting::Step { done, .. }
            | Awaiting::Channel { done, .. } => Some(done),
            Awaiting::Leave => Some(&|_| true),
        }
    }

    /// The bells on which the wait may sleep.
    #[inline]
    pub(crate) fn bells(&self) -> Option<Bells> {
        match *self {
            Awaiting::Barrier { bells, .. } => bells,
            _ => None,
        }
    }

    /// Whether a plain store, which wakes nobody, may end the wait.
    #[inline]
    pub(crate) fn is_word(&self) -> bool {
        matches!(self, Awaiting::Word | Awaiting::WordOf(_))
    }

    /// The plain part.
    pub(crate) fn plain(&self) -> Awaited {
        match self {
            Awaiting::Word => Awaited::Word,
            Awaiting::WordOf(_) => Awaited::WordOf,
            Awaiting::Lock { .. } => Awaited::Lock,
            Awaiting::Barrier { .. } => Awaited::Barrier,
            Awaiting::Step { .. } => Awaited::Step,
            Awaiting::Channel { .. } => Awaited::Channel,
            Awaiting::Leave => Awaited::Leave,
        }
    }
}

/// The plain part of what a wait is for, which can be sent elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A word that any PE may write.
    Word,
    /// A word that some PEs may write.
    WordOf,
    /// A lock.
    Lock,
    /// The end of a phase of a barrier.
    Barrier,
    /// A step of a collective.
    Step,
    /// A block of a multicast channel, or room for one.
    Channel,
    /// The other PEs, before this one leaves the job.
    Leave,
}

impl Awaited {
    /// Each of them.
    pub(crate) const ALL: [Awaited; 7] = [
        Awaited::Word,
        Awaited::WordOf,
        Awaited::Lock,
        Awaited::Barrier,
        Awaited::Step,
        Awaited::Channel,
        Awaited::Leave,
    ];
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Awaited::Word => "a word that any PE may write",
            Awaited::WordOf => "a word that some PEs may write",
            Awaited::Lock => "a lock",
            Awaited::Barrier => "a barrier",
            Awaited::Step => "the other members in a collective call",
            Awaited::Channel => "the other end of a multicast channel",
            Awaited::Leave => "the other PEs, before it leaves the job",
        })
    }
}
