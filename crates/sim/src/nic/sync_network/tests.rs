use super::*;
use crate::host::{Answer, GroupOp, Wanted};
use crate::machine::Machine;
use crate::op::Op;
use crate::packet::Payload;
use crate::testing::{Bench, carries_the_library};
use crate::time::Ps;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn join(bench: &mut Bench, members: &[u32], wanted: Wanted) -> Vec<u32> {
    let begin = |bench: &mut Bench, &pe: &u32| {
        let join = GroupOp::Join { members: members.into(), wanted };
        bench.begin(pe, HostOp::Group(join))
    };
    let ops: Vec<Op> = members.iter().map(|pe| begin(bench, pe)).collect();
    ops.into_iter().map(|op| bench.answer(op).1.value as u32).collect()
}

fn phase(bench: &mut Bench, pe: u32, group: u32) -> u64 {
    bench.call(pe, HostOp::Group(GroupOp::Phase(group))).value
}

#[test]
fn the_library_runs_on_it() {
    let machine = Machine::load("scc").unwrap();
    carries_the_library(&machine, 4);
    carries_the_library(&machine, 1);
}

/// A board arrives, and is seen to be complete when all have: at the first look, or the second,
/// however many there are.
#[test]
fn published_barriers_with_software() {
    for (pes, late, looks) in
        [(2, 0, 1), (4, 0, 1), (16, 0, 1), (2, 2000, 2), (4, 2000, 2), (16, 2000, 2)]
    {
        let mut bench = Bench::new("scc", pes);
        let members: Vec<u32> = (0..pes).collect();
        let group = join(&mut bench, &members, Wanted::Barrier)[0];
        let begin = bench.world.now();
        let arrivals: Vec<Op> =
            (0..pes - 1).map(|pe| bench.begin(pe, HostOp::Group(GroupOp::Arrive(group)))).collect();
        if late == 0 {
            bench.begin(pes - 1, HostOp::Group(GroupOp::Arrive(group)));
        }
        let (entered, _) = bench.answer(arrivals[0]);
        let look = bench.begin(0, HostOp::Group(GroupOp::Phase(group)));
        if late > 0 {
            bench.run_until(begin + Ps::ns(late));
            bench.begin(pes - 1, HostOp::Group(GroupOp::Arrive(group)));
        }
        let (mut end, mut answer) = bench.answer(look);
        let mut number = 1;
        while answer.value == 0 {
            let look = bench.begin(0, HostOp::Group(GroupOp::Phase(group)));
            (end, answer) = bench.answer(look);
            number += 1;
        }
        assert_eq!((number, end), (looks, entered + Ps::us(3) * looks), "{pes} PEs");
        assert_eq!(phase(&mut bench, pes - 1, group), 1);
    }
}

fn arrive(bench: &mut Bench, pe: u32, group: u32) {
    let answer = bench.call(pe, HostOp::Group(GroupOp::Arrive(group)));
    assert_eq!(answer.refused, None);
}

/// All members arrive at once, and look until they see the phase complete. Returns how long the
/// slowest takes.
fn pass(bench: &mut Bench, members: &[u32], group: u32, expected: u64) -> Ps {
    let begin = bench.world.now();
    let arrivals: Vec<Op> =
        members.iter().map(|&pe| bench.begin(pe, HostOp::Group(GroupOp::Arrive(group)))).collect();
    arrivals.into_iter().for_each(|op| assert_eq!(bench.answer(op).1.refused, None));
    loop {
        let looks: Vec<Op> = members
            .iter()
            .map(|&pe| bench.begin(pe, HostOp::Group(GroupOp::Phase(group))))
            .collect();
        let seen = looks.into_iter().map(|look| bench.answer(look).1.value);
        if seen.min() == Some(expected) {
            return bench.world.now() - begin;
        }
    }
}

