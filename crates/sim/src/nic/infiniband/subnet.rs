//! The subnet manager, and its agents at nodes and switches. This is pure state: it takes
//! datagrams, and says what to send.
//!
//! The manager runs on node 0, and does one transaction at a time. It first gives each port a local
//! id (LID). When all members of a multicast group have asked to join, it writes the group's ports
//! into the tables of the switches that connect the members, block by block, and then tells the
//! members the group's LID. When all members have left, it clears the entries, and another group
//! may get the LID.

use super::management::{
    ADMINISTRATION, BLOCK_GROUPS, DATA_BYTES, DELETE, Datagram, FIRST_GROUP, GET, GROUP_NAME_BYTES,
    GROUPS, MULTICAST_MEMBER, MULTICAST_TABLE, NODE_INFO, PORT_INFO, PORTS, RESPONSE, SET, SUBNET,
    Table,
};
use crate::network::{Network, Switch};
use crate::packet::Node;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The place of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(Node),
    Switch(u32),
}

/// A step of the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Task {
    /// Ask a place for its description.
    Find(Place),
    /// Give a place its LID.
    Name(Place, u16),
    /// Bring a block of a switch's table up to date.
    Write(u32, u32),
    /// Tell the members of a group its LID.
    Tell([u8; GROUP_NAME_BYTES]),
}

#[derive(Debug, Default)]
struct Group {
    lid: u16,
    members: Vec<Node>,
    left: usize,
}

/// The manager.
#[derive(Debug)]
pub struct Manager {
    tasks: VecDeque<Task>,
    /// The transaction under way.
    waits_for: Option<u64>,
    transactions: u64,
    groups: BTreeMap<[u8; GROUP_NAME_BYTES], Group>,
    next_group: u16,
    /// LIDs of former groups.
    free: Vec<u16>,
    /// The switches' tables as they will be.
    tables: BTreeMap<u32, Table>,
}

impl Manager {
    /// The manager of a network that has just been switched on.
    pub fn new(network: &Network) -> Manager {
        let nodes = (0..network.nodes()).map(|node| Place::Node(Node(node)));
        let switches = (0..network.switches() as u32).map(Place::Switch);
        let tasks = nodes
            .chain(switches)
            .zip(1..)
            .flat_map(|(place, lid)| [Task::Find(place), Task::Name(place, lid)]);
        Manager {
            tasks: tasks.collect(),
            waits_for: None,
            transactions: 0,
            groups: BTreeMap::new(),
            next_group: FIRST_GROUP,
            free: Vec::new(),
            tables: BTreeMap::new(),
        }
    }

    /// The datagrams to send next. There are none while the manager waits for a response, or has
    /// nothing to do.
    pub fn next(&mut self) -> Vec<(Place, Datagram)> {
        if self.waits_for.is_some() {
            return Vec::new();
        }
        let Some(task) = self.tasks.pop_front() else {
            return Vec::new();
        };
        self.transactions += 1;
        let transaction = self.transactions;
        let (place, datagram) = match task {
            Task::Find(place) => (place, Datagram::new(SUBNET, GET, NODE_INFO, 0, transaction)),
            Task::Name(place, lid) => {
                let mut datagram = Datagram::new(SUBNET, SET, PORT_INFO, 0, transaction);
                datagram.set_lid(lid);
                (place, datagram)
            }
            Task::Write(switch, block) => {
                let data = self
                    .tables
                    .entry(switch)
                    .or_default()
                    .block(block)
                    .expect("it writes blocks that there are");
                let datagram = Datagram {
                    data,
                    ..Datagram::new(SUBNET, SET, MULTICAST_TABLE, block, transaction)
                };
                (Place::Switch(switch), datagram)
            }
            Task::Tell(name) => {
                let group = &self.groups[&name];
                let mut datagram =
                    Datagram::new(ADMINISTRATION, RESPONSE, MULTICAST_MEMBER, 0, transaction);
                datagram.data[..GROUP_NAME_BYTES].copy_from_slice(&name);
                datagram.set_group_lid(group.lid);
                let mut all: Vec<_> = group
                    .members
                    .iter()
                    .map(|&node| (Place::Node(node), datagram.clone()))
                    .collect();
                all.extend(self.next());
                return all;
            }
        };
        self.waits_for = Some(transaction);
        vec![(place, datagram)]
    }

