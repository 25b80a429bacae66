//! The control page: what a job is, and who of it is still there.

use crate::base::address;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{Geometry, JobHeader, MAGIC, PeRecord, VERSION};
use crate::base::memory::Mapping;
use crate::base::process::Identity;
use crate::base::shm;
use crate::base::status::{Participation, State, exit_status, exit_word};
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

/// The mapped memory of a job (all of it in a PE, the control page alone in a launcher) and its
/// geometry.
pub(crate) struct Control {
    mapping: Mapping,
    geometry: Geometry,
    /// Where each PE is to have its own segment, if that was chosen.
    own_segment: Option<u64>,
    /// That of PE 0.
    doorbells: Doorbell,
    membarrier: bool,
    cpus: usize,
    job_id: u64,
    everybody: OnceLock<Everybody>,
}

/// All PEs, and how many teams each had dropped in the world's barrier slot when it began: the same
/// for all PEs of a process.
type Everybody = (Arc<[usize]>, Arc<[u64]>);

/// Doorbells lie side by side in the control part of a job's memory.
fn doorbells(mapping: &Mapping, geometry: &Geometry) -> Doorbell {
    // SAFETY: they lie in the mapping's control part, aligned to 4; whoever uses one holds the
    // `Control` that keeps it.
    unsafe { Doorbell::new(mapping.at(geometry.doorbell(0)).cast()) }
}

macro_rules! header {
    ($self:expr, $field:ident) => {
        $self.at(offset_of!(JobHeader, $field) as u64).cast()
    };
}

impl Control {
    /// Writes the control page of a new job whose PEs are to have their own segments at
    /// `own_segment`.
    pub(crate) fn create(
        mapping: Mapping,
        geometry: Geometry,
        cpus: usize,
        own_segment: Option<u64>,
    ) -> Self {
        // A fence on every CPU of the node is worth its price where sleeping is rare. Where PEs
        // outnumber CPUs it is not, and nobody minds the nanoseconds of a fence in each ring.
        let membarrier = shm::register_membarrier() && geometry.npes <= cpus;
        let job_id = random();
        // SAFETY: the fields lie in the first page of the mapping, are aligned (asserted in
        // `layout`), and no PE exists yet.
        unsafe {
            shm::store::<u32>(header!(mapping, version), VERSION);
            shm::store::<u32>(header!(mapping, npes), geometry.npes as u32);
            shm::store::<u32>(header!(mapping, cpus), cpus as u32);
            shm::store::<u32>(header!(mapping, membarrier), u32::from(membarrier));
            shm::store::<u64>(header!(mapping, file_size), geometry.file_size());
            shm::store::<u64>(header!(mapping, segments), geometry.segments);
            shm::store::<u64>(header!(mapping, segment_stride), geometry.segment_stride);
            shm::store::<u64>(header!(mapping, heap_offset), geometry.heap_offset);
            shm::store::<u64>(header!(mapping, globals_offset), geometry.globals_offset);
            shm::store::<u64>(header!(mapping, own_segment), own_segment.unwrap_or(0));
            shm::store::<u64>(header!(mapping, job_id), job_id);
            shm::store::<u32>(header!(mapping, launcher), std::process::id());
            shm::store::<u64>(header!(mapping, magic), MAGIC);
        }
        Control {
            doorbells: doorbells(&mapping, &geometry),
            mapping,
            geometry,
            own_segment,
            membarrier,
            cpus: cpus.max(1),
            job_id,
            everybody: OnceLock::new(),
        }
    }

