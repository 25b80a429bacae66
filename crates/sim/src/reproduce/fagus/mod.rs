//! Fagus on DIMMnet-1: messages through the NIC's memories, and `comm_sync` over stores and over
//! UDP.

mod message;
mod sync;

use super::dimmnet1::machine;
use super::dimmnet1_barrier;
use super::left_out::{Figure, left_out};
use super::outcome::{Outcome, Row};
use super::published::component;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::Looks;
use crate::run::Host;
use crate::time::Ps;
use message::{Area, Costs, How, messages};

/// Messages that are taken with one switch of the banks, where several are.
const TOGETHER: u64 = 16;

/// The time since `since`, which becomes the present, in ns.
fn lap(since: &mut Ps) -> f64 {
    let now = Host::here().now();
    let time = (now - *since).as_ns();
    *since = now;
    time
}

/// The machine's constant for Fagus's own software for a message.
fn own_software(machine: &Machine) -> Result<Ps, Error> {
    Ok(machine.section("program").time("fagus_sync")?)
}

fn with_software(us: f64) -> Result<Machine, Error> {
    let mut fagus = machine("fagus")?;
    fagus.set("program.fagus_sync", us)?;
    Ok(fagus)
}

/// Messages as they were measured: through the banks, one for a switch, without detection thread.
fn measured(machine: &Machine) -> Result<How, Error> {
    let bytes = machine.section("program").bytes("fagus_message")?;
    Ok(How { bytes, area: Area::Banks, thread: false, together: 1 })
}

/// The share of synchronisation and AOTF: the receiver's part, and the announcement's way until it
/// is seen, which is half of a round trip.
fn share_of_sync(machine: &Machine, costs: &Costs) -> Result<f64, Error> {
    Ok((costs.sync + super::dimmnet1::one_way(machine, 4)?) / costs.all)
}

/// Published experiments with messages.
fn message_rows(fagus: &Machine) -> Result<Vec<Row>, Error> {
    let how = measured(fagus)?;
    let (without, with) = (messages(fagus, &how)?, messages(fagus, &How { thread: true, ..how })?);
    let row = |name: &str, unit, value| Row::predicted(format!("fagus.{name}"), unit, value);
    let share = |name: &str, part: f64| row(name, "share", part / without.all);
    let rate = |costs: Costs| 8e3 * how.bytes as f64 / costs.all;
    let ticks = "the driver's switch is taken to be a sleep of two ticks of 10 ms, in knowledge of this figure";
    let whole = "follows from the whole message";
    Ok(vec![
        row("message_bytes", "B", how.bytes as f64)
            .input(component("fagus.components.message_bytes"))
            .contradiction("the text says messages of 10,000 bytes; times and rates fit 1,000"),
        row("message_ms_with_detection_thread", "ms", with.all / 1e6),
        row("message_ms_without", "ms", without.all / 1e6).fitted().note(ticks),
        row("throughput_mbit_s.with_detection_thread", "Mbit/s", rate(with)),
        row("throughput_mbit_s.without", "Mbit/s", rate(without)).fitted().note(whole),
        share("share_bank_switch", without.switch).fitted().note(whole),
        share("share_internal", without.internal).note(
            "the sender's copy into its send area, the receiver's out of the bank, 4 bytes an access, and Fagus's own software for a message, which was fitted on a \
             message that synchronises",
        ),
        share("share_botf", without.send),
        row("share_sync_aotf", "share", share_of_sync(fagus, &without)?).fitted(),
    ])
}

/// The same with messages as long as the text says, which the published shares contradict.
fn rows_of_the_text(fagus: &Machine) -> Result<Vec<Row>, Error> {
    let bytes = fagus.section("program").bytes("fagus_message_in_the_text")?;
    let costs = messages(fagus, &How { bytes, ..measured(fagus)? })?;
    let row =
        |name: &str, unit, value| Row::predicted(format!("fagus.{name}.{bytes}"), unit, value);
    let share = |name: &str, part: f64| row(name, "share", part / costs.all);
    Ok(vec![
        row("message_ms_without", "ms", costs.all / 1e6)
            .note("if messages had the length that the text gives: the shares of internal work and BOTF would be eight and nine times the published ones"),
        row("throughput_mbit_s.without", "Mbit/s", 8e3 * bytes as f64 / costs.all),
        share("share_bank_switch", costs.switch),
        share("share_internal", costs.internal),
        share("share_botf", costs.send),
    ])
}

