//! Failures elsewhere do not damage a mutex.

use crate::failure::{blames, with_a_death};
use crate::setup::{Meeting, Setup};
use memonet_core::Cause;
use memonet_core::dsm::Mutex;
use std::time::Duration;

on_every_fabric!(a_death_elsewhere, an_earlier_write_that_failed,);

/// A PE that never had the mutex dies while another PE holds it and a third waits. The waiter gets
/// an error, and its turn is passed over: the holder releases the mutex, and gets it again.
fn a_death_elsewhere(setup: Setup) {
    for run in setup.runs(&[3, 4]) {
        let victim = run.npes - 1;
        let (held, failed) = (Meeting::new(2), Meeting::new(2));
        with_a_death(
            run,
            victim,
            |job| {
                let mutex = Mutex::new(job, &0u64)?;
                if job.pe() == 0 {
                    *mutex.lock()? += 1;
                }
                job.barrier()?;
                Ok(mutex)
            },
            |_, _| Ok(()),
            move |job, mutex| {
                match job.pe() {
                    0 => {
                        let guard = mutex.lock()?;
                        held.meet();
                        failed.meet();
                        drop(guard);
                        for _ in 0..3 {
                            *mutex.lock()? += 1;
                            assert!(mutex.try_lock()?.is_some());
                        }
                    }
                    1 => {
                        held.meet();
                        let waited = mutex.lock().map(drop);
                        failed.meet();
                        blames(waited, victim, Cause::Panic, "a wait for the mutex");
                    }
                    _ => {}
                }
                Ok(())
            },
        );
    }
}

/// The error of an earlier write does not count as a failure of the mutex's own protocol.
fn an_earlier_write_that_failed(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let words = job.window::<u64>(1)?;
            let (mutex, shadowed) = (Mutex::new(job, &0u64)?, Mutex::with_shadow(job, &0u64)?);
            job.barrier()?;
            for round in 0..5 {
                if job.pe() == round % job.npes() {
                    let lock = words.lock(0)?;
                    let held = lock.lock()?;
                    words.write(0, 0);
                    drop(held);
                    // The word was no lock for a while, and is one again.
                    for pe in 0..job.npes() {
                        words.put_one(pe, 0, 0)?;
                    }
                }
                *mutex.lock()? += 1;
                *shadowed.lock_timeout(Duration::from_secs(20))? += 1;
                while job.quiet().is_err() {}
                job.barrier()?;
                let all = (round as u64 + 1) * job.npes() as u64;
                assert_eq!((*mutex.lock()?, *shadowed.lock()?), (all, all));
                job.barrier()?;
            }
            Ok(())
        });
    }
}
