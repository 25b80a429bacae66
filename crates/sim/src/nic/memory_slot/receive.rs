//! The way in: SWIF, the checks, LLCM or a bank, and what the host sees of it when.

use super::command::Refusal;
use super::header::{Header, PAGE};
use super::library::JOB;
use super::memory::{BANK, NicMemory, Side};
use super::parameters::LINE;
use super::{Due, MemorySlot};
use crate::host::{Answer, Op};
use crate::memory::MAILBOXES;
use crate::nic::{Cx, Unit};
use crate::packet::{Node, Packet, Payload};
use crate::time::Ps;
use memonet_core::fabric::FarAddress;

/// The units of the way in of one NIC.
#[derive(Debug, Clone, Default)]
pub struct WayIn {
    check: Unit,
    memory: Unit,
}

/// A host that looks at a word until it is what it waits for.
#[derive(Debug, Clone)]
pub struct Wait {
    pub op: Op,
    pub at: u64,
    pub width: u8,
    pub mask: u64,
    pub value: u64,
    pub interval: Ps,
    pub sample: Ps,
}

/// Something for a PE's segment that is not visible yet: it lies in the network's bank, or must not
/// overtake what does.
#[derive(Debug, Clone)]
pub struct Held {
    from: Node,
    op: Op,
    to: FarAddress,
    payload: Payload,
    at: Ps,
    in_bank: bool,
}

