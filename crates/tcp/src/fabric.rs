//! The calls of the library.

use crate::broker::Broker;
use crate::forks;
use crate::hub::Hub;
use crate::patience::Patience;
use crate::peer::{Mark, State};
use crate::prepared::Transfer;
use crate::room::make_room;
use crate::shared::Shared;
use crate::thread::{self, Progress};
use crate::wire::{Home, Link, Place, word};
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::{
    Costs, Fabric, FarAddress, Prepared, Record, Signal, SignalOp,
};
use memonet_core::unstable::shm::{self, AtomicOp};
use memonet_core::{Access, Cause, Error, Result};
use parking_lot::{Mutex, MutexGuard};
use rustix::fd::BorrowedFd;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Looks in vain after which waits of the library look at sockets in every [`RARELY`]th call only:
/// these are calls of the system, and such a wait may be for near memory.
const OFTEN: u32 = 4096;
const RARELY: u32 = 16;

/// The fabric of one PE.
pub struct Tcp {
    shared: Arc<Shared>,
    progress: Mutex<Option<Progress>>,
}

impl Tcp {
    /// The fabric of the PE in this seat. It uses nothing of the broker before it is used itself.
    ///
    /// # Errors
    /// [`System`](memonet_core::Error::System).
    pub fn new(seat: &Seat, broker: Box<dyn Broker>) -> Result<Self> {
        forks::count()?;
        let record = broker.record();
        let crowded = record.pes_per_cpu(seat.pe()).is_none_or(|sharing| sharing > 1);
        make_room((0..seat.npes()).filter(|&pe| !record.are_near([seat.pe(), pe])).count());
        let hub = Hub::new(seat, broker)?;
        let shared = Shared {
            pollers: hub.pollers.clone(),
            has_failed: hub.has_failed.clone(),
            keeps_back: hub.keeps_back.clone(),
            hub: Mutex::new(hub),
            me: seat.pe() as u32,
            crowded,
            used_by: AtomicU64::new(0),
            polls: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            sleeps: AtomicBool::new(false),
            has_slept: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        Ok(Tcp { shared: shared.into(), progress: Mutex::default() })
    }

    /// Whether PEs share CPUs though the record does not say so.
    #[must_use]
    pub fn crowded(mut self, crowded: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.crowded |= crowded;
        }
        self
    }

    /// Begins a call: it is refused in a process that the PE has forked off.
    #[inline]
    fn enter(&self) -> Result<()> {
        let (shared, generation) = (&*self.shared, forks::generation());
        if shared.used_by.load(Ordering::Relaxed) != generation {
            self.begin(generation)?;
        }
        Ok(())
    }

    /// The first call: this process is the PE, and gets its progress thread.
    #[cold]
    fn begin(&self, generation: u64) -> Result<()> {
        match self.shared.used_by.load(Ordering::Relaxed) {
            0 => {}
            // Another thread has just begun.
            user if user == generation => return Ok(()),
            _ => return Err(forks::not_the_pe()),
        }
        let mut progress = self.progress.lock();
        if progress.is_none() {
            *progress = Some(thread::start(self.shared.clone())?);
            self.shared.used_by.store(generation, Ordering::Relaxed);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Hub> {
        self.shared.lock()
    }

    /// The hub with room for a record to a peer; nothing where the peer is gone, and does not need
    /// it.
    #[inline]
    fn room(
        &self,
        pe: u32,
        has_room: impl Fn(&Link) -> bool,
    ) -> Result<Option<MutexGuard<'_, Hub>>> {
        self.enter()?;
        let mut hub = self.lock();
        let mut patience = Patience::default();
        loop {
            let peer = hub.peer(pe);
            match peer.state {
                State::Alive if has_room(&peer.link) => break,
                State::Gone(_) => {
                    self.shared.done(patience);
                    return Ok(None);
                }
                State::Failed(_) => {
                    self.shared.done(patience);
                    return Err(peer.error());
                }
                State::Alive | State::Broken(..) => hub = self.shared.round(hub, pe, &mut patience),
            }
        }
        self.shared.done(patience);
        Ok(Some(hub))
    }

    /// [`room`](Self::room) where nothing stands in the way: the usual case.
    #[inline(always)]
    fn ready(&self, pe: u32) -> Option<MutexGuard<'_, Hub>> {
        let shared = &*self.shared;
        if shared.used_by.load(Ordering::Relaxed) != forks::generation() {
            return None;
        }
        let hub = self.lock();
        if hub.is_ready(pe) { Some(hub) } else { None }
    }

