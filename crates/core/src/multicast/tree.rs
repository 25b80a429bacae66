//! The tree: the log travels from ring to ring, where readers cannot read the writer's ring.
//!
//! Each reader has a ring in its own segment. The PE that writes to it, its *parent*, puts each
//! record to the position that it has in the parent's own ring: block, then header, as a put with a
//! signal. The first readers, up to [`ARITY`], are the writer's children; the next ones are theirs.
//! A reader relays records in every wait of its PE, whatever that waits for ([`Relay`]), until it
//! has relayed the last, even after it has left the channel itself: its PE does not end before
//! that.
//!
//! **Proof.**
//!
//! * T1: *A reader takes no old bytes for a header*, though two puts may arrive in any order. It
//!   zeroes its ring up to a position before it reports that position to its parent. The parent
//!   puts only up to the reported position plus the ring's length, and keeps one word free. So
//!   where the reader looks for the next header there is zero, until that header arrives; and then
//!   its block is there.
//! * T2: *A reported position never falls*, though two stores may arrive in any order. A reader
//!   adds its progress to its word at the parent. The sum of the additions that have arrived is
//!   never more than its position.
//! * T3: *The slowest reader stops the writer*, at the bound that holds where readers read in
//!   place. A reader reports the position that it and all readers below it have consumed. So
//!   records stay in the ring until they have been relayed.
//! * T4: *All records arrive, though PEs leave the job when they are done.* A reader that finalises
//!   says that it reads no more; a writer that finalises says that nothing follows. Either stays
//!   until it has relayed the end to all children that are still there. So a parent that has
//!   finalised is no failure to its children. A parent that is gone is one; by then the end is in
//!   its children's rings, unless a reader below another PE has died, to which nothing more could
//!   be relayed. Where a PE has died, no PE stays: all that depend on the writer get an error.
//! * T5: *Only the reader itself gives away a place in its ring*, by `pop` or by dropping its end.
//!   The state of its PE does not, as safe code may hold references to a block that is *shown*, for
//!   ever if it has leaked the channel. So a PE that leaves with a shown block does not report it.
//!   A writer that needs the place, and a parent, get an error once that PE is gone. After it has
//!   left, the PE is shown nothing more. Only exit handlers ignore that: the program's references
//!   end with the process.
//! * T6: *A dropped reader is sent no later record in place of an earlier one.* T3 no longer keeps
//!   the records that it lacks, which the fabric may still be reading. So the writer waits until
//!   all puts are done before it overwrites any of them.
//! * T7: *Nobody waits for ever where two PEs lose each other, though both live.* What a parent
//!   and its child lack of each other, the end or a position, ends all waits of both
//!   ([`Relay::lacks`]). So it does at a PE that has left the channel and only relays. PEs
//!   further away are not told. They depend on one of the two: to its children a PE that leaves
//!   without relaying the end is a failure (T4), to its parent one that has neither got the end
//!   nor said that it has left. So a PE that finalises and lacks something leaves at once.
//!
//! On a channel whose readers may be dropped, or die, all readers are the writer's children: so
//! none depends on another.

use super::position::{LEFT, PositionLine, Upstream};
use super::ring::{Header, Ring};
use super::{MulticastOptions, finalised, first_dead};
use crate::base::error::Result;
use crate::base::shm;
use crate::base::status::State;
use crate::base::{lock, try_lock};
use crate::endpoint::ending;
use crate::endpoint::fabric::{Due, SignalOp};
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::endpoint::route::Route;
use crate::window::Inner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Children of a PE. With two, a writer of large blocks is least busy, and the path is not long.
pub(super) const ARITY: usize = 2;

/// The children of the `number`-th of writer (0) and readers (1 to `readers`), as numbers of
/// readers from 0.
pub(super) fn children(number: usize, readers: usize, arity: usize) -> std::ops::Range<usize> {
    let first = number.saturating_mul(arity).min(readers);
    first..first.saturating_add(arity).min(readers)
}

