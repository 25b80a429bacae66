//! The library's multicast on simulated switches: reliable on datagrams that are lost, and
//! repeatable.

use memonet_core::{Delivery, Job, MulticastOptions, Result, Window};
use memonet_sim::{Done, Machine, Options, now, run};
use std::time::Duration;

fn machine(name: &str) -> Machine {
    Machine::load(name).unwrap()
}

/// DIMMnet-2, or a variant, with links that lose datagrams by this probability. Its switches copy
/// fast enough for channels to many.
fn lossy(variant: Option<&str>, loss: f64) -> Machine {
    let text = include_str!("../../../machines/dimmnet-2.toml");
    let fast = text.replace("copy_rate = { value = 1000,", "copy_rate = { value = 16000,");
    let lossy = fast.replace("loss = { value = 0,", &format!("loss = {{ value = {loss},"));
    Machine::parse("lossy", &lossy, variant).unwrap()
}

/// Variants, PEs, and what is lost; so many PEs where that is most.
fn losses(pes: usize) -> [(Option<&'static str>, usize, f64); 7] {
    let (tree, line_rate) = (Some("tree"), Some("line-rate"));
    [
        (Some("lanes"), 5, 0.1),
        (None, 3, 0.0),
        (None, 4, 0.01),
        (None, 4, 0.2),
        (tree, 20, 0.05),
        (line_rate, 9, 0.1),
        (None, pes, 0.4),
    ]
}

/// Blocks of every length; which, all know.
fn block(number: usize) -> Vec<u64> {
    let len = [0, 1, 2, 7, 100, 300, 2000][number * 5 % 7];
    (0..len).map(|index| (number as u64) << 32 | index).collect()
}

/// A writer, and all others as readers. How channels were delivered.
fn stream(job: &Job, writer: usize, blocks: usize) -> Result<Delivery> {
    let readers: Vec<usize> = (0..job.npes()).filter(|&pe| pe != writer).collect();
    let mut channel =
        job.multicast::<u64>(writer, &readers, MulticastOptions::new().capacity(1 << 14))?;
    let mut buffer = Vec::new();
    for number in 0..blocks {
        if job.pe() == writer {
            channel.publish(&block(number))?;
        } else {
            channel.recv(&mut buffer)?;
            assert_eq!(buffer, block(number), "block {number} at PE {}", job.pe());
        }
    }
    // Where it is passed on, nobody may go before all have it.
    job.barrier()?;
    Ok(channel.delivery())
}

fn assert_conserved<R>(done: &Done<R>) {
    let counts = done.counts;
    assert_eq!(
        counts.sent + counts.copied,
        counts.arrived + counts.lost + counts.absorbed,
        "{counts:?}"
    );
}

fn streams(machine: &Machine, pes: usize, seed: u64, record: bool) -> Done<Vec<Delivery>> {
    let options = Options { seed, record, ..Options::default() };
    let done = run(machine, pes, &options, |job| {
        [0, pes - 1].map(|writer| stream(&job, writer, 60).expect("nobody dies")).to_vec()
    });
    let done = done.unwrap();
    assert_conserved(&done);
    done
}

#[test]
fn all_blocks_arrive_in_order_whatever_is_lost() {
    for (seed, (variant, pes, loss)) in (1..).zip(losses(16)) {
        let done = streams(&lossy(variant, loss), pes, seed, false);
        assert!(
            done.results.iter().flatten().all(|&way| way == Delivery::Datagrams),
            "{variant:?}"
        );
        assert_eq!(done.counts.lost > 0, loss > 0.0, "{variant:?}: {:?}", done.counts);
    }
}

/// What the network cannot serve goes by a tree, at all PEs.
#[test]
fn without_a_table_entry_a_tree_does() {
    for (name, pes) in
        [("dimmnet-2", 20), ("dimmnet-2", 2), ("scc", 4), ("sr2201", 3), ("dimmnet-1/D-switch", 4)]
    {
        let done = streams(&machine(name), pes, 1, false);
        assert!(done.results.iter().flatten().all(|&way| way == Delivery::Tree), "{name}");
    }
}

/// Where the switch copies for one reader after the other, and there are many, PEs pass blocks on
/// faster: a channel to more than three goes by a tree, and a large broadcast to as many in parts.
/// A switch that copies for all at once is faster than both.
#[test]
fn the_faster_way_is_chosen() {
    const WORDS: usize = 1 << 17;
    for (name, pes, ways, fastest_mb_s) in [
        ("dimmnet-2", 4, Delivery::Datagrams, 300),
        ("dimmnet-2", 5, Delivery::Tree, 240),
        ("dimmnet-2", 16, Delivery::Tree, 300),
        ("dimmnet-2/line-rate", 16, Delivery::Datagrams, 700),
    ] {
        let done = run(&machine(name), pes, &Options::default(), |job| {
            let way = stream(&job, 0, 10).unwrap();
            let window = job.window::<u64>(WORDS).unwrap();
            let all = window.span(0..WORDS).unwrap();
            // The first ones make the group.
            (0..2).for_each(|_| job.world().broadcast_into(0, all, all).unwrap());
            job.barrier().unwrap();
            let begin = now();
            job.world().broadcast_into(0, all, all).unwrap();
            job.barrier().unwrap();
            (way, now() - begin)
        });
        for (way, time) in done.unwrap().results {
            assert_eq!(way, ways, "{name}, {pes} PEs");
            let mb_s = 8 * WORDS as u128 * 1000 / time.as_nanos();
            assert!(mb_s >= fastest_mb_s, "{name}, {pes} PEs: {mb_s} MB/s");
        }
    }
}

/// A table has 256 groups; those that are no more are given again.
#[test]
fn groups_are_given_back() {
    let done = run(&machine("dimmnet-2"), 3, &Options::default(), |job| {
        (0..600).all(|_| stream(&job, 0, 2).expect("nobody dies") == Delivery::Datagrams)
    });
    assert_eq!(done.unwrap().results, [true; 3]);
}

#[test]
fn a_lossy_run_repeats_itself() {
    let runs = [(); 2].map(|()| streams(&machine("dimmnet-2/lossy"), 4, 5, true));
    let timeline = |done: &Done<_>| {
        let mut bytes = Vec::new();
        done.write_chrome(&mut bytes).unwrap();
        bytes
    };
    assert!(runs[0].counts.lost > 0);
    assert_eq!((runs[0].counts, runs[0].end), (runs[1].counts, runs[1].end));
    assert!(timeline(&runs[0]) == timeline(&runs[1]), "the same counts, and another timeline");
}

/// Around what goes directly where nothing copies, and around datagrams, in words.
const LENGTHS: [usize; 10] = [0, 1, 128, 129, 250, 251, 252, 511, 2000, 20_000];

/// Broadcasts in two teams, from every root, to wherever, by PEs that come at any time. Whether the
/// first team's went by multicast.
fn broadcasts(job: &Job, rounds: usize) -> Result<bool> {
    let (me, n) = (job.pe(), job.npes());
    let window = job.window::<u64>(2 * 20_001)?;
    let backwards: Vec<usize> = (0..n).rev().filter(|pe| n < 5 || pe % 2 == me % 2).collect();
    let team = job.team(&backwards)?.expect("it is in its own");
    let mut dice = 1 + me as u64;
    for round in 0..rounds {
        let (team, len) =
            (if round % 3 == 2 { &team } else { job.world() }, LENGTHS[round * 7 % LENGTHS.len()]);
        let (root, from) = (round * 5 % team.len(), round % 2);
        let to = if round % 4 == 3 { from } else { 20_001 + (round + 1) % 2 };
        let value =
            |pe: usize, index: usize| (round as u64) << 40 | (pe as u64) << 32 | index as u64;
        window.fill(to..to + len, u64::MAX);
        let own: Vec<u64> = (0..len).map(|index| value(me, index)).collect();
        window.write_from(from, &own);
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        job.compute([0, dice >> 50, dice >> 44][round % 3]);
        team.broadcast_into(root, window.span(to..to + len)?, window.span(from..from + len)?)?;
        let whole = window.to_vec();
        let pe = team.members()[root];
        assert!(
            (0..len).all(|index| whole[to + index] == value(pe, index)),
            "{len} words from {pe} at {me}, round {round}"
        );
        assert!(to == from || whole[from..from + len] == own, "the source of {me}, round {round}");
    }
    // No barrier: who is done leaves, while others still miss something.
    Ok(job.world().multicast_from().is_some())
}

fn run_broadcasts(machine: &Machine, pes: usize, seed: u64) -> Done<bool> {
    let options = Options { seed, ..Options::default() };
    let done =
        run(machine, pes, &options, |job| broadcasts(&job, 40).expect("nobody dies")).unwrap();
    assert_conserved(&done);
    done
}

#[test]
fn broadcasts_arrive_whole_whatever_is_lost() {
    for (seed, (variant, pes, loss)) in (1..).zip(losses(5)) {
        let done = run_broadcasts(&lossy(variant, loss), pes, seed);
        assert!(done.results.iter().all(|&multicast| multicast), "{variant:?}");
        assert!(done.counts.copied > 0, "{variant:?}: {:?}", done.counts);
        assert_eq!(done.counts.lost > 0, loss > 0.0, "{variant:?}: {:?}", done.counts);
    }
}

/// Where nothing copies, or not for so many, broadcasts go as ever.
#[test]
fn broadcasts_without_copies() {
    for (name, pes) in [
        ("dimmnet-2", 20),
        ("dimmnet-2", 2),
        ("scc", 4),
        ("rdma-100g", 4),
        ("fast-ethernet-udp", 4),
        ("dimmnet-1/D-switch", 4),
    ] {
        let done = run_broadcasts(&machine(name), pes, 1);
        assert!(done.results.iter().all(|&multicast| !multicast), "{name}");
    }
}

/// The block crosses the root's link once, and each member's.
#[test]
fn a_broadcast_is_sent_once() {
    const WORDS: usize = 1 << 16;
    let counts = |rounds: usize| {
        let done = run(&machine("dimmnet-2"), 4, &Options::default(), |job| {
            let window = job.window::<u64>(WORDS).unwrap();
            let all = window.span(0..WORDS).unwrap();
            (0..=rounds).for_each(|_| job.world().broadcast_into(2, all, all).unwrap());
        });
        done.unwrap().counts
    };
    let (one, two) = (counts(0), counts(1));
    let packets = (8 * WORDS as u64).div_ceil(2048);
    let (sent, copied) = (two.sent - one.sent, two.copied - one.copied);
    assert!((packets..packets + packets / 4).contains(&sent), "{sent} sent for {packets}");
    assert!(
        (2 * packets..2 * packets + packets / 4).contains(&copied),
        "{copied} copied of {packets}"
    );
}

/// A group takes longer to make than a few small broadcasts; they go by puts until it pays.
#[test]
fn small_broadcasts_are_put_first() {
    const WORDS: usize = 512;
    let copied = |rounds: usize| {
        let done = run(&machine("dimmnet-2"), 4, &Options::default(), |job| {
            let window = job.window::<u64>(WORDS).unwrap();
            let all = window.span(0..WORDS).unwrap();
            let from = (0..rounds).map(|_| {
                job.world().broadcast_into(0, all, all).unwrap();
                job.world().multicast_from().unwrap()
            });
            from.collect::<Vec<_>>()
        });
        let done = done.unwrap();
        let from: Vec<usize> =
            (1..=rounds).map(|round| (32_768 - round.min(8) * 8 * WORDS).max(1025)).collect();
        assert_eq!(done.results, [(); 4].map(|()| from.clone()));
        done.counts.copied
    };
    assert_eq!(copied(7), 0);
    assert!(copied(8) > 0);
}

/// All PEs do `before`. Then one of four does `last` and dies, while the others broadcast: each of
/// them hears of the death.
fn all_others_hear_of_a_death(
    machine: &Machine,
    victim: usize,
    before: impl Fn(&Job, &Window<u64>),
    last: impl Fn(&Job),
) {
    let heard = std::sync::Mutex::new(Vec::new());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(machine, 4, &Options::default(), |job| {
            let window = job.window::<u64>(50_000).unwrap();
            let all = window.span(0..50_000).unwrap();
            before(&job, &window);
            if job.pe() == victim {
                last(&job);
                std::panic::resume_unwind(Box::new("deliberate"));
            }
            let result = job.world().broadcast_into(1, all, all);
            heard.lock().unwrap().push((job.pe(), result));
        })
        .map(drop)
    }));
    assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "deliberate");
    let heard = heard.into_inner().unwrap();
    assert_eq!(heard.len(), 3, "{heard:?}");
    for (pe, result) in heard {
        let right =
            matches!(result, Err(memonet_core::Error::PeerFailed { pe, .. }) if pe == victim);
        assert!(right, "PE {pe}: {result:?}, and {victim} died");
    }
}

