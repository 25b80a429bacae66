//! SCC: barriers by wires, alone and with software, against messages over Fast Ethernet;
//! collectives in the network.

use super::dimmnet1::nic;
use super::outcome::{Curve, Outcome, Row};
use super::published::component;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::sync_network::{enter, flag, reduced};
use crate::run::{Host, Options, run as run_on};
use memonet_core::{Cmp, Sum};

const ALL: &str = "nobody dies in an experiment";

/// From the last arrival to completion, on the wires alone, in ns.
fn hardware(nodes: usize) -> Result<f64, Error> {
    let options = Options { record: true, ..Options::default() };
    let done = run_on(&Machine::load("scc")?, nodes, &options, |job| {
        job.barrier().expect(ALL);
    })?;
    let stages = done.recorder.stages().iter().filter(|stage| stage.name == "microcluster");
    let times = stages.map(|stage| stage.end - stage.start);
    Ok(times.min().expect("a barrier on the wires").as_ns())
}

/// The times of the library's barriers, which use the wires, in ns: for each PE from its arrival
/// on. Between barriers, PEs compute for different times.
fn software(nodes: usize) -> Result<Vec<f64>, Error> {
    const ROUNDS: u64 = 50;
    let done = run_on(&Machine::load("scc")?, nodes, &Options::default(), |job| {
        let mut times = Vec::new();
        for round in 1..=ROUNDS {
            // Arrivals differ by up to 3 us, differently in each round.
            job.compute((round * 997 + job.pe() as u64 * 1409) * 613 % 3000);
            let begin = Host::here().now();
            job.barrier().expect(ALL);
            times.push((Host::here().now() - begin).as_ns());
        }
        times
    })?;
    Ok(done.results.concat())
}

/// The mean time of a barrier of messages, all to one and then one to all, in ns.
fn messages(machine: &str, nodes: usize) -> Result<f64, Error> {
    const ROUNDS: u64 = 10;
    let done = run_on(&Machine::load(machine)?, nodes, &Options::default(), |job| {
        let words = job.window::<u64>(job.npes()).expect(ALL);
        job.barrier().expect(ALL);
        let begin = Host::here().now();
        let others = 1..job.npes();
        for round in 1..=ROUNDS {
            let signal = |pe, index| words.remote(pe, index).expect("in the window").store(round);
            let wait = |index| {
                words.wait_until(index, Cmp::Ge, round).expect(ALL);
            };
            if job.pe() == 0 {
                others.clone().for_each(wait);
                others.clone().for_each(|pe| signal(pe, 0));
            } else {
                signal(0, job.pe());
                wait(0);
            }
        }
        let time = (Host::here().now() - begin).as_ns() / ROUNDS as f64;
        job.barrier().expect(ALL);
        time
    })?;
    Ok(done.results.into_iter().fold(0.0, f64::max))
}

/// The time of a collective of the library, with 8 bytes at each PE, until the last has its result,
/// in ns. On SCC it is done in the network.
fn collective(machine: &str, nodes: usize, what: Goal) -> Result<f64, Error> {
    const ROUNDS: u64 = 10;
    const MILLISECOND: u64 = 1_000_000;
    let done = run_on(&Machine::load(machine)?, nodes, &Options::default(), |job| {
        let words = job.window::<u64>(2).expect(ALL);
        let (from, to) = (words.span(0..1).expect(ALL), words.span(1..2).expect(ALL));
        let world = job.world();
        let mut moments = Vec::new();
        for _ in 0..ROUNDS {
            // All PEs begin at the next whole millisecond.
            job.compute(MILLISECOND - Host::here().now().0 / 1000 % MILLISECOND);
            moments.push(Host::here().now());
            match what {
                Goal::Broadcast => world.broadcast_into(0, to, from),
                Goal::Reduce => world.reduce_into(Sum, 0, to, from),
                Goal::AllReduce => world.all_reduce_into(Sum, to, from),
                Goal::AllReduceDouble => world.all_reduce(Sum, 0.5_f64).map(drop),
                Goal::Scan => world.scan_into(Sum, to, from),
            }
            .expect(ALL);
            moments.push(Host::here().now());
            job.barrier().expect(ALL);
        }
        moments
    })?;
    let time = |round: usize| {
        let begin = done.results.iter().map(|moments| moments[2 * round]).min();
        let end = done.results.iter().map(|moments| moments[2 * round + 1]).max();
        end.zip(begin).map_or(0.0, |(end, begin)| (end - begin).as_ns())
    };
    Ok((0..ROUNDS as usize).map(time).sum::<f64>() / ROUNDS as f64)
}

