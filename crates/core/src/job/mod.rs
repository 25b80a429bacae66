//! Joining a job, and leaving it.

pub(crate) mod agree;
pub(crate) mod heap;

use crate::base::error::{Cause, Error, Result};
use crate::base::layout::MAX_PES;
use crate::base::memory;
use crate::base::settings;
use crate::base::status::{Part, State};
use crate::endpoint::check;
use crate::endpoint::control::Control;
use crate::endpoint::ending;
use crate::endpoint::fabric::{Fabric, far};
use crate::endpoint::pe::Pe;
use crate::hosted::attached;
use crate::lifecycle::adopt;
use crate::lifecycle::launch::{ENV_FD, ENV_NPES, ENV_PE, JobFile, available_cpus};
use crate::lifecycle::watch::{Identity, Watch};
use crate::multicast;
use crate::team::Team;
use crate::wait::polling;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::process::{Pid, Signal};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A PE's handle on its job. Cheap to clone; usable from every thread of the PE.
#[derive(Clone)]
pub struct Job {
    pub(crate) pe: Arc<Pe>,
    pub(crate) world: Arc<Team>,
}

/// How [`Job::threads_with`] sets up its job.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    fabric: Option<String>,
    check: Option<bool>,
}

impl JobOptions {
    /// All peers Near.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a fabric before all peers, written as in `MEMONET_FABRIC`: `far` or
    /// `far:delay_us=50,reorder=1,seed=7`.
    pub fn fabric(mut self, spec: &str) -> Self {
        self.fabric = Some(spec.into());
        self
    }

