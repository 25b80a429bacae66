//! The launcher's side of a job: creates its memory, describes it to the PEs, and publishes deaths.

use crate::base::address;
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::{Geometry, HUGE_PAGE, MAX_PES};
pub use crate::base::memory::page_size;
use crate::base::memory::{JOB_FILE, Mapping, create_memfd};
pub use crate::base::process::{Activity, Stat, UNKNOWN, end_of};
use crate::base::settings::{self, ENV_BARRIER, ENV_CHECK, ENV_COLLECTIVES};
pub use crate::base::settings::{ENV_FD, ENV_NPES, ENV_PE, ENV_SEGMENT_SIZE};
use crate::base::shows;
pub use crate::base::status::{Participation, Place, State};
use crate::endpoint::calls::last;
pub use crate::endpoint::calls::last::LastCall;
use crate::endpoint::check;
use crate::endpoint::control::Control;
pub use crate::lifecycle::departures::Departures;
pub use crate::lifecycle::pulse::Pulse;
use crate::sync::barrier::Algorithm;
use crate::team::forced::Forced;
use crate::wait::answer;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ffi::OsString;
use std::num::NonZeroU32;

/// Address space for all heaps of a job: a quarter of what a process has.
const ADDRESS_BUDGET_BYTES: u64 = 1 << 45;

/// The launcher's hold of a job's memory: the descriptor, and the mapped control page.
pub struct JobFile {
    control: Control,
    note: Option<String>,
}

shows!([] JobFile as "JobFile", |it| npes = it.control.geometry().npes, note = it.note);

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
        Self::of(geometry, note, npes, cpus, address::choose(&geometry))
    }

    /// The memory that one node has of a job on several: segments for the node's PEs, `near` of
    /// them, and records for all. Each node has the same `heap`, as [`heap_size`] gives it.
    ///
    /// # Errors
    /// As for [`create`](Self::create), and where this node has less room.
    pub fn create_node(npes: usize, near: usize, cpus: usize, heap: u64) -> Result<Self> {
        let (geometry, note) = fit_segments(MAX_PES, npes, Some(heap), address::HEAPS)?;
        if geometry.heap_size() != heap {
            return Err(Error::system(
                "laying out segments",
                std::io::Error::other(format!("{} bytes, not {heap}", geometry.heap_size())),
                "Set MEMONET_SEGMENT_SIZE lower",
            ));
        }
        let file = Self::of(geometry, note, near, cpus, address::choose(&geometry))?;
        file.control.order_no_deaths();
        Ok(file)
    }

    /// [`create_with`](Self::create_with) for at most `limit` PEs that share this process, and so
    /// cannot have their own segments at one address.
    pub(crate) fn create_within(
        limit: usize,
        npes: usize,
        cpus: usize,
        segment: Option<u64>,
    ) -> Result<Self> {
        let (geometry, note) = fit_segments(limit, npes, segment, ADDRESS_BUDGET_BYTES)?;
        Self::of(geometry, note, npes, cpus, None)
    }

    fn of(
        geometry: Geometry,
        note: Option<String>,
        near: usize,
        cpus: usize,
        own_segment: Option<u64>,
    ) -> Result<Self> {
        let fd = create_memfd(JOB_FILE, geometry.file_size())?;
        let mapping = Mapping::new(fd, geometry.segments as usize, true)?;
        let control = Control::create(mapping, geometry, near, cpus, own_segment);
        Ok(JobFile { control, note })
    }

    /// Maps all memory, for PE 0 or for all PEs in this process. Programs that they start do not
    /// inherit the job.
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

    /// A note for the user, if segments are smaller than physical memory.
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

    /// Whether a PE has asked for the end of the job, and ends by itself.
    pub fn is_exiting(&self, pe: usize) -> bool {
        self.control.is_exiting(pe)
    }

    /// Whether a PE takes part in anything.
    pub fn part(&self, pe: usize) -> Participation {
        self.control.part(pe)
    }

    /// Whether a PE of this host has ever joined, whatever became of it.
    pub fn has_joined(&self, pe: usize) -> bool {
        self.control.has_joined(pe)
    }

    /// Process id of a PE that has joined, in its own pid namespace, which may differ from the
    /// launcher's.
    pub fn process(&self, pe: usize) -> Option<i32> {
        self.control.process(pe)
    }

    /// Publishes that a PE's process has ended in failure, and wakes every waiter. The state of a
    /// PE that had left in order stays.
    pub fn depart(&self, pe: usize, cause: Cause) {
        self.control.set_gone(pe);
        self.control.depart(pe, State::Dead(cause));
    }

    /// Has the record of a PE of another node say what that node tells. What it says already, or
    /// goes beyond, changes nothing.
    pub fn replicate(&self, pe: usize, state: State) {
        match state {
            State::Empty => {}
            State::Joined => drop(self.control.step(pe, State::Empty, State::Joined)),
            State::Finalizing => {
                if self.control.step(pe, State::Joined, State::Finalizing) {
                    self.control.announce_leaving();
                }
            }
            State::Done => {
                self.control.set_gone(pe);
                // As the PE itself does, which has announced its leaving before.
                if !self.control.step(pe, State::Finalizing, State::Done) {
                    self.control.depart(pe, State::Done);
                }
            }
            State::Dead(cause) => self.depart(pe, cause),
        }
    }

    /// The place of a PE's death among all deaths that are published here, if it has died.
    pub fn death(&self, pe: usize) -> Option<Place> {
        self.control.death(pe).map(|(place, _)| place)
    }

    /// [`depart`](Self::depart), where the launcher of several nodes has given the death its place.
    /// It is a later one than that of each death published here in this way. A death that was
    /// [published](Self::depart) meanwhile gets this place.
    pub fn die(&self, pe: usize, cause: Cause, place: Place) {
        self.control.set_gone(pe);
        self.control.die(pe, cause, place);
    }

    /// Publishes that a PE of another node has ended the whole job with this status, unless
    /// somebody has before.
    pub fn exit(&self, status: u8) {
        self.control.ask_to_exit(0, status, false);
    }

    /// Publishes that a PE's process has ended in order, whether it ever joined or not. False if
    /// the PE is not in the state `seen` any more, on which the caller's decision was based.
    pub fn left(&self, pe: usize, seen: State) -> bool {
        let is_final = matches!(seen, State::Done | State::Dead(_));
        let still = is_final || self.control.depart_from(pe, seen, State::Done);
        if still {
            self.control.set_gone(pe);
        }
        still
    }
}

