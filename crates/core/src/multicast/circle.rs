//! A circle: PEs of which any one sends a block to all others, by the fabric's datagrams. A
//! broadcast uses it without a channel.
//!
//! Each block is a log of its own for [`memonet_repair`], read where its writer has it, and stored
//! where each reader wants it. So there is no ring, one copy at the receiver, and no wait for room:
//! received bytes count as consumed. The datagrams' epoch counts the blocks. It is equal at all
//! members, as they make the same calls. A late datagram belongs to an earlier block, and is
//! refused.
//!
//! **Early datagrams** are refused, too. A member that has all of a block may begin the next one
//! while others still repair theirs. Its first datagrams then reach these members, and the last
//! writer, too early. These PEs miss them, ask for them, and get them again.
//!
//! **The end of a block.** A status that says that a reader has everything may be lost, and the
//! sender of the last one would have to stay for an answer. So a reader that has everything leaves,
//! and says so by other means, which lose nothing (a [step](crate::collective) of the broadcast).
//! The writer stays until it has received that from all. Then no reader asks for anything, and no
//! datagram of the block is accepted any more.
//!
//! One thread at a time sends or receives a block. All waits of the PE move it on ([`Relay`]).
//! After its end none of them touches the block: the end takes the lock under which they work.

use super::datagrams::{Carrier, MOST_GOES, Repeats, at_once, config};
use super::network::{self, Membership};
use crate::base::error::Result;
use crate::base::shm;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::{DatagramGroup, Due};
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::wait;
use memonet_repair as repair;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A member's end.
pub(crate) struct Circle {
    pe: Arc<Pe>,
    group: DatagramGroup,
    rank: usize,
    members: usize,
    blocks: AtomicU32,
    work: Mutex<Work>,
}

struct Work {
    membership: Membership,
    out: Box<[u8]>,
    block: Option<Block>,
    repeats: Repeats,
}

/// The block that is under way.
enum Block {
    Given(repair::Writer, Memory),
    Taken(repair::Reader, Memory),
}

/// The memory of a block.
struct Memory {
    at: *mut u8,
    bytes: u64,
}

// SAFETY: mapped memory of the PE's own segment, used through `crate::base::shm` alone.
unsafe impl Send for Memory {}

impl repair::Log for Memory {
    fn read(&self, position: u64, to: &mut [u8]) {
        assert!(position + to.len() as u64 <= self.bytes, "a writer sends only what was committed");
        // SAFETY: inside of the block, just asserted; `to` is private memory.
        unsafe { shm::copy(to.as_mut_ptr(), self.at.wrapping_add(position as usize), to.len()) };
    }
}

impl repair::Store for Memory {
    fn write(&mut self, position: u64, from: &[u8]) {
        // Bytes beyond the end come from a writer that broadcasts a longer block than this PE
        // expects.
        let len = self.bytes.saturating_sub(position).min(from.len() as u64) as usize;
        // SAFETY: inside of the block; `from` is private memory.
        unsafe { shm::copy(self.at.wrapping_add(position as usize), from.as_ptr(), len) };
    }
}

impl Circle {
    /// Whether datagrams may serve a circle of so many members better than puts of the writer.
    pub(crate) fn wins(pe: &Pe, members: usize) -> bool {
        network::serves(pe, members - 1)
    }

    /// Whether they do so better than members that pass parts on.
    pub(crate) fn beats_parts(pe: &Pe, members: usize) -> bool {
        network::wins(pe, members - 1)
    }

    /// Makes the circle of these PEs, of which this one has rank `rank`. All members come straight
    /// to this call. `purpose` is equal at all, and differs from that of any other circle of these
    /// PEs. Gives `None`, at all members, where the network does not serve the circle.
    ///
    /// # Errors
    /// Errors of the network.
    pub(crate) fn join(
        pe: &Arc<Pe>,
        members: &[usize],
        rank: usize,
        purpose: u32,
    ) -> Result<Option<Arc<Circle>>> {
        let Some(membership) = Membership::join(pe, members, purpose)? else {
            return Ok(None);
        };
        let group = membership.group();
        let circle = Arc::new(Circle {
            pe: pe.clone(),
            group,
            rank,
            members: members.len(),
            blocks: AtomicU32::new(0),
            work: Mutex::new(Work {
                membership,
                out: vec![0; group.most].into(),
                block: None,
                repeats: Repeats::default(),
            }),
        });
        let relay: Arc<dyn Relay> = circle.clone();
        pe.register_relay(Arc::downgrade(&relay));
        Ok(Some(circle))
    }

