//! What a node has, and tells the others.

use crate::between::Between;
use memonet_control::codec::{decode, encode};
use memonet_control::messages::Findings;
use memonet_core::unstable::launch::{cpus_of, heap_size, page_size};
use memonet_core::{Error, Result};
use memonet_tcp::agent::{Listener, NodeInfo, Options};
use std::io::Error as Answer;
use std::net::UdpSocket;

/// What the PE that leads a node finds there.
pub struct Ready {
    pub listener: Listener,
    /// For heartbeats.
    pub datagrams: Vec<UdpSocket>,
    pub findings: Findings,
}

impl Ready {
    /// Finds what the node has for its PEs, `near` of the job's `npes`, and listens on a port.
    pub fn find(npes: usize, near: usize) -> Result<Self> {
        let mut listener = Listener::bind(&Options::from_environment(None)?)?;
        let datagrams = listener.take_datagrams();
        let (heap, _) = heap_size(npes, None)?;
        let provider = Between::asked()?.find().map_err(refused)?;
        let findings = Findings {
            cpus: cpus_of(near) as u32,
            heap,
            addresses: listener.addresses().to_vec(),
            architecture: std::env::consts::ARCH.into(),
            page: page_size() as u32,
            provider,
        };
        Ok(Ready { listener, datagrams, findings })
    }

    /// What the other nodes are to know.
    pub fn word(&self) -> Vec<u8> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = if name.is_empty() { "localhost".to_owned() } else { name };
        encode(&(name, self.findings.clone()))
    }
}

/// Name and findings of a node, which the PE `first` leads.
pub fn read(word: &[u8], first: u32) -> Result<(String, Findings)> {
    decode(word).map_err(|why| Error::System {
        call: format!("reading what the node of PE {first} has"),
        answer: Answer::other(format!("{why:#}")),
        hint: "Install one memonet version on all hosts",
    })
}

/// The size of the heap on all nodes, and the provider of libfabric between them; none for streams.
/// An error where nodes differ in what PEs must have alike.
pub fn agree(nodes: &[NodeInfo], all: &[Findings]) -> Result<(u64, Option<String>)> {
    let traits = |one: &Findings| (one.architecture.clone(), one.page);
    if let Some(at) = all.iter().position(|one| traits(one) != traits(&all[0])) {
        let describe = |at: usize| {
            let Findings { architecture, page, .. } = &all[at];
            format!("{} has {architecture} and pages of {page} bytes", nodes[at].name)
        };
        return Err(refused(format!(
            "the hosts are too different for one job: {}, but {}. Leave some out",
            describe(0),
            describe(at)
        )));
    }
    let found = nodes.iter().zip(all).map(|(node, one)| (&*node.name, one.provider.as_deref()));
    let decision = Between::asked()?.decide(&found.collect::<Vec<_>>()).map_err(refused)?;
    Ok((all.iter().map(|one| one.heap).min().unwrap_or_default(), decision.provider))
}

fn refused(problem: String) -> Error {
    Error::Fabric { fabric: memonet_tcp::NAME, problem, call: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_tell_what_they_have_and_must_be_alike() {
        let info = |name: String, findings: &Findings| NodeInfo {
            name,
            addresses: findings.addresses.clone(),
            cpus: findings.cpus,
            pes: 1,
        };
        let ready = Ready::find(4, 2).unwrap();
        let (name, mut findings) = read(&ready.word(), 0).unwrap();
        assert_eq!(findings, ready.findings);
        let less = Findings { heap: findings.heap / 2, ..findings.clone() };
        let nodes = [info(name.clone(), &findings), info(name, &less)];
        assert_eq!(agree(&nodes, &[findings.clone(), less.clone()]).unwrap().0, less.heap);
        findings.page *= 2;
        let refused = agree(&nodes, &[less, findings]).unwrap_err().to_string();
        assert!(refused.contains("too different"), "{refused}");
        assert!(read(b"what another version says", 3).unwrap_err().to_string().contains("PE 3"));
    }
}
