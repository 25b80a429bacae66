//! A fabric for tests. The peers' memory is mapped, but every operation goes through the trait, and
//! on request arrives as late and in as strange an order as the contract allows. A program that
//! works on it asks by fences for all order that it needs.
//!
//! Operations wait in a queue of their PE. A thread delivers them after a random part of
//! `delay_us`, with `reorder` in random order among those that no fence separates. The data and the
//! signal of a put-with-signal are delivered one after the other.
//!
//! In builds with debug assertions, each operation must lie in a range that the library has
//! announced, both when it is sent and when it is delivered.
//!
//! With `wake`, PEs that are threads of one process sleep on descriptors.
//!
//! With `copies`, it copies writes to groups of PEs. It keeps those of one group in order, and no
//! others.
//!
//! With `victim` and `dies`, that PE panics when it sends for that many times: so it dies in the
//! middle of a call.
//!
//! With `nodes`, the PEs of a node are near to each other, and only other PEs are behind the
//! fabric, as in a job on several machines.

mod wake;

use self::wake::Waker;
use crate::base::error::{Cause, Error, Result};
use crate::base::lock;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::control::Control;
use crate::endpoint::fabric::{
    CopiedWrites, CopyGroup, Costs, Fabric, FarAddress, Prepared, Signal, SignalOp,
};
use crate::endpoint::mixture::{self, Mixture};
use crate::endpoint::record::Record;
use crate::lifecycle::start::Seat;
use rustix::fd::BorrowedFd;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How users write the fabric's settings.
pub const USAGE: &str = "Write far, or far:SETTINGS with delay_us=N, reorder=0 or 1, seed=N, wake=0 or 1, nodes=N (PEs of a node, which are near), deal=0 or 1, cpus=N (of every other node), copies=0 or 1 (of writes to groups), victim=N and dies=N (that PE panics when it sends for the dies-th time), and commas between; unset it for shared memory";

/// What a PE panics with that is told to die.
pub const DIES: &str = "the test fabric's victim";

/// Roughly the time to copy a word under a lock.
const COPY_NS: u64 = 100;
/// Roughly the copy rate of a processor.
const COPY_BYTES_PER_S: u64 = 10_000_000_000;

/// How the fabric behaves: `far`, or `far:delay_us=50,reorder=1,seed=7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spec {
    delay: Duration,
    reorder: bool,
    seed: u64,
    /// Whether sleepers have descriptors.
    wake: bool,
    /// Whether it copies writes to groups.
    copies: bool,
    /// The PE that dies, at its `dies`-th operation; at none, if that is 0.
    victim: u64,
    dies: u64,
    /// Which PEs are near to each other.
    mixture: Mixture,
}

impl Spec {
    /// Reads settings, such as `delay_us=50,reorder=1,seed=7`.
    ///
    /// # Errors
    /// In words, for an unknown setting or a bad value.
    pub fn parse(settings: &str) -> std::result::Result<Self, String> {
        let mut spec = Spec::default();
        mixture::parse(settings, |key, number| {
            match key {
                "delay_us" if number <= 1_000_000 => spec.delay = Duration::from_micros(number),
                "reorder" => spec.reorder = number != 0,
                "seed" => spec.seed = number,
                "wake" => spec.wake = number != 0,
                "copies" => spec.copies = number != 0,
                "victim" => spec.victim = number,
                "dies" => spec.dies = number,
                _ => return spec.mixture.set(key, number),
            }
            true
        })?;
        Ok(spec)
    }

    /// Makes the fabric of a PE.
    ///
    /// # Errors
    /// None.
    pub fn connect(&self, seat: &Seat) -> Result<Box<dyn Fabric>> {
        self.connect_counted(seat, &Arc::default())
    }

    /// [`connect`](Self::connect), with a count of what this PE sends.
    ///
    /// # Errors
    /// None.
    pub fn connect_counted(&self, seat: &Seat, sent: &Arc<Sent>) -> Result<Box<dyn Fabric>> {
        Ok(Box::new(Far::new(seat.control().clone(), seat.pe(), self, sent)))
    }

    /// Whether the call that sends an operation delivers it.
    fn is_direct(&self) -> bool {
        self.delay.is_zero() && !self.reorder
    }
}

/// Options of a job on this fabric, for the core's own tests.
#[cfg(all(test, not(loom)))]
pub(crate) fn options(settings: &str) -> crate::lifecycle::start::JobOptions {
    let spec = Spec::parse(settings).expect("settings that there are");
    crate::lifecycle::start::JobOptions::new().fabric(move |seat| spec.connect(seat))
}

