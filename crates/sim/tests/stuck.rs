//! How the programs of a run end that is stuck: each is told, nothing that it does hides the
//! deadlock, and its thread goes on as if the run had never been.

use memonet_core::{Cmp, Job, Result as JobResult};
use memonet_sim::{Error, Machine, Options, Ps, now, run, sleep};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::time::Duration;

fn machine() -> Machine {
    Machine::load("rdma-100g").unwrap()
}

fn on(npes: usize, program: impl Fn(Job)) -> Result<(), Error> {
    run(&machine(), npes, &Options::default(), program).map(drop)
}

/// Waits for a word that nobody stores.
fn wait_for_ever(job: &Job) -> JobResult<()> {
    job.window::<u64>(1)?.wait_until(0, Cmp::Ne, 0).map(drop)
}

/// Waits for all others where it is dropped, and insists.
struct Insists<'a>(&'a Job);

impl Drop for Insists<'_> {
    fn drop(&mut self) {
        self.0.barrier().unwrap();
    }
}

#[track_caller]
fn is_deadlock(result: Result<(), Error>, npes: usize) {
    match result {
        Err(Error::Deadlock { waits, .. }) => assert_eq!(waits.len(), npes),
        other => panic!("no deadlock: {other:?}"),
    }
}

#[test]
fn a_wait_that_is_stuck_ends_with_an_error_and_so_do_all_that_follow() {
    let told_of_it = Cell::new(0);
    let result = on(2, |job| {
        let told = wait_for_ever(&job).unwrap_err().to_string();
        assert!(told.contains("deadlock at "), "{told}");
        (0..3).for_each(|_| assert!(wait_for_ever(&job).is_err() && job.barrier().is_err()));
        assert!(!sleep(Duration::from_secs(1)));
        told_of_it.set(told_of_it.get() + 1);
        panic!("this is not the first panic of the run, but a consequence");
    });
    is_deadlock(result, 2);
    assert_eq!(told_of_it.get(), 2);
}

#[test]
fn a_destructor_may_insist_on_others() {
    let result = on(2, |job| {
        let _insists = Insists(&job);
        let _ = wait_for_ever(&job);
    });
    is_deadlock(result, 2);
}

#[test]
fn a_program_may_catch_how_it_ends() {
    let result = on(2, |job| {
        if catch_unwind(AssertUnwindSafe(|| wait_for_ever(&job).unwrap())).is_err() {
            job.barrier().unwrap();
        }
    });
    is_deadlock(result, 2);
}

#[test]
fn a_program_that_hears_no_refusal_ends_all_the_same() {
    let result = on(2, |job| {
        loop {
            let _ = wait_for_ever(&job);
        }
    });
    is_deadlock(result, 2);
}

#[test]
fn a_panic_that_waits_in_a_destructor_is_not_lost() {
    struct Waits<'a>(&'a Job);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            let _ = wait_for_ever(self.0);
        }
    }
    // Commands of this NIC hear of no death, so PE 1 would wait for ever.
    let panic = catch_unwind(|| {
        on(2, |job| match job.pe() {
            0 => {
                let _waits = Waits(&job);
                std::panic::resume_unwind(Box::new("the first"));
            }
            _ => wait_for_ever(&job).unwrap(),
        })
    });
    let panic = panic.expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the first"));
    assert!(!std::thread::panicking());
}

#[test]
fn the_thread_is_in_no_call_afterwards() {
    is_deadlock(on(1, |job| wait_for_ever(&job).unwrap()), 1);
    let left = format!("{:?}", memonet_core::unstable::calls::leave());
    assert!(left.starts_with("Left(None"), "{left}");
}

#[test]
fn the_end_of_a_run_within_a_pe_is_not_that_of_the_pe() {
    struct Sleeps;
    impl Drop for Sleeps {
        fn drop(&mut self) {
            assert!(!sleep(Duration::from_secs(1)));
        }
    }
    let outer = run(&machine(), 1, &Options::default(), |_| {
        let before = now();
        let inner = on(1, |job| {
            let _sleeps = Sleeps;
            let _ = wait_for_ever(&job);
        });
        is_deadlock(inner, 1);
        assert_eq!(now(), before);
    });
    assert!(outer.unwrap().end < Ps::us(1_000_000));
}

/// Runs an ignored test in a process of its own.
fn in_a_process(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", test])
        .env("MEMONET_TEST_MAY_ABORT", "1")
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap()
}

/// These end the process, as the language or soundness demands. The report comes first.
#[test]
fn a_program_that_cannot_end_is_told_why_before_the_process_ends() {
    for test in ["aborts_by_a_panic_in_a_panic", "aborts_as_it_catches_everything"] {
        let ended = in_a_process(test);
        let told = String::from_utf8_lossy(&ended.stderr);
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
        assert_eq!(signal, Some(libc::SIGABRT), "{test}: {told}");
        let all = ["deadlock at ", "PE 0 waits for a word", "PE 1 waits for a word"];
        assert!(all.iter().all(|part| told.contains(part)), "{test}: {told}");
    }
}

fn may_abort() -> bool {
    std::env::var_os("MEMONET_TEST_MAY_ABORT").is_some()
}

#[test]
#[ignore = "started by `a_program_that_cannot_end_is_told_why_before_the_process_ends`"]
fn aborts_by_a_panic_in_a_panic() {
    if may_abort() {
        let _ = on(2, |job| {
            let _insists = Insists(&job);
            wait_for_ever(&job).unwrap();
        });
    }
}

#[test]
#[ignore = "started by `a_program_that_cannot_end_is_told_why_before_the_process_ends`"]
fn aborts_as_it_catches_everything() {
    if may_abort() {
        let _ = on(2, |job| {
            loop {
                let _ = catch_unwind(AssertUnwindSafe(|| wait_for_ever(&job).unwrap()));
            }
        });
    }
}
