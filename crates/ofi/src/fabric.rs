//! The calls of the library.

use crate::hub::{COPIED, Hub};
use crate::meeting::Meeting;
use crate::message::{EAGER, Head, Kind};
use crate::net::{self, Net, Region};
use crate::peer::{State, Way};
use crate::shared::{self, Shared};
use crate::sys;
use crate::thread::{self, Progress};
use memonet_core::unstable::fabric::{Costs, Fabric, FarAddress, Record, Signal, SignalOp};
use memonet_core::unstable::shm::{self, AtomicOp};
use memonet_core::unstable::{Seat, monotonic};
use memonet_core::{Access, Cause, Error, Result};
use parking_lot::{Mutex, MutexGuard};
use rustix::fd::{AsFd, BorrowedFd};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// Looks in vain before a call sleeps, where each PE has a CPU.
const SPINS: u32 = 200;
/// After so many rounds, a call looks whether its peer has gone.
const LOOKS: u32 = 64;
/// The longest sleep of a call before it looks whether its peer has gone, in milliseconds.
const LONGEST_NAP: i64 = 8;
/// Threads of a PE that wait and are woken by what comes. More of them sleep for a while instead:
/// each message would wake all.
const SLEEPERS: u32 = 4;
/// How often what has come is taken before a sleep that is not begun.
const TRIES: u32 = 4;

/// The fabric of one PE.
pub struct Ofi {
    shared: Arc<Shared>,
    progress: Mutex<Option<Progress>>,
    record: Record,
    is_hardware: bool,
    needs_local: bool,
    /// Most bytes of an operation of the provider.
    most: usize,
}

/// How a call that waits passes the time.
#[derive(Default)]
struct Patience {
    rounds: u32,
    /// Rounds in which nothing moved, since something did.
    vain: u32,
    /// How long the next sleep is, in milliseconds.
    nap: i64,
    waiting: bool,
    since: Duration,
}

impl Ofi {
    /// The fabric of the PE in this seat, by the provider of that name, or by one with hardware. An
    /// endpoint of a provider that goes by sockets has the meeting's [source](Meeting::source).
    ///
    /// # Errors
    /// [`Fabric`](Error::Fabric) where there is no libfabric, or no such provider;
    /// [`System`](Error::System).
    pub fn new(seat: &Seat, provider: Option<&str>, meeting: Box<dyn Meeting>) -> Result<Self> {
        let sockets = provider.is_some_and(net::goes_by_sockets);
        let source = sockets.then(|| meeting.source());
        let net = thread::sheltered(|| Net::open(provider, source));
        let net = net.map_err(crate::error::failed)?;
        let record = meeting.record().with_costs(Some(costs(net.is_hardware())));
        let (is_hardware, needs_local) = (net.is_hardware(), net.needs_local());
        let most = net.most.min(1 << 30);
        let crowded = record.pes_per_cpu(seat.pe()).is_some_and(|sharing| sharing > 1);
        let hub = Hub::new(seat, net, meeting)?;
        let epoll =
            shared::watch(&hub).map_err(|error| crate::error::system("epoll_create", error))?;
        let shared = Shared {
            epoll,
            has_queue: hub.net.fd().is_some(),
            has_failed: hub.has_failed.clone(),
            hub: Mutex::new(hub),
            me: seat.pe() as u32,
            crowded,
            process: AtomicI32::new(0),
            polls: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            ends: AtomicBool::new(false),
        };
        let (shared, progress) = (shared.into(), Mutex::default());
        Ok(Ofi { shared, progress, record, is_hardware, needs_local, most })
    }