/// What PEs wait for.
impl JobFile {
    /// Asks all waits of this node's PEs what they are for, and wakes those that sleep. Gives the
    /// number of the question that stands: where it is [kept](Self::keep_asking), that one.
    pub fn ask(&self, question: NonZeroU32) -> NonZeroU32 {
        if self.control.question() == answer::STANDING {
            return NonZeroU32::MAX;
        }
        self.control.set_question(question.get());
        self.control.ring_all();
        question
    }

    /// Takes the question back, unless it is kept.
    pub fn end_question(&self) {
        if self.control.question() != answer::STANDING {
            self.control.set_question(0);
        }
    }

    /// Has all waits say what they are for whenever somebody wakes them: those of a simulated
    /// machine.
    pub fn keep_asking(&self) -> NonZeroU32 {
        self.control.set_question(answer::STANDING);
        NonZeroU32::MAX
    }

    /// How many threads of a PE have begun to answer, and their answers so far: bytes for
    /// [`Report::read`](crate::unstable::wait::report::Report::read), which may be anything.
    pub fn answers(&self, pe: usize, question: NonZeroU32) -> (usize, Vec<Vec<u8>>) {
        let question = question.get();
        let answers = answer::answers(&self.control, pe, question);
        (answer::count(&self.control, pe, question).max(answers.len()), answers)
    }

    /// The last call that might wait of the thread with which a PE has joined. `None` where it has
    /// made none, has ended, makes them now, or where the kernel does not let this process read the
    /// memory of `process`.
    pub fn last_call(&self, pe: usize, process: i32) -> Option<LastCall> {
        last::read(&self.control, pe, process)
    }
}

/// The bytes for windows that each PE has on this machine, in a job of `npes` PEs, and what the
/// user should know of it: what [`JobFile::create_with`] would choose.
///
/// # Errors
/// As for [`JobFile::create`].
pub fn heap_size(npes: usize, segment: Option<u64>) -> Result<(u64, Option<String>)> {
    let (geometry, note) = fit_segments(MAX_PES, npes, segment, address::HEAPS)?;
    Ok((geometry.heap_size(), note))
}

