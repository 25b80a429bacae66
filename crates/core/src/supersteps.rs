//! Bulk-synchronous programs (BSP): supersteps of work, puts and one barrier.
//!
//! # The contract
//!
//! * All PEs make supersteps 1, 2, 3, ... Each call of [`step`](Supersteps::step) ends one.
//! * What PEs [put](Supersteps::put) in superstep s is *received* in superstep s + d at its
//!   targets, all of it, and in no other. An element that nobody has put is zero. Of two puts to
//!   one element in one superstep either value may be received.
//! * The delay d is 1 for [`new`](Supersteps::new): the barrier ends the superstep. It is 2 for
//!   [`overlapped`](Supersteps::overlapped): the barrier of superstep s goes on during superstep
//!   s + 1. A step is then one reduced barrier code, [`Barrier::step`]: it waits until all have
//!   ended the superstep *before* this one. The work of a superstep hides the barrier.
//! * The time of a superstep is w + g h + l, or, overlapped, at best max(w + g h, l). w is the work
//!   of the slowest PE. h is the most words that a PE sends or receives. g and l are constants of
//!   the machine: the time of a word, and that of the barrier with what else a superstep costs
//!   whatever its size.
//!
//! # How it is kept
//!
//! There are 2 d windows of equal length. Puts of superstep s go to window s mod 2 d. Received in
//! superstep s is window (s - d) mod 2 d. At the end of superstep s, before it arrives at phase s
//! of the barrier, a PE clears its part of the window that it received in s.
//!
//! **Proof.** A PE is *in* superstep s from the end of its (s - 1)-th step to its s-th arrival.
//!
//! * S1: When a PE is in superstep s, all PEs have arrived at phase s - d. For d = 1 the step has
//!   waited for that phase. For d = 2 arriving at phase s - 1 has waited for phase s - 2.
//! * S2: *All of it is there.* A PE arrives at phase s once its puts of superstep s are complete.
//!   By S1, all puts of superstep s - d are complete when a PE is in superstep s.
//! * S3: *Nothing else is there.* Window s mod 2 d was received in superstep s - d, as s - 2 d and
//!   s are alike modulo 2 d, and cleared before the arrival at phase s - d. By S1, this is over at
//!   all PEs when a PE is in superstep s and puts there. It is next received in superstep s + d.
//!   The PE that puts next to that window is in superstep s + 2 d, so by S1 all have arrived at
//!   phase s + d, after they received it.
//! * S4: A step that fails has either not arrived, and may be called again, or has arrived: then
//!   the superstep ends as it does for the others. `Barrier::phase` says which. An error that tells
//!   of lost puts is kept until the call that ends the superstep, which a deadline may put off.

use crate::base::error::{Error, Result};
use crate::base::shm::{Plain, zeroed};
use crate::base::shows;
use crate::job::Job;
use crate::sync::barrier::Barrier;
use crate::window::{Window, WindowOptions};
use std::time::Duration;

/// Elements that all PEs put to each other in supersteps: what is put in one is received in the
/// next.
///
/// ```
/// # use memonet_core::{Job, Supersteps};
/// # Job::threads(4, |job| -> memonet_core::Result<()> {
/// // Sums of the numbers of all lower PEs and this one, in log2 n supersteps.
/// let mut steps = Supersteps::<u64>::new(&job, 1)?;
/// let mut sum = job.pe() as u64 + 1;
/// let mut distance = 1;
/// while distance < job.npes() {
///     if job.pe() + distance < job.npes() {
///         steps.put(job.pe() + distance, 0, &[sum])?;
///     }
///     steps.step()?;
///     sum += steps.read(0); // zero where nobody has put
///     distance *= 2;
/// }
/// assert_eq!(sum, [1, 3, 6, 10][job.pe()]);
/// steps.free()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Supersteps<T> {
    job: Job,
    /// 2 d of them.
    windows: Vec<Window<T>>,
    barrier: Barrier,
    /// The superstep that this PE is in, or ends.
    superstep: u64,
    /// What clears received elements, piece by piece.
    zeros: Vec<T>,
    /// The error of lost puts, until the call that ends their superstep.
    lost: Option<Error>,
}

/// The most bytes of a piece that is cleared at once: the zeros stay in the first cache.
const PIECE_BYTES: usize = 4 << 10;

shows!([T: Plain] Supersteps<T> as "Supersteps", |it| len = it.len(), superstep = it.superstep, delay = it.delay());

impl<T: Plain> Supersteps<T> {
    /// Makes `len` elements on every PE, which are received in the superstep after the one in which
    /// they are put. *Collective.*
    ///
    /// # Errors
    /// As for [`Job::window`]; there are two of `len` elements.
    #[track_caller]
    pub fn new(job: &Job, len: usize) -> Result<Self> {
        job.pe.waiting_call("Supersteps::new", None, || {
            Self::with_delay(job, len, 1, WindowOptions::new())
        })
    }

