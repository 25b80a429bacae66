//! The tree: the log goes from ring to ring, where readers cannot read the writer's.
//!
//! Each reader has a ring in its own segment. Whoever writes to it, its *parent*, puts each record
//! to the same position as in its own ring: block, then header, as a put with a signal. The first
//! readers are the writer's children, up to [`ARITY`] of them; the next ones are theirs. A reader
//! passes records on in every wait of its PE, whatever that waits for ([`Relay`]), until it has
//! passed on the last, also when it has left itself: then its PE does not end before that.
//!
//! **Why a reader takes no old bytes for a header**, though two puts may arrive in any order. It
//! zeroes what it is done with before it tells its parent of that, and the parent puts only to what
//! it was told of, keeping one word free. So where the reader looks for the next header there is
//! zero, until that header arrives; and when it does, its block is there.
//!
//! **Why a position never falls**, though two stores may arrive in any order: a reader adds to its
//! word at the parent what it is further on. What has arrived of that is never more than where it
//! is.
//!
//! **What a position means.** A reader tells its parent of what it and all below it are done with.
//! So the writer is stopped by the slowest reader of all, at the same bound as if that read in
//! place; and a record is passed on from memory that nobody frees.
//!
//! **Why all arrives, though PEs leave the job when they are done.** Whoever finalises says that it
//! reads no more, or, the writer, that nothing follows, and stays until it has passed the end on to
//! all children that are still there. A parent that has finalised is no failure to its children,
//! then, but one that is gone is: the end is in the ring by then, unless somebody below another has
//! died, to whom nothing more could be passed on. Where one has died, nobody stays: all that depend
//! on the writer are told by an error.
//!
//! **A place is given away by its reader alone**, by `pop` or by dropping its end; not by its PE's
//! state, as safe code can have references to a block that is *shown*. So a PE that finalises with
//! a shown block stays until that is popped. Once it has left it is shown nothing more. Only exit
//! handlers pass over that: the program's references end with the process.
//!
//! On a channel whose readers may be dropped, or die, all readers are the writer's children, so
//! that none depends on another.

use super::ring::{Header, Ring};
use super::writer::{LEFT, PositionLine};
use crate::base::error::{Error, Result};
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

/// Children of a PE. Two keep a writer of large blocks busy the least, with a path that is not
/// long.
pub(super) const ARITY: usize = 2;

/// The children of the `number`-th of writer (0) and readers (1 to `readers`), as numbers of
/// readers from 0.
pub(super) fn children(number: usize, readers: usize, arity: usize) -> std::ops::Range<usize> {
    let first = number.saturating_mul(arity).min(readers);
    first..first.saturating_add(arity).min(readers)
}

/// The parent of the `number`-th, which is not the writer.
pub(super) fn parent(number: usize, arity: usize) -> usize {
    (number - 1) / arity
}

/// A PE's place in the tree.
pub(super) struct Node {
    pub(super) pe: Arc<Pe>,
    /// In this PE's segment,
    pub(super) ring: Ring,
    /// and there, as in all others, at this offset.
    pub(super) offset: u64,
    pub(super) writer: usize,
    /// All of the channel.
    pub(super) readers: Box<[usize]>,
    /// Where this PE tells how far it is; `None`: it is the writer.
    pub(super) upstream: Option<Upstream>,
    /// How far this PE itself has read, or written.
    pub(super) at: AtomicU64,
    /// This PE has left the job, and with it the channel, though it has its end still.
    pub(super) left: AtomicBool,
    pub(super) progress: Mutex<Progress>,
    /// Itself, from when the end of the channel is dropped until others need this PE no more.
    pub(super) keep: Mutex<Option<Arc<Node>>>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

/// The word in which a parent looks for a child's position.
#[derive(Clone, Copy)]
pub(super) struct Upstream {
    pub(super) pe: usize,
    pub(super) word: Route,
}

impl Upstream {
    /// Adds to the word.
    pub(super) fn add(&self, me: &Pe, amount: u64) {
        if let Err(error) = self.word.signal(me, self.pe, SignalOp::Add, amount) {
            me.surface_later(*error);
        }
    }
}

pub(super) struct Progress {
    pub(super) children: Vec<Child>,
    /// What the parent has been told.
    pub(super) told: u64,
    /// The end has been passed on to all children.
    pub(super) ended: bool,
    /// The program may refer to the next block in the ring.
    pub(super) shown: bool,
}

pub(super) struct Child {
    pub(super) pe: usize,
    /// Its line, in this PE's segment.
    pub(super) line: PositionLine,
    /// The next record for it.
    pub(super) sent: u64,
    pub(super) ended: bool,
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// This PE has read, or published, up to `position`: passes on what is there, and tells of it
    /// if `all` or enough has come together.
    pub(super) fn advance(&self, position: u64, all: bool) {
        self.at.store(position, Ordering::Release);
        self.work(&mut self.lock(), all);
    }

    /// The program may refer to the next block from now on, until [`hide`](Self::hide).
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(super) fn show(&self) -> Result<()> {
        // Under the lock, a departure has either given the block away, or sees that it is shown.
        let mut progress = self.lock();
        self.check()?;
        progress.shown = true;
        Ok(())
    }

    /// The block that was shown is read no more.
    pub(super) fn hide(&self) {
        self.lock().shown = false;
    }

