//! The switches' multicast tables.

use crate::network::Network;
use crate::packet::Node;
use crate::trace::Place;
use std::collections::{BTreeMap, BTreeSet};

/// Sets the tables so that packets of `from` to `group` come to all of `members`, over the union of the ways to each. Ways to nodes from one node
/// are a tree, so no member gets a packet twice, and none comes back to a switch.
pub fn set_tables(network: &mut Network, group: u16, from: Node, members: &[Node]) -> Result<(), String> {
    let mut ports: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
    for &member in members {
        if member.0 >= network.nodes() {
            return Err(format!("there is no node {} to be a member of a multicast group", member.0));
        }
        let first = network.node_out[from.index()].first().and_then(Option::as_ref);
        let mut place = first.map(|channel| channel.to).ok_or("this node has no link")?;
        while let Place::Switch(switch) = place {
            let port = network.route(switch, member);
            ports.entry(switch).or_default().insert(port);
            let channel = network.switches[switch as usize]
                .out
                .get(usize::from(port))
                .and_then(Option::as_ref);
            place = channel.map(|channel| channel.to).ok_or("a route ends at a port without a link")?;
        }
    }
    if ports.is_empty() {
        return Err("multicast needs a switch, and there is none here".into());
    }
    for (switch, ports) in ports {
        network.switch_mut(switch).set_multicast(group, ports.into_iter().collect());
    }
    Ok(())
}
