//! Windows without their element type: what a class of Python calls.

use crate::blocking;
use crate::buffer::Raw;
use crate::errors::{raise, type_error, value_error};
use crate::kind::{Kind, with_word};
use crate::remote::Target;
use crate::scalar::Scalar;
use memonet_core::{Cmp, Error, Job, Result, SignalOp, Transfer, Wait, Window, WindowOptions};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// What a wait for words takes beside the words.
pub struct Terms {
    pub timeout: Option<Duration>,
    pub depends_on: Option<Vec<usize>>,
    /// Whether it may look with the interpreter's lock in hand.
    pub looks: bool,
}

/// Which of several words a wait or a test is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Any,
    All,
    Some,
}

/// A signal that goes with a block: the window, its word, what is done, and the value.
pub type Signal<'a> = (&'a dyn Cells, usize, SignalOp, u64);

/// A window whose elements are of any kind.
pub trait Cells: Any + Send + Sync {
    /// What the elements are.
    fn kind(&self) -> Kind;
    /// Number of elements of each PE.
    fn len(&self) -> usize;
    /// This PE's part.
    fn local(&self) -> *mut u8;

    /// Copies `count` elements at `from` to `pe`'s part, from `index` on.
    ///
    /// # Safety
    /// The elements at `from` may be read.
    unsafe fn put(&self, pe: usize, index: usize, from: Raw, count: usize) -> Result<()>;

    /// [`put`](Self::put), then a signal.
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    unsafe fn put_signal(
        &self,
        pe: usize,
        index: usize,
        from: Raw,
        count: usize,
        signal: &Signal<'_>,
    ) -> Result<()>;

    /// Copies `count` elements of `pe`'s part to `to`.
    ///
    /// # Safety
    /// So many elements at `to` may be written.
    unsafe fn get(&self, pe: usize, index: usize, to: Raw, count: usize) -> Result<()>;

    /// Prepares a copy from this PE's part of `source`.
    fn prepare(
        &self,
        pe: usize,
        index: usize,
        source: &dyn Cells,
        from: usize,
        count: usize,
    ) -> Result<Transfer>;

