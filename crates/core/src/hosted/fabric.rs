//! The machine as the fabric of a hosted PE, over any [`Port`].

use super::ask::{Ask, Atomic, CommandStep, KeyStep};
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::base::shm::AtomicOp;
use crate::base::shows;
use crate::endpoint::errand::Step;
use crate::endpoint::fabric::{
    Awaited, BarrierGroup, CopiedWrites, CopyGroup, DatagramGroup, Datagrams, Due, Fabric,
    FarAddress, HardwareBarrier, NetworkCollective, NetworkCollectives, Signal, SignalOp,
    VirtualClock,
};
use rustix::fd::BorrowedFd;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::time::Duration;

/// The most bytes of a block; longer ones are sent in parts.
pub const MOST_BYTES: usize = 1 << 30;

/// The way of one PE to the machine.
pub trait Port: Send + Sync {
    /// The number of the PE.
    fn pe(&self) -> u32;

    /// The PE's time, since the start of the run.
    fn now(&self) -> Duration;

    /// Asks, and returns the answer. Meanwhile other PEs run and time passes.
    ///
    /// # Errors
    /// The machine's words when it refuses; [`Error::Misuse`] when the caller is not the running
    /// PE.
    ///
    /// # Safety
    /// During the call, `block` is readable for the bytes that the question [gives](Ask::gives),
    /// and writable for those that it [takes](Ask::takes).
    unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64>;

    /// Whether it takes several questions at once.
    fn takes_lists(&self) -> bool {
        false
    }

    /// Asks questions without blocks, one after the other. Returns how many were answered: fewer,
    /// where the PE has to look by itself in the wait that follows them. `None`: this way takes one
    /// question at a time.
    fn run(&self, _asks: &[Ask]) -> Option<Result<usize>> {
        None
    }

    /// Ends what [`run`](Self::run) asks at its next look in vain, or no longer.
    fn recall(&self, _recalled: bool) {}

    /// Keeps a question until the next call, if there is room.
    ///
    /// # Safety
    /// `block` is readable for the bytes that the question [gives](Ask::gives).
    unsafe fn keep(&self, _ask: Ask, _block: *const u8) -> bool {
        false
    }

    /// Asks what is kept.
    ///
    /// # Errors
    /// The first refusal.
    fn ask_kept(&self) -> Result<()> {
        Ok(())
    }

    /// As [`Fabric::map_region`].
    ///
    /// # Errors
    /// As for [`Fabric::map_region`].
    ///
    /// # Safety
    /// As for [`Fabric::map_region`].
    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()>;

    /// As [`Fabric::unmap_region`].
    fn unmap_region(&self, pe: u32, region: u32);
}

thread_local! {
    /// Whether this thread's writes are kept.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// A refusal of the machine, as an error.
pub fn refused(problem: impl Into<String>) -> Error {
    Error::Fabric { fabric: "simulated machine", problem: problem.into(), call: None }
}

/// What a machine may have hardware for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    /// Barriers and collectives.
    pub groups: bool,
    /// Datagrams that the network copies.
    pub datagrams: bool,
    /// Writes that the network copies.
    pub copies: bool,
    /// Commands that the hardware keeps, and tells apart.
    pub commands: bool,
    /// Keys that the hardware compares before it writes.
    pub keys: bool,
    /// A reduced code for barriers.
    pub reduced: bool,
    /// The most readers to whom datagrams that the network copies are faster than PEs that pass
    /// blocks on.
    pub datagram_readers: u32,
}

/// Where the number of readers begins in offers as a number.
const READERS_SHIFT: u32 = 32;

impl Offers {
    /// As a number, which [`from_bits`](Self::from_bits) reads.
    pub fn to_bits(self) -> u64 {
        let Offers { groups, datagrams, copies, commands, keys, reduced, datagram_readers } = self;
        let all = [groups, datagrams, copies, commands, keys, reduced];
        let readers = u64::from(datagram_readers) << READERS_SHIFT;
        all.into_iter().zip(0..).fold(readers, |bits, (has, place)| bits | u64::from(has) << place)
    }

