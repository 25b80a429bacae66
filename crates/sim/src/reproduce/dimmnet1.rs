//! DIMMnet-1: the ping-pong of 4 bytes by one store into LLCM, and its stages.

use super::published::{component, published};
use super::{Outcome, Row};
use crate::error::Error;
use crate::host::Op;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Header, Kind, Looks, LoopBack};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Done, Host, Options, run as run_on};
use crate::time::Ps;
use memonet_core::Job;

/// Repetitions whose mean is taken; enough for the phase of the looks to be of no account.
pub const SAMPLES: u64 = 2000;
/// Where the ping-pong lands: a page of LLCM.
pub const PLACE: u64 = 0x8000;
/// The two-node environments that were measured.
pub const ENVIRONMENTS: [&str; 5] = ["A", "B", "C", "D", "E"];

/// A seed that writes to a page of another node's LLCM.
pub fn seed(to: Destination, page: u64) -> Header {
    Header {
        kind: Kind::Aotf,
        physical: true,
        promised: false,
        group: 1,
        len: 0,
        process: 0,
        region: 0,
        address: page,
        to,
        from: Node(0),
    }
}

/// What a program of the NIC's own interface does, and expects to succeed.
pub fn nic(command: crate::host::Command) -> u64 {
    Host::here()
        .command(command)
        .expect("the NIC takes the commands of its own experiments")
        .value
}

/// A machine, by its variant.
pub fn machine(variant: &str) -> Result<Machine, Error> {
    Ok(Machine::load(&format!("dimmnet-1/{variant}"))?)
}

fn on<R>(variant: &str, nodes: usize, record: bool, program: impl Fn(Job) -> R) -> Result<Done<R>, Error> {
    let options = Options {
        record,
        ..Options::default()
    };
    run_on(&machine(variant)?, nodes, &options, program)
}

/// One node sends itself a number and waits for it: the mean, in ns.
fn loop_of_one(variant: &str, mode: LoopBack) -> Result<f64, Error> {
    let done = on(variant, 1, false, |_| {
        nic(command::map(0, &seed(Destination::Node(Node(0)), PLACE)));
        nic(command::loop_back(mode));
        let bounce = |number: u64| {
            nic(command::kick(0, 0, Payload::word(4, number)));
            nic(command::wait(PLACE, 4, u32::MAX.into(), number, Looks::Words));
        };
        mean(bounce)
    })?;
    Ok(done.results[0])
}

/// The mean time of `once`, in ns, after a first time that fills the header TLB.
pub fn mean(once: impl Fn(u64)) -> f64 {
    let host = Host::here();
    once(1);
    let start = host.now();
    (2..SAMPLES + 2).for_each(once);
    (host.now() - start).as_ns() / SAMPLES as f64
}

/// The ping-pong of two nodes: the mean round trip, in ns.
pub fn round_trip(variant: &str, bytes: u8) -> Result<f64, Error> {
    let done = on(variant, 2, false, |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        nic(command::map(0, &seed(Destination::Node(Node(other)), PLACE)));
        let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        let store = |number| nic(command::kick(0, 0, Payload::word(bytes.into(), number)));
        let look = |number| nic(command::wait(PLACE, bytes, mask, number, Looks::Words));
        mean(|number| {
            if me == 0 {
                store(number);
                look(number);
            } else {
                look(number);
                store(number);
            }
        })
    })?;
    Ok(done.results[0])
}