    /// Begins the next block, which the member with rank `writer` sends: `bytes` bytes at `at`. All
    /// waits send from there, or store there, until the value is dropped.
    ///
    /// # Safety
    /// Until then `at` is mapped for `bytes` bytes, at least 1: readable at the writer, writable at
    /// the other members.
    pub(crate) unsafe fn begin(&self, writer: usize, at: *mut u8, bytes: usize) -> UnderWay<'_> {
        let memory = Memory { at, bytes: bytes as u64 };
        let now = wait::nanos(&self.pe);
        let capacity = memory.bytes.min(repair::wire::MOST_APART);
        let config = repair::Config {
            epoch: self.blocks.fetch_add(1, Ordering::Relaxed),
            ..config(
                &self.pe,
                self.group.number,
                self.members as u16 - 1,
                capacity,
                self.group.most,
            )
        };
        let block = if writer == self.rank {
            Block::Given(repair::Writer::new(&config, now), memory)
        } else {
            // Readers are numbered in the order of ranks, without the writer.
            let number = self.rank - usize::from(self.rank > writer);
            Block::Taken(repair::Reader::new(&config, number as u16, now), memory)
        };
        let mut work = lock(&self.work);
        work.membership.name_writer(writer);
        (work.block, work.repeats) = (Some(block), Repeats::default());
        drop(work);
        UnderWay(self)
    }
}

/// A block that this PE sends or receives, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Circle);

impl UnderWay<'_> {
    /// Whether this PE, which is not the writer, has the whole block.
    pub(crate) fn is_here(&self) -> bool {
        matches!(&lock(&self.0.work).block, Some(Block::Taken(machine, memory)) if machine.received() >= memory.bytes)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.0.work).block = None;
    }
}

impl Relay for Circle {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut work = try_lock(&self.work)?;
        work.go_on(&self.pe).unwrap_or_else(|error| {
            self.pe.surface_later(error);
            None
        })
    }
}

impl Work {
    /// Receives datagrams that have come, and sends those that are due. Gives the time of the next
    /// work if nothing comes.
    fn go_on(&mut self, pe: &Pe) -> Result<Option<Due>> {
        let Work { membership, out, block: Some(block), repeats } = self else {
            return Ok(None);
        };
        for _ in 0..MOST_GOES {
            let all =
                membership.receive(&mut |datagram| block.receive(datagram, wait::nanos(pe)))?;
            while let Some(outgoing) = block.next(wait::nanos(pe), out) {
                membership.send(&out[..outgoing.len], outgoing.to)?;
            }
            membership.flush()?;
            if all {
                return Ok(block.due(repeats));
            }
        }
        Ok(Some(at_once(pe)))
    }
}

impl Block {
    /// Receives a datagram. One that is refused changes nothing.
    fn receive(&mut self, datagram: &[u8], now: repair::Nanos) {
        let _refused = match self {
            Block::Given(machine, _) => machine.receive(datagram, now),
            Block::Taken(machine, memory) => machine.receive(datagram, now, memory),
        };
    }

    /// The next datagram that is due.
    fn next(&mut self, now: repair::Nanos, out: &mut [u8]) -> Option<repair::Outgoing> {
        match self {
            Block::Given(machine, memory) => {
                // A block longer than the distance allowed between positions is committed as it is
                // consumed.
                machine.commit(memory.bytes.min(machine.limit()));
                machine.next(now, memory, out)
            }
            Block::Taken(machine, _) => {
                machine.consume(machine.received());
                machine.next(now, out)
            }
        }
    }

