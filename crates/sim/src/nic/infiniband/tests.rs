use super::*;
use crate::host::{GroupOp, Op, Signal, Wanted};
use crate::machine::Machine;
use crate::testing::{Bench, at, carries_the_library};
use crate::time::Ps;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

mod lanes;
mod managed;
mod reliable;

fn machine(name: &str) -> Machine {
    Machine::load(name).unwrap()
}

fn join(bench: &mut Bench, members: &[u32]) -> Vec<u32> {
    let groups = join_for(bench, members, Wanted::Multicast);
    groups.into_iter().map(|group| group as u32).collect()
}

fn join_for(bench: &mut Bench, members: &[u32], wanted: Wanted) -> Vec<u64> {
    let ops: Vec<Op> = members
        .iter()
        .map(|&pe| {
            let join = GroupOp::Join { members: members.into(), wanted };
            bench.begin(pe, HostOp::Group(join))
        })
        .collect();
    ops.into_iter().map(|op| bench.answer(op).1.value).collect()
}

fn send(group: u32, to: Option<u32>, bytes: &[u8]) -> HostOp {
    HostOp::Group(GroupOp::Send { group, to, data: Payload::copy(bytes) })
}

/// All datagrams that have come to a PE, first to last.
fn take(bench: &mut Bench, pe: u32, group: u32) -> Vec<Vec<u8>> {
    let next = |bench: &mut Bench| bench.call(pe, HostOp::Group(GroupOp::Receive(group)));
    std::iter::from_fn(|| Some(next(bench)).filter(|answer| answer.value != 0))
        .map(|answer| answer.data.with(<[u8]>::to_vec))
        .collect()
}

fn multicast(group: u32, offset: u64, bytes: &[u8]) -> HostOp {
    HostOp::Group(GroupOp::Multicast { group, to: at(0, offset), data: Payload::copy(bytes) })
}

#[test]
fn the_library_runs_on_it() {
    carries_the_library(&machine("dimmnet-2"), 4);
    carries_the_library(&machine("dimmnet-2"), 1);
    carries_the_library(&machine("dimmnet-2/tree"), 5);
    // Reliable connections lose nothing where datagrams are lost.
    carries_the_library(&machine("dimmnet-2/lossy"), 4);
    carries_the_library(&machine("dimmnet-2/retransmit"), 4);
    carries_the_library(&losing(0.3), 5);
}

/// A machine whose links lose this part of all packets, and whose connections send them again.
fn losing(part: f64) -> Machine {
    let text = include_str!("../../../../../machines/dimmnet-2.toml")
        .replace("link.loss = { value = 0.01,", &format!("link.loss = {{ value = {part},"));
    Machine::parse("losing", &text, Some("retransmit")).unwrap()
}

/// When a block of a megabyte and its signal have come, on links that lose this part of packets.
fn comes_at(machine: &Machine) -> (Ps, u64) {
    let mut bench = Bench::of(machine, 2, 3);
    let data: Vec<u8> = (0..1 << 15).map(|i| (i * i % 251) as u8).collect();
    let begin = bench.world.now();
    for round in 1..=32 {
        let signal = Some(Signal { at: at(1, 0), op: SignalOp::Set, value: round });
        let data = Payload::copy(&data);
        bench.call(0, HostOp::Put { to: at(1, 64), data, signal, reuse: false });
    }
    bench.call(0, HostOp::Quiet);
    assert_eq!(bench.bytes(at(1, 0), 8), 32u64.to_le_bytes());
    assert_eq!(bench.bytes(at(1, 64), data.len()), data);
    let took = bench.world.now() - begin;
    bench.run();
    bench.assert_conserved();
    (took, bench.world.counts().lost)
}

/// Connections bring everything whatever is lost, and a quiet waits for it. Each packet that is
/// lost costs about its own time on the link, as only it is sent again; without loss nothing is,
/// and acknowledgements delay nobody.
#[test]
fn connections_send_again_what_is_lost() {
    let (sound, none) = comes_at(&machine("dimmnet-2"));
    let (acknowledged, none_either) = comes_at(&losing(0.0));
    assert_eq!((none, none_either, acknowledged), (0, 0, sound));
    let (took, lost) = comes_at(&losing(0.01));
    assert!(lost > 5, "{lost}");
    // Besides: the last packets may wait for a timeout, or for two.
    let timeouts = Ps::us(3 * 50);
    assert!(took > sound && took < sound + Ps::us(3) * lost + timeouts, "{took} {sound} {lost}");
    let (most, lost) = comes_at(&losing(0.5));
    assert!(lost > 512 && most > sound * 3, "{most} {lost}");
}

