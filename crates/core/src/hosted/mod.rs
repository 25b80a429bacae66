//! Jobs whose PEs run under a host with a fabric of its own: a simulator.
//!
//! The host's process maps all segments. A PE has its [`Job`] like any other PE. The host delivers
//! what a PE's fabric is asked for, by [`Hosted::write`] and its kin, which find the PEs' memory,
//! restricted windows included.
//!
//! A PE's fabric is a [`HostedFabric`]: each call becomes an [`Ask`] that goes through a [`Port`].
//! For a PE in the host's process, the host provides the port. A PE that is a process of its own is
//! attached to the machine by shared pages (`passage`) and a word that says which side has the turn
//! (`turn`).

mod aside;
mod ask;
pub(crate) mod attached;
mod clock;
mod fabric;
pub(crate) mod gate;
pub(crate) mod passage;
mod patch;
#[cfg(target_arch = "x86_64")]
mod polls;
mod process;
mod replaced;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod threads;
pub(crate) mod turn;

pub use crate::base::settings::ENV_MACHINE_FD as ENV_FD;
pub use crate::endpoint::errand::Test;
pub use crate::endpoint::fabric::Signal;
pub use ask::{Ask, Atomic, CommandStep, KeyStep};
pub use attached::join;
pub use fabric::{HostedFabric, MOST_BYTES, Offers, Port, refused};
pub use passage::{Asked, Passages};
pub use replaced::see_real_time;
pub use turn::Came;

use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{MAX_HOSTED, MAX_KEYS};
use crate::base::lock;
use crate::base::memory::{self, Mapping};
use crate::base::shm::{self, AtomicOp};
use crate::base::shows;
use crate::base::status::State;
use crate::endpoint::control::Control;
use crate::endpoint::fabric::{Fabric, FarAddress};
use crate::endpoint::recorder::file::RecordFile;
use crate::job::Job;
use crate::lifecycle::launch::JobFile;
use crate::lifecycle::life::live;
use crate::lifecycle::start::Seat;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Parts of restricted windows, by the PE that maps them, the PE whose part it is, and the region.
type Regions = BTreeMap<(u32, u32, u32), PePart>;

/// A part of a restricted window.
struct PePart {
    base: usize,
    len: usize,
    writable: bool,
    /// The host's mapping of a process's part.
    _own: Option<Mapping>,
}

/// A host's access to the memory of its job.
pub struct Hosted {
    control: Arc<Control>,
    regions: Mutex<Regions>,
}

shows!([] Hosted as "Hosted", |it| npes = it.control.geometry().npes);

/// Memory of the job that a PE may access.
struct Granted<'a> {
    at: *mut u8,
    /// The lock that keeps a part of a restricted window mapped meanwhile.
    _mapped: Option<MutexGuard<'a, Regions>>,
}

impl Hosted {
    /// Most PEs of a job.
    pub const MOST: usize = MAX_HOSTED;

    /// The memory of a job of `npes` PEs, with segments that hold `segment` bytes of windows each,
    /// or as `MEMONET_SEGMENT_SIZE` says.
    ///
    /// # Errors
    /// As for [`JobFile::create_with`].
    ///
    /// # Safety
    /// The value reaches every byte of every PE, also those to which a guard has given a reference.
    /// The caller carries out what the fabrics given to [`join`](Self::join) are asked for, and
    /// writes nothing else; and those fabrics keep the contract of
    /// [`fabric`](crate::endpoint::fabric).
    pub unsafe fn create(npes: usize, segment: Option<u64>) -> Result<Hosted> {
        if npes == 0 {
            return Err(Error::misuse("a job has at least one PE"));
        }
        // The host runs all PEs on one CPU.
        let control = JobFile::create_within(Self::MOST, npes, 1, segment)?.into_control()?;
        Ok(Hosted { control: Arc::new(control), regions: Mutex::default() })
    }

    /// The memory of a job whose PEs are processes.
    ///
    /// # Errors
    /// [`Error::System`] where it cannot be mapped.
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    pub unsafe fn of(job: &JobFile) -> Result<Hosted> {
        let fd = job
            .fd()
            .try_clone_to_owned()
            .map_err(|e| Error::system("dup", e, "Raise `ulimit -n`"))?;
        let geometry = job.control().geometry();
        let control = Control::attach(fd, geometry.file_size(), geometry.npes, 0)?;
        Ok(Hosted { control: Arc::new(control), regions: Mutex::default() })
    }

