//! Sleeps of threads that leave the PE's turn to other threads.

use super::clock;
use super::gate::Gate;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, openat};
use std::mem::MaybeUninit;
use std::time::Duration;

/// How long threads that run may go without a call, in real time, before a sleeper makes one.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Between the first two looks at the other threads, in real time.
const FIRST_INTERVAL: Duration = Duration::from_micros(50);
/// Between any two.
const LONGEST_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until the machine's time is `end`, or no other thread has it go on. Says whether it has to
/// go on by a call of the caller. Of several sleepers, the one that wakes first makes that call.
pub(super) fn wait(gate: &Gate, end: Duration) -> bool {
    let mut ended = gate.ended();
    let (mut since, mut interval, mut alone_before) = (clock::real(), FIRST_INTERVAL, false);
    while clock::now() < end {
        let now = gate.ended();
        if now != ended {
            (ended, since, interval, alone_before) = (now, clock::real(), FIRST_INTERVAL, false);
        }
        // A call keeps the gate busy. One between the looks has changed the number.
        let alone = gate.is_first(end) && gate.is_free() && all_others_sleep() && gate.is_free();
        let spun = gate.is_free() && clock::real() - since >= PATIENCE;
        if (alone && alone_before || spun) && gate.ended() == ended {
            return true;
        }
        alone_before = alone;
        gate.listen(ended, interval);
        interval = LONGEST_INTERVAL.min(interval * 2);
    }
    false
}

/// Whether all other threads of this process sleep in the kernel. As it may run in a signal
/// handler, it allocates no memory.
fn all_others_sleep() -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(threads) = rustix::fs::open(c"/proc/self/task", flags, Mode::empty()) else {
        return false;
    };
    let me = rustix::thread::gettid().as_raw_pid();
    let mut names = [MaybeUninit::uninit(); 2048];
    let mut names = RawDir::new(&threads, &mut names);
    while let Some(Ok(entry)) = names.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
        if number.is_some_and(|number| number != me && runs(&threads, number)) {
            return false;
        }
    }
    true
}

/// Whether a thread runs, or could. One that has ended does not.
fn runs(threads: &OwnedFd, number: i32) -> bool {
    use std::io::Write;
    let mut path = [0; 32];
    // The zeros behind it end the name.
    let _ = write!(&mut path[..31], "{number}/stat");
    let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return true };
    let Ok(file) = openat(threads, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut text = [0; 128];
    let Ok(len) = rustix::io::read(&file, &mut text) else { return false };
    // The name, which may hold anything, stands in parentheses.
    let name_end = text[..len].iter().rposition(|&byte| byte == b')');
    let state = name_end.and_then(|at| text[..len].get(at + 2));
    !matches!(state, Some(b'S' | b'Z' | b'X'))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_thread_runs_or_sleeps() {
        let threads = rustix::fs::open(c"/proc/self/task", OFlags::RDONLY, Mode::empty()).unwrap();
        let (told, number) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let stop = AtomicBool::new(false);
        let becomes = |number, running| {
            (0..10_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                runs(&threads, number) == running
            })
        };
        std::thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                told.send(rustix::thread::gettid().as_raw_pid()).unwrap();
                let _ = gone.recv();
                while !stop.load(Ordering::Relaxed) {}
            });
            let number = number.recv().unwrap();
            let slept = becomes(number, false);
            go.send(()).unwrap();
            let ran = becomes(number, true) && !all_others_sleep();
            stop.store(true, Ordering::Relaxed);
            assert!(slept && ran);
        });
        assert!(!runs(&threads, i32::MAX));
    }
}
