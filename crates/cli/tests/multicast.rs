//! Multicast between hosts, which are network namespaces that the tests make: by UDP multicast, with and without loss.

mod common;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Ended, has, pe, run, skip};

/// Hosts on one switch, of which nothing is left when this is dropped.
struct Hosts {
    names: Vec<String>,
    switch: String,
}

fn tool(command: &str) -> Output {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap();
    Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

fn must(command: &str) {
    let output = tool(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Hosts {
    /// So many hosts with jumbo frames; `None` where this process may not make any.
    fn new(count: usize) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !has("nft") {
            return None;
        }
        let mark = format!("mn{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let switch = format!("{mark}s");
        let made = tool(&format!("ip netns add {switch}"));
        if !made.status.success() {
            skip(&format!("no network namespaces here: {}", String::from_utf8_lossy(&made.stderr)));
            return None;
        }
        // From here on dropping it takes away whatever there is.
        let hosts = Hosts {
            names: (0..count).map(|host| format!("{mark}h{host}")).collect(),
            switch: switch.clone(),
        };
        must(&format!("ip -n {switch} link add bridge mtu 9000 type bridge mcast_snooping 0"));
        must(&format!("ip -n {switch} link set bridge up"));
        for (number, host) in hosts.names.iter().enumerate() {
            must(&format!("ip netns add {host}"));
            must(&format!(
                "ip -n {switch} link add port{number} mtu 9000 type veth peer name eth0 mtu 9000 netns {host}"
            ));
            must(&format!("ip -n {switch} link set port{number} master bridge"));
            must(&format!("ip -n {switch} link set port{number} up"));
            must(&format!("ip -n {host} address add 10.77.0.{}/24 dev eth0", number + 1));
            must(&format!("ip -n {host} link set lo up"));
            must(&format!("ip -n {host} link set eth0 up"));
            must(&format!("ip -n {host} route add 224.0.0.0/4 dev eth0"));
        }
        Some(hosts)
    }

    /// Loses so many per cent of the datagrams that come to a host.
    fn lose(&self, host: usize, percent: u32) {
        let name = &self.names[host];
        must(&format!("ip netns exec {name} nft add table inet loss"));
        must(&format!(
            "ip netns exec {name} nft add chain inet loss input {{ type filter hook input priority 0 ; }}"
        ));
        must(&format!(
            "ip netns exec {name} nft add rule inet loss input meta l4proto udp numgen random mod 100 < {percent} counter drop"
        ));
    }

    /// Datagrams that were lost at a host.
    fn lost(&self, host: usize) -> u64 {
        let listed = tool(&format!("ip netns exec {} nft list ruleset", self.names[host]));
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let count = text
            .split("packets ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        count.unwrap_or_else(|| panic!("no count in {text}"))
    }

    /// Runs PE k on host k.
    fn run(&self, program: &[&str]) -> Ended {
        let mut args = vec!["--env", "MEMONET_MULTICAST=udp:239.77.0.1:7700"];
        for (number, host) in self.names.iter().enumerate() {
            if number > 0 {
                args.push(":");
            }
            args.extend(["-n", "1", "ip", "netns", "exec", host]);
            args.extend(program);
        }
        run(&args)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.switch]) {
            // Perhaps it was never made.
            let _gone = tool(&format!("ip netns delete {name}"));
        }
        let left = String::from_utf8_lossy(&tool("ip netns list").stdout).into_owned();
        assert!(!left.contains(&self.switch[..self.switch.len() - 1]), "left behind: {left}");
    }
}

fn check(ended: &Ended, readers: usize, blocks: usize) -> f64 {
    assert_eq!(ended.status, 0, "{ended:?}");
    for reader in 1..=readers {
        assert!(ended.stdout.contains(&format!("{reader} received {blocks} blocks\n")), "{ended:?}");
    }
    let rate = ended
        .stdout
        .split("published by datagrams at ")
        .nth(1)
        .unwrap_or_else(|| panic!("{ended:?}"));
    rate.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn every_block_arrives_whatever_is_lost() {
    let Some(hosts) = Hosts::new(4) else { return };
    let (blocks, program) = (400, pe());
    let program = [program.as_str(), "multicast", "400 65536"];
    let clean = check(&hosts.run(&program), 3, blocks);
    hosts.lose(2, 5);
    let lossy = check(&hosts.run(&program), 3, blocks);
    let lost = hosts.lost(2);
    assert!(lost > 50, "only {lost} datagrams were lost");
    println!("{clean} MB/s without loss, {lossy} MB/s with {lost} datagrams lost at one of three readers");
    hosts.lose(0, 20);
    hosts.lose(1, 30);
    check(&hosts.run(&program), 3, blocks);
}

#[test]
fn small_blocks_arrive() {
    let Some(hosts) = Hosts::new(3) else { return };
    hosts.lose(1, 10);
    let program = pe();
    check(&hosts.run(&[&program, "multicast", "5000 16"]), 2, 5000);
}