/// A signal is visible only after all data before it, also where the data were lost at first.
#[test]
fn what_is_sent_again_overtakes_nothing() {
    for seed in 0..40 {
        let mut bench = Bench::of(&losing(0.2), 2, seed);
        for round in 1..=5u64 {
            let data = vec![round as u8; 20_000];
            let signal = Some(Signal { at: at(1, 0), op: SignalOp::Set, value: round });
            let put =
                HostOp::Put { to: at(1, 64), data: Payload::copy(&data), signal, reuse: false };
            bench.call(0, put);
            while bench.bytes(at(1, 0), 8) != round.to_le_bytes() {
                let next = bench.world.now() + Ps::us(1);
                bench.run_until(next);
            }
            assert_eq!(bench.bytes(at(1, 64), data.len()), data, "seed {seed}");
        }
        bench.run();
        bench.assert_conserved();
    }
}

/// Links that lose everything, or nearly so, would keep a run going for ever.
#[test]
fn links_bring_something() {
    let text = include_str!("../../../../../machines/dimmnet-2.toml");
    for variant in ["lossy", "retransmit"] {
        for (loss, is_right) in [(1.0, false), (0.61, false), (0.6, true)] {
            let value = format!("link.loss = {{ value = {loss},");
            let text = text.replace("link.loss = { value = 0.01,", &value);
            let checked = Machine::parse("dead", &text, Some(variant)).unwrap().check();
            let said = checked.as_ref().map_or_else(ToString::to_string, |()| String::new());
            assert_eq!(checked.is_ok(), is_right, "{variant} {loss}: {said}");
            assert!(is_right || said.contains("lose at most 0.6"), "{said}");
        }
    }
}

/// Every node has a local id of its own when the job begins, and no group.
#[test]
fn local_ids() {
    for (name, pes) in [("dimmnet-2", 4), ("dimmnet-2/tree", 60)] {
        let mut bench = Bench::new(name, pes);
        let lids: BTreeSet<u64> =
            (0..pes).map(|pe| bench.command(pe, listen(FIRST_GROUP, false))).collect();
        assert_eq!(lids.len(), pes as usize);
        assert!(!lids.contains(&0));
        assert!(bench.call(0, HostOp::Command(listen(7, true))).refused.is_some());
        bench.run();
        bench.assert_conserved();
    }
}

#[test]
fn a_group_gets_what_its_members_send_and_nobody_else_does() {
    for (name, pes) in [("dimmnet-2", 8), ("dimmnet-2/tree", 60)] {
        let mut bench = Bench::new(name, pes);
        let members: Vec<u32> = (0..pes).filter(|pe| pe % 3 != 1).collect();
        let groups = join(&mut bench, &members);
        assert!(groups.iter().all(|&group| group == groups[0] && group != 0));
        // Another of the same members is another.
        assert_ne!(join(&mut bench, &members)[0], groups[0]);
        for &sender in &[members[0], members[members.len() - 1]] {
            let bytes: Vec<u8> = (0..5000).map(|i| (i + sender) as u8).collect();
            let place = 8192 * u64::from(1 + sender % 5);
            assert_eq!(bench.call(sender, multicast(groups[0], place, &bytes)).refused, None);
            bench.call(sender, HostOp::Quiet);
            for pe in 0..pes {
                let got = bench.bytes(at(pe, place), bytes.len());
                let gets = members.contains(&pe) && pe != sender;
                assert!(
                    if gets { got == bytes } else { got == vec![0; 5000] },
                    "{name}: PE {pe} of what {sender} sent"
                );
            }
            bench.assert_conserved();
        }
    }
}