    /// A datagram for the manager has come.
    pub fn take(&mut self, network: &Network, from: Node, datagram: &Datagram) {
        if datagram.method == RESPONSE {
            if self.waits_for == Some(datagram.transaction) {
                self.waits_for = None;
            }
        } else if (datagram.method, datagram.attribute) == (DELETE, MULTICAST_MEMBER) {
            self.leave(network, &datagram.group());
        } else if datagram.attribute == MULTICAST_MEMBER {
            self.join(network, from, datagram.group());
        }
    }

    fn join(&mut self, network: &Network, member: Node, name: [u8; GROUP_NAME_BYTES]) {
        let group = self.groups.entry(name).or_default();
        group.members.push(member);
        if group.members.len() < members_of(&name) as usize {
            return;
        }
        let tree = network.spanning(&group.members);
        let possible = tree.filter(|tree| tree.values().flatten().all(|&port| port < PORTS));
        let next = (self.next_group < FIRST_GROUP + GROUPS).then_some(self.next_group);
        if let Some((lid, tree)) = possible.and_then(|tree| Some((self.free.pop().or(next)?, tree)))
        {
            self.next_group = self.next_group.max(lid + 1);
            group.lid = lid;
            self.write(lid, tree);
        }
        self.tasks.push_back(Task::Tell(name));
    }

    fn leave(&mut self, network: &Network, name: &[u8; GROUP_NAME_BYTES]) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.left += 1;
        if group.left < group.members.len() {
            return;
        }
        let tree = network.spanning(&group.members).unwrap_or_default();
        let cleared = tree.into_keys().map(|switch| (switch, BTreeSet::new()));
        let (lid, cleared) = (group.lid, cleared.collect());
        self.groups.remove(name);
        self.write(lid, cleared);
        self.free.push(lid);
    }

    /// Has a group's ports written into switches' tables.
    fn write(&mut self, group: u16, tree: BTreeMap<u32, BTreeSet<u16>>) {
        for (switch, ports) in tree {
            let mask = ports.iter().fold(0, |mask, port| mask | 1 << port);
            self.tables.entry(switch).or_default().set_ports(group, mask);
            let block = u32::from((group - FIRST_GROUP) / BLOCK_GROUPS);
            self.tasks.push_back(Task::Write(switch, block));
        }
    }
}

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

fn members_of(name: &[u8; GROUP_NAME_BYTES]) -> u32 {
    u32::from_be_bytes(name[12..].try_into().expect("4 bytes"))
}

/// The agent of a node (SMA): the node's LID, and the LIDs of the groups that the node listens to.
#[derive(Debug, Clone, Default)]
pub struct NodeAgent {
    pub lid: u16,
    pub groups: BTreeSet<u16>,
}

impl NodeAgent {
    /// Carries out a request of the manager. Returns the response.
    pub fn take(&mut self, datagram: &Datagram) -> Datagram {
        if (datagram.method, datagram.attribute) == (SET, PORT_INFO) {
            self.lid = datagram.lid();
        }
        datagram.response()
    }
}

/// The agent of a switch: its LID and its multicast table.
#[derive(Debug, Clone, Default)]
pub struct SwitchAgent {
    pub lid: u16,
    table: Table,
}

impl SwitchAgent {
    /// Carries out a request on the switch. Returns the response.
    pub fn take(&mut self, switch: &mut Switch, datagram: &Datagram) -> Datagram {
        let mut response = datagram.response();
        match (datagram.method, datagram.attribute) {
            (SET, PORT_INFO) => self.lid = datagram.lid(),
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
