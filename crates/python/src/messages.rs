//! Messages from any PE to any other.

use crate::blocking;
use crate::buffer::{Buffer, Raw};
use crate::elements::Staged;
use crate::errors::freed;
use crate::job::Job;
use crate::window::{duration, number, number_or_none};
use memonet_core::Result;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Messages between the PEs of a job: each PE sends bytes to any PE, and receives from all, in the
/// order in which each of them has sent. Making them is collective.
///
///     messages = memonet.Messages(job, 1000)     # up to 1000 bytes each
///     if job.pe > 0:
///         messages.send(0, b"a result")
///     else:
///         data, pe = messages.recv()             # of whoever has sent first
///
/// A message has `most` bytes at most. Up to `depth` messages from one PE to another may be under
/// way before the sender waits for the receiver. Each PE has room for `depth` messages of each PE.
#[pyclass(frozen, module = "memonet", weakref)]
pub struct Messages {
    most: usize,
    /// Whether waits may look with the interpreter's lock in hand.
    looks: bool,
    messages: Mutex<Option<Arc<memonet_core::Messages>>>,
}

/// What is sent: bytes without gaps.
enum Contents {
    Buffer(Buffer),
    Copy(Staged),
}

impl Contents {
    fn of(data: &Bound<'_, PyAny>) -> PyResult<Contents> {
        let buffer = Buffer::of(data)?;
        Ok(match buffer.is_block() {
            true => Contents::Buffer(buffer),
            false => Contents::Copy(Staged::of(buffer.start(), &buffer.layout())?),
        })
    }

    fn place(&self) -> (Raw, usize) {
        match self {
            Contents::Buffer(buffer) => (buffer.start(), buffer.bytes()),
            Contents::Copy(copy) => (copy.start(), copy.bytes()),
        }
    }
}

impl Messages {
    fn messages(&self) -> PyResult<Arc<memonet_core::Messages>> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.clone().ok_or_else(|| freed("object for messages"))
    }
}

/// The next message of `source`, or of any PE, and its sender.
fn receive(
    messages: &memonet_core::Messages,
    source: Option<usize>,
    timeout: Option<Duration>,
) -> Result<(Vec<u8>, usize)> {
    let mut message = Vec::new();
    let sender = match (source, timeout) {
        (None, None) => messages.recv(&mut message)?,
        (None, Some(limit)) => messages.recv_timeout(&mut message, limit)?,
        (Some(pe), None) => messages.recv_from(pe, &mut message).map(|()| pe)?,
        (Some(pe), Some(limit)) => {
            messages.recv_from_timeout(pe, &mut message, limit).map(|()| pe)?
        }
    };
    Ok((message, sender))
}

#[pymethods]
impl Messages {
    #[new]
    #[pyo3(signature = (job, most, depth=4))]
    fn new(job: &Bound<'_, Job>, most: usize, depth: usize) -> PyResult<Self> {
        let (py, job) = (job.py(), job.get());
        let messages = blocking::wait(py, || memonet_core::Messages::new(&job.job, most, depth))?;
        let looks = blocking::looks(&job.job, job.shares_interpreter);
        Ok(Messages { most, looks, messages: Mutex::new(Some(Arc::new(messages))) })
    }

    /// The most bytes of a message.
    #[getter]
    fn most(&self) -> usize {
        self.most
    }

    fn __repr__(&self) -> String {
        format!("<memonet.Messages of up to {} bytes>", self.most)
    }

    /// Sends bytes, or the elements of an array, to `pe`, which may be this PE. Waits while that PE
    /// has not received `depth` messages of this one, for `timeout` seconds at most. `data` may
    /// change at once. mpi4py: `comm.Send`; sockets: `sendto`.
    #[pyo3(signature = (pe, data, *, timeout=None))]
    fn send(
        &self,
        #[pyo3(from_py_with = number)] pe: usize,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (messages, data) = (self.messages()?, (data.py(), Contents::of(data)?));
        let ((from, bytes), timeout) = (data.1.place(), timeout.map(duration).transpose()?);
        let looks = self.looks && bytes < blocking::LONG_BYTES;
        blocking::look_then_wait(data.0, looks, timeout, |timeout| {
            let from = &from;
            // SAFETY: so many bytes, which `data` keeps.
            unsafe { messages.send_from(pe, from.0, bytes, timeout) }
        })
    }

    /// `send`, if there is room; gives whether there was.
    fn try_send(
        &self,
        #[pyo3(from_py_with = number)] pe: usize,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (messages, contents) = (self.messages()?, Contents::of(data)?);
        let (from, bytes) = contents.place();
        let long = !self.looks || bytes >= blocking::LONG_BYTES;
        blocking::call(data.py(), long, || {
            let from = &from;
            // SAFETY: so many bytes, which `contents` keeps.
            unsafe { messages.try_send_from(pe, from.0, bytes) }
        })
    }

    /// Waits, for `timeout` seconds at most, for the next message of PE `source`, or of any PE;
    /// gives its bytes and its sender. Of an array, `numpy.frombuffer` shows the bytes without a
    /// copy. mpi4py: `comm.Recv`; sockets: `recvfrom`.
    #[pyo3(signature = (source=None, *, timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number_or_none)] source: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let (messages, timeout) = (self.messages()?, timeout.map(duration).transpose()?);
        let (message, sender) = blocking::look_then_wait(py, self.looks, timeout, |timeout| {
            receive(&messages, source, timeout)
        })?;
        Ok((PyBytes::new(py, &message), sender))
    }

    /// `recv`, if a message is there; otherwise None.
    #[pyo3(signature = (source=None))]
    fn try_recv<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number_or_none)] source: Option<usize>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, usize)>> {
        let (messages, mut message) = (self.messages()?, Vec::new());
        let sender = blocking::call(py, !self.looks, || match source {
            None => messages.try_recv(&mut message),
            Some(pe) => Ok(messages.try_recv_from(pe, &mut message)?.then_some(pe)),
        })?;
        Ok(sender.map(|sender| (PyBytes::new(py, &message), sender)))
    }

    /// Gives up this PE's end. What was not received is lost. The memory is used again when all PEs
    /// have.
    fn free(&self) {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(messages);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.free();
    }
}
