//! The commands of the NIC's own interface, carried out.

use super::chipset::CHIPSETS;
use super::command::{self, LoopBack, Refusal};
use super::header::{Header, Kind, PAGE};
use super::memory::{BANK, Side};
use super::multicast;
use super::send::through_wires;
use super::slot::{Due, MemorySlot};
use super::way_in::Wait;
use super::way_out::{Outgoing, Through};
use crate::host::{Answer, Command, Polling};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;

impl MemorySlot {
    /// Begins a command, or says why it cannot.
    pub(super) fn command(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        command: Command,
    ) -> Result<(), String> {
        let (words, now) = (command.words, cx.now());
        let (returns, answer) = match command.code {
            command::ATTACH | command::MAP | command::REGISTER => {
                self.set_up(node, op, &command)?;
                (now, Answer::default())
            }
            command::GROUP | command::ROUTE | command::WAY => {
                set_tables(cx, node, &command)?;
                (now, Answer::default())
            }
            command::LOOP_BACK => {
                let mode = if words[0] == 0 { LoopBack::Internal } else { LoopBack::External };
                self.slots[node.index()].loop_back = mode;
                (now, Answer::default())
            }
            command::RECOVER => {
                self.recover_as(node, words[0])?;
                (now, Answer::default())
            }
            command::DROPPED => (now, Answer::value(self.count_dropped(node, words[0]))),
            command::KICK => (self.kick_by_program(cx, node, op, command)?, Answer::default()),
            command::BLOCK | command::NEXT_BLOCK => {
                (self.block(cx, node, op, command)?, Answer::default())
            }
            command::DMA => {
                let started = self.dma(cx, node, op, Header::decode(words), &command.data)?;
                (started, Answer::default())
            }
            command::WRITE => (self.write(cx, node, op, command)?, Answer::default()),
            command::READ => return self.read(cx, node, op, words),
            command::READ_AWAY => return self.read_away(cx, node, op, words),
            command::WAIT => return self.wait(cx, node, op, words),
            command::SWITCH => {
                self.later(cx, now + self.is.bank_switch, node, Due::SwitchedFor(op));
                cx.host_stage("bank_switch", op, (now, now + self.is.bank_switch));
                return Ok(());
            }
            other => return Err(format!("a memory-slot NIC has no command {other}")),
        };
        cx.finish(returns, op, answer);
        Ok(())
    }

    /// Commands to the driver of this node.
    fn set_up(&mut self, node: Node, op: Op, command: &Command) -> Result<(), String> {
        let words = command.words;
        match command.code {
            command::ATTACH => self.attach(op, words[0] as u16),
            command::MAP => {
                self.map(node, op, words[0] as u32, Header::decode(four_words(&command.data)?))
            }
            _ => {
                let owner = ((words[0] >> 32) as u16, words[0] as u32, words[1] as u32);
                self.register(node, op, owner, words[2], words[3])
            }
        }
    }

    /// Has the NIC recover addresses by the rule of the chipset of this number.
    fn recover_as(&mut self, node: Node, number: u64) -> Result<(), String> {
        let Some(&(_, chipset)) = CHIPSETS.get(number as usize) else {
            return Err(format!("there is no chipset of number {number}"));
        };
        if let Some(why) = chipset.refused_by(self.is.first_version) {
            return Err(format!("the chipset {why}"));
        }
        self.slots[node.index()].recovers = chipset;
        Ok(())
    }

    /// Number of packets dropped here for the reason of this number; for 0, for any reason.
    fn count_dropped(&self, node: Node, reason: u64) -> u64 {
        let dropped = &self.slots[node.index()].dropped;
        let reason = [Refusal::Group, Refusal::Process, Refusal::Region, Refusal::Address]
            .get((reason as usize).wrapping_sub(1));
        match reason {
            None => dropped.values().sum(),
            Some(reason) => dropped.get(reason).copied().unwrap_or(0),
        }
    }

    /// An AOTF store of a program. Returns when the host has written it.
    fn kick_by_program(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        Command { words, data, .. }: Command,
    ) -> Result<Ps, String> {
        if !(1..=8).contains(&data.len()) || (words[0] % 8) as usize + data.len() > 8 {
            return Err(format!(
                "a store of {} bytes at offset {}; it must be 1 to 8 within a word",
                data.len(),
                words[0] % PAGE
            ));
        }
        let word = through_wires(&self.is, data, words[1] == 0);
        let page = self.in_view(op, words[0] / PAGE)?;
        let lines = self.is.chipset_rule.split(u64::from(page) * PAGE + words[0] % PAGE);
        let address = self.slots[node.index()].recovers.join(lines);
        self.kick(cx, node, op, cx.now(), ((address / PAGE) as u32, address % PAGE), word)
    }

    /// A BOTF packet of a program. Returns when the host has written it.
    fn block(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        Command { code, words, data }: Command,
    ) -> Result<Ps, String> {
        let most = self.is.botf_payload;
        if !(1..=most).contains(&data.len()) {
            return Err(format!("a block of {} bytes; a window holds 1 to {most}", data.len()));
        }
        let group = self.user(op).group;
        let header = Header::decode(words).stamped(group, node, data.len() as u16);
        let payload = through_wires(&self.is, data, true);
        let software = if code == command::BLOCK { self.is.software } else { Ps::ZERO };
        Ok(self.window(cx, node, op, cx.now() + software, header, payload))
    }

