//! DIMMnet-1: the ping-pong of 4 bytes by one store into LLCM.

use super::left_out::{Figure, left_out};
use super::outcome::{Outcome, Row};
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Header, Kind, Looks, LoopBack};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Done, Host, Options, run as run_on};
use memonet_core::Job;

/// Repetitions per mean: so many that the phase of the looks averages out.
pub const SAMPLES: u64 = 2000;
/// The page of LLCM that the ping-pong writes to.
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

/// Gives the NIC a command of its own interface, which must succeed.
pub fn nic(command: crate::host::Command) -> u64 {
    // SAFETY: the NIC writes only to the experiment's own area.
    let answer = unsafe { Host::here().command(command) };
    answer.expect("the NIC takes the commands of its own experiments").value
}

/// A machine, by its variant.
pub fn machine(variant: &str) -> Result<Machine, Error> {
    Ok(Machine::load(&format!("dimmnet-1/{variant}"))?)
}

fn on<R>(
    machine: &Machine,
    nodes: usize,
    record: bool,
    program: impl Fn(Job) -> R,
) -> Result<Done<R>, Error> {
    let options = Options { record, ..Options::default() };
    run_on(machine, nodes, &options, program)
}

/// One node sends itself a number and waits for it: the mean, in ns.
pub fn loop_of_one(machine: &Machine, mode: LoopBack) -> Result<f64, Error> {
    let done = on(machine, 1, false, |_| {
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
pub fn round_trip(machine: &Machine, bytes: u8) -> Result<f64, Error> {
    let done = on(machine, 2, false, |job| {
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

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for variant in ENVIRONMENTS.into_iter().chain(["design"]) {
        let machine = machine(variant)?;
        let row =
            |name: &str, time| Row::predicted(format!("dimmnet-1.{name}.{variant}"), "ns", time);
        let internal = row("internal_loop", loop_of_one(&machine, LoopBack::Internal)?);
        let external = row("external_loop", loop_of_one(&machine, LoopBack::External)?);
        let both = row("round_trip", round_trip(&machine, 4)?);
        outcome.rows.extend(match variant {
            "A" => {
                let note = "its stages count as their rows say, 373 ns; with the printed total of 343 it would be 30 ns less";
                [internal.note(note), external.note(note), both]
            }
            // The time outside of SWIF was published as the difference of the two.
            "D" => [internal.fitted(), external.fitted(), both],
            "E" => [internal, external, both].map(|row| row.note("the P3-850's software constant, scaled by 1 in ns: see the notes")),
            "design" => {
                [internal, external, both].map(|row| row.note("never measured: the 133 MHz design with the CPU and the cable of D"))
            }
            _ => [internal, external, both],
        });
    }
    outcome.rows.extend(left_out(&[
        Figure::new("dimmnet-1.internal_loop.A", "ns", |software| {
            loop_of_one(&with_software("A", software)?, LoopBack::Internal)
        }),
        Figure::new("dimmnet-1.internal_loop.D", "ns", |software| {
            loop_of_one(&with_software("D", software)?, LoopBack::Internal)
        }),
        Figure::new("dimmnet-1.external_loop.A", "ns", |software| {
            loop_of_one(&with_software("A", software)?, LoopBack::External)
        }),
        Figure::new("dimmnet-1.external_loop.D", "ns", |software| {
            loop_of_one(&with_software("D", software)?, LoopBack::External)
        }),
        Figure::new("dimmnet-1.round_trip.D", "ns", |software| {
            round_trip(&with_software("D", software)?, 4)
        }),
    ])?);
    outcome.notes = vec![
        "One reading of the loop: a read samples LLCM in the middle of its access, and an arrival has a uniformly random phase against the looks, so a look costs one \
         read time on average from the arrival to its end. host.software is what is left of the internal loop of D: it contains the published deduction of 214 ns, the \
         chipset's delay of the write, and half a poll, which that deduction counts apart."
            .to_owned(),
        "The rule by which the software constant scales to another CPU: by 1, in ns. It is one for each CPU type, and of the P4-1500 nothing was published that it could be \
         fitted on. By the ratio of the clocks it would be 140 ns less in a loop of E, by the ratio of the times for reading the counter 128 ns more: see the machine file."
            .to_owned(),
    ];
    Ok(outcome)
}

fn with_software(variant: &str, software: f64) -> Result<Machine, Error> {
    let mut machine = machine(variant)?;
    machine.set("host.software", software)?;
    Ok(machine)
}
