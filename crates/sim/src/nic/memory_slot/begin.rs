//! Calls: the library's, and the commands of the NIC's own interface.

use super::command::{self, LoopBack, Refusal};
use super::header::{Header, Kind, PAGE};
use super::memory::{BANK, NicMemory, Side};
use super::send::{Outgoing, Through, through_wires};
use super::{Due, MemorySlot, multicast, receive};
use crate::host::{Answer, Command, HostOp, Op};
use crate::nic::{Call, Cx};
use crate::packet::{Node, Payload};
use crate::time::Ps;

impl MemorySlot {
    pub(super) fn begin_call(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        let now = cx.now();
        match what {
            HostOp::Store { to, word } => {
                let result = self.store(cx, node, op, now, to, word);
                self.returned(cx, op, result);
            }
            HostOp::Put { to, data, signal, .. } => {
                let put = match data.is_empty() {
                    true => Ok(now),
                    false => self.put(cx, node, op, now, to, &data),
                };
                let result = match (put, signal) {
                    (Ok(at), Some(signal)) => self.signal(cx, node, op, at, signal),
                    (put, _) => put,
                };
                self.returned(cx, op, result);
            }
            HostOp::Fence => cx.finish(now, op, Answer::default()),
            HostOp::Quiet => cx.finish_when_landed(now, op, self.is.message()),
            HostOp::Command(command) => {
                if let Err(why) = self.command(cx, node, op, command) {
                    cx.finish(now, op, Answer::refused(why));
                }
            }
            HostOp::Get { .. } | HostOp::Atomic { .. } | HostOp::Group(_) => {
                cx.finish(now, op, Answer::refused("a memory-slot NIC has no such operation"));
            }
        }
    }

    /// Begins a command, or says why not.
    fn command(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        Command { code, words, data }: Command,
    ) -> Result<(), String> {
        let now = cx.now();
        let slot = &mut self.slots[node.index()];
        match code {
            command::ATTACH => self.attach(node, words[0] as u16)?,
            command::MAP => self.map(node, words[0] as u32, Header::decode(four_words(&data)?))?,
            command::REGISTER => {
                let owner = (words[0] as u32, words[1] as u32);
                self.register(node, (words[0] >> 32) as u16, owner, words[2], words[3])?;
            }
            command::GROUP => {
                let members: Vec<Node> =
                    numbers(&data).into_iter().map(|number| Node(number as u32)).collect();
                multicast::set_tables(cx.network(), words[0] as u16, node, &members)?;
            }
            command::ROUTE => cx.network().set_route(
                words[0] as u32,
                Node(words[1] as u32),
                u16::try_from(words[2]).ok(),
            )?,
            command::LOOP_BACK => {
                slot.loop_back = if words[0] == 0 { LoopBack::Internal } else { LoopBack::External }
            }
            command::DROPPED => {
                let why = [Refusal::Group, Refusal::Process, Refusal::Region, Refusal::Address]
                    .get((words[0] as usize).wrapping_sub(1));
                let count = match why {
                    None => slot.dropped.values().sum(),
                    Some(why) => slot.dropped.get(why).copied().unwrap_or(0),
                };
                cx.finish(now, op, Answer::value(count));
                return Ok(());
            }
            command::KICK => {
                if !(1..=8).contains(&data.len()) || (words[0] % 8) as usize + data.len() > 8 {
                    return Err(format!(
                        "a store of {} bytes at offset {}; it must be 1 to 8 within a word",
                        data.len(),
                        words[0] % PAGE
                    ));
                }
                let word = through_wires(&self.is, data, words[1] == 0);
                let written = self.kick(
                    cx,
                    node,
                    op,
                    now,
                    ((words[0] / PAGE) as u32, words[0] % PAGE),
                    word,
                )?;
                cx.finish(written, op, Answer::default());
                return Ok(());
            }
            command::BLOCK | command::NEXT_BLOCK => {
                if !(1..=self.is.botf_payload).contains(&data.len()) {
                    return Err(format!(
                        "a block of {} bytes; a window holds 1 to {}",
                        data.len(),
                        self.is.botf_payload
                    ));
                }
                let header = Header::decode(words).stamped(slot.group, node, data.len() as u16);
                let payload = through_wires(&self.is, data, true);
                let software = if code == command::BLOCK { self.is.software } else { Ps::ZERO };
                let written = self.window(cx, node, op, now + software, header, payload);
                cx.finish(written, op, Answer::default());
                return Ok(());
            }
            command::DMA => return self.dma(cx, node, op, Header::decode(words), &data),
            command::READ => {
                let (at, len) = (words[0], words[1]);
                self.exists(at, len)?;
                let word = if words[2] != 0 { self.is.read_by_halves } else { self.is.read };
                let end = now + word * len.div_ceil(8);
                self.later(
                    cx,
                    now + Ps(word.0 / 2),
                    node,
                    Due::Read { op, at, len: len as usize, end },
                );
                return Ok(());
            }
            command::WRITE => {
                self.exists(words[0], data.len() as u64)?;
                let data = through_wires(&self.is, data, true);
                data.with(|bytes| {
                    self.slots[node.index()].memory.write(Side::Host, words[0], bytes)
                });
                let time = match data.len() {
                    0..=8 => self.is.write + self.is.twist_word,
                    more => self.is.write_lines(more as u64),
                };
                cx.finish(now + time, op, Answer::default());
                return Ok(());
            }
            command::WAIT => {
                let (width, halves) = (words[1] as u8, words[1] >> 8 != 0);
                if !matches!(width, 1 | 2 | 4 | 8) {
                    return Err(format!("a look at {width} bytes; it must be 1, 2, 4 or 8"));
                }
                self.exists(words[0], width.into())?;
                let interval = if halves { self.is.read_by_halves } else { self.is.read };
                let wait = receive::Wait {
                    op,
                    at: words[0],
                    width,
                    mask: words[2],
                    value: words[3],
                    interval,
                    sample: Ps(interval.0 / 2),
                };
                self.later(cx, now + wait.sample, node, Due::Look(wait));
                return Ok(());
            }
            command::SWITCH => {
                self.later(cx, now + self.is.bank_switch, node, Due::SwitchedFor(op));
                cx.host_stage("bank_switch", op, (now, now + self.is.bank_switch));
                return Ok(());
            }
            other => return Err(format!("a memory-slot NIC has no command {other}")),
        }
        cx.finish(now, op, Answer::default());
        Ok(())
    }

    /// Remote DMA: one store starts it; the NIC reads the bank on its own side packet by packet.
    fn dma(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        header: Header,
        data: &Payload,
    ) -> Result<(), String> {
        let [from, len] = numbers(data)[..] else {
            return Err("remote DMA needs where from and how much".into());
        };
        self.exists(BANK + from, len)?;
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
            let header = Header {
                kind: Kind::Dma,
                address,
                ..header.stamped(slot.group, node, part as u16)
            };
            let packet = Outgoing {
                node,
                op,
                through: Through::Inside,
                missed: false,
                header,
                payload: Payload::copy(&bytes),
            };
            self.forward(cx, ready, packet);
            sent += part;
        }
        cx.finish(started, op, Answer::default());
        Ok(())
    }

    /// A host's read has sampled; its word, or the first of them, is as it is now.
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

    fn exists(&self, at: u64, len: u64) -> Result<(), String> {
        match NicMemory::has(self.is.llcm, self.is.bank, at, len) {
            true => Ok(()),
            false => Err(format!("the NIC has no {len} bytes at {at:#x}")),
        }
    }
}

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
