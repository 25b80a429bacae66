//! The subnet manager that finds everything: discovery, sweeps, the standby.

use super::*;

fn with(name: &str, more: &str) -> Machine {
    let text = include_str!("../../../../../../machines/dimmnet-2.toml");
    let text = format!("{text}\n[variant.more]\nlike = \"{name}\"\n{more}\n");
    Machine::parse("managed", &text, Some("more")).unwrap()
}

/// A machine of another shape that is managed.
fn managed(shape: &str) -> Machine {
    with(
        shape,
        "subnet.sweep = { value = 1, unit = \"ms\", assumed = \"a test\" }\nsubnet.timeout = { value = 1, unit = \"ms\", assumed = \"a test\" }",
    )
}

/// What a block from one PE to another takes, until it has landed.
fn block_takes(bench: &mut Bench, from: u32, to: u32) -> Ps {
    let data = Payload::copy(&[7; 2000]);
    let begin = bench.world.now();
    bench.call(from, HostOp::Put { to: at(to, 64), data, signal: None, reuse: false });
    bench.call(from, HostOp::Quiet);
    bench.world.now() - begin
}

#[test]
fn the_library_runs_on_what_was_found() {
    carries_the_library(&machine("dimmnet-2/managed"), 1);
    carries_the_library(&machine("dimmnet-2/managed"), 4);
    carries_the_library(&machine("dimmnet-2/mesh"), 6);
    carries_the_library(&managed("tree"), 5);
    carries_the_library(&managed("lanes"), 4);
    carries_the_library(&managed("retransmit"), 4);
}

/// The manager finds the shortest ways: between any two PEs a block takes as long as on a machine
/// whose switches know the ways.
#[test]
fn ways_are_the_shortest() {
    for (shape, pes) in [("lossy", 5), ("tree", 60)] {
        let (mut knows, mut finds) = (
            Bench::of(&machine(&format!("dimmnet-2/{shape}")), pes, 1),
            Bench::of(&managed(shape), pes, 1),
        );
        for (from, to) in [(0, 1), (1, 0), (0, pes - 1), (pes - 1, 2), (3, 4)] {
            assert_eq!(block_takes(&mut finds, from, to), block_takes(&mut knows, from, to));
        }
        let lids: BTreeSet<u64> =
            (0..pes).map(|pe| finds.command(pe, listen(FIRST_GROUP, false))).collect();
        assert!(lids.len() == pes as usize && !lids.contains(&0), "{lids:?}");
        finds.run();
        finds.assert_conserved();
    }
}

/// How long the machine takes to come up: each request has its processor and that of the manager,
/// and the way there and back.
#[test]
fn what_discovery_takes() {
    let up = |nodes| Bench::of(&managed("lossy"), nodes, 1).world.now();
    // A node is one port to ask for, one to probe, its old LID, and its new one.
    let of_a_node = up(5) - up(4);
    let answer = Ps::us(40);
    assert!(of_a_node > answer * 4 && of_a_node < answer * 4 + Ps::us(16), "{of_a_node}");
    assert_eq!(up(6) - up(5), of_a_node);
}

/// Packets that come to a cut cable are lost, and sent again until the manager has found another
/// way, which is longer by one switch. When the cable is mended, the next sweep brings the short
/// way back.
#[test]
fn a_cut_cable_costs_time_and_loses_nothing() {
    let mut bench = Bench::new("dimmnet-2/mesh", 4);
    let short = block_takes(&mut bench, 0, 1);
    // Port 0 of a switch has its node; of switch 0 port n leads to switch n.
    bench.command(2, cut(0, 1));
    let begin = bench.world.now();
    let took = block_takes(&mut bench, 0, 1);
    assert_eq!(bench.bytes(at(1, 64), 2000), [7; 2000]);
    assert!(took > Ps::us(300) && took < Ps::us(6_000), "{took}");
    let swept = begin + Ps::us(8_000);
    bench.run_until(swept);
    let long = block_takes(&mut bench, 0, 1);
    // A packet of 2,034 bytes is stored once more: 2.034 us, 50 ns of cable, 200 ns of switch.
    assert_eq!(long - short, Ps::ns(2284));
    assert_eq!(block_takes(&mut bench, 2, 3), short);
    bench.command(3, mend(1, 1));
    let swept = bench.world.now() + Ps::us(8_000);
    bench.run_until(swept);
    assert_eq!(block_takes(&mut bench, 0, 1), short);
    assert!(bench.world.counts().lost > 0);
    bench.run();
    bench.assert_conserved();
}

/// Groups are served over what is left, and each member gets a datagram once.
#[test]
fn groups_follow_the_cables() {
    let mut bench = Bench::new("dimmnet-2/mesh", 5);
    let members = [0, 1, 2, 4];
    let group = join_for(&mut bench, &members, Wanted::Datagrams(0))[0] as u32;
    let all_get = |bench: &mut Bench, bytes: &[u8]| {
        assert_eq!(bench.call(0, send(group, None, bytes)).refused, None);
        let later = bench.world.now() + Ps::us(100);
        bench.run_until(later);
        for pe in [1, 2, 4] {
            assert_eq!(take(bench, pe, group), [bytes], "PE {pe}");
        }
    };
    all_get(&mut bench, b"before");
    for (number, (switch, port)) in [(0, 1), (0, 2), (2, 2)].into_iter().enumerate() {
        bench.command(3, cut(switch, port));
        let swept = bench.world.now() + Ps::us(10_000);
        bench.run_until(swept);
        all_get(&mut bench, &[number as u8; 9]);
    }
    bench.run();
    bench.assert_conserved();
}