/// What hardware cannot serve it says so, to all members.
#[test]
fn groups_that_do_not_fit() {
    let mut bench = Bench::new("dimmnet-2", 20);
    assert_eq!(join(&mut bench, &[1, 17]), [0, 0], "a table names 16 ports");
    let barrier = GroupOp::Join { members: [0, 1].into(), wanted: Wanted::Barrier };
    assert_eq!(bench.call(0, HostOp::Group(barrier)).value, 0);
    for number in 0..management::GROUPS {
        assert_eq!(join(&mut bench, &[3, 4]), [u32::from(FIRST_GROUP + number); 2]);
    }
    assert_eq!(join(&mut bench, &[3, 4]), [0, 0], "a table has 256 groups");
    bench.run();
    bench.assert_conserved();
}

/// Threads of a PE join for teams of the same members, each in its own order.
#[test]
fn what_groups_of_the_same_members_are_for_tells_them_apart() {
    let mut bench = Bench::new("dimmnet-2", 2);
    let mut ask = |pe, purpose| {
        let wanted = Wanted::Datagrams(purpose);
        let members = [0, 1].into();
        bench.begin(pe, HostOp::Group(GroupOp::Join { members, wanted }))
    };
    let asked = [(0, 1), (0, 2), (1, 2), (1, 1)].map(|(pe, purpose)| ask(pe, purpose));
    let [one, two, other_two, other_one] = asked.map(|op| bench.answer(op).1.value);
    assert_ne!(one, two);
    assert_eq!((one, two), (other_one, other_two));
}

/// A PE that asks before the end is known, and one that asks after it, are told that there is no
/// group. The groups of other PEs are as before.
#[test]
fn nobody_waits_for_a_member_that_has_left() {
    let mut bench = Bench::new("dimmnet-2", 4);
    let wanted = Wanted::Datagrams(0);
    let join = |members: &[u32]| {
        let members = members.into();
        HostOp::Group(GroupOp::Join { members, wanted })
    };
    let (waits, apart) = (bench.begin(0, join(&[0, 1, 2])), bench.begin(3, join(&[1, 3])));
    bench.world.left(Pe(2));
    assert_eq!(bench.answer(waits).1.value, 0);
    assert_eq!(bench.call(1, join(&[0, 1, 2])).value, 0);
    let value = bench.call(1, join(&[1, 3])).value;
    assert_ne!(value, 0);
    assert_eq!(bench.answer(apart).1.value, value);
    bench.run();
    bench.assert_conserved();
}

/// The copies of short packets hide behind the sending; those of long ones do not.
#[test]
fn the_switch_copies_one_after_the_other() {
    let landings = |bytes: usize| {
        let mut bench = Bench::new("dimmnet-2", 4);
        let group = join(&mut bench, &[0, 1, 2, 3])[0];
        bench.call(0, multicast(group, 0, &vec![1; bytes]));
        bench.run();
        [1, 2, 3].map(|pe| bench.changed[pe].unwrap())
    };
    let each = machine("dimmnet-2").section("switch").rate("copy_rate").unwrap();
    let [first, second, third] = landings(2048);
    assert_eq!((second - first, third - second), (each.time(2082), each.time(2082)));
    let [first, second, third] = landings(8);
    assert_eq!((second - first, third - second), (each.time(42), each.time(42)));
}

/// A datagram that is lost is lost for all that it was for, and counted; the others get theirs.
#[test]
fn losses_are_counted() {
    let text = include_str!("../../../../../machines/dimmnet-2.toml")
        .replace("loss = { value = 0,", "loss = { value = 0.2,");
    for (seed, variant) in (0..20).zip([None, Some("tree")].into_iter().cycle()) {
        let machine = Machine::parse("leaky", &text, variant).unwrap();
        let pes = 4 + 9 * seed as u32 % 30;
        let mut bench = Bench::of(&machine, pes, seed);
        let members: Vec<u32> = (0..pes.min(16)).collect();
        let group = join(&mut bench, &members)[0];
        for round in 0..40u64 {
            bench.call(1, multicast(group, 8 * round, &(round + 1).to_le_bytes()));
        }
        bench.run();
        bench.assert_conserved();
        assert!(bench.world.counts().lost > 0);
        let missing: usize = members
            .iter()
            .filter(|&&pe| pe != 1)
            .map(|&pe| {
                let bytes = bench.bytes(at(pe, 0), 320);
                (0..40)
                    .filter(|&round| {
                        let word = u64::from_le_bytes(bytes[8 * round..][..8].try_into().unwrap());
                        assert!(word == 0 || word == round as u64 + 1, "torn or made up");
                        word == 0
                    })
                    .count()
            })
            .sum();
        assert!(missing > 0 && missing < 40 * (members.len() - 1), "{missing} missing");
        assert!(bench.world.is_quiet(Pe(1)), "what is lost is not waited for");
    }
}

