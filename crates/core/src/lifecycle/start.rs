//! Joining a job.

use super::inherit::{inherit, lost_descriptor};
use super::launch::{JobFile, available_cpus, cpu_list};
use super::life::live;
use super::watch::Watch;
use super::wired::Place;
use super::{alike, foreign};
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::MAX_PES;
use crate::base::lock;
use crate::base::log::{self, log};
use crate::base::process::Identity;
use crate::base::settings::{self, ENV_FD};
use crate::base::shows;
use crate::base::status::State;
use crate::endpoint::calls;
use crate::endpoint::check;
use crate::endpoint::control::Control;
use crate::endpoint::descriptor::Descriptor;
use crate::endpoint::ending;
use crate::endpoint::fabric::Fabric;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Watcher;
use crate::endpoint::recorder::file::{self as record, RecordFile};
use crate::endpoint::recorder::part::Part;
use crate::job::Job;
use crate::multicast;
use crate::sync::barrier::Algorithm;
use crate::team::Team;
use crate::team::forced::Forced;
use crate::wait;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A PE's place in a job that it joins. A fabric is made from it.
#[derive(Clone)]
pub struct Seat {
    control: Arc<Control>,
    me: usize,
    descriptor: Arc<Descriptor>,
}

shows!([] Seat as "Seat", |it| pe = it.me);

impl Seat {
    pub(crate) fn new(control: Arc<Control>, me: usize) -> Self {
        Seat { control, me, descriptor: Arc::default() }
    }

    /// The PE's number.
    pub fn pe(&self) -> usize {
        self.me
    }

    /// Number of PEs in the job.
    pub fn npes(&self) -> usize {
        self.control.geometry().npes
    }

    /// What tells the job from others of this machine.
    pub fn job(&self) -> u64 {
        self.control.job_id()
    }

    /// CPUs that the PEs of this node may use.
    pub fn cpus(&self) -> usize {
        self.control.cpus()
    }

    /// The cause of a PE's departure, if it is gone. A fabric that blocks in a call checks this,
    /// because only waits outside of the fabric call [`Fabric::departed`].
    ///
    /// # Panics
    /// When there is no such PE.
    pub fn departed(&self, pe: usize) -> Option<Cause> {
        self.control.departure(pe)
    }

    /// Address and bytes of this PE's own segment: offsets of region 0 at this PE count from there.
    pub fn segment(&self) -> (*mut u8, u64) {
        let geometry = self.control.geometry();
        (self.control.mapping().at(geometry.segment(self.me)), geometry.segment_stride)
    }

    /// Wakes this PE's waits, if they sleep. Called after a fabric has delivered to its segment.
    pub fn wake(&self) {
        if self.control.wake(self.me) {
            self.descriptor.nudge();
        }
    }

    /// Whether the launcher asks what waits are for, and this thread has not answered.
    pub fn is_asked(&self) -> bool {
        wait::answer::is_open(&self.control)
    }

    /// Answers the launcher, for a call of the fabric that has waited for a peer since that moment,
    /// by [`monotonic`](crate::unstable::monotonic). `outstanding`: what the peer has still to do.
    /// The caller holds no lock: the answer may wait for a lock of the front end's.
    pub fn answer(&self, peer: u32, since: Duration, outstanding: String) {
        wait::answer::answer_for_peer(&self.control, self.me, peer as usize, since, outstanding);
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }
}

/// Makes the fabric of one PE.
type Connect = dyn Fn(&Seat) -> Result<Box<dyn Fabric>> + Send + Sync;

/// How [`Job::threads_with`] sets up its job.
#[derive(Clone, Default)]
pub struct JobOptions {
    fabric: Option<Arc<Connect>>,
    check: Option<bool>,
    record: Option<Arc<RecordFile>>,
}

shows!([] JobOptions as "JobOptions", |it| fabric = it.fabric.is_some(), check = it.check);

impl JobOptions {
    /// All peers are near.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a fabric before the peers of each PE: `connect` makes it. It does not wait for those of
    /// other PEs, which are made one after the other.
    pub fn fabric(
        mut self,
        connect: impl Fn(&Seat) -> Result<Box<dyn Fabric>> + Send + Sync + 'static,
    ) -> Self {
        self.fabric = Some(Arc::new(connect));
        self
    }

