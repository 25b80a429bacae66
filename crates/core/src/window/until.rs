//! Waiting on words of this PE's own part of a window.

use crate::base::compare::Cmp;
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, Word};
use crate::base::shows;
use crate::wait::limit::Limit;
use crate::wait::{self, Awaiting, Terms, Words};
use crate::window::Window;
use std::panic::Location;
use std::time::Duration;

/// A wait on words of this PE's part, with a time limit or with PEs on which it depends. Made by
/// [`Window::wait`].
///
/// Without [`depends_on`](Self::depends_on) the wait ends with
/// [`PeerFailed`](crate::Error::PeerFailed) when any PE dies, because any PE may be the one whose
/// store it waits for.
pub struct Wait<'a, T> {
    window: &'a Window<T>,
    members: Option<&'a [usize]>,
    limit: Limit,
}

shows!([T] Wait<'_, T> as "Wait", |it| window = it.window, depends_on = it.members, limit = it.limit);

impl<T: Word> Window<T> {
    /// A wait with a time limit, or with a list of the PEs on which it depends.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Error, Job};
    /// # use std::time::Duration;
    /// # Job::threads(1, |job| {
    /// let w = job.window::<u32>(1).unwrap();
    /// let late = w.wait().timeout(Duration::from_millis(1)).until(0, Cmp::Ne, 0);
    /// assert!(matches!(late, Err(Error::Timeout { .. })));
    /// # }).unwrap();
    /// ```
    pub fn wait(&self) -> Wait<'_, T> {
        Wait { window: self, members: None, limit: Limit::none() }
    }

    /// Waits until the comparison of element `index` of this PE's part with `value` holds; gives
    /// what the element then held. What its writer wrote before, and separated by a fence from the
    /// store or signal that ended the wait, is visible too.
    ///
    /// OpenSHMEM: `shmem_wait_until`, `shmem_signal_wait_until`; MPI: `MPI_Recv`.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let flag = job.window::<u32>(1)?;
    /// if job.pe() == 0 {
    ///     flag.remote(1, 0)?.store(5);
    /// } else {
    ///     assert_eq!(flag.wait_until(0, Cmp::Gt, 0)?, 5);
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) when any PE dies.
    ///
    /// # Panics
    /// When `index` is out of range; this holds for all waits and tests.
    #[inline(always)]
    #[track_caller]
    pub fn wait_until(&self, index: usize, cmp: Cmp, value: T) -> Result<T> {
        self.wait().until(index, cmp, value)
    }

    /// Waits until the comparison holds for one of the elements; gives its place in `indices`, the
    /// lowest when there are several.
    ///
    /// OpenSHMEM: `shmem_wait_until_any`; MPI: `MPI_Waitany`.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let flags = job.window::<u64>(3)?; // one word for each sender
    /// flags.remote(0, job.pe())?.store(1);
    /// if job.pe() == 0 {
    ///     let mut left = vec![0, 1, 2];
    ///     while !left.is_empty() {
    ///         let place = flags.wait_until_any(&left, Cmp::Ne, 0)?;
    ///         let sender = left.remove(place); // deal with PE `sender` here
    ///         assert_eq!(flags.read(sender), 1);
    ///     }
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`wait_until`](Self::wait_until); [`Misuse`](crate::Error::Misuse) when `indices` is
    /// empty: that would never end.
    #[track_caller]
    pub fn wait_until_any(&self, indices: &[usize], cmp: Cmp, value: T) -> Result<usize> {
        self.check(indices);
        self.inner.pe.waiting_call("Window::wait_until_any", Some(self.inner.made), || {
            self.wait().any(indices, cmp, value)
        })
    }

    /// Waits until the comparison has held for each of the elements, for each at some time. Returns
    /// at once when `indices` is empty.
    ///
    /// OpenSHMEM: `shmem_wait_until_all`; MPI: `MPI_Waitall`.
    ///
    /// # Errors
    /// As for [`wait_until`](Self::wait_until).
    #[track_caller]
    pub fn wait_until_all(&self, indices: &[usize], cmp: Cmp, value: T) -> Result<()> {
        self.check(indices);
        self.inner.pe.waiting_call("Window::wait_until_all", Some(self.inner.made), || {
            self.wait().all(indices, cmp, value)
        })
    }

    /// Waits until the comparison holds for at least one of the elements; gives the places in
    /// `indices` of all elements for which it holds.
    ///
    /// OpenSHMEM: `shmem_wait_until_some`; MPI: `MPI_Waitsome`.
    ///
    /// # Errors
    /// As for [`wait_until_any`](Self::wait_until_any).
    #[track_caller]
    pub fn wait_until_some(&self, indices: &[usize], cmp: Cmp, value: T) -> Result<Vec<usize>> {
        self.check(indices);
        self.inner.pe.waiting_call("Window::wait_until_some", Some(self.inner.made), || {
            self.wait().some(indices, cmp, value)
        })
    }

    /// Whether the comparison of element `index` of this PE's part with `value` holds now.
    ///
    /// OpenSHMEM: `shmem_test`; MPI: `MPI_Test`.
    #[inline]
    #[track_caller]
    pub fn test_until(&self, index: usize, cmp: Cmp, value: T) -> bool {
        self.at(index, 1);
        let _call =
            self.inner.pe.begin("Window::test_until", Location::caller(), Some(self.inner.made));
        wait::test(&self.inner.pe, || cmp.holds(self.look(index), value).then_some(())).is_some()
    }

    /// The first place in `indices` for whose element the comparison holds now.
    ///
    /// OpenSHMEM: `shmem_test_any`; MPI: `MPI_Testany`.
    #[track_caller]
    pub fn test_any(&self, indices: &[usize], cmp: Cmp, value: T) -> Option<usize> {
        self.check(indices);
        let _call =
            self.inner.pe.begin("Window::test_any", Location::caller(), Some(self.inner.made));
        wait::test(&self.inner.pe, || {
            indices.iter().position(|&index| cmp.holds(self.look(index), value))
        })
    }

    /// Whether the comparison holds now for all of the elements.
    ///
    /// OpenSHMEM: `shmem_test_all`; MPI: `MPI_Testall`.
    #[track_caller]
    pub fn test_all(&self, indices: &[usize], cmp: Cmp, value: T) -> bool {
        self.check(indices);
        let _call =
            self.inner.pe.begin("Window::test_all", Location::caller(), Some(self.inner.made));
        let holds = |&index: &usize| cmp.holds(self.look(index), value);
        wait::test(&self.inner.pe, || indices.iter().all(holds).then_some(())).is_some()
    }

    /// The places in `indices` for whose elements the comparison holds now.
    ///
    /// OpenSHMEM: `shmem_test_some`; MPI: `MPI_Testsome`.
    #[track_caller]
    pub fn test_some(&self, indices: &[usize], cmp: Cmp, value: T) -> Vec<usize> {
        self.check(indices);
        let _call =
            self.inner.pe.begin("Window::test_some", Location::caller(), Some(self.inner.made));
        let holds = |&place: &usize| cmp.holds(self.look(indices[place]), value);
        let look = || {
            Some((0..indices.len()).filter(holds).collect())
                .filter(|found: &Vec<_>| !found.is_empty())
        };
        wait::test(&self.inner.pe, look).unwrap_or_default()
    }
}

