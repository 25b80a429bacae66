//! Where PEs run.

use crate::op::Pe;
use crate::packet::Node;

/// So many PEs on each node, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// At least one.
    pub(crate) per_node: u32,
}

impl Placement {
    /// The node of a PE.
    pub(crate) fn node(self, pe: Pe) -> Node {
        Node(pe.0 / self.per_node)
    }

    /// The number of a PE among those of its node.
    pub(crate) fn place(self, pe: Pe) -> usize {
        (pe.0 % self.per_node) as usize
    }

    /// The PE that has this number among those of a node.
    pub(crate) fn pe(self, node: Node, place: usize) -> Pe {
        Pe(node.0 * self.per_node + place as u32)
    }

    /// Number of nodes that so many PEs need.
    pub(crate) fn nodes(self, pes: u32) -> u32 {
        pes.div_ceil(self.per_node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_filled_one_after_the_other() {
        let placement = Placement { per_node: 3 };
        let places = (0..7).map(Pe).map(|pe| (placement.node(pe).0, placement.place(pe)));
        assert!(places.eq([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]));
        for pe in (0..7).map(Pe) {
            assert_eq!(placement.pe(placement.node(pe), placement.place(pe)), pe);
        }
        assert_eq!([1, 3, 4, 6, 7].map(|pes| placement.nodes(pes)), [1, 1, 2, 2, 3]);
    }
}
