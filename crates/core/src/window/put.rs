//! Blocks: put, get, strided and indexed, and a put with its signal.

use crate::base::access::Access;
use crate::base::error::{Error, Result};
use crate::base::shm::{self, Plain};
use crate::endpoint::belongs::{check_together, is_together};
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::route::Route;
use crate::wait::polling;
use crate::window::Window;
use std::mem::MaybeUninit;
use std::ops::Range;

impl<T: Plain> Window<T> {
    /// Copies `from` into `pe`'s part, from element `index` on.
    ///
    /// OpenSHMEM: `shmem_put`; MPI: `MPI_Put`.
    ///
    /// On return the source may be reused. The block is visible at the target after
    /// [`quiet`](crate::Job::quiet), and in order with other writes only across a
    /// [`fence`](crate::Job::fence). [`put_signal`](Self::put_signal) also tells the target.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u32>(4)?;
    /// let right = (job.pe() + 1) % job.npes();
    /// window.put(right, 1, &[10, 20])?;
    /// job.barrier()?; // completes the put, and waits for the put of the left neighbour
    /// assert_eq!(window.to_vec(), [0, 10, 20, 0]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`NoSuchPe`](Error::NoSuchPe), [`OutOfBounds`](Error::OutOfBounds),
    /// [`AccessDenied`](Error::AccessDenied), [`Revoked`](Error::Revoked); nothing is written.
    #[inline]
    #[track_caller]
    pub fn put(&self, pe: usize, index: usize, from: &[T]) -> Result<()> {
        if let Some(to) = self.near(pe, index, from.len(), Access::Write) {
            // SAFETY: `near` checked that many elements; `from` is private memory.
            unsafe {
                shm::copy(to, from.as_ptr().cast(), size_of_val(from));
                self.wrote_near(pe);
            }
            return Ok(());
        }
        // SAFETY: a slice can be read.
        unsafe { self.put_from(pe, index, from.as_ptr(), from.len()) }
    }

    /// [`put`](Self::put) of `count` elements that other threads or PEs may write meanwhile, so
    /// that there can be no reference to them.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// # Safety
    /// `from` can be read for `count` elements, and none of them is an element that is written.
    #[cold]
    #[track_caller]
    pub unsafe fn put_from(
        &self,
        pe: usize,
        index: usize,
        from: *const T,
        count: usize,
    ) -> Result<()> {
        self.inner.pe.waiting_call("Window::put", Some(self.inner.made), || {
            let (me, bytes) = (&self.inner.pe, count * size_of::<T>());
            if let Some(to) = self.far(pe, index, count, Access::Write) {
                // SAFETY: the caller promises the source.
                unsafe { me.fabric_of(to).put(to, from.cast(), bytes) }?;
                me.wrote(pe);
                return Ok(());
            }
            let target = self.target(pe, index, count, Access::Write)?;
            // SAFETY: the target was resolved for that many elements; the caller promises the
            // source.
            unsafe { target.route.put(me, from.cast(), bytes) }?;
            self.inner.pe.wrote(pe);
            Ok(())
        })
    }