/// Datagrams come to the members that they are for, as they were sent, once at most, those of a
/// kind in order; each one that did not come was lost, and counted.
#[test]
fn datagrams_come_or_are_counted() {
    let text = include_str!("../../../../../machines/dimmnet-2.toml")
        .replace("loss = { value = 0,", "loss = { value = 0.2,");
    let lossy = Machine::parse("leaky", &text, None).unwrap();
    for (machine, loses) in [(machine("dimmnet-2"), false), (lossy, true)] {
        let mut bench = Bench::of(&machine, 6, 3);
        let groups = join_for(&mut bench, &[4, 0, 2, 3], Wanted::Datagrams(0));
        assert!(groups.iter().all(|&group| group == groups[0] && group >> 32 == 2048));
        let (group, before) = (groups[0] as u32, bench.world.counts());
        let datagram = |number: u32| {
            [number.to_le_bytes().as_slice(), &vec![number as u8; 40 * number as usize]].concat()
        };
        for number in 0..50 {
            // Every third to one of them alone.
            let to = (number % 3 == 0).then_some(2);
            assert_eq!(bench.call(4, send(group, to, &datagram(number))).refused, None);
        }
        bench.run();
        bench.assert_conserved();
        let mut came = 0;
        for pe in [0, 2, 3, 4, 1, 5] {
            let got = take(&mut bench, pe, group);
            let numbers: Vec<u32> = got
                .iter()
                .map(|bytes| u32::from_le_bytes(bytes[..4].try_into().unwrap()))
                .collect();
            // One to a single PE need not wait for copies.
            for alone in [true, false] {
                let of_a_kind = numbers.iter().filter(|&number| (number % 3 == 0) == alone);
                assert!(of_a_kind.is_sorted_by(|a, b| a < b), "PE {pe}: {numbers:?}");
            }
            for (number, bytes) in numbers.iter().zip(&got) {
                assert!(*bytes == datagram(*number), "datagram {number} is another at PE {pe}");
            }
            let expected: Vec<u32> = match pe {
                2 => (0..50).collect(),
                0 | 3 => (0..50).filter(|number| number % 3 != 0).collect(),
                _ => Vec::new(),
            };
            assert!(numbers.iter().all(|number| expected.contains(number)));
            assert!(loses || numbers.len() == expected.len(), "PE {pe}: {numbers:?}");
            came += got.len() as u64;
        }
        let after = bench.world.counts();
        assert_eq!(after.arrived - before.arrived, came + after.discarded - before.discarded);
        assert_eq!(after.lost > before.lost, loses);
        assert!(bench.world.is_quiet(Pe(4)), "nobody waits for datagrams");
    }
}

/// What comes while all buffers are full is discarded; what is not for a PE, and who is no member,
/// is refused.
#[test]
fn datagrams_have_bounds() {
    let mut bench = Bench::new("dimmnet-2", 4);
    let group = join_for(&mut bench, &[0, 1], Wanted::Datagrams(0))[0] as u32;
    for number in 0..300u64 {
        bench.call(0, send(group, None, &number.to_le_bytes()));
    }
    bench.run();
    let got = take(&mut bench, 1, group);
    assert_eq!(got.len(), 256);
    assert_eq!(got[255], 255u64.to_le_bytes());
    assert_eq!(bench.world.counts().discarded, 44);
    // Several in one go, each but the last as large as may be.
    let block: Vec<u8> = (0..3 * 2048 + 5).map(|at: u32| (at * 7 / 8) as u8).collect();
    assert_eq!(bench.call(0, send(group, None, &block)).refused, None);
    bench.run();
    assert!(take(&mut bench, 1, group).iter().map(Vec::as_slice).eq(block.chunks(2048)));
    assert!(bench.call(0, send(group, None, &[0; 16 * 2048 + 1])).refused.is_some());
    assert!(bench.call(0, send(group, Some(4), &[0; 8])).refused.is_some());
    assert!(bench.call(2, send(group, None, &[0; 8])).refused.is_some());
    // A member that has left takes nothing. When all have left a group, another group gets its
    // place, with another number.
    bench.call(1, HostOp::Group(GroupOp::Leave(group)));
    bench.call(0, send(group, None, &[0; 8]));
    bench.run();
    assert_eq!(take(&mut bench, 1, group), Vec::<Vec<u8>>::new());
    bench.call(0, HostOp::Group(GroupOp::Leave(group)));
    bench.run();
    assert_eq!(bench.call(0, HostOp::Command(read_table(0, 0))).data.bits(), 0);
    let next = join_for(&mut bench, &[2, 3], Wanted::Datagrams(0));
    assert_eq!(next[0], next[1]);
    let (before, group) = (group, next[0] as u32);
    assert_eq!(group as u16, before as u16);
    assert_ne!(group, before, "what was for the one would be taken for the other's");
    bench.call(2, send(group, None, &[7; 9]));
    bench.run();
    assert_eq!(take(&mut bench, 3, group), [[7; 9]]);
    assert_eq!(take(&mut bench, 1, group), Vec::<Vec<u8>>::new());
    bench.assert_conserved();
}

