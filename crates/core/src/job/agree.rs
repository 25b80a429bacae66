//! Collective calls on the heaps: all PEs ask for the same, compare, and take the same step; or all
//! get an error.

use super::own_heap::OwnHeap;
use crate::base::element::ElementName;
use crate::base::error::{Error, Result};
use crate::base::layout::{CollectiveRequest, MAX_WINDOWS, SystemArea};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::ObjectKind;
use crate::job::heap::{Block, Heap};
use crate::job::pages;
use crate::sync::barrier::Whole;
use crate::team::Team;
use std::mem::offset_of;
use std::sync::{Arc, MutexGuard};

/// The bits of a request's first word that name its kind; those above are its stamp.
const KIND_BITS: u32 = 8;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

/// The kind of the request of a PE that makes none.
const NONE: u64 = 0;
pub(crate) const KIND_WINDOW: u64 = 1;
pub(crate) const KIND_FREE: u64 = 2;
pub(crate) const KIND_RESTRICTED: u64 = 3;
const KIND_REFUSED: u64 = 4;
pub(crate) const KIND_BLOCK: u64 = 5;
pub(crate) const KIND_FREE_BLOCK: u64 = 6;
pub(crate) const KIND_RESIZE: u64 = 7;
pub(crate) const KIND_MULTICAST: u64 = 8;
pub(crate) const KIND_SHARED: u64 = 9;
pub(crate) const KIND_MESSAGES: u64 = 10;
/// Stands for the limit of a heap that has none, where a block is asked for.
pub(crate) const NO_LIMIT: u64 = u64::MAX;
/// What a PE asks for: kind, bytes, alignment or shape, and options; its [`ElementName`] as words,
/// and the digest of all else. For a block it has the limit of the heap in place of the name.
pub(crate) type Request = [u64; 8];
/// The request of a PE that asked for something impossible: the others are not to wait for it.
const REFUSED: Request = [KIND_REFUSED, 0, 0, 0, 0, 0, 0, 0];

/// How a step of a collective call went for a PE.
pub(crate) const UNKNOWN: u64 = 0;
const WELL: u64 = 1;
pub(crate) const FAILED: u64 = 2;

/// A collective call on the heap.
///
/// **The heaps of all PEs take the same steps.** The requests that a PE reads between the two
/// barriers of a call decide about its step.
///
/// * *A call is whole.* From its first barrier to its last, no other thread of the PE passes the
///   world's barrier, nor makes a request: the call holds the barrier and the heap.
/// * *All read the same requests.* Each is stamped with the phase of the barrier that publishes it,
///   and counts for that phase alone. It stays until its owner passes the call's last barrier, for
///   which every PE that reads it has to arrive first. A request of another phase counts as none.
/// * *Nobody leaves in between* but for a death, after which no call on the heap succeeds any more.
///   What the program's earlier writes failed with is kept until a later call.
///
/// Should the heaps go apart all the same, nothing may come of it: offsets that one PE has free may
/// be another's shared data, under a guard's reference. So the stamp also has the history of the
/// heap in it, and PEs whose heaps differ have no requests in common any more.
pub(crate) struct Collective<'a> {
    pe: &'a Arc<Pe>,
    meeting: Whole<'a>,
    pub(crate) heap: MutexGuard<'a, Heap>,
}

impl<'a> Collective<'a> {
    /// Begins a call, once no other thread of this PE is in one.
    ///
    /// # Errors
    /// [`Error::Misuse`] while another thread of this PE is in a barrier of the world's.
    pub(crate) fn begin(pe: &'a Arc<Pe>, world: &'a Team) -> Result<Self> {
        // Another thread may have been in such a call at the fork: the child's heap is locked then.
        ending::refuse_child(pe)?;
        world.note_call(0);
        let heap = pe.layer::<OwnHeap>().heap();
        let meeting = world.split_barrier().hold()?;
        Ok(Collective { pe, meeting, heap })
    }

    /// Waits until all PEs are here.
    pub(crate) fn meet(&self) -> Result<()> {
        self.meeting.pass()
    }

    fn word(field: usize) -> u64 {
        (offset_of!(SystemArea, request) + field) as u64
    }

