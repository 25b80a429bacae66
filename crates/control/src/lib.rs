//! The control stream between the launcher and an agent: what they say to each other. All but
//! [`stream`], [`datagrams`] and [`events`] is about bytes, and reads and writes nothing.
//!
//! ```text
//!   launcher                                       agent
//!      │  greeting, Job ─────────────────────────►   │  started by ssh: its standard input and output
//!      │  ◄──── (a login shell's words) greeting     │
//!      │  ◄───────────────────────── Ready, Refused  │
//!      │  Start ─────────────────────────────────►   │  once all agents are ready
//!      │  ◄──────────────────────────────── Started  │
//!      │  Stdin, Signal, Exit, State, ... ───────►   │
//!      │  ◄─────────────── Output, Ended, State, ... │
//!      │  ◄─────────────────────────────── Finished  │
//! ```
//!
//! After the greeting, which names the version, each message is cut into frames of at most
//! [`FRAME_BYTES`](frames::FRAME_BYTES). An empty frame is a heartbeat, and may stand between the
//! frames of one message. The kernel writes a frame to a pipe in one piece, so that two processes
//! can write to one stream: the launcher, and its guard, which goes on with the heartbeats while
//! the launcher is stopped.
//!
//! Under another launcher there is no such stream. There agents have streams to each other, on
//! which they say what is in [`AmongAgents`](messages::AmongAgents). That is `memonet_fabrics`'
//! part.

pub mod codec;
pub mod datagrams;
pub mod deaths;
pub mod departures;
pub mod descriptors;
pub mod events;
pub mod frames;
pub mod messages;
pub mod relay;
pub mod stream;
pub mod vigil;

use std::time::Duration;

/// All other ends must have answered for the first time within this time.
pub const START: Duration = Duration::from_secs(15);
