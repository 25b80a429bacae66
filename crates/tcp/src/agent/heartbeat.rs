//! Heartbeats: datagrams by which a launcher and an agent, or two agents, learn that the other one
//! lives. Nothing here sends or receives.
//!
//! Signs of life on a stream can be late: after a cut, TCP sends again only after a pause that it
//! has doubled with each attempt. A datagram that is lost is not sent again; the next one says as
//! much.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `memonetB` |
//! | 4 | version |
//! | 16 | the job's number |
//! | 4 | the agent's node; between agents, that of the one that sends |
//! | 4 | who sends: 0, the launcher; 1, the agent; 2 and more, an agent to that of node 0 and more |
//! | 8 | counter: one more with each datagram of the sender |
//! | 32 | tag: HMAC-SHA256, keyed with the job's secret, of a label and of all bytes before |
//!
//! # Contract
//!
//! [`Heart::hears`] accepts a datagram only if the other end of this connection has made it, and
//! has made it after all that were accepted before. No other datagram changes anything.
//!
//! **Proof.** 1. A right tag was made by somebody who knows the secret, for these bytes; no other
//! message of the job has this label (step 1 of the proof at the head of [`agent`](super)). 2. The
//! bytes name job, node and sender. So it was made for this connection and in this direction: what
//! an end has said itself, or what another agent says, is refused. 3. An end counts on with each
//! datagram, and a secret is for one job. So a datagram with a greater counter than all before was
//! made after them, and each is accepted once at most. 4. What is refused returns before anything
//! is written.
//!
//! *The limit:* somebody on the way can hold datagrams back, or throw them away, as somebody who
//! cuts a cable does.

use super::job::Job;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a heartbeat.
pub const HEARTBEAT_BYTES: usize = COUNTER + 8 + TAG;

const MAGIC: [u8; 8] = *b"memonetB";
const VERSION: u32 = 1;
/// As long as those of handshakes, and none of them.
const LABEL: &[u8; 20] = b"memonet heartbeat  1";
const NODE: usize = 28;
const SENDER: usize = 32;
const COUNTER: usize = 36;
const TAG: usize = 32;
/// An agent that says something to that of node 0; one more for each further node.
const TO_AGENT: u32 = 2;

/// The ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The launcher.
    Launcher,
    /// The agent of the job's node.
    Agent,
}

/// One end of a connection, as far as heartbeats go.
#[derive(Clone)]
pub struct Heart {
    key: Hmac<Sha256>,
    /// What its own datagrams begin with, and those of the other end.
    own: [u8; COUNTER],
    other: [u8; COUNTER],
    sent: u64,
    heard: u64,
}

impl Heart {
    /// This end of the connection between the launcher of a job and the agent of `job.node`.
    pub fn new(job: &Job, end: End) -> Self {
        let other = if end == End::Launcher { End::Agent } else { End::Launcher };
        let [own, other] = [end, other].map(|sender| (job.node, sender as u32));
        Heart::with(job, own, other)
    }

    /// This end, of the agent of `job.node`, of its connection with the agent of another node.
    pub fn between(job: &Job, other: u32) -> Self {
        Heart::with(job, (job.node, TO_AGENT + other), (other, TO_AGENT + job.node))
    }

    /// `own` and `other`: the node and the sender of what the ends say.
    fn with(job: &Job, own: (u32, u32), other: (u32, u32)) -> Self {
        let key = Hmac::new_from_slice(job.secret.bytes()).expect("HMAC takes keys of any length");
        let begin = |(node, sender)| {
            let mut bytes = [0; COUNTER];
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[12..NODE].copy_from_slice(&job.id);
            for (number, at) in [(VERSION, 8), (node, NODE), (sender, SENDER)] {
                bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
            }
            bytes
        };
        Heart { key, own: begin(own), other: begin(other), sent: 0, heard: 0 }
    }

    /// The next datagram for the other end.
    pub fn beat(&mut self) -> [u8; HEARTBEAT_BYTES] {
        self.sent += 1;
        let mut bytes = [0; HEARTBEAT_BYTES];
        let (said, tag) = bytes.split_at_mut(COUNTER + 8);
        said[..COUNTER].copy_from_slice(&self.own);
        said[COUNTER..].copy_from_slice(&self.sent.to_le_bytes());
        tag.copy_from_slice(&self.tagged(said).finalize().into_bytes());
        bytes
    }

