//! PEMM, the slot with two signals more than a DIMM: *wait* and *interrupt*.
//!
//! | | DIMM | PEMM |
//! |---|---|---|
//! | a bank on the network's side | software switches the banks, in `receive.bank_switch` | the host reads it; the NIC makes the access wait for `host.bank_wait`, in which it turns the bank |
//! | a wait | polls, until the word has come | polls for `host.spin`, and then sleeps; an interrupt ends that in `host.interrupt` |
//!
//! While a program reads the network's bank, what comes from the network for the NIC's memory
//! waits.

use super::memory::{BANK, Side};
use super::signals::Pemm;
use super::slot::{Due, MemorySlot};
use crate::host::Answer;
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;

impl MemorySlot {
    /// The name and the time of what lets the library's host see the network's bank.
    pub(super) fn bank_turn(&self) -> (&'static str, Ps) {
        match self.is.pemm {
            Some(pemm) => ("bank_wait", pemm.bank_wait),
            None => ("bank_switch", self.is.bank_switch),
        }
    }

    /// Begins a host's read of the bank on the network's side.
    pub(super) fn read_away(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        [at, len, halves, _]: [u64; 4],
    ) -> Result<(), String> {
        let Some(Pemm { bank_wait, .. }) = self.is.pemm else {
            return Err("a read of the bank on the network's side: a plain DIMM cannot make the host wait for it; switch the banks, or use a slot with host.interface pemm".into());
        };
        if at < BANK {
            return Err(format!("{at:#x} is in no bank; banks begin at {BANK:#x}"));
        }
        self.check_access(node, op, at, len)?;
        let word = self.is.read_time(len, halves != 0);
        let time = (word + self.is.twist_word) * len.div_ceil(8);
        // The network's writes wait for the bank, and the host for those that have begun.
        let memory = &mut self.slots[node.index()].way_in.memory;
        let (start, end) = memory.take(cx.now(), bank_wait + time);
        cx.host_stage("bank_wait", op, (cx.now(), start + bank_wait));
        let read = Due::ReadAway { op, at, len: len as usize, end };
        self.later(cx, start + bank_wait + Ps(word.0 / 2), node, read);
        Ok(())
    }

    /// The host's read of the network's bank samples it.
    pub(super) fn sampled_away(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        (at, len): (u64, usize),
        end: Ps,
    ) {
        let bytes = self.slots[node.index()].memory.read(Side::Network, at, len);
        let data = Payload::copy(&bytes);
        cx.finish(end, op, Answer { value: data.bits(), ..Answer::data(data) });
    }
}
