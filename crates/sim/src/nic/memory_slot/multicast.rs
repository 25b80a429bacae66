//! The switches' multicast tables.

use crate::network::{Hop, Network};
use crate::packet::Node;
use std::collections::{BTreeMap, BTreeSet};

/// Sets the tables so that packets of `from` to `group` come to all of `members`, over the union of
/// the ways to them. The ways from one node are a tree, so no member gets a packet twice, and no
/// packet comes back to a switch.
pub fn set_tables(
    network: &mut Network,
    group: u16,
    from: Node,
    members: &[Node],
) -> Result<(), String> {
    if !network.has_tables() {
        return Err("multicast needs tables, and the switches of this machine route by source alone (switch.routing)".into());
    }
    let mut ports: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
    for &member in members {
        if member.0 >= network.nodes() {
            return Err(format!(
                "there is no node {} to be a member of a multicast group",
                member.0
            ));
        }
        let way = network.way(from, member);
        let way = way.ok_or_else(|| {
            format!("the switches' routes do not lead from node {} to node {}", from.0, member.0)
        })?;
        for Hop { switch, port, .. } in way {
            ports.entry(switch).or_default().insert(port);
        }
    }
    if ports.is_empty() {
        return Err("multicast needs a switch, and there is none here".into());
    }
    write(network, group, ports);
    Ok(())
}

/// Writes a group's entry into the tables of these switches: to which ports its packets go.
pub fn write(network: &mut Network, group: u16, tables: BTreeMap<u32, BTreeSet<u16>>) {
    for (switch, ports) in tables {
        network.switch_mut(switch).set_multicast(group, ports.into_iter().collect());
    }
}
