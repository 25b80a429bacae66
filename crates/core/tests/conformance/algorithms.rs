//! Tests of barriers, teams, collectives and multicast with each algorithm. The environment forces
//! one, so each gets a process of its own.

use crate::setup::in_another_process;
use memonet_core::{
    Delivery, ENV_BARRIER, ENV_COLLECTIVES, ENV_MULTICAST, Error, Job, MulticastOptions,
};

/// Tests with barriers in them; of the mixed programs those that have some.
fn barriers_on(setups: &[&str]) -> Vec<String> {
    let tests_on = |setup: &&str| {
        let suffixes = ["barriers", "among", "teams"].map(|file| format!("{file}::{setup}"));
        suffixes.into_iter().chain([format!("mixed::{setup}::of_")])
    };
    setups.iter().flat_map(tests_on).collect()
}

/// The most and the least helpful fabric.
fn everything_with(algorithm: &str) {
    in_another_process(&barriers_on(&["near", "shuffled"]), &[(ENV_BARRIER, algorithm)]);
}

/// Nearby: up to eight PEs behind a fabric choose it themselves.
#[test]
fn everyone() {
    in_another_process(&barriers_on(&["near"]), &[(ENV_BARRIER, "everyone")]);
}

#[test]
fn central() {
    everything_with("central");
}

#[test]
fn tree() {
    everything_with("tree");
}

#[test]
fn dissemination() {
    everything_with("dissemination");
}

fn collectives_by(way: &str, setups: &[&str]) {
    let tests_on =
        |setup: &&str| ["collectives", "mixed", "strided"].map(|file| format!("{file}::{setup}"));
    let tests: Vec<String> = setups.iter().flat_map(tests_on).collect();
    in_another_process(&tests, &[(ENV_COLLECTIVES, way)]);
}

/// Where members share nodes: elsewhere collectives go by lines unless told otherwise.
#[test]
fn collectives_by_lines() {
    collectives_by("line", &["dealt"]);
}

#[test]
fn collectives_by_eager_buffers() {
    collectives_by("eager", &["near", "shuffled"]);
}

#[test]
fn collectives_by_direct_steps() {
    collectives_by("direct", &["near", "shuffled"]);
}

/// This way is the one that teams on several nodes choose, so few tests show that it can be forced.
#[test]
fn collectives_by_leaders_of_nodes() {
    in_another_process(&["nodes::teams"], &[(ENV_COLLECTIVES, "nodes")]);
}

#[test]
fn collectives_by_pigeons() {
    in_another_process(&["in_a_process_with_a_bad_way"], &[(ENV_COLLECTIVES, "pigeon")]);
}

#[test]
#[ignore = "started by `collectives_by_pigeons`"]
fn in_a_process_with_a_bad_way() {
    if std::env::var_os(ENV_COLLECTIVES).is_some() {
        let refused = Job::threads(2, |_| ()).unwrap_err();
        assert!(matches!(refused, Error::Environment { name: ENV_COLLECTIVES, .. }), "{refused}");
        assert!(
            refused.to_string().contains("pigeon") && refused.to_string().contains("direct"),
            "{refused}"
        );
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    in_another_process(&["in_a_process_with_a_bad_algorithm"], &[(ENV_BARRIER, "telepathy")]);
    in_another_process(&["in_a_process_with_everyone"], &[(ENV_BARRIER, "everyone")]);
}

#[test]
#[ignore = "started by `what_cannot_be_is_an_error`"]
fn in_a_process_with_a_bad_algorithm() {
    if std::env::var_os(ENV_BARRIER).is_some() {
        let refused = Job::threads(2, |_| ()).unwrap_err();
        assert!(matches!(refused, Error::Environment { name: ENV_BARRIER, .. }), "{refused}");
        assert!(
            refused.to_string().contains("telepathy")
                && refused.to_string().contains("dissemination"),
            "{refused}"
        );
    }
}

#[test]
#[ignore = "started by `what_cannot_be_is_an_error`"]
fn in_a_process_with_everyone() {
    if std::env::var_os(ENV_BARRIER).is_some() {
        Job::threads(8, |job| job.barrier().unwrap()).unwrap();
        let refused = Job::threads(9, |_| ()).unwrap_err();
        assert!(matches!(refused, Error::Environment { name: ENV_BARRIER, .. }), "{refused}");
        assert!(refused.to_string().contains('9'), "{refused}");
    }
}

fn multicast_by(way: &str, setups: &[&str]) {
    let tests_on =
        |setup: &&str| ["multicast", "multicast_ends"].map(|file| format!("{file}::{setup}"));
    let tests: Vec<String> = setups.iter().flat_map(tests_on).collect();
    in_another_process(&tests, &[(ENV_MULTICAST, way)]);
}

/// Nearby: PEs behind the test fabric choose a tree themselves.
#[test]
fn multicast_by_a_tree() {
    multicast_by("tree", &["near"]);
}

#[test]
fn multicast_by_datagrams() {
    multicast_by("udp:239.77.7.7:17700@127.0.0.1", &["near", "shuffled"]);
}

/// Nodes of one machine, over its loopback interface.
#[test]
fn multicast_between_hosts() {
    let tests = ["multicast::streams", "multicast_ends::streams", "in_a_process_between_hosts"];
    in_another_process(&tests, &[(ENV_MULTICAST, "hosts")]);
}

#[test]
#[ignore = "started by `multicast_between_hosts`"]
fn in_a_process_between_hosts() {
    if std::env::var_os(ENV_MULTICAST).is_none() {
        return;
    }
    let ways = |fabric: &str| {
        let options = memonet_fabrics::options(fabric).unwrap();
        Job::threads_with(&options, 5, |job| {
            let flat = MulticastOptions::new().survive_readers(true);
            let ways = [MulticastOptions::new(), flat]
                .map(|options| job.multicast::<u64>(1, &[4, 0, 2, 3], options));
            let near = job.multicast::<u64>(0, &[1], MulticastOptions::new());
            let [way, flat] = ways.map(|channel| channel.map(|channel| channel.delivery()));
            (way, flat.unwrap(), near.map(|channel| channel.delivery()))
        })
        .unwrap()
    };
    for (way, flat, near) in ways("tcp:nodes=2") {
        assert_eq!(
            (way.unwrap(), flat, near.unwrap()),
            (Delivery::Hosts, Delivery::Tree, Delivery::Near)
        );
    }
    for (way, flat, _) in ways("far:nodes=2") {
        let refused = way.expect_err("this fabric knows no hosts").to_string();
        for said in ["PE 1", "UDP multicast", "239.192.0.0/14", "tree"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
        assert_eq!(flat, Delivery::Tree);
    }
}

#[test]
fn multicast_by_what_cannot_be() {
    for bad in ["udp:10.0.0.1:99", "udp:239.77.7.7:0"] {
        in_another_process(&["in_a_process_with_a_bad_delivery"], &[(ENV_MULTICAST, bad)]);
    }
}

#[test]
#[ignore = "started by `multicast_by_what_cannot_be`"]
fn in_a_process_with_a_bad_delivery() {
    if let Ok(way) = std::env::var(ENV_MULTICAST) {
        let refused = Job::threads(2, |_| ()).expect_err("refused before any channel is made");
        assert!(matches!(refused, Error::Environment { name: ENV_MULTICAST, .. }), "{refused}");
        let told = refused.to_string();
        assert!(
            told.contains(&way) && told.contains("tree") && told.contains("1 to 65280"),
            "{told}"
        );
    }
}
