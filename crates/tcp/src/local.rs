//! Streams between PEs of one machine, processes or threads: sockets with names that no file has.
//!
//! A PE listens on a name made of the job's number and its own. Whoever connects must be a process
//! of the same user, and says which job and PE it is; so must whoever listens be. A PE that does
//! not listen yet is asked again, ever less often: it may not have started.

use crate::broker::{Broker, Event};
use crate::errors::system;
use crate::fabric::Tcp;
use memonet_core::Result;
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::{Costs, Fabric, Record};
use memonet_core::unstable::mixture::{self, Mixture};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How users write it.
pub const USAGE: &str = "Write tcp, or tcp:SETTINGS with nodes=N (PEs of a node, which are near; 1 if it is left out), deal=0 or 1, cpus=N (of every other node), and commas between; unset it for shared memory";

/// What records between processes of one machine cost, about: choices depend on it.
const COSTS: Costs = Costs {
    put_ns: 10_000,
    get_ns: 20_000,
    bytes_per_s: 2_000_000_000,
    hardware_gets: false,
    hardware_atomics: false,
    eager_bytes: crate::wire::COPIED,
};

/// Which PEs are near to each other: `tcp`, or `tcp:nodes=2,deal=1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    mixture: Mixture,
}

impl Spec {
    /// Reads settings; or says what is wrong with them.
    ///
    /// # Errors
    /// A setting that there is not, or a value that cannot be.
    pub fn parse(settings: &str) -> std::result::Result<Self, String> {
        let mut mixture = Mixture { nodes: 1, ..Mixture::default() };
        // There is no chance here that a seed could repeat.
        mixture::parse(settings, |key, number| key == "seed" || mixture.set(key, number))?;
        Ok(Spec { mixture })
    }

    /// The fabric of a PE.
    ///
    /// # Errors
    /// When the system has no more sockets.
    pub fn connect(&self, seat: &Seat) -> Result<Box<dyn Fabric>> {
        let record = self.mixture.record(seat.npes(), seat.cpus()).with_costs(Some(COSTS));
        let broker = LocalBroker::new(record, seat.job(), seat.pe() as u32)?;
        let crowded = seat.npes() > seat.cpus();
        Ok(Box::new(Tcp::new(seat, Box::new(broker))?.crowded(crowded)))
    }
}

/// Gives a PE its streams to others of this machine.
pub struct LocalBroker {
    record: Record,
    job: u64,
    me: u32,
    listener: OwnedFd,
    /// Rings when a PE is to be asked again, or something is ready.
    timer: OwnedFd,
    /// All that [`next`](Broker::next) looks at.
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// PEs that did not listen when they were asked.
    pending: Vec<u32>,
    /// After what time they are asked again.
    pause: Duration,
    ready: VecDeque<Event>,
    /// Streams whose other ends have not said all that they have to.
    half_open: VecDeque<HalfOpen>,
    /// Since when there has been no descriptor for a stream that is to be accepted.
    starves_since: Option<Instant>,
}

struct HalfOpen {
    socket: OwnedFd,
    said: Vec<u8>,
    since: Instant,
}

/// Pauses before a PE is asked again.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How long the other end of a stream may take to say who it is, or this process to have room for
/// it, and how many may take it.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_HALF_OPEN: usize = 64;

/// Ports for datagrams on this machine: below those that the kernel chooses by itself.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// What the end that connects says: the mark, the job, the PE.
const HELLO: usize = 24;
const MARK: u64 = u64::from_le_bytes(*b"memonet1");

fn hello(job: u64, pe: u32) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MARK.to_le_bytes());
    bytes[8..16].copy_from_slice(&job.to_le_bytes());
    bytes[16..20].copy_from_slice(&pe.to_le_bytes());
    bytes
}