    /// Adds a word for a peer where nothing stands in the way; says whether it has.
    #[inline(always)]
    fn add_word(&self, to: FarAddress, size: usize, bits: u64) -> bool {
        let Some(mut hub) = self.ready(to.pe) else { return false };
        hub.peer(to.pe).link.store(place(to), size, bits);
        hub.added(to.pe, false);
        true
    }

    /// [`add_word`](Self::add_word) of a block that is a word.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    #[inline(always)]
    unsafe fn put_word(&self, to: FarAddress, src: *const u8, len: usize) -> bool {
        // SAFETY: the caller promises the source.
        unsafe { word(place(to), src, len) }.is_some_and(|bits| self.add_word(to, len, bits))
    }

    /// Where a place of this PE's own memory is.
    fn own(&self, at: FarAddress, len: usize) -> *mut u8 {
        let (me, all) = (self.shared.me, Access::None);
        let place = self.lock().memory.place(me, all, at.region as u16, at.offset, len as u64);
        place.expect("the library resolves only what is mapped")
    }

    fn is_own(&self, at: FarAddress) -> bool {
        at.pe == self.shared.me
    }

    /// # Safety
    /// `src` is readable for `len` bytes; if `until_sent`, during the call, otherwise until the
    /// next quiet.
    unsafe fn write(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<(Place, SignalOp, u64)>,
        until_sent: bool,
    ) -> Result<()> {
        let Some(mut hub) = self.room(to.pe, Link::has_room)? else { return Ok(()) };
        let link = &mut hub.peer(to.pe).link;
        // SAFETY: the caller keeps the source until it was sent, for which `until_sent` waits here,
        // and which a quiet includes.
        let end = if len > 0 { unsafe { link.put(place(to), src, len) } } else { 0 };
        if let Some((at, op, value)) = signal {
            link.signal(at, op, value);
        }
        hub.added(to.pe, signal.is_some() || end > 0);
        self.until_written(hub, to.pe, if until_sent { end } else { 0 })
    }