    fn outcome_word(step: usize) -> u64 {
        Self::word(offset_of!(CollectiveRequest, outcome) + 8 * step)
    }

    /// Writes a word of this PE's own request block.
    fn write(&self, word: u64, value: u64) {
        // SAFETY: an aligned word of this PE's own request block, which others only read.
        unsafe { shm::store(self.pe.local(word).cast(), value) };
    }

    fn read(&self, pe: usize, word: u64) -> Result<u64> {
        Ok(self.pe.route(pe, word).load::<u64>(self.pe)?)
    }

    /// Says how a step went for this PE.
    pub(crate) fn publish(&self, step: usize, outcome: u64) {
        self.write(Self::outcome_word(step), outcome);
    }

    /// How a step went for a PE, as far as it has said.
    pub(crate) fn outcome(&self, step: usize, pe: usize) -> Result<u64> {
        self.read(pe, Self::outcome_word(step))
    }

    /// Tells the others how a step went for this PE, and gives the first PE for which it did not go
    /// well.
    pub(crate) fn failed(&self, step: usize, well: bool) -> Result<Option<usize>> {
        self.publish(step, if well { WELL } else { FAILED });
        self.meet()?;
        for pe in 0..self.pe.npes() {
            if self.outcome(step, pe)? != WELL {
                return Ok(Some(pe));
            }
        }
        Ok(None)
    }

    /// Nobody may start the next collective call before everybody has ended this one.
    pub(crate) fn close(&self) -> Result<()> {
        self.meet()?;
        self.write(Self::word(offset_of!(CollectiveRequest, kind)), NONE);
        Ok(())
    }

