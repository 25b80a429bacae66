//! The way between PEs that do not share memory, and the contract that all of memonet relies on.
//!
//! # The contract
//!
//! It binds every fabric and the near path alike. The conformance suite tests it on each.
//!
//! | promise | meaning |
//! |---|---|
//! | order | writes that a [`fence`](Fabric::fence) separates become visible at each PE in that order; so does the data of a [`put_signal`](Fabric::put_signal) or [`put_signal_nbi`](Fabric::put_signal_nbi) before its signal. Nothing else is promised: neither order between two stores to one PE, nor that a get sees an earlier store of this PE |
//! | word atomicity | an aligned store of 1, 2, 4 or 8 bytes is never seen torn. Blocks have no such promise |
//! | put returns | the source may be reused. The block is visible at the target after [`quiet`](Fabric::quiet) |
//! | quiet | all of this PE's stores, puts, signals and atomics are visible at their targets; it reports their errors |
//! | notifications | those of a PE to another become visible there in the order of calls, or each before the next `quiet` returns; a fence orders them like stores; before a PE leaves, [`quiet_all`](Fabric::quiet_all) completes them, too |
//! | get, atomics return | the value is there; an atomic has been applied exactly once |
//! | copied writes | those of a PE by one group become visible at each member in the order of calls; for fence and quiet they are puts |
//! | a departure | operations to a PE that is gone end, as [`departed`](Fabric::departed) says; none waits for it |
//! | get and quiet | a get reads what its target's memory holds between call and return. So let one PE store to its own memory, fence its processor, and read there; let another write there, call quiet, and then get: one of the two sees the other |
//! | eventually | every operation is visible at the target after a bounded time, even if this PE makes no further call |
//! | waking | where a CPU delivers, it wakes the target's announced sleeper; otherwise the target's wait calls [`progress`](Fabric::progress) and looks |
//! | one updater | a word on which this fabric does atomics is updated by this fabric alone: the library routes the home's own atomics through it too |
//! | threads | any thread of the PE may make any call |
//!
//! A fabric need not check bounds, keys or access modes: a [`FarAddress`] was checked when it was
//! resolved.
//!
//! # Notifications
//!
//! The library tells PEs that this one has come to a barrier or a collective by
//! [`notify`](Fabric::notify) and [`put_notify`](Fabric::put_notify). They write to words and lines
//! of the library, and to destinations of collectives. Where a fabric keeps them in order by
//! itself, a quiet need not complete them. A barrier begins with a quiet: without this, each
//! barrier would wait for the acknowledgement of the one before, or of a collective's blocks.
//!
//! *Nothing relies on their completion.*
//!
//! * F1: *Words of barriers.* They only grow. Two notifications for one word of one PE come in
//!   order: by the table, or because the second barrier began with a quiet after the first one.
//! * F2: *What is announced.* A PE notifies after its quiet has returned, or after a fence: its
//!   writes are visible before the notification is.
//! * F3: *Reuse.* A line, a word or a slot is used again when its last notification has been seen
//!   by the PE that owns it. Those that use it know that by notifications of this PE, never by a
//!   quiet of their own (proofs in `team/steps.rs` and `sync/barrier`).
//! * F4: *Sources.* They may be reused when the call returns.
//! * F5: *Leaving.* A PE that sees that another has left, but not its notification, takes it for
//!   missing. So a PE leaves after `quiet_all`.
//! * F6: *Threads.* One thread at a time is in a barrier, or in a step of a team, so that calls for
//!   one word have an order. No order between words is needed that no fence asks for.
//! * F7: *Errors.* A notification that is lost says nothing at this PE's next quiet. The pair has
//!   failed then, and waits that depend on it end as [`unreachable`](Fabric::unreachable) says.
//! * F8: *Destinations.* A member returns from a collective once it has seen the notification after
//!   each block that it gets, and so with these blocks. What another PE knows of them, it knows by
//!   what this member has done since: a collective promises nothing of other members' destinations.

pub use super::errand::{Step, Test};
pub use super::network::{
    BarrierGroup, CopiedWrites, CopyGroup, DATAGRAMS_AT_ONCE, DatagramGroup, Datagrams,
    HardwareBarrier, NetworkCollective, NetworkCollectives, WordOperator,
};
pub use super::record::{Costs, Record};
pub use super::virtual_clock::{Due, VirtualClock};
use crate::base::access::Access;
use crate::base::error::{Cause, Error, Result};
use crate::base::shm::AtomicOp;
pub use crate::endpoint::awaiting::Awaited;
use rustix::fd::BorrowedFd;
use std::net::SocketAddrV4;
use std::ops::Range;

