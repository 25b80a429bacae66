//! Remote DMA by command words (SR2201). A command word is built once, in the kernel, and then
//! started any number of times by one write of its address.
//!
//! ```text
//! host:  software, direct_start | system_call ─► start register
//! NIC:   command_fetch ─► read ─► packets ─► link ─► key_check, write ─► the receiver's memory, then its flag
//!        status of the word ◄─────────────── link ◄─┘ done, or refused
//! ```
//!
//! * Command words lie in kernel space, as many as `nic.command_words`: [`build`] is a system call,
//!   and a user's store into one ([`user_store`]) is a fault. The start register takes only
//!   addresses of words, and only from privileged mode: a user's store to it is a fault, too.
//! * A start gets into privileged mode by a mode switch without a trap (`host.direct_start`), or by
//!   a system call. `host.start` says which of them the library takes.
//! * A receive area carries an access key ([`allow`]). The receiving hardware compares it with the
//!   word's key, packet by packet. A packet with another key is refused: memory is left as it was,
//!   and the word's status says so. Memory without a receive area has its region's keys, which the
//!   library's words carry: those of a part of a restricted window are made from its grant, and a
//!   segment's belongs to the job (`keys`).
//! * The sender spins on the word's status ([`test()`]), and the receiver on a flag that is written
//!   after the data. With `host.interrupt` the machine is one that the API was made to be compared
//!   with: a process that waits blocks in the kernel, the NIC interrupts when it has written, and
//!   the process is switched to. While no process of the node waits, there are no interrupts.
//! * The receiving NIC answers each transfer when it is written. A sender's `quiet` waits for these
//!   answers.
//!
//! The library's stores and puts are command words too. The first one to an address, of a length,
//! builds a word; later ones find the word, and cost a direct start. A source that the program may
//! change at once is copied first. A put with a signal that sets a word of the same region is one
//! command word, whose flag the signal is: such a word names the place in the sender's memory of
//! the value that the flag gets, and the NIC sends the value after the data. Where there are more
//! transfers than command words, the words used longest ago make room, but those of transfers that
//! the program has prepared stay, up to half of all. Agents do what the NIC lacks: reads and
//! atomics.

mod interface;
mod keys;

pub use interface::{
    CommandWord, DONE, REFUSED, RUNNING, START_REGISTER, Start, allow, build, start, test,
    user_store,
};

use super::{Call, Cx, Feature, Nic, Owner, Planned, Token, Unit};
use crate::host::{Answer, Command, CommandStep, HostOp, Op, Polling, Signal, Sleep};
use crate::machine::{Machine, MachineError, Rate, Section};
use crate::packet::{Destination, Node, Packet, Payload};
use crate::time::Ps;
use interface::{ALLOW, BUILD, KERNEL, START, TEST, USER_STORE, WORD_BYTES, command_word};
use keys::{Area, Keys};
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
struct Parameters {
    look: Ps,
    software: Ps,
    system_call: Ps,
    direct_start: Ps,
    /// How the library starts its words.
    start: Start,
    /// What a process loses that waits, unless it spins.
    sleep: Option<Sleep>,
    copy: Rate,
    command_words: usize,
    command_fetch: Ps,
    read: Ps,
    memory_rate: Rate,
    link_rate: Rate,
    packet: usize,
    header: u32,
    key_check: Ps,
    write: Ps,
}

/// A transfer of the library's: PE, region, offset and length, and the offset of the flag.
type Transfer = (u32, u32, u64, u32, Option<u64>);

/// A command word in its place, and the state of its last start.
#[derive(Debug, Clone, Copy)]
struct Placed {
    word: CommandWord,
    /// Number of starts that the receiver has not answered.
    unanswered: u32,
    refused: bool,
    /// The transfer that the library built the word for; nothing for a program's word.
    used_for: Option<Transfer>,
    /// Number of the program's prepared transfers that keep the word in its place.
    kept: u32,
}

/// A transfer that has been started and waits for the NIC.
#[derive(Debug)]
struct Started {
    op: Op,
    place: usize,
    /// The data and the value of the flag; nothing for a program's word, which names its source.
    given: Option<(Payload, Option<u64>)>,
}

/// What a NIC has planned.
#[derive(Debug)]
enum Plan {
    /// The start register is written.
    Start(Started),
    /// The answer to a packet of the node to itself: of the word at a place, with its header word.
    Answer(usize, u64),
}