    /// Reads, and believes nothing of, the control page of an inherited descriptor of `file_size`
    /// bytes. Maps all, for PE `me`.
    pub(crate) fn attach(
        fd: rustix::fd::OwnedFd,
        file_size: u64,
        npes: usize,
        me: usize,
    ) -> Result<Self> {
        let bad = |problem: String| Error::ControlPage { problem };
        if file_size < size_of::<JobHeader>() as u64 {
            return Err(bad(format!("is cut short: the file has {file_size} bytes")));
        }
        let page = Mapping::new(fd, size_of::<JobHeader>(), false)?;
        let word64 =
            // SAFETY: the header's fields lie in the mapping just made, and are aligned (asserted
            // in `layout`).
            |offset: usize| -> u64 { unsafe { shm::load(page.at(offset as u64).cast::<u64>()) } };
        let word32 =
            // SAFETY: as above.
            |offset: usize| -> u32 { unsafe { shm::load(page.at(offset as u64).cast::<u32>()) } };
        if word64(offset_of!(JobHeader, magic)) != MAGIC {
            return Err(bad("does not start with memonet's mark".into()));
        }
        let version = word32(offset_of!(JobHeader, version));
        if version != VERSION {
            return Err(bad(format!(
                "has layout version {version}, this library reads version {VERSION}"
            )));
        }
        let said = word32(offset_of!(JobHeader, npes)) as usize;
        if said != npes {
            return Err(bad(format!("is of a job of {said} PEs, the environment says {npes}")));
        }
        let stride = word64(offset_of!(JobHeader, segment_stride));
        let heap_offset = word64(offset_of!(JobHeader, heap_offset));
        let globals_offset = word64(offset_of!(JobHeader, globals_offset));
        let geometry = globals_offset
            .checked_sub(heap_offset)
            .and_then(|heap| Geometry::new(npes, heap))
            .filter(|g| {
                let said = (g.segment_stride, g.heap_offset, g.globals_offset, g.segments);
                said == (stride, heap_offset, globals_offset, word64(offset_of!(JobHeader, segments)))
            })
            .ok_or_else(|| {
                bad(format!(
                    "describes segments of {stride} bytes with a heap at {heap_offset} and globals at {globals_offset}, which cannot be"
                ))
            })?;
        if geometry.file_size() != word64(offset_of!(JobHeader, file_size))
            || geometry.file_size() != file_size
        {
            return Err(bad(format!(
                "describes {} bytes, but the file has {file_size}",
                geometry.file_size()
            )));
        }
        let membarrier = word32(offset_of!(JobHeader, membarrier)) != 0;
        if membarrier && !shm::register_membarrier() {
            return Err(bad(
                "relies on membarrier, which this process may not use (seccomp?)".into()
            ));
        }
        let cpus = word32(offset_of!(JobHeader, cpus)).max(1) as usize;
        let job_id = word64(offset_of!(JobHeader, job_id));
        let own_segment = Some(word64(offset_of!(JobHeader, own_segment))).filter(|&at| at != 0);
        if let Some(at) = own_segment.filter(|&at| !address::can_be(&geometry, at)) {
            return Err(bad(format!("puts segments at the address {at:#x}, which cannot be")));
        }
        let mapping = page.remap(&geometry, me, address::candidates(&geometry, own_segment))?;
        Ok(Control {
            doorbells: doorbells(&mapping, &geometry),
            mapping,
            geometry,
            own_segment,
            membarrier,
            cpus,
            job_id,
            everybody: OnceLock::new(),
        })
    }

