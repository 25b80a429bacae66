//! What ends the job when the launcher itself is killed.
//!
//! The kernel kills the launcher's children with it, but not what these had started: a PE under a
//! script, or under a tool. A second process, of which nobody knows, waits for the launcher's
//! death, finds them by a mark in their environment, and ends them.
//!
//! The guard is a child of the launcher, which collects it when the job has ended, in whatever way:
//! where process 1 collects nothing, as in many containers, an orphan would stay for ever. It is a
//! child whose end sends no signal, of those that only a wait with `__WCLONE` sees. So whoever
//! waits for PEs, or for what they leave behind, does not meet it. Only a launcher that is killed
//! leaves it to process 1, together with the PEs. A guard that somebody kills is not missed: the
//! job goes on without.

use std::ffi::{OsString, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use memonet_core::settings::ENV_MARK;
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// Even what cannot be killed (a process in a hung file system) is not watched forever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Enough for a walk through /proc.
const STACK: usize = 256 << 10;

/// While this value lives, the launcher's death ends all processes that carry the mark.
pub struct Guard {
    pid: Pid,
    /// Its end tells the guard of the launcher's death.
    _lifeline: OwnedFd,
    mark: String,
}

/// What the guard has to know.
struct Orders {
    end: OwnedFd,
    mark: String,
}

impl Guard {
    /// Starts the guard. Before anything else is: it must not be a part of the job.
    pub fn post() -> Result<Guard> {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        // Always as long: what else lies on a program's first page of stack must not depend on it.
        let mark = format!(":{:010}-{}:", getpid().as_raw_pid(), since_1970.as_nanos());
        let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let orders = Orders { end, mark: mark.clone() };
        let mut stack = vec![0u8; STACK];
        let range = stack.as_mut_ptr_range();
        let argument: *const Orders = &orders;
        // No flag: the child has copies of all memory, the stack and `orders` too, and its end
        // sends no signal.
        // SAFETY: the child runs on a copy of this thread, the only one there is, so no other can
        // have a lock of libc's. It does not return, and touches nothing that it shares with this
        // process but the pipe. The stack ends at `top`, aligned to 16.
        let pid = unsafe {
            let top = range.end.sub(range.end.addr() % 16);
            libc::clone(life, top.cast(), 0, argument.cast_mut().cast())
        };
        let pid = Pid::from_raw(pid).filter(|_| pid > 0);
        let pid =
            pid.ok_or_else(io::Error::last_os_error).context("cannot create a process (clone)")?;
        Ok(Guard { pid, _lifeline: lifeline, mark })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The environment variable that marks a process, for PEs to have.
    pub fn mark(&self) -> (String, OsString) {
        // A job within a PE of another belongs to both.
        let mut marks = std::env::var_os(ENV_MARK).unwrap_or_default();
        marks.push(&self.mark);
        (ENV_MARK.into(), marks)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The job has ended. SIGKILL ends the guard also if somebody has stopped it; the number is
        // its own until it is collected.
        let _ = kill_process(self.pid, Signal::KILL);
        // SAFETY: asks for no status.
        unsafe {
            while libc::waitpid(self.pid.as_raw_pid(), std::ptr::null_mut(), libc::__WCLONE) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// The guard's life.
extern "C" fn life(orders: *mut c_void) -> c_int {
    // SAFETY: this process's copy of what `post` has made.
    stand_by(unsafe { &*orders.cast::<Orders>() });
    // SAFETY: ends this process without running what the launcher has registered for its own end.
    unsafe { libc::_exit(0) }
}

fn stand_by(orders: &Orders) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = nix::sys::signal::SigSet::all().thread_block();
    let _ = rustix::thread::set_name(c"memonet-guard");
    // Whoever reads the launcher's output must not wait for the guard to close it.
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
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
    std::mem::forget(null);

    if retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut [0; 1])) == Ok(0) {
        hunt(&orders.mark);
    }
}

/// Kills all who carry the mark, until a walk through all processes finds none.
fn hunt(mark: &str) {
    let mark = mark.as_bytes();
    for _ in 0..PATIENCE.as_millis() {
        let Ok(folder) = std::fs::read_dir("/proc") else { return };
        let pids = folder
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
        let mut none = true;
        for pid in pids.filter(|&pid| pid != getpid()) {
            // The descriptor first: the process that is looked at is the one that is killed,
            // whatever becomes of the number.
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