    /// A word of a PE, resolved.
    fn remote(&self, py: Python<'_>, pe: usize, index: usize) -> PyResult<Box<dyn Target>>;

    /// Waits until the comparison with a word holds; gives the word.
    fn wait(
        &self,
        index: usize,
        cmp: Cmp,
        value: &Bound<'_, PyAny>,
        terms: &Terms,
    ) -> PyResult<Py<PyAny>>;

    /// Waits for several words; gives places in `indices`.
    fn wait_for(
        &self,
        which: Which,
        indices: &[usize],
        cmp: Cmp,
        value: &Bound<'_, PyAny>,
        terms: &Terms,
    ) -> PyResult<Vec<usize>>;

    /// The places in `indices` for whose words the comparison holds now.
    fn test(&self, indices: &[usize], cmp: Cmp, value: &Bound<'_, PyAny>) -> PyResult<Vec<usize>>;
}

/// Makes a window of `len` elements.
pub fn make(job: &Job, kind: Kind, len: usize, options: WindowOptions) -> Result<Arc<dyn Cells>> {
    Ok(with_word!(kind, T => Arc::new(Words::<T>(job.window_with(len, options)?)), bytes size => {
        let bytes = len.saturating_mul(size);
        Arc::new(Lumps { bytes: job.window_with(bytes, options)?, size })
    }))
}

/// The window of a signal: words of 8 bytes without a sign.
pub fn signals(cells: &dyn Cells) -> Result<&Window<u64>> {
    (cells as &dyn Any).downcast_ref::<Words<u64>>().map(|words| &words.0).ok_or(Error::misuse(
        "signals are words of a window with dtype uint64, as in job.window(1, \"uint64\")",
    ))
}

/// Checks that there is such a word at `pe`.
pub fn check_signal(pe: usize, &(cells, word, _, _): &Signal<'_>) -> Result<()> {
    signals(cells)?.remote(pe, word).map(drop)
}

/// The words of a window whose kind is `T`'s.
///
/// # Panics
/// When the window's kind is another one.
pub fn word_window<T: Scalar>(cells: &dyn Cells) -> &Window<T> {
    let words = (cells as &dyn Any).downcast_ref::<Words<T>>();
    &words.expect("the words of a window of this kind").0
}

/// The bytes of a window whose kind is no word.
///
/// # Panics
/// When its kind is a word.
pub fn byte_window(cells: &dyn Cells) -> &Window<u8> {
    let lumps = (cells as &dyn Any).downcast_ref::<Lumps>();
    &lumps.expect("a window of elements that are no words").bytes
}

/// A window of words.
pub struct Words<T: Scalar>(pub Window<T>);

impl<T: Scalar> Words<T> {
    fn waiting<'a>(&'a self, terms: &'a Terms, timeout: Option<Duration>) -> Wait<'a, T> {
        let mut wait = self.0.wait();
        if let Some(timeout) = timeout {
            wait = wait.timeout(timeout);
        }
        match &terms.depends_on {
            Some(pes) => wait.depends_on(pes),
            None => wait,
        }
    }

    /// The core panics for these, and a panic is a poor exception.
    fn check(&self, indices: &[usize]) -> PyResult<()> {
        match indices.iter().find(|&&index| index >= self.0.len()) {
            None => Ok(()),
            Some(&index) => Python::attach(|py| {
                Err(raise(
                    py,
                    Error::OutOfBounds { index, count: 1, len: self.0.len(), call: None },
                ))
            }),
        }
    }
}

impl<T: Scalar> Cells for Words<T> {
    fn kind(&self) -> Kind {
        T::KIND
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn local(&self) -> *mut u8 {
        self.0.local_ptr().cast()
    }

    unsafe fn put(&self, pe: usize, index: usize, from: Raw, count: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.put_from(pe, index, from.0.cast::<T>().cast_const(), count) }
    }

    unsafe fn put_signal(
        &self,
        pe: usize,
        index: usize,
        from: Raw,
        count: usize,
        &(cells, word, op, value): &Signal<'_>,
    ) -> Result<()> {
        let (from, signals) = (from.0.cast::<T>().cast_const(), signals(cells)?);
        // SAFETY: the caller's promise.
        unsafe { self.0.put_signal_from(pe, index, (from, count), signals, word, op, value) }
    }

    unsafe fn get(&self, pe: usize, index: usize, to: Raw, count: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.0.get_to(pe, index, to.0.cast(), count) }
    }

    fn prepare(
        &self,
        pe: usize,
        index: usize,
        source: &dyn Cells,
        from: usize,
        count: usize,
    ) -> Result<Transfer> {
        let source = (source as &dyn Any).downcast_ref::<Self>().ok_or(UNLIKE)?;
        self.0.prepare(pe, index, &source.0, from..from.saturating_add(count))
    }

    fn remote(&self, py: Python<'_>, pe: usize, index: usize) -> PyResult<Box<dyn Target>> {
        Ok(Box::new(self.0.remote(pe, index).map_err(|error| raise(py, error))?))
    }

    fn wait(
        &self,
        index: usize,
        cmp: Cmp,
        value: &Bound<'_, PyAny>,
        terms: &Terms,
    ) -> PyResult<Py<PyAny>> {
        let (py, value) = (value.py(), T::read(value)?);
        self.check(&[index])?;
        let seen = blocking::look_then_wait(py, terms.looks, terms.timeout, |timeout| {
            self.waiting(terms, timeout).until(index, cmp, value)
        })?;
        seen.show(py)
    }

    fn wait_for(
        &self,
        which: Which,
        indices: &[usize],
        cmp: Cmp,
        value: &Bound<'_, PyAny>,
        terms: &Terms,
    ) -> PyResult<Vec<usize>> {
        let (py, value) = (value.py(), T::read(value)?);
        self.check(indices)?;
        let waiting = || self.waiting(terms, terms.timeout);
        blocking::wait(py, || match which {
            Which::Any => waiting().any(indices, cmp, value).map(|place| vec![place]),
            Which::All => waiting().all(indices, cmp, value).map(|()| Vec::new()),
            Which::Some => waiting().some(indices, cmp, value),
        })
    }

    fn test(&self, indices: &[usize], cmp: Cmp, value: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let value = T::read(value)?;
        self.check(indices)?;
        Ok(self.0.test_some(indices, cmp, value))
    }
}

/// A window of elements that are only copied.
pub struct Lumps {
    pub bytes: Window<u8>,
    pub size: usize,
}

impl Lumps {
    fn in_bytes(&self, index: usize, count: usize) -> Result<(usize, usize)> {
        let at = index.checked_mul(self.size).zip(count.checked_mul(self.size));
        at.ok_or(Error::Overflow { index, size: self.size, call: None })
    }
}

impl Cells for Lumps {
    fn kind(&self) -> Kind {
        Kind::Bytes(self.size)
    }

