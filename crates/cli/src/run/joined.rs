//! PEs under a wrapper: the process that joined is not the one that the launcher started, and may end long before it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use memonet_core::Cause;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use super::family::{parent, processes};

/// Time between two looks at who has joined.
pub const LOOK: Duration = Duration::from_millis(20);
/// How a process ended of which nobody can tell it any more: with a status that no process has.
pub const UNKNOWN: Cause = Cause::Exit(-1);

/// A process that joined, but was not started by the launcher itself.
pub struct Joined {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// What became of a process that joined.
pub enum Found {
    /// It runs, or has ended and waits to be collected.
    Here(Joined),
    /// It has ended and was collected.
    Ended,
    /// It is not to be seen: there is such a process, but not under that wrapper, or no descriptor is left to watch it.
    Hidden,
}

/// Looks for the process under `wrapper` that knows itself by the number `pid`.
pub fn find(pid: i32, wrapper: Pid) -> Found {
    // In a pid namespace of its own it has another number here, and who has that number here is somebody else.
    let is_it = |&candidate: &i32| own_number(candidate) == Some(pid) && descends(candidate, wrapper);
    match std::iter::once(pid).chain(processes()).find(is_it) {
        Some(pid) => match Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => Found::Here(Joined { pid, pidfd }),
            _ => Found::Hidden,
        },
        None if Pid::from_raw(pid).map(test_kill_process) == Some(Err(Errno::SRCH)) => Found::Ended,
        None => Found::Hidden,
    }
}

fn own_number(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

fn descends(pid: i32, from: Pid) -> bool {
    std::iter::successors(parent(pid), |&pid| parent(pid)).any(|ancestor| ancestor == from.as_raw_pid())
}

impl Joined {
    /// How it ended. It is not for the launcher to collect; /proc shows its status until its parent has, and the kernel
    /// (Linux 6.15 or newer) tells it from then on.
    pub fn cause(&self) -> Cause {
        let status = self.told().or_else(|| self.shown()).or_else(|| self.told());
        status.map_or(UNKNOWN, |status| {
            if libc::WIFSIGNALED(status) {
                Cause::Signal(libc::WTERMSIG(status))
            } else {
                Cause::Exit(libc::WEXITSTATUS(status))
            }
        })
    }

    fn told(&self) -> Option<i32> {
        let wanted = u64::from(libc::PIDFD_INFO_EXIT);
        // SAFETY: plain data for which all zeros is a value.
        let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
        info.mask = wanted;
        // SAFETY: the request's number tells the kernel the size of the structure, which lives.
        let result = unsafe { libc::ioctl(self.pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
        (result == 0 && info.mask & wanted != 0).then_some(info.exit_code)
    }

    fn shown(&self) -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The fields after the command's name, which may hold anything, in parentheses.
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.starts_with('Z').then(|| fields.split_whitespace().last()?.parse().ok())?
    }
}
