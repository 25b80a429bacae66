//! The NICs of all nodes: their state, and the way of data out and in.

use super::agents::{NodeAgent, SwitchAgent};
use super::connection::{Connection, Stream};
use super::management::Datagram;
use super::seats::{Seat, Subnet, Sweeps};
use super::subnet::Name;
use super::topology::Place;
use super::window::{Reading, Window};
use crate::host::{Answer, Polling, Wanted};
use crate::machine::{Machine, MachineError, Rate};
use crate::network::Network;
use crate::nic::{Cx, Owner, Planned, Unit};
use crate::op::Op;
use crate::packet::{Destination, Node, Packet, Payload, Service};
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    pub look: Ps,
    pub software: Ps,
    pub command_write: Ps,
    pub decode: Ps,
    pub read: Ps,
    pub cycle: Ps,
    pub width: u64,
    pub packet_gap: Ps,
    pub swif_send: Ps,
    pub swif_receive: Ps,
    pub write: Ps,
    pub receive_buffers: u64,
    pub packet: usize,
    pub header: u32,
    pub acknowledge: Ps,
    pub management: Ps,
    /// When a packet is sent again that is not acknowledged. Without it, links lose no packets of
    /// connections.
    pub retransmit: Option<Ps>,
    /// Whether datagrams to groups are acknowledged and sent again, too.
    pub reliable_datagrams: bool,
    /// Bytes of the window of prefetches. Without it nothing is prefetched.
    pub window: Option<u64>,
    pub link_rate: Rate,
    /// Of all but datagrams and subnet management. What goes to one node so stays in order.
    pub service: Service,
    /// Of datagrams.
    pub datagram_service: Service,
}

#[derive(Debug, Clone, Default)]
pub struct NicOf {
    pub cpu: Unit,
    pub core: Unit,
    pub receiver: Unit,
    pub processor: Unit,
    pub agent: NodeAgent,
    /// Calls that wait to join a group, by the group's name.
    pub joining: BTreeMap<Name, Joining>,
    /// The groups that the node is in, and their LIDs.
    pub member_of: BTreeMap<Name, u16>,
    /// How many groups of these members, for this purpose, the node has asked to join before.
    pub joined: BTreeMap<(Arc<[u32]>, Wanted), u16>,
    /// Datagrams that have come to the node, by the LID of their group.
    pub inboxes: BTreeMap<u16, Inbox>,
    /// Commands of the program that wait for a response, by transaction.
    pub asked: BTreeMap<u64, Op>,
    pub transactions: u64,
    /// Whether the node has sent a multicast since the last fence.
    pub has_multicast: bool,
    /// Reliable connections, by the other node, and what for.
    pub connections: BTreeMap<(u32, Stream), Connection>,
    /// Transmissions of all connections.
    pub transmissions: u32,
    /// Packets of reliable datagrams to each group.
    pub datagrams: BTreeMap<u32, u32>,
    pub window: Window,
}

/// The NICs and switches of a machine.
pub struct InfiniBand {
    pub(super) is: Parameters,
    pub(super) nics: Vec<NicOf>,
    pub(super) switches: Vec<SwitchAgent>,
    pub(super) switch_processors: Vec<Unit>,
    /// The subnet managers: one, or a master and its standby.
    pub(super) seats: Vec<Seat>,
    pub(super) sweeps: Sweeps,
    /// What the section `subnet` says, if there is one.
    pub(super) subnet: Option<Subnet>,
    /// Who has which LID.
    pub(super) lids: BTreeMap<u16, Place>,
    /// PEs that have left the job, and so join nothing any more.
    pub(super) left: BTreeSet<u32>,
    pub(super) later: Planned<Later>,
}