    /// Copies elements of `pe`'s part, from element `index` on, into `to`.
    ///
    /// OpenSHMEM: `shmem_get`; MPI: `MPI_Get` and a flush.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u32>(4)?;
    /// window.write_from(0, &[job.pe() as u32; 4]);
    /// job.barrier()?; // now every PE has written its part
    /// let mut last = [0; 2];
    /// window.get(job.npes() - 1, 2, &mut last)?;
    /// assert_eq!(last, [2, 2]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get(&self, pe: usize, index: usize, to: &mut [T]) -> Result<()> {
        // SAFETY: a slice of `T` may be written as one of possibly uninitialised `T`, as only
        // initialised ones are written.
        let to = unsafe { &mut *(std::ptr::from_mut(to) as *mut [MaybeUninit<T>]) };
        self.get_uninit(pe, index, to)
    }

    /// Fills all of `to`, unless the call fails.
    #[inline]
    #[track_caller]
    fn get_uninit(&self, pe: usize, index: usize, to: &mut [MaybeUninit<T>]) -> Result<()> {
        if let Some(from) = self.near(pe, index, to.len(), Access::Read) {
            // SAFETY: `near` checked that many elements; `to` is private memory.
            unsafe { shm::copy(to.as_mut_ptr().cast(), from, size_of_val(to)) };
            if polling::is_on() {
                self.has_read(from, size_of_val(to));
            }
            return Ok(());
        }
        // SAFETY: a slice can be written.
        unsafe { self.get_to(pe, index, to.as_mut_ptr().cast(), to.len()) }
    }

    /// [`get`](Self::get) of `count` elements into memory that other threads or PEs may access
    /// meanwhile, so that there can be no reference to it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// # Safety
    /// `to` can be written for `count` elements, and none of them is an element that is read.
    #[cold]
    #[track_caller]
    pub unsafe fn get_to(&self, pe: usize, index: usize, to: *mut T, count: usize) -> Result<()> {
        self.inner.pe.waiting_call("Window::get", Some(self.inner.made), || {
            let target = self.target(pe, index, count, Access::Read)?;
            let bytes = count * size_of::<T>();
            // SAFETY: the target was resolved for that many elements; the caller promises the
            // destination.
            unsafe { target.route.get(&self.inner.pe, to.cast(), bytes) }?;
            if polling::is_on()
            // SAFETY: as above.
            && let Some(value) = unsafe { polling::digest(to.cast(), bytes) }
            {
                polling::has_read(&self.inner.pe, target.route.place(), value);
            }
            Ok(())
        })
    }

    /// [`put`](Self::put) of one element. To write one word again and again, resolve it once with
    /// [`remote`](Self::remote).
    ///
    /// OpenSHMEM: `shmem_p`; MPI: `MPI_Put`.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn put_one(&self, pe: usize, index: usize, value: T) -> Result<()> {
        self.put(pe, index, std::slice::from_ref(&value))
    }

    /// [`get`](Self::get) of one element.
    ///
    /// OpenSHMEM: `shmem_g`; MPI: `MPI_Get` and a flush.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn get_one(&self, pe: usize, index: usize) -> Result<T> {
        let mut value = MaybeUninit::<T>::uninit();
        self.get_uninit(pe, index, std::slice::from_mut(&mut value))?;
        // SAFETY: filled just now, and any bytes are a `T`.
        Ok(unsafe { value.assume_init() })
    }

    /// Copies elements `from` of this PE's own part of `source` into `pe`'s part, from element
    /// `index` on, without waiting for the copy. The source must not change until the next
    /// [`quiet`](crate::Job::quiet), because a far fabric may read it at any time before.
    ///
    /// OpenSHMEM: `shmem_put_nbi`; MPI: `MPI_Put`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let (from, to) = (job.window::<u32>(4)?, job.window::<u32>(4)?);
    /// from.fill(0..4, 9);
    /// to.put_nbi((job.pe() + 1) % job.npes(), 0, &from, 0..4)?;
    /// // compute something else here
    /// job.quiet()?; // the block is at the target; the source may change
    /// job.barrier()?;
    /// assert_eq!(to.to_vec(), [9; 4]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put); [`Misuse`](Error::Misuse) when source and target overlap, or the
    /// source belongs to another job, or to another PE of this one.
    #[inline]
    #[track_caller]
    pub fn put_nbi(
        &self,
        pe: usize,
        index: usize,
        source: &Window<T>,
        from: Range<usize>,
    ) -> Result<()> {
        let count = from.end.wrapping_sub(from.start);
        if from.start <= from.end
            && from.end <= source.len()
            && is_together(self, source)
            && let Some(to) = self.near(pe, index, count, Access::Write)
        {
            let (src, bytes) = (
                source.reach.local.wrapping_add(from.start * size_of::<T>()),
                count * size_of::<T>(),
            );
            // Only parts of the same PE can.
            if pe != self.reach.me || !overlap(to, src, bytes) {
                // SAFETY: both ranges were checked, and do not overlap.
                unsafe {
                    shm::copy(to, src, bytes);
                    self.wrote_near(pe);
                }
                return Ok(());
            }
        }
        self.put_nbi_resolved(pe, index, source, from)
    }

    #[cold]
    #[track_caller]
    fn put_nbi_resolved(
        &self,
        pe: usize,
        index: usize,
        source: &Window<T>,
        from: Range<usize>,
    ) -> Result<()> {
        self.inner.pe.waiting_call("Window::put_nbi", Some(self.inner.made), || {
            let me = &self.inner.pe;
            let count = from.end.wrapping_sub(from.start);
            if from.start <= from.end
                && from.end <= source.len()
                && is_together(self, source)
                && let Some(to) = self.far(pe, index, count, Access::Write)
            {
                let src = source.reach.local.wrapping_add(from.start * size_of::<T>());
                // SAFETY: both ranges were checked, and are of two PEs; for the source, as below.
                unsafe { me.fabric_of(to).put_nbi(to, src, count * size_of::<T>()) }?;
                me.wrote(pe);
                return Ok(());
            }
            let (target, src, bytes) = self.copy_ends(pe, index, source, from)?;
            match target.route {
                // SAFETY: both ranges were checked, and do not overlap.
                route @ Route::Near(_) => unsafe { route.put(me, src, bytes) }?,
                // SAFETY: the source is window memory: a segment stays mapped as long as the job,
                // and a restricted part is unmapped only when the fabric is quiet.
                Route::Far(to) => unsafe { me.fabric_of(to).put_nbi(to, src, bytes) }?,
            }
            me.wrote(pe);
            Ok(())
        })
    }

    /// Resolves both ends of a copy from this PE's own part of `source`.
    pub(crate) fn copy_ends(
        &self,
        pe: usize,
        index: usize,
        source: &Window<T>,
        from: Range<usize>,
    ) -> Result<(crate::window::Target, *const u8, usize)> {
        check_together(self, source)?;
        let count = from
            .end
            .checked_sub(from.start)
            .ok_or(Error::misuse("a range that ends before it starts"))?;
        let offset = source.range(from.start, count)?;
        let target = self.target(pe, index, count, Access::Write)?;
        let (src, bytes) =
            (source.reach.local.wrapping_add(offset).cast_const(), count * size_of::<T>());
        if pe == self.inner.pe.me()
            && overlap(self.reach.local.wrapping_add(self.range(index, count)?), src, bytes)
        {
            return Err(Error::misuse(
                "source and target of a put overlap; put through a buffer of your own",
            ));
        }
        Ok((target, src, bytes))
    }

    /// Copies `count` elements, every `from_stride`-th of `from`, to every `stride`-th element of
    /// `pe`'s part, from `index` on: a column of a matrix, for example.
    ///
    /// OpenSHMEM: `shmem_iput`; MPI: `MPI_Put` with a vector type.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let matrix = job.window::<u32>(9)?; // 3 rows of 3
    /// if job.pe() == 0 {
    ///     matrix.put_strided(1, 2, 3, &[1, 2, 3], 1, 3)?; // the last column
    /// }
    /// job.barrier()?;
    /// if job.pe() == 1 {
    ///     assert_eq!(matrix.to_vec(), [0, 0, 1, 0, 0, 2, 0, 0, 3]);
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put); [`Length`](Error::Length) when `from` is too short; nothing is
    /// written.
    #[track_caller]
    pub fn put_strided(
        &self,
        pe: usize,
        index: usize,
        stride: usize,
        from: &[T],
        from_stride: usize,
        count: usize,
    ) -> Result<()> {
        self.inner.pe.waiting_call("Window::put_strided", Some(self.inner.made), || {
            if count == 0 {
                return self.put(pe, index, &[]);
            }
            let target = self.target(pe, index, span(stride, count)?, Access::Write)?;
            check_buffer(
                "elements that the strides reach, and the source",
                span(from_stride, count)?,
                from.len(),
            )?;
            for i in 0..count {
                let to = target.route.add(i * stride * size_of::<T>());
                // SAFETY: element `i * stride` lies in the resolved span, `i * from_stride` in the
                // checked source.
                unsafe {
                    to.put(
                        &self.inner.pe,
                        from.as_ptr().add(i * from_stride).cast(),
                        size_of::<T>(),
                    )?
                };
            }
            self.inner.pe.wrote(pe);
            Ok(())
        })
    }

    /// The inverse of [`put_strided`](Self::put_strided): copies every `stride`-th element of
    /// `pe`'s part, from `index` on, to every `to_stride`-th element of `to`.
    ///
    /// OpenSHMEM: `shmem_iget`; MPI: `MPI_Get` with a vector type.
    ///
    /// # Errors
    /// As for [`put_strided`](Self::put_strided).
    #[track_caller]
    pub fn get_strided(
        &self,
        pe: usize,
        index: usize,
        stride: usize,
        to: &mut [T],
        to_stride: usize,
        count: usize,
    ) -> Result<()> {
        self.inner.pe.waiting_call("Window::get_strided", Some(self.inner.made), || {
            if count == 0 {
                return self.get(pe, index, &mut []);
            }
            let target = self.target(pe, index, span(stride, count)?, Access::Read)?;
            check_buffer(
                "elements that the strides reach, and the destination",
                span(to_stride, count)?,
                to.len(),
            )?;
            for i in 0..count {
                let from = target.route.add(i * stride * size_of::<T>());
                // SAFETY: element `i * stride` lies in the resolved span, `i * to_stride` in the
                // checked destination.
                unsafe {
                    from.get(
                        &self.inner.pe,
                        to.as_mut_ptr().add(i * to_stride).cast(),
                        size_of::<T>(),
                    )?
                };
            }
            Ok(())
        })
    }

    /// Copies `from[i]` to element `indices[i]` of `pe`'s part, for every `i`.
    ///
    /// OpenSHMEM: a `shmem_p` for each; MPI: `MPI_Put` with an indexed type.
    ///
    /// # Errors
    /// As for [`put`](Self::put); [`Length`](Error::Length) when the slices differ in length;
    /// nothing is written.
    #[track_caller]
    pub fn put_indexed(&self, pe: usize, indices: &[usize], from: &[T]) -> Result<()> {
        self.inner.pe.waiting_call("Window::put_indexed", Some(self.inner.made), || {
            check_equal("indices and elements", indices.len(), from.len())?;
            let target = self.scattered(pe, indices, Access::Write)?;
            for (&index, value) in indices.iter().zip(from) {
                // SAFETY: `scattered` checked every index against the resolved span.
                unsafe {
                    target.route.add(index * size_of::<T>()).put(
                        &self.inner.pe,
                        (&raw const *value).cast(),
                        size_of::<T>(),
                    )?
                };
            }
            self.inner.pe.wrote(pe);
            Ok(())
        })
    }

    /// Copies element `indices[i]` of `pe`'s part to `to[i]`, for every `i`.
    ///
    /// OpenSHMEM: a `shmem_g` for each; MPI: `MPI_Get` with an indexed type.
    ///
    /// # Errors
    /// As for [`put_indexed`](Self::put_indexed).
    #[track_caller]
    pub fn get_indexed(&self, pe: usize, indices: &[usize], to: &mut [T]) -> Result<()> {
        self.inner.pe.waiting_call("Window::get_indexed", Some(self.inner.made), || {
            check_equal("indices and elements", indices.len(), to.len())?;
            let target = self.scattered(pe, indices, Access::Read)?;
            for (&index, value) in indices.iter().zip(to) {
                // SAFETY: `scattered` checked every index against the resolved span.
                unsafe {
                    target.route.add(index * size_of::<T>()).get(
                        &self.inner.pe,
                        (&raw mut *value).cast(),
                        size_of::<T>(),
                    )?
                };
            }
            Ok(())
        })
    }

    /// Resolves the whole part, after checking every index.
    fn scattered(
        &self,
        pe: usize,
        indices: &[usize],
        wanted: Access,
    ) -> Result<crate::window::Target> {
        for &index in indices {
            self.range(index, 1)?;
        }
        self.target(pe, 0, self.len(), wanted)
    }

    /// Copies `from` into `pe`'s part, from element `index` on, then updates word `signal` of
    /// `pe`'s part of `signals`. A PE that sees the signal sees the block. The signal wakes `pe` if
    /// it sleeps.
    ///
    /// OpenSHMEM: `shmem_put_signal`; MPI: `MPI_Send`, with `MPI_Recv` at the other PE.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job, SignalOp};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let (blocks, ready) = (job.window::<f64>(1000)?, job.window::<u64>(1)?);
    /// let right = (job.pe() + 1) % job.npes();
    /// blocks.put_signal(right, 0, &[1.5; 1000], &ready, 0, SignalOp::Add, 1)?;
    /// ready.wait_until(0, Cmp::Ge, 1)?; // the block of the left neighbour is here
    /// assert_eq!(blocks.read(999), 1.5);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put), for either window; [`Misuse`](Error::Misuse) when they do not
    /// belong to the same PE of the same job; nothing is written.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "a block, a signal, and where they go")]
    #[track_caller]
    pub fn put_signal(
        &self,
        pe: usize,
        index: usize,
        from: &[T],
        signals: &Window<u64>,
        signal: usize,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        if is_together(self, signals)
            && let Some(at) = signals.near(pe, signal, 1, signal_access(op))
            && let Some(to) = self.near(pe, index, from.len(), Access::Write)
        {
            // SAFETY: `near` checked that many elements; `from` is private memory. The copy is
            // complete, for every later store, when it returns.
            unsafe { shm::copy(to, from.as_ptr().cast(), size_of_val(from)) };
            return Ok(Route::Near(at).signal(&self.inner.pe, pe, op, value)?);
        }
        let from = (from.as_ptr(), from.len());
        // SAFETY: a slice can be read.
        unsafe { self.put_signal_from(pe, index, from, signals, signal, op, value) }
    }

    /// [`put_signal`](Self::put_signal) of so many elements at an address, which other threads or
    /// PEs may write meanwhile, so that there can be no reference to them.
    ///
    /// # Errors
    /// As for [`put_signal`](Self::put_signal).
    ///
    /// # Safety
    /// As for [`put_from`](Self::put_from).
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "as above")]
    #[track_caller]
    pub unsafe fn put_signal_from(
        &self,
        pe: usize,
        index: usize,
        (from, count): (*const T, usize),
        signals: &Window<u64>,
        signal: usize,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        self.inner.pe.waiting_call("Window::put_signal", Some(self.inner.made), || {
            check_together(self, signals)?;
            let word = signals.target(pe, signal, 1, signal_access(op))?;
            let target = self.target(pe, index, count, Access::Write)?;
            let (me, bytes) = (&self.inner.pe, count * size_of::<T>());
            // SAFETY: the caller promises the source; both targets were resolved.
            let put = unsafe {
                target.route.put_signal(me, from.cast(), bytes, (word.route, pe), op, value)
            };
            Ok(put?)
        })
    }
}

