//! Events: waits for words, each with a file descriptor for `select` and `asyncio`.

use crate::blocking;
use crate::cells::{comparison, word_window};
use crate::errors::{raise, type_error};
use crate::exclusive::Exclusive;
use crate::kind::{Kind, with_word};
use crate::scalar::Scalar;
use crate::window::Window;
use memonet_core::Cmp;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::os::fd::AsRawFd;

/// An event of a word of any type.
trait Waiting: Send {
    fn fd(&self) -> i32;
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>>;
    fn arm(&mut self, cmp: Cmp, value: &Bound<'_, PyAny>) -> PyResult<()>;
}

impl<T: Scalar> Waiting for memonet_core::Event<T> {
    fn fd(&self) -> i32 {
        self.as_raw_fd()
    }

    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let word = memonet_core::Event::result(self).map_err(|error| raise(py, error))?;
        word.map(|word| word.show(py)).transpose()
    }

    fn arm(&mut self, cmp: Cmp, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, value) = (value.py(), T::read(value)?);
        memonet_core::Event::arm(self, cmp, value).map_err(|error| raise(py, error))
    }
}

/// A wait for a word of this PE's part, made by the library. Its file descriptor becomes readable
/// when the wait has ended. Made by `Window.event`.
#[pyclass(frozen, module = "memonet")]
pub struct Event(Exclusive<Box<dyn Waiting>>);

/// Begins to wait for a word.
#[pyfunction]
pub fn event(
    window: &Bound<'_, Window>,
    index: &Bound<'_, PyAny>,
    cmp: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Event> {
    let (py, cells) = (window.py(), Window::cells(window)?);
    let (index, cmp) = (window.get().index(index)?, comparison(cmp)?);
    let event: Box<dyn Waiting> = with_word!(cells.kind(), T => {
        let (words, value) = (word_window::<T>(&*cells), T::read(value)?);
        Box::new(blocking::wait(py, || words.event(index, cmp, value))?)
    }, bytes _size => {
        return Err(type_error("elements of this window are no words: wait for a word of another window"));
    });
    Ok(Event(Exclusive::new("event", event)))
}

#[pymethods]
impl Event {
    /// The file descriptor. It belongs to the event: poll it, and neither read nor close it.
    fn fileno(&self) -> PyResult<i32> {
        self.0.with(|event| Ok(event.fd()))
    }

    /// The word with which the wait has ended; None while it lasts. Raises what the wait has failed
    /// with, such as `PeerFailed`.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.with(|event| event.result(py))
    }

    /// Begins the next wait for the same word, whether or not the last one has ended. `cmp` is as
    /// for `Window.wait_until`.
    fn arm(&self, cmp: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let cmp = comparison(cmp)?;
        self.0.with(|event| event.arm(cmp, value))
    }

    /// Ends the wait, and closes the descriptor: take it out of the event loop before.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.0.free(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*raised))]
    fn __exit__(&self, raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.0.free(raised.py())
    }
}
