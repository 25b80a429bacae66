//! DIMMnet-2: data to three receivers, one after the other and by multicast, compared with point to
//! point.

use super::area::{Area, ask};
use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::host::{GroupOp, HostOp, Wanted};
use crate::machine::Machine;
use crate::packet::Payload;
use crate::run::{Host, Options, run as run_on};
use memonet_core::{Job, MulticastOptions};

/// One sender, three receivers.
const NODES: usize = 4;
const LARGEST: u32 = 24;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    PointToPoint,
    ThreeUnicasts,
    Multicast,
}

const WAYS: [(&str, Way); 3] = [
    ("point to point", Way::PointToPoint),
    ("three unicasts", Way::ThreeUnicasts),
    ("multicast", Way::Multicast),
];

fn on_four<R>(program: impl Fn(Job) -> R) -> Result<Vec<R>, Error> {
    on_four_of("dimmnet-2", program)
}

fn on_four_of<R>(machine: &str, program: impl Fn(Job) -> R) -> Result<Vec<R>, Error> {
    Ok(run_on(&Machine::load(machine)?, NODES, &Options::default(), program)?.results)
}

fn join(job: &Job) -> u32 {
    let join =
        GroupOp::Join { members: (0..job.npes() as u32).collect(), wanted: Wanted::Multicast };
    ask(HostOp::Group(join)).value as u32
}

/// Sends data once. A call returns when the NIC has read them.
fn send(area: &Area, way: Way, group: u32, data: &Payload) {
    let receivers = match way {
        Way::PointToPoint => 1..2,
        Way::ThreeUnicasts => 1..4,
        Way::Multicast => {
            ask(HostOp::Group(GroupOp::Multicast { group, to: area.at(0, 0), data: data.clone() }));
            return;
        }
    };
    for receiver in receivers {
        ask(HostOp::Put {
            to: area.at(receiver, 0),
            data: data.clone(),
            signal: None,
            reuse: true,
        });
    }
}

/// MB/s at each receiver, of messages one after the other, until the last has arrived.
fn throughput(bytes: usize, way: Way) -> Result<f64, Error> {
    let messages = if bytes > 1 << 16 { 4 } else { 200 };
    let times = on_four(|job| {
        let area = Area::new(&job, bytes.next_multiple_of(8));
        let group = join(&job);
        let data = Payload::copy(&vec![1; bytes]);
        job.barrier().expect("nobody dies in an experiment");
        let begin = Host::here().now();
        if job.pe() == 0 {
            (0..messages).for_each(|_| send(&area, way, group, &data));
            ask(HostOp::Quiet);
        }
        let time = (Host::here().now() - begin).as_ns();
        job.barrier().expect("nobody dies in an experiment");
        time
    })?;
    Ok((messages * bytes) as f64 * 1000.0 / times[0])
}

/// From the call until the last receiver has seen a word of 8 bytes, in ns.
fn latency(way: Way) -> Result<f64, Error> {
    const ROUNDS: u64 = 50;
    let moments = on_four(|job| {
        let area = Area::new(&job, 8);
        let group = join(&job);
        let mut moments = Vec::new();
        for round in 1..=ROUNDS {
            job.barrier().expect("nobody dies in an experiment");
            let receives = if way == Way::PointToPoint { 1..2 } else { 1..4 }.contains(&job.pe());
            moments.push(Host::here().now());
            if job.pe() == 0 {
                send(&area, way, group, &Payload::word(8, round));
            } else if receives {
                area.wait_and_clear(0, round);
                moments.pop();
                moments.push(Host::here().now());
            }
        }
        moments
    })?;
    let last = |round: usize| {
        moments[1..].iter().map(|moments| moments[round]).max().expect("three receivers")
    };
    let sum: f64 =
        (0..ROUNDS as usize).map(|round| last(round).since(moments[0][round]).as_ns()).sum();
    Ok(sum / ROUNDS as f64)
}

/// Times of 16 MB to three other PEs, in ns. Windows, channel and the broadcast's group are made
/// before.
struct Library {
    /// By puts, to one PE after the other.
    puts: f64,
    /// By a channel: each reader gets all data in order.
    channel: f64,
    broadcast: f64,
}

