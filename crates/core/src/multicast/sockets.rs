//! UDP sockets as a carrier of datagrams: at each end one that hears the group, and one of its own,
//! from which it sends and on which the writer hears statuses.

use super::datagrams::{Carrier, MOST_AT_ONCE};
use crate::base::error::{Error, Result};
use crate::endpoint::pe::Pe;
use memonet_repair::To;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes of a datagram: what fits into a jumbo frame.
const MOST_DATAGRAM: u32 = 8900;
/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;
/// What receive buffers are asked to hold.
const BUFFER: usize = 4 << 20;

/// Where datagrams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// A multicast address and the first of 256 ports, of which each channel uses one.
    pub(super) address: SocketAddrV4,
    /// Address of the interface to use; unspecified: as the route to the group says.
    pub(super) interface: Ipv4Addr,
}

impl Group {
    /// From `ADDRESS:PORT` or `ADDRESS:PORT@INTERFACE`.
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

/// Programs that this process starts do not have it.
fn socket() -> std::io::Result<UdpSocket> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // More than the kernel's usual limit needs a privilege; with less there is more to repair.
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
    }
    Ok(UdpSocket::from(socket))
}

/// The sockets of an end.
pub(super) struct Sockets {
    pe: Arc<Pe>,
    group: SocketAddr,
    /// Where the channel's writer hears statuses: agreed when it is made, as what a datagram says
    /// of its sender a stranger may say, too.
    writer: SocketAddr,
    hears: UdpSocket,
    own: UdpSocket,
    /// Where this PE hears what is for it alone.
    address: SocketAddrV4,
    buffer: Box<[u8]>,
}

impl Sockets {
    /// Opens the sockets of a channel; also the most bytes of a datagram that this PE's interface
    /// takes.
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
            let (hears, own) = (socket()?, socket()?);
            rustix::net::bind(&hears, &address)?;
            hears.join_multicast_v4(address.ip(), &group.interface)?;
            rustix::net::bind(&own, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&own, &group.interface)?;
            // Only a connected socket knows the way's largest packet, and which address packets
            // come from.
            let probe = socket()?;
            rustix::net::bind(&probe, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&probe, &group.interface)?;
            probe.connect(address)?;
            let most =
                (sockopt::ip_mtu(&probe)?.saturating_sub(HEADERS)).min(MOST_DATAGRAM) as usize;
            let own_address = match (probe.local_addr()?, own.local_addr()?) {
                (SocketAddr::V4(probe), SocketAddr::V4(own)) => {
                    SocketAddrV4::new(*probe.ip(), own.port())
                }
                _ => unreachable!("sockets of IPv4"),
            };
            hears.set_nonblocking(true)?;
            own.set_nonblocking(true)?;
            pe.progress.sockets.fetch_add(1, Ordering::Relaxed);
            let sockets = Sockets {
                pe: pe.clone(),
                group: address.into(),
                writer: address.into(),
                hears,
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
        for socket in [&self.hears, &self.own] {
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
                    // What an earlier datagram met on its way: the next look goes on.
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