/// An address in the memory of a far PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarAddress {
    /// The PE.
    pub pe: u32,
    /// 0: the PE's segment; k + 1: its part of the restricted window in key slot k.
    pub region: u32,
    /// Byte offset in that region.
    pub offset: u64,
}

/// How a signal changes its word.
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
    /// Its word of 8 bytes.
    pub at: FarAddress,
    /// How the word changes.
    pub op: SignalOp,
    /// The operand.
    pub value: u64,
}

/// A way to memory that is not mapped here. Calls are virtual: beside a network, that costs
/// nothing.
pub trait Fabric: Send + Sync {
    /// Name, for messages and benchmarks.
    fn name(&self) -> &'static str;

    /// Stores a word of `size` (1, 2, 4, 8) bytes. The next [`quiet`](Self::quiet) reports errors.
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

    /// Writes a block, then updates the signal word: a PE that sees the signal sees the block. The
    /// source may be reused on return.
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

    /// [`put_signal`](Self::put_signal), but the source must stay as it is until the block is
    /// visible at the target: until the next [`quiet`](Self::quiet) returns, or the target has
    /// answered the signal in any way. By default it calls `put_signal`.
    ///
    /// # Safety
    /// `src` stays readable for `len` bytes until the block is visible.
    unsafe fn put_signal_nbi(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        // SAFETY: the caller promises the source for longer than this call.
        unsafe { self.put_signal(to, src, len, signal, op, value) }
    }

    /// Notifies a PE: stores a word of `size` (1, 2, 4, 8) bytes. By default it is a
    /// [`store`](Self::store), which the next [`quiet`](Self::quiet) completes.
    ///
    /// # Errors
    /// Where the notification is known to be lost.
    fn notify(&self, at: FarAddress, size: usize, bits: u64) -> Result<()> {
        self.store(at, size, bits);
        Ok(())
    }

