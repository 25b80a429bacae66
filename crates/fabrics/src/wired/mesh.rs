//! The streams between the agents of a job.
//!
//! Each agent has one to each other: the one of the higher node asks for it. The streams come from
//! the switchboards, as those of PEs do, so both ends have proved that they are of the job. What
//! goes over them has the form of the [control stream](memonet_control) of an agent and its
//! launcher.
//!
//! What an agent tells another one before there is a stream waits for it. An agent that has
//! finished closes its direction, and reads until the other agents have closed theirs, or two
//! seconds: what it has said would be lost if it closed with something unread. So the agents of a
//! job end together where its PEs do.

use super::pulse::Pulse;
use anyhow::{Context, Result, anyhow, ensure};
use memonet_control::START;
use memonet_control::codec::decode;
use memonet_control::events::{self, listen};
use memonet_control::frames::{Piece, version};
use memonet_control::messages::AmongAgents;
use memonet_control::stream::{Receiver, Sender};
use memonet_control::vigil::{SILENCE, Vigil};
use memonet_core::Lost;
use memonet_tcp::agent::AgentBroker;
use memonet_tcp::{Broker, Event};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use std::time::{Duration, Instant};

/// How long an agent that has finished waits for the others to take what it has said.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The numbers of events from here on are the mesh's.
pub const EVENTS: u64 = 1 << 32;
const BROKER: u64 = EVENTS * 2;
const DATAGRAMS: u64 = EVENTS * 2 + 1;

/// What an agent learns of another node.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Its agent says this.
    Said { node: u32, message: AmongAgents },
    /// It is lost, and why.
    Lost { node: u32, how: Lost, why: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is no stream yet.
    Awaited,
    Linked,
    /// It has said all. The stream in this direction stays open.
    Finished,
    Lost,
}

/// Another agent.
struct Peer {
    name: String,
    stage: Stage,
    vigil: Vigil,
    link: Option<(Sender<OwnedFd>, Receiver<OwnedFd>)>,
    /// What it is told once there is a stream.
    waiting: Vec<AmongAgents>,
    /// Nothing follows from it.
    has_closed: bool,
}

/// The streams of one agent.
pub struct Mesh {
    events: OwnedFd,
    broker: AgentBroker,
    pulse: Pulse,
    node: u32,
    /// All nodes; nothing is done with this one.
    peers: Vec<Peer>,
    began: Instant,
}

impl Mesh {
    /// Asks for the streams.
    pub fn begin(broker: AgentBroker, pulse: Pulse) -> Result<Self> {
        let (now, node) = (Instant::now(), broker.job().node);
        let peer = |name: &String| Peer {
            name: name.clone(),
            stage: Stage::Awaited,
            vigil: Vigil::begin(now),
            link: None,
            waiting: Vec::new(),
            has_closed: false,
        };
        let peers = broker.job().nodes.iter().map(|node| peer(&node.name)).collect();
        let events = events::set()?;
        listen(&events, broker.fd(), BROKER)?;
        pulse.listen(&events, DATAGRAMS)?;
        for lower in 0..node {
            broker.connect(broker.job().agent_of(lower))?;
        }
        Ok(Mesh { events, broker, pulse, node, peers, began: now })
    }

    /// What the agent waits for: events of the mesh, and others with numbers below [`EVENTS`].
    pub fn events(&self) -> &OwnedFd {
        &self.events
    }

    /// Tells another agent, or all others.
    pub fn tell(&mut self, to: Option<u32>, message: &AmongAgents) {
        for node in self.others().filter(|&node| to.is_none_or(|to| to == node)) {
            let peer = &mut self.peers[node as usize];
            match (&mut peer.link, peer.stage) {
                (Some((to, _)), _) => to.send(message),
                (None, Stage::Awaited) => peer.waiting.push(message.clone()),
                (None, _) => {}
            }
        }
    }

    /// Takes a node for lost, because others say so.
    pub fn close(&mut self, node: u32) {
        let peer = &mut self.peers[node as usize];
        (peer.stage, peer.link, peer.waiting) = (Stage::Lost, None, Vec::new());
    }

