//! Links and switches: the cables, the routes, and where packets wait.
//!
//! A link carries one packet at a time in each direction; a packet waits until the link is free. A
//! switch takes a packet's output port from its routes or its multicast table, and from nothing
//! else. An output port serves packets in the order of coming, so contention is there. The routes
//! are written when the network is built, and follow the cables. A packet without an entry is
//! dropped, and ends the run with an error. A packet with several ports in the multicast table is
//! copied, and never sent back by the port by which it came. Buffers do not overflow: a packet that
//! waits does not hold up others (no back-pressure). A machine that loses packets loses them on
//! links, by a probability.
//!
//! ```toml
//! [link]
//! rate    = ...           # bytes by time
//! delay   = ...           # cable, serialiser and deserialiser together: a time that does not depend on length
//! loss    = ...           # optional: probability that a link loses a packet that may be lost
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
//! [topology]
//! shape = ...             # "direct": two nodes and a cable. "star": all at one switch. "tree": switches of `ports` ports in a tree, whose upward
//!                         # links are `fat` times as fast as those below.
//! ```

use crate::machine::{Machine, MachineError, Rate, Section};
use crate::packet::{Destination, Node};
use crate::routes::Routes;
use crate::time::Ps;
use crate::trace::Place;
use crate::usage::{Carried, LinkUsage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One direction of a cable.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) to: Place,
    /// Number of the port at `to`.
    pub(crate) port: u16,
    pub(crate) rate: Rate,
    pub(crate) free: Ps,
    pub(crate) carried: Carried,
}

/// A switch: its ports, and where it sends what.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// The cables out, by port.
    pub(crate) out: Vec<Option<Channel>>,
    /// Ports by destination, which [`Network::number`] numbers.
    routes: Routes,
    multicast: BTreeMap<u16, Vec<u16>>,
    /// When the unit that copies packets is free.
    copier: Ps,
}

