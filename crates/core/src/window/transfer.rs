//! Transfers: a copy prepared once and started many times, as SR2201's command words were.

use crate::base::error::{Error, Result};
use crate::base::shm::Plain;
use crate::base::shows;
use crate::base::unwinding::unwinds;
use crate::endpoint::belongs::check_together;
use crate::endpoint::fabric::{Prepared, Signal, SignalOp};
use crate::endpoint::recorder::Kind;
use crate::endpoint::route::Route;
use crate::wait::polling;
use crate::window::put::signal_access;
use crate::window::{Inner, Target, Window};
use std::ops::Range;
use std::sync::Arc;

/// A copy from this PE's own part of a window to another PE's part of one, checked and resolved in
/// advance. Made by [`Window::prepare`].
///
/// Each [`start`](Self::start) copies what the source holds then.
///
/// MPI: a persistent request (`MPI_Send_init`, `MPI_Start`, `MPI_Wait`).
///
/// ```
/// # use memonet_core::{Cmp, Job, SignalOp};
/// # Job::threads(2, |job| -> memonet_core::Result<()> {
/// let (from, to) = (job.window::<f64>(100)?, job.window::<f64>(100)?);
/// let came = job.window::<u64>(1)?;
/// let mut transfer =
///     to.prepare(1 - job.pe(), 0, &from, 0..100)?.with_signal(&came, 0, SignalOp::Add, 1)?;
/// for round in 1..=3 {
///     from.fill(0..100, round as f64);
///     transfer.start()?;
///     transfer.wait()?; // the source may change again
///     came.wait_until(0, Cmp::Ge, round)?;
///     assert_eq!(to.read(99), round as f64);
///     job.barrier()?; // both PEs have read
/// }
/// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Transfer {
    /// The fabric's part, where the target is far. Dropped before what it reads and writes.
    prepared: Option<Box<dyn Prepared>>,
    target: Target,
    pe: usize,
    source: *const u8,
    bytes: usize,
    signal: Option<(Target, SignalOp, u64)>,
    under_way: bool,
    // Both windows, kept alive; the signal's too.
    window: Arc<Inner>,
    _source_window: Arc<Inner>,
    _signal_window: Option<Arc<Inner>>,
}

shows!([] Transfer as "Transfer", |it| pe = it.pe, bytes = it.bytes, under_way = it.under_way);

// SAFETY: `source` is an address in a mapping that `_source_window` keeps, read only through
// `crate::base::shm` or the fabric; all else may be sent.
unsafe impl Send for Transfer {}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: Plain> Window<T> {
    /// Prepares a copy of elements `from` of this PE's own part of `source` to `pe`'s part of this
    /// window, from element `index` on.
    ///
    /// MPI: `MPI_Send_init`.
    ///
    /// # Errors
    /// As for [`put_nbi`](Self::put_nbi), and those of the fabric.
    #[track_caller]
    pub fn prepare(
        &self,
        pe: usize,
        index: usize,
        source: &Window<T>,
        from: Range<usize>,
    ) -> Result<Transfer> {
        self.inner.pe.call("Window::prepare", Some(self.inner.made), || {
            let (target, src, bytes) = self.copy_ends(pe, index, source, from)?;
            let mut transfer = Transfer {
                prepared: None,
                target,
                pe,
                source: src,
                bytes,
                signal: None,
                under_way: false,
                window: self.inner.clone(),
                _source_window: source.inner.clone(),
                _signal_window: None,
            };
            transfer.prepare_far()?;
            Ok(transfer)
        })
    }
}

impl Transfer {
    /// Makes every [`start`](Self::start) update word `index` of the target PE's part of `signals`
    /// after the copy. A PE that sees the signal sees the block.
    ///
    /// # Errors
    /// As for [`Window::signal`]; [`Misuse`](Error::Misuse) when `signals` belongs to another job,
    /// or to another PE of this one, and while a start is under way.
    pub fn with_signal(
        mut self,
        signals: &Window<u64>,
        index: usize,
        op: SignalOp,
        value: u64,
    ) -> Result<Self> {
        check_together(&*self.window.pe, signals)?;
        if self.under_way {
            return Err(Error::misuse(
                "a transfer gets its signal while a start is under way; wait for that first",
            ));
        }
        let target = signals.target(self.pe, index, 1, signal_access(op))?;
        self.signal = Some((target, op, value));
        self._signal_window = Some(signals.inner.clone());
        self.prepare_far()?;
        Ok(self)
    }