/// A call that has waited since `from` for the transfers of these words.
#[derive(Debug, Clone)]
struct Completion {
    op: Op,
    from: Ps,
    places: Vec<usize>,
}

#[derive(Debug, Clone, Default)]
struct NicOf {
    cpu: Unit,
    dma: Unit,
    receiver: Unit,
    words: Vec<Placed>,
    /// Places of the library's words, by their transfers.
    known: BTreeMap<Transfer, usize>,
    /// The place from which on the next word of the library's to replace is sought.
    oldest: usize,
    keys: Keys,
    /// Number of the library's transfers that have not been answered.
    unanswered: u64,
    /// Calls that wait until all of those are answered, and since when.
    quiets: Vec<(Op, Ps)>,
    /// Calls that wait until the transfers of some words are answered.
    completions: Vec<Completion>,
    /// A refusal since the last such call returned.
    refused: Option<String>,
}

/// The mode of the CPU when it writes a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Privileged,
}

/// The NICs of a machine.
pub struct CommandWordDma {
    is: Parameters,
    nics: Vec<NicOf>,
    plans: Planned<Plan>,
}

/// The first header word has the type of the packet in its low byte, flags, and the place of the
/// sender's command word in the high half.
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
/// Bytes of a flag.
const FLAG_BYTES: usize = 8;

