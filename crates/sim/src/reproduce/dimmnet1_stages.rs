//! DIMMnet-1: the stages of one way of the ping-pong of 4 bytes by one store.

use super::dimmnet1::{ENVIRONMENTS, PLACE, machine, nic, one_way, seed};
use super::outcome::{Outcome, Row};
use super::published::{component, component_of};
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Options, run as run_on};
use crate::time::Ps;

/// The stages whose times were published: the host's write, and those in the NIC.
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

/// The published table's column of an environment.
fn column(variant: &str) -> usize {
    match variant {
        "A" => 0,
        "B" => 1,
        "C" => 2,
        "design" => 4,
        _ => 3,
    }
}

/// The stages of one store, from the host's write to LLCM.
fn stages(machine: &Machine) -> Result<Vec<(&'static str, Ps)>, Error> {
    let options = Options { record: true, ..Options::default() };
    let done = run_on(machine, 1, &options, |_| {
        nic(command::map(0, &seed(Destination::Node(Node(0)), PLACE)));
        // The first store fills the header TLB.
        for number in 1..=2 {
            nic(command::kick(0, 0, Payload::word(4, number)));
            nic(command::wait(PLACE, 4, u32::MAX.into(), number, Looks::Words));
        }
    })?;
    let last = done.recorder.stages().iter().rfind(|stage| stage.name == "llcm_write");
    let op = last.expect("the second store has arrived").op;
    let of_the_nic = |(name, _): &(&'static str, Ps)| STAGES.contains(name);
    Ok(done.recorder.breakdown(op).into_iter().filter(of_the_nic).collect())
}

/// The time of these stages together, in ns.
fn together(stages: &[(&'static str, Ps)], which: &[&str]) -> f64 {
    let counted = stages.iter().filter(|(name, _)| which.contains(name));
    counted.map(|(_, time)| time.as_ns()).sum()
}

/// The CPU's write and all stages of the 133 MHz design, in ns: hardware alone.
pub fn hardware_alone(machine: &Machine) -> Result<f64, Error> {
    let write = machine.section("host").time("write")?;
    Ok(write.as_ns() + together(&stages(machine)?, &STAGES))
}

/// The least that the controller takes, of the 133 MHz design.
fn minimum() -> Result<Vec<Row>, Error> {
    let design = machine("design")?;
    let mut one_clock = design.clone();
    one_clock.set("clock.swif", design.section("clock").megahertz("dimm")?)?;
    let (way_out, way_in) = (&STAGES[..6], &STAGES[6..]);
    let row = |name: &str, time| Row::predicted(format!("dimmnet-1.minimum.{name}"), "ns", time);
    Ok(vec![
        row("send", together(&stages(&one_clock)?, way_out))
            .note("14 cycles, if all of them had 133 MHz"),
        row("send_simulated", together(&stages(&design)?, way_out))
            .note("14 cycles, of which SWIF's four have 100 MHz"),
        row("receive", together(&stages(&design)?, way_in))
            .note("the stages of the way in: 7 cycles of SWIF and one of the slot; published is more than the rows of its own stage table, 77.5 ns"),
    ])
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for variant in ENVIRONMENTS.into_iter().chain(["design"]) {
        let machine = machine(variant)?;
        let shown = |name: &str, time: f64, published| {
            Row::predicted(format!("dimmnet-1.stage.{name}.{variant}"), "ns", time).input(published)
        };
        let host = machine.section("host");
        let (software, write) = (host.time("software")?, host.time("write")?);
        let chipset = host.time("chipset")?;
        let outside = machine.section("link").time("delay")?;
        outcome.rows.push(shown("software", software.as_ns(), None));
        outcome.rows.push(shown("cpu_write", write.as_ns(), None));
        outcome.rows.push(shown("chipset", chipset.as_ns(), None));
        let mut total = Ps::ZERO;
        for (name, time) in stages(&machine)? {
            total += time;
            let published = component_of(&format!("dimmnet-1.stages.{name}"), column(variant));
            let row = shown(name, time.as_ns(), published);
            outcome.rows.push(match published {
                Some(published) if published != time.as_ns() => {
                    row.contradiction("printed as 21.5 ns, but three cycles of 133 MHz, and the printed total, are 22.5")
                }
                _ => row,
            });
        }
        let outside_published = component(&format!("dimmnet-1.outside_swif.{variant}"));
        outcome.rows.push(shown("outside_swif", outside.as_ns(), outside_published));
        let one_way = one_way(&machine, 4)?;
        let known = (software + write + chipset + total + outside).as_ns();
        outcome.rows.push(shown("rest", one_way - known, None));
        outcome.rows.push(
            Row::predicted(format!("dimmnet-1.stage.one_way.{variant}"), "ns", one_way).note(
                "all of the above: half of a round trip, without the second read of the one that answers",
            ),
        );
        let id = format!("dimmnet-1.stages_printed_total.{variant}");
        let row = Row::predicted(id.clone(), "ns", total.as_ns()).input(component(&id));
        outcome.rows.push(match variant {
            "A" | "C" => row.contradiction("the printed total is 30 ns less than the sum of its own rows, which is what the machine takes"),
            _ => row.note("host_write to llcm_write"),
        });
    }
    outcome.rows.extend(minimum()?);
    outcome.notes = vec![
        "Published are the stages from host_write to llcm_write, and their total, and what is outside of SWIF. The rest is the mean of many: the twist, the counter, the \
         edges of clocks, and from the arrival in LLCM to the end of the read that sees it."
            .into(),
    ];
    Ok(outcome)
}
