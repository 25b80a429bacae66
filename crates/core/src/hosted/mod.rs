//! Jobs whose PEs somebody else runs, on a fabric of his own: a simulator.
//!
//! All segments are mapped by one process, the host's. A PE has its [`Job`] like any other; what
//! its fabric is asked to deliver, the host writes by [`Hosted::write`] and its kin, which know
//! where the PEs' memory is, restricted windows included.
//!
//! A PE's fabric is a [`HostedFabric`]: each call becomes an [`Ask`] that goes through a [`Port`].
//! Where the PE lives in the host's process, the port is the host's; where it is a process of its
//! own, it is attached to the machine by shared pages (`passage`) and a word that says whose turn
//! it is (`turn`).

mod ask;
pub(crate) mod attached;
mod clock;
mod fabric;
pub(crate) mod passage;
mod patch;
#[cfg(target_arch = "x86_64")]
mod polls;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod threads;
pub(crate) mod turn;

pub use crate::base::settings::ENV_MACHINE_FD as ENV_FD;
pub use crate::endpoint::fabric::Signal;
pub use ask::{Ask, Atomic};
pub use attached::join;
pub use fabric::{HostedFabric, MOST, Port, refused};
pub use passage::Passages;
pub use turn::Came;

use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{MAX_HOSTED, MAX_KEYS};
use crate::base::lock;
use crate::base::memory::{self, Mapping};
use crate::base::shm::{self, AtomicOp};
use crate::base::status::State;
use crate::endpoint::control::Control;
use crate::endpoint::fabric::{Fabric, FarAddress};
use crate::job::Job;
use crate::lifecycle::launch::JobFile;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Parts of restricted windows, by the PE that has them mapped, their home, and region.
type Regions = BTreeMap<(u32, u32, u32), PePart>;

/// A part of a restricted window.
struct PePart {
    base: usize,
    len: usize,
    writable: bool,
    /// Where the host has it mapped for a process, which keeps it so.
    _own: Option<Mapping>,
}

/// The memory of a job in its host's hands.
pub struct Hosted {
    control: Arc<Control>,
    regions: Mutex<Regions>,
}

/// Memory of the job that may be accessed.
struct Granted<'a> {
    at: *mut u8,
    /// Where it is a part of a restricted window: nobody takes that back meanwhile.
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
    /// Whoever has this reaches every byte of every PE, also those to which a guard has given a
    /// reference. It carries out what the fabrics that [`join`](Self::join) is given were asked
    /// for, and writes nothing else; and those fabrics keep the contract of
    /// [`fabric`](crate::endpoint::fabric).
    pub unsafe fn create(npes: usize, segment: Option<u64>) -> Result<Hosted> {
        // They share one CPU: the one that the host runs them on.
        let control = JobFile::create_within(Self::MOST, npes, 1, segment)?.into_control()?;
        Ok(Hosted { control: Arc::new(control), regions: Mutex::default() })
    }

    /// The memory of a job whose PEs are processes, which `job`'s holder starts.
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

    /// PE `pe` joins, with all peers behind `fabric`. Once for each PE, by whoever is to be that
    /// PE.
    ///
    /// # Errors
    /// [`Error::Environment`] for variables that choose what cannot be.
    pub fn join(&self, pe: usize, fabric: Box<dyn Fabric>) -> Result<Job> {
        let job = Job::from_control(
            self.control.clone(),
            pe,
            Some(fabric),
            None,
            crate::endpoint::check::asked()?,
        )?;
        self.control.step(pe, State::Empty, State::Joined);
        self.control.set_pid(pe);
        Ok(job)
    }

    /// PE `pe` has died of a panic: waits that depend on it end, as soon as they look.
    pub fn died(&self, pe: usize) {
        self.control.depart(pe, State::Dead(Cause::Panic));
    }

    /// Number of PEs.
    pub fn npes(&self) -> usize {
        self.control.geometry().npes
    }

    /// How many PEs have left, in order or not.
    pub fn departures(&self) -> u32 {
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        unsafe { shm::load(self.control.departures()) }
    }

    /// Whether PE `pe` has.
    pub fn has_left(&self, pe: usize) -> bool {
        self.control.state(pe).departed().is_some()
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        lock(&self.regions)
    }

    /// What [`Fabric::map_region`] tells the fabric of PE `by`.
    ///
    /// # Safety
    /// As there: `base` stays mapped for `len` bytes, writable where writes will be asked for,
    /// until [`unmap_region`](Self::unmap_region).
    pub unsafe fn map_region(&self, by: u32, pe: u32, region: u32, base: *mut u8, len: usize) {
        let part = PePart { base: base as usize, len, writable: true, _own: None };
        self.regions().insert((by, pe, region), part);
    }

    /// The same for a PE that is a process, by the number that the memory file has there. What the
    /// process says is believed only as far as it can be seen.
    ///
    /// # Errors
    /// In words, when there is no such file, or it is none of a restricted window.
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
        // A copy of the descriptor, and nothing else of that process: to open the file anew could
        // be anything.
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

    /// Takes it back.
    pub fn unmap_region(&self, by: u32, pe: u32, region: u32) {
        self.regions().remove(&(by, pe, region));
    }

    /// Where `len` bytes are, as PE `by` has them mapped, if they are memory of the job, and may be
    /// written where that is wanted.
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

    /// Whether there are `len` bytes, as PE `by` has them mapped, that may be written where that is
    /// wanted.
    pub fn has(&self, by: u32, at: FarAddress, len: usize, writes: bool) -> bool {
        self.place(by, at, len, writes).is_some()
    }

    /// Whether there is such a word, aligned.
    pub fn has_word(&self, by: u32, at: FarAddress, size: usize) -> bool {
        self.word(by, at, size).is_some()
    }

    /// Writes bytes into a PE's memory as PE `by` has it mapped; false where there is none. An
    /// aligned word is never seen torn.
    #[must_use]
    pub fn write(&self, by: u32, to: FarAddress, bytes: &[u8]) -> bool {
        let Some(place) = self.place(by, to, bytes.len(), true) else {
            return false;
        };
        // SAFETY: `place` lies in a mapping with room for all of them: a segment's, which `control`
        // keeps, or one that stays as long as `place`, by itself or as `map_region`'s caller
        // promised; `bytes` are private memory. Words are aligned where they are claimed to be.
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

    /// Reads bytes from a PE's memory; nothing where there is none.
    pub fn read(&self, by: u32, from: FarAddress, len: usize) -> Option<Vec<u8>> {
        let place = self.place(by, from, len, false)?;
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`; the vector was made for so many bytes.
        unsafe { shm::copy(bytes.as_mut_ptr(), place.at, len) };
        Some(bytes)
    }

    /// Updates an aligned word of `size` (1, 2, 4, 8) bytes; gives what it held. Nothing where
    /// there is none.
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

    /// Stores `new` in an aligned word that holds `expected`; gives what it held. Nothing where
    /// there is none.
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
