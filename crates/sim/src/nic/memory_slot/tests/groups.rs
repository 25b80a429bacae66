//! The library's groups: packets that the switches copy to all members.

use super::*;
use crate::host::{GroupOp, Wanted};
use std::sync::Arc;

fn join(bench: &mut Bench, members: &[u32]) -> Vec<u64> {
    let list: Arc<[u32]> = members.into();
    let ask = |bench: &mut Bench, &pe: &u32| {
        let join = GroupOp::Join { members: list.clone(), wanted: Wanted::Multicast };
        bench.begin(pe, HostOp::Group(join))
    };
    let asked: Vec<Op> = members.iter().map(|pe| ask(bench, pe)).collect();
    // They are answered at one time, in any order.
    let mut answers = BTreeMap::new();
    while answers.len() < asked.len() {
        match bench.world.next().expect("a call is answered") {
            Happened::Answered(op, answer) => {
                assert_eq!(answer.refused, None);
                answers.insert(op, answer.value);
            }
            Happened::Changed(_) => {}
            other => panic!("{other:?}"),
        }
    }
    asked.iter().map(|op| answers[op]).collect()
}

/// Writes to all other members; gives the packets that the sender has sent for it.
fn write(bench: &mut Bench, pe: u32, group: u64, at: u64, data: &[u8]) -> u64 {
    let before = bench.world.counts().sent;
    let write =
        GroupOp::Multicast { group: group as u32, to: to(0, at), data: Payload::copy(data) };
    assert_eq!(bench.ask(pe, HostOp::Group(write)).refused, None);
    bench.ask(pe, HostOp::Quiet);
    bench.world.counts().sent - before
}

#[test]
fn any_member_writes_to_all_others_at_once() {
    for (machine, nodes, members) in [
        ("dimmnet-1/D-switch", 8, vec![0, 2, 5, 7]),
        ("dimmnet-1/D-tree", 20, vec![1, 6, 7, 13, 14, 19]),
    ] {
        let mut bench = Bench::new(machine, nodes);
        let groups = join(&mut bench, &members);
        assert!(groups.iter().all(|&group| group == groups[0] && group != 0), "{groups:?}");
        let mut expected = vec![vec![0; SEGMENT]; nodes as usize];
        for (round, &sender) in members.iter().enumerate() {
            // The pages lie elsewhere at each member.
            bench.ask(sender, put(4096 * (9 + round as u64), &[round as u8; 3000]));
            bench.settle();
            expected[1][4096 * (9 + round)..][..3000].fill(round as u8);
            let block: Vec<u8> = (0..1000).map(|byte| (byte + round * 31) as u8).collect();
            let at = 4000 + 3000 * round;
            let word = [round as u8 + 1; 8];
            assert_eq!(write(&mut bench, sender, groups[0], at as u64, &block), 3, "{at}");
            assert_eq!(write(&mut bench, sender, groups[0], 8 * round as u64, &word), 1);
            for &other in members.iter().filter(|&&member| member != sender) {
                expected[other as usize][at..][..1000].copy_from_slice(&block);
                expected[other as usize][8 * round..][..8].copy_from_slice(&word);
            }
        }
        for node in 0..nodes {
            assert!(bench.segment(node) == expected[node as usize], "node {node} of {machine}");
        }
    }
}

#[test]
fn a_word_by_a_group_comes_after_its_data_in_a_bank() {
    let machine = with_llcm_for_blocks("D-switch", false);
    let mut bench = Bench::of(&machine, 4);
    let group = join(&mut bench, &[0, 1, 2, 3])[0];
    // A word first: its page lies in LLCM.
    write(&mut bench, 2, group, 8, &[1; 8]);
    let block = GroupOp::Multicast {
        group: group as u32,
        to: to(0, 8192),
        data: Payload::copy(&[7; 2000]),
    };
    let word =
        GroupOp::Multicast { group: group as u32, to: to(0, 8), data: Payload::copy(&[2; 8]) };
    bench.ask(2, HostOp::Group(block));
    bench.ask(2, HostOp::Group(word));
    let mut seen = 0;
    while let Some(happened) = bench.world.next() {
        let Happened::Changed(pe) = happened else { continue };
        let segment = bench.segment(pe.0);
        if segment[8] == 2 {
            assert_eq!(segment[8192..][..2000], [7; 2000], "{pe:?}");
            seen += 1;
        }
    }
    assert!(seen >= 3 && switches(&mut bench) >= 3, "at each of the others");
}

#[test]
fn groups_take_entries_and_give_them_back() {
    let mut machine = Machine::load("dimmnet-1/D-switch").unwrap();
    machine.set("switch.multicast_groups", 2.0).unwrap();
    let mut bench = Bench::of(&machine, 3);
    let all = [0, 1, 2];
    let (first, second) = (join(&mut bench, &all)[0], join(&mut bench, &all)[0]);
    assert!(first != 0 && second != 0 && first != second);
    assert_eq!(join(&mut bench, &all), [0; 3], "the table is full");
    let leave = |group: u64| HostOp::Group(GroupOp::Leave(group as u32));
    all.into_iter().for_each(|pe| assert_eq!(bench.ask(pe, leave(first)).refused, None));
    assert!(bench.ask(0, leave(first)).refused.is_some(), "it has ended");
    let third = join(&mut bench, &all)[0];
    assert!(third != 0);
    write(&mut bench, 1, third, 64, b"to all others");
    for pe in [0, 2] {
        assert_eq!(bench.segment(pe)[64..][..13], *b"to all others");
    }
    // A group of others is none of this PE's.
    let two = join(&mut bench, &[0, 1]);
    assert_eq!(two, [0, 0], "both entries are taken again");
}

#[test]
fn who_waits_for_one_that_has_left_gets_no_group() {
    let mut bench = Bench::new("dimmnet-1/D-switch", 3);
    let members: Arc<[u32]> = [0, 1, 2].into();
    let ask =
        || HostOp::Group(GroupOp::Join { members: members.clone(), wanted: Wanted::Multicast });
    let waiting = bench.begin(0, ask());
    bench.world.left(Pe(2));
    assert_eq!(bench.finish(waiting).value, 0);
    assert_eq!(bench.ask(1, ask()).value, 0, "who comes later, too");
}

#[test]
fn without_switches_there_are_no_groups() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    assert!(bench.ask(0, HostOp::Group(GroupOp::Arrive(1))).refused.is_some());
    assert!(!bench.world.offers().copies);
    assert!(Bench::new("dimmnet-1/D-switch", 2).world.offers().copies);
}
