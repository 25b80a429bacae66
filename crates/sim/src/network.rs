//! Links and switches: who is connected to whom, by which way, and who waits for whom.
//!
//! A link carries one packet at a time in each direction; a packet waits until it is free. A switch reads where a packet goes from its routes or
//! its multicast table, and sends it on by that output port, which serves packets in the order of coming: that is where contention is. A
//! packet with several ports in the multicast table is copied, and never sent back by the port by which it came. Buffers do not overflow: who waits does so where he is, without holding up
//! others (no back-pressure); what a machine loses, it loses on links by a probability.
//!
//! ```toml
//! [link]
//! rate    = ...           # bytes by time
//! delay   = ...           # cable, serialiser and deserialiser together: a time that does not depend on length
//! loss    = ...           # optional: probability that a packet which may be lost is
//!
//! [switch]
//! ports       = ...       # at one switch; the one of the shape "star" has as many as it needs if this is left out
//! delay       = ...       # from the head's coming in until it may leave
//! forwarding  = ...       # "cut-through" or "store-and-forward"
//! head        = ...       # bytes that must have come in before cut-through goes on
//! port_time   = ...       # optional: the least time for which a packet holds an output port
//! copy_time   = ...       # optional: how much later each further copy of a multicast packet begins
//! copy_rate   = ...       # optional: bytes by time of the unit that makes all copies of multicast packets, one after the other; they wait for it
//!
//! [topology]
//! shape = ...             # "direct": two nodes and a cable. "star": all at one switch. "tree": switches of `ports` ports in a tree, whose upward
//!                         # links are `fat` times as fast as those below. "chain": port 0 of each node to port 1 of the next.
//! ```

use crate::machine::{Machine, MachineError, Rate};
use crate::packet::{Destination, Node};
use crate::time::Ps;
use crate::trace::Place;
use std::collections::BTreeMap;

/// A direction of a cable.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) to: Place,
    /// Number of the port there.
    pub(crate) port: u16,
    pub(crate) rate: Rate,
    pub(crate) free: Ps,
}

/// A switch: its ports, and where it sends what.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// By port.
    pub(crate) out: Vec<Option<Channel>>,
    /// By node, where it was set; else the way of the topology.
    routes: BTreeMap<u32, u16>,
    multicast: BTreeMap<u16, Vec<u16>>,
    /// When the unit that copies is free.
    copier: Ps,
}

impl Switch {
    /// Sends packets to `node` by `port`, from now on.
    pub fn set_route(&mut self, node: Node, port: u16) {
        self.routes.insert(node.0, port);
    }

    /// The ports to which packets of a multicast group go.
    pub fn multicast(&self, group: u16) -> &[u16] {
        self.multicast.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Sets them.
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
    Chain,
}

/// Links and switches of a machine of so many nodes.
#[derive(Debug, Clone)]
pub struct Network {
    shape: Shape,
    nodes: u32,
    pub(crate) node_out: Vec<Vec<Option<Channel>>>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) delay: Ps,
    pub(crate) loss: f64,
    pub(crate) switching: Switching,
    /// Children of a switch in a tree.
    down: u32,
    /// First switch of each level of a tree, the lowest first.
    levels: Vec<u32>,
}

