//! The subnet manager: it takes datagrams, and says what to send. This is pure state.
//!
//! A manager runs on a node, and does one transaction at a time. It gives each port a local id
//! (LID). When all members of a multicast group have asked to join, it writes the group's ports
//! into the tables of the switches that connect the members, block by block, and then tells the
//! members the group's LID. When all members have left, it clears the entries, and another group
//! may get the LID.
//!
//! Without the section `subnet` the manager knows all places and cables, and switches know the way
//! to each place, when the machine is switched on. With it the manager finds all that
//! (`discovery`).

use super::agents::members_of;
use super::directed::Route;
use super::found::{Discovery, Phase};
use super::management::{
    ADMINISTRATION, BLOCK_GROUPS, DELETE, DIRECTED, Datagram, FIRST_GROUP, FORWARDING_TABLE, GET,
    GROUP_NAME_BYTES, GROUPS, MANAGER_INFO, MULTICAST_MEMBER, MULTICAST_TABLE, NODE_INFO,
    PORT_INFO, PORTS, PortInfo, RESPONSE, SET, SUBNET, SWITCH_INFO, Table,
};
use super::topology::Place;
use crate::network::Network;
use crate::packet::Node;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The name of a multicast group.
pub type Name = [u8; GROUP_NAME_BYTES];

/// A step of the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Ask a place for its description.
    Find(Place),
    /// Give a place its LID.
    Name(Place, u16),
    /// Bring a block of a switch's multicast table up to date.
    Write(u32, u32),
    /// Tell the members of a group its LID.
    Tell(Name),
    /// Ask who is at the end of a way, whose last cable begins at this port of a switch.
    Probe(Vec<u8>, Option<(u32, u8)>),
    /// Ask for the LID that a place has.
    Lid(Place),
    /// Ask a switch whether anything is up at this port.
    Port(u32, u8),
    /// Read a block of a switch's multicast table.
    Read(u32, u32),
    /// Write a block of a switch's table of routes.
    Forward(u32, u32),
    /// Have a switch forget that ports have changed.
    Seen(u32),
    /// Ask a switch whether ports have changed.
    Look(u32),
    /// Ask the master whether it is there.
    Ask(Node),
}

#[derive(Debug, Default)]
pub struct Group {
    pub lid: u16,
    pub members: Vec<Node>,
    left: usize,
}

/// A transaction under way.
#[derive(Debug)]
pub struct Asked {
    pub transaction: u64,
    pub task: Task,
    pub tries: u32,
}

/// A manager.
#[derive(Debug)]
pub struct Manager {
    /// The node on which the manager runs.
    pub(super) node: Node,
    pub(super) tasks: VecDeque<Task>,
    pub(super) asked: Option<Asked>,
    /// How often the next task has been tried before.
    pub(super) tries: u32,
    transactions: u64,
    pub(super) lids: BTreeMap<Place, u16>,
    pub(super) groups: BTreeMap<Name, Group>,
    pub(super) next_group: u16,
    /// LIDs of former groups.
    free: Vec<u16>,
    /// The switches' multicast tables as they will be.
    pub(super) tables: BTreeMap<u32, Table>,
    /// What it finds by itself, where it does.
    pub(super) discovery: Option<Discovery>,
}

impl Manager {
    /// The manager of a network that has just been switched on, whose cables it knows.
    pub fn new(network: &Network) -> Manager {
        let nodes = (0..network.nodes()).map(|node| Place::Node(Node(node)));
        let switches = (0..network.switches() as u32).map(Place::Switch);
        let lids: BTreeMap<Place, u16> = nodes.chain(switches).zip(1..).collect();
        let tasks =
            lids.iter().flat_map(|(&place, &lid)| [Task::Find(place), Task::Name(place, lid)]);
        let tasks = tasks.collect();
        Manager { tasks, lids, ..Manager::at(Node(0)) }
    }

    /// A manager that knows nothing.
    pub fn at(node: Node) -> Manager {
        Manager {
            node,
            tasks: VecDeque::new(),
            asked: None,
            tries: 0,
            transactions: 0,
            lids: BTreeMap::new(),
            groups: BTreeMap::new(),
            next_group: FIRST_GROUP,
            free: Vec::new(),
            tables: BTreeMap::new(),
            discovery: None,
        }
    }

