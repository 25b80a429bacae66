//! Heartbeats between launcher and agents as datagrams, beside the control streams.
//!
//! What the state machines say ([`Heart`], [`Vigil`](memonet_control::vigil::Vigil)) is sent and
//! received here. The launcher sends to all addresses of an agent. The agent sends to where the
//! last true heartbeat came from, so it needs to know no address. Where datagrams do not pass,
//! nothing comes, and the heartbeats of the stream alone count. So no failed send is an error.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::Result;
use memonet_tcp::agent::{HEARTBEAT_BYTES, Heart, heartbeat_node};

use memonet_control::events::listen;

/// Datagrams that are looked at in a pass: a flood does not keep the loop from its other work.
const AT_ONCE: usize = 256;

/// Sockets that do not block.
pub struct Datagrams(Vec<UdpSocket>);

impl Datagrams {
    /// The launcher's: the kernel chooses its address for each destination.
    pub fn of_launcher() -> Datagrams {
        let any = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), (Ipv6Addr::UNSPECIFIED, 0).into()];
        // Without one of the two families, nothing is sent by it.
        let sockets = any.into_iter().filter_map(|address| UdpSocket::bind(address).ok());
        Datagrams(sockets.filter(|socket| socket.set_nonblocking(true).is_ok()).collect())
    }

    /// An agent's: bound to its addresses.
    pub fn of_agent(sockets: Vec<UdpSocket>) -> Datagrams {
        Datagrams(sockets)
    }

    /// Has `events` report `token` when something has come.
    pub fn listen(&self, events: &OwnedFd, token: u64) -> Result<()> {
        self.0.iter().try_for_each(|socket| listen(events, socket, token))
    }

    /// Sends by the sockets that can reach this address.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) {
        let alike = |socket: &&UdpSocket| {
            socket.local_addr().is_ok_and(|own| own.is_ipv4() == to.is_ipv4())
        };
        for socket in self.0.iter().filter(alike) {
            let _ = socket.send_to(bytes, to);
        }
    }

    /// What has come, and from where.
    pub fn receive(&self, mut take: impl FnMut(&[u8], SocketAddr)) {
        // One byte more, so that a longer one is none of these.
        let mut bytes = [0; HEARTBEAT_BYTES + 1];
        for socket in &self.0 {
            for _ in 0..AT_ONCE {
                // An error is that of an earlier datagram, or says that nothing has come.
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { break };
                take(&bytes[..len], from);
            }
        }
    }
}

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
