//! A job on several hosts: the launcher's side.
//!
//! ```text
//!                       .── ssh a ──► agent on a ── PE 0, 1, 2, 3
//!   launcher ── pipes ──┤                 ║ sockets between PEs, made by agents
//!                       '── ssh b ──► agent on b ── PE 4, 5, 6, 7
//! ```
//!
//! The launcher has the user: output, input, signals, deadlines, reports and the exit status. An
//! [agent](super::agent), `memonet agent`, has the PEs of its host: their processes and their
//! memory. What they say to each other is in [control](memonet_control). The launcher puts deaths
//! and requests to exit in one order and passes them on, so that all hosts see the same.
//!
//! # The life of a job
//!
//! 1. *Called.* The launcher starts `ssh HOST memonet agent` for all hosts at once, and sends each
//!    the order: programs, arguments, environment, working directory.
//! 2. *Ready.* Each agent finds its programs and listens on a port. It says what its host has. A
//!    host on which something is missing says so instead, and the job does not begin (F1).
//! 3. *Started.* When all are ready, each agent gets the description of all nodes and the size of
//!    the heap, the least of all. It makes its host's memory and starts its PEs.
//! 4. *Running.* Output and ends of PEs come to the launcher, and signals and input go to the PEs.
//!    When a PE has died, finalised or ended, its agent tells, and all agents write that into their
//!    copies of its record, which end the waits of other PEs.
//! 5. *Ending.* As on one machine, [`Phase`](super::phase::Phase) decides: after a failure the PEs
//!    have a moment to end by themselves. Then agents are told to end them, and do so with times of
//!    their own.
//! 6. *Finished.* An agent whose PEs have ended passes on their last output, ends what they have
//!    left behind, and ends. The job has ended when all calls have.
//!
//! # Failures
//!
//! * F1. *Before the start:* the launcher reports the first one, tells all agents to end, and exits
//!   with the status that one machine has for it. A host that does not answer within 15 s fails.
//! * F2. *A PE dies:* its agent tells the launcher, which tells all agents, that one included; then
//!   each publishes it on its host. The next part says why.
//! * F3. *A host is lost:* its call ends, its stream ends, or nothing is heard of it for 2.4 s.
//!   Heartbeats come every 250 ms, by the stream and as [datagrams](super::datagrams), of which
//!   each alone will do ([vigil](memonet_control::vigil)). Its PEs are dead to all others.
//! * F4. *The launcher is lost:* an agent whose stream ends, or that hears nothing for 2.4 s, ends
//!   its PEs and itself. A launcher that is only stopped is not lost: its [guard](super::guard)
//!   goes on with the heartbeats of the streams.
//! * F5. *A process is stopped and goes on:* it finds that its own loop has stood still, and does
//!   not count that time as silence of others.
//!
//! # One order of deaths
//!
//! *Contract.* Waits that depend on the same PEs, and end because some of these died, name the same
//! PE on all hosts, the first in one order of all deaths. A killed PE is known on all hosts within
//! 0.3 s, and on its own host within that time even if the launcher is silent.
//!
//! * D1. An agent does not publish a death on its host. It tells the launcher.
//! * D2. The launcher gives each death the next place, and sends it to all agents before it handles
//!   another one. An agent publishes a death when it comes from the launcher, with its place.
//! * D3. If the launcher has not answered within 250 ms, the agent publishes the death on its host
//!   in the last place. A place that comes later replaces that.
//!
//! *Proof.* The streams keep order, and one process gives the places. So by D2 each host has
//! published a beginning of the order of deaths at any moment, and the rest is the proof at the
//! head of `memonet_core`'s `wait/terms.rs`. A death takes one message to the launcher and one
//! back, which wait for no other. The launcher's own report blames in this order, too
//! ([reports]). *The limit* is D3: while a launcher is stopped or cut off, a host
//! may name its own dead where another host names an earlier one. Without D3, waits there would
//! last as long as the launcher is stopped.
//!
//! # Many hosts
//!
//! On more than 32 hosts, [relays](relay) on some of them call the agents of the others, so that
//! the launcher does not start hundreds of processes. A relay is a process of its own ([its
//! side](super::agent)), and each control stream goes through one at most.
//!
//! * R1. The launcher calls a relay for each share of hosts, on the first host of the share. Where
//!   it cannot be called, or does not reach an agent within 5 s, the launcher calls the agents of
//!   the share, or that one, itself. So errors before the start are those of a job without relays.
//! * R2. A relay passes on what comes, in both directions, in order, and judges nothing: the order
//!   of deaths stays one. It multiplies the launcher's heartbeats, those of its guard among them,
//!   and makes none for the launcher: an agent hears of a lost launcher as without relays (F4).
//! * R3. *A relay is lost* with its host (F3), when its stream ends, or when nothing comes on that
//!   for 5 s, as datagrams say nothing of it. All hosts of its share are lost then, because no
//!   order of deaths reaches them any more. Their agents see their streams end, or hear no more
//!   datagrams of the launcher, and end their PEs. The killed agent beside a relay is its own host
//!   alone.
//! * R4. A relay whose launcher is gone closes the streams to its agents, and ends when they have.
//!
//! *Nothing is left behind.* On its host, an agent is the launcher of its PEs: they end with it, as
//! do the processes that they have started ([family](super::family), [guard](super::guard)). An
//! agent ends with its launcher (F4). The launcher waits for all calls, and ends those that stay.