impl MemorySlot {
    /// A packet whose first bit came at `head` and whose last came at `tail`.
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        packet: Packet,
        head: Ps,
        tail: Ps,
    ) {
        let is = &self.is;
        let slot = &mut self.slots[node.index()];
        let Packet { op, payload, .. } = packet;
        let header = Header::decode(packet.header);
        // SWIF begins with the first word and cannot end before the last.
        let mut at = tail.max(head + is.swif_receive);
        cx.stage(node, "receive", "swif_receive", op, (head, at));
        // Control pages, always mapped. What no call of the library has sent is not for them.
        let mailbox = header.promised
            && !header.physical
            && header.group == JOB
            && header.region >= MAILBOXES;
        let address = if mailbox {
            Ok(is.llcm - PAGE)
        } else if header.physical {
            Ok(header.address)
        } else {
            slot.receive_tlb.translate(&header).map(|(address, missed)| {
                let refill = if missed { is.receive_tlb_refill } else { Ps::ZERO };
                let busy = slot.way_in.check.take(at, is.receive_tlb + refill);
                cx.stage(node, "receive", "receive_tlb", op, (busy.0, busy.0 + is.receive_tlb));
                cx.stage(
                    node,
                    "receive",
                    "receive_tlb_refill",
                    op,
                    (busy.0 + is.receive_tlb, busy.1),
                );
                at = busy.1;
                address
            })
        };
        let len = payload.len() as u64;
        let fits = |address: &u64| {
            NicMemory::has(is.llcm, is.bank, *address, len) && address % PAGE + len <= PAGE
        };
        let address =
            match address.and_then(|address| Some(address).filter(fits).ok_or(Refusal::Address)) {
                Ok(address) => address,
                Err(why) => {
                    *slot.dropped.entry(why).or_default() += 1;
                    if header.promised {
                        cx.lost(op, 1);
                    }
                    return;
                }
            };
        let (name, time) = match address < BANK {
            true => ("llcm_write", is.llcm_write * len.div_ceil(8)),
            false => ("bank_write", is.bank_rate.time(len)),
        };
        let busy = slot.way_in.memory.take(at, time);
        cx.stage(node, "receive", name, op, busy);
        let place = match mailbox {
            true => Some((header.region, header.address)),
            false => slot.frames.segment(address),
        };
        let Some((region, offset)) = place else {
            self.later(cx, busy.1, node, Due::Land { address, payload });
            return;
        };
        if !header.promised {
            cx.promise(op, 1);
        }
        let to = FarAddress { pe: node.0, region, offset };
        self.show(cx, node, packet.from, op, to, payload, busy.1, address >= BANK);
    }

    /// Shows a PE what has been written for its segment by `at`; if it lies in a bank, after a
    /// switch.
    #[allow(clippy::too_many_arguments)]
    fn show(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        from: Node,
        op: Op,
        to: FarAddress,
        payload: Payload,
        at: Ps,
        in_bank: bool,
    ) {
        let slot = &mut self.slots[node.index()];
        let at = at.max(slot.copied);
        // What the same node wrote into the bank before must not be overtaken: a program that sees
        // a signal has switched before it reads the data.
        if !in_bank && slot.held.iter().all(|held| held.from != from) {
            cx.write(at, op, to, payload);
            return;
        }
        slot.held.push(Held { from, op, to, payload, at, in_bank });
        if !slot.switching {
            self.plan_switch(cx, node, at);
        }
    }

    /// The library on this host sees at its next look that something is in the network's bank, and
    /// switches.
    fn plan_switch(&mut self, cx: &mut Cx<'_>, node: Node, at: Ps) {
        self.slots[node.index()].switching = true;
        let seen = self.is.polling().seen(Ps::ZERO, at);
        let op = self.slots[node.index()].held[0].op;
        cx.stage(node, "banks", "bank_switch", op, (seen, seen + self.is.bank_switch));
        self.later(cx, seen + self.is.bank_switch, node, Due::Switched);
    }

    /// The banks have turned: the host copies what it now sees into the segment, in the order in
    /// which it came.
    pub(super) fn switched(&mut self, cx: &mut Cx<'_>, node: Node) {
        let slot = &mut self.slots[node.index()];
        slot.memory.switch();
        slot.switching = false;
        let mut copied = cx.now();
        let held = std::mem::take(&mut slot.held);
        let (seen, not_yet): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|held| held.at <= cx.now());
        for Held { op, to, payload, in_bank, .. } in seen {
            if in_bank {
                let lines = (payload.len() as u64).div_ceil(LINE);
                copied += self.is.line * lines;
            }
            cx.write(copied, op, to, payload);
        }
        slot.copied = copied;
        slot.held = not_yet;
        if let Some(next) = self.slots[node.index()].held.first() {
            let at = next.at;
            self.plan_switch(cx, node, at);
        }
    }

    /// Bytes are in the NIC's own memory now: who waits for them sees it.
    pub(super) fn land(&mut self, cx: &mut Cx<'_>, node: Node, address: u64, payload: &Payload) {
        let slot = &mut self.slots[node.index()];
        payload.with(|bytes| slot.memory.write(Side::Network, address, bytes));
        let waits = std::mem::take(&mut slot.waits);
        for wait in waits {
            match slot.satisfied(&wait) {
                None => slot.waits.push(wait),
                Some(word) => {
                    // The looks have gone on for some time, at no particular phase: the next one
                    // samples within an interval.
                    let next = Ps(cx.random() % wait.interval.0.max(1));
                    let seen = cx.now() + next + (wait.interval - wait.sample);
                    cx.host_stage("look", wait.op, (cx.now() + next, seen));
                    cx.finish(seen, wait.op, Answer::value(word));
                }
            }
        }
    }

    /// The first look of a host samples.
    pub(super) fn first_look(&mut self, cx: &mut Cx<'_>, node: Node, wait: Wait) {
        let slot = &mut self.slots[node.index()];
        match slot.satisfied(&wait) {
            Some(word) => {
                cx.finish(cx.now() + (wait.interval - wait.sample), wait.op, Answer::value(word))
            }
            None => slot.waits.push(wait),
        }
    }
}

impl super::Slot {
    /// The word that a host waits for, if it is there.
    fn satisfied(&mut self, wait: &Wait) -> Option<u64> {
        let mut word = [0; 8];
        let width = usize::from(wait.width);
        word[..width].copy_from_slice(&self.memory.read(Side::Host, wait.at, width));
        let word = u64::from_le_bytes(word);
        (word & wait.mask == wait.value).then_some(word)
    }
}
