//! Errors of far writes whose call has returned. The next quiet reports them, or the end of the
//! next collective call of the program that makes nothing. A call that meets others more than once
//! reports none in between: the others would wait for this PE.

use crate::base::error::{Error, Quick};
use crate::base::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last error that could not be returned to its caller.
#[derive(Default)]
pub(crate) struct Late {
    error: Mutex<Option<Error>>,
    /// Whether there is an error: a quiet of near PEs reads only this.
    is_late: AtomicBool,
}

impl Late {
    /// Gives the error, if there is one, and forgets it.
    #[inline]
    pub(super) fn surface(&self) -> Quick<()> {
        if self.is_late.load(Ordering::Relaxed) { self.surface_now() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn surface_now(&self) -> Quick<()> {
        let mut late = lock(&self.error);
        self.is_late.store(false, Ordering::Relaxed);
        Ok(late.take().map_or(Ok(()), Err)?)
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    pub(super) fn keep(&self, error: Error) {
        let mut late = lock(&self.error);
        *late = Some(error);
        self.is_late.store(true, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::Result;
    use crate::dsm::{self, LockOptions, Region, RegionOptions};
    use crate::far;
    use crate::job::Job;

    type Call = fn(&Job) -> Result<()>;

    /// Large blocks take several barriers.
    fn gathers(job: &Job) -> Result<()> {
        let (one, all) = (job.window::<u64>(50_000)?, job.window::<u64>(150_000)?);
        one.fill(0..50_000, job.pe() as u64);
        let gathered = job.world().all_gather_into(all.span(0..150_000)?, one.span(0..50_000)?);
        for pe in 0..3 {
            assert_eq!(all.read(50_000 * pe + 49_999), pe as u64);
        }
        gathered
    }

    fn reduces(job: &Job) -> Result<()> {
        let (one, sum) = (job.window::<u64>(50_000)?, job.window::<u64>(50_000)?);
        one.fill(0..50_000, 1);
        let to = sum.span(0..50_000)?;
        let reduced = job.world().all_reduce_into(crate::Sum, to, one.span(0..50_000)?);
        assert_eq!(sum.read(49_999), 3);
        reduced
    }

    fn makes_locks(job: &Job) -> Result<()> {
        let shadow = LockOptions::new().shadow(true);
        let mutex = dsm::Mutex::with(job, &7u64, shadow)?;
        assert_eq!(*mutex.lock()?, 7);
        assert_eq!(*dsm::RwLock::new(job, &8u64)?.read()?, 8);
        Ok(())
    }

    fn meets_in_a_region(job: &Job) -> Result<()> {
        let region = Region::<u64>::with(job, 1000, RegionOptions::new().checked(true))?;
        region.write(job.pe()..job.pe() + 1)?.set(job.pe(), 5);
        let met = region.barrier();
        let read = region.read(0..3)?.to_vec();
        assert_eq!(read, [5; 3]);
        met
    }

    /// Whatever a PE's earlier write has come to, it takes part in each call to its end, as the
    /// others do.
    #[test]
    fn an_error_of_an_earlier_write_ends_no_call_at_one_pe_alone() {
        let calls: [Call; 10] = [
            Job::barrier,
            gathers,
            reduces,
            |job| job.world().all_to_all(&[job.pe(); 3]).map(drop),
            |job| job.world().collect(&vec![1u64; 30_000 * job.pe()]).map(drop),
            |job| job.world().split_strided(0, 2, 2).map(drop),
            |job| job.world().split_2d(2).map(drop),
            |job| job.world().new_barrier().map(drop),
            makes_locks,
            meets_in_a_region,
        ];
        let told = Job::threads_with(&far::options(""), 3, |job| -> Result<usize> {
            let mut told = 0;
            for (number, call) in calls.iter().enumerate() {
                if job.pe() == number % 3 {
                    job.pe.surface_later(Error::misuse("late"));
                }
                let made = call(&job);
                // The calls agree where they are.
                let sum = job.world().all_reduce(crate::Sum, number);
                for result in [made, sum.map(|sum| assert_eq!(sum, 3 * number)), job.quiet()] {
                    match result {
                        Err(Error::Misuse { why: "late", .. }) => told += 1,
                        made => made?,
                    }
                }
            }
            Ok(told)
        });
        let told = told.unwrap();
        let told: Vec<usize> = told.into_iter().map(Result::unwrap).collect();
        assert_eq!(told, [4, 3, 3]);
    }
}