    /// # Safety
    /// As for [`write`](Self::write).
    unsafe fn write_and_signal(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: (FarAddress, SignalOp, u64),
        until_sent: bool,
    ) -> Result<()> {
        let (at, op, value) = signal;
        let own = self.is_own(to);
        if !own && at.pe == to.pe {
            // SAFETY: as the caller promises.
            return unsafe { self.write(to, src, len, Some((place(at), op, value)), until_sent) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.put_nbi(to, src, len) }?;
        if !own {
            self.quiet()?;
        }
        if !self.is_own(at) {
            let signal = Some((place(at), op, value));
            // SAFETY: a signal alone has no source.
            return unsafe { self.write(at, std::ptr::null(), 0, signal, true) };
        }
        let word = self.own(at, 8);
        // SAFETY: the library has resolved the word, aligned and writable.
        unsafe {
            match op {
                SignalOp::Set => shm::store(word.cast(), value),
                SignalOp::Add => _ = shm::fetch_op(word, 8, AtomicOp::Add, value),
            }
        }
        self.lock().seat.wake();
        Ok(())
    }

    /// Notifies a peer, perhaps after a block.
    ///
    /// # Safety
    /// The block's source is readable during the call.
    unsafe fn notify_after(
        &self,
        block: Option<(Place, *const u8, usize)>,
        (at, size): (FarAddress, usize),
        bits: u64,
    ) -> Result<()> {
        let Some(mut hub) = self.room(at.pe, Link::has_room)? else { return Ok(()) };
        // SAFETY: the caller keeps the source during this call, which waits until it was sent.
        let end = unsafe { hub.peer(at.pe).link.notify(block, (place(at), size), bits) };
        hub.added(at.pe, true);
        self.until_written(hub, at.pe, end)
    }

    /// Waits until so many bytes have been sent to a peer: their sources may change then.
    fn until_written(&self, hub: MutexGuard<'_, Hub>, pe: u32, end: u64) -> Result<()> {
        if end == 0 {
            return Ok(());
        }
        let number = hub.existing(pe).map(|peer| peer.number);
        let hub = self.shared.wait(hub, pe, |peer| peer.link.written() >= end);
        match hub.existing(pe) {
            Some(peer) if Some(peer.number) == number && peer.has_failed() => Err(peer.error()),
            _ => Ok(()),
        }
    }

    /// Asks a peer, and waits for the answer.
    fn ask(&self, pe: u32, request: impl FnOnce(&mut Link) -> u64) -> Result<()> {
        let Some(mut hub) = self.room(pe, Link::may_ask)? else {
            return Err(self.lock().peer(pe).error());
        };
        let peer = hub.peer(pe);
        let (number, ticket) = (peer.number, request(&mut peer.link));
        hub.added(pe, true);
        let mut hub = self.shared.wait(hub, pe, |peer| peer.link.answered() >= ticket);
        // One that has ended in order had all answered, and its refusals taken.
        let Some(peer) = hub.link(pe, number) else { return Ok(()) };
        if peer.link.answered() < ticket {
            return Err(peer.error());
        }
        if peer.link.was_refused(ticket) { Err(crate::errors::refused(pe)) } else { Ok(()) }
    }
}

fn place(at: FarAddress) -> Place {
    Place { region: at.region as u16, offset: at.offset }
}

impl Fabric for Tcp {
    fn name(&self) -> &'static str {
        crate::errors::NAME
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        if self.is_own(to) {
            // SAFETY: the library has resolved the word, aligned and writable.
            unsafe { shm::store_sized(self.own(to, size), size, bits) };
            return self.lock().seat.wake();
        }
        if self.add_word(to, size, bits) {
            return;
        }
        match self.room(to.pe, Link::has_room) {
            Ok(Some(mut hub)) => {
                hub.peer(to.pe).link.store(place(to), size, bits);
                hub.added(to.pe, false);
            }
            Ok(None) => {}
            // In a forked child the lock may never be free, and there is no quiet.
            Err(_) if self.shared.used_by.load(Ordering::Relaxed) != forks::generation() => {}
            Err(error) => self.lock().surface_later(Some(to.pe), error),
        }
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        if self.is_own(to) {
            // SAFETY: the caller promises the source.
            return unsafe { self.put_nbi(to, src, len) };
        }
        // SAFETY: as above.
        if unsafe { self.put_word(to, src, len) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.write(to, src, len, None, true) }
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        if self.is_own(to) {
            // SAFETY: the caller promises the source; the library has resolved the place.
            unsafe { shm::copy_overlapping(self.own(to, len), src, len) };
            self.lock().seat.wake();
            return Ok(());
        }
        // SAFETY: as above.
        if unsafe { self.put_word(to, src, len) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.write(to, src, len, None, false) }
    }

    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()> {
        if self.is_own(from) {
            // SAFETY: the caller promises the destination; the library has resolved the place.
            unsafe { shm::copy_overlapping(dst, self.own(from, len), len) };
            return Ok(());
        }
        // SAFETY: the caller keeps the destination for the call, and when it returns the request
        // was answered or the link has ended.
        self.ask(from.pe, |link| unsafe { link.get(place(from), dst, len) })
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
        // SAFETY: the caller promises the source.
        unsafe { self.write_and_signal(to, src, len, (signal, op, value), true) }
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
        // SAFETY: the caller promises the source. An answer of the target to the signal says that
        // the block before it was sent.
        unsafe { self.write_and_signal(to, src, len, (signal, op, value), false) }
    }

    fn notify(&self, at: FarAddress, size: usize, bits: u64) -> Result<()> {
        if self.is_own(at) {
            self.store(at, size, bits);
            return Ok(());
        }
        // SAFETY: there is no block.
        unsafe { self.notify_after(None, (at, size), bits) }
    }

    unsafe fn put_notify(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        at: FarAddress,
        value: u64,
    ) -> Result<()> {
        if self.is_own(at) || to.pe != at.pe {
            // SAFETY: the caller promises the source.
            return unsafe { self.put_signal(to, src, len, at, SignalOp::Set, value) };
        }
        let block = (len > 0).then(|| (place(to), src, len));
        // SAFETY: as above.
        unsafe { self.notify_after(block, (at, 8), value) }
    }

