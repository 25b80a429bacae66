//! The core's errors as exceptions: classes of `memonet._errors`, each of which is also the
//! exception of Python that a program would expect.

use memonet_core::{Cause, Error};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The class for an error.
fn class(error: &Error) -> &'static str {
    match error {
        Error::PeerFailed { .. } => "PeerFailed",
        Error::Timeout { .. } => "Timeout",
        Error::Interrupted { .. } => "Interrupted",
        Error::OutOfBounds { .. } | Error::NoSuchPe { .. } => "OutOfBounds",
        Error::AccessDenied { .. } | Error::WrongKey { .. } | Error::Revoked { .. } => {
            "AccessDenied"
        }
        Error::Length { .. } | Error::Unequal { .. } | Error::OtherCall { .. } => "Mismatch",
        Error::OutOfMemory { .. } => "OutOfMemory",
        Error::Closed { .. } => "Closed",
        _ => "Error",
    }
}

/// The exception for an error. Its message names no call: the traceback does.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    make(py, error.of_call(None)).unwrap_or_else(|failed| failed)
}

fn make(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let class = py.import("memonet._errors")?.getattr(class(&error))?.cast_into::<PyType>()?;
    let exception = class.call1((error.to_string(),))?;
    // Python does that only for what is raised in Python.
    exception.setattr("__context__", py.import("sys")?.call_method0("exception")?)?;
    if let Error::PeerFailed { pe, cause, .. } = &error {
        exception.setattr("pe", pe)?;
        exception.setattr("cause", cause.to_string())?;
        exception
            .setattr("_is_reported", !matches!(cause, Cause::Finalized | Cause::Unreachable))?;
    }
    Ok(PyErr::from_value(exception))
}

/// An `OutOfBounds` that the core does not know.
pub fn out_of_bounds(py: Python<'_>, message: String) -> PyErr {
    of_class(py, "OutOfBounds", message)
}

/// A `Mismatch` that the core does not know.
pub fn mismatch(py: Python<'_>, message: String) -> PyErr {
    of_class(py, "Mismatch", message)
}

fn of_class(py: Python<'_>, class: &str, message: String) -> PyErr {
    let class = py.import("memonet._errors").and_then(|errors| errors.getattr(class));
    match class.and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// Private memory for copies: a view may have far more elements than its array has memory.
pub fn room<T: Clone>(value: T, count: usize) -> PyResult<Vec<T>> {
    let mut room = Vec::new();
    if room.try_reserve_exact(count).is_err() {
        let bytes = count.saturating_mul(size_of::<T>());
        let message =
            format!("there is no memory for a copy of {bytes} bytes; give fewer elements");
        return Err(PyMemoryError::new_err(message));
    }
    room.resize(count, value);
    Ok(room)
}

pub fn type_error(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

pub fn value_error(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

/// The error of an object that was freed.
pub fn freed(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("this {what} was freed: it cannot be used any more"))
}
