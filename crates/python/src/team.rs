//! Teams and their collectives.
//!
//! Collectives work on private copies of their arguments: arrays of Python may change while the
//! call waits (rule 3 of the crate). A call takes an array of words, whose dtype and shape are
//! alike at all members. `memonet._collectives` makes arrays of plain values, and values of the
//! results.

use crate::blocking;
use crate::buffer::{Buffer, Raw};
use crate::combine::{Combined, Form, Op, Place};
use crate::errors::{room, type_error, value_error};
use crate::kind::{Kind, with_word};
use crate::plain;
use crate::scalar::Scalar;
use crate::strides::{Layout, each_run};
use crate::window::{number, number_or_none, numbers};
use memonet_core::unstable::segment;
use memonet_core::{By, Job, Number, Operator, Result, Sum};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use std::sync::Arc;

/// A team of PEs, on which collectives are called.
#[pyclass(frozen, module = "memonet", weakref)]
pub struct Team {
    job: Job,
    /// `None`: all PEs.
    team: Option<Arc<memonet_core::Team>>,
}

impl Team {
    pub fn world(job: &Job) -> Self {
        Team { job: job.clone(), team: None }
    }

    pub fn new(job: &Job, team: Arc<memonet_core::Team>) -> Self {
        Team { job: job.clone(), team: Some(team) }
    }

    pub fn core(&self) -> &memonet_core::Team {
        self.team.as_deref().unwrap_or_else(|| self.job.world())
    }
}

/// Copies of an array's elements.
fn read<T: Scalar>(buffer: &Buffer) -> PyResult<Vec<T>> {
    let from = buffer.layout();
    let to = Layout::contiguous(&from.shape, size_of::<T>());
    let mut words = room(T::from_bits(0), from.count())?;
    copy(Raw(words.as_mut_ptr().cast()), &to, buffer.start(), &from);
    Ok(words)
}

/// Fills an array with words, of which there are as many as it has elements.
fn write<T: Scalar>(words: &[T], buffer: &Buffer) {
    let to = buffer.layout();
    assert_eq!(to.count(), words.len(), "the result has another length than its array");
    let from = Layout::contiguous(&to.shape, size_of::<T>());
    copy(buffer.start(), &to, Raw(words.as_ptr().cast_mut().cast()), &from);
}

fn copy(to: Raw, to_layout: &Layout, from: Raw, from_layout: &Layout) {
    let Ok(()) = each_run(to_layout, from_layout, |into, of, bytes| {
        // SAFETY: runs of elements of two arrays, which the callers keep. One of them is private.
        unsafe { segment::copy(to.0.wrapping_offset(into), from.0.wrapping_offset(of), bytes) };
        Ok::<(), std::convert::Infallible>(())
    });
}

/// The words of complex numbers are pairs.
fn complex(size: usize, format: char) -> bool {
    format == 'c' && (size == 8 || size == 16)
}

#[pymethods]
impl Team {
    /// This PE's rank in the team.
    #[getter]
    fn rank(&self) -> usize {
        self.core().rank()
    }

    /// Number of members.
    #[getter]
    fn size(&self) -> usize {
        self.core().len()
    }

    fn __len__(&self) -> usize {
        self.core().len()
    }

    /// The members' PE numbers, by rank.
    #[getter]
    fn members(&self) -> Vec<usize> {
        self.core().members().to_vec()
    }

    fn __repr__(&self) -> String {
        format!("<memonet.Team: rank {} of {}>", self.core().rank(), self.core().len())
    }