/// What PEs have sent, or fetched, by this fabric.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bytes of puts and gets that are longer than a word.
    pub bytes: AtomicU64,
    /// Signals, with data or without.
    pub signals: AtomicU64,
}

impl Sent {
    fn count(&self, bytes: usize, is_signal: bool) {
        if bytes > size_of::<u64>() {
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.signals.fetch_add(u64::from(is_signal), Ordering::Relaxed);
    }
}

/// The fabric of one PE.
pub(crate) struct Far {
    shared: Arc<Wire>,
    me: usize,
    /// Operations until this PE dies; 0: it does not, or has.
    to_live: AtomicU64,
    /// The groups for copied writes that this PE has joined.
    groups: Mutex<Vec<Box<[usize]>>>,
    courier: Option<JoinHandle<()>>,
    waker: Option<Waker>,
}

struct Wire {
    control: Arc<Control>,
    spec: Spec,
    sent: Arc<Sent>,
    /// Address and length of the mapped parts of restricted windows, by PE and region.
    regions: RwLock<HashMap<(u32, u32), (usize, usize)>>,
    /// The announced ranges of this PE's segment: the end of each by its start. An operation on
    /// another PE's segment is checked against these, too, as both PEs have a range in use then.
    ranges: Mutex<BTreeMap<u64, u64>>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    pending: Vec<Pending>,
    /// Number of fences. An operation waits for those of earlier epochs to its target.
    epoch: u64,
    random: u64,
    closed: bool,
    /// Number of prepared transfers.
    transfers: u64,
    /// PEs that are gone.
    gone: BTreeMap<u32, Cause>,
}

/// What an operation is a part of.
#[derive(Clone, Copy, Default)]
struct Of {
    /// The number of its transfer; 0: none.
    transfer: u64,
    /// One more than its group for copied writes, which come in order; 0: none.
    group: usize,
}

struct Pending {
    epoch: u64,
    of: Of,
    due: Instant,
    to: FarAddress,
    what: What,
    /// A signal to deliver after this.
    then: Option<Signal>,
}

#[derive(Clone)]
enum What {
    Word {
        size: usize,
        bits: u64,
    },
    Block(Vec<u8>),
    /// The address of a source that stays as it is until quiet.
    Source {
        from: usize,
        len: usize,
    },
    Signal {
        op: SignalOp,
        value: u64,
    },
}

impl What {
    /// Number of bytes that it writes.
    fn len(&self) -> usize {
        match self {
            What::Word { size, .. } => *size,
            What::Block(bytes) => bytes.len(),
            What::Source { len, .. } => *len,
            What::Signal { .. } => 8,
        }
    }
}

impl Far {
    pub(crate) fn new(control: Arc<Control>, me: usize, spec: &Spec, sent: &Arc<Sent>) -> Self {
        let shared = Arc::new(Wire {
            control,
            spec: *spec,
            sent: sent.clone(),
            regions: RwLock::default(),
            ranges: Mutex::default(),
            queue: Mutex::new(Queue {
                pending: Vec::new(),
                epoch: 0,
                random: spec.seed ^ (me as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                closed: false,
                transfers: 0,
                gone: BTreeMap::new(),
            }),
            changed: Condvar::new(),
        });
        let courier = (!spec.is_direct()).then(|| {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("memonet-far".into())
                .spawn(move || shared.deliver())
                .expect("a thread for the test fabric")
        });
        let waker = spec.wake.then(|| Waker::new(shared.job(), me as u32)).flatten();
        let to_live = AtomicU64::new(if spec.victim == me as u64 { spec.dies } else { 0 });
        Far { shared, me, to_live, groups: Mutex::default(), courier, waker }
    }

    fn send(&self, to: FarAddress, what: What, then: Option<Signal>) {
        self.send_of(Of::default(), to, what, then);
    }

    fn send_of(&self, of: Of, to: FarAddress, what: What, then: Option<Signal>) -> u64 {
        if let left @ 1.. = self.to_live.load(Ordering::Relaxed) {
            self.to_live.store(left - 1, Ordering::Relaxed);
            if left == 1 {
                // Without a message of the panic.
                resume_unwind(Box::new(DIES));
            }
        }
        self.shared.send(of, to, what, then)
    }
}

impl Queue {
    fn next_random(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// The error of an operation that needs an answer from a PE that is gone.
    fn check_alive(&self, pe: u32) -> Result<()> {
        let failed = |&cause: &Cause| {
            Err(Error::PeerFailed { pe: pe as usize, cause, host: None, call: None })
        };
        self.gone.get(&pe).map_or(Ok(()), failed)
    }

    fn delay(&mut self, most: Duration) -> Duration {
        if most.is_zero() {
            most
        } else {
            Duration::from_nanos(self.next_random() % most.as_nanos() as u64)
        }
    }

    /// Takes operations that may be delivered now and for which `wanted` holds, in the order of
    /// their delivery. Empty if there are none.
    ///
    /// With `reorder`, it takes some of them in random order. Taking one at a time would scan all
    /// pending operations for each, and allow no further orders: each order of all operations comes
    /// about in some number of steps.
    fn take(&mut self, reorder: bool, wanted: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut oldest = HashMap::new();
        for p in &self.pending {
            let epoch = oldest.entry(p.to.pe).or_insert(p.epoch);
            *epoch = p.epoch.min(*epoch);
        }
        let mut first = HashMap::new();
        for (i, p) in self.pending.iter().enumerate() {
            first.entry((p.to.pe, p.of.group)).or_insert(i);
        }
        let free = |i: usize, p: &Pending| {
            let in_turn = p.of.group == 0 || first[&(p.to.pe, p.of.group)] == i;
            in_turn && oldest[&p.to.pe] == p.epoch
        };
        let mut ready: Vec<usize> = (0..self.pending.len())
            .filter(|&i| wanted(&self.pending[i]) && free(i, &self.pending[i]))
            .collect();
        if ready.is_empty() {
            return Vec::new();
        }
        if reorder {
            let some = 1 + self.next_random() as usize % ready.len();
            for at in 0..some {
                let other = at + self.next_random() as usize % (ready.len() - at);
                ready.swap(at, other);
            }
            ready.truncate(some);
        }
        let mut pending: Vec<Option<Pending>> = self.pending.drain(..).map(Some).collect();
        let taken = ready.into_iter().filter_map(|index| pending[index].take()).collect();
        self.pending.extend(pending.into_iter().flatten());
        taken
    }
}

impl Wire {
    /// The job's number, which differs from that of other jobs in this process.
    fn job(&self) -> u64 {
        self.control.job_id()
    }

