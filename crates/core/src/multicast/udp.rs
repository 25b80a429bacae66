//! Datagrams: the log goes by UDP multicast, and [`memonet_repair`] makes it whole.
//!
//! Each end has two sockets: one that hears the group, and one of its own, from which it sends and on which the writer hears statuses. They are never waited for: whoever waits
//! for anything in this PE lets the channel work ([`Relay`]), as for the tree. So there is no thread and nothing to hand over between threads, and while a PE waits it looks at its sockets
//! as often as at memory. A PE that computes answers later: its readers' buffers hold what comes meanwhile up to the protocol's window, and the writer waits or repairs.
//!
//! The ring of each end is in its own segment. What the protocol has received in order up to some position are whole records and perhaps the beginning of one more; a reader
//! takes no record before all of it is there. As all bytes of the log are received, nobody needs zeros behind records. That a reader leaves it says in its line at the writer, by a signal.

use super::ring::{Header, Ring};
use super::tree::Upstream;
use super::writer::{LEFT, Line};
use crate::barrier::Relay;
use crate::error::{Error, Result};
use crate::pe::Pe;
use crate::shm;
use crate::wait;
use crate::window::Inner;
use memonet_repair as repair;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Most bytes of a datagram: what fits into a jumbo frame.
const MOST_DATAGRAM: u32 = 8900;
/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;
/// Bytes under way to a reader: what the smallest usual receive buffer holds, with what the kernel needs around them.
const WINDOW: u64 = 128 << 10;
/// What receive buffers are asked to hold.
const BUFFER: usize = 4 << 20;
/// A writer that never waits looks at its sockets each time that it has written so many bytes: what readers miss is to be repaired long before they stop it.
const LOOK_EACH: u64 = WINDOW / 8;
/// Datagrams taken in one go, of each socket;
const MOST_AT_ONCE: usize = 64;
/// and how often in one look. It ends even where a stranger sends faster than this PE can refuse, and the next look goes on.
const MOST_GOES: usize = 16;

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
        (address.ip().is_multicast() && address.port() <= u16::MAX - 255).then_some(Group { address, interface })
    }
}

/// The sockets of an end.
pub(super) struct Link {
    pe: Arc<Pe>,
    group: SocketAddr,
    /// Where the channel's writer hears statuses: agreed when it is made, as what a datagram says of its sender a stranger may say, too.
    writer: SocketAddr,
    hears: UdpSocket,
    own: UdpSocket,
    buffer: Box<[u8]>,
    out: Box<[u8]>,
}

