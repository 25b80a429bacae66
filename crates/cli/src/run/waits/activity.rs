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

/// The threads of a process, without the library's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Threads {
    /// How many there are; 0: not known.
    pub all: usize,
    /// Those of them that sleep until another thread wakes them, and wait in no call of the
    /// library.
    pub idle: usize,
}

/// What a process does, and its threads, of which those with the numbers `waiting` wait in calls.
pub fn of(pid: i32, waiting: &[u32]) -> (Activity, Threads) {
    let Some(first) = Stat::of(pid) else { return (Activity::Ended, Threads::default()) };
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return (Activity::Unknown, Threads::default());
    };
    let path = |thread: fs::DirEntry| format!("{pid}/task/{}", thread.file_name().display());
    let threads: Vec<(String, Stat)> = threads
        .flatten()
        .map(path)
        .filter_map(|thread| Some((thread.clone(), Stat::of(thread)?)))
        .collect();
    let own = threads.iter().filter(|(_, thread)| !is_of_the_library(&thread.name));
    let waits = |path: &str| waiting.iter().any(|thread| path.ends_with(&format!("/{thread}")));
    let idle =
        own.clone().filter(|(path, _)| !waits(path) && SystemCall::of(path).is_some_and(is_idle));
    let count = Threads { all: own.clone().count(), idle: idle.count() };
    let activity = match first.state {
        'Z' | 'X' => Activity::Ended,
        'T' | 't' => Activity::Stopped,
        _ if threads.iter().any(|(_, thread)| thread.state == 'R') => Activity::Runs,
        _ => Activity::Sleeps(SystemCall::of(pid).and_then(name).unwrap_or_default()),
    };
    (activity, count)
}

/// The threads of the library have names that begin so.
fn is_of_the_library(name: &str) -> bool {
    name.starts_with("memonet-")
}

/// The system call that a thread is in.
struct SystemCall {
    number: libc::c_long,
    arguments: Vec<u64>,
}

impl SystemCall {
    fn of(thread: impl std::fmt::Display) -> Option<SystemCall> {
        Self::parse(&fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?)
    }

    /// The number stands before the arguments, which are hexadecimal; a thread that is in no call
    /// has a word.
    fn parse(text: &str) -> Option<SystemCall> {
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let argument = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        Some(SystemCall { number, arguments: words.map_while(argument).collect() })
    }
}

/// Whether the call sleeps until another thread ends it: it waits for a futex without a time limit.
fn is_idle(call: SystemCall) -> bool {
    let [_, operation, _, timeout, ..] = call.arguments[..] else { return false };
    let operation = operation as libc::c_int & libc::FUTEX_CMD_MASK;
    call.number == libc::SYS_futex
        && matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
        && timeout == 0
}

/// The name of a call, if it is a common one.
fn name(call: SystemCall) -> Option<String> {
    let name = match call.number {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_idle_that_only_another_one_wakes() {
        let idle = |text| SystemCall::parse(text).is_some_and(is_idle);
        // As the kernel writes them: number, six arguments, stack pointer, instruction.
        assert!(idle("202 0x7f10 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x7f20\n"));
        assert!(idle("202 0x7f10 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f20"));
        assert!(!idle("202 0x7f10 0x80 0x0 0x7ffe 0x0 0x0 0x7ffc 0x7f20"), "it has a time limit");
        assert!(!idle("202 0x7f10 0x81 0x1 0x0 0x0 0x0 0x7ffc 0x7f20"), "it wakes others");
        assert!(!idle("230 0x0 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x7f20"), "it sleeps for a time");
        for text in ["running", "-1 0x7ffc 0x7f20", ""] {
            assert!(!idle(text), "{text}");
        }
    }

    #[test]
    fn threads_of_this_process() {
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
            finished.recv().unwrap_err();
        });
        let (pid, thread) = (std::process::id() as i32, told.recv().unwrap());
        let path = format!("{pid}/task/{thread}");
        while !SystemCall::of(&path).is_some_and(is_idle) {
            std::thread::yield_now();
        }
        // Other tests of this process have threads, too.
        let (activity, threads) = of(pid, &[]);
        assert_eq!(activity, Activity::Runs);
        assert!(threads.idle >= 1 && threads.all > threads.idle, "{threads:?}");
        drop(finish);
        sleeper.join().unwrap();
    }
}
