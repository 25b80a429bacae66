//! The C program in `examples/`, which compares its result with a sequential run.

use crate::common::{assert_success, folder, installed, job, printed};
use std::path::Path;

#[test]
fn data_are_shared_by_memory_over_fabrics_and_on_machines() {
    let folder = folder();
    let program = folder.path().join("mandelbrot");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mandelbrot.c");
    let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    assert_success(installed("oshcc").args(flags).arg(&program).arg(source));
    let right = |npes: usize, options: &[&str], threads: &str| {
        let text = printed(&mut job(npes, options, &program, &["24", threads]));
        let begin = format!("right: {npes} PEs with {threads} threads did 24 rows; ");
        assert!(text.starts_with(&begin), "{options:?}: {text}");
        text
    };
    for npes in [1, 3] {
        right(npes, &[], "1");
        right(npes, &[], "3");
        right(npes, &["--fabric", "far"], "1");
        right(npes, &["--fabric", "far:delay_us=20,reorder=1,seed=3"], "3");
        right(npes, &["--fabric", "tcp"], "2");
    }
    // One thread of a PE uses memonet there. The PEs take turns, so PE 0 does not have all rows.
    for machine in ["dimmnet-1/fagus", "dimmnet-1/D", "sr2201", "scc", "rdma-100g"] {
        let text = right(2, &["--machine", machine], "1");
        assert!(!text.contains("another PE 0 times"), "{machine}: {text}");
    }
}