    /// The number of the transaction under way.
    pub fn waits_for(&self) -> Option<u64> {
        self.asked.as_ref().map(|asked| asked.transaction)
    }

    /// The datagrams to send next. There are none while the manager waits for a response, or has
    /// nothing to do.
    pub fn next(&mut self) -> Vec<(Place, Datagram)> {
        let mut all = Vec::new();
        while self.asked.is_none() {
            let Some(task) = self.tasks.pop_front() else {
                if self.next_phase() {
                    continue;
                }
                break;
            };
            self.transactions += 1;
            let transaction = self.transactions;
            if let Task::Tell(name) = task {
                all.extend(self.tell(name, transaction));
                continue;
            }
            let tries = std::mem::take(&mut self.tries);
            // A way that is too long for a datagram leads nowhere.
            let Some(sent) = self.datagram(&task, transaction) else { continue };
            self.asked = Some(Asked { transaction, task, tries });
            all.push(sent);
        }
        all
    }

    /// The datagram of a task, and whom it is for.
    fn datagram(&mut self, task: &Task, transaction: u64) -> Option<(Place, Datagram)> {
        let request = |method, attribute, modifier| {
            Datagram::new(SUBNET, method, attribute, modifier, transaction)
        };
        let (place, mut datagram) = match *task {
            Task::Find(place) => (place, request(GET, NODE_INFO, 0)),
            Task::Name(place, lid) => {
                let mut datagram = request(SET, PORT_INFO, 0);
                let manager = self.lids[&Place::Node(self.node)];
                let tell_groups = self.discovery.as_ref().is_some_and(|it| it.asks_for_groups);
                datagram.set_port_info(PortInfo { lid, manager, is_up: true, tell_groups });
                (place, datagram)
            }
            Task::Write(switch, block) => {
                let table = self.tables.entry(switch).or_default();
                let data = table.block(block).expect("it writes blocks that there are");
                let datagram = Datagram { data, ..request(SET, MULTICAST_TABLE, block) };
                (Place::Switch(switch), datagram)
            }
            Task::Probe(ref ports, _) => {
                let route = Route::to(ports)?;
                let datagram = Datagram { class: DIRECTED, route, ..request(GET, NODE_INFO, 0) };
                return Some((Place::Node(self.node), datagram));
            }
            Task::Lid(place) => (place, request(GET, PORT_INFO, 0)),
            Task::Port(switch, port) => {
                (Place::Switch(switch), request(GET, PORT_INFO, 1 + u32::from(port)))
            }
            Task::Read(switch, block) => {
                (Place::Switch(switch), request(GET, MULTICAST_TABLE, block))
            }
            Task::Forward(switch, block) => {
                let data = self.discovery.as_ref()?.block(switch, block);
                let datagram = Datagram { data, ..request(SET, FORWARDING_TABLE, block) };
                (Place::Switch(switch), datagram)
            }
            Task::Seen(switch) => (Place::Switch(switch), request(SET, SWITCH_INFO, 0)),
            Task::Look(switch) => (Place::Switch(switch), request(GET, SWITCH_INFO, 0)),
            Task::Ask(node) => return Some((Place::Node(node), request(GET, MANAGER_INFO, 0))),
            Task::Tell(_) => unreachable!("a group is told by administration"),
        };
        if let Some(discovery) = &self.discovery {
            datagram.route = Route::to(discovery.topology.path(place)?)?;
            datagram.class = DIRECTED;
            return Some((Place::Node(self.node), datagram));
        }
        Some((place, datagram))
    }

    /// What tells the members of a group its LID.
    fn tell(&self, name: Name, transaction: u64) -> Vec<(Place, Datagram)> {
        let Some(group) = self.groups.get(&name) else { return Vec::new() };
        let mut datagram =
            Datagram::new(ADMINISTRATION, RESPONSE, MULTICAST_MEMBER, 0, transaction);
        datagram.data[..GROUP_NAME_BYTES].copy_from_slice(&name);
        datagram.set_group_lid(group.lid);
        group.members.iter().map(|&node| (Place::Node(node), datagram.clone())).collect()
    }