    fn len(&self) -> usize {
        self.bytes.len() / self.size
    }

    fn local(&self) -> *mut u8 {
        self.bytes.local_ptr()
    }

    unsafe fn put(&self, pe: usize, index: usize, from: Raw, count: usize) -> Result<()> {
        let (at, bytes) = self.in_bytes(index, count)?;
        // SAFETY: the caller's promise.
        unsafe { self.bytes.put_from(pe, at, from.0.cast_const(), bytes) }
    }

    unsafe fn put_signal(
        &self,
        pe: usize,
        index: usize,
        from: Raw,
        count: usize,
        &(cells, word, op, value): &Signal<'_>,
    ) -> Result<()> {
        let ((at, bytes), signals) = (self.in_bytes(index, count)?, signals(cells)?);
        let from = from.0.cast_const();
        // SAFETY: the caller's promise.
        unsafe { self.bytes.put_signal_from(pe, at, (from, bytes), signals, word, op, value) }
    }

    unsafe fn get(&self, pe: usize, index: usize, to: Raw, count: usize) -> Result<()> {
        let (at, bytes) = self.in_bytes(index, count)?;
        // SAFETY: the caller's promise.
        unsafe { self.bytes.get_to(pe, at, to.0, bytes) }
    }

    fn prepare(
        &self,
        pe: usize,
        index: usize,
        source: &dyn Cells,
        from: usize,
        count: usize,
    ) -> Result<Transfer> {
        let source = (source as &dyn Any).downcast_ref::<Self>();
        let source = source.filter(|source| source.size == self.size).ok_or(UNLIKE)?;
        let (to, _) = self.in_bytes(index, count)?;
        let (at, bytes) = self.in_bytes(from, count)?;
        self.bytes.prepare(pe, to, &source.bytes, at..at.saturating_add(bytes))
    }

    fn remote(&self, _: Python<'_>, _: usize, _: usize) -> PyResult<Box<dyn Target>> {
        Err(no_word())
    }

    fn wait(&self, _: usize, _: Cmp, _: &Bound<'_, PyAny>, _: &Terms) -> PyResult<Py<PyAny>> {
        Err(no_word())
    }

    fn wait_for(
        &self,
        _: Which,
        _: &[usize],
        _: Cmp,
        _: &Bound<'_, PyAny>,
        _: &Terms,
    ) -> PyResult<Vec<usize>> {
        Err(no_word())
    }

    fn test(&self, _: &[usize], _: Cmp, _: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        Err(no_word())
    }
}

const UNLIKE: Error =
    Error::misuse("source and target of a transfer are windows with elements of one dtype");

fn no_word() -> PyErr {
    type_error(
        "elements of this window are no words (integers or floats of 1, 2, 4 or 8 bytes): wait for and update a word of another window",
    )
}

/// A comparison by its sign.
pub fn comparison(sign: &str) -> PyResult<Cmp> {
    Ok(match sign {
        "==" => Cmp::Eq,
        "!=" => Cmp::Ne,
        "<" => Cmp::Lt,
        "<=" => Cmp::Le,
        ">" => Cmp::Gt,
        ">=" => Cmp::Ge,
        _ => {
            return Err(value_error(format!(
                "{sign:?} is no comparison: use ==, !=, <, <=, > or >="
            )));
        }
    })
}