    /// Makes the caller PE `pe`, with all peers behind `fabric`. Called once for each PE. It
    /// records what it does in its part of `record`.
    ///
    /// # Errors
    /// [`Error::Environment`] for variables with impossible values; [`Error::System`] where the
    /// part cannot be mapped.
    pub fn join(
        &self,
        pe: usize,
        fabric: Box<dyn Fabric>,
        record: Option<&RecordFile>,
    ) -> Result<Job> {
        let seat = Seat::new(self.control.clone(), pe);
        let part = record.map(|file| file.part(pe)).transpose()?;
        let job = Job::at(seat, Some(fabric), None, crate::endpoint::check::asked()?, part)?;
        self.control.step(pe, State::Empty, State::Joined);
        self.control.set_pid(pe);
        Ok(job)
    }

    /// Runs the program of a PE that has [joined](Self::join), as [`Job::threads`] does: with its
    /// end the PE leaves the job, in order or by a panic. The panic is resumed.
    pub fn live<R>(job: Job, program: impl FnOnce(Job) -> R) -> R {
        let mut first = None;
        let result = live(job, program, |panic| first = Some(panic));
        if let Some(panic) = first {
            std::panic::resume_unwind(panic);
        }
        result.expect("it has not panicked")
    }

    /// Records that PE `pe` has died of a panic. Waits that depend on it end at their next poll.
    pub fn died(&self, pe: usize) {
        self.control.depart(pe, State::Dead(Cause::Panic));
    }

    /// Number of PEs.
    pub fn npes(&self) -> usize {
        self.control.geometry().npes
    }

    /// Number of PEs that have left, in order or not.
    pub fn departures(&self) -> u32 {
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        unsafe { shm::load(self.control.departures()) }
    }

    /// Whether PE `pe` has left.
    pub fn has_left(&self, pe: usize) -> bool {
        self.control.state(pe).departed().is_some()
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        lock(&self.regions)
    }

    /// Records a part that PE `by` has mapped, as [`Fabric::map_region`] gives it.
    ///
    /// # Safety
    /// As for [`Fabric::map_region`]: `base` stays mapped for `len` bytes, writable where writes
    /// will be asked for, until [`unmap_region`](Self::unmap_region).
    pub unsafe fn map_region(&self, by: u32, pe: u32, region: u32, base: *mut u8, len: usize) {
        let part = PePart { base: base as usize, len, writable: true, _own: None };
        self.regions().insert((by, pe, region), part);
    }