    /// Maps the segments too: for PE 0, or for all PEs where they share this process.
    pub(crate) fn map_all(self) -> Result<Self> {
        let mapping = self.mapping.remap(
            &self.geometry,
            0,
            address::candidates(&self.geometry, self.own_segment),
        )?;
        Ok(Control { doorbells: doorbells(&mapping, &self.geometry), mapping, ..self })
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    pub(crate) fn membarrier(&self) -> bool {
        self.membarrier
    }

    pub(crate) fn cpus(&self) -> usize {
        self.cpus
    }

    /// The members of the world. Shared, as a process may have very many PEs.
    pub(crate) fn everybody(&self) -> Everybody {
        let npes = self.geometry.npes;
        self.everybody.get_or_init(|| ((0..npes).collect(), vec![0; npes].into())).clone()
    }

    pub(crate) fn job_id(&self) -> u64 {
        self.job_id
    }

    /// Address of the count of PEs that are gone.
    #[inline]
    pub(crate) fn departures(&self) -> *const u32 {
        header!(self.mapping, departures)
    }

    /// Wakes a PE of this node, if it sleeps.
    pub(crate) fn wake(&self, pe: usize) {
        self.doorbell(pe).ring(self.membarrier);
    }

    #[inline]
    pub(crate) fn doorbell(&self, pe: usize) -> Doorbell {
        assert!(pe < self.geometry.npes);
        self.doorbells.nth(pe)
    }

    fn status(&self, pe: usize) -> *mut u64 {
        self.field(pe, offset_of!(PeRecord, status)).cast()
    }

    pub(crate) fn state(&self, pe: usize) -> State {
        // SAFETY: `status` gives the address of an aligned word in the mapping.
        State::from_word(unsafe { shm::load(self.status(pe)) })
    }

    /// Whether the PE's process has ended, so that nothing of it touches memory any more. One that
    /// has left in order may still run, and use what it has. So may one that has died in this very
    /// process: a panic ends a thread, and what the PE had may live on in others.
    pub(crate) fn is_gone(&self, pe: usize) -> bool {
        // SAFETY: `pid` gives the address of an aligned word in the mapping.
        let pid = || unsafe { shm::load(self.pid(pe)) };
        match self.state(pe) {
            State::Dead(_) => pid() != std::process::id(),
            State::Done => pid() == 0,
            _ => false,
        }
    }

    /// The launcher's word that the PE's process has ended.
    pub(crate) fn set_gone(&self, pe: usize) {
        // SAFETY: as in `is_gone`.
        unsafe { shm::store(self.pid(pe), 0u32) };
    }

    /// How the PE went, where it is dead, or has left the job for good.
    pub(crate) fn departure(&self, pe: usize) -> Option<Cause> {
        match self.state(pe) {
            state @ (State::Dead(_) | State::Done) => state.departed(),
            _ => None,
        }
    }

    fn pid(&self, pe: usize) -> *mut u32 {
        self.field(pe, offset_of!(PeRecord, pid)).cast()
    }

    /// Address of a field of a PE's record.
    fn field(&self, pe: usize, offset: usize) -> *mut u8 {
        assert!(pe < self.geometry.npes);
        self.mapping.at(self.geometry.record(pe) + offset as u64)
    }

    /// One step of a PE's life, if it is still in state `from`.
    pub(crate) fn step(&self, pe: usize, from: State, to: State) -> bool {
        // SAFETY: as in `state`.
        unsafe {
            shm::compare_swap_sized(self.status(pe).cast(), 8, from.to_word(), to.to_word())
                == from.to_word()
        }
    }

    /// Process id of a PE that has joined, as it knows itself.
    pub(crate) fn process(&self, pe: usize) -> Option<i32> {
        // SAFETY: as in `is_gone`.
        let pid = unsafe { shm::load(self.pid(pe)) };
        i32::try_from(pid).ok().filter(|&pid| pid > 0)
    }

    pub(crate) fn set_pid(&self, pe: usize) {
        // SAFETY: `pid` gives the address of an aligned word in the mapping.
        unsafe { shm::store(self.pid(pe), std::process::id()) };
    }

    /// Says which process a PE is, as exactly as nobody has to know but PEs that look after each
    /// other, and a successor.
    pub(crate) fn introduce(&self, pe: usize, who: Identity) {
        // SAFETY: aligned words of the PE's record, in the mapping. The number comes last: with it,
        // the rest is believed.
        unsafe {
            shm::store(self.field(pe, offset_of!(PeRecord, namespace)).cast(), who.namespace);
            shm::store(self.field(pe, offset_of!(PeRecord, started)).cast(), who.started);
            shm::store(self.pid(pe), who.pid);
        }
    }

    /// Says where a PE has its own segment.
    pub(crate) fn say_own_segment(&self, pe: usize) {
        let at = self.mapping.at(self.geometry.segment(pe)) as u64;
        // SAFETY: an aligned word of the PE's record, in the mapping.
        unsafe { shm::store(self.field(pe, offset_of!(PeRecord, own_segment)).cast(), at) };
    }

    /// Where a PE that has joined has its own segment.
    fn own_segment_of(&self, pe: usize) -> u64 {
        // SAFETY: as above.
        unsafe { shm::load(self.field(pe, offset_of!(PeRecord, own_segment)).cast()) }
    }

    /// At the first PE that has its own segment elsewhere than was chosen: why, if another PE has
    /// its own at another address. To be called when all have joined.
    pub(crate) fn why_apart(&self, me: usize) -> Option<String> {
        let mut all = (0..self.geometry.npes).map(|pe| self.own_segment_of(pe));
        let first = all.clone().next();
        if all.all(|at| Some(at) == first) {
            return None;
        }
        let elsewhere = |&pe: &usize| Some(self.own_segment_of(pe)) != self.own_segment;
        if (0..self.geometry.npes).find(elsewhere) != Some(me) {
            return None;
        }
        Some(address::why_not(&self.geometry, me, self.own_segment))
    }

    /// What a PE has said there, until its process is [gone](Self::set_gone).
    pub(crate) fn identity(&self, pe: usize) -> Option<Identity> {
        // SAFETY: as above.
        let who = unsafe {
            Identity {
                pid: shm::load(self.pid(pe)),
                namespace: shm::load(self.field(pe, offset_of!(PeRecord, namespace)).cast()),
                started: shm::load(self.field(pe, offset_of!(PeRecord, started)).cast()),
            }
        };
        (who.pid != 0 && who.started != 0).then_some(who)
    }

    /// Whether a PE that has joined did so in this very process, which was another program then,
    /// and had not taken part in anything when it became this one.
    pub(crate) fn is_left_to_successor(&self, pe: usize, mine: Identity) -> bool {
        self.state(pe) == State::Joined
            && self.part(pe) == Participation::NotYet
            && self.identity(pe) == Some(mine)
    }

    /// Makes the static data in a PE's segment zeros again, before anybody else has seen them.
    pub(crate) fn forget_globals(&self, pe: usize) {
        let start = self.geometry.segment(pe) + self.geometry.globals_offset;
        for part in self.mapping.with_pages(start..start + self.geometry.globals_size()) {
            self.mapping.release(part.start, part.end - part.start);
        }
    }

    /// Publishes that a PE takes part in nothing any more, and wakes all who may wait for it. False
    /// if it was done or dead already.
    pub(crate) fn depart(&self, pe: usize, to: State) -> bool {
        loop {
            // SAFETY: as in `state`.
            let found = unsafe { shm::load(self.status(pe)) };
            // What a stray store has left there is replaced, too.
            if matches!(State::read(found), Some(State::Done | State::Dead(_))) {
                return false;
            }
            if self.replace_status(pe, found, to) {
                return true;
            }
        }
    }

    /// The same, if it is still in state `from`.
    pub(crate) fn depart_from(&self, pe: usize, from: State, to: State) -> bool {
        self.replace_status(pe, from.to_word(), to)
    }

    fn replace_status(&self, pe: usize, found: u64, to: State) -> bool {
        // SAFETY: as in `state`.
        if unsafe { shm::compare_swap_sized(self.status(pe).cast(), 8, found, to.to_word()) }
            != found
        {
            return false;
        }
        if let State::Dead(_) = to {
            // SAFETY: `first_dead` lies in the mapped header, aligned to 4.
            unsafe { shm::compare_swap_sized(self.first_dead().cast(), 4, 0, pe as u64 + 1) };
        }
        self.announce_departure();
        true
    }

    fn first_dead(&self) -> *mut u32 {
        header!(self.mapping, first_dead)
    }

    /// The PE that died first.
    pub(crate) fn first_death(&self) -> Option<usize> {
        // SAFETY: as in `depart`.
        let word = unsafe { shm::load(self.first_dead()) } as usize;
        word.checked_sub(1).filter(|&pe| pe < self.geometry.npes)
    }

    /// Has the launcher end all PEs, and exit with this status unless somebody has asked before.
    /// `ends_itself`: PE `pe` ends by itself, and may take a while for it.
    pub(crate) fn ask_to_exit(&self, pe: usize, status: u8, ends_itself: bool) {
        if ends_itself {
            // SAFETY: what `exiting` gives in a PE's record is aligned to 4, in the mapping.
            unsafe { shm::store(self.exiting(pe), 1) };
        }
        loop {
            // SAFETY: `exit` lies in the mapped header, aligned to 4.
            let found = unsafe { shm::load(self.exit()) };
            if exit_status(found).is_some() {
                return;
            }
            // SAFETY: as above.
            let before = unsafe {
                shm::compare_swap_sized(
                    self.exit().cast(),
                    4,
                    found.into(),
                    exit_word(status).into(),
                )
            };
            if before == u64::from(found) {
                return;
            }
        }
    }

    /// Whether a PE has asked for that, and says that it ends by itself.
    pub(crate) fn is_exiting(&self, pe: usize) -> bool {
        // SAFETY: as above.
        unsafe { shm::load(self.exiting(pe)) == 1 }
    }

    /// Says whether a PE takes part in anything now, unless another process has said so since it
    /// was `before`.
    pub(crate) fn step_part(&self, pe: usize, before: Participation, part: Participation) -> bool {
        let word = self.field(pe, offset_of!(PeRecord, part));
        // SAFETY: an aligned word of the PE's record, in the mapping.
        let found = unsafe { shm::compare_swap_sized(word, 4, before as u64, part as u64) };
        found == before as u64
    }

    pub(crate) fn part(&self, pe: usize) -> Participation {
        // SAFETY: as above.
        Participation::from_word(unsafe {
            shm::load(self.field(pe, offset_of!(PeRecord, part)).cast())
        })
    }

    fn exiting(&self, pe: usize) -> *mut u32 {
        self.field(pe, offset_of!(PeRecord, exiting)).cast()
    }

    fn cpu_word(&self, pe: usize) -> *mut u32 {
        self.field(pe, offset_of!(PeRecord, cpu)).cast()
    }

    /// Where a PE was when it last said so; it may have moved since. 0: not known.
    pub(crate) fn cpu_of(&self, pe: usize) -> u32 {
        // SAFETY: `cpu_word` gives the address of an aligned word in the mapping.
        unsafe { shm::load(self.cpu_word(pe)) }
    }

    /// Says where a PE is.
    pub(crate) fn say_cpu(&self, pe: usize, cpu: u32) {
        // Others read the line again and again, and PEs rarely move.
        if self.cpu_of(pe) != cpu {
            // SAFETY: as above.
            unsafe { shm::store(self.cpu_word(pe), cpu) };
        }
    }

    /// Process id of the launcher, as it knows itself.
    pub(crate) fn launcher(&self) -> u32 {
        // SAFETY: `launcher` lies in the mapped header, aligned to 4.
        unsafe { shm::load(header!(self.mapping, launcher)) }
    }

    /// The exit status that a PE has asked for.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        // SAFETY: as in `ask_to_exit`.
        exit_status(unsafe { shm::load(self.exit()) })
    }