pub mod call;
mod chosen;
mod input;
mod launcher;
pub mod list;
pub mod node;
mod order;
mod relay;
mod reports;
mod slurm;

use std::ops::Range;

use anyhow::{Result, bail};
use memonet_control::frames;
use memonet_control::vigil::HEARTBEAT;
use memonet_core::unstable::settings;

use super::course::{Course, Outcome};
use super::family::Family;
use super::guard::{Beats, Guard};
use super::limits;
use super::signals::Signals;
use super::spec::{ALL, Options, Program, Spec};
use super::trace::Trace;
use call::Caller;
pub use chosen::Chosen;
use launcher::Launcher;
use list::Allotment;
use node::{Node, Pipe};
pub use order::stays;
use relay::Relay;
pub use slurm::fill_in;

/// Runs a job on the hosts that the options name.
pub fn run(spec: Spec) -> Result<Outcome> {
    let Spec { mut programs, options } = spec;
    let nodes = allotments(&mut programs, &options)?;
    let shares = relay::shares(nodes.len(), options.several.direct_hosts);
    let calls = nodes.len() + shares.len();
    limits::raise_descriptors_for_hosts(calls)?;
    let trace = Trace::begin(&options)?;
    let orders = order::orders(&programs, &options, &nodes)?;
    let signals = Signals::catch()?;
    let mut pipes = (0..calls).map(|_| Pipe::new()).collect::<Result<Vec<_>>>()?;
    let beats = Beats {
        to: pipes.iter().map(Pipe::share).collect::<Result<_>>()?,
        bytes: &frames::HEARTBEAT,
        interval: HEARTBEAT,
    };
    let guard = Guard::post(beats)?;
    let caller = Caller::new(options.several.launch_agent.as_deref(), Some(guard.mark()))?;
    let family = Family::found(guard)?;
    let mut course = Course::begin(&options)?;
    for complaint in settings::complaints(options.names_of_variables()) {
        course.say(&complaint);
    }
    let names =
        programs.iter().flat_map(|program| std::iter::repeat_n(&program.program, program.n));
    let hosts = nodes.iter().flat_map(|node| std::iter::repeat_n(&node.host, node.count));
    for (name, host) in names.zip(hosts) {
        course.add(name.to_string_lossy().into_owned(), Some(host.as_str().into()), [None, None]);
    }
    let of_relays = pipes.split_off(nodes.len());
    let relay = |((number, share), pipe): ((usize, Range<usize>), Pipe)| {
        Relay::new(nodes.len() + number, &nodes[share.start].host, share, pipe)
    };
    let relays = shares.into_iter().enumerate().zip(of_relays).map(relay).collect();
    let hosts = nodes.iter().map(|node| (node.host.clone(), node.first, node.count));
    let trace = trace.map(|trace| trace.of_hosts(&options, hosts.collect())).transpose()?;
    let all = nodes.iter().zip(orders).zip(pipes).enumerate();
    let nodes = all.map(|(number, ((node, order), pipe))| Node::new(number, node, order, pipe));
    let launcher =
        Launcher::new(nodes.collect(), relays, caller, &options, signals, family, course)?;
    launcher.with_trace(trace).run()
}

/// Decides which PEs run where.
fn allotments(programs: &mut [Program], options: &Options) -> Result<Vec<Allotment>> {
    let hosts = match (&options.several.hosts, &options.several.hostfile) {
        (Some(list), _) => list::parse(list)?,
        (None, Some(file)) => list::read(file)?,
        (None, None) => bail!("there is no list of hosts"),
    };
    let npes = programs.iter().map(|program| program.n).sum();
    let nodes = list::allot(&hosts, Some(npes).filter(|&npes| npes != ALL))?;
    if let [Program { n, .. }] = programs {
        *n = nodes.iter().map(|node| node.count).sum();
    }
    Ok(nodes)
}