    /// Records a part that PE `by`, a process, has mapped. `file` is the memory file's descriptor
    /// in that process. The process is not trusted: size and seals of the file are checked.
    ///
    /// # Errors
    /// In words, when there is no such file, or it is not that of a restricted window.
    pub fn open_region(
        &self,
        by: u32,
        pe: u32,
        region: u32,
        file: u32,
        len: u64,
    ) -> std::result::Result<(), String> {
        let geometry = self.control.geometry();
        if pe as usize >= geometry.npes
            || region == 0
            || region as usize > MAX_KEYS
            || len == 0
            || len > isize::MAX as u64
        {
            return Err("there can be no such part of a restricted window".into());
        }
        let process = self
            .control
            .process(by as usize)
            .and_then(Pid::from_raw)
            .ok_or("the PE's process is not known")?;
        // Takes a copy of the descriptor: opening the file by a path of that process could open any
        // file.
        let process = pidfd_open(process, PidfdFlags::empty())
            .map_err(|e| format!("the PE's process cannot be reached: {e}"))?;
        let fd = i32::try_from(file).map_err(|_| "a descriptor has no such number".to_owned())?;
        let fd = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty())
            .map_err(|e| format!("the memory of a restricted window cannot be taken over from the PE's process: {e}. The launcher must be allowed to trace it"))?;
        if memory::sealed_size(&fd)? != len {
            return Err("the memory of a restricted window has another size".into());
        }
        let writable = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let own = Mapping::new(fd, len as usize, writable).map_err(|e| e.to_string())?;
        let part =
            PePart { base: own.at(0) as usize, len: len as usize, writable, _own: Some(own) };
        self.regions().insert((by, pe, region), part);
        Ok(())
    }

    /// Forgets a part.
    pub fn unmap_region(&self, by: u32, pe: u32, region: u32) {
        self.regions().remove(&(by, pe, region));
    }

    /// The address of `len` bytes that PE `by` may read, or write if `writes`; `None` otherwise.
    fn place(&self, by: u32, at: FarAddress, len: usize, writes: bool) -> Option<Granted<'_>> {
        let geometry = self.control.geometry();
        let end = at.offset.checked_add(len as u64)?;
        if at.region == 0 {
            let inside = (at.pe as usize) < geometry.npes && end <= geometry.segment_stride;
            return inside.then(|| Granted {
                at: self.control.mapping().at(geometry.segment(at.pe as usize) + at.offset),
                _mapped: None,
            });
        }
        let regions = self.regions();
        let part = regions.get(&(by, at.pe, at.region))?;
        let allowed = end <= part.len as u64 && (part.writable || !writes);
        allowed.then_some(Granted {
            at: (part.base + at.offset as usize) as *mut u8,
            _mapped: Some(regions),
        })
    }

    /// Whether PE `by` may read `len` bytes at `at`, or write them if `writes`.
    pub fn has(&self, by: u32, at: FarAddress, len: usize, writes: bool) -> bool {
        self.place(by, at, len, writes).is_some()
    }

    /// Whether PE `by` may update an aligned word of `size` bytes at `at`.
    pub fn has_word(&self, by: u32, at: FarAddress, size: usize) -> bool {
        self.word(by, at, size).is_some()
    }

    /// Writes bytes into a PE's memory for PE `by`; false where that may not write. An aligned word
    /// is never seen torn.
    #[must_use]
    pub fn write(&self, by: u32, to: FarAddress, bytes: &[u8]) -> bool {
        let Some(place) = self.place(by, to, bytes.len(), true) else {
            return false;
        };
        // SAFETY: `place` has room for all bytes in a mapping: a segment's, which `control` keeps,
        // or a part's, which stays as long as `place`, because `_own` or the promise of
        // `map_region`'s caller keeps it. `bytes` are private memory; words are aligned by the
        // match.
        unsafe {
            match bytes.len() {
                len @ (1 | 2 | 4 | 8) if place.at.addr() % len == 0 => {
                    let mut word = [0; 8];
                    word[..len].copy_from_slice(bytes);
                    shm::store_sized(place.at, len, u64::from_le_bytes(word));
                }
                len => shm::copy(place.at, bytes.as_ptr(), len),
            }
        }
        true
    }

    /// Loads an aligned word of 8 bytes from a PE's memory for PE `by`; `None` where that may not
    /// read.
    pub fn load(&self, by: u32, from: FarAddress) -> Option<u64> {
        let place = self.place(by, from, 8, false).filter(|place| place.at.addr() % 8 == 0)?;
        // SAFETY: as in `write`, and aligned.
        Some(unsafe { shm::load(place.at.cast()) })
    }

    /// Reads bytes from a PE's memory for PE `by`; `None` where that may not read.
    pub fn read(&self, by: u32, from: FarAddress, len: usize) -> Option<Vec<u8>> {
        let place = self.place(by, from, len, false)?;
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`; the vector has `len` bytes.
        unsafe { shm::copy(bytes.as_mut_ptr(), place.at, len) };
        Some(bytes)
    }

    /// Updates an aligned word of `size` (1, 2, 4, 8) bytes, and gives its old value; `None` where
    /// PE `by` may not.
    pub fn fetch_op(
        &self,
        by: u32,
        at: FarAddress,
        size: usize,
        op: AtomicOp,
        operand: u64,
    ) -> Option<u64> {
        let place = self.word(by, at, size)?;
        // SAFETY: as in `write`, and aligned.
        Some(unsafe { shm::fetch_op(place.at, size, op, operand) })
    }

    /// Stores `new` in an aligned word that holds `expected`, and gives its old value; `None` where
    /// PE `by` may not.
    pub fn compare_swap(
        &self,
        by: u32,
        at: FarAddress,
        size: usize,
        expected: u64,
        new: u64,
    ) -> Option<u64> {
        let place = self.word(by, at, size)?;
        // SAFETY: as in `write`, and aligned.
        Some(unsafe { shm::compare_swap_sized(place.at, size, expected, new) })
    }

    fn word(&self, by: u32, at: FarAddress, size: usize) -> Option<Granted<'_>> {
        self.place(by, at, size, true)
            .filter(|place| matches!(size, 1 | 2 | 4 | 8) && place.at.addr() % size == 0)
    }
}