/// The parent of the `number`-th PE, which is not the writer.
pub(super) fn parent(number: usize, arity: usize) -> usize {
    (number - 1) / arity
}

/// A PE's place in the tree.
pub(super) struct Node {
    pub(super) pe: Arc<Pe>,
    /// The ring in this PE's segment.
    pub(super) ring: Ring,
    /// The ring's offset in every segment.
    pub(super) offset: u64,
    pub(super) writer: usize,
    /// All readers of the channel.
    pub(super) readers: Box<[usize]>,
    /// The word by which this PE reports its position; `None` at the writer.
    pub(super) upstream: Option<Upstream>,
    pub(super) options: MulticastOptions,
    /// The position up to which this PE itself has read, or written.
    pub(super) at: AtomicU64,
    /// This PE has left the job, and with it the channel, though it still has its end.
    pub(super) left: AtomicBool,
    pub(super) progress: Mutex<Progress>,
    /// This node, from when the end of the channel is dropped until no other PE needs this one.
    pub(super) keep: Mutex<Option<Arc<Node>>>,
    /// Whether the ring needs zeros where it was read (T1): the parent puts to it.
    pub(super) cleans: bool,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct Progress {
    pub(super) children: Vec<Child>,
    /// The position that the parent has been sent.
    pub(super) reported: u64,
    /// All children have been sent the end, or have said that they have left.
    pub(super) ended: bool,
    /// The program may refer to the next block in the ring.
    pub(super) shown: bool,
}

pub(super) struct Child {
    pub(super) pe: usize,
    /// Its line, in this PE's segment.
    pub(super) line: PositionLine,
    /// The position of the next record for it.
    pub(super) sent: u64,
    pub(super) ended: bool,
    /// A put to it has failed.
    pub(super) lost: bool,
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Notes that this PE has read, or published, up to `position`. Relays records that are there,
    /// and reports if progress is enough, or, with `all`, any.
    pub(super) fn advance(&self, position: u64, all: bool) {
        self.at.store(position, Ordering::Release);
        self.work(&mut self.lock(), all);
    }

    /// Lets the program refer to the next block until [`hide`](Self::hide).
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(super) fn show(&self) -> Result<()> {
        // T5: under the lock, a departure either has given the block away, or sees that it is
        // shown.
        let mut progress = self.lock();
        self.check()?;
        progress.shown = true;
        Ok(())
    }

    /// Ends the program's access to the shown block.
    pub(super) fn hide(&self) {
        self.lock().shown = false;
    }

