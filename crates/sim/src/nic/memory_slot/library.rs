//! The library's driver: what memonet's calls do on this NIC.
//!
//! | call | here |
//! |---|---|
//! | store | AOTF. The page of the target's segment gets a kick page whose seed has the physical address, so that the receiver need not look it up |
//! | put | BOTF packets of up to `send.botf_payload` bytes none of which crosses a page of the target. They name region and offset, and are checked |
//! | signal | an AOTF store behind its data; one that adds is an update |
//! | fence | nothing, but after updates without an answer: there is one way from node to node, and packets keep their order |
//! | quiet | waits until all writes have landed, and for the time of a message back from each target: its acknowledgement |
//! | get | agents |
//! | atomics | agents, or the core processor of the target's NIC; the module `updates` |
//! | copied write | as a store or a put, to a group of the switches' tables; the module `groups` |
//!
//! Remote DMA is not used. The host would have to write all data into a bank and switch the bank to
//! the network. It can as well write the data into BOTF windows, without a switch.
//!
//! The module `frames` decides in which memory of the NIC a segment's pages lie. The host reads
//! what comes by BOTF 8 bytes at a time; a word it reads by the look that finds it.

use super::groups::ALL;
use super::header::{Header, JOB, Kind, PAGE};
use super::kick_pages::Target;
use super::send::through_wires;
use super::slot::{Due, MemorySlot};
use super::way_out::{Block, Outgoing, Through};
use crate::host::{Answer, Atomic, Signal};
use crate::mailbox::MAILBOXES;
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Destination, Node, Payload};
use crate::time::Ps;
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm::AtomicOp;
use std::collections::VecDeque;

impl MemorySlot {
    /// Stores a word, by AOTF. Returns when the host has written it.
    pub(super) fn store(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        at: Ps,
        to: FarAddress,
        word: Payload,
    ) -> Result<Ps, String> {
        let page = self.kick_page(node, op, to)?;
        let word = through_wires(&self.is, word, true);
        cx.promise(op, 1);
        self.kick(cx, node, op, at, (page, to.offset % PAGE), word)
    }

    /// Puts a block, by BOTF, and then a signal.
    pub(super) fn put(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        (to, data): (FarAddress, &Payload),
        signal: Option<Signal>,
    ) -> Result<(), String> {
        let in_llcm = self.may_be_in_llcm(to, data.len());
        let parts = self.parts(to, data);
        if to.region < MAILBOXES {
            for (offset, _) in &parts {
                self.place(FarAddress { offset: *offset, ..to }, in_llcm)?;
            }
        }
        cx.promise(op, parts.len() as u64);
        let mut packets = VecDeque::with_capacity(parts.len());
        for (offset, part) in parts {
            let header = Header {
                kind: Kind::Botf,
                physical: false,
                len: part.len() as u16,
                ..self.to_segment(node, FarAddress { offset, ..to })?
            };
            packets.push_back((header, through_wires(&self.is, part, true)));
        }
        let at = cx.now() + self.is.software;
        self.write_block(cx, node, at, Block { op, packets, signal });
        Ok(())
    }

    /// Writes the packets of a block that are left, and the signal behind them, and answers the
    /// call. Others may come between the packets.
    pub(super) fn write_block(&mut self, cx: &mut Cx<'_>, node: Node, mut at: Ps, block: Block) {
        let Block { op, mut packets, signal } = block;
        while let Some((header, payload)) = packets.pop_front() {
            at = self.window(cx, node, op, at, header, payload);
            if !packets.is_empty() {
                // An agent answers several PEs, none of whom waits for another's answer.
                self.caller(op.pe).writes = !op.pe.is_agent(self.pes);
                return self.later(cx, at, node, Due::Write(Block { op, packets, signal }));
            }
        }
        let result = match signal {
            Some(signal) => self.signal(cx, node, op, at, signal),
            None => Ok(at),
        };
        if self.caller(op.pe).writes {
            let written = result.as_ref().copied().unwrap_or(at);
            self.later(cx, written, node, Due::Written(op.pe));
        }
        self.returned(cx, op, result);
    }

    /// The parts of a block, each with its offset: none is longer than a packet, or crosses a page.
    pub(super) fn parts(&self, to: FarAddress, data: &Payload) -> Vec<(u64, Payload)> {
        let mut parts = Vec::new();
        let mut sent = 0;
        while sent < data.len() {
            let offset = to.offset + sent as u64;
            let part = data.part(sent, self.is.botf_payload.min((PAGE - offset % PAGE) as usize));
            sent += part.len();
            parts.push((offset, part));
        }
        parts
    }

    /// A signal that sets its word, or adds to it. Mailboxes have no kick pages, so a signal into a
    /// mailbox is a put.
    pub(super) fn signal(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        at: Ps,
        signal: Signal,
    ) -> Result<Ps, String> {
        if signal.op == SignalOp::Add {
            let what = Atomic::Op(AtomicOp::Add, signal.value);
            return self.add(cx, node, op, at, (signal.at, what));
        }
        let word = Payload::word(8, signal.value);
        match signal.at.region {
            MAILBOXES.. => {
                let header = Header {
                    kind: Kind::Botf,
                    physical: false,
                    len: 8,
                    ..self.to_segment(node, signal.at)?
                };
                cx.promise(op, 1);
                Ok(self.window(cx, node, op, at + self.is.software, header, word))
            }
            _ => self.store(cx, node, op, at, signal.at, word),
        }
    }