impl<'a, T: Word> Wait<'a, T> {
    /// Gives up after `timeout`, with [`Timeout`](crate::Error::Timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit = Limit::new(timeout);
        self
    }

    /// The wait depends on these PEs alone: when another PE dies, it goes on. A wait that depends
    /// on a PE that does not exist fails with [`NoSuchPe`](crate::Error::NoSuchPe).
    pub fn depends_on(mut self, pes: &'a [usize]) -> Self {
        self.members = Some(pes);
        self
    }

    #[inline(always)]
    fn wait<R>(&self, words: &dyn Fn() -> Words, look: impl FnMut() -> Option<R>) -> Quick<R> {
        let awaiting = match self.members {
            None => Awaiting::Word(Some(words)),
            Some(members) => {
                self.check_members(members)?;
                Awaiting::WordOf(members, Some(words))
            }
        };
        let terms = Terms::new(awaiting, self.limit.patience());
        wait::until(&self.window.inner.pe, terms, look)
    }

    #[cold]
    fn check_members(&self, members: &[usize]) -> Quick<()> {
        let npes = self.window.inner.pe.npes();
        match members.iter().find(|&&pe| pe >= npes) {
            Some(&pe) => Err(Error::NoSuchPe { pe, npes, call: None }.into()),
            None => Ok(()),
        }
    }

    /// The words of the wait as they are now.
    fn words(&self, all: bool, indices: &[usize], cmp: Cmp, value: T) -> Words {
        let window = self.window;
        let word = |&index: &usize| {
            let address = window.local_ptr().wrapping_add(index).addr() as u64;
            (index, address, window.look(index))
        };
        Words::of(all, cmp, Some(&value), indices.iter().map(word))
    }

    /// See [`Window::wait_until`].
    ///
    /// # Errors
    /// See there, and [`Timeout`](crate::Error::Timeout).
    // Always inline: the comparison is nearly always a constant, and then one instruction of the
    // loop.
    #[inline(always)]
    #[track_caller]
    pub fn until(self, index: usize, cmp: Cmp, value: T) -> Result<T> {
        // Checked once; the loop then reads one pointer.
        let word = self.window.at(index, 1).cast_const();
        self.window.inner.pe.waiting_call(
            "Window::wait_until",
            Some(self.window.inner.made),
            || {
                self.window.inner.pe.note_word(word.cast(), size_of::<T>(), cmp, value.to_bits());
                let words = || self.words(false, &[index], cmp, value);
                Ok(self.wait(&words, move || {
                    // SAFETY: `index` was checked just now, and the window lives as long as this
                    // borrow of it.
                    let seen = unsafe { shm::load(word) };
                    cmp.holds(seen, value).then_some(seen)
                })?)
            },
        )
    }

    /// See [`Window::wait_until_any`].
    ///
    /// # Errors
    /// See there.
    #[track_caller]
    pub fn any(self, indices: &[usize], cmp: Cmp, value: T) -> Result<usize> {
        self.window.check(indices);
        self.window.inner.pe.waiting_call("Wait::any", Some(self.window.inner.made), || {
            refuse_none(indices)?;
            let window = self.window;
            window.note_words(indices, cmp, value);
            let words = || self.words(false, indices, cmp, value);
            let found = self.wait(&words, || {
                indices.iter().position(|&index| cmp.holds(window.look(index), value))
            })?;
            window.note_last(indices, &[found], cmp, value);
            Ok(found)
        })
    }

    /// See [`Window::wait_until_all`].
    ///
    /// # Errors
    /// See there.
    #[track_caller]
    pub fn all(self, indices: &[usize], cmp: Cmp, value: T) -> Result<()> {
        self.window.check(indices);
        self.window.inner.pe.waiting_call("Wait::all", Some(self.window.inner.made), || {
            let window = self.window;
            window.note_words(indices, cmp, value);
            // Those before `seen` have compared so, and need no second look.
            let (mut seen, mut last) = (0, 0);
            let words = || self.words(true, indices, cmp, value);
            self.wait(&words, || {
                while seen < indices.len() && cmp.holds(window.look(indices[seen]), value) {
                    seen += 1;
                }
                if seen < indices.len() {
                    last = seen;
                }
                (seen == indices.len()).then_some(())
            })?;
            window.note_last(indices, &[last], cmp, value);
            Ok(())
        })
    }

    /// See [`Window::wait_until_some`].
    ///
    /// # Errors
    /// See there.
    #[track_caller]
    pub fn some(self, indices: &[usize], cmp: Cmp, value: T) -> Result<Vec<usize>> {
        self.window.check(indices);
        self.window.inner.pe.waiting_call("Wait::some", Some(self.window.inner.made), || {
            refuse_none(indices)?;
            let window = self.window;
            window.note_words(indices, cmp, value);
            let words = || self.words(false, indices, cmp, value);
            let found = self.wait(&words, || {
                let places: Vec<usize> = (0..indices.len())
                    .filter(|&place| cmp.holds(window.look(indices[place]), value))
                    .collect();
                (!places.is_empty()).then_some(places)
            })?;
            window.note_last(indices, &found, cmp, value);
            Ok(found)
        })
    }
}

