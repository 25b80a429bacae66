//! Heartbeats between the agents of a job as datagrams, beside their streams.

use memonet_control::datagrams::Datagrams;
use memonet_tcp::agent::{Heart, Job, NodeInfo, heartbeat_node};
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, UdpSocket};

/// An agent's end of all heartbeats.
pub struct Pulse {
    datagrams: Datagrams,
    /// By node.
    others: Vec<Other>,
}

/// Another agent.
struct Other {
    heart: Heart,
    addresses: Vec<SocketAddr>,
    /// Where its last true heartbeat came from.
    at: Option<SocketAddr>,
}

impl Pulse {
    /// The end of the agent of `job.node`.
    pub fn new(job: &Job, datagrams: Vec<UdpSocket>) -> Self {
        let other = |(node, info): (u32, &NodeInfo)| Other {
            heart: Heart::between(job, node),
            addresses: info.addresses.clone(),
            at: None,
        };
        let others = (0..).zip(&job.nodes).map(other).collect();
        Pulse { datagrams: Datagrams::of_agent(datagrams), others }
    }

    /// Has `events` report `token` when something has come.
    pub fn listen(&self, events: &OwnedFd, token: u64) -> anyhow::Result<()> {
        self.datagrams.listen(events, token)
    }

    /// Sends a heartbeat to the agent of a node.
    pub fn beat(&mut self, node: u32) {
        let Other { heart, addresses, at } = &mut self.others[node as usize];
        let beat = heart.beat();
        match at {
            Some(at) => self.datagrams.send(&beat, *at),
            None => addresses.iter().for_each(|&to| self.datagrams.send(&beat, to)),
        }
    }

    /// The nodes whose agents were heard.
    pub fn hear(&mut self) -> Vec<u32> {
        let Pulse { datagrams, others } = self;
        let mut heard = Vec::new();
        datagrams.receive(|bytes, from| {
            let Some(node) = heartbeat_node(bytes) else { return };
            if let Some(other) = others.get_mut(node as usize)
                && other.heart.hears(bytes)
            {
                other.at = Some(from);
                heard.push(node);
            }
        });
        heard
    }
}