#[test]
fn who_is_served() {
    let mut bench = Bench::new("scc", 12);
    let first = join(&mut bench, &[0, 1, 2], Wanted::Barrier);
    assert!(first[0] != 0 && first.iter().all(|&group| group == first[0]));
    let again = join(&mut bench, &[0, 1, 2], Wanted::Barrier)[0];
    assert!(again != 0 && again != first[0]);
    assert_ne!(join(&mut bench, &[2, 3], Wanted::Barrier)[0], 0);
    assert_ne!(join(&mut bench, &[11, 3], Wanted::Barrier)[0], 0, "in any order");
    assert_eq!(join(&mut bench, &[0, 1], Wanted::Multicast), [0; 2]);
    let foreign = HostOp::Group(GroupOp::Arrive(first[0]));
    assert!(bench.call(5, foreign).refused.is_some());

    let mut bench = Bench::new("scc", 40);
    assert_eq!(
        join(&mut bench, &[0, 1, 20], Wanted::Barrier),
        [0; 3],
        "the last boards pass part complete on"
    );
    let group = join(&mut bench, &[0, 15, 20, 31], Wanted::Barrier)[0];
    assert_ne!(group, 0);
    assert_ne!(join(&mut bench, &[39], Wanted::Barrier)[0], 0);
    for round in 1..4 {
        for pe in [31, 0, 20, 15] {
            assert_eq!(phase(&mut bench, 0, group), round - 1);
            arrive(&mut bench, pe, group);
        }
        bench.run();
        assert_eq!([0, 15, 20, 31].map(|pe| phase(&mut bench, pe, group)), [round; 4]);
    }
}

/// Nobody waits for a group with a PE that has left the job, now or later.
#[test]
fn no_group_with_the_dead() {
    let mut bench = Bench::new("scc", 4);
    let member = |bench: &mut Bench, pe| {
        let join = GroupOp::Join { members: Arc::from([0, 2, 3]), wanted: Wanted::Barrier };
        bench.begin(pe, HostOp::Group(join))
    };
    let early = [0, 2].map(|pe| member(&mut bench, pe));
    bench.world.left(Pe(3));
    assert_eq!(early.map(|op| bench.answer(op).1.value), [0; 2]);
    let late = [0, 2].map(|pe| member(&mut bench, pe));
    assert_eq!(late.map(|op| bench.answer(op).1.value), [0; 2]);
    assert_ne!(join(&mut bench, &[0, 2], Wanted::Barrier)[0], 0);
}

/// Groups that overlap have the wires by turns: two phases of a group go by messages, and then it
/// has the wires until another group does the same. Groups apart from each other have them
/// together.
#[test]
fn turns_on_the_wires() {
    for (boards, groups) in
        [(4, [vec![0, 1, 2, 3], vec![0, 1]]), (40, [(0..40).collect(), vec![39, 31, 15]])]
    {
        let mut bench = Bench::new("scc", boards);
        let by_wires = |time: Ps| time <= Ps::ns(6200);
        let numbers = groups.each_ref().map(|group| join(&mut bench, group, Wanted::Barrier)[0]);
        let mut phases = [0; 2];
        for turn in 0..6 {
            let which = turn % 2;
            let wired: Vec<bool> = (0..5)
                .map(|_| {
                    phases[which] += 1;
                    by_wires(pass(&mut bench, &groups[which], numbers[which], phases[which]))
                })
                .collect();
            let expected = if turn == 0 { [true; 5] } else { [false, false, true, true, true] };
            assert_eq!(wired, expected, "turn {turn} of {boards} boards");
        }
    }
    let mut bench = Bench::new("scc", 4);
    let [left, right] = [[0, 1], [2, 3]].map(|group| join(&mut bench, &group, Wanted::Barrier)[0]);
    for round in 1..5 {
        assert!(pass(&mut bench, &[0, 1], left, round) <= Ps::ns(6200));
        assert!(pass(&mut bench, &[2, 3], right, round) <= Ps::ns(6200));
    }
    bench.assert_conserved();
}

