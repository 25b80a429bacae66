//! Transfers as packets: the NIC reads and sends them, the receiving NIC checks and writes them,
//! and answers.
//!
//! | header word | of data | of an answer |
//! |---|---|---|
//! | 0, bits 0 to 15 | type and flags | type and flags |
//! | 0, bits 16 to 31 | the receiving process's number on its node | unused |
//! | 0, bits 32 to 63 | the number of the command word on the sender's node | the same |
//! | 1 | region and key | unused |
//! | 2, 3 | offsets of the data and of the flag | unused |
//!
//! The number of a command word is its place in kernel space, and so names its process, too.

use super::{CommandWordDma, Cx, Pe, Plan, Started};
use crate::host::Answer;
use crate::packet::{Destination, Node, Packet, Payload, Service};
use memonet_core::unstable::fabric::FarAddress;

/// The type of a packet, in the low byte.
const DATA: u64 = 0;
const ANSWER: u64 = 1;
/// The last packet of its transfer.
const LAST: u64 = 1 << 8;
/// The receiver writes the word's flag.
const FLAG: u64 = 1 << 9;
/// In an answer: the packet was refused.
const BAD: u64 = 1 << 10;
/// The addresses are the program's, and were not checked.
const OWN: u64 = 1 << 11;
/// The value of the flag comes after the data of the packet. Otherwise it is 1.
const VALUE: u64 = 1 << 12;
/// The lowest bit of the receiving process's number on its node.
const PROCESS: u32 = 16;
/// The lowest bit of the number of the command word.
const NUMBER: u32 = 32;
/// Bytes of a flag.
pub(super) const FLAG_BYTES: usize = 8;

impl CommandWordDma {
    /// The number of a process's command word on its node.
    pub(super) fn number(&self, pe: Pe, place: usize) -> u64 {
        (self.placement.place(pe) * self.is.command_words + place) as u64
    }

    /// The process that has the command word of this number on a node, and the word's place there.
    fn word_of(&self, node: Node, number: usize) -> (Pe, usize) {
        let share = self.is.command_words;
        (self.placement.pe(node, number / share), number % share)
    }