/// What comes later.
pub enum Later {
    /// The processor of a place has worked on a management datagram from a node.
    Handled(Place, Node, Datagram),
    /// A node has waited for the acknowledgement of a packet to this one.
    Patience(Node, Stream),
    /// A node's core logic has brought so many bytes from this place into the window.
    Prefetched(Op, FarAddress, usize),
    /// The part of the window is filled that a host waits for.
    Filled(Op, Range<usize>),
    /// A host gets the next word of a read.
    Read(Reading),
    /// Nobody may have answered this transaction of a manager.
    Unanswered(usize, u64),
    /// The managers sweep.
    Sweep,
    /// A node's request to join a group may have been lost.
    Join(Node, Name),
}

/// A call that waits to join a group.
#[derive(Debug, Clone)]
pub struct Joining {
    pub op: Op,
    /// Whether the manager has heard of the request.
    pub noted: bool,
    pub wanted: Wanted,
    pub members: Arc<[u32]>,
}

/// Datagrams that have come by a group, each with the time from which it is there for the host.
#[derive(Debug, Clone)]
pub struct Inbox {
    pub name: Name,
    pub members: Arc<[u32]>,
    pub came: VecDeque<(Ps, Payload)>,
}

impl Inbox {
    pub fn new(name: Name, members: Arc<[u32]>) -> Inbox {
        Inbox { name, members, came: VecDeque::new() }
    }
}

/// Where the core logic sends to.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    To(Node),
    Group(u16),
    /// Datagrams, which are unreliable, to all members of a group.
    Datagrams(u16),
    /// Datagrams to one node.
    Datagram(Node),
}

/// The first word of a header says in bits 0 to 7 whether this is subnet management, and then has
/// flags, the destination LID from bit 16 on, and the PE in the high half. This flag says that the
/// packet is a multicast.
pub const MULTICAST: u64 = 1 << 8;
/// Flag of a datagram: the second word of the header is its group.
pub const DATAGRAM_FLAG: u64 = 1 << 10;
/// Where the destination LID begins, in the first word of a header.
pub const LID_SHIFT: u32 = 16;
/// What stands for all that is not subnet management. A packet's service says which lane of data it
/// has.
pub const DATA_LANE: u64 = 0;
/// Flag of administration, which goes by the lane of data.
pub const ADMINISTERS: u64 = 1 << 9;
/// The last LID of a port. LIDs of groups begin behind it.
const LAST_LID: u32 = 0xbfff;