    /// From a number.
    pub fn from_bits(bits: u64) -> Self {
        let has = |place: u32| bits >> place & 1 != 0;
        Offers {
            groups: has(0),
            datagrams: has(1),
            copies: has(2),
            commands: has(3),
            keys: has(4),
            reduced: has(5),
            datagram_readers: (bits >> READERS_SHIFT) as u32,
        }
    }
}

/// The fabric of a hosted PE: all peers are behind the machine.
pub struct HostedFabric<P> {
    port: P,
    /// The error of a refused store, which the next quiet reports.
    late: Mutex<Option<Error>>,
    offers: Offers,
}

shows!([P] HostedFabric<P> as "HostedFabric", |it| offers = it.offers);

impl<P: Port> HostedFabric<P> {
    /// The fabric of a machine that offers this.
    pub fn new(port: P, offers: Offers) -> Self {
        HostedFabric { port, late: Mutex::default(), offers }
    }

    fn ask(&self, ask: Ask) -> Result<u64> {
        assert!(ask.gives() == 0 && ask.takes() == 0, "{ask:?} has a block");
        // SAFETY: the question has no block, as asserted.
        unsafe { self.port.call(ask, null_mut()) }
    }

    /// Asks with a block of bytes.
    fn give(&self, ask: Ask, bytes: &[u8]) -> Result<u64> {
        assert!(ask.gives() == bytes.len() && ask.takes() == 0, "{ask:?} has another block");
        // SAFETY: the slice has the block's length, as asserted, and a given block is only read.
        unsafe { self.port.call(ask, bytes.as_ptr().cast_mut()) }
    }

    /// Asks for a block into `into`; gives its length, if there is a block.
    fn take(&self, ask: Ask, into: &mut [u8]) -> Result<Option<usize>> {
        assert!(ask.takes() == into.len() && ask.gives() == 0, "{ask:?} has another block");
        // SAFETY: the slice has the most bytes of the block, as asserted.
        let came = unsafe { self.port.call(ask, into.as_mut_ptr()) }?;
        Ok((came as usize).checked_sub(1))
    }

    /// Asks about a command; nothing where the hardware has none for such a put. What is sent in
    /// parts has none.
    fn ask_command(
        &self,
        to: FarAddress,
        len: usize,
        signal: Option<Signal>,
        step: CommandStep,
    ) -> Result<Option<u64>> {
        match self.offers.commands && len <= MOST_BYTES {
            true => self.ask(Ask::Command { to, len: len as u32, signal, step }).map(Some),
            false => Ok(None),
        }
    }

    fn ask_key(&self, pe: u32, region: u32, key: u64, step: KeyStep) -> Result<()> {
        match self.offers.keys {
            true => self.ask(Ask::Key { pe, region, key, step }).map(drop),
            false => Ok(()),
        }
    }

    /// # Safety
    /// `src` is readable for `len` bytes.
    unsafe fn write(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        reuse: bool,
        signal: Option<Signal>,
    ) -> Result<()> {
        let mut done = 0;
        loop {
            let part = (len - done).min(MOST_BYTES);
            let end = done + part == len;
            let put = Ask::Put {
                to: FarAddress { offset: to.offset + done as u64, ..to },
                len: part as u32,
                reuse,
                signal: signal.filter(|_| end),
            };
            // A refusal is possible in a region, and then the caller is to hear of it.
            let keeps = KEEPS.get() && to.region == 0;
            let part_of_src = src.wrapping_add(done).cast_mut();
            // SAFETY: the caller promises the source, of which this is a part; a put only reads it.
            if !(keeps && unsafe { self.port.keep(put, part_of_src) }) {
                // SAFETY: as above.
                unsafe { self.port.call(put, part_of_src) }?;
            }
            done += part;
            if end {
                return Ok(());
            }
        }
    }
}