    /// That what was read of the ring was not given away meanwhile.
    ///
    /// # Errors
    /// [`Error::Misuse`] once this PE has left the job.
    pub(super) fn check(&self) -> Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Err(Error::Misuse(
                "this PE has finalised: it reads no more of its multicast channels",
            ));
        }
        Ok(())
    }

    /// This PE reads no more. What it passes on to others it still does.
    pub(super) fn leave(self: &Arc<Self>) {
        *lock(&self.keep) = Some(self.clone());
        self.hide();
        self.advance(LEFT, true);
        self.rest();
    }

    /// The writer writes no more: what is on its way is passed on, then this is needed no more.
    pub(super) fn end(self: &Arc<Self>) {
        *lock(&self.keep) = Some(self.clone());
        self.work(&mut self.lock(), true);
        self.rest();
    }

    /// Goes on without a child.
    pub(super) fn forget(&self, pe: usize) {
        self.lock().children.retain(|child| child.pe != pe);
    }

    fn has_died(&self, pe: usize) -> bool {
        matches!(self.pe.control().state(pe), State::Dead(_))
    }

    /// Whether a child is there that is to have the end, and may get it.
    fn is_needed(&self, progress: &Progress) -> bool {
        // Where all are children of the writer, those that have died hold nobody up.
        let is_flat = progress.children.len() == self.readers.len();
        if self.has_died(self.writer)
            || !is_flat && self.readers.iter().any(|&reader| self.has_died(reader))
        {
            return false;
        }
        let is_there =
            |pe: usize| !matches!(self.pe.control().state(pe), State::Dead(_) | State::Done);
        let mut children = progress.children.iter();
        children.any(|child| !child.ended && !child.line.has_left() && is_there(child.pe))
    }

    /// Lets go of itself once nobody needs it.
    fn rest(&self) {
        let mut keep = lock(&self.keep);
        if keep.is_some() {
            let nobody = try_lock(&self.progress).is_some_and(|progress| progress.ended);
            if nobody || self.has_died(self.writer) {
                // Whoever called this holds one, too.
                *keep = None;
            }
        }
    }

    fn work(&self, progress: &mut Progress, all: bool) {
        for child in &mut progress.children {
            if let Err(error) = self.pass_on(child) {
                // To be told at the next quiet; this child gets no more, and its waits end with the
                // job's.
                self.pe.surface_later(error);
                child.ended = true;
            }
        }
        let departs = self.pe.control().state(self.pe.me()).departed().is_some();
        // A PE that leaves the job has left the channel.
        let own = if departs && (!progress.shown || ending::exits()) {
            self.left.store(true, Ordering::Release);
            LEFT
        } else {
            self.at.load(Ordering::Acquire)
        };
        progress.ended = progress.children.iter().all(|child| child.ended || child.line.has_left());
        let Some(upstream) = &self.upstream else { return };
        let least = progress.children.iter().map(|child| child.line.position()).fold(own, u64::min);
        let enough = if all { 1 } else { self.ring.len() / 8 };
        if least > progress.told && least - progress.told >= enough {
            if least != LEFT {
                self.clean(progress.told, least);
            }
            upstream.add(&self.pe, least - progress.told);
            progress.told = least;
        }
    }

    /// Puts all records to a child that have come, and for which it has room.
    fn pass_on(&self, child: &mut Child) -> Result<()> {
        loop {
            let word = self.ring.word(child.sent);
            if word == 0 || child.ended {
                return Ok(());
            }
            let header = self.ring.decode(child.sent, word)?;
            let (block, record) = match header {
                Header::Block { len, .. } => (len, self.ring.record(len)),
                Header::Padding { len } => (0, len as u64),
                Header::End => (0, 0),
            };
            let room = child.line.position().saturating_add(self.ring.len());
            if child.line.has_left() || child.sent + record + 8 > room {
                return Ok(());
            }
            self.put(child, block, word)?;
            child.sent += record;
            child.ended = header == Header::End;
        }
    }

    fn put(&self, child: &Child, len: usize, word: u64) -> Result<()> {
        let base = self.ring.at(0) as usize;
        let (header, block) = (self.ring.at(child.sent), self.ring.block(child.sent));
        let there =
            |here: *mut u8| self.pe.route(child.pe, self.offset + (here as usize - base) as u64);
        match (there(block), there(header)) {
            // SAFETY: the block is one of this PE's ring, mapped as long as the job. It stays as it
            // is until the child has told that it is done with it, which answers the signal.
            (Route::Far(to), Route::Far(at)) => unsafe {
                self.pe.fabric().put_signal_nbi(to, block, len, at, SignalOp::Set, word)
            },
            (to, at) => {
                // SAFETY: as above; the child's ring has as much room at the same place, and is
                // another's memory.
                unsafe { to.put(&self.pe, block, len) }?;
                Ok(at.signal(&self.pe, child.pe, SignalOp::Set, word)?)
            }
        }
    }

    /// Zeroes what nobody below needs any more.
    fn clean(&self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let len = (to - at).min(self.ring.len() - (at & (self.ring.len() - 1)));
            // SAFETY: inside of this PE's ring, to which the parent puts nothing before it is told.
            unsafe { shm::zero(self.ring.at(at), len as usize) };
            at += len;
        }
    }
}

impl Relay for Node {
    fn relay(&self) -> Option<Due> {
        // A thread that has it does the same work.
        let mut progress = try_lock(&self.progress)?;
        self.work(&mut progress, true);
        drop(progress);
        self.rest();
        None
    }

    fn depart(&self) -> bool {
        let mut progress = self.lock();
        if self.upstream.is_none() {
            // Also where the end of the channel is still held.
            self.ring.set_word(self.at.load(Ordering::Acquire), Header::End.to_word());
        }
        self.work(&mut progress, true);
        self.is_needed(&progress) || progress.shown && !ending::exits()
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
