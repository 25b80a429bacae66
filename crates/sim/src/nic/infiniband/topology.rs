//! What a subnet manager has found: places, cables, and the ways that follow from them.

use crate::packet::Node;
use crate::trace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The place of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(Node),
    Switch(u32),
}

impl From<Place> for trace::Place {
    fn from(place: Place) -> trace::Place {
        match place {
            Place::Node(node) => trace::Place::Node(node),
            Place::Switch(switch) => trace::Place::Switch(switch),
        }
    }
}

/// The places and cables of a subnet, as seen from one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// The ports on the way to each place.
    paths: BTreeMap<Place, Vec<u8>>,
    /// The far end of each cable of each switch: who is there, and by which of its ports.
    cables: BTreeMap<(u32, u8), (Place, u8)>,
}

impl Topology {
    /// Notes a place at the end of this way. Returns whether it is a new one.
    pub fn found(&mut self, place: Place, path: Vec<u8>) -> bool {
        let is_new = !self.paths.contains_key(&place);
        self.paths.entry(place).or_insert(path);
        is_new
    }

    /// Notes a cable between two ports.
    pub fn connect(&mut self, (one, port): (Place, u8), (other, other_port): (Place, u8)) {
        for (here, port, there) in
            [(one, port, (other, other_port)), (other, other_port, (one, port))]
        {
            if let Place::Switch(switch) = here {
                self.cables.insert((switch, port), there);
            }
        }
    }

    pub fn knows_cable(&self, switch: u32, port: u8) -> bool {
        self.cables.contains_key(&(switch, port))
    }

    pub fn path(&self, place: Place) -> Option<&[u8]> {
        self.paths.get(&place).map(Vec::as_slice)
    }

    /// All places, nodes before switches.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.paths.keys().copied()
    }

    pub fn switches(&self) -> Vec<u32> {
        let switch = |place: &Place| match place {
            Place::Switch(switch) => Some(*switch),
            Place::Node(_) => None,
        };
        self.paths.keys().filter_map(switch).collect()
    }

    /// The switch and port at which a node is.
    fn port_of(&self, node: Node) -> Option<(u32, u8)> {
        let here = |(_, there): &(_, &(Place, u8))| there.0 == Place::Node(node);
        self.cables.iter().find(here).map(|(&at, _)| at)
    }

    /// For each switch from which a switch can be reached: the port of the first cable of a
    /// shortest way there, and the port at its other end. Of several ways it takes that by the
    /// lowest switch, and there the lowest port.
    fn ways_to(&self, to: u32) -> BTreeMap<u32, (u8, u32, u8)> {
        let mut ways = BTreeMap::new();
        let mut next = VecDeque::from([to]);
        while let Some(here) = next.pop_front() {
            for (&(switch, port), &(there, by)) in &self.cables {
                if there == Place::Switch(here) && switch != to && !ways.contains_key(&switch) {
                    ways.insert(switch, (port, here, by));
                    next.push_back(switch);
                }
            }
        }
        ways
    }

    /// For each switch: the port for each place.
    pub fn routes(&self) -> BTreeMap<u32, BTreeMap<Place, u8>> {
        let mut routes: BTreeMap<u32, BTreeMap<Place, u8>> = BTreeMap::new();
        let mut at_switch: BTreeMap<u32, Vec<(Place, u8)>> = BTreeMap::new();
        for (&(switch, port), &(there, _)) in &self.cables {
            if let Place::Node(_) = there {
                at_switch.entry(switch).or_default().push((there, port));
            }
        }
        for to in self.switches() {
            let nodes = at_switch.remove(&to).unwrap_or_default();
            routes.entry(to).or_default().extend(nodes.iter().copied());
            for (switch, (port, ..)) in self.ways_to(to) {
                let places = nodes.iter().map(|&(node, _)| node).chain([Place::Switch(to)]);
                routes.entry(switch).or_default().extend(places.map(|place| (place, port)));
            }
        }
        routes
    }

    /// The ports, by switch, of a tree that connects these nodes. Nothing, when there is none.
    pub fn spanning(&self, nodes: &[Node]) -> Option<BTreeMap<u32, BTreeSet<u16>>> {
        let mut tree: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
        let (root, _) = self.port_of(*nodes.first()?)?;
        let ways = self.ways_to(root);
        for &node in nodes {
            let (mut switch, port) = self.port_of(node)?;
            tree.entry(switch).or_default().insert(port.into());
            while switch != root {
                let &(port, next, by) = ways.get(&switch)?;
                tree.entry(switch).or_default().insert(port.into());
                tree.entry(next).or_default().insert(by.into());
                switch = next;
            }
        }
        Some(tree)
    }
}