/// The last board of a microcluster waits for nobody of a group that has lost the chain, or ended.
#[test]
fn a_microcluster_without_members() {
    let mut bench = Bench::new("scc", 17);
    let (wide, narrow) = ([0, 3, 15, 16], [15]);
    let groups = [&wide[..], &narrow].map(|members| join(&mut bench, members, Wanted::Barrier)[0]);
    let mut phases = [0; 2];
    let mut pass = |bench: &mut Bench, which: usize, members: &[u32]| {
        members.iter().for_each(|&pe| arrive(bench, pe, groups[which]));
        bench.run();
        phases[which] += 1;
        for &pe in members {
            assert_eq!(phase(bench, pe, groups[which]), phases[which]);
        }
    };
    for _ in 0..4 {
        (0..3).for_each(|_| pass(&mut bench, 0, &wide));
        (0..3).for_each(|_| pass(&mut bench, 1, &narrow));
    }
    (0..3).for_each(|_| pass(&mut bench, 0, &wide));
    for pe in wide {
        assert_eq!(bench.call(pe, HostOp::Group(GroupOp::Leave(groups[0]))).refused, None);
    }
    (0..3).for_each(|_| pass(&mut bench, 1, &narrow));
}

/// A group that all members have left gives the wires back at once.
#[test]
fn a_group_ends() {
    let mut bench = Bench::new("scc", 3);
    let first = join(&mut bench, &[0, 1], Wanted::Barrier)[0];
    let second = join(&mut bench, &[1, 2], Wanted::Barrier)[0];
    arrive(&mut bench, 0, first);
    let leave = |group| HostOp::Group(GroupOp::Leave(group));
    assert!(bench.call(0, leave(first)).refused.is_some(), "a phase is under way");
    arrive(&mut bench, 1, first);
    bench.run();
    for pe in [0, 1] {
        assert_eq!(bench.call(pe, leave(first)).refused, None);
        assert!(bench.call(pe, HostOp::Group(GroupOp::Arrive(first))).refused.is_some());
    }
    let times = [1, 2].map(|round| pass(&mut bench, &[1, 2], second, round));
    assert!(times[0] > Ps::us(7) && times[1] <= Ps::ns(6200), "{times:?}");
}

