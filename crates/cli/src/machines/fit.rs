//! `memonet machines fit`: makes a machine file of kind LogGP from what `memonet bench` measures
//! with two PEs of this machine.
//!
//! | measured | becomes |
//! |---|---|
//! | stores, one after the other | o and g: the time of one |
//! | round trip of a word | L: half of it, less the overheads that the model adds |
//! | bandwidth of a block | G, a cost of the CPU, because the CPU copies |
//! | fetch-add; get of a word | the time for which one occupies the target's memory |

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use memonet_sim::Machine;

use crate::bench::{self, Measured};
use crate::results::Results;

/// The measured rows, by their ids in the bench.
const ROUND_TRIP: &str = "pingpong.8";
const STORES: &str = "store_rate";
const FETCH_ADD: &str = "fetch_add";
const GET: &str = "get_bandwidth.8";
const BLOCK: &str = "put_bandwidth.1048576";

/// A number, and how it was measured.
#[derive(Debug, Clone)]
struct Figure {
    value: f64,
    how: String,
}

/// The figures that the file is made of.
#[derive(Debug, Clone)]
struct Figures {
    /// The machine in one line.
    machine: String,
    /// Nanoseconds.
    round_trip: Figure,
    store: Figure,
    fetch_add: Figure,
    get: Figure,
    /// MB/s.
    bandwidth: Figure,
}

/// Measures, and writes the file.
pub fn fit(mut out: impl Write, path: Option<&Path>, quick: bool) -> Result<()> {
    // Before the measurement, which takes long: a wrong name is reported at once.
    let mut results = None;
    if let Some(path) = path {
        let named = path.extension().is_some_and(|ending| ending == "toml");
        ensure!(named, "{} does not end in .toml, as machine files do", path.display());
        let open = Results::open(path);
        results = Some(open.with_context(|| format!("cannot write {}", path.display()))?);
    }
    let (machine, rows) = bench::measure_rows(&[ROUND_TRIP, STORES, FETCH_ADD, GET, BLOCK], quick)?;
    let when = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let text = file(&Figures::of(&machine, &when, &rows)?);
    // A file that is no machine must not be written.
    Machine::parse("fitted", &text, None).context("the measured figures make no valid machine")?;
    match path.zip(results) {
        None => out.write_all(text.as_bytes())?,
        Some((path, results)) => {
            let written = results.begin().and_then(|mut file| file.write_all(text.as_bytes()));
            written.with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "written: {}, which `memonet machines show` explains", path.display())?;
        }
    }
    Ok(())
}

impl Figures {
    fn of(machine: &bench::Machine, when: &str, rows: &[Measured]) -> Result<Figures> {
        let figure = |id: &str, value: fn(&Measured) -> f64| -> Result<Figure> {
            let row = rows
                .iter()
                .find(|row| row.id == id)
                .with_context(|| format!("{id} was not measured"))?;
            let quick = if machine.quick { ", quick" } else { "" };
            let how = format!(
                "measured {when} by memonet bench {}{quick}, row {id}: median {:.4} {} (from {:.4} to {:.4})",
                machine.memonet, row.median, row.unit, row.min, row.max
            );
            Ok(Figure { value: value(row), how })
        };
        Ok(Figures {
            machine: format!(
                "{}, {} CPUs, Linux {}, {when}",
                machine.cpu, machine.cpus, machine.kernel
            ),
            round_trip: figure(ROUND_TRIP, |row| row.median)?,
            store: figure(STORES, |row| 1e3 / row.median)?,
            fetch_add: figure(FETCH_ADD, |row| row.median)?,
            get: figure(GET, |row| 8e3 / row.median)?,
            bandwidth: figure(BLOCK, |row| row.median)?,
        })
    }
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '"' || c == '\\' { '\'' } else { c };
    format!("\"{}\"", text.chars().map(plain).collect::<String>())
}