    /// Notifies a PE: writes a block, and then stores `value` in a word of 8 bytes of the same PE.
    /// A PE that sees the word sees the block. The source may be reused on return. By default it is
    /// a [`put_signal`](Self::put_signal), which the next [`quiet`](Self::quiet) completes.
    ///
    /// # Errors
    /// As for [`notify`](Self::notify).
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    unsafe fn put_notify(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        at: FarAddress,
        value: u64,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.put_signal(to, src, len, at, SignalOp::Set, value) }
    }

    /// Prepares a put of `len` bytes from `src` on, followed by `signal` if there is one, to be
    /// started many times. It reads and writes nothing before the first start. By default each
    /// start is a [`put_nbi`](Self::put_nbi) or [`put_signal_nbi`](Self::put_signal_nbi), and has
    /// its [command kept](Self::keep_command). It is complete when its command is, or, where the
    /// hardware does not say, when all puts are.
    ///
    /// # Errors
    /// When the fabric cannot prepare it; then there is no transfer.
    fn prepare(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<Signal>,
    ) -> Result<Box<dyn Prepared>> {
        self.keep_command(to, len, signal)?;
        Ok(Box::new(Repeated { to, src, len, signal }))
    }

    /// The program will make this put without a copy of its source again and again: hardware that
    /// builds a command for it builds the command now, and keeps it. What keeps no commands does
    /// nothing.
    ///
    /// # Errors
    /// Errors of the network.
    fn keep_command(&self, _to: FarAddress, _len: usize, _signal: Option<Signal>) -> Result<()> {
        Ok(())
    }

    /// Undoes one [`keep_command`](Self::keep_command) with the same arguments.
    ///
    /// # Errors
    /// Errors of the network.
    fn drop_command(&self, _to: FarAddress, _len: usize, _signal: Option<Signal>) -> Result<()> {
        Ok(())
    }

    /// Whether the last put of a [kept](Self::keep_command) command is visible at its target, its
    /// signal too. Nothing where the hardware does not tell such puts from others.
    ///
    /// # Errors
    /// The error of the put.
    fn command_is_complete(
        &self,
        _to: FarAddress,
        _len: usize,
        _signal: Option<Signal>,
    ) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Returns when [`command_is_complete`](Self::command_is_complete) would say so; false, at
    /// once, where that says nothing.
    ///
    /// # Errors
    /// As for that.
    fn complete_command(
        &self,
        _to: FarAddress,
        _len: usize,
        _signal: Option<Signal>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Updates a word of `size` (4, 8; `Swap` also 1, 2) bytes, and returns its old value.
    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64>;

    /// Updates a word of `size` (4, 8) bytes. The update is a write: it is ordered by a fence, and
    /// visible after [`quiet`](Self::quiet). By default it is a [`fetch_op`](Self::fetch_op), which
    /// waits for an answer.
    ///
    /// # Errors
    /// Where the update is known to be lost.
    fn apply(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<()> {
        self.fetch_op(at, size, op, operand).map(drop)
    }

    /// Stores `new` if the word holds `expected`, and returns its old value.
    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64>;

    /// Makes all earlier writes visible at each PE before any later one.
    fn fence(&self) -> Result<()>;

    /// Returns when all earlier operations are visible at their targets, but for notifications
    /// that stay in order without it.
    fn quiet(&self) -> Result<()>;

    /// [`quiet`](Self::quiet) of notifications, too: before this PE leaves the job.
    fn quiet_all(&self) -> Result<()> {
        self.quiet()
    }

    /// Whether all is visible that [`quiet`](Self::quiet) would wait for. Does not wait.
    fn is_quiet(&self) -> Result<bool>;

    /// Sends what was kept back to be sent with more: the PE is about to wait. With nothing to send
    /// it costs a few instructions, as near waits call it too.
    fn send(&self) {}

    /// Lets a fabric work that has no thread or hardware of its own. Every wait and test of a PE
    /// that is not simulated calls it, from any thread and often: with nothing to do it returns at
    /// once.
    ///
    /// True if it did anything: it wrote arrived data to this PE's memory, or advanced an operation
    /// that this PE had started. A fabric that works elsewhere always gives false.
    fn progress(&self) -> bool;

    /// A thread of this PE is about to sleep on its doorbell in a wait, for which it has announced
    /// itself. A fabric that leaves what comes to the PE's polls for a while takes it by itself
    /// from now on, and wakes the sleeper. Called before each such sleep, from any thread.
    fn sleeps(&self) {}

    /// Announces a range of this PE's segment, as byte offsets in it, before its first use: the
    /// library's own words when the PE joins, an allocation of the heap, or shared static data. Its
    /// pages stay in place until [`remove_range`](Self::remove_range).
    ///
    /// No PE addresses a byte of the range before all PEs of the allocation have returned from
    /// their calls. An operation lies in one range. Ranges of a PE never overlap; those of the heap
    /// are equal at all PEs.
    ///
    /// It returns no error, because all PEs allocate or none does. A fabric that cannot register a
    /// range with its network serves the range in another way, or fails the operations on it.
    fn add_range(&self, _range: Range<u64>) {}

    /// Withdraws a whole range that was [added](Self::add_range). Its pages may be freed when this
    /// returns. All PEs have completed their writes to it, and no PE addresses it again.
    fn remove_range(&self, _range: Range<u64>) {}

    /// A descriptor that is readable while [`progress`](Self::progress) has work to do, or when
    /// data have been delivered to this PE since the last `progress`, which makes it unreadable
    /// again. It is one descriptor as long as the fabric lives. Called before each sleep on it.
    ///
    /// If all memory of a PE is behind the fabric, one thread of the PE sleeps on this descriptor,
    /// and also polls at intervals. What another thread delivers meanwhile wakes it by
    /// [`Seat::wake`](crate::unstable::Seat::wake). Other threads, and a PE with near peers, sleep
    /// on the doorbell instead: a fabric that must work without delay then needs a thread of its
    /// own.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Announces that a part of a restricted window is mapped in this process, and its memory file:
    /// this PE's own part, or the part of a far PE whose descriptor this PE has received.
    ///
    /// # Errors
    /// When the fabric cannot serve it.
    ///
    /// # Safety
    /// `base` stays mapped for `len` bytes, writable if any operation will write to it, until
    /// [`unmap_region`](Self::unmap_region).
    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()>;

    /// Withdraws a part given to [`map_region`](Self::map_region). No operation on it is under way.
    fn unmap_region(&self, pe: u32, region: u32);

    /// Whether far parts of restricted windows are reached at their homes, by
    /// [`open_part`](Self::open_part). Otherwise each holder maps the part, as
    /// [`map_region`](Self::map_region) says, which works on one machine only.
    fn serves_parts(&self) -> bool {
        false
    }

    /// Announces this PE's own part of a restricted window, before its first use, as its region
    /// `region`. `rights` has each PE's right to the part. The home refuses operations that are not
    /// allowed, or that reach beyond `len` bytes.
    ///
    /// # Errors
    /// What keeps this PE from serving others.
    ///
    /// # Safety
    /// `base` stays mapped, readable and writable, for `len` bytes until
    /// [`close_part`](Self::close_part).
    unsafe fn open_part(
        &self,
        _region: u32,
        _base: *mut u8,
        _len: usize,
        _rights: &[Access],
    ) -> Result<()> {
        Ok(())
    }

    /// Withdraws a part given to [`open_part`](Self::open_part): when it returns, nothing touches
    /// the part any more, and later operations on it are refused.
    fn close_part(&self, _region: u32) {}

    /// This PE's own part of the restricted window in `region` has a new key: hardware that
    /// compares keys refuses writes to the part that carry another. Earlier keys stay valid beside
    /// it unless it is the `only` one. Called before any PE carries the key.
    ///
    /// A key is no secret: the library has checked an operation before it gets here. The hardware
    /// protects memory from what has not gone through the library, or is late.
    ///
    /// # Errors
    /// Errors of the network.
    fn admit_key(&self, _region: u32, _key: u64, _only: bool) -> Result<()> {
        Ok(())
    }

    /// Writes of this PE to `pe`'s part of the restricted window in `region` carry this key from
    /// now on.
    ///
    /// # Errors
    /// Errors of the network.
    fn carry_key(&self, _pe: u32, _region: u32, _key: u64) -> Result<()> {
        Ok(())
    }

    /// Announces that PE `pe` is gone, and its memory with it: it died, or it left the job and no
    /// PE needs it any more. A PE that has finalised, but still waits for the others, is not gone.
    ///
    /// From now on operations to it end instead of waiting, including those under way, and their
    /// buffers are freed. Writes and signals end without an error: they may have arrived just
    /// before, and a team that goes on without the dead must not fail because of them. Operations
    /// that need an answer fail with [`Error::PeerFailed`] and `cause`: atomics, and gets unless
    /// the memory is still there.
    ///
    /// Every wait and test of a PE that is not simulated checks for departures before it calls
    /// [`progress`](Self::progress), and calls this once for each PE and process, from any thread.
    /// A call that blocks in the fabric checks by itself: [`Seat::departed`].
    ///
    /// [`Error::PeerFailed`]: crate::Error::PeerFailed
    /// [`Seat::departed`]: crate::unstable::Seat::departed
    fn departed(&self, _pe: u32, _cause: Cause) {}

    /// PEs that this PE can reach no more, and never will, though nobody says that they are gone:
    /// each with its error, which names PE, host and why. By order of PEs.
    ///
    /// Waits that depend on such a PE end with its error. Each check of a wait asks, so it costs
    /// next to nothing while there is none.
    fn unreachable(&self) -> Vec<(u32, Error)> {
        Vec::new()
    }

    /// The clock of this PE's virtual time, if the fabric simulates time.
    fn clock(&self) -> Option<&dyn VirtualClock> {
        None
    }

    /// The network's hardware for the barrier of all PEs, if it has any.
    fn barrier(&self) -> Option<&dyn HardwareBarrier> {
        None
    }

    /// The network's hardware for collectives of all PEs, if it has any.
    fn collectives(&self) -> Option<&dyn NetworkCollectives> {
        None
    }

    /// Writes to groups of PEs, if the network copies them, and loses none.
    fn copied_writes(&self) -> Option<&dyn CopiedWrites> {
        None
    }

    /// Datagrams to groups of PEs, if the network copies them. `tcp` gives none: UDP multicast
    /// needs a group that the user has chosen, and is a carrier of the library's own, on every
    /// fabric.
    fn datagrams(&self) -> Option<&dyn Datagrams> {
        None
    }

    /// The addresses of this PE's host at which other hosts reach it, with the port that is open
    /// there: for datagrams that the library sends by itself. None where the fabric's network is no
    /// network of IPv4.
    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        Vec::new()
    }

    /// Which PEs share a node. Every PE gets an equal record. Called once, when the PE joins.
    ///
    /// PEs of a node update each other's words by the processor's atomics. So a fabric that has
    /// nodes uses these for the words of a node's memory, too.
    fn record(&self) -> Record {
        Record::all_far()
    }

    /// The costs of its operations, if it knows them. All PEs get equal numbers, because choices
    /// depend on them that all PEs must make alike. Called once, when the PE joins; the costs
    /// become part of the record.
    fn costs(&self) -> Option<Costs> {
        None
    }

    /// This process is the PE from now on: a child may have taken its place. Where it leaves its
    /// place `to_successor`, a program that it becomes by exec is the PE, and needs the descriptors
    /// by which it joins. Nothing has been done through the fabric before.
    ///
    /// # Errors
    /// Of the system.
    fn take_part(&self, _to_successor: bool) -> Result<()> {
        Ok(())
    }

    /// Whether, after this PE has left the job, its memory stays reachable and its writes still
    /// arrive.
    fn outlives_pes(&self) -> bool {
        false
    }
}