/// The standby finds that the master is gone, and takes its place: groups go on, new ones are made,
/// and cut cables are gone round.
#[test]
fn the_standby_takes_over() {
    let mut bench = Bench::new("dimmnet-2/mesh", 4);
    let old = join_for(&mut bench, &[0, 1, 2, 3], Wanted::Datagrams(0))[0] as u32;
    let lid = bench.command(2, listen(FIRST_GROUP + 9, false));
    bench.command(3, stop_manager(0));
    let refused = bench.call(3, HostOp::Command(stop_manager(1))).refused.unwrap();
    assert!(refused.contains("only one"), "{refused}");
    assert!(bench.call(3, HostOp::Command(stop_manager(0))).refused.is_some());
    // Asked of a manager that is not there, and answered by the one that takes its place.
    let new = join_for(&mut bench, &[1, 2], Wanted::Datagrams(0));
    assert!(new[0] != 0 && new[0] == new[1] && new[0] as u16 != old as u16, "{new:?} {old:#x}");
    assert_eq!(bench.command(2, listen(FIRST_GROUP + 9, false)), lid, "places keep their LIDs");
    assert_eq!(bench.call(1, send(old, None, b"still there")).refused, None);
    let later = bench.world.now() + Ps::us(100);
    bench.run_until(later);
    for pe in [0, 2, 3] {
        assert_eq!(take(&mut bench, pe, old), [b"still there"], "PE {pe}");
    }
    bench.command(0, cut(2, 3));
    let took = block_takes(&mut bench, 2, 3);
    assert!(took < Ps::us(6_000), "{took}");
    bench.run();
    bench.assert_conserved();
}

/// While nothing is asked for, a standby whose master is there does nothing.
#[test]
fn sweeps_rest() {
    let mut bench = Bench::new("dimmnet-2/managed", 3);
    block_takes(&mut bench, 0, 1);
    let begin = bench.world.now();
    bench.run();
    assert!(bench.world.now() - begin < Ps::us(4_000));
    let sent = bench.world.counts().sent;
    bench.run();
    assert_eq!(bench.world.counts().sent, sent);
}

#[test]
fn what_may_be_cut() {
    let refusal = |machine: &Machine, pes, command| {
        let mut bench = Bench::of(machine, pes, 1);
        bench.call(0, HostOp::Command(command)).refused.unwrap_or_default()
    };
    let mesh = machine("dimmnet-2/mesh");
    for (machine, command, why) in [
        (&machine("dimmnet-2"), cut(0, 1), "stop programs for ever"),
        (&machine("dimmnet-2/managed"), cut(0, 1), "stop programs for ever"),
        (&machine("dimmnet-2/retransmit"), cut(0, 1), "stop programs for ever"),
        (&mesh, cut(0, 0), "leads to node 0"),
        (&mesh, cut(0, 4), "no cable"),
        (&mesh, cut(7, 1), "no cable"),
        (
            &with("mesh", "switch.buffer = { value = 8, unit = \"KiB\", assumed = \"a test\" }"),
            cut(0, 1),
            "wait in line",
        ),
    ] {
        let refused = refusal(machine, 4, command);
        assert!(refused.contains(why), "{refused}");
    }
    let mut bench = Bench::of(&mesh, 3, 1);
    bench.command(0, cut(0, 1));
    let refused = bench.call(0, HostOp::Command(cut(0, 2))).refused.unwrap();
    assert!(refused.contains("cut off"), "{refused}");
}

#[test]
fn wrong_parameters() {
    let error = |more| with("mesh", more).check().unwrap_err().to_string();
    let standby = error("subnet.standby = { value = 0, assumed = \"a test\" }");
    assert!(standby.contains("subnet.standby is 0; it must be from 1"), "{standby}");
    let sweep = error("subnet.sweep = { value = 0, unit = \"ms\", assumed = \"a test\" }");
    assert!(sweep.contains("subnet.sweep"), "{sweep}");
    let soon = error("subnet.sweep = { value = 1, unit = \"us\", assumed = \"a test\" }");
    assert!(soon.contains("less than subnet.timeout"), "{soon}");
    let timeout = error("subnet.timeout = { value = 40, unit = \"us\", assumed = \"a test\" }");
    assert!(timeout.contains("subnet.timeout is too short"), "{timeout}");
    let slow = error("link.rate = { value = 1, unit = \"MB/s\", assumed = \"a test\" }");
    assert!(slow.contains("nic.retransmit is 50000 ns, and a packet"), "{slow}");
    let memory = Box::new(crate::memory::PlainMemory::new(300, 8));
    let wide = crate::world::World::build(&machine("dimmnet-2/managed"), 300, 0, memory);
    let wide = wide.err().unwrap().to_string();
    assert!(wide.contains("subnet.sweep") && wide.contains("300 ports"), "{wide}");
}
