//! InfiniBand with multicast in the switch (DIMMnet-2): a NIC in a memory slot, whose buffer memory
//! is the program's.
//!
//! ```text
//! host:  software, command_write ─► core logic: decode, read, data path ─► InfiniSWIF: swif_send ─► link ─► switch: one port, or copies
//!                                                        MCP flag: destination LID := the group's                       │
//!        the receiver's memory ◄── write ◄── InfiniSWIF: LID mine? swif_receive, data path ◄───────────────────────── link
//! ```
//!
//! * Nothing is sent to a node that has no local id (LID). The subnet manager, on node 0, hands
//!   them out when the machine is switched on, by management packets on lane 15, which agents at
//!   nodes and switches answer (`subnet`).
//! * A packet says the LID for which it is; a NIC takes its own, and those of the groups that it
//!   has joined, and discards others.
//! * Joining a group is a request to the manager. With the last member's it writes the group's
//!   ports into the 512-byte tables of the switches (`management`), and tells the members the
//!   group's LID.
//! * A multicast packet is an unreliable datagram: a link that loses packets may lose it, or any of
//!   its copies, and nobody repairs that; so are those that the library's own multicast sends
//!   (`datagrams`). All else is sent by reliable connections, which the machine has never lose
//!   anything.
//! * The core logic moves `nic.width` bytes a cycle, and works on one packet at a time.

mod datagrams;
mod joining;
mod management;
mod subnet;

use super::{Call, Cx, Feature, Nic, Owner, Pe, Planned, Token, Unit};
use crate::host::{Answer, Command, GroupOp, HostOp, Op, Polling, Wanted};
use crate::machine::{Machine, MachineError, Rate};
use crate::network::Network;
use crate::packet::{Destination, Node, Packet, Payload};
use crate::time::Ps;
use datagrams::Inbox;
use joining::Joining;
pub use management::FIRST_GROUP;
use management::{
    ADMINISTRATION, DATA, DATAGRAM, DELETE, Datagram, GET, MANAGEMENT_LANE, MULTICAST_MEMBER,
    MULTICAST_TABLE, RESPONSE, SET, SUBNET,
};
use memonet_core::SignalOp;
use memonet_core::fabric::FarAddress;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use subnet::{Manager, NodeAgent, Place, SwitchAgent};

const WRITE_TABLE: u32 = 1;
const READ_TABLE: u32 = 2;
const LISTEN: u32 = 3;

/// A management packet to a switch: 32 groups of its multicast table, from [`FIRST_GROUP`] + 32
/// `block` on, get these ports, a bit each. Answered when the switch has done it.
pub fn write_table(switch: u32, block: u32, ports: &[u16; 32]) -> Command {
    let bytes: Vec<u8> = ports.iter().flat_map(|ports| ports.to_be_bytes()).collect();
    Command {
        code: WRITE_TABLE,
        words: [switch.into(), block.into(), 0, 0],
        data: Payload::copy(&bytes),
    }
}

/// A management packet that asks for the same. Answered with the 64 bytes, each group's ports with
/// the high byte first.
pub fn read_table(switch: u32, block: u32) -> Command {
    Command { code: READ_TABLE, words: [switch.into(), block.into(), 0, 0], data: Payload::EMPTY }
}

/// This node takes packets of a group from now on, or no longer, whatever the manager knows of it.
/// Answered with the node's own LID.
pub fn listen(group: u16, on: bool) -> Command {
    Command { code: LISTEN, words: [group.into(), on.into(), 0, 0], data: Payload::EMPTY }
}

#[derive(Debug, Clone, Copy)]
struct Parameters {
    look: Ps,
    software: Ps,
    command_write: Ps,
    decode: Ps,
    read: Ps,
    cycle: Ps,
    width: u64,
    packet_gap: Ps,
    swif_send: Ps,
    swif_receive: Ps,
    write: Ps,
    receive_buffers: u64,
    packet: usize,
    header: u32,
    acknowledge: Ps,
    management: Ps,
    link_rate: Rate,
}