impl Link {
    /// Opens the sockets of a channel; also the most bytes of a datagram that this PE's interface takes, and where this PE hears what is for it alone.
    pub(super) fn open(pe: &Arc<Pe>, group: &Group, channel: u32) -> Result<(Self, usize, SocketAddrV4)> {
        let address = SocketAddrV4::new(*group.address.ip(), group.address.port() + (channel % 256) as u16);
        let failed = |what: &str, error: std::io::Error| {
            Error::system(
                format!("{what} {address} for multicast"),
                error,
                "Is there a route to the group (`ip route add 224.0.0.0/4 dev ...`)? Name an interface's address in MEMONET_MULTICAST=udp:GROUP:PORT@ADDRESS, or unset it",
            )
        };
        let socket = || -> std::io::Result<UdpSocket> {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            // More than the kernel's usual limit needs a privilege; with less there is more to repair.
            if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
                sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
            }
            Ok(UdpSocket::from(socket))
        };
        let open = || -> std::io::Result<(Self, usize, SocketAddrV4)> {
            let (hears, own) = (socket()?, socket()?);
            rustix::net::bind(&hears, &address)?;
            hears.join_multicast_v4(address.ip(), &group.interface)?;
            rustix::net::bind(&own, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&own, &group.interface)?;
            // Only a connected socket knows the way's largest packet, and which address packets come from.
            let probe = socket()?;
            rustix::net::bind(&probe, &SocketAddrV4::new(group.interface, 0))?;
            sockopt::set_ip_multicast_if(&probe, &group.interface)?;
            probe.connect(address)?;
            let most = (sockopt::ip_mtu(&probe)?.saturating_sub(HEADERS)).min(MOST_DATAGRAM) as usize;
            let own_address = match (probe.local_addr()?, own.local_addr()?) {
                (SocketAddr::V4(probe), SocketAddr::V4(own)) => SocketAddrV4::new(*probe.ip(), own.port()),
                _ => unreachable!("sockets of IPv4"),
            };
            hears.set_nonblocking(true)?;
            own.set_nonblocking(true)?;
            pe.sockets.fetch_add(1, Ordering::Relaxed);
            let link = Link {
                pe: pe.clone(),
                group: address.into(),
                writer: address.into(),
                hears,
                own,
                buffer: vec![0; usize::from(u16::MAX)].into(),
                out: vec![0; MOST_DATAGRAM as usize].into(),
            };
            Ok((link, most, own_address))
        };
        open().map_err(|error| failed("opening sockets of", error))
    }

    /// Tells it where the channel's writer is.
    pub(super) fn set_writer(&mut self, writer: SocketAddrV4) {
        self.writer = writer.into();
    }

    /// Takes what has come; whether that was all.
    fn receive(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let mut all = true;
        for socket in [&self.hears, &self.own] {
            let mut taken = 0;
            all &= loop {
                if taken == MOST_AT_ONCE {
                    break false;
                }
                match socket.recv(&mut self.buffer) {
                    Ok(len) => {
                        self.pe.heard.fetch_add(1, Ordering::Relaxed);
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
        all
    }

    /// Sends a datagram from `out`. One that cannot be sent now is lost, as any may be, and repaired.
    fn send(&self, len: usize, to: SocketAddr) -> Option<std::io::Error> {
        let sent = self.own.send_to(&self.out[..len], to);
        sent.err().filter(|error| {
            !matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::OutOfMemory | ErrorKind::ConnectionRefused
            )
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.pe.sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What both ends are configured with.
pub(super) fn config(pe: &Pe, channel: u32, readers: usize, capacity: u64, datagram: usize) -> repair::Config {
    repair::Config {
        job: pe.control().job_id(),
        channel,
        // No number is given twice.
        epoch: 0,
        readers: readers as u16,
        capacity,
        window: WINDOW.min(capacity),
        datagram,
        timing: repair::Timing::LOCAL,
    }
}

impl repair::Log for Ring {
    fn read(&self, position: u64, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let at = position + done as u64;
            let len = (to.len() - done).min((self.len() - (at & (self.len() - 1))) as usize);
            // SAFETY: inside of the ring, up to its end; `to` is private memory.
            unsafe { shm::copy(to[done..].as_mut_ptr(), self.at(at), len) };
            done += len;
        }
    }
}

impl repair::Store for Ring {
    fn write(&mut self, position: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = position + done as u64;
            let len = (from.len() - done).min((self.len() - (at & (self.len() - 1))) as usize);
            // SAFETY: as above; the protocol stores only what was missing, which nobody reads yet.
            unsafe { shm::copy(self.at(at), from[done..].as_ptr(), len) };
            done += len;
        }
    }
}

fn lock<T>(work: &Mutex<T>) -> MutexGuard<'_, T> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One that does not wait for its holder, who does the same.
fn try_lock<T>(work: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match work.try_lock() {
        Ok(work) => Some(work),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The writer's end.
pub(super) struct Sending {
    pub(super) pe: Arc<Pe>,
    pub(super) ring: Ring,
    /// The readers, and their lines in this PE's segment.
    pub(super) readers: Vec<(usize, Line)>,
    pub(super) limit: AtomicU64,
    pub(super) complete: AtomicBool,
    /// One more than the number of a reader that is not heard of.
    pub(super) silent: AtomicU64,
    pub(super) work: Mutex<SendingWork>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct SendingWork {
    pub(super) machine: repair::Writer,
    pub(super) link: Link,
    /// How far the log was written at the last look at the sockets.
    pub(super) looked_at: u64,
}

impl Sending {
    /// The log may be written so far.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// The log is written so far.
    pub(super) fn commit(&self, end: u64) {
        let mut work = lock(&self.work);
        work.machine.commit(end);
        self.complete.store(false, Ordering::Relaxed);
        if end - work.looked_at >= LOOK_EACH {
            work.looked_at = end;
            self.hear(&mut work);
        }
        self.send(&mut work);
    }

    /// Whether all that was committed has been received by all that are still readers.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// A reader that is not heard of.
    pub(super) fn silent(&self) -> Option<usize> {
        let number = self.silent.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.readers[number as usize].0)
    }

    /// After how long a reader counts as silent.
    pub(super) fn dead_after() -> Duration {
        Duration::from_nanos(repair::Timing::LOCAL.dead_after)
    }

    /// Goes on without a reader.
    pub(super) fn forget(&self, pe: usize) {
        if let Some(number) = self.readers.iter().position(|&(reader, _)| reader == pe) {
            let mut work = lock(&self.work);
            work.machine.drop_reader(number as u16);
            self.silent.store(0, Ordering::Release);
            self.send(&mut work);
        }
    }

    /// The readers that do not allow to write up to `end`.
    pub(super) fn slow(&self, end: u64) -> Option<usize> {
        let work = lock(&self.work);
        let slowest = work.machine.slowest().filter(|_| work.machine.limit() < end)?;
        Some(self.readers[usize::from(slowest)].0)
    }

    /// Takes what readers say.
    fn hear(&self, work: &mut SendingWork) {
        let SendingWork { machine, link, .. } = work;
        for (number, (_, line)) in self.readers.iter().enumerate() {
            if line.has_left() && !machine.is_dropped(number as u16) {
                machine.drop_reader(number as u16);
            }
        }
        // One that is refused changes nothing; who sent it is not this job's business.
        let mut take = |datagram: &[u8]| {
            let _refused = machine.receive(datagram, wait::nanos());
        };
        for _ in 0..MOST_GOES {
            if link.receive(&mut take) {
                break;
            }
        }
    }

    fn send(&self, work: &mut SendingWork) {
        let now = wait::nanos();
        let SendingWork { machine, link, .. } = work;
        while let Some(outgoing) = machine.next(now, &self.ring, &mut link.out) {
            if let Some(error) = link.send(outgoing.len, link.group) {
                self.pe
                    .surface_later(Error::system("sending a multicast datagram", error, "Is the interface still up?"));
                break;
            }
        }
        self.limit.store(machine.limit(), Ordering::Release);
        self.complete.store(machine.is_complete(), Ordering::Release);
        if let Some(silent) = machine.silent(now) {
            self.silent.store(u64::from(silent) + 1, Ordering::Release);
        }
    }
}

impl Relay for Sending {
    fn relay(&self) {
        let Some(mut work) = try_lock(&self.work) else { return };
        self.hear(&mut work);
        self.send(&mut work);
    }
}

/// A reader's end.
pub(super) struct Receiving {
    pub(super) pe: Arc<Pe>,
    /// Where it says that it has left.
    pub(super) upstream: Upstream,
    pub(super) received: AtomicU64,
    pub(super) consumed: AtomicU64,
    pub(super) dropped: AtomicBool,
    pub(super) silent: AtomicBool,
    pub(super) work: Mutex<ReceivingWork>,
}

pub(super) struct ReceivingWork {
    pub(super) machine: repair::Reader,
    pub(super) ring: Ring,
    pub(super) link: Link,
}

impl Receiving {
    /// Whether all of the record at `position` is there.
    #[inline]
    pub(super) fn has(&self, ring: &Ring, position: u64) -> bool {
        let received = self.received.load(Ordering::Acquire);
        if received < position + 8 {
            return false;
        }
        match ring.decode(position, ring.word(position)) {
            Ok(Header::Block { len, .. }) => position + ring.record(len) <= received,
            // What is wrong with it is found by who reads it.
            Ok(Header::Padding { .. } | Header::End) | Err(_) => true,
        }
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(super) fn is_writer_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// This PE is done with what lies below `position`.
    pub(super) fn consume(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
        self.relay();
    }

    pub(super) fn leave(&self) {
        self.upstream.add(&self.pe, LEFT);
    }
}

impl Relay for Receiving {
    fn relay(&self) {
        let Some(mut work) = try_lock(&self.work) else { return };
        let ReceivingWork { machine, ring, link } = &mut *work;
        for _ in 0..MOST_GOES {
            let all = link.receive(|datagram| {
                // As above.
                let _refused = machine.receive(datagram, wait::nanos(), ring);
            });
            let now = wait::nanos();
            self.received.store(machine.received(), Ordering::Release);
            // In a padding, what was consumed may not have come yet.
            let consumed = self.consumed.load(Ordering::Acquire).min(machine.received());
            if consumed > machine.consumed() {
                machine.consume(consumed);
            }
            self.dropped.store(machine.is_dropped(), Ordering::Release);
            self.silent.store(machine.is_writer_silent(now), Ordering::Release);
            while let Some(outgoing) = machine.next(now, &mut link.out) {
                let to = match outgoing.to {
                    repair::To::Writer => link.writer,
                    repair::To::All => link.group,
                };
                if let Some(error) = link.send(outgoing.len, to) {
                    self.pe
                        .surface_later(Error::system("sending a multicast datagram", error, "Is the interface still up?"));
                    break;
                }
            }
            if all {
                return;
            }
        }
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
        assert_eq!(Group::parse("239.7.7.7:4000@127.0.0.1").unwrap().interface, Ipv4Addr::LOCALHOST);
        for bad in [
            "",
            "239.7.7.7",
            "10.0.0.1:4000",
            "239.7.7.7:65500",
            "239.7.7.7:4000@",
            "239.7.7.7:4000@x",
        ] {
            assert_eq!(Group::parse(bad), None, "{bad}");
        }
    }
}
