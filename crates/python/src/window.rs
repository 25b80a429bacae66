//! Windows: arrays of every PE that the other PEs reach.

use crate::blocking::{self, LONG_BYTES};
use crate::buffer::{Buffer, Raw};
use crate::cells::{Cells, Signal, Terms, Which, check_signal, comparison};
use crate::elements::{Elements, Staged};
use crate::errors::{freed, out_of_bounds, raise, type_error, value_error};
use crate::kind::is_bool;
use crate::ndarray;
use crate::place::Part;
use crate::remote::{Remote, Target, Truth, signal_op};
use crate::strides::{Layout, each_run};
use crate::transfer::Transfer;
use memonet_core::Error;
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyTuple};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

/// An array of each PE that the other PEs can reach, with one shape and dtype.
///
///     w = job.window((3, 100))               # 3 x 100 floats on every PE
///     w.local[0] = job.pe                    # this PE's part, an ndarray
///     w.at(right)[1, 10:20] = array          # into another PE's part
///     w.put(right, (2, 0), array)            # the same, faster
///
/// An `index` is a number, which counts elements in the order of C, or a tuple with one number for
/// each dimension. Both are from 0 on, as is `pe`.
#[pyclass(frozen, subclass, module = "memonet", weakref)]
pub struct Window {
    job: memonet_core::Job,
    /// Whether PEs share the interpreter.
    shares_interpreter: bool,
    shape: Vec<usize>,
    dtype: Py<PyAny>,
    held: Guarded,
}

/// What `free` gives up.
struct Held {
    cells: Option<Py<Memory>>,
    /// The array of this PE's part, once a program has asked for it.
    local: Option<Py<PyAny>>,
}

/// What a window holds, for one thread at a time: [`Window::held`].
struct Guarded(UnsafeCell<Held>);

// SAFETY: `Window::held` alone uses it, in a critical section of its window.
unsafe impl Sync for Guarded {}

/// A window's memory as an object of Python. A call counts a reference to it, by no atomic
/// operation, where a mutex and an `Arc` take four.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct Memory(Arc<dyn Cells>);

impl Memory {
    /// As long as the object lives.
    fn cells(&self) -> &dyn Cells {
        &*self.0
    }
}

impl Window {
    pub fn new(
        job: memonet_core::Job,
        shares_interpreter: bool,
        shape: Vec<usize>,
        dtype: Bound<'_, PyAny>,
        cells: Arc<dyn Cells>,
    ) -> PyResult<Self> {
        let cells = Some(Py::new(dtype.py(), Memory(cells))?);
        let held = Guarded(UnsafeCell::new(Held { cells, local: None }));
        Ok(Window { job, shares_interpreter, shape, dtype: dtype.unbind(), held })
    }

    /// What the window holds, for `look`, which runs no code of Python, nor gives up a reference,
    /// which may run some.
    fn held<R>(slf: &Bound<'_, Self>, look: impl FnOnce(&mut Held) -> R) -> R {
        // SAFETY: the critical section, in interpreters with a lock that lock, keeps other threads
        // out while `look` runs no code of Python; and for that reason it does not come here again.
        with_critical_section(slf.as_any(), || look(unsafe { &mut *slf.get().held.0.get() }))
    }

    /// The memory, for a call.
    fn memory<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Memory>> {
        let held = Self::held(slf, |held| Some(held.cells.as_ref()?.clone_ref(slf.py())));
        held.map(|memory| memory.into_bound(slf.py())).ok_or_else(|| freed("window"))
    }

    /// The memory, for what outlives a call, or does not mind atomic operations.
    pub fn cells(slf: &Bound<'_, Self>) -> PyResult<Arc<dyn Cells>> {
        Ok(Self::memory(slf)?.get().0.clone())
    }

    /// The number of an element that is given as a number, or by an index for each dimension.
    pub fn index(&self, index: &Bound<'_, PyAny>) -> PyResult<usize> {
        element(&self.shape, index)
    }