    /// Turns the checks that cost time on or off, whatever `MEMONET_CHECK` says.
    pub fn check(mut self, check: bool) -> Self {
        self.check = Some(check);
        self
    }

    /// For launchers and tests: has all PEs record into this file, which has a part for each.
    pub fn record(mut self, file: Arc<RecordFile>) -> Self {
        self.record = Some(file);
        self
    }
}

/// The job of this process, once it has joined.
static JOINED: OnceLock<Job> = OnceLock::new();
static JOINING: Mutex<()> = Mutex::new(());

impl Job {
    /// Joins the job in which this process was started: by `memonet run`, or alone as a job of one
    /// PE. A second call gives the same job.
    ///
    /// When the process ends with exit status 0 it finalises by itself; any other end is a failure
    /// that the other PEs see.
    ///
    /// # Errors
    /// [`Error::Environment`], [`Error::ControlPage`], [`Error::ForeignLauncher`],
    /// [`Error::System`]: each says what to do.
    ///
    /// Another launcher's PEs on several hosts find their places by `wire_up`, which gives none
    /// where that launcher has started one process alone.
    pub fn init_with(
        wire_up: impl FnOnce() -> Result<Option<Place>>,
        connect: impl FnOnce(&Seat) -> Result<Option<Box<dyn Fabric>>>,
    ) -> Result<Job> {
        let _one_at_a_time = lock(&JOINING);
        if let Some(job) = JOINED.get() {
            return Ok(job.clone());
        }
        // Bad settings are refused before this PE has joined: then it may try again.
        let check = check::asked()?;
        check_settings()?;
        let is_ours = std::env::var_os(ENV_FD).is_some();
        let (control, me, watch) = match is_ours {
            true => {
                let (control, me) = inherit()?;
                (control, me, None)
            }
            false => lost_descriptor().map_or_else(|| without_launcher(wire_up), Err)?,
        };
        alike::compare(&control)?;
        control.publish_own_segment(me);
        let mine = Identity::mine();
        if control.step(me, State::Empty, State::Joined) {
            match mine {
                Some(mine) => control.introduce(me, mine),
                None => control.set_pid(me),
            }
        } else if mine.is_some_and(|mine| control.is_left_to_successor(me, mine)) {
            control.forget_globals(me);
        } else {
            return Err(Error::misuse(
                "this PE has joined its job already, in another process, or by another copy of the library in this one: a program that a PE starts cannot be that PE too; unset MEMONET_JOB_FD, MEMONET_PE and MEMONET_NPES for it. A program that uses the C library cannot use Python's module, too",
            ));
        }
        let seat = Seat::new(Arc::new(control), me);
        let fabric = connect(&seat)?;
        let watch = watch.map(|watch| Box::new(watch) as Box<dyn Watcher>);
        let part = record::inherited(seat.me, seat.npes())?;
        calls::last::publish(seat.control(), me);
        let job = Job::at(seat, fabric, watch, check, part)?;
        if !is_ours && job.npes() > 1 {
            wait::quit::attend(&job.pe);
        }
        finalize_at_exit();
        Ok(JOINED.get_or_init(|| job).clone())
    }

    pub(crate) fn at(
        seat: Seat,
        fabric: Option<Box<dyn Fabric>>,
        watch: Option<Box<dyn Watcher>>,
        check: bool,
        part: Option<Part>,
    ) -> Result<Job> {
        ending::mark_children()?;
        let pe = Pe::new(seat.control, seat.me, fabric, watch);
        let pe = pe.with_checks(check).with_descriptor(seat.descriptor).with_recorder(part);
        let pe = Arc::new(pe);
        wait::state::begin(&pe);
        tell_of_start(&pe);
        let world = Arc::new(Team::world(&pe)?);
        Ok(Job { pe, world })
    }