    pub fn name(&self, node: u32) -> &str {
        &self.peers[node as usize].name
    }

    /// Whether all streams are made, or never will be.
    pub fn is_whole(&self) -> bool {
        self.others().all(|node| self.peers[node as usize].stage != Stage::Awaited)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.node;
        (0..self.peers.len() as u32).filter(move |&node| node != own)
    }

    /// Sends what waits, and waits for events, until `next` or the next heartbeat at most. Gives
    /// what was learnt, and events that are not the mesh's.
    pub fn pass(&mut self, next: Option<Instant>) -> Result<(Vec<News>, Vec<u64>)> {
        self.flush()?;
        let next_beat = self.peers.iter().map(|peer| peer.vigil.next()).chain(next).min();
        let mut others = events::wait(&self.events, next_beat)?;
        let now = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.vigil.pass(now));
        let mut news = Vec::new();
        for &event in others.iter().filter(|&&event| event >= EVENTS) {
            match event {
                BROKER => self.take_streams(&mut news)?,
                DATAGRAMS => {
                    for node in self.pulse.hear() {
                        self.peers[node as usize].vigil.hear(now);
                    }
                }
                // Each pass writes what there is room for.
                event if event % 2 == 1 => {}
                event => self.hear(((event - EVENTS) / 2) as u32, now, &mut news)?,
            }
        }
        others.retain(|&event| event < EVENTS);
        for (node, peer) in (0..).zip(&mut self.peers) {
            if peer.vigil.is_due(now)
                && let Some((to, _)) = &mut peer.link
            {
                to.beat();
                self.pulse.beat(node);
            }
        }
        self.notice_silence(now, &mut news);
        Ok((news, others))
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self) -> Result<()> {
        for (node, peer) in (0..).zip(&mut self.peers) {
            if let Some((to, _)) = &mut peer.link {
                to.flush(&self.events, EVENTS + node * 2 + 1)?;
            }
        }
        Ok(())
    }

    fn take_streams(&mut self, news: &mut Vec<News>) -> Result<()> {
        let first = self.broker.job().agent_of(0);
        while let Some(event) = self.broker.next()? {
            let (Event::Connected { pe, .. }
            | Event::Accepted { pe, .. }
            | Event::Refused { pe, .. }
            | Event::Unreached { pe }) = event;
            // No PE talks to agents, and no agent to itself.
            let node = pe.wrapping_sub(first);
            let is_awaited = |peer: &Peer| peer.stage == Stage::Awaited;
            if !self.peers.get(node as usize).is_some_and(is_awaited) {
                continue;
            }
            match event {
                Event::Connected { socket, .. } | Event::Accepted { socket, .. } => {
                    self.link(node, socket)?;
                }
                Event::Refused { why, .. } => self.lose(node, Lost::Closed, why, news),
                // That is told of PEs alone.
                Event::Unreached { .. } => {}
            }
        }
        Ok(())
    }

    /// A stream to an agent is there.
    fn link(&mut self, node: u32, socket: OwnedFd) -> Result<()> {
        let mut to = Sender::new(socket.try_clone().context("dup")?)?;
        let from = Receiver::new(socket)?;
        listen(&self.events, from.fd(), EVENTS + u64::from(node) * 2)?;
        let peer = &mut self.peers[node as usize];
        peer.waiting.drain(..).for_each(|message| to.send(&message));
        (peer.stage, peer.link) = (Stage::Linked, Some((to, from)));
        peer.vigil.hear(Instant::now());
        Ok(())
    }

    fn hear(&mut self, node: u32, now: Instant, news: &mut Vec<News>) -> Result<()> {
        let (nodes, pes) = (self.peers.len(), self.broker.job().node_of.len());
        let peer = &mut self.peers[node as usize];
        let Some((_, from)) = &mut peer.link else { return Ok(()) };
        let read = from.read();
        if read.is_some_and(|bytes| bytes > 0) {
            peer.vigil.hear(now);
        }
        let mut heard = || -> Result<()> {
            while let Some(piece) = from.next_piece()? {
                let Some(message) = understand(piece)? else { continue };
                ensure!(is_of(&message, nodes, pes), "it names what this job does not have");
                if message == (AmongAgents::Finished {}) {
                    peer.stage = Stage::Finished;
                }
                news.push(News::Said { node, message });
            }
            Ok(())
        };
        let heard = heard();
        match (heard, read) {
            (Err(why), _) => self.lose(node, Lost::Closed, format!("{why:#}"), news),
            (Ok(()), Some(_)) => {}
            (Ok(()), None) if peer.stage == Stage::Finished => {
                events::forget(&self.events, from.fd())?;
                peer.has_closed = true;
            }
            (Ok(()), None) => {
                self.lose(node, Lost::Closed, "it has closed the connection".into(), news);
            }
        }
        Ok(())
    }

    fn lose(&mut self, node: u32, how: Lost, why: String, news: &mut Vec<News>) {
        self.close(node);
        let why = format!("the agent of {} is lost: {why}", self.name(node));
        news.push(News::Lost { node, how, why });
    }

    fn notice_silence(&mut self, now: Instant, news: &mut Vec<News>) {
        for node in self.others() {
            let peer = &self.peers[node as usize];
            let (is_lost, limit) = match peer.stage {
                Stage::Awaited => (now > self.began + START, START),
                Stage::Linked => (peer.vigil.is_lost(now), SILENCE),
                Stage::Finished | Stage::Lost => continue,
            };
            if is_lost {
                let why = format!("nothing was heard of it for {} seconds", limit.as_secs_f64());
                self.lose(node, Lost::Silent, why, news);
            }
        }
    }

    /// Says that this agent has finished, and waits until the others have taken it.
    pub fn finish(mut self) -> Result<()> {
        self.tell(None, &AmongAgents::Finished {});
        let end = Instant::now() + LAST_WAIT;
        let mut closed = vec![false; self.peers.len()];
        let speaks = |peer: &Peer| peer.link.is_some() && !peer.has_closed;
        while Instant::now() < end && self.peers.iter().any(speaks) {
            self.flush()?;
            for (peer, closed) in self.peers.iter().zip(&mut closed) {
                let Some((to, from)) = peer.link.as_ref().filter(|_| !*closed) else { continue };
                if to.is_empty() {
                    *closed = true;
                    // It may be closed already.
                    let _ = shutdown(from.fd().as_fd(), Shutdown::Write);
                }
            }
            self.pass(None)?;
        }
        Ok(())
    }
}