    /// The dtype of the elements.
    pub fn elements<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.dtype.bind(py)
    }

    /// Refuses two windows, which `what` names, whose dtypes differ.
    pub fn check_alike(one: &Bound<'_, Self>, other: &Bound<'_, Self>, what: &str) -> PyResult<()> {
        let (to, from) = (one.get().elements(one.py()), other.get().elements(one.py()));
        match to.is(from) || to.eq(from)? {
            true => Ok(()),
            false => Err(type_error(format!(
                "{what} are windows with elements of one dtype, not {from} and {to}"
            ))),
        }
    }

    /// A call that takes long, or may wait, gives up the interpreter's lock.
    pub fn is_long(&self, pe: usize, bytes: usize) -> bool {
        bytes >= LONG_BYTES || pe < self.job.npes() && !self.job.is_near(pe)
    }

    /// The place of a view of this PE's part: the byte at which it begins, and its layout.
    fn place(cells: &dyn Cells, view: &Bound<'_, PyAny>) -> PyResult<(usize, Layout)> {
        let buffer = Buffer::of(view)?;
        let (layout, start) = (buffer.layout(), cells.local() as usize);
        let end = start + cells.len() * cells.kind().size();
        let (mut low, mut high) = (buffer.start().0 as isize, buffer.start().0 as isize);
        for (&count, &stride) in layout.shape.iter().zip(&layout.strides) {
            let reach = stride * (count.max(1) as isize - 1);
            if reach < 0 { low += reach } else { high += reach }
        }
        let high = high as usize + layout.size;
        if layout.count() > 0 && ((low as usize) < start || high > end) {
            return Err(PyIndexError::new_err(
                "an index of w.at(pe) is made of integers, slices and ...: for lists of indices loop over them",
            ));
        }
        let at = if layout.count() == 0 { 0 } else { buffer.start().0 as usize - start };
        Ok((at, layout))
    }

    /// Puts elements to `pe`'s part, from element `index` on, and a signal after the last of them.
    fn put_elements(
        &self,
        py: Python<'_>,
        cells: &dyn Cells,
        pe: usize,
        index: &Bound<'_, PyAny>,
        from: &Elements<'_>,
        signal: Option<Signal<'_>>,
    ) -> PyResult<()> {
        let size = cells.kind().size();
        let (Some(count), false) = (from.block(size), self.is_own(cells, pe, from.start())) else {
            let at = self.byte(index, cells)?;
            let to = Layout::contiguous(&from.layout(size).shape, size);
            return self.put_runs(py, cells, pe, (at, &to), from, signal);
        };
        // Most puts: one block, without the shapes and strides of two arrays.
        let (index, start) = (self.index(index)?, from.start());
        self.check_block(py, pe, index, count, cells)?;
        blocking::call(py, self.is_long(pe, count * size), || {
            let start = &start;
            match &signal {
                // SAFETY: the elements of `from`, which it keeps.
                Some(signal) => unsafe { cells.put_signal(pe, index, *start, count, signal) },
                // SAFETY: as above.
                None => unsafe { cells.put(pe, index, *start, count) },
            }
        })
    }

    /// Whether an array lies in the part of the window that is read or written.
    fn is_own(&self, cells: &dyn Cells, pe: usize, start: Raw) -> bool {
        if pe != self.job.pe() {
            return false;
        }
        let (own, bytes) = (cells.local() as usize, cells.len() * cells.kind().size());
        (own..own + bytes).contains(&(start.0 as usize))
    }

    /// Puts elements to a place of `pe`'s part, and a signal after the last of them.
    fn put_runs(
        &self,
        py: Python<'_>,
        cells: &dyn Cells,
        pe: usize,
        (at, to): (usize, &Layout),
        from: &Elements<'_>,
        signal: Option<Signal<'_>>,
    ) -> PyResult<()> {
        let size = cells.kind().size();
        let layout = &from.layout(size);
        let (bytes, start) = (layout.count() * size, from.start());
        self.check(py, pe, at, to, cells)?;
        // A source that overlaps with the target is copied first.
        let staged =
            self.is_own(cells, pe, start).then(|| Staged::of(start, layout)).transpose()?;
        let (start, layout) = match &staged {
            Some(staged) => (staged.start(), &staged.layout),
            None => (start, layout),
        };
        let job = &self.job;
        blocking::call(py, self.is_long(pe, bytes), || {
            let start = &start;
            let whole = Layout::contiguous(&layout.shape, size);
            let is_block = layout.strides == whole.strides && to.strides == whole.strides;
            if let (Some(signal), true) = (&signal, is_block) {
                // SAFETY: the elements of `from`, which it keeps.
                return unsafe { cells.put_signal(pe, at / size, *start, layout.count(), signal) };
            }
            if let Some(signal) = &signal {
                check_signal(pe, signal)?;
            }
            each_run(to, layout, |to, from, bytes| {
                let from = Raw(start.0.wrapping_offset(from));
                let index = at.wrapping_add_signed(to) / size;
                // SAFETY: a run of the elements of `from`, which it keeps.
                unsafe { cells.put(pe, index, from, bytes / size) }
            })?;
            let Some(signal) = signal else { return Ok(()) };
            job.fence()?;
            // SAFETY: no elements.
            unsafe { cells.put_signal(pe, 0, Raw(cells.local()), 0, &signal) }
        })
    }

    /// The array that a get fills.
    fn destination(
        &self,
        cells: &dyn Cells,
        pe: usize,
        into: &Bound<'_, PyAny>,
    ) -> PyResult<Buffer> {
        let buffer = Buffer::of_elements(into, cells.kind(), &self.dtype)?.written()?;
        if into.is_instance(&into.py().import("numpy")?.getattr("generic")?)? {
            return Err(value_error("the destination is one number: give an array"));
        }
        if self.is_own(cells, pe, buffer.start()) {
            return Err(value_error(
                "the destination is this PE's own part of the window: assign arrays, as in w.local[0:2] = w.local[4:6]",
            ));
        }
        Ok(buffer)
    }

    /// Gets `count` elements of `pe`'s part, from element `index` on, to memory that the caller
    /// keeps.
    fn get_block(
        &self,
        py: Python<'_>,
        cells: &dyn Cells,
        pe: usize,
        index: &Bound<'_, PyAny>,
        (start, count): (Raw, usize),
    ) -> PyResult<()> {
        let index = self.index(index)?;
        self.check_block(py, pe, index, count, cells)?;
        blocking::call(py, self.is_long(pe, count * cells.kind().size()), || {
            let start = &start;
            // SAFETY: the elements that the caller keeps.
            unsafe { cells.get(pe, index, *start, count) }
        })
    }

    /// Gets a place of `pe`'s part into an array.
    fn get_runs(
        &self,
        py: Python<'_>,
        cells: &dyn Cells,
        pe: usize,
        (at, from): (usize, &Layout),
        buffer: &Buffer,
    ) -> PyResult<()> {
        let (size, layout) = (cells.kind().size(), buffer.layout());
        self.check(py, pe, at, from, cells)?;
        let start = buffer.start();
        blocking::call(py, self.is_long(pe, buffer.bytes()), || {
            let start = &start;
            each_run(from, &layout, |from, to, bytes| {
                let to = Raw(start.0.wrapping_offset(to));
                let index = at.wrapping_add_signed(from) / size;
                // SAFETY: a run of the array's elements, which `buffer` keeps.
                unsafe { cells.get(pe, index, to, bytes / size) }
            })
        })
    }

    /// The array of this PE's part, made anew.
    fn array<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        Part::of(Self::cells(slf)?).array(&this.shape, this.dtype.bind(slf.py()))
    }

    fn terms(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        depends_on: Option<Vec<usize>>,
    ) -> PyResult<Terms> {
        if let Some(&pe) = depends_on.iter().flatten().find(|&&pe| pe >= self.job.npes()) {
            return Err(raise(py, Error::NoSuchPe { pe, npes: self.job.npes(), call: None }));
        }
        let looks = blocking::looks(&self.job, self.shares_interpreter);
        Ok(Terms { timeout: timeout.map(duration).transpose()?, depends_on, looks })
    }

    /// Refuses a PE that there is not, and a block that does not fit, before its first run moves.
    fn check(
        &self,
        py: Python<'_>,
        pe: usize,
        at: usize,
        block: &Layout,
        cells: &dyn Cells,
    ) -> PyResult<()> {
        let size = cells.kind().size();
        // A view of this PE's part has its own strides, and lies in it.
        if block.strides != Layout::contiguous(&block.shape, size).strides {
            return self.check_pe(py, pe);
        }
        self.check_block(py, pe, at / size, block.count(), cells)
    }

    /// Refuses a PE that there is not, and elements that there are not.
    fn check_block(
        &self,
        py: Python<'_>,
        pe: usize,
        index: usize,
        count: usize,
        cells: &dyn Cells,
    ) -> PyResult<()> {
        self.check_pe(py, pe)?;
        let len = cells.len();
        match index.checked_add(count) {
            Some(end) if end <= len => Ok(()),
            _ => Err(raise(py, Error::OutOfBounds { index, count, len, call: None })),
        }
    }

    fn check_pe(&self, py: Python<'_>, pe: usize) -> PyResult<()> {
        let npes = self.job.npes();
        match pe < npes {
            true => Ok(()),
            false => Err(raise(py, Error::NoSuchPe { pe, npes, call: None })),
        }
    }
}