/// Refuses for the `npes` PEs of a job what each of them would refuse when it starts. `value` gives
/// the value that a variable has for them.
///
/// # Errors
/// [`Error::Environment`].
pub fn check_settings(npes: usize, value: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    value(ENV_BARRIER).map(|value| Algorithm::named(&value, npes)).transpose()?;
    value(ENV_COLLECTIVES).map(|value| Forced::named(&value)).transpose()?;
    value(ENV_CHECK).map(|value| check::is_on(&value)).transpose()?;
    Ok(())
}

/// Reads a value of [`ENV_SEGMENT_SIZE`].
///
/// # Errors
/// [`Error::Environment`].
pub fn segment_size(value: &str) -> Result<u64> {
    let bad = |problem: &str, fix| Error::Environment {
        name: ENV_SEGMENT_SIZE,
        value: value.to_owned(),
        problem: problem.into(),
        fix,
    };
    match parse_size(value) {
        None | Some(0) => {
            Err(bad("is not a size", "Give bytes, or a number with K, M, G or T, such as 512M"))
        }
        Some(..HUGE_PAGE) => Err(bad(
            "is less than 2 MiB, a huge page",
            "Give more, or unset it for as much as there is",
        )),
        Some(size) => Ok(size),
    }
}

/// Chooses the size of segments. Their heaps take at most `space` bytes in all, unless the user
/// asks for more. Gives a note if a limit makes them smaller than physical memory.
fn fit_segments(
    limit: usize,
    npes: usize,
    asked: Option<u64>,
    space: u64,
) -> Result<(Geometry, Option<String>)> {
    if npes == 0 || npes > limit {
        return Err(Error::TooMany { what: "PEs", limit, call: None });
    }
    let system = rustix::system::sysinfo();
    let physical = system.totalram as u64 * u64::from(system.mem_unit.max(1));
    let from_env =
        || settings::value(ENV_SEGMENT_SIZE).map(|value| segment_size(&value.to_string_lossy()));
    let asked = asked.map(Ok).or_else(from_env).transpose()?;
    let share = space / npes as u64;
    let mut heap = match asked {
        // The user's wish needs no note.
        Some(asked) => asked.min(ADDRESS_BUDGET_BYTES / npes as u64),
        // Nor does this: all heaps together exceed physical memory.
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
            // Aligning a segment may need a third of the address space, and a third is left to the
            // program itself. Globals take a quarter of the heap's size, and staging areas up to
            // another.
            let room = (limit / share).saturating_sub(overhead) / npes as u64 / 3 * 2;
            shrink(room / HUGE_PAGE * HUGE_PAGE, format!("{name} is {limit} bytes"));
        }
    }
    if heap < HUGE_PAGE {
        let why = reason.unwrap_or_else(|| format!("{heap} bytes are less than one huge page"));
        return Err(Error::system(
            "laying out segments",
            std::io::Error::other(format!("no room: {why}")),
            "Raise that limit, or start fewer PEs",
        ));
    }
    let geometry = Geometry::new(npes, heap).ok_or(Error::Overflow {
        index: npes,
        size: heap as usize,
        call: None,
    })?;
    let note = reason.map(|why| {
        format!(
            "each PE's segment holds {} MiB, not all of physical memory: {why}",
            geometry.heap_size() >> 20
        )
    });
    Ok((geometry, note))
}

/// Reads a size: a number, which may have a fraction, and a unit whose first letter counts.
pub fn parse_size(text: &str) -> Option<u64> {
    let (bytes, rest) = read_size(text)?;
    rest.chars().all(|c| c.is_ascii_alphabetic()).then_some(bytes)
}

/// Reads a size as OpenSHMEM defines it: whatever follows the unit is ignored.
pub fn parse_standard_size(text: &str) -> Option<u64> {
    read_size(text).map(|(bytes, _)| bytes)
}

/// The bytes of a size, rounded up, and what follows the unit.
fn read_size(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let number = |end: usize| Some((text.get(..end)?.parse::<f64>().ok()?, text.get(end..)?));
    let (number, rest) = (1..=text.len()).rev().find_map(number)?;
    let mut rest = rest.trim_start().chars();
    let shift = match rest.next().map(|c| c.to_ascii_uppercase()) {
        None | Some('B') => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some(_) => return None,
    };
    let bytes = (number * (1u64 << shift) as f64).ceil();
    (bytes < u64::MAX as f64).then_some((bytes as u64, rest.as_str()))
}

