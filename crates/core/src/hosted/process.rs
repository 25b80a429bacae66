//! An attached process's way to the machine: its side of the passage.

use super::ask::Ask;
use super::clock;
use super::fabric::{Port, refused};
use super::passage::{MOST_ASKS, Own, Recall, Reply};
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::endpoint::ending::{self, NOT_THE_PE};
use crate::lifecycle::start::Seat;
use crate::wait::answer;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// This process's way to the machine, once it has joined.
static JOINED: OnceLock<Arc<Process>> = OnceLock::new();

/// Sleeps for so long in the machine's time. False if this process is not a PE of a machine, or has
/// not joined yet.
pub(super) fn sleep(time: Duration) -> bool {
    let Some(process) = JOINED.get() else { return false };
    // A process that the PE has forked off has a copy of its memory, and is not the PE.
    // SAFETY: the question has no block.
    process.id == std::process::id()
        && unsafe { process.call(Ask::Compute { time }, null_mut()) }.is_ok()
}

/// A process's way to the machine. It makes one call at a time: threads wait for each other, in
/// real time.
pub(super) struct Process {
    seat: Seat,
    id: u32,
    own: Mutex<Own>,
    recall: Recall,
}

impl Process {
    /// This process, in its place, by its passage.
    pub(super) fn new(seat: Seat, own: Own) -> Arc<Process> {
        let recall = own.recall();
        Arc::new(Process { seat, id: std::process::id(), own: Mutex::new(own), recall })
    }

    /// Whether this is the process that has joined, and not a child of it. Each call asks, so only
    /// children ask the kernel.
    fn is_this(&self) -> bool {
        !ending::is_forked() || self.id == std::process::id()
    }

    /// The list of questions.
    fn own(&self) -> Result<MutexGuard<'_, Own>> {
        match self.is_this() {
            true => Ok(lock(&self.own)),
            // A forked process must not use its parent's turn.
            false => Err(Error::misuse(NOT_THE_PE)),
        }
    }

    /// Asks `asks` after what is kept. Gives how many of `asks` were answered, and the answer to
    /// the last.
    ///
    /// # Safety
    /// As for [`Port::call`], of each question.
    unsafe fn ask(&self, own: &mut Own, asks: &[Ask], block: *mut u8) -> Result<(usize, u64)> {
        let Some(&last) = asks.last() else { return Ok((0, 0)) };
        // SAFETY: the caller promises the block, for each question.
        asks.iter().for_each(|&ask| unsafe { own.keep(ask, clock::computed(), block) });
        // SAFETY: as above.
        unsafe { self.pass(own, last, asks.len(), block) }
    }

    /// Asks what is kept.
    fn ask_what_is_kept(&self, own: &mut Own) -> Result<()> {
        if !own.keeps() {
            return Ok(());
        }
        // SAFETY: a question that is kept takes no block.
        unsafe { self.pass(own, Ask::Fence, 0, null_mut()) }.map(drop)
    }

    /// Passes the turn with the questions of the list, and goes on with the reply. The launcher may
    /// wake this thread meanwhile to learn what it waits for.
    ///
    /// # Safety
    /// As for [`Own::call`].
    unsafe fn pass(
        &self,
        own: &mut Own,
        last: Ask,
        asked: usize,
        block: *mut u8,
    ) -> Result<(usize, u64)> {
        let (control, me) = (self.seat.control(), self.seat.pe());
        // SAFETY: the caller's promise is the one that is asked for.
        let call = || unsafe { own.call(last, asked, block, || answer::tell(control, me)) };
        Self::resumed(answer::while_asleep(control, me, call))
    }

    /// The process goes on with a reply.
    fn resumed(reply: Option<Reply>) -> Result<(usize, u64)> {
        let reply = reply.ok_or_else(|| refused("the launcher takes this process for ended"))?;
        clock::resumed(reply.now);
        Ok((reply.made, reply.answer.map_err(refused)?))
    }

    /// From now on [`sleep`] goes by this way.
    pub(super) fn joined(self: &Arc<Process>) {
        JOINED.get_or_init(|| self.clone());
    }
}

impl Port for Arc<Process> {
    fn pe(&self) -> u32 {
        self.seat.pe() as u32
    }

    fn now(&self) -> Duration {
        clock::now()
    }

    unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64> {
        let mut own = self.own()?;
        if !own.has_room(ask) {
            self.ask_what_is_kept(&mut own)?;
        }
        // SAFETY: the caller promises the block.
        unsafe { Process::ask(self, &mut own, &[ask], block) }.map(|(_, value)| value)
    }

    fn takes_lists(&self) -> bool {
        true
    }

    fn run(&self, asks: &[Ask]) -> Option<Result<usize>> {
        let run = || {
            let mut own = self.own()?;
            if !own.has_room_for(asks.len()) {
                self.ask_what_is_kept(&mut own)?;
            }
            // SAFETY: the questions have no blocks.
            let (made, _) = unsafe { Process::ask(self, &mut own, asks, null_mut()) }?;
            Ok(made)
        };
        (asks.len() <= MOST_ASKS).then(run)
    }

    fn recall(&self, recalled: bool) {
        // A forked process has no passage.
        if self.is_this() {
            self.recall.set(recalled);
        }
    }

    unsafe fn keep(&self, ask: Ask, block: *const u8) -> bool {
        let Ok(mut own) = self.own() else { return false };
        let has_room = own.has_room(ask);
        if has_room {
            // SAFETY: the caller promises the block.
            unsafe { own.keep(ask, clock::computed(), block) };
        }
        has_room
    }

    fn ask_kept(&self) -> Result<()> {
        self.ask_what_is_kept(&mut *self.own()?)
    }

    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        _base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()> {
        let map = Ask::Map { pe, region, len: len as u64, file: file.as_raw_fd() as u32 };
        // SAFETY: the question has no block.
        unsafe { self.call(map, null_mut()) }.map(drop)
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        // It fails only where the launcher counts the process as ended, and then does not matter.
        // SAFETY: as above.
        let _ = unsafe { self.call(Ask::Unmap { pe, region }, null_mut()) };
    }
}