/// A put that is prepared once, by [`Fabric::prepare`], so that a start takes as little as the
/// hardware allows: one command, where the hardware keeps addresses, lengths and rights.
///
/// A start is a put like any other: fences order it, and a quiet completes it. Each call gets the
/// fabric that has prepared it. If it is dropped while a start is under way, the start goes on, and
/// the source must stay as it is until the next quiet.
pub trait Prepared: Send {
    /// Starts a put of the source as it is now. The previous start, if any, is complete. The source
    /// must stay as it is until this start is complete.
    ///
    /// # Errors
    /// Errors of the put that are known at once.
    ///
    /// # Safety
    /// The source stays readable until the start is complete.
    unsafe fn start(&mut self, fabric: &dyn Fabric) -> Result<()>;

    /// Whether the last start is complete: its block and its signal are visible at the target. Does
    /// not wait. A fabric that cannot tell puts apart may give false until all are complete.
    ///
    /// # Errors
    /// The error of the put.
    fn is_complete(&mut self, fabric: &dyn Fabric) -> Result<bool>;

    /// Completes the last start. It completes no other put, unless the fabric cannot tell them
    /// apart.
    ///
    /// # Errors
    /// As for [`is_complete`](Self::is_complete).
    fn wait(&mut self, fabric: &dyn Fabric) -> Result<()>;

