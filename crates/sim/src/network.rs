//! Links and switches: the cables, the routes, and where packets wait.
//!
//! A link carries one packet at a time in each direction; a packet waits until the link is free. A
//! switch takes a packet's output port from its routes or its multicast table, and from nothing
//! else. An output port serves packets in the order of coming, so contention is there. The routes
//! are written when the network is built, and follow the cables. A packet without an entry is
//! dropped, and ends the run with an error. A packet with several ports in the multicast table is
//! copied, and never sent back by the port by which it came. Without `switch.buffer`, buffers never
//! fill: a packet that waits for a port holds up nobody who waits for another one, and nothing is
//! lost. A machine that loses packets loses them on links, by a probability. The modules `flow`,
//! `lanes` and `ways` say what back-pressure, repeats, virtual lanes and source routing are.
//!
//! ```toml
//! [link]
//! rate    = ...           # bytes by time
//! delay   = ...           # cable, serialiser and deserialiser together: a time that does not depend on length
//! loss    = ...           # optional: probability that a link loses or damages a packet: one that may be lost; with `resend_buffer`, any
//! resend_buffer = ...     # optional: bytes that a link's sender keeps to repeat them; with it, what is lost is repeated
//!
//! [switch]
//! ports       = ...       # at one switch; may be left out for the shape "star", whose switch then has a port for each node
//! delay       = ...       # from the head's arrival until the head may leave
//! forwarding  = ...       # "cut-through" or "store-and-forward"
//! head        = ...       # bytes that must have come in before cut-through goes on
//! port_time   = ...       # optional: the least time for which a packet holds an output port
//! copy_time   = ...       # optional: how much later each further copy of a multicast packet begins
//! copy_rate   = ...       # optional: bytes by time of the unit that makes all copies of multicast packets, one after the other; they wait for it
//!
//! buffer      = ...       # optional: bytes of the buffer at each input; a full one stops who sends to it
//! routing     = ...       # optional: "table" (so without it), "source", or "table and source"
//! route_bytes = ...       # what a header has for each switch on its way, where packets carry ports
//!
//! [lanes]                 # optional, of kind `infiniband`
//! count       = ...       # lanes of data, 0 on; management has one besides
//! limit       = ...       # bytes by the high table before one packet of the low one
//! N.high      = ...       # what lane N sends at its turn in the high table; N.low: in the low one
//! service.N   = ...       # the lane of level N
//!
//! [topology]
//! shape = ...             # "direct": two nodes and a cable. "star": all at one switch. "tree": switches of `ports` ports in a tree, whose upward
//!                         # links are `fat` times as fast as those below. "full": a switch for each node, and a cable between any two of those.
//! ```

use crate::flow::{Flow, Input, Line};
use crate::lanes::Lanes;
use crate::machine::{Machine, MachineError, Rate, Section};
use crate::packet::{Destination, Node};
use crate::routes::Routes;
use crate::time::Ps;
use crate::trace::Place;
use crate::usage::{Carried, LinkUsage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// One direction of a cable.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) to: Place,
    /// Number of the port at `to`.
    pub(crate) port: u16,
    pub(crate) rate: Rate,
    pub(crate) free: Ps,
    pub(crate) carried: Carried,
    /// Whether the cable is cut.
    pub(crate) is_cut: bool,
    /// What the sender keeps for back-pressure and repeats, on machines that have them.
    pub(crate) line: Option<Box<Line>>,
}

/// A switch: its ports, and where it sends what.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// The cables out, by port.
    pub(crate) out: Vec<Option<Channel>>,
    /// Ports by destination, which [`Network::number`] numbers.
    pub(crate) routes: Routes,
    multicast: BTreeMap<u16, Vec<u16>>,
    /// When the unit that copies packets is free.
    copier: Ps,
    /// The buffers of the inputs, by port and then by lane, where buffers may fill.
    inputs: Vec<Input>,
}

impl Switch {
    /// A switch with these cables out, whose tables are empty.
    pub(crate) fn new(out: Vec<Option<Channel>>) -> Switch {
        Switch { out, ..Switch::default() }
    }

