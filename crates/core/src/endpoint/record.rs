//! The job record: the job's nodes and the costs between them, as all PEs know them alike.
//!
//! A **node** is a set of PEs that have each other's memory mapped. Addressing asks [`Pe::route`]
//! whether a PE is mapped here. Choices that PEs must make alike (the algorithms of barriers and
//! collectives, the ways of shared data and multicast, their sizes) ask the record, which is equal
//! at all PEs. They never ask a route, the local environment or a local measurement: where nodes
//! differ, those differ from PE to PE, and PEs that choose differently wait for each other for
//! ever.
//!
//! [`Pe::route`]: super::pe::Pe::route

use std::sync::Arc;

/// The job's nodes and the costs between them, equal at all PEs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    nodes: Nodes,
    costs: Option<Costs>,
    /// The host of each node, in a job on several hosts.
    hosts: Option<Arc<[Arc<str>]>>,
}

/// Costs of operations on far memory, for choices between algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Nanoseconds until a put of a word is visible at its target.
    pub put_ns: u64,
    /// Nanoseconds until a get of a word returns.
    pub get_ns: u64,
    /// Bytes that a PE can put in a second, in large blocks.
    pub bytes_per_s: u64,
    /// Whether hardware serves gets; otherwise the target's CPU does.
    pub hardware_gets: bool,
    /// Whether hardware serves atomics; otherwise the target's CPU does.
    pub hardware_atomics: bool,
    /// The largest put, in bytes, whose source is copied at once. A larger put returns when the
    /// network has read its source.
    pub eager_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Nodes {
    /// One node with all PEs.
    One(Node),
    /// No nodes: all memory is behind a fabric, even a PE's own.
    None,
    /// Two or more nodes.
    Several {
        /// The node of each PE.
        node_of: Arc<[u32]>,
        nodes: Arc<[Node]>,
    },
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// PEs of the job on this node.
    pub pes: usize,
    /// CPUs that these PEs may use.
    pub cpus: usize,
}

impl Node {
    /// PEs for each CPU.
    fn pes_per_cpu(self) -> usize {
        self.pes.div_ceil(self.cpus.max(1))
    }
}

impl Record {
    /// A job on one node.
    pub fn one_node(pes: usize, cpus: usize) -> Self {
        Record { nodes: Nodes::One(Node { pes, cpus }), costs: None, hosts: None }
    }

    /// A job in which every access goes through a fabric, to a PE's own memory too.
    pub fn all_far() -> Self {
        Record { nodes: Nodes::None, costs: None, hosts: None }
    }

    /// A job on these nodes. `node_of` has each PE's node, as an index into `cpus`, the CPUs of
    /// each node. If one node has all PEs, this is [`one_node`](Self::one_node).
    ///
    /// # Panics
    /// When a PE's node is not in `cpus`.
    pub fn nodes(node_of: &[u32], cpus: &[usize]) -> Self {
        let mut nodes: Vec<Node> = cpus.iter().map(|&cpus| Node { pes: 0, cpus }).collect();
        node_of.iter().for_each(|&node| nodes[node as usize].pes += 1);
        let nodes = match nodes.iter().find(|node| node.pes == node_of.len()) {
            Some(&node) => Nodes::One(node),
            None => Nodes::Several { node_of: node_of.into(), nodes: nodes.into() },
        };
        Record { nodes, costs: None, hosts: None }
    }

    /// This record with the names of the nodes' hosts, for messages.
    pub fn with_hosts(self, hosts: impl IntoIterator<Item = Arc<str>>) -> Self {
        let hosts = hosts.into_iter().collect();
        Record { hosts: Some(hosts), ..self }
    }

    /// The host of a PE, in a job on several hosts.
    pub fn host(&self, pe: usize) -> Option<Arc<str>> {
        let Nodes::Several { node_of, .. } = &self.nodes else { return None };
        self.hosts.as_ref()?.get(*node_of.get(pe)? as usize).cloned()
    }

    /// This record with the fabric's costs, if it knows them and has far peers.
    pub fn with_costs(self, costs: Option<Costs>) -> Self {
        let costs = costs.filter(|_| !self.is_one_node());
        Record { costs, ..self }
    }

