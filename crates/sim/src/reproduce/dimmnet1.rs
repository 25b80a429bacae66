//! DIMMnet-1: the ping-pong of 4 bytes by one store into LLCM.

use super::left_out::{Figure, left_out};
use super::outcome::{Outcome, Row};
use super::published::component;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Header, Kind, Looks, LoopBack};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Done, Host, Options, run as run_on, sleep};
use memonet_core::Job;
use std::time::Duration;

/// Repetitions per mean: so many that the phases of the clocks average out.
pub const SAMPLES: u64 = 500;
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

/// The time of reading the CPU's counter, which every measured time contains once.
fn timer(machine: &Machine) -> Result<Duration, Error> {
    Ok(machine.section("program").time("timer_read")?.to_duration())
}

/// One node sends itself a number and waits for it: the mean, in ns.
pub fn loop_of_one(machine: &Machine, mode: LoopBack) -> Result<f64, Error> {
    let timer = timer(machine)?;
    let done = on(machine, 1, false, |_| {
        nic(command::map(0, &seed(Destination::Node(Node(0)), PLACE)));
        nic(command::loop_back(mode));
        let bounce = |number: u64| {
            sleep(timer);
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

/// What the node that answers a ping-pong does when its polling has seen a change.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    /// It sends back the word that the last look has read.
    WithTheLook,
    /// It reads the word again, and sends that back.
    WithAnotherRead,
}

/// The ping-pong of two nodes: the mean round trip of 4 bytes, in ns. The node that answers polls
/// until the word differs, then takes the data and sends these back: a second read.
pub fn round_trip(machine: &Machine) -> Result<f64, Error> {
    ping_pong(machine, 4, Answers::WithAnotherRead)
}

/// The mean time of a word from one program to another, in ns: half of a ping-pong without a second
/// read.
pub fn one_way(machine: &Machine, bytes: u8) -> Result<f64, Error> {
    Ok(ping_pong(machine, bytes, Answers::WithTheLook)? / 2.0)
}

/// The mean time of a ping-pong, in ns. The node that answers undoes the twist of what it has read.
fn ping_pong(machine: &Machine, bytes: u8, answers: Answers) -> Result<f64, Error> {
    let (timer, host) = (timer(machine)?, machine.section("host"));
    let straight = host.choice("data_lines", &[("straight", true), ("crossed fours", false)])?;
    let untwist = if straight { Duration::ZERO } else { host.time("twist_word")?.to_duration() };
    let done = on(machine, 2, false, |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        nic(command::map(0, &seed(Destination::Node(Node(other)), PLACE)));
        let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        let store = |number| nic(command::kick(0, 0, Payload::word(bytes.into(), number)));
        let look = |number| nic(command::wait(PLACE, bytes, mask, number, Looks::Words));
        mean(|number| {
            if me == 0 {
                sleep(timer);
                store(number);
                look(number);
                return;
            }
            look(number);
            let number = match answers {
                Answers::WithTheLook => {
                    sleep(untwist);
                    number
                }
                Answers::WithAnotherRead => nic(command::read(PLACE, bytes.into(), Looks::Words)),
            };
            store(number);
        })
    })?;
    Ok(done.results[0])
}

/// The published figures that the P3-850's constant could be fitted on, each simulated with any.
fn figures_of_p3() -> Vec<Figure<'static>> {
    let mut figures = Vec::new();
    for variant in ["A", "B", "C", "D"] {
        let id = |name: &str| format!("dimmnet-1.{name}.{variant}");
        figures.push(Figure::new(id("internal_loop"), "ns", move |software| {
            loop_of_one(&with_software(variant, software)?, LoopBack::Internal)
        }));
        figures.push(Figure::new(id("external_loop"), "ns", move |software| {
            loop_of_one(&with_software(variant, software)?, LoopBack::External)
        }));
        figures.push(Figure::new(id("round_trip"), "ns", move |software| {
            round_trip(&with_software(variant, software)?)
        }));
    }
    figures
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for variant in ENVIRONMENTS.into_iter().chain(["design"]) {
        let machine = machine(variant)?;
        let row =
            |name: &str, time| Row::predicted(format!("dimmnet-1.{name}.{variant}"), "ns", time);
        let internal = row("internal_loop", loop_of_one(&machine, LoopBack::Internal)?);
        let external = row("external_loop", loop_of_one(&machine, LoopBack::External)?);
        let both = row("round_trip", round_trip(&machine)?);
        let both = both.note("the node that answers reads the word again: see the notes");
        outcome.rows.extend(match variant {
            "A" | "C" => {
                let note = "its stages count as their rows say, not as their printed total";
                [internal.note(note), external.note(note), both]
            }
            // The time outside of SWIF was published as the difference of the two.
            "D" => {
                let note = "the authors deduced the software's time from the internal loop";
                [internal.fitted().note(note), external.fitted().note(note), both]
            }
            "design" => [internal, external, both].map(|row| {
                row.note("never measured: the 133 MHz design with the CPU and the cable of D")
            }),
            _ => [internal, external, both],
        });
    }
    let d = machine("D")?;
    let software = d.section("host").time("software")? + d.section("host").time("twist_word")?;
    let timer = d.section("program").time("timer_read")?;
    outcome.rows.push(
        Row::predicted("dimmnet-1.software_overhead_in_loop.D", "ns", (software + timer).as_ns())
            .input(component("dimmnet-1.software_overhead_in_loop.D"))
            .note("software, twist and the counter"),
    );
    outcome.rows.extend(left_out(&figures_of_p3())?);
    outcome.notes = vec![
        "The polling begins when the store is written, and a read samples LLCM in its middle. So a loop is software, the counter, and a whole number of reads: a slower \
         clock of SWIF shows only where it moves the arrival past a read, and a slower slot lengthens every read."
            .to_owned(),
        "Nothing is fitted here. The software of the P3-850 (host.software) is what its authors deduced from the internal loop of D, 214 ns with twist and counter. They took \
         half a poll for the phase; here the phase follows from the reads, and the loops of D come out 4 % short. The rows left out show what a fitted constant would give."
            .to_owned(),
        "The software of the P4-1500 is the P3-850's, in ns: by the ratio of the clocks it would be 65 ns less, by that of the times for reading the counter 60 more. What the \
         P4 computes in registers, the twist and the loop, is the P3's in cycles. Its one constant is what MMX costs it."
            .to_owned(),
        "The node that answers polls until the word differs, then takes the data and sends these back: a second read. That the measured program read twice is assumed, in \
         knowledge of the figures: with one read, round trips are 4 to 15 % short. Two nodes were measured with 26 to 288 ns more than twice an external loop, and have 10 \
         to 170 here."
            .to_owned(),
        "What this leaves: in B an arrival comes just before or after a read, and was measured with one read less. The two loops of E differ by 130 ns, which is no whole \
         read of that CPU. From 66 to 100 MHz a measured loop falls by 175 to 213 ns, whatever SWIF's clock; here it falls by 58 to 172."
            .to_owned(),
    ];
    Ok(outcome)
}

fn with_software(variant: &str, software: f64) -> Result<Machine, Error> {
    let mut machine = machine(variant)?;
    machine.set("host.software", software)?;
    Ok(machine)
}
