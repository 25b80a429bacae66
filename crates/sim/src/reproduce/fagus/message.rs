//! Fagus's messages over DIMMnet-1: `dimmnet_sendto` and `dimmnet_recvfrom`, step by step.
//!
//! | step | who | what | counted as |
//! |---|---|---|---|
//! | | sender | the number of a node becomes a rank; a header gets size and flag | internal |
//! | 1 | sender | copies header and message into its send area | internal |
//! | 2 | sender | sends both by BOTF into the receive area | BOTF |
//! | 3 | sender | announces the message by an AOTF store into the receiver's LLCM | synchronisation |
//! | 4-7 | receiver | a detection thread sees the store, and wakes the receiver; or the receiver looks itself | synchronisation |
//! | 8 | receiver | clears the announcement | synchronisation |
//! | 8 | receiver | switches the banks, where the receive area lies in the large memory | bank switch |
//! | 9 | receiver | reads the header out of the receive area, and as many bytes as it says | internal |
//! | 10 | receiver | hands the bytes over | internal |
//!
//! The C library copies 4 bytes an access. How receivers tell the sender that an area is free is
//! not described: here one more AOTF store does, which nothing counts.
//!
//! Fagus's own software is one constant, for each message of either kind: one that carries data,
//! and one that synchronises ([`sync`](super::sync)). A message of data with its announcement has
//! it twice.

use super::super::dimmnet1::{PLACE, nic, seed};
use super::lap;
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, BANK, Header, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::random::Random;
use crate::run::{Host, Options, run, sleep};
use crate::time::Ps;
use std::time::Duration;

const PAGE: u64 = 4096;
const BLOCK: u64 = 464;
/// Messages per mean.
const MESSAGES: u64 = 400;
/// Bytes of the header before a message.
const HEADER: u64 = 8;
/// Send areas, and the receive area in LLCM.
const SEND_FROM_BANK: u64 = BANK + (32 << 20);
const SEND_FROM_LLCM: u64 = PLACE + PAGE;
const RECEIVE_IN_LLCM: u64 = PLACE + 8 * PAGE;
/// Offsets in the page of words: the announcements, and the word that says that all are taken.
const ANNOUNCED: u16 = 0x100;
const TAKEN: u16 = 0x20;

/// The memory of the NIC through which messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// The SO-DIMMs. The receiver switches banks to see what came.
    Banks,
    /// The memory on the chip.
    Llcm,
}

/// How messages travel.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub bytes: u64,
    pub area: Area,
    /// Whether a detection thread looks for announcements and wakes the receiver.
    pub thread: bool,
    /// Number of messages that are taken together: with one switch of the banks.
    pub together: u64,
}

/// The times of a message's parts, and of all of them, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Costs {
    /// Fagus's own software, and the copies.
    pub internal: f64,
    pub send: f64,
    /// The receiver's part of the announcement.
    pub sync: f64,
    pub switch: f64,
    pub all: f64,
    /// From the announcement until the receiver has the message.
    pub delay: f64,
}

/// What a PE has measured: its times, and when it announced each message, or had it.
type Measured = (Costs, Vec<f64>);

/// One end of the messages.
struct End<'a> {
    how: &'a How,
    own: Duration,
    tick: Ps,
    me: u32,
}

/// Messages from node 1 to node 0: the mean times of one.
pub fn messages(machine: &Machine, how: &How) -> Result<Costs, Error> {
    let program = machine.section("program");
    let (own, tick) = (program.time("fagus_sync")?.to_duration(), program.time("scheduler_tick")?);
    let done = run(machine, 2, &Options::default(), |job| {
        let end = End { how, own, tick, me: job.pe() as u32 };
        end.set_up();
        let begin = Host::here().now();
        let (mut costs, moments) = if end.me == 1 { end.send_all() } else { end.receive_all() };
        costs.all = (Host::here().now() - begin).as_ns();
        (costs, moments)
    })?;
    let [(receiver, had), (sender, announced)] = &done.results[..] else {
        unreachable!("two PEs ran");
    };
    let each = |time: f64| time / MESSAGES as f64;
    let delays = had.iter().zip(announced).map(|(had, announced)| had - announced);
    Ok(Costs {
        internal: each(sender.internal + receiver.internal),
        send: each(sender.send),
        sync: each(receiver.sync),
        switch: each(receiver.switch),
        all: each(receiver.all),
        delay: each(delays.sum()),
    })
}

fn wait_for(at: u16, value: u64) {
    nic(command::wait(PLACE + u64::from(at), 4, u32::MAX.into(), value, Looks::Words));
}

