//! Jobs on several hosts that another launcher has started: `mpiexec`, `mpirun`, `srun`.
//!
//! ```text
//!   launcher ── PE 0, 1     the lowest PE of a node  ══ agent ══╗  agents: deaths, exits, heartbeats
//!            └─ PE 2, 3     forks the node's agent   ══ agent ══╝  PEs: streams that agents make
//! ```
//!
//! Where all PEs are on one node, this is not used: see `adopt.rs` of the core.
//!
//! # The life of a job
//!
//! 1. *Wire-up.* PEs find those of their node, and the nodes each other, through the launcher
//!    ([`memonet_wireup`]). The lowest PE of each node leads it. It listens on a port, puts what
//!    its node has (addresses, CPUs, memory), and reads what the others have.
//! 2. *Agent.* The leader forks the node's [agent](agent), which has the listening port, the
//!    job's secret, and an end of a socket pair for each PE of the node. The PEs have the other
//!    ends: the leader's own, and those that it has given its guests during the wire-up.
//! 3. *Registration.* Each PE sends the agent a pidfd of itself and a copy of its connection to
//!    the launcher. When all have, the agent makes the node's memory, starts the switchboard, and
//!    sends each PE the memory and the channel by which it gets streams. From here on the PE is
//!    one of a job of `memonet run --hosts`.
//! 4. *Running.* Agents tell each other ([mesh]) what becomes of their PEs.
//! 5. *Ending.* When all PEs of its node have ended, an agent says so to all others, and ends.
//!
//! # Contract
//!
//! | promise | how it is kept |
//! |---|---|
//! | all PEs form one job, or each gets an error that says why, within about half a minute | each fence, and each wait for the agent, has a limit. Nodes whose architecture or page size differs are refused by all |
//! | a wait for a PE that has died, or whose host or agent is lost, ends with `PeerFailed` | D1 to D4 below |
//! | such waits name the same death on all nodes | D5 below |
//! | nothing is left when all PEs have ended | E1, E2 below |
//! | a program's MPI may use the launcher's connection, before memonet or after it | PMI-1: the agent has a copy of each connection and ends its session when the PE has ended, unless MPI has; Slurm's MPI finds a [relay](memonet_wireup::pmi::Relay). PMIx: [a child](memonet_wireup::pmix) has the session, so that MPI is the first in this process to begin one |
//!
//! **Deaths.** D1. *Of a PE:* its pidfd is readable at its agent, which tells all other agents. A
//! PE hands its pidfd over before it gets the job's memory, so no PE of the job is unwatched. D2.
//! *Of a host or an agent:* the stream to the agent ends, or nothing was heard of it for 2.4
//! seconds, on the stream or by datagram, or the stream was not made within fifteen. All its PEs
//! are dead then that had not left. D3. *Of this node's own agent:* each PE watches it
//! ([`Place::agent`](memonet_core::unstable::Place)); without it, all PEs elsewhere are lost, and
//! those of the node watch each other. D4. A death is told on the stream on which what the PE had
//! finished before was told, so no agent takes a PE that has left in order for dead. D5. One agent
//! gives all deaths their [order](order), in which the agents publish them. When it ends, the next
//! one goes on with that.
//!
//! **Ends.** E1. An agent ends when the pidfds of all its PEs are readable, as their ends make
//! them. It waits for nothing else for longer than two seconds. E2. A leader that dies before its
//! agent has all registrations closes nothing that the agent waits for: each PE that dies closes
//! its own end of the pair, and then counts as dead.
//!
//! **The fork.** The agent is a fork of the leader without `exec`, so nothing has to be installed.
//! A program may have threads of its own by then. So the agent uses only what works after such a
//! fork with glibc: system calls, memory, new threads. It reads no environment, uses no
//! locks that were made before, and closes all descriptors but its own. It is forked twice, so that
//! no `wait` of the program finds it.
//!
//! # Limits
//!
//! * Each agent has a stream to each other one, and four heartbeats a second on it, and as
//!   datagrams.
//! * A process that ends a session of PMI-1 cannot run a second program: the launcher has closed
//!   the connection. (`mpiexec sh -c 'a; b'`, where both use memonet or MPI.)

mod agent;
mod common;
mod fork;
mod mesh;
mod node;
mod order;
mod post;
mod pulse;
mod successor;

use agent::Agent;
use common::{FENCE, system};
use memonet_control::messages::Findings;
use memonet_core::unstable::Place;
use memonet_core::{Error, Result};
use memonet_tcp::Broker;
use memonet_tcp::agent::{AgentBroker, Job, NodeInfo, Secret};
use memonet_wireup::Exchange;
use memonet_wireup::nodes::Neighbours;
use memonet_wireup::pmi::{Pmi, Relay};
use memonet_wireup::pmix::Pmix;
use node::Ready;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Finds this PE's place in the job that another launcher has started, and its way to streams.
/// `None` where that launcher has started one process alone.
///
/// # Errors
/// Whatever keeps the PEs from meeting: each says what to do.
pub fn start() -> Result<Option<(Place, AgentBroker)>> {
    if let Some(channel) = successor::left() {
        return place(channel, None).map(Some);
    }
    if let Some(mut pmi) = Pmi::inherit().map_err(refused)? {
        let wired = wire_up(&mut pmi)?;
        let relay = relay(&pmi)?;
        let connection = pmi.descriptor();
        let mut leaves = vec![connection];
        leaves.extend(relay.as_ref().map(|(near, _)| near.as_fd()));
        let placed = wired.register(&leaves)?;
        if let Some((_, program)) = relay {
            replace_connection(&program)?;
        }
        return Ok(Some(placed));
    }
    let Some(mut pmix) = Pmix::inherit().map_err(refused)? else { return Ok(None) };
    let wired = if pmix.size() > 1 { Some(wire_up(&mut pmix)?) } else { None };
    pmix.end().map_err(refused)?;
    wired.map(|wired| wired.register(&[])).transpose()
}

