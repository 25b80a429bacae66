//! The one port of a node.

use super::interfaces::{choose, interfaces};
use super::job::MOST_ADDRESSES;
use memonet_core::unstable::settings::{self, ENV_INTERFACE, ENV_PORTS};
use memonet_core::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

/// Connections that the kernel keeps until the agent takes them.
const BACKLOG: i32 = 4096;
/// How often a port that the kernel chose for one address is tried for the others.
const TRIES: usize = 32;

/// Which ports and addresses to listen on.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ports to choose from; any, where there is none.
    pub ports: Option<RangeInclusive<u16>>,
    /// An interface's name, a network such as `10.1.0.0/16`, or an address; without it, all
    /// addresses that are up and neither loopback nor link-local.
    pub interface: Option<String>,
    /// The address by which the launcher has reached this host: others try it first.
    pub first: Option<IpAddr>,
}

impl Options {
    /// The ports of `MEMONET_PORTS`, and the interface that the command was given, or that of
    /// `MEMONET_INTERFACE`.
    pub fn from_environment(interface: Option<String>) -> Result<Self> {
        let set = |name| settings::value(name).map(|value| value.to_string_lossy().into_owned());
        let ports = set(ENV_PORTS).map(|text| parse_ports(&text)).transpose()?;
        let interface = interface.or_else(|| set(ENV_INTERFACE));
        Ok(Options { ports, interface, first: None })
    }
}

/// Reads `lo-hi`, or one port.
pub fn parse_ports(text: &str) -> Result<RangeInclusive<u16>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
    match (port(low), port(high)) {
        (Some(low), Some(high)) if low <= high => Ok(low..=high),
        _ => Err(Error::Environment {
            name: ENV_PORTS,
            value: text.into(),
            problem: "is no range of TCP ports".into(),
            fix: "Write the lowest and the highest port, such as 40000-40100",
        }),
    }
}

/// A node's listening sockets: one port on each of its addresses, for streams and for datagrams. It
/// is made before the job is known, as its addresses are part of the job.
#[derive(Debug)]
pub struct Listener {
    addresses: Vec<SocketAddr>,
    sockets: Vec<OwnedFd>,
    datagrams: Vec<UdpSocket>,
}

impl Listener {
    /// Listens on the first port that is free on all addresses.
    pub fn bind(options: &Options) -> Result<Self> {
        let wish = options.interface.as_deref();
        let ips = choose(&interfaces()?, wish, options.first, MOST_ADDRESSES)?;
        let ports: Box<dyn Iterator<Item = u16>> = match &options.ports {
            Some(ports) => Box::new(ports.clone()),
            None => Box::new(std::iter::repeat_n(0, TRIES)),
        };
        for port in ports {
            match listen_on(&ips, port) {
                Ok(listener) => return Ok(listener),
                Err((_, Errno::ADDRINUSE)) => {}
                Err((address, e)) => {
                    return Err(Error::System {
                        call: format!("listening on {address}"),
                        answer: e.into(),
                        hint: "Choose other ports (MEMONET_PORTS=lo-hi) or another interface (--interface)",
                    });
                }
            }
        }
        let problem = match &options.ports {
            Some(ports) => format!(
                "each of the ports {}-{} is in use on {}: give {ENV_PORTS} a wider range, or end what uses them (`ss -ltnp` shows it)",
                ports.start(),
                ports.end(),
                list(&ips)
            ),
            None => format!(
                "found no port that is free on all of {}: name a range (MEMONET_PORTS=lo-hi) or one interface (--interface)",
                list(&ips)
            ),
        };
        Err(Error::Fabric { fabric: "tcp", problem, call: None })
    }

    /// The addresses with the port, in the order in which others should try them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes the sockets for datagrams, which do not block.
    pub fn take_datagrams(&mut self) -> Vec<UdpSocket> {
        std::mem::take(&mut self.datagrams)
    }

    /// Its sockets for streams, for a process that keeps them and closes all else.
    pub fn sockets(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// The sockets, one for each address: they do not block.
    pub fn into_sockets(self) -> Vec<OwnedFd> {
        self.sockets
    }
}

fn list(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Listens on one port of all addresses, which the kernel chooses if it is 0. An address that has
/// vanished, or is not ready yet, is left out, unless no other is left.
fn listen_on(ips: &[IpAddr], mut port: u16) -> std::result::Result<Listener, (SocketAddr, Errno)> {
    let (mut addresses, mut sockets, mut datagrams) = (Vec::new(), Vec::new(), Vec::new());
    let mut vanished = None;
    for &ip in ips {
        match listen_at(SocketAddr::new(ip, port)) {
            Ok((address, socket, both)) => {
                port = address.port();
                addresses.push(address);
                sockets.push(socket);
                datagrams.push(both);
            }
            Err(e @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                vanished = Some((SocketAddr::new(ip, port), e));
            }
            Err(e) => return Err((SocketAddr::new(ip, port), e)),
        }
    }
    match vanished {
        Some(failed) if sockets.is_empty() => Err(failed),
        _ => Ok(Listener { addresses, sockets, datagrams }),
    }
}

fn listen_at(address: SocketAddr) -> std::result::Result<(SocketAddr, OwnedFd, UdpSocket), Errno> {
    let socket = stream_socket(&address)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // The kernel keeps connections that have ended for a minute; they do not block the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = getsockname(&socket)?.try_into().map_err(|_| Errno::AFNOSUPPORT)?;
    let refused = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let datagrams = UdpSocket::bind::<SocketAddr>(bound).map_err(refused)?;
    datagrams.set_nonblocking(true).map_err(refused)?;
    Ok((bound, socket, datagrams))
}

/// A socket for streams to or at an address: it does not block, and is closed on exec.
pub(super) fn stream_socket(address: &SocketAddr) -> std::result::Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(ports: Option<RangeInclusive<u16>>) -> Options {
        Options { ports, interface: Some("127.0.0.1".into()), first: None }
    }

    #[test]
    fn one_port_of_all_addresses() {
        let lo = Options { interface: Some("lo".into()), ..Options::default() };
        let listener = Listener::bind(&lo).unwrap();
        let addresses = listener.addresses();
        assert_eq!(addresses.len(), listener.sockets.len());
        for address in addresses {
            assert!(address.ip().is_loopback() && address.port() == addresses[0].port());
            std::net::TcpStream::connect(address).unwrap();
        }
    }

    #[test]
    fn a_range_is_used_up_and_says_so() {
        let first = Listener::bind(&loopback(None)).unwrap();
        let port = first.addresses()[0].port();
        let error = Listener::bind(&loopback(Some(port..=port))).unwrap_err().to_string();
        let range = format!("{port}-{port} is in use on 127.0.0.1");
        assert!(error.contains(&range) && error.contains("MEMONET_PORTS"), "{error}");
        let ports = port..=port.saturating_add(200);
        let second = Listener::bind(&loopback(Some(ports.clone()))).unwrap();
        assert!(ports.contains(&second.addresses()[0].port()));
        drop(first);
        assert!(Listener::bind(&loopback(Some(port..=port))).is_ok());
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_ports("40000-40100").unwrap(), 40000..=40100);
        assert_eq!(parse_ports("40000").unwrap(), 40000..=40000);
        for wrong in ["", "-", "0-5", "5-4", "1-65536", "a-b", "1-2-3"] {
            let error = parse_ports(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("40000-40100"));
        }
    }
}