    fn exit(&self) -> *mut u32 {
        header!(self.mapping, exit)
    }

    /// Tells every waiter to look at the states of PEs.
    fn announce_departure(&self) {
        self.count_departure();
        for other in (0..self.geometry.npes)
            .filter(|&other| matches!(self.state(other), State::Joined | State::Finalizing))
        {
            self.doorbell(other).ring_always();
        }
    }

    /// Says that one more PE leaves in order. Only the last one wakes sleepers, so that `npes`
    /// leaving PEs do not wake each other `npes` times; whoever waits in vain for one that left
    /// finds out when it looks by itself.
    pub(crate) fn announce_leaving(&self) {
        if self.count_departure() as usize >= self.geometry.npes {
            for other in 0..self.geometry.npes {
                self.doorbell(other).ring(self.membarrier);
            }
        }
    }

    /// The number of departures with this one.
    fn count_departure(&self) -> u32 {
        // SAFETY: `departures` lies in the mapped header, aligned to 4.
        let before =
            unsafe { shm::fetch_op(self.departures().cast_mut().cast(), 4, shm::AtomicOp::Add, 1) };
        before as u32 + 1
    }
}

/// 64 bits that nobody can guess by accident.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Never on a booted Linux; the address of a local and the time distinguish jobs as well as
        // is needed.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()),
    }
}
