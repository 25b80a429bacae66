//! A PE's own part of a window, by copies: peers may write while it is read.

use crate::base::shm::{self, Plain, zeroed};
use crate::wait::polling;
use crate::window::Window;
use std::ops::Range;

impl<T: Plain> Window<T> {
    /// Address of element `index` of this PE's own part.
    ///
    /// # Panics
    /// When out of range, like a slice.
    #[inline]
    #[track_caller]
    pub(super) fn at(&self, index: usize, count: usize) -> *mut T {
        match self.range(index, count) {
            Ok(offset) => self.reach.local.wrapping_add(offset).cast(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads an element of this PE's own part. Elements of 1, 2, 4 or 8 bytes are never torn.
    ///
    /// OpenSHMEM and MPI: a plain read of the memory.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<f32>(10)?;
    /// window.write(3, 0.5); // this PE's own part
    /// window.fill(5..8, 2.0);
    /// assert_eq!((window.read(3), window.read(7)), (0.5, 2.0));
    /// let mut three = [0.0; 3];
    /// window.read_into(3, &mut three);
    /// assert_eq!(three, [0.5, 0.0, 2.0]);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Panics
    /// When `index` is out of range.
    #[inline]
    #[track_caller]
    pub fn read(&self, index: usize) -> T {
        if polling::is_on() {
            self.has_read(self.at(index, 1).cast(), size_of::<T>());
        }
        self.look(index)
    }

    /// [`read`](Self::read), for waits.
    #[inline]
    #[track_caller]
    pub(crate) fn look(&self, index: usize) -> T {
        // SAFETY: `at` checked the range, and elements are aligned.
        unsafe { shm::read_plain(self.at(index, 1)) }
    }

    /// To be called beside a read of `bytes` at `from`, memory of this window: a program may read
    /// again and again until it finds something else.
    #[cold]
    pub(crate) fn has_read(&self, from: *const u8, bytes: usize) {
        // SAFETY: the caller has checked the range.
        if let Some(value) = unsafe { polling::digest(from, bytes) } {
            polling::has_read(&self.inner.pe, from as usize, value);
        }
    }

    /// Writes an element of this PE's own part. Elements of 1, 2, 4 or 8 bytes are never torn.
    ///
    /// # Panics
    /// When `index` is out of range.
    #[inline]
    #[track_caller]
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: `at` checked the range.
        unsafe { shm::copy(self.at(index, 1).cast(), (&raw const value).cast(), size_of::<T>()) }
    }

    /// Copies elements of this PE's own part, from `index` on, into `to`.
    ///
    /// # Panics
    /// When the elements are not all in range.
    #[track_caller]
    pub fn read_into(&self, index: usize, to: &mut [T]) {
        // SAFETY: `at` checked the range; `to` is private memory.
        unsafe {
            shm::copy(to.as_mut_ptr().cast(), self.at(index, to.len()).cast(), size_of_val(to))
        }
    }

    /// Copies `from` into this PE's own part, from `index` on.
    ///
    /// # Panics
    /// When the elements are not all in range.
    #[track_caller]
    pub fn write_from(&self, index: usize, from: &[T]) {
        // SAFETY: `at` checked the range; `from` is private memory.
        unsafe {
            shm::copy(self.at(index, from.len()).cast(), from.as_ptr().cast(), size_of_val(from))
        }
    }

    /// A copy of all elements of this PE's own part.
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = zeroed(self.len());
        self.read_into(0, &mut all);
        all
    }

    /// Sets the elements `range` of this PE's own part to `value`.
    ///
    /// # Panics
    /// When the elements are not all in range.
    #[track_caller]
    pub fn fill(&self, range: Range<usize>, value: T) {
        // Checked before the first write.
        self.at(range.start, range.len());
        for index in range {
            self.write(index, value);
        }
    }

    /// Address of this PE's own part, `len` elements, for foreign code. The rules of
    /// [`local_slice`](Self::local_slice) apply to its use.
    pub fn local_ptr(&self) -> *mut T {
        self.reach.local.cast()
    }

    /// This PE's own part as a slice.
    ///
    /// # Safety
    /// While the slice lives, no PE (this one included) writes its elements: for example between
    /// two barriers between which no PE writes.
    pub unsafe fn local_slice(&self) -> &[T] {
        // SAFETY: the memory is mapped and aligned as long as the window lives, any bytes are a
        // `T`, and the caller promises that nobody writes.
        unsafe { std::slice::from_raw_parts(self.local_ptr(), self.len()) }
    }

    /// This PE's own part as a mutable slice.
    ///
    /// # Safety
    /// While the slice lives, no PE reads or writes its elements except through the slice.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller promises what the borrow checker cannot see: other processes"
    )]
    pub unsafe fn local_slice_mut(&self) -> &mut [T] {
        // SAFETY: as in `local_slice`, and the caller promises that this is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.local_ptr(), self.len()) }
    }

    /// Address of an element of a near PE's part; `None` when the PE is far, the element is out of
    /// range, or the access is not granted. For foreign code and measurements. The rules of
    /// [`local_slice`](Self::local_slice) apply to its use.
    ///
    /// OpenSHMEM: `shmem_ptr`; MPI: `MPI_Win_shared_query`.
    pub fn near_ptr(&self, pe: usize, index: usize) -> Option<*mut T> {
        let target = self.target(pe, index, 1, crate::base::access::Access::ReadWrite).ok()?;
        target.route.mapped().map(|p| p.cast())
    }
}