impl<P: Port> Fabric for HostedFabric<P> {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        let store = Ask::Store { to, size: size as u8, bits };
        if let Err(error) = self.ask(store) {
            *lock(&self.late) = Some(error);
        }
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller promises the source.
        unsafe { self.write(to, src, len, true, None) }
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.write(to, src, len, false, None) }
    }

    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()> {
        for done in (0..len).step_by(MOST_BYTES) {
            let get = Ask::Get {
                from: FarAddress { offset: from.offset + done as u64, ..from },
                len: (len - done).min(MOST_BYTES) as u32,
            };
            // SAFETY: the caller promises the destination, of which this is a part.
            unsafe { self.port.call(get, dst.wrapping_add(done)) }?;
        }
        Ok(())
    }

    unsafe fn put_signal(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        let signal = Signal { at: signal, op, value };
        // SAFETY: the caller promises the source.
        unsafe { self.write(to, src, len, true, Some(signal)) }
    }

    unsafe fn put_signal_nbi(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        let signal = Signal { at: signal, op, value };
        // SAFETY: the caller promises the source.
        unsafe { self.write(to, src, len, false, Some(signal)) }
    }

    fn keep_command(&self, to: FarAddress, len: usize, signal: Option<Signal>) -> Result<()> {
        self.ask_command(to, len, signal, CommandStep::Keep).map(drop)
    }

    fn drop_command(&self, to: FarAddress, len: usize, signal: Option<Signal>) -> Result<()> {
        self.ask_command(to, len, signal, CommandStep::Drop).map(drop)
    }

    fn command_is_complete(
        &self,
        to: FarAddress,
        len: usize,
        signal: Option<Signal>,
    ) -> Result<Option<bool>> {
        // Software at the target applies a signal that adds, and the hardware does not hear of it.
        match signal {
            Some(Signal { op: SignalOp::Add, .. }) => Ok(None),
            _ => Ok(self.ask_command(to, len, signal, CommandStep::Test)?.map(|done| done != 0)),
        }
    }

    fn complete_command(&self, to: FarAddress, len: usize, signal: Option<Signal>) -> Result<bool> {
        match signal {
            Some(Signal { op: SignalOp::Add, .. }) => Ok(false),
            _ => Ok(self.ask_command(to, len, signal, CommandStep::Complete)?.is_some()),
        }
    }

    fn admit_key(&self, region: u32, key: u64, only: bool) -> Result<()> {
        let step = if only { KeyStep::AdmitOnly } else { KeyStep::Admit };
        self.ask_key(self.port.pe(), region, key, step)
    }

    fn carry_key(&self, pe: u32, region: u32, key: u64) -> Result<()> {
        self.ask_key(pe, region, key, KeyStep::Carry)
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        let what = Atomic::Op(op, operand);
        self.ask(Ask::Atomic { at, size: size as u8, what })
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        let what = Atomic::CompareSwap { expected, new };
        self.ask(Ask::Atomic { at, size: size as u8, what })
    }

    fn fence(&self) -> Result<()> {
        self.ask(Ask::Fence).map(drop)
    }

    fn quiet(&self) -> Result<()> {
        self.ask(Ask::Quiet)?;
        let late = lock(&self.late).take();
        late.map_or(Ok(()), Err)
    }

    fn is_quiet(&self) -> Result<bool> {
        self.look();
        Ok(self.ask(Ask::IsQuiet)? != 0)
    }

    fn progress(&self) -> bool {
        // The machine delivers by itself.
        self.look();
        false
    }

    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()> {
        // SAFETY: the caller promises what the port asks for.
        unsafe { self.port.map_region(pe, region, base, len, file) }
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        self.port.unmap_region(pe, region);
    }

    fn clock(&self) -> Option<&dyn VirtualClock> {
        Some(self)
    }

    fn barrier(&self) -> Option<&dyn HardwareBarrier> {
        self.offers.groups.then_some(self as &dyn HardwareBarrier)
    }

    fn collectives(&self) -> Option<&dyn NetworkCollectives> {
        self.offers.groups.then_some(self as &dyn NetworkCollectives)
    }

    fn copied_writes(&self) -> Option<&dyn CopiedWrites> {
        self.offers.copies.then_some(self as &dyn CopiedWrites)
    }

    fn datagrams(&self) -> Option<&dyn Datagrams> {
        self.offers.datagrams.then_some(self as &dyn Datagrams)
    }

    fn outlives_pes(&self) -> bool {
        true
    }
}

/// A list of PEs as a block, 4 bytes for each.
fn words_of(members: &[usize]) -> Vec<u8> {
    members.iter().flat_map(|&pe| (pe as u32).to_le_bytes()).collect()
}

