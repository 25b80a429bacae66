//! The published experiments, run on the simulated machines.
//!
//! An experiment is a function in the file of its system. It runs programs, over the library or
//! over a NIC's own interface, and gives [`Row`]s (a figure each) and [`Curve`]s (to be drawn). It
//! never sees the published figures: its rows are compared with them afterwards, by their ids.
//!
//! To add one: write `fn() -> Result<Outcome, Error>`, and add it to [`EXPERIMENTS`]. A row on
//! whose figure a constant of a machine file was fitted is marked by [`Row::fitted`], a row of the
//! model's own components by [`Row::input`].

mod area;
mod dimmnet1;
mod dimmnet1_barrier;
mod dimmnet1_design;
mod dimmnet1_stages;
mod dimmnet2;
mod fagus;
mod left_out;
mod outcome;
mod published;
mod rivals;
mod scale;
mod scc;
mod sr2201;
mod supersteps;

use crate::error::Error;
pub use outcome::{
    Claim, Curve, Errors, Outcome, Role, Row, bounds, errors, errors_of, errors_of_estimates,
};
use published::published;
pub use scale::{MOST, scale};

/// A published experiment, or several that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The experiment's name: that of its system, which a dot and a part may follow.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    run: fn() -> Result<Outcome, Error>,
}

/// All experiments but [`SCALE`].
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "dimmnet-1.loops",
        summary: "4 bytes by one store: internal and external loop, two nodes",
        run: dimmnet1::run,
    },
    Experiment {
        name: "dimmnet-1.stages",
        summary: "what one way of 4 bytes is made of, in the environments A to E and the 133 MHz design",
        run: dimmnet1_stages::run,
    },
    Experiment {
        name: "dimmnet-1.barrier",
        summary: "barrier of two nodes, and of 2 to 64 through RHiNET-2",
        run: dimmnet1_barrier::run,
    },
    Experiment {
        name: "dimmnet-1.design",
        summary: "the 133 MHz design: remote write and bandwidth, against Memory Channel 2 and PCI-SCI",
        run: dimmnet1_design::run,
    },
    Experiment {
        name: "sr2201",
        summary: "command words: one way by both start methods, bandwidth by size",
        run: sr2201::run,
    },
    Experiment {
        name: "dimmnet-2",
        summary: "multicast by the switch against point to point and three unicasts, 8 B to 16 MB",
        run: dimmnet2::run,
    },
    Experiment {
        name: "scc",
        summary: "barriers by wires against messages; collectives in the network",
        run: scc::run,
    },
    Experiment {
        name: "scc.supersteps",
        summary: "supersteps (BSP) against their cost model w + g h + l, for 2 to 16 PEs",
        run: supersteps::run,
    },
    Experiment {
        name: "fagus",
        summary: "distributed shared memory on DIMMnet-1: a message received, with its cost shares, and comm_sync",
        run: fagus::run,
    },
];

/// The experiment [`scale`]. It takes minutes, so it runs only when asked for by its name.
pub const SCALE: Experiment = Experiment {
    name: "scale",
    summary: "barriers, all-reduce and broadcast on 2 to 65,536 nodes of each kind of network; only when named",
    run: || scale(MOST, |_| ()),
};

impl Experiment {
    /// Runs the experiment, and adds the published figures to its rows.
    ///
    /// # Errors
    /// [`Error`], of the machine file or of the run.
    pub fn run(&self) -> Result<Outcome, Error> {
        let mut outcome = (self.run)()?;
        for row in outcome.rows.iter_mut().filter(|row| row.published.is_none()) {
            let Some(known) = published(&row.id) else { continue };
            (row.published, row.estimate) = (Some(known.claim), known.estimate);
            row.contradiction = row.contradiction.take().or(known.contradiction);
        }
        Ok(outcome)
    }
}

/// The experiments whose name is or begins with this one; all for `None`.
pub fn experiments(name: Option<&str>) -> Vec<Experiment> {
    let wanted = |experiment: &Experiment| {
        name.is_none_or(|name| {
            experiment
                .name
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    EXPERIMENTS.iter().copied().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(experiments(None).len(), EXPERIMENTS.len());
        assert_eq!(experiments(Some("dimmnet-1")).len(), 4);
        assert_eq!(experiments(Some("dimmnet-1.loops")).len(), 1);
        assert!(experiments(Some("dimm")).is_empty());
    }
}