#[test]
fn needs_a_switch_and_enough_local_ids() {
    let text = include_str!("../../../../../machines/dimmnet-2.toml")
        .replace("value = \"star\"", "value = \"direct\"");
    let machine = Machine::parse("direct", &text, None).unwrap();
    let memory = || Box::new(crate::memory::PlainMemory::new(1, 8));
    let error = crate::world::World::build(&machine, 2, 0, memory()).err().unwrap().to_string();
    assert!(error.contains("topology.shape"), "{error}");
    let error = crate::world::World::build(&self::machine("dimmnet-2/tree"), 65_536, 0, memory())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("local ids"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Tables that management packets write, against a plain map; what they hold is what they say,
    /// and where packets go. Nodes take what they listen to.
    #[test]
    fn tables(writes in prop::collection::vec((0u32..10, any::<u64>()), 1..12),
              listens in prop::collection::vec((0u32..8, 0u16..256), 0..60),
              sends in prop::collection::vec((0u32..8, 0u16..256), 1..30)) {
        let mut bench = Bench::new("dimmnet-2", 8);
        let mut map: BTreeMap<u16, u16> = BTreeMap::new();
        for (block, seed) in writes {
            let mut random = crate::random::Random::new(seed);
            let ports: [u16; 32] = std::array::from_fn(|_| random.next_bits() as u16);
            bench.command((seed % 8) as u32, write_table(0, block, &ports));
            // The table has 8 blocks: what is beyond is nowhere.
            for (entry, ports) in ports.into_iter().enumerate().filter(|_| block < 8) {
                map.insert(FIRST_GROUP + block as u16 * 32 + entry as u16, ports);
            }
        }
        for block in 0..8u16 {
            let answer = bench.call(0, HostOp::Command(read_table(0, block.into())));
            let expected: Vec<u8> = (0..32).flat_map(|entry| map.get(&(FIRST_GROUP + 32 * block + entry)).copied().unwrap_or(0).to_be_bytes()).collect();
            answer.data.with(|bytes| assert_eq!(bytes, expected));
        }
        let mut listeners = BTreeSet::new();
        for (pe, group) in listens {
            bench.command(pe, listen(FIRST_GROUP + group, true));
            listeners.insert((pe, FIRST_GROUP + group));
        }
        let mut expected = [[0u64; 30]; 8];
        for (number, (sender, group)) in sends.into_iter().enumerate() {
            let group = FIRST_GROUP + group;
            bench.call(sender, multicast(group.into(), 8 * number as u64, &(number as u64 + 1).to_le_bytes()));
            for pe in (0..8).filter(|&pe| pe != sender) {
                if map.get(&group).is_some_and(|ports| ports & 1 << pe != 0) && listeners.contains(&(pe, group)) {
                    expected[pe as usize][number] = number as u64 + 1;
                }
            }
        }
        bench.run();
        bench.assert_conserved();
        for pe in 0..8 {
            let bytes: Vec<u8> = expected[pe as usize].iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(bench.bytes(at(pe, 0), 240), bytes);
        }
    }
}