    /// What tells this request from those of other calls, and of heaps that are not as this PE's
    /// is.
    fn stamp(&self) -> u64 {
        let mixed =
            (self.heap.history() ^ self.meeting.next_phase()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed >> KIND_BITS << KIND_BITS
    }

    /// Compares this PE's request with everybody's, then frees what everybody has dropped. The
    /// heaps of all PEs go through the same steps. A `request` that this PE had to refuse itself is
    /// its error, once the others have heard of it. After an error the call is closed.
    pub(crate) fn agree(&mut self, request: Result<Request>) -> Result<()> {
        let (request, refused) = match request {
            Ok(request) => (request, None),
            Err(error) => (REFUSED, Some(error)),
        };
        let words = self.heap.bitmap_words();
        debug_assert!(words <= MAX_WINDOWS / 64);
        let mut dropped: Vec<u64> =
            (0..words).map(|index| self.pe.layer::<OwnHeap>().dropped(index)).collect();
        let stamp = self.stamp();
        self.publish_request(request, stamp, &dropped);
        self.meet()?;
        let unequal = self.compare(request, stamp, &mut dropped)?;
        self.free(&dropped);
        // What this PE did wrong is not to be blamed on others.
        match refused.or(unequal) {
            None => Ok(()),
            Some(error) => {
                self.close()?;
                Err(error)
            }
        }
    }

    fn publish_request(&self, request: Request, stamp: u64, dropped: &[u64]) {
        for (index, &value) in dropped.iter().enumerate() {
            self.write(Self::word(offset_of!(CollectiveRequest, dropped) + 8 * index), value);
        }
        for (index, &value) in request.iter().enumerate().rev() {
            let stamp = if index == 0 { stamp } else { 0 };
            self.write(Self::word(8 * index), value | stamp);
        }
    }

    /// A PE's request, and the first `words` words of what it has dropped. One read, as the PE may
    /// be far.
    fn read_request(&self, pe: usize, words: usize) -> Result<(Request, Vec<u64>)> {
        const DROPPED: usize = offset_of!(CollectiveRequest, dropped) / 8;
        let mut block = vec![0u64; DROPPED + words];
        let from = self.pe.route(pe, Self::word(0));
        // SAFETY: the vector can be written. The source is the PE's request block, of which no more
        // is read than it has: the caller gives a length of its heap's bitmap.
        unsafe { from.get(self.pe, block.as_mut_ptr().cast(), size_of_val(&*block)) }?;
        let dropped = block.split_off(DROPPED);
        Ok((std::array::from_fn(|word| block[word]), dropped))
    }

    /// The first request that differs from this PE's; and what is left of `dropped` that all have
    /// dropped.
    fn compare(&self, request: Request, stamp: u64, dropped: &mut [u64]) -> Result<Option<Error>> {
        let mut unequal = None;
        for other in 0..self.pe.npes() {
            let (mut theirs, also_dropped) = self.read_request(other, dropped.len())?;
            let stamped = theirs[0] & !KIND_MASK == stamp;
            theirs[0] = if stamped { theirs[0] & KIND_MASK } else { NONE };
            if theirs != request && unequal.is_none() {
                unequal = Some(differ(other, theirs, request));
            }
            if theirs[0] == NONE {
                // It does not take this step, and what it had dropped it has said for an earlier
                // one.
                dropped.fill(0);
            }
            for (bits, theirs) in dropped.iter_mut().zip(also_dropped) {
                *bits &= theirs;
            }
        }
        Ok(unequal)
    }

    /// Frees the windows whose bits are set.
    fn free(&mut self, dropped: &[u64]) {
        for (index, &bits) in dropped.iter().enumerate() {
            for id in (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| index * 64 + bit) {
                self.pe.layer::<OwnHeap>().forget_window(id);
                if let Some(Block::Range(range)) = self.heap.free(id) {
                    pages::shut(self.pe, &range);
                }
            }
        }
    }
}

/// The error of a PE whose request differs from another's.
#[cold]
fn differ(pe: usize, theirs: Request, ours: Request) -> Error {
    let call = match ours[0] {
        KIND_BLOCK | KIND_FREE_BLOCK | KIND_RESIZE => "memory",
        KIND_MULTICAST => "multicast channel",
        KIND_SHARED => "shared data",
        KIND_MESSAGES => "messages",
        _ => "window",
    };
    let (mut theirs, ours) = (describe(theirs), describe(ours));
    if theirs == ours {
        theirs += match call {
            "multicast channel" => {
                ", but other readers, another order of them, other options or another MEMONET_MULTICAST"
            }
            _ => ", but other options",
        };
    }
    Error::Unequal { call, pe, theirs, ours, at: None }
}

fn describe([kind, size, shape, options, name, row, ..]: Request) -> String {
    let of = match kind {
        KIND_BLOCK | KIND_RESIZE if name == NO_LIMIT => String::new(),
        KIND_BLOCK | KIND_RESIZE => {
            format!(", of a heap that SHMEM_SYMMETRIC_SIZE limits to {name} bytes")
        }
        _ => ElementName::describe([name, row]),
    };
    match kind {
        NONE => "nothing: it is in another collective call, or an earlier one failed here or there and its error was passed over".into(),
        KIND_WINDOW => format!("a window of {size} bytes{of}, aligned to {shape}, options {options:#x}"),
        KIND_FREE => format!("a free of window {size}"),
        KIND_REFUSED => "something impossible".into(),
        KIND_MULTICAST => {
            let (element, writer, readers) = (shape >> 16, options >> 16 & 0xff_ffff, options >> 40);
            format!("a multicast channel of {size} bytes{of}, elements of {element} bytes, from PE {writer} to {readers} others")
        }
        KIND_SHARED => {
            let (kind, length, align) = (shape >> 56, shape << 8 >> 16, 1u64 << (shape & 63));
            match kind == ObjectKind::Region as u64 {
                true => format!("a region of {length} elements{of}, {size} bytes in all"),
                false if kind == ObjectKind::RwLock as u64 => format!("a reader-writer lock of {length} bytes{of}, aligned to {align}"),
                false => format!("a mutex of {length} bytes{of}, aligned to {align}"),
            }
        }
        KIND_MESSAGES => {
            let depth = options >> 16;
            format!("messages of up to {shape} bytes, {depth} under way between two PEs")
        }
        KIND_RESTRICTED => format!("a restricted window of {size} bytes{of}, rights {options:#x}"),
        KIND_BLOCK => format!("an allocation of {size} bytes, aligned to {shape}{of}"),
        KIND_RESIZE => format!("{size} bytes for the block at {shape:#x}{of}"),
        KIND_FREE_BLOCK => format!("a free of the block at {size:#x}"),
        _ => "another call".into(),
    }
}
