//! Source routing: a packet's header carries the ports by which switches send it on.
//!
//! Each switch takes one port off, so a packet is longer by `switch.route_bytes` for each switch
//! that is still before it. The driver of each node knows the ways that the cables have, and may be
//! told others. Where switches have tables too, packets carry ports only on ways that a program has
//! set.

use crate::network::{Channel, Network};
use crate::packet::{Destination, Node};
use crate::trace::Place;

impl Network {
    /// The ports that a packet carries, the last one first.
    pub(crate) fn carried(&self, from: Place, to: Destination) -> Vec<u16> {
        let (Place::Node(from), Destination::Node(to)) = (from, to) else {
            return Vec::new();
        };
        if let Some(ports) = self.ways.get(&(from, to)) {
            return ports.clone();
        }
        if self.switching.tables {
            return Vec::new();
        }
        let way = self.way(from, to).expect("where switches have no tables, nobody changes routes");
        way.iter().rev().map(|hop| hop.port).collect()
    }

    /// Has packets from one node to another carry these ports, one for each switch. Without ports,
    /// they go as they did at first.
    ///
    /// # Errors
    /// A sentence, when switches do not route by source, when the ports do not lead there, or when
    /// packets on such ways could stop each other for ever.
    pub fn set_way(&mut self, from: Node, to: Node, ports: &[u16]) -> Result<(), String> {
        if !self.switching.sources {
            return Err("a way for packets to carry: the switches of this machine route by tables alone (switch.routing); change their routes".into());
        }
        if from.0.max(to.0) >= self.nodes() {
            let nodes = self.nodes();
            return Err(format!("a way to node {}: there are {nodes} nodes", to.0));
        }
        if ports.is_empty() {
            self.ways.remove(&(from, to));
            return Ok(());
        }
        let switches = self.follow(from, to, ports)?;
        // Were every way allowed, packets could fill the buffers of a circle of switches, each
        // waiting for room in the next one. Ways that rise first and then fall make no circle.
        let rises = switches.windows(2).map(|pair| pair[0] < pair[1]);
        if self.flow.buffer.is_some() && !rises.is_sorted_by(|before, after| before >= after) {
            return Err(format!(
                "a way by switches {switches:?}: where buffers may fill (switch.buffer), numbers of switches must rise and then fall, or packets could stop each other for ever"
            ));
        }
        self.ways.insert((from, to), ports.iter().rev().copied().collect());
        Ok(())
    }

    /// The switches by which these ports lead from one node to another.
    fn follow(&self, from: Node, to: Node, ports: &[u16]) -> Result<Vec<u32>, String> {
        let leads = |end: &str| format!("ports {ports:?} lead from node {} to {end}", from.0);
        let mut switches = Vec::new();
        let mut channel = self.node_out[from.index()].first().and_then(Option::as_ref);
        for &port in ports {
            let switch = match channel.map(|channel| channel.to) {
                Some(Place::Switch(switch)) => switch,
                Some(Place::Node(node)) => return Err(leads(&format!("node {}, and on", node.0))),
                None => return Err(leads("a port without a cable")),
            };
            switches.push(switch);
            let out = &self.switches[switch as usize].out;
            channel = out.get(usize::from(port)).and_then(Option::as_ref);
        }
        match channel {
            Some(Channel { to: Place::Node(node), .. }) if *node == to => Ok(switches),
            Some(Channel { to: end, .. }) => Err(leads(&format!("{end}, not to node {}", to.0))),
            None => Err(leads("a port without a cable")),
        }
    }
}
