//! DIMMnet-2: data to three receivers, one after the other and by multicast, compared with point to
//! point. As in the measurement, a test module in the sender's FPGA sends, and times run from
//! InfiniSWIF to InfiniSWIF.

use super::area::{Area, ask};
use super::dimmnet1::nic;
use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::host::{GroupOp, HostOp, Wanted};
use crate::machine::Machine;
use crate::nic::infiniband::{test_group, test_to};
use crate::run::{Host, Options, run as run_on};
use memonet_core::{Job, MulticastOptions};

/// One sender, three receivers.
const NODES: usize = 4;
const LARGEST: u32 = 24;
/// The sizes of rows: a word, and a whole packet.
const WORD: usize = 8;
const PACKET: usize = 2048;

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

fn join(job: &Job) -> u32 {
    let join =
        GroupOp::Join { members: (0..job.npes() as u32).collect(), wanted: Wanted::Multicast };
    ask(HostOp::Group(join)).value as u32
}

/// From the sender's request to InfiniSWIF until the last receiver's InfiniSWIF has all, in ns.
fn time(bytes: usize, way: Way) -> Result<f64, Error> {
    let options = Options { record: true, ..Options::default() };
    let done = run_on(&Machine::load("dimmnet-2")?, NODES, &options, |job| {
        let area = Area::new(&job, bytes.next_multiple_of(8));
        let group = join(&job);
        job.barrier().expect("nobody dies in an experiment");
        let begin = Host::here().now();
        if job.pe() == 0 {
            let (offset, len) = (area.at(0, 0).offset, bytes as u64);
            // A unicast is complete before the next one is sent: the sender polled for that.
            let tests: Vec<_> = match way {
                Way::PointToPoint => vec![test_to(1, offset, len)],
                Way::ThreeUnicasts => (1..4).map(|node| test_to(node, offset, len)).collect(),
                Way::Multicast => vec![test_group(group, offset, len)],
            };
            for test in tests {
                nic(test);
            }
            ask(HostOp::Quiet);
        }
        (begin, Host::here().now())
    })?;
    let (begin, end) = done.results[0];
    let during = |at| (begin..end).contains(&at);
    let stages = || done.recorder.stages().iter().filter(|stage| during(stage.start));
    let asked = stages().find(|stage| stage.name == "width").map(|stage| stage.start);
    let stored = stages().filter(|stage| stage.name == "swif_receive").map(|stage| stage.end);
    let (asked, stored) = (asked.expect("a packet was sent"), stored.max().expect("and came"));
    Ok((stored - asked).as_ns())
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
    let program = |job: Job| -> memonet_core::Result<Library> {
        let window = job.window::<u64>(WORDS)?;
        let whole = window.span(0..WORDS)?;
        let mut channel = job.multicast::<u64>(0, &[1, 2, 3], MulticastOptions::new())?;
        let data = vec![1; WORDS];
        job.world().broadcast_into(0, whole, whole)?;
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
            broadcast: timed(&mut || job.world().broadcast_into(0, whole, whole))?,
        })
    };
    let times = run_on(&Machine::load(machine)?, NODES, &Options::default(), program)?.results;
    Ok(times.into_iter().next().expect("four PEs").expect("nobody dies in an experiment"))
}