/// What one store went through in the NIC, from the host's write to LLCM, in ns.
fn stages(variant: &str) -> Result<Vec<(&'static str, Ps)>, Error> {
    let done = on(variant, 1, true, |_| {
        nic(command::map(0, &seed(Destination::Node(Node(0)), PLACE)));
        for number in 1..=2 {
            nic(command::kick(0, 0, Payload::word(4, number)));
            nic(command::wait(PLACE, 4, u32::MAX.into(), number, Looks::Words));
        }
    })?;
    let last = done.recorder.stages().iter().rfind(|stage| stage.name == "llcm_write");
    let op: Op = last.expect("the second store has arrived").op;
    let of_the_nic = |(name, _): &(&'static str, Ps)| STAGES.contains(name);
    Ok(done.recorder.breakdown(op).into_iter().filter(of_the_nic).collect())
}

const STAGES: [&str; 8] = [
    "host_write",
    "transaction_queue",
    "header_tlb",
    "size_decision",
    "send_buffer_handshake",
    "swif_send",
    "swif_receive",
    "llcm_write",
];

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for variant in ENVIRONMENTS {
        let internal = Row::predicted(
            format!("dimmnet-1.internal_loop.{variant}"),
            "ns",
            loop_of_one(variant, LoopBack::Internal)?,
        );
        let external = Row::predicted(
            format!("dimmnet-1.external_loop.{variant}"),
            "ns",
            loop_of_one(variant, LoopBack::External)?,
        );
        let both = Row::predicted(format!("dimmnet-1.round_trip.{variant}"), "ns", round_trip(variant, 4)?);
        outcome.rows.extend(match variant {
            // What is outside of SWIF was published as the difference of the two.
            "D" => [internal.fitted(), external.fitted(), both],
            _ => [internal, external, both],
        });
    }
    for variant in ENVIRONMENTS.into_iter().chain(["design"]) {
        for (name, time) in stages(variant)? {
            outcome
                .rows
                .push(shown(format!("dimmnet-1.stage.{name}.{variant}"), time.as_ns(), None));
        }
        let total: Ps = stages(variant)?.into_iter().fold(Ps::ZERO, |sum, (_, time)| sum + time);
        let printed = component(&format!("dimmnet-1.stages_printed_total.{variant}"));
        let mut row = shown(format!("dimmnet-1.stages_total.{variant}"), total.as_ns(), printed);
        if matches!(variant, "A" | "C") {
            row = row.note("the printed total is 30 ns less than the sum of its own rows");
        }
        if variant == "design" {
            row = row.note("its rows of three cycles are printed as 21.5 ns; the total fits 22.5");
        }
        outcome.rows.push(row);
    }
    outcome.notes = notes(&outcome);
    Ok(outcome)
}

fn shown(id: String, simulated: f64, published: Option<f64>) -> Row {
    Row {
        role: super::Role::Input,
        published,
        ..Row::predicted(id, "ns", simulated)
    }
}

fn notes(outcome: &Outcome) -> Vec<String> {
    let simulated = |id: &str| outcome.rows.iter().find(|row| row.id == id).map(|row| row.simulated);
    let mut notes = vec![
        "One reading of the loop: a read samples LLCM in the middle of its access, and an arrival has a uniformly random phase against the looks, so a look costs one \
         read time on average from the arrival to its end. host.software is what is left of the internal loop of D: it contains the published deduction of 214 ns, the \
         chipset's delay of the write, and half a poll, which that deduction counts apart."
            .to_owned(),
        "The software constant of the P3-850 scales to the P4-1500 by 1, in ns: see the machine file. By the clock ratio it would be 140 ns less in a loop of E, by the \
         ratio of the times for reading the counter 128 ns more."
            .to_owned(),
    ];
    // The software is added once a loop, so fitting on another figure moves every loop by the same.
    let id = |variant: &str| format!("dimmnet-1.internal_loop.{variant}");
    let known = |variant: &str| Some((simulated(&id(variant))?, published(&id(variant))?));
    if let (Some((a, published_a)), Some((d, published_d))) = (known("A"), known("D")) {
        notes.push(format!(
            "Leave one out: fitted on D, the internal loop of A comes out {:+.1} % off; fitted on A, that of D {:+.1} %.",
            (a / published_a - 1.0) * 100.0,
            ((d + published_a - a) / published_d - 1.0) * 100.0
        ));
    }
    notes
}
