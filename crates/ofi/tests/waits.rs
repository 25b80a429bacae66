//! Calls end though other PEs or other threads never stop.
//!
//! Each program ends only when the thing that it is about has happened. None measures time: one
//! that has not ended after a minute waits in vain.

use memonet_core::unstable::Seat;
use memonet_core::{Job, JobOptions, Result, Window};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PROVIDER: &str = "tcp;ofi_rxm";
const PATIENCE: Duration = Duration::from_secs(60);
/// How long others go on before a call is made that has to end in spite of them.
const LEAD: Duration = Duration::from_millis(200);

/// Runs `f` on so many PEs, which are threads; says whether all have returned. Nothing where there
/// is no libfabric.
fn all_return(npes: usize, f: impl Fn(&Job) + Send + Sync + 'static) -> Option<bool> {
    if let Err(why) = memonet_ofi::provider(Some(PROVIDER)) {
        eprintln!("SKIPPED, nothing was tested: {why}");
        return None;
    }
    let spec = memonet_ofi::Spec::parse(&format!("provider={PROVIDER}")).unwrap();
    let options = JobOptions::new().fabric(move |seat: &Seat| spec.connect(seat));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let ended: Result<Vec<()>> = Job::threads_with(&options, npes, |job| f(&job));
        let _ = sender.send(ended.is_ok());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(ended) => Some(ended),
        Err(RecvTimeoutError::Timeout) => panic!("after {PATIENCE:?}, something waits in vain"),
        // It has panicked, as a PE has.
        Err(RecvTimeoutError::Disconnected) => Some(false),
    }
}

/// As [`all_return`]; no PE may fail.
fn run(npes: usize, f: impl Fn(&Job) + Send + Sync + 'static) {
    assert_ne!(all_return(npes, f), Some(false), "a PE has failed");
}

/// The progress thread takes what two PEs send without end, when its own PE makes a call.
#[test]
fn a_call_begins_though_others_never_stop_sending() {
    run(3, |job| {
        let words = job.window::<u64>(8).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            std::thread::sleep(LEAD);
            (1..3).for_each(|pe| words.put_one(pe, 0, 1).unwrap());
        } else {
            let far = words.remote(0, job.pe()).unwrap();
            (1..).take_while(|_| words.read(0) == 0).for_each(|number| far.store(number));
        }
        job.barrier().unwrap();
    });
}

/// PE 0 waits for an answer of PE 2, which ends, while PE 1 sends without end.
#[test]
fn a_wait_for_a_dead_pe_ends_though_another_never_stops_sending() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let returned = all_return(3, |job| {
        let words = job.window::<u64>(8).unwrap();
        job.barrier().unwrap();
        match job.pe() {
            0 => {
                let far = words.remote(2, 0).unwrap();
                while far.fetch_add(1).is_ok() {
                    ASKED.fetch_add(1, Ordering::Relaxed);
                }
                IS_OVER.store(true, Ordering::Relaxed);
            }
            1 => {
                let far = words.remote(0, 1).unwrap();
                let goes_on = |_: &u64| !IS_OVER.load(Ordering::Relaxed);
                (1..).take_while(goes_on).for_each(|number| far.store(number));
            }
            _ => {
                while ASKED.load(Ordering::Relaxed) < 10 {
                    std::thread::yield_now();
                }
                std::panic::resume_unwind(Box::new("this PE ends here"));
            }
        }
    });
    assert_ne!(returned, Some(true), "one PE has not returned");
}

/// A fence need not wait, so it lets nothing move: the progress thread serves the PE.
#[test]
fn a_pe_is_served_though_it_makes_calls() {
    const TIMES: u64 = 1000;
    run(2, |job| {
        let words = job.window::<u64>(8).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            while words.read(0) < TIMES {
                job.fence().unwrap();
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
            }
        } else {
            let far = words.remote(0, 0).unwrap();
            (0..TIMES).for_each(|before| assert_eq!(far.fetch_add(1).unwrap(), before));
        }
        job.barrier().unwrap();
    });
}

/// Three threads of PE 0 do `again` without end, until another one has done `calls`.
fn beside(
    again: impl Fn(&Window<u64>, u64) + Send + Sync + 'static,
    calls: impl Fn(&Job, &Window<u64>) + Send + Sync + 'static,
) {
    run(2, move |job| {
        let words = job.window::<u64>(1024).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            let is_over = AtomicBool::new(false);
            let goes_on = |_: &u64| !is_over.load(Ordering::Relaxed);
            std::thread::scope(|scope| {
                let (words, again) = (&words, &again);
                for _ in 0..3 {
                    scope.spawn(move || {
                        (1..).take_while(goes_on).for_each(|number| again(words, number));
                    });
                }
                std::thread::sleep(LEAD);
                calls(job, words);
                is_over.store(true, Ordering::Relaxed);
            });
        }
        job.barrier().unwrap();
    });
}

fn store(words: &Window<u64>, number: u64) {
    words.remote(1, 0).unwrap().store(number);
}

fn put(words: &Window<u64>, number: u64) {
    words.put(1, 0, &[number; 32]).unwrap();
}

#[test]
fn a_write_after_a_fence_begins_though_another_thread_never_stops_signalling() {
    beside(store, |job, words| {
        for _ in 0..20 {
            job.fence().unwrap();
            words.put(1, 512, &[7; 256]).unwrap();
        }
    });
}

#[test]
fn a_signal_after_a_fence_begins_though_another_thread_never_stops_writing() {
    beside(put, |job, words| {
        for _ in 0..20 {
            job.fence().unwrap();
            words.remote(1, 512).unwrap().store(7);
        }
    });
}

#[test]
fn quiet_returns_though_another_thread_never_stops_writing() {
    beside(put, |job, _| (0..20).for_each(|_| job.quiet().unwrap()));
}

#[test]
fn quiet_returns_though_another_thread_never_stops_signalling() {
    beside(store, |job, _| (0..20).for_each(|_| job.quiet().unwrap()));
}

/// Each thread waits for its own fences, and lets the other one's pass.
#[test]
fn two_threads_that_never_stop_fencing_both_go_on() {
    run(2, |job| {
        let words = job.window::<u64>(1024).unwrap();
        job.barrier().unwrap();
        let times = |thread: usize| {
            for number in 0..200 {
                job.fence().unwrap();
                words.put(1 - job.pe(), thread * 256, &[number; 128]).unwrap();
                job.fence().unwrap();
                words.remote(1 - job.pe(), thread * 256).unwrap().store(number);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| times(0));
            times(1);
        });
        job.barrier().unwrap();
        assert_eq!([words.read(0), words.read(256)], [199; 2]);
    });
}