/// The number of an element of an array: given so, or by an index for each dimension.
pub fn element(shape: &[usize], index: &Bound<'_, PyAny>) -> PyResult<usize> {
    let Ok(tuple) = index.cast::<PyTuple>() else { return number(index) };
    let indices = tuple.iter().map(|index| number(&index)).collect::<PyResult<Vec<usize>>>()?;
    if indices.len() != shape.len() {
        return Err(PyIndexError::new_err(format!(
            "{} indices for an array of {} dimensions",
            indices.len(),
            shape.len()
        )));
    }
    let mut number = 0;
    for (dimension, (&index, &count)) in indices.iter().zip(shape).enumerate() {
        if index >= count {
            return Err(PyIndexError::new_err(format!(
                "index {index} of dimension {dimension}, which has {count} elements"
            )));
        }
        number = number * count + index;
    }
    Ok(number)
}

/// The number of a PE or an element, as a program gives it.
pub fn number(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    value.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyOverflowError>(value.py()) {
            true => out_of_bounds(
                value.py(),
                format!("there is no number {value}: PEs and elements are counted from 0 on"),
            ),
            false => error,
        }
    })
}

/// The numbers of PEs or elements that an iterable gives.
pub fn numbers(values: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    values.try_iter()?.map(|value| number(&value?)).collect()
}

