//! Descendants of the job that are not PEs: processes that a PE leaves behind become children of
//! the launcher, and end with the job.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memonet_core::unstable::launch::Stat;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, child_subreaper, getpid, kill_process,
    set_child_subreaper, waitid, waitpid,
};

use super::guard::Guard;
use super::signals;

/// How long a process may take to end after SIGKILL. Freeing much memory takes a while; a process
/// in a hung file system never ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// While this value lives, orphans of the job become children of this process.
pub struct Family {
    was_reaper: Option<Pid>,
    /// Children that this process had before the job, and its guard.
    not_ours: HashSet<Pid>,
    /// Dropped when all others have ended: after that, a signal may end this process.
    guard: Guard,
    has_ended: Cell<bool>,
}

impl Family {
    /// Begins to adopt orphans. The guard is not one of the job's processes.
    pub fn found(guard: Guard) -> Result<Family> {
        signals::keep_children()?;
        let mut not_ours =
            if has_children() { children().into_iter().collect() } else { HashSet::new() };
        not_ours.insert(guard.pid());
        let was_reaper = child_subreaper().unwrap_or(None);
        set_child_subreaper(Some(getpid())).context("prctl(PR_SET_CHILD_SUBREAPER)")?;
        Ok(Family { was_reaper, not_ours, guard, has_ended: Cell::new(false) })
    }

    /// Collects orphans that have ended, up to the first child that is a PE, or that is not the
    /// job's.
    pub fn reap(&self, is_pe: impl Fn(Pid) -> bool) {
        while let Some(pid) =
            ended_child().filter(|pid| !is_pe(*pid) && !self.not_ours.contains(pid))
        {
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    /// Ends the remaining PEs and all descendants of the job, and calls `pause` again and again
    /// until they have ended. Returns a message for each process that could not be ended.
    pub fn end(&self, mut pause: impl FnMut()) -> Vec<String> {
        self.has_ended.set(true);
        let mut spared = self.not_ours.clone();
        let mut told = Vec::new();
        while has_children() {
            let left: Vec<Pid> =
                children().into_iter().filter(|pid| !spared.contains(pid)).collect();
            if left.is_empty() {
                break;
            }
            let (refused, mut killed): (Vec<Pid>, Vec<Pid>) = left
                .into_iter()
                .partition(|&pid| kill_process(pid, Signal::KILL) == Err(Errno::PERM));
            // The children of killed processes are children of this process once those have ended.
            let until = Instant::now() + PATIENCE;
            killed.retain(|&pid| !ends(pid, until, &mut pause));
            told.extend(refused.iter().map(|&pid| {
                remains(pid, "it runs as another user; that user, or root, can end it")
            }));
            told.extend(killed.iter().map(|&pid| {
                remains(pid, "SIGKILL does not end it. Often: a file system that hangs")
            }));
            spared.extend(refused.into_iter().chain(killed));
        }
        self.guard.dismiss();
        told
    }
}

fn remains(pid: Pid, why: &str) -> String {
    let name = Stat::of(pid).map(|stat| stat.name).unwrap_or_default();
    format!("process {pid} ({name}), which the job has started, still runs: {why}")
}

/// Collects a child. False if it has not ended in time.
fn ends(pid: Pid, until: Instant, mut pause: impl FnMut()) -> bool {
    while let Ok(None) = retry_on_intr(|| waitpid(Some(pid), WaitOptions::NOHANG)) {
        if Instant::now() > until {
            return false;
        }
        pause();
    }
    true
}

/// A pause for who has nothing else to do.
pub fn nap() {
    std::thread::sleep(Duration::from_millis(1));
}

impl Drop for Family {
    fn drop(&mut self) {
        if !self.has_ended.get() {
            self.end(nap);
        }
        let _ = set_child_subreaper(self.was_reaper);
    }
}

/// Whether this process has a child besides the guard. One system call, while a list of children
/// takes a walk through /proc.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// A child that has ended and is not collected.
fn ended_child() -> Option<Pid> {
    // SAFETY: siginfo_t is plain data for which all zeros is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a live siginfo_t. Its process id is zero, or set by a call that found a
    // child.
    unsafe {
        libc::waitid(libc::P_ALL, 0, &mut info, options);
        Pid::from_raw(info.si_pid())
    }
}

fn children() -> Vec<Pid> {
    let own = std::process::id() as i32;
    processes().filter(|&pid| parent(pid) == Some(own)).filter_map(Pid::from_raw).collect()
}

/// All processes that /proc shows.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent of a process.
pub fn parent(pid: i32) -> Option<i32> {
    Some(Stat::of(pid)?.parent)
}