    /// A host's write into the NIC's memory. Returns when the host has written it.
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        Command { words, data, .. }: Command,
    ) -> Result<Ps, String> {
        self.check_access(node, op, words[0], data.len() as u64)?;
        self.grant(node, op, words[0], data.len() as u64);
        let data = through_wires(&self.is, data, true);
        let memory = &mut self.slots[node.index()].memory;
        data.with(|bytes| memory.write(Side::Host, words[0], bytes));
        let time = match data.len() {
            0..=8 => self.is.write + self.is.twist_word,
            more => self.is.write_lines(more as u64),
        };
        Ok(cx.now() + time)
    }

    /// Begins a host's read of the NIC's memory.
    fn read(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        [at, len, halves, _]: [u64; 4],
    ) -> Result<(), String> {
        self.check_access(node, op, at, len)?;
        let word = self.is.read_time(len, halves != 0);
        let time = (word + self.is.twist_word) * len.div_ceil(8);
        let read = Due::Read { op, at, len: len as usize, end: cx.now() + time };
        self.later(cx, cx.now() + Ps(word.0 / 2), node, read);
        Ok(())
    }

    /// Begins a host's looks at a word.
    fn wait(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        [at, width_halves, mask, value]: [u64; 4],
    ) -> Result<(), String> {
        let (width, halves) = (width_halves as u8, width_halves >> 8 != 0);
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(format!("a look at {width} bytes; it must be 1, 2, 4 or 8"));
        }
        self.check_access(node, op, at, width.into())?;
        let read = self.is.read_time(width.into(), halves);
        let sample = Ps(read.0 / 2);
        let polling = Polling { interval: read + self.is.look_loop, sample };
        let mmx = if width == 8 && !halves { self.is.after_mmx } else { Ps::ZERO };
        let (from, after) = (cx.now(), read - sample + mmx);
        let wait = Wait { op, at, width, mask, value, from, polling, after };
        self.later(cx, from + sample, node, Due::Look(wait));
        Ok(())
    }

    /// Remote DMA: one store starts it; the NIC reads the bank on its own side packet by packet.
    /// Returns when the host has written the store.
    fn dma(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        header: Header,
        data: &Payload,
    ) -> Result<Ps, String> {
        let [from, len] = numbers(data)[..] else {
            return Err("remote DMA needs where from and how much".into());
        };
        self.check_access(node, op, BANK.saturating_add(from), len)?;
        let group = self.user(op).group;
        let started = cx.now() + self.is.software + self.is.write;
        let mut ready = started + self.is.host_write + self.is.transaction_queue;
        let mut sent = 0;
        while sent < len {
            let address = header.address + sent;
            let part = (len - sent).min(self.is.botf_payload as u64).min(PAGE - address % PAGE);
            let slot = &mut self.slots[node.index()];
            let bytes = slot.memory.read(Side::Network, BANK + from + sent, part as usize);
            let busy = slot.out.dma.take(ready, self.is.bank_rate.time(part));
            cx.stage(node, "send", "bank_read", op, busy);
            ready = busy.1;
            let header =
                Header { kind: Kind::Dma, address, ..header.stamped(group, node, part as u16) };
            let packet = Outgoing {
                node,
                op,
                through: Through::Inside,
                missed: false,
                header,
                payload: Payload::copy(&bytes),
            };
            self.hand_over(cx, ready, packet);
            sent += part;
        }
        Ok(started)
    }

    /// A host's read samples the memory. The answer's number is the first word.
    pub(super) fn sampled(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        at: u64,
        len: usize,
        end: Ps,
    ) {
        let bytes = self.slots[node.index()].memory.read(Side::Host, at, len);
        let mut first = [0; 8];
        first[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
        let answer =
            Answer { value: u64::from_le_bytes(first), ..Answer::data(Payload::copy(&bytes)) };
        cx.finish(end, op, answer);
    }
}

/// Commands that write switches' tables.
fn set_tables(cx: &mut Cx<'_>, node: Node, command: &Command) -> Result<(), String> {
    let words = command.words;
    if command.code == command::ROUTE {
        let port = u16::try_from(words[2]).ok();
        return cx.network().set_route(words[0] as u32, Node(words[1] as u32), port);
    }
    if command.code == command::WAY {
        let ports: Vec<u16> = numbers(&command.data).into_iter().map(|port| port as u16).collect();
        return cx.network().set_way(node, Node(words[0] as u32), &ports);
    }
    let members: Vec<Node> =
        numbers(&command.data).into_iter().map(|number| Node(number as u32)).collect();
    multicast::set_tables(cx.network(), words[0] as u16, node, &members)
}

/// The words of a block; the last is filled up with zeros.
fn numbers(data: &Payload) -> Vec<u64> {
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    data.with(|bytes| bytes.chunks(8).map(word).collect())
}

fn four_words(data: &Payload) -> Result<[u64; 4], String> {
    numbers(data).try_into().map_err(|_| "a header seed has four words".to_owned())
}