/// Members of a group wait for each other by the wires while the others have begun a collective and
/// wait for them: the boards between carry packets, and let no signals pass.
#[test]
fn wires_and_packets_by_turns() {
    let mut bench = Bench::new("scc", 4);
    let outer = join(&mut bench, &[0, 3], Wanted::Barrier)[0];
    let all = join(&mut bench, &[0, 1, 2, 3], Wanted::Collectives)[0];
    let add = |pe| {
        HostOp::Group(collective(all, Collective::AllReduce(Operator::Add), Payload::word(8, pe)))
    };
    for round in 1..5 {
        let begun = [1, 2].map(|pe| bench.begin(pe, add(pe.into())));
        bench.run_until(bench.world.now() + Ps::us(500));
        pass(&mut bench, &[0, 3], outer, round);
        let rest = [0, 3].map(|pe| bench.begin(pe, add(pe.into())));
        for op in begun.into_iter().chain(rest) {
            assert_eq!(bench.answer(op).1.refused, None);
        }
        for (_, answer) in results(&mut bench, &[0, 1, 2, 3], all) {
            assert_eq!(answer.data.bits(), 6);
        }
    }
    bench.run();
    bench.assert_conserved();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Groups of any members, whose phases overlap in any order: a board sees k phases complete
    /// when all members have arrived k times, and not before, whoever has the wires.
    #[test]
    fn groups_that_overlap(pes in 2u32..20, masks in prop::collection::vec(1u32..1 << 19, 1..5), slow in any::<bool>(), seed in any::<u64>()) {
        // Signals on long chains take as long as messages.
        let text = include_str!("../../../../../machines/scc.toml");
        let text = if slow { text.replace(" value = 600, unit = \"ns\"", " value = 600, unit = \"us\"").replace(" value = 540, unit = \"ns\"", " value = 540, unit = \"us\"") } else { text.into() };
        let mut bench = Bench::of(&Machine::parse("overlap", &text, None).unwrap(), pes, 1);
        let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
        for mask in masks {
            let members: Vec<u32> = (0..pes).filter(|pe| mask & 1 << pe != 0).collect();
            let number = if members.is_empty() { 0 } else { join(&mut bench, &members, Wanted::Barrier)[0] };
            prop_assert!(number != 0 || members.is_empty() || pes > 16);
            if number != 0 {
                groups.push((number, members));
            }
        }
        prop_assume!(!groups.is_empty());
        let mut random = crate::random::Random::new(seed);
        let mut arrived: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let complete = |arrived: &BTreeMap<(u32, u32), u64>, (number, members): &(u32, Vec<u32>)| {
            members.iter().map(|&pe| arrived.get(&(*number, pe)).copied().unwrap_or(0)).min().unwrap()
        };
        for _ in 0..120 {
            let group = &groups[random.next_bits() as usize % groups.len()];
            let (number, members) = group;
            let pe = members[random.next_bits() as usize % members.len()];
            let place = (*number, pe);
            if random.next_bits().is_multiple_of(3) {
                let before = arrived.get(&place).copied().unwrap_or(0);
                let may = complete(&arrived, group) == before;
                let step = bench.call(pe, HostOp::Group(GroupOp::Step(*number)));
                prop_assert!(step.refused.is_none() && (may || step.value == 1), "group {number}: an early step");
                *arrived.entry(place).or_default() += 1 - step.value;
                continue;
            }
            let seen = phase(&mut bench, pe, *number);
            prop_assert!(seen <= complete(&arrived, group), "group {number}: passed too early");
            if seen == arrived.get(&place).copied().unwrap_or(0) {
                arrive(&mut bench, pe, *number);
                *arrived.entry(place).or_default() += 1;
            } else {
                let again = bench.call(pe, HostOp::Group(GroupOp::Arrive(*number)));
                // It may be complete by now, without having been seen.
                prop_assert!(again.refused.is_some() || complete(&arrived, group) > seen);
                *arrived.entry(place).or_default() += u64::from(again.refused.is_none());
            }
            if random.next_bits().is_multiple_of(4) {
                let until = bench.world.now() + Ps(random.next_bits() % 400_000_000);
                bench.run_until(until);
            }
        }
        bench.run();
        for group in &groups {
            for &pe in &group.1 {
                prop_assert_eq!(phase(&mut bench, pe, group.0), complete(&arrived, group));
            }
        }
        bench.assert_conserved();
    }
}

/// Fuzzy barriers are an entry and an exit; the reduced code is both at once, and halves them:
/// phase k is passed only when all have passed phase k - 1.
#[test]
fn fuzzy_and_reduced() {
    let mut bench = Bench::new("scc", 3);
    for pe in 0..3 {
        bench.command(pe, set_group(0b111));
    }
    bench.command(0, enter());
    assert!(bench.call(0, HostOp::Command(enter())).refused.is_some());
    bench.command(1, enter());
    assert_eq!((bench.command(0, flag()), bench.command(2, flag())), (1, 0));
    bench.command(2, enter());
    assert_eq!([0, 1, 2].map(|pe| bench.command(pe, flag())), [0; 3]);
    let mut passed = [0u32; 3];
    let mut random = crate::random::Random::new(3);
    let mut spun = 0;
    for _ in 0..200 {
        let pe = (random.next_bits() % 3) as usize;
        let through = bench.command(pe as u32, reduced()) == 0;
        bench.run();
        assert_eq!(through, passed.iter().all(|&other| other >= passed[pe]), "{passed:?}, PE {pe}");
        passed[pe] += u32::from(through);
        spun += u32::from(!through);
    }
    assert!(spun > 20 && passed.iter().all(|&phases| phases > 20));
    assert!(
        bench.call(0, HostOp::Command(set_group(1))).refused.is_none()
            == (bench.command(0, flag()) == 0)
    );
}

