//! The raw limit of multicast between hosts: bare datagrams from PE 0 to a group, which the first
//! PE of each other host counts. Nothing is checked, repaired or held back: what a buffer does not
//! take is lost, and counts for nothing.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use crate::bench::toolkit::Bench;
use crate::run;

/// Bytes of a datagram: as many as every Ethernet takes.
const DATAGRAM: usize = 1472;
/// Bytes that a receive buffer is asked to hold.
const BUFFER: usize = 4 << 20;
/// A pause so long ends a sample: all that was sent has come, or is lost.
const PAUSE: Duration = Duration::from_millis(200);

/// A PE's socket.
pub struct RawGroup {
    socket: UdpSocket,
    group: SocketAddr,
    sends: bool,
}

impl RawGroup {
    /// Opens the sockets of PE 0 and of the first PEs of the other hosts. All PEs call this; the
    /// others get nothing, nor do those of a host without an address of IPv4.
    pub fn meet(bench: &Bench<'_>) -> Result<Option<Self>> {
        let (job, Some(of_host)) = (bench.job, bench.far_peer()) else { return Ok(None) };
        let window = job.window::<u64>(1)?;
        let listener = run::listen(bench.interface())?;
        let ipv4 = listener.addresses().iter().find_map(|address| match address {
            SocketAddr::V4(address) => Some(*address),
            SocketAddr::V6(_) => None,
        });
        if job.pe() == 0 {
            let port = ipv4.map_or(0, |address| address.port());
            for pe in 0..job.npes() {
                window.put_one(pe, 0, u64::from(port))?;
            }
        }
        job.barrier()?;
        let port = window.read(0) as u16;
        let takes_part = job.pe() % of_host == 0 && port > 0;
        let Some(own) = ipv4.filter(|_| takes_part) else {
            job.barrier()?;
            return Ok(None);
        };
        // The port of a listener tells jobs apart.
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 195, 255, 1), port);
        let opened = Self::open(group, *own.ip(), job.pe() == 0);
        job.barrier()?;
        opened.map(Some)
    }

    fn open(group: SocketAddrV4, own: Ipv4Addr, sends: bool) -> Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        if sends {
            bind(&socket, &SocketAddrV4::new(own, 0))?;
            sockopt::set_ip_multicast_if(&socket, &own)?;
            return Ok(RawGroup { socket: socket.into(), group: group.into(), sends });
        }
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        }
        bind(&socket, &group).context("cannot listen to the bare group")?;
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v4(group.ip(), &own).context("cannot join the bare group")?;
        socket.set_read_timeout(Some(PAUSE))?;
        Ok(RawGroup { socket, group: group.into(), sends })
    }

    /// Sends so many bytes, or receives what comes of them. Gives the bytes that came in a second,
    /// at an end that receives.
    pub fn stream(&self, bytes: usize) -> Result<Option<f64>> {
        let mut datagram = [0; DATAGRAM];
        if self.sends {
            for _ in 0..bytes.div_ceil(DATAGRAM) {
                // One that is not sent is lost, too.
                let _sent = self.socket.send_to(&datagram, self.group);
            }
            return Ok(None);
        }
        let (mut came, mut begun, mut ended) = (0, None, Instant::now());
        // The first pause is that before the beginning.
        while came < bytes
            && let Ok(len) = self.socket.recv(&mut datagram)
        {
            ended = Instant::now();
            // The first datagram begins the time, and counts for nothing.
            match begun {
                None => begun = Some(ended),
                Some(_) => came += len,
            }
        }
        let time = begun.map_or(Duration::ZERO, |begun| ended - begun).as_secs_f64();
        Ok((came > 0 && time > 0.0).then(|| came as f64 / time))
    }
}
