//! The layout of the library's objects that the header reads.

/// The name of the object that the header reads for writes. It changes with the layout.
pub const OBJECT: &str = "memonet_near_1";

/// The fields of [`OBJECT`] in their order, by their paths in the library's definition. Each is a
/// number or an address of 8 bytes.
pub const FIELDS: &[&str] = &[
    "heap.start",
    "heap.words",
    "heap.bias",
    "written",
    "statics.start",
    "statics.words",
    "statics.bias",
    "stride",
    "npes",
    "me",
];

/// The name of the object that the header reads for reads. It changes with the layout.
pub const READS: &str = "memonet_reads_1";

/// The fields of [`READS`] in their order, before [`LAST`].
pub const READS_FIELDS: &[&str] = &["left", "npes"];

/// The last field of both objects: one word for each of the first [`PES`] PEs.
pub const LAST: &str = "apart";

/// The number of PEs that inlined code can reach; the functions serve all other PEs.
pub const PES: usize = 256;
