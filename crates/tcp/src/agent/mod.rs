//! A node's agent, as far as it makes streams between PEs of different nodes.
//!
//! ```text
//!   PE ── AgentBroker ── channel ── Switchboard ══ one port a node ══ Switchboard ── channel ── PE
//!         (its process)             (a thread of the agent)
//! ```
//!
//! A PE asks its agent for a stream to a PE of another node. Its agent connects to that node's
//! port, the two agents prove to each other that they are of the job, and each passes its socket to
//! its PE by descriptor. From then on the agents have nothing to do with the stream.
//!
//! # Contract
//!
//! | promise | how it is kept |
//! |---|---|
//! | a PE gets a socket only if its other end is at the agent of the node and PE that its event names, or at somebody that passes on what the two say | the handshake, steps 1 to 5 |
//! | whatever strangers send, in whatever number, costs bounded memory, and changes nothing | at most 64 connections that are not proved, of 2 seconds each; one that has said nothing true gives its place up after 0.2 seconds if all are taken. Messages have fixed sizes, and no byte beyond them is read |
//! | a stranger learns that something listens, and no more | no byte is sent before a hello with a right tag |
//! | each request is answered once, within about 15 seconds | each step has its limit, and all together too. A program that the PE becomes by exec is not told of what the one before has asked |
//! | a PE to which another one gets no stream is told | its agent is, by [`Switchboard::unreached`]: who has agents speak with each other sees to that |
//! | a PE gets all streams that others have made to it | they wait for it while it has not started, or is slow, and for the program that it becomes by exec |
//! | a node that is down delays no stream to others | at most 16 streams to one node are being made at a time, of 128 |
//!
//! **The proof** is against anybody in the network who does not know the job's secret, 32 random
//! bytes. The secret goes to agents by the control channel, and to nobody else: not to PEs, not
//! into the environment, not into the network. Let H be HMAC-SHA256 keyed with it.
//!
//! 1. The tag of each message is H of a label for its kind, of version, job, both nodes and both
//!    PEs, of the random number of the end that connects and, but for the hello, of that of the end
//!    that accepts.
//!    Nobody else can make a tag that was never made; a changed bit makes it wrong.
//! 2. The end that connects believes a challenge only with the tag over its own fresh number: so
//!    the other end has made it now, for this stream. A challenge that was heard before has another
//!    number in it.
//! 3. The end that accepts believes a proof only with the tag over its own fresh number. So a
//!    replayed hello leads to a challenge that the one who replays cannot answer.
//! 4. Direction and place: a message of one kind is none of another, as labels differ; a node takes
//!    no hello that is for another node, or from itself, and none with PEs that are not of the
//!    nodes that it names. So no node believes what it has said itself, or what another has said to
//!    a third one.
//! 5. What follows is not the handshake's: each end reads no byte beyond its messages, and the end
//!    that connects sends nothing more before the answer.
//!
//! # What is not protected
//!
//! * **Data**: they travel as they are. Somebody on the way can read and change them, also by
//!   passing on a handshake. Where that matters, let the job use a network of its own
//!   (`--interface`), or an encrypted one, such as WireGuard's.
//! * Heartbeats ([`Heart`]) against somebody on the way who holds them back.
//! * The time of an agent: somebody who fills links or queues delays the making of streams.
//! * PEs and agents against other processes of the same user on the same host.

mod broker;
mod channel;
mod dial;
mod dials;
mod guests;
mod handshake;
mod heartbeat;
mod interfaces;
mod job;
mod listener;
mod poll;
mod route;
mod sealed;
mod seat;
mod secret;
mod switchboard;
#[cfg(test)]
mod tests;

pub use broker::AgentBroker;
pub use heartbeat::{End, HEARTBEAT_BYTES, Heart, heartbeat_node};
pub use interfaces::{Interface, Network, interfaces};
pub use job::{Description, Job, NodeInfo, Wrong};
pub use listener::{Listener, Options, parse_ports};
pub use secret::{Secret, random};
pub use switchboard::Switchboard;
