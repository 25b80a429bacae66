//! The control page: a job's description, and the states of its PEs.

use crate::base::address;
use crate::base::doorbell::{self, Doorbell};
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{Geometry, JobHeader, MAGIC, PeRecord, SETTINGS, VERSION};
use crate::base::memory::Mapping;
use crate::base::process::Identity;
use crate::base::shm;
use crate::base::status::{Participation, Place, State, exit_status, exit_word};
use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

/// The mapped memory of a job (all of it in a PE, the control page alone in a launcher) and its
/// geometry.
pub(crate) struct Control {
    mapping: Mapping,
    geometry: Geometry,
    /// The address at which each PE maps its own segment, if one was chosen.
    own_segment: Option<u64>,
    /// The doorbell of PE 0; the others follow it.
    doorbells: Doorbell,
    membarrier: bool,
    cpus: usize,
    job_id: u64,
    everybody: OnceLock<Everybody>,
}

/// All PEs, and for each the number of teams that it had dropped in the world's barrier slot at the
/// start. All PEs of a process share it.
type Everybody = (Arc<[usize]>, Arc<[u64]>);

/// The first doorbell in the control part of a job's memory.
fn doorbells(mapping: &Mapping, geometry: &Geometry) -> Doorbell {
    // SAFETY: doorbells lie in the mapping's control part, aligned to 4, and are used only while
    // the `Control` that keeps the mapping lives.
    unsafe { Doorbell::new(mapping.at(geometry.doorbell(0)).cast()) }
}

macro_rules! header {
    ($self:expr, $field:ident) => {
        $self.at(offset_of!(JobHeader, $field) as u64).cast()
    };
}

fn bad(problem: String) -> Error {
    Error::ControlPage { problem }
}

/// The header of an untrusted control page, mapped to read.
struct HeaderPage(Mapping);

impl HeaderPage {
    fn word64(&self, offset: usize) -> u64 {
        // SAFETY: callers pass offsets of the header's fields, which lie in the mapping and are
        // aligned (asserted in `layout`).
        unsafe { shm::load(self.0.at(offset as u64).cast()) }
    }

    fn word32(&self, offset: usize) -> u32 {
        // SAFETY: as above.
        unsafe { shm::load(self.0.at(offset as u64).cast()) }
    }

    /// Refuses a page that is not that of a job of `npes` PEs, in this version's layout.
    fn check_identity(&self, npes: usize) -> Result<()> {
        if self.word64(offset_of!(JobHeader, magic)) != MAGIC {
            return Err(bad("does not start with memonet's mark".into()));
        }
        let version = self.word32(offset_of!(JobHeader, version));
        if version != VERSION {
            return Err(bad(format!(
                "has layout version {version}, this library reads version {VERSION}"
            )));
        }
        let said = self.word32(offset_of!(JobHeader, npes)) as usize;
        if said != npes {
            return Err(bad(format!("is of a job of {said} PEs, the environment says {npes}")));
        }
        Ok(())
    }

    /// The geometry of a job of `npes` PEs whose file has `file_size` bytes; an error if the page
    /// describes another one.
    fn geometry(&self, npes: usize, file_size: u64) -> Result<Geometry> {
        let stride = self.word64(offset_of!(JobHeader, segment_stride));
        let heap_offset = self.word64(offset_of!(JobHeader, heap_offset));
        let globals_offset = self.word64(offset_of!(JobHeader, globals_offset));
        let segments = self.word64(offset_of!(JobHeader, segments));
        let said = (stride, heap_offset, globals_offset, segments);
        let geometry = globals_offset
            .checked_sub(heap_offset)
            .and_then(|heap| Geometry::new(npes, heap))
            .filter(|g| {
                (g.segment_stride, g.heap_offset, g.globals_offset, g.segments) == said
            })
            .ok_or_else(|| {
                bad(format!(
                    "describes segments of {stride} bytes with a heap at {heap_offset} and globals at {globals_offset}, which cannot be"
                ))
            })?;
        let described = geometry.file_size();
        if described != self.word64(offset_of!(JobHeader, file_size)) || described != file_size {
            return Err(bad(format!("describes {described} bytes, but the file has {file_size}")));
        }
        Ok(geometry)
    }
}

