//! DIMMnet-1: software barriers over one-byte stores.
//!
//! Of up to eight nodes, the first one gathers. Each of the others has a byte of a word in the
//! first node's LLCM, and stores its phase there, so that one look shows which nodes have come.
//! Then the gatherer stores the phase into the LLCM of all others, by one multicast packet where
//! there is a switch. With more than eight nodes, gatherers gather again, up a tree, and the
//! announcement goes down the tree. The shuffle exchange is for comparison: in each round, every
//! node stores the phase to the node whose number differs in one bit, and waits for that node's
//! store.

use super::dimmnet1::{ENVIRONMENTS, PLACE, SAMPLES, machine, mean, nic, seed};
use super::left_out::{Figure, left_out};
use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::machine::Machine;
use crate::nic::memory_slot::command::{self, Looks};
use crate::packet::{Destination, Node, Payload};
use crate::run::{Options, run as run_on, sleep};
use crate::time::Ps;

/// Children of a gatherer, including itself: the bytes of a word.
const ARITY: u32 = 8;
/// Offsets in the page, behind the words of the levels: the announcement, and the words of the
/// rounds.
const RELEASE: u16 = 0x100;
const ROUNDS: u16 = 0x200;
/// How the gatherer reads a word: with MMX, and without.
const WAYS_TO_LOOK: [(&str, Looks); 2] =
    [("barrier_mmx", Looks::Words), ("barrier_nommx", Looks::Halves)];
/// The first kick page for multicasts, one for each level. Pages below it are for the nodes.
const MULTICAST_PAGES: u32 = 1024;

/// A node's part in the tree: the levels at which it gathers, and the node that gathers above
/// those.
struct Part {
    me: u32,
    n: u32,
    looks: Looks,
    mask_time: Ps,
    multicast: bool,
}

impl Part {
    /// Distance of siblings at a level.
    fn step(level: u32) -> u32 {
        ARITY.pow(level)
    }

    fn gathers(&self, level: u32) -> bool {
        self.me.is_multiple_of(Part::step(level + 1)) && Part::step(level) < self.n
    }

    /// The nodes that this node waits for at a level.
    fn children(&self, level: u32) -> impl Iterator<Item = u32> + use<> {
        let (me, n, step) = (self.me, self.n, Part::step(level));
        (1..ARITY).map(move |place| me + place * step).filter(move |&child| child < n)
    }

    /// Fills the header table, and the switches' tables.
    fn set_up(&self) {
        for node in 0..self.n {
            nic(command::map(node, &seed(Destination::Node(Node(node)), PLACE)));
        }
        for level in (0..).take_while(|&level| self.gathers(level)).filter(|_| self.multicast) {
            let children: Vec<Node> = self.children(level).map(Node).collect();
            // One group for each gatherer and level.
            let group = (self.me + level * self.n) as u16;
            nic(command::group(group, &children));
            nic(command::map(MULTICAST_PAGES + level, &seed(Destination::Multicast(group), PLACE)));
        }
    }

    fn meet(&self, phase: u64) {
        let phase = phase & 0xff;
        let mut level = 0;
        while self.gathers(level) {
            let bits = |child| 8 * ((child - self.me) / Part::step(level));
            let word =
                |byte: u64| self.children(level).fold(0, |word, child| word | byte << bits(child));
            nic(command::wait(
                PLACE + 8 * u64::from(level),
                8,
                word(0xff),
                word(phase),
                self.looks,
            ));
            sleep(self.mask_time.to_duration());
            level += 1;
        }
        if self.me != 0 {
            let place = self.me % Part::step(level + 1) / Part::step(level);
            let gatherer = self.me - place * Part::step(level);
            nic(command::kick(gatherer, (8 * level + place) as u16, Payload::word(1, phase)));
            nic(command::wait(PLACE + u64::from(RELEASE), 1, 0xff, phase, Looks::Words));
        }
        for level in (0..level).rev() {
            if self.multicast {
                nic(command::kick(MULTICAST_PAGES + level, RELEASE, Payload::word(1, phase)));
            } else {
                for child in self.children(level) {
                    nic(command::kick(child, RELEASE, Payload::word(1, phase)));
                }
            }
        }
    }
}

/// The mean time of a barrier of `n` nodes, in ns, announced by multicast or by one store after the
/// other.
pub fn tree(machine: &Machine, n: u32, looks: Looks, multicast: bool) -> Result<f64, Error> {
    let program = machine.section("program");
    let mask_time = program.time("barrier_mask")?;
    let timer = program.time("timer_read")?.to_duration();
    let done = run_on(machine, n as usize, &Options::default(), |job| {
        let part = Part { me: job.pe() as u32, n, looks, mask_time, multicast };
        part.set_up();
        mean(|phase| {
            sleep(timer);
            part.meet(phase);
        })
    })?;
    Ok(done.results[0])
}

