//! Contents of shared objects: plain data, or a slice of them.

use crate::base::error::{Error, Result};
use crate::base::shm::Plain;
use crate::window::element_bytes;

mod sealed {
    pub trait Sealed {}
    impl<T: crate::base::shm::Plain> Sealed for T {}
    impl<T: crate::base::shm::Plain> Sealed for [T] {}
}

/// Data that a [`Mutex`](super::Mutex) or [`RwLock`](super::RwLock) can own: a `T` of plain data,
/// or a `[T]`.
pub trait Data: sealed::Sealed + Send + Sync + 'static {
    /// The elements of which it consists.
    type Element: Plain;
    /// A copy of it: `T`, or `Vec<T>`.
    type Owned;

    /// All of its elements.
    fn elements(&self) -> &[Self::Element];

    /// From a copy of all elements.
    #[doc(hidden)]
    fn from_elements(elements: Vec<Self::Element>) -> Self::Owned;

    /// The data at `elements`.
    #[doc(hidden)]
    fn at(elements: *mut [Self::Element]) -> *mut Self;
}

impl<T: Plain> Data for T {
    type Element = T;
    type Owned = T;

    fn elements(&self) -> &[T] {
        std::slice::from_ref(self)
    }

    fn from_elements(elements: Vec<T>) -> T {
        elements[0]
    }

    #[inline(always)]
    fn at(elements: *mut [T]) -> *mut T {
        elements.cast()
    }
}

impl<T: Plain> Data for [T] {
    type Element = T;
    type Owned = Vec<T>;

    fn elements(&self) -> &[T] {
        self
    }

    fn from_elements(elements: Vec<T>) -> Vec<T> {
        elements
    }

    #[inline(always)]
    fn at(elements: *mut [T]) -> *mut [T] {
        elements
    }
}

/// A cache line pair, the unit of shared objects' windows.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(128))]
pub(super) struct CacheLine([u64; 16]);

/// Bytes of a [`CacheLine`].
pub(super) const LINE: usize = size_of::<CacheLine>();

/// Bytes of `len` elements, which a [`CacheLine`] aligns.
pub(super) fn bytes_of<T: Plain>(len: usize) -> Result<usize> {
    if align_of::<T>() > align_of::<CacheLine>() {
        return Err(Error::misuse("shared data cannot be aligned to more than 128 bytes"));
    }
    element_bytes::<T>(len)
}
