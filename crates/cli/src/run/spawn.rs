//! Starts one PE: a child that shares this process's memory until its `execve`, as with
//! `posix_spawn`. Unlike there, the child dies with the launcher, is bound to its CPUs, and reports
//! which step failed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use anyhow::{Context, Result};
use memonet_core::unstable::launch::JobFile;
use memonet_core::unstable::settings::ENV_AGENT_FD;
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Rlimit, WaitId, WaitIdOptions, waitid};
use rustix::thread::CpuSet;

use super::guard::Guard;
use super::limits::why_no_process;
use super::program::{CannotStart, Image, c_string};
use super::signals::{self, Signals};
use super::spec::Options;

/// A started PE.
pub struct Child {
    /// Its process.
    pub pid: Pid,
    /// A descriptor of its process, which becomes readable at its end.
    pub pidfd: OwnedFd,
    /// A pipe from its standard output; reads do not block.
    pub stdout: OwnedFd,
    /// A pipe from its standard error; reads do not block.
    pub stderr: OwnedFd,
}

/// What a PE inherits besides the job's memory, in a job on several hosts.
#[derive(Default)]
pub struct Extras {
    /// Where the PE asks its agent for sockets.
    pub seat: Option<OwnedFd>,
    /// Standard input, where it is not that of this process.
    pub stdin: Option<OwnedFd>,
}

/// What the starts of all PEs have in common.
pub struct Spawner {
    /// Never read, so that a start writes to few pages of it.
    stack: Vec<MaybeUninit<u8>>,
    null: File,
    /// The variables that all PEs share.
    environment: Vec<CString>,
    mask: libc::sigset_t,
    to_reset: Vec<i32>,
    nofile: libc::rlimit,
    parent: libc::pid_t,
    /// Whether a program has equal addresses in every run.
    fixed_addresses: bool,
}

/// Bytes of the child's stack: enough for a few system calls.
const STACK_BYTES: usize = 64 << 10;

impl Spawner {
    /// Prepares everything that does not depend on the PE.
    pub fn new(
        job: &JobFile,
        guard: &Guard,
        signals: &Signals,
        nofile: Rlimit,
        options: &Options,
    ) -> Result<Spawner> {
        let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        // This launcher may itself run on a simulated machine; its job does so only if asked.
        environment.remove(OsStr::new(memonet_core::unstable::hosted::ENV_FD));
        environment
            .extend(options.environment.iter().map(|(name, value)| (name.into(), value.into())));
        let (name, value) = guard.mark();
        environment.insert(name.into(), value);
        for (name, _) in job.environment(0) {
            environment.remove(OsStr::new(name));
        }
        Ok(Spawner {
            stack: vec![MaybeUninit::uninit(); STACK_BYTES],
            null: File::open("/dev/null").context("/dev/null")?,
            environment: environment
                .iter()
                .map(|(name, value)| entry(name, value))
                .collect::<Result<_>>()?,
            mask: *signals.mask_before(),
            to_reset: signals::to_reset(),
            nofile: libc::rlimit {
                rlim_cur: nofile.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: nofile.maximum.unwrap_or(libc::RLIM_INFINITY),
            },
            parent: std::process::id() as libc::pid_t,
            fixed_addresses: options.simulated.machine.is_some(),
        })
    }