/// The machine file.
fn file(figures: &Figures) -> String {
    let Figures { machine, round_trip, store, fetch_add, get, bandwidth } = figures;
    // A word's way from PE to PE takes the overhead of the store, the latency, and the rest of the
    // poll during which the word arrives: half a poll.
    let look = store.value;
    let way = (round_trip.value / 2.0 - store.value - look / 2.0).max(0.0);
    let line = |name: &str, value: f64, unit: &str, source: &str| {
        format!("{name} = {{ value = {value:.4}, unit = \"{unit}\", {source} }}\n")
    };
    let measured = |figure: &Figure, also: &str| {
        format!("source = {}", quoted(&format!("{}{also}", figure.how)))
    };
    let assumed = |why: &str| format!("assumed = {}", quoted(why));
    let mut text = format!(
        "summary = {}\nkind = \"loggp\"\n\n[host]\n",
        quoted(&format!("PEs on one machine, whose memory is each other's: {machine}"))
    );
    text += &line(
        "look",
        look,
        "ns",
        &assumed("a load of a line that the cache has takes as long as a store"),
    );
    text += "\n[nic]\n";
    text += &line("send_overhead", store.value, "ns", &measured(store, "; the time of one"));
    text += &line(
        "send_byte",
        bandwidth.value,
        "MB/s",
        &measured(bandwidth, "; it is the CPU that copies"),
    );
    text += &line("gap", store.value, "ns", &measured(store, "; the time of one"));
    text += &line(
        "send_latency",
        way,
        "ns",
        &measured(round_trip, "; half of it, less send_overhead and half a look"),
    );
    text += &line("receive_latency", 0.0, "ns", &assumed("all of the way is in send_latency"));
    text += &line("receive_overhead", 0.0, "ns", &assumed("no software at the target"));
    text += &line("acknowledge", 0.0, "ns", &assumed("who stores knows"));
    text += "packet = { value = 4, unit = \"KiB\", assumed = \"a page: nothing depends on it, as packets have no header\" }\n";
    text += "header = { value = 0, unit = \"B\", assumed = \"bytes are copied, and nothing with them\" }\n";
    text += "remote_dma = { value = true, assumed = \"loads and locked instructions of the CPU reach the other's memory\" }\n";
    text += &line(
        "read",
        get.value,
        "ns",
        &measured(get, "; the time of one, where nobody else writes the line"),
    );
    text += &line(
        "atomic",
        fetch_add.value,
        "ns",
        &measured(fetch_add, "; where nobody else wants the line"),
    );
    text += "\n[link]\n";
    text += "rate = { value = 0, unit = \"ns/B\", assumed = \"what is copied is there: bytes are counted in send_byte\" }\n";
    text += &line("delay", 0.0, "ns", &assumed("all of the way is in send_latency"));
    text += "\n[switch]\n";
    text += &line("delay", 0.0, "ns", &assumed("all of the way is in send_latency"));
    text +=
        "forwarding = { value = \"cut-through\", assumed = \"nothing is stored on the way\" }\n";
    text += "head = { value = 0, unit = \"B\", assumed = \"nothing is stored on the way\" }\n";
    text += "\n[topology]\n";
    text += "shape = { value = \"star\", assumed = \"every CPU is as far from every other\" }\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use memonet_core::Cmp;
    use memonet_sim::machine::Source;
    use memonet_sim::{Options, now, run};

    fn figures(round_trip: f64, store: f64) -> Figures {
        let figure = |value| Figure { value, how: "measured then by that \"row\"".into() };
        Figures {
            machine: "a CPU".into(),
            round_trip: figure(round_trip),
            store: figure(store),
            fetch_add: figure(5.9),
            get: figure(2.0),
            bandwidth: figure(18_500.0),
        }
    }

    fn machine(figures: &Figures) -> Machine {
        Machine::parse("fitted", &file(figures), None)
            .unwrap_or_else(|error| panic!("{error}\n{}", file(figures)))
    }

    /// Mean round trip of a word, in ns.
    fn ping_pong(machine: &Machine) -> f64 {
        const TIMES: u64 = 1000;
        let done = run(machine, 2, &Options::default(), |job| {
            let w = job.window::<u64>(1).unwrap();
            let other = w.remote(1 - job.pe(), 0).unwrap();
            job.barrier().unwrap();
            let start = now();
            for round in 1..=TIMES {
                if job.pe() == 0 {
                    other.store(round);
                }
                w.wait_until(0, Cmp::Ge, round).unwrap();
                if job.pe() == 1 {
                    other.store(round);
                }
            }
            now() - start
        });
        done.unwrap().results[0].as_nanos() as f64 / TIMES as f64
    }

    #[test]
    fn what_was_measured_comes_out() {
        for (round_trip, store) in [(200.0, 0.49), (190.3, 0.7), (8437.25, 1.25), (362.0, 3.0)] {
            let simulated = ping_pong(&machine(&figures(round_trip, store)));
            // The model is as fine as one poll each way.
            assert!(
                (simulated - round_trip).abs() <= 2.0 * store,
                "{simulated} in place of {round_trip}"
            );
        }
    }

    #[test]
    fn bandwidth_is_that_of_the_block() {
        let machine = machine(&figures(200.0, 0.5));
        let done = run(&machine, 2, &Options::default(), |job| {
            let w = job.window::<u8>(1 << 20).unwrap();
            let block = vec![1u8; 1 << 20];
            let start = now();
            if job.pe() == 0 {
                (0..8).for_each(|_| w.put(1, 0, &block).unwrap());
                job.quiet().unwrap();
            }
            now() - start
        });
        let rate = f64::from(8 << 20) * 1e3 / done.unwrap().results[0].as_nanos() as f64;
        assert!((rate / 18_500.0 - 1.0).abs() < 0.02, "{rate} MB/s");
    }

    #[test]
    fn every_number_says_how_it_was_come_by() {
        let machine = machine(&figures(200.0, 0.5));
        assert_eq!(machine.kind(), "loggp");
        for measured in [
            "nic.send_overhead",
            "nic.send_byte",
            "nic.gap",
            "nic.send_latency",
            "nic.read",
            "nic.atomic",
        ] {
            let (_, parameter) = machine.parameters().find(|(key, _)| *key == measured).unwrap();
            assert!(
                matches!(&parameter.source, Source::Published(how) if how.contains("measured then")),
                "{parameter:?}"
            );
        }
    }

    /// If a round trip is shorter than its polls, the latency is 0 and not negative.
    #[test]
    fn a_way_is_not_shorter_than_nothing() {
        ping_pong(&machine(&figures(1.0, 5.0)));
    }
}
