//! Fagus on DIMMnet-1: what receiving a message costs and where, and `comm_sync` over stores and over UDP.

use super::dimmnet1::{PLACE, machine, nic, seed};
use super::{Outcome, Row, dimmnet1_barrier};
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
/// Messages of a measurement; their mean is taken.
const MESSAGES: u64 = 400;
/// In the page: where the announcement lies, and the receiver's word that it has taken the message.
const ANNOUNCED: u16 = 0x10;
const TAKEN: u16 = 0x20;

/// Where the time of a message went, in ns: what each part takes, and all of it.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    send: f64,
    sync: f64,
    switch: f64,
    internal: f64,
    all: f64,
}

fn word(at: u16, value: u64) -> crate::host::Command {
    command::wait(PLACE + u64::from(at), 4, u32::MAX.into(), value, Looks::Words)
}

/// Time since `since`, which becomes now.
fn lap(since: &mut Ps) -> f64 {
    let now = Host::here().now();
    let time = (now - *since).as_ns();
    *since = now;
    time
}

/// Messages from node 1 to node 0, one at a time. With a detection thread, that one polls and wakes the receiver.
fn messages(thread: bool) -> Result<Costs, Error> {
    let machine = machine("fagus")?;
    let program = machine.section("program");
    let (sync, tick) = (program.time("fagus_sync")?, program.time("scheduler_tick")?);
    let bytes = program.bytes("fagus_message")? as usize;
    let done = run_on(&machine, 2, &Options::default(), |job| {
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
                let data: Vec<u8> = (0..bytes).map(|byte| (byte as u64 ^ number) as u8).collect();
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
                let got = Host::here()
                    .command(command::read(BANK, bytes as u32, Looks::Halves))
                    .expect("the message lies in the bank");
                let right = got
                    .data
                    .with(|got| got.iter().enumerate().all(|(byte, &got)| got == (byte as u64 ^ number) as u8));
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
        send: each(sender.send),
        sync: each(receiver.sync),
        switch: each(receiver.switch),
        internal: each(receiver.internal),
        all: each(receiver.all),
    })
}

/// An announcement from one node until the other has seen it, in ns: half of a round trip.
fn announcement() -> Result<f64, Error> {
    Ok(super::dimmnet1::round_trip("fagus", 4)? / 2.0)
}

/// `comm_sync` of parent and child over any network: the child says that it has come, the parent that it may go on. In us.
fn comm_sync(machine: &Machine) -> Result<f64, Error> {
    let software = self::machine("fagus")?.section("program").time("fagus_sync")?.to_duration();
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

pub fn run() -> Result<Outcome, Error> {
    let (without, with) = (messages(false)?, messages(true)?);
    let announcement = announcement()?;
    let share = |name: &str, part: f64| Row::predicted(format!("fagus.share_{name}"), "share", part / without.all);
    let on = |name: &str| -> Result<f64, Error> { comm_sync(&Machine::load(name)?) };
    let rows = vec![
        Row::predicted("fagus.message_ms_with_detection_thread", "ms", with.all / 1e6),
        Row::predicted("fagus.message_ms_without", "ms", without.all / 1e6).fitted(),
        share("bank_switch", without.switch)
            .fitted()
            .note("follows from the fit on the whole message"),
        share("internal", without.internal)
            .note("here only the reading of the message from the bank; what else Fagus does is not published"),
        share("botf", without.send),
        share("sync_aotf", without.sync + announcement).fitted(),
        Row::predicted(
            "fagus.library_barrier_us",
            "us",
            dimmnet1_barrier::tree("fagus", 2, Looks::Words, false)? / 1000.0,
        )
        .fitted(),
        Row::predicted("fagus.comm_sync_aotf_us", "us", comm_sync(&machine("fagus")?)?),
        Row::predicted("fagus.comm_sync_udp_fast_ethernet_us", "us", on("fast-ethernet-udp")?),
        Row::predicted("fagus.comm_sync_udp_gigabit_ethernet_us", "us", on("gigabit-ethernet-udp")?),
    ];
    let notes = vec![
        "Shares are of a message received without detection thread.".into(),
        "Three constants are fitted here: the software of the NIC's library on the P3-1266 (a CPU that nothing else was published for), the switch of banks, \
         and Fagus's own software for a synchronising message. comm_sync over stores and over UDP, and the message with a detection thread, are predicted."
            .into(),
    ];
    Ok(Outcome {
        rows,
        notes,
        ..Outcome::default()
    })
}
