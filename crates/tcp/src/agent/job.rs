//! What an agent and its PEs know of their job, and the bytes in which they get it.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `memonetJ` |
//! | 4 | version |
//! | 16 | the job's number |
//! | 4, 4, 4 | this node, number of nodes, number of PEs |
//! | 1, then 34 | whether costs follow, and the costs |
//! | 1, n | length and name of libfabric's provider; none for streams |
//! | for each node: 2, n, 4, 1, then a family, address and port each | name, CPUs, addresses |
//! | 4 for each PE | its node |
//!
//! Numbers are little-endian. The launcher's message to an agent has the secret in front. Whatever
//! the bytes are, reading them gives a job that keeps all bounds, or an error, and takes no more
//! memory than the bytes allow: a count is believed only where that many bytes follow.

use super::secret::{SECRET_BYTES, Secret};
use memonet_core::unstable::fabric::{Costs, Record};
use std::net::{IpAddr, SocketAddr};
use zeroize::{Zeroize, Zeroizing};

/// The most PEs that a job has.
pub const MOST_PES: usize = 65_536;
/// The most addresses that a node has.
pub const MOST_ADDRESSES: usize = 64;
/// The longest name of a node, in bytes.
pub const LONGEST_NAME: usize = 255;
/// The most CPUs that a node has.
const MOST_CPUS: u32 = 1 << 20;
/// The most bytes of a description: 65,536 nodes with a name and two addresses each fit.
pub(super) const MOST_BYTES: usize = 16 << 20;

const MAGIC: [u8; 8] = *b"memonetJ";
const VERSION: u32 = 2;

/// What an agent knows of its job: the same at every node, but for `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The job's random number.
    pub id: [u8; 16],
    /// What agents prove to each other that they know.
    pub secret: Secret,
    /// The node of this agent.
    pub node: u32,
    /// All nodes.
    pub nodes: Vec<NodeInfo>,
    /// The node of each PE.
    pub node_of: Vec<u32>,
    /// What operations between nodes cost, where that is known.
    pub costs: Option<Costs>,
    /// The provider of libfabric by which PEs of different nodes reach each other; none where they
    /// do by streams.
    pub provider: Option<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The host, for messages.
    pub name: String,
    /// Where its agent listens.
    pub addresses: Vec<SocketAddr>,
    /// CPUs that its PEs may use.
    pub cpus: u32,
    /// Number of its PEs.
    pub pes: u32,
}

/// What a PE knows of its job: all of [`Job`] but the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The job's random number.
    pub id: [u8; 16],
    /// The node of this PE.
    pub node: u32,
    /// All nodes.
    pub nodes: Vec<NodeInfo>,
    /// The node of each PE.
    pub node_of: Vec<u32>,
    /// What operations between nodes cost, where that is known.
    pub costs: Option<Costs>,
    /// The provider of libfabric by which PEs of different nodes reach each other; none where they
    /// do by streams.
    pub provider: Option<String>,
}

/// What is wrong with a job, or with the bytes of one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Wrong {
    /// Bytes of something else.
    #[error("this is no description of a job")]
    NoJob,
    /// Bytes of another version.
    #[error(
        "this description of a job has version {0}, and this memonet reads version {VERSION}: install one version on all hosts"
    )]
    Version(u32),
    /// The bytes end early, or go on.
    #[error("this description of a job has too few bytes, or too many")]
    Length,
    /// A value out of bounds.
    #[error("a job cannot have {0}")]
    Bounds(String),
}

impl Job {
    /// The bytes for an agent, secret included: only for the control channel.
    pub fn encode(&self) -> Result<Zeroizing<Vec<u8>>, Wrong> {
        let description = self.description().encode()?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES + description.len()));
        bytes.extend(self.secret.bytes());
        bytes.extend(description);
        Ok(bytes)
    }

    /// Reads what [`encode`](Self::encode) has written.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let (secret, rest) = bytes.split_first_chunk::<SECRET_BYTES>().ok_or(Wrong::Length)?;
        let Description { id, node, nodes, node_of, costs, provider } = Description::decode(rest)?;
        let mut secret = *secret;
        let key = Secret::from_bytes(secret);
        secret.zeroize();
        let job = Job { id, secret: key, node, nodes, node_of, costs, provider };
        Ok(job)
    }

    /// What the job's PEs may know.
    pub fn description(&self) -> Description {
        let Job { id, secret: _, node, nodes, node_of, costs, provider } = self;
        Description {
            id: *id,
            node: *node,
            nodes: nodes.clone(),
            node_of: node_of.clone(),
            costs: *costs,
            provider: provider.clone(),
        }
    }
}

