//! Restricted windows: each PE says, for its own part, which other PEs may read and write it.

use crate::blocking;
use crate::cells::{Cells, Lumps, Words, byte_window, word_window};
use crate::errors::{mismatch, raise, type_error, value_error};
use crate::job::{Job, dtype_of, elements_of, shape_of};
use crate::kind::{Kind, with_word};
use crate::window::{Window, duration};
use memonet_core::Access;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// What `right` says of a pair of PEs.
fn access(right: &Bound<'_, PyAny>, home: usize, holder: usize) -> PyResult<Access> {
    let said: String = right.call1((home, holder))?.extract()?;
    Ok(match said.as_str() {
        "none" => Access::None,
        "read" => Access::Read,
        "write" => Access::Write,
        "read+write" => Access::ReadWrite,
        _ => {
            return Err(value_error(format!(
                "{said:?} is no right: use \"none\", \"read\", \"write\" or \"read+write\""
            )));
        }
    })
}

/// Makes a window of which each PE reaches only the parts that `right(home, holder)` gives it.
/// Collective.
#[pyfunction]
pub fn restricted(
    job: &Bound<'_, Job>,
    shape: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    right: &Bound<'_, PyAny>,
) -> PyResult<Window> {
    let (py, job) = (job.py(), job.get());
    let (dtype, (shape, len)) = (dtype_of(dtype)?, shape_of(shape)?);
    let (kind, npes) = (Kind::of(&dtype)?, job.job.npes());
    // The library may ask while no Python code can run.
    let pairs = (0..npes * npes).map(|pair| access(right, pair / npes, pair % npes));
    let rights: Vec<Access> = pairs.collect::<PyResult<_>>()?;
    let right = |home: usize, holder: usize| rights[home * npes + holder];
    let name = elements_of(&dtype, &shape)?;
    let cells = blocking::wait(py, || {
        Ok::<Arc<dyn Cells>, _>(with_word!(kind, T => {
            Arc::new(Words::<T>(job.job.restricted_of(len, name, right)?))
        }, bytes size => {
            let bytes = job.job.restricted_of(len.saturating_mul(size), name, right)?;
            Arc::new(Lumps { bytes, size })
        }))
    })?;
    Window::new(job.job.clone(), job.shares_interpreter, shape, dtype, cells)
}

/// The part of a restricted window that a key opens.
#[pyfunction]
pub fn attach(
    job: &Bound<'_, Job>,
    key: &[u8],
    dtype: &Bound<'_, PyAny>,
    shape: Option<&Bound<'_, PyAny>>,
) -> PyResult<Window> {
    let (py, job, dtype) = (job.py(), job.get(), dtype_of(dtype)?);
    let key = key_of(key)?;
    let cells: Arc<dyn Cells> = with_word!(Kind::of(&dtype)?, T => {
        Arc::new(Words::<T>(blocking::wait(py, || job.job.attach(&key))?))
    }, bytes size => {
        let bytes = blocking::wait(py, || job.job.attach::<u8>(&key))?;
        if !bytes.len().is_multiple_of(size) {
            return Err(mismatch(
                py,
                format!("a part of {} bytes has no whole elements of {dtype}", bytes.len()),
            ));
        }
        Arc::new(Lumps { bytes, size })
    });
    let shape = match shape {
        None => vec![cells.len()],
        Some(shape) => {
            let (shape, len) = shape_of(shape)?;
            if len != cells.len() {
                return Err(value_error(format!(
                    "a shape of {shape:?} for a part of {} elements",
                    cells.len()
                )));
            }
            shape
        }
    };
    Window::new(job.job.clone(), job.shares_interpreter, shape, dtype, cells)
}

fn key_of(bytes: &[u8]) -> PyResult<memonet_core::Key> {
    use zerocopy::FromBytes;
    memonet_core::Key::read_from_bytes(bytes)
        .map_err(|_| type_error("this is no key: give the bytes that Window.key gave"))
}

/// The key to this PE's part of a restricted window.
#[pyfunction]
pub fn key<'py>(window: &Bound<'py, Window>) -> PyResult<Bound<'py, PyBytes>> {
    use zerocopy::IntoBytes;
    let (py, cells) = (window.py(), Window::cells(window)?);
    let key = with_word!(cells.kind(), T => word_window::<T>(&*cells).key(), bytes _size => {
        byte_window(&*cells).key()
    });
    Ok(PyBytes::new(py, key.map_err(|error| raise(py, error))?.as_bytes()))
}

/// Takes back all rights to this PE's part, and waits until nobody uses them if asked to.
#[pyfunction]
pub fn revoke(window: &Bound<'_, Window>, wait: bool, timeout: Option<f64>) -> PyResult<()> {
    let (py, cells) = (window.py(), Window::cells(window)?);
    let timeout = timeout.map(duration).transpose()?;
    macro_rules! take_back {
        ($window:expr) => {
            blocking::wait(py, || {
                let window = $window;
                window.revoke()?;
                if wait { window.revoke_wait(timeout) } else { Ok(()) }
            })
        };
    }
    with_word!(cells.kind(), T => take_back!(word_window::<T>(&*cells)), bytes _size => {
        take_back!(byte_window(&*cells))
    })
}