    /// Wakes a PE after a write to it.
    fn wake(&self, pe: u32) {
        self.control.wake(pe as usize);
        if self.spec.wake {
            wake::wake(self.job(), pe);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Sends an operation; gives its epoch.
    fn send(&self, of: Of, to: FarAddress, what: What, then: Option<Signal>) -> u64 {
        // Checked here, too, because a panic then shows the call that is wrong.
        self.place(to, what.len());
        if let Some(signal) = then {
            self.place(signal.at, 8);
        }
        let is_signal = then.is_some() || matches!(what, What::Signal { .. });
        self.sent.count(what.len(), is_signal);
        let mut queue = self.lock();
        let epoch = queue.epoch;
        if queue.gone.contains_key(&to.pe) {
            return epoch;
        }
        let due = Instant::now() + queue.delay(self.spec.delay);
        let pending = Pending { epoch, of, due, to, what, then };
        if self.spec.is_direct() {
            self.apply(&mut queue, pending);
        } else {
            queue.pending.push(pending);
            self.changed.notify_one();
        }
        epoch
    }

    /// The mapped address of `len` bytes at a far address.
    ///
    /// # Panics
    /// With debug assertions, if they do not all lie in one announced range.
    fn place(&self, at: FarAddress, len: usize) -> *mut u8 {
        if at.region == 0 {
            if cfg!(debug_assertions) {
                self.check(at, len);
            }
            let segment = self.control.geometry().segment(at.pe as usize);
            return self.control.mapping().at(segment + at.offset);
        }
        let regions = self.regions.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let &(base, size) =
            regions.get(&(at.pe, at.region)).expect("only granted and mapped regions are resolved");
        debug_assert!(at.offset as usize + len <= size, "{len} bytes at {at:?}, of {size}");
        (base as *mut u8).wrapping_add(at.offset as usize)
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        lock(&self.ranges)
    }

    fn check(&self, at: FarAddress, len: usize) {
        let around = self.ranges().range(..=at.offset).next_back().map(|(&start, &end)| start..end);
        let is_in = |range: &Range<u64>| at.offset + len as u64 <= range.end;
        let known = len == 0 || around.as_ref().is_some_and(is_in);
        assert!(known, "{len} bytes at {at:?} are not in use, but {around:?}");
    }

    fn apply(&self, queue: &mut Queue, pending: Pending) {
        let to = self.place(pending.to, pending.what.len());
        // SAFETY: the library has checked bounds and access of the address, and `place` gives
        // memory that stays mapped. The trait's callers promise the sources.
        unsafe {
            match pending.what {
                What::Word { size, bits } => shm::store_sized(to, size, bits),
                What::Block(bytes) => shm::copy(to, bytes.as_ptr(), bytes.len()),
                What::Source { from, len } => shm::copy_overlapping(to, from as *const u8, len),
                What::Signal { op: SignalOp::Set, value } => shm::store(to.cast(), value),
                What::Signal { op: SignalOp::Add, value } => {
                    _ = shm::fetch_op(to, 8, AtomicOp::Add, value);
                }
            }
        }
        self.wake(pending.to.pe);
        if let Some(Signal { at, op, value }) = pending.then {
            let due = Instant::now() + queue.delay(self.spec.delay);
            let signal = Pending {
                epoch: pending.epoch,
                of: pending.of,
                due,
                to: at,
                what: What::Signal { op, value },
                then: None,
            };
            if self.spec.is_direct() {
                self.apply(queue, signal);
            } else {
                queue.pending.push(signal);
            }
        }
    }

    /// Delivers some operations that may be delivered now and for which `wanted` holds; false if
    /// there are none.
    fn deliver_some(&self, queue: &mut Queue, wanted: impl Fn(&Pending) -> bool) -> bool {
        let taken = queue.take(self.spec.reorder, wanted);
        let some = !taken.is_empty();
        taken.into_iter().for_each(|pending| self.apply(queue, pending));
        some
    }

    /// Delivers all operations for which `wanted` holds. If it holds for an operation, it must hold
    /// for all that fences order before that one.
    fn flush(&self, queue: &mut Queue, wanted: impl Fn(&Pending) -> bool + Copy) {
        while self.deliver_some(queue, wanted) {}
    }

    /// The loop of the courier thread.
    fn deliver(&self) {
        let mut queue = self.lock();
        while !queue.closed {
            let now = Instant::now();
            if !self.deliver_some(&mut queue, |p| p.due <= now) {
                let next = queue.pending.iter().map(|p| p.due).filter(|&due| due > now).min();
                let pause = next.map_or(
                    Duration::from_millis(if queue.pending.is_empty() { 1000 } else { 1 }),
                    |due| due - now,
                );
                queue = self
                    .changed
                    .wait_timeout(queue, pause)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue);
            }
        }
    }
}

impl Fabric for Far {
    fn name(&self) -> &'static str {
        "far"
    }