    /// Checks that bytes read in the ring had not been given away meanwhile.
    ///
    /// # Errors
    /// [`Error::Misuse`] once this PE has left the job.
    pub(super) fn check(&self) -> Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Err(finalised());
        }
        Ok(())
    }

    /// Stays for others, unless this PE has left the job.
    fn stay(self: &Arc<Self>) {
        if self.pe.control().state(self.pe.me()) != State::Done {
            *lock(&self.keep) = Some(self.clone());
        }
    }

    /// Leaves the channel as a reader. This PE goes on to relay.
    pub(super) fn leave(self: &Arc<Self>) {
        self.stay();
        self.hide();
        self.advance(LEFT, true);
        self.release();
    }

    /// Leaves the channel as its writer, after the last record. This PE goes on to relay until all
    /// have come.
    pub(super) fn end(self: &Arc<Self>) {
        self.stay();
        self.work(&mut self.lock(), true);
        self.release();
    }

    /// Goes on without a child.
    pub(super) fn forget(&self, pe: usize) {
        self.lock().children.retain(|child| child.pe != pe);
    }

    fn has_died(&self, pe: usize) -> bool {
        matches!(self.pe.control().state(pe), State::Dead(_))
    }

    /// Whether the last record has come, seen from one on that is there, or is the next to come. A
    /// ring that was written over has no end.
    fn has_end(&self, from: u64) -> bool {
        let mut at = from;
        while at - from < self.ring.len() {
            match self.ring.word(at) {
                0 => return false,
                word => match self.ring.decode(at, word) {
                    Ok(Header::Block { len, .. }) => at += self.ring.record(len),
                    Ok(Header::Padding { len }) => at += len as u64,
                    Ok(Header::End { .. }) => return true,
                    Err(_) => return false,
                },
            }
        }
        false
    }

    /// Whether a child is there that still needs the end, and may get it (T4).
    fn is_needed(&self, progress: &Progress) -> bool {
        !self.is_over()
            && progress.children.iter().any(|child| !child.lost && self.is_waiting(child))
    }

    /// Whether a death has ended the channel. Where all readers are the writer's children, none
    /// depends on one that has died.
    fn is_over(&self) -> bool {
        self.has_died(self.writer)
            || !self.options.is_flat() && self.readers.iter().any(|&reader| self.has_died(reader))
    }

    /// Whether the end has not come, for this reader or for a child. What a parent had to give was
    /// here before it was gone; then the reader's own waits say so.
    fn lacks_end(&self, progress: &Progress, parent: usize) -> bool {
        let is_gone = self.pe.control().state(parent) == State::Done;
        let own = self.at.load(Ordering::Acquire);
        let reads = !is_gone && own != LEFT && !self.left.load(Ordering::Acquire);
        let mut waiting = progress.children.iter().filter(|child| self.is_waiting(child));
        reads && !self.has_end(own) || waiting.any(|child| !self.has_end(child.sent))
    }

    /// Whether a child is there that still needs the end.
    fn is_waiting(&self, child: &Child) -> bool {
        let is_there =
            || !matches!(self.pe.control().state(child.pe), State::Dead(_) | State::Done);
        !child.ended && !child.line.has_left() && is_there()
    }

    /// Drops the node's reference to itself once no PE needs the node.
    fn release(&self) {
        let mut keep = lock(&self.keep);
        if keep.is_some() {
            let ended = try_lock(&self.progress).is_some_and(|progress| progress.ended);
            if ended || self.has_died(self.writer) {
                // The caller holds another reference.
                *keep = None;
            }
        }
    }

    fn work(&self, progress: &mut Progress, all: bool) {
        for child in &mut progress.children {
            if let Err(error) = self.relay_to(child) {
                // The next quiet returns the error. This child gets no more records.
                self.pe.surface_later(error);
                child.lost = true;
            }
        }
        let departs = self.pe.control().state(self.pe.me()).departed().is_some();
        // A PE that leaves the job leaves the channel, but for a shown block (T5).
        let own = if departs && (!progress.shown || ending::exits()) {
            self.left.store(true, Ordering::Release);
            LEFT
        } else {
            self.at.load(Ordering::Acquire)
        };
        progress.ended = progress.children.iter().all(|child| child.ended || child.line.has_left());
        let Some(upstream) = &self.upstream else { return };
        // T3.
        let least = progress.children.iter().map(|child| child.line.position()).fold(own, u64::min);
        let enough = if all { 1 } else { self.ring.len() / 8 };
        if least > progress.reported && least - progress.reported >= enough {
            if least != LEFT && self.cleans {
                self.clean(progress.reported, least); // T1
            }
            upstream.add(&self.pe, least - progress.reported); // T2
            progress.reported = least;
        }
    }

    /// Puts to a child all records that have come, as far as it has room.
    fn relay_to(&self, child: &mut Child) -> Result<()> {
        loop {
            let word = self.ring.word(child.sent);
            if word == 0 || child.ended || child.lost {
                return Ok(());
            }
            let header = self.ring.decode(child.sent, word)?;
            let (block, record) = match header {
                Header::Block { len, .. } => (len, self.ring.record(len)),
                Header::Padding { len } => (0, len as u64),
                Header::End { .. } => (0, 0),
            };
            let room = child.line.position().saturating_add(self.ring.len());
            // The free word of T1 is in the 8.
            if child.line.has_left() || child.sent + record + 8 > room {
                return Ok(());
            }
            self.put(child, block, word)?;
            child.sent += record;
            child.ended = matches!(header, Header::End { .. });
        }
    }

    fn put(&self, child: &Child, len: usize, word: u64) -> Result<()> {
        let base = self.ring.at(0) as usize;
        let (header, block) = (self.ring.at(child.sent), self.ring.block(child.sent));
        let there =
            |here: *mut u8| self.pe.route(child.pe, self.offset + (here as usize - base) as u64);
        match (there(block), there(header)) {
            // SAFETY: the block is in this PE's ring, mapped as long as the job. By T3 it stays
            // unchanged until the child has reported it as consumed, which it does after the
            // signal.
            (Route::Far(to), Route::Far(at)) => unsafe {
                self.pe.fabric().put_signal_nbi(to, block, len, at, SignalOp::Set, word)
            },
            (to, at) => {
                // SAFETY: as above; the child's ring is as long, and is another PE's memory.
                unsafe { to.put(&self.pe, block, len) }?;
                Ok(at.signal(&self.pe, child.pe, SignalOp::Set, word)?)
            }
        }
    }

    /// Zeroes bytes that neither this reader nor any below it needs.
    fn clean(&self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let len = (to - at).min(self.ring.len() - (at & (self.ring.len() - 1)));
            // SAFETY: the bytes lie in this PE's ring, and the parent puts nothing there before
            // they are reported (T1).
            unsafe { shm::zero(self.ring.at(at), len as usize) };
            at += len;
        }
    }
}