    /// Whether PEs share CPUs though the record does not say so.
    #[must_use]
    pub(crate) fn crowded(mut self, crowded: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.crowded |= crowded;
        }
        self
    }

    /// Begins a call: it is refused in a process that the PE has forked off.
    #[inline]
    fn enter(&self) -> Result<()> {
        let (shared, process) = (&*self.shared, this_process());
        if shared.process.load(Ordering::Relaxed) != process {
            self.begin(process)?;
        }
        Ok(())
    }

    /// Whether the PE has forked this process off: the lock may never be free, and what the network
    /// knows is the PE's.
    fn is_child(&self) -> bool {
        let process = self.shared.process.load(Ordering::Relaxed);
        process != 0 && process != this_process()
    }

    /// The first call: this process is the PE, and gets its progress thread.
    #[cold]
    fn begin(&self, process: i32) -> Result<()> {
        match self.shared.process.load(Ordering::Relaxed) {
            0 => {}
            // Another thread has just begun.
            user if user == process => return Ok(()),
            _ => {
                return Err(Error::misuse(
                    "this process was forked off by the PE, and has no way to far PEs: leave those \
                     to the process that joined, or fork before that",
                ));
            }
        }
        let mut progress = self.progress.lock();
        if progress.is_none() {
            *progress = Some(thread::start(self.shared.clone())?);
            self.shared.process.store(process, Ordering::Relaxed);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Hub> {
        self.shared.lock()
    }

    /// Tries until it succeeds; nothing where the peer is gone.
    fn until<R>(
        &self,
        pe: u32,
        mut tried: impl FnMut(&mut Hub) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        self.enter()?;
        let mut hub = self.lock();
        let mut patience = Patience::default();
        let result = loop {
            match tried(&mut hub) {
                Ok(None) => {}
                done => break done,
            }
            let peer = hub.peer(pe);
            match peer.state {
                State::Gone(_) => break Ok(None),
                State::Failed(_) => break Err(peer.error()),
                State::Alive | State::Broken(..) => hub = self.round(hub, pe, &mut patience),
            }
        };
        self.end_wait(&patience);
        result
    }

    /// A round of a call that waits for a peer: everything of this PE moves on meanwhile.
    fn round<'a>(
        &'a self,
        mut hub: MutexGuard<'a, Hub>,
        pe: u32,
        patience: &mut Patience,
    ) -> MutexGuard<'a, Hub> {
        let shared = &*self.shared;
        if !patience.waiting {
            (patience.waiting, patience.nap) = (true, 1);
            patience.since = monotonic();
            shared.waiting.fetch_add(1, Ordering::Relaxed);
        }
        shared.count_poll();
        let moved = hub.pump();
        patience.rounds = patience.rounds.wrapping_add(1);
        patience.vain += 1;
        if moved {
            (patience.vain, patience.nap) = (0, 1);
        }
        // Threads that wait share CPUs, too.
        let alone = shared.waiting.load(Ordering::Relaxed) == 1 && !shared.crowded;
        let sleeps = !moved && (!alone || patience.vain > SPINS);
        // Also where others never stop sending.
        if sleeps || patience.rounds.is_multiple_of(LOOKS) {
            hub.look_after(pe);
            if hub.seat.is_asked() {
                let (seat, outstanding) = (hub.seat.clone(), hub.peer(pe).outstanding());
                drop(hub);
                seat.answer(pe, patience.since, outstanding);
                return shared.lock();
            }
        }
        if moved {
            MutexGuard::bump(&mut hub);
            return hub;
        }
        if shared.waiting.load(Ordering::Relaxed) > SLEEPERS {
            drop(hub);
            std::thread::park_timeout(Duration::from_millis(patience.nap as u64));
            patience.nap = (patience.nap * 2).min(LONGEST_NAP);
        } else if sleeps {
            shared.sleep(hub, patience.nap);
            patience.nap = (patience.nap * 2).min(LONGEST_NAP);
        } else {
            drop(hub);
            std::hint::spin_loop();
        }
        shared.lock()
    }

    fn is_own(&self, at: FarAddress) -> bool {
        at.pe == self.shared.me
    }

    /// Where a place of this PE's own memory is.
    fn own(&self, at: FarAddress, len: usize) -> *mut u8 {
        let (me, len) = (self.shared.me, len as u64);
        let place = self.lock().memory.place(me, at.region, at.offset, len, Access::None);
        place.expect("the library resolves only what is mapped")
    }

    /// A write to this PE's own memory is done: whoever sleeps looks.
    fn wake(&self) {
        self.lock().seat.wake();
    }

    /// Sends a message to a peer's CPU, in order; nothing where the peer is gone.
    fn tell(&self, pe: u32, head: &Head, block: &[u8]) -> Result<Option<()>> {
        let mut fence = None;
        self.until(pe, |hub| {
            let fence = *fence.get_or_insert(hub.fences);
            if !hub.is_ready(pe, Way::Message, fence) {
                return Ok(None);
            }
            hub.post(pe, head, block);
            hub.note_written(pe);
            Ok(Some(()))
        })
    }

    /// Asks a peer's CPU for a word.
    fn ask(&self, at: FarAddress, head: Head) -> Result<u64> {
        let (pe, mut fence) = (at.pe, None);
        let asked = self.until(pe, |hub| {
            let fence = *fence.get_or_insert(hub.fences);
            let ready = hub.is_ready(pe, Way::Message, fence);
            Ok(ready.then(|| hub.ask(pe, head.at(at))))
        });
        let gone = || Err(self.lock().peer(pe).error());
        let Some(ticket) = asked? else { return gone() };
        match self.until(pe, |hub| Ok(hub.answer(ticket))) {
            Ok(Some(Some(held))) => return Ok(held),
            Ok(Some(None)) => {
                return Err(crate::error::failed(format!("PE {pe} refuses an update at {at:?}")));
            }
            Ok(None) => {}
            Err(error) => {
                self.lock().drop_answer(ticket);
                return Err(error);
            }
        }
        self.lock().drop_answer(ticket);
        gone()
    }

    /// Writes a block; afterwards, where there is one, `then` is sent to a PE.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes; if `until_sent`, during the call, otherwise until the
    /// next quiet.
    unsafe fn write(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        then: Option<(u32, Head)>,
        until_sent: bool,
    ) -> Result<()> {
        self.enter()?;
        let (mut copied, pe) = (len <= COPIED, to.pe);
        let (batch, fence) = {
            let mut hub = self.lock();
            let mut source: Option<Region> = None;
            if !copied && self.needs_local {
                // SAFETY: the caller keeps the source until the operations on it are complete, and
                // the batch drops the registration then.
                source = unsafe { hub.net.register(src, len, sys::WRITE) }.ok();
                copied = source.is_none();
            }
            let needed = then.is_some() || !copied;
            let batch = if needed { hub.batch(pe, then, source, until_sent && !copied) } else { 0 };
            (batch, hub.fences)
        };
        if let Some((at, _)) = then {
            // The signal is sent as soon as its block is visible, and may not pass the fence then,
            // nor be one too many. Where its PE has failed or gone, there is none.
            _ = self.until(at, |hub| Ok(hub.is_ready(at, Way::Message, fence).then_some(())));
        }
        // While the call waits for the rest, and until the next one, the network has this to do.
        let copied_last = if until_sent && then.is_none() { COPIED } else { 0 };
        let whole = if copied { 0 } else { len - copied_last };
        let mut done = 0;
        while done < len {
            let (copies, of) = (done >= whole, if copied || done < whole { batch } else { 0 });
            let some = if copies { COPIED.min(len - done) } else { self.most.min(whole - done) };
            let place = FarAddress { offset: to.offset + done as u64, ..to };
            let piece = (src.wrapping_add(done), some);
            // SAFETY: as the caller promises.
            let started = self.until(pe, |hub| unsafe {
                Ok(hub.write(place, piece, copies, (of, fence))?.then_some(()))
            });
            if !matches!(started, Ok(Some(()))) {
                self.lock().cut_batch(batch);
                let sent = self.until_sent(pe, batch, until_sent && !copied);
                return started.and(sent);
            }
            done += some;
        }
        self.lock().close_batch(batch);
        self.until_sent(pe, batch, until_sent && !copied)
    }

    /// Waits until a batch's operations are complete, if somebody is to wait for them: until then
    /// they read the source.
    fn until_sent(&self, pe: u32, batch: u64, is_waited_for: bool) -> Result<()> {
        if !is_waited_for {
            return Ok(());
        }
        let sent = self.until(pe, |hub| Ok(hub.take_batch(batch).then_some(())));
        self.lock().drop_batch(batch);
        self.until_returned(pe);
        sent.map(|_| ())
    }

    /// Waits until the provider reads no source any more for a peer that has ended.
    fn until_returned(&self, pe: u32) {
        let (mut hub, mut patience) = (self.lock(), Patience::default());
        while hub.peer(pe).has_ended() && hub.peer(pe).borrowed > 0 {
            hub = self.round(hub, pe, &mut patience);
        }
        drop(hub);
        self.end_wait(&patience);
    }

    /// The call waits no more.
    fn end_wait(&self, patience: &Patience) {
        if patience.waiting {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// As for [`write`](Self::write).
    unsafe fn write_and_signal(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Signal,
        until_sent: bool,
    ) -> Result<()> {
        let at = signal.at;
        let head = Head::signal(self.shared.me, signal);
        if self.is_own(to) || len == 0 {
            // SAFETY: as the caller promises.
            unsafe { self.put_nbi(to, src, len) }?;
        } else if at.pe == to.pe && len <= EAGER {
            let mut block = [0; EAGER];
            // SAFETY: the caller promises the source; it fits.
            unsafe { shm::copy(block.as_mut_ptr(), src, len) };
            let head = Head { len: len as u32, ..head.at(to) };
            return self.tell(at.pe, &head, &block[..len]).map(|_| ());
        } else if self.is_own(at) {
            // SAFETY: as the caller promises.
            unsafe { self.write(to, src, len, None, until_sent) }?;
            self.quiet()?;
        } else {
            // SAFETY: as the caller promises.
            return unsafe { self.write(to, src, len, Some((at.pe, head)), until_sent) };
        }
        if !self.is_own(at) {
            return self.tell(at.pe, &head, &[]).map(|_| ());
        }
        let word = self.own(at, 8);
        // SAFETY: the library has resolved the word, aligned and writable.
        unsafe {
            match signal.op {
                SignalOp::Set => shm::store(word.cast(), signal.value),
                SignalOp::Add => _ = shm::fetch_op(word, 8, AtomicOp::Add, signal.value),
            }
        }
        self.wake();
        Ok(())
    }

    fn try_store(&self, to: FarAddress, size: usize, bits: u64) -> Result<()> {
        if self.is_hardware {
            let word = bits.to_ne_bytes();
            // SAFETY: the word is copied during the call. Machines with libfabric's hardware have
            // the low byte first.
            return unsafe { self.write(to, word.as_ptr(), size, None, true) };
        }
        let signal = Signal { at: to, op: SignalOp::Set, value: bits };
        let head = Head { size: size as u8, ..Head::signal(self.shared.me, signal) };
        self.tell(to.pe, &head, &[]).map(|_| ())
    }
}

fn this_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// About what operations cost: choices depend on it.
fn costs(is_hardware: bool) -> Costs {
    let (put_ns, get_ns, bytes_per_s) =
        if is_hardware { (2_000, 3_000, 12_000_000_000) } else { (15_000, 30_000, 1_000_000_000) };
    Costs {
        put_ns,
        get_ns,
        bytes_per_s,
        hardware_gets: is_hardware,
        hardware_atomics: false,
        eager_bytes: COPIED,
    }
}

impl Fabric for Ofi {
    fn name(&self) -> &'static str {
        crate::error::NAME
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        if self.is_own(to) {
            // SAFETY: the library has resolved the word, aligned and writable.
            unsafe { shm::store_sized(self.own(to, size), size, bits) };
            return self.wake();
        }
        if let Err(error) = self.try_store(to, size, bits)
            && self.shared.process.load(Ordering::Relaxed) == this_process()
        {
            self.lock().late.get_or_insert(error);
        }
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        if self.is_own(to) {
            // SAFETY: the caller promises the source.
            return unsafe { self.put_nbi(to, src, len) };
        }
        // SAFETY: as above.
        unsafe { self.write(to, src, len, None, true) }
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        if self.is_own(to) {
            // SAFETY: the caller promises the source; the library has resolved the place.
            unsafe { shm::copy_overlapping(self.own(to, len), src, len) };
            self.wake();
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
        self.enter()?;
        let pe = from.pe;
        let batch = self.lock().batch(pe, None, None, true);
        let read = || {
            let mut done = 0;
            while done < len {
                let some = COPIED.min(len - done);
                let place = FarAddress { offset: from.offset + done as u64, ..from };
                let piece = (dst.wrapping_add(done), some);
                // SAFETY: the caller promises the destination for the call, which drops the batch
                // before it returns.
                let started = self
                    .until(pe, |hub| unsafe { Ok(hub.read(place, piece, batch)?.then_some(())) })?;
                if started.is_none() {
                    return Ok(None);
                }
                done += some;
            }
            self.lock().close_batch(batch);
            self.until(pe, |hub| Ok(hub.take_batch(batch).then_some(())))
        };
        let came = read();
        let mut hub = self.lock();
        hub.drop_batch(batch);
        match came? {
            Some(()) => Ok(()),
            None => Err(hub.peer(pe).error()),
        }
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
        unsafe { self.write_and_signal(to, src, len, Signal { at: signal, op, value }, true) }
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
        // the block before it is complete.
        unsafe { self.write_and_signal(to, src, len, Signal { at: signal, op, value }, false) }
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        if self.is_own(at) {
            // SAFETY: the library has resolved the word, aligned and writable.
            let old = unsafe { shm::fetch_op(self.own(at, size), size, op, operand) };
            self.wake();
            return Ok(old);
        }
        let head = Head::new(Kind::Update, self.shared.me);
        self.ask(at, Head { size: size as u8, op, value: operand, ..head })
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        if self.is_own(at) {
            let word = self.own(at, size);
            // SAFETY: as in `fetch_op`.
            let old = unsafe { shm::compare_swap_sized(word, size, expected, new) };
            self.wake();
            return Ok(old);
        }
        let head = Head::new(Kind::CompareSwap, self.shared.me);
        self.ask(at, Head { size: size as u8, other: expected, value: new, ..head })
    }

    fn fence(&self) -> Result<()> {
        self.enter()?;
        self.lock().fences += 1;
        Ok(())
    }

    fn quiet(&self) -> Result<()> {
        self.enter()?;
        let mut goals = self.lock().goals();
        let mut result = Ok(());
        for (pe, goal) in &mut goals {
            let quiet = self.until(*pe, |hub| {
                // Of one that has failed, nothing is awaited any more.
                let has = hub.has_reached(*pe, goal) && !hub.peer(*pe).has_failed();
                Ok(has.then_some(()))
            });
            result = result.and(quiet.map(|_| ()));
            self.until_returned(*pe);
        }
        let told: Vec<u32> = goals.iter().map(|&(pe, _)| pe).collect();
        let mut hub = self.lock();
        hub.forget_quiet(&told);
        hub.late.take().map_or(result, Err)
    }

    fn is_quiet(&self) -> Result<bool> {
        self.enter()?;
        self.shared.count_poll();
        let mut hub = self.lock();
        hub.goals();
        hub.pump();
        hub.settle();
        let awaited: Vec<u32> = hub.goals().iter().map(|&(pe, _)| pe).collect();
        for &pe in &awaited {
            if hub.peer(pe).has_failed() {
                let error = hub.peer(pe).error();
                hub.late.get_or_insert(error);
            }
        }
        hub.forget_quiet(&awaited);
        let is_quiet = hub.is_quiet();
        hub.late.take().map_or(Ok(is_quiet), Err)
    }

    fn progress(&self) -> bool {
        // A forked child moves nothing, and whoever has the lock does it.
        if self.enter().is_err() {
            return false;
        }
        let shared = &*self.shared;
        shared.count_poll();
        let Some(mut hub) = shared.hub.try_lock() else { return false };
        if hub.is_unsettled() {
            hub.settle();
        }
        hub.pump()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        let shared = &*self.shared;
        // The caller is about to sleep on it: from here on, whatever comes makes it readable.
        if shared.has_queue && self.enter().is_ok() {
            shared.count_poll();
            let (mut hub, mut moved) = (self.lock(), false);
            let mut may_sleep = || {
                let may = hub.may_sleep();
                moved |= !may && hub.pump();
                may
            };
            let is_armed = (0..TRIES).any(|_| may_sleep());
            if moved || !is_armed {
                // The caller looks whether it was rung before it sleeps.
                hub.seat.wake();
            }
        }
        shared.has_queue.then(|| shared.epoll.as_fd())
    }

    fn add_range(&self, range: Range<u64>) {
        self.lock().memory.add_range(range);
    }

    fn remove_range(&self, range: Range<u64>) {
        if self.is_child() {
            return;
        }
        let mut hub = self.lock();
        hub.memory.remove_range(&range);
        hub.forget_keys(0, range.start, range.end);
    }

    unsafe fn map_region(
        &self,
        _: u32,
        _: u32,
        _: *mut u8,
        _: usize,
        _: BorrowedFd<'_>,
    ) -> Result<()> {
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
        // SAFETY: the caller promises that it stays mapped and writable until it is closed.
        unsafe { self.lock().memory.open_part(region, base, len, rights) };
        Ok(())
    }

    fn close_part(&self, region: u32) {
        if self.is_child() {
            return;
        }
        let mut hub = self.lock();
        hub.memory.close_part(region);
        hub.forget_keys(region, 0, u64::MAX);
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
        self.lock().meeting().take_part(to_successor)
    }

    fn record(&self) -> Record {
        self.record.clone()
    }

    fn costs(&self) -> Option<Costs> {
        self.record.costs().copied()
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        let progress = self.progress.get_mut();
        let Some(progress) = progress.take() else { return };
        if self.shared.process.load(Ordering::Relaxed) != this_process() {
            // Thread and endpoint are the parent's.
            std::mem::forget(progress);
            return std::mem::forget(self.shared.clone());
        }
        self.shared.ends.store(true, Ordering::Release);
        progress.end();
        self.lock().drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting::{Local, News};
    use memonet_core::{Job, JobOptions};
    use std::sync::mpsc::RecvTimeoutError;

    const PROVIDER: &str = "tcp;ofi_rxm";

    /// Runs `f` on so many PEs, which are threads, with what each shares with its progress thread.
    fn on_pes(npes: usize, f: impl Fn(Job, &[Arc<Shared>]) + Send + Sync + 'static) {
        let ran = on_pes_by(|local| Box::new(local), npes, f);
        assert_eq!(ran, Ok(()), "a PE has panicked, or something waits in vain");
    }

    fn on_pes_by(
        meeting: fn(Local) -> Box<dyn Meeting>,
        npes: usize,
        f: impl Fn(Job, &[Arc<Shared>]) + Send + Sync + 'static,
    ) -> std::result::Result<(), RecvTimeoutError> {
        if let Err(why) = crate::provider(Some(PROVIDER)) {
            println!("SKIPPED: {why}");
            return Ok(());
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let all: Arc<Mutex<Vec<Arc<Shared>>>> = Arc::default();
            let made = all.clone();
            let options = JobOptions::new().fabric(move |seat: &Seat| {
                let local = Local::new(Record::all_far(), seat.job(), seat.pe() as u32)?;
                let fabric = Ofi::new(seat, Some(PROVIDER), meeting(local))?;
                made.lock().push(fabric.shared.clone());
                Ok(Box::new(fabric) as Box<dyn Fabric>)
            });
            let ran = Job::threads_with(&options, npes, |job| {
                let shared = all.lock().clone();
                f(job, &shared);
            });
            ran.unwrap();
            _ = sender.send(());
        });
        receiver.recv_timeout(Duration::from_secs(60))
    }

    /// The progress thread leaves the PE to calls that poll. These let nothing move.
    #[test]
    fn calls_that_need_not_wait_are_no_polls() {
        on_pes(2, |job, shared| {
            let words = job.window::<u64>(8).unwrap();
            let far = words.remote(1 - job.pe(), 0).unwrap();
            far.store(1);
            job.barrier().unwrap();
            job.quiet().unwrap();
            let polls = || shared[job.pe()].polls.load(Ordering::Relaxed);
            let before = polls();
            (0..10).for_each(|_| far.store(2));
            (0..1000).for_each(|_| job.fence().unwrap());
            assert_eq!(polls(), before);
            job.barrier().unwrap();
            assert_ne!(polls(), before);
        });
    }

    /// Asks nobody, and has news of a PE that there is not, whenever it is looked for.
    struct Chatter(Local, AtomicBool);

    impl Meeting for Chatter {
        fn record(&self) -> Record {
            self.0.record()
        }

        fn job(&self) -> u64 {
            self.0.job()
        }

        fn source(&self) -> std::net::IpAddr {
            self.0.source()
        }

        fn begin(&self, address: &[u8]) -> Result<()> {
            self.0.begin(address)
        }

        fn ask(&self, _: u32) -> Result<()> {
            Ok(())
        }

        fn next(&self) -> Result<Option<News>> {
            let has = !self.1.fetch_xor(true, Ordering::Relaxed);
            Ok(has.then(|| News::Address { pe: u32::MAX, address: Vec::new() }))
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.0.fd()
        }
    }

    /// In no round of the wait is there nothing to take.
    #[test]
    fn a_wait_for_a_pe_that_has_gone_ends_though_something_always_comes() {
        let chatter = |local| Box::new(Chatter(local, AtomicBool::new(false))) as Box<dyn Meeting>;
        let ran = on_pes_by(chatter, 2, |job, shared| {
            if job.pe() == 1 {
                std::panic::resume_unwind(Box::new("this PE ends here"));
            } else {
                let ofi = Ofi {
                    shared: shared[0].clone(),
                    progress: Mutex::default(),
                    record: Record::all_far(),
                    is_hardware: false,
                    needs_local: false,
                    most: 1 << 20,
                };
                let word = FarAddress { pe: 1, region: 0, offset: 0 };
                assert!(ofi.fetch_op(word, 8, AtomicOp::Add, 1).is_err());
            }
        });
        assert_ne!(ran, Err(RecvTimeoutError::Timeout));
    }

    /// Both PEs live, so nobody else says what has become of the message.
    #[test]
    fn a_receive_that_fails_ends_all_waits() {
        on_pes(2, |job, shared| {
            let words = job.window::<u64>(8).unwrap();
            job.barrier().unwrap();
            if job.pe() == 0 {
                shared[0].lock().has_lost("the test says so".into());
                let far = words.remote(1, 0).unwrap();
                let why = loop {
                    if let Err(why) = far.fetch_add(1) {
                        break why.to_string();
                    }
                };
                assert!(why.contains("a receive failed: the test says so"), "{why}");
                assert!(words.put(1, 0, &[1; 8]).is_err());
            }
        });
    }

    /// PE 1 takes nothing, and is said to have gone while a block is on its way to it. The provider
    /// reads the source until it says otherwise.
    #[test]
    fn no_put_returns_while_its_source_is_read() {
        const LEN: usize = 64 << 20;
        on_pes(2, |job, shared| {
            let words = job.window::<u64>(LEN / 8).unwrap();
            job.barrier().unwrap();
            if job.pe() == 1 {
                return;
            }
            words.put(1, 0, &[1]).unwrap();
            job.quiet().unwrap();
            let stopped = shared[1].lock();
            let source = vec![1u64; LEN / 8];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while shared[0].lock().peer(1).borrowed == 0 {
                        std::thread::yield_now();
                    }
                    shared[0].lock().departed(1, Cause::Exit(7));
                });
                _ = words.put(1, 0, &source);
            });
            let mut hub = shared[0].lock();
            assert!(hub.peer(1).has_ended() && hub.peer(1).borrowed == 0);
            drop((hub, stopped));
        });
    }

    /// PE 1 has stopped, and more is on its way to it than there are buffers.
    #[test]
    fn a_stopped_peer_keeps_no_buffers_from_others() {
        on_pes(3, |job, shared| {
            let words = job.window::<u64>(COPIED / 8).unwrap();
            job.barrier().unwrap();
            if job.pe() == 0 {
                (1..3).for_each(|pe| words.put(pe, 0, &[1]).unwrap());
                job.quiet().unwrap();
                let block = vec![1u64; COPIED / 8];
                let stopped = shared[1].lock();
                std::thread::scope(|scope| {
                    scope.spawn(|| (0..64).for_each(|_| words.put(1, 0, &block).unwrap()));
                    while shared[0].lock().peer(1).held[1] < 16 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(100));
                    (0..64).for_each(|_| words.put(2, 0, &block).unwrap());
                    drop(stopped);
                });
            }
            job.barrier().unwrap();
        });
    }
}
