//! What `memonet doctor --hosts` and its end on each host say to each other: lines, by standard
//! input and output of the call.
//!
//! ```text
//!   doctor                           host (`memonet doctor --as-host`)
//!     │  Clock ──────────────────────►  │  to be greeted
//!     │  ◄────────────────────── Clock  │
//!     │  Begin ──────────────────────►  │  listens as an agent does
//!     │  ◄────────────────────── About  │
//!     │  Clock ──────────────────────►  │  a few times, to compare
//!     │  ◄────────────────────── Clock  │
//!     │  Meet ───────────────────────►  │  streams to all others, by the handshake of agents
//!     │  ◄──────────────────────── Met  │
//!     │  Join ───────────────────────►  │  of a multicast group
//!     │  ◄───────────────────── Joined  │
//!     │  Cast ───────────────────────►  │  sends datagrams, and listens for those of others
//!     │  ◄────────────────────── Heard  │
//!     │  end of the input ───────────►  │  ends
//! ```
//!
//! Lines without the mark are a login shell's.

use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The beginning of each line.
const MARK: &str = "memonet-doctor ";

/// From the doctor to a host.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToHost {
    /// Say what you are. The interface and `MEMONET_PORTS` are the user's.
    Begin { interface: Option<String>, ports: Option<String> },
    /// Say what time it is.
    Clock,
    /// Be the only PE of your node in this job, and make a stream to each other one.
    Meet { job: Vec<u8> },
    /// Join this group.
    Join { group: SocketAddrV4 },
    /// Send to the group, and say whose datagrams came.
    Cast { token: u64, node: u32 },
}

/// From a host to the doctor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromHost {
    About(Box<About>),
    /// Nanoseconds since 1970.
    Clock(u64),
    /// What became of the stream to each other node.
    Met(Vec<Stream>),
    /// Whether the group could be joined, or why not.
    Joined(Result<(), String>),
    /// Nodes whose datagrams came.
    Heard(Vec<u32>),
    /// It cannot be.
    Failed(String),
}

/// A host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct About {
    pub version: String,
    pub path: String,
    pub architecture: String,
    pub page: u32,
    pub cpus: u32,
    pub checks: Vec<Check>,
    pub addresses: Vec<Address>,
    /// Where its agent listens, in the order in which others try it.
    pub listening: Vec<SocketAddr>,
    /// The hardware that libfabric finds, or why there is none.
    pub libfabric: Result<String, String>,
}

/// A check that `memonet doctor` makes on one machine, too.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    pub what: String,
    pub found: String,
    /// Whether no job can run.
    pub bad: bool,
    pub fix: Option<String>,
}

/// An address of an interface that is up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Address {
    pub interface: String,
    pub address: IpAddr,
    pub prefix: u8,
    /// Bytes of a packet.
    pub mtu: Option<u32>,
}

/// A stream to another node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stream {
    pub node: u32,
    /// Both addresses of the stream, or why there is none.
    pub way: Result<(SocketAddr, SocketAddr), String>,
}

/// Writes one message.
pub fn say(mut to: impl Write, message: &impl Serialize) -> Result<()> {
    let line = format!("{MARK}{}\n", serde_json::to_string(message)?);
    to.write_all(line.as_bytes())?;
    Ok(to.flush()?)
}

/// Reads the next message; nothing at the end.
pub fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes);
        // A prompt may stand before it.
        if let Some((_, message)) = line.split_once(MARK) {
            let read = serde_json::from_str(message);
            return read.map(Some).context("a line that no doctor of this version writes");
        }
    }
}