impl<P: Port> HardwareBarrier for HostedFabric<P> {
    fn join(&self, members: Option<&[usize]>) -> Result<Option<BarrierGroup>> {
        let members = members.map_or(Vec::new(), words_of);
        let group = self.give(Ask::Join { len: members.len() as u32 }, &members)?;
        Ok((group != 0).then_some(BarrierGroup(group as u32)))
    }

    fn arrive(&self, group: BarrierGroup) -> Result<()> {
        self.ask(Ask::Arrive { group: group.0 }).map(drop)
    }

    fn has_reduced_code(&self) -> bool {
        self.offers.reduced
    }

    fn step(&self, group: BarrierGroup) -> Result<bool> {
        Ok(self.ask(Ask::Step { group: group.0 })? == 0)
    }

    fn complete(&self, group: BarrierGroup) -> Result<u64> {
        self.ask(Ask::Phase { group: group.0 })
    }

    fn leave(&self, group: BarrierGroup) -> Result<()> {
        self.ask(Ask::Leave { group: group.0 }).map(drop)
    }
}

impl<P: Port> NetworkCollectives for HostedFabric<P> {
    fn join(&self) -> Result<usize> {
        Ok((self.ask(Ask::JoinCollectives)? >> 32) as usize)
    }

    fn begin(&self, what: NetworkCollective, part: &[u8]) -> Result<()> {
        let len = part.len() as u32;
        self.give(Ask::Collective { what, len }, part).map(drop)
    }

    fn end(&self, result: &mut [u8]) -> Result<bool> {
        let len = result.len() as u32;
        Ok(self.take(Ask::Collected { len }, result)?.is_some())
    }
}

impl<P: Port> CopiedWrites for HostedFabric<P> {
    fn join(&self, members: Option<&[usize]>) -> Result<Option<CopyGroup>> {
        let members = members.map_or(Vec::new(), words_of);
        let group = self.give(Ask::JoinCopies { len: members.len() as u32 }, &members)?;
        Ok((group != 0).then_some(CopyGroup(group as u32)))
    }

    unsafe fn write(&self, group: CopyGroup, to: u64, src: *const u8, len: usize) -> Result<()> {
        for done in (0..len).step_by(MOST_BYTES) {
            let part = (len - done).min(MOST_BYTES) as u32;
            let write = Ask::WriteAll { group: group.0, to: to + done as u64, len: part };
            // SAFETY: the caller promises the source, of which this is a part, and which is only
            // read.
            unsafe { self.port.call(write, src.wrapping_add(done).cast_mut()) }?;
        }
        Ok(())
    }

    fn leave(&self, group: CopyGroup) -> Result<()> {
        self.ask(Ask::Leave { group: group.0 }).map(drop)
    }
}

impl<P: Port> Datagrams for HostedFabric<P> {
    fn join(&self, members: &[usize], purpose: u32) -> Result<Option<DatagramGroup>> {
        let members = words_of(members);
        let len = members.len() as u32;
        let group = self.give(Ask::JoinDatagrams { purpose, len }, &members)?;
        Ok((group != 0)
            .then_some(DatagramGroup { number: group as u32, most: (group >> 32) as usize }))
    }

    fn most_readers(&self) -> usize {
        self.offers.datagram_readers as usize
    }

    fn send(&self, group: DatagramGroup, to: Option<usize>, bytes: &[u8]) -> Result<()> {
        let send =
            Ask::Send { group: group.number, to: to.map(|pe| pe as u32), len: bytes.len() as u32 };
        self.give(send, bytes).map(drop)
    }

    fn receive(&self, group: DatagramGroup, take: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut datagram = vec![0; group.most];
        let receive = Ask::Receive { group: group.number, len: group.most as u32 };
        let came = self.take(receive, &mut datagram)?;
        if let Some(len) = came {
            take(&datagram[..len]);
        }
        Ok(came.is_some())
    }

    fn leave(&self, group: DatagramGroup) -> Result<()> {
        self.ask(Ask::Leave { group: group.number }).map(drop)
    }
}

impl<P: Port> VirtualClock for HostedFabric<P> {
    fn now(&self) -> Duration {
        self.port.now()
    }

