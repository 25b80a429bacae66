//! What lies between PEs that do not share memory, and the contract that all of memonet relies on.
//!
//! # The contract
//!
//! It binds every fabric and the Near path alike; the conformance suite tests it on each.
//!
//! | promise | meaning |
//! |---|---|
//! | order | what a [`fence`](Fabric::fence) separates becomes visible at each PE in that order; so does the data of a [`put_signal`](Fabric::put_signal) or [`put_signal_nbi`](Fabric::put_signal_nbi) before its signal. Nothing else is promised: neither order between two stores to one PE, nor that a get sees an earlier store of the same PE |
//! | word atomicity | an aligned store of 1, 2, 4 or 8 bytes is never seen torn. Blocks promise nothing of the kind |
//! | put returns | the source may be reused. It is visible at the target after [`quiet`](Fabric::quiet) |
//! | quiet | all of this PE's stores, puts, signals and atomics are visible at their targets; what failed meanwhile is its error |
//! | get, atomics return | the value is there; an atomic has been applied exactly once |
//! | a departure | operations to a PE that is gone end, as [`departed`](Fabric::departed) says; nothing waits for it |
//! | get and quiet | a get reads what its target's memory holds between call and return. So of a PE that stores to its own memory, fences its processor, and reads there, and another that writes there, is quiet, and then gets, one sees the other |
//! | eventually | what was started is visible at the target after a bounded time, also if this PE makes no further call |
//! | waking | where delivery is by a CPU, it rings the target's announced sleeper; where it is not, the target's wait calls [`progress`](Fabric::progress) and looks |
//! | one updater | a word on which this fabric does atomics is updated by this fabric alone: the library routes the home's own atomics through it too |
//! | threads | every call may be made from any thread of the PE |
//!
//! What a fabric need not check: bounds, keys, access modes. A [`FarAddress`] was checked when it
//! was resolved.

pub use super::prepared::Prepared;
use super::prepared::Repeated;
pub use super::record::{Costs, Record};
use crate::base::error::{Cause, Result};
use crate::base::shm::AtomicOp;
pub use crate::endpoint::awaiting::Awaited;
use rustix::fd::BorrowedFd;
use std::ops::Range;
use std::time::Duration;

/// A place in the memory of a PE that is not mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarAddress {
    /// PE whose memory it is.
    pub pe: u32,
    /// 0: the PE's segment; k + 1: its part of the restricted window in key slot k.
    pub region: u32,
    /// Byte offset in that region.
    pub offset: u64,
}

/// What a signal does to its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalOp {
    /// The word becomes the value.
    Set,
    /// The value is added to the word, atomically, wrapping.
    Add,
}

/// A signal after a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its word, 8 bytes.
    pub at: FarAddress,
    /// How it changes.
    pub op: SignalOp,
    /// By what.
    pub value: u64,
}

/// A way to memory that is not mapped here. Object-safe: a virtual call is nothing beside a
/// network.
pub trait Fabric: Send + Sync {
    /// Name, for messages and benchmarks.
    fn name(&self) -> &'static str;

    /// Stores a word of `size` (1, 2, 4, 8) bytes. Errors surface at the next
    /// [`quiet`](Self::quiet).
    fn store(&self, to: FarAddress, size: usize, bits: u64);

    /// Writes a block; the source may be reused on return.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes during the call.
    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()>;

    /// Writes a block; the source must stay as it is until the next [`quiet`](Self::quiet).
    ///
    /// # Safety
    /// `src` stays readable for `len` bytes until `quiet` returns.
    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()>;

    /// Reads a block.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes during the call.
    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()>;