/// The reduced code for the library's group: one look arrives, and no register is written. While
/// the group lacks the wires, the driver arrives after the look, as it does without the code.
#[test]
fn a_step_is_one_code_on_the_wires() {
    let mut bench = Bench::new("scc", 3);
    let outer = join(&mut bench, &[0, 2], Wanted::Barrier)[0];
    let inner = join(&mut bench, &[0, 1], Wanted::Barrier)[0];
    let step = |bench: &mut Bench, pe, group| {
        let begin = bench.world.now();
        let op = bench.begin(pe, HostOp::Group(GroupOp::Step(group)));
        let (end, answer) = bench.answer(op);
        assert_eq!(answer.refused, None);
        (answer.value, end - begin)
    };
    assert_eq!(step(&mut bench, 0, outer), (0, Ps::us(3)), "phase 0 is complete");
    assert_eq!(step(&mut bench, 0, outer).0, 1, "the other has not arrived");
    assert_eq!(step(&mut bench, 2, outer).0, 0);
    bench.run();
    assert_eq!([0, 2].map(|pe| phase(&mut bench, pe, outer)), [1, 1]);
    let (value, took) = step(&mut bench, 0, inner);
    assert!(value == 0 && took > Ps::us(3), "its wires are the outer group's: {took}");
    assert_eq!(step(&mut bench, 0, inner).0, 1);
    assert_eq!(step(&mut bench, 1, inner).0, 0);
    bench.run();
    assert_eq!([0, 1].map(|pe| phase(&mut bench, pe, inner)), [1, 1]);
    let foreign = HostOp::Group(GroupOp::Step(inner));
    assert!(bench.call(2, foreign).refused.is_some());
    bench.assert_conserved();
}

fn carry_packets(bench: &mut Bench, pes: u32, packets: bool) {
    let ops: Vec<Op> =
        (0..pes).map(|pe| bench.begin(pe, HostOp::Command(set_mode(packets)))).collect();
    for op in ops {
        assert_eq!(bench.answer(op).1.refused, None);
    }
}

/// Packets wait while boards carry wires; signals wait while boards carry packets; and a board goes
/// back only when it is empty.
#[test]
fn modes() {
    let mut bench = Bench::new("scc", 3);
    bench.command(0, send(2, Payload::word(4, 77)));
    let got = bench.begin(2, HostOp::Command(receive()));
    bench.command(0, set_mode(true));
    bench.command(2, set_mode(true));
    bench.run();
    bench.command(1, set_mode(true));
    let back = bench.begin(0, HostOp::Command(set_mode(false)));
    let (time, answer) = bench.answer(got);
    assert_eq!((answer.data.bits(), answer.value), (77, 0));
    let (went_back, _) = bench.answer(back);
    assert!(went_back < time, "it was empty when the packet had left it");
    let group = join(&mut bench, &[0, 2], Wanted::Barrier)[0];
    for pe in [0, 2] {
        bench.call(pe, HostOp::Group(GroupOp::Arrive(group)));
    }
    bench.run();
    assert_eq!(phase(&mut bench, 0, group), 0);
    carry_packets(&mut bench, 3, false);
    bench.run();
    assert_eq!(phase(&mut bench, 0, group), 1);
    assert!(bench.call(0, HostOp::Command(send(0, Payload::EMPTY))).refused.is_some());
    assert!(bench.call(0, HostOp::Command(send(9, Payload::EMPTY))).refused.is_some());
}

/// What all members get who have begun a collective, and when: each looks until it is there.
fn results(bench: &mut Bench, members: &[u32], group: u32) -> Vec<(Ps, Answer)> {
    let mut results: Vec<Option<(Ps, Answer)>> = vec![None; members.len()];
    while results.contains(&None) {
        let missing: Vec<usize> =
            (0..members.len()).filter(|&rank| results[rank].is_none()).collect();
        let looks: Vec<Op> = missing
            .iter()
            .map(|&rank| bench.begin(members[rank], HostOp::Group(GroupOp::Result(group))))
            .collect();
        for (rank, look) in missing.into_iter().zip(looks) {
            let (end, answer) = bench.answer(look);
            assert_eq!(answer.refused, None);
            if answer.value != 0 {
                results[rank] = Some((end, answer));
            }
        }
    }
    results.into_iter().flatten().collect()
}

