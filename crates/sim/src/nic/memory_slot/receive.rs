//! The way in: SWIF, the checks, LLCM or a bank, and when the host sees what came.

use super::command::Refusal;
use super::header::{Header, JOB, Kind, PAGE};
use super::memory::{BANK, NicMemory, Side};
use super::slot::{Due, MemorySlot};
use super::user::User;
use super::way_in::{Held, Wait, What};
use crate::host::Answer;
use crate::mailbox::MAILBOXES;
use crate::nic::Cx;
use crate::op::{Op, Pe};
use crate::packet::{Node, Packet, Payload};
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;

impl MemorySlot {
    /// A packet has come, its first bit at `head` and its last at `tail`.
    pub(super) fn receive(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        packet: Packet,
        head: Ps,
        tail: Ps,
    ) {
        let is = &self.is;
        let Packet { op, payload, .. } = packet;
        let header = Header::decode(packet.header);
        // SWIF begins with the first word and cannot end before the last.
        let at = tail.max(head + is.swif_receive);
        cx.stage(node, "receive", "swif_receive", op, (head, at));
        // The next edge of the slot's clock, whose phase nobody knows.
        let edge = at + Ps(cx.random() % is.dimm_cycle.0);
        cx.stage(node, "receive", "into the slot's clock", op, (at, edge));
        let at = edge;
        let (address, at) = match self.locate(cx, node, op, &header, at) {
            Ok(found) => found,
            Err(why) => return self.drop_packet(cx, node, op, &header, why),
        };
        let len = payload.len() as u64;
        if header.kind == Kind::Request {
            return self.requested(cx, node, packet.from, op, at);
        }
        let (is, slot) = (&self.is, &mut self.slots[node.index()]);
        let (name, time) = match address < BANK {
            true => ("llcm_write", is.llcm_write * len.div_ceil(8)),
            false => ("bank_write", is.bank_rate.time(len)),
        };
        let busy = slot.way_in.memory.take(at, time);
        cx.stage(node, "receive", name, op, busy);
        let (group, process) = (header.region, header.process);
        match header.kind {
            Kind::Answer => return self.answered(cx, op, busy.1),
            Kind::Arrival => return self.later(cx, busy.1, node, Due::Arrived { op, group }),
            Kind::Announcement => {
                return self.later(cx, busy.1, node, Due::Announced { group, process });
            }
            _ => {}
        }
        let place = match is_for_mailbox(&header) {
            true => Some(FarAddress {
                pe: header.process,
                region: header.region,
                offset: header.address,
            }),
            false => slot.frames.segment(address),
        };
        let Some(to) = place else {
            self.later(cx, busy.1, node, Due::Land { address, payload });
            return;
        };
        if !header.promised {
            cx.promise(op, 1);
        }
        let in_bank = address >= BANK;
        // A mailbox's agent has a price of its own for what it reads.
        let is_block = header.kind != Kind::Aotf && !is_for_mailbox(&header);
        let read = if is_block { self.is.read_words(len) } else { Ps::ZERO };
        let what = What::Write(payload, read);
        let held = Held { from: packet.from, op, to, what, at: busy.1, in_bank };
        self.show(cx, node, held);
    }

    /// A check has refused a packet: it is counted, and changes nothing.
    fn drop_packet(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, header: &Header, why: Refusal) {
        *self.slots[node.index()].dropped.entry(why).or_default() += 1;
        if header.promised {
            self.sender_hears(cx, node, op, cx.now());
            cx.lost(op, 1);
        }
        if header.kind == Kind::Request {
            self.not_served(cx, node, op, why);
        }
    }

    /// The physical address that a packet is for, and when the receiver knows it; or why the packet
    /// is dropped.
    fn locate(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        header: &Header,
        mut at: Ps,
    ) -> Result<(u64, Ps), Refusal> {
        let len = u64::from(header.len);
        let (is, slot) = (&self.is, &mut self.slots[node.index()]);
        let address = if is_for_mailbox(header) || is_for_core(header.kind) {
            // The last page of LLCM: a control page, always mapped.
            is.llcm_bytes - PAGE
        } else if header.physical {
            header.address
        } else {
            let (address, missed) = slot.receive_tlb.translate(header)?;
            let looked_up = at.max(slot.way_in.check.free()) + is.receive_tlb;
            let refill = match missed {
                true => slot.core.take(cx.now(), looked_up, is.receive_tlb_refill).1 - looked_up,
                false => Ps::ZERO,
            };
            let busy = slot.way_in.check.take(at, is.receive_tlb + refill);
            cx.stage(node, "receive", "receive_tlb", op, (busy.0, looked_up));
            cx.stage(node, "receive", "receive_tlb_refill", op, (looked_up, busy.1));
            at = busy.1;
            address
        };
        let fits = NicMemory::has(is.llcm_bytes, is.bank_bytes, address, len)
            && address % PAGE + len <= PAGE;
        if fits { Ok((address, at)) } else { Err(Refusal::Address) }
    }