    /// Turns the checks that cost time on or off, whatever `MEMONET_CHECK` says.
    pub fn check(mut self, check: bool) -> Self {
        self.check = Some(check);
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
    pub fn init() -> Result<Job> {
        let _one_at_a_time = JOINING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(job) = JOINED.get() {
            return Ok(job.clone());
        }
        let fabric = far::Spec::from_env()?;
        let (control, me, watch) = match std::env::var_os(ENV_FD) {
            Some(_) => inherit()?,
            None => match lost_descriptor().map_or_else(adopt::found, Err)? {
                Some(adopted) => {
                    warn_of_unknown_settings(adopted.rank());
                    adopted.join()?
                }
                None => {
                    warn_of_unknown_settings(0);
                    (JobFile::create(1, available_cpus())?.into_control()?, 0, None)
                }
            },
        };
        control.say_own_segment(me);
        let mine = Identity::mine();
        if control.step(me, State::Empty, State::Joined) {
            match mine {
                Some(mine) => control.introduce(me, mine),
                None => control.set_pid(me),
            }
        } else if mine.is_some_and(|mine| control.is_left_to_successor(me, mine)) {
            control.forget_globals(me);
        } else {
            return Err(Error::Misuse(
                "this PE has joined its job already, in another process: a program that a PE starts cannot be that PE too; unset MEMONET_JOB_FD, MEMONET_PE and MEMONET_NPES for it",
            ));
        }
        let control = Arc::new(control);
        let fabric = match attached::join(me, control.geometry().npes)? {
            Some(machine) => Some(machine),
            None => fabric.map(|spec| spec.before_all(control.clone(), me)),
        };
        let job = Job::from_control(control, me, fabric, watch, check::asked()?)?;
        finalize_at_exit();
        Ok(JOINED.get_or_init(|| job).clone())
    }

    pub(crate) fn from_control(
        control: Arc<Control>,
        me: usize,
        fabric: Option<Box<dyn Fabric>>,
        watch: Option<Watch>,
        check: bool,
    ) -> Result<Job> {
        ending::tell_children()?;
        // Now, not when the first channel is made.
        multicast::check_setting()?;
        let pe = Arc::new(Pe::new(control, me, fabric, watch).with_checks(check));
        let world = Arc::new(Team::world(&pe)?);
        Ok(Job { pe, world })
    }

    /// Runs `f` on `n` PEs that are threads of this process: the same library, without a launcher.
    /// For tests, examples, notebooks. Gives what each PE returned, by PE.
    ///
    /// A panic in one PE is its death: the others' waits end with [`Error::PeerFailed`]; when all
    /// have ended, the panic goes on here.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
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
            return Err(Error::Misuse("a job has at least one PE"));
        }
        let fabric = options.fabric.as_deref().map(far::Spec::parse).transpose()?;
        let check = options.check.map_or_else(check::asked, Ok)?;
        let control =
            Arc::new(JobFile::create_within(MAX_PES, n, available_cpus(), None)?.into_control()?);
        let jobs = (0..n)
            .map(|me| {
                let fabric = fabric.map(|spec| spec.before_all(control.clone(), me));
                Job::from_control(control.clone(), me, fabric, None, check)
            })
            .collect::<Result<Vec<_>>>()?;
        let first_panic = Mutex::new(None);
        let run = |job: Job| {
            let (pe, control) = (job.pe.clone(), &control);
            control.step(pe.me(), State::Empty, State::Joined);
            control.set_pid(pe.me());
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(job))) {
                Ok(result) => {
                    // Errors that surface only here belong to writes whose PE did not care to wait
                    // for them.
                    drop(pe.finalize());
                    Some(result)
                }
                Err(panic) => {
                    // Kept before anybody can panic because of it.
                    first_panic
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .get_or_insert(panic);
                    control.depart(pe.me(), State::Dead(Cause::Panic));
                    None
                }
            }
        };
        let results: std::io::Result<Vec<Option<R>>> = std::thread::scope(|scope| {
            let start = |(me, job): (usize, Job)| {
                let started = std::thread::Builder::new()
                    .name(format!("PE {me}"))
                    .spawn_scoped(scope, || run(job));
                // Those that run are not to wait for one that never will.
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

    /// This PE's number.
    pub fn pe(&self) -> usize {
        self.pe.me()
    }

    /// Number of PEs in the job.
    pub fn npes(&self) -> usize {
        self.pe.npes()
    }

    /// Whether a PE's memory is mapped into this process, so that a store to it is a store.
    ///
    /// # Panics
    /// When there is no such PE.
    pub fn is_near(&self, pe: usize) -> bool {
        assert!(pe < self.npes(), "there is no PE {pe} in a job of {}", self.npes());
        self.pe.is_near(pe)
    }

    /// Whether a pointer into this PE's own segment means the same on all PEs: `None`, unless they
    /// have theirs at different addresses, and this is the PE that is to say so. Then why. To be
    /// called when all PEs have joined, each in a process of its own.
    pub fn why_apart(&self) -> Option<String> {
        self.pe.control().why_apart(self.pe())
    }

    /// Name of the way to far peers; `None` when all are near.
    pub fn fabric(&self) -> Option<&'static str> {
        self.pe.has_far().then(|| self.pe.fabric().name())
    }

    /// Whether mistakes are looked for that it costs time to find, as `MEMONET_CHECK=1` asks for: a
    /// collective that members call with different arguments, or in place of another one; a lock or
    /// mutex that a thread takes twice.
    pub fn is_checked(&self) -> bool {
        self.pe.is_checked()
    }

    /// The team of all PEs.
    pub fn world(&self) -> &Team {
        &self.world
    }

    /// [`Team::team`] of [`world`](Self::world).
    ///
    /// # Errors
    /// See there.
    pub fn team(&self, pes: &[usize]) -> Result<Option<Team>> {
        self.world.team(pes)
    }

    /// Completes this PE's writes, then waits until all PEs are here. *Collective.*
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when a PE is gone.
    pub fn barrier(&self) -> Result<()> {
        self.world.barrier()
    }

    /// Orders this PE's writes: those before become visible at each PE before those after. Costs
    /// next to nothing on near peers.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn fence(&self) -> Result<()> {
        Ok(self.pe.fence()?)
    }

    /// Completes this PE's writes: all of them are visible at their targets.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn quiet(&self) -> Result<()> {
        Ok(self.pe.quiet()?)
    }

    /// Whether all of this PE's writes are visible at their targets, without waiting for it.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn is_quiet(&self) -> Result<bool> {
        match self.pe.has_far() {
            true => {
                self.pe.fabric().is_quiet().inspect(|&quiet| polling::has_looked(&self.pe, quiet))
            }
            // Visible in the order they were made; what follows this sees them.
            false => self.quiet().map(|()| true),
        }
    }

    /// Says that the program computes for so many nanoseconds. On a simulated machine that time
    /// passes; on a real one it passes by itself.
    pub fn compute(&self, ns: u64) {
        if let Some(clock) = self.pe.clock() {
            clock.compute(Duration::from_nanos(ns));
        }
    }

    /// Leaves the job in order. Happens by itself when the process ends with exit status 0.
    ///
    /// PEs that wait for this one afterwards get [`Error::PeerFailed`] with [`Cause::Finalized`].
    /// Writes to near peers stay possible; with far peers, returns when every PE has finalised.
    ///
    /// # Errors
    /// What an earlier write failed with. [`Error::Misuse`] while a block of a multicast channel is
    /// shown by a [`Peek`](crate::Peek) and not popped: its memory would be given away.
    pub fn finalize(&self) -> Result<()> {
        if self.pe.is_this_process() && self.pe.shows_memory() {
            return Err(Error::Misuse(
                "a block of a multicast channel is still being read: pop it, or drop the channel, before `finalize`",
            ));
        }
        self.pe.finalize()
    }

    /// Ends the whole job: this process exits with `status`, as by `exit`, and the launcher ends
    /// the other PEs, at once, and exits with it. The first PE that asks for it decides on the
    /// status. A job that has no launcher ends with this process. Under another launcher than
    /// memonet's, the others end by themselves, in their next call that waits. A launcher of
    /// memonet waits a few seconds for the exit handlers of a PE that has asked, and then ends it
    /// too.
    pub fn exit(&self, status: u8) -> ! {
        if ending::is_under_way() {
            ending::end(status);
        }
        let control = self.pe.control();
        control.ask_to_exit(self.pe(), status, self.pe.is_this_process());
        let status = control.exit_status().unwrap_or(status);
        if self.pe.is_watched() {
            call_launcher(control.launcher());
        } else {
            control.depart(self.pe(), State::Dead(Cause::Exit(status.into())));
        }
        ending::end(status)
    }

    /// Says whether this PE takes part in anything now: while it does not, an end with status 0 is
    /// in order, even by `_exit` or as another program; and after it has, no other end concerns the
    /// others. For front ends that let programs leave and come back; at first it does.
    ///
    /// A process that does not take part yet leaves its place to the program that it becomes: one
    /// that joins early, and then calls `execve`, has not joined for that one.
    ///
    /// # Errors
    /// [`Error::Misuse`] in a process that is [not the PE](crate::endpoint::ending).
    pub fn take_part(&self, part: Part) -> Result<()> {
        ending::take_part(&self.pe, part)?;
        self.pe.control().mapping().hand_down(part == Part::NotYet);
        Ok(())
    }

    /// Whether a PE has asked for the end of the whole job: what fails now fails because of that.
    pub fn is_exiting(&self) -> bool {
        self.pe.control().exit_status().is_some()
    }

    /// What a PE does that finds out by an error that the job [is being ended](Self::is_exiting):
    /// nothing, until the launcher ends it too; another launcher does not, so there it ends by
    /// itself.
    pub fn await_exit(&self) -> ! {
        if ending::is_under_way() || !self.pe.is_watched() || !self.pe.is_this_process() {
            self.exit(0);
        }
        loop {
            std::thread::park();
        }
    }
}