    /// Costs of operations on far memory; `None` if all memory is near, or they are not known.
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// Whether all PEs are on one node.
    #[inline]
    pub fn is_one_node(&self) -> bool {
        matches!(self.nodes, Nodes::One(_))
    }

    /// Whether some PEs are near to each other, and others far.
    pub fn is_mixed(&self) -> bool {
        matches!(self.nodes, Nodes::Several { .. })
    }

    /// Whether these PEs share a node.
    pub fn are_near(&self, pes: impl IntoIterator<Item = usize>) -> bool {
        match &self.nodes {
            Nodes::One(_) => true,
            Nodes::None => false,
            Nodes::Several { node_of, .. } => {
                let mut nodes = pes.into_iter().map(|pe| node_of[pe]);
                nodes.next().is_none_or(|first| nodes.all(|node| node == first))
            }
        }
    }

    /// The indices of these PEs by node, ascending; nodes in the order of their first PEs.
    pub(crate) fn by_node(&self, pes: &[usize]) -> Vec<Vec<usize>> {
        let all = 0..pes.len();
        let (node_of, count) = match &self.nodes {
            Nodes::One(_) => return vec![all.collect()],
            Nodes::None => return all.map(|index| vec![index]).collect(),
            Nodes::Several { node_of, nodes } => (node_of, nodes.len()),
        };
        let (mut places, mut by_node) = (vec![None; count], Vec::<Vec<usize>>::new());
        for (index, &pe) in pes.iter().enumerate() {
            let place = *places[node_of[pe] as usize].get_or_insert_with(|| {
                by_node.push(Vec::new());
                by_node.len() - 1
            });
            by_node[place].push(index);
        }
        by_node
    }

    /// PEs for each CPU on a PE's node; `None` if there are no nodes.
    pub fn pes_per_cpu(&self, pe: usize) -> Option<usize> {
        let node = match &self.nodes {
            Nodes::One(node) => *node,
            Nodes::None => return None,
            Nodes::Several { node_of, nodes } => nodes[node_of[pe] as usize],
        };
        Some(node.pes_per_cpu())
    }

    /// Whether PEs of this PE's node share CPUs.
    pub(crate) fn is_crowded(&self, pe: usize) -> bool {
        self.pes_per_cpu(pe).is_some_and(|sharing| sharing > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_several_sizes() {
        let record = Record::nodes(&[0, 1, 0, 0], &[2, 1]);
        assert!(record.is_mixed() && !record.is_one_node());
        assert!(record.are_near([0, 2, 3]) && record.are_near([1]) && record.are_near([]));
        assert!(!record.are_near([0, 1]) && !record.are_near([2, 1]));
        assert_eq!([0, 1, 2, 3].map(|pe| record.pes_per_cpu(pe)), [2, 1, 2, 2].map(Some));
        assert!(record.is_crowded(3) && !record.is_crowded(1));
        assert_eq!(record.by_node(&[3, 1, 0]), [vec![0, 2], vec![1]]);
        assert_eq!(Record::one_node(2, 1).by_node(&[1, 0]), [[0, 1]]);
        assert_eq!(Record::all_far().by_node(&[1, 0]), [[0], [1]]);
    }

    #[test]
    fn a_list_of_one_node_is_one_node() {
        let costs = Costs {
            put_ns: 1,
            get_ns: 2,
            bytes_per_s: 3,
            hardware_gets: true,
            hardware_atomics: true,
            eager_bytes: 4,
        };
        for record in [Record::nodes(&[0, 0, 0], &[2]), Record::nodes(&[1, 1, 1], &[4, 2])] {
            let record = record.with_costs(Some(costs));
            assert_eq!(record, Record::one_node(3, 2));
            assert!(record.is_one_node() && !record.is_mixed() && record.costs().is_none());
        }
        assert_eq!(Record::nodes(&[0, 1], &[1, 1]).with_costs(Some(costs)).costs(), Some(&costs));
    }

    #[test]
    fn one_node_and_none() {
        let one = Record::one_node(4, 2);
        assert!(one.is_one_node() && one.are_near(0..4) && one.is_crowded(0));
        let none = Record::all_far();
        assert!(!none.is_one_node() && !none.is_mixed() && !none.are_near([0]));
        assert!(!none.is_crowded(0));
    }
}
