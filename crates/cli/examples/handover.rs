//! What a call of a process on a simulated machine costs, in real time, beside what it cannot do without: two hand-overs by futex on one CPU, there and back.
//!
//!     memonet run --machine rdma-100g -n 1 target/release/examples/handover

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const ROUNDS: usize = 9;
const CALLS: u32 = 20_000;

/// Real time; by the kernel's number, as the program's clocks show the machine's.
fn real() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to this stack frame.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn futex(word: &AtomicU32, what: i32, value: u32) {
    // SAFETY: the address of a word that lives; no time-out.
    unsafe { libc::syscall(libc::SYS_futex, word, what, value, 0) };
}

/// Waits until it is the turn of `me`, and passes it on.
fn take_turn(word: &AtomicU32, me: u32) {
    while word.load(Ordering::Acquire) != me {
        futex(word, libc::FUTEX_WAIT, 1 - me);
    }
    word.store(1 - me, Ordering::Release);
    futex(word, libc::FUTEX_WAKE, 1);
}

/// Nanoseconds of one of `CALLS` times `what`.
fn each(mut what: impl FnMut()) -> f64 {
    let start = real();
    (0..CALLS).for_each(|_| what());
    (real() - start).as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> memonet::Result<()> {
    let job = memonet::init()?;
    assert!(
        job.fabric() == Some("sim") && job.npes() == 1,
        "start it by `memonet run --machine NAME -n 1`"
    );
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh page, which stays mapped.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
    assert!(page != libc::MAP_FAILED, "no page");
    // SAFETY: aligned, mapped, zero; both processes use it as an atomic.
    let word: &AtomicU32 = unsafe { AtomicU32::from_ptr(page.cast()) };
    // SAFETY: the child calls nothing but the kernel.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            take_turn(word, 1);
        }
    }
    let (mut bare, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(each(|| take_turn(word, 0)));
        // A look and a question: two calls.
        calls.push(each(|| assert!(job.is_quiet().is_ok_and(|quiet| quiet))) / 2.0);
    }
    // SAFETY: ends the process that was made above.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let (bare, call) = (median(bare), median(calls));
    println!(
        "two hand-overs by futex {bare:.0} ns, a call {call:.0} ns: {:.2} times",
        call / bare
    );
    Ok(())
}
