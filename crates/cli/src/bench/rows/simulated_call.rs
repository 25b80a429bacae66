//! The real time of a call by a process on a simulated machine: a hand-over to the engine and back.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::bench::raw::{futex_wait, futex_wake, half_word};
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender};

const BATCH: u32 = 2_000;
const BATCHES: usize = 5;

/// The one PE of the job asks the machine a question. As the limit, it takes turns with a process
/// that does nothing else, on the same CPU.
pub fn measure(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    ensure!(
        job.fabric() == Some("sim") && job.npes() == 1,
        "this row needs one PE on a simulated machine"
    );
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a fresh page, which stays mapped.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, access, kind) }.context("mmap")?;
    // SAFETY: aligned and zero. Both processes use it as an atomic.
    let word = unsafe { half_word(page.cast()) };
    let _partner = Partner::taking_turns(word)?;
    for row in rows {
        let asked = || {
            ensure!(job.is_quiet()?, "nothing was written, but a write is in flight");
            Ok(())
        };
        let passed = || {
            take_turn(word, 0);
            Ok(())
        };
        // The question takes two calls.
        let mut contenders = [
            Contender::library(|| each(2 * BATCH, asked)),
            Contender::limit("two futex hand-overs, one CPU", || each(BATCH, passed)),
        ];
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Nanoseconds of a batch, divided by `count`, by the kernel's clock: the program's clocks show the
/// machine's time.
fn each(count: u32, mut what: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let sample = |_| {
        let start = real();
        (0..BATCH).try_for_each(|_| what())?;
        Ok((real() - start).as_nanos() as f64 / f64::from(count))
    };
    (0..BATCHES).map(sample).collect()
}

fn real() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // A system call by number, because libc's function is replaced on a simulated machine.
    // SAFETY: the kernel writes to this stack frame.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits for the turn of `me`, and passes the turn on.
fn take_turn(word: &AtomicU32, me: u32) {
    while word.load(Ordering::Acquire) != me {
        futex_wait(word, 1 - me);
    }
    word.store(1 - me, Ordering::Release);
    futex_wake(word, 1);
}

/// A process that takes its turns. Dropping this value ends it.
struct Partner(libc::pid_t);

impl Partner {
    fn taking_turns(word: &AtomicU32) -> Result<Partner> {
        // SAFETY: the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes no pointer. It lets this process end with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                loop {
                    take_turn(word, 1);
                }
            }
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            pid => Ok(Partner(pid)),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // SAFETY: the child is not collected before: its id is still its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
