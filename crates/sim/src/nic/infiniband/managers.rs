//! The nodes' managers at work: when they sweep, who hears their datagrams, and what programs do to
//! cables.
//!
//! *Sweeps rest.* After a sweep before which no PE has called its NIC since the one before, and
//! after which no manager has anything to do, there is none until a PE calls again. Nothing is
//! missed, because cables and managers change by calls alone; and a machine whose PEs all wait for
//! ever comes to rest, as one without sweeps does.

use super::directed::Route;
use super::management::{
    ADMINISTRATION, DIRECTED, Datagram, FORWARDING_TABLE, GET, MANAGER_INFO, MULTICAST_MEMBER,
    NODE_INFO, NOTED, NodeInfo, PORT_INFO, PortInfo, RESPONSE, SET, SWITCH_INFO,
};
use super::nics::{InfiniBand, Later};
use super::processors::{SWITCHED_ON, packet};
use super::seats::Seat;
use super::subnet::Name;
use super::topology::Place;
use crate::host::Answer;
use crate::network::Network;
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Destination, Node};
use crate::time::Ps;
use crate::trace;

impl InfiniBand {
    /// Sends what a manager wants to send.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, seat: usize) {
        let node = self.seats[seat].manager.node;
        loop {
            let manager = &mut self.seats[seat].manager;
            let before = manager.waits_for();
            let datagrams = manager.next();
            let asked = manager.waits_for().filter(|_| before.is_none());
            for (place, datagram) in datagrams {
                self.manage(cx, node, place, &datagram, SWITCHED_ON);
            }
            if let (Some(transaction), Some(subnet)) = (asked, self.subnet) {
                let due = cx.now() + subnet.timeout;
                self.later.at(cx, due, node, Later::Unanswered(seat, transaction));
            }
            let manager = &mut self.seats[seat].manager;
            manager.regroup(cx.network());
            if manager.waits_for().is_some() || manager.is_idle() {
                return;
            }
        }
    }

    /// A datagram has come to a node that its agent does not answer: its manager hears of it.
    pub(super) fn at_manager(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        from: Node,
        datagram: &Datagram,
    ) {
        let here = |seat: &Seat| seat.manager.node == node && seat.works;
        let Some(seat) = self.seats.iter().position(here) else { return };
        let is_request = (datagram.method, datagram.attribute) == (SET, MULTICAST_MEMBER);
        if is_request && self.subnet.is_some() {
            let mut noted = Datagram { modifier: NOTED, ..datagram.response() };
            noted.set_group_lid(0);
            self.manage(cx, node, Place::Node(from), &noted, SWITCHED_ON);
        }
        self.seats[seat].manager.take(cx.network(), from, datagram);
        self.go_on(cx, seat);
    }

    /// A manager has waited for long enough.
    pub(super) fn unanswered(&mut self, cx: &mut Cx<'_>, seat: usize, transaction: u64) {
        if self.seats[seat].works {
            self.seats[seat].manager.unanswered(transaction);
            self.go_on(cx, seat);
        }
    }

    /// A PE calls its NIC.
    pub(super) fn called(&mut self, cx: &mut Cx<'_>) {
        let Some(subnet) = self.subnet else { return };
        self.sweeps.called = true;
        if !std::mem::replace(&mut self.sweeps.due, true) {
            let next = Ps((cx.now().0 / subnet.sweep.0 + 1) * subnet.sweep.0);
            self.later.at(cx, next, Node(0), Later::Sweep);
        }
    }

    /// The managers sweep.
    pub(super) fn sweep(&mut self, cx: &mut Cx<'_>) {
        let Some(subnet) = self.subnet else { return };
        let content = |seat: &Seat| !seat.works || seat.manager.is_content();
        let is_over = !self.sweeps.called && self.seats.iter().all(content);
        // A standby whose master has been stopped has still to find that out.
        let has_master = |seat: &Seat| seat.works && seat.manager.is_master();
        if is_over && self.seats.iter().any(has_master) {
            self.sweeps.due = false;
            return;
        }
        self.sweeps.called = false;
        for seat in 0..self.seats.len() {
            if self.seats[seat].works {
                self.seats[seat].manager.sweep();
                self.go_on(cx, seat);
            }
        }
        let next = cx.now() + subnet.sweep;
        self.later.at(cx, next, Node(0), Later::Sweep);
    }

    /// A datagram is at a place on its directed route, to which it came by this port, or where it
    /// begins.
    pub(super) fn direct(
        &mut self,
        cx: &mut Cx<'_>,
        (place, by): (Place, Option<u8>),
        from: Node,
        mut datagram: Datagram,
    ) {
        let Some(port) = datagram.route.step(by) else {
            return self.handle(cx, place, from, datagram);
        };
        let here = place.into();
        // A node sends nothing on; and where nothing is at the port, the datagram is lost.
        let goes = !(matches!(place, Place::Node(_)) && by.is_some());
        let next = cx.network().neighbour(here, port.into()).filter(|_| goes);
        let Some((next, port_there)) = next else { return };
        let to = match next {
            trace::Place::Node(node) => Destination::Node(node),
            trace::Place::Switch(switch) => Destination::Switch(switch),
        };
        let delay = match here {
            trace::Place::Node(_) => self.is.swif_send,
            trace::Place::Switch(_) => cx.network().switch_delay(),
        };
        let mut packet = packet(from, to, &self.is, &datagram, SWITCHED_ON);
        packet.header[1] = 1 + u64::from(port_there);
        cx.send_by(cx.now() + delay, here, port.into(), packet);
    }

    /// What the agent of a place answers to subnet management; nothing, if nobody is there to
    /// answer.
    pub(super) fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        place: Place,
        datagram: &Datagram,
    ) -> Option<Datagram> {
        let mut response = match place {
            Place::Switch(switch) => {
                self.switches[switch as usize].take(cx.network().switch_mut(switch), datagram)
            }
            Place::Node(node) => self.nics[node.index()].agent.take(datagram),
        };
        response.route = datagram.route.turned();
        match (place, datagram.method, datagram.attribute) {
            (_, GET, NODE_INFO) => {
                response.set_node_info(node_info(cx.network(), place, &datagram.route));
            }
            (_, GET, PORT_INFO) => {
                let lid = match place {
                    Place::Switch(switch) => self.switches[switch as usize].lid,
                    Place::Node(node) => self.nics[node.index()].agent.lid,
                };
                let port = datagram.modifier.checked_sub(1);
                let neighbour =
                    port.map(|port| cx.network().neighbour(place.into(), port as u16).is_some());
                let is_up = neighbour.unwrap_or(true);
                response.set_port_info(PortInfo { lid, is_up, ..PortInfo::default() });
            }
            (_, SET, PORT_INFO) => {
                let info = datagram.port_info();
                self.lids.insert(info.lid, place);
                if let (Place::Node(node), true) = (place, info.tell_groups) {
                    self.tell_groups(cx, node);
                }
            }
            (Place::Switch(switch), SET, SWITCH_INFO) => {
                self.switches[switch as usize].has_changed = false;
            }
            (Place::Switch(switch), GET, SWITCH_INFO) => {
                response.set_changed(self.switches[switch as usize].has_changed);
            }
            (Place::Switch(switch), SET, FORWARDING_TABLE) => {
                self.write_routes(cx, switch, datagram);
            }
            (Place::Node(node), GET, MANAGER_INFO) => {
                let here = |seat: &Seat| seat.manager.node == node && seat.works;
                return self.seats.iter().any(here).then_some(response);
            }
            _ => {}
        }
        Some(response)
    }

    /// A block of a switch's table of routes is written.
    fn write_routes(&mut self, cx: &mut Cx<'_>, switch: u32, datagram: &Datagram) {
        let first = datagram.modifier.saturating_mul(datagram.data.len() as u32);
        for (lid, &port) in (first..).zip(&datagram.data) {
            let Some(place) = u16::try_from(lid).ok().and_then(|lid| self.lids.get(&lid)) else {
                continue;
            };
            let to = match *place {
                Place::Node(node) => Destination::Node(node),
                Place::Switch(switch) => Destination::Switch(switch),
            };
            cx.network().set_entry(switch, to, port.into());
        }
    }

    /// The node whose manager is the master, as far as a node knows.
    pub(super) fn manager_of(&self, node: Node) -> Place {
        let known = self.lids.get(&self.nics[node.index()].agent.manager);
        known.copied().unwrap_or(Place::Node(Node(0)))
    }

    /// Asks the manager to join a group, or says that the node is in it already, with this LID.
    pub(super) fn ask_to_join(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        name: Name,
        lid: u16,
        op: Op,
    ) {
        let mut datagram = Datagram::new(ADMINISTRATION, SET, MULTICAST_MEMBER, 0, 0);
        datagram.data[..name.len()].copy_from_slice(&name);
        datagram.set_group_lid(lid);
        let manager = self.manager_of(node);
        self.manage(cx, node, manager, &datagram, op);
        if let (Some(subnet), 0) = (self.subnet, lid) {
            self.later.at(cx, cx.now() + subnet.timeout, node, Later::Join(node, name));
        }
    }

    /// A node tells a new manager its groups, and what it waits for.
    fn tell_groups(&mut self, cx: &mut Cx<'_>, node: Node) {
        let nic = &mut self.nics[node.index()];
        let member: Vec<(Name, u16)> =
            nic.member_of.iter().map(|(&name, &lid)| (name, lid)).collect();
        let asking: Vec<(Name, Op)> = nic
            .joining
            .iter_mut()
            .map(|(&name, joining)| {
                joining.noted = false;
                (name, joining.op)
            })
            .collect();
        for (name, lid) in member {
            self.ask_to_join(cx, node, name, lid, SWITCHED_ON);
        }
        for (name, op) in asking {
            self.ask_to_join(cx, node, name, 0, op);
        }
    }

    /// Asks once more to join a group, if the manager has not heard of it.
    pub(super) fn join_again(&mut self, cx: &mut Cx<'_>, node: Node, name: Name) {
        let joining = self.nics[node.index()].joining.get(&name);
        if let Some(op) = joining.filter(|joining| !joining.noted).map(|joining| joining.op) {
            self.ask_to_join(cx, node, name, 0, op);
        }
    }

    /// A program cuts a cable between two switches, or mends it.
    pub(super) fn cut(&mut self, cx: &mut Cx<'_>, op: Op, switch: u64, port: u64, is_cut: bool) {
        let answer = self.try_cut(cx, switch, port, is_cut);
        let answer = answer.map_or_else(Answer::refused, |()| Answer::default());
        cx.finish(cx.now(), op, answer);
    }

    fn try_cut(
        &mut self,
        cx: &mut Cx<'_>,
        switch: u64,
        port: u64,
        is_cut: bool,
    ) -> Result<(), String> {
        if self.subnet.is_none() || self.is.retransmit.is_none() {
            return Err("a cut cable would stop programs for ever: the machine needs a manager that sweeps (subnet.sweep), and connections that send again (nic.retransmit)".into());
        }
        let (switch, port) = (
            u32::try_from(switch).map_err(|_| format!("there is no switch {switch}"))?,
            u16::try_from(port).map_err(|_| format!("there is no port {port}"))?,
        );
        for switch in cx.network().set_cut(switch, port, is_cut)? {
            self.switches[switch as usize].has_changed = true;
        }
        Ok(())
    }

    /// A program stops the manager of a node.
    pub(super) fn stop_manager(&mut self, cx: &mut Cx<'_>, op: Op, node: u64) {
        let others =
            self.seats.iter().any(|seat| seat.works && u64::from(seat.manager.node.0) != node);
        let here =
            self.seats.iter_mut().find(|seat| seat.works && u64::from(seat.manager.node.0) == node);
        let answer = match here {
            Some(_) if !others => {
                Answer::refused(format!("the manager of node {node} is the only one"))
            }
            Some(seat) => {
                seat.works = false;
                Answer::default()
            }
            None => Answer::refused(format!("no manager runs on node {node}")),
        };
        cx.finish(cx.now(), op, answer);
    }

    /// The response to a datagram goes back.
    pub(super) fn respond(
        &mut self,
        cx: &mut Cx<'_>,
        place: Place,
        from: Node,
        response: Datagram,
    ) {
        debug_assert_eq!(response.method, RESPONSE);
        match place {
            _ if response.class == DIRECTED => self.direct(cx, (place, None), from, response),
            Place::Node(node) => self.manage(cx, node, Place::Node(from), &response, SWITCHED_ON),
            Place::Switch(switch) => {
                let packet =
                    packet(from, Destination::Node(from), &self.is, &response, SWITCHED_ON);
                cx.send_from_switch(cx.now(), switch, from, packet);
            }
        }
    }
}

/// What a place says of itself.
fn node_info(network: &Network, place: Place, route: &Route) -> NodeInfo {
    let by = route.came_by().unwrap_or(0);
    match place {
        Place::Switch(switch) => NodeInfo {
            is_switch: true,
            ports: network.ports_of(switch) as u8,
            guid: switch.into(),
            by,
        },
        Place::Node(node) => NodeInfo { is_switch: false, ports: 1, guid: node.0.into(), by },
    }
}
