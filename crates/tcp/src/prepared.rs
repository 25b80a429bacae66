//! Prepared puts: a transfer knows its own end, apart from that of other puts.
//!
//! A start is an ordinary put. Its end is the number of records to its target that a quiet would
//! then need. So [`wait`](Prepared::wait) asks that target alone for an acknowledgement, and waits
//! for no other. What was put to the same target before is complete then, too: the stream keeps
//! order.

use crate::peer::{Mark, Peer};
use crate::shared::Shared;
use memonet_core::Result;
use memonet_core::unstable::fabric::{Fabric, FarAddress, Prepared, Signal};
use std::sync::Arc;

/// A prepared put, and perhaps its signal, at one PE.
pub(crate) struct Transfer {
    shared: Arc<Shared>,
    to: FarAddress,
    src: *const u8,
    len: usize,
    signal: Option<Signal>,
    /// The end of the last start; nothing where that was complete at once.
    end: Option<Mark>,
}

// SAFETY: only `start` passes the address on, and its caller promises that it is readable then, in
// whatever thread.
unsafe impl Send for Transfer {}

impl Transfer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: Option<Signal>,
    ) -> Self {
        Transfer { shared, to, src, len, signal, end: None }
    }

    /// The last start is complete, or never will be.
    fn result(&self) -> Result<()> {
        let mut hub = self.shared.lock();
        let lost = hub.existing(self.to.pe).filter(|peer| peer.has_failed()).map(Peer::error);
        // Perhaps of this put.
        hub.take_late_of(self.to.pe).or(lost).map_or(Ok(()), Err)
    }
}

impl Prepared for Transfer {
    unsafe fn start(&mut self, fabric: &dyn Fabric) -> Result<()> {
        let Transfer { to, src, len, signal, .. } = *self;
        // SAFETY: the caller promises the source until this start is complete, which a quiet says,
        // too.
        unsafe {
            match signal {
                None => fabric.put_nbi(to, src, len),
                Some(Signal { at, op, value }) => {
                    fabric.put_signal_nbi(to, src, len, at, op, value)
                }
            }
        }?;
        self.end = self.shared.lock().existing(to.pe).map(Peer::mark);
        Ok(())
    }

    fn is_complete(&mut self, fabric: &dyn Fabric) -> Result<bool> {
        let Some(end) = self.end else { return Ok(true) };
        // Refused in a forked child, where the lock may never be free.
        fabric.fence()?;
        let mut hub = self.shared.lock();
        self.shared.count_poll();
        hub.flush_to(end.pe);
        hub.pump(Some(end.pe));
        hub.look_after(end.pe);
        let complete = hub.existing(end.pe).is_none_or(|peer| peer.has_reached(end));
        drop(hub);
        if complete {
            self.end = None;
            self.result()?;
        }
        Ok(complete)
    }

    fn wait(&mut self, fabric: &dyn Fabric) -> Result<()> {
        let Some(end) = self.end else { return Ok(()) };
        // As above.
        fabric.fence()?;
        let mut hub = self.shared.lock();
        hub.flush_to(end.pe);
        hub.write(end.pe);
        drop(self.shared.wait(hub, end.pe, |peer| peer.has_reached(end)));
        self.end = None;
        self.result()
    }
}
