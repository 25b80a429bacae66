//! Objects that one thread uses at a time.

use crate::blocking;
use crate::errors::freed;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A handle of the core that a call changes, until it is freed.
pub struct Exclusive<T> {
    what: &'static str,
    handle: Mutex<Option<T>>,
}

impl<T: Send> Exclusive<T> {
    pub fn new(what: &'static str, handle: T) -> Self {
        Exclusive { what, handle: Mutex::new(Some(handle)) }
    }

    /// Never waits: the thread that has it may need the interpreter's lock to go on.
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<T>>> {
        match self.handle.try_lock() {
            Ok(handle) => Ok(handle),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(format!(
                "another call uses this {} now: give each thread one of its own",
                self.what
            ))),
        }
    }

    /// Makes a call that may wait.
    pub fn wait<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> memonet_core::Result<R> + Send,
    ) -> PyResult<R> {
        let mut handle = self.lock()?;
        let handle = handle.as_mut().ok_or_else(|| freed(self.what))?;
        blocking::wait(py, || call(handle))
    }

    /// Makes a call that waits for no other PE. It may run code of Python, in which other threads
    /// go on.
    pub fn with<R>(&self, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        call(self.lock()?.as_mut().ok_or_else(|| freed(self.what))?)
    }

    /// Gives it up. Dropping may send.
    pub fn free(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.lock()?.take();
        py.detach(|| drop(handle));
        Ok(())
    }
}
