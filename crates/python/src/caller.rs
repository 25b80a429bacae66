//! The line of the Python program that made a call: what reports of long waits and timelines name.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Makes the library ask for it. Costs nothing while nobody wants to know.
pub fn watch() {
    memonet_core::unstable::callers::set(caller);
}

/// The thread may have given up the interpreter's lock, which it takes again. Other threads give it
/// up within milliseconds, unless one computes in C: then the report is late, and nothing else.
fn caller() -> Option<String> {
    // `None` in an interpreter that ends.
    Python::try_attach(|py| place(py).ok().flatten()).flatten()
}

/// The innermost line outside of this package.
fn place(py: Python<'_>) -> PyResult<Option<String>> {
    let package = py.import("memonet")?.getattr("__path__")?.get_item(0)?;
    let package: String = package.cast_into::<PyString>()?.extract::<String>()? + "/";
    // An error in a thread that has no Python code, as one of the library's.
    let mut frame = py.import("sys")?.call_method0("_getframe")?;
    while !frame.is_none() {
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        if !file.starts_with(&package) {
            let line: usize = frame.getattr("f_lineno")?.extract()?;
            return Ok(Some(format!("{file}:{line}")));
        }
        frame = frame.getattr("f_back")?;
    }
    Ok(None)
}