impl Description {
    /// The job record.
    pub fn record(&self) -> Record {
        let cpus: Vec<usize> = self.nodes.iter().map(|node| node.cpus as usize).collect();
        let hosts = self.nodes.iter().map(|node| node.name.as_str().into());
        Record::nodes(&self.node_of, &cpus).with_hosts(hosts)
    }

    /// The number by which the agent of a node is named as an end of streams: agents follow the
    /// PEs.
    pub fn agent_of(&self, node: u32) -> u32 {
        self.node_of.len() as u32 + node
    }

    /// The node of a PE, or of an agent that [`agent_of`](Self::agent_of) names; none where there
    /// is neither.
    pub fn node_of(&self, end: u32) -> Option<u32> {
        match end.checked_sub(self.node_of.len() as u32) {
            None => self.node_of.get(end as usize).copied(),
            Some(node) => (node < self.nodes.len() as u32).then_some(node),
        }
    }

    /// Refuses what [`decode`](Self::decode) would refuse.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let refuse = |what: String| Err(Wrong::Bounds(what));
        let (npes, nodes) = (self.node_of.len(), self.nodes.len());
        if npes == 0 || npes > MOST_PES {
            return refuse(format!("{npes} PEs: there are 1 to {MOST_PES}"));
        }
        if nodes == 0 || nodes > npes {
            return refuse(format!("{nodes} nodes for {npes} PEs"));
        }
        if self.node as usize >= nodes {
            return refuse(format!("a node {}: there are {nodes}", self.node));
        }
        if let Some(provider) = &self.provider
            && !is_name(provider)
        {
            return refuse(format!("a provider with the name {provider:?}"));
        }
        let mut pes = vec![0u32; nodes];
        for &node in &self.node_of {
            match pes.get_mut(node as usize) {
                Some(pes) => *pes += 1,
                None => return refuse(format!("a PE on node {node}: there are {nodes}")),
            }
        }
        for (node, &pes) in self.nodes.iter().zip(&pes) {
            let NodeInfo { name, addresses, cpus, pes: said } = node;
            if !is_name(name) {
                return refuse(format!("a node with the name {name:?}"));
            }
            if addresses.len() > MOST_ADDRESSES {
                return refuse(format!("{} addresses of node {name}", addresses.len()));
            }
            if !(1..=MOST_CPUS).contains(cpus) {
                return refuse(format!("{cpus} CPUs of node {name}"));
            }
            if pes == 0 || pes != *said {
                return refuse(format!("{said} PEs of node {name}, and a map with {pes}"));
            }
        }
        Ok(())
    }

    /// The bytes for a PE.
    pub fn encode(&self) -> Result<Vec<u8>, Wrong> {
        self.check()?;
        let mut bytes = Vec::with_capacity(64 + 64 * self.nodes.len() + 4 * self.node_of.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.id);
        for number in [self.node, self.nodes.len() as u32, self.node_of.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(u8::from(self.costs.is_some()));
        if let Some(costs) = &self.costs {
            let Costs { put_ns, get_ns, bytes_per_s, hardware_gets, hardware_atomics, eager_bytes } =
                *costs;
            for number in [put_ns, get_ns, bytes_per_s, eager_bytes as u64] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend([u8::from(hardware_gets), u8::from(hardware_atomics)]);
        }
        let provider = self.provider.as_deref().unwrap_or_default();
        bytes.push(provider.len() as u8);
        bytes.extend(provider.as_bytes());
        for node in &self.nodes {
            bytes.extend((node.name.len() as u16).to_le_bytes());
            bytes.extend(node.name.as_bytes());
            bytes.extend(node.cpus.to_le_bytes());
            bytes.push(node.addresses.len() as u8);
            node.addresses.iter().for_each(|address| put_address(&mut bytes, address));
        }
        self.node_of.iter().for_each(|node| bytes.extend(node.to_le_bytes()));
        if bytes.len() > MOST_BYTES {
            return Err(Wrong::Bounds(format!("{} bytes of description", bytes.len())));
        }
        Ok(bytes)
    }

    /// Reads what [`encode`](Self::encode) has written.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        if bytes.len() > MOST_BYTES {
            return Err(Wrong::Length);
        }
        let mut input = Input(bytes);
        if input.take::<8>() != Ok(MAGIC) {
            return Err(Wrong::NoJob);
        }
        let version = input.u32()?;
        if version != VERSION {
            return Err(Wrong::Version(version));
        }
        let id = input.take()?;
        let (node, nodes, npes) = (input.u32()?, input.u32()? as usize, input.u32()? as usize);
        let costs = if input.flag()? { Some(input.costs()?) } else { None };
        let provider = input.provider()?;
        // A node and a PE take at least these bytes.
        if nodes > input.0.len() / 7 || npes > input.0.len() / 4 {
            return Err(Wrong::Length);
        }
        let mut nodes = (0..nodes).map(|_| input.node()).collect::<Result<Vec<_>, _>>()?;
        let node_of = (0..npes).map(|_| input.u32()).collect::<Result<Vec<_>, _>>()?;
        if !input.0.is_empty() {
            return Err(Wrong::Length);
        }
        for &node in &node_of {
            let none = || Wrong::Bounds(format!("a PE on node {node}"));
            nodes.get_mut(node as usize).ok_or_else(none)?.pes += 1;
        }
        let description = Description { id, node, nodes, node_of, costs, provider };
        description.check()?;
        Ok(description)
    }
}

