//! Several users of one NIC.

use super::*;

/// DIMMnet-1 with so many PEs on a node.
fn shared(per_node: u32) -> Machine {
    let mut machine = Machine::load("dimmnet-1/D-shared").unwrap();
    machine.set("topology.pes_per_node", per_node.into()).unwrap();
    machine
}

fn word(to: FarAddress, value: u64) -> HostOp {
    HostOp::Store { to, word: Payload::word(8, value) }
}

#[test]
fn the_65th_user_is_refused() {
    let build = |users, pes| {
        World::build(&shared(users), pes, 1, Box::new(PlainMemory::new(pes as usize, 64))).map(drop)
    };
    for (users, pes) in [(64, 64), (64, 65), (64, 200), (1, 3)] {
        build(users, pes).unwrap_or_else(|e| panic!("{users}: {e}"));
    }
    let said = build(65, 2).unwrap_err().to_string();
    for part in ["pes_per_node is 65", "64 users", "put at most 64 PEs on a node"] {
        assert!(said.contains(part), "{said}");
    }
}

/// Whatever users of shared NICs store and put, also to each other: it arrives where it should, and
/// nothing else changes.
#[test]
fn users_reach_each_other_and_the_others() {
    for (per_node, pes) in [(1, 5), (2, 5), (4, 9), (64, 70)] {
        let mut bench = Bench::of(&shared(per_node), pes);
        let mut expected = vec![vec![0u8; SEGMENT]; pes as usize];
        let mut ops = Vec::new();
        for from in 0..pes {
            for step in [1, 2, per_node, per_node + 1] {
                let target = (from + step) % pes;
                let at = 8 * u64::from(from);
                ops.push(bench.begin(from, word(to(target, at), u64::from(from) + 1)));
                expected[target as usize][at as usize] = from as u8 + 1;
                let at = 2048 + 777 * u64::from(from);
                let data = Payload::copy(&[from as u8; 777]);
                let signal = Signal {
                    at: to(target, 1024 + 8 * u64::from(from)),
                    op: SignalOp::Set,
                    value: 1,
                };
                expected[target as usize][at as usize..][..777].fill(from as u8);
                expected[target as usize][1024 + 8 * from as usize] = 1;
                let put =
                    HostOp::Put { to: to(target, at), data, signal: Some(signal), reuse: true };
                ops.push(bench.begin(from, put));
            }
        }
        let mut left = ops.len();
        while let Some(happened) = bench.world.next() {
            if let Happened::Answered(_, answer) = happened {
                assert_eq!(answer.refused, None);
                left -= 1;
            }
        }
        assert_eq!(left, 0);
        bench.settle();
        for pe in 0..pes {
            assert!(bench.world.is_quiet(Pe(pe)));
            assert!(bench.segment(pe) == expected[pe as usize], "{per_node} a node: PE {pe}");
        }
    }
}

/// Two jobs on two nodes: PEs 0 and 2 are in group 7, PEs 1 and 3 in group 8.
fn two_jobs() -> Bench {
    let mut bench = Bench::of(&shared(2), 4);
    for pe in 0..4 {
        bench.command(pe, command::attach(7 + (pe % 2) as u16));
    }
    bench.command(2, command::register(7, 40, 2, 0, 16));
    bench.command(3, command::register(8, 40, 2, 0, 17));
    bench
}

#[test]
fn packets_of_another_group_are_dropped_and_reported() {
    let mut bench = two_jobs();
    let header = Header { physical: false, process: 40, region: 2, ..seed(1, 100) };
    // One process number in two groups: each PE reaches the process of its own.
    for (pe, value) in [(0, b"one"), (1, b"two")] {
        bench.command(pe, command::block(&header, Payload::copy(value)));
    }
    bench.settle();
    assert_eq!(bench.seen(2, 16 * 4096 + 100, 3), b"one");
    assert_eq!(bench.seen(3, 17 * 4096 + 100, 3), b"two");
    // A group that has nobody there.
    bench.command(1, command::attach(9));
    bench.command(1, command::block(&header, Payload::copy(b"bad")));
    bench.settle();
    assert_eq!(bench.command(2, command::dropped(Some(Refusal::Group))).value, 1);
    // A process of the other group.
    bench.command(3, command::register(8, 41, 2, 0, 17));
    bench.command(0, command::block(&Header { process: 41, ..header }, Payload::copy(b"bad")));
    bench.settle();
    assert_eq!(bench.command(2, command::dropped(Some(Refusal::Process))).value, 1);
    assert_eq!(bench.seen(2, 16 * 4096 + 100, 3), b"one");
    assert_eq!(bench.seen(3, 17 * 4096 + 100, 3), b"two");
}