impl CommandWordDma {
    /// Reads the sections `host` and `nic`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32) -> Result<CommandWordDma, MachineError> {
        let (nic, host) = (machine.section("nic"), machine.section("host"));
        let (packet, words) = (nic.bytes("packet")?, nic.count("command_words")?);
        if !(64..=1 << 20).contains(&packet) {
            return Err(nic.error("packet", "must be from 64 B to 1 MiB"));
        }
        if !(4..1 << 24).contains(&words) {
            return Err(nic.error(
                "command_words",
                "must be from 4 to 16 million: the library needs some at once",
            ));
        }
        let is = Parameters {
            look: host.time_not_zero("look")?,
            software: host.time("software")?,
            system_call: host.time("system_call")?,
            direct_start: host.time("direct_start")?,
            start: start_of(&host)?,
            sleep: sleep_of(&host)?,
            copy: host.rate("copy")?,
            command_words: words as usize,
            command_fetch: nic.time("command_fetch")?,
            read: nic.time("read")?,
            memory_rate: nic.rate("memory_rate")?,
            link_rate: machine.section("link").rate("rate")?,
            packet: packet as usize,
            header: nic.bytes_up_to("header", 1 << 16)? as u32,
            key_check: nic.time("key_check")?,
            write: nic.time("write")?,
        };
        Ok(CommandWordDma {
            is,
            nics: vec![NicOf::default(); nodes as usize],
            plans: Planned::new(Owner::Nic),
        })
    }

    fn polled(&self) -> Polling {
        Polling { interval: self.is.look, sample: self.is.look }
    }

    /// When a host that has waited since `from` has seen what its NIC wrote at `changed`.
    fn seen(&self, cx: &mut Cx<'_>, op: Op, from: Ps, changed: Ps) -> Ps {
        let (looks, seen) = match self.is.sleep {
            None => (changed, self.polled().seen(Ps::ZERO, changed)),
            Some(sleep) => {
                let awake = cx.sleep(op, sleep, from, changed);
                (awake, awake + self.is.look)
            }
        };
        cx.host_stage("look", op, (looks, seen));
        seen
    }

    /// The part of a call that starts a command word.
    fn starting(&self, how: Start) -> (&'static str, Ps) {
        match how {
            Start::Direct => ("direct_start", self.is.direct_start),
            Start::SystemCall => ("system_call", self.is.system_call),
        }
    }

    /// Has the CPU do these parts of a call. Returns when they are done.
    fn cpu(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, parts: &[(&'static str, Ps)]) -> Ps {
        let mut end = cx.now();
        for &(name, time) in parts {
            let busy = self.nics[node.index()].cpu.take(end, time);
            cx.host_stage(name, op, busy);
            end = busy.1;
        }
        end
    }

    /// Puts a command word into kernel space. Returns its place, if there is room.
    fn place(&mut self, node: Node, placed: Placed) -> Option<usize> {
        let limit = self.is.command_words;
        let nic = &mut self.nics[node.index()];
        if nic.words.len() < limit {
            nic.words.push(placed);
            return Some(nic.words.len() - 1);
        }
        // Only places of the library's words are used again, and only when no transfer of the word
        // is under way or prepared.
        let place = (0..limit).map(|step| (nic.oldest + step) % limit).find(|&place| {
            let old = &nic.words[place];
            old.used_for.is_some() && old.unanswered == 0 && old.kept == 0
        })?;
        nic.oldest = (place + 1) % limit;
        let old = std::mem::replace(&mut nic.words[place], placed);
        nic.known.remove(&old.used_for.expect("only the library's are used again"));
        Some(place)
    }

    /// The place of the word for a transfer of the library's. Builds the word, unless it is there.
    fn word_for(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        wanted: Transfer,
    ) -> Result<usize, String> {
        if let Some(&place) = self.nics[node.index()].known.get(&wanted) {
            return Ok(place);
        }
        let (pe, region, offset, len, flag) = wanted;
        let to = FarAddress { pe, region, offset };
        // This stands for the library's send buffer, or the source. The NIC gets the data with the
        // start.
        let from = FarAddress { pe: node.0, ..to };
        let word = CommandWord {
            from,
            to,
            len,
            key: self.nics[node.index()].keys.carried(pe, region),
            flag,
        };
        let placed =
            Placed { word, unanswered: 0, refused: false, used_for: Some(wanted), kept: 0 };
        let place = self
            .place(node, placed)
            .ok_or("all command words are in use, by transfers under way and the program's own: build fewer, or wait for some")?;
        self.nics[node.index()].known.insert(wanted, place);
        self.cpu(cx, node, op, &[("system_call", self.is.system_call)]);
        Ok(place)
    }

    /// Starts a transfer of the library's, with the offset and the value of its flag. Returns when
    /// its call may return.
    fn transfer(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        to: FarAddress,
        (data, flag): (Payload, Option<(u64, u64)>),
        copied: bool,
    ) -> Result<Ps, String> {
        let is = self.is;
        let flag_at = flag.map(|(offset, _)| offset);
        let wanted = (to.pe, to.region, to.offset, data.len() as u32, flag_at);
        let copy = if copied { is.copy.time(data.len() as u64) } else { Ps::ZERO };
        let place = self.word_for(cx, node, op, wanted)?;
        let returns = self.cpu(
            cx,
            node,
            op,
            &[("copy", copy), ("software", is.software), self.starting(is.start)],
        );
        let nic = &mut self.nics[node.index()];
        cx.promise(op, nic.words[place].writes(is.packet));
        nic.unanswered += 1;
        let given = Some((data, flag.map(|(_, value)| value)));
        self.write_start_register(cx, returns, node, Started { op, place, given });
        Ok(returns)
    }

    /// A put of the library's. Returns when its call may return.
    fn put(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        (to, data, signal): (FarAddress, Payload, Option<Signal>),
        reuse: bool,
    ) -> Result<Ps, String> {
        let mut returns = Ok(cx.now());
        let [first, then] = words_of(to, data.len() as u32, signal.map(|signal| signal.at));
        if let Some((.., flag)) = first {
            let flag = flag.zip(signal.map(|signal| signal.value));
            returns = self.transfer(cx, node, op, to, (data, flag), reuse);
        }
        if let (Some(_), Some(signal)) = (then, signal) {
            debug_assert_eq!(signal.op, SignalOp::Set, "signals that add are the agents'");
            let word = (Payload::word(FLAG_BYTES, signal.value), None);
            returns = returns.and_then(|_| self.transfer(cx, node, op, signal.at, word, false));
        }
        returns
    }

    /// Answers what is asked about the words of a put.
    fn prepare(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        (to, len, signal): (FarAddress, u32, Option<Signal>),
        step: CommandStep,
    ) {
        // The word for a signal that adds is the agent's, and differs from start to start.
        let signal = signal.filter(|signal| signal.op == SignalOp::Set);
        let words = words_of(to, len, signal.map(|signal| signal.at)).into_iter().flatten();
        match step {
            CommandStep::Keep | CommandStep::Drop => {
                words.for_each(|wanted| self.keep(cx, node, op, wanted, step == CommandStep::Keep));
                let returns = self.nics[node.index()].cpu.free().max(cx.now());
                cx.finish(returns, op, Answer::default());
            }
            CommandStep::Test | CommandStep::Complete => {
                // A word that has made room for another is not under way.
                let nic = &self.nics[node.index()];
                let places = words.filter_map(|wanted| nic.known.get(&wanted).copied()).collect();
                self.complete(cx, node, op, places, step == CommandStep::Complete);
            }
        }
    }

    /// Keeps a word in its place, or gives it up.
    fn keep(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, wanted: Transfer, kept: bool) {
        let half = self.is.command_words / 2;
        let nic = &mut self.nics[node.index()];
        if kept && nic.words.iter().filter(|word| word.kept > 0).count() >= half {
            return;
        }
        // Without a place, the first start builds the word, or says that there is none.
        let place = match kept {
            true => self.word_for(cx, node, op, wanted).ok(),
            false => nic.known.get(&wanted).copied(),
        };
        if let Some(place) = place {
            let word = &mut self.nics[node.index()].words[place];
            word.kept = if kept { word.kept + 1 } else { word.kept.saturating_sub(1) };
        }
    }

    /// Answers whether the transfers of these words are complete, or waits until they are.
    fn complete(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, places: Vec<usize>, waits: bool) {
        let nic = &mut self.nics[node.index()];
        let under_way = places.iter().any(|&place| nic.words[place].unanswered > 0);
        if under_way && waits {
            return nic.completions.push(Completion { op, from: cx.now(), places });
        }
        let answer = match nic.refusal_of(&places) {
            Some(why) if !under_way => Answer::refused(why),
            _ => Answer::value(u64::from(!under_way)),
        };
        let returns = self.cpu(cx, node, op, &[("look", self.is.look)]);
        cx.finish(returns, op, answer);
    }

    /// The host writes the start register at `at`.
    fn write_start_register(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, started: Started) {
        let placed = &mut self.nics[node.index()].words[started.place];
        placed.unanswered += 1;
        placed.refused = false;
        self.plans.at(cx, at, node, Plan::Start(started));
    }

    /// A command of the program's own.
    fn command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let (is, words) = (self.is, command.words);
        let system_call = [("system_call", is.system_call)];
        let answer = match command.code {
            ALLOW => {
                let area = Area {
                    region: words[0] as u32,
                    range: words[1]..words[1].saturating_add(words[2]),
                    key: words[3] as u32,
                };
                self.nics[node.index()].keys.allow(area);
                (self.cpu(cx, node, op, &system_call), Answer::default())
            }
            BUILD => {
                let placed = Placed {
                    word: command_word(command),
                    unanswered: 0,
                    refused: false,
                    used_for: None,
                    kept: 0,
                };
                let there = placed.word.to.pe < cx.pes() && placed.word.from.pe == node.0;
                let answer = match there.then(|| self.place(node, placed)) {
                    None => Answer::refused(
                        "a command word goes from the caller's memory to that of a PE of the job; check both PEs",
                    ),
                    Some(Some(place)) => Answer::value(KERNEL + place as u64 * WORD_BYTES),
                    Some(None) => Answer::refused(format!(
                        "there is no room for more than {} command words; start those again",
                        is.command_words
                    )),
                };
                (self.cpu(cx, node, op, &system_call), answer)
            }
            START => {
                let how = if words[1] == 0 { Start::Direct } else { Start::SystemCall };
                let parts = [("software", is.software), self.starting(how)];
                let returns = self.cpu(cx, node, op, &parts);
                (returns, self.write_register(cx, returns, node, op, words[0], Mode::Privileged))
            }
            TEST => {
                let answer = match self.own_word(node, words[0]) {
                    Ok(place) => Answer::value(self.nics[node.index()].words[place].status()),
                    Err(why) => Answer::refused(why),
                };
                (self.cpu(cx, node, op, &[("look", is.look)]), answer)
            }
            USER_STORE => {
                let trapped = self.cpu(cx, node, op, &system_call);
                let answer = match words[0] {
                    START_REGISTER => {
                        self.write_register(cx, trapped, node, op, words[1], Mode::User)
                    }
                    address => Answer::refused(format!(
                        "a fault: {address:#x} is in kernel space, and a user program may not write there"
                    )),
                };
                (trapped, answer)
            }
            code => {
                (cx.now(), Answer::refused(format!("a command-word NIC has no command {code}")))
            }
        };
        cx.finish(answer.0, op, answer.1);
    }

    /// The place of the word at this address, if the program has built it.
    fn own_word(&self, node: Node, address: u64) -> Result<usize, String> {
        let place = address.wrapping_sub(KERNEL) / WORD_BYTES;
        let word = self.nics[node.index()].words.get(place as usize);
        match word {
            Some(Placed { used_for: None, .. }) if address.is_multiple_of(WORD_BYTES) => {
                Ok(place as usize)
            }
            _ => Err(format!(
                "{address:#x} is not the address of a command word that this program has built"
            )),
        }
    }

    /// The CPU writes the address of a word of the program's to the start register.
    fn write_register(
        &mut self,
        cx: &mut Cx<'_>,
        at: Ps,
        node: Node,
        op: Op,
        address: u64,
        mode: Mode,
    ) -> Answer {
        match mode {
            Mode::Privileged => self.start(cx, at, node, op, address),
            Mode::User => Answer::refused(format!(
                "a fault: the start register at {START_REGISTER:#x} is written in privileged mode \
                 only; start the command word instead, which switches the mode"
            )),
        }
    }

    /// Starts a word of the program's.
    fn start(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, op: Op, address: u64) -> Answer {
        let place = match self.own_word(node, address) {
            Ok(place) => place,
            Err(why) => return Answer::refused(why),
        };
        let placed = self.nics[node.index()].words[place];
        if placed.unanswered > 0 {
            return Answer::refused(
                "this command word is under way: test it before starting it again",
            );
        }
        cx.promise(op, placed.writes(self.is.packet));
        self.write_start_register(cx, at, node, Started { op, place, given: None });
        Answer::default()
    }

    /// Cuts a transfer into packets. The NIC reads them from memory from now on.
    fn send(&mut self, cx: &mut Cx<'_>, node: Node, Started { op, place, given }: Started) {
        let is = self.is;
        let word = self.nics[node.index()].words[place].word;
        let (data, flag, own) = match given {
            Some((data, flag)) => (data, flag, 0),
            None => match cx.read(op, word.from, word.len as usize) {
                Ok(data) => (data, None, OWN),
                Err(_) => {
                    let placed = &mut self.nics[node.index()].words[place];
                    cx.lost(op, placed.writes(is.packet));
                    (placed.unanswered, placed.refused) = (placed.unanswered - 1, true);
                    return;
                }
            },
        };
        let fetched = self.nics[node.index()].dma.take(cx.now(), is.command_fetch);
        cx.stage(node, "dma", "command_fetch", op, fetched);
        let read = self.nics[node.index()].dma.take(fetched.1, is.read);
        cx.stage(node, "dma", "read", op, read);
        let (mut sent, mut ready) = (0, read.1);
        loop {
            let mut part = data.part(sent, is.packet);
            let offset = word.to.offset + sent as u64;
            let mut what = DATA | own | (place as u64) << 32;
            sent += part.len();
            if sent == data.len() {
                what |= LAST | if word.flag.is_some() { FLAG } else { 0 };
                if let Some(value) = flag {
                    what |= VALUE;
                    part = with_value(&part, value);
                }
            }
            let wire_bytes = is.header + part.len() as u32;
            let packet = Packet {
                from: node,
                to: Destination::Node(Node(word.to.pe)),
                wire_bytes,
                header: [
                    what,
                    u64::from(word.to.region) << 32 | u64::from(word.key),
                    offset,
                    word.flag.unwrap_or(0),
                ],
                payload: part,
                op,
                droppable: false,
            };
            // The NIC has no buffer, so it reads no faster than the link takes.
            let time = is.memory_rate.time(packet.payload.len() as u64);
            let busy = self.nics[node.index()]
                .dma
                .take(ready, time.max(is.link_rate.time(wire_bytes.into())));
            cx.stage(node, "dma", "memory_rate", op, busy);
            let handed = ready + time;
            ready = busy.1;
            if word.to.pe == node.0 {
                self.receive(cx, handed, node, packet);
            } else {
                cx.send(handed, node, packet);
            }
            if sent == data.len() {
                return;
            }
        }
    }

    /// A packet has come in by `at`.
    fn receive(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
        let is = self.is;
        let Packet { header, payload, op, from, .. } = packet;
        let place = (header[0] >> 32) as usize;
        if header[0] & 0xff == ANSWER {
            self.answered(cx, at, node, place, header[0]);
            return;
        }
        let (region, key) = ((header[1] >> 32) as u32, header[1] as u32);
        let came = payload.len() as u64;
        let (payload, value) =
            if header[0] & VALUE != 0 { without_value(&payload) } else { (payload, 1) };
        let len = payload.len() as u64;
        let checked = self.nics[node.index()].receiver.take(at, is.key_check);
        cx.stage(node, "receive", "key_check", op, checked);
        let written = self.nics[node.index()].receiver.take(checked.1, is.memory_rate.time(came));
        let visible = written.1 + is.write;
        cx.stage(node, "receive", "write", op, (written.0, visible));
        let flag = header[0] & FLAG != 0;
        let to = |offset| FarAddress { pe: node.0, region, offset };
        let keys = &self.nics[node.index()].keys;
        // The library lets a PE write to its own memory, whatever keys it has given to others.
        let key = (from != node || header[0] & OWN != 0).then_some(key);
        let good = keys.admit(node, region, header[2]..header[2].saturating_add(len), key)
            && (!flag || keys.admit(node, region, header[3]..header[3].saturating_add(8), key))
            && (header[0] & OWN == 0
                || cx.read(op, to(header[2]), payload.len()).is_ok()
                    && (!flag || cx.read(op, to(header[3]), 8).is_ok()));
        if good {
            cx.write(visible, op, to(header[2]), payload);
            if flag {
                cx.write(visible, op, to(header[3]), Payload::word(FLAG_BYTES, value));
            }
        } else {
            cx.lost(op, 1 + u64::from(flag));
        }
        if good && header[0] & LAST == 0 {
            return;
        }
        let what = ANSWER | header[0] & LAST | (place as u64) << 32 | if good { 0 } else { BAD };
        if from == node {
            return self.plans.at(cx, visible, node, Plan::Answer(place, what));
        }
        let answer = Packet {
            from: node,
            to: Destination::Node(from),
            wire_bytes: is.header,
            header: [what, 0, 0, 0],
            payload: Payload::EMPTY,
            op,
            droppable: false,
        };
        cx.send(visible, node, answer);
    }

    /// The receiver's answer for a transfer of the word at `place` has come.
    fn answered(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, place: usize, what: u64) {
        let nic = &mut self.nics[node.index()];
        let placed = &mut nic.words[place];
        placed.refused |= what & BAD != 0;
        if placed.refused && placed.used_for.is_some() {
            nic.refused = Some(placed.refusal());
        }
        if what & LAST == 0 {
            return;
        }
        let placed = &mut nic.words[place];
        placed.unanswered -= 1;
        if placed.used_for.is_none() {
            return;
        }
        nic.unanswered -= 1;
        let quiets = if nic.unanswered == 0 { std::mem::take(&mut nic.quiets) } else { Vec::new() };
        let words = &nic.words;
        let over = |it: &mut Completion| it.places.iter().all(|&at| words[at].unanswered == 0);
        let over: Vec<_> = nic.completions.extract_if(.., over).collect();
        for Completion { op, from, places } in over {
            let seen = self.seen(cx, op, from, at);
            let refusal = self.nics[node.index()].refusal_of(&places);
            cx.finish(seen, op, refusal.map_or(Answer::value(1), Answer::refused));
        }
        for (quiet, from) in quiets {
            let seen = self.seen(cx, quiet, from, at);
            self.quiet(cx, seen, node, quiet);
        }
    }

    /// Ends a call that waits for all transfers, which the host has seen answered by `at`. Agents
    /// may still be at work for the PE; a look sees as soon as they are done.
    fn quiet(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, op: Op) {
        match self.nics[node.index()].refused.take() {
            Some(why) => cx.finish(at, op, Answer::refused(why)),
            None => cx.finish_when_landed(at, op, self.is.look),
        }
    }
}

