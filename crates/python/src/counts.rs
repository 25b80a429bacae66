//! What a PE has done with what is shared.

use memonet_core::dsm::Stats;

/// Counts by their names, as a dictionary of Python.
pub type Counts = std::collections::BTreeMap<&'static str, u64>;

pub fn of(stats: Stats) -> Counts {
    let Stats { uses, hits, handovers, messages, bytes } = stats;
    Counts::from([
        ("uses", uses),
        ("hits", hits),
        ("handovers", handovers),
        ("messages", messages),
        ("bytes", bytes),
    ])
}
