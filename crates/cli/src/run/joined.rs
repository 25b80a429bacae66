//! PEs under a wrapper: the process that joined is not the one that the launcher started, and may
//! end long before it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use memonet_core::Cause;
use memonet_core::unstable::launch::end_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, test_kill_process};

use super::family::{parent, processes};

/// Time between two checks which processes have joined.
pub const CHECK: Duration = Duration::from_millis(20);

/// A process that joined, but was not started by the launcher itself.
pub struct Joined {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// What became of a process that joined.
pub enum Found {
    /// It runs, or has ended and is not collected.
    Here(Joined),
    /// It has ended and was collected.
    Ended,
    /// It cannot be watched: there is such a process, but not under that wrapper, or no descriptor
    /// is left.
    Hidden,
}

/// Finds the process under `wrapper` whose own process id is `pid`.
pub fn find(pid: i32, wrapper: Pid) -> Found {
    // In a pid namespace of its own, the process has another id than here. The process with the id
    // `pid` here is another one.
    let is_it =
        |&candidate: &i32| own_number(candidate) == Some(pid) && descends(candidate, wrapper);
    match std::iter::once(pid).chain(processes()).find(is_it) {
        Some(pid) => match Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => Found::Here(Joined { pid, pidfd }),
            // While a process ends, /proc still shows it.
            Some(Err(Errno::SRCH)) => Found::Ended,
            _ => Found::Hidden,
        },
        None if Pid::from_raw(pid).map(test_kill_process) == Some(Err(Errno::SRCH)) => Found::Ended,
        None => Found::Hidden,
    }
}

/// Whether a wrapper passes a signal on: `timeout` and scripts with traps catch it and SIGTERM, and
/// the inits of containers block both and wait for them. A shell that only waits for its program
/// catches SIGINT alone.
pub fn passes_on(wrapper: i32, signal: Signal) -> bool {
    let set = |name| u64::from_str_radix(status_of(wrapper, name)?.trim(), 16).ok();
    let [caught, blocked] = ["SigCgt:", "SigBlk:"].map(|name| set(name).unwrap_or(0));
    let has = |signal: Signal| (caught | blocked) >> (signal.as_raw() - 1) & 1 == 1;
    has(Signal::TERM) && has(signal)
}

fn own_number(pid: i32) -> Option<i32> {
    status_of(pid, "NSpid:")?.split_whitespace().last()?.parse().ok()
}

/// A line of what the kernel says of a process, without its name.
fn status_of(pid: i32, name: &str) -> Option<String> {
    // The process's name in it need not be UTF-8.
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

fn descends(pid: i32, from: Pid) -> bool {
    std::iter::successors(parent(pid), |&pid| parent(pid))
        .any(|ancestor| ancestor == from.as_raw_pid())
}

impl Joined {
    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        let mut ends = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut ends, Some(&Timespec::default())) == Ok(0)
    }

    /// How it ended. The launcher cannot collect it: it is not its child.
    pub fn cause(&self) -> Cause {
        end_of(self.pid, self.pidfd.as_fd())
    }
}
