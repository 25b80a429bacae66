//! Multicast under kills at any moment, and between hosts, which are network namespaces that the
//! tests make: by UDP multicast, with losses, narrow links and strangers.

mod common;

use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{Ended, Random, has, kill_one, note, pe, run, skip};

/// Hosts on one switch, of which nothing is left when this is dropped.
struct Hosts {
    names: Vec<String>,
    switch: String,
}

fn tool(command: &str) -> Output {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap();
    Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{command}: {error}"))
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
            "ip netns exec {name} nft add rule inet loss input meta l4proto udp numgen random mod 100 <= {} counter drop",
            percent - 1
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

    /// Has the switch's link to a host take no more than 1500 bytes at a time, of which the host
    /// knows nothing.
    fn narrow(&self, host: usize) {
        must(&format!("ip -n {} link set port{host} mtu 1500", self.switch));
    }

    /// Bytes of a packet that came to a host, on average, since this was last asked.
    fn packet(&self, host: usize, before: &mut [u64; 2]) -> u64 {
        let count = |what: &str| -> u64 {
            let read = tool(&format!(
                "ip netns exec {} cat /sys/class/net/eth0/statistics/rx_{what}",
                self.names[host]
            ));
            String::from_utf8_lossy(&read.stdout).trim().parse().unwrap()
        };
        let now = [count("bytes"), count("packets")];
        let [bytes, packets] = [now[0] - before[0], now[1] - before[1]];
        *before = now;
        // None may have come yet.
        bytes / packets.max(1)
    }

    /// Runs PE k on host k, on all hosts or on the first of them.
    fn run(&self, hosts: usize, program: &[&str]) -> Ended {
        let mut args = vec!["--env", "MEMONET_MULTICAST=udp:239.77.0.1:7700"];
        for (number, host) in self.names[..hosts].iter().enumerate() {
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
        assert!(
            ended.stdout.contains(&format!("{reader} received {blocks} blocks\n")),
            "{ended:?}"
        );
    }
    let rate = ended
        .stdout
        .split("published by datagrams at ")
        .nth(1)
        .unwrap_or_else(|| panic!("{ended:?}"));
    rate.split(' ').next().unwrap().parse().unwrap()
}

/// Goodput with and without loss at one of three readers, in turns: the ratio is wanted to be 0.7.
#[test]
fn every_block_arrives_whatever_is_lost() {
    const ROUNDS: usize = 5;
    let (Some(perfect), Some(lossy)) = (Hosts::new(4), Hosts::new(4)) else {
        return;
    };
    let (blocks, program) = (400, pe());
    let program = [program.as_str(), "multicast", "400 65536"];
    lossy.lose(2, 5);
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (hosts, rates) in [&perfect, &lossy].into_iter().zip(&mut rates) {
            rates.push(check(&hosts.run(4, &program), 3, blocks));
        }
    }
    let lost = lossy.lost(2);
    assert!(lost > 50 * ROUNDS as u64, "only {lost} datagrams were lost");
    let [clean, repaired] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    note(&format!(
        "{clean} MB/s without loss, {repaired} MB/s with 5 % lost at one of three readers: {:.2}",
        repaired / clean
    ));
    lossy.lose(0, 20);
    lossy.lose(1, 30);
    check(&lossy.run(4, &program), 3, blocks);
}

#[test]
fn small_blocks_arrive() {
    let Some(hosts) = Hosts::new(3) else { return };
    hosts.lose(1, 10);
    let program = pe();
    check(&hosts.run(3, &[&program, "multicast", "5000 16"]), 2, 5000);
}

/// Datagrams are as large as the links take; and where one in the middle drops all that is large,
/// of which no end can know, they become small.
#[test]
fn a_narrow_link_in_the_middle_is_found_out() {
    let Some(hosts) = Hosts::new(3) else { return };
    let program = pe();
    let program = [program.as_str(), "multicast", "100 65536"];
    let mut before = [0; 2];
    hosts.packet(2, &mut before);
    check(&hosts.run(3, &program), 2, 100);
    let large = hosts.packet(2, &mut before);
    assert!(large > 5000, "{large} bytes a packet");
    hosts.narrow(1);
    check(&hosts.run(3, &program), 2, 100);
    let small = hosts.packet(2, &mut before);
    // Until that is known, some were large.
    assert!(small < 2500, "{small} bytes a packet");
}