#[derive(Clone, Copy)]
enum Goal {
    Broadcast,
    Reduce,
    AllReduce,
    AllReduceDouble,
    Scan,
}

fn curve(figure: &'static str, label: &str, points: Vec<(usize, f64)>) -> Curve {
    Curve {
        figure,
        label: label.into(),
        x: "nodes",
        y: "ns",
        points: points.into_iter().map(|(nodes, time)| (nodes as f64, time)).collect(),
    }
}

fn over(
    nodes: &[usize],
    time: impl Fn(usize) -> Result<f64, Error>,
) -> Result<Vec<(usize, f64)>, Error> {
    nodes.iter().map(|&nodes| Ok((nodes, time(nodes)?))).collect()
}

/// Components of the model beside its results.
fn wires(outcome: &mut Outcome) -> Result<(), Error> {
    let nodes: Vec<usize> = (2..=64).collect();
    let times = over(&nodes, hardware)?;
    let time = |nodes: usize| times[nodes - 2].1;
    let shown = |name: &str, simulated| {
        Row::predicted(format!("scc.{name}"), "ns", simulated)
            .input(component(&format!("scc.components.{name}")))
    };
    outcome.rows.extend([
        shown("hardware_barrier_ns_16_nodes", time(16)),
        shown("hardware_barrier_ns_17_nodes", time(17)),
        shown("further_microcluster_ns", (time(64) - time(16)) / 3.0),
        Row::predicted("scc.hardware_barrier_ns_64_nodes", "ns", time(64)),
    ]);
    outcome.curves.push(curve("scc: barrier by wires", "without software", times));
    Ok(())
}

/// The times at which barriers with software are seen, each once, the shortest first.
fn seen(nodes: usize) -> Result<Vec<f64>, Error> {
    let mut times = software(nodes)?;
    times.sort_by(f64::total_cmp);
    times.dedup_by(|a, b| (*a - *b).abs() < 1.0);
    Ok(times)
}

/// Barriers with the host's software: completion is seen at a look.
fn with_software(outcome: &mut Outcome) -> Result<f64, Error> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut slow = f64::NAN;
    for nodes in (2..=16).chain([17, 32, 48, 64]) {
        let times = seen(nodes)?;
        let later = times.get(1).copied();
        first.push((nodes, times[0]));
        second.extend(later.map(|time| (nodes, time)));
        let suffix = match nodes {
            4 => String::new(),
            17 | 32 | 64 => format!("_{nodes}_nodes"),
            _ => continue,
        };
        slow = if nodes == 4 { later.unwrap_or(f64::NAN) } else { slow };
        for (look, time) in [("first_look", Some(times[0])), ("second_look", later)] {
            let id = format!("scc.software_barrier_ns{suffix}.{look}");
            outcome.rows.extend(time.map(|time| Row::predicted(id, "ns", time)));
        }
    }
    let figure = "scc: barrier with software";
    outcome.curves.push(curve(figure, "SCC, seen at the first look", first));
    outcome.curves.push(curve(figure, "SCC, seen at the second look", second));
    Ok(slow)
}