/// The mean time of a shuffle-exchange barrier, in ns; `n` is a power of two.
fn shuffle(machine: &Machine, n: u32) -> Result<f64, Error> {
    let done = run_on(machine, n as usize, &Options::default(), |job| {
        let me = job.pe() as u32;
        for node in 0..n {
            nic(command::map(node, &seed(Destination::Node(Node(node)), PLACE)));
        }
        mean(|phase| {
            for round in 0..n.ilog2() {
                // The partner may be one phase ahead, but not two, so two words suffice.
                let place = ROUNDS + 8 * round as u16 + 4 * (phase & 1) as u16;
                nic(command::kick(me ^ 1 << round, place, Payload::word(4, phase)));
                nic(command::wait(
                    PLACE + u64::from(place),
                    4,
                    u32::MAX.into(),
                    phase,
                    Looks::Words,
                ));
            }
        })
    })?;
    Ok(done.results[0])
}

/// The published figures that the mask's constant could be fitted on, each simulated with any.
fn figures_of_the_mask() -> Vec<Figure<'static>> {
    let mut figures = Vec::new();
    for variant in ["A", "B", "C", "D"] {
        for (name, looks) in WAYS_TO_LOOK {
            figures.push(Figure::new(format!("dimmnet-1.{name}.{variant}"), "ns", move |mask| {
                let mut machine = machine(variant)?;
                machine.set("program.barrier_mask", mask)?;
                tree(&machine, 2, looks, false)
            }));
        }
    }
    figures
}

/// Barriers of two nodes, as they were measured.
fn of_two() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for variant in ENVIRONMENTS {
        for (name, looks) in WAYS_TO_LOOK {
            let row = Row::predicted(
                format!("dimmnet-1.{name}.{variant}"),
                "ns",
                tree(&machine(variant)?, 2, looks, false)?,
            );
            rows.push(match (name, variant) {
                ("barrier_mmx", "D" | "E") => row.fitted(),
                _ => row,
            });
        }
    }
    rows.extend(left_out(&figures_of_the_mask())?);
    Ok(rows)
}

/// Barriers that the authors have estimated, through one switch a level of the tree.
fn estimated() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for n in [2, 4, 8, 64] {
        let variant = if n <= ARITY { "D-switch" } else { "D-wide" };
        let time = tree(&machine(variant)?, n, Looks::Words, true)?;
        rows.push(Row::predicted(format!("dimmnet-1.estimates.barrier.{n}"), "ns", time).note(
            "estimated: the measured barrier of two nodes of D, 240 ns for each packet at the gatherer's port and 240 for the multicast; for 64 twice that of 8",
        ));
    }
    Ok(rows)
}

pub fn run() -> Result<Outcome, Error> {
    let mut outcome = Outcome { rows: of_two()?, ..Outcome::default() };
    outcome.rows.extend(estimated()?);
    let sizes = [2, 4, 8, 16, 32, 64];
    for (name, label) in
        [("barrier_tree", "8-ary tree, multicast"), ("barrier_shuffle", "shuffle exchange")]
    {
        let mut points = Vec::new();
        for n in sizes {
            let variant = if n <= ARITY { "D-switch" } else { "D-tree" };
            let time = match name {
                "barrier_tree" => tree(&machine(variant)?, n, Looks::Words, true)?,
                _ => shuffle(&machine(variant)?, n)?,
            };
            outcome.rows.push(Row::predicted(format!("dimmnet-1.{name}.{n}"), "ns", time));
            points.push((n.into(), time));
        }
        outcome.curves.push(Curve {
            figure: "dimmnet-1 barrier through RHiNET-2",
            label: label.into(),
            x: "nodes",
            y: "ns",
            points,
        });
    }
    outcome.notes = vec![
        format!("Barriers are means of {SAMPLES}. The mask's software is the machine's one constant, fitted on D with MMX. What MMX costs the P4 is that CPU's one constant, \
             fitted on E with MMX."),
        "What this leaves: B's barriers are 12 to 14 % shorter than here, as its loops are. Without MMX that of E is 14 % shorter: its mask is the P3's, in ns. And an estimate \
         takes the barrier over one cable and adds the switch; here a switch has a cable on either side, which adds 151 ns to each way."
            .into(),
        "Without MMX the gatherer's look at 8 bytes is two reads. Whoever waits for the announcement looks at one byte, which needs no MMX.".into(),
        "Nodes beyond eight hang on a tree of RHiNET-2 switches of eight ports, seven of them down: how they were connected is not published. The authors' estimate counts \
         no way between switches; the row for it has one switch for all."
            .into(),
    ];
    Ok(outcome)
}
