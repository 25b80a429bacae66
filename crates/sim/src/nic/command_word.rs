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
//!
//! **Several processes.** With `topology.pes_per_node` processes share a NIC. The interface was
//! made for one, and its authors name several as what comes next; how they share is this model's.
//! Each has a CPU, an equal part of the room for command words, its own keys, and its own status of
//! what it has started. The code in privileged mode looks whose a word is (`host.owner_check`), and
//! starts none of another process. They share the DMA, which serves words to their ends in the
//! order of their starting, the receiver, and the link. A write to a neighbour's memory goes round
//! inside the NIC, and its key is checked as that of any other.
//!
//! | file | what |
//! |---|---|
//! | `parameters` | what the machine file says |
//! | `process` | what each process has for itself |
//! | `keys` | the keys of its memory and of its words |
//! | `packets` | transfers on their way: DMA, receiver, answers |
//! | `interface` | what a program asks of the NIC |

mod interface;
mod keys;
mod packets;
mod parameters;
mod process;

pub use interface::{
    CommandWord, DONE, REFUSED, RUNNING, START_REGISTER, Start, allow, build, start, test,
    user_store,
};

pub(super) use parameters::processes;

use super::{Call, Cx, Feature, Nic, Owner, Pe, Planned, Token, Unit};
use crate::host::{Answer, Command, CommandStep, HostOp, Op, Polling, Signal, Sleep};
use crate::machine::{Machine, MachineError};
use crate::packet::{Node, Packet, Payload};
use crate::placement::Placement;
use crate::time::Ps;
use interface::{ALLOW, BUILD, KERNEL, START, TEST, USER_STORE, WORD_BYTES, command_word};
use keys::Area;
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use packets::FLAG_BYTES;
use parameters::Parameters;
use process::{Completion, Placed, Process, Transfer};
use std::collections::BTreeSet;

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
    /// A packet of the node to itself comes round.
    Arrive(Packet),
}

/// The mode of the CPU when it writes a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Privileged,
}

/// What the processes of a node share.
#[derive(Debug, Clone, Default)]
struct NicOf {
    dma: Unit,
    receiver: Unit,
    /// Transfers of which a packet was refused, and more are to come: each by its sender's node and
    /// the number of its word.
    refused: BTreeSet<(u32, u64)>,
}

/// The NICs of a machine.
pub struct CommandWordDma {
    is: Parameters,
    placement: Placement,
    pes: u32,
    /// One for each node.
    nics: Vec<NicOf>,
    /// One for each PE.
    processes: Vec<Process>,
    plans: Planned<Plan>,
}