impl NicOf {
    /// Why the receiver has refused the last transfer of one of these words, if it has.
    fn refusal_of(&self, places: &[usize]) -> Option<String> {
        places.iter().map(|&place| &self.words[place]).find(|it| it.refused).map(Placed::refusal)
    }
}

impl Placed {
    fn refusal(&self) -> String {
        format!(
            "the NIC of PE {} refused a write: its memory there has another key. Rights to a \
             window's part end when they are revoked; attach with a new key",
            self.word.to.pe
        )
    }

    /// The answer to a test of the word.
    fn status(&self) -> u64 {
        match (self.unanswered, self.refused) {
            (_, true) => REFUSED,
            (0, false) => DONE,
            _ => RUNNING,
        }
    }

    /// Number of writes that a start of the word promises.
    fn writes(&self, packet: usize) -> u64 {
        u64::from(self.word.len).div_ceil(packet as u64).max(1)
            + u64::from(self.word.flag.is_some())
    }
}

/// How the library starts its words.
fn start_of(host: &Section<'_>) -> Result<Start, MachineError> {
    match host.has("start") {
        true => {
            host.choice("start", &[("direct", Start::Direct), ("system call", Start::SystemCall)])
        }
        false => Ok(Start::Direct),
    }
}

/// What waiting costs, where a process that waits blocks.
fn sleep_of(host: &Section<'_>) -> Result<Option<Sleep>, MachineError> {
    match host.has("interrupt") {
        true => Ok(Some(Sleep {
            spin: Ps::ZERO,
            block: host.time("system_call")?,
            interrupt: host.time("interrupt")?,
            context_switch: host.time("context_switch")?,
        })),
        false => Ok(None),
    }
}