    fn record(&self) -> Record {
        let control = &self.shared.control;
        self.shared.spec.mixture.record(control.geometry().npes, control.cpus())
    }

    fn costs(&self) -> Option<Costs> {
        Some(Costs {
            put_ns: self.shared.spec.delay.as_nanos() as u64 / 2 + COPY_NS,
            get_ns: COPY_NS,
            bytes_per_s: COPY_BYTES_PER_S,
            hardware_gets: true,
            hardware_atomics: true,
            eager_bytes: usize::MAX,
        })
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        self.send(to, What::Word { size, bits }, None);
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller promises that the source is readable.
        self.send(to, What::Block(unsafe { copy_of(src, len) }), None);
        Ok(())
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        self.send(to, What::Source { from: src as usize, len }, None);
        Ok(())
    }

    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()> {
        self.shared.sent.count(len, false);
        // The memory of dead PEs stays mapped.
        let from = self.shared.place(from, len);
        // SAFETY: the caller promises the destination, which may overlap a source in this PE's own
        // memory; the library has checked bounds and access of the source.
        unsafe { shm::copy_overlapping(dst, from, len) };
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
        if len == 0 {
            self.send(signal, What::Signal { op, value }, None);
            return Ok(());
        }
        // SAFETY: the caller promises that the source is readable.
        let block = What::Block(unsafe { copy_of(src, len) });
        self.send(to, block, Some(Signal { at: signal, op, value }));
        Ok(())
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
        if len == 0 {
            self.send(signal, What::Signal { op, value }, None);
            return Ok(());
        }
        let source = What::Source { from: src as usize, len };
        self.send(to, source, Some(Signal { at: signal, op, value }));
        Ok(())
    }