/// The victim may be the root or not, and may die before the group is made or after it.
#[test]
fn a_death_ends_a_broadcast_at_all_others() {
    for (victim, broadcasts) in (0..4).flat_map(|victim| [(victim, 0), (victim, 3)]) {
        let before = |job: &Job, window: &Window<u64>| {
            let all = window.span(0..50_000).unwrap();
            (0..broadcasts).for_each(|_| job.world().broadcast_into(1, all, all).unwrap());
            job.barrier().unwrap();
        };
        let last = |job: &Job| job.compute(300_000);
        all_others_hear_of_a_death(&machine("dimmnet-2/lossy"), victim, before, last);
    }
}

/// The others then wait in a call of the network's, for a group that will never be.
#[test]
fn a_death_between_meeting_and_joining_ends_a_broadcast() {
    for (victim, computes) in [(0, 0), (2, 0), (3, 3_000_000)] {
        let last = |job: &Job| {
            // Members meet before they join.
            job.barrier().unwrap();
            job.compute(computes);
        };
        all_others_hear_of_a_death(&machine("dimmnet-2"), victim, |_, _| (), last);
    }
}

/// A root asks in vain whether all have it, and nobody else does anything.
#[test]
fn a_broadcast_that_somebody_does_not_call_is_a_deadlock() {
    let stuck = run(&machine("dimmnet-2"), 4, &Options::default(), |job| {
        let window = job.window::<u64>(50_000).unwrap();
        let all = window.span(0..50_000).unwrap();
        job.world().broadcast_into(0, all, all).unwrap();
        match job.pe() {
            3 => drop(window.wait_until(0, memonet_core::Cmp::Eq, 7)),
            _ => job.world().broadcast_into(0, all, all).unwrap(),
        }
    });
    let text = stuck.map(drop).unwrap_err().to_string();
    assert!(text.contains("waits for"), "{text}");
}