/// What the authors name as next: several messages for a switch, and messages through LLCM.
fn rows_of_what_is_next(fagus: &Machine) -> Result<Vec<Row>, Error> {
    let how = measured(fagus)?;
    let text = fagus.section("program").bytes("fagus_message_in_the_text")?;
    let row = |name: String, unit, value| Row::predicted(format!("fagus.{name}"), unit, value);
    let several = messages(fagus, &How { together: TOGETHER, ..how })?;
    let llcm = |bytes, thread| {
        messages(fagus, &How { bytes, thread, area: Area::Llcm, ..how })
            .map(|costs| costs.all / 1e3)
    };
    Ok(vec![
        row(format!("message_ms_{TOGETHER}_a_switch"), "ms", several.all / 1e6)
            .note("never measured: the authors expect less of a message's time, and a delay"),
        row(format!("message_delay_ms_{TOGETHER}_a_switch"), "ms", several.delay / 1e6)
            .note("from the announcement until the receiver has the message, in the mean"),
        row(format!("message_us_by_llcm.{}", how.bytes), "us", llcm(how.bytes, false)?)
            .note("never measured: the authors' conclusion; without detection thread"),
        row(format!("message_us_by_llcm.{text}"), "us", llcm(text, false)?),
        row("message_us_by_llcm_with_detection_thread".into(), "us", llcm(how.bytes, true)?),
    ])
}

/// A global synchronisation of two nodes, by each way.
fn sync_rows(fagus: &Machine) -> Result<Vec<Row>, Error> {
    let own = own_software(fagus)?;
    let hand_over = fagus.section("program").time("thread_hand_over")?;
    let on = |name: &str| sync::over_udp(&Machine::load(name)?, own, hand_over);
    let library = dimmnet1_barrier::tree(fagus, 2, Looks::Words, false)? / 1000.0;
    let stores = sync::over_stores(fagus, own)?;
    let (fast, gigabit) = (on("fast-ethernet-udp")?, on("gigabit-ethernet-udp")?);
    let row = |name: &str, unit, value| Row::predicted(format!("fagus.{name}"), unit, value);
    let fitted = "the library's barrier is fitted, so this is comm_sync once more";
    Ok(vec![
        row("library_barrier_us", "us", library).fitted(),
        row("comm_sync_aotf_us", "us", stores),
        row("comm_sync_udp_fast_ethernet_us", "us", fast),
        row("comm_sync_udp_gigabit_ethernet_us", "us", gigabit),
        row("comm_sync_ratio.aotf", "x", stores / library).note(fitted),
        row("comm_sync_ratio.udp_fast_ethernet", "x", fast / library).note(fitted),
        row("comm_sync_ratio.udp_gigabit_ethernet", "x", gigabit / library).note(fitted),
        row("comm_sync_gain.over_fast_ethernet", "x", fast / stores),
        row("comm_sync_gain.over_gigabit_ethernet", "x", gigabit / stores),
    ])
}

/// The published figures that Fagus's own software could be fitted on, each simulated with any.
fn figures_of_own_software() -> [Figure<'static>; 3] {
    [
        Figure::new("fagus.share_sync_aotf", "share", |software| {
            let machine = with_software(software)?;
            share_of_sync(&machine, &messages(&machine, &measured(&machine)?)?)
        }),
        Figure::new("fagus.share_internal", "share", |software| {
            let machine = with_software(software)?;
            let costs = messages(&machine, &measured(&machine)?)?;
            Ok(costs.internal / costs.all)
        }),
        Figure::new("fagus.comm_sync_aotf_us", "us", |software| {
            let machine = with_software(software)?;
            sync::over_stores(&machine, own_software(&machine)?)
        }),
    ]
}

pub fn run() -> Result<Outcome, Error> {
    let fagus = machine("fagus")?;
    let mut rows = message_rows(&fagus)?;
    rows.extend(rows_of_the_text(&fagus)?);
    rows.extend(rows_of_what_is_next(&fagus)?);
    rows.extend(sync_rows(&fagus)?);
    rows.extend(left_out(&figures_of_own_software())?);
    let notes = vec![
        "Shares are of a message received without detection thread.".into(),
        "Two constants are fitted here: for the CPU type (P3-1266, of which nothing else was published) the software of the NIC's library, on its barrier; for the machine \
         Fagus's own software for a message, on the share of synchronisation. The internal share, comm_sync over stores and over UDP, and the message with a detection \
         thread, are predicted."
            .into(),
        "That a message of data has Fagus's own software as a synchronising message has it was assumed when the internal share was known to be 0.06 % too small without it; \
         the constant was not changed."
            .into(),
        "Over UDP each message passes from the thread that receives to the one that waits. What that takes is assumed from what signals and changes of threads took then."
            .into(),
        "The P3-850's software constant does not hold for the P3-1266 here: that one is of bare loops, this one of a library."
            .into(),
    ];
    Ok(Outcome { rows, notes, ..Outcome::default() })
}
