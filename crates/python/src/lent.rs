//! Data that are exported while this PE holds a lock, and at no other time.
//!
//! The guard is given up only when no export is left: no array, view or memoryview then shows the
//! data, as for Rust no reference outlives the guard.

use crate::kept::Kept;
use crate::place::export;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A guard, while there is one, and the buffers that show its data.
pub struct Lent<G, L> {
    /// What is locked, for messages.
    what: &'static str,
    bytes: usize,
    state: Mutex<State<G, L>>,
}

struct State<G, L> {
    held: Option<Kept<G, L>>,
    exports: usize,
}

impl<G, L> Lent<G, L> {
    /// Data of so many bytes, which `held` gives.
    pub fn new(what: &'static str, bytes: usize, held: Option<Kept<G, L>>) -> Self {
        Lent { what, bytes, state: Mutex::new(State { held, exports: 0 }) }
    }

    /// Never held while Python code runs, or while a call waits.
    fn state(&self) -> MutexGuard<'_, State<G, L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a guard, from now on.
    pub fn keep(&self, held: Kept<G, L>) {
        self.state().held = Some(held);
    }

    pub fn is_held(&self) -> bool {
        self.state().held.is_some()
    }

    /// How many buffers show the data.
    pub fn exports(&self) -> usize {
        self.state().exports
    }

    /// The guard, to be released.
    pub fn take(&self) -> PyResult<Kept<G, L>> {
        let (what, mut state) = (self.what, self.state());
        if state.exports > 0 {
            return Err(PyBufferError::new_err(format!(
                "arrays still show the {what}'s data, so it stays locked: copy what you need, and del its views before you leave"
            )));
        }
        let held = state.held.take();
        held.ok_or_else(|| PyRuntimeError::new_err(format!("this PE does not hold the {what}")))
    }

    /// Exports the data, which begin where `start` says, and may only be read if it says so.
    ///
    /// # Safety
    /// `view` is one that Python gives an object to fill. `owner` is that object, and has this.
    /// `start` gives the first of the data that its guard guards.
    pub unsafe fn export(
        &self,
        view: *mut ffi::Py_buffer,
        owner: &Bound<'_, PyAny>,
        flags: c_int,
        start: impl FnOnce(&mut G) -> (*mut u8, bool),
    ) -> PyResult<()> {
        let (start, readonly) = {
            let mut state = self.state();
            let Some(held) = &mut state.held else {
                let error = format!("the data can be used only while the {} is held", self.what);
                return Err(PyBufferError::new_err(error));
            };
            let place = start(held.guard());
            state.exports += 1;
            place
        };
        // SAFETY: the caller's promise; while there is an export, `take` does not give the guard.
        let filled = unsafe { export(view, owner, (start, self.bytes), readonly, flags) };
        if filled.is_err() {
            self.take_back();
        }
        filled
    }

    /// Takes an export back.
    pub fn take_back(&self) {
        self.state().exports -= 1;
    }
}
