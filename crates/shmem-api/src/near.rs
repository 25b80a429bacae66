//! The objects of the library that the header reads: the layout on which both agree.

/// The object that the header reads. Its name changes with its layout.
pub const OBJECT: &str = "memonet_near_1";

/// Its fields from the first on, by their paths in the library's own definition. All are words of 8
/// bytes, numbers or addresses.
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

/// The object by which it reads. Its name changes with its layout, too.
pub const READS: &str = "memonet_reads_1";

/// Its fields from the first on, before [`LAST`].
pub const READS_FIELDS: &[&str] = &["left", "npes"];

/// The last field: one word for each of the first PEs.
pub const LAST: &str = "apart";

/// So many; others are left to the functions.
pub const PES: usize = 256;