/// Rows of the library's own multicast, of which nothing was published.
fn of_the_library() -> Result<Vec<Row>, Error> {
    let (published, line_rate) = (library("dimmnet-2")?, library("dimmnet-2/line-rate")?);
    let row = |name: &str, gain| Row::predicted(format!("dimmnet-2.library_{name}"), "x", gain);
    Ok(vec![
        row("multicast_gain", published.puts / published.channel)
            .note("16 MB to three readers, reliably, by the library's multicast, against its puts to one after the other, both once they are made; published for the bare NIC: 360 to 260 MB/s"),
        row("multicast_gain_at_line_rate", line_rate.puts / line_rate.channel)
            .note("the same with a switch that feeds all of its ports at once"),
        row("broadcast_gain", published.puts / published.broadcast)
            .note("the library's broadcast of 16 MB to three others, which is by multicast, against its puts to one after the other"),
        row("broadcast_gain_at_line_rate", line_rate.puts / line_rate.broadcast)
            .note("the same with a switch that feeds all of its ports at once"),
    ])
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let sizes: Vec<usize> = (3..=LARGEST).map(|bit| 1 << bit).collect();
    let mut of = Vec::new();
    for (label, way) in WAYS {
        let times: Result<Vec<f64>, Error> = sizes.iter().map(|&bytes| time(bytes, way)).collect();
        let times = times?;
        let points = sizes.iter().zip(&times);
        let rates = points.map(|(&bytes, time)| (bytes as f64, bytes as f64 * 1000.0 / time));
        outcome.curves.push(Curve {
            figure: "dimmnet-2: throughput to three receivers",
            label: label.into(),
            x: "bytes",
            y: "MB/s",
            points: rates.collect(),
        });
        of.push(times);
    }
    let best = |way: usize| {
        let rates = sizes.iter().zip(&of[way]).map(|(&bytes, time)| bytes as f64 * 1000.0 / time);
        rates.fold(0.0, f64::max)
    };
    let at = |way: usize, bytes: usize| {
        of[way][sizes.iter().position(|&size| size == bytes).expect("a size of the curve")]
    };
    // How many times slower multicast is than point to point.
    let factor: Vec<f64> = (0..sizes.len()).map(|size| of[2][size] / of[0][size]).collect();
    let steps = factor.windows(2).map(|pair| pair[1] - pair[0]);
    let steepest = steps.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
    let row = |name: &str, unit, value| Row::predicted(format!("dimmnet-2.{name}"), unit, value);
    outcome.rows = vec![
        row("point_to_point_mb_s", "MB/s", best(0)),
        row("unicast_to_three_mb_s", "MB/s", best(1)),
        row("multicast_mb_s", "MB/s", best(2))
            .note("the switch copies a packet once for each port, at the rate of a link; published: up to 360"),
        row("multicast_latency_ratio.8", "x", at(2, WORD) / at(0, WORD))
            .note("the last of three over one, from InfiniSWIF to InfiniSWIF; published for all of 8 B to 2 KiB"),
        row("multicast_latency_ratio.2048", "x", at(2, PACKET) / at(0, PACKET)),
        row("small_packet_gain", "x", at(1, WORD) / at(2, WORD))
            .note("8 bytes to three receivers by three unicasts, each complete before the next, over multicast"),
        row("large_data_factor", "x", best(0) / best(2)),
        row("time_ratio_16_mb", "x", factor[sizes.len() - 1]),
        row("falls_off_at_bytes", "B", steepest.map_or(f64::NAN, |(step, _)| sizes[step + 1] as f64))
            .note("where multicast loses most against point to point, from one power of two to the next"),
        row("latency_8_bytes_ns", "ns", at(0, WORD)).note("from InfiniSWIF to InfiniSWIF"),
        row("latency_8_bytes_to_three_ns", "ns", at(1, WORD))
            .note("the last of three, one after the other"),
        row("latency_8_bytes_multicast_ns", "ns", at(2, WORD)).note("the last of three, by multicast"),
    ];
    outcome.rows.extend(of_the_library()?);
    outcome.notes = vec![
        "DIMMnet-2: nothing is fitted. Up to 2 KiB a time is that of one packet, above that of packets of 2 KiB back to back. Whole packets are stored in both \
         InfiniSWIFs and in the switch."
            .into(),
        "What this leaves: no one price of a copy gives the three published figures. To keep the ratio of latencies, each further copy would take 85 to 170 ns for 8 bytes and \
         0.7 to 1.5 us for 2 KiB; to give 360 MB/s, 1.9 us for 2 KiB. The authors name the copying, a FIFO in InfiniSWIF and the latency that hide it, and no flow control; \
         and a packet alone waits for none."
            .into(),
    ];
    Ok(outcome)
}
