//! A process that goes on without its parent.

use super::common::system;
use memonet_control::descriptors::close_all_but;
use memonet_core::Result;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `life` in a process that has these descriptors alone, and standard error.
///
/// The process is no child of this one: it is forked twice. It is in a session of its own, so that
/// signals of a terminal or of the launcher to a group of processes do not reach it. It takes no
/// signals but those that cannot be held off.
pub fn start(kept: &[RawFd], life: impl FnOnce()) -> Result<()> {
    // SAFETY: the head of `wired` says why the child may do what it does after a fork; it ends
    // without returning.
    match unsafe { libc::fork() } {
        -1 => Err(failed()),
        0 => {
            // SAFETY: as above.
            let status = match unsafe { libc::fork() } {
                0 => live(kept, life),
                -1 => 1,
                _ => 0,
            };
            // SAFETY: ends this process, and runs none of the program's exit handlers.
            unsafe { libc::_exit(status) }
        }
        child => await_end(child),
    }
}

fn failed() -> memonet_core::Error {
    let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN);
    system("forking the agent of this node", errno, "Raise `ulimit -u`")
}

/// Waits for the child, which has forked the process by then.
fn await_end(child: libc::pid_t) -> Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a place for what the call gives.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return if status == 0 { Ok(()) } else { Err(failed()) };
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            // The program ignores SIGCHLD, or has a thread that collects children.
            _ => return Ok(()),
        }
    }
}

fn live(kept: &[RawFd], life: impl FnOnce()) -> i32 {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"memonet-agent");
    // SAFETY: a set of zeroes is a set, and the calls write and read it alone.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    free_cpus();
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // A PE that began without them may have its connections there.
        for standard in [0, 1].into_iter().filter(|standard| !kept.contains(standard)) {
            // SAFETY: replaces descriptors of this process, to which nothing here refers by
            // anything but its number.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
    }
    // SAFETY: `life` uses none but these; all else of this process was the PE's.
    unsafe { close_all_but(kept) };
    match catch_unwind(AssertUnwindSafe(life)) {
        Ok(()) => 0,
        Err(_) => 101,
    }
}

/// Gives up the binding of the PE that has forked this process.
fn free_cpus() {
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // It stays where it is if the kernel refuses.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

/// Lets nobody wait any longer for the end of what this process could say.
pub fn close_stderr() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        // SAFETY: as in `live`.
        unsafe { libc::dup2(null.as_raw_fd(), 2) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn the_process_is_no_child_and_has_what_is_kept_alone() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (other, _end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let parent = std::process::id();
        let (kept, lost) = (write.as_raw_fd(), other.as_raw_fd());
        start(&[kept], || {
            // SAFETY: asks about a number.
            let is_closed = unsafe { libc::fcntl(lost, libc::F_GETFD) } == -1;
            let is_away = std::os::unix::process::parent_id() != parent;
            rustix::io::write(&write, &[u8::from(is_closed), u8::from(is_away)]).unwrap();
        })
        .unwrap();
        drop(write);
        let mut said = [0; 3];
        assert_eq!(rustix::io::read(&read, &mut said).unwrap(), 2);
        assert_eq!(said, [1, 1, 0]);
        // Its end closes the pipe.
        assert_eq!(rustix::io::read(&read, &mut said).unwrap(), 0);
    }
}
