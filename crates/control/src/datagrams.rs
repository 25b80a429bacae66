//! Sockets for heartbeats, which agents and launchers send to each other beside their streams.
//!
//! Where datagrams do not pass, nothing comes, and the heartbeats of the streams alone count. So no
//! failed send is an error.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::Result;

use super::events::listen;

/// Longer than any heartbeat: one of this length or more is none.
const LONGEST_BYTES: usize = 256;
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
    ///
    /// # Errors
    /// Of the system.
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
        let mut bytes = [0; LONGEST_BYTES];
        for socket in &self.0 {
            for _ in 0..AT_ONCE {
                // An error is that of an earlier datagram, or says that nothing has come.
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { break };
                take(&bytes[..len], from);
            }
        }
    }
}