impl<T: Word> Window<T> {
    /// Panics in the program's line if an index is out of range. Where words are looked at, that
    /// line is not known.
    #[inline]
    #[track_caller]
    fn check(&self, indices: &[usize]) {
        for &index in indices {
            self.at(index, 1);
        }
    }

    /// Says for a timeline which words of this PE's part its call waits for, unless there are very
    /// many.
    fn note_words(&self, indices: &[usize], cmp: Cmp, value: T) {
        if self.inner.pe.recorder().is_some() && indices.len() <= MOST_NOTED {
            indices.iter().for_each(|&index| self.note_word(index, cmp, value));
        }
    }

    /// Where there were very many words, says which ones the wait was for in the end.
    fn note_last(&self, indices: &[usize], places: &[usize], cmp: Cmp, value: T) {
        if self.inner.pe.recorder().is_some() && indices.len() > MOST_NOTED {
            let places = places.iter().take(MOST_NOTED);
            places.for_each(|&place| self.note_word(indices[place], cmp, value));
        }
    }

    fn note_word(&self, index: usize, cmp: Cmp, value: T) {
        if index < self.len() {
            let word = self.local_ptr().wrapping_add(index).cast_const();
            self.inner.pe.note_word(word.cast(), size_of::<T>(), cmp, value.to_bits());
        }
    }
}