    /// Runs `f` on `n` PEs that are threads of this process: the same library, without a launcher.
    /// For tests, examples, notebooks. Gives what each PE returned, by PE.
    ///
    /// A panic in one PE is its death: waits of the other PEs end with [`Error::PeerFailed`]. When
    /// all have ended, the panic continues here.
    ///
    /// # Errors
    /// As for [`init_with`](Self::init_with).
    ///
    /// ```
    /// use memonet_core::{Cmp, Job};
    ///
    /// let sums = Job::threads(4, |job| -> memonet_core::Result<u64> {
    ///     let w = job.window::<u64>(job.npes())?;
    ///     for pe in 0..job.npes() {
    ///         w.remote(pe, job.pe())?.store(job.pe() as u64 + 1);
    ///     }
    ///     let all: Vec<usize> = (0..job.npes()).collect();
    ///     w.wait_until_all(&all, Cmp::Ne, 0)?;
    ///     Ok(all.iter().map(|&i| w.read(i)).sum())
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, 10);
    /// }
    /// # Ok::<(), memonet_core::Error>(())
    /// ```
    pub fn threads<R: Send>(n: usize, f: impl Fn(Job) -> R + Sync) -> Result<Vec<R>> {
        Self::threads_with(&JobOptions::new(), n, f)
    }

    /// [`threads`](Self::threads) with options.
    ///
    /// # Errors
    /// As for [`threads`](Self::threads), and [`Error::Environment`] for a fabric that does not
    /// exist.
    pub fn threads_with<R: Send>(
        options: &JobOptions,
        n: usize,
        f: impl Fn(Job) -> R + Sync,
    ) -> Result<Vec<R>> {
        if n == 0 {
            return Err(Error::misuse("a job has at least one PE"));
        }
        let check = options.check.map_or_else(check::asked, Ok)?;
        check_settings()?;
        let control =
            Arc::new(JobFile::create_within(MAX_PES, n, available_cpus(), None)?.into_control()?);
        let jobs = (0..n)
            .map(|me| {
                let seat = Seat::new(control.clone(), me);
                let fabric = options.fabric.as_ref().map(|connect| connect(&seat)).transpose()?;
                let record = options.record.as_ref().map(|file| file.part(me)).transpose()?;
                Job::at(seat, fabric, None, check, record)
            })
            .collect::<Result<Vec<_>>>()?;
        let first_panic = Mutex::new(None);
        let run = |job: Job| {
            control.step(job.pe(), State::Empty, State::Joined);
            control.set_pid(job.pe());
            live(job, &f, |panic| {
                lock(&first_panic).get_or_insert(panic);
            })
        };
        let results: std::io::Result<Vec<Option<R>>> = std::thread::scope(|scope| {
            let start = |(me, job): (usize, Job)| {
                let started = std::thread::Builder::new()
                    .name(format!("PE {me}"))
                    .spawn_scoped(scope, || run(job));
                // PEs that run must not wait for one that never starts.
                started.inspect_err(|_| {
                    control.depart(me, State::Dead(Cause::Exit(1)));
                })
            };
            let threads: Vec<_> = jobs.into_iter().enumerate().map(start).collect();
            let end = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Option<R>>>| {
                let result = thread?.join().expect("panics were caught");
                Ok::<_, std::io::Error>(result)
            };
            let ends: Vec<_> = threads.into_iter().map(end).collect();
            ends.into_iter().collect()
        });
        if let Some(panic) =
            first_panic.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
        {
            std::panic::resume_unwind(panic);
        }
        let results = results.map_err(|e| {
            Error::system("starting a thread for each PE", e, "Run fewer PEs, or raise `ulimit -u`")
        })?;
        Ok(results.into_iter().map(|result| result.expect("only a panic gives none")).collect())
    }
}

/// Where a PE is, and what follows from that.
fn tell_of_start(pe: &Pe) {
    let (me, near) = (pe.me(), (0..pe.npes()).filter(|&other| pe.is_near(other)).count());
    let heap = pe.control().geometry().segment_stride >> 20;
    log!(
        Info,
        me,
        "one of {}, {near} of them near; {heap} MiB of memory; process {}",
        pe.npes(),
        std::process::id()
    );
    match pe.far_fabric() {
        Some(fabric) => log!(Info, me, "reaches the others by the fabric {}", fabric.name()),
        None => log!(Info, me, "needs no fabric: all PEs share this machine's memory"),
    }
    if !pe.is_simulated() {
        log!(Info, me, "may use CPUs {:?}; {}", cpu_list(), wait::described(pe));
    }
    for setting in settings::all() {
        if let Some(value) = std::env::var_os(setting.name) {
            log!(Info, me, "{}={}", setting.name, value.to_string_lossy());
        }
    }
}

