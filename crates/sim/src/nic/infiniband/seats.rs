//! The managers of a machine, and when they sweep.

use super::subnet::Manager;
use crate::machine::{Machine, MachineError};
use crate::network::Network;
use crate::packet::Node;
use crate::time::Ps;

/// What the section `subnet` says.
#[derive(Debug, Clone, Copy)]
pub struct Subnet {
    pub sweep: Ps,
    pub timeout: Ps,
    /// The node of the standby, if there is one.
    pub standby: Option<Node>,
}

/// A manager and its node.
#[derive(Debug)]
pub struct Seat {
    pub manager: Manager,
    /// Whether nobody has stopped the manager.
    pub works: bool,
}

/// When the managers sweep.
#[derive(Debug, Default)]
pub struct Sweeps {
    /// Whether a sweep is due.
    pub due: bool,
    /// Whether a PE has called since the last sweep.
    pub called: bool,
}

impl Subnet {
    /// Reads the section.
    pub fn read(machine: &Machine, network: &Network) -> Result<Option<Subnet>, MachineError> {
        let section = machine.section("subnet");
        if !section.has("sweep") {
            return Ok(None);
        }
        let widest = network.most_ports();
        if widest > 254 {
            let problem = format!(
                "is there, and a switch has {widest} ports: management packets number at most 254"
            );
            return Err(section.error("sweep", problem));
        }
        let standby = match section.has("standby") {
            true => Some(Node(section.count_up_to("standby", u32::MAX.into())? as u32)),
            false => None,
        };
        let (sweep, timeout) = (section.time_not_zero("sweep")?, section.time_not_zero("timeout")?);
        if sweep < timeout {
            let problem = format!(
                "is {sweep}, less than subnet.timeout ({timeout}): a manager would sweep again while it waits for answers; make it longer"
            );
            return Err(section.error("sweep", problem));
        }
        // A smaller machine does without.
        let standby = standby.filter(|node| node.0 < network.nodes());
        Ok(Some(Subnet { sweep, timeout, standby }))
    }

    /// The managers of a machine.
    pub fn managers(subnet: Option<Subnet>, network: &Network) -> Vec<Seat> {
        let seat = |manager| Seat { manager, works: true };
        let Some(subnet) = subnet else { return vec![seat(Manager::new(network))] };
        let standby = subnet.standby.map(|node| Manager::searching(node, Some(Node(0))));
        let master = Manager::searching(Node(0), None);
        [Some(master), standby].into_iter().flatten().map(seat).collect()
    }
}