impl InfiniBand {
    /// Reads the sections `host` and `nic`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, network: &mut Network) -> Result<InfiniBand, MachineError> {
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
        let (service, datagram_service) = services(machine)?;
        let mut is = Parameters {
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
            receive_buffers: nic.count_up_to("receive_buffers", u32::MAX.into())?,
            packet: packet as usize,
            header: nic.bytes_up_to("header", 1 << 16)? as u32,
            acknowledge: nic.time("acknowledge")?,
            management: nic.time("management")?,
            retransmit: None,
            reliable_datagrams: reliable_datagrams_of(machine)?,
            window: nic.has("window").then(|| nic.bytes_up_to("window", 1 << 20)).transpose()?,
            link_rate: machine.section("link").rate("rate")?,
            service,
            datagram_service,
        };
        is.retransmit = patience_of(machine, network, &is)?;
        let subnet = Subnet::read(machine, network)?;
        if subnet.is_some() {
            network.forget_routes();
        }
        Ok(InfiniBand {
            is,
            nics: vec![NicOf::default(); network.nodes() as usize],
            switches: vec![SwitchAgent::default(); network.switches()],
            switch_processors: vec![Unit::default(); network.switches()],
            seats: Subnet::managers(subnet, network),
            sweeps: Sweeps::default(),
            subnet,
            lids: BTreeMap::new(),
            left: BTreeSet::new(),
            later: Planned::new(Owner::Nic),
        })
    }

    /// The time that the data path takes for this many bytes.
    pub(super) fn moved(&self, bytes: u32) -> Ps {
        self.is.cycle * u64::from(bytes).div_ceil(self.is.width)
    }

    /// Has the CPU write a command. Returns when the core logic has it.
    pub(super) fn command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> Ps {
        let cpu = &mut self.nics[node.index()].cpu;
        let software = cpu.take(cx.now(), self.is.software);
        let written = cpu.take(software.1, self.is.command_write);
        cx.host_stage("software", op, software);
        cx.host_stage("command_write", op, written);
        written.1
    }

    /// Sends data by a command that the core logic has at `at`. Returns when the core logic has
    /// read all of the data.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn send(
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
        self.stream(cx, ready.1, node, op, way, to, data).0
    }

    /// Cuts data into packets, and hands them to InfiniSWIF from `at` on. Returns when the data
    /// path has moved all of them, and when the last has left.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn stream(
        &mut self,
        cx: &mut Cx<'_>,
        at: Ps,
        node: Node,
        op: Op,
        way: Way,
        to: FarAddress,
        data: &Payload,
    ) -> (Ps, Ps) {
        let is = self.is;
        let (mut sent, mut done) = (0, at);
        loop {
            let part = data.part(sent, is.packet);
            let wire_bytes = is.header + part.len() as u32;
            let time = self.moved(wire_bytes);
            let busy = self.nics[node.index()].core.take(done, time + is.packet_gap);
            cx.stage(node, "core", "width", op, (busy.0, busy.0 + time));
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
            let is_datagram = flags & DATAGRAM_FLAG != 0;
            let pe = if flags == 0 { u64::from(to.pe) } else { 0 };
            let packet = Packet {
                from: node,
                to: destination,
                wire_bytes,
                header: [
                    DATA_LANE | flags | u64::from(lid) << LID_SHIFT | pe << 32,
                    to.region.into(),
                    to.offset + sent as u64,
                    0,
                ],
                payload: part,
                op,
                service: if is_datagram { is.datagram_service } else { is.service },
                droppable: flags != 0,
            };
            sent += packet.payload.len();
            let left = self.hand_over(cx, moved, node, packet);
            if sent >= data.len() {
                return (done, left);
            }
        }
    }

    /// InfiniSWIF has a whole packet by `moved`, and hands it to the link. Returns when its last
    /// bit has left, if the link is free.
    pub(super) fn hand_over(
        &mut self,
        cx: &mut Cx<'_>,
        moved: Ps,
        node: Node,
        packet: Packet,
    ) -> Ps {
        let is = self.is;
        if packet.to == Destination::Node(node) {
            // The packet stays within the NIC and never sees the link.
            self.receive(cx, moved, node, packet);
            return moved;
        }
        let leaves = moved + is.swif_send;
        cx.stage(node, "InfiniSWIF", "swif_send", packet.op, (moved, leaves));
        let serial = is.link_rate.time(packet.wire_bytes.into());
        let packet = self.connect(cx, leaves, packet);
        cx.send(leaves, node, packet);
        leaves + serial
    }

    /// Whether a packet is for this node, or for a group to which it listens.
    pub(super) fn is_mine(&self, node: Node, packet: &Packet) -> bool {
        let (lid, agent) = ((packet.header[0] >> LID_SHIFT) as u16, &self.nics[node.index()].agent);
        lid == agent.lid || agent.groups.contains(&lid)
    }

    /// A packet of data whose last bit has come in by `at`.
    pub(super) fn receive(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
        let is_datagram = packet.header[0] & DATAGRAM_FLAG != 0;
        if !self.is_mine(node, &packet) {
            cx.discarded();
            if !is_datagram {
                cx.lost(packet.op, 1);
            }
            return;
        }
        let written = self.take_in(cx, at, node, &packet);
        match is_datagram {
            true => self.came(cx, written, node, packet.header[1] as u16, packet.payload),
            false => show(cx, written, node, packet),
        }
    }

    /// Takes a packet into the buffer memory that has come in by `at`. Returns when it is there.
    pub(super) fn take_in(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: &Packet) -> Ps {
        let is = self.is;
        let (op, time) = (packet.op, self.moved(packet.wire_bytes));
        // InfiniSWIF has the whole packet, and only then asks for the data path.
        let stored = at + is.swif_receive;
        cx.stage(node, "InfiniSWIF", "swif_receive", op, (at, stored));
        let busy = self.nics[node.index()].receiver.take(stored, time);
        cx.stage(node, "receive", "width", op, busy);
        let written = busy.1 + is.write;
        cx.stage(node, "receive", "write", op, (busy.1, written));
        written
    }

    /// Has a call return when the host has seen that the NIC has read the source. A word is part of
    /// the command; a block stays in the source until the NIC has read it.
    pub(super) fn finish_when_read(&mut self, cx: &mut Cx<'_>, told: Ps, read: Ps, op: Op) {
        if read == told {
            cx.finish(told, op, Answer::default());
            return;
        }
        let polling = Polling { interval: self.is.look, sample: self.is.look };
        let seen = polling.seen(told, read);
        cx.host_stage("look", op, (told, seen));
        cx.finish(seen, op, Answer::default());
    }
}