impl End<'_> {
    fn other(&self) -> u32 {
        1 - self.me
    }

    /// Length of a message with its header, and of its place in the receive area.
    fn lengths(&self) -> (u64, u64) {
        let len = HEADER + self.how.bytes;
        (len, len.next_multiple_of(PAGE))
    }

    fn receive_area(&self) -> u64 {
        match self.how.area {
            Area::Banks => BANK,
            Area::Llcm => RECEIVE_IN_LLCM,
        }
    }

    /// Maps the page of words at the other node, and lets that node write the receive area here.
    fn set_up(&self) {
        nic(command::attach(1));
        nic(command::map(0, &seed(Destination::Node(Node(self.other())), PLACE)));
        let first = self.receive_area() / PAGE;
        for page in 0..self.how.together * self.lengths().1 / PAGE {
            nic(command::register(1, self.me, 1, page, first + page));
        }
    }

    fn send_all(&self) -> Measured {
        let (mut costs, mut moments) = (Costs::default(), Vec::new());
        for number in 1..=MESSAGES {
            let place = (number - 1) % self.how.together;
            self.send(number, place, &mut costs);
            moments.push(Host::here().now().as_ns());
            nic(command::kick(0, ANNOUNCED + 8 * place as u16, Payload::word(4, number)));
            if place + 1 == self.how.together {
                wait_for(TAKEN, number);
            }
        }
        (costs, moments)
    }

    /// `dimmnet_sendto`, up to the announcement.
    fn send(&self, number: u64, place: u64, costs: &mut Costs) {
        let mut since = Host::here().now();
        sleep(self.own);
        let size = self.how.bytes.to_le_bytes();
        let data = (0..self.how.bytes).map(|byte| (byte ^ number) as u8);
        let data: Vec<u8> = size.into_iter().chain(data).collect();
        let area = match self.how.area {
            Area::Banks => SEND_FROM_BANK,
            Area::Llcm => SEND_FROM_LLCM,
        };
        nic(command::write(area, Payload::copy(&data)));
        costs.internal += lap(&mut since);
        let (len, stride) = self.lengths();
        let mut sent = 0;
        while sent < len {
            let address = place * stride + sent;
            let part = BLOCK.min(len - sent).min(PAGE - address % PAGE);
            let to = seed(Destination::Node(Node(self.other())), address);
            let header = Header { process: self.other(), region: 1, ..to };
            let block = if sent == 0 { command::block } else { command::next_block };
            let bytes = &data[sent as usize..(sent + part) as usize];
            nic(block(&header, Payload::copy(bytes)));
            sent += part;
        }
        costs.send += lap(&mut since);
    }

    fn receive_all(&self) -> Measured {
        let (mut costs, mut moments) = (Costs::default(), Vec::new());
        let mut ticks = Random::new(1);
        for last in (self.how.together..=MESSAGES).step_by(self.how.together as usize) {
            let numbers = || last + 1 - self.how.together..=last;
            for (place, number) in (0..).zip(numbers()) {
                self.see(number, ANNOUNCED + 8 * place, &mut ticks, &mut costs);
            }
            let mut since = Host::here().now();
            if self.how.area == Area::Banks {
                nic(command::switch_banks());
                costs.switch += lap(&mut since);
            }
            for (place, number) in (0..).zip(numbers()) {
                self.take(number, place);
                costs.internal += lap(&mut since);
                moments.push(Host::here().now().as_ns());
            }
            nic(command::kick(0, TAKEN, Payload::word(4, last)));
        }
        (costs, moments)
    }

    /// Sees an announcement, by itself or woken by the detection thread, and clears it.
    fn see(&self, number: u64, at: u16, ticks: &mut Random, costs: &mut Costs) {
        wait_for(at, number);
        if self.how.thread {
            sleep(Ps(ticks.next_bits() % self.tick.0).to_duration());
        }
        let mut since = Host::here().now();
        nic(command::write(PLACE + u64::from(at), Payload::word(4, 0)));
        sleep(self.own);
        costs.sync += lap(&mut since);
    }

    /// Takes a message out of the receive area.
    fn take(&self, number: u64, place: u64) {
        let at = self.receive_area() + place * self.lengths().1;
        let len = nic(command::read(at, HEADER as u32, Looks::Halves));
        assert_eq!(len, self.how.bytes, "the header of message {number}");
        let body = command::read(at + HEADER, len as u32, Looks::Halves);
        // SAFETY: the NIC only reads its own memory.
        let got = unsafe { Host::here().command(body) };
        let got = got.expect("the message lies in the receive area");
        let right =
            got.data.with(|got| (0u64..).zip(got).all(|(byte, &got)| got == (byte ^ number) as u8));
        assert!(right, "message {number} is not what was sent");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::dimmnet1::machine;
    use super::*;

    fn costs(bytes: u64, area: Area, thread: bool, together: u64) -> Costs {
        let how = How { bytes, area, thread, together };
        messages(&machine("fagus").unwrap(), &how).unwrap()
    }

    /// Each receiver compares what it gets with what was sent. Sizes end a block, a page, and begin
    /// the next.
    #[test]
    fn messages_of_all_lengths_arrive() {
        for bytes in [1, 456, 457, 4088, 4089, 10_000] {
            for (area, together) in [(Area::Banks, 1), (Area::Banks, 16), (Area::Llcm, 1)] {
                let costs = costs(bytes, area, false, together);
                assert_eq!(costs.switch == 0.0, area == Area::Llcm, "{bytes} {area:?}");
                assert!(costs.delay > costs.sync, "{bytes} {area:?} {costs:?}");
            }
        }
    }

    #[test]
    fn one_switch_for_many_messages_costs_delay() {
        let (one, many) = (costs(1000, Area::Banks, false, 1), costs(1000, Area::Banks, false, 16));
        assert!((one.switch / many.switch - 16.0).abs() < 1e-6, "{one:?} {many:?}");
        assert!(many.all < one.all / 10.0 && many.delay > one.delay, "{one:?} {many:?}");
    }

    #[test]
    fn a_detection_thread_makes_receivers_wait_for_the_scheduler() {
        for area in [Area::Banks, Area::Llcm] {
            let later = costs(1000, area, true, 1).all - costs(1000, area, false, 1).all;
            assert!((4e6..6e6).contains(&later), "half a tick of 10 ms: {later}");
        }
    }
}