fn library(machine: &str) -> Result<Library, Error> {
    const WORDS: usize = 16_000_000 / 8;
    let times = on_four_of(machine, |job| -> memonet_core::Result<Library> {
        let window = job.window::<u64>(WORDS)?;
        let whole = window.span(0..WORDS)?;
        let mut channel = job.multicast::<u64>(0, &[1, 2, 3], MulticastOptions::new())?;
        let data = vec![1; WORDS];
        job.world().broadcast(0, whole, whole)?;
        let timed =
            |way: &mut dyn FnMut() -> memonet_core::Result<()>| -> memonet_core::Result<f64> {
                job.barrier()?;
                let begin = Host::here().now();
                way()?;
                job.barrier()?;
                Ok((Host::here().now() - begin).as_ns())
            };
        Ok(Library {
            puts: timed(&mut || {
                if job.pe() == 0 {
                    (1..NODES).try_for_each(|reader| window.put(reader, 0, &data))?;
                }
                job.quiet()
            })?,
            channel: timed(&mut || match job.pe() {
                0 => channel.publish(&data),
                _ => channel.recv(&mut Vec::new()),
            })?,
            broadcast: timed(&mut || job.world().broadcast(0, whole, whole))?,
        })
    })?;
    Ok(times.into_iter().next().expect("four PEs").expect("nobody dies in an experiment"))
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let sizes: Vec<usize> = (3..=LARGEST).map(|bit| 1 << bit).collect();
    let mut of = Vec::new();
    for (label, way) in WAYS {
        let rates: Result<Vec<f64>, Error> =
            sizes.iter().map(|&bytes| throughput(bytes, way)).collect();
        let rates = rates?;
        outcome.curves.push(Curve {
            figure: "dimmnet-2: throughput to three receivers",
            label: label.into(),
            x: "bytes",
            y: "MB/s",
            points: sizes.iter().map(|&bytes| bytes as f64).zip(rates.iter().copied()).collect(),
        });
        of.push(rates);
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let falls = (0..sizes.len()).find(|&size| of[2][size] < 0.9 * of[0][size]);
    let (published, line_rate) = (library("dimmnet-2")?, library("dimmnet-2/line-rate")?);
    outcome.rows = vec![
        Row::predicted("dimmnet-2.point_to_point_mb_s", "MB/s", best(&of[0])),
        Row::predicted("dimmnet-2.unicast_to_three_mb_s", "MB/s", best(&of[1])),
        Row::predicted("dimmnet-2.multicast_sustained_mb_s", "MB/s", of[2][sizes.len() - 1])
            .note("the switch copies a packet once for each port, at the rate of a link"),
        Row::predicted(
            "dimmnet-2.multicast_falls_off_at_bytes",
            "B",
            falls.map_or(f64::NAN, |size| sizes[size] as f64),
        )
        .fitted()
        .note("the first power of two at which it is a tenth below point to point; published: from 4 KB on"),
        Row::predicted("dimmnet-2.latency_8_bytes_ns", "ns", latency(Way::PointToPoint)?)
            .note("from the call to the receiver's having seen it"),
        Row::predicted("dimmnet-2.latency_8_bytes_to_three_ns", "ns", latency(Way::ThreeUnicasts)?)
            .note("the last of three, one after the other"),
        Row::predicted("dimmnet-2.latency_8_bytes_multicast_ns", "ns", latency(Way::Multicast)?).note("the last of three, by multicast"),
        Row::predicted("dimmnet-2.library_multicast_gain", "x", published.puts / published.channel)
            .note("16 MB to three readers, reliably, by the library's multicast, against its puts to one after the other, both once they are made; published for the bare NIC: 360 to 260 MB/s"),
        Row::predicted("dimmnet-2.library_multicast_gain_at_line_rate", "x", line_rate.puts / line_rate.channel)
            .note("the same with a switch that feeds all of its ports at once"),
        Row::predicted("dimmnet-2.library_broadcast_gain", "x", published.puts / published.broadcast)
            .note("the library's broadcast of 16 MB to three others, which is by multicast, against its puts to one after the other"),
        Row::predicted("dimmnet-2.library_broadcast_gain_at_line_rate", "x", line_rate.puts / line_rate.broadcast)
            .note("the same with a switch that feeds all of its ports at once"),
    ];
    outcome.notes = vec![
        "DIMMnet-2: the software's time for a message was not published; it is the one that makes the switch's copying of a packet hide behind the sending of \
         the next message, up to messages of one packet, as was reported."
            .into(),
    ];
    Ok(outcome)
}
