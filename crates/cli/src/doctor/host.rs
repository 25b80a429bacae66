//! `memonet doctor --as-host`: the doctor's end on a host.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use memonet_core::unstable::launch::{available_cpus, page_size};
use memonet_tcp::agent::{self, AgentBroker, Job, Listener, Switchboard};
use memonet_tcp::{Broker, Event};
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::talk::{About, Address, Check, FromHost, Stream, ToHost, hear, say};
use super::{Bad, Finding, Good, Poor};
use crate::run;

/// How long all streams may take: longer than an agent tries.
const STREAMS: Duration = Duration::from_secs(20);
/// Datagrams that are sent, and the time between two.
const DATAGRAMS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);
/// How long a host listens for datagrams in all.
const LISTENS: Duration = Duration::from_millis(600);

/// What lives until the end of the talk.
#[derive(Default)]
struct Host {
    listener: Option<Listener>,
    /// Serves the streams that others make.
    board: Option<(Switchboard, AgentBroker)>,
    /// Where others reach this host, by IPv4.
    own: Option<Ipv4Addr>,
    caster: Option<(UdpSocket, SocketAddrV4)>,
}

/// Serves a doctor until the input ends.
pub fn run() -> Result<ExitCode> {
    let mut input = std::io::stdin().lock();
    let mut host = Host::default();
    while let Some(message) = hear(&mut input)? {
        let answer = host.answer(message);
        let answer = answer.unwrap_or_else(|error| FromHost::Failed(format!("{error:#}")));
        say(std::io::stdout().lock(), &answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Host {
    fn answer(&mut self, message: ToHost) -> Result<FromHost> {
        Ok(match message {
            ToHost::Begin { interface, ports } => {
                let ports = ports.as_deref().map(agent::parse_ports).transpose()?;
                let options = agent::Options { ports, interface, first: run::reached_at() };
                let listener = Listener::bind(&options)?;
                let four = |ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None };
                self.own = listener.addresses().iter().find_map(|address| four(address.ip()));
                let about = about(&listener)?;
                self.listener = Some(listener);
                FromHost::About(about.into())
            }
            ToHost::Clock => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                FromHost::Clock(now.as_nanos() as u64)
            }
            ToHost::Meet { job } => FromHost::Met(self.meet(&job)?),
            ToHost::Join { group } => {
                let joined = self.join(group).map_err(|error| format!("{error:#}"));
                FromHost::Joined(joined)
            }
            ToHost::Cast { token, node } => FromHost::Heard(self.cast(token, node)?),
        })
    }

    /// Makes a stream to each other node, as the agent and the PE of a job do.
    fn meet(&mut self, job: &[u8]) -> Result<Vec<Stream>> {
        let job = Job::decode(job)?;
        let (me, all) = (job.node, job.nodes.len() as u32);
        let listener = self.listener.take().context("a doctor that does not begin")?;
        let mut board = Switchboard::start(listener, job)?;
        let broker = AgentBroker::new(board.seat(me)?)?;
        (0..all).filter(|&pe| pe != me).try_for_each(|pe| broker.connect(pe))?;
        let (mut streams, begun) = (Vec::new(), Instant::now());
        while streams.len() + 1 < all as usize && begun.elapsed() < STREAMS {
            match broker.next()? {
                Some(Event::Connected { pe: node, socket }) => {
                    let socket = TcpStream::from(socket);
                    let ends = socket.local_addr().and_then(|own| Ok((own, socket.peer_addr()?)));
                    streams.push(Stream { node, way: ends.map_err(|error| error.to_string()) });
                }
                Some(Event::Refused { pe: node, why }) => {
                    streams.push(Stream { node, way: Err(why) });
                }
                // The latter is told of PEs alone.
                Some(Event::Accepted { .. } | Event::Unreached { .. }) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        self.board = Some((board, broker));
        Ok(streams)
    }

    fn join(&mut self, group: SocketAddrV4) -> Result<()> {
        let own = self.own.context("this host has no address of IPv4")?;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &group).context("cannot listen to the group")?;
        sockopt::set_ip_multicast_if(&socket, &own)?;
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v4(group.ip(), &own).context("cannot join the group")?;
        socket.set_read_timeout(Some(PAUSE))?;
        self.caster = Some((socket, group));
        Ok(())
    }

    /// Sends, and listens, and says who was heard.
    fn cast(&mut self, token: u64, node: u32) -> Result<Vec<u32>> {
        let Some((socket, group)) = &self.caster else { bail!("a doctor that joins no group") };
        let (begun, mut sent, mut heard) = (Instant::now(), 0, BTreeSet::new());
        let mut own = token.to_le_bytes().to_vec();
        own.extend(node.to_le_bytes());
        while begun.elapsed() < LISTENS {
            if sent < DATAGRAMS {
                // Of several datagrams one is enough.
                let _ = socket.send_to(&own, group);
                sent += 1;
            }
            let mut bytes = [0; 12];
            match socket.recv(&mut bytes) {
                Ok(12) if bytes[..8] == token.to_le_bytes() => {
                    heard.extend(bytes[8..].try_into().map(u32::from_le_bytes));
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("cannot receive datagrams"),
            }
        }
        heard.remove(&node);
        Ok(heard.into_iter().collect())
    }
}

fn about(listener: &Listener) -> Result<About> {
    let address = |one: agent::Interface| Address {
        mtu: mtu(&one.name),
        interface: one.name,
        address: one.network.address,
        prefix: one.network.prefix,
    };
    Ok(About {
        version: run::version(),
        path: run::this_program()?.display().to_string(),
        architecture: std::env::consts::ARCH.into(),
        page: page_size() as u32,
        cpus: available_cpus() as u32,
        checks: super::CHECKS.iter().map(|check| described(check())).collect(),
        addresses: agent::interfaces()?.into_iter().map(address).collect(),
        listening: listener.addresses().to_vec(),
        libfabric: memonet_fabrics::hardware(),
    })
}

fn described(finding: Finding) -> Check {
    let (bad, fix) = match finding.verdict {
        Good => (false, None),
        Poor { fix } => (false, Some(fix)),
        Bad { fix } => (true, Some(fix)),
    };
    Check { what: finding.what.into(), found: finding.found, bad, fix }
}

/// The most bytes of a packet through an interface. The kernel is asked, as the files in /sys may
/// be those of another network namespace.
fn mtu(interface: &str) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    // SAFETY: all zeros are a request with an empty name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let places = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    places.zip(interface.bytes()).for_each(|(place, byte)| *place = byte as libc::c_char);
    // SAFETY: the request is one, and outlives the call, which writes the MTU into it.
    unsafe {
        let done = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request);
        (done == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}