    fn prepare(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<Signal>,
    ) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Transfer::new(self.shared.clone(), to, src, len, signal)))
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        if self.is_own(at) {
            // SAFETY: the library has resolved the word, aligned and writable.
            let old = unsafe { shm::fetch_op(self.own(at, size), size, op, operand) };
            self.lock().seat.wake();
            return Ok(old);
        }
        let mut old = 0;
        let into = &raw mut old;
        // SAFETY: `old` lives until the request was answered or the link has ended.
        self.ask(at.pe, |link| unsafe { link.update(place(at), size, op, operand, into) })?;
        // SAFETY: the address of the local; the answer was written by the thread that read it,
        // under the lock.
        Ok(unsafe { into.read() })
    }

    fn apply(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<()> {
        if self.is_own(at) {
            return self.fetch_op(at, size, op, operand).map(drop);
        }
        let Some(mut hub) = self.room(at.pe, Link::has_room)? else { return Ok(()) };
        hub.peer(at.pe).link.apply(place(at), size, op, operand);
        hub.added(at.pe, false);
        Ok(())
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        if self.is_own(at) {
            let word = self.own(at, size);
            // SAFETY: as in `fetch_op`.
            let old = unsafe { shm::compare_swap_sized(word, size, expected, new) };
            self.lock().seat.wake();
            return Ok(old);
        }
        let mut old = 0;
        let into = &raw mut old;
        // SAFETY: as in `fetch_op`.
        let request =
            |link: &mut Link| unsafe { link.compare_swap(place(at), size, expected, new, into) };
        self.ask(at.pe, request)?;
        // SAFETY: as in `fetch_op`.
        Ok(unsafe { into.read() })
    }

    fn fence(&self) -> Result<()> {
        // W1 keeps order; this sends what is still here, as far as it goes at once.
        self.enter()?;
        self.lock().write_all();
        Ok(())
    }

    fn quiet(&self) -> Result<()> {
        self.enter()?;
        let (mut hub, mut lost) = (self.lock(), None);
        if hub.flush() {
            hub.write_all();
            let goals: Vec<Mark> = hub.goals().collect();
            for goal in goals {
                hub = self.shared.wait(hub, goal.pe, |peer| peer.has_reached(goal));
                // Another thread that waits may have been told already.
                lost = lost.or_else(|| hub.existing(goal.pe)?.lost(goal));
            }
            hub.forget_quiet();
        }
        hub.take_late().or(lost).map_or(Ok(()), Err)
    }

    fn quiet_all(&self) -> Result<()> {
        self.enter()?;
        self.lock().need_all();
        self.quiet()
    }

    fn is_quiet(&self) -> Result<bool> {
        self.enter()?;
        let mut hub = self.lock();
        if hub.flush() {
            self.shared.count_poll();
            hub.write_all();
            hub.pump(None);
            hub.look_at_all();
            hub.settle();
            hub.forget_quiet();
        }
        match hub.take_late() {
            Some(error) => Err(error),
            None => Ok(hub.awaited.is_empty()),
        }
    }

    fn send(&self) {
        let keeps_back = self.shared.keeps_back.load(Ordering::Relaxed);
        // A forked child sends nothing. Whoever has the lock is about to send, or the wait does.
        if keeps_back
            && self.enter().is_ok()
            && let Some(mut hub) = self.shared.hub.try_lock()
        {
            hub.write_all();
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        let shared = &*self.shared;
        // A forked child moves nothing.
        if shared.used_by.load(Ordering::Relaxed) != forks::generation() {
            return None;
        }
        shared.has_slept.store(true, Ordering::Relaxed);
        if shared.keeps_back.load(Ordering::Relaxed) {
            self.lock().want_writes();
        }
        Some(shared.pollers.fd())
    }

    fn sleeps(&self) {
        let shared = &*self.shared;
        // A forked child has no thread.
        if shared.used_by.load(Ordering::Relaxed) != forks::generation() {
            return;
        }
        if !shared.sleeps.swap(true, Ordering::AcqRel) {
            let progress = self.progress.lock();
            progress.iter().for_each(Progress::watch);
        }
    }

    fn progress(&self) -> bool {
        // A forked child moves nothing.
        if self.enter().is_err() {
            return false;
        }
        let shared = &*self.shared;
        shared.count_poll();
        let vain = shared.vain.load(Ordering::Relaxed);
        let has_slept = shared.has_slept.load(Ordering::Relaxed)
            && shared.has_slept.swap(false, Ordering::Relaxed);
        let skips = !has_slept
            && vain > OFTEN
            && !shared.polls.load(Ordering::Relaxed).is_multiple_of(RARELY);
        // Whoever has the lock does it.
        let Some(mut hub) = (if skips { None } else { shared.hub.try_lock() }) else {
            return false;
        };
        if hub.is_unsettled() {
            hub.settle();
        }
        let moved = match has_slept {
            true => hub.write_all() | hub.look_at_all(),
            false => hub.pump(None),
        };
        drop(hub);
        shared.vain.store(if moved { 0 } else { vain.saturating_add(1) }, Ordering::Relaxed);
        moved
    }

    unsafe fn map_region(
        &self,
        _: u32,
        _: u32,
        _: *mut u8,
        _: usize,
        _: BorrowedFd<'_>,
    ) -> Result<()> {
        // Parts are reached at their homes.
        Ok(())
    }

    fn unmap_region(&self, _: u32, _: u32) {}

    fn serves_parts(&self) -> bool {
        true
    }

    unsafe fn open_part(
        &self,
        region: u32,
        base: *mut u8,
        len: usize,
        rights: &[Access],
    ) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller promises that it stays mapped until it is closed.
        unsafe { self.lock().memory.add(region as u16, base, len as u64, rights) };
        Ok(())
    }

    fn close_part(&self, region: u32) {
        if self.enter().is_err() {
            return;
        }
        let mut hub = self.lock();
        if let Some((start, len)) = hub.memory.remove(region as u16) {
            hub.forget_memory(start, len);
        }
    }

    fn departed(&self, pe: u32, cause: Cause) {
        if self.enter().is_ok() {
            self.lock().departed(pe, cause);
        }
    }

    fn unreachable(&self) -> Vec<(u32, Error)> {
        if self.shared.has_failed.load(Ordering::Relaxed) && self.enter().is_ok() {
            return self.lock().failed();
        }
        Vec::new()
    }

    fn take_part(&self, to_successor: bool) -> Result<()> {
        self.lock().broker().take_part(to_successor)
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        self.lock().broker().host_addresses()
    }

    fn record(&self) -> Record {
        self.lock().broker().record()
    }

    fn costs(&self) -> Option<Costs> {
        self.lock().broker().record().costs().copied()
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        let progress = self.progress.get_mut();
        let Some(progress) = progress.take() else { return };
        if self.shared.used_by.load(Ordering::Relaxed) != forks::generation() {
            // The thread is the parent's, and so are the streams.
            return std::mem::forget(progress);
        }
        self.shared.ends.store(true, Ordering::Release);
        self.shared.pollers.ring();
        progress.end();
        let mut hub = self.lock();
        hub.write_all();
        hub.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Event;
    use memonet_core::{Job, JobOptions};
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fd::{AsFd, OwnedFd};

    /// Gives no streams.
    struct Silent(OwnedFd);

    impl Broker for Silent {
        fn record(&self) -> Record {
            Record::all_far()
        }

        fn host_addresses(&self) -> Vec<SocketAddrV4> {
            Vec::new()
        }

        fn connect(&self, _: u32) -> Result<()> {
            Ok(())
        }

        fn next(&self) -> Result<Option<Event>> {
            Ok(None)
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    /// The progress thread serves others while a program makes nothing but such calls.
    #[test]
    fn calls_that_only_write_are_no_polls() {
        let options = JobOptions::new().fabric(|seat| {
            let nothing = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let tcp = Tcp::new(seat, Box::new(Silent(nothing)))?;
            let to = FarAddress { pe: 1 - seat.pe() as u32, region: 0, offset: 0 };
            let polls = || tcp.shared.polls.load(Ordering::Relaxed);
            tcp.store(to, 8, 1);
            tcp.apply(to, 8, AtomicOp::Add, 1)?;
            // SAFETY: a literal, which lives.
            unsafe { tcp.put_nbi(to, b"block of bytes".as_ptr(), 14) }?;
            tcp.fence()?;
            assert_eq!(polls(), 0);
            tcp.progress();
            assert!(!tcp.is_quiet()?);
            assert_eq!(polls(), 2);
            Err(crate::errors::failed("seen".into()))
        });
        let heard = Job::threads_with(&options, 2, |_| ()).map(drop).unwrap_err().to_string();
        assert!(heard.contains("seen"), "{heard}");
    }
}