    /// Cuts a transfer into packets. The NIC reads them from memory from now on.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, node: Node, started: Started) {
        let Started { op, place, given } = started;
        let (is, pe) = (self.is, op.pe.owner(self.pes));
        let word = self.processes[pe.index()].words[place].word;
        let (data, flag, own) = match given {
            Some((data, flag)) => (data, flag, 0),
            None => match cx.read(op, word.from, word.len as usize) {
                Ok(data) => (data, None, OWN),
                Err(_) => {
                    let placed = &mut self.processes[pe.index()].words[place];
                    cx.lost(op, placed.writes(is.packet));
                    (placed.unanswered, placed.refused) = (placed.unanswered - 1, true);
                    return;
                }
            },
        };
        let target = Pe(word.to.pe);
        let to = self.placement.node(target);
        let names =
            self.number(pe, place) << NUMBER | (self.placement.place(target) as u64) << PROCESS;
        let dma = &mut self.nics[node.index()].dma;
        let fetched = dma.take(cx.now(), is.command_fetch);
        cx.stage(node, "dma", "command_fetch", op, fetched);
        let read = dma.take(fetched.1, is.read);
        cx.stage(node, "dma", "read", op, read);
        let (mut sent, mut ready) = (0, read.1);
        loop {
            let mut part = data.part(sent, is.packet);
            let offset = word.to.offset + sent as u64;
            let mut what = DATA | own | names;
            sent += part.len();
            if sent == data.len() {
                what |= LAST | if word.flag.is_some() { FLAG } else { 0 };
                if let Some(value) = flag {
                    what |= VALUE;
                    part = with_value(&part, value);
                }
            }
            let wire_bytes = is.header + part.len() as u32;
            let keyed = u64::from(word.to.region) << 32 | u64::from(word.key);
            let packet = Packet {
                from: node,
                to: Destination::Node(to),
                wire_bytes,
                header: [what, keyed, offset, word.flag.unwrap_or(0)],
                payload: part,
                op,
                service: Service::default(),
                droppable: false,
            };
            // The NIC has no buffer, so it reads no faster than the link takes.
            let time = is.memory_rate.time(packet.payload.len() as u64);
            let dma = &mut self.nics[node.index()].dma;
            let busy = dma.take(ready, time.max(is.link_rate.time(wire_bytes.into())));
            cx.stage(node, "dma", "memory_rate", op, busy);
            let handed = ready + time;
            ready = busy.1;
            match to == node {
                true => self.plans.at(cx, handed, node, Plan::Arrive(packet)),
                false => cx.send(handed, node, packet),
            }
            if sent == data.len() {
                return;
            }
        }
    }

    /// A packet has come in.
    pub(super) fn receive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let is = self.is;
        let Packet { header, payload, op, from, .. } = packet;
        let number = header[0] >> NUMBER;
        if header[0] & 0xff == ANSWER {
            return self.answered(cx, node, number as usize, header[0]);
        }
        let (region, key) = ((header[1] >> 32) as u32, header[1] as u32);
        let came = payload.len() as u64;
        let (payload, value) =
            if header[0] & VALUE != 0 { without_value(&payload) } else { (payload, 1) };
        let len = payload.len() as u64;
        let receiver = &mut self.nics[node.index()].receiver;
        let checked = receiver.take(cx.now(), is.key_check);
        cx.stage(node, "receive", "key_check", op, checked);
        let written = receiver.take(checked.1, is.memory_rate.time(came));
        let visible = written.1 + is.write;
        cx.stage(node, "receive", "write", op, (written.0, visible));
        let refused = &mut self.nics[node.index()].refused;
        let whole = match header[0] & LAST {
            0 => !refused.contains(&(from.0, number)),
            _ => !refused.remove(&(from.0, number)),
        };
        let flag = header[0] & FLAG != 0;
        let pe = self.placement.pe(node, (header[0] >> PROCESS) as u16 as usize);
        let to = |offset| FarAddress { pe: pe.0, region, offset };
        let keys = &self.processes[pe.index()].keys;
        // The library lets a PE write to its own memory, whatever keys it has given to others.
        let writer = self.word_of(from, number as usize).0;
        let key = (writer != pe || header[0] & OWN != 0).then_some(key);
        let good = keys.admit(pe, region, header[2]..header[2].saturating_add(len), key)
            && (!flag || keys.admit(pe, region, header[3]..header[3].saturating_add(8), key))
            && (header[0] & OWN == 0
                || cx.read(op, to(header[2]), payload.len()).is_ok()
                    && (!flag || cx.read(op, to(header[3]), 8).is_ok()));
        if good {
            cx.write(visible, op, to(header[2]), payload);
            // A flag says that all has come.
            if flag && whole {
                cx.write(visible, op, to(header[3]), Payload::word(FLAG_BYTES, value));
            } else {
                cx.lost(op, u64::from(flag));
            }
        } else {
            cx.lost(op, 1 + u64::from(flag));
            if header[0] & LAST == 0 {
                self.nics[node.index()].refused.insert((from.0, number));
            }
        }
        if good && header[0] & LAST == 0 {
            return;
        }
        let what = ANSWER | header[0] & LAST | number << NUMBER | if good { 0 } else { BAD };
        let answer = Packet {
            from: node,
            to: Destination::Node(from),
            wire_bytes: is.header,
            header: [what, 0, 0, 0],
            payload: Payload::EMPTY,
            op,
            service: Service::default(),
            droppable: false,
        };
        match from == node {
            true => self.plans.at(cx, visible, node, Plan::Arrive(answer)),
            false => cx.send(visible, node, answer),
        }
    }

    /// The receiver's answer for a transfer of the command word of this number has come.
    fn answered(&mut self, cx: &mut Cx<'_>, node: Node, number: usize, what: u64) {
        let at = cx.now();
        let (pe, place) = self.word_of(node, number);
        let process = &mut self.processes[pe.index()];
        let placed = &mut process.words[place];
        placed.refused |= what & BAD != 0;
        if placed.refused && placed.used_for.is_some() {
            process.refused = Some(placed.refusal());
        }
        if what & LAST == 0 {
            return;
        }
        let placed = &mut process.words[place];
        placed.unanswered -= 1;
        if placed.used_for.is_none() {
            return;
        }
        process.unanswered -= 1;
        let quiets = match process.unanswered {
            0 => std::mem::take(&mut process.quiets),
            _ => Vec::new(),
        };
        for (op, from, refusal) in process.completed() {
            let seen = self.seen(cx, op, from, at);
            cx.finish(seen, op, refusal.map_or(Answer::value(1), Answer::refused));
        }
        for (quiet, from) in quiets {
            let seen = self.seen(cx, quiet, from, at);
            self.quiet(cx, seen, pe, quiet);
        }
    }
}

/// The data of a packet with the value of the flag after it.
fn with_value(data: &Payload, value: u64) -> Payload {
    data.with(|bytes| Payload::copy(&[bytes, &value.to_le_bytes()].concat()))
}

/// The data of a packet, and the value of the flag.
fn without_value(all: &Payload) -> (Payload, u64) {
    let len = all.len() - FLAG_BYTES;
    (all.part(0, len), all.part(len, FLAG_BYTES).bits())
}