    /// Starts a PE.
    pub fn spawn(
        &mut self,
        pe: usize,
        image: &Image,
        job: &JobFile,
        cpus: Option<CpuSet>,
        extras: &Extras,
    ) -> Result<Child> {
        let (stdout, stdout_of_child) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let (stderr, stderr_of_child) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        rustix::io::ioctl_fionbio(&stdout, true)?;
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let of_pe = job.environment(pe);
        let seat = extras.seat.as_ref().map(|seat| seat.as_raw_fd());
        let of_seat = seat.map(|seat| (ENV_AGENT_FD, seat.to_string()));
        let of_pe: Vec<CString> = of_pe
            .iter()
            .chain(&of_seat)
            .map(|(name, value)| entry(name.as_ref(), value.as_ref()))
            .collect::<Result<_>>()?;
        let argv = pointers(image.argv.iter());
        let envp = pointers(self.environment.iter().chain(&of_pe));

        let mut order = Order {
            path: image.path.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            stdin: match &extras.stdin {
                Some(stdin) => Some(stdin.as_raw_fd()),
                None => (pe != 0).then_some(self.null.as_raw_fd()),
            },
            seat,
            stdout: stdout_of_child.as_raw_fd(),
            stderr: stderr_of_child.as_raw_fd(),
            parent: self.parent,
            cpus: cpus.as_ref(),
            mask: &self.mask,
            to_reset: &self.to_reset,
            nofile: &self.nofile,
            fixed_addresses: self.fixed_addresses,
            failure: None,
        };
        let (pid, pidfd) =
            clone_with(&mut self.stack, &mut order).map_err(|error| too_many(pe, error))?;
        if let Some((step, errno)) = order.failure {
            let _ = retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED));
            return Err(step.explain(image, errno));
        }
        Ok(Child { pid, pidfd, stdout, stderr })
    }
}

/// Runs [`child`] in a new process. Returns when that process has become another program, or has
/// failed.
fn clone_with(stack: &mut [MaybeUninit<u8>], order: &mut Order<'_>) -> io::Result<(Pid, OwnedFd)> {
    // No signal may be handled in the child while it shares our memory.
    let all = nix::sys::signal::SigSet::all();
    let before = all.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: c_int = -1;
    let order: *mut Order<'_> = order;
    // SAFETY: the child runs `child` on a stack of its own (the range ends at `top`, aligned to
    // 16). Nothing else uses that stack: CLONE_VFORK suspends this thread until the child has left
    // it by `execve` or `_exit`. For that reason, too, `order` and everything it points to outlive
    // the child's use, and this thread does not touch them meanwhile.
    let result = unsafe {
        let end = stack.as_mut_ptr_range().end;
        let top = end.sub(end.addr() % 16);
        libc::clone(child, top.cast(), flags, order.cast(), ptr::from_mut(&mut pidfd))
    };
    let error = io::Error::last_os_error();
    before.thread_set_mask()?;
    match Some(result).filter(|&result| result > 0).and_then(Pid::from_raw) {
        // SAFETY: the kernel has written a new descriptor there, which nothing else owns.
        Some(pid) => Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
        None => Err(error),
    }
}

fn entry(name: &OsStr, value: &OsStr) -> Result<CString> {
    c_string([name, value].join(OsStr::new("=")))
}

fn pointers<'a>(strings: impl Iterator<Item = &'a CString>) -> Vec<*const c_char> {
    strings.map(|string| string.as_ptr()).chain(std::iter::once(ptr::null())).collect()
}

/// Everything that the child needs, prepared: the child must not allocate.
struct Order<'a> {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdin: Option<c_int>,
    seat: Option<c_int>,
    stdout: c_int,
    stderr: c_int,
    parent: libc::pid_t,
    cpus: Option<&'a CpuSet>,
    mask: &'a libc::sigset_t,
    to_reset: &'a [i32],
    nofile: &'a libc::rlimit,
    fixed_addresses: bool,
    /// The step of the child that failed, and its errno.
    failure: Option<(Step, i32)>,
}

