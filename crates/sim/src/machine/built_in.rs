//! The machines that are built in.

/// The built-in machines: file name without its ending, and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("dimmnet-1", include_str!("../../machines/dimmnet-1.toml")),
    ("dimmnet-2", include_str!("../../machines/dimmnet-2.toml")),
    ("fast-ethernet-udp", include_str!("../../machines/fast-ethernet-udp.toml")),
    ("gigabit-ethernet-udp", include_str!("../../machines/gigabit-ethernet-udp.toml")),
    ("memory-channel-2", include_str!("../../machines/memory-channel-2.toml")),
    ("pci-sci", include_str!("../../machines/pci-sci.toml")),
    ("rdma-100g", include_str!("../../machines/rdma-100g.toml")),
    ("scc", include_str!("../../machines/scc.toml")),
    ("sr2201", include_str!("../../machines/sr2201.toml")),
];
