//! Guards of ranges of a region.

use crate::base::shm::{self, Plain, zeroed};
use crate::base::shows;
use crate::endpoint::ending;
use std::ops::Range;

use super::Region;

/// A guard of a [`Region`] to read a range. Indices are those of the region.
pub struct Reading<'a, T: Plain> {
    pub(super) region: &'a Region<T>,
    pub(super) range: Range<usize>,
    pub(super) base: Option<*mut T>,
}

shows!([T: Plain] Reading<'_, T> as "Reading", |it| region = it.region, range = it.range);

/// A guard of a [`Region`] to read and write a range. Indices are those of the region.
pub struct Writing<'a, T: Plain> {
    pub(super) region: &'a Region<T>,
    pub(super) range: Range<usize>,
    pub(super) base: Option<*mut T>,
}

shows!([T: Plain] Writing<'_, T> as "Writing", |it| region = it.region, range = it.range);

// SAFETY: the base leads into a mapping that the region keeps, and is accessed only through
// `crate::base::shm`, which any thread may use.
unsafe impl<T: Plain> Send for Reading<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Reading<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Send for Writing<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Writing<'_, T> {}

macro_rules! reads {
    ($($guard:ident)*) => {$(
        impl<T: Plain> $guard<'_, T> {
            #[inline(always)]
            fn at(&self, index: usize) -> *mut T {
                assert!(self.range.contains(&index), "element {index} is outside of the guard's range {:?}", self.range);
                match self.base {
                    Some(base) => base.wrapping_add(index - self.range.start),
                    None => self.region.element(index),
                }
            }

            /// The range of this guard.
            pub fn range(&self) -> Range<usize> {
                self.range.clone()
            }

            /// An element. One of 1, 2, 4 or 8 bytes is never torn, even in a race.
            ///
            /// # Panics
            /// When `index` is outside of the guard's range; this holds for all its methods.
            #[inline(always)]
            pub fn get(&self, index: usize) -> T {
                // SAFETY: `at` checked the index; the place is mapped and aligned while the region
                // lives.
                unsafe { shm::read_plain(self.at(index)) }
            }

            /// Copies elements from `index` on into `to`.
            pub fn read_into(&self, index: usize, to: &mut [T]) {
                for (index, to) in self.pieces(index, to.len(), to) {
                    // SAFETY: `pieces` checked the range, and gives parts that lie together; `to`
                    // is private.
                    unsafe { shm::copy(to.as_mut_ptr().cast(), self.at(index).cast(), size_of_val(to)) };
                }
            }

            /// All elements of the range.
            pub fn to_vec(&self) -> Vec<T> {
                let mut all = zeroed(self.range.len());
                self.read_into(self.range.start, &mut all);
                all
            }

            /// Address of the range, if all of it lies together: on near peers if its pages have
            /// one home. The memory stays there while the guard lives.
            ///
            /// A caller that makes a reference of it promises that no other PE writes these
            /// elements meanwhile; [no guard can see that](super).
            pub fn as_ptr(&self) -> Option<*const T> {
                self.base.map(|base| if self.range.is_empty() { std::ptr::dangling() } else { base.cast_const() })
            }

            /// Cuts `count` elements from `index` on, and the slice `with` alike, into pieces that
            /// lie together.
            fn pieces<S: Cut>(&self, mut index: usize, mut count: usize, mut with: S) -> impl Iterator<Item = (usize, S)> {
                let end = index.checked_add(count);
                let inside = index >= self.range.start && end.is_some_and(|end| end <= self.range.end);
                assert!(inside, "{count} elements from {index} on are not in the guard's range {:?}", self.range);
                let (together, per_page) = (self.base.is_some(), self.region.elements_per_page());
                std::iter::from_fn(move || {
                    if count == 0 {
                        return None;
                    }
                    let n = if together { count } else { count.min(per_page - index % per_page) };
                    let (piece, rest) = std::mem::replace(&mut with, S::none()).cut(n);
                    with = rest;
                    let item = (index, piece);
                    (index, count) = (index + n, count - n);
                    Some(item)
                })
            }
        }
    )*};
}

reads!(Reading Writing);

/// A shared or a mutable slice.
trait Cut: Sized {
    fn none() -> Self;
    fn cut(self, at: usize) -> (Self, Self);
}

impl<T> Cut for &[T] {
    fn none() -> Self {
        &[]
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl<T> Cut for &mut [T] {
    fn none() -> Self {
        &mut []
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

impl<T: Plain> Writing<'_, T> {
    /// Writes an element. One of 1, 2, 4 or 8 bytes is never seen torn.
    ///
    /// # Panics
    /// When `index` is outside of the guard's range; this holds for all its methods.
    #[inline(always)]
    pub fn set(&mut self, index: usize, value: T) {
        // SAFETY: `at` checked the index; the place is mapped, writable and aligned while the
        // region lives.
        unsafe { shm::copy(self.at(index).cast(), (&raw const value).cast(), size_of::<T>()) };
    }

    /// [`as_ptr`](Self::as_ptr), to write too. A caller that makes a mutable reference of it also
    /// promises that no other PE reads these elements meanwhile.
    ///
    /// ```
    /// # use memonet_core::{Job, dsm::Region};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let region = Region::<u64>::new(&job, 1024)?; // a page for each of two PEs
    /// let mine = job.pe() * 512..(job.pe() + 1) * 512;
    /// let mut part = region.write(mine)?;
    /// let place = part.as_mut_ptr().expect("a page lies together");
    /// // SAFETY: the guard's 512 elements, which the other PE looks at only after the barrier.
    /// let slice = unsafe { std::slice::from_raw_parts_mut(place, 512) };
    /// slice.iter_mut().rev().zip(0..).for_each(|(to, number)| *to = number);
    /// drop(part);
    /// region.barrier()?;
    /// assert_eq!((region.read(0..1)?.get(0), region.read(1000..1024)?.get(1023)), (511, 0));
    /// assert!(region.read(0..0)?.as_ptr().is_some_and(|place| !place.is_null()));
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    pub fn as_mut_ptr(&mut self) -> Option<*mut T> {
        self.as_ptr().map(<*const T>::cast_mut)
    }

    /// Copies `from` to the elements from `index` on.
    pub fn write_from(&mut self, index: usize, from: &[T]) {
        for (index, from) in self.pieces(index, from.len(), from) {
            // SAFETY: `pieces` checked the range, and gives parts that lie together; `from` is
            // private.
            unsafe { shm::copy(self.at(index).cast(), from.as_ptr().cast(), size_of_val(from)) };
        }
    }
}

impl<T: Plain> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        // A forked child's copy of the pages may be locked for ever.
        if let Some(pages) = &self.region.pages
            && ending::refuse_child(&self.region.pe).is_ok()
        {
            pages.written(self.region.pages_of(&self.range));
        }
    }
}