/// Has the launcher look at the control page, by a signal that says nothing to any other process.
/// Where it cannot be sent (the launcher has another number here, or another user), the launcher
/// looks when this process has ended.
fn call_launcher(pid: u32) {
    if let Some(launcher) =
        Pid::from_raw(pid as i32).filter(|&pid| pid != rustix::process::getpid())
    {
        let _ = rustix::process::kill_process(launcher, Signal::CHILD);
    }
}

/// What to do about an environment in which no PE can be.
const HOW_TO_START: &str = "Start the program with `memonet run`; or unset MEMONET_JOB_FD, MEMONET_PE and MEMONET_NPES to run it alone";

/// Without the job's descriptor, what says that this process is one of its PEs: alone, each would
/// believe that it is the only one.
fn lost_descriptor() -> Option<Error> {
    [ENV_PE, ENV_NPES].into_iter().find_map(|name| {
        Some(Error::Environment {
            name,
            value: std::env::var_os(name)?.to_string_lossy().into_owned(),
            problem: format!("is set without {ENV_FD}, by which a PE finds its job"),
            fix: HOW_TO_START,
        })
    })
}

/// Takes the job that a launcher handed down, believing nothing.
fn inherit() -> Result<(Control, usize, Option<Watch>)> {
    let number = |name: &'static str| -> Result<usize> {
        let value = std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
        value.parse().map_err(|_| Error::Environment {
            name,
            value,
            problem: "is not a number".into(),
            fix: HOW_TO_START,
        })
    };
    let (fd, me, npes) = (number(ENV_FD)?, number(ENV_PE)?, number(ENV_NPES)?);
    let bad_fd = |problem: String| Error::Environment {
        name: ENV_FD,
        value: fd.to_string(),
        problem,
        fix: HOW_TO_START,
    };
    if me >= npes {
        let problem = format!("is not below {ENV_NPES}={npes}");
        return Err(Error::Environment {
            name: ENV_PE,
            value: me.to_string(),
            problem,
            fix: HOW_TO_START,
        });
    }
    let fd = std::mem::ManuallyDrop::new(inherited(fd).map_err(|problem| bad_fd(problem.into()))?);
    let size = memory::sealed_size(&*fd).map_err(bad_fd)?;
    let control = Control::attach(std::mem::ManuallyDrop::into_inner(fd), size, npes, me)?;
    // What this PE starts is not part of the job.
    rustix::io::fcntl_setfd(control.mapping().fd(), rustix::io::FdFlags::CLOEXEC)
        .map_err(|e| Error::system("fcntl", e, ""))?;
    Ok((control, me, None))
}

