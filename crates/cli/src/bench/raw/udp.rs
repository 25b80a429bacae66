//! The raw limit of multicast over UDP: bare sockets on the loopback interface, between equally
//! many processes. Equally many bytes go in equally large datagrams, without checks or repair.
//! Words of shared memory keep the writer from sending more than a socket's buffer holds.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memonet::{ENV_MULTICAST, Job, Window};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::bench::raw;

/// Bytes of a datagram: as many as in those of a channel.
const DATAGRAM: usize = 8900;
/// Bytes that a receive buffer is asked to hold.
const BUFFER: usize = 2 << 20;
/// The most bytes that a datagram takes in such a buffer, with the kernel's own data.
const BUFFER_OF_ONE: usize = 32 << 10;
/// A datagram that takes longer was lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// Words of a line: each count has a line of its own.
const LINE: usize = 16;

/// The variable that makes a job's channels use UDP on the loopback interface, and a group that no
/// concurrent job uses.
pub fn environment() -> (String, String) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = Ipv4Addr::new(239, 77, high, low);
    (ENV_MULTICAST.into(), format!("udp:{group}:7700@{}", Ipv4Addr::LOCALHOST))
}

/// The group, with a port that the job's channels do not use.
fn group() -> Result<SocketAddrV4> {
    let way = std::env::var(ENV_MULTICAST).unwrap_or_default();
    let (group, _) = way.trim_start_matches("udp:").split_once('@').unwrap_or_default();
    let mut group: SocketAddrV4 = group.parse().with_context(|| {
        format!("{ENV_MULTICAST}={way} is not the value that the bench has set")
    })?;
    group.set_port(group.port() + 256);
    Ok(group)
}

/// A PE's socket: PE 0 sends, all others receive what is sent to the group.
pub struct RawUdp<'a> {
    socket: UdpSocket,
    group: SocketAddrV4,
    /// Datagrams that a reader's buffer holds. The more there are, the less often processes take
    /// turns.
    most_under_way: u64,
    /// Datagrams that this PE has sent or received.
    count: Cell<u64>,
    /// Datagrams that each reader has received.
    received: Vec<&'a AtomicU64>,
    /// Number of this PE among the readers.
    reader: Option<usize>,
}

impl<'a> RawUdp<'a> {
    /// Words of the window that it needs.
    pub fn words(job: &Job) -> usize {
        job.npes() * LINE
    }

    /// `None` where PE 0 is far. The words of the window must be 0 before all PEs call this, and a
    /// barrier must follow.
    pub fn new(job: &Job, words: &'a Window<u64>) -> Result<Option<Self>> {
        let Some(base) = super::near(job, words, 0) else { return Ok(None) };
        let group = group()?;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let reader = job.pe().checked_sub(1);
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        }
        // Equal on all PEs, so the writer may use its own value.
        let most_under_way =
            (sockopt::socket_recv_buffer_size(&socket)? / BUFFER_OF_ONE).max(1) as u64;
        if reader.is_some() {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &group)?;
        } else {
            sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)?;
        }
        let socket = UdpSocket::from(socket);
        if reader.is_some() {
            socket.join_multicast_v4(group.ip(), &Ipv4Addr::LOCALHOST)?;
            socket.set_read_timeout(Some(LOST_AFTER))?;
        }
        // SAFETY: words of a window that is borrowed for `'a`. All PEs access them as 64 bits.
        let word = |reader: usize| unsafe { raw::word(base.wrapping_add(reader * LINE)) };
        Ok(Some(Self {
            socket,
            group,
            most_under_way,
            count: Cell::new(0),
            received: (0..job.npes() - 1).map(word).collect(),
            reader,
        }))
    }

    pub fn send(&self, block: &[u8]) -> Result<()> {
        for part in block.chunks(DATAGRAM) {
            let least = || self.received.iter().map(|count| count.load(Ordering::Acquire)).min();
            while self.count.get() - least().unwrap_or(self.count.get()) >= self.most_under_way {
                rustix::thread::sched_yield();
            }
            self.socket.send_to(part, self.group)?;
            self.count.set(self.count.get() + 1);
        }
        Ok(())
    }

    pub fn receive(&self, block: &mut [u8]) -> Result<()> {
        for part in block.chunks_mut(DATAGRAM) {
            let len = self.socket.recv(part).context("a bare datagram was lost")?;
            ensure!(
                len == part.len(),
                "a bare datagram of {len} bytes arrived instead of one of {}",
                part.len()
            );
            self.count.set(self.count.get() + 1);
            if let Some(reader) = self.reader {
                self.received[reader].store(self.count.get(), Ordering::Release);
            }
        }
        Ok(())
    }
}
