//! Errors of a run.

use crate::machine::MachineError;
use crate::packet::Destination;
use crate::time::Ps;
use std::fmt;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine file.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The job's memory.
    #[error(transparent)]
    Job(#[from] memonet_core::Error),
    /// The memory for the PEs' stacks.
    #[error(
        "no memory for the stacks of {pes} PEs, {bytes} bytes each: {cause}. Run fewer PEs, or give them smaller stacks"
    )]
    Stacks {
        /// Number of PEs.
        pes: usize,
        /// Bytes of each stack.
        bytes: usize,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A process has its turn, and asks for nothing.
    #[error("PE {pe} has made no call for {patience:?}. {}", why_silent(*.asleep))]
    Silent {
        /// Which.
        pe: usize,
        /// For how long, in real time.
        patience: std::time::Duration,
        /// Whether it has slept all the while.
        asleep: bool,
    },
    /// A process has written to the pages that it shares with the machine out of its turn, or has
    /// written what it may not.
    #[error(
        "PE {pe} has broken the rules by which processes and the machine take turns: stray stores into memonet's shared pages, or another version of memonet"
    )]
    OutOfTurn {
        /// Which.
        pe: usize,
    },
    /// A switch did not know where to send a packet.
    #[error(
        "switch {switch} has dropped a packet at {at}: its table has no entry for {to:?}. It is of a call of PE {pe}, and what that waits for never comes. Set the route"
    )]
    Unrouted {
        /// When.
        at: Ps,
        /// Whose call sent it.
        pe: usize,
        /// Which switch.
        switch: u32,
        /// Where it was to go.
        to: Destination,
    },
    /// The run was ended from outside.
    #[error("the run was ended from outside, at {at} of the machine's time")]
    Stopped {
        /// When.
        at: Ps,
    },
    /// PEs wait, and no event is left.
    #[error("deadlock at {at}: nothing is under way, and {} PEs wait\n{}", .waits.len(), Lines(.waits))]
    Deadlock {
        /// When.
        at: Ps,
        /// What each waits for.
        waits: Vec<Waiting>,
    },
}

fn why_silent(asleep: bool) -> &'static str {
    match asleep {
        false => {
            "It probably polls memory by plain loads: no simulated time passes between two of them, and nothing ever changes. \
             Poll by a wait or a test of the library. If it computes for so long, give it more patience"
        }
        true => {
            "It sleeps in the kernel: for input, a timer (alarm, timerfd), a thread or a process, all of which are in real time, while none of the machine's passes. \
             Where it only wants time to pass, let it sleep. If it has to wait for so long, give it more patience"
        }
    }
}

/// A PE in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub pe: usize,
    /// What the PE waits for.
    pub what: String,
    /// When the PE began to wait.
    pub since: Ps,
}

/// Most PEs that the error of a deadlock names.
const SHOWN: usize = 32;

struct Lines<'a>(&'a [Waiting]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Waiting { pe, what, since } in self.0.iter().take(SHOWN) {
            writeln!(f, "  PE {pe} waits for {what}, since {since}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => writeln!(f, "  and {more} more"),
            _ => Ok(()),
        }
    }
}
