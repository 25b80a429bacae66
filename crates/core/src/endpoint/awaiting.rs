//! Purposes of waits: one vocabulary for the library's waits and for a fabric that suspends PEs.

use super::calls::TeamCall;
use crate::base::bells::Bells;
use crate::base::compare::Cmp;

/// Where the members of a team meet: a phase of one of its barriers, or a call.
pub(crate) type Meeting = TeamCall;

/// Words that a wait looks at, as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// The address of the first word in the PE's memory.
    pub address: u64,
    /// How many words the wait looks at.
    pub count: u64,
    /// Whether the comparison must hold for all of them; else for one.
    pub all: bool,
    /// The comparison, as a program writes it, where it is one for all words.
    pub comparison: String,
    /// The value with which it compares.
    pub wanted: String,
    /// Some of the words: their indices, and what they hold.
    pub seen: Vec<(u64, String)>,
}

/// Most words that a report has.
const SHOWN: usize = 4;

impl Words {
    /// Words of type `T`, which a wait compares with `wanted`, or each with a value of its own.
    /// `words` gives index, address and value of each.
    pub fn of<T: std::fmt::Debug>(
        all: bool,
        cmp: Cmp,
        wanted: Option<&T>,
        words: impl ExactSizeIterator<Item = (usize, u64, T)>,
    ) -> Words {
        let count = words.len() as u64;
        let mut words = words.take(SHOWN).peekable();
        Words {
            address: words.peek().map_or(0, |&(_, address, _)| address),
            count,
            all,
            comparison: cmp.to_string(),
            wanted: wanted.map_or("values of their own".into(), |value| format!("{value:?}")),
            seen: words.map(|(index, _, value)| (index as u64, format!("{value:?}"))).collect(),
        }
    }
}

/// How a wait says what its words are now.
pub(crate) type Look<'a> = Option<&'a dyn Fn() -> Words>;

/// The purpose of a wait, with what decides whether it can still succeed.
///
/// The functions say whether a PE that has left in order had done its part before. If it had, its
/// leaving does not end the wait.
#[derive(Clone, Copy)]
pub(crate) enum Awaiting<'a> {
    /// A word that any PE may write. PEs that have left end the wait once no PE is left that could
    /// write.
    Word(Look<'a>),
    /// A word that these PEs may write. If there are none, the wait depends on no other PE.
    WordOf(&'a [usize], Look<'a>),
    /// A lock. The wait depends on all PEs living, and on none leaving with the lock or a place in
    /// its queue.
    Lock {
        /// Whether a PE has neither the lock nor a place in its queue.
        is_free_of: &'a dyn Fn(usize) -> bool,
        /// Whether a PE has the lock, where that can be seen.
        holds: Option<&'a dyn Fn(usize) -> bool>,
        /// What tells the lock from others: its place, which is one at all PEs.
        place: u64,
    },
    /// The end of a phase of a barrier.
    Barrier {
        /// PEs of the barrier.
        members: &'a [usize],
        /// Whether a member has arrived.
        arrived: &'a dyn Fn(usize) -> bool,
        /// The words on which all members sleep, if the algorithm has any.
        bells: Option<Bells>,
        /// Which phase of which barrier.
        meeting: Meeting,
    },
    /// A step of a collective.
    Step {
        /// PEs of the team.
        members: &'a [usize],
        /// Whether a member has done its part.
        done: &'a dyn Fn(usize) -> bool,
        /// Which call of which team.
        meeting: Meeting,
    },
    /// A block of a multicast channel, or room for one.
    Channel {
        /// PEs at the other ends.
        ends: &'a [usize],
        /// Whether an end has done its part.
        done: &'a dyn Fn(usize) -> bool,
    },
    /// The other PEs, before this one leaves the job. The wait depends on no other PE.
    Leave,
}

impl<'a> Awaiting<'a> {
    /// The PEs whose death ends the wait; `None`: all PEs.
    #[inline]
    pub(crate) fn members(&self) -> Option<&'a [usize]> {
        match *self {
            Awaiting::Word(_) | Awaiting::Lock { .. } => None,
            Awaiting::WordOf(members, _)
            | Awaiting::Barrier { members, .. }
            | Awaiting::Step { members, .. }
            | Awaiting::Channel { ends: members, .. } => Some(members),
            Awaiting::Leave => Some(&[]),
        }
    }

    /// Whether a PE has done its part; `None` for words, where that is not known.
    #[inline]
    pub(crate) fn done(&self) -> Option<&'a dyn Fn(usize) -> bool> {
        match *self {
            Awaiting::Word(_) | Awaiting::WordOf(..) => None,
            Awaiting::Lock { is_free_of: done, .. }
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

    /// Whether a plain store, which wakes no PE, may end the wait.
    #[inline]
    pub(crate) fn is_word(&self) -> bool {
        matches!(self, Awaiting::Word(_) | Awaiting::WordOf(..))
    }

    /// The purpose as plain data.
    pub(crate) fn plain(&self) -> Awaited {
        match self {
            Awaiting::Word(_) => Awaited::Word,
            Awaiting::WordOf(..) => Awaited::WordOf,
            Awaiting::Lock { .. } => Awaited::Lock,
            Awaiting::Barrier { .. } => Awaited::Barrier,
            Awaiting::Step { .. } => Awaited::Step,
            Awaiting::Channel { .. } => Awaited::Channel,
            Awaiting::Leave => Awaited::Leave,
        }
    }
}

/// The purpose of a wait as plain data, which a PE can send to its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// A far PE, in a call of the fabric.
    Peer,
}

impl Awaited {
    /// All purposes.
    pub(crate) const ALL: [Awaited; 8] = [
        Awaited::Word,
        Awaited::WordOf,
        Awaited::Lock,
        Awaited::Barrier,
        Awaited::Step,
        Awaited::Channel,
        Awaited::Leave,
        Awaited::Peer,
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
            Awaited::Peer => "a PE of another host",
        })
    }
}
