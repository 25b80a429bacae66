//! The job record: what every PE knows alike of the job's nodes, and of what lies between them.
//!
//! A **node** is PEs that have each other's memory mapped. Addressing asks [`Pe::route`] whether a
//! PE is mapped here. Choices that PEs must make alike (which barrier, which collective, which way
//! of shared data or multicast, how large) ask the record, which is the same at every PE. They
//! never ask a route, the local environment or a local measurement: where nodes differ, those
//! differ from PE to PE, and PEs that choose differently wait for each other for ever.
//!
//! [`Pe::route`]: super::pe::Pe::route

use std::sync::Arc;

/// What every PE knows alike of the job's nodes, and of what lies between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    nodes: Nodes,
    costs: Option<Costs>,
}

/// What operations on far memory cost: for choices between ways that need different ones.
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
    /// The largest put, in bytes, that is copied at once; a larger one returns when its source has
    /// been read.
    pub eager_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Nodes {
    /// One, with all PEs.
    One(Node),
    /// None: a fabric stands before all memory, a PE's own included.
    None,
    /// Several.
    Several {
        /// The node of each PE.
        node_of: Arc<[u32]>,
        nodes: Arc<[Node]>,
    },
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// PEs of the job that it has.
    pub pes: usize,
    /// CPUs that these may use.
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
        Record { nodes: Nodes::One(Node { pes, cpus }), costs: None }
    }

    /// A job in which every access goes through a fabric, to a PE's own memory too.
    pub fn all_far() -> Self {
        Record { nodes: Nodes::None, costs: None }
    }

    /// A job on several nodes: that of each PE, as an index into `cpus`, the CPUs of each node.
    ///
    /// # Panics
    /// When a PE is on a node that there is not.
    pub fn nodes(node_of: &[u32], cpus: &[usize]) -> Self {
        let mut nodes: Vec<Node> = cpus.iter().map(|&cpus| Node { pes: 0, cpus }).collect();
        node_of.iter().for_each(|&node| nodes[node as usize].pes += 1);
        let nodes = Nodes::Several { node_of: node_of.into(), nodes: nodes.into() };
        Record { nodes, costs: None }
    }

    /// The same nodes, and what operations between them cost, where the fabric knows.
    pub(crate) fn with_costs(self, costs: Option<Costs>) -> Self {
        Record { costs, ..self }
    }

    /// What operations on far memory cost; `None` where all memory is near, or nobody knows.
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// Whether there is one node, with all PEs.
    #[inline]
    pub fn is_one_node(&self) -> bool {
        matches!(self.nodes, Nodes::One(_))
    }

    /// Whether some PEs are near to each other, and others far.
    pub fn is_mixed(&self) -> bool {
        matches!(self.nodes, Nodes::Several { .. })
    }

    /// Whether these PEs have each other's memory mapped.
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

    /// PEs for each CPU on a PE's node; `None` where there are no nodes.
    pub(crate) fn pes_per_cpu(&self, pe: usize) -> Option<usize> {
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
