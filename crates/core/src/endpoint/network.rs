//! Operations on several PEs at once that a network may provide in hardware.

use crate::base::error::Result;

/// Barriers in the network's hardware. They do not order writes: a PE completes its writes before
/// it arrives. A PE may be in phases of several groups at once, whose members may overlap.
pub trait HardwareBarrier {
    /// Joins a new group: of these PEs, of which this PE is one, or of all PEs. Each member calls
    /// it with the same list, and for each list equally often and in the same order. All get a
    /// group, or none if the hardware cannot serve it. Returns when all members have called. If a
    /// member leaves the job instead, members that still wait get no group.
    ///
    /// # Errors
    /// Errors of the network.
    fn join(&self, members: Option<&[usize]>) -> Result<Option<BarrierGroup>>;

    /// Makes this PE arrive at its next phase. It has seen the previous phase complete.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn arrive(&self, group: BarrierGroup) -> Result<()>;

    /// Whether [`step`](Self::step) is an operation of the hardware.
    fn has_reduced_code(&self) -> bool;

    /// The reduced barrier code: makes this PE arrive at its next phase if the previous one is
    /// complete, and says whether it has. This PE has arrived at the previous one.
    ///
    /// # Errors
    /// As for [`join`](Self::join), and where the hardware has no such operation.
    fn step(&self, group: BarrierGroup) -> Result<bool>;

    /// Number of complete phases.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn complete(&self, group: BarrierGroup) -> Result<u64>;

    /// Leaves a group whose last phase this PE has seen complete. It ends when all members have
    /// left.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn leave(&self, group: BarrierGroup) -> Result<()>;
}

/// A group for barriers, by its number at the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierGroup(pub u32);

/// Collectives of all PEs in the network's hardware, on a few bytes, or on unsigned words of 64
/// bits. Like those of the library, they are no barriers, and do not order writes. A PE has one
/// under way at a time; all PEs make the same ones in the same order. The end of one ends a
/// [park](super::fabric::VirtualClock::park), as a change of memory does.
pub trait NetworkCollectives {
    /// The most bytes of a PE's part, in whole words; 0 if the hardware does not serve this job.
    /// Each PE calls it once, after the first [`HardwareBarrier::join`] and before anything else,
    /// and all get the same answer.
    ///
    /// # Errors
    /// Errors of the network.
    fn join(&self) -> Result<usize>;

    /// Begins this PE's next collective, with its part. All parts have one length, in whole words
    /// for a collective that combines words.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn begin(&self, what: NetworkCollective, part: &[u8]) -> Result<()>;

    /// Whether this PE's collective has ended. Then its result, if it gets one, is in `result`,
    /// which is as long as its part. A further call is an error.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn end(&self, result: &mut [u8]) -> Result<bool>;
}

/// A collective that a network may provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkCollective {
    /// All PEs get the bytes of one.
    Broadcast {
        /// The PE whose bytes they are.
        root: u32,
    },
    /// One PE gets the combination of all parts.
    Reduce {
        /// The PE that gets it.
        root: u32,
        /// How words are combined.
        operator: WordOperator,
    },
    /// All PEs get the combination of all parts.
    AllReduce(WordOperator),
    /// Each PE gets the combination of the parts up to its own.
    Scan(WordOperator),
}

/// How words of 64 bits are combined: unsigned integers, unless an operator says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordOperator {
    /// The sum, wrapping.
    Add,
    /// The sum of doubles, taken in the order of ranks and rounded after each addition.
    AddDouble,
    /// The same of single-precision numbers, each in the lower half of a word whose upper half is
    /// zero.
    AddSingle,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The bitwise and.
    And,
    /// The bitwise or.
    Or,
}

/// Writes to several PEs at once, which the network copies: a PE sends once, whatever the number of
/// members. None is lost. Writes of one PE by one group become visible at each member in the order
/// of calls. A [`fence`](super::fabric::Fabric::fence) orders them like puts, and a
/// [`quiet`](super::fabric::Fabric::quiet) completes them.
pub trait CopiedWrites {
    /// Joins a new group: of these PEs, of which this PE is one, or of all PEs. Each member calls
    /// it with the same list, and for each list equally often and in the same order. All get a
    /// group, or none if the network cannot serve it. Returns when all members have called. If a
    /// member leaves the job instead, members that still wait get no group.
    ///
    /// # Errors
    /// Errors of the network.
    fn join(&self, members: Option<&[usize]>) -> Result<Option<CopyGroup>>;

    /// Writes bytes at one offset of the segments of all other members. They may be reused on
    /// return. An aligned word of 1, 2, 4 or 8 bytes is never seen torn. A member that is gone gets
    /// nothing, which is no error.
    ///
    /// # Errors
    /// Errors of the network.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes during the call.
    unsafe fn write(&self, group: CopyGroup, to: u64, src: *const u8, len: usize) -> Result<()>;

    /// Leaves a group. It ends when all members have left.
    ///
    /// # Errors
    /// Errors of the network.
    fn leave(&self, group: CopyGroup) -> Result<()>;
}

/// A group for writes that the network copies, by its number at the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyGroup(pub u32);

/// Datagrams to several PEs at once, which the network copies. All bytes of a datagram that arrives
/// are those that were sent. Nothing else is promised: it may be lost, late, or arrive twice, and
/// neither fence nor quiet waits for it. An arrival ends a
/// [park](super::fabric::VirtualClock::park), as a change of memory does.
pub trait Datagrams {
    /// Joins a new group of these PEs, of which this PE is one. Each member calls it with the same
    /// list, and for each list and purpose equally often and in the same order. All get a group, or
    /// none if the network cannot serve it. Returns when datagrams to the group reach all members.
    /// If a member leaves the job instead, members that still wait get no group.
    ///
    /// # Errors
    /// Errors of the network.
    fn join(&self, members: &[usize], purpose: u32) -> Result<Option<DatagramGroup>>;

    /// The most readers whom copies of the network reach faster than PEs that pass blocks on from
    /// one to the next. Equal at all PEs.
    fn most_readers(&self) -> usize {
        usize::MAX
    }

    /// Sends a datagram to all other members, or to one. Longer bytes are cut into datagrams of
    /// [`most`](DatagramGroup::most) bytes, at most [`DATAGRAMS_AT_ONCE`]. The bytes may be reused
    /// on return.
    ///
    /// # Errors
    /// Errors of the network; a lost datagram is none.
    fn send(&self, group: DatagramGroup, to: Option<usize>, bytes: &[u8]) -> Result<()>;

    /// Gives `take` the next datagram that has arrived here by the group; false if there is none.
    ///
    /// # Errors
    /// Errors of the network.
    fn receive(&self, group: DatagramGroup, take: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Leaves a group. It ends when all members have left.
    ///
    /// # Errors
    /// Errors of the network.
    fn leave(&self, group: DatagramGroup) -> Result<()>;
}

/// The most datagrams that one call sends.
pub const DATAGRAMS_AT_ONCE: usize = 16;

/// A group for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramGroup {
    /// The group's number, chosen by the fabric and equal at all members. No other group that a
    /// member is in, or was in lately, has it: late datagrams of other groups are told apart by it.
    pub number: u32,
    /// The most bytes of a datagram.
    pub most: usize,
}
