//! Collectives from windows to windows: nothing is copied on the way, and nothing is allocated.
//!
//! Each end is a range of elements of a window, which all members name alike.

use crate::blocking;
use crate::cells::{Cells, byte_window, word_window};
use crate::combine::{Combined, Form, Op};
use crate::errors::type_error;
use crate::kind::{Kind, is_bool, with_word};
use crate::scalar::Scalar;
use crate::team::Team;
use crate::window::{Window, number};
use memonet_core::{Result, Span};
use pyo3::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A window, the number of its first element, and that behind the last one.
type Part<'py> = (Bound<'py, Window>, usize, usize);

/// A window and a range of its elements.
type End = (Arc<dyn Cells>, Range<usize>);

fn end_of((window, start, end): &Part<'_>) -> PyResult<End> {
    Ok((Window::cells(window)?, *start..*end))
}

fn words<T: Scalar>((cells, range): &End) -> Result<Span<'_, T>> {
    word_window::<T>(&**cells).span(range.clone())
}

/// Elements of `size` bytes that are no words, as bytes.
fn bytes((cells, range): &End, size: usize) -> Result<Span<'_, u8>> {
    let at = |element: usize| element.saturating_mul(size);
    byte_window(&**cells).span(at(range.start)..at(range.end))
}

/// Both ends of a call: where the elements go, and where they come from.
struct Ends {
    to: End,
    from: End,
}

impl Ends {
    fn of(to: &Part<'_>, from: &Part<'_>) -> PyResult<Ends> {
        Window::check_alike(&to.0, &from.0, "source and destination of a collective")?;
        Ok(Ends { to: end_of(to)?, from: end_of(from)? })
    }

    fn words<T: Scalar>(&self) -> Result<(Span<'_, T>, Span<'_, T>)> {
        Ok((words(&self.to)?, words(&self.from)?))
    }

    fn bytes(&self, size: usize) -> Result<(Span<'_, u8>, Span<'_, u8>)> {
        Ok((bytes(&self.to, size)?, bytes(&self.from, size)?))
    }
}

/// Combines elements of all members of a team. Collective.
#[pyfunction]
pub fn combine_into(
    team: &Bound<'_, Team>,
    to: Part<'_>,
    from: Part<'_>,
    op: &str,
    form: &str,
    #[pyo3(from_py_with = number)] root: usize,
) -> PyResult<()> {
    let (py, team, ends) = (team.py(), team.get().core(), Ends::of(&to, &from)?);
    let (name, form, op) = (op, Form::named(form, root, op)?, Op::named(op)?);
    let kind = ends.to.0.kind();
    if matches!(op, Op::Sum | Op::Product) && is_bool(kind, to.0.get().elements(py))? {
        return Err(type_error(format!(
            "the {name} of bools is no bool: combine them by \"or\" or \"and\", or count in a window of integers"
        )));
    }
    let combined = with_word!(kind, T => {
        blocking::wait(py, || {
            let combined = T::combine(team, op, form, ends.words::<T>()?);
            combined.transpose()
        })?
    }, bytes _size => {
        return Err(type_error(format!(
            "collectives between windows combine numbers of 1, 2, 4 or 8 bytes, not {kind}"
        )));
    });
    combined.ok_or_else(|| type_error(format!("{name:?} combines integers, not {kind}")))
}

/// How elements move.
#[derive(Clone, Copy)]
enum Move {
    Broadcast,
    Scatter,
    Gather,
    AllGather,
    AllToAll,
    Collect,
}

fn moved<T: memonet_core::Plain>(
    team: &memonet_core::Team,
    how: Move,
    root: usize,
    (to, from): (Span<'_, T>, Span<'_, T>),
) -> Result<usize> {
    match how {
        Move::Broadcast => team.broadcast_into(root, to, from)?,
        Move::Scatter => team.scatter_into(root, to, from)?,
        Move::Gather => team.gather_into(root, to, from)?,
        Move::AllGather => team.all_gather_into(to, from)?,
        Move::AllToAll => team.all_to_all_into(to, from)?,
        Move::Collect => return team.collect_into(to, from),
    }
    Ok(to.len())
}

/// Moves elements between the members of a team; gives how many came. Collective.
#[pyfunction]
pub fn move_into(
    team: &Bound<'_, Team>,
    to: Part<'_>,
    from: Part<'_>,
    how: &str,
    #[pyo3(from_py_with = number)] root: usize,
) -> PyResult<usize> {
    let (py, team, ends) = (team.py(), team.get().core(), Ends::of(&to, &from)?);
    let how = match how {
        "broadcast" => Move::Broadcast,
        "scatter" => Move::Scatter,
        "gather" => Move::Gather,
        "all_gather" => Move::AllGather,
        "all_to_all" => Move::AllToAll,
        _ => Move::Collect,
    };
    blocking::wait(py, || {
        with_word!(ends.to.0.kind(), T => moved(team, how, root, ends.words::<T>()?), bytes size => {
            Ok(moved(team, how, root, ends.bytes(size)?)? / size)
        })
    })
}
