//! What a launcher needs: to create a job's memory, to describe it to the PEs, and to publish
//! deaths.

use crate::base::address;
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{Geometry, MAX_PES};
use crate::base::memory::{JOB_FILE, Mapping, create_memfd};
pub use crate::base::process::{Stat, UNKNOWN, end_of, is_asleep};
pub use crate::base::settings::{ENV_FD, ENV_NPES, ENV_PE, ENV_SEGMENT_SIZE};
pub use crate::base::status::{Participation, State};
use crate::endpoint::control::Control;
pub use crate::lifecycle::pulse::Pulse;
use rustix::fd::{AsRawFd, BorrowedFd};

/// Address space that the heaps of a job may take in all: a quarter of what a process has.
const ADDRESS_BUDGET: u64 = 1 << 45;

/// The memory of a job, as its launcher holds it: the descriptor, and the control page mapped.
pub struct JobFile {
    control: Control,
    note: Option<String>,
}

impl JobFile {
    /// Creates the memory of a job of `npes` PEs that may use `cpus` CPUs on this node.
    ///
    /// Segments are as large as physical memory (pages exist when touched), unless
    /// `MEMONET_SEGMENT_SIZE`, a limit on address space or on file size, or the number of PEs asks
    /// for less; then [`note`](Self::note) says so.
    ///
    /// # Errors
    /// [`Error::Environment`] for a bad `MEMONET_SEGMENT_SIZE`, [`Error::NoSuchPe`] for too many
    /// PEs, [`Error::System`].
    pub fn create(npes: usize, cpus: usize) -> Result<Self> {
        Self::create_with(npes, cpus, None)
    }

    /// [`create`](Self::create) with segments of `segment` bytes, where given, whatever
    /// `MEMONET_SEGMENT_SIZE` says.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_with(npes: usize, cpus: usize, segment: Option<u64>) -> Result<Self> {
        let (geometry, note) = fit_segments(MAX_PES, npes, segment, address::HEAPS)?;
        Self::of(geometry, note, cpus, address::choose(&geometry))
    }

    /// [`create_with`](Self::create_with) for at most `limit` PEs that share this process, and so
    /// cannot have their own segments at one address.
    pub(crate) fn create_within(
        limit: usize,
        npes: usize,
        cpus: usize,
        segment: Option<u64>,
    ) -> Result<Self> {
        let (geometry, note) = fit_segments(limit, npes, segment, ADDRESS_BUDGET)?;
        Self::of(geometry, note, cpus, None)
    }

    fn of(
        geometry: Geometry,
        note: Option<String>,
        cpus: usize,
        own_segment: Option<u64>,
    ) -> Result<Self> {
        let fd = create_memfd(JOB_FILE, geometry.file_size())?;
        let mapping = Mapping::new(fd, geometry.segments as usize, true)?;
        let control = Control::create(mapping, geometry, cpus, own_segment);
        Ok(JobFile { control, note })
    }

    /// Maps all of it, for PE 0 or all PEs in this process. What they start has no part in the job.
    pub(crate) fn into_control(self) -> Result<Control> {
        let control = self.control.map_all()?;
        rustix::io::fcntl_setfd(control.mapping().fd(), rustix::io::FdFlags::CLOEXEC)
            .map_err(|e| Error::system("fcntl", e, ""))?;
        Ok(control)
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The descriptor that every PE must inherit under the number given in
    /// [`environment`](Self::environment).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.control.mapping().fd()
    }

    /// The environment by which a PE finds its job.
    pub fn environment(&self, pe: usize) -> [(&'static str, String); 3] {
        [
            (ENV_FD, self.fd().as_raw_fd().to_string()),
            (ENV_PE, pe.to_string()),
            (ENV_NPES, self.control.geometry().npes.to_string()),
        ]
    }

    /// What the user should know of how the memory was laid out.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// State of a PE.
    pub fn state(&self, pe: usize) -> State {
        self.control.state(pe)
    }

    /// The exit status with which a PE has asked for the end of the whole job.
    pub fn exit_status(&self) -> Option<u8> {
        self.control.exit_status()
    }

    /// Whether a PE has asked for it: that one ends by itself.
    pub fn is_exiting(&self, pe: usize) -> bool {
        self.control.is_exiting(pe)
    }

    /// Whether a PE takes part in anything.
    pub fn part(&self, pe: usize) -> Participation {
        self.control.part(pe)
    }

    /// Process id of a PE that has joined, as it knows itself: in a pid namespace of its own it has
    /// another number outside.
    pub fn process(&self, pe: usize) -> Option<i32> {
        self.control.process(pe)
    }

    /// Publishes that a PE's process has ended in failure, and wakes every waiter. One that had
    /// left in order stays so.
    pub fn depart(&self, pe: usize, cause: Cause) {
        self.control.set_gone(pe);
        self.control.depart(pe, State::Dead(cause));
    }

    /// Publishes that a PE's process has ended in order, whether it ever joined or not; unless the
    /// PE is not in the state `seen` any more, by which that was found out. False where it is not.
    pub fn left(&self, pe: usize, seen: State) -> bool {
        let is_final = matches!(seen, State::Done | State::Dead(_));
        let still = is_final || self.control.depart_from(pe, seen, State::Done);
        if still {
            self.control.set_gone(pe);
        }
        still
    }
}