    /// Waits until all members have called. Collective.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        blocking::wait(py, || self.core().barrier())
    }

    /// The team of these PEs of this team; None at its other members. Collective.
    fn team(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] pes: Vec<usize>,
    ) -> PyResult<Option<Team>> {
        let made = blocking::wait(py, || self.core().team(&pes))?;
        Ok(made.map(|team| Team::new(&self.job, Arc::new(team))))
    }

    /// The team of all members that give this `color`, by `key`, then by rank; None for color None.
    ///
    /// Collective. MPI: `Comm.Split`.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<i64>, key: i64) -> PyResult<Option<Team>> {
        let made = blocking::wait(py, || self.core().split(color.map(|it| it as u64), key))?;
        Ok(made.map(|team| Team::new(&self.job, Arc::new(team))))
    }

    /// The team of `size` members from rank `start` on, each `stride` further. Collective.
    fn split_strided(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] start: usize,
        stride: isize,
        #[pyo3(from_py_with = number)] size: usize,
    ) -> PyResult<Option<Team>> {
        let made = blocking::wait(py, || self.core().split_strided(start, stride, size))?;
        Ok(made.map(|team| Team::new(&self.job, Arc::new(team))))
    }

    /// The members on this PE's host. Collective.
    fn split_by_node(&self, py: Python<'_>) -> PyResult<Team> {
        let made = blocking::wait(py, || self.core().split_by_node())?;
        Ok(Team::new(&self.job, Arc::new(made)))
    }

    /// Whether members compare their calls.
    #[getter]
    fn _is_checked(&self) -> bool {
        self.job.is_checked()
    }

    /// Compares a call of all members, which `what` describes.
    fn _compare(&self, py: Python<'_>, what: u64) -> PyResult<()> {
        blocking::wait(py, || self.core().compare("collective", &[("dtype and shape", what)]))
    }

    /// Combines the values of all members, in the order of ranks; all get the result.
    ///
    /// `x` is a number or an array; Python's integers are combined as int64, and wrap. Where some
    /// members give integers and others floats, the result is a float. `op` is "sum", "product",
    /// "min", "max", "and", "or" or "xor". Arrays, which have one shape and dtype at all members,
    /// are combined element by element, into `out` (which may be `x`) or a new array.
    #[pyo3(signature = (x, op="sum", out=None))]
    fn all_reduce<'py>(
        slf: &Bound<'py, Self>,
        x: &Bound<'py, PyAny>,
        op: &str,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let team = slf.get();
        // A number needs nothing of Python.
        let is_number = x.is_exact_instance_of::<PyFloat>() || x.is_exact_instance_of::<PyInt>();
        if is_number && out.is_none() {
            return team._combine_number(x, op, "all", 0);
        }
        let combine = x.py().import("memonet._collectives")?.getattr("_combine")?;
        combine.call1((slf, x, op, "all", 0, out))
    }

    /// Combines plain numbers of all members.
    fn _combine_number<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        op: &str,
        form: &str,
        #[pyo3(from_py_with = number)] root: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        plain::combine(self.core(), x, op, Form::named(form, root, op)?)
    }

    /// Combines the elements of all members in `array`, in place.
    #[pyo3(signature = (array, dtype, op, form, root=0))]
    fn _combine(
        &self,
        array: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        op: &str,
        form: &str,
        #[pyo3(from_py_with = number)] root: usize,
    ) -> PyResult<()> {
        let (py, name, form) = (array.py(), op, Form::named(form, root, op)?);
        let op = Op::named(op)?;
        let buffer = Buffer::writable(array)?;
        let letter: char = dtype.getattr("kind")?.extract()?;
        let kind = Kind::of(dtype)?;
        let native: bool = dtype.getattr("isnative")?.extract()?;
        if native && complex(kind.size(), letter) {
            return self.combine_complex(py, &buffer, kind.size(), op, form);
        }
        with_word!(kind, T => {
            buffer.check(kind)?;
            let mut words = read::<T>(&buffer)?;
            let core = self.core();
            let combined = blocking::wait(py, || T::combine(core, op, form, &mut words[..]).transpose())?;
            combined.ok_or_else(|| type_error(format!("{name:?} combines integers, not {dtype}")))?;
            write(&words, &buffer);
            Ok(())
        }, bytes _size => {
            Err(type_error(format!("there is no {name:?} of {dtype}: combine numbers of 1, 2, 4 or 8 bytes")))
        })
    }

    /// Gives all members the elements of the root, in place.
    fn _broadcast(
        &self,
        array: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] root: usize,
    ) -> PyResult<()> {
        let (py, is_root) = (array.py(), root == self.core().rank());
        // The root's elements are only read.
        let buffer = if is_root { Buffer::of(array)? } else { Buffer::writable(array)? };
        let mut bytes = self.bytes(&buffer)?;
        blocking::wait(py, || self.core().broadcast_slice(root, &mut bytes))?;
        if !is_root {
            self.fill(&bytes, &buffer);
        }
        Ok(())
    }

    /// Gathers the elements of all members into `into`, at all members or at a root.
    #[pyo3(signature = (array, into, root=None))]
    fn _gather(
        &self,
        array: &Bound<'_, PyAny>,
        into: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number_or_none)] root: Option<usize>,
    ) -> PyResult<()> {
        let (py, core) = (array.py(), self.core());
        let bytes = self.bytes(&Buffer::of(array)?)?;
        let into = into.map(Buffer::writable).transpose()?;
        let gathered = blocking::wait(py, || match root {
            None => core.all_gather_slice(&bytes).map(Some),
            Some(root) => core.gather_slice(root, &bytes),
        })?;
        if let (Some(all), Some(into)) = (gathered, into) {
            self.check_room(all.len(), &into)?;
            self.fill(&all, &into);
        }
        Ok(())
    }

    /// The elements of each member, of which each may have another number, as bytes.
    fn _collect(&self, array: &Bound<'_, PyAny>) -> PyResult<Vec<Py<pyo3::types::PyBytes>>> {
        let py = array.py();
        let bytes = self.bytes(&Buffer::of(array)?)?;
        let blocks = blocking::wait(py, || self.core().collect(&bytes))?;
        Ok(blocks.iter().map(|block| pyo3::types::PyBytes::new(py, block).unbind()).collect())
    }

    /// Gives each member its part of the root's elements.
    fn _scatter(
        &self,
        array: Option<&Bound<'_, PyAny>>,
        mine: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] root: usize,
    ) -> PyResult<()> {
        let (py, into) = (mine.py(), Buffer::writable(mine)?);
        let all = array.map(|array| self.bytes(&Buffer::of(array)?)).transpose()?;
        let mut bytes = room(0u8, into.bytes())?;
        let all = all.unwrap_or_default();
        blocking::wait(py, || self.core().scatter_slice(root, &all, &mut bytes))?;
        self.fill(&bytes, &into);
        Ok(())
    }

    /// Sends block i of this PE's elements to rank i.
    fn _all_to_all(&self, array: &Bound<'_, PyAny>, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, into) = (array.py(), Buffer::writable(into)?);
        let bytes = self.bytes(&Buffer::of(array)?)?;
        let got = blocking::wait(py, || self.core().all_to_all(&bytes))?;
        self.check_room(got.len(), &into)?;
        self.fill(&got, &into);
        Ok(())
    }
}