    /// Writes a block, then updates the signal word: whoever sees the signal sees the block. Source
    /// as in [`put`](Self::put).
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    unsafe fn put_signal(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()>;

    /// [`put_signal`](Self::put_signal) of a source that is not copied. It must stay as it is until
    /// the block is visible at the target: until the next [`quiet`](Self::quiet) returns, or until
    /// the target has answered the signal, in whatever way.
    ///
    /// By default the source is copied, as by `put_signal`.
    ///
    /// # Safety
    /// `src` stays readable for `len` bytes until then.
    unsafe fn put_signal_nbi(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        // SAFETY: the caller promises more than this asks for.
        unsafe { self.put_signal(to, src, len, signal, op, value) }
    }

    /// Prepares a put of `len` bytes from `src` on, followed by `signal` if there is one, to be
    /// started many times. Nothing is read or written before the first start.
    ///
    /// By default each start is a [`put_nbi`](Self::put_nbi) or
    /// [`put_signal_nbi`](Self::put_signal_nbi).
    ///
    /// # Errors
    /// Where it cannot be prepared; the caller then has no transfer.
    fn prepare(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<Signal>,
    ) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Repeated { to, src, len, signal }))
    }

    /// Updates a word of `size` (4, 8; `Swap` also 1, 2) bytes and returns what it held.
    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64>;

    /// Stores `new` if the word holds `expected`; returns what it held.
    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64>;

    /// Everything before becomes visible at each PE before anything after.
    fn fence(&self) -> Result<()>;

    /// Everything before is visible at its targets.
    fn quiet(&self) -> Result<()>;

    /// Whether everything before is visible at its targets, without waiting for it.
    fn is_quiet(&self) -> Result<bool>;

    /// Lets the fabric work, where it has no thread or hardware of its own. Every wait and test of
    /// a real PE calls it, from any thread and often: with nothing to do it returns at once.
    ///
    /// Gives whether it did anything: whether something that had arrived is now in this PE's
    /// memory, or something that this PE had started has moved on. A fabric that works elsewhere
    /// always gives false.
    fn progress(&self) -> bool;

    /// A range of this PE's segment, as byte offsets in it, comes into use: the library's own words
    /// when the PE joins, what is allocated in the heap, static data that are shared. Its pages
    /// stay where they are until [`remove_range`](Self::remove_range). No PE names a byte of it
    /// before all PEs that take part in the allocation have returned from their calls; an
    /// operation lies in one range. Ranges of a PE never overlap, and those of the heap are the
    /// same at every PE.
    ///
    /// There is no error to return, as an allocation is made at all PEs or at none: a fabric that
    /// cannot have its network reach a range serves it in another way, or fails the operations.
    fn add_range(&self, _range: Range<u64>) {}

    /// A range that was [added](Self::add_range) goes out of use, all of it: afterwards its pages
    /// may be given back. All PEs have completed their writes to it, and name it no more.
    fn remove_range(&self, _range: Range<u64>) {}

    /// A descriptor that is readable when [`progress`](Self::progress) has something to do, or
    /// something has been delivered here since it was last called, which makes it unreadable
    /// again. The same one for as long as the fabric lives.
    ///
    /// A PE all of whose memory is behind the fabric sleeps on it, from any thread, and looks from
    /// time to time all the same. One with near peers sleeps where these wake it: there, a fabric
    /// that has to work soon needs a thread of its own.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Tells the fabric where a part of a restricted window is mapped in this process, and of which
    /// memory file: its own part, and parts of far PEs whose descriptors have come here.
    ///
    /// # Errors
    /// When the fabric cannot serve it.
    ///
    /// # Safety
    /// `base` stays mapped for `len` bytes, with the right to write where operations that write
    /// will be asked for, until [`unmap_region`](Self::unmap_region).
    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()>;

    /// Takes back [`map_region`](Self::map_region); no operation on it is under way.
    fn unmap_region(&self, pe: u32, region: u32);

    /// PE `pe` is gone, and its memory with it: it died, or it left the job and no PE needs it any
    /// more. A PE that has finalised, but still waits until all others have, is not gone.
    ///
    /// From now on operations to it end instead of waiting, those under way too, and their buffers
    /// go. Writes and signals end without an error: they may have arrived just before, and a team
    /// that goes on without the dead is not to fail because of what it still wrote there. What
    /// needs an answer fails with [`Error::PeerFailed`] and `cause`: atomics, and gets unless the
    /// memory is still there.
    ///
    /// Every wait and test of a real PE looks at departures before it calls
    /// [`progress`](Self::progress), and calls this once per PE and process, from any thread. A
    /// call of the fabric that blocks looks by itself: [`Seat::departed`].
    ///
    /// [`Error::PeerFailed`]: crate::Error::PeerFailed
    /// [`Seat::departed`]: crate::unstable::Seat::departed
    fn departed(&self, _pe: u32, _cause: Cause) {}

    /// The time in which this PE lives, where the fabric simulates that too.
    fn clock(&self) -> Option<&dyn VirtualClock> {
        None
    }

    /// Hardware for the barrier of all PEs, where the network has it.
    fn barrier(&self) -> Option<&dyn HardwareBarrier> {
        None
    }

    /// Collectives of all PEs, where the network has them.
    fn collectives(&self) -> Option<&dyn NetworkCollectives> {
        None
    }

    /// Datagrams to groups of PEs, where the network copies them.
    fn datagrams(&self) -> Option<&dyn Datagrams> {
        None
    }

    /// Which PEs share a node: the same at every PE. Asked once, when the PE joins.
    ///
    /// A fabric that leaves memory of a node's PEs to their own stores updates words by the
    /// processor's atomics, as those do.
    fn record(&self) -> Record {
        Record::all_far()
    }

    /// What its operations cost, where it knows. Every PE gets the same numbers, as choices depend
    /// on them that all PEs make alike. Asked once, when the PE joins; they go into the record.
    fn costs(&self) -> Option<Costs> {
        None
    }

    /// Whether this PE's memory stays reachable for the others, and what it has written arrives,
    /// after it has left the job.
    fn outlives_pes(&self) -> bool {
        false
    }
}

/// A barrier of all PEs that the network makes by itself. It says nothing of what was written
/// before: who arrives has made that visible.
pub trait HardwareBarrier {
    /// Whether it serves this job. Each PE asks once, before anything else, and all get the same
    /// answer.
    ///
    /// # Errors
    /// Of the network.
    fn join(&self) -> Result<bool>;

    /// This PE arrives at its next phase. It has seen the phase before complete.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn arrive(&self) -> Result<()>;

