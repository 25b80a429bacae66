//! An attached process's way to the machine: its side of the passage.
//!
//! A process makes one call at a time: threads wait for each other, in real time and in the order
//! in which they came. A signal handler that interrupts a thread on its way to a call, in it or on
//! its way back must not wait for that thread. It can make no call, and it sleeps in real time.
//!
//! **Sleeps of threads other than the one that has joined** do not keep that one from its calls.
//! Such a sleep ends when the calls of other threads have taken the machine's time to its end.
//! Where no other thread does that, because all sleep in the kernel ([`aside`]), it makes the call
//! itself. A thread that computes may still come to a call. It is waited for, but only
//! [`aside::PATIENCE`] without any call: it may spin until the sleeper wakes.

use super::ask::Ask;
use super::fabric::{Port, refused};
use super::gate::Gate;
use super::passage::{MOST_ASKS, Own, Recall, Reply};
use super::{aside, clock};
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::endpoint::ending::{self, NOT_THE_PE};
use crate::lifecycle::start::Seat;
use crate::wait::answer;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The error's text for a signal handler that would wait for the thread that it has interrupted.
const IN_A_CALL: &str = "a signal handler has interrupted a call, and makes one itself: have it set \
     a flag for the program instead";

/// This process's way to the machine, once it has joined.
static JOINED: OnceLock<Arc<Process>> = OnceLock::new();

thread_local! {
    /// Whether this thread is on its way to a call, in it or on its way back.
    static CALLS: Cell<bool> = const { Cell::new(false) };
    /// Whether this is the thread that has joined.
    static JOINER: Cell<bool> = const { Cell::new(false) };
}

/// Sleeps for so long in the machine's time. False where the kernel has to do it: the process is
/// not a PE of a machine or has not joined yet, a signal handler has interrupted a call, or the
/// machine refuses, and the user has been told why.
pub(super) fn sleep(time: Duration) -> bool {
    sleep_until(clock::now().saturating_add(time))
}

/// Sleeps until then, by the machine's time; or says that it cannot.
fn sleep_until(end: Duration) -> bool {
    let Some(process) = JOINED.get() else { return false };
    // A child by a bare `clone` does not know that it is one, so this asks the kernel.
    if process.id != std::process::id() || CALLS.get() {
        return false;
    }
    let has_to_call = JOINER.get() || aside::wait(&process.gate, end);
    !has_to_call || process.sleep_until(end)
}

/// A wait has ended at its limit, which the kernel kept in real time. Has the machine's time pass
/// until then.
pub(super) fn waited_until(end: Duration) {
    if !sleep_until(end) {
        clock::passed(end.saturating_sub(clock::now()));
    }
}

/// Whether the PE has forked this process off. Children that do not know it are left out.
pub(super) fn is_forked_off() -> bool {
    ending::is_forked() && JOINED.get().is_some_and(|process| !process.is_this())
}

/// A process's way to the machine.
pub(super) struct Process {
    seat: Seat,
    id: u32,
    /// In it, threads wait for `own`.
    gate: Gate,
    own: Mutex<Own>,
    recall: Recall,
}

/// A thread's right to make calls. One thread has it.
struct Call<'a> {
    own: Option<MutexGuard<'a, Own>>,
    gate: &'a Gate,
}

impl Deref for Call<'_> {
    type Target = Own;

    fn deref(&self) -> &Own {
        self.own.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Own {
        self.own.as_mut().expect("it is there until the drop")
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.own = None;
        self.gate.leave();
        CALLS.set(false);
    }
}

impl Process {
    /// This process, in its place, by its passage.
    pub(super) fn new(seat: Seat, own: Own) -> Arc<Process> {
        let recall = own.recall();
        Arc::new(Process {
            seat,
            id: std::process::id(),
            gate: Gate::default(),
            own: Mutex::new(own),
            recall,
        })
    }

    /// Whether this is the process that has joined, and not a child of it. Each call asks, so only
    /// children ask the kernel.
    fn is_this(&self) -> bool {
        !ending::is_forked() || self.id == std::process::id()
    }

    /// The list of questions, when it is this thread's turn to ask.
    fn own(&self) -> Result<Call<'_>> {
        if !self.is_this() {
            // A forked process must not use its parent's turn.
            return Err(Error::misuse(NOT_THE_PE));
        }
        if CALLS.replace(true) {
            return Err(Error::misuse(IN_A_CALL));
        }
        self.gate.enter();
        Ok(Call { own: Some(lock(&self.own)), gate: &self.gate })
    }

    /// Sleeps until then, by the machine's time, in which the PE does nothing else.
    fn sleep_until(&self, end: Duration) -> bool {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let Ok(mut own) = self.own() else { return false };
        let time = end.saturating_sub(clock::now());
        // SAFETY: the question has no block.
        match unsafe { self.call(&mut own, Ask::Compute { time }, null_mut()) } {
            Ok(_) => true,
            // The process is about to be ended.
            Err(_) if own.has_ended() => false,
            Err(why) => {
                if !TOLD.swap(true, Ordering::Relaxed) {
                    let pe = self.seat.pe();
                    let told =
                        format!("memonet: PE {pe}: a sleep of {time:?}, in real time: {why}\n");
                    // The program's function can give no more than a number.
                    // SAFETY: the kernel reads the text.
                    unsafe { libc::write(libc::STDERR_FILENO, told.as_ptr().cast(), told.len()) };
                }
                false
            }
        }
    }

    /// Asks one question.
    ///
    /// # Safety
    /// As for [`Port::call`].
    unsafe fn call(&self, own: &mut Own, ask: Ask, block: *mut u8) -> Result<u64> {
        if !own.has_room(ask) {
            self.ask_what_is_kept(own)?;
        }
        // SAFETY: the caller promises the block.
        unsafe { self.ask(own, &[ask], block) }.map(|(_, value)| value)
    }

    /// Asks `asks` after what is kept. Gives how many of `asks` were answered, and the answer to
    /// the last.
    ///
    /// # Safety
    /// As for [`Port::call`], of each question.
    unsafe fn ask(&self, own: &mut Own, asks: &[Ask], block: *mut u8) -> Result<(usize, u64)> {
        let Some(&last) = asks.last() else { return Ok((0, 0)) };
        // SAFETY: the caller promises the block, for each question.
        asks.iter().for_each(|&ask| unsafe { own.keep(ask, clock::charge(), block) });
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
        clock::set_calling(true);
        let reply = answer::while_asleep(control, me, call);
        let resumed = Self::resumed(reply);
        clock::set_calling(false);
        self.gate.tell();
        resumed
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
        JOINER.set(true);
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
        // SAFETY: the caller promises the block.
        unsafe { Process::call(self, &mut *self.own()?, ask, block) }
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
            unsafe { own.keep(ask, clock::charge(), block) };
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
