//! What lies between the PEs.

use crate::setup::Setup;

/// Streams between all PEs.
pub const STREAMS: Setup = Setup::of("streams", "tcp");
/// Nodes of two PEs, with streams between nodes.
pub const PAIRS: Setup = Setup::of("pairs", "tcp:nodes=2");
/// As many nodes, to which PEs are dealt out in turn; every other node has one CPU.
pub const DEALT: Setup = Setup::of("dealt", "tcp:nodes=2,deal=1,cpus=1");