impl CommandWordDma {
    /// Reads the sections `host` and `nic`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32, pes: u32) -> Result<CommandWordDma, MachineError> {
        let is = Parameters::read(machine)?;
        Ok(CommandWordDma {
            is,
            placement: Placement { per_node: processes(machine)? },
            pes,
            nics: vec![NicOf::default(); nodes as usize],
            processes: vec![Process::default(); pes as usize],
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

    /// The parts of a call that start a command word. The kernel's code checks whose it is.
    fn starting(&self, how: Start) -> [(&'static str, Ps); 3] {
        let start = match how {
            Start::Direct => ("direct_start", self.is.direct_start),
            Start::SystemCall => ("system_call", self.is.system_call),
        };
        [("software", self.is.software), start, ("owner_check", self.is.owner_check)]
    }

    /// Has the CPU do these parts of a call. Returns when they are done.
    fn cpu(&mut self, cx: &mut Cx<'_>, pe: Pe, op: Op, parts: &[(&'static str, Ps)]) -> Ps {
        let mut end = cx.now();
        for &(name, time) in parts {
            let busy = self.processes[pe.index()].cpu.take(end, time);
            cx.host_stage(name, op, busy);
            end = busy.1;
        }
        end
    }

    /// Puts a command word into kernel space. Returns its place, if there is room.
    fn place(&mut self, pe: Pe, placed: Placed) -> Option<usize> {
        self.processes[pe.index()].place(placed, self.is.command_words)
    }

    /// The place of the word for a transfer of the library's. Builds the word, unless it is there.
    fn word_for(
        &mut self,
        cx: &mut Cx<'_>,
        pe: Pe,
        op: Op,
        wanted: Transfer,
    ) -> Result<usize, String> {
        if let Some(&place) = self.processes[pe.index()].known.get(&wanted) {
            return Ok(place);
        }
        let (target, region, offset, len, flag) = wanted;
        let to = FarAddress { pe: target, region, offset };
        // This stands for the library's send buffer, or the source. The NIC gets the data with the
        // start.
        let from = FarAddress { pe: pe.0, ..to };
        let key = self.processes[pe.index()].keys.carried(target, region);
        let word = CommandWord { from, to, len, key, flag };
        let place = self
            .place(pe, Placed::new(word, Some(wanted)))
            .ok_or("all command words are in use, by transfers under way and the program's own: build fewer, or wait for some")?;
        self.processes[pe.index()].known.insert(wanted, place);
        self.cpu(cx, pe, op, &[("system_call", self.is.system_call)]);
        Ok(place)
    }

    /// Starts a transfer of the library's, with the offset and the value of its flag. Returns when
    /// its call may return.
    fn transfer(
        &mut self,
        cx: &mut Cx<'_>,
        pe: Pe,
        op: Op,
        to: FarAddress,
        (data, flag): (Payload, Option<(u64, u64)>),
        copied: bool,
    ) -> Result<Ps, String> {
        let is = self.is;
        let flag_at = flag.map(|(offset, _)| offset);
        let wanted = (to.pe, to.region, to.offset, data.len() as u32, flag_at);
        let copy = if copied { is.copy.time(data.len() as u64) } else { Ps::ZERO };
        let place = self.word_for(cx, pe, op, wanted)?;
        let [software, start, check] = self.starting(is.start);
        let returns = self.cpu(cx, pe, op, &[("copy", copy), software, start, check]);
        let process = &mut self.processes[pe.index()];
        cx.promise(op, process.words[place].writes(is.packet));
        process.unanswered += 1;
        let given = Some((data, flag.map(|(_, value)| value)));
        self.write_start_register(cx, returns, pe, Started { op, place, given });
        Ok(returns)
    }

    /// A put of the library's. Returns when its call may return.
    fn put(
        &mut self,
        cx: &mut Cx<'_>,
        pe: Pe,
        op: Op,
        (to, data, signal): (FarAddress, Payload, Option<Signal>),
        reuse: bool,
    ) -> Result<Ps, String> {
        let mut returns = Ok(cx.now());
        let [first, then] = words_of(to, data.len() as u32, signal.map(|signal| signal.at));
        if let Some((.., flag)) = first {
            let flag = flag.zip(signal.map(|signal| signal.value));
            returns = self.transfer(cx, pe, op, to, (data, flag), reuse);
        }
        if let (Some(_), Some(signal)) = (then, signal) {
            debug_assert_eq!(signal.op, SignalOp::Set, "signals that add are the agents'");
            let word = (Payload::word(FLAG_BYTES, signal.value), None);
            returns = returns.and_then(|_| self.transfer(cx, pe, op, signal.at, word, false));
        }
        returns
    }

    /// Answers what is asked about the words of a put.
    fn prepare(
        &mut self,
        cx: &mut Cx<'_>,
        pe: Pe,
        op: Op,
        (to, len, signal): (FarAddress, u32, Option<Signal>),
        step: CommandStep,
    ) {
        // The word for a signal that adds is the agent's, and differs from start to start.
        let signal = signal.filter(|signal| signal.op == SignalOp::Set);
        let words = words_of(to, len, signal.map(|signal| signal.at)).into_iter().flatten();
        match step {
            CommandStep::Keep | CommandStep::Drop => {
                words.for_each(|wanted| self.keep(cx, pe, op, wanted, step == CommandStep::Keep));
                let returns = self.processes[pe.index()].cpu.free().max(cx.now());
                cx.finish(returns, op, Answer::default());
            }
            CommandStep::Test | CommandStep::Complete => {
                // A word that has made room for another is not under way.
                let process = &self.processes[pe.index()];
                let places =
                    words.filter_map(|wanted| process.known.get(&wanted).copied()).collect();
                self.complete(cx, pe, op, places, step == CommandStep::Complete);
            }
        }
    }

    /// Keeps a word in its place, or gives it up.
    fn keep(&mut self, cx: &mut Cx<'_>, pe: Pe, op: Op, wanted: Transfer, kept: bool) {
        let half = self.is.command_words / 2;
        let process = &mut self.processes[pe.index()];
        if kept && process.words.iter().filter(|word| word.kept > 0).count() >= half {
            return;
        }
        // Without a place, the first start builds the word, or says that there is none.
        let place = match kept {
            true => self.word_for(cx, pe, op, wanted).ok(),
            false => process.known.get(&wanted).copied(),
        };
        if let Some(place) = place {
            let word = &mut self.processes[pe.index()].words[place];
            word.kept = if kept { word.kept + 1 } else { word.kept.saturating_sub(1) };
        }
    }

    /// Answers whether the transfers of these words are complete, or waits until they are.
    fn complete(&mut self, cx: &mut Cx<'_>, pe: Pe, op: Op, places: Vec<usize>, waits: bool) {
        let process = &mut self.processes[pe.index()];
        let under_way = places.iter().any(|&place| process.words[place].unanswered > 0);
        if under_way && waits {
            return process.completions.push(Completion { op, from: cx.now(), places });
        }
        let answer = match process.refusal_of(&places) {
            Some(why) if !under_way => Answer::refused(why),
            _ => Answer::value(u64::from(!under_way)),
        };
        let returns = self.cpu(cx, pe, op, &[("look", self.is.look)]);
        cx.finish(returns, op, answer);
    }

    /// The host writes the start register at `at`.
    fn write_start_register(&mut self, cx: &mut Cx<'_>, at: Ps, pe: Pe, started: Started) {
        let placed = &mut self.processes[pe.index()].words[started.place];
        placed.unanswered += 1;
        placed.refused = false;
        self.plans.at(cx, at, self.placement.node(pe), Plan::Start(started));
    }

    /// A command of the program's own.
    fn command(&mut self, cx: &mut Cx<'_>, pe: Pe, op: Op, command: &Command) {
        let (is, words) = (self.is, command.words);
        let system_call = [("system_call", is.system_call)];
        let answer = match command.code {
            ALLOW => {
                let area = Area {
                    region: words[0] as u32,
                    range: words[1]..words[1].saturating_add(words[2]),
                    key: words[3] as u32,
                };
                self.processes[pe.index()].keys.allow(area);
                (self.cpu(cx, pe, op, &system_call), Answer::default())
            }
            BUILD => {
                let word = command_word(command);
                let there = word.to.pe < self.pes && word.from.pe == pe.0;
                let answer = match there.then(|| self.place(pe, Placed::new(word, None))) {
                    None => Answer::refused(
                        "a command word goes from the caller's memory to that of a PE of the job; check both PEs",
                    ),
                    Some(Some(place)) => Answer::value(self.address(pe, place)),
                    Some(None) => Answer::refused(format!(
                        "there is no room for more than {} command words; start those again",
                        is.command_words
                    )),
                };
                (self.cpu(cx, pe, op, &system_call), answer)
            }
            START => {
                let how = if words[1] == 0 { Start::Direct } else { Start::SystemCall };
                let returns = self.cpu(cx, pe, op, &self.starting(how));
                (returns, self.write_register(cx, returns, pe, op, words[0], Mode::Privileged))
            }
            TEST => {
                let answer = match self.own_word(pe, words[0]) {
                    Ok(place) => Answer::value(self.processes[pe.index()].words[place].status()),
                    Err(why) => Answer::refused(why),
                };
                (self.cpu(cx, pe, op, &[("look", is.look)]), answer)
            }
            USER_STORE => {
                let trapped = self.cpu(cx, pe, op, &system_call);
                let answer = match words[0] {
                    START_REGISTER => {
                        self.write_register(cx, trapped, pe, op, words[1], Mode::User)
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

    /// The address of a process's word. Each process of a node has an equal part of the room for
    /// command words, one part behind the other.
    fn address(&self, pe: Pe, place: usize) -> u64 {
        KERNEL + self.number(pe, place) * WORD_BYTES
    }

    /// The place of the word at this address, if the process has built it. A word of another
    /// process of the node lies outside of this one's part.
    fn own_word(&self, pe: Pe, address: u64) -> Result<usize, String> {
        let place = (address.wrapping_sub(self.address(pe, 0)) / WORD_BYTES) as usize;
        match self.processes[pe.index()].words.get(place) {
            Some(Placed { used_for: None, .. }) if address.is_multiple_of(WORD_BYTES) => Ok(place),
            _ => Err(format!(
                "{address:#x} is not the address of a command word that this process has built"
            )),
        }
    }

    /// The CPU writes the address of a word of the program's to the start register.
    fn write_register(
        &mut self,
        cx: &mut Cx<'_>,
        at: Ps,
        pe: Pe,
        op: Op,
        address: u64,
        mode: Mode,
    ) -> Answer {
        match mode {
            Mode::Privileged => self.start(cx, at, pe, op, address),
            Mode::User => Answer::refused(format!(
                "a fault: the start register at {START_REGISTER:#x} is written in privileged mode \
                 only; start the command word instead, which switches the mode"
            )),
        }
    }

    /// Starts a word of the program's.
    fn start(&mut self, cx: &mut Cx<'_>, at: Ps, pe: Pe, op: Op, address: u64) -> Answer {
        let place = match self.own_word(pe, address) {
            Ok(place) => place,
            Err(why) => return Answer::refused(why),
        };
        let placed = self.processes[pe.index()].words[place];
        if placed.unanswered > 0 {
            return Answer::refused(
                "this command word is under way: test it before starting it again",
            );
        }
        cx.promise(op, placed.writes(self.is.packet));
        self.write_start_register(cx, at, pe, Started { op, place, given: None });
        Answer::default()
    }

    /// Ends a call that waits for all transfers, which the host has seen answered by `at`. Agents
    /// may still be at work for the PE; a look sees as soon as they are done.
    fn quiet(&mut self, cx: &mut Cx<'_>, at: Ps, pe: Pe, op: Op) {
        match self.processes[pe.index()].refused.take() {
            Some(why) => cx.finish(at, op, Answer::refused(why)),
            None => cx.finish_when_landed(at, op, self.is.look),
        }
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

    fn begin(&mut self, cx: &mut Cx<'_>, Call { op, what, .. }: Call) {
        let pe = op.pe.owner(self.pes);
        let returns = match what {
            HostOp::Store { to, word } => self.transfer(cx, pe, op, to, (word, None), false),
            HostOp::Put { to, data, signal, reuse } => {
                self.put(cx, pe, op, (to, data, signal), reuse)
            }
            HostOp::Prepare { to, len, signal, step } => {
                return self.prepare(cx, pe, op, (to, len, signal), step);
            }
            HostOp::Key { pe: of, region, key, step } => {
                let changes = self.processes[pe.index()].key(of, region, key, step);
                Ok(match changes {
                    true => self.cpu(cx, pe, op, &[("system_call", self.is.system_call)]),
                    false => cx.now(),
                })
            }
            // Packets of one sender to one receiver take one way, and the NIC serves words in the
            // order of their starting.
            HostOp::Fence => Ok(cx.now()),
            HostOp::Quiet => {
                match self.processes[pe.index()].unanswered {
                    0 => self.quiet(cx, cx.now() + self.is.look, pe, op),
                    _ => self.processes[pe.index()].quiets.push((op, cx.now())),
                }
                return;
            }
            HostOp::Command(command) => return self.command(cx, pe, op, &command),
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
        self.receive(cx, node, packet);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.plans.take(token) {
            Plan::Start(started) => self.send(cx, node, started),
            Plan::Arrive(packet) => self.receive(cx, node, packet),
        }
    }
}

#[cfg(test)]
mod tests;