/// A message of another agent, if the piece is one.
fn understand(piece: Piece) -> Result<Option<AmongAgents>> {
    match piece {
        Piece::Heartbeat => Ok(None),
        Piece::Greeting(theirs) if theirs == version() => Ok(None),
        Piece::Greeting(theirs) => Err(anyhow!(
            "it has memonet {theirs}, but this is {}. Install one version on all hosts",
            version()
        )),
        Piece::Foreign(_) => Err(anyhow!("what it says does not begin with a greeting")),
        Piece::Message(bytes) => decode(&bytes).map(Some),
    }
}

/// Whether a message names nodes and PEs of the job alone.
fn is_of(message: &AmongAgents, nodes: usize, pes: usize) -> bool {
    match message {
        AmongAgents::State { pe, .. } => (*pe as usize) < pes,
        AmongAgents::Lost { node, .. } => (*node as usize) < nodes,
        AmongAgents::Follow { order: entries } | AmongAgents::Order { entries } => {
            entries.iter().all(|entry| {
                entry.nodes.iter().all(|&node| (node as usize) < nodes)
                    && entry.pes.iter().all(|&(pe, _)| (pe as usize) < pes)
            })
        }
        AmongAgents::Unreached { .. } | AmongAgents::Exit { .. } | AmongAgents::Finished {} => true,
    }
}