/// Tells of variables that nobody reads, once a job: the launcher does, where it is memonet's.
fn warn_of_unknown_settings(me: usize) {
    if me == 0 {
        for complaint in settings::complaints(std::env::vars_os().map(|(name, _)| name)) {
            eprintln!("memonet: {complaint}");
        }
    }
}

/// Takes the descriptor that the environment names by this number; or says what is wrong with it.
pub(crate) fn inherited(number: usize) -> std::result::Result<OwnedFd, &'static str> {
    let raw = i32::try_from(number).ok().filter(|&raw| raw > 2);
    let raw = raw.ok_or("cannot be the job's descriptor")?;
    // SAFETY: only asks the kernel whether there is such a descriptor; an integer that is none is
    // answered with an error.
    if unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
        return Err(
            "is not an open descriptor: a program in between has closed it, or has taken part in the job before it became this one",
        );
    }
    // SAFETY: the descriptor is open, and nobody else in this process owns it: it came with the
    // environment that names it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Finalises when the process ends in order. An exit status other than 0 is a failure, which the
/// launcher publishes.
fn finalize_at_exit() {
    extern "C" fn at_exit(status: libc::c_int, _: *mut libc::c_void) {
        let Some(job) = JOINED.get() else { return };
        ending::set_exits();
        // Nobody is to be waited for when all are to end.
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

    /// On near peers, too, what a guard could not return when it was dropped.
    #[test]
    fn what_could_not_be_returned_surfaces_at_the_next_quiet() {
        let quiets = Job::threads(1, |job| {
            job.pe.surface_later(Error::Misuse("late"));
            [(); 2].map(|()| job.quiet())
        });
        let quiets = quiets.unwrap().remove(0);
        assert!(matches!(quiets, [Err(Error::Misuse("late")), Ok(())]), "{quiets:?}");
    }

    /// Forks. Gives whether `f` gave true in the child.
    fn in_child(f: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child is one thread, which uses libc's allocator, usable after fork, and no
        // lock that another thread can have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = f();
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: `status` lives on this stack frame.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    fn is_misuse<T>(result: Result<T>) -> bool {
        matches!(result, Err(Error::Misuse(_)))
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
    fn a_forked_process_meets_nobody() {
        let met = Job::threads(1, |job| {
            assert!(in_child(|| is_misuse(job.barrier()) && is_misuse(job.window::<u64>(1))));
            assert!(in_child(
                || is_misuse(job.take_part(Part::NoMore)) && is_misuse(job.take_part(Part::Taking))
            ));
            (job.pe.control().part(0), job.barrier().is_ok())
        });
        assert_eq!(met.unwrap(), [(Part::Taking, true)]);
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
            // Still free.
            free.lock().unwrap().release().unwrap();
            window.read(2)
        });
        assert_eq!(written.unwrap(), [7]);
    }

    /// A C program joins when it is loaded. The process that initialises is the PE.
    #[test]
    fn a_forked_process_may_take_the_place_of_a_parent_that_takes_no_part_yet() {
        let ended = Job::threads(1, |job| {
            job.take_part(Part::NotYet).unwrap();
            let takes_part = || job.take_part(Part::Taking).is_ok() && job.barrier().is_ok();
            assert!(in_child(takes_part));
            // One process has been the PE; its parent cannot be it too.
            assert!(is_misuse(job.take_part(Part::Taking)));
            job.pe.control().process(0) != Some(std::process::id() as i32)
        });
        assert_eq!(ended.unwrap(), [true]);
    }
}