/// The words for a put of the library's: one for the data, with the signal as its flag where the
/// flag can be, and one for the signal where it cannot.
fn words_of(to: FarAddress, len: u32, signal: Option<FarAddress>) -> [Option<Transfer>; 2] {
    let flag = signal.filter(|at| len > 0 && (at.pe, at.region) == (to.pe, to.region));
    let data = (len > 0).then_some((to.pe, to.region, to.offset, len, flag.map(|at| at.offset)));
    let apart = signal.filter(|_| flag.is_none());
    [data, apart.map(|at| (at.pe, at.region, at.offset, FLAG_BYTES as u32, None))]
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

impl Nic for CommandWordDma {
    fn kind(&self) -> &'static str {
        "command-word"
    }

    fn has(&self, feature: Feature) -> bool {
        matches!(feature, Feature::Commands | Feature::Keys)
    }

    fn polling(&self, _node: Node) -> Polling {
        self.polled()
    }

    fn sleep(&self) -> Option<Sleep> {
        self.is.sleep
    }

    fn begin(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        let returns = match what {
            HostOp::Store { to, word } => self.transfer(cx, node, op, to, (word, None), false),
            HostOp::Put { to, data, signal, reuse } => {
                self.put(cx, node, op, (to, data, signal), reuse)
            }
            HostOp::Prepare { to, len, signal, step } => {
                return self.prepare(cx, node, op, (to, len, signal), step);
            }
            HostOp::Key { pe, region, key, step } => {
                let changes = self.nics[node.index()].key(pe, region, key, step);
                Ok(match changes {
                    true => self.cpu(cx, node, op, &[("system_call", self.is.system_call)]),
                    false => cx.now(),
                })
            }
            // Packets of one sender to one receiver take one way, and the NIC serves words in the
            // order of their starting.
            HostOp::Fence => Ok(cx.now()),
            HostOp::Quiet => {
                match self.nics[node.index()].unanswered {
                    0 => self.quiet(cx, cx.now() + self.is.look, node, op),
                    _ => self.nics[node.index()].quiets.push((op, cx.now())),
                }
                return;
            }
            HostOp::Command(command) => return self.command(cx, node, op, &command),
            HostOp::Get { .. } | HostOp::Atomic { .. } | HostOp::Group(_) => {
                Err("a command-word NIC has no such operation".into())
            }
        };
        match returns {
            Ok(returns) => cx.finish(returns, op, Answer::default()),
            Err(why) => cx.finish(cx.now(), op, Answer::refused(why)),
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        self.receive(cx, cx.now(), node, packet);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.plans.take(token) {
            Plan::Start(started) => self.send(cx, node, started),
            Plan::Answer(place, what) => self.answered(cx, cx.now(), node, place, what),
        }
    }
}

#[cfg(test)]
mod tests;