    /// Shows a PE a write to its segment, once the host has read it: at once, or after a switch of
    /// the banks. The host does one thing at a time, so a word waits while it reads a block.
    fn show(&mut self, cx: &mut Cx<'_>, node: Node, held: Held) {
        let copied = self.reader(node, held.to).copied;
        let slot = &mut self.slots[node.index()];
        let held = Held { at: held.at.max(copied), ..held };
        // A program that sees a signal reads the signal's data without a switch of its own. So a
        // write must not overtake one that its sender has made into the bank.
        if !held.in_bank && !slot.held.iter().any(|other| other.keeps_back(held.from, held.to)) {
            return self.reveal(cx, node, held.at, held);
        }
        let at = held.at;
        slot.held.push(held);
        if !slot.switching {
            self.plan_switch(cx, node, at);
        }
    }

    /// The user whose CPU reads what has come to this place.
    fn reader(&mut self, node: Node, to: FarAddress) -> &mut User {
        &mut self.slots[node.index()].users[self.placement.place(Pe(to.pe))]
    }

    /// Lets a PE have what its NIC has for it, from `at` on. The host reads a block first.
    fn reveal(&mut self, cx: &mut Cx<'_>, node: Node, at: Ps, held: Held) {
        let Held { from, op, to, what, .. } = held;
        let What::Write(payload, read) = what else {
            return self.later(cx, at, node, Due::Update { from, op });
        };
        let shown = at + read;
        if read > Ps::ZERO {
            self.reader(node, to).copied = shown;
        }
        if self.is.core.is_some() {
            self.slots[node.index()].shown.insert((from, to.pe), shown);
        }
        self.sender_hears(cx, node, op, shown);
        cx.write(shown, op, to, payload);
    }

    /// What a call has sent to a node has its end at `at`. Its sender hears of that by a message.
    pub(super) fn sender_hears(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, at: Ps) {
        let sender = self.placement.node(op.pe.owner(self.pes));
        let heard = at + self.message(cx, node, sender);
        cx.heard(op, heard);
    }

    /// Plans a switch of the banks. The library's driver on this host sees at its next look that
    /// the network's bank has something, and switches then: not before it has copied what the last
    /// switch has shown it, as a switch would take that away.
    fn plan_switch(&mut self, cx: &mut Cx<'_>, node: Node, at: Ps) {
        let slot = &mut self.slots[node.index()];
        slot.switching = true;
        let copied = slot.users.iter().map(|user| user.copied).max().unwrap_or(at);
        let seen = self.is.polling().seen(Ps::ZERO, at.max(copied));
        let op = self.slots[node.index()].held[0].op;
        let (name, time) = self.bank_turn();
        cx.stage(node, "banks", name, op, (seen, seen + time));
        self.later(cx, seen + time, node, Due::Switched);
    }

    /// The banks have been switched. The host copies what it now sees into the segment, in the
    /// order in which it came.
    pub(super) fn switched(&mut self, cx: &mut Cx<'_>, node: Node) {
        let slot = &mut self.slots[node.index()];
        slot.memory.switch();
        slot.switching = false;
        slot.users.iter_mut().for_each(|user| user.copied = user.copied.max(cx.now()));
        let held = std::mem::take(&mut slot.held);
        let (seen, not_yet): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|held| held.at <= cx.now());
        slot.held = not_yet;
        for held in seen {
            let at = self.reader(node, held.to).copied;
            self.reveal(cx, node, at, held);
        }
        if let Some(next) = self.slots[node.index()].held.first() {
            let at = next.at;
            self.plan_switch(cx, node, at);
        }
    }

    /// Bytes are in the NIC's own memory now. Hosts that wait for them see them.
    pub(super) fn land(&mut self, cx: &mut Cx<'_>, node: Node, address: u64, payload: &Payload) {
        let slot = &mut self.slots[node.index()];
        payload.with(|bytes| slot.memory.write(Side::Network, address, bytes));
        let waits = std::mem::take(&mut slot.waits);
        for wait in waits {
            match slot.satisfied(&wait) {
                None => slot.waits.push(wait),
                Some(word) => {
                    let sampled = wait.polling.reads(wait.from, cx.now());
                    let seen = sampled + wait.after;
                    cx.host_stage("look", wait.op, (Ps(sampled.0 - wait.polling.sample.0), seen));
                    cx.finish(seen, wait.op, Answer::value(word));
                }
            }
        }
    }

    /// The first look of a host that waits samples the memory.
    pub(super) fn first_look(&mut self, cx: &mut Cx<'_>, node: Node, wait: Wait) {
        let slot = &mut self.slots[node.index()];
        match slot.satisfied(&wait) {
            Some(word) => cx.finish(cx.now() + wait.after, wait.op, Answer::value(word)),
            None => slot.waits.push(wait),
        }
    }
}

/// Whether a packet is for the page of mailboxes, from or for a core processor.
fn is_for_core(kind: Kind) -> bool {
    matches!(kind, Kind::Answer | Kind::Arrival | Kind::Announcement)
}

/// Whether a packet is for a mailbox of an agent. Only calls of the library send such packets.
fn is_for_mailbox(header: &Header) -> bool {
    header.promised && !header.physical && header.group == JOB && header.region >= MAILBOXES
}
