//! Timelines of C programs.

#[path = "../../../cli/tests/common/timeline.rs"]
mod timeline;

use crate::common::{assert_success, folder, installed, job, printed, source};
use timeline::Timeline;

#[test]
fn each_call_is_a_slice_by_its_c_name() {
    let folder = folder();
    let (program, path) = (folder.path().join("trace"), folder.path().join("trace.json"));
    assert_success(installed("oshcc").args(["-O2", "-o"]).arg(&program).arg(source("trace.c")));
    let trace = ["--trace", path.to_str().unwrap()];
    for machine in [&[][..], &["--machine", "rdma-100g"]] {
        printed(&mut job(3, &[&trace, machine].concat(), &program, &[]));
        let timeline = Timeline::read(&path);
        for pe in 0..3 {
            let track = format!("PE {pe}");
            for (name, count) in [
                ("shmem_init", 1),
                ("shmem_malloc", 1),
                ("shmem_long_put", 5),
                ("shmem_fence", 5),
                ("shmem_long_p", 5),
                ("shmem_long_wait_until", 5),
                ("shmem_long_atomic_inc", 5),
                ("shmem_barrier_all", 5),
                ("shmem_long_sum_reduce", 1),
                ("shmem_finalize", 1),
            ] {
                assert_eq!(timeline.count(&track, name), count, "{name} of {track}");
            }
            let left = format!("PE {}", (pe + 2) % 3);
            let ends = |[from, to]: &&[(String, String); 2]| {
                *from == (left.clone(), "shmem_long_p".into()) && to.0 == track
            };
            assert_eq!(timeline.arrows.iter().filter(ends).count(), 5, "{:#?}", timeline.arrows);
            let put = timeline.track(&track).iter().find(|slice| slice.name == "shmem_long_put");
            let arguments = &put.unwrap().arguments;
            assert_eq!(arguments["target"], format!("PE {}", (pe + 1) % 3));
            assert_eq!(arguments["bytes"], 64);
            // The place of a call in C is not known; a line of the library would be none.
            assert!(arguments["called at"].is_null(), "{arguments}");
        }
    }
}