impl Relay for Node {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut progress = try_lock(&self.progress)?;
        self.work(&mut progress, true);
        drop(progress);
        self.release();
        None
    }

    fn lacks(&self, is_lost: &dyn Fn(usize) -> bool) -> Option<usize> {
        let progress = try_lock(&self.progress)?;
        if self.is_over() {
            return None;
        }
        let Some(parent) = self.upstream.as_ref().map(|word| word.pe) else {
            // The writer's waits for room see children that have left.
            let mut children = progress.children.iter().filter(|child| self.is_waiting(child));
            let lost = children.find(|child| is_lost(child.pe)).map(|child| child.pe);
            return lost.filter(|_| !self.options.survives());
        };
        // A node that reads in another's ring relays nothing.
        if self.cleans && is_lost(parent) && self.lacks_end(&progress, parent) {
            return Some(parent);
        }
        // A child that has left has said so before (T4), or has got the end.
        let needs = |child: &&Child| is_lost(child.pe) && !child.ended && !child.line.has_left();
        progress.children.iter().find(needs).map(|child| child.pe)
    }

    fn let_go(&self) {
        *lock(&self.keep) = None;
    }

    fn depart(&self) -> bool {
        let mut progress = self.lock();
        let last = self.at.load(Ordering::Acquire);
        if self.upstream.is_none() && self.ring.word(last) == 0 {
            // The program still holds the end of the channel.
            let has_left = |reader: usize| {
                let mut children = progress.children.iter();
                children.any(|child| child.pe == reader && child.line.has_left())
            };
            let readers = if self.options.survives() { &[] } else { &self.readers[..] };
            let failed = first_dead(&self.pe, readers, has_left);
            self.ring.set_word(last, Header::End { failed }.to_word());
        }
        self.work(&mut progress, true);
        let needed = self.is_needed(&progress);
        if !needed {
            // What children have reported before they were gone is reported before this PE is.
            self.work(&mut progress, true);
        }
        needed
    }

    fn shows_memory(&self) -> bool {
        self.lock().shown
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_one_parent() {
        for (readers, arity) in
            (0..40).flat_map(|readers| [(readers, 2), (readers, 3), (readers, usize::MAX)])
        {
            let mut seen = vec![0; readers];
            for number in 0..=readers {
                for child in children(number, readers, arity) {
                    seen[child] += 1;
                    assert_eq!(parent(child + 1, arity), number);
                }
            }
            assert!(
                seen.iter().all(|&times| times == 1),
                "{readers} readers, {arity} each: {seen:?}"
            );
        }
    }
}
