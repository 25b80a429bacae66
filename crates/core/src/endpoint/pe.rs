//! A PE's view of its job: who it is, whose memory is mapped where, and the way to far peers. The
//! layers above keep what is theirs beside it ([`layers`](super::layers)).

use super::control::Control;
use super::fabric::{Fabric, FarAddress, VirtualClock};
use super::late::Late;
use super::layers::Layers;
use super::progress::{Progress, Watcher};
use super::record::Record;
use super::route::Route;
use super::written::Marks;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Error, Result};
use crate::base::shm;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One PE's view of its job. Shared by everything that belongs to the PE.
pub(crate) struct Pe {
    me: usize,
    /// The process that is the PE: the one that joined, unless a child has taken its place.
    pid: AtomicU32,
    npes: usize,
    control: Arc<Control>,
    /// Where each PE's segment is mapped, null where it is far; empty when all are far.
    near: Box<[Segment]>,
    /// Whether there is one of another PE among them.
    near_peers: bool,
    fabric: Option<Box<dyn Fabric>>,
    record: Record,
    /// Whether mistakes are looked for that it costs time to find.
    checked: bool,
    /// Whether its time is virtual.
    simulated: bool,
    /// PEs on this node for each CPU; with more than one, waits yield instead of spinning.
    pes_per_cpu: usize,
    pub(super) marks: Marks,
    pub(super) late: Late,
    pub(crate) progress: Progress,
    layers: Layers,
}

/// Address of a mapped segment.
#[derive(Clone, Copy)]
struct Segment(*mut u8);

// SAFETY: an address in the mapping that `Pe::control` keeps, used only through `crate::base::shm`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Pe {
    /// PE `me` of the job that `control` describes. Where there is a fabric, its record says which
    /// peers are behind it.
    pub(crate) fn new(
        control: Arc<Control>,
        me: usize,
        fabric: Option<Box<dyn Fabric>>,
        watch: Option<Box<dyn Watcher>>,
    ) -> Self {
        let geometry = *control.geometry();
        let npes = geometry.npes;
        let simulated = fabric.as_ref().is_some_and(|fabric| fabric.clock().is_some());
        if !simulated {
            control.mapping().want_local_pages(geometry.segment(me), geometry.segment_stride);
        }
        let record = fabric
            .as_ref()
            .map(|fabric| fabric.record().with_costs(fabric.costs()))
            .unwrap_or_else(|| Record::one_node(npes, control.cpus()));
        let segment = |pe: usize| match record.are_near([me, pe]) {
            true => Segment(control.mapping().at(geometry.segment(pe))),
            false => Segment(std::ptr::null_mut()),
        };
        // Of far peers there may be very many.
        let near: Box<[Segment]> = match record.are_near([me]) {
            true => (0..npes).map(segment).collect(),
            false => Box::default(),
        };
        let pes_per_cpu = record.pes_per_cpu(me).unwrap_or_else(|| npes.div_ceil(control.cpus()));
        let pe = Pe {
            me,
            pid: AtomicU32::new(std::process::id()),
            npes,
            checked: false,
            simulated,
            fabric,
            pes_per_cpu,
            marks: Marks::new(near.len()),
            near_peers: (0..near.len()).any(|pe| pe != me && !near[pe].0.is_null()),
            near,
            record,
            late: Late::default(),
            progress: Progress::new(watch),
            layers: Layers::default(),
            control,
        };
        // The words that the library works with.
        pe.add_range(&(0..geometry.heap_offset));
        pe
    }

    /// Tells the fabric that a range of this PE's segment comes into use.
    pub(crate) fn add_range(&self, range: &Range<u64>) {
        if let Some(fabric) = self.far_fabric().filter(|_| !range.is_empty()) {
            fabric.add_range(range.clone());
        }
    }

    /// Tells the fabric that such a range goes out of use.
    pub(crate) fn remove_range(&self, range: &Range<u64>) {
        if let Some(fabric) = self.far_fabric().filter(|_| !range.is_empty()) {
            fabric.remove_range(range.clone());
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

    /// Whether a program of this PE may keep others from their CPU by polling.
    #[inline(always)]
    pub(crate) fn polls(&self) -> bool {
        self.crowded() && !self.simulated
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
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

    /// Whether a PE's segment is mapped here.
    #[inline]
    pub(crate) fn is_near(&self, pe: usize) -> bool {
        self.near.get(pe).is_some_and(|segment| !segment.0.is_null())
    }

    /// Whether another PE's segment is mapped here.
    #[inline]
    pub(crate) fn has_near_peers(&self) -> bool {
        self.near_peers
    }

    /// What every PE knows alike.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The fabric before far peers, if there are any.
    #[inline(always)]
    pub(crate) fn far_fabric(&self) -> Option<&dyn Fabric> {
        self.fabric.as_deref()
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
            Some(segment) if !segment.0.is_null() => {
                Route::Near(segment.0.wrapping_add(offset as usize))
            }
            _ => Route::Far(FarAddress { pe: pe as u32, region: 0, offset }),
        }
    }

    /// Address of byte `offset` of PE 0's segment, and the distance to the next PE's; nothing
    /// unless all are near.
    pub(crate) fn near_parts(&self, offset: u64) -> Option<(*mut u8, usize)> {
        let first = self.near.first().filter(|_| self.record.is_one_node())?;
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

    /// Whether this process is the PE: one that the PE forked off [is
    /// not](crate::endpoint::ending).
    pub(crate) fn is_this_process(&self) -> bool {
        std::process::id() == self.pid.load(Ordering::Relaxed)
    }

    /// From now on this process is the PE.
    pub(crate) fn become_this_process(&self) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
    }
}
