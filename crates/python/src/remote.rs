//! Remotes: words of a PE, resolved once.

use crate::blocking;
use crate::errors::value_error;
use crate::scalar::{self, Scalar, Update};
use pyo3::prelude::*;

/// A resolved word of any type.
pub trait Target: Send + Sync {
    fn pe(&self) -> usize;
    fn is_near(&self) -> bool;
    fn store(&self, value: &Bound<'_, PyAny>) -> PyResult<()>;
    fn load(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn fetch(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn swap(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>>;
    fn update(&self, op: Update, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>>;
    fn compare_swap(
        &self,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>>;
}

impl<T: Scalar> Target for memonet_core::Remote<T> {
    fn pe(&self) -> usize {
        memonet_core::Remote::pe(self)
    }

    fn is_near(&self) -> bool {
        memonet_core::Remote::is_near(self)
    }

    fn store(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, value, far) = (value.py(), T::read(value)?, !Target::is_near(self));
        blocking::call(py, far, || {
            memonet_core::Remote::store(self, value);
            Ok(())
        })
    }

    fn load(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let far = !Target::is_near(self);
        blocking::call(py, far, || memonet_core::Remote::load(self))?.show(py)
    }

    fn fetch(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let far = !Target::is_near(self);
        blocking::call(py, far, || memonet_core::Remote::fetch(self))?.show(py)
    }

    fn swap(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (py, value, far) = (value.py(), T::read(value)?, !Target::is_near(self));
        blocking::call(py, far, || memonet_core::Remote::swap(self, value))?.show(py)
    }

    fn update(&self, op: Update, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (py, value, far) = (value.py(), T::read(value)?, !Target::is_near(self));
        let update = T::atomic(op)?;
        blocking::call(py, far, || update(self, value))?.show(py)
    }

    fn compare_swap(
        &self,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let (py, far) = (new.py(), !Target::is_near(self));
        let (expected, new) = (T::read(expected)?, T::read(new)?);
        blocking::call(py, far, || memonet_core::Remote::compare_swap(self, expected, new))?
            .show(py)
    }
}

/// A word of a window of bools, into which 0 and 1 alone are written.
pub struct Truth(pub Box<dyn Target>);

impl Target for Truth {
    fn pe(&self) -> usize {
        self.0.pe()
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }

    fn store(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.store(&truth(value)?)
    }

    fn load(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.load(py)
    }

    fn fetch(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.fetch(py)
    }

    fn swap(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.0.swap(&truth(value)?)
    }

    fn update(&self, op: Update, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.0.update(op, &truth(value)?)
    }

    fn compare_swap(
        &self,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        self.0.compare_swap(&truth(expected)?, &truth(new)?)
    }
}

/// The truth of a number, as 0 or 1.
fn truth<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Ok(u8::from(scalar::truth(value)?).into_pyobject(value.py())?.into_any())
}

/// A word of a PE, found and checked once. A store to a near PE is one instruction.
#[pyclass(frozen, module = "memonet")]
pub struct Remote {
    target: Box<dyn Target>,
}

impl Remote {
    pub fn new(target: Box<dyn Target>) -> Self {
        Remote { target }
    }
}

#[pymethods]
impl Remote {
    /// The PE whose word it is.
    #[getter]
    fn pe(&self) -> usize {
        self.target.pe()
    }

    /// Whether that PE's memory is mapped into this process.
    #[getter]
    fn is_near(&self) -> bool {
        self.target.is_near()
    }

    fn __repr__(&self) -> String {
        let (pe, near) = (self.target.pe(), if self.target.is_near() { "near" } else { "far" });
        format!("<memonet.Remote: a word of PE {pe}, which is {near}>")
    }

    /// Stores a word. It wakes nobody: a PE that sleeps sees it within about 4 ms.
    fn store(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.target.store(value)
    }

    /// Loads the word.
    fn load(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.target.load(py)
    }

    /// Loads the word as an atomic, in order with other atomics on it.
    fn fetch(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.target.fetch(py)
    }

    /// Replaces the word atomically; gives what it held.
    fn swap(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.target.swap(value)
    }

    /// Replaces the word by `new` if it holds `expected`; gives what it held.
    fn compare_swap(
        &self,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        self.target.compare_swap(expected, new)
    }

    /// Adds to the word atomically, wrapping; gives what it held.
    fn fetch_add(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.target.update(Update::Add, value)
    }

    /// Bitwise and, atomically; gives what the word held.
    fn fetch_and(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.target.update(Update::And, value)
    }

    /// Bitwise or, atomically; gives what the word held.
    fn fetch_or(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.target.update(Update::Or, value)
    }

    /// Bitwise exclusive or, atomically; gives what the word held.
    fn fetch_xor(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.target.update(Update::Xor, value)
    }
}

/// The operation on a signal word, by its name.
pub fn signal_op(name: &str) -> PyResult<memonet_core::SignalOp> {
    match name {
        "set" => Ok(memonet_core::SignalOp::Set),
        "add" => Ok(memonet_core::SignalOp::Add),
        _ => Err(value_error(format!("{name:?} is no signal operation: use \"set\" or \"add\""))),
    }
}