#[derive(Debug, Clone, Default)]
struct NicOf {
    cpu: Unit,
    core: Unit,
    receiver: Unit,
    processor: Unit,
    agent: NodeAgent,
    /// Groups that this node has asked to join, by name: the calls that wait for it; and how many
    /// of the same members for the same there were.
    joining: BTreeMap<[u8; 16], Joining>,
    joined: BTreeMap<(Arc<[u32]>, Wanted), u16>,
    /// What has come by its groups for datagrams, by LID.
    inboxes: BTreeMap<u16, Inbox>,
    /// Transactions of commands of the program's own.
    asked: BTreeMap<u64, Op>,
    transactions: u64,
    /// Whether there has been a multicast since the last fence.
    has_multicast: bool,
}

/// The kind.
pub struct InfiniBand {
    is: Parameters,
    nics: Vec<NicOf>,
    switches: Vec<SwitchAgent>,
    switch_processors: Vec<Unit>,
    manager: Manager,
    /// PEs that join nothing any more.
    left: BTreeSet<u32>,
    /// Datagrams that a processor is working on.
    handled: Planned<(Place, Node, Datagram)>,
}

/// First header word: lane, flags, destination LID from bit 16, the PE in the high half.
const MULTICAST: u64 = 1 << 8;
/// A datagram: the second word is its group.
const DATAGRAM_FLAG: u64 = 1 << 10;
const LID: u32 = 16;
/// The lane of all that is not subnet management.
const DATA_LANE: u64 = 0;
/// Administration goes by that lane too.
const ADMINISTERS: u64 = 1 << 9;
/// LIDs of ports end here; those of groups begin.
const LAST_LID: u32 = 0xbfff;