/// Whether a launcher, memonet's or another, has started this process as a PE, even as the only
/// one.
pub fn is_pe() -> bool {
    std::env::var_os(ENV_FD).is_some() || crate::lifecycle::foreign::is_launched()
}

/// CPUs in this process's affinity mask.
pub fn cpu_list() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    match set {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        // There are more CPUs than a `CpuSet` holds. std knows how many; their numbers matter only
        // for pinning.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, |n| n.get())).collect(),
    }
}

/// Number of CPUs that this process may keep busy: its affinity mask, cut by a cgroup's CPU quota.
pub fn available_cpus() -> usize {
    // std reads the mask, and both versions of cgroups.
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// CPUs that `pes` PEs of this node may use together. Where this process is bound to some, as one
/// of them, the others have equally many of their own.
pub fn cpus_of(pes: usize) -> usize {
    // SAFETY: reads a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    match available_cpus() {
        mine if mine < online => (mine * pes).min(online),
        mine => mine,
    }
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
            ("3.1M", 3250586),
            (".5m", 1 << 19),
            ("1e3", 1000),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_standard_size(text), Some(bytes), "{text}");
        }
        for bad in
            ["", "G", ".", "-1", "+1", "1Q", "12x", "1_", "1e400", "nan", "0x10", "99999999999T"]
        {
            assert_eq!((parse_size(bad), parse_standard_size(bad)), (None, None), "{bad}");
        }
        for (text, bytes) in [("20kk", 20 << 10), ("1G 2M", 1 << 30), ("1M/PE", 1 << 20)] {
            assert_eq!(parse_standard_size(text), Some(bytes), "{text}");
        }
        for text in ["1G 2M", "1M/PE"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn a_replica_follows_what_its_node_tells() {
        let job = JobFile::create_node(4, 2, 1, 8 << 20).unwrap();
        let departures = Departures::of(&job).unwrap();
        for pe in [2, 3] {
            job.replicate(pe, State::Joined);
            assert_eq!((job.state(pe), departures.count()), (State::Joined, 0));
        }
        job.replicate(2, State::Finalizing);
        job.replicate(2, State::Joined);
        job.replicate(2, State::Done);
        job.replicate(2, State::Finalizing);
        assert_eq!((job.state(2), departures.count()), (State::Done, 1));
        let dead = State::Dead(Cause::Host(crate::Lost::Silent));
        job.replicate(3, dead);
        job.replicate(2, dead);
        assert_eq!((job.state(2), job.state(3), departures.count()), (State::Done, dead, 2));
        job.exit(7);
        job.exit(8);
        assert_eq!((job.exit_status(), job.is_exiting(0)), (Some(7), false));
    }

    #[test]
    fn a_death_gets_its_place_once() {
        let job = JobFile::create_node(3, 2, 1, 8 << 20).unwrap();
        let departures = Departures::of(&job).unwrap();
        let (killed, ended) = (Cause::Signal(9), Cause::Exit(1));
        let deaths = || [0, 1, 2].map(|pe| job.control.death(pe));
        // The launcher is silent, then orders; a second order changes nothing.
        job.depart(1, killed);
        assert_eq!(deaths(), [None, Some((Place::LAST, killed)), None]);
        job.die(2, ended, Place::nth(1));
        job.die(1, killed, Place::nth(2));
        job.die(2, killed, Place::nth(3));
        let placed = [None, Some((Place::nth(2), killed)), Some((Place::nth(1), ended))];
        assert_eq!((deaths(), departures.count()), (placed, 2));
    }

    #[test]
    fn nodes_agree_on_the_least_heap() {
        let (most, _) = heap_size(4, None).unwrap();
        for heap in [most, most / 2, 2 << 20] {
            let (heap, _) = heap_size(4, Some(heap)).unwrap();
            assert_eq!(heap_size(4, Some(heap)).unwrap().0, heap);
            assert!(JobFile::create_node(4, 1, 1, heap).is_ok());
        }
        assert!(JobFile::create_node(4, 1, 1, 1).is_err(), "not rounded by everybody alike");
    }
}
