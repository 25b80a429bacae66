//! The library's multicast on simulated switches: reliable on datagrams that are lost, and repeatable.

use memonet_core::{Delivery, Job, MulticastOptions, Result};
use memonet_sim::{Done, Machine, Options, run};

fn machine(name: &str) -> Machine {
    Machine::load(name).unwrap()
}

/// DIMMnet-2, or a variant, with links that lose datagrams by this probability.
fn lossy(variant: Option<&str>, loss: f64) -> Machine {
    let text = include_str!("../../../machines/dimmnet-2.toml");
    let lossy = text.replace("loss = { value = 0,", &format!("loss = {{ value = {loss},"));
    Machine::parse("lossy", &lossy, variant).unwrap()
}

/// Blocks of every length; which, all know.
fn block(number: usize) -> Vec<u64> {
    let len = [0, 1, 2, 7, 100, 300, 2000][number * 5 % 7];
    (0..len).map(|index| (number as u64) << 32 | index).collect()
}

/// A writer, and all others as readers. How channels were delivered.
fn stream(job: &Job, writer: usize, blocks: usize) -> Result<Delivery> {
    let readers: Vec<usize> = (0..job.npes()).filter(|&pe| pe != writer).collect();
    let mut channel = job.multicast::<u64>(writer, &readers, MulticastOptions::new().capacity(1 << 14))?;
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
    let options = Options {
        seed,
        record,
        ..Options::default()
    };
    let done = run(machine, pes, &options, |job| {
        [0, pes - 1].map(|writer| stream(&job, writer, 60).expect("nobody dies")).to_vec()
    });
    let done = done.unwrap();
    assert_conserved(&done);
    done
}

#[test]
fn all_blocks_arrive_in_order_whatever_is_lost() {
    for (seed, (variant, pes, loss)) in (1..).zip([
        (None, 3, 0.0),
        (None, 4, 0.01),
        (None, 4, 0.2),
        (Some("tree"), 20, 0.05),
        (Some("line-rate"), 9, 0.1),
        (None, 16, 0.4),
    ]) {
        let done = streams(&lossy(variant, loss), pes, seed, false);
        assert!(done.results.iter().flatten().all(|&way| way == Delivery::Datagrams), "{variant:?}");
        assert_eq!(done.counts.lost > 0, loss > 0.0, "{variant:?}: {:?}", done.counts);
    }
}

/// What the network cannot serve goes by a tree, at all PEs.
#[test]
fn without_a_table_entry_a_tree_does() {
    for (name, pes) in [
        ("dimmnet-2", 20),
        ("dimmnet-2", 2),
        ("scc", 4),
        ("sr2201", 3),
        ("dimmnet-1/D-switch", 4),
    ] {
        let done = streams(&machine(name), pes, 1, false);
        assert!(done.results.iter().flatten().all(|&way| way == Delivery::Tree), "{name}");
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
        done.recorder.write_chrome(&mut bytes).unwrap();
        bytes
    };
    assert!(runs[0].counts.lost > 0);
    assert_eq!((runs[0].counts, runs[0].end), (runs[1].counts, runs[1].end));
    assert!(timeline(&runs[0]) == timeline(&runs[1]), "the same counts, and another timeline");
}