/// Most words of a call that a timeline has.
const MOST_NOTED: usize = 64;

fn refuse_none(indices: &[usize]) -> Result<()> {
    if indices.is_empty() {
        Err(crate::Error::misuse("a wait for any of no words would never end"))
    } else {
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Cmp, Job, Window};
    use std::cell::Cell;
    use std::panic::{self, AssertUnwindSafe};

    thread_local! {
        /// The line of this thread's last panic, if the test below watches the thread.
        static LINE: Cell<Option<u32>> = const { Cell::new(None) };
    }

    #[test]
    fn an_index_out_of_range_panics_in_the_line_of_the_program() {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match LINE.get() {
            Some(_) => LINE.set(panic.location().map(|place| place.line())),
            None => others(panic),
        }));
        let ended = Job::threads(1, |job| {
            let words = job.window::<u64>(3).unwrap();
            LINE.set(Some(0));
            let first = line!();
            let calls: [fn(&Window<u64>); 9] = [
                |w| drop(w.wait_until(3, Cmp::Eq, 1)),
                |w| drop(w.wait_until_any(&[0, 3], Cmp::Eq, 1)),
                |w| drop(w.wait_until_all(&[0, 3], Cmp::Eq, 1)),
                |w| drop(w.wait_until_some(&[0, 3], Cmp::Eq, 1)),
                |w| drop(w.wait().any(&[0, 3], Cmp::Eq, 1)),
                |w| assert!(w.test_until(3, Cmp::Eq, 1)),
                |w| assert!(w.test_any(&[0, 3], Cmp::Eq, 1).is_some()),
                |w| assert!(w.test_all(&[0, 3], Cmp::Eq, 1)),
                |w| assert!(!w.test_some(&[0, 3], Cmp::Eq, 1).is_empty()),
            ];
            for (at, call) in calls.iter().enumerate() {
                panic::catch_unwind(AssertUnwindSafe(|| call(&words))).unwrap_err();
                assert_eq!(LINE.replace(Some(0)), Some(first + 2 + at as u32));
            }
            LINE.set(None);
        });
        ended.unwrap();
    }
}
