//! Fagus on DIMMnet-1: the costs of receiving a message, and `comm_sync` over stores and over UDP.

use super::dimmnet1::{PLACE, machine, nic, seed};
use super::dimmnet1_barrier;
use super::left_out::{Figure, left_out};
use super::outcome::{Outcome, Row};
use super::published::component;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, BANK, Header, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::random::Random;
use crate::run::{Host, Options, run as run_on, sleep};
use crate::time::Ps;
use memonet_core::Cmp;

const PAGE: u64 = 4096;
const BLOCK: usize = 464;
/// Messages per mean.
const MESSAGES: u64 = 400;
/// Bytes of the header before a message, and the place of both in the sender's bank.
const HEADER: usize = 8;
const SEND_AREA: u64 = BANK + (32 << 20);
/// Offsets in the page: the announcement, and the receiver's word that it has taken the message.
const ANNOUNCED: u16 = 0x10;
const TAKEN: u16 = 0x20;

/// The times of a message's parts, and of all of them, in ns.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    /// The sender's copy into its send area.
    copy: f64,
    send: f64,
    sync: f64,
    switch: f64,
    internal: f64,
    all: f64,
}

fn word(at: u16, value: u64) -> crate::host::Command {
    command::wait(PLACE + u64::from(at), 4, u32::MAX.into(), value, Looks::Words)
}

/// The time since `since`, which becomes the present.
fn lap(since: &mut Ps) -> f64 {
    let now = Host::here().now();
    let time = (now - *since).as_ns();
    *since = now;
    time
}

/// Messages from node 1 to node 0, one at a time. A detection thread, if there is one, polls and
/// wakes the receiver.
fn messages(machine: &Machine, thread: bool) -> Result<Costs, Error> {
    let program = machine.section("program");
    let (sync, tick) = (program.time("fagus_sync")?, program.time("scheduler_tick")?);
    let bytes = program.bytes("fagus_message")? as usize;
    let done = run_on(machine, 2, &Options::default(), |job| {
        let (me, other) = (job.pe() as u32, 1 - job.pe() as u32);
        nic(command::attach(1));
        nic(command::register(1, me, 1, 0, BANK / PAGE));
        nic(command::map(0, &seed(Destination::Node(Node(other)), PLACE)));
        let mut ticks = Random::new(1);
        let mut costs = Costs::default();
        let begin = Host::here().now();
        for number in 1..=MESSAGES {
            let mut since = Host::here().now();
            if me == 1 {
                let size = (bytes as u64).to_le_bytes();
                let data = (0..bytes).map(|byte| (byte as u64 ^ number) as u8);
                let data: Vec<u8> = size.into_iter().chain(data).collect();
                nic(command::write(SEND_AREA, Payload::copy(&data)));
                costs.copy += lap(&mut since);
                for (part, start) in data.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
                    let header = Header {
                        process: other,
                        region: 1,
                        ..seed(Destination::Node(Node(other)), start)
                    };
                    let send = if start == 0 { command::block } else { command::next_block };
                    nic(send(&header, Payload::copy(part)));
                }
                costs.send += lap(&mut since);
                nic(command::kick(0, ANNOUNCED, Payload::word(4, number)));
                nic(word(TAKEN, number));
            } else {
                nic(word(ANNOUNCED, number));
                since = Host::here().now();
                if thread {
                    sleep(Ps(ticks.next_bits() % tick.0).to_duration());
                    lap(&mut since);
                }
                nic(command::write(PLACE + u64::from(ANNOUNCED), Payload::word(4, 0)));
                sleep(sync.to_duration());
                costs.sync += lap(&mut since);
                nic(command::switch_banks());
                costs.switch += lap(&mut since);
                let len = nic(command::read(BANK, HEADER as u32, Looks::Halves));
                assert_eq!(len, bytes as u64, "the header of message {number}");
                let body = command::read(BANK + HEADER as u64, len as u32, Looks::Halves);
                // SAFETY: the NIC only reads its own memory.
                let got = unsafe { Host::here().command(body) };
                let got = got.expect("the message lies in the bank");
                let right = got.data.with(|got| {
                    got.iter().enumerate().all(|(byte, &got)| got == (byte as u64 ^ number) as u8)
                });
                assert!(right, "message {number} is not what was sent");
                costs.internal += lap(&mut since);
                nic(command::kick(0, TAKEN, Payload::word(4, number)));
            }
        }
        costs.all = (Host::here().now() - begin).as_ns();
        costs
    })?;
    let (receiver, sender) = (done.results[0], done.results[1]);
    let each = |time: f64| time / MESSAGES as f64;
    Ok(Costs {
        copy: each(sender.copy),
        send: each(sender.send),
        sync: each(receiver.sync),
        switch: each(receiver.switch),
        internal: each(receiver.internal),
        all: each(receiver.all),
    })
}

/// Time from a node's announcement until the other node sees it, in ns: half of a round trip.
fn announcement(machine: &Machine) -> Result<f64, Error> {
    Ok(super::dimmnet1::round_trip(machine, 4)? / 2.0)
}

