//! The cost model of bulk-synchronous programs (BSP) on SCC: T = w + g h + l for a superstep.
//!
//! The paper on SCC names BSP as a model that its boards suit, and gives no figures. Here the two
//! constants of the machine are found from two supersteps, as BSP's own benchmarks do: l from the
//! shortest one, g from a long one. They predict others, of other lengths and with work. The model
//! knows no packets: its errors are largest where each message is one packet of the LAN, which the
//! switch stores before it forwards it.
//!
//! Without puts, a superstep shows its barrier: by arrival and wait, or, overlapped, by one reduced
//! barrier code, which goes on while PEs work.
//!
//! In a superstep each PE works for w, and sends equally much to each other one: h words in all.

use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::machine::Machine;
use crate::run::{Host, Options, run as run_on};
use memonet_core::{Job, Supersteps};

const ALL: &str = "nobody dies in an experiment";
const WORD_BYTES: usize = 8;

/// A superstep: number of PEs, words that a PE sends to each other one, and work in ns.
#[derive(Clone, Copy)]
struct Superstep {
    pes: usize,
    to_each: usize,
    work: u64,
}

impl Superstep {
    /// Words that a PE sends, and that it receives.
    fn h(self) -> f64 {
        (self.to_each * (self.pes - 1)) as f64
    }
}

/// Supersteps before those whose time counts. The wires change hands: a barrier has them from its
/// third phase on.
const FIRST: u64 = 4;

/// The time of a superstep, in ns: the mean of some, in a program that has made others.
fn simulated(machine: &str, what: Superstep) -> Result<f64, Error> {
    const ROUNDS: u64 = 8;
    let program = |job: &Job| {
        let len = what.to_each * what.pes;
        let mut steps = Supersteps::new(job, len).expect(ALL);
        let words = vec![job.pe() as u64 + 1; what.to_each];
        let (me, n) = (job.pe(), job.npes());
        let mut superstep = || {
            job.compute(what.work);
            for to in (1..n).map(|next| (me + next) % n) {
                steps.put(to, me * what.to_each, &words).expect(ALL);
            }
            steps.step().expect(ALL);
        };
        (0..FIRST).for_each(|_| superstep());
        let begin = Host::here().now();
        (0..ROUNDS).for_each(|_| superstep());
        let time = Host::here().now() - begin;
        job.barrier().expect(ALL);
        let last = (me + n - 1) % n;
        assert_eq!(steps.read(last * what.to_each), last as u64 + 1, "what was put");
        steps.free().expect(ALL);
        time.as_ns() / ROUNDS as f64
    };
    let options = Options { segment: Some(8 << 20), ..Options::default() };
    let done = run_on(&Machine::load(machine)?, what.pes, &options, |job| program(&job))?;
    Ok(done.results.into_iter().fold(0.0, f64::max))
}

/// The time of a superstep of four PEs that only work, for up to 3 us, in ns.
fn without_puts(overlapped: bool) -> Result<f64, Error> {
    const ROUNDS: u64 = 50;
    let done = run_on(&Machine::load("scc")?, 4, &Options::default(), |job| {
        let made = if overlapped { Supersteps::<u8>::overlapped } else { Supersteps::new };
        let mut steps = made(&job, 1).expect(ALL);
        (0..FIRST).for_each(|_| steps.step().expect(ALL));
        let begin = Host::here().now();
        for round in 1..=ROUNDS {
            job.compute((round * 997 + job.pe() as u64 * 1409) * 613 % 3000);
            steps.step().expect(ALL);
        }
        let time = (Host::here().now() - begin).as_ns() / ROUNDS as f64;
        steps.free().expect(ALL);
        time
    })?;
    Ok(done.results.into_iter().fold(0.0, f64::max))
}

/// The constants of the model for so many PEs.
#[derive(Clone, Copy)]
struct Constants {
    /// ns a word.
    g: f64,
    /// ns.
    l: f64,
}

impl Constants {
    fn of(machine: &str, pes: usize) -> Result<Constants, Error> {
        let [short, long] = [SHORT, LONG].map(|to_each| Superstep { pes, to_each, work: 0 });
        let [least, most] = [simulated(machine, short)?, simulated(machine, long)?];
        let g = (most - least) / (long.h() - short.h());
        Ok(Constants { g, l: least - g * short.h() })
    }

    fn predict(self, what: Superstep) -> f64 {
        what.work as f64 + self.g * what.h() + self.l
    }
}

/// Words to each other PE in the supersteps that give the constants: one, and 16 packets of the
/// LAN.
const SHORT: usize = 1;
const LONG: usize = 16 * 1472 / WORD_BYTES;

/// What the constants predict: words to each other PE, and work in ns.
const PREDICTED: [(usize, u64); 8] = [
    (4, 0),
    (32, 50_000),
    (184, 0),
    (184, 400_000),
    (500, 20_000),
    (736, 0),
    (1472, 3_000),
    (5888, 0),
];

fn curve(figure: &'static str, label: String, x: &'static str, points: Vec<(f64, f64)>) -> Curve {
    Curve { figure, label, x, y: "ns", points }
}

/// Predicted and simulated times of supersteps, and how far apart they are at most, in percent.
fn compare(outcome: &mut Outcome, pes: usize, constants: Constants) -> Result<f64, Error> {
    let (mut model, mut machine, mut worst) = (Vec::new(), Vec::new(), 0.0_f64);
    for (to_each, work) in PREDICTED {
        let what = Superstep { pes, to_each, work };
        let (predicted, time) = (constants.predict(what), simulated("scc", what)?);
        worst = worst.max((predicted / time - 1.0).abs() * 100.0);
        if work == 0 {
            model.push((what.h(), predicted));
            machine.push((what.h(), time));
        }
    }
    let figure = "scc: a superstep without work";
    outcome.curves.push(curve(figure, format!("{pes} PEs, simulated"), "words", machine));
    outcome.curves.push(curve(figure, format!("{pes} PEs, w + g h + l"), "words", model));
    Ok(worst)
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let (mut wires, mut messages) = (Vec::new(), Vec::new());
    for pes in [2, 4, 8, 16] {
        let constants = Constants::of("scc", pes)?;
        let worst = compare(&mut outcome, pes, constants)?;
        wires.push((pes as f64, constants.l));
        messages.push((pes as f64, Constants::of("fast-ethernet-udp", pes)?.l));
        outcome.rows.extend([
            Row::predicted(format!("scc.superstep_g_{pes}_pes"), "ns/word", constants.g),
            Row::predicted(format!("scc.superstep_l_{pes}_pes"), "ns", constants.l),
            Row::predicted(format!("scc.superstep_model_error_{pes}_pes"), "%", worst)
                .note("between w + g h + l and the simulated time, at most, of 8 supersteps"),
        ]);
    }
    outcome.rows.extend([
        Row::predicted("scc.superstep_without_puts_ns", "ns", without_puts(false)?)
            .note("four PEs with up to 3 us of work: arrival and wait"),
        Row::predicted("scc.superstep_without_puts_overlapped_ns", "ns", without_puts(true)?)
            .note("the same by the reduced barrier code"),
    ]);
    let figure = "scc: l, what a superstep costs whatever its size";
    outcome.curves.push(curve(figure, "SCC".into(), "PEs", wires));
    outcome.curves.push(curve(figure, "the LAN alone, UDP".into(), "PEs", messages));
    Ok(outcome)
}