impl InfiniBand {
    /// Reads the sections `host` and `nic`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, network: &Network) -> Result<InfiniBand, MachineError> {
        let (nic, host) = (machine.section("nic"), machine.section("host"));
        if network.switches() == 0 {
            return Err(machine
                .section("topology")
                .error("shape", "has no switch, and multicast needs one"));
        }
        let ports = network.nodes() + network.switches() as u32;
        if ports > LAST_LID {
            let problem = format!(
                "makes {ports} nodes and switches, and an InfiniBand subnet has {LAST_LID} local ids (more subnets, and routers between them, are not simulated); run fewer PEs"
            );
            return Err(machine.section("topology").error("shape", problem));
        }
        let (packet, width) = (nic.bytes("packet")?, nic.bytes("width")?);
        if !(64..=1 << 20).contains(&packet) {
            return Err(nic.error("packet", "must be from 64 B to 1 MiB"));
        }
        if width == 0 {
            return Err(nic.error("width", "is 0, and nothing would move"));
        }
        let is = Parameters {
            look: host.time_not_zero("look")?,
            software: host.time("software")?,
            command_write: host.time("command_write")?,
            decode: nic.time("decode")?,
            read: nic.time("read")?,
            cycle: Ps((1e6 / machine.section("clock").megahertz("fpga")?).round() as u64),
            width,
            packet_gap: nic.time("packet_gap")?,
            swif_send: nic.time("swif_send")?,
            swif_receive: nic.time("swif_receive")?,
            write: nic.time("write")?,
            receive_buffers: nic.count("receive_buffers")?,
            packet: packet as usize,
            header: nic.bytes_up_to("header", 1 << 16)? as u32,
            acknowledge: nic.time("acknowledge")?,
            management: nic.time("management")?,
            link_rate: machine.section("link").rate("rate")?,
        };
        Ok(InfiniBand {
            is,
            nics: vec![NicOf::default(); network.nodes() as usize],
            switches: vec![SwitchAgent::default(); network.switches()],
            switch_processors: vec![Unit::default(); network.switches()],
            manager: Manager::new(network),
            left: BTreeSet::new(),
            handled: Planned::new(Owner::Nic),
        })
    }

    /// The time in which the data path moves so many bytes.
    fn moved(&self, bytes: u32) -> Ps {
        self.is.cycle * u64::from(bytes).div_ceil(self.is.width)
    }

    /// Has the CPU write a command; gives when the core logic has it.
    fn command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> Ps {
        let cpu = &mut self.nics[node.index()].cpu;
        let software = cpu.take(cx.now(), self.is.software);
        let written = cpu.take(software.1, self.is.command_write);
        cx.host_stage("software", op, software);
        cx.host_stage("command_write", op, written);
        written.1
    }

    /// Sends data that the core logic is told of at `at`; gives when it has read all of it.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &mut self,
        cx: &mut Cx<'_>,
        at: Ps,
        node: Node,
        op: Op,
        way: Way,
        to: FarAddress,
        data: &Payload,
    ) -> Ps {
        let is = self.is;
        let read = if data.len() > 8 { is.read } else { Ps::ZERO };
        let nic = &mut self.nics[node.index()];
        let decoded = nic.core.take(at, is.decode);
        let ready = nic.core.take(decoded.1, read);
        cx.stage(node, "core", "decode", op, decoded);
        cx.stage(node, "core", "read", op, ready);
        let (mut sent, mut done) = (0, ready.1);
        loop {
            let part = data.part(sent, is.packet);
            let wire_bytes = is.header + part.len() as u32;
            let time = self.moved(wire_bytes);
            let busy = self.nics[node.index()].core.take(done, time + is.packet_gap);
            cx.stage(node, "core", "width", op, busy);
            let moved = busy.0 + time;
            done = busy.1;
            let (lid, flags, destination) = match way {
                Way::To(other) => (self.nics[other.index()].agent.lid, 0, Destination::Node(other)),
                // InfiniSWIF sees the flag, and replaces the destination by the group.
                Way::Group(group) => (group, MULTICAST, Destination::Multicast(group)),
                Way::Datagrams(group) => {
                    (group, MULTICAST | DATAGRAM_FLAG, Destination::Multicast(group))
                }
                Way::Datagram(other) => {
                    (self.nics[other.index()].agent.lid, DATAGRAM_FLAG, Destination::Node(other))
                }
            };
            let pe = if flags == 0 { u64::from(to.pe) } else { 0 };
            let packet = Packet {
                from: node,
                to: destination,
                wire_bytes,
                header: [
                    DATA_LANE | flags | u64::from(lid) << LID | pe << 32,
                    to.region.into(),
                    to.offset + sent as u64,
                    0,
                ],
                payload: part,
                op,
                droppable: flags != 0,
            };
            sent += packet.payload.len();
            self.hand_over(cx, busy.0, moved, node, packet);
            if sent >= data.len() {
                return done;
            }
        }
    }

    /// Hands a packet that the data path moves from `start` to `moved` to the link, so that its
    /// last bit leaves no earlier than it is there.
    fn hand_over(&mut self, cx: &mut Cx<'_>, start: Ps, moved: Ps, node: Node, packet: Packet) {
        let is = self.is;
        if packet.to == Destination::Node(node) {
            // Within the NIC: it never sees the link.
            self.receive(cx, moved, node, packet);
            return;
        }
        let serial = is.link_rate.time(packet.wire_bytes.into());
        let leaves = start.max(Ps(moved.0.saturating_sub(serial.0))) + is.swif_send;
        cx.stage(node, "InfiniSWIF", "swif_send", packet.op, (leaves - is.swif_send, leaves));
        cx.send(leaves, node, packet);
    }

    /// A packet of data whose last bit has come in by `at`.
    fn receive(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
        let is = self.is;
        let Packet { header, payload, op, wire_bytes, .. } = packet;
        let (lid, agent) = ((header[0] >> LID) as u16, &self.nics[node.index()].agent);
        let is_datagram = header[0] & DATAGRAM_FLAG != 0;
        if lid != agent.lid && !agent.groups.contains(&lid) {
            cx.discarded();
            if !is_datagram {
                cx.lost(op, 1);
            }
            return;
        }
        // The data path may begin when the head is there.
        let head = Ps(at.0.saturating_sub(is.link_rate.time(wire_bytes.into()).0));
        let time = self.moved(wire_bytes);
        let busy = self.nics[node.index()].receiver.take(head, time);
        let through = busy.1.max(at) + is.swif_receive;
        cx.stage(node, "InfiniSWIF", "swif_receive", op, (at, through));
        cx.stage(node, "receive", "write", op, (through, through + is.write));
        if is_datagram {
            self.came(cx, through + is.write, node, header[1] as u16, payload);
            return;
        }
        let to = FarAddress { pe: node.0, region: header[1] as u32, offset: header[2] };
        cx.write(through + is.write, op, to, payload);
    }

    /// Sends a datagram to the agent of a place or, as administration, to a node.
    fn manage(&mut self, cx: &mut Cx<'_>, from: Node, to: Place, datagram: &Datagram, op: Op) {
        if to == Place::Node(from) {
            self.handle(cx, to, from, datagram.clone());
            return;
        }
        let destination = match to {
            Place::Node(node) => Destination::Node(node),
            Place::Switch(switch) => Destination::Switch(switch),
        };
        cx.send(
            cx.now() + self.is.swif_send,
            from,
            packet(from, destination, self.is.header, datagram, op),
        );
    }

    /// A place's processor works on a datagram.
    fn handle(&mut self, cx: &mut Cx<'_>, place: Place, from: Node, datagram: Datagram) {
        let (processor, node) = match place {
            Place::Node(node) => (&mut self.nics[node.index()].processor, node),
            // Timers are nodes'; this one is not looked at for its node.
            Place::Switch(switch) => (&mut self.switch_processors[switch as usize], from),
        };
        let done = processor.take(cx.now(), self.is.management);
        self.handled.at(cx, done.1, node, (place, from, datagram));
    }

    /// A datagram has been worked on: what follows.
    fn handled(&mut self, cx: &mut Cx<'_>, place: Place, from: Node, datagram: &Datagram) {
        let switched_on = Op { pe: super::Pe(0), number: 0 };
        match place {
            Place::Switch(switch) => {
                let response =
                    self.switches[switch as usize].take(cx.network().switch_mut(switch), datagram);
                let packet =
                    packet(from, Destination::Node(from), self.is.header, &response, switched_on);
                cx.send_from_switch(cx.now(), switch, from, packet);
            }
            Place::Node(node) if datagram.class == SUBNET && datagram.method != RESPONSE => {
                let response = self.nics[node.index()].agent.take(datagram);
                self.manage(cx, node, Place::Node(from), &response, switched_on);
            }
            Place::Node(node) => {
                self.told(cx, node, datagram);
                if node == Node(0) {
                    self.manager.take(cx.network(), from, datagram);
                    for (place, datagram) in self.manager.next() {
                        self.manage(cx, node, place, &datagram, switched_on);
                    }
                }
            }
        }
    }

    /// A response to something that a program has asked for, if it is one.
    fn told(&mut self, cx: &mut Cx<'_>, node: Node, datagram: &Datagram) {
        if datagram.method != RESPONSE {
            return;
        }
        let nic = &mut self.nics[node.index()];
        let answered = match datagram.attribute {
            MULTICAST_MEMBER => {
                nic.joining.remove(&datagram.group()).map(|Joining { op, wanted, .. }| {
                    let group = datagram.group_lid();
                    if group != 0 {
                        nic.agent.groups.insert(group);
                    }
                    let mut value = u64::from(group);
                    if group != 0 && matches!(wanted, Wanted::Datagrams(_)) {
                        nic.inboxes.insert(group, Inbox::new(datagram.group()));
                        // The LID was another group's, of which something may still be on its way.
                        value |=
                            (datagram.transaction & 0xffff) << 16 | (self.is.packet as u64) << 32;
                    }
                    (op, Answer::value(value))
                })
            }
            _ => nic
                .asked
                .remove(&datagram.transaction)
                .map(|op| (op, Answer::data(Payload::copy(&datagram.data)))),
        };
        if let Some((op, answer)) = answered {
            cx.finish(cx.now() + self.is.look, op, answer);
        }
    }

    fn group(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        match what {
            GroupOp::Join { members, wanted } => self.join(cx, node, op, members, wanted),
            GroupOp::Multicast { group, to, data } => {
                let group = group as u16;
                let (switch, port) = cx.network().port_of(node).expect("there is a switch");
                let reached = cx.network().reached(switch, port, group);
                cx.promise(op, reached * data.len().div_ceil(self.is.packet).max(1) as u64);
                let told = self.command(cx, node, op);
                self.nics[node.index()].has_multicast = true;
                let read = self.send(cx, told, node, op, Way::Group(group), to, &data);
                self.finish_when_read(cx, told, if data.len() > 8 { read } else { told }, op);
            }
            GroupOp::Send { .. } | GroupOp::Receive(_) | GroupOp::Leave(_) => {
                self.datagram(cx, node, op, what)
            }
            GroupOp::Arrive(_)
            | GroupOp::Phase(_)
            | GroupOp::Collective { .. }
            | GroupOp::Result(_) => {
                cx.finish(
                    cx.now(),
                    op,
                    Answer::refused(
                        "InfiniBand has no such operation for groups: it has multicast",
                    ),
                );
            }
        }
    }

    /// The call returns when the host has seen that the NIC has read the source. A word is in the
    /// command; a block stays where it is until then.
    fn finish_when_read(&mut self, cx: &mut Cx<'_>, told: Ps, read: Ps, op: Op) {
        if read == told {
            cx.finish(told, op, Answer::default());
            return;
        }
        let polling = Polling { interval: self.is.look, sample: self.is.look };
        let seen = polling.seen(told, read);
        cx.host_stage("look", op, (told, seen));
        cx.finish(seen, op, Answer::default());
    }

    fn own_command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let switch = command.words[0];
        match command.code {
            WRITE_TABLE | READ_TABLE if switch >= self.switches.len() as u64 => {
                cx.finish(cx.now(), op, Answer::refused(format!("there is no switch {switch}")));
            }
            WRITE_TABLE | READ_TABLE => {
                let nic = &mut self.nics[node.index()];
                nic.transactions += 1;
                // Those of the manager count from 1, these from beyond.
                let transaction = nic.transactions | 1 << 63;
                nic.asked.insert(transaction, op);
                let method = if command.code == WRITE_TABLE { SET } else { GET };
                let mut datagram = Datagram::new(
                    SUBNET,
                    method,
                    MULTICAST_TABLE,
                    command.words[1] as u32,
                    transaction,
                );
                command.data.with(|bytes| {
                    datagram.data[..bytes.len().min(DATA)]
                        .copy_from_slice(&bytes[..bytes.len().min(DATA)])
                });
                self.manage(cx, node, Place::Switch(switch as u32), &datagram, op);
            }
            LISTEN => {
                let agent = &mut self.nics[node.index()].agent;
                let group = command.words[0] as u16;
                let answer = match (group >= FIRST_GROUP, command.words[1] != 0) {
                    (false, _) => Answer::refused(format!(
                        "{group:#x} is no group; their LIDs begin with {FIRST_GROUP:#x}"
                    )),
                    (true, on) => {
                        if on {
                            agent.groups.insert(group);
                        } else {
                            agent.groups.remove(&group);
                        }
                        Answer::value(agent.lid.into())
                    }
                };
                cx.finish(cx.now() + self.is.command_write, op, answer);
            }
            code => cx.finish(
                cx.now(),
                op,
                Answer::refused(format!("an InfiniBand NIC has no command {code}")),
            ),
        }
    }
}