/// Joins a job that memonet's launcher has not started: of another launcher, or of this PE alone.
fn without_launcher(
    wire_up: impl FnOnce() -> Result<Option<Place>>,
) -> Result<(Control, usize, Option<Watch>)> {
    let found = foreign::found();
    if let Ok(Some(adopted)) = &found {
        warn_of_unknown_settings(adopted.rank());
        return adopted.join();
    }
    let may_be_several = found.is_err() || foreign::tells_no_size();
    if may_be_several
        && foreign::has_connection()
        && let Some(place) = wire_up()?
    {
        warn_of_unknown_settings(place.pe);
        return place.join();
    }
    found?;
    warn_of_unknown_settings(0);
    Ok((JobFile::create(1, available_cpus())?.into_control()?, 0, None))
}

/// Refuses bad settings at the start, not when they are first used.
fn check_settings() -> Result<()> {
    log::begin()?;
    multicast::check_setting()?;
    Forced::asked()?;
    Algorithm::forced(1)?;
    Ok(())
}

/// Warns of variables that memonet does not read, once a job. Memonet's own launcher does this for
/// its jobs.
fn warn_of_unknown_settings(me: usize) {
    if me == 0 {
        for complaint in settings::complaints(std::env::vars_os().map(|(name, _)| name)) {
            eprintln!("memonet: {complaint}");
        }
    }
}

