//! What `memonet_tcp::agent` does for launcher and agents.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Result;
use memonet_tcp::agent::{self, End, Heart, Job, NodeInfo, Secret};

use super::datagrams::Datagrams;

/// The job's description for each node's agent, with a new secret and the provider of libfabric by
/// which its PEs reach each other, if they do not by streams, and the launcher's end of the
/// heartbeats with that agent.
pub fn describe(nodes: Vec<NodeInfo>, provider: Option<String>) -> Result<Vec<(Vec<u8>, Heart)>> {
    let (id, secret) = (agent::random()?, Secret::random()?);
    let pes = nodes.iter().enumerate();
    let node_of = pes.flat_map(|(node, info)| std::iter::repeat_n(node as u32, info.pes as usize));
    let (node_of, costs) = (node_of.collect(), None);
    let mut job = Job { id, secret, node: 0, node_of, nodes, costs, provider };
    let nodes = 0..job.nodes.len() as u32;
    let describe = |node| {
        job.node = node;
        Ok((job.encode()?.to_vec(), Heart::new(&job, End::Launcher)))
    };
    nodes.map(describe).collect()
}

/// The node's listening port.
pub struct Listening(agent::Listener);

impl Listening {
    /// Listens on the interface that the user has named, or on all.
    pub fn bind(interface: Option<String>) -> Result<Self> {
        Ok(Listening(listen(interface)?))
    }

    /// Takes its sockets for heartbeats.
    pub fn take_datagrams(&mut self) -> Datagrams {
        Datagrams::of_agent(self.0.take_datagrams())
    }

    /// Its addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.addresses().to_vec()
    }
}

/// The agent's end of the heartbeats, for the job that the launcher has described.
pub fn heart(job: &[u8]) -> Result<Heart> {
    Ok(Heart::new(&Job::decode(job)?, End::Agent))
}

/// A port of this host, at the addresses that other hosts of a job are told of.
pub fn listen(interface: Option<String>) -> Result<agent::Listener> {
    let mut options = agent::Options::from_environment(interface)?;
    options.first = reached_at();
    Ok(agent::Listener::bind(&options)?)
}

/// The address of this host that ssh was called at: client and its port, server and its port.
pub fn reached_at() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_whitespace().nth(2)?.parse().ok()
}

/// Makes the streams of a node's PEs.
pub struct Switchboard(agent::Switchboard);

impl Switchboard {
    /// Begins to, for the job that the launcher has described.
    pub fn start(listening: Listening, job: &[u8]) -> Result<Self> {
        Ok(Switchboard(agent::Switchboard::start(listening.0, Job::decode(job)?)?))
    }

    /// The descriptor by which a PE asks for streams.
    pub fn seat(&mut self, pe: usize) -> Result<OwnedFd> {
        Ok(self.0.seat(pe as u32)?)
    }

    /// Readable when [`take_unreached`](Self::take_unreached) gives something.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.0.news()
    }

    /// PEs of this node that have got no stream, each with the PE that it has asked for.
    pub fn take_unreached(&self) -> Vec<(u32, u32)> {
        self.0.take_unreached()
    }

    /// A PE of another node has got no stream to one of this node.
    pub fn unreached(&self, from: u32, to: u32) {
        self.0.unreached(from, to);
    }

    /// A PE is gone.
    pub fn departed(&self, pe: usize) {
        self.0.departed(pe as u32);
    }
}