/// Where the core logic sends to.
#[derive(Debug, Clone, Copy)]
enum Way {
    To(Node),
    Group(u16),
    /// Unreliable: to all members of a group, or to one.
    Datagrams(u16),
    Datagram(Node),
}

fn packet(from: Node, to: Destination, header: u32, datagram: &Datagram, op: Op) -> Packet {
    let lane = match datagram.class {
        SUBNET => MANAGEMENT_LANE,
        _ => DATA_LANE | ADMINISTERS,
    };
    Packet {
        from,
        to,
        wire_bytes: header + DATAGRAM as u32,
        header: [lane, 0, 0, 0],
        payload: datagram.payload(),
        op,
        droppable: false,
    }
}

impl Nic for InfiniBand {
    fn kind(&self) -> &'static str {
        "infiniband"
    }

    fn has(&self, feature: Feature) -> bool {
        matches!(feature, Feature::Groups | Feature::Datagrams)
    }

    fn polling(&self, _node: Node) -> Polling {
        Polling { interval: self.is.look, sample: self.is.look }
    }

    fn start(&mut self, cx: &mut Cx<'_>) {
        let switched_on = Op { pe: super::Pe(0), number: 0 };
        for (place, datagram) in self.manager.next() {
            self.manage(cx, Node(0), place, &datagram, switched_on);
        }
    }

    fn begin(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        let packets = |data: &Payload| data.len().div_ceil(self.is.packet) as u64;
        match what {
            HostOp::Store { to, word } => {
                cx.promise(op, 1);
                let told = self.command(cx, node, op);
                self.send(cx, told, node, op, Way::To(Node(to.pe)), to, &word);
                cx.finish(told, op, Answer::default());
            }
            HostOp::Put { to, data, signal, reuse } => {
                cx.promise(op, packets(&data) + u64::from(signal.is_some()));
                let told = self.command(cx, node, op);
                let mut read = told;
                if !data.is_empty() {
                    read = self.send(cx, told, node, op, Way::To(Node(to.pe)), to, &data);
                }
                if let Some(signal) = signal {
                    debug_assert_eq!(signal.op, SignalOp::Set, "signals that add are the agents'");
                    let word = Payload::word(8, signal.value);
                    self.send(cx, told, node, op, Way::To(Node(signal.at.pe)), signal.at, &word);
                }
                let block = reuse && data.len() > 8;
                self.finish_when_read(cx, told, if block { read } else { told }, op);
            }
            // Packets to one node take one way, but those of a group may wait for their copying
            // while others go on.
            HostOp::Fence if !std::mem::take(&mut self.nics[node.index()].has_multicast) => {
                cx.finish(cx.now(), op, Answer::default())
            }
            HostOp::Fence | HostOp::Quiet => {
                cx.finish_when_landed(cx.now(), op, self.is.acknowledge)
            }
            HostOp::Group(what) => self.group(cx, node, op, what),
            HostOp::Command(command) => self.own_command(cx, node, op, &command),
            HostOp::Get { .. } | HostOp::Atomic { .. } => {
                cx.finish(cx.now(), op, Answer::refused("this NIC has no such operation"))
            }
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        match packet.header[0] & 0xff {
            DATA_LANE if packet.header[0] & ADMINISTERS == 0 => {
                self.receive(cx, cx.now(), node, packet)
            }
            _ => self.handle(cx, Place::Node(node), packet.from, Datagram::read(&packet.payload)),
        }
    }

    fn timer(&mut self, cx: &mut Cx<'_>, _node: Node, token: Token) {
        let (place, from, datagram) = self.handled.take(token);
        self.handled(cx, place, from, &datagram);
    }

    fn at_switch(&mut self, cx: &mut Cx<'_>, switch: u32, packet: Packet) {
        self.handle(cx, Place::Switch(switch), packet.from, Datagram::read(&packet.payload));
    }

    fn left(&mut self, cx: &mut Cx<'_>, pe: Pe) {
        self.refuse_groups_with(cx, pe.0);
    }

    fn dropped(&mut self, cx: &mut Cx<'_>, packet: &Packet, missing: u64) {
        if packet.header[0] & DATAGRAM_FLAG == 0 {
            cx.lost(packet.op, missing);
        }
    }
}

#[cfg(test)]
mod tests;