    /// Whether new pages of a block get their places in LLCM.
    pub(super) fn may_be_in_llcm(&self, to: FarAddress, len: usize) -> bool {
        let is = &self.is;
        if len <= is.botf_payload {
            return true;
        }
        let Ok(node) = self.node_of(to.pe) else {
            return false;
        };
        let target = &self.slots[node.index()];
        let pages = to.offset / PAGE..(to.offset + len as u64).div_ceil(PAGE);
        let kept = is.llcm_for_words.div_ceil(PAGE);
        target.frames.fit(pages.map(|page| (to.pe, to.region, page)), kept, is.llcm_bytes)
    }

    /// Makes sure that a page of a segment has its place in the target's NIC, and is registered
    /// there. Returns the physical page.
    pub(super) fn place(&mut self, to: FarAddress, in_llcm: bool) -> Result<u64, String> {
        let node = self.node_of(to.pe)?;
        let is = &self.is;
        let page = to.offset / PAGE;
        let target = &mut self.slots[node.index()];
        let physical = target.frames.place((to.pe, to.region, page), in_llcm, is.llcm_bytes, is.bank_bytes).ok_or_else(|| {
            format!(
                "the NIC of PE {} has no room for more pages that others write: its bank has {} bytes (receive.bank of the machine)",
                to.pe, is.bank_bytes
            )
        })?;
        if target.registered.insert((to.pe, to.region, page)) {
            target.receive_tlb.register(JOB, to.pe, to.region, page, physical);
            if is.multicast.is_some() {
                target.receive_tlb.register(JOB, ALL, to.region, page, physical);
            }
        }
        Ok(physical)
    }

    /// The kick page of a page of a segment. A page without one gets one now.
    fn kick_page(&mut self, node: Node, op: Op, to: FarAddress) -> Result<u32, String> {
        let key = (to.pe, to.region, to.offset / PAGE);
        let user = self.user(op);
        if let Some(page) = user.kicks.get(key) {
            return Ok(user.first_page + page);
        }
        let physical = self.place(to, true)?;
        let seed = Header { address: physical * PAGE, ..self.to_segment(node, to)? };
        self.map_kick_page(node, op, key, seed)
    }

    /// The kick page of this name. Without one, it gets one with this seed.
    pub(super) fn map_kick_page(
        &mut self,
        node: Node,
        op: Op,
        key: Target,
        seed: Header,
    ) -> Result<u32, String> {
        let pages = self.is.kick_pages();
        let user = self.user(op);
        if let Some(page) = user.kicks.get(key) {
            return Ok(user.first_page + page);
        }
        let page = user.kicks.map(key, pages).ok_or_else(|| {
            format!("the program has mapped all of its {pages} kick pages, and the library needs one: leave one")
        })?;
        let page = user.first_page + page;
        self.slots[node.index()].htlb.set(page, Some(seed.encode()))?;
        Ok(page)
    }

    /// An AOTF store to a kick page, called at `at`. The word is as the NIC sees it. Returns when
    /// the host has written the word.
    pub(super) fn kick(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        at: Ps,
        (page, offset): (u32, u64),
        word: Payload,
    ) -> Result<Ps, String> {
        let Some(found) = self.slots[node.index()].htlb.look(page) else {
            return Err(format!("a store to kick page {page}, which is not mapped"));
        };
        let ready = at + self.is.software + self.is.twist_word;
        cx.host_stage("software", op, (at, ready));
        let begin = self.room(cx, node, op, Through::Aotf, ready);
        let written = begin + self.is.write;
        cx.host_stage("write", op, (begin, written));
        let header = Header::decode(found.seed).kicked(offset, word.len() as u16);
        let packet = Outgoing {
            node,
            op,
            through: Through::Aotf,
            missed: found.missed,
            header,
            payload: word,
        };
        self.hand_over(cx, written + self.is.chipset, packet);
        Ok(written)
    }

    /// Writes one BOTF packet, from `at` on. The payload is as the NIC sees it. Returns when the
    /// host has written the packet.
    pub(super) fn window(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        at: Ps,
        header: Header,
        payload: Payload,
    ) -> Ps {
        let begin = self.room(cx, node, op, Through::Botf, at);
        let written = begin + self.is.write_lines(self.is.botf_window + payload.len() as u64);
        cx.host_stage("write window", op, (begin, written));
        let packet = Outgoing { node, op, through: Through::Botf, missed: false, header, payload };
        self.hand_over(cx, written + self.is.chipset, packet);
        written
    }

    /// Answers a call: at the time when it returns, or with the reason of a refusal.
    pub(super) fn returned(&self, cx: &mut Cx<'_>, op: Op, result: Result<Ps, String>) {
        match result {
            Ok(at) => cx.finish(at, op, Answer::default()),
            Err(why) => cx.finish(cx.now(), op, Answer::refused(why)),
        }
    }

    /// The header of the library's packets from a node to a place in a segment. The kind and the
    /// flag for a physical address are those of a seed.
    pub(super) fn to_segment(&self, from: Node, to: FarAddress) -> Result<Header, String> {
        Ok(Header {
            kind: Kind::Aotf,
            physical: true,
            promised: true,
            group: JOB,
            len: 0,
            process: to.pe,
            region: to.region,
            address: to.offset,
            to: Destination::Node(self.node_of(to.pe)?),
            from,
        })
    }
}