/// Whether a text can be a name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
}

fn put_address(bytes: &mut Vec<u8>, address: &SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.push(4);
            bytes.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(6);
            bytes.extend(ip.octets());
        }
    }
    bytes.extend(address.port().to_le_bytes());
}

/// The bytes that have not been read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Wrong::Length)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, Wrong> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Wrong> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Wrong> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, Wrong> {
        match self.take::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Wrong::Bounds(format!("a truth value {other}"))),
        }
    }

    fn costs(&mut self) -> Result<Costs, Wrong> {
        let [put_ns, get_ns, bytes_per_s, eager] =
            [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let too_large = |_| Wrong::Bounds(format!("{eager} eager bytes"));
        Ok(Costs {
            put_ns,
            get_ns,
            bytes_per_s,
            hardware_gets: self.flag()?,
            hardware_atomics: self.flag()?,
            eager_bytes: eager.try_into().map_err(too_large)?,
        })
    }

    fn text(&mut self, length: usize, of: &str) -> Result<String, Wrong> {
        let (text, rest) = self.0.split_at_checked(length).ok_or(Wrong::Length)?;
        self.0 = rest;
        let text = std::str::from_utf8(text)
            .map_err(|_| Wrong::Bounds(format!("a {of} whose name is not UTF-8")))?;
        Ok(text.to_owned())
    }

    fn provider(&mut self) -> Result<Option<String>, Wrong> {
        let [length] = self.take::<1>()?;
        let name = self.text(length.into(), "provider")?;
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    fn node(&mut self) -> Result<NodeInfo, Wrong> {
        let length = self.u16()?.into();
        let name = self.text(length, "node")?;
        let cpus = self.u32()?;
        let [addresses] = self.take::<1>()?;
        let addresses = (0..addresses).map(|_| self.address()).collect::<Result<_, _>>()?;
        Ok(NodeInfo { name, addresses, cpus, pes: 0 })
    }

    fn address(&mut self) -> Result<SocketAddr, Wrong> {
        let ip: IpAddr = match self.take::<1>()? {
            [4] => self.take::<4>()?.into(),
            [6] => self.take::<16>()?.into(),
            [other] => return Err(Wrong::Bounds(format!("an address of family {other}"))),
        };
        Ok(SocketAddr::new(ip, self.u16()?))
    }
}

#[cfg(test)]
mod tests;
