//! Heartbeats between launcher and agents as datagrams, beside the control streams.
//!
//! What the state machines say ([`Heart`], [`Vigil`](memonet_control::vigil::Vigil)) is sent and
//! received here. The launcher sends to all addresses of an agent. The agent sends to where the
//! last true heartbeat came from, so it needs to know no address.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::Result;
pub use memonet_control::datagrams::Datagrams;
use memonet_tcp::agent::{Heart, heartbeat_node};

/// An agent's part of the heartbeats.
pub struct Pulse {
    heart: Heart,
    datagrams: Datagrams,
    /// Where the launcher's last true heartbeat came from.
    launcher: Option<SocketAddr>,
}

impl Pulse {
    /// Begins to listen; `events` reports `token`.
    pub fn begin(
        heart: Heart,
        datagrams: Datagrams,
        events: &OwnedFd,
        token: u64,
    ) -> Result<Pulse> {
        datagrams.listen(events, token)?;
        Ok(Pulse { heart, datagrams, launcher: None })
    }

    /// Sends a heartbeat.
    pub fn beat(&mut self) {
        if let Some(to) = self.launcher {
            self.datagrams.send(&self.heart.beat(), to);
        }
    }

    /// Whether the launcher was heard.
    pub fn hear(&mut self) -> bool {
        let Pulse { heart, datagrams, launcher } = self;
        let mut heard = false;
        datagrams.receive(|bytes, from| {
            if heart.hears(bytes) {
                heard = true;
                *launcher = Some(from);
            }
        });
        heard
    }
}

/// The node whose agent may have sent these bytes.
pub fn node_of(datagram: &[u8]) -> Option<usize> {
    heartbeat_node(datagram).map(|node| node as usize)
}