/// Reads a value of [`ENV_SEGMENT_SIZE`].
///
/// # Errors
/// [`Error::Environment`].
pub fn segment_size(value: &str) -> Result<u64> {
    parse_size(value).filter(|&size| size > 0).ok_or_else(|| Error::Environment {
        name: ENV_SEGMENT_SIZE,
        value: value.to_owned(),
        problem: "is not a size".into(),
        fix: "Give bytes, or a number with K, M, G or T, such as 512M",
    })
}

/// Chooses the size of segments, whose heaps take at most `space` bytes in all unless the user
/// wishes more. Says so where a limit keeps a PE from as much as physical memory.
fn fit_segments(
    limit: usize,
    npes: usize,
    asked: Option<u64>,
    space: u64,
) -> Result<(Geometry, Option<String>)> {
    if npes == 0 || npes > limit {
        return Err(Error::TooMany { what: "PEs", limit });
    }
    let system = rustix::system::sysinfo();
    let physical = system.totalram as u64 * u64::from(system.mem_unit.max(1));
    let from_env =
        || std::env::var_os(ENV_SEGMENT_SIZE).map(|value| segment_size(&value.to_string_lossy()));
    let asked = asked.map(Ok).or_else(from_env).transpose()?;
    let share = space / npes as u64;
    let mut heap = match asked {
        // A wish, not a limit to report.
        Some(asked) => asked.min(ADDRESS_BUDGET / npes as u64),
        // Nor is this one: all PEs together have more than there is.
        None if space >= physical => physical.min(share),
        None => physical,
    };
    let mut reason = None;
    let mut shrink = |limit: u64, why: String| {
        if limit < heap {
            heap = limit;
            reason = Some(why);
        }
    };
    if asked.is_none() {
        shrink(share, format!("{npes} segments share the address space"));
    }
    let overhead = Geometry::new(npes, 0).map_or(0, |g| g.file_size());
    for (resource, name, share) in [
        (rustix::process::Resource::As, "ulimit -v", 3),
        (rustix::process::Resource::Fsize, "ulimit -f", 1),
    ] {
        if let Some(limit) = rustix::process::getrlimit(resource).current {
            // A third of the address space may be needed to align a segment, and one is left to the
            // program itself. Globals take a quarter of what the heap takes.
            let room = (limit / share).saturating_sub(overhead) / npes as u64 / 5 * 4;
            shrink(
                room / crate::base::layout::HUGE_PAGE * crate::base::layout::HUGE_PAGE,
                format!("{name} is {limit} bytes"),
            );
        }
    }
    if heap < crate::base::layout::HUGE_PAGE {
        let why = reason.unwrap_or_else(|| format!("{heap} bytes are less than one huge page"));
        return Err(Error::system(
            "laying out segments",
            std::io::Error::other(format!("no room: {why}")),
            "Raise that limit, or start fewer PEs",
        ));
    }
    let geometry =
        Geometry::new(npes, heap).ok_or(Error::Overflow { index: npes, size: heap as usize })?;
    let note = reason.map(|why| {
        format!(
            "each PE's segment holds {} MiB, not all of physical memory: {why}",
            geometry.heap_size() >> 20
        )
    });
    Ok((geometry, note))
}

/// Reads a size as OpenSHMEM has it: a number, which may have a fraction, and a unit of which the
/// first letter counts.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[number.len()..].chars().next().map(|c| c.to_ascii_uppercase()) {
        None | Some('B') => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some(_) => return None,
    };
    let bytes = number.trim().parse::<f64>().ok()? * (1u64 << shift) as f64;
    (bytes >= 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Whether a launcher, memonet's or another, has started this process as a PE of a job, be it the
/// only one.
pub fn is_pe() -> bool {
    std::env::var_os(ENV_FD).is_some() || crate::lifecycle::adopt::is_launched()
}

/// CPUs in this process's affinity mask.
pub fn cpu_list() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    match set {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        // More CPUs than a `CpuSet` holds: std knows how many, and numbers do not matter where
        // nobody binds.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect(),
    }
}

/// CPUs that this process may keep busy: its affinity mask, cut by a cgroup's CPU quota.
pub fn available_cpus() -> usize {
    // std reads the mask, and both versions of cgroups.
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("512", 512),
            ("512b", 512),
            ("1K", 1024),
            ("1.5k", 1536),
            (" 20 MB", 20 << 20),
            ("3G", 3 << 30),
            ("2TiB", 2 << 40),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for bad in ["", "G", "-1", "1Q", "12x", "1e400", "nan", "0x10", "99999999999T"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
