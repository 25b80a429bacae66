//! UDP sockets as a carrier of datagrams. Each end has a socket that receives the group's
//! datagrams, and one of its own, which sends, and on which the writer receives statuses.

use super::datagrams::{Carrier, MOST_AT_ONCE};
use crate::base::error::{Error, Result};
use crate::endpoint::pe::Pe;
use memonet_repair::To;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest datagram: it fits a jumbo frame.
pub(super) const MOST_DATAGRAM_BYTES: u32 = 8900;
/// Headers of IPv4 and UDP.
pub(super) const HEADERS_BYTES: u32 = 28;
/// The requested size of receive buffers.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The destination of datagrams to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// A multicast address and the first of 256 ports, of which each channel uses one.
    pub(super) address: SocketAddrV4,
    /// Address of the interface to use; unspecified: that of the route to the group.
    pub(super) interface: Ipv4Addr,
}

impl Group {
    /// Parses `ADDRESS:PORT` or `ADDRESS:PORT@INTERFACE`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, interface) = match text.split_once('@') {
            Some((address, interface)) => (address, interface.parse().ok()?),
            None => (text, Ipv4Addr::UNSPECIFIED),
        };
        let address: SocketAddrV4 = address.parse().ok()?;
        // With port 0 each member's kernel would choose another.
        let has_ports = (1..=u16::MAX - 255).contains(&address.port());
        (address.ip().is_multicast() && has_ports).then_some(Group { address, interface })
    }
}

/// A socket that programs started by this process do not inherit.
pub(super) fn socket() -> std::io::Result<UdpSocket> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // A buffer beyond the kernel's usual limit needs a privilege. With a smaller one there is more
    // to repair.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    }
    Ok(UdpSocket::from(socket))
}

/// The sockets of an end.
pub(super) struct Sockets {
    pe: Arc<Pe>,
    group: SocketAddr,
    /// The address at which the channel's writer receives statuses. It is agreed on when the
    /// channel is made: an outsider could forge the sender of a datagram.
    writer: SocketAddr,
    incoming: UdpSocket,
    own: UdpSocket,
    /// The address at which this PE receives datagrams for itself alone.
    address: SocketAddrV4,
    buffer: Box<[u8]>,
}

impl Sockets {
    /// Opens the sockets of a channel. Gives also the largest datagram, in bytes, that this PE's
    /// interface takes.
    pub(super) fn open(pe: &Arc<Pe>, group: &Group, channel: u32) -> Result<(Self, usize)> {
        let address =
            SocketAddrV4::new(*group.address.ip(), group.address.port() + (channel % 256) as u16);
        let failed = |what: &str, error: std::io::Error| {
            Error::system(
                format!("{what} {address} for multicast"),
                error,
                "Is there a route to the group (`ip route add 224.0.0.0/4 dev ...`)? Name an interface's address in MEMONET_MULTICAST=udp:GROUP:PORT@ADDRESS, or unset it",
            )
        };
        let open = || -> std::io::Result<(Self, usize)> {
            let (incoming, own) = (socket()?, socket()?);
            rustix::net::bind(&incoming, &address)?;
            incoming.join_multicast_v4(address.ip(), &group.interface)?;
            rustix::net::bind(&own, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&own, &group.interface)?;
            // Only a connected socket knows the path's largest packet, and the source address of
            // its packets.
            let probe = socket()?;
            rustix::net::bind(&probe, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&probe, &group.interface)?;
            probe.connect(address)?;
            let payload = sockopt::ip_mtu(&probe)?.saturating_sub(HEADERS_BYTES);
            let most = payload.min(MOST_DATAGRAM_BYTES) as usize;
            let own_address = match (probe.local_addr()?, own.local_addr()?) {
                (SocketAddr::V4(probe), SocketAddr::V4(own)) => {
                    SocketAddrV4::new(*probe.ip(), own.port())
                }
                _ => unreachable!("sockets of IPv4"),
            };
            incoming.set_nonblocking(true)?;
            own.set_nonblocking(true)?;
            pe.progress.sockets.fetch_add(1, Ordering::Relaxed);
            let sockets = Sockets {
                pe: pe.clone(),
                group: address.into(),
                writer: address.into(),
                incoming,
                own,
                address: own_address,
                buffer: vec![0; usize::from(u16::MAX)].into(),
            };
            Ok((sockets, most))
        };
        open().map_err(|error| failed("opening sockets of", error))
    }
}

impl Carrier for Sockets {
    fn address(&self) -> u64 {
        u64::from(self.address.ip().to_bits()) << 16 | u64::from(self.address.port())
    }

    fn set_writer(&mut self, address: u64) {
        self.writer =
            SocketAddrV4::new(Ipv4Addr::from_bits((address >> 16) as u32), address as u16).into();
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut all = true;
        for socket in [&self.incoming, &self.own] {
            let mut taken = 0;
            all &= loop {
                if taken == MOST_AT_ONCE {
                    break false;
                }
                match socket.recv(&mut self.buffer) {
                    Ok(len) => {
                        self.pe.progress.heard.fetch_add(1, Ordering::Relaxed);
                        take(&self.buffer[..len]);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The fate of an earlier datagram that this socket sent: the next call goes on.
                    Err(_) => break true,
                }
                taken += 1;
            };
        }
        Ok(all)
    }

    fn send(&mut self, datagram: &[u8], to: To) -> Result<()> {
        let to = match to {
            To::Writer => self.writer,
            To::All => self.group,
        };
        match self.own.send_to(datagram, to) {
            Ok(_) => Ok(()),
            Err(error) if is_for_now(error.kind()) => Ok(()),
            Err(error) => Err(Error::system(
                "sending a multicast datagram",
                error,
                "Is the interface still up?",
            )),
        }
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::OutOfMemory
            | ErrorKind::ConnectionRefused
    )
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.pe.progress.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read() {
        let group = Group::parse("239.7.7.7:4000").unwrap();
        assert_eq!(
            (group.address.to_string().as_str(), group.interface),
            ("239.7.7.7:4000", Ipv4Addr::UNSPECIFIED)
        );
        assert_eq!(
            Group::parse("239.7.7.7:4000@127.0.0.1").unwrap().interface,
            Ipv4Addr::LOCALHOST
        );
        for bad in [
            "",
            "239.7.7.7",
            "10.0.0.1:4000",
            "239.7.7.7:0",
            "239.7.7.7:65500",
            "239.7.7.7:4000@",
            "239.7.7.7:4000@x",
        ] {
            assert_eq!(Group::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn programs_that_a_pe_starts_have_no_sockets_of_it() {
        let flags = rustix::io::fcntl_getfd(socket().unwrap()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