/// What a PE has after the wire-up.
struct Wired {
    /// To the agent of this node.
    registration: OwnedFd,
    /// At the PE that leads the node.
    agent: Option<Agent>,
}

fn wire_up(with: &mut impl Exchange) -> Result<Wired> {
    let near = Neighbours::meet(with, FENCE).map_err(refused)?;
    if !near.leads() {
        let registration = near.visit(None, FENCE).map_err(refused)?;
        near.tell(with, b"", FENCE).map_err(refused)?;
        return Ok(Wired { registration, agent: None });
    }
    let ready = Ready::find(with.size() as usize, near.here().len())?;
    let (registration, own) = post::pair()?;
    let mut guests = vec![(with.rank(), own)];
    for guest in near.welcome(FENCE).map_err(refused)? {
        let (theirs, ours) = post::pair()?;
        guest.give(theirs.as_fd()).map_err(refused)?;
        guests.push((guest.rank, ours));
    }
    let nodes = near.tell(with, &ready.word(), FENCE).map_err(refused)?;
    let mut job = Job {
        id: *near.nonce(),
        secret: Secret::from_bytes(*near.secret()),
        node: 0,
        nodes: Vec::with_capacity(nodes.len()),
        node_of: vec![0; with.size() as usize],
        costs: None,
        provider: None,
    };
    let mut all = Vec::with_capacity(nodes.len());
    for (number, node) in (0..).zip(nodes) {
        let (name, findings) = node::read(&node.word, node.processes[0])?;
        let Findings { addresses, cpus, .. } = findings.clone();
        all.push(findings);
        node.processes.iter().for_each(|&pe| job.node_of[pe as usize] = number);
        let pes = node.processes.len() as u32;
        job.nodes.push(NodeInfo { name, addresses, cpus, pes });
    }
    job.node = job.node_of[with.rank() as usize];
    let (heap, provider) = node::agree(&job.nodes, &all)?;
    job.provider = provider;
    let Ready { listener, datagrams, findings } = ready;
    let agent = Agent { job, heap, guests, listener, datagrams, cpus: findings.cpus };
    Ok(Wired { registration, agent: Some(agent) })
}

impl Wired {
    /// Registers with the agent, which keeps what this PE `leaves`: its connection to the launcher,
    /// and a relay's end.
    fn register(self, leaves: &[BorrowedFd<'_>]) -> Result<(Place, AgentBroker)> {
        if let Some(agent) = self.agent {
            let kept = agent.descriptors();
            fork::start(&kept, move || agent.live())?;
        }
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty())
            .map_err(|e| system("pidfd_open", e, "memonet needs Linux 5.3 or later"))?;
        let fds: Vec<_> = std::iter::once(pidfd.as_fd()).chain(leaves.iter().copied()).collect();
        post::send(&self.registration, &std::process::id().to_le_bytes(), &fds)?;
        let (said, mut fds) = post::receive(&self.registration, FENCE)?;
        match (fds.pop(), fds.pop()) {
            (Some(channel), Some(memory)) => place(channel, Some(memory)),
            _ => Err(Error::Fabric {
                fabric: memonet_tcp::NAME,
                problem: String::from_utf8_lossy(&said).into_owned(),
                call: None,
            }),
        }
    }
}

fn place(channel: OwnedFd, memory: Option<OwnedFd>) -> Result<(Place, AgentBroker)> {
    let broker = AgentBroker::new(channel)?;
    let job = broker.job();
    let near = job.node_of.iter().map(|&node| node == job.node).collect();
    let pe = broker.me() as usize;
    // The agent has made the channel. Where this process does not see it, its number is 0.
    let agent = sockopt::socket_peercred(broker.fd()).map(|who| who.pid.as_raw_nonzero().get());
    Ok((Place { pe, near, memory, agent: agent.ok().filter(|&pid| pid > 0) }, broker))
}

/// Slurm's server answers one `init` alone, so an MPI that comes later speaks with a relay: the
/// relay's end, and the program's.
fn relay(pmi: &Pmi) -> Result<Option<(OwnedFd, OwnedFd)>> {
    if std::env::var_os("SLURM_STEP_ID").is_none() || pmi.answers_init_once() {
        return Ok(None);
    }
    Relay::connection().map(Some).map_err(refused)
}

/// Puts another connection in the place of the launcher's.
fn replace_connection(by: &OwnedFd) -> Result<()> {
    let name = "PMI_FD";
    let value = std::env::var(name).unwrap_or_default();
    let raw: i32 = value.parse().map_err(|_| Error::Environment {
        name,
        value,
        problem: "has changed".into(),
        fix: "Leave it as the launcher has set it",
    })?;
    // SAFETY: the descriptor is the launcher's connection, which nobody owns in this process: the
    // environment names it. It stays open.
    let mut old = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(raw) });
    rustix::io::dup2(by, &mut old).map_err(|e| system("dup2", e, "Raise `ulimit -n`"))
}

fn refused(error: memonet_wireup::Error) -> Error {
    Error::System {
        call: "meeting the PEs of the other hosts".into(),
        answer: std::io::Error::other(error.to_string()),
        hint: "",
    }
}
