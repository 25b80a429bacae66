//! Multicast between hosts, which are namespaces that the tests make: by datagrams, whatever is
//! lost of them, and by the tree where none pass.

mod common;

use common::cluster::Hosts;
use common::{Ended, has, pe, until};

/// Blocks of a run, their bytes, and all bytes.
const BLOCKS: usize = 100;
const BLOCK_BYTES: usize = 65_536;
const BYTES: u64 = (BLOCKS * BLOCK_BYTES) as u64;

fn hosts(count: usize) -> Option<Hosts> {
    if has("nft") { Hosts::new(count) } else { None }
}

/// Sends the blocks from PE 0 to all others.
fn run(hosts: &Hosts, options: &[&str]) -> Ended {
    let (pe, blocks) = (pe(), format!("{BLOCKS} {BLOCK_BYTES}"));
    hosts.run(&[options, &[&pe, "multicast", &blocks]].concat())
}

/// All have got all, in this way.
fn check(ended: &Ended, npes: usize, way: &str) {
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.contains(&format!("published by {way} at")), "{ended:?}");
    for reader in 1..npes {
        let received = format!("{reader} received {BLOCKS} blocks\n");
        assert!(ended.stdout.contains(&received), "{received}: {ended:?}");
    }
}

const THREE: [&str; 2] = ["--hosts", "h1:2,h2:2,h3:2"];
const TWO: [&str; 4] = ["--hosts", "h1:1,h2:3", "--env", "MEMONET_MULTICAST=hosts"];

/// Each byte leaves the writer's host as a datagram once at most, however many hosts there are.
#[test]
fn blocks_cross_once_for_all_hosts() {
    let Some(hosts) = hosts(3) else { return };
    hosts.treat_groups(1, "output", "counter");
    check(&run(&hosts, &THREE), 6, "hosts");
    let sent = hosts.counted(1);
    assert!((BYTES / 4..BYTES + BYTES / 5).contains(&sent), "{sent} bytes of {BYTES}");
}

#[test]
fn every_block_arrives_whatever_is_lost() {
    let Some(hosts) = hosts(3) else { return };
    // A rule sees the datagrams of one call as one packet. A run has some hundred packets, of which
    // 1 percent may well be none.
    for (host, percent) in [(2, 10), (3, 30)] {
        let rule = format!("numgen random mod 100 < {percent} counter drop");
        hosts.treat_groups(host, "input", &rule);
    }
    check(&run(&hosts, &THREE), 6, "hosts");
    check(&run(&hosts, &TWO), 4, "hosts");
    assert!(hosts.counted(2) > 0 && hosts.counted(3) > 0, "nothing was lost");
}

/// Datagrams pass while the channel is made, and soon none does, as where a switch forgets a group.
#[test]
fn datagrams_may_cease() {
    let Some(hosts) = hosts(3) else { return };
    hosts.treat_groups(3, "input", "quota over 200 kbytes counter drop");
    check(&run(&hosts, &THREE), 6, "hosts");
    assert!(hosts.counted(3) > 0, "nothing was lost");
}

#[test]
fn datagrams_may_come_twice_and_in_any_order() {
    let Some(hosts) = hosts(2) else { return };
    if hosts.queue(1, "netem delay 1ms reorder 50% duplicate 20% corrupt 1%") {
        check(&run(&hosts, &TWO), 4, "hosts");
    }
}

/// A firewall that drops datagrams to groups: jobs run by the tree, or say what is wrong.
#[test]
fn without_datagrams_there_is_the_tree() {
    let Some(hosts) = hosts(3) else { return };
    hosts.treat_groups(3, "input", "drop");
    check(&run(&hosts, &THREE), 6, "tree");
    let forced = run(&hosts, &[&THREE[..], &TWO[2..]].concat());
    assert_ne!(forced.status, 0, "{forced:?}");
    for said in ["none passes from PE 0 on h1 to PE 4 on h3", "239.192.0.0/14", "use tree"] {
        assert!(forced.stderr.contains(said), "{said}: {forced:?}");
    }
}

/// The way of a channel is one that reaches all heads, whatever other networks there are.
#[test]
fn a_network_that_leads_nowhere_does_not_matter() {
    let Some(hosts) = hosts(3) else { return };
    (1..=3).for_each(|host| hosts.add_network(host));
    check(&run(&hosts, &THREE), 6, "hosts");
    check(&run(&hosts, &TWO), 4, "hosts");
}

/// Whoever waits for a host that is lost gets an error that names it.
#[test]
fn a_lost_host_is_named() {
    let Some(hosts) = hosts(3) else { return };
    hosts.treat_groups(3, "input", "counter");
    let program = pe();
    let job = hosts.start(&[&THREE[..], &[&program, "multicast", "10000000 4096"]].concat());
    until("blocks come", || hosts.counted(3) > 100_000);
    hosts.kill(3);
    let ended = job.end();
    assert_ne!(ended.status, 0, "{ended:?}");
    assert!(ended.stderr.contains("h3") && !ended.stderr.contains("panicked"), "{ended:?}");
}
