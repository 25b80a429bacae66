//! What a PE knows of its job: where everybody's memory is, whom it may have written to, who
//! sleeps.

use crate::base::doorbell::Doorbell;
use crate::base::error::{Error, Quick, Result};
use crate::base::layout::{MAX_BARRIERS, MAX_CALLS, MAX_WINDOWS, SystemArea};
use crate::base::shm;
use crate::endpoint::check::Holders;
use crate::endpoint::control::Control;
use crate::endpoint::descriptors::Socket;
use crate::endpoint::fabric::{Due, Fabric, FarAddress, VirtualClock};
use crate::endpoint::route::Route;
use crate::job::heap::{Blocks, Heap};
use crate::lifecycle::watch::Watch;
use crate::sync::barrier::Relay;
use crate::sync::lock::Line;
use crate::wait;
use crate::wait::polling::{self, Polling};
use crate::window::Inner;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// One PE's view of its job. Shared by everything that belongs to the PE.
pub(crate) struct Pe {
    me: usize,
    /// The process that is the PE: the one that joined, unless a child has taken its place.
    pid: AtomicU32,
    npes: usize,
    control: Arc<Control>,
    /// Where each near PE's segment is mapped; empty when all are far.
    near: Box<[Segment]>,
    fabric: Option<Box<dyn Fabric>>,
    /// Where nobody else watches the PEs.
    watch: Option<Watch>,
    /// Whether mistakes are looked for that it costs time to find.
    checked: bool,
    /// Locks in words of the segments that this PE has, by offset, where that is checked.
    pub(crate) locks: Holders,
    /// Whether its time is virtual.
    simulated: bool,
    /// PEs on this node for each CPU; with more than one, waits yield instead of spinning.
    pes_per_cpu: usize,
    /// First, whether any of what follows is set; then for each near PE, whether it may have been
    /// written to, without a ring, since it was last looked after. Bytes, so that to remember is
    /// two stores.
    written: Box<[AtomicU8]>,
    /// Live remotes into each near PE; while there are some, any store may come at any time.
    live: Box<[AtomicU32]>,
    pub(crate) heap: Mutex<Heap>,
    /// The heap's.
    pub(crate) blocks: Arc<Blocks>,
    /// Windows whose last handle is gone, to be freed when all PEs say so.
    pub(crate) dropped: [AtomicU64; MAX_WINDOWS / 64],
    /// Barrier slots that this PE has not in use.
    free_barriers: Mutex<[u64; MAX_BARRIERS / 64]>,
    /// Those that it has dropped, and others perhaps not yet.
    resting: Mutex<Vec<Resting>>,
    /// What a write failed with whose caller could not be told; surfaces at the next quiet.
    late: Mutex<Option<Error>>,
    /// Whether there is one: near, a quiet looks at nothing else.
    is_late: AtomicBool,
    /// Where descriptors of restricted windows arrive.
    pub(crate) socket: Mutex<Option<Arc<Socket>>>,
    /// Restricted windows by key slot, for keys to find.
    restricted: Mutex<Vec<Weak<Inner>>>,
    /// Barriers in which others wait for what this PE passes on; looked at only once there has been
    /// one.
    relays: Mutex<Vec<Weak<dyn Relay>>>,
    pub(crate) has_relays: AtomicBool,
    /// Sets of PEs for which threads of this PE make a team.
    pub(crate) calls: Mutex<[u64; MAX_CALLS]>,
    /// How often this PE has led such a set.
    pub(crate) led: AtomicU64,
    /// Tests that have failed in a row.
    pub(crate) failed_tests: AtomicU32,
    /// Recognises a program that polls, where this PE shares its CPU and waits yield.
    pub(crate) polling: Option<Box<Polling>>,
    /// Which member a wait last found missing among those who share its CPU.
    pub(crate) missed: AtomicUsize,
    /// Whether it has just heard from a PE of its CPU, and told nothing in return.
    pub(crate) follows: AtomicBool,
    /// Ends of channels that only waits of this PE look after: it may not sleep for long.
    pub(crate) sockets: AtomicU32,
    /// Counts datagrams that were taken from them.
    pub(crate) heard: AtomicU32,
    /// Multicast channels over datagrams so far.
    pub(crate) channels: AtomicU32,
    /// Threads that wait for others of this PE at a lock.
    pub(crate) lock_line: Line,
    pub(crate) shared_objects: crate::dsm::stats::Registry,
}