impl Switch {
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
enum Shape {
    Direct,
    Star,
    Tree,
}

/// The links and switches of a machine.
#[derive(Debug, Clone)]
pub struct Network {
    nodes: u32,
    pub(crate) node_out: Vec<Vec<Option<Channel>>>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) delay: Ps,
    pub(crate) loss: f64,
    pub(crate) switching: Switching,
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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Switching {
    pub(crate) delay: Ps,
    pub(crate) cut_through: bool,
    pub(crate) head: u64,
    pub(crate) port_time: Ps,
    pub(crate) copy_time: Ps,
    pub(crate) copy_rate: Option<Rate>,
}

impl Network {
    /// Builds what the sections `link`, `switch` and `topology` describe.
    ///
    /// # Errors
    /// [`MachineError`], also when the shape cannot have so many nodes.
    pub fn build(machine: &Machine, nodes: u32) -> Result<Network, MachineError> {
        let link = machine.section("link");
        let topology = machine.section("topology");
        let shapes = [("direct", Shape::Direct), ("star", Shape::Star), ("tree", Shape::Tree)];
        let shape = topology.choice("shape", &shapes)?;
        let rate = link.rate("rate")?;
        let mut network = Network {
            nodes,
            node_out: vec![Vec::new(); nodes as usize],
            switches: Vec::new(),
            delay: link.time("delay")?,
            loss: if link.has("loss") { link.probability("loss")? } else { 0.0 },
            switching: Switching::default(),
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
                    network.node_out[node as usize] =
                        vec![Some(Channel::to(Place::Node(Node(nodes - 1 - node)), 0, rate))];
                }
            }
            Shape::Star | Shape::Tree => network.add_switches(machine, shape, rate)?,
        }
        network.fill_tables();
        Ok(network)
    }

    fn add_switches(
        &mut self,
        machine: &Machine,
        shape: Shape,
        rate: Rate,
    ) -> Result<(), MachineError> {
        let section = machine.section("switch");
        self.switching = Switching::read(&section)?;
        if shape == Shape::Star {
            if section.has("ports") && section.count("ports")? < u64::from(self.nodes) {
                let (ports, nodes) = (section.count("ports")?, self.nodes);
                let problem = format!("is {ports}, too few for {nodes} nodes at one switch");
                return Err(section.error("ports", problem));
            }
            self.add_level(None, self.nodes, self.nodes.max(1), rate);
            return Ok(());
        }
        let ports = section.count("ports")?;
        if !(3..=1024).contains(&ports) {
            let problem = format!("is {ports}; the switches of a tree have from 3 to 1024");
            return Err(section.error("ports", problem));
        }
        let fat = machine.section("topology").count("fat")?.max(1);
        // Links down from a switch of the tree.
        let down = ports as u32 - 1;
        let (mut lower, mut below, mut rate) = (None, self.nodes, rate);
        loop {
            let (first, here) = self.add_level(lower, below, down, rate);
            if here == 1 {
                return Ok(());
            }
            (lower, below, rate) = (Some(first), here, rate.times(fat));
        }
    }

    /// Adds a level of switches, with up to `down` links down from each, and links it to the
    /// `below` nodes or switches of the level below. `lower` is the first of those switches;
    /// without it, nodes are below. Returns the first switch of the level, and their number.
    fn add_level(&mut self, lower: Option<u32>, below: u32, down: u32, rate: Rate) -> (u32, u32) {
        let first = self.switches.len() as u32;
        let here = below.div_ceil(down);
        for switch in 0..here {
            let children = switch * down..below.min((switch + 1) * down);
            let out = children.map(|child| {
                let (to, port) = match lower {
                    None => (Place::Node(Node(child)), 0),
                    Some(lower) => (Place::Switch(lower + child), down as u16),
                };
                Some(Channel::to(to, port, rate))
            });
            self.switches.push(Switch { out: out.collect(), ..Switch::default() });
        }
        for child in 0..below {
            let (switch, port) = (first + child / down, (child % down) as u16);
            let up = Some(Channel::to(Place::Switch(switch), port, rate));
            match lower {
                None => self.node_out[child as usize] = vec![up],
                Some(lower) => {
                    let out = &mut self.switches[(lower + child) as usize].out;
                    out.resize(down as usize, None);
                    out.push(up);
                }
            }
        }
        (first, here)
    }

    /// Writes the switches' routes, as the cables lie: down to what is below a switch, and up to
    /// everything else. Switches are numbered from the lowest level on.
    fn fill_tables(&mut self) {
        let all = self.nodes + self.switches.len() as u32;
        // For each switch: the numbers of everything below it, and its own number.
        let mut below: Vec<Vec<Range<u32>>> = Vec::new();
        for switch in 0..self.switches.len() {
            let own = self.nodes + switch as u32;
            let Switch { out, routes, .. } = &mut self.switches[switch];
            let mut here = vec![alone(own)];
            let mut down = Vec::new();
            for (port, channel) in (0..).zip(out) {
                let reached = match channel.as_ref().map(|channel| channel.to) {
                    Some(Place::Node(Node(node))) => vec![alone(node)],
                    Some(Place::Switch(other)) if (other as usize) < switch => {
                        below[other as usize].clone()
                    }
                    Some(Place::Switch(_)) => {
                        routes.set(0..all, Some(port));
                        continue;
                    }
                    None => continue,
                };
                down.extend(reached.iter().map(|range| (range.clone(), port)));
                here.extend(reached);
            }
            down.into_iter().for_each(|(range, port)| routes.set(range, Some(port)));
            // A packet for the switch itself goes nowhere.
            routes.set(alone(own), None);
            below.push(joined(here));
        }
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

    /// Changes an entry of a switch's table: packets to `node` leave by this port from now on.
    /// Without a port they are dropped.
    ///
    /// # Errors
    /// A sentence, when there is no such switch or node, or no cable at the port.
    pub fn set_route(&mut self, switch: u32, node: Node, port: Option<u16>) -> Result<(), String> {
        let (switches, nodes) = (self.switches.len(), self.nodes);
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

    /// The ports by which a switch sends on a packet, as its tables say.
    pub(crate) fn ports(&self, switch: u32, to: Destination) -> Vec<u16> {
        match to {
            Destination::Multicast(group) => {
                self.switches[switch as usize].multicast(group).to_vec()
            }
            to => self.route(switch, to).into_iter().collect(),
        }
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
fn alone(number: u32) -> Range<u32> {
    number..number + 1
}

/// Puts ranges of numbers in order, and joins neighbours.
fn joined(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let side_by_side = last.end == next.start;
        if side_by_side {
            last.end = next.end;
        }
        side_by_side
    });
    ranges
}

impl Switching {
    fn read(section: &Section<'_>) -> Result<Switching, MachineError> {
        let optional =
            |name: &str| if section.has(name) { section.time(name) } else { Ok(Ps::ZERO) };
        let forwarding = [("cut-through", true), ("store-and-forward", false)];
        let cut_through = section.choice("forwarding", &forwarding)?;
        Ok(Switching {
            delay: section.time("delay")?,
            cut_through,
            head: if cut_through { section.bytes_up_to("head", 1 << 16)? } else { 0 },
            port_time: optional("port_time")?,
            copy_time: optional("copy_time")?,
            copy_rate: section.has("copy_rate").then(|| section.rate("copy_rate")).transpose()?,
        })
    }
}

impl Channel {
    fn to(to: Place, port: u16, rate: Rate) -> Channel {
        Channel { to, port, rate, free: Ps::ZERO, carried: Carried::default() }
    }
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
