//! How a manager finds the subnet, and keeps it going.
//!
//! ```text
//! find:   ask who is at the end of a way; at a new switch, ask which ports are up, and go on there
//! name:   give each place its LID, and the LID of the manager
//! route:  write those blocks of the switches' tables of routes that differ
//! group:  the same for the multicast groups, and tell their members
//! ```
//!
//! At each sweep the master asks the switches whether a port has changed. If one has, or a switch
//! does not answer, it finds everything anew. Places keep their LIDs, and an entry of a table stays
//! until there is a better one, so what is under way gets through where a way is left.
//!
//! A standby asks the master at each sweep whether it is there. When nothing answers three requests
//! in a row, the standby takes over: it finds all that is there, with LIDs and multicast tables as
//! they are, and has nodes tell it their groups.

use super::agents::members_of;
use super::found::{Discovery, NO_PORT, Phase};
use super::management::{DATA_BYTES, Datagram, FIRST_GROUP, GROUPS, TABLE_BYTES};
use super::subnet::{Asked, Manager, Name, Task};
use super::topology::{Place, Topology};
use crate::network::Network;
use crate::packet::Node;
use std::collections::{BTreeMap, BTreeSet};

/// How often a request is made that nobody answers.
const TRIES: u32 = 3;

impl Manager {
    /// A manager that begins to find the subnet around its node; or one that stands by for the
    /// master on another node.
    pub fn searching(node: Node, standby_of: Option<Node>) -> Manager {
        let mut manager = Manager::at(node);
        manager.discovery = Some(Discovery {
            phase: Phase::Settled,
            topology: Topology::default(),
            routes: BTreeMap::new(),
            stale: BTreeSet::new(),
            asks_for_groups: false,
            doubts: false,
            standby_of,
            regroups: false,
        });
        if standby_of.is_none() {
            manager.find();
        }
        manager
    }

    /// Begins to find everything.
    fn find(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        // Groups are told again when all has been found; what was to be written is not forgotten.
        let unfinished = self.tasks.drain(..).chain(self.asked.take().map(|asked| asked.task));
        discovery.stale.extend(unfinished.filter_map(|task| match task {
            Task::Write(switch, block) => Some((switch, block)),
            _ => None,
        }));
        discovery.topology = Topology::default();
        discovery.phase = Phase::Finding;
        (discovery.doubts, discovery.regroups) = (false, false);
        self.tasks.push_back(Task::Probe(Vec::new(), None));
    }

    /// The moment of a sweep has come.
    pub fn sweep(&mut self) {
        if !self.is_idle() {
            return;
        }
        let Some(discovery) = &self.discovery else { return };
        match discovery.standby_of {
            Some(master) => self.tasks.push_back(Task::Ask(master)),
            None if discovery.doubts => self.find(),
            None => self.tasks.extend(discovery.topology.switches().into_iter().map(Task::Look)),
        }
    }

    /// Whether the manager has nothing to do, and no reason to find anything anew.
    pub fn is_content(&self) -> bool {
        self.is_idle() && !self.discovery.as_ref().is_some_and(|it| it.doubts)
    }

    /// Nobody has answered a request in time.
    pub fn unanswered(&mut self, transaction: u64) {
        let Some(Asked { task, tries, .. }) =
            self.asked.take_if(|asked| asked.transaction == transaction)
        else {
            return;
        };
        if tries + 1 < TRIES {
            self.tries = tries + 1;
            self.tasks.push_front(task);
            return;
        }
        let Some(discovery) = &mut self.discovery else { return };
        match task {
            Task::Ask(_) => {
                discovery.standby_of = None;
                discovery.asks_for_groups = true;
                self.find();
            }
            Task::Look(_) => self.find(),
            Task::Write(switch, block) => {
                discovery.stale.insert((switch, block));
                discovery.doubts = true;
            }
            Task::Forward(switch, _) => {
                discovery.routes.remove(&switch);
                discovery.doubts = true;
            }
            _ => discovery.doubts = true,
        }
    }

    /// A task has been answered.
    pub(super) fn learn(&mut self, task: &Task, answer: &Datagram) {
        let Some(discovery) = &mut self.discovery else { return };
        match *task {
            Task::Probe(ref path, from) => self.found(path, from, answer),
            Task::Lid(place) => {
                let lid = answer.port_info().lid;
                if lid != 0 && !self.lids.values().any(|&other| other == lid) {
                    self.lids.insert(place, lid);
                }
            }
            Task::Port(switch, port) if answer.port_info().is_up => {
                let path = discovery.topology.path(Place::Switch(switch));
                if let Some(path) = path.filter(|_| !discovery.topology.knows_cable(switch, port)) {
                    let path = [path, &[port]].concat();
                    self.tasks.push_back(Task::Probe(path, Some((switch, port))));
                }
            }
            Task::Read(switch, block) => {
                let table = self.tables.entry(switch).or_default();
                table.set_block(block, &answer.data);
                let used = (FIRST_GROUP..FIRST_GROUP + GROUPS).rev();
                if let Some(last) = used.into_iter().find(|&group| table.ports(group) != 0) {
                    self.next_group = self.next_group.max(last + 1);
                }
            }
            Task::Look(_) if answer.has_changed() => self.find(),
            _ => {}
        }
    }

