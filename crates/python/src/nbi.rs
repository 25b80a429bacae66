//! Puts that do not wait until their source may change.

use crate::blocking;
use crate::cells::{byte_window, word_window};
use crate::kind::{Kind, with_word};
use crate::window::{Window, number};
use pyo3::prelude::*;

/// Copies `count` elements of this PE's part of `source`, from `start` on, to `pe`'s part of
/// `target`. The source must not change until the next quiet or barrier.
#[pyfunction]
pub fn put_nbi(
    target: &Bound<'_, Window>,
    #[pyo3(from_py_with = number)] pe: usize,
    index: &Bound<'_, PyAny>,
    source: &Bound<'_, Window>,
    start: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = number)] count: usize,
) -> PyResult<()> {
    let py = target.py();
    let (index, start) = (target.get().index(index)?, source.get().index(start)?);
    let (to, from) = (Window::cells(target)?, Window::cells(source)?);
    let kind = to.kind();
    Window::check_alike(target, source, "source and target of a put")?;
    let end = start.saturating_add(count);
    blocking::call(py, target.get().is_long(pe, count.saturating_mul(kind.size())), || {
        with_word!(kind, T => {
            word_window::<T>(&*to).put_nbi(pe, index, word_window(&*from), start..end)
        }, bytes size => {
            let at = |element: usize| element.saturating_mul(size);
            byte_window(&*to).put_nbi(pe, at(index), byte_window(&*from), at(start)..at(end))
        })
    })
}