    /// The phases that are complete.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn complete(&self) -> Result<u64>;
}

/// Collectives of all PEs that the network makes by itself, of a few bytes, or of words of 64 bits
/// without a sign. As the library's own, they are no barriers, and say nothing of what was written
/// before. A PE has one at a time; all have the same ones in the same order. That one has ended
/// ends a [park](VirtualClock::park), as a change of memory does.
pub trait NetworkCollectives {
    /// The most bytes of a PE's part; 0 where this job is not served. Each PE asks once, before
    /// anything but what it asks the [`HardwareBarrier`], and all get the same answer.
    ///
    /// # Errors
    /// Of the network.
    fn join(&self) -> Result<usize>;

    /// This PE comes to its next one, with its part: as many bytes at each PE, and whole words
    /// where those are put together.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn begin(&self, what: NetworkCollective, part: &[u8]) -> Result<()>;

    /// Whether this PE is through. Then its result, if it gets one, is in `result`, which is as
    /// long as its part was; asked again after that, it is an error.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    fn end(&self, result: &mut [u8]) -> Result<bool>;
}

/// What a network may make by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkCollective {
    /// A PE's bytes to all.
    Broadcast {
        /// Whose.
        root: u32,
    },
    /// All parts put together, for one PE.
    Reduce {
        /// For whom.
        root: u32,
        /// How.
        operator: WordOperator,
    },
    /// All parts put together, for all.
    AllReduce(WordOperator),
    /// The parts up to and with one's own put together.
    Scan(WordOperator),
}

/// How words are put together: 64 bits each, without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordOperator {
    /// The sum, wrapping.
    Add,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// Bits that all have.
    And,
    /// Bits that any has.
    Or,
}

/// Datagrams to several PEs at once, copied by the network. Of one that comes all bytes are those
/// that were sent; nothing else is promised: it may be lost, late, or come twice, and neither a
/// fence nor `quiet` knows of it. One that comes ends a [park](VirtualClock::park), as a change of
/// memory does.
pub trait Datagrams {
    /// This PE joins a new group of these PEs, which it is one of. Each of them asks with the same
    /// list, and for each list and purpose as often as the others, in the same order; all get a
    /// group, or none does, where the network cannot serve it. Returns when what is sent to the
    /// group comes to all of them. Where one of them leaves the job instead, there is no group for
    /// those that still wait.
    ///
    /// # Errors
    /// Of the network.
    fn join(&self, members: &[usize], purpose: u32) -> Result<Option<DatagramGroup>>;

    /// Sends a datagram to all other members, or to one; or several in one go, each but the last of
    /// [`most`](DatagramGroup::most) bytes, at most [`DATAGRAMS_AT_ONCE`]. The bytes may be reused
    /// on return.
    ///
    /// # Errors
    /// Of the network; that a datagram does not come is none.
    fn send(&self, group: DatagramGroup, to: Option<usize>, bytes: &[u8]) -> Result<()>;

    /// Gives `take` the next datagram that has come here by the group; false if there is none.
    ///
    /// # Errors
    /// Of the network.
    fn receive(&self, group: DatagramGroup, take: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// This PE sends and takes no more. A group that all have left is no more.
    ///
    /// # Errors
    /// Of the network.
    fn leave(&self, group: DatagramGroup) -> Result<()>;
}

/// Most datagrams that are sent in one go.
pub const DATAGRAMS_AT_ONCE: usize = 16;

/// A group for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramGroup {
    /// Its name, of the fabric's choice: the same at all members, and no other's among the groups
    /// that one of them is in, or was in lately: what still comes from those is told apart by it.
    pub number: u32,
    /// Most bytes of a datagram.
    pub most: usize,
}

/// When a PE that waits goes on though nothing has changed in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The moment, since the start of the job.
    pub at: Duration,
    /// It will only do what it has done very often, with nothing learnt from all of that. Where
    /// nothing else is left to happen, the job is stuck.
    pub vain: bool,
}

impl Due {
    /// Of those that there are, the first; in vain if all are.
    pub(crate) fn first(one: Option<Due>, other: Option<Due>) -> Option<Due> {
        let both =
            |one: Due, other: Due| Due { at: one.at.min(other.at), vain: one.vain && other.vain };
        match (one, other) {
            (Some(one), Some(other)) => Some(both(one, other)),
            (one, other) => one.or(other),
        }
    }
}

/// A PE's time, where it is not the world's. Every call may take virtual time, and lets other PEs
/// run meanwhile.
pub trait VirtualClock {
    /// Time since the start of the job.
    fn now(&self) -> Duration;

    /// This PE looks at its own memory once: what the look takes passes.
    fn look(&self);

    /// This PE has looked in vain, and does nothing until something may have changed in its memory
    /// since, or until it is `due`. It may be woken for nothing. `what` says what it waits for, for
    /// the report of a deadlock.
    ///
    /// # Errors
    /// When it is not this PE that runs.
    fn park(&self, due: Option<Due>, what: Awaited) -> Result<()>;

    /// This PE computes for so long.
    fn compute(&self, time: Duration);
}