/// A barrier slot that is free when each of these PEs has dropped one more in it.
struct Resting {
    slot: usize,
    pes: Arc<[usize]>,
    ended: Arc<[u64]>,
}

/// Address of a mapped segment.
#[derive(Clone, Copy)]
struct Segment(*mut u8);

// SAFETY: an address in the mapping that `Pe::control` keeps, used only through `crate::base::shm`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Pe {
    /// PE `me` of the job that `control` describes, whose peers are all behind `fabric` where there
    /// is one.
    pub(crate) fn new(
        control: Arc<Control>,
        me: usize,
        fabric: Option<Box<dyn Fabric>>,
        watch: Option<Watch>,
    ) -> Self {
        let geometry = *control.geometry();
        let npes = geometry.npes;
        // Slot 0 is the world's; the next is where teams without a parent are agreed on.
        let mut free_barriers = [u64::MAX; MAX_BARRIERS / 64];
        free_barriers[0] &= !3;
        let heap = Heap::new(geometry.heap_offset..geometry.globals_offset);
        let simulated = fabric.as_ref().is_some_and(|fabric| fabric.clock().is_some());
        if !simulated {
            control.mapping().want_local_pages(geometry.segment(me), geometry.segment_stride);
        }
        // Only near peers are rung by this PE; and of far ones there may be very many.
        let near = if fabric.is_some() { 0 } else { npes };
        let pes_per_cpu = npes.div_ceil(control.cpus());
        Pe {
            me,
            pid: AtomicU32::new(std::process::id()),
            npes,
            near: (0..near).map(|pe| Segment(control.mapping().at(geometry.segment(pe)))).collect(),
            checked: false,
            locks: Holders::default(),
            simulated,
            fabric,
            watch,
            pes_per_cpu,
            written: (0..=near).map(|_| AtomicU8::new(0)).collect(),
            live: (0..near).map(|_| AtomicU32::new(0)).collect(),
            blocks: heap.blocks(),
            heap: Mutex::new(heap),
            dropped: [const { AtomicU64::new(0) }; MAX_WINDOWS / 64],
            free_barriers: Mutex::new(free_barriers),
            resting: Mutex::new(Vec::new()),
            late: Mutex::new(None),
            is_late: AtomicBool::new(false),
            socket: Mutex::new(None),
            restricted: Mutex::new(Vec::new()),
            relays: Mutex::new(Vec::new()),
            has_relays: AtomicBool::new(false),
            calls: Mutex::new([0; MAX_CALLS]),
            led: AtomicU64::new(0),
            failed_tests: AtomicU32::new(0),
            polling: (pes_per_cpu > 1 && !simulated).then(Default::default),
            missed: AtomicUsize::new(0),
            follows: AtomicBool::new(false),
            sockets: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            channels: AtomicU32::new(0),
            lock_line: Line::default(),
            shared_objects: Default::default(),
            control,
        }
    }

    #[inline]
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    #[inline]
    pub(crate) fn npes(&self) -> usize {
        self.npes
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    #[inline]
    pub(crate) fn pes_per_cpu(&self) -> usize {
        self.pes_per_cpu
    }

    #[inline]
    pub(crate) fn crowded(&self) -> bool {
        self.pes_per_cpu > 1
    }

    /// With the checks that cost time, or without.
    pub(crate) fn with_checks(self, checked: bool) -> Self {
        Pe { checked, ..self }
    }

    /// Whether mistakes are looked for that it costs time to find.
    #[inline(always)]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// Whether this PE lives in virtual time.
    #[inline(always)]
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated
    }

    pub(crate) fn clock(&self) -> Option<&dyn VirtualClock> {
        self.fabric.as_deref()?.clock()
    }

    pub(crate) fn has_far(&self) -> bool {
        self.fabric.is_some()
    }

    pub(crate) fn is_near(&self, _pe: usize) -> bool {
        // One machine: either all peers are mapped, or a fabric stands before all of them.
        self.fabric.is_none()
    }

    /// The fabric of a far route.
    pub(crate) fn fabric(&self) -> &dyn Fabric {
        self.fabric.as_deref().expect("a far route is made only where there is a fabric")
    }

    #[inline]
    pub(crate) fn check_pe(&self, pe: usize) -> Result<()> {
        if pe < self.npes { Ok(()) } else { Err(Error::NoSuchPe { pe, npes: self.npes }) }
    }

    /// The place at byte `offset` of a PE's segment. The caller has checked both.
    #[inline]
    pub(crate) fn route(&self, pe: usize, offset: u64) -> Route {
        debug_assert!(pe < self.npes && offset <= self.control.geometry().segment_stride);
        match self.near.get(pe) {
            Some(segment) => Route::Near(segment.0.wrapping_add(offset as usize)),
            None => Route::Far(FarAddress { pe: pe as u32, region: 0, offset }),
        }
    }

    /// Address of byte `offset` of PE 0's segment, and the distance to the next PE's; nothing
    /// unless all are near.
    pub(crate) fn near_parts(&self, offset: u64) -> Option<(*mut u8, usize)> {
        let first = self.near.first()?;
        Some((
            first.0.wrapping_add(offset as usize),
            self.control.geometry().segment_stride as usize,
        ))
    }

    /// Address of byte `offset` of this PE's own segment, for local reads and writes.
    #[inline]
    pub(crate) fn local(&self, offset: u64) -> *mut u8 {
        self.control.mapping().at(self.control.geometry().segment(self.me) + offset)
    }

    /// Wakes `target` if it sleeps: called after a signal.
    #[inline]
    pub(crate) fn ring(&self, target: usize) {
        self.control.doorbell(target).ring(self.control.membarrier());
    }

    /// [`ring`](Self::ring), where the doorbell has been looked up before.
    #[inline(always)]
    pub(crate) fn ring_bell(&self, bell: Doorbell) {
        bell.ring(self.control.membarrier());
    }

    /// Orders what this thread has written before its next looks at who waits, as every ring does.
    #[inline(always)]
    pub(crate) fn order_rings(&self) {
        crate::base::doorbell::order_rings(self.control.membarrier());
    }

    /// The other side of [`order_rings`](Self::order_rings): orders what this thread has written
    /// before its next looks, and those of whoever rings.
    pub(crate) fn announce_barrier(&self) {
        shm::announce_barrier(self.control.membarrier());
    }

    /// Wakes those of `targets` who sleep: called after what they wait for was written.
    pub(crate) fn ring_all(&self, targets: impl Iterator<Item = usize> + Clone) {
        self.order_rings();
        if cfg!(not(loom)) && self.crowded() {
            wait::ring_elsewhere(self, targets.clone());
        }
        for target in targets {
            self.control.doorbell(target).ring_ordered();
        }
    }

    /// Remembers a write without a signal; the next wait, fence or quiet rings.
    #[inline]
    pub(crate) fn wrote(&self, target: usize) {
        if let Some(byte) = self.written.get(1 + target) {
            byte.store(1, Ordering::Release);
            self.written[0].store(1, Ordering::Release);
        }
    }

    /// The bytes in which [`wrote`](Self::wrote) remembers.
    pub(crate) fn written(&self) -> &[AtomicU8] {
        &self.written
    }

    /// A remote into `target` comes into being: from now on stores may come that nobody counts.
    pub(crate) fn remote_made(&self, target: usize) {
        if let Some(live) = self.live.get(target) {
            live.fetch_add(1, Ordering::Relaxed);
            self.wrote(target);
        }
    }

    pub(crate) fn remote_dropped(&self, target: usize) {
        if let Some(live) = self.live.get(target) {
            live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Rings those PEs this one may have written to and that sleep on words.
    #[inline]
    pub(crate) fn ring_written(&self) {
        if self.may_have_written() {
            self.ring_each_written();
        }
    }

    /// Whether this PE may have written since it last rang.
    #[inline]
    pub(crate) fn may_have_written(&self) -> bool {
        self.written[0].load(Ordering::Relaxed) != 0
    }

    /// The end of a fence or quiet: [`ring_written`](Self::ring_written). A program that completes
    /// nothing again and again polls.
    #[inline]
    fn ring_completed(&self) {
        if self.may_have_written() {
            self.ring_each_written();
        } else if self.polling.is_some() && self.fabric.is_none() {
            polling::has_completed_nothing(self);
        }
    }

    /// Bytes are taken back by exchanges, which are fences: what a thread remembers meanwhile is
    /// either found here, and its write visible before the ring; or its byte, and the first one
    /// after it, are set later, and stay. Without other threads there is no meanwhile, and stores
    /// do: they and the writes they stand for are this thread's own.
    fn ring_each_written(&self) {
        let alone = shm::alone();
        let take_back = |byte: &AtomicU8| {
            if alone {
                byte.store(0, Ordering::Relaxed);
            } else {
                byte.swap(0, Ordering::SeqCst);
            }
        };
        take_back(&self.written[0]);
        let mut stays = false;
        for (target, byte) in self.written[1..].iter().enumerate() {
            if byte.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if self.live[target].load(Ordering::Relaxed) == 0 {
                take_back(byte);
            }
            // Also one that was made between the two lines above.
            if self.live[target].load(Ordering::Relaxed) != 0 {
                byte.store(1, Ordering::Relaxed);
                stays = true;
            }
            self.control.doorbell(target).ring_for_words(self.control.membarrier());
        }
        if stays {
            self.written[0].store(1, Ordering::Relaxed);
        }
    }

    /// Orders everything before against everything after, at each PE.
    #[inline]
    pub(crate) fn fence(&self) -> Quick<()> {
        crate::base::shm::compiler_fence();
        self.ring_completed();
        match &self.fabric {
            None => Ok(()),
            Some(fabric) => Ok(fabric.fence()?),
        }
    }

    /// Makes everything before visible at its targets, before anything that follows: loads too.
    #[inline]
    pub(crate) fn quiet(&self) -> Quick<()> {
        crate::base::shm::full_fence();
        let completed = self.complete_unrung();
        self.ring_completed();
        completed?;
        self.surface()
    }

    /// [`quiet`](Self::quiet) where a store follows that tells of it: near, stores keep their order
    /// by themselves. What could not be returned earlier does not surface here: a protocol would
    /// take it for a failure of its own step, and leave in its midst.
    #[inline]
    pub(crate) fn complete_writes(&self) -> Quick<()> {
        let far = self.complete_unrung();
        self.ring_written();
        far
    }

    /// [`complete_writes`](Self::complete_writes), but for the rings, which can wait until somebody
    /// else has been told.
    #[inline]
    pub(crate) fn complete_unrung(&self) -> Quick<()> {
        crate::base::shm::compiler_fence();
        match &self.fabric {
            Some(fabric) => Ok(fabric.quiet()?),
            None => Ok(()),
        }
    }

    /// What could not be returned before: for the program's own calls.
    #[inline]
    pub(crate) fn surface(&self) -> Quick<()> {
        if self.is_late.load(Ordering::Relaxed) { self.surface_now() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn surface_now(&self) -> Quick<()> {
        let mut late = self.late.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.is_late.store(false, Ordering::Relaxed);
        Ok(late.take().map_or(Ok(()), Err)?)
    }

    /// Completes far writes where no error can be returned: it surfaces at the next quiet instead.
    pub(crate) fn flush_far(&self) {
        if let Some(fabric) = &self.fabric
            && let Err(error) = fabric.quiet()
        {
            self.surface_later(error);
        }
    }

    /// Keeps an error that cannot be returned for the next quiet.
    pub(crate) fn surface_later(&self, error: Error) {
        let mut late = self.late.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *late = Some(error);
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Barrier slots that are free, now.
    pub(crate) fn free_slots(&self) -> MutexGuard<'_, [u64; MAX_BARRIERS / 64]> {
        self.free_barriers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a barrier slot, unless another thread was faster.
    pub(crate) fn claim_slot(&self, slot: usize) -> bool {
        let (mut free, bit) = (self.free_slots(), 1 << (slot % 64));
        let was_free = free[slot / 64] & bit != 0;
        free[slot / 64] &= !bit;
        was_free
    }

    pub(crate) fn release_slot(&self, slot: usize) {
        self.free_slots()[slot / 64] |= 1 << (slot % 64);
    }

    /// This PE has dropped what it had in a barrier slot, as the others did or will.
    pub(crate) fn rest_slot(&self, slot: usize, pes: Arc<[usize]>, ended: Arc<[u64]>) {
        let word = self.local(
            Self::barrier_slot(slot) + offset_of!(crate::base::layout::BarrierSlot, ended) as u64,
        );
        // SAFETY: an aligned word of this PE's own slot, which others only read.
        unsafe { shm::store(word.cast(), self.ended(slot) + 1) };
        let resting = Resting { slot, pes, ended };
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).push(resting);
    }

    /// How often this PE has dropped something in a barrier slot.
    pub(crate) fn ended(&self, slot: usize) -> u64 {
        let word = self.local(
            Self::barrier_slot(slot) + offset_of!(crate::base::layout::BarrierSlot, ended) as u64,
        );
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::load(word.cast()) }
    }

    /// Frees the slots that everybody has dropped. Of a PE that has failed that is never known.
    pub(crate) fn free_rested(&self) {
        // Others may drop meanwhile: to read may take a while.
        let resting =
            std::mem::take(&mut *self.resting.lock().unwrap_or_else(PoisonError::into_inner));
        let dropped = |slot: usize, pe: usize, before: u64| {
            let word = self.route(
                pe,
                Self::barrier_slot(slot)
                    + offset_of!(crate::base::layout::BarrierSlot, ended) as u64,
            );
            word.load::<u64>(self).is_ok_and(|ended| ended > before)
        };
        let (rested, others): (Vec<_>, Vec<_>) = resting.into_iter().partition(|resting| {
            let mut members = resting.pes.iter().zip(&*resting.ended);
            members.all(|(&pe, &before)| dropped(resting.slot, pe, before))
        });
        rested.iter().for_each(|resting| self.release_slot(resting.slot));
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).extend(others);
    }

    /// Lets others get on who depend on this PE: part of every wait and test.
    #[inline]
    pub(crate) fn progress(&self) {
        if let Some(fabric) = &self.fabric {
            fabric.progress();
        }
        self.relay_news();
    }

    /// The part of [`progress`](Self::progress) that other PEs' barriers wait for. Gives when it is
    /// due again though nothing happens, as [`Relay::relay`] does.
    #[inline]
    pub(crate) fn relay_news(&self) -> Option<Due> {
        if let Some(watch) = &self.watch {
            watch.look_now_and_then(&self.control);
        }
        if self.has_relays.load(Ordering::Relaxed) { self.relay() } else { None }
    }

    /// Whether a launcher watches the PEs, tells them of deaths, and ends all when one asks for it.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_none()
    }

    /// Has a barrier moved on by all waits, for as long as it lives.
    pub(crate) fn register_relay(&self, relay: Weak<dyn Relay>) {
        self.relays.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(relay);
        self.has_relays.store(true, Ordering::Relaxed);
    }

    fn relay(&self) -> Option<Due> {
        // Another thread that has it does nearly the same: it may have passed a barrier just before
        // its news came. Then the next look does it, or the next one's: no sleep is longer than
        // `LONG_NAP`.
        let mut relays = self.relays.try_lock().ok()?;
        let mut due = None;
        relays.retain(|relay| {
            relay.upgrade().is_some_and(|relay| {
                due = Due::first(due, relay.relay());
                true
            })
        });
        due
    }

    /// Whether this process is the PE: one that the PE forked off [is
    /// not](crate::endpoint::ending).
    pub(crate) fn is_this_process(&self) -> bool {
        std::process::id() == self.pid.load(Ordering::Relaxed)
    }

    /// From now on this process is the PE.
    pub(crate) fn become_this_process(&self) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
    }

    /// What waits of this PE move on now.
    pub(crate) fn live_relays(&self) -> Vec<Arc<dyn Relay>> {
        let relays = self.relays.lock().unwrap_or_else(PoisonError::into_inner);
        relays.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn register_restricted(&self, window: &Arc<Inner>) {
        let slot = window.restricted().expect("the caller made a restricted window").slot();
        let mut all = self.restricted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if all.len() <= slot {
            all.resize(slot + 1, Weak::new());
        }
        all[slot] = Arc::downgrade(window);
    }

    pub(crate) fn find_restricted(&self, slot: usize) -> Option<Arc<Inner>> {
        self.restricted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(slot)?.upgrade()
    }

    /// Offset in a segment of the lines of a barrier slot.
    pub(crate) fn lines(slot: usize) -> u64 {
        (offset_of!(SystemArea, lines) + slot * size_of::<crate::base::layout::Lines>()) as u64
    }

    /// Offset in a segment of a barrier slot.
    pub(crate) fn barrier_slot(slot: usize) -> u64 {
        offset_of!(SystemArea, barriers) as u64
            + (slot * size_of::<crate::base::layout::BarrierSlot>()) as u64
    }
}