    /// Whether a datagram is a new sign of life of the other end.
    pub fn hears(&mut self, datagram: &[u8]) -> bool {
        let Ok(bytes) = <&[u8; HEARTBEAT_BYTES]>::try_from(datagram) else { return false };
        let (said, tag) = bytes.split_at(COUNTER + 8);
        let (begin, counter) = said.split_at(COUNTER);
        let counter = u64::from_le_bytes(counter.try_into().expect("eight bytes"));
        // Steps 2 and 3, which cost less than step 1.
        if begin != self.other || counter <= self.heard {
            return false;
        }
        if self.tagged(said).verify_slice(tag).is_err() {
            return false;
        }
        self.heard = counter;
        true
    }

    /// Step 1.
    fn tagged(&self, said: &[u8]) -> Hmac<Sha256> {
        let mut key = self.key.clone();
        key.update(LABEL);
        key.update(said);
        key
    }
}

/// The node that a datagram names, true or not.
pub fn heartbeat_node(datagram: &[u8]) -> Option<u32> {
    let bytes = datagram.get(NODE..NODE + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::super::job::NodeInfo;
    use super::super::secret::Secret;
    use super::*;
    use End::{Agent, Launcher};

    fn job(secret: u8, id: u8, node: u32) -> Job {
        let node_info = NodeInfo { name: "a".into(), addresses: vec![], cpus: 1, pes: 1 };
        Job {
            id: [id; 16],
            secret: Secret::from_bytes([secret; 32]),
            node,
            nodes: vec![node_info; 2],
            node_of: vec![0, 1],
            costs: None,
            provider: None,
        }
    }

    fn ends() -> (Heart, Heart) {
        let job = job(1, 2, 1);
        (Heart::new(&job, Launcher), Heart::new(&job, Agent))
    }

    #[test]
    fn each_beat_is_heard_once_and_in_order() {
        let (mut launcher, mut agent) = ends();
        let beats: Vec<_> = (0..5).map(|_| launcher.beat()).collect();
        assert_eq!(heartbeat_node(&beats[0]), Some(1));
        // (the beat that comes, whether it is new)
        let table =
            [(0, true), (0, false), (2, true), (1, false), (2, false), (4, true), (3, false)];
        for (beat, is_new) in table {
            assert_eq!(agent.hears(&beats[beat]), is_new, "beat {beat}");
        }
        assert!(launcher.hears(&agent.beat()), "the other direction counts for itself");
    }

    #[test]
    fn only_the_other_end_of_this_connection_is_heard() {
        let foreign = [
            ("its own", job(1, 2, 1), Agent),
            ("another node's launcher", job(1, 2, 0), Launcher),
            ("another job's", job(1, 3, 1), Launcher),
            ("another secret's", job(2, 2, 1), Launcher),
        ];
        let (mut launcher, mut agent) = ends();
        for (whose, job, end) in foreign {
            assert!(!agent.hears(&Heart::new(&job, end).beat()), "{whose}");
        }
        assert!(agent.hears(&launcher.beat()));
    }

    #[test]
    fn agents_hear_each_other_and_no_third_one() {
        let job_of = |node| {
            let mut job = job(1, 2, node);
            job.nodes.push(job.nodes[0].clone());
            job.node_of.push(2);
            job
        };
        let between = |own, other| Heart::between(&job_of(own), other);
        let (mut zero, mut one) = (between(0, 1), between(1, 0));
        let beat = zero.beat();
        assert_eq!(heartbeat_node(&beat), Some(0));
        assert!(one.hears(&beat) && !one.hears(&beat) && zero.hears(&one.beat()));
        let foreign = [(1, 0), (0, 2), (2, 1), (2, 0), (1, 2)].map(|(a, b)| between(a, b));
        let of_launchers = [Launcher, Agent].map(|end| Heart::new(&job(1, 2, 0), end));
        for mut other in foreign.into_iter().chain(of_launchers) {
            assert!(!one.hears(&other.beat()));
        }
        assert!(one.hears(&zero.beat()));
    }

    /// One that was refused leaves no trace: the right one is heard after it.
    #[test]
    fn a_changed_bit_or_length_is_refused() {
        let (mut launcher, mut agent) = ends();
        let beat = launcher.beat();
        for bit in 0..8 * HEARTBEAT_BYTES {
            let mut changed = beat;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!agent.hears(&changed), "bit {bit}");
        }
        for len in 0..HEARTBEAT_BYTES {
            assert!(!agent.hears(&beat[..len]));
        }
        assert!(!agent.hears(&[&beat[..], &[0]].concat()) && agent.hears(&beat));
    }
}
