//! A PE's view of its job: its number, the mapped memory of its peers, and the way to far peers.
//! The layers above keep their state beside it ([`layers`](super::layers)).

use super::calls;
use super::control::Control;
use super::descriptor::Descriptor;
use super::fabric::{Fabric, VirtualClock};
use super::late::Late;
use super::marks::Marks;
use super::moved::{Progress, Watcher};
use super::record::Record;
use super::recorder::Recorder;
use super::recorder::part::Part;
use super::typed::Layers;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Call, Cause, Error, Quick, Result};
use crate::base::layout::MAX_BARRIERS;
use crate::base::shm;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One PE's view of its job. All handles of the PE share it.
pub(crate) struct Pe {
    me: usize,
    /// The process that is the PE: the one that joined, or a child that has taken its place.
    pid: AtomicU32,
    npes: usize,
    control: Arc<Control>,
    /// Address of this PE's own segment.
    own: Segment,
    /// Address of each PE's mapped segment; null for a far PE. Empty if all are far.
    near: Box<[Segment]>,
    /// Whether another PE's segment is mapped.
    near_peers: bool,
    fabric: Option<Arc<dyn Fabric>>,
    /// Where this PE records what its program does.
    recorder: Option<Arc<Recorder>>,
    record: Record,
    /// Whether the checks that cost time are on.
    checked: bool,
    /// Whether the PE lives in virtual time.
    simulated: bool,
    /// PEs on this node for each CPU; with more than one, waits yield instead of spinning.
    pes_per_cpu: usize,
    /// Whether waits look several times between two calls of the fabric.
    spins: bool,
    pub(super) marks: Marks,
    late: Late,
    pub(crate) progress: Progress,
    layers: Layers,
}

/// Address of a mapped segment.
#[derive(Clone, Copy)]
struct Segment(*mut u8);

// SAFETY: the address leads into the mapping that `Pe::control` keeps, and is used only through
// `crate::base::shm`, which any thread may use.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Addresses of one offset in the segments of near PEs that follow each other.
pub(crate) struct NearParts {
    /// The near PEs.
    pub(crate) pes: Range<usize>,
    /// The address that PE 0's would have: PE `pe`'s is `pe * stride` further on.
    pub(crate) zero: *mut u8,
    /// Bytes from one PE's address to the next one's.
    pub(crate) stride: usize,
}