    /// A datagram for the manager has come.
    pub fn take(&mut self, network: &Network, from: Node, datagram: &Datagram) {
        if datagram.method == RESPONSE {
            if let Some(asked) =
                self.asked.take_if(|asked| asked.transaction == datagram.transaction)
            {
                self.learn(&asked.task, datagram);
            }
        } else if (datagram.method, datagram.attribute) == (DELETE, MULTICAST_MEMBER) {
            self.leave(&datagram.group());
        } else if datagram.attribute == MULTICAST_MEMBER {
            self.join(network, from, datagram.group(), datagram.group_lid());
        }
    }

    /// The ports of a tree that connects nodes, by what the manager knows.
    fn spanning(&self, network: &Network, nodes: &[Node]) -> Option<BTreeMap<u32, BTreeSet<u16>>> {
        match &self.discovery {
            Some(discovery) => discovery.topology.spanning(nodes),
            None => network.spanning(nodes),
        }
    }

    /// A node asks to join a group, or says that it is in one that another manager has made, with
    /// this LID.
    fn join(&mut self, network: &Network, member: Node, name: Name, lid: u16) {
        let group = self.groups.entry(name).or_default();
        let is_new = !group.members.contains(&member);
        if is_new {
            group.members.push(member);
        }
        group.lid = group.lid.max(lid);
        self.next_group = self.next_group.max(lid.saturating_add(1));
        let is_whole = group.members.len() >= members_of(&name) as usize;
        if !is_whole || self.is_finding() {
            return;
        }
        if is_new {
            self.connect(network, &name);
        }
        self.tasks.push_back(Task::Tell(name));
    }

    /// Has the switches serve a group of which all members are known, if they can.
    pub(super) fn connect(&mut self, network: &Network, name: &Name) {
        let group = &self.groups[name];
        let tree = self.spanning(network, &group.members);
        let possible = tree.filter(|tree| tree.values().flatten().all(|&port| port < PORTS));
        let Some(tree) = possible else { return };
        let lid = match group.lid {
            0 => {
                let next = (self.next_group < FIRST_GROUP + GROUPS).then_some(self.next_group);
                self.free.pop().or(next)
            }
            lid => Some(lid),
        };
        let Some(lid) = lid else { return };
        self.next_group = self.next_group.max(lid + 1);
        self.groups.get_mut(name).expect("it is there").lid = lid;
        let others = self.served(lid).filter(|(switch, _)| !tree.contains_key(switch));
        let others: Vec<_> = others.collect();
        self.write(lid, tree.into_iter().chain(others));
    }

    fn leave(&mut self, name: &Name) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.left += 1;
        if group.left < group.members.len() {
            return;
        }
        let group = self.groups.remove(name).expect("it was there");
        let cleared: Vec<_> = self.served(group.lid).collect();
        self.write(group.lid, cleared);
        self.free.push(group.lid);
    }

    /// The switches that serve a group, each with no ports.
    fn served(&self, group: u16) -> impl Iterator<Item = (u32, BTreeSet<u16>)> {
        let serving = self.tables.iter().filter(move |(_, table)| table.ports(group) != 0);
        serving.map(|(&switch, _)| (switch, BTreeSet::new()))
    }

    /// Has a group's ports written into those switches' tables that have others.
    fn write(&mut self, group: u16, tree: impl IntoIterator<Item = (u32, BTreeSet<u16>)>) {
        for (switch, ports) in tree {
            let mask = ports.iter().fold(0, |mask, port| mask | 1 << port);
            let table = self.tables.entry(switch).or_default();
            if table.ports(group) == mask {
                continue;
            }
            table.set_ports(group, mask);
            let block = u32::from((group - FIRST_GROUP) / BLOCK_GROUPS);
            self.tasks.push_back(Task::Write(switch, block));
        }
    }

    /// Whether the manager does what managers do, and does not stand by.
    pub fn is_master(&self) -> bool {
        self.discovery.as_ref().is_none_or(|it| it.standby_of.is_none())
    }

    /// Whether the manager has nothing to do.
    pub fn is_idle(&self) -> bool {
        let settled = self.discovery.as_ref().is_none_or(|it| it.phase == Phase::Settled);
        settled && self.asked.is_none() && self.tasks.is_empty()
    }
}