/// The name of a PE's socket. It does not tell the job's number, which a PE proves to know.
fn address(job: u64, pe: u32) -> rustix::io::Result<SocketAddrUnix> {
    let mut mixed = job ^ 0x6A09_E667_F3BC_C908;
    for _ in 0..2 {
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    SocketAddrUnix::new_abstract_name(format!("memonet-{mixed:016x}-{pe}").as_bytes())
}

/// Whether the other end is a process of this user.
fn is_ours(socket: &OwnedFd) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

impl LocalBroker {
    /// That of PE `me` of this job.
    ///
    /// # Errors
    /// When the system has no more sockets.
    pub fn new(record: Record, job: u64, me: u32) -> Result<Self> {
        let made = || -> rustix::io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
            let listener = stream()?;
            bind(&listener, &address(job, me)?)?;
            listen(&listener, 4096)?;
            let timer = timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
            )?;
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            for fd in [&listener, &timer] {
                epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN)?;
            }
            Ok((listener, timer, epoll))
        };
        let (listener, timer, epoll) =
            made().map_err(|error| system("a socket for the fabric", error))?;
        Ok(LocalBroker { record, job, me, listener, timer, epoll, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Has the timer ring after that time.
    fn ring_after(&self, time: Duration) {
        let zero = Timespec::default();
        let value = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos().max(1)),
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// Connects to a PE, if it listens.
    fn try_connect(&self, state: &mut State, pe: u32) {
        let connected = || -> rustix::io::Result<OwnedFd> {
            let socket = stream()?;
            connect(&socket, &address(self.job, pe)?)?;
            Ok(socket)
        };
        let refused = |why: String| Event::Refused { pe, why };
        match connected() {
            Ok(socket) if !is_ours(&socket) => {
                state.ready.push_back(refused(format!(
                    "PE {pe}'s socket belongs to another user; end the process that took its name"
                )));
            }
            Ok(socket) => {
                let said = send(&socket, &hello(self.job, self.me), SendFlags::NOSIGNAL);
                if said == Ok(HELLO) {
                    state.ready.push_back(Event::Connected { pe, socket });
                } else {
                    state.pending.push(pe);
                }
            }
            // It does not listen yet, or its queue is full.
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => state.pending.push(pe),
            Err(error) => {
                let why = format!("no stream to PE {pe}: {error}. Raise `ulimit -n`");
                state.ready.push_back(refused(why));
            }
        }
    }

    fn try_pending(&self, state: &mut State) {
        for pe in std::mem::take(&mut state.pending) {
            self.try_connect(state, pe);
        }
        if !state.pending.is_empty() {
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.ring_after(state.pause);
        }
    }

    fn accept(&self, state: &mut State) -> Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                // Whose it is, if there is one, cannot be read. It stays in the queue.
                Err(answer @ (Errno::MFILE | Errno::NFILE)) => {
                    let since = *state.starves_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(system("accept of another PE's stream", answer));
                    }
                    return Ok(());
                }
                Err(_) => {
                    state.starves_since = None;
                    return Ok(());
                }
            };
            state.starves_since = None;
            let watched = epoll::add(&self.epoll, &socket, EventData::new_u64(0), EventFlags::IN);
            if !is_ours(&socket) || watched.is_err() {
                continue;
            }
            let (said, since) = (Vec::with_capacity(HELLO), Instant::now());
            state.half_open.push_back(HalfOpen { socket, said, since });
            self.listen_to_half_open(state);
            if state.half_open.len() > MOST_HALF_OPEN {
                state.half_open.pop_front();
            }
        }
    }

    /// Takes what the other ends of half-open streams say.
    fn listen_to_half_open(&self, state: &mut State) {
        for mut half in std::mem::take(&mut state.half_open) {
            let mut bytes = [0; HELLO];
            let room = &mut bytes[..HELLO - half.said.len()];
            match recv(&half.socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => continue,
                Ok((count, _)) => half.said.extend_from_slice(&bytes[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => continue,
            }
            if half.said.len() < HELLO {
                if half.since.elapsed() < PATIENCE {
                    state.half_open.push_back(half);
                }
                continue;
            }
            let pe = u32::from_le_bytes(half.said[16..20].try_into().expect("4 bytes"));
            if half.said[..] == hello(self.job, pe) {
                // It fails only for one that is not watched.
                let _ = epoll::delete(&self.epoll, &half.socket);
                state.ready.push_back(Event::Accepted { pe, socket: half.socket });
            }
        }
    }
}

fn stream() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

impl Broker for LocalBroker {
    fn record(&self) -> Record {
        self.record.clone()
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        // No port is open. Each job has one, so that jobs seldom hear each other.
        let port = FIRST_PORT + (self.job % u64::from(PORTS)) as u16;
        vec![SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)]
    }

    fn connect(&self, pe: u32) -> Result<()> {
        let state = &mut *self.state();
        state.pause = Duration::ZERO;
        state.pending.push(pe);
        self.try_pending(state);
        if !state.ready.is_empty() {
            self.ring_after(Duration::ZERO);
        }
        Ok(())
    }

    fn next(&self) -> Result<Option<Event>> {
        let state = &mut *self.state();
        if state.ready.is_empty() {
            if rustix::io::read(&self.timer, &mut [0; 8]).is_ok() {
                self.try_pending(state);
            }
            self.listen_to_half_open(state);
            self.accept(state)?;
        }
        Ok(state.ready.pop_front())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        assert_eq!(Spec::parse("").unwrap().mixture.nodes, 1);
        let spec = Spec::parse("nodes=2,deal=1,cpus=3,seed=7").unwrap();
        assert_eq!(spec.mixture, Mixture { nodes: 2, deal: true, cpus: 3 });
        for bad in ["nodes", "nodes=x", "delay_us=1", "nodes=99999999"] {
            assert!(Spec::parse(bad).is_err(), "{bad}");
        }
    }

    fn broker(job: u64, me: u32) -> LocalBroker {
        LocalBroker::new(Record::all_far(), job, me).unwrap()
    }

    fn next(broker: &LocalBroker) -> Event {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if let Some(event) = broker.next().unwrap() {
                return event;
            }
            std::thread::yield_now();
        }
        panic!("nothing came");
    }

    fn job() -> u64 {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).unwrap();
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn streams_between_two_that_start_one_after_the_other() {
        let job = job();
        let first = broker(job, 0);
        first.connect(1).unwrap();
        assert!(first.next().unwrap().is_none(), "it does not listen yet");
        let second = broker(job, 1);
        let connected = next(&first);
        let Event::Connected { pe: 1, socket: one } = connected else { panic!("{connected:?}") };
        let accepted = next(&second);
        let Event::Accepted { pe: 0, socket: other } = accepted else { panic!("{accepted:?}") };
        send(&one, b"word", SendFlags::empty()).unwrap();
        let mut word = [0; 4];
        recv(&other, &mut word, RecvFlags::empty()).unwrap();
        assert_eq!(&word, b"word");
    }

    #[test]
    fn strangers_are_not_listened_to() {
        let job = job();
        let broker = broker(job, 0);
        let socket = stream().unwrap();
        connect(&socket, &address(job, 0).unwrap()).unwrap();
        send(&socket, &hello(job ^ 1, 1), SendFlags::NOSIGNAL).unwrap();
        let silent = stream().unwrap();
        connect(&silent, &address(job, 0).unwrap()).unwrap();
        (0..100).for_each(|_| assert!(broker.next().unwrap().is_none()));
        assert_eq!(broker.state().half_open.len(), 1);
    }
}