    fn prepare(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<Signal>,
    ) -> Result<Box<dyn Prepared>> {
        let mut queue = self.shared.lock();
        queue.transfers += 1;
        let (what, then) = match signal {
            Some(Signal { op, value, .. }) if len == 0 => (What::Signal { op, value }, None),
            _ => (What::Source { from: src as usize, len }, signal),
        };
        let to = signal.filter(|_| len == 0).map_or(to, |signal| signal.at);
        let (shared, number) = (self.shared.clone(), queue.transfers);
        Ok(Box::new(Transfer { shared, number, to, what, then, epoch: 0 }))
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        let mut queue = self.shared.lock();
        queue.check_alive(at.pe)?;
        // A fence orders atomics too, so earlier epochs are delivered first.
        let epoch = queue.epoch;
        self.shared.flush(&mut queue, |p| p.to.pe == at.pe && p.epoch < epoch);
        // SAFETY: as in `apply`; the word is aligned.
        let old = unsafe { shm::fetch_op(self.shared.place(at, size), size, op, operand) };
        self.shared.wake(at.pe);
        Ok(old)
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        let mut queue = self.shared.lock();
        queue.check_alive(at.pe)?;
        let epoch = queue.epoch;
        self.shared.flush(&mut queue, |p| p.to.pe == at.pe && p.epoch < epoch);
        // SAFETY: as in `apply`; the word is aligned.
        let old =
            unsafe { shm::compare_swap_sized(self.shared.place(at, size), size, expected, new) };
        self.shared.wake(at.pe);
        Ok(old)
    }

    fn fence(&self) -> Result<()> {
        self.shared.lock().epoch += 1;
        Ok(())
    }

    fn quiet(&self) -> Result<()> {
        let mut queue = self.shared.lock();
        self.shared.flush(&mut queue, |_| true);
        Ok(())
    }

    fn is_quiet(&self) -> Result<bool> {
        Ok(self.shared.lock().pending.is_empty())
    }

    fn progress(&self) -> bool {
        let came = self.waker.as_ref().is_some_and(Waker::clear);
        // A thread that has the queue delivers from it.
        let Ok(mut queue) = self.shared.queue.try_lock() else { return came };
        let now = Instant::now();
        self.shared.deliver_some(&mut queue, |p| p.due <= now) || came
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.waker.as_ref().map(Waker::fd)
    }

    fn copied_writes(&self) -> Option<&dyn CopiedWrites> {
        self.shared.spec.copies.then_some(self as &dyn CopiedWrites)
    }

    fn departed(&self, pe: u32, cause: Cause) {
        let mut queue = self.shared.lock();
        let gone = queue.gone.insert(pe, cause);
        debug_assert_eq!(gone, None, "PE {pe} goes once");
        queue.pending.retain(|p| p.to.pe != pe);
    }

    fn add_range(&self, range: Range<u64>) {
        let mut ranges = self.shared.ranges();
        if cfg!(debug_assertions) {
            let before = ranges.range(..range.end).next_back();
            assert!(before.is_none_or(|(_, &end)| end <= range.start), "{range:?} and {before:?}");
        }
        ranges.insert(range.start, range.end);
    }

    fn remove_range(&self, range: Range<u64>) {
        let removed = self.shared.ranges().remove(&range.start);
        debug_assert_eq!(removed, Some(range.end), "{range:?} was not added so");
    }

    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        _file: BorrowedFd<'_>,
    ) -> Result<()> {
        self.shared
            .regions
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .insert((pe, region), (base as usize, len));
        Ok(())
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        self.shared
            .regions
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .remove(&(pe, region));
    }
}

/// A prepared put.
impl CopiedWrites for Far {
    fn join(&self, members: Option<&[usize]>) -> Result<Option<CopyGroup>> {
        let all: Vec<usize> = (0..self.shared.control.geometry().npes).collect();
        let mut groups = lock(&self.groups);
        groups.push(members.unwrap_or(&all).into());
        Ok(Some(CopyGroup(groups.len() as u32)))
    }