/// Has a node's host see the data of a packet at `at`.
pub(super) fn show(cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
    let Packet { header, payload, op, .. } = packet;
    let to = FarAddress { pe: node.0, region: header[1] as u32, offset: header[2] };
    cx.write(at, op, to, payload);
}

/// The services of what connections carry, and of datagrams, where links have lanes for them.
fn services(machine: &Machine) -> Result<(Service, Service), MachineError> {
    let nic = machine.section("nic");
    if !machine.section("lanes").has("count") {
        return Ok((Service::default(), Service::default()));
    }
    let service = |name, default| {
        let level = if nic.has(name) { nic.count(name)? } else { default };
        match level {
            0..16 => Ok(level),
            _ => Err(nic.error(name, format!("is {level}; levels of service are 0 to 15"))),
        }
    };
    let level = service("service", 0)?;
    let of_datagrams = service("datagram_service", level)?;
    Ok((Service::Level(level as u8), Service::Level(of_datagrams as u8)))
}

/// Whether datagrams to groups are reliable.
fn reliable_datagrams_of(machine: &Machine) -> Result<bool, MachineError> {
    let nic = machine.section("nic");
    if !nic.has("reliable_datagrams") {
        return Ok(false);
    }
    let are_reliable = nic.flag("reliable_datagrams")?;
    if are_reliable && !nic.has("retransmit") {
        let problem = "is true, and nic.retransmit does not say when they are sent again; add it";
        return Err(nic.error("reliable_datagrams", problem));
    }
    Ok(are_reliable)
}

/// The patience of reliable connections, where links lose their packets.
fn patience_of(
    machine: &Machine,
    network: &Network,
    is: &Parameters,
) -> Result<Option<Ps>, MachineError> {
    let nic = machine.section("nic");
    if !nic.has("retransmit") {
        return Ok(None);
    }
    let patience = nic.time_not_zero("retransmit")?;
    let (busy, least) = (busy_with_a_packet(is), there_and_back(network, is));
    if patience < busy || patience * MOST_IN_VAIN < least {
        let problem = format!(
            "is {patience}, and a packet keeps a link or the core logic busy for {busy}, and is acknowledged after {least}: it would be sent again in vain until nothing else gets through; make it longer"
        );
        return Err(nic.error("retransmit", problem));
    }
    Ok(Some(patience))
}

/// How often a packet may be sent again before it can have been acknowledged.
const MOST_IN_VAIN: u64 = 16;

/// How long a full packet keeps the slowest part busy: copies that come faster wait in line there.
fn busy_with_a_packet(is: &Parameters) -> Ps {
    let bytes = is.packet as u64 + u64::from(is.header);
    let moved = is.cycle * bytes.div_ceil(is.width) + is.packet_gap;
    moved.max(is.link_rate.time(bytes))
}

/// The least time from when a full packet has left for the last node to its acknowledgement.
fn there_and_back(network: &Network, is: &Parameters) -> Ps {
    let last = Node(network.nodes() - 1);
    let switches = network.way(Node(0), last).map_or(1, |way| way.len() as u64);
    let bytes = is.packet as u64 + 2 * u64::from(is.header);
    let delays = network.delay * (switches + 1) + network.switch_delay() * switches;
    delays * 2 + is.swif_receive + is.swif_send + is.link_rate.time(bytes)
}