/// Makes the PE finalise when its process ends with status 0. Any other status is a failure, which
/// the launcher publishes.
fn finalize_at_exit() {
    extern "C" fn at_exit(status: libc::c_int, _: *mut libc::c_void) {
        let Some(job) = JOINED.get() else { return };
        ending::set_exits();
        // A job that is to end must not wait for its PEs.
        if status == 0 && !job.is_exiting() {
            if let Err(error) = job.pe.finalize() {
                eprintln!("memonet: PE {}: {error}", job.pe());
            }
        } else if !job.pe.is_watched() && job.pe.is_this_process() {
            job.pe.control().depart(job.pe(), State::Dead(Cause::Exit(status)));
        }
    }
    unsafe extern "C" {
        fn on_exit(
            function: extern "C" fn(libc::c_int, *mut libc::c_void),
            argument: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the function has the C signature that glibc calls, uses no argument, and stays loaded
    // until the process ends.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::status::Participation;

    /// Even if all peers are near: a dropped guard may have had an error.
    #[test]
    fn late_errors_surface_at_the_next_quiet() {
        let quiets = Job::threads(1, |job| {
            job.pe.surface_later(Error::misuse("late"));
            [(); 2].map(|()| job.quiet())
        });
        let quiets = quiets.unwrap().remove(0);
        assert!(matches!(quiets, [Err(Error::Misuse { why: "late", .. }), Ok(())]), "{quiets:?}");
    }

    /// Runs `f` in a forked child, and gives its result.
    fn in_child(f: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child has one thread. It uses libc's allocator, which works after a fork, and
        // no lock that another thread can hold.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = f();
            // SAFETY: ends the child without the parent's handlers.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    fn is_misuse<T>(result: Result<T>) -> bool {
        matches!(result, Err(Error::Misuse { .. }))
    }

    #[test]
    fn a_forked_process_does_not_finalise_its_parent() {
        let finalised = Job::threads(1, |job| {
            assert!(in_child(|| job.finalize().is_ok()));
            job.pe.control().state(0)
        });
        assert_eq!(finalised.unwrap(), [State::Joined]);
    }

    #[test]
    fn a_forked_process_takes_part_in_nothing() {
        let met = Job::threads(1, |job| {
            assert!(in_child(|| is_misuse(job.barrier()) && is_misuse(job.window::<u64>(1))));
            assert!(in_child(|| is_misuse(job.take_part(Participation::NoMore))
                && is_misuse(job.take_part(Participation::Taking))));
            (job.pe.control().part(0), job.barrier().is_ok())
        });
        assert_eq!(met.unwrap(), [(Participation::Taking, true)]);
    }

    /// Not even where all that it would wait for has come.
    #[test]
    fn a_forked_process_makes_no_team() {
        let made = Job::threads(2, |job| {
            let ready = job.window::<u64>(1).unwrap();
            if job.pe() == 1 {
                ready.wait_until(0, crate::Cmp::Eq, 1).unwrap();
            } else {
                // PE 1 has called by now, or soon has. The child's call would be its answer.
                ready.remote(1, 0).unwrap().store(1);
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert!(in_child(|| is_misuse(job.team_among(&[0, 1]))));
            }
            let team = job.team_among(&[0, 1]).unwrap();
            (team.members().to_vec(), team.barrier().is_ok())
        });
        assert_eq!(made.unwrap(), [(vec![0, 1], true), (vec![0, 1], true)]);
    }

    #[test]
    fn a_forked_process_writes_but_neither_takes_locks_nor_gives_them_back() {
        let written = Job::threads(1, |job| {
            let window = job.window::<u64>(3).unwrap();
            let (free, held) = (window.lock(0).unwrap(), window.lock(1).unwrap());
            let guard = held.lock().unwrap();
            assert!(in_child(|| is_misuse(free.lock())
                && is_misuse(free.try_lock())
                && is_misuse(guard.release())));
            assert!(in_child(|| window.put_one(0, 2, 7).is_ok() && job.quiet().is_ok()));
            // The child has not taken the lock.
            free.lock().unwrap().release().unwrap();
            window.read(2)
        });
        assert_eq!(written.unwrap(), [7]);
    }

    #[test]
    fn a_forked_process_neither_ends_nor_arms_its_parents_events() {
        let ended = Job::threads(1, |job| {
            let words = job.window::<u64>(1).unwrap();
            let mut event = words.event(0, crate::Cmp::Ne, 0).unwrap();
            assert!(in_child(|| is_misuse(event.result())
                && is_misuse(event.arm(crate::Cmp::Eq, 0))
                && is_misuse(words.event(0, crate::Cmp::Ne, 0))));
            assert!(event.result().unwrap().is_none(), "it waits on");
            words.write(0, 5);
            while event.result().unwrap().is_none() {
                std::thread::yield_now();
            }
            event.result().unwrap()
        });
        assert_eq!(ended.unwrap(), [Some(5)]);
    }

    #[test]
    fn a_forked_process_writes_no_value_of_a_collective() {
        let sums = Job::threads(1, |job| {
            assert!(in_child(|| is_misuse(job.world().all_reduce(crate::Sum, 1))));
            job.world().all_reduce(crate::Sum, 2).unwrap()
        });
        assert_eq!(sums.unwrap(), [2]);
    }

    #[test]
    fn a_forked_process_answers_no_call_for_attention() {
        let ended = Job::threads(1, |job| {
            let words = job.window::<u64>(1).unwrap();
            let attention = job.attention();
            attention.set_hook(|_| panic!("this process is not the PE"));
            attention.call();
            let waits = || words.wait_until(0, crate::Cmp::Ne, 0);
            assert!(in_child(|| is_misuse(waits())));
            attention.set_hook(|_| std::ops::ControlFlow::Break(()));
            matches!(waits(), Err(Error::Interrupted { .. }))
        });
        assert_eq!(ended.unwrap(), [true]);
    }

    /// The C library that is loaded into a process whose Python module takes part already.
    #[test]
    fn two_copies_of_the_library_do_not_take_part_in_one_process() {
        let ended = Job::threads(1, |job| {
            job.take_part(Participation::NotYet).unwrap();
            job.take_part(Participation::Taking).unwrap();
            let refused = is_misuse(job.take_part(Participation::Taking));
            // A copy that has left may come back.
            job.take_part(Participation::NoMore).unwrap();
            job.take_part(Participation::Taking).unwrap();
            refused && job.barrier().is_ok()
        });
        assert_eq!(ended.unwrap(), [true]);
    }

    /// A C program joins when it is loaded. The process that initialises is the PE.
    #[test]
    fn a_forked_process_may_take_the_place_of_a_parent_that_takes_no_part_yet() {
        let ended = Job::threads(1, |job| {
            job.take_part(Participation::NotYet).unwrap();
            let takes_part =
                || job.take_part(Participation::Taking).is_ok() && job.barrier().is_ok();
            assert!(in_child(takes_part));
            // The child has been the PE, so its parent cannot be.
            assert!(is_misuse(job.take_part(Participation::Taking)));
            job.pe.control().process(0) != Some(std::process::id() as i32)
        });
        assert_eq!(ended.unwrap(), [true]);
    }
}