    /// The ports to which packets of a multicast group go.
    pub fn multicast(&self, group: u16) -> &[u16] {
        self.multicast.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Sets the ports to which packets of a multicast group go.
    pub fn set_multicast(&mut self, group: u16, ports: Vec<u16>) {
        self.multicast.insert(group, ports);
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.out.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Direct,
    Star,
    Tree,
    Full,
}

/// The links and switches of a machine.
#[derive(Debug, Clone)]
pub struct Network {
    pub(crate) nodes: u32,
    pub(crate) node_out: Vec<Vec<Option<Channel>>>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) delay: Ps,
    pub(crate) loss: f64,
    pub(crate) flow: Flow,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) switching: Switching,
    /// The ports, the last one first, on ways that programs have set.
    pub(crate) ways: BTreeMap<(Node, Node), Vec<u16>>,
}

/// A switch on a way, with the ports by which a packet comes and goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Which switch.
    pub switch: u32,
    /// The port by which the packet comes.
    pub by: u16,
    /// The port by which the packet goes.
    pub port: u16,
}

/// The properties that all switches share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switching {
    pub(crate) delay: Ps,
    pub(crate) cut_through: bool,
    pub(crate) head: u64,
    pub(crate) port_time: Ps,
    pub(crate) copy_time: Ps,
    pub(crate) copy_rate: Option<Rate>,
    /// Whether switches have tables.
    pub(crate) tables: bool,
    /// Whether packets may carry ports.
    pub(crate) sources: bool,
    /// Bytes of a header for each switch on its way.
    pub(crate) route_bytes: u32,
}

impl Network {
    /// Builds what the sections `link`, `switch` and `topology` describe.
    ///
    /// # Errors
    /// [`MachineError`], also when the shape cannot have so many nodes.
    pub fn build(machine: &Machine, nodes: u32) -> Result<Network, MachineError> {
        let link = machine.section("link");
        let topology = machine.section("topology");
        let shapes = [
            ("direct", Shape::Direct),
            ("star", Shape::Star),
            ("tree", Shape::Tree),
            ("full", Shape::Full),
        ];
        let shape = topology.choice("shape", &shapes)?;
        let rate = link.rate("rate")?;
        let loss = if link.has("loss") { link.probability("loss")? } else { 0.0 };
        let mut network = Network {
            nodes,
            node_out: vec![Vec::new(); nodes as usize],
            switches: Vec::new(),
            delay: link.time("delay")?,
            loss,
            flow: Flow::read(machine, loss, shape != Shape::Direct)?,
            lanes: Arc::new(Lanes::read(machine)?),
            switching: Switching::NONE,
            ways: BTreeMap::new(),
        };
        match shape {
            Shape::Direct if nodes > 2 => {
                return Err(topology.error(
                    "shape",
                    format!("is \"direct\", which is a cable between two nodes, not {nodes}"),
                ));
            }
            Shape::Direct => {
                // The cable of a single node is a loop.
                for node in 0..nodes {
                    let other = Place::Node(Node(nodes - 1 - node));
                    network.node_out[node as usize] =
                        vec![Some(network.new_channel(other, 0, rate))];
                }
            }
            _ => network.add_switches(machine, shape, rate)?,
        }
        match shape {
            Shape::Full => network.fill_full_tables(),
            _ => network.fill_tables(),
        }
        network.add_inputs();
        Ok(network)
    }

    /// A direction of a cable to a port.
    pub(crate) fn new_channel(&self, to: Place, port: u16, rate: Rate) -> Channel {
        let (free, carried) = (Ps::ZERO, Carried::default());
        Channel { to, port, rate, free, carried, is_cut: false, line: self.flow.line(&self.lanes) }
    }

    /// The cables out of a place, by port.
    pub(crate) fn out_mut(&mut self, place: Place) -> &mut Vec<Option<Channel>> {
        match place {
            Place::Node(node) => &mut self.node_out[node.index()],
            Place::Switch(switch) => &mut self.switches[switch as usize].out,
        }
    }

