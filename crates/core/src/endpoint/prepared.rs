//! Puts that a fabric prepares once, so that a start is as little as its hardware allows: one
//! command, where that keeps addresses, lengths and rights.

use super::fabric::{Fabric, FarAddress, Signal};
use crate::base::error::Result;

/// A put, perhaps with a signal, that may be started many times: made by [`Fabric::prepare`].
///
/// A start is a put like any other: fences order it, and a quiet completes it. Each call is given
/// the fabric that has prepared it. Dropped while a start is under way, that goes on; the source
/// then stays as it is until the next quiet.
pub trait Prepared: Send {
    /// Starts the put of what the source holds now. It is called when the previous start is
    /// complete, or none was made. The source must stay as it is until this one is.
    ///
    /// # Errors
    /// Those of a put that are known at once.
    ///
    /// # Safety
    /// The source stays readable until the start is complete.
    unsafe fn start(&mut self, fabric: &dyn Fabric) -> Result<()>;

    /// Whether the last start is complete: its block and its signal are visible at the target. At
    /// once; a fabric that cannot tell puts apart may wait with a yes until all are complete.
    ///
    /// # Errors
    /// What the put failed with.
    fn is_complete(&mut self, fabric: &dyn Fabric) -> Result<bool>;

    /// Completes the last start. It completes no other put, unless the fabric cannot tell them
    /// apart.
    ///
    /// # Errors
    /// As for [`is_complete`](Self::is_complete).
    fn wait(&mut self, fabric: &dyn Fabric) -> Result<()>;
}

/// For fabrics that prepare nothing: each start is a put, complete when all are.
pub(super) struct Repeated {
    pub(super) to: FarAddress,
    pub(super) src: *const u8,
    pub(super) len: usize,
    pub(super) signal: Option<Signal>,
}

// SAFETY: an address that only a fabric reads, and only where the caller of `start` promises that
// it can.
unsafe impl Send for Repeated {}

impl Prepared for Repeated {
    unsafe fn start(&mut self, fabric: &dyn Fabric) -> Result<()> {
        let Repeated { to, src, len, signal } = *self;
        match signal {
            // SAFETY: the caller promises that the source is readable until the start is complete,
            // which by `is_complete` it is after a quiet.
            None => unsafe { fabric.put_nbi(to, src, len) },
            Some(Signal { at, op, value }) => {
                // SAFETY: as above.
                unsafe { fabric.put_signal_nbi(to, src, len, at, op, value) }
            }
        }
    }

    fn is_complete(&mut self, fabric: &dyn Fabric) -> Result<bool> {
        fabric.is_quiet()
    }

    fn wait(&mut self, fabric: &dyn Fabric) -> Result<()> {
        fabric.quiet()
    }
}