#[test]
fn broadcasts_by_the_way_that_is_forced() {
    for way in ["line", "eager", "direct", "multicast"] {
        let program = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "in_a_process_with_a_way"])
            .env(memonet_core::ENV_COLLECTIVES, way)
            .output()
            .unwrap();
        assert!(program.status.success(), "{way}: {}", String::from_utf8_lossy(&program.stdout));
    }
}

#[test]
#[ignore = "started by `broadcasts_by_the_way_that_is_forced`"]
fn in_a_process_with_a_way() {
    let Ok(way) = std::env::var(memonet_core::ENV_COLLECTIVES) else {
        return;
    };
    let few = run(&lossy(None, 0.3), 5, &Options::default(), |job| {
        let window = job.window::<u8>(8).unwrap();
        for round in 0..30 {
            let (root, len) = (round % 5, [0, 1, 3][round % 3]);
            window.fill(0..8, if job.pe() == root { round as u8 } else { 99 });
            let some = window.span(1..1 + len).unwrap();
            job.world().broadcast_into(root, some, some).unwrap();
            let rest = if job.pe() == root { round as u8 } else { 99 };
            let right = |(at, &byte): (usize, &u8)| {
                byte == if (1..=len).contains(&at) { round as u8 } else { rest }
            };
            assert!(window.to_vec().iter().enumerate().all(right), "{len} bytes in round {round}");
        }
    });
    few.unwrap();
    let done = run_broadcasts(&lossy(None, 0.1), 5, 1);
    let multicast = way == "multicast";
    assert!(done.results.iter().all(|&used| used == multicast), "{way}");
    assert_eq!(done.counts.copied > 0, multicast, "{way}: {:?}", done.counts);
}