/// What is the same at all switches.
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
        let shapes = [
            ("direct", Shape::Direct),
            ("star", Shape::Star),
            ("tree", Shape::Tree),
            ("chain", Shape::Chain),
        ];
        let shape = topology.choice("shape", &shapes)?;
        let rate = link.rate("rate")?;
        let mut network = Network {
            shape,
            nodes,
            node_out: vec![Vec::new(); nodes as usize],
            switches: Vec::new(),
            delay: link.time("delay")?,
            loss: if link.has("loss") { link.probability("loss")? } else { 0.0 },
            switching: Switching::default(),
            down: 0,
            levels: Vec::new(),
        };
        match shape {
            Shape::Direct if nodes > 2 => {
                return Err(topology.error("shape", format!("is \"direct\", which is a cable between two nodes, not {nodes}")));
            }
            Shape::Direct => {
                // A node alone has its cable in a loop.
                for node in 0..nodes {
                    network.node_out[node as usize] = vec![Some(Channel::to(Place::Node(Node(nodes - 1 - node)), 0, rate))];
                }
            }
            Shape::Chain => {
                for node in 0..nodes {
                    let other = |other: Option<u32>, port| {
                        other
                            .filter(|&other| other < nodes)
                            .map(|other| Channel::to(Place::Node(Node(other)), port, rate))
                    };
                    network.node_out[node as usize] = vec![other(Some(node + 1), 1), other(node.checked_sub(1), 0)];
                }
            }
            Shape::Star | Shape::Tree => network.add_switches(machine, rate)?,
        }
        Ok(network)
    }

    fn add_switches(&mut self, machine: &Machine, rate: Rate) -> Result<(), MachineError> {
        let section = machine.section("switch");
        let optional = |name: &str| if section.has(name) { section.time(name) } else { Ok(Ps::ZERO) };
        let forwarding = [("cut-through", true), ("store-and-forward", false)];
        let cut_through = section.choice("forwarding", &forwarding)?;
        self.switching = Switching {
            delay: section.time("delay")?,
            cut_through,
            head: if cut_through { section.bytes_up_to("head", 1 << 16)? } else { 0 },
            port_time: optional("port_time")?,
            copy_time: optional("copy_time")?,
            copy_rate: section.has("copy_rate").then(|| section.rate("copy_rate")).transpose()?,
        };
        if self.shape == Shape::Star {
            if section.has("ports") && section.count("ports")? < u64::from(self.nodes) {
                let problem = format!("is {}, too few for {} nodes at one switch", section.count("ports")?, self.nodes);
                return Err(section.error("ports", problem));
            }
            let mut switch = Switch::default();
            for node in 0..self.nodes {
                switch.out.push(Some(Channel::to(Place::Node(Node(node)), 0, rate)));
                self.node_out[node as usize] = vec![Some(Channel::to(Place::Switch(0), node as u16, rate))];
            }
            self.switches.push(switch);
            return Ok(());
        }
        let ports = section.count("ports")?;
        if !(3..=1024).contains(&ports) {
            return Err(section.error("ports", format!("is {ports}; the switches of a tree have from 3 to 1024")));
        }
        let fat = machine.section("topology").count("fat")?.max(1);
        self.down = ports as u32 - 1;
        let (mut below, mut first, mut rate) = (self.nodes, 0, rate);
        loop {
            let here = below.div_ceil(self.down);
            let lower = self.levels.last().copied();
            for switch in 0..here {
                let children = switch * self.down..below.min((switch + 1) * self.down);
                let out = children.map(|child| {
                    let (to, port) = match lower {
                        None => (Place::Node(Node(child)), 0),
                        Some(lower) => (Place::Switch(lower + child), self.down as u16),
                    };
                    Some(Channel::to(to, port, rate))
                });
                self.switches.push(Switch {
                    out: out.collect(),
                    ..Switch::default()
                });
            }
            // Upward links of the level below.
            for child in 0..below {
                let up = Some(Channel::to(
                    Place::Switch(first + child / self.down),
                    (child % self.down) as u16,
                    rate,
                ));
                match lower {
                    None => self.node_out[child as usize] = vec![up],
                    Some(lower) => {
                        let out = &mut self.switches[(lower + child) as usize].out;
                        out.resize(self.down as usize, None);
                        out.push(up);
                    }
                }
            }
            self.levels.push(first);
            if here == 1 {
                return Ok(());
            }
            (below, first, rate) = (here, first + here, rate.times(fat));
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

    /// Switch and port at which a node is connected, if it is.
    pub fn port_of(&self, node: Node) -> Option<(u32, u16)> {
        match self.shape {
            Shape::Star => Some((0, node.0 as u16)),
            Shape::Tree => Some((node.0 / self.down, (node.0 % self.down) as u16)),
            Shape::Direct | Shape::Chain => None,
        }
    }

    /// The ports by which a switch sends on a packet.
    pub(crate) fn ports(&self, switch: u32, to: Destination) -> Vec<u16> {
        match to {
            Destination::Multicast(group) => self.switches[switch as usize].multicast(group).to_vec(),
            Destination::Node(node) => vec![self.route(switch, node)],
            Destination::Switch(other) => vec![self.route_to_switch(switch, other)],
            Destination::Port(port) => panic!("port {port} of a node is not for a switch to find"),
        }
    }

    /// The port by which a switch sends on what is for one node.
    pub(crate) fn route(&self, switch: u32, node: Node) -> u16 {
        if let Some(&port) = self.switches[switch as usize].routes.get(&node.0) {
            return port;
        }
        if self.shape == Shape::Star {
            return node.0 as u16;
        }
        let level = self.level(switch);
        let place = switch - self.levels[level];
        // The child below which the node is, at this level, if it is below this switch at all.
        let child = node.0 / self.down.pow(level as u32);
        if child / self.down == place {
            (child % self.down) as u16
        } else {
            self.down as u16
        }
    }

    /// The ports, by switch, of a tree that connects these nodes: what multicast tables need, whoever of them sends.
    pub fn spanning(&self, nodes: &[Node]) -> BTreeMap<u32, Vec<u16>> {
        let mut tree: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        let mut lower = Vec::new();
        for &node in nodes {
            let (switch, port) = self.port_of(node).expect("a switch has tables; a cable has none");
            let ports = tree.entry(switch).or_default();
            if ports.is_empty() {
                lower.push(switch);
            }
            ports.push(port);
        }
        // Level by level, until they have met.
        while lower.len() > 1 {
            let mut upper = Vec::new();
            for switch in lower {
                let up = &self.switches[switch as usize].out[self.down as usize];
                let (above, port) = match up {
                    Some(Channel {
                        to: Place::Switch(above),
                        port,
                        ..
                    }) => (*above, *port),
                    _ => panic!("switches that are not the top have one above"),
                };
                tree.entry(switch).or_default().push(self.down as u16);
                let ports = tree.entry(above).or_default();
                if ports.is_empty() {
                    upper.push(above);
                }
                ports.push(port);
            }
            lower = upper;
        }
        tree
    }

    /// How many nodes a multicast packet reaches that has come to a switch by a port.
    pub(crate) fn reached(&self, switch: u32, by: u16, group: u16) -> u64 {
        let here = &self.switches[switch as usize];
        let ports = here.multicast(group).iter().filter(|&&port| port != by);
        let reached = ports.map(|&port| match here.out.get(usize::from(port)) {
            Some(Some(Channel { to: Place::Node(_), .. })) => 1,
            Some(Some(Channel {
                to: Place::Switch(next),
                port,
                ..
            })) => self.reached(*next, *port, group),
            _ => 0,
        });
        reached.sum()
    }

    /// When the first of so many copies of a packet begins that a switch could send on at `at`, and how much later each further one.
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

    fn level(&self, switch: u32) -> usize {
        self.levels.partition_point(|&first| first <= switch) - 1
    }

    fn route_to_switch(&self, switch: u32, other: u32) -> u16 {
        let (level, other_level) = (self.level(switch), self.level(other));
        if other_level < level {
            let child = (other - self.levels[other_level]) / self.down.pow((level - other_level - 1) as u32);
            if child / self.down == switch - self.levels[level] {
                return (child % self.down) as u16;
            }
        }
        self.down as u16
    }
}

impl Channel {
    fn to(to: Place, port: u16, rate: Rate) -> Channel {
        Channel {
            to,
            port,
            rate,
            free: Ps::ZERO,
        }
    }
}