/// The time of `comm_sync` of parent and child over any network, in us: the child announces its
/// arrival, and the parent lets it go on.
fn comm_sync(machine: &Machine, software: Ps) -> Result<f64, Error> {
    let software = software.to_duration();
    let times = 200;
    let done = run_on(machine, 2, &Options::default(), |job| {
        let words = job.window::<u64>(1).expect("a word each");
        let other = words.remote(1 - job.pe(), 0).expect("the other's word");
        job.barrier().expect("both are there");
        let mut start = Host::here().now();
        for phase in 1..=times {
            if phase == 2 {
                start = Host::here().now();
            }
            let wait = || words.wait_until(0, Cmp::Ge, phase).expect("the other comes");
            if job.pe() == 0 {
                wait();
                sleep(software);
                other.store(phase);
            } else {
                sleep(software);
                other.store(phase);
                wait();
            }
        }
        (Host::here().now() - start).as_ns()
    })?;
    Ok(done.results[1] / (times - 1) as f64 / 1000.0)
}

fn with_sync(software: f64) -> Result<Machine, Error> {
    let mut fagus = machine("fagus")?;
    fagus.set("program.fagus_sync", software)?;
    Ok(fagus)
}

/// The time of a global synchronisation of two nodes, in us, by each way.
struct Syncs {
    library: f64,
    stores: f64,
    fast: f64,
    gigabit: f64,
}

impl Syncs {
    fn rows(&self) -> Vec<Row> {
        let Syncs { library, stores, fast, gigabit } = *self;
        let row = |name: &str, unit, value| Row::predicted(format!("fagus.{name}"), unit, value);
        let fitted = "the library's barrier is fitted, so this is comm_sync once more";
        vec![
            row("library_barrier_us", "us", library).fitted(),
            row("comm_sync_aotf_us", "us", stores),
            row("comm_sync_udp_fast_ethernet_us", "us", fast),
            row("comm_sync_udp_gigabit_ethernet_us", "us", gigabit),
            row("comm_sync_ratio.aotf", "x", stores / library).note(fitted),
            row("comm_sync_ratio.udp_fast_ethernet", "x", fast / library).note(fitted),
            row("comm_sync_ratio.udp_gigabit_ethernet", "x", gigabit / library).note(fitted),
            row("comm_sync_gain.over_fast_ethernet", "x", fast / stores),
            row("comm_sync_gain.over_gigabit_ethernet", "x", gigabit / stores),
        ]
    }
}

fn sync_software(machine: &Machine) -> Result<Ps, Error> {
    Ok(machine.section("program").time("fagus_sync")?)
}

pub fn run() -> Result<Outcome, Error> {
    let fagus = machine("fagus")?;
    let sync = sync_software(&fagus)?;
    let program_bytes = fagus.section("program").bytes("fagus_message")?;
    let (without, with) = (messages(&fagus, false)?, messages(&fagus, true)?);
    let announcement_share = |machine: &Machine, costs: Costs| -> Result<f64, Error> {
        Ok((costs.sync + announcement(machine)?) / costs.all)
    };
    let share = |name: &str, part: f64| {
        Row::predicted(format!("fagus.share_{name}"), "share", part / without.all)
    };
    let on = |name: &str| -> Result<f64, Error> { comm_sync(&Machine::load(name)?, sync) };
    let syncs = Syncs {
        library: dimmnet1_barrier::tree(&fagus, 2, Looks::Words, false)? / 1000.0,
        stores: comm_sync(&fagus, sync)?,
        fast: on("fast-ethernet-udp")?,
        gigabit: on("gigabit-ethernet-udp")?,
    };
    let ticks = "the driver's switch is taken to be a sleep of two ticks of 10 ms, in knowledge of this figure";
    let rate = |costs: Costs| 8e3 * program_bytes as f64 / costs.all;
    let mut rows = vec![
        Row::predicted("fagus.message_bytes", "B", program_bytes as f64)
            .input(component("fagus.components.message_bytes"))
            .contradiction("the text says messages of 10,000 bytes; times and rates fit 1,000"),
        Row::predicted("fagus.message_ms_with_detection_thread", "ms", with.all / 1e6),
        Row::predicted("fagus.message_ms_without", "ms", without.all / 1e6).fitted().note(ticks),
        Row::predicted("fagus.throughput_mbit_s.with_detection_thread", "Mbit/s", rate(with)),
        Row::predicted("fagus.throughput_mbit_s.without", "Mbit/s", rate(without))
            .fitted()
            .note("follows from the whole message"),
        share("bank_switch", without.switch).fitted().note("follows from the whole message"),
        share("internal", without.copy + without.internal).note(
            "here the sender's copy into its send area and the receiver's out of the bank, 4 bytes an access. What else Fagus does is not described, and no constant is \
             left that could be fitted on it",
        ),
        share("botf", without.send),
        Row::predicted("fagus.share_sync_aotf", "share", announcement_share(&fagus, without)?).fitted(),
    ];
    rows.extend(syncs.rows());
    rows.extend(left_out(&[
        Figure::new("fagus.share_sync_aotf", "share", |software| {
            let machine = with_sync(software)?;
            announcement_share(&machine, messages(&machine, false)?)
        }),
        Figure::new("fagus.comm_sync_aotf_us", "us", |software| {
            let machine = with_sync(software)?;
            comm_sync(&machine, sync_software(&machine)?)
        }),
    ])?);
    let notes = vec![
        "Shares are of a message received without detection thread.".into(),
        "Two constants are fitted here: for the CPU type (P3-1266, of which nothing else was published) the software of the NIC's library, on its barrier; for the machine \
         Fagus's own software for a synchronising message, on its share. comm_sync over stores and over UDP, and the message with a detection thread, are predicted."
            .into(),
        "The P3-850's software constant does not hold for the P3-1266 here: that one is of bare loops, this one of a library."
            .into(),
    ];
    Ok(Outcome { rows, notes, ..Outcome::default() })
}
