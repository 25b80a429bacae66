//! The guard: a process that ends the job when the launcher itself is killed.
//!
//! The kernel kills the launcher's children with it, but not their children: a PE under a script,
//! or under a tool. The guard waits for the launcher's death, finds these processes by a mark in
//! their environment, and ends them.
//!
//! In a job on several hosts, the guard of the launcher also [beats](Beats): other hosts must not
//! take a launcher that is stopped for one that is lost.
//!
//! The guard is a child of the launcher, which collects it when the job has ended, in whatever way:
//! an orphan would stay forever where process 1 collects nothing, as in many containers. The
//! guard's end sends no signal, and only a wait with `__WCLONE` reports it. So waits for PEs, or
//! for processes that they leave behind, do not return it. Only a killed launcher leaves the guard
//! to process 1, together with the PEs. If the guard is killed, the job continues without it.

use std::ffi::{OsString, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use memonet_control::descriptors::close_all_but;
use memonet_core::unstable::settings::ENV_MARK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

use super::limits::why_no_process;

/// How long the guard tries to kill processes: one in a hung file system never ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the guard's stack: enough for a walk through /proc.
const STACK_BYTES: usize = 256 << 10;

/// While this value lives, the launcher's death ends all processes that carry the mark.
pub struct Guard {
    pid: Pid,
    /// A pipe whose end notifies the guard of the launcher's death.
    _lifeline: OwnedFd,
    mark: String,
}

/// What the guard needs to know.
struct Orders {
    end: OwnedFd,
    mark: String,
    beats: Beats,
}

/// What the guard writes again and again while the launcher lives, even while the launcher is
/// stopped, so that agents on other hosts do not take it for dead. The pipes do not block.
#[derive(Default)]
pub struct Beats {
    pub to: Vec<OwnedFd>,
    pub bytes: &'static [u8],
    pub interval: Duration,
}

impl Guard {
    /// Starts the guard. Call it before anything else of the job is made: the guard must not be a
    /// part of the job.
    pub fn post(beats: Beats) -> Result<Guard> {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        // Of constant length: the layout of a program's first page of stack must not depend on it.
        let mark = format!(":{:010}-{}:", getpid().as_raw_pid(), since_1970.as_nanos());
        let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let orders = Orders { end, mark: mark.clone(), beats };
        let mut stack = vec![0u8; STACK_BYTES];
        let range = stack.as_mut_ptr_range();
        let argument: *const Orders = &orders;
        // No flag: the child has copies of all memory, also of the stack and of `orders`, and its
        // end sends no signal.
        // SAFETY: this thread is the only one of its process, so no other thread can hold a lock of
        // libc. The child does not return, and shares nothing with this process except the pipe.
        // The stack ends at `top`, aligned to 16.
        let pid = unsafe {
            let top = range.end.sub(range.end.addr() % 16);
            libc::clone(life, top.cast(), 0, argument.cast_mut().cast())
        };
        let pid = Some(pid).filter(|&pid| pid > 0).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| {
            let error = io::Error::last_os_error();
            anyhow!("cannot create a process: {error}. {}", why_no_process(&error))
        })?;
        Ok(Guard { pid, _lifeline: lifeline, mark })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The environment variable that marks PEs and their children.
    pub fn mark(&self) -> (String, OsString) {
        // A job inside a PE of another job carries both marks.
        let mut marks = std::env::var_os(ENV_MARK).unwrap_or_default();
        marks.push(&self.mark);
        (ENV_MARK.into(), marks)
    }

    /// Ends the guard, when no process of the job is left. It ends while this process does other
    /// things; `drop` waits for it.
    pub fn dismiss(&self) {
        // SIGKILL ends even a stopped guard. The process id is still its own, because it is not
        // collected yet.
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.dismiss();
        // SAFETY: the null pointer asks for no status.
        unsafe {
            while libc::waitpid(self.pid.as_raw_pid(), std::ptr::null_mut(), libc::__WCLONE) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Entry point of the guard.
extern "C" fn life(orders: *mut c_void) -> c_int {
    // SAFETY: points to this process's copy of the `Orders` that `post` has made.
    stand_by(unsafe { &*orders.cast::<Orders>() });
    // SAFETY: ends this process, and runs none of the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

fn stand_by(orders: &Orders) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = nix::sys::signal::SigSet::all().thread_block();
    let _ = rustix::thread::set_name(c"memonet-guard");
    // A reader of the launcher's output must not wait for the guard to close it.
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    for standard in [1, 2] {
        // SAFETY: replaces descriptors of this process, to which nothing here refers by anything
        // but its number.
        unsafe { libc::dup2(null.as_raw_fd(), standard) };
    }
    // SAFETY: as above; this is the pipe's one descriptor that is read from now on.
    unsafe {
        libc::dup2(orders.end.as_raw_fd(), 0);
    }
    std::mem::forget(null);
    let kept: Vec<RawFd> = orders.beats.to.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: from here on, this process uses none but these and the standard ones.
    unsafe { close_all_but(&kept) };

    if launcher_is_gone(&orders.beats) {
        // Agents see their streams end.
        // SAFETY: the heartbeats have ended.
        unsafe { close_all_but(&[]) };
        hunt(&orders.mark);
    }
}

/// Writes heartbeats until the launcher has ended. False if nothing can tell that.
fn launcher_is_gone(beats: &Beats) -> bool {
    let stdin = rustix::stdio::stdin();
    let interval = Timespec::try_from(beats.interval).ok().filter(|_| !beats.to.is_empty());
    loop {
        let mut end = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut end, interval.as_ref()) {
            Ok(0) => {
                for to in &beats.to {
                    // A full pipe has bytes that say as much; a closed one has no reader.
                    let _ = rustix::io::write(to, beats.bytes);
                }
            }
            Ok(_) => return retry_on_intr(|| rustix::io::read(stdin, &mut [0; 1])) == Ok(0),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Kills all processes that carry the mark, until a walk through all processes finds none.
fn hunt(mark: &str) {
    let mark = mark.as_bytes();
    for _ in 0..PATIENCE.as_millis() {
        let Ok(folder) = std::fs::read_dir("/proc") else { return };
        let pids = folder
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
        let mut none = true;
        for pid in pids.filter(|&pid| pid != getpid()) {
            // The descriptor comes first, so that the examined process is the one that is killed,
            // even if its process id is reused.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            let environment =
                std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
            if environment.windows(mark.len()).any(|window| window == mark) {
                none = false;
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        if none {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