    fn look(&self) {
        // A look by a caller that is not the running PE changes nothing; its next call that can
        // fail says so.
        let _ = self.ask(Ask::Look);
    }

    fn park(&self, due: Option<Due>, what: Awaited) -> Result<()> {
        self.ask(Ask::Park { due, what }).map(drop)
    }

    fn compute(&self, time: Duration) {
        // Where the machine refuses; a thread that is not the PE computes in no time.
        if let Err(error @ Error::Fabric { .. }) = self.ask(Ask::Compute { time }) {
            lock(&self.late).get_or_insert(error);
        }
    }

    fn makes_errands(&self) -> bool {
        self.port.takes_lists()
    }

    fn run(&self, steps: &[Step], what: Awaited) -> Option<Result<usize>> {
        if lock(&self.late).is_some() {
            return None; // A quiet by itself reports it.
        }
        let ask = |&step: &Step| match step {
            Step::Quiet => Ask::Quiet,
            Step::Look => Ask::Look,
            Step::Notify { to, size, bits } => Ask::Store { to, size, bits },
            Step::Mark { offset, value } => Ask::Mark { offset, value },
            Step::Await { offset, test } => Ask::Await { offset, test, what },
        };
        self.port.run(&steps.iter().map(ask).collect::<Vec<_>>())
    }

    fn recall(&self, recalled: bool) {
        self.port.recall(recalled);
    }

    fn keep(&self, kept: bool) {
        KEEPS.set(kept);
    }

    fn ask_kept(&self) {
        if let Err(error) = self.port.ask_kept() {
            *lock(&self.late) = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers everything, and remembers what it was asked and where the block lies.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<(Ask, usize)>>);

    impl Port for Recorder {
        fn pe(&self) -> u32 {
            0
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64> {
            self.0.lock().unwrap().push((ask, block.addr()));
            Ok(0)
        }

        unsafe fn map_region(
            &self,
            _: u32,
            _: u32,
            _: *mut u8,
            _: usize,
            _: BorrowedFd<'_>,
        ) -> Result<()> {
            unreachable!("no window is restricted here")
        }

        fn unmap_region(&self, _: u32, _: u32) {}
    }

    #[test]
    fn what_is_longer_than_a_passage_goes_in_parts_and_the_signal_with_the_last() {
        let at = |offset| FarAddress { pe: 1, region: 0, offset };
        // Never touched, so it takes no memory.
        let mut block = vec![0u8; 2 * MOST_BYTES + 1];
        let start = block.as_mut_ptr();
        for (len, parts) in [
            (MOST_BYTES - 1, &[MOST_BYTES - 1][..]),
            (MOST_BYTES, &[MOST_BYTES]),
            (MOST_BYTES + 1, &[MOST_BYTES, 1]),
            (2 * MOST_BYTES, &[MOST_BYTES, MOST_BYTES]),
            (2 * MOST_BYTES + 1, &[MOST_BYTES, MOST_BYTES, 1]),
        ] {
            let (reads, writes) = (
                HostedFabric::new(Recorder::default(), Offers::default()),
                HostedFabric::new(Recorder::default(), Offers::default()),
            );
            // SAFETY: the block is that long; the port does not touch it.
            unsafe {
                reads.get(at(64), start, len).unwrap();
                writes.put_signal(at(64), start, len, at(8), SignalOp::Set, 7).unwrap();
            }
            let (reads, writes) =
                (reads.port.0.into_inner().unwrap(), writes.port.0.into_inner().unwrap());
            assert_eq!((reads.len(), writes.len()), (parts.len(), parts.len()), "{len}");
            let mut done = 0;
            for (index, &part) in parts.iter().enumerate() {
                let (from, there) = (at(64 + done as u64), start.addr() + done);
                assert_eq!(reads[index], (Ask::Get { from, len: part as u32 }, there), "{len}");
                let last = index + 1 == parts.len();
                let put = Ask::Put {
                    to: from,
                    len: part as u32,
                    reuse: true,
                    signal: last.then_some(Signal { at: at(8), op: SignalOp::Set, value: 7 }),
                };
                assert_eq!(writes[index], (put, there), "{len}");
                done += part;
            }
        }
    }
}