impl Window<u64> {
    /// Updates word `index` of `pe`'s part, and wakes `pe` if it sleeps. The signal comes after
    /// this PE's earlier writes only across a [`fence`](crate::Job::fence), and that includes its
    /// earlier signals of this word: of two that set it, either may come last, while sums are right
    /// in any order. The signal of [`put_signal`](Window::put_signal) comes after its own block.
    ///
    /// OpenSHMEM: `shmem_signal_set`, `shmem_signal_add`.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job, SignalOp};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let arrived = job.window::<u64>(1)?;
    /// arrived.signal(0, 0, SignalOp::Add, 1)?;
    /// if job.pe() == 0 {
    ///     arrived.wait_until(0, Cmp::Eq, 3)?; // all three PEs have signalled
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    #[inline]
    #[track_caller]
    pub fn signal(&self, pe: usize, index: usize, op: SignalOp, value: u64) -> Result<()> {
        self.inner.pe.call("Window::signal", Some(self.inner.made), || {
            let word = match self.near(pe, index, 1, signal_access(op)) {
                Some(word) => Route::Near(word),
                None => return self.signal_resolved(pe, index, op, value),
            };
            Ok(word.signal(&self.inner.pe, pe, op, value)?)
        })
    }

    #[cold]
    fn signal_resolved(&self, pe: usize, index: usize, op: SignalOp, value: u64) -> Result<()> {
        let word = self.target(pe, index, 1, signal_access(op))?;
        Ok(word.route.signal(&self.inner.pe, pe, op, value)?)
    }
}

pub(crate) fn signal_access(op: SignalOp) -> Access {
    match op {
        SignalOp::Set => Access::Write,
        SignalOp::Add => Access::ReadWrite,
    }
}

/// Whether two ranges of `bytes` share any.
#[inline]
fn overlap(a: *const u8, b: *const u8, bytes: usize) -> bool {
    (a as usize) < b as usize + bytes && (b as usize) < a as usize + bytes
}

/// Elements from the first to the last of `count` at a stride; `count` is not 0.
fn span(stride: usize, count: usize) -> Result<usize> {
    (count - 1).checked_mul(stride).and_then(|last| last.checked_add(1)).ok_or(Error::Overflow {
        index: count,
        size: stride,
        call: None,
    })
}

fn check_buffer(what: &'static str, needed: usize, there: usize) -> Result<()> {
    if needed <= there {
        Ok(())
    } else {
        Err(Error::Length { what, left: needed, right: there, call: None })
    }
}

fn check_equal(what: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::Length { what, left, right, call: None }) }
}