/// How long PE 0 takes to bring 64 blocks of 16 KiB to three others: by a channel, and by puts to
/// one after the other. Both are repaired: the channel by the library, the puts by the NICs.
fn four_nodes(machine: &Machine, seed: u64) -> [Duration; 2] {
    const WORDS: usize = 2048;
    const BLOCKS: usize = 64;
    let done = run(machine, 4, &Options { seed, ..Options::default() }, |job| {
        let options = MulticastOptions::new().capacity(1 << 16);
        let mut channel = job.multicast::<u64>(0, &[1, 2, 3], options).unwrap();
        assert_eq!(channel.delivery(), Delivery::Datagrams);
        let (window, block) = (job.window::<u64>(WORDS).unwrap(), vec![7; WORDS]);
        let mut came = Vec::new();
        let begin = now();
        for _ in 0..BLOCKS {
            match job.pe() {
                0 => channel.publish(&block).unwrap(),
                _ => channel.recv(&mut came).unwrap(),
            }
        }
        job.barrier().unwrap();
        let middle = now();
        if job.pe() == 0 {
            (0..BLOCKS).for_each(|_| (1..4).for_each(|pe| window.put(pe, 0, &block).unwrap()));
        }
        job.barrier().unwrap();
        assert!(job.pe() == 0 || window.to_vec() == block);
        [middle - begin, now() - middle]
    });
    done.unwrap().results[0]
}

/// What one packet in a hundred that each link loses costs: NICs that send again just those hide
/// it, and the library's repair of datagrams, which is software, does not.
#[test]
fn what_loss_costs_with_and_without_multicast() {
    // Which packets are lost is chance, so times are sums of several runs.
    let [sound, lossy, fair, reliable] =
        ["", "/lossy", "/retransmit", "/reliable"].map(|variant| {
            let machine = machine(&format!("dimmnet-2{variant}"));
            let runs = (1..=5).map(|seed| four_nodes(&machine, seed));
            runs.fold([Duration::ZERO; 2], |sum, run| [sum[0] + run[0], sum[1] + run[1]])
        });
    assert_eq!(sound[1], lossy[1], "no puts are lost");
    assert!(fair[1] > sound[1] && fair[1] < sound[1] * 11 / 10, "{sound:?} {fair:?}");
    assert!(fair[0] > sound[0] * 2 && fair[0] < lossy[0] * 11 / 10, "{sound:?} {lossy:?} {fair:?}");
    // Where NICs repair datagrams, too, the library has nothing to repair.
    assert!(reliable[0] < sound[0] * 3 / 2, "{sound:?} {reliable:?}");
}