    /// The time at which to send if nothing comes. A writer whose readers have everything sends no
    /// more: it only stays until they have said so by other means.
    fn due(&self, repeats: &mut Repeats) -> Option<Due> {
        let (at, learnt) = match self {
            Block::Given(machine, _) if machine.is_complete() => return None,
            Block::Given(machine, _) => (machine.deadline(), machine.learnt()),
            Block::Taken(machine, _) => (machine.asks_at(), machine.learnt()),
        };
        (at != repair::Nanos::MAX).then(|| repeats.due(at, learnt))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::shm::AtomicOp;
    use crate::endpoint::fabric::{Datagrams, Fabric, FarAddress, SignalOp};
    use crate::hosted::Hosted;
    use std::os::fd::BorrowedFd;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A network with one datagram, which the test delivers.
    struct Held {
        asked: Mutex<Sender<()>>,
        delivered: Mutex<Receiver<Vec<u8>>>,
    }

    impl Datagrams for Held {
        fn join(&self, _members: &[usize], _purpose: u32) -> Result<Option<DatagramGroup>> {
            Ok(Some(DatagramGroup { number: 7, most: 2048 }))
        }
        fn send(&self, _group: DatagramGroup, _to: Option<usize>, _bytes: &[u8]) -> Result<()> {
            Ok(())
        }
        fn receive(&self, _group: DatagramGroup, take: &mut dyn FnMut(&[u8])) -> Result<bool> {
            // The end of the channel: there is no second.
            let _asked = lock(&self.asked).send(());
            Ok(lock(&self.delivered).recv().map(|datagram| take(&datagram)).is_ok())
        }
        fn leave(&self, _group: DatagramGroup) -> Result<()> {
            Ok(())
        }
    }

    #[rustfmt::skip]
    impl Fabric for Held {
        fn name(&self) -> &'static str { "held" }
        fn store(&self, _: FarAddress, _: usize, _: u64) { unreachable!() }
        unsafe fn put(&self, _: FarAddress, _: *const u8, _: usize) -> Result<()> { unreachable!() }
        unsafe fn put_nbi(&self, _: FarAddress, _: *const u8, _: usize) -> Result<()> { unreachable!() }
        unsafe fn get(&self, _: FarAddress, _: *mut u8, _: usize) -> Result<()> { unreachable!() }
        unsafe fn put_signal(&self, _: FarAddress, _: *const u8, _: usize, _: FarAddress, _: SignalOp, _: u64) -> Result<()> { unreachable!() }
        fn fetch_op(&self, _: FarAddress, _: usize, _: AtomicOp, _: u64) -> Result<u64> { unreachable!() }
        fn compare_swap(&self, _: FarAddress, _: usize, _: u64, _: u64) -> Result<u64> { unreachable!() }
        fn fence(&self) -> Result<()> { Ok(()) }
        fn quiet(&self) -> Result<()> { Ok(()) }
        fn is_quiet(&self) -> Result<bool> { Ok(true) }
        fn progress(&self) -> bool { false }
        unsafe fn map_region(&self, _: u32, _: u32, _: *mut u8, _: usize, _: BorrowedFd<'_>) -> Result<()> { unreachable!() }
        fn unmap_region(&self, _: u32, _: u32) { unreachable!() }
        fn datagrams(&self) -> Option<&dyn Datagrams> { Some(self) }
        fn outlives_pes(&self) -> bool { true }
    }

    /// A thread has just taken a datagram of a block that another thread gives up, as a broadcast
    /// does that fails: none of it is stored afterwards.
    #[test]
    fn a_block_that_is_over_is_not_stored_to() {
        const BYTES: usize = 64;
        let ((asked, is_asked), (deliver, delivered)) = (channel(), channel());
        let held = Held { asked: Mutex::new(asked), delivered: Mutex::new(delivered) };
        // SAFETY: nothing is written through it; the fabric holds all requests back.
        let hosted = unsafe { Hosted::create(3, Some(8 << 20)) }.unwrap();
        let job = hosted.join(1, Box::new(held), None).unwrap();
        let circle = Circle::join(&job.pe, &[0, 1, 2], 1, 1).unwrap().unwrap();
        let config = config(&job.pe, circle.group.number, 2, BYTES as u64, circle.group.most);
        let (mut writer, mut datagram) =
            (repair::Writer::new(&config, 0), vec![0; config.datagram]);
        let mut source = [9; BYTES];
        let source = Memory { at: source.as_mut_ptr(), bytes: BYTES as u64 };
        writer.commit(BYTES as u64);
        let outgoing = writer.next(0, &source, &mut datagram).unwrap();
        datagram.truncate(outgoing.len);

        let block = job.pe.local(4 << 20);
        let stored = || {
            let mut bytes = [0; BYTES];
            // SAFETY: memory of this PE's segment that nothing else uses; the array is private.
            unsafe { shm::copy(bytes.as_mut_ptr(), block, BYTES) };
            bytes
        };
        let before = stored();
        // SAFETY: mapped, as above.
        let under_way = unsafe { circle.begin(0, block, BYTES) };
        let word = block as usize;
        let seen = std::thread::scope(|scope| {
            let relay = scope.spawn(|| circle.relay());
            is_asked.recv().unwrap();
            let (begun, has_begun) = channel();
            let end = scope.spawn(move || {
                begun.send(()).unwrap();
                drop(under_way);
                let mut bytes = [0; BYTES];
                // SAFETY: as above.
                unsafe { shm::copy(bytes.as_mut_ptr(), word as *const u8, BYTES) };
                bytes
            });
            has_begun.recv().unwrap();
            // Gives a `drop` that wrongly does not wait the time to return. Without this pause the
            // test might miss an error; it never reports a false one.
            std::thread::sleep(Duration::from_millis(50));
            deliver.send(datagram).unwrap();
            drop(deliver);
            relay.join().unwrap();
            end.join().unwrap()
        });
        assert_ne!(before, [9; BYTES]);
        assert_eq!(stored(), [9; BYTES], "the datagram was of the block");
        assert_eq!(seen, stored(), "stored to after the end");
        assert!(circle.relay().is_none());
    }
}
