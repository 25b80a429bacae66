//! Short calls of near PEs, each of which has a CPU for itself, go quick ways of their own. Mixed
//! with all others, and with members that go the general way, they give what they should.

mod common;

use common::{example, run};
use std::sync::LazyLock;

static PROGRAM: LazyLock<String> = LazyLock::new(|| example("calls"));

#[track_caller]
fn check(options: &[&str], arguments: &[&str]) {
    let ended = run(&[options, &[&PROGRAM], arguments].concat());
    let what = format!("{options:?} {arguments:?}: {ended:?}");
    assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (0, "", ""), "{what}");
}

#[test]
fn calls_of_all_kinds_one_after_the_other() {
    for seed in ["1", "2", "3", "4"] {
        for pes in ["1", "2", "3"] {
            check(&["-n", pes], &[seed]);
        }
        check(&["-n", "2"], &[seed, "thread"]);
    }
}

#[test]
fn calls_of_all_kinds_elsewhere() {
    let checked: &[&str] = &["-n", "2", "--env", "MEMONET_CHECK=1"];
    let direct: &[&str] = &["-n", "2", "--env", "MEMONET_COLLECTIVES=direct"];
    let central: &[&str] = &["-n", "2", "--env", "MEMONET_BARRIER=central"];
    let far: &[&str] = &["-n", "2", "--env", "MEMONET_FABRIC=far"];
    for options in [checked, direct, central, far, &["-n", "2", "--machine", "rdma-100g"]] {
        check(options, &["5"]);
    }
}

/// The network of the machine makes short collectives and barriers, which take turns on its wires:
/// members may be several calls apart, with a barrier under way.
#[test]
fn calls_of_all_kinds_on_wires() {
    for (pes, seed) in [("2", "1"), ("3", "2"), ("3", "4"), ("5", "5")] {
        check(&["-n", pes, "--machine", "scc"], &[seed]);
    }
}