/// A network that takes nothing to one of the PEs, or a PE that does not look: nobody hangs, who
/// waits says of whom it hears nothing, and what may be done.
#[test]
fn where_datagrams_do_not_pass_it_is_said() {
    // A reader waits for a block; the writer for room; the writer, when it leaves, for what it
    // published to arrive. Each says so after ten seconds.
    let cases = [
        (Some(1), &["multicast", "10 64"][..], 0),
        (Some(0), &["multicast", "400 65536"], 1),
        (None, &["silence"], 1),
    ];
    let check = |(deaf, program, silent): (Option<usize>, &[&str], usize)| {
        let Some(hosts) = Hosts::new(2) else { return };
        deaf.into_iter().for_each(|deaf| hosts.lose(deaf, 100));
        let helper = pe();
        let ended = hosts.run(2, &[&[helper.as_str()], program].concat());
        assert_ne!(ended.status, 0, "{ended:?}");
        for said in
            [format!("nothing was heard of PE {silent} for"), "MEMONET_MULTICAST=tree".into()]
        {
            assert!(ended.stderr.contains(&said), "{said}: {ended:?}");
        }
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    };
    std::thread::scope(|scope| {
        cases.into_iter().for_each(|case| drop(scope.spawn(move || check(case))))
    });
}

/// A process that is ended when this is dropped.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        assert!(ended.is_ok_and(|status| status.code().is_none()), "it was there to the end");
    }
}

/// A stranger sends what it hears once more, and anything else, to the group and port of the
/// channel.
#[test]
fn strangers_change_nothing() {
    let Some(hosts) = Hosts::new(4) else { return };
    let program = pe();
    let mut flood = Command::new("ip");
    flood.args(["netns", "exec", &hosts.names[3], &program, "flood", "239.77.0.1:7700"]);
    let _stranger = Stranger(flood.spawn().unwrap());
    check(&hosts.run(3, &[&program, "multicast", "400 65536"]), 2, 400);
    check(&hosts.run(3, &[&program, "multicast", "5000 16"]), 2, 5000);
}

/// What a PE of the program `publish` said: which it is, its number of blocks, and why no more.
fn said(line: &str) -> Option<(usize, usize, &str)> {
    let (pe, rest) = line.strip_prefix("PE ")?.split_once(" had ")?;
    let (blocks, why) = rest.split_once(" blocks: ")?;
    Some((pe.parse().ok()?, blocks.parse().ok()?, why))
}

/// Writer and readers, in all ways of delivery: nobody hangs, no block is torn, lost or out of
/// turn, nothing stays behind.
#[test]
fn kills_at_any_moment_tear_no_block() {
    let ways = [
        "MEMONET_MULTICAST=near",
        "MEMONET_FABRIC=far",
        "MEMONET_FABRIC=far:delay_us=30,reorder=1",
        "MEMONET_MULTICAST=tree",
        "MEMONET_MULTICAST=udp:239.77.0.9:17900@127.0.0.1",
        "MEMONET_MULTICAST=hosts --env MEMONET_FABRIC=tcp:nodes=2",
    ];
    let (mut random, pe) = (Random(44), pe());
    let (mut complete, mut killed) = (0, [0; 2]);
    for round in 0..200 {
        let (way, survive) = (ways[round % ways.len()], ["", "survive"][round / ways.len() % 2]);
        let ended = kill_one(
            4,
            &["--env"].into_iter().chain(way.split(' ')).collect::<Vec<_>>(),
            &[&pe, "publish", survive],
            Duration::from_millis(40),
            &mut random,
        );
        let all: Vec<_> = ended.stdout.lines().filter_map(said).collect();
        // A PE that was still making its end has none.
        let none = ended.stderr.lines().filter(|line| line.starts_with("error: PE ")).count();
        assert_eq!(all.len() + none, 3, "round {round}, {way} {survive}: {ended:?}");
        // Where all that were left had an end, it is known who was killed.
        if none == 0 {
            killed[usize::from(all.iter().any(|&(pe, ..)| pe == 0))] += 1;
        }
        let published = all.iter().find(|&&(pe, ..)| pe == 0).map(|&(_, blocks, _)| blocks);
        for &(pe, blocks, why) in all.iter().filter(|&&(pe, ..)| pe != 0) {
            let Some(published) = published else { continue };
            let closed = why.contains("has left");
            assert!(
                blocks == published || blocks < published && !closed,
                "round {round}, {way} {survive}: {ended:?}"
            );
            assert!(
                closed || survive.is_empty(),
                "PE {pe} got all, round {round}, {way}: {ended:?}"
            );
            complete += usize::from(closed);
        }
    }
    assert!(complete > 50, "channels were at work: {complete}");
    let [writers, readers] = killed;
    note(&format!(
        "killed at work: {writers} writers, {readers} readers; {complete} readers got all of a channel that survived it"
    ));
    assert!(writers >= 20 && readers >= 60, "of {writers} writers and {readers} readers");
}