/// What is one user's is out of the reach of the other users of its NIC.
#[test]
fn each_user_has_its_own_view() {
    let mut bench = two_jobs();
    let refused = |bench: &mut Bench, pe, command: Command, why: &str| {
        let said = bench.ask(pe, HostOp::Command(command.clone())).refused;
        assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{command:?}: {said:?}");
    };
    // Kick page 5 is another page for each.
    bench.command(0, command::map(5, &Header { group: 7, ..seed(1, 0x5000) }));
    refused(&mut bench, 1, command::kick(5, 0, Payload::word(8, 1)), "not mapped");
    bench.command(1, command::map(5, &Header { group: 8, ..seed(1, 0x6000) }));
    bench.command(0, command::kick(5, 0, Payload::word(8, 11)));
    bench.command(1, command::kick(5, 0, Payload::word(8, 22)));
    bench.settle();
    assert_eq!(bench.command(2, command::read(0x5000, 8, Looks::Words)).value, 11);
    assert_eq!(bench.command(3, command::read(0x6000, 8, Looks::Words)).value, 22);
    // 256 sets of 2^9 pages, halved.
    refused(&mut bench, 0, command::map(1 << 16, &seed(1, 0x5000)), "no kick page 65536");
    refused(&mut bench, 0, command::kick(1 << 16, 0, Payload::word(8, 1)), "no kick page 65536");
    // Pages of the other group's programs.
    refused(&mut bench, 2, command::read(0x6000, 8, Looks::Words), "process group 8");
    refused(&mut bench, 2, command::write(17 * 4096, Payload::word(8, 1)), "process group 8");
    refused(&mut bench, 1, command::map(6, &seed(1, 0x5000)), "process group 7");
    refused(&mut bench, 3, command::register(8, 42, 1, 0, 16), "process group 7");
    refused(&mut bench, 3, command::register(7, 40, 2, 0, 17), "group 8: attach");
}

/// When the last of these words, from different users of one node, has landed at the other.
fn words_land(users: u32) -> Ps {
    let mut bench = Bench::of(&shared(64), 128);
    let ring = |bench: &mut Bench, number: u64| {
        for user in 0..users {
            bench.begin(user, word(to(64 + user, 0), number));
        }
    };
    ring(&mut bench, 0);
    bench.settle();
    bench.changed.clear();
    let begin = bench.world.now();
    ring(&mut bench, 1);
    bench.settle();
    bench.changed.last().unwrap().0 - begin
}

/// One user's word takes as long as ever. Those of 16 users go one after the other through SWIF,
/// which takes 64 ns for each, over one link, and through one port of the switch.
#[test]
fn users_share_the_way_out() {
    let (one, all) = (words_land(1), words_land(16));
    assert!(one < Ps::us(3), "{one:?}");
    // A switch's port serves a packet each 240 ns.
    let more = all - one;
    assert!((Ps::ns(15 * 235)..Ps::ns(15 * 245)).contains(&more), "{one:?}, {all:?}");
}

/// A word of one user passes between the packets of another's block, and does not wait for its end.
#[test]
fn a_word_does_not_wait_for_the_end_of_anothers_block() {
    let mut bench = Bench::of(&shared(2), 4);
    bench.ask(1, word(to(3, 0), 1));
    bench.settle();
    let landed = |bench: &mut Bench| {
        bench.changed.clear();
        let begin = bench.world.now();
        bench.begin(1, word(to(3, 0), 2));
        bench.settle();
        bench.changed.iter().find(|(_, pe)| *pe == Pe(3)).unwrap().0 - begin
    };
    let alone = landed(&mut bench);
    bench.begin(
        0,
        HostOp::Put { to: to(2, 0), data: Payload::copy(&[1; 60_000]), signal: None, reuse: true },
    );
    let beside = landed(&mut bench);
    // At most one packet of 488 bytes is before it on each link, and at the switch's port.
    assert!(beside < alone + Ps::ns(3 * 976), "{alone:?} alone, {beside:?} beside a block");
    assert_eq!(bench.segment(2)[..60_000], [1; 60_000]);
}

/// The header TLB has 1024 entries for all users: what fits for one does not fit for four.
#[test]
fn users_share_the_header_tlb() {
    let misses = |users: u32| {
        let mut bench = Bench::of(&shared(64), 128);
        for user in 0..users {
            bench.command(user, command::attach(7));
            for page in 0..512 {
                bench.command(user, command::map(page, &seed(1, 0x1000)));
            }
        }
        for _ in 0..2 {
            bench.world.recorder().clear();
            for page in 0..512 {
                for user in 0..users {
                    bench.command(user, command::kick(page, 0, Payload::word(8, 1)));
                }
            }
            bench.settle();
        }
        let stages = bench.world.recorder().stages().iter();
        stages.filter(|stage| stage.name == "htlb_refill").count()
    };
    // Each user has two pages in each of the 256 sets of four ways.
    assert_eq!([1, 2, 3].map(misses), [0, 0, 3 * 512]);
}

/// Hosts that write more than the NIC sends wait for its one queue, which has room for 64 packets.
#[test]
fn users_share_the_queue_of_blocks() {
    let stalls = |users: u32| {
        let mut bench = Bench::of(&shared(16), 32);
        let data = Payload::copy(&[1; 30_000]);
        for user in 0..users {
            let to = to(16 + user, 0);
            let put = HostOp::Put { to, data: data.clone(), signal: None, reuse: true };
            bench.begin(user, put);
        }
        bench.settle();
        let stages = bench.world.recorder().stages().iter();
        stages.filter(|stage| stage.name == "queue full").count()
    };
    // A host takes 6 us for a packet of 464 bytes, and SWIF one.
    assert_eq!([1, 4].map(stalls), [0, 0]);
    assert!(stalls(16) > 16 * 10, "{}", stalls(16));
}