impl Team {
    /// An array's elements as bytes.
    fn bytes(&self, buffer: &Buffer) -> PyResult<Vec<u8>> {
        let from = buffer.layout();
        let to = Layout::contiguous(&from.shape, from.size);
        let mut bytes = room(0, buffer.bytes())?;
        copy(Raw(bytes.as_mut_ptr()), &to, buffer.start(), &from);
        Ok(bytes)
    }

    fn fill(&self, bytes: &[u8], buffer: &Buffer) {
        let to = buffer.layout();
        let from = Layout::contiguous(&to.shape, to.size);
        copy(buffer.start(), &to, Raw(bytes.as_ptr().cast_mut()), &from);
    }

    fn check_room(&self, bytes: usize, into: &Buffer) -> PyResult<()> {
        match into.bytes() == bytes {
            true => Ok(()),
            false => Err(value_error(format!(
                "the result has {bytes} bytes, and the array for it {}: members gave arrays of different sizes",
                into.bytes()
            ))),
        }
    }

    fn combine_complex(
        &self,
        py: Python<'_>,
        buffer: &Buffer,
        size: usize,
        op: Op,
        form: Form,
    ) -> PyResult<()> {
        let mut bytes = self.bytes(buffer)?;
        let core = self.core();
        let done = blocking::wait(py, || match size {
            8 => combine_pairs::<f32, 4>(core, op, form, &mut bytes),
            _ => combine_pairs::<f64, 8>(core, op, form, &mut bytes),
        })?;
        done.ok_or_else(|| type_error("complex numbers have a \"sum\" and a \"product\""))?;
        self.fill(&bytes, buffer);
        Ok(())
    }
}

/// A float of so many bytes.
trait Float<const N: usize>:
    Number + std::ops::Mul<Output = Self> + std::ops::Add<Output = Self> + std::ops::Sub<Output = Self>
{
    fn of(bytes: [u8; N]) -> Self;
    fn bytes(self) -> [u8; N];
}

impl Float<4> for f32 {
    fn of(bytes: [u8; 4]) -> f32 {
        f32::from_ne_bytes(bytes)
    }
    fn bytes(self) -> [u8; 4] {
        self.to_ne_bytes()
    }
}

impl Float<8> for f64 {
    fn of(bytes: [u8; 8]) -> f64 {
        f64::from_ne_bytes(bytes)
    }
    fn bytes(self) -> [u8; 8] {
        self.to_ne_bytes()
    }
}

/// Combines pairs of real and imaginary parts; `None` for an operator that they do not have.
fn combine_pairs<T: Float<N>, const N: usize>(
    team: &memonet_core::Team,
    op: Op,
    form: Form,
    bytes: &mut [u8],
) -> Result<Option<()>>
where
    Sum: Operator<T>,
{
    let part = |bytes: &[u8]| T::of(bytes.try_into().expect("the bytes of a float"));
    let parts: Vec<T> = bytes.chunks_exact(N).map(part).collect();
    let combined = match (op, form) {
        (Op::Sum, _) => {
            let mut parts = parts;
            parts.as_mut_slice().combine(team, Sum, form)?;
            parts
        }
        (Op::Product, Form::All | Form::Root(_) | Form::Scan) => {
            let product = By(|[a, b]: [T; 2], [c, d]: [T; 2]| [a * c - b * d, a * d + b * c]);
            let mut pairs: Vec<[T; 2]> =
                parts.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
            match form {
                Form::Root(root) => team.reduce_slice(product, root, &mut pairs)?,
                Form::Scan => team.scan_slice(product, &mut pairs)?,
                _ => team.all_reduce_slice(product, &mut pairs)?,
            }
            pairs.concat()
        }
        _ => return Ok(None),
    };
    for (to, from) in bytes.chunks_exact_mut(N).zip(combined) {
        to.copy_from_slice(&from.bytes());
    }
    Ok(Some(()))
}