    unsafe fn write(&self, group: CopyGroup, to: u64, src: *const u8, len: usize) -> Result<()> {
        let (group, members) = (group.0 as usize, lock(&self.groups)[group.0 as usize - 1].clone());
        for &member in members.iter().filter(|&&member| member != self.me) {
            // SAFETY: the caller promises that the source is readable.
            let what = match unsafe { copy_of(src, len) } {
                word if matches!(len, 1 | 2 | 4 | 8) && to.is_multiple_of(len as u64) => {
                    let mut bits = [0; 8];
                    bits[..len].copy_from_slice(&word);
                    What::Word { size: len, bits: u64::from_le_bytes(bits) }
                }
                block => What::Block(block),
            };
            let to = FarAddress { pe: member as u32, region: 0, offset: to };
            self.send_of(Of { group, ..Of::default() }, to, what, None);
        }
        Ok(())
    }

    fn leave(&self, _group: CopyGroup) -> Result<()> {
        Ok(())
    }
}

struct Transfer {
    shared: Arc<Wire>,
    number: u64,
    to: FarAddress,
    what: What,
    then: Option<Signal>,
    /// The epoch of the last start.
    epoch: u64,
}

impl Prepared for Transfer {
    unsafe fn start(&mut self, _: &dyn Fabric) -> Result<()> {
        self.epoch = self.shared.send(
            Of { transfer: self.number, ..Of::default() },
            self.to,
            self.what.clone(),
            self.then,
        );
        Ok(())
    }

    fn is_complete(&mut self, _: &dyn Fabric) -> Result<bool> {
        Ok(self.shared.lock().pending.iter().all(|p| p.of.transfer != self.number))
    }

    fn wait(&mut self, _: &dyn Fabric) -> Result<()> {
        let (mut queue, number, pe, epoch) =
            (self.shared.lock(), self.number, self.to.pe, self.epoch);
        let before = |p: &Pending| p.to.pe == pe && p.epoch < epoch;
        self.shared.flush(&mut queue, |p| p.of.transfer == number || before(p));
        Ok(())
    }
}

/// # Safety
/// `src` is readable for `len` bytes.
unsafe fn copy_of(src: *const u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: the caller promises the source; the vector has `len` bytes.
    unsafe { shm::copy(bytes.as_mut_ptr(), src, len) };
    bytes
}

impl Drop for Far {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.lock();
            self.shared.flush(&mut queue, |_| true);
            queue.closed = true;
            self.shared.changed.notify_one();
        }
        if let Some(courier) = self.courier.take() {
            // A courier panics only at a wrong operation, and that panic has been printed.
            let _ = courier.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The orders of delivery of two operations to PE 0, one more to it after a fence, and one to
    /// PE 1.
    fn orders(reorder: bool) -> BTreeSet<Vec<u64>> {
        let order = |seed| {
            let pending =
                [(0, 0), (0, 0), (1, 0), (1, 1)].into_iter().zip(0..).map(|((epoch, pe), bits)| {
                    Pending {
                        epoch,
                        of: Of::default(),
                        due: Instant::now(),
                        to: FarAddress { pe, region: 0, offset: 0 },
                        what: What::Word { size: 8, bits },
                        then: None,
                    }
                });
            let mut queue = Queue {
                pending: pending.collect(),
                epoch: 1,
                random: seed,
                closed: false,
                transfers: 0,
                gone: BTreeMap::new(),
            };
            let mut order = Vec::new();
            while !queue.pending.is_empty() {
                let taken = queue.take(reorder, |_| true);
                assert!(!taken.is_empty());
                order.extend(taken.iter().map(|p| match p.what {
                    What::Word { bits, .. } => bits,
                    _ => unreachable!(),
                }));
            }
            order
        };
        (0..1000).map(order).collect()
    }

    #[test]
    fn every_order_that_fences_allow_comes_about() {
        assert_eq!(orders(false), [vec![0, 1, 3, 2]].into());
        let mut allowed = BTreeSet::new();
        for [a, b] in [[0, 1], [1, 0]] {
            allowed.extend([
                vec![3, a, b, 2],
                vec![a, 3, b, 2],
                vec![a, b, 3, 2],
                vec![a, b, 2, 3],
            ]);
        }
        assert_eq!(orders(true), allowed);
    }

    #[test]
    fn specs() {
        assert_eq!(Spec::parse("").unwrap(), Spec::default());
        let spec = Spec::parse("delay_us=50,reorder=1,seed=7").unwrap();
        assert_eq!(
            spec,
            Spec { delay: Duration::from_micros(50), reorder: true, seed: 7, ..Spec::default() }
        );
        for bad in ["delay_us", "delay_us=x", "color=1", "delay_us=99999999999"] {
            assert!(Spec::parse(bad).is_err(), "{bad}");
        }
    }
}
