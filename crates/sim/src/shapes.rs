//! The shapes of networks: which cables there are, and the tables that follow them.

use crate::machine::{Machine, MachineError, Rate, Section};
use crate::network::{Network, Shape, Switch, Switching, alone};
use crate::packet::Node;
use crate::trace::Place;
use std::ops::Range;

/// The most ports of a switch.
const MOST_PORTS: u64 = 1024;

impl Network {
    pub(crate) fn add_switches(
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
        if shape == Shape::Full {
            return self.add_full(&section, rate);
        }
        let ports = section.count("ports")?;
        if !(3..=MOST_PORTS).contains(&ports) {
            let problem = format!("is {ports}; the switches of a tree have from 3 to {MOST_PORTS}");
            return Err(section.error("ports", problem));
        }
        let fat = machine.section("topology").count_up_to("fat", u32::MAX.into())?;
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
                Some(self.new_channel(to, port, rate))
            });
            let out = out.collect();
            self.switches.push(Switch::new(out));
        }
        for child in 0..below {
            let (switch, port) = (first + child / down, (child % down) as u16);
            let up = Some(self.new_channel(Place::Switch(switch), port, rate));
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
    pub(crate) fn fill_tables(&mut self) {
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

    /// Adds a switch for each node, and a cable between any two switches.
    fn add_full(&mut self, section: &Section<'_>, rate: Rate) -> Result<(), MachineError> {
        let nodes = self.nodes;
        let ports = if section.has("ports") { section.count("ports")? } else { nodes.into() };
        if ports < nodes.into() || ports > MOST_PORTS {
            let problem = format!(
                "is {ports}; {nodes} nodes, each with a switch that has a cable to every other one, need {nodes} ports; there are at most {MOST_PORTS}"
            );
            return Err(section.error("ports", problem));
        }
        for own in 0..nodes {
            let mut out = vec![Some(self.new_channel(Place::Node(Node(own)), 0, rate))];
            let others = (0..nodes).filter(|&other| other != own);
            out.extend(others.map(|other| {
                Some(self.new_channel(Place::Switch(other), port_between(other, own), rate))
            }));
            self.switches.push(Switch::new(out));
            self.node_out[own as usize] = vec![Some(self.new_channel(Place::Switch(own), 0, rate))];
        }
        Ok(())
    }

    /// Writes the routes of switches of which each is connected with each.
    pub(crate) fn fill_full_tables(&mut self) {
        let nodes = self.nodes;
        for own in 0..nodes {
            let routes = &mut self.switches[own as usize].routes;
            routes.set(alone(own), Some(0));
            for other in (0..nodes).filter(|&other| other != own) {
                let port = Some(port_between(own, other));
                routes.set(alone(other), port);
                routes.set(alone(nodes + other), port);
            }
        }
    }
}

/// The port of a switch at the cable to another one, where each is connected with each. Port 0 has
/// the node.
fn port_between(switch: u32, other: u32) -> u16 {
    (if other < switch { other + 1 } else { other }) as u16
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