/// A collective in the network costs one packet's time, and a header's for each further board;
/// hosts touch it at the ends alone.
#[test]
fn collectives_cut_through() {
    let end = |pes: u32, what: Collective| {
        let mut bench = Bench::new("scc", pes);
        let members: Vec<u32> = (0..pes).collect();
        let group = join(&mut bench, &members, Wanted::Collectives)[0];
        carry_packets(&mut bench, pes, true);
        bench.run();
        let begin = bench.world.now();
        let call = |bench: &mut Bench, pe| {
            bench.begin(pe, HostOp::Group(collective(group, what, Payload::word(8, 1))))
        };
        let ops: Vec<Op> = (0..pes).map(|pe| call(&mut bench, pe)).collect();
        ops.into_iter().for_each(|op| assert_eq!(bench.answer(op).1.refused, None));
        results(&mut bench, &members, group).into_iter().map(|(end, _)| end).max().unwrap() - begin
    };
    let operator = Operator::Add;
    // 11 steps of 6 bits, and what is between two boards. Floating-point numbers go up the whole
    // chain through adders, and their sum back.
    let header = Ps(11 * 67_568 + 135_000);
    let whats = [
        (Collective::Broadcast { root: 0 }, header),
        (Collective::Reduce { root: 0, operator }, header),
        (Collective::AllReduce(operator), header),
        (Collective::Scan(operator), header),
        (Collective::Scan(Operator::AddDouble), header + Ps::ns(720)),
        (Collective::AllReduce(Operator::AddSingle), header * 2 + Ps::ns(720)),
    ];
    for (what, header) in whats {
        let (four, many) = (end(4, what), end(64, what));
        // Looks are 3 us apart, and here each waits for the others' reading of a packet.
        let unsure = Ps::us(3) + Ps::ns(4800);
        assert!(
            many + unsure > four + header * 60 && many < four + header * 60 + unsure,
            "{what:?}: {four} {many}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Collectives of any group, one after the other, whoever is late, with other boards passing:
    /// against plain ones.
    #[test]
    fn collectives(pes in 1u32..9, mask in 1u32..512, whats in prop::collection::vec((0u32..4, 0u32..7, any::<u32>(), 1usize..8, any::<u64>()), 1..6)) {
        let mut bench = Bench::new("scc", pes);
        let members: Vec<u32> = (0..pes).filter(|pe| mask & 1 << pe != 0).collect();
        prop_assume!(!members.is_empty());
        let group = join(&mut bench, &members, Wanted::Collectives)[0];
        prop_assert_ne!(group, 0);
        carry_packets(&mut bench, pes, true);
        for (kind, operator, root, words, seed) in whats {
            let root = root % members.len() as u32;
            let operator = [Operator::Add, Operator::Min, Operator::Max, Operator::And, Operator::Or, Operator::AddDouble, Operator::AddSingle][operator as usize];
            let what = match kind {
                0 => Collective::Broadcast { root },
                1 => Collective::Reduce { root, operator },
                2 => Collective::AllReduce(operator),
                _ => Collective::Scan(operator),
            };
            let mut random = crate::random::Random::new(seed);
            // Numbers whose sums are rounded, so that the order of additions shows.
            let value = |bits: u64| match operator {
                Operator::AddDouble => ((bits as i64) as f64 * 1e-9).to_bits(),
                Operator::AddSingle => ((bits as i32) as f32 * 1e-9).to_bits().into(),
                _ => bits,
            };
            let values: Vec<Vec<u64>> = members.iter().map(|_| (0..words).map(|_| value(random.next_bits())).collect()).collect();
            let apply = |a: u64, b: u64| match operator {
                Operator::Add => a.wrapping_add(b),
                Operator::Min => a.min(b),
                Operator::Max => a.max(b),
                Operator::And => a & b,
                Operator::Or => a | b,
                Operator::AddDouble => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
                Operator::AddSingle => (f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits().into(),
            };
            let upto = |last: usize| (0..words).map(|word| (1..=last).fold(values[0][word], |sum, rank| apply(sum, values[rank][word]))).collect::<Vec<_>>();
            let expected: Vec<Vec<u64>> = (0..members.len()).map(|rank| match what {
                Collective::Broadcast { root } => values[root as usize].clone(),
                Collective::Reduce { root, .. } if root as usize != rank => Vec::new(),
                Collective::Reduce { .. } | Collective::AllReduce(_) => upto(members.len() - 1),
                Collective::Scan(_) => upto(rank),
            }).collect();
            // Some come late.
            let mut order: Vec<usize> = (0..members.len()).collect();
            order.sort_by_key(|_| random.next_bits());
            for rank in order {
                let bytes: Vec<u8> = values[rank].iter().flat_map(|word| word.to_le_bytes()).collect();
                let began = bench.call(members[rank], HostOp::Group(collective(group, what, Payload::copy(&bytes))));
                prop_assert_eq!(began.refused, None);
                let wait = bench.world.now() + Ps(random.next_bits() % 20_000_000);
                bench.run_until(wait);
            }
            for ((_, answer), expected) in results(&mut bench, &members, group).into_iter().zip(expected) {
                let bytes: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
                answer.data.with(|got| assert_eq!(got, bytes, "{what:?}"));
            }
        }
        // Boards go back to wires, so they are empty: nothing was lost or made.
        carry_packets(&mut bench, pes, false);
        bench.assert_conserved();
    }

    /// Packets between any boards come once each, in order, and boards are empty in the end.
    #[test]
    fn packets(pes in 2u32..9, sends in prop::collection::vec((0u32..9, 0u32..9, 0usize..57), 1..60)) {
        let mut bench = Bench::new("scc", pes);
        carry_packets(&mut bench, pes, true);
        let mut expected: Vec<BTreeMap<u64, Vec<Vec<u8>>>> = vec![BTreeMap::new(); pes as usize];
        let mut receives = Vec::new();
        for (number, (from, to, len)) in sends.into_iter().enumerate() {
            let (from, to) = (from % pes, to % pes);
            if from == to {
                continue;
            }
            let bytes: Vec<u8> = (0..len).map(|i| (i + number) as u8).collect();
            bench.command(from, send(to, Payload::copy(&bytes)));
            expected[to as usize].entry(from.into()).or_default().push(bytes);
            receives.push((to, bench.begin(to, HostOp::Command(receive()))));
        }
        let mut got: Vec<BTreeMap<u64, Vec<Vec<u8>>>> = vec![BTreeMap::new(); pes as usize];
        for (pe, op) in receives {
            let answer = bench.answer(op).1;
            let bytes = answer.data.with(<[u8]>::to_vec);
            got[pe as usize].entry(answer.value).or_default().push(bytes);
        }
        prop_assert_eq!(got, expected);
        carry_packets(&mut bench, pes, false);
        bench.run();
        bench.assert_conserved();
    }
}

#[test]
fn wrong_collectives_are_refused() {
    let mut bench = Bench::new("scc", 3);
    let group = join(&mut bench, &[0, 1], Wanted::Collectives)[0];
    let mut refused = |pe, what| bench.call(pe, HostOp::Group(what)).refused.is_some();
    let add = Collective::AllReduce(Operator::Add);
    assert!(refused(0, collective(group, add, Payload::word(5, 1))));
    assert!(refused(0, collective(group, add, Payload::copy(&[0; 64]))));
    assert!(refused(0, collective(group, Collective::Broadcast { root: 2 }, Payload::word(8, 1))));
    assert!(refused(2, collective(group, add, Payload::word(8, 1))), "no member");
    assert!(refused(0, GroupOp::Arrive(group)), "not for that");
}