impl Control {
    /// Writes the control page of a new job, which has `near` PEs on this node. PEs map their own
    /// segments at `own_segment`.
    pub(crate) fn create(
        mapping: Mapping,
        geometry: Geometry,
        near: usize,
        cpus: usize,
        own_segment: Option<u64>,
    ) -> Self {
        // A fence on every CPU of the node pays where sleeping is rare. Where PEs outnumber CPUs it
        // is not rare, and the nanoseconds of a fence in each ring do not matter. A PE without near
        // peers is rung after a message, which takes far longer than a fence.
        let membarrier = (2..=cpus).contains(&near) && shm::register_membarrier();
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

    /// Checks the control page of an inherited descriptor of `file_size` bytes, which may be of any
    /// file. Maps all memory, for PE `me`.
    pub(crate) fn attach(
        fd: rustix::fd::OwnedFd,
        file_size: u64,
        npes: usize,
        me: usize,
    ) -> Result<Self> {
        if file_size < size_of::<JobHeader>() as u64 {
            return Err(bad(format!("is cut short: the file has {file_size} bytes")));
        }
        let page = HeaderPage(Mapping::new(fd, size_of::<JobHeader>(), false)?);
        page.check_identity(npes)?;
        let geometry = page.geometry(npes, file_size)?;
        let membarrier = page.word32(offset_of!(JobHeader, membarrier)) != 0;
        if membarrier && !shm::register_membarrier() {
            return Err(bad(
                "relies on membarrier, which this process may not use (seccomp?)".into()
            ));
        }
        let cpus = page.word32(offset_of!(JobHeader, cpus)).max(1) as usize;
        let job_id = page.word64(offset_of!(JobHeader, job_id));
        let own_segment =
            Some(page.word64(offset_of!(JobHeader, own_segment))).filter(|&at| at != 0);
        if let Some(at) = own_segment.filter(|&at| !address::can_be(&geometry, at)) {
            return Err(bad(format!("puts segments at the address {at:#x}, which cannot be")));
        }
        let mapping = page.0.remap(&geometry, me, address::candidates(&geometry, own_segment))?;
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

    /// Maps the segments too, for PE 0, or for all PEs if they share this process.
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

    /// The members of the world. They are shared, because a process may have very many PEs.
    pub(crate) fn everybody(&self) -> Everybody {
        let npes = self.geometry.npes;
        self.everybody.get_or_init(|| ((0..npes).collect(), vec![0; npes].into())).clone()
    }

    pub(crate) fn job_id(&self) -> u64 {
        self.job_id
    }

    /// Address of the count of departures.
    #[inline]
    pub(crate) fn departures(&self) -> *const u32 {
        header!(self.mapping, departures)
    }

    /// The launcher's question to all waits, what they are for; 0: none.
    #[inline(always)]
    pub(crate) fn question(&self) -> u32 {
        // SAFETY: `question` lies in the mapped header, aligned to 4.
        unsafe { shm::load(header!(self.mapping, question)) }
    }

    /// Asks all waits, or takes the question back.
    pub(crate) fn set_question(&self, question: u32) {
        // SAFETY: as above.
        unsafe { shm::store(header!(self.mapping, question), question) };
    }

    /// Address of the place where a PE's threads say what they wait for.
    pub(crate) fn reports(&self, pe: usize) -> *mut u8 {
        assert!(pe < self.geometry.npes);
        self.mapping.at(self.geometry.reports(pe))
    }

    /// Wakes a PE of this node, if it sleeps. Says whether it did, or was about to.
    pub(crate) fn wake(&self, pe: usize) -> bool {
        self.doorbell(pe).ring(self.membarrier)
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

    /// Whether the PE's process has ended, so that it touches no memory any more. A PE that has
    /// left in order may still run, and use memory. So may a PE that died in this process: a panic
    /// ends a thread, and the PE's handles may live on in others.
    pub(crate) fn is_gone(&self, pe: usize) -> bool {
        // SAFETY: `pid` gives the address of an aligned word in the mapping.
        let pid = || unsafe { shm::load(self.pid(pe)) };
        match self.state(pe) {
            State::Dead(_) => pid() != std::process::id(),
            State::Done => pid() == 0,
            _ => false,
        }
    }

    /// Records that the PE's process has ended.
    pub(crate) fn set_gone(&self, pe: usize) {
        // SAFETY: as in `is_gone`.
        unsafe { shm::store(self.pid(pe), 0u32) };
    }

    /// The cause of a PE's departure, if it is dead or has left the job for good.
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

    /// Moves a PE from state `from` to `to`; false if it is not in `from`.
    pub(crate) fn step(&self, pe: usize, from: State, to: State) -> bool {
        // SAFETY: as in `state`.
        unsafe {
            shm::compare_swap_sized(self.status(pe).cast(), 8, from.to_word(), to.to_word())
                == from.to_word()
        }
    }

    /// Process id of a PE that has joined, in its own pid namespace.
    pub(crate) fn process(&self, pe: usize) -> Option<i32> {
        // SAFETY: as in `is_gone`.
        let pid = unsafe { shm::load(self.pid(pe)) };
        i32::try_from(pid).ok().filter(|&pid| pid > 0)
    }

    pub(crate) fn set_pid(&self, pe: usize) {
        // SAFETY: `pid` gives the address of an aligned word in the mapping.
        unsafe { shm::store(self.pid(pe), std::process::id()) };
    }

    /// Records which process a PE is, exactly enough for PEs that watch each other, and for a
    /// successor of the process.
    pub(crate) fn introduce(&self, pe: usize, who: Identity) {
        // The pid comes last: with it, the other words are valid.
        // SAFETY: aligned words of the PE's record, in the mapping.
        unsafe {
            shm::store(self.field(pe, offset_of!(PeRecord, namespace)).cast(), who.namespace);
            shm::store(self.field(pe, offset_of!(PeRecord, started)).cast(), who.started);
            shm::store(self.pid(pe), who.pid);
        }
    }

    /// Records the address of a PE's own segment.
    pub(crate) fn publish_own_segment(&self, pe: usize) {
        let at = self.mapping.at(self.geometry.segment(pe)) as u64;
        // SAFETY: an aligned word of the PE's record, in the mapping.
        unsafe { shm::store(self.field(pe, offset_of!(PeRecord, own_segment)).cast(), at) };
    }

    /// Address of the own segment of a PE that has joined; 0 for a PE of another host.
    fn own_segment_of(&self, pe: usize) -> u64 {
        // SAFETY: as above.
        unsafe { shm::load(self.field(pe, offset_of!(PeRecord, own_segment)).cast()) }
    }

    /// Whether a PE of this host has ever joined.
    pub(crate) fn has_joined(&self, pe: usize) -> bool {
        self.own_segment_of(pe) != 0
    }

    /// Why PEs of this host have their own segments at different addresses, if they do. Only the
    /// first PE whose segment is not at the chosen address gets the reason. Called when all have
    /// joined.
    pub(crate) fn why_apart(&self, me: usize) -> Option<String> {
        let known = |pe| Some(self.own_segment_of(pe)).filter(|&at| at != 0);
        let mut all = (0..self.geometry.npes).filter_map(known);
        let first = all.next();
        if all.all(|at| Some(at) == first) {
            return None;
        }
        let elsewhere = |&pe: &usize| known(pe).is_some() && known(pe) != self.own_segment;
        if (0..self.geometry.npes).find(elsewhere) != Some(me) {
            return None;
        }
        Some(address::why_not(&self.geometry, me, self.own_segment))
    }

    /// The identity that a PE has recorded, until its process is [gone](Self::set_gone).
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

    /// Whether a PE has joined in this process when that was another program, which had not taken
    /// part in anything before it became this one.
    pub(crate) fn is_left_to_successor(&self, pe: usize, mine: Identity) -> bool {
        self.state(pe) == State::Joined
            && self.part(pe) == Participation::NotYet
            && self.identity(pe) == Some(mine)
    }

    /// Zeroes the static data in a PE's segment, before any other PE has seen them.
    pub(crate) fn forget_globals(&self, pe: usize) {
        let start = self.geometry.segment(pe) + self.geometry.globals_offset;
        for part in self.mapping.with_pages(start..start + self.geometry.globals_size()) {
            self.mapping.release(part.start, part.end - part.start);
        }
    }

    /// Publishes that a PE has left, and wakes all PEs that may wait for it. A death is the next
    /// one in the order. False if it was done or dead already.
    pub(crate) fn depart(&self, pe: usize, to: State) -> bool {
        if let State::Dead(cause) = to {
            return self.die(pe, cause, self.next_place());
        }
        loop {
            // SAFETY: as in `state`.
            let found = unsafe { shm::load(self.status(pe)) };
            // A value that no state has, from a stray store, is replaced too.
            if matches!(State::read(found), Some(State::Done | State::Dead(_))) {
                return false;
            }
            if self.replace_status(pe, found, to) {
                return true;
            }
        }
    }

    /// [`depart`](Self::depart), but only from state `from`.
    pub(crate) fn depart_from(&self, pe: usize, from: State, to: State) -> bool {
        self.replace_status(pe, from.to_word(), to)
    }

    fn replace_word(&self, pe: usize, found: u64, to: u64) -> bool {
        // SAFETY: as in `state`.
        unsafe { shm::compare_swap_sized(self.status(pe).cast(), 8, found, to) == found }
    }

    fn replace_status(&self, pe: usize, found: u64, to: State) -> bool {
        if !self.replace_word(pe, found, to.to_word()) {
            return false;
        }
        self.announce_departure();
        true
    }

    /// [`depart`](Self::depart) by a death in this place of the order. A death that was published
    /// in a later place gets this one.
    pub(crate) fn die(&self, pe: usize, cause: Cause, place: Place) -> bool {
        loop {
            // SAFETY: as in `state`.
            let found = unsafe { shm::load(self.status(pe)) };
            let is_new = match State::read(found) {
                Some(State::Done) => return false,
                Some(State::Dead(_)) if Place::of_word(found) <= place => return false,
                Some(State::Dead(_)) => false,
                _ => true,
            };
            if self.replace_word(pe, found, place.with(State::Dead(cause))) {
                if is_new {
                    self.announce_departure();
                }
                return true;
            }
        }
    }

    /// The next place in the order of the deaths that are published here.
    fn next_place(&self) -> Place {
        // SAFETY: `deaths` lies in the mapped header, aligned to 4.
        let before = unsafe { shm::fetch_op(self.deaths().cast(), 4, shm::AtomicOp::Add, 1) };
        Place::nth(before as u32 + 1)
    }

    /// Leaves the order of deaths to others: those that are published here without a place get the
    /// last one. Called before there is any PE.
    pub(crate) fn order_no_deaths(&self) {
        // SAFETY: as above.
        unsafe { shm::store(self.deaths(), u32::from(u16::MAX)) };
    }

    fn deaths(&self) -> *mut u32 {
        header!(self.mapping, deaths)
    }

    /// How a PE died, if it did, and the place of its death.
    pub(crate) fn death(&self, pe: usize) -> Option<(Place, Cause)> {
        // SAFETY: as in `state`.
        let word = unsafe { shm::load(self.status(pe)) };
        match State::from_word(word) {
            State::Dead(cause) => Some((Place::of_word(word), cause)),
            _ => None,
        }
    }

    /// Asks the launcher to end all PEs, and to exit with this status unless another PE has asked
    /// before. With `ends_itself`, PE `pe` ends by itself, which may take a while.
    pub(crate) fn ask_to_exit(&self, pe: usize, status: u8, ends_itself: bool) {
        if ends_itself {
            // SAFETY: `exiting` gives the address of an aligned word in the mapping.
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

    /// Whether a PE has asked for the end of the job, and ends by itself.
    pub(crate) fn is_exiting(&self, pe: usize) -> bool {
        // SAFETY: as above.
        unsafe { shm::load(self.exiting(pe)) == 1 }
    }

    /// Changes a PE's participation from `before` to `part`; false if another process has changed
    /// it.
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

    /// The CPU that a PE last recorded; it may have moved since. 0: not known.
    pub(crate) fn cpu_of(&self, pe: usize) -> u32 {
        // SAFETY: `cpu_word` gives the address of an aligned word in the mapping.
        unsafe { shm::load(self.cpu_word(pe)) }
    }

    /// Records the CPU of a PE.
    pub(crate) fn say_cpu(&self, pe: usize, cpu: u32) {
        // Other PEs read the cache line often, and PEs rarely move.
        if self.cpu_of(pe) != cpu {
            // SAFETY: as above.
            unsafe { shm::store(self.cpu_word(pe), cpu) };
        }
    }

    /// The digest of a setting at the first PE that has joined; this PE's, if it is the first.
    ///
    /// # Panics
    /// When there is no setting of this number.
    pub(crate) fn first_setting(&self, number: usize, mine: u32) -> u32 {
        assert!(number < SETTINGS);
        let words: *mut u32 = header!(self.mapping, settings);
        let word = words.wrapping_add(number).cast();
        // SAFETY: `settings` lies in the mapped header, aligned to 4, and has a word of this
        // number.
        let first = unsafe { shm::compare_swap_sized(word, 4, 0, mine.into()) } as u32;
        if first == 0 { mine } else { first }
    }

    /// Process id of the launcher, in its own pid namespace.
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

    /// Counts a departure, and wakes all waiters to look at the states of PEs. D1: the state is
    /// written before.
    fn announce_departure(&self) {
        self.count_departure();
        self.ring_all();
    }

    /// Wakes all PEs, whatever they wait for.
    pub(crate) fn ring_all(&self) {
        for other in (0..self.geometry.npes)
            .filter(|&other| matches!(self.state(other), State::Joined | State::Finalizing))
        {
            self.doorbell(other).ring_always();
        }
    }

    /// Counts a PE that leaves in order. Only the last one wakes sleepers, so that `npes` leaving
    /// PEs do not wake each other `npes` times. A PE that waits in vain for one that left sees that
    /// at its next poll.
    pub(crate) fn announce_leaving(&self) {
        if self.count_departure() as usize >= self.geometry.npes {
            for other in 0..self.geometry.npes {
                self.doorbell(other).ring(self.membarrier);
            }
        }
    }

    /// The number of departures with this one. Wakes the agent that looks after this node's PEs.
    fn count_departure(&self) -> u32 {
        // SAFETY: `departures` lies in the mapped header, aligned to 4.
        let before = unsafe {
            let before =
                shm::fetch_op(self.departures().cast_mut().cast(), 4, shm::AtomicOp::Add, 1);
            doorbell::wake_all(self.departures());
            before
        };
        before as u32 + 1
    }
}

/// 64 random bits.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // This cannot happen on a booted Linux; std's keys and the pid tell jobs apart well enough.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()),
    }
}
