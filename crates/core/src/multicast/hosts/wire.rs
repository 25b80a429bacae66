//! The sockets of a channel between hosts: one that sends at the writer, one that receives at each
//! head.

use crate::endpoint::pe::Pe;
use crate::multicast::sockets::{self, HEADERS_BYTES, MOST_DATAGRAM_BYTES};
use rustix::net::sockopt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most addresses of a host that are used.
pub(super) const MOST_ADDRESSES: usize = 8;
/// A datagram that every network takes: the least packet of IPv6 without headers.
const SAFE_BYTES: usize = 1280 - 48;

/// The group of a channel: of 239.192.0.0/14, which is for the networks of one organisation.
pub(super) fn group(number: u64, port: u16) -> SocketAddrV4 {
    let low = number as u32 & ((1 << 18) - 1);
    SocketAddrV4::new(Ipv4Addr::from_bits(Ipv4Addr::new(239, 192, 0, 0).to_bits() | low), port)
}

/// The most bytes of datagrams that are given to the kernel at once.
const MOST_AT_ONCE: usize = 60_000;
/// The part of a receive buffer that bytes of datagrams may take. The rest is for what the kernel
/// keeps with each: nearly as much where datagrams are as small as Ethernet's.
const USABLE_PART: usize = 4;
/// The least of it: no kernel has smaller buffers.
const LEAST_USABLE: usize = 32 << 10;

/// Sends to a group by one interface.
pub(in crate::multicast) struct Sender {
    socket: UdpSocket,
    /// Bytes of a datagram that the interface takes.
    pub(super) most: usize,
    /// Whether the kernel cuts bytes into datagrams of that size.
    cuts: bool,
}

impl Sender {
    /// A way by the interface with this address, with datagrams as large as it takes.
    pub(super) fn open(interface: Ipv4Addr, group: SocketAddrV4) -> std::io::Result<Self> {
        let socket = sockets::socket()?;
        rustix::net::bind(&socket, &SocketAddrV4::new(interface, 0))?;
        sockopt::set_ip_multicast_if(&socket, &interface)?;
        socket.set_nonblocking(true)?;
        // Only a connected socket knows the path's largest packet.
        socket.connect(group)?;
        let payload = sockopt::ip_mtu(&socket)?.saturating_sub(HEADERS_BYTES);
        let most = (payload.min(MOST_DATAGRAM_BYTES) as usize).max(SAFE_BYTES);
        Ok(Sender { socket, most, cuts: false })
    }

    /// The same way with datagrams that every network takes.
    pub(super) fn small(&self) -> std::io::Result<Self> {
        Ok(Sender { socket: self.socket.try_clone()?, most: SAFE_BYTES, cuts: false })
    }

    /// Has the kernel cut what is sent at once, where it can: a call for each datagram would take
    /// longer than the datagrams. Only the way that is chosen may do so, as ways share a socket.
    pub(super) fn cut(mut self) -> Self {
        self.cuts = self.set_cut(self.most);
        self
    }

    /// Has the kernel cut what is sent into datagrams of this size; 0: into none.
    fn set_cut(&self, size: usize) -> bool {
        let size = size as libc::c_int;
        // SAFETY: the option's value is an integer, which lives for the call.
        let set = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        set == 0
    }

    /// Datagrams that are worth sending at once.
    pub(super) fn at_once(&self) -> usize {
        MOST_AT_ONCE / self.most
    }

    /// Sends datagrams of the largest size, of which only the last may be shorter. False if there
    /// is no room for them now. Any other failure loses them, as the network may lose any.
    pub(super) fn send(&mut self, datagrams: &[u8]) -> bool {
        if self.cuts {
            match self.socket.send(datagrams) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // An interface need not be able to. Then it refuses single datagrams, too, for as
                // long as the option is set.
                Err(_) if datagrams.len() > self.most => {
                    self.cuts = false;
                    self.set_cut(0);
                }
                _ => return true,
            }
        }
        let mut datagrams = datagrams.chunks(self.most);
        let sent = datagrams.next().map(|first| self.socket.send(first));
        if let Some(Err(error)) = &sent
            && error.kind() == ErrorKind::WouldBlock
        {
            return false;
        }
        for datagram in datagrams {
            let _sent_or_lost = self.socket.send(datagram);
        }
        true
    }
}

/// Receives what is sent to a group, by all interfaces of the host.
pub(in crate::multicast) struct Receiver {
    pe: Arc<Pe>,
    socket: UdpSocket,
    buffer: Box<[u8]>,
}

impl Receiver {
    /// Joins the group by the interfaces with these addresses, as far as that goes.
    pub(super) fn open(
        pe: &Arc<Pe>,
        group: SocketAddrV4,
        interfaces: impl Iterator<Item = Ipv4Addr>,
    ) -> std::io::Result<Self> {
        let socket = sockets::socket()?;
        // Bound to the group, it takes no datagrams for other addresses.
        rustix::net::bind(&socket, &group)?;
        for interface in interfaces {
            // What does not come by this interface may come by another; the probes show it.
            let _joined = socket.join_multicast_v4(group.ip(), &interface);
        }
        socket.set_nonblocking(true)?;
        pe.progress.sockets.fetch_add(1, Ordering::Relaxed);
        Ok(Receiver { pe: pe.clone(), socket, buffer: vec![0; usize::from(u16::MAX)].into() })
    }

    /// Bytes of datagrams that may wait here.
    pub(super) fn usable(&self) -> usize {
        let all = sockopt::socket_recv_buffer_size(&self.socket).unwrap_or(0);
        (all / USABLE_PART).max(LEAST_USABLE)
    }

    /// The next datagram, if one has come.
    pub(super) fn receive(&mut self) -> Option<&[u8]> {
        // An error says that nothing has come, or is none of this socket's, which sends nothing.
        let len = self.socket.recv(&mut self.buffer).ok()?;
        self.pe.progress.heard.fetch_add(1, Ordering::Relaxed);
        Some(&self.buffer[..len])
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.pe.progress.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What the kernel refuses to cut, here because it is too much at once, goes one by one, and so
    /// does all that follows.
    #[test]
    fn what_cannot_be_cut_is_sent_whole() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let mut sender = Sender { socket, most: 100, cuts: false }.cut();
        if !sender.cuts {
            return;
        }
        assert!(sender.send(&[7; 200 * 100]) && !sender.cuts);
        let mut size: libc::c_int = -1;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: both live for the call, and say how long the value is.
        let got = unsafe {
            libc::getsockopt(
                sender.socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw mut size).cast(),
                &raw mut len,
            )
        };
        assert_eq!((got, size), (0, 0));
        let mut datagram = [0; 300];
        assert_eq!(receiver.recv(&mut datagram).unwrap(), 100);
    }
}