/// Barriers of messages over the LAN, against the slower barrier of the boards on four nodes.
fn by_messages(outcome: &mut Outcome, slow: f64) -> Result<(), Error> {
    let mpi = over(&[2, 3, 4, 8, 16, 32, 64], |nodes| messages("fast-ethernet-udp/mpi", nodes))?;
    let of = |wanted: usize| {
        mpi.iter().find(|(nodes, _)| *nodes == wanted).map_or(f64::NAN, |(_, time)| *time)
    };
    outcome.rows.extend([
        Row::predicted("scc.mpi_barrier_over_scc", "x", of(4) / slow)
            .fitted()
            .note("published: almost 100 times the slower SCC barrier, on four nodes"),
        Row::predicted("scc.mpi_barrier_growth", "x", (of(4) - of(3)) / (of(3) - of(2)))
            .note("what the fourth node adds over what the third adds; published: it grows linearly, which is 1"),
        Row::predicted("scc.mpi_barrier_growth_to_64", "x", (of(64) - of(32)) / 32.0 / ((of(8) - of(4)) / 4.0))
            .note("what a node adds between 32 and 64 of them, over what it adds between 4 and 8"),
    ]);
    outcome.curves.push(curve("scc: barrier with software", "MPI over Fast Ethernet", mpi));
    Ok(())
}

/// Codes that a phase takes at a node, and its time in ns: with an entry and an exit code, or with
/// the reduced code. Nodes work for up to 3 us between the phases. The group register names all
/// boards already, as the library's barriers go by them.
fn codes(nodes: usize, reduced_code: bool) -> Result<(f64, f64), Error> {
    const PHASES: u64 = 50;
    let done = run_on(&Machine::load("scc")?, nodes, &Options::default(), |job| {
        let begin = Host::here().now();
        let mut codes = 0;
        for phase in 1..=PHASES {
            job.compute((phase * 997 + job.pe() as u64 * 1409) * 613 % 3000);
            codes += 1;
            if reduced_code {
                while nic(reduced()) != 0 {}
            } else {
                nic(enter());
                codes += 1;
                while nic(flag()) != 0 {}
            }
        }
        // The last phase of the reduced code is still open.
        while nic(flag()) != 0 {}
        (codes, (Host::here().now() - begin).as_ns())
    })?;
    let (codes, time) = done.results[0];
    Ok((f64::from(codes) / PHASES as f64, time / PHASES as f64))
}

fn reduced_code(outcome: &mut Outcome) -> Result<(), Error> {
    let (fuzzy, rbc) = (codes(4, false)?, codes(4, true)?);
    outcome.rows.extend([
        Row::predicted("scc.rbc_codes_over_fuzzy", "x", rbc.0 / fuzzy.0)
            .note("codes at a node for a phase: one, against an entry and an exit"),
        Row::predicted("scc.fuzzy_phase_ns", "ns", fuzzy.1)
            .note("a phase of four nodes by entry and exit codes, with up to 3 us of work"),
        Row::predicted("scc.rbc_phase_ns", "ns", rbc.1).note("the same by the reduced code"),
    ]);
    Ok(())
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    wires(&mut outcome)?;
    let slow = with_software(&mut outcome)?;
    by_messages(&mut outcome, slow)?;
    reduced_code(&mut outcome)?;
    let nodes = [2, 4, 8, 16, 32, 64];
    let goals = [
        ("broadcast", Goal::Broadcast),
        ("reduce", Goal::Reduce),
        ("all-reduce", Goal::AllReduce),
        ("scan", Goal::Scan),
        ("all-reduce of a double", Goal::AllReduceDouble),
    ];
    for (label, what) in goals {
        let times = over(&nodes, |nodes| collective("scc", nodes, what))?;
        let id = format!("scc.{}_8_bytes_4_nodes_ns", label.replace(['-', ' '], "_"));
        outcome.rows.push(Row::predicted(id, "ns", times[1].1));
        outcome.curves.push(curve("scc: collectives of 8 bytes", label, times));
    }
    let lan = over(&nodes, |nodes| collective("fast-ethernet-udp", nodes, Goal::AllReduce))?;
    outcome.curves.push(curve("scc: collectives of 8 bytes", "all-reduce by messages, UDP", lan));
    Ok(outcome)
}
