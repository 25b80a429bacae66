//! Channels from one PE to many.

use crate::blocking;
use crate::buffer::{Buffer, Raw};
use crate::exclusive::Exclusive;
use crate::job::{Job, elements_of};
use crate::window::{duration, number, numbers};
use memonet_core::unstable::segment;
use memonet_core::{Multicast, MulticastOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A PE's end of a channel of bytes. `memonet._multicast` has the class for programs.
#[pyclass(frozen, subclass, module = "memonet._memonet")]
pub struct MulticastData(Exclusive<Multicast<u8>>);

#[pymethods]
impl MulticastData {
    /// Makes a channel. Collective.
    #[new]
    fn new(
        job: &Bound<'_, Job>,
        #[pyo3(from_py_with = number)] writer: usize,
        #[pyo3(from_py_with = numbers)] readers: Vec<usize>,
        dtype: &Bound<'_, PyAny>,
        capacity: Option<usize>,
        drop_slow: Option<f64>,
        survive_readers: bool,
    ) -> PyResult<Self> {
        let mut options = MulticastOptions::new().survive_readers(survive_readers);
        options = options.elements(elements_of(dtype, &[])?);
        if let Some(bytes) = capacity {
            options = options.capacity(bytes);
        }
        if let Some(after) = drop_slow {
            options = options.drop_slow(duration(after)?);
        }
        let (py, job) = (job.py(), &job.get().job);
        let end = blocking::wait(py, || job.multicast::<u8>(writer, &readers, options))?;
        Ok(MulticastData(Exclusive::new("channel", end)))
    }

    /// Publishes an array without gaps.
    fn publish(&self, from: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = Buffer::of(from)?;
        let (start, bytes): (Raw, usize) = buffer.block()?;
        self.0.wait(from.py(), |end| {
            let start = &start;
            let mut claim = end.claim(bytes)?;
            // SAFETY: the buffer's bytes, which it keeps, and as many of the claim.
            unsafe { segment::copy(claim.as_mut_ptr(), start.0, bytes) };
            claim.commit()
        })
    }

    /// Waits for the next block.
    fn recv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut block = Vec::new();
        self.0.wait(py, |end| end.recv(&mut block))?;
        Ok(PyBytes::new(py, &block))
    }

    /// The next block, if it has come.
    fn try_recv<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut block = Vec::new();
        let came = self.0.wait(py, |end| end.try_recv(&mut block))?;
        Ok(came.then(|| PyBytes::new(py, &block)))
    }

    /// How the blocks reach the readers.
    fn delivery(&self, py: Python<'_>) -> PyResult<String> {
        self.0.wait(py, |end| Ok(end.delivery().to_string()))
    }

    /// Gives up this PE's end. The writer's leaves the channel.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.0.free(py)
    }
}
