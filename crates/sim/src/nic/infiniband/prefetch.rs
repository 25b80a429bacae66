//! Prefetch: the core logic brings parts of the buffer memory closer to the host.
//!
//! Published is only that the core logic does it, at the processor's command. So this is one way to
//! build it. The NIC has a window of `nic.window` bytes, which answers a read of the host at once,
//! as the slot demands. The host commands a prefetch into the window and goes on. The core logic
//! reads the buffer memory, as for a packet, and does nothing else meanwhile.
//!
//! ```text
//! read:         look ─► core: read, width (8 bytes) ─► look ─► core: read, width ─► ...
//! prefetch:     command_write ─► core: decode, read, width (all bytes) ─► the window
//! read_window:  until that is over ─► look, look, ...
//! ```
//!
//! Nothing keeps the window like the memory: it has the bytes as they were when the core logic had
//! moved the last of them. A host that reads one half of it while the core logic fills the other
//! waits for the window alone.

use super::interface::{BLOCK_MOST, place_of};
use super::nics::{InfiniBand, Later};
use super::window::Reading;
use crate::host::{Answer, Command};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use memonet_core::unstable::fabric::FarAddress;
use std::ops::Range;

/// Bytes that the host reads at once.
const WORD: usize = 8;

impl InfiniBand {
    /// The place in the window that a command names.
    fn window_place(&self, command: &Command) -> Result<Range<usize>, String> {
        let [at, len] = [command.words[0], command.words[1]];
        match (self.is.window, at.checked_add(len)) {
            (None, _) => Err("this NIC has no window to prefetch into (nic.window)".into()),
            (Some(size), Some(end)) if end <= size => Ok(at as usize..end as usize),
            (Some(size), _) => Err(format!(
                "{len} bytes from byte {at} on are not all in the window, which has {size} (nic.window)"
            )),
        }
    }

    /// Begins a prefetch. Answered when the host has written the command.
    pub(super) fn prefetch(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let from = place_of(command);
        let place = match self.window_place(command).and_then(|place| {
            own_memory(cx, op, from, place.len())?;
            Ok(place)
        }) {
            Ok(place) => place,
            Err(why) => return cx.finish(cx.now(), op, Answer::refused(why)),
        };
        let (is, time) = (self.is, self.moved(place.len() as u32));
        let nic = &mut self.nics[node.index()];
        let written = nic.cpu.take(cx.now(), is.command_write);
        let decoded = nic.core.take(written.1, is.decode);
        let ready = nic.core.take(decoded.1, is.read);
        let moved = nic.core.take(ready.1, time);
        cx.host_stage("command_write", op, written);
        cx.stage(node, "core", "decode", op, decoded);
        cx.stage(node, "core", "read", op, ready);
        cx.stage(node, "core", "width", op, moved);
        nic.window.await_fill(place.clone(), moved.1);
        self.later.at(cx, moved.1, node, Later::Prefetched(op, from, place.len()));
        cx.finish(written.1, op, Answer::default());
    }

    /// The core logic has moved the last byte of a prefetch into the window.
    pub(super) fn prefetched(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        from: FarAddress,
        len: usize,
    ) {
        let brought = cx.read(op, from, len).ok();
        self.nics[node.index()].window.fill(brought);
    }

    /// The host reads the window, and stands still until prefetches have filled what it reads.
    pub(super) fn read_window(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let place = match self.window_place(command) {
            Ok(place) => place,
            Err(why) => return cx.finish(cx.now(), op, Answer::refused(why)),
        };
        match self.nics[node.index()].window.filled(&place) {
            Some(at) => self.later.at(cx, at, node, Later::Filled(op, place)),
            None => self.window_filled(cx, node, op, place),
        }
    }

    /// What the host reads of the window is there.
    pub(super) fn window_filled(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        place: Range<usize>,
    ) {
        let nic = &mut self.nics[node.index()];
        let looks = self.is.look * place.len().div_ceil(WORD) as u64;
        let looked = nic.cpu.take(cx.now(), looks);
        cx.host_stage("look", op, looked);
        cx.finish(looked.1, op, Answer::data(nic.window.read(place)));
    }

    /// The host reads the buffer memory without a window.
    pub(super) fn read_buffer(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let (next, left) = (place_of(command), command.words[1] as usize);
        if let Err(why) = own_memory(cx, op, next, left) {
            return cx.finish(cx.now(), op, Answer::refused(why));
        }
        self.read_on(cx, node, Reading { op, next, left, got: Vec::new() });
    }

    /// The host asks for the next word, if any is left.
    fn read_on(&mut self, cx: &mut Cx<'_>, node: Node, reading: Reading) {
        let (is, op) = (self.is, reading.op);
        if reading.left == 0 {
            return cx.finish(cx.now(), op, Answer::data(Payload::copy(&reading.got)));
        }
        let time = self.moved(reading.left.min(WORD) as u32);
        let nic = &mut self.nics[node.index()];
        let looked = nic.cpu.take(cx.now(), is.look);
        let ready = nic.core.take(looked.1, is.read);
        let moved = nic.core.take(ready.1, time);
        cx.host_stage("look", op, looked);
        cx.stage(node, "core", "read", op, ready);
        cx.stage(node, "core", "width", op, moved);
        self.later.at(cx, moved.1, node, Later::Read(reading));
    }

    /// A word of the buffer memory has come to the host.
    pub(super) fn word_read(&mut self, cx: &mut Cx<'_>, node: Node, mut reading: Reading) {
        let len = reading.left.min(WORD);
        match cx.read(reading.op, reading.next, len) {
            Ok(word) => word.with(|bytes| reading.got.extend_from_slice(bytes)),
            Err(why) => return cx.finish(cx.now(), reading.op, Answer::refused(why)),
        }
        reading.next.offset += len as u64;
        reading.left -= len;
        self.read_on(cx, node, reading);
    }
}

/// Whether a place is memory of the caller's own, whose NIC it asks.
fn own_memory(cx: &mut Cx<'_>, op: Op, from: FarAddress, len: usize) -> Result<(), String> {
    if from.pe != op.pe.0 {
        let own = op.pe.0;
        return Err(format!(
            "PE {own} reads what is in its own NIC, and {from:?} is in another; have its PE send it"
        ));
    }
    if len as u64 > BLOCK_MOST {
        return Err(format!("{len} bytes are more than the {BLOCK_MOST} that one read has"));
    }
    cx.read(op, from, len).map(|_| ())
}

#[cfg(test)]
mod tests;