impl Pe {
    /// PE `me` of the job that `control` describes. If there is a fabric, its record says which
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
        // A job without near PEs may have very many, so it gets no table.
        let near: Box<[Segment]> = match record.are_near([me]) {
            true => (0..npes).map(segment).collect(),
            false => Box::default(),
        };
        let pes_per_cpu = record.pes_per_cpu(me).unwrap_or_else(|| npes.div_ceil(control.cpus()));
        let near_peers = (0..near.len()).any(|pe| pe != me && !near[pe].0.is_null());
        let pe = Pe {
            me,
            own: Segment(control.mapping().at(geometry.segment(me))),
            pid: AtomicU32::new(std::process::id()),
            npes,
            checked: false,
            simulated,
            pes_per_cpu,
            marks: Marks::new(near.len()),
            spins: pes_per_cpu <= 1 && (near_peers || fabric.is_none()),
            near_peers,
            fabric: fabric.map(Arc::from),
            recorder: None,
            near,
            record,
            late: Late::default(),
            progress: Progress::new(watch),
            layers: Layers::default(),
            control,
        };
        // The library's own words, and a range for each staging area: a fabric then registers the
        // areas that are used.
        pe.add_range(&(0..geometry.staging_offset));
        (0..MAX_BARRIERS).for_each(|slot| pe.add_range(&geometry.staging(slot)));
        pe
    }

    /// Announces a range of this PE's segment to the fabric before its first use.
    pub(crate) fn add_range(&self, range: &Range<u64>) {
        if let Some(fabric) = self.far_fabric().filter(|_| !range.is_empty()) {
            fabric.add_range(range.clone());
        }
    }

    /// Withdraws such a range from the fabric.
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

    /// Whether a wait may be answered by memory alone while this PE has its CPU for itself: by a
    /// near peer. What far peers write comes with [`progress`](Self::progress).
    #[inline]
    pub(crate) fn spins(&self) -> bool {
        self.spins
    }

    /// Whether a call of near peers may have nothing to do but to store and to look.
    pub(crate) fn calls_at_once(&self) -> bool {
        !self.has_fabric() && !self.is_simulated() && self.recorder().is_none() && self.spins()
    }

    /// Whether all peers are far.
    #[inline]
    pub(crate) fn is_all_far(&self) -> bool {
        self.has_fabric() && !self.near_peers
    }

    /// Turns the checks that cost time on or off.
    pub(crate) fn with_checks(self, checked: bool) -> Self {
        Pe { checked, ..self }
    }

    /// Uses the place of sleepers that its fabric knows.
    pub(crate) fn with_descriptor(mut self, descriptor: Arc<Descriptor>) -> Self {
        self.progress.descriptor = descriptor;
        self
    }

    /// Records what the program does, if there is a part for it. Comes after
    /// [`with_descriptor`](Self::with_descriptor).
    pub(crate) fn with_recorder(mut self, part: Option<Part>) -> Self {
        let (control, descriptor) = (&self.control, &self.progress.descriptor);
        let recorder = |part| {
            Recorder::new(self.me, part, control.clone(), descriptor.clone(), self.fabric.clone())
        };
        self.recorder = part.map(recorder).map(Arc::new);
        self
    }

    /// Where this PE records what its program does.
    #[inline(always)]
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.as_ref()
    }

    /// Whether the checks that cost time are on.
    #[inline(always)]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// Whether this PE's program could keep other PEs from their CPU by polling.
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

    /// Whether this PE has a fabric, to reach PEs that are not near.
    #[inline(always)]
    pub(crate) fn has_fabric(&self) -> bool {
        self.fabric.is_some()
    }

    /// Whether a PE's segment is mapped here.
    #[inline]
    pub(crate) fn is_near(&self, pe: usize) -> bool {
        self.near_segment(pe).is_some()
    }

    /// Whether another PE's segment is mapped here.
    #[inline]
    pub(crate) fn has_near_peers(&self) -> bool {
        self.near_peers
    }

    /// The job record, which is equal at all PEs.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The error of what needs a PE that is gone.
    pub(crate) fn failed(&self, pe: usize, cause: Cause) -> Error {
        Error::PeerFailed { pe, cause, host: self.record.host(pe), call: None }
    }

    /// The fabric, if there is one.
    #[inline(always)]
    pub(crate) fn far_fabric(&self) -> Option<&dyn Fabric> {
        self.fabric.as_deref()
    }

    /// The fabric of a far route.
    pub(crate) fn fabric(&self) -> &dyn Fabric {
        self.fabric.as_deref().expect("a far route is made only where there is a fabric")
    }

    /// Makes a call of the program: it is recorded, and its error names the function, this PE, the
    /// line of the program, and the window. Where all goes well and nothing records, costs nothing.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn call<R>(
        &self,
        name: &'static str,
        window: Option<&'static Location<'static>>,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.call_of(name, Location::caller(), window, call)
    }

    /// [`call`](Self::call) of a function with errors of its own form.
    #[inline(always)]
    fn call_of<R, E: Into<Error>>(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
        window: Option<&'static Location<'static>>,
        call: impl FnOnce() -> std::result::Result<R, E>,
    ) -> Result<R> {
        let _recording = self.begin(name, at, window);
        Call { name, pe: self.me, at, window }.of_any(call)
    }

    /// [`call`](Self::call) of a function that may wait for other PEs: a report of long waits names
    /// it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn waiting_call<R>(
        &self,
        name: &'static str,
        window: Option<&'static Location<'static>>,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let at = Location::caller();
        self.call(name, window, || calls::within(name, Some(at), window, call))
    }

    /// [`waiting_call`](Self::waiting_call) of a collective call.
    #[inline(always)]
    pub(crate) fn collective_call<R>(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
        call: impl FnOnce() -> Quick<R>,
    ) -> Result<R> {
        self.call_of(name, at, None, || calls::within(name, Some(at), None, call))
    }

    #[inline]
    pub(crate) fn check_pe(&self, pe: usize) -> Result<()> {
        if pe < self.npes {
            Ok(())
        } else {
            Err(Error::NoSuchPe { pe, npes: self.npes, call: None })
        }
    }

    /// Address of a PE's segment, if it is mapped here.
    #[inline]
    pub(super) fn near_segment(&self, pe: usize) -> Option<*mut u8> {
        self.near.get(pe).map(|segment| segment.0).filter(|segment| !segment.is_null())
    }

    /// The near PEs, and what reaches byte `offset` of their segments; `None` unless these PEs
    /// follow each other.
    pub(crate) fn near_parts(&self, offset: u64) -> Option<NearParts> {
        let pes = self.near_run()?;
        let stride = self.control.geometry().segment_stride as usize;
        let zero = self.near[pes.start].0.wrapping_sub(pes.start * stride);
        Some(NearParts { pes, zero: zero.wrapping_add(offset as usize), stride })
    }

    /// The near PEs, if they follow each other.
    fn near_run(&self) -> Option<Range<usize>> {
        // Windows ask for each handle, and a job on one node may have many PEs.
        if self.record.is_one_node() {
            return Some(0..self.npes);
        }
        let is_near = |&pe: &usize| self.is_near(pe);
        let first = (0..self.near.len()).find(is_near)?;
        let end = (first..self.near.len()).find(|pe| !is_near(pe)).unwrap_or(self.near.len());
        (end..self.near.len()).all(|pe| !self.is_near(pe)).then_some(first..end)
    }

    /// Address of byte `offset` of this PE's own segment, for local reads and writes.
    #[inline]
    pub(crate) fn local(&self, offset: u64) -> *mut u8 {
        let end = self.control.geometry().segment_stride;
        assert!(offset <= end, "offset {offset} is outside of a segment of {end} bytes");
        self.own.0.wrapping_add(offset as usize)
    }

    /// Wakes `target` if it sleeps: called after a signal.
    #[inline]
    pub(crate) fn ring(&self, target: usize) {
        if self.control.doorbell(target).ring(self.control.membarrier()) && target == self.me {
            self.progress.descriptor.nudge();
        }
    }

    /// [`ring`](Self::ring) for a doorbell that was looked up before.
    #[inline(always)]
    pub(crate) fn ring_bell(&self, bell: Doorbell) {
        bell.ring(self.control.membarrier());
    }

    /// Whether a light fence does what [`order_rings`](Self::order_rings) does.
    pub(crate) fn rings_lightly(&self) -> bool {
        self.control.membarrier()
    }

    /// Orders this thread's writes before its next reads of sleepers' announcements, as every ring
    /// does.
    #[inline(always)]
    pub(crate) fn order_rings(&self) {
        crate::base::doorbell::order_rings(self.control.membarrier());
    }

    /// The other side of [`order_rings`](Self::order_rings): orders this thread's writes before its
    /// next reads, and those of every PE that rings.
    pub(crate) fn announce_barrier(&self) {
        shm::announce_barrier(self.control.membarrier());
    }

    /// Whether this process is the PE: one that the PE forked off [is
    /// not](crate::endpoint::ending).
    pub(crate) fn is_this_process(&self) -> bool {
        std::process::id() == self.pid.load(Ordering::Relaxed)
    }

    /// Makes this process the PE.
    pub(crate) fn become_this_process(&self) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
        if let Some(recorder) = self.recorder() {
            recorder.become_this_process();
        }
    }

    /// Reports an error that could not be returned before: for the program's own calls.
    #[inline]
    pub(crate) fn surface(&self) -> Quick<()> {
        self.late.surface()
    }

    /// [`surface`](Self::surface) at the end of a collective call. Near, it waits for a quiet.
    #[inline(always)]
    pub(crate) fn surface_if_far(&self) -> Quick<()> {
        if self.has_fabric() { self.surface() } else { Ok(()) }
    }

    /// Whether there is such an error.
    #[inline(always)]
    pub(crate) fn has_late(&self) -> bool {
        self.late.is_there()
    }

    /// Keeps an error that cannot be returned for the next quiet.
    pub(crate) fn surface_later(&self, error: Error) {
        self.late.keep(error);
    }

    /// The first of two results that is an error. A second one surfaces at the next quiet.
    pub(crate) fn first_error(&self, first: Result<()>, second: Result<()>) -> Result<()> {
        match (first, second) {
            (Err(first), Err(second)) => {
                self.surface_later(second);
                Err(first)
            }
            (first, second) => first.and(second),
        }
    }

    /// Completes far writes where no error can be returned: the next quiet reports it.
    pub(crate) fn flush_far(&self) {
        if let Some(fabric) = self.far_fabric()
            && let Err(error) = fabric.quiet()
        {
            self.surface_later(error);
        }
    }

    /// [`complete_writes`](Self::complete_writes) without waking sleepers, which the caller may put
    /// off until it has notified another PE.
    #[inline]
    pub(crate) fn complete_without_waking(&self) -> Quick<()> {
        shm::compiler_fence();
        match self.far_fabric() {
            Some(fabric) => Ok(fabric.quiet()?),
            None => Ok(()),
        }
    }
}
