//! What the kernel tells of a process that is not this one's child.

use crate::base::error::Cause;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::fs::File;
use std::io::Read;

/// How a process ended of which nobody can tell it any more: with a status that no process has.
pub const UNKNOWN: Cause = Cause::Exit(-1);

/// A process, as /proc shows it.
#[derive(Debug)]
pub struct Stat {
    /// The command's name.
    pub name: String,
    /// `Z`: it has ended, and waits for its parent to collect it.
    pub state: char,
    /// The number of its parent.
    pub parent: i32,
    /// When it started, in ticks since the machine did. No two processes have this and their number
    /// in common.
    pub started: u64,
    /// As `wait` has it, where it has ended; 0 where that is not for this process to know.
    status: i32,
}

impl Stat {
    /// The process with this number, if there is one.
    pub fn of(pid: impl std::fmt::Display) -> Option<Stat> {
        // One call reads it all: some 50 numbers.
        let mut bytes = [0; 2048];
        let len = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut bytes).ok()?;
        // The kernel cuts names to 15 bytes, perhaps within a letter.
        Self::parse(&String::from_utf8_lossy(&bytes[..len]))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name, which may hold anything, stands in parentheses.
        let (front, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Stat {
            name: front.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            status: fields.last()?.parse().ok()?,
        })
    }
}

/// What the threads of a process do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// One runs, or could.
    Runs,
    /// All sleep.
    Sleeps,
    /// One is stopped, by a signal or a debugger.
    Stopped,
}

impl Activity {
    /// What a process does now. One that cannot be seen counts as running.
    pub fn of(pid: i32) -> Activity {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return Activity::Runs;
        };
        let stat = |name: std::ffi::OsString| Stat::of(format!("{pid}/task/{}", name.display()));
        let threads = threads.flatten().filter_map(|thread| stat(thread.file_name()));
        let states: Vec<char> = threads.map(|thread| thread.state).collect();
        if states.iter().any(|state| matches!(state, 'T' | 't')) {
            Activity::Stopped
        } else if states.iter().all(|&state| state == 'S') {
            Activity::Sleeps
        } else {
            Activity::Runs
        }
    }
}

/// How a process ended that this one is not the parent of. `pid` and `pidfd` are of the same one,
/// which has ended.
pub fn end_of(pid: i32, pidfd: BorrowedFd<'_>) -> Cause {
    // The kernel (Linux 6.15 or newer) tells it once the parent has collected the process, and
    // /proc shows it until then.
    let shown = || Stat::of(pid).filter(|stat| stat.state == 'Z').map(|stat| stat.status);
    match told(pidfd).or_else(shown).or_else(|| told(pidfd)) {
        Some(status) if libc::WIFSIGNALED(status) => Cause::Signal(libc::WTERMSIG(status)),
        Some(status) => Cause::Exit(libc::WEXITSTATUS(status)),
        None => UNKNOWN,
    }
}

fn told(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let wanted = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: plain data for which all zeros is a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = wanted;
    // SAFETY: the request's number tells the kernel the size of the structure, which lives.
    let result =
        unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (result == 0 && info.mask & wanted != 0).then_some(info.exit_code)
}

/// A process, by what no other ever has in common with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// The namespace in which it has that number.
    pub(crate) namespace: u32,
    /// As in [`Stat`].
    pub(crate) started: u64,
}

impl Identity {
    /// This process, if /proc can be read.
    pub(crate) fn mine() -> Option<Self> {
        let namespace = rustix::fs::stat("/proc/self/ns/pid").ok()?.st_ino;
        Some(Identity {
            pid: std::process::id(),
            namespace: namespace as u32,
            started: Stat::of("self")?.started,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = Stat::parse(&format!("17 (a) (b) Z ) S {}", fields.join(" "))).unwrap();
        assert_eq!((&*stat.name, stat.state, stat.parent), ("a) (b) Z ", 'S', 4));
        assert_eq!((stat.started, stat.status), (22, 52));
        assert!(Stat::parse("17 (a) S 1 2").is_none() && Stat::parse("").is_none());
    }

    #[test]
    fn names_need_not_be_text() {
        use std::os::unix::ffi::OsStrExt;
        let name = [format!("mn{}", std::process::id()).as_bytes(), b"\xC3"].concat();
        let link = std::env::temp_dir().join(std::ffi::OsStr::from_bytes(&name));
        std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
        let child = std::process::Command::new(&link).arg("1000").spawn();
        std::fs::remove_file(&link).unwrap();
        let mut child = child.unwrap();
        let stat = Stat::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stat.unwrap().name, String::from_utf8_lossy(&name));
    }

    #[test]
    fn a_stopped_process_neither_sleeps_nor_runs() {
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let becomes = |activity| {
            (0..2000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                Activity::of(pid) == activity
            })
        };
        let asleep = becomes(Activity::Sleeps);
        // SAFETY: signals of a child of this process, which is collected below.
        let stopped = unsafe { libc::kill(pid, libc::SIGSTOP) } == 0 && becomes(Activity::Stopped);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(asleep && stopped);
    }

    #[test]
    fn this_process() {
        let stat = Stat::of(std::process::id()).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id() as i32);
        assert_eq!(Stat::of("self").unwrap().started, stat.started);
    }
}
