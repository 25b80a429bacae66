//! The agents of nodes and switches, and the names of groups.

use super::management::{
    BLOCK_GROUPS, DATA_BYTES, Datagram, FIRST_GROUP, GET, GROUP_NAME_BYTES, MULTICAST_TABLE,
    PORT_INFO, PORTS, SET, Table,
};
use crate::network::Switch;
use std::collections::BTreeSet;

/// A group's name: a hash of its members and its purpose, the number of earlier groups with these
/// members and this purpose, and the number of members.
pub fn group_name(members: &[u32], purpose: u64, before: u16) -> [u8; GROUP_NAME_BYTES] {
    // FNV-1a.
    let hash = members
        .iter()
        .flat_map(|member| member.to_le_bytes())
        .chain(purpose.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    let mut name = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    name[2..4].copy_from_slice(&before.to_be_bytes());
    name[4..12].copy_from_slice(&hash.to_be_bytes());
    name[12..].copy_from_slice(&(members.len() as u32).to_be_bytes());
    name
}

/// The number of members that a group has when it is whole.
pub fn members_of(name: &[u8; GROUP_NAME_BYTES]) -> u32 {
    u32::from_be_bytes(name[12..].try_into().expect("4 bytes"))
}

/// The agent of a node (SMA): the node's LID, and the LIDs of the groups that the node listens to.
#[derive(Debug, Clone, Default)]
pub struct NodeAgent {
    pub lid: u16,
    /// The LID of the node whose manager is the master.
    pub manager: u16,
    pub groups: BTreeSet<u16>,
}

impl NodeAgent {
    /// Carries out a request of the manager. Returns the response.
    pub fn take(&mut self, datagram: &Datagram) -> Datagram {
        if (datagram.method, datagram.attribute) == (SET, PORT_INFO) {
            let info = datagram.port_info();
            (self.lid, self.manager) = (info.lid, info.manager);
        }
        datagram.response()
    }
}

/// The agent of a switch: its LID and its multicast table.
#[derive(Debug, Clone, Default)]
pub struct SwitchAgent {
    pub lid: u16,
    /// Whether the state of a port has changed since a manager has seen it.
    pub has_changed: bool,
    table: Table,
}

impl SwitchAgent {
    /// Carries out a request on the switch. Returns the response.
    pub fn take(&mut self, switch: &mut Switch, datagram: &Datagram) -> Datagram {
        let mut response = datagram.response();
        match (datagram.method, datagram.attribute) {
            (SET, PORT_INFO) => self.lid = datagram.port_info().lid,
            (SET, MULTICAST_TABLE) if self.table.set_block(datagram.modifier, &datagram.data) => {
                let first = FIRST_GROUP + datagram.modifier as u16 * BLOCK_GROUPS;
                for group in first..first + BLOCK_GROUPS {
                    let ports = self.table.ports(group);
                    let set = (0..PORTS).filter(|port| {
                        ports & 1 << port != 0 && usize::from(*port) < switch.ports()
                    });
                    switch.set_multicast(group, set.collect());
                }
            }
            (GET, MULTICAST_TABLE) => {
                response.data = self.table.block(datagram.modifier).unwrap_or([0; DATA_BYTES])
            }
            _ => {}
        }
        response
    }
}