    /// Has the fabric prepare what there is by now, where the target is far.
    fn prepare_far(&mut self) -> Result<()> {
        let Route::Far(to) = self.target.route.unrecorded() else { return Ok(()) };
        let signal = self.signal.as_ref().map(|&(ref word, op, value)| {
            let Route::Far(at) = word.route.unrecorded() else {
                unreachable!("a PE is either near or far")
            };
            Signal { at, op, value }
        });
        self.release();
        let fabric = self.window.pe.fabric();
        self.prepared = Some(fabric.prepare(to, self.source, self.bytes, signal)?);
        Ok(())
    }

    /// Gives up what the fabric has prepared.
    fn release(&mut self) {
        let pe = &self.window.pe;
        if let Some(mut prepared) = self.prepared.take()
            && !unwinds()
            && let Err(error) = prepared.release(pe.fabric())
        {
            pe.surface_later(error);
        }
    }

    /// Starts the copy. The source must not change until [`test`](Self::test) or
    /// [`wait`](Self::wait) says that the copy is complete.
    ///
    /// MPI: `MPI_Start`.
    ///
    /// # Errors
    /// [`Misuse`](Error::Misuse) while the previous start is not complete.
    #[track_caller]
    pub fn start(&mut self) -> Result<()> {
        let pe = &self.window.pe;
        pe.call("Transfer::start", Some(self.window.made), || {
            if self.under_way {
                return Err(Error::misuse(
                    "a transfer was started again before `test` or `wait` said that it is complete",
                ));
            }
            if let Some(prepared) = &mut self.prepared {
                let kind = if self.signal.is_some() { Kind::PutSignal } else { Kind::Put };
                pe.note(kind, self.target.route, self.bytes);
                self.under_way = true;
                // SAFETY: the source is window memory: a segment stays mapped as long as the job,
                // and a restricted part is unmapped only when the fabric is quiet.
                return unsafe { prepared.start(pe.fabric()) };
            }
            let (to, src, len) = (self.target.route, self.source, self.bytes);
            let Some((word, op, value)) = &self.signal else {
                // SAFETY: both ranges were checked when the transfer was prepared, and their
                // windows are kept.
                unsafe { to.put(pe, src, len) }?;
                pe.wrote(self.pe);
                return Ok(());
            };
            // SAFETY: as above.
            Ok(unsafe { to.put_signal(pe, src, len, (word.route, self.pe), *op, *value) }?)
        })
    }

    /// Whether the last start is complete: the block is visible at the target, and the source may
    /// change. True before any start.
    ///
    /// MPI: `MPI_Test`.
    ///
    /// # Errors
    /// The error with which the copy failed.
    #[track_caller]
    pub fn test(&mut self) -> Result<bool> {
        self.window.pe.call("Transfer::test", Some(self.window.made), || {
            if self.under_way
                && let Some(prepared) = &mut self.prepared
            {
                let pe = &self.window.pe;
                pe.progress();
                let complete = prepared.is_complete(pe.fabric());
                // A copy that has failed is over, too.
                self.under_way = matches!(complete, Ok(false));
                polling::has_looked(pe, !self.under_way);
                complete?;
            }
            Ok(!self.under_way)
        })
    }

    /// Waits until the last start is complete.
    ///
    /// MPI: `MPI_Wait`.
    ///
    /// # Errors
    /// The error with which the copy failed.
    #[track_caller]
    pub fn wait(&mut self) -> Result<()> {
        if std::mem::take(&mut self.under_way)
            && let Some(prepared) = &mut self.prepared
        {
            let pe = &self.window.pe;
            pe.waiting_call("Transfer::wait", Some(self.window.made), || {
                pe.wake_written();
                prepared.wait(pe.fabric())?;
                // Where the library completed it first, that kept its error.
                Ok(pe.surface()?)
            })?;
        }
        Ok(())
    }
}