    /// Somebody is at the end of a way.
    fn found(&mut self, path: &[u8], from: Option<(u32, u8)>, answer: &Datagram) {
        let Some(discovery) = &mut self.discovery else { return };
        let info = answer.node_info();
        let place = match info.is_switch {
            true => Place::Switch(info.guid as u32),
            false => Place::Node(Node(info.guid as u32)),
        };
        let near = match (from, path) {
            (Some((switch, port)), _) => Some((Place::Switch(switch), port)),
            (None, [port, ..]) => Some((Place::Node(self.node), *port)),
            (None, []) => None,
        };
        match near {
            Some(near) => discovery.topology.connect(near, (place, info.by)),
            None => self.tasks.push_back(Task::Probe(vec![0], None)),
        }
        if !discovery.topology.found(place, path.to_vec()) {
            return;
        }
        if !self.lids.contains_key(&place) {
            self.tasks.push_back(Task::Lid(place));
        }
        if let Place::Switch(switch) = place {
            // What changes from now on is seen at the next sweep.
            self.tasks.push_back(Task::Seen(switch));
            self.tasks.extend((0..info.ports).map(|port| Task::Port(switch, port)));
        }
    }

    /// The tasks of a phase are done: begins the next. Returns whether there is one.
    pub(super) fn next_phase(&mut self) -> bool {
        let Some(discovery) = &mut self.discovery else { return false };
        match discovery.phase {
            Phase::Settled => return false,
            Phase::Finding => {
                discovery.phase = Phase::Naming;
                self.name();
            }
            Phase::Naming => {
                discovery.phase = Phase::Routing;
                if discovery.asks_for_groups {
                    let blocks = 0..(TABLE_BYTES / DATA_BYTES) as u32;
                    let all = discovery.topology.switches().into_iter();
                    let all =
                        all.flat_map(|switch| blocks.clone().map(move |block| (switch, block)));
                    self.tasks.extend(all.map(|(switch, block)| Task::Read(switch, block)));
                }
                self.route();
            }
            Phase::Routing => {
                discovery.phase = Phase::Settled;
                (discovery.asks_for_groups, discovery.regroups) = (false, true);
            }
        }
        true
    }

    /// Gives LIDs to places that have none, and has all places told theirs.
    fn name(&mut self) {
        let Some(discovery) = &self.discovery else { return };
        let used: BTreeSet<u16> = self.lids.values().copied().collect();
        let mut unused = (1..).filter(|lid| !used.contains(lid));
        for place in discovery.topology.places() {
            let lid = *self.lids.entry(place).or_insert_with(|| {
                unused.next().expect("the machine has fewer places than there are local ids")
            });
            self.tasks.push_back(Task::Name(place, lid));
        }
    }

    /// Has those blocks of tables of routes written that differ from what switches have.
    fn route(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        let last = self.lids.values().copied().max().unwrap_or(0);
        let len = (usize::from(last) + 1).next_multiple_of(DATA_BYTES);
        for (switch, routes) in discovery.topology.routes() {
            let old = discovery.routes.remove(&switch);
            let mut table = old.clone().unwrap_or_default();
            table.resize(len, NO_PORT);
            for (place, port) in routes {
                table[usize::from(self.lids[&place])] = port;
            }
            let of_old = |block: usize| old.as_ref()?.chunks(DATA_BYTES).nth(block);
            for (block, bytes) in table.chunks(DATA_BYTES).enumerate() {
                if of_old(block) != Some(bytes) {
                    self.tasks.push_back(Task::Forward(switch, block as u32));
                }
            }
            discovery.routes.insert(switch, table);
        }
    }

    /// Whether groups wait for the subnet to be up.
    pub(super) fn is_finding(&self) -> bool {
        self.discovery.as_ref().is_some_and(|it| it.phase != Phase::Settled || it.regroups)
    }

    /// Once all has been found: has the switches serve the groups that are whole, and their members
    /// told.
    pub fn regroup(&mut self, network: &Network) {
        let Some(discovery) = &mut self.discovery else { return };
        if discovery.phase != Phase::Settled || !std::mem::take(&mut discovery.regroups) {
            return;
        }
        let stale = std::mem::take(&mut discovery.stale);
        self.tasks.extend(stale.into_iter().map(|(switch, block)| Task::Write(switch, block)));
        let whole = self.groups.iter();
        let whole = whole.filter(|(name, group)| group.members.len() >= members_of(name) as usize);
        let names: Vec<Name> = whole.map(|(name, _)| *name).collect();
        for name in names {
            self.connect(network, &name);
            self.tasks.push_back(Task::Tell(name));
        }
    }
}