    /// [`new`](Self::new) for programs that need what they receive one superstep later, and so
    /// never wait for a barrier that ends while they work: elements are received in the second
    /// superstep after the one in which they are put. *Collective.*
    ///
    /// ```
    /// # use memonet_core::{Job, Supersteps};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let mut steps = Supersteps::<u64>::overlapped(&job, 1)?;
    /// for superstep in 1..=10 {
    ///     steps.put((job.pe() + 1) % 3, 0, &[superstep])?;
    ///     // work, while the barrier of the superstep before goes on
    ///     assert_eq!(steps.read(0), superstep.saturating_sub(2));
    ///     steps.step()?; // one reduced barrier code
    /// }
    /// steps.free()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`Job::window`]; there are four of `len` elements.
    #[track_caller]
    pub fn overlapped(job: &Job, len: usize) -> Result<Self> {
        job.pe.waiting_call("Supersteps::overlapped", None, || {
            Self::with_delay(job, len, 2, WindowOptions::new())
        })
    }

    /// For front ends whose elements are not known by their Rust type: [`new`](Self::new) or
    /// [`overlapped`](Self::overlapped), in windows with [options](WindowOptions::elements).
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`Job::window_with`].
    #[track_caller]
    pub fn with(job: &Job, len: usize, overlapped: bool, options: WindowOptions) -> Result<Self> {
        let (name, delay) = match overlapped {
            true => ("Supersteps::overlapped", 2),
            false => ("Supersteps::new", 1),
        };
        job.pe.waiting_call(name, None, || Self::with_delay(job, len, delay, options))
    }

    fn with_delay(job: &Job, len: usize, delay: usize, options: WindowOptions) -> Result<Self> {
        let windows = (0..2 * delay).map(|_| job.window_with(len, options));
        let windows = windows.collect::<Result<Vec<_>>>()?;
        let barrier = job.world().new_barrier()?;
        let zeros = zeroed((PIECE_BYTES / size_of::<T>().max(1)).max(1));
        Ok(Supersteps { job: job.clone(), windows, barrier, superstep: 1, zeros, lost: None })
    }

    /// Number of elements at each PE.
    #[allow(clippy::len_without_is_empty, reason = "as for a window")]
    pub fn len(&self) -> usize {
        self.windows[0].len()
    }

    /// Number of the superstep that this PE is in, from 1 on.
    pub fn superstep(&self) -> u64 {
        self.superstep
    }

    /// Number of supersteps from a put to where it is received: 1, or 2 if they overlap.
    pub fn delay(&self) -> u64 {
        self.windows.len() as u64 / 2
    }

    fn window_of(&self, superstep: u64) -> &Window<T> {
        &self.windows[(superstep % self.windows.len() as u64) as usize]
    }

    fn received(&self) -> &Window<T> {
        // As superstep - delay, which is below zero at first.
        self.window_of(self.superstep + self.delay())
    }

    /// Puts elements to a PE, which may be this one. They are received there after
    /// [`delay`](Self::delay) steps, from `index` on.
    ///
    /// # Errors
    /// As for [`Window::put`]; [`Error::Misuse`] after a step that has met its deadline.
    #[inline]
    #[track_caller]
    pub fn put(&self, pe: usize, index: usize, from: &[T]) -> Result<()> {
        self.place()?.put(pe, index, from)
    }

    /// [`put`](Self::put) of elements that other threads or PEs may write meanwhile, for front
    /// ends.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// # Safety
    /// `from` can be read for `count` elements, and none of them is an element that is written.
    /// What this PE receives now is not; what it received in an earlier superstep may be.
    #[track_caller]
    pub unsafe fn put_from(
        &self,
        pe: usize,
        index: usize,
        from: *const T,
        count: usize,
    ) -> Result<()> {
        // SAFETY: the caller promises the source, and that it is no element that is written.
        unsafe { self.place()?.put_from(pe, index, from, count) }
    }

    /// The window for puts.
    #[inline]
    fn place(&self) -> Result<&Window<T>> {
        if self.barrier.phase() == self.superstep {
            // S2: others may receive this superstep's puts already.
            return Err(Error::misuse(
                "this PE has ended the superstep, in a step that met its deadline: call `step` before the next put",
            ));
        }
        Ok(self.window_of(self.superstep))
    }

    /// Reads an element that this PE has received.
    ///
    /// # Panics
    /// When `index` is out of range.
    #[inline]
    #[track_caller]
    pub fn read(&self, index: usize) -> T {
        self.received().read(index)
    }

    /// Copies elements that this PE has received, from `index` on, into `to`.
    ///
    /// # Panics
    /// When the elements are not all in range.
    #[track_caller]
    pub fn read_into(&self, index: usize, to: &mut [T]) {
        self.received().read_into(index, to);
    }

    /// A copy of all elements that this PE has received.
    pub fn to_vec(&self) -> Vec<T> {
        self.received().to_vec()
    }

    /// For front ends: the address of the elements that this PE has received. They stay as they are
    /// until the next [`step`](Self::step).
    pub fn received_ptr(&self) -> *const T {
        self.received().local_ptr()
    }

    /// Ends this superstep: completes this PE's puts, and passes one barrier. *Collective.*
    ///
    /// # Errors
    /// [`Error::PeerFailed`]; or an error of an earlier write. Then [`superstep`](Self::superstep)
    /// says whether the superstep has ended all the same.
    #[track_caller]
    pub fn step(&mut self) -> Result<()> {
        let pe = self.job.pe.clone();
        pe.waiting_call("Supersteps::step", None, || self.end_superstep(None))
    }

    /// [`step`](Self::step) with a deadline.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the superstep goes on, and the PE calls `step` or this again; it puts
    /// nothing before. Without overlap, what it had received may be cleared already.
    #[track_caller]
    pub fn step_timeout(&mut self, timeout: Duration) -> Result<()> {
        let pe = self.job.pe.clone();
        pe.waiting_call("Supersteps::step_timeout", None, || self.end_superstep(Some(timeout)))
    }

    fn end_superstep(&mut self, timeout: Option<Duration>) -> Result<()> {
        // Called twice, it waits at most once: with a delay of 1 the phase before is complete.
        let wait = || match timeout {
            Some(timeout) => self.barrier.wait_timeout(timeout),
            None => self.barrier.wait(),
        };
        // Else a call before this one has arrived, and has met its deadline.
        if self.barrier.phase() < self.superstep {
            wait()?;
            self.clear_received();
            let written = self.barrier.step();
            if self.barrier.phase() < self.superstep {
                return written;
            }
            // S4: the wait below may end with another error.
            self.lost = written.err();
        }
        if self.delay() == 1 {
            wait()?;
        }
        self.superstep += 1;
        self.lost.take().map_or(Ok(()), Err)
    }

    fn clear_received(&self) {
        let received = self.received();
        for begin in (0..received.len()).step_by(self.zeros.len()) {
            let count = self.zeros.len().min(received.len() - begin);
            received.write_from(begin, &self.zeros[..count]);
        }
    }

    /// Waits until all PEs have ended their last superstep, and frees the memory. *Collective.*
    /// What is dropped instead is lost to the job until it ends, if its last barrier goes on.
    ///
    /// # Errors
    /// [`Error::Unequal`] when PEs free different things, [`Error::PeerFailed`].
    #[track_caller]
    pub fn free(self) -> Result<()> {
        let pe = self.job.pe.clone();
        pe.waiting_call("Supersteps::free", None, || {
            self.barrier.wait()?;
            self.windows.into_iter().try_for_each(Window::free)?;
            self.lost.map_or(Ok(()), Err)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::far;
    use std::sync::Barrier as Meeting;

    /// A put is lost, and a step meets its deadline.
    fn meets_a_deadline(job: &Job, steps: &mut Supersteps<u64>) {
        job.pe.surface_later(Error::misuse("a put is lost"));
        let late = steps.step_timeout(Duration::from_millis(5));
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    }

    /// The step that meets its deadline has arrived. The call that ends the superstep tells of the
    /// puts that are lost.
    #[test]
    fn a_deadline_loses_no_error_of_lost_puts() {
        let meeting = Meeting::new(2);
        let job = Job::threads_with(&far::options(""), 2, |job| -> Result<()> {
            let mut steps = Supersteps::<u64>::new(&job, 1)?;
            if job.pe() == 0 {
                meets_a_deadline(&job, &mut steps);
                meeting.wait();
                let lost = steps.step().expect_err("a put is lost");
                assert!(lost.to_string().contains("a put is lost"), "{lost}");
                assert_eq!(steps.superstep(), 2, "it has ended all the same");
            } else {
                meeting.wait();
                steps.step()?;
            }
            steps.step()?;
            steps.free()
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }

    /// Nor does the end.
    #[test]
    fn the_end_tells_of_lost_puts() {
        let meeting = Meeting::new(2);
        let job = Job::threads_with(&far::options(""), 2, |job| -> Result<()> {
            let mut steps = Supersteps::<u64>::new(&job, 1)?;
            if job.pe() == 0 {
                meets_a_deadline(&job, &mut steps);
                meeting.wait();
                let lost = steps.free().expect_err("a put is lost").to_string();
                assert!(lost.contains("a put is lost"), "{lost}");
                return Ok(());
            }
            meeting.wait();
            steps.step()?;
            steps.free()
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }
}
