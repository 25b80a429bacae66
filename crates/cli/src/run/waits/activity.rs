//! What a process does, as the kernel tells.

use std::fs;

use memonet_core::unstable::launch::Stat;

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Activity {
    /// Not known.
    #[default]
    Unknown,
    /// It has ended.
    Ended,
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// A thread of it runs, or is ready to.
    Runs,
    /// All its threads sleep in the kernel, its first one in the system call of this name, where
    /// the kernel tells.
    Sleeps(String),
}

/// What a process does, and how many threads it has but for the library's own.
pub fn of(pid: i32) -> (Activity, usize) {
    let Some(first) = Stat::of(pid) else { return (Activity::Ended, 0) };
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return (Activity::Unknown, 0);
    };
    let path = |thread: fs::DirEntry| format!("{pid}/task/{}", thread.file_name().display());
    let threads: Vec<Stat> =
        threads.flatten().filter_map(|thread| Stat::of(path(thread))).collect();
    let own = threads.iter().filter(|thread| !is_of_the_library(&thread.name)).count();
    let activity = match first.state {
        'Z' | 'X' => Activity::Ended,
        'T' | 't' => Activity::Stopped,
        _ if threads.iter().any(|thread| thread.state == 'R') => Activity::Runs,
        _ => Activity::Sleeps(system_call(pid).unwrap_or_default()),
    };
    (activity, own)
}

/// The threads of the library have names that begin so.
fn is_of_the_library(name: &str) -> bool {
    name.starts_with("memonet-")
}

/// The name of the system call that a process is in, if it is a common one.
fn system_call(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let number: libc::c_long = text.split_whitespace().next()?.parse().ok()?;
    let name = match number {
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "a sleep",
        libc::SYS_futex => "futex: a lock or a thread of the program",
        libc::SYS_poll | libc::SYS_ppoll => "poll",
        libc::SYS_select | libc::SYS_pselect6 => "select",
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => "epoll_wait",
        libc::SYS_wait4 | libc::SYS_waitid => "a wait for a child",
        libc::SYS_recvfrom | libc::SYS_recvmsg => "recv",
        libc::SYS_pause => "pause",
        _ => return None,
    };
    Some(name.to_owned())
}