    /// A lane's buffer at an input of a switch.
    pub(crate) fn input_mut(&mut self, switch: u32, port: u16, lane: u8) -> &mut Input {
        let place = usize::from(port) * self.lanes.count() + usize::from(lane);
        &mut self.switches[switch as usize].inputs[place]
    }

    /// Gives switches the buffers that may fill.
    fn add_inputs(&mut self) {
        if self.flow.buffer.is_some() {
            let lanes = self.lanes.count();
            for switch in &mut self.switches {
                switch.inputs = vec![Input::default(); switch.out.len() * lanes];
            }
        }
    }

    /// Whether switches have tables.
    pub fn has_tables(&self) -> bool {
        self.switching.tables
    }

    /// A switch, to set its tables.
    pub fn switch_mut(&mut self, switch: u32) -> &mut Switch {
        &mut self.switches[switch as usize]
    }

    /// Number of switches.
    pub fn switches(&self) -> usize {
        self.switches.len()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// What went over each direction of each link, for those over which something went; the busiest
    /// first.
    pub(crate) fn links(&self) -> Vec<LinkUsage> {
        let nodes = (0..).map(|node| Place::Node(Node(node))).zip(&self.node_out);
        let switches = self.switches.iter().map(|switch| &switch.out);
        let switches = (0..).map(Place::Switch).zip(switches);
        let mut links: Vec<LinkUsage> = Vec::new();
        for (from, out) in nodes.chain(switches) {
            for (port, channel) in (0..).zip(out) {
                let used = channel.as_ref().filter(|channel| channel.carried.packets > 0);
                links.extend(used.map(|&Channel { to, carried, .. }| LinkUsage {
                    from,
                    port,
                    to,
                    carried,
                }));
            }
        }
        links.sort_by_key(|link| std::cmp::Reverse(link.carried.busy));
        links
    }

    /// Forgets what links have carried: the job begins now.
    pub(crate) fn count_anew(&mut self) {
        let switches = self.switches.iter_mut().map(|switch| &mut switch.out);
        let outs = self.node_out.iter_mut().chain(switches);
        outs.flatten().flatten().for_each(|channel| channel.carried = Carried::default());
    }

    /// Changes an entry of a switch's table: packets to `node` leave by this port from now on.
    /// Without a port they are dropped.
    ///
    /// # Errors
    /// A sentence, when there is no such switch or node, or no cable at the port.
    pub fn set_route(&mut self, switch: u32, node: Node, port: Option<u16>) -> Result<(), String> {
        let (switches, nodes) = (self.switches.len(), self.nodes);
        if !self.has_tables() {
            return Err(format!(
                "a route at switch {switch}, which has no table: packets of this machine carry their ports (switch.routing); set the sender's way"
            ));
        }
        let Some(here) = self.switches.get_mut(switch as usize).filter(|_| node.0 < nodes) else {
            return Err(format!(
                "a route at switch {switch} to node {}: there are {switches} switches and {nodes} nodes",
                node.0
            ));
        };
        if let Some(port) =
            port.filter(|&port| !matches!(here.out.get(usize::from(port)), Some(Some(_))))
        {
            return Err(format!(
                "a route by port {port} of switch {switch}, at which there is no cable"
            ));
        }
        here.routes.set(alone(node.0), port);
        Ok(())
    }

    /// Changes an entry of a switch's table, which may be for a switch. A port without a cable is
    /// none.
    pub(crate) fn set_entry(&mut self, switch: u32, to: Destination, port: u16) {
        let number = self.number(to);
        let Switch { out, routes, .. } = &mut self.switches[switch as usize];
        let port = Some(port).filter(|&port| matches!(out.get(usize::from(port)), Some(Some(_))));
        routes.set(alone(number), port);
    }

    /// Empties the tables of routes.
    pub(crate) fn forget_routes(&mut self) {
        self.switches.iter_mut().for_each(|switch| switch.routes = Routes::default());
    }

    /// What a packet takes through a switch.
    pub(crate) fn switch_delay(&self) -> Ps {
        self.switching.delay
    }

    /// Number of ports of a switch.
    pub(crate) fn ports_of(&self, switch: u32) -> usize {
        self.switches[switch as usize].ports()
    }

    /// Number of ports of the largest switch.
    pub(crate) fn most_ports(&self) -> usize {
        self.switches.iter().map(Switch::ports).max().unwrap_or(0)
    }

    fn channel_at(&self, place: Place, port: u16) -> Option<&Channel> {
        let out = match place {
            Place::Node(node) => &self.node_out[node.index()],
            Place::Switch(switch) => &self.switches[switch as usize].out,
        };
        out.get(usize::from(port))?.as_ref()
    }

    /// Whom the cable at a port leads to, and by which port there, if the cable is whole.
    pub(crate) fn neighbour(&self, place: Place, port: u16) -> Option<(Place, u16)> {
        let channel = self.channel_at(place, port).filter(|channel| !channel.is_cut)?;
        Some((channel.to, channel.port))
    }

    /// Cuts the cable between two switches at a port of one of them, or mends it. Returns the two.
    ///
    /// # Errors
    /// A sentence, when there is no such cable, when the rest would fall apart, or when packets
    /// wait in line at links.
    pub(crate) fn set_cut(
        &mut self,
        switch: u32,
        port: u16,
        is_cut: bool,
    ) -> Result<[u32; 2], String> {
        let here = (switch as usize) < self.switches.len();
        let place = Place::Switch(switch);
        let channel = here.then(|| self.channel_at(place, port)).flatten();
        let Some(&Channel { to, port: port_there, ref line, .. }) = channel else {
            return Err(format!("there is no cable at port {port} of switch {switch}"));
        };
        let Place::Switch(other) = to else {
            return Err(format!(
                "the cable at port {port} of switch {switch} leads to {to}, which would be cut off"
            ));
        };
        if line.is_some() {
            return Err("packets wait in line at the links of this machine, and a cut cable would stop them for ever; remove switch.buffer, link.resend_buffer and lanes".into());
        }
        for (place, port) in [(place, port), (to, port_there)] {
            let cable = self.out_mut(place)[usize::from(port)].as_mut();
            cable.expect("a cable has two ends").is_cut = is_cut;
        }
        if !self.holds_together() {
            for (place, port) in [(place, port), (to, port_there)] {
                let cable = self.out_mut(place)[usize::from(port)].as_mut();
                cable.expect("a cable has two ends").is_cut = false;
            }
            return Err(format!(
                "without the cable at port {port} of switch {switch} nodes would be cut off"
            ));
        }
        Ok([switch, other])
    }

    /// Whether cables that are whole connect all switches.
    fn holds_together(&self) -> bool {
        let mut reached = BTreeSet::from([0]);
        let mut next = vec![0];
        while let Some(switch) = next.pop() {
            for port in 0..self.ports_of(switch) as u16 {
                if let Some((Place::Switch(other), _)) = self.neighbour(Place::Switch(switch), port)
                    && reached.insert(other)
                {
                    next.push(other);
                }
            }
        }
        reached.len() == self.switches.len()
    }

    /// The switch and port that a node's cable leads to, if it leads to a switch.
    pub fn port_of(&self, node: Node) -> Option<(u32, u16)> {
        match self.node_out[node.index()].first()?.as_ref()? {
            Channel { to: Place::Switch(switch), port, .. } => Some((*switch, *port)),
            _ => None,
        }
    }

    /// The number of a destination in tables of routes. Nodes come first.
    fn number(&self, to: Destination) -> u32 {
        match to {
            Destination::Node(node) => node.0,
            Destination::Switch(switch) => self.nodes + switch,
            Destination::Multicast(_) => panic!("{to:?} is not in routes"),
        }
    }

    /// The ports by which a switch sends on a packet for a group that has come by the port `by`:
    /// the first one, if there is any, and the others.
    pub(crate) fn copied(&self, switch: u32, group: u16, by: u16) -> (Option<u16>, Vec<u16>) {
        let ports = self.switches[switch as usize].multicast(group);
        let mut others = ports.iter().copied().filter(|&port| port != by);
        (others.next(), others.collect())
    }

    /// The port by which a switch sends on a packet for one node or switch, if its table has an
    /// entry.
    pub(crate) fn route(&self, switch: u32, to: Destination) -> Option<u16> {
        self.switches[switch as usize].routes.port(self.number(to))
    }

    /// The switches on the way from one node to another, by their tables as they are now. Nothing,
    /// when the tables do not lead there.
    pub fn way(&self, from: Node, to: Node) -> Option<Vec<Hop>> {
        let mut hops = Vec::new();
        let mut channel = self.node_out[from.index()].first()?.as_ref()?;
        loop {
            let switch = match channel.to {
                Place::Node(node) => return (node == to).then_some(hops),
                // A longer way would be a circle.
                Place::Switch(_) if hops.len() == self.switches.len() => return None,
                Place::Switch(switch) => switch,
            };
            let port = self.route(switch, Destination::Node(to))?;
            let by = channel.port;
            hops.push(Hop { switch, by, port });
            channel = self.switches[switch as usize].out.get(usize::from(port))?.as_ref()?;
        }
    }

    /// The time from when a packet leaves a node until its head is at another one, if nothing is in
    /// its way. Nothing, when no way leads there.
    pub(crate) fn crossing(&self, from: Node, to: Node, wire_bytes: u64) -> Option<Ps> {
        let Switching { delay, cut_through, head, .. } = self.switching;
        let before_it_goes_on = if cut_through { wire_bytes.min(head) } else { wire_bytes };
        let mut ports = self.carried(Place::Node(from), Destination::Node(to));
        // A longer way would be a circle.
        let most = ports.len().max(self.switches.len());
        let mut channel = self.node_out[from.index()].first()?.as_ref()?;
        let mut time = self.delay;
        for _ in 0..=most {
            let switch = match channel.to {
                Place::Node(node) => return (node == to).then_some(time),
                Place::Switch(switch) => switch,
            };
            time = time + channel.rate.time(before_it_goes_on) + delay + self.delay;
            let port = ports.pop().or_else(|| self.route(switch, Destination::Node(to)))?;
            channel = self.switches[switch as usize].out.get(usize::from(port))?.as_ref()?;
        }
        None
    }

    /// The ports, by switch, of a tree that connects these nodes. Multicast tables with these ports
    /// serve any of the nodes as sender. Nothing, when there is no such tree.
    pub fn spanning(&self, nodes: &[Node]) -> Option<BTreeMap<u32, BTreeSet<u16>>> {
        let mut tree: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
        for &node in nodes {
            for Hop { switch, by, port } in self.way(nodes[0], node)? {
                tree.entry(switch).or_default().extend([by, port]);
            }
        }
        Some(tree)
    }

    /// How many nodes a multicast packet will reach that has come to a switch by the port `by`.
    pub(crate) fn reached(&self, switch: u32, by: u16, group: u16) -> u64 {
        let here = &self.switches[switch as usize];
        let ports = here.multicast(group).iter().filter(|&&port| port != by);
        let reached = ports.map(|&port| match here.out.get(usize::from(port)) {
            Some(Some(Channel { to: Place::Node(_), .. })) => 1,
            Some(Some(Channel { to: Place::Switch(next), port, .. })) => {
                self.reached(*next, *port, group)
            }
            _ => 0,
        });
        reached.sum()
    }

    /// The most readers whom a switch's copies reach faster than PEs that pass blocks on. A tree
    /// of PEs gives each reader a third of a link's rate, and a little more; a switch that copies
    /// for one after the other gives each its part of the rate of copying.
    pub(crate) fn most_copies(&self) -> u32 {
        let link = self.node_out.first().and_then(|out| out.first()?.as_ref());
        let (Some(link), Some(copies)) = (link, self.switching.copy_rate) else { return u32::MAX };
        const BYTES: u64 = 1 << 20;
        let most = 3 * link.rate.time(BYTES).0 / copies.time(BYTES).0.max(1);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// When the first copy of a packet begins that a switch could send on at `at`, and by how much
    /// each further copy is later.
    pub(crate) fn copies(&mut self, switch: u32, at: Ps, copies: u64, wire_bytes: u64) -> (Ps, Ps) {
        let Switching { copy_time, copy_rate, .. } = self.switching;
        match copy_rate.filter(|_| copies > 1) {
            None => (at, copy_time),
            Some(rate) => {
                let each = copy_time + rate.time(wire_bytes);
                let copier = &mut self.switches[switch as usize].copier;
                let start = at.max(*copier);
                *copier = start + each * copies;
                (start, each)
            }
        }
    }
}

/// One number as a range.
pub(crate) fn alone(number: u32) -> Range<u32> {
    number..number + 1
}

impl Switching {
    /// Of a machine without switches.
    const NONE: Switching = Switching {
        delay: Ps::ZERO,
        cut_through: false,
        head: 0,
        port_time: Ps::ZERO,
        copy_time: Ps::ZERO,
        copy_rate: None,
        tables: true,
        sources: false,
        route_bytes: 0,
    };

    pub(crate) fn read(section: &Section<'_>) -> Result<Switching, MachineError> {
        let optional =
            |name: &str| if section.has(name) { section.time(name) } else { Ok(Ps::ZERO) };
        let forwarding = [("cut-through", true), ("store-and-forward", false)];
        let cut_through = section.choice("forwarding", &forwarding)?;
        let (tables, sources) = routing(section)?;
        let route_bytes = if sources { section.bytes_up_to("route_bytes", 64)? as u32 } else { 0 };
        Ok(Switching {
            delay: section.time("delay")?,
            cut_through,
            head: if cut_through { section.bytes_up_to("head", 1 << 16)? } else { 0 },
            port_time: optional("port_time")?,
            copy_time: optional("copy_time")?,
            copy_rate: section.has("copy_rate").then(|| section.rate("copy_rate")).transpose()?,
            tables,
            sources,
            route_bytes,
        })
    }
}

/// Whether switches have tables, and whether packets may carry ports.
fn routing(switch: &Section<'_>) -> Result<(bool, bool), MachineError> {
    if !switch.has("routing") {
        return Ok((true, false));
    }
    let choices =
        [("table", (true, false)), ("source", (false, true)), ("table and source", (true, true))];
    let (tables, sources) = switch.choice("routing", &choices)?;
    if !tables && switch.has("multicast_groups") {
        let problem = "is of no use: switches that route by source alone (switch.routing) have no tables for multicast; remove it";
        return Err(switch.error("multicast_groups", problem));
    }
    Ok((tables, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a tree of any size, tables lead from each node and switch to each, never further up than
    /// they must.
    #[test]
    fn tables_lead_everywhere() {
        let text = include_str!("../../../machines/dimmnet-1.toml")
            .replace("switch.ports = { value = 8,", "switch.ports = { value = 4,");
        for (variant, most) in [("D-tree", 30u32), ("D-switch", 4)] {
            for nodes in 1..=most {
                let network =
                    Network::build(&Machine::parse("small", &text, Some(variant)).unwrap(), nodes)
                        .unwrap();
                for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
                    let levels = (1..)
                        .find(|&level| from / 3u32.pow(level) == to / 3u32.pow(level))
                        .unwrap();
                    let hops = if variant == "D-tree" { 2 * levels - 1 } else { 1 };
                    let way = network.way(Node(from), Node(to)).expect("tables lead there");
                    assert_eq!(way.len(), hops as usize, "{from} to {to} of {nodes} at {variant}");
                }
                let switches = network.switches() as u32;
                for (from, to) in
                    (0..switches).flat_map(|from| (0..switches).map(move |to| (from, to)))
                {
                    let (mut at, mut hops) = (from, 0);
                    while at != to {
                        let port = network.route(at, Destination::Switch(to)).expect("an entry");
                        let channel = network.switches[at as usize].out[usize::from(port)]
                            .as_ref()
                            .expect("a cable");
                        let Place::Switch(next) = channel.to else {
                            panic!("to switch {to} by {:?}", channel.to)
                        };
                        (at, hops) = (next, hops + 1);
                        assert!(hops < 2 * switches, "from switch {from} to {to}");
                    }
                }
            }
        }
    }
}