/// As [`numbers`], where a program may say nothing.
fn numbers_or_none(values: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    if values.is_none() { Ok(None) } else { numbers(values).map(Some) }
}

/// A time limit in seconds.
pub fn duration(seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(duration),
        // More than a Duration holds.
        Err(_) if seconds > 0.0 => Ok(Duration::MAX),
        Err(_) => Err(value_error(format!("{seconds} seconds are no time limit"))),
    }
}

/// As [`number`], where a program may say nothing.
pub fn number_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if value.is_none() { Ok(None) } else { number(value).map(Some) }
}

/// Refuses an array of another shape than that of the elements of a window.
fn same_shape(array: &[usize], elements: &[usize]) -> PyResult<()> {
    match array == elements {
        true => Ok(()),
        false => Err(value_error(format!(
            "an array of shape {array:?} for elements of shape {elements:?}"
        ))),
    }
}

#[pymethods]
impl Window {
    /// The shape of each PE's array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The dtype of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyAny> {
        self.dtype.clone_ref(py)
    }

    /// Number of elements of each PE.
    #[getter]
    fn size(&self) -> usize {
        self.shape.iter().product()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.shape
            .first()
            .copied()
            .ok_or_else(|| type_error("a window without dimensions has no length"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, this) = (slf.py(), slf.get());
        let freed = if Self::memory(slf).is_err() { ", freed" } else { "" };
        let shape = PyTuple::new(py, &this.shape)?.repr()?;
        Ok(format!("<memonet.Window {shape} {}{freed}>", this.dtype.bind(py).str()?))
    }

    /// This PE's part: an array that shows the memory itself, without a copy.
    #[getter]
    fn local<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(local) = Self::held(slf, |held| Some(held.local.as_ref()?.clone_ref(py))) {
            return Ok(local.into_bound(py));
        }
        let local = Self::array(slf)?;
        let before = Self::held(slf, |held| held.local.replace(local.clone().unbind()));
        drop(before);
        Ok(local)
    }

    #[pyo3(signature = (*arguments, **options))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::local(slf)?.call_method("__array__", arguments, options)
    }

    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::local(slf)?.call_method("__dlpack__", (), options)
    }

    fn __dlpack_device__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::local(slf)?.call_method0("__dlpack_device__")
    }

    /// Copies an array of this window's dtype and of any shape, or a number, to `pe`'s part, from
    /// element `index` on. The elements follow each other there in the order of C. The array may
    /// change at once.
    fn put(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (this, memory) = (slf.get(), Self::memory(slf)?);
        let cells = memory.get().cells();
        let from = Elements::of(cells.kind(), &this.dtype, source)?;
        this.put_elements(slf.py(), cells, pe, index, &from, None)
    }

    /// `put`, and then an update of word `signal` (0) of that PE's part of `signals`, a window with
    /// dtype uint64: `op` "set" or "add", of `value`. Whoever sees the signal sees the block.
    #[pyo3(signature = (pe, index, source, signals, signal=None, value=1, op="set"))]
    #[allow(clippy::too_many_arguments, reason = "a block, a signal, and where they go")]
    fn put_signal(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        signals: &Bound<'_, Window>,
        signal: Option<&Bound<'_, PyAny>>,
        value: u64,
        op: &str,
    ) -> PyResult<()> {
        let (this, memory, words) = (slf.get(), Self::memory(slf)?, Self::memory(signals)?);
        let cells = memory.get().cells();
        let from = Elements::of(cells.kind(), &this.dtype, source)?;
        let signal = signal.map_or(Ok(0), |signal| signals.get().index(signal))?;
        let signal = (words.get().cells(), signal, signal_op(op)?, value);
        this.put_elements(slf.py(), cells, pe, index, &from, Some(signal))
    }

    /// Copies elements of `pe`'s part from `index` on: as many as the array `into` has, which it
    /// gives; or `count` of them into a new array of one dimension; without either, the one
    /// element.
    #[pyo3(signature = (pe, index, into=None, *, count=None))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'py, PyAny>,
        into: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = number_or_none)] count: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this, memory) = (slf.py(), slf.get(), Self::memory(slf)?);
        let cells = memory.get().cells();
        let into = match (into, count) {
            (Some(_), Some(_)) => return Err(type_error("give `into` or `count`, not both")),
            (Some(into), None) => into,
            (None, Some(count)) => {
                py.import("numpy")?.call_method1("empty", (count, &this.dtype))?
            }
            (None, None) => py.import("numpy")?.call_method1("empty", ((), &this.dtype))?,
        };
        let block = ndarray::block(&into, &this.dtype)
            .filter(|block| block.can_be_filled && !this.is_own(cells, pe, block.start));
        if let Some(block) = block {
            this.get_block(py, cells, pe, index, (block.start, block.count))?;
            return Ok(into);
        }
        let buffer = this.destination(cells, pe, &into)?;
        let size = cells.kind().size();
        if buffer.is_block() {
            let place = (buffer.start(), buffer.bytes() / size);
            this.get_block(py, cells, pe, index, place)?;
        } else {
            let from = Layout::contiguous(&buffer.layout().shape, size);
            this.get_runs(py, cells, pe, (this.byte(index, cells)?, &from), &buffer)?;
        }
        match buffer.has_dimensions() {
            true => Ok(into),
            false => into.get_item(PyTuple::empty(py)),
        }
    }

    /// Puts `source` to the place, in `pe`'s part, of a view of this PE's own part.
    fn _put_view(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        view: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (this, memory) = (slf.get(), Self::memory(slf)?);
        let cells = memory.get().cells();
        let (at, to) = Self::place(cells, view)?;
        let from = Elements::of(cells.kind(), &this.dtype, source)?;
        same_shape(&from.layout(cells.kind().size()).shape, &to.shape)?;
        this.put_runs(slf.py(), cells, pe, (at, &to), &from, None)
    }

    /// Gets the place, in `pe`'s part, of a view of this PE's own part.
    fn _get_view(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        view: &Bound<'_, PyAny>,
        into: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (this, memory) = (slf.get(), Self::memory(slf)?);
        let cells = memory.get().cells();
        let (at, from) = Self::place(cells, view)?;
        let into = this.destination(cells, pe, into)?;
        same_shape(&into.layout().shape, &from.shape)?;
        this.get_runs(slf.py(), cells, pe, (at, &from), &into)
    }

    /// Checks that there is such a PE.
    fn _check_pe(&self, py: Python<'_>, #[pyo3(from_py_with = number)] pe: usize) -> PyResult<()> {
        self.check_pe(py, pe)
    }

    /// Resolves one word of a PE, for stores, loads and atomics.
    fn remote(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
    ) -> PyResult<Remote> {
        Ok(Remote::new(Self::target(slf, pe, index)?))
    }

    /// Updates signal word `index` of `pe`'s part, and wakes it: `op` "set" or "add", of `value`.
    /// The window's dtype is uint64.
    #[pyo3(signature = (pe, index, value=1, op="set"))]
    fn signal(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        value: u64,
        op: &str,
    ) -> PyResult<()> {
        let (this, memory) = (slf.get(), Self::memory(slf)?);
        let (cells, op) = (memory.get().cells(), signal_op(op)?);
        let index = this.index(index)?;
        blocking::call(slf.py(), this.is_long(pe, 0), || {
            // SAFETY: no elements.
            unsafe { cells.put_signal(pe, 0, Raw(cells.local()), 0, &(cells, index, op, value)) }
        })
    }

    /// Adds to a word of a PE atomically; gives what it held.
    fn fetch_add(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        Self::target(slf, pe, index)?.update(crate::scalar::Update::Add, value)
    }

    /// Replaces a word of a PE atomically; gives what it held.
    fn swap(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        Self::target(slf, pe, index)?.swap(value)
    }

    /// Replaces a word of a PE by `new` if it holds `expected`; gives what it held.
    fn compare_swap(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        Self::target(slf, pe, index)?.compare_swap(expected, new)
    }

    /// Waits until a word of this PE's part compares so with `value`; gives the word.
    ///
    /// `cmp` is "==", "!=", "<", "<=", ">" or ">=". After `timeout` seconds it raises `Timeout`. It
    /// raises `PeerFailed` where a PE has failed: any, or one of `depends_on`.
    #[pyo3(signature = (index, cmp, value, *, timeout=None, depends_on=None))]
    fn wait_until(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        #[pyo3(from_py_with = numbers_or_none)] depends_on: Option<Vec<usize>>,
    ) -> PyResult<Py<PyAny>> {
        let (this, memory) = (slf.get(), Self::memory(slf)?);
        let terms = this.terms(slf.py(), timeout, depends_on)?;
        memory.get().cells().wait(this.index(index)?, comparison(cmp)?, value, &terms)
    }

    /// `wait_until` for one of several words; gives its place in `indices`.
    #[pyo3(signature = (indices, cmp, value, *, timeout=None, depends_on=None))]
    fn wait_until_any(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = numbers)] indices: Vec<usize>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        #[pyo3(from_py_with = numbers_or_none)] depends_on: Option<Vec<usize>>,
    ) -> PyResult<usize> {
        let (memory, terms) = (Self::memory(slf)?, slf.get().terms(slf.py(), timeout, depends_on)?);
        let cells = memory.get().cells();
        let places = cells.wait_for(Which::Any, &indices, comparison(cmp)?, value, &terms)?;
        Ok(places[0])
    }

    /// `wait_until` for several words, until each has compared so.
    #[pyo3(signature = (indices, cmp, value, *, timeout=None, depends_on=None))]
    fn wait_until_all(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = numbers)] indices: Vec<usize>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        #[pyo3(from_py_with = numbers_or_none)] depends_on: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let (memory, terms) = (Self::memory(slf)?, slf.get().terms(slf.py(), timeout, depends_on)?);
        let cells = memory.get().cells();
        cells.wait_for(Which::All, &indices, comparison(cmp)?, value, &terms).map(drop)
    }

    /// `wait_until` for at least one of several words; gives the places, in `indices`, of all that
    /// compare so.
    #[pyo3(signature = (indices, cmp, value, *, timeout=None, depends_on=None))]
    fn wait_until_some(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = numbers)] indices: Vec<usize>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        #[pyo3(from_py_with = numbers_or_none)] depends_on: Option<Vec<usize>>,
    ) -> PyResult<Vec<usize>> {
        let (memory, terms) = (Self::memory(slf)?, slf.get().terms(slf.py(), timeout, depends_on)?);
        let cells = memory.get().cells();
        cells.wait_for(Which::Some, &indices, comparison(cmp)?, value, &terms)
    }

    /// Whether a word of this PE's part compares so now, as in `wait_until`.
    fn test(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        cmp: &str,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (index, memory) = (slf.get().index(index)?, Self::memory(slf)?);
        let found = memory.get().cells().test(&[index], comparison(cmp)?, value)?;
        Ok(!found.is_empty())
    }

    /// The number of an element: an integer, or a tuple of them.
    fn _element(&self, index: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.index(index)
    }

    /// Prepares a copy of `count` elements of this PE's part of `source`, to be started many times.
    #[pyo3(signature = (pe, index, source, start, count, *, signals=None, signal=None, value=1, op="set"))]
    #[allow(clippy::too_many_arguments, reason = "a block, a signal, and where they go")]
    fn _prepare(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        source: &Bound<'_, Window>,
        start: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] count: usize,
        signals: Option<&Bound<'_, Window>>,
        signal: Option<&Bound<'_, PyAny>>,
        value: u64,
        op: &str,
    ) -> PyResult<Transfer> {
        let py = slf.py();
        Self::check_alike(slf, source, "source and target of a transfer")?;
        let (cells, from) = (Self::cells(slf)?, Self::cells(source)?);
        let (to, start) = (slf.get().index(index)?, source.get().index(start)?);
        let prepared =
            cells.prepare(pe, to, &*from, start, count).map_err(|error| raise(py, error))?;
        let prepared = match signals {
            None => prepared,
            Some(signals) => {
                let words = Self::cells(signals)?;
                let signal = signal.map_or(Ok(0), |signal| signals.get().index(signal))?;
                let op = signal_op(op)?;
                crate::cells::signals(&*words)
                    .and_then(|words| prepared.with_signal(words, signal, op, value))
                    .map_err(|error| raise(py, error))?
            }
        };
        Ok(Transfer::new(prepared))
    }

    /// Gives up this object's hold on the memory. Not collective: the memory is used again when all
    /// PEs have freed the window and no array shows it, from the next collective call that makes a
    /// window on.
    fn free(slf: &Bound<'_, Self>) {
        let held = Self::held(slf, |held| (held.cells.take(), held.local.take()));
        drop(held);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(slf: &Bound<'_, Self>, _raised: &Bound<'_, PyTuple>) {
        Self::free(slf);
    }
}

impl Window {
    /// A word of a PE, resolved.
    fn target(
        slf: &Bound<'_, Self>,
        pe: usize,
        index: &Bound<'_, PyAny>,
    ) -> PyResult<Box<dyn Target>> {
        let (py, this, memory) = (slf.py(), slf.get(), Self::memory(slf)?);
        let cells = memory.get().cells();
        let target = cells.remote(py, pe, this.index(index)?)?;
        Ok(if is_bool(cells.kind(), this.elements(py))? { Box::new(Truth(target)) } else { target })
    }

    /// The byte of an element's beginning.
    fn byte(&self, index: &Bound<'_, PyAny>, cells: &dyn Cells) -> PyResult<usize> {
        let (py, index, size) = (index.py(), self.index(index)?, cells.kind().size());
        let overflow = || raise(py, Error::Overflow { index, size, call: None });
        index.checked_mul(size).ok_or_else(overflow)
    }
}