    /// There will be no further start. Called once, before it is dropped, unless its owner is
    /// forgotten.
    ///
    /// # Errors
    /// Errors of the network.
    fn release(&mut self, _fabric: &dyn Fabric) -> Result<()> {
        Ok(())
    }
}

/// A prepared put of a fabric that prepares nothing: each start is a put, complete when all are.
struct Repeated {
    to: FarAddress,
    src: *const u8,
    len: usize,
    signal: Option<Signal>,
}

// SAFETY: only `start` passes the address on, and its caller promises that it is readable then, in
// whatever thread.
unsafe impl Send for Repeated {}

impl Prepared for Repeated {
    unsafe fn start(&mut self, fabric: &dyn Fabric) -> Result<()> {
        let Repeated { to, src, len, signal } = *self;
        match signal {
            // SAFETY: the caller promises the source until the start is complete, which here is
            // until the next quiet.
            None => unsafe { fabric.put_nbi(to, src, len) },
            Some(Signal { at, op, value }) => {
                // SAFETY: as above.
                unsafe { fabric.put_signal_nbi(to, src, len, at, op, value) }
            }
        }
    }

    fn is_complete(&mut self, fabric: &dyn Fabric) -> Result<bool> {
        match fabric.command_is_complete(self.to, self.len, self.signal)? {
            Some(complete) => Ok(complete),
            None => fabric.is_quiet(),
        }
    }

    fn wait(&mut self, fabric: &dyn Fabric) -> Result<()> {
        match fabric.complete_command(self.to, self.len, self.signal)? {
            true => Ok(()),
            false => fabric.quiet(),
        }
    }

    fn release(&mut self, fabric: &dyn Fabric) -> Result<()> {
        fabric.drop_command(self.to, self.len, self.signal)
    }
}