/// The steps at which the start of a PE can fail.
#[derive(Debug, Clone, Copy)]
enum Step {
    Prepare(&'static str),
    Bind,
    Execute,
}

extern "C" fn child(order: *mut c_void) -> c_int {
    // SAFETY: the parent passed an `Order`, which it does not touch before this process has left
    // its memory.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    let Err(step) = become_program(order);
    order.failure = Some((step, io::Error::last_os_error().raw_os_error().unwrap_or(0)));
    // SAFETY: ends this process alone, and runs no exit handler of the parent.
    unsafe { libc::_exit(127) }
}

/// Returns the step that failed; `errno` has the reason.
fn become_program(order: &Order<'_>) -> Result<std::convert::Infallible, Step> {
    let done = |result: c_int, step: Step| if result < 0 { Err(step) } else { Ok(()) };
    // SAFETY: system calls by this process on itself. The parent keeps their pointers valid (see
    // `clone_with`). None of these functions allocates, or takes a lock that the suspended parent
    // could hold.
    unsafe {
        done(
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL),
            Step::Prepare("PR_SET_PDEATHSIG"),
        )?;
        if libc::getppid() != order.parent {
            // The launcher died before PR_SET_PDEATHSIG took effect: no signal will come.
            libc::_exit(127);
        }
        if let Some(cpus) = order.cpus {
            let (size, cpus) = (size_of::<CpuSet>(), ptr::from_ref(cpus).cast());
            done(libc::sched_setaffinity(0, size, cpus), Step::Bind)?;
        }
        if let Some(stdin) = order.stdin {
            done(libc::dup2(stdin, 0), Step::Prepare("dup2"))?;
        }
        if let Some(seat) = order.seat {
            // Of all children, this one alone inherits it.
            done(libc::fcntl(seat, libc::F_SETFD, 0), Step::Prepare("fcntl"))?;
        }
        done(libc::dup2(order.stdout, 1), Step::Prepare("dup2"))?;
        done(libc::dup2(order.stderr, 2), Step::Prepare("dup2"))?;
        done(libc::setrlimit(libc::RLIMIT_NOFILE, order.nofile), Step::Prepare("setrlimit"))?;
        if order.fixed_addresses {
            done(
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong),
                Step::Prepare("personality"),
            )?;
        }
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for &signal in order.to_reset {
            libc::sigaction(signal, &default, ptr::null_mut());
        }
        // From a terminal it comes to the PEs, too. There it asks what they wait for, and ends
        // nothing.
        let mut ignored = default;
        ignored.sa_sigaction = libc::SIG_IGN;
        libc::sigaction(libc::SIGQUIT, &ignored, ptr::null_mut());
        done(
            libc::sigprocmask(libc::SIG_SETMASK, order.mask, ptr::null_mut()),
            Step::Prepare("sigprocmask"),
        )?;
        libc::execve(order.path, order.argv, order.envp);
    }
    Err(Step::Execute)
}

impl Step {
    fn explain(self, image: &Image, errno: i32) -> anyhow::Error {
        let error = io::Error::from_raw_os_error(errno);
        let name = image.name();
        let path = image.path.to_string_lossy();
        let message = match (self, errno) {
            (Step::Execute, libc::ENOENT) => format!(
                "cannot start {name}: {path} exists, but not the interpreter that its first line names, or its dynamic loader. Install that, or correct the line"
            ),
            (Step::Execute, libc::ENOEXEC) => {
                format!(
                    "cannot start {name}: {path} is neither a program for this machine nor a script that begins with #!"
                )
            }
            (Step::Execute, libc::E2BIG) => {
                format!(
                    "cannot start {name}: its arguments and environment are too long for the kernel. Pass them in a file"
                )
            }
            (Step::Execute, _) => format!("cannot start {name}: {path}: {error}"),
            (Step::Bind, _) => format!("cannot bind {name} to its CPUs: {error}. Use --bind none"),
            (Step::Prepare("personality"), _) => format!(
                "cannot start {name} at fixed addresses, which repeatable runs on a simulated machine need: personality: {error}. \
                 Where a container forbids it, allow it (docker run --security-opt seccomp=unconfined)"
            ),
            (Step::Prepare(call), _) => format!("cannot start {name}: {call}: {error}"),
        };
        CannotStart { status: if errno == libc::ENOENT { 127 } else { 126 }, message }.into()
    }
}

fn too_many(pe: usize, error: io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot create a process for PE {pe}: {error}. {}", why_no_process(&error))
}
