//! How PEs of different hosts learn the addresses of their endpoints: on streams that agents make.
//!
//! A PE that needs another one's address asks its agent for a stream to it, as the fabric `tcp`
//! does. The agents prove to each other that they are of the job, so who is at the other end of a
//! stream is a PE of the job. Each end sends its address, reads the other one's, and closes.
//!
//! ```text
//!   bytes   8        4        n
//!           "memofi-2"  length   address, as libfabric's provider writes it
//! ```
//!
//! * Both ends may ask at once. Then there are two streams, which say the same.
//! * A PE answers while it makes calls, waits, or has its progress thread. So an answer says that
//!   its process runs.
//! * A stream that ends early, or says something else, is an address that will not come.

use memonet_core::unstable::fabric::Record;
use memonet_core::{Error, Result};
use memonet_ofi::{Meeting, News};
use memonet_tcp::agent::AgentBroker;
use memonet_tcp::{Broker, Event};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard};

const MARK: [u8; 8] = *b"memofi-2";
const HEAD: usize = MARK.len() + 4;
/// The longest address.
const MOST: usize = 512;

/// Addresses by streams.
pub struct ByStreams {
    broker: Box<dyn Broker>,
    job: u64,
    source: IpAddr,
    /// The broker and the streams.
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What this PE says.
    own: Vec<u8>,
    streams: Vec<Stream>,
    /// Whether the agent has ended.
    is_alone: bool,
}

/// A stream on which addresses are told.
struct Stream {
    pe: u32,
    socket: OwnedFd,
    /// Whether this PE asked for it.
    is_asked: bool,
    sent: usize,
    came: Vec<u8>,
}

/// What became of a stream.
enum Step {
    More,
    /// The other end's address, after this one's was sent.
    Done(Vec<u8>),
    Failed(&'static str),
}

impl ByStreams {
    /// Those of the job that this agent has described.
    pub fn new(agent: AgentBroker) -> Result<Self> {
        let job = agent.job();
        let addresses = &job.nodes[job.node as usize].addresses;
        let source = addresses.first().map_or(Ipv4Addr::LOCALHOST.into(), |at| at.ip());
        let number = u128::from_le_bytes(job.id);
        Self::with(Box::new(agent), (number ^ number >> 64) as u64, source)
    }

    fn with(broker: Box<dyn Broker>, job: u64, source: IpAddr) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| system("epoll_create", e))?;
        watch(&epoll, broker.fd())?;
        Ok(ByStreams { broker, job, source, epoll, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes what the agent has for this PE.
    fn listen(&self, state: &mut State) -> Result<Option<News>> {
        while !state.is_alone {
            let event = match self.broker.next() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    // Its end is readable for ever.
                    state.is_alone = true;
                    epoll::delete(&self.epoll, self.broker.fd())
                        .map_err(|e| system("epoll_ctl", e))?;
                    return Err(error);
                }
            };
            let (pe, socket, is_asked) = match event {
                Event::Connected { pe, socket } => (pe, socket, true),
                Event::Accepted { pe, socket } => (pe, socket, false),
                Event::Refused { pe, why } => return Ok(Some(News::Refused { pe, why })),
                // This direction may pass, and a stream tells both ends.
                Event::Unreached { pe } => {
                    self.broker.connect(pe)?;
                    continue;
                }
            };
            watch(&self.epoll, socket.as_fd())?;
            state.streams.push(Stream { pe, socket, is_asked, sent: 0, came: Vec::new() });
        }
        Ok(None)
    }

    /// Goes on with the streams, until one has something to tell.
    fn advance(state: &mut State) -> Option<News> {
        for index in (0..state.streams.len()).rev() {
            let step = state.streams[index].step(&state.own);
            if matches!(step, Step::More) {
                continue;
            }
            // Closed, a socket leaves the set of those that are watched.
            let Stream { pe, is_asked, .. } = state.streams.swap_remove(index);
            match step {
                Step::Done(address) => return Some(News::Address { pe, address }),
                Step::Failed(what) if is_asked => {
                    let why = format!("its process {what} when it was asked for its address");
                    return Some(News::Refused { pe, why });
                }
                // It was the other end that wanted to know something.
                Step::Failed(_) | Step::More => {}
            }
        }
        None
    }
}

impl Stream {
    /// Sends and reads what can be sent and read now.
    fn step(&mut self, own: &[u8]) -> Step {
        while self.sent < own.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &own[self.sent..], flags) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Step::Failed("has ended the stream"),
            }
        }
        while self.missing() > 0 {
            let mut bytes = [0; HEAD + MOST];
            let wanted = self.missing();
            match recv(&self.socket, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Step::Failed("has ended the stream"),
                Ok((_, got)) => self.came.extend_from_slice(&bytes[..got]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Step::Failed("has ended the stream"),
            }
            if self.came.len() >= HEAD && self.length().is_none() {
                return Step::Failed("has said what no PE of this version says");
            }
        }
        let is_done = self.missing() == 0 && self.sent == own.len();
        if is_done { Step::Done(self.came.split_off(HEAD)) } else { Step::More }
    }

    /// Bytes of the address; nothing where this is no address.
    fn length(&self) -> Option<usize> {
        let (mark, rest) = self.came.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        (*mark == MARK && (1..=MOST).contains(&length)).then_some(length)
    }

    /// Bytes that are still to come.
    fn missing(&self) -> usize {
        HEAD + self.length().unwrap_or(0) - self.came.len()
    }
}

/// What a PE with this address says.
fn told(address: &[u8]) -> Vec<u8> {
    [&MARK[..], &(address.len() as u32).to_le_bytes(), address].concat()
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> Result<()> {
    epoll::add(epoll, fd, EventData::new_u64(0), EventFlags::IN).map_err(|e| system("epoll_ctl", e))
}

fn system(call: &str, e: Errno) -> Error {
    Error::System { call: call.into(), answer: e.into(), hint: "Raise `ulimit -n`" }
}

impl Meeting for ByStreams {
    fn record(&self) -> Record {
        self.broker.record()
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn source(&self) -> IpAddr {
        self.source
    }

    fn begin(&self, address: &[u8]) -> Result<()> {
        self.state().own = told(address);
        Ok(())
    }

    fn ask(&self, pe: u32) -> Result<()> {
        self.broker.connect(pe)
    }

    fn next(&self) -> Result<Option<News>> {
        let state = &mut *self.state();
        match self.listen(state)? {
            None => Ok(Self::advance(state)),
            news => Ok(news),
        }
    }

    fn take_part(&self, to_successor: bool) -> Result<()> {
        self.broker.take_part(to_successor)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::collections::VecDeque;

    /// Gives what a test has put there.
    struct Given {
        events: Mutex<VecDeque<Event>>,
        fd: OwnedFd,
    }

    impl Broker for Given {
        fn record(&self) -> Record {
            Record::one_node(2, 2)
        }

        fn host_addresses(&self) -> Vec<std::net::SocketAddrV4> {
            Vec::new()
        }

        fn connect(&self, _: u32) -> Result<()> {
            Ok(())
        }

        fn next(&self) -> Result<Option<Event>> {
            Ok(self.events.lock().unwrap().pop_front())
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    fn given(events: impl IntoIterator<Item = Event>, address: &[u8]) -> ByStreams {
        let events = Mutex::new(events.into_iter().collect());
        let given = Given { events, fd: pair().0 };
        let meeting = ByStreams::with(Box::new(given), 7, Ipv4Addr::LOCALHOST.into()).unwrap();
        meeting.begin(address).unwrap();
        meeting
    }

    fn refused(meeting: &ByStreams) -> String {
        match meeting.next().unwrap() {
            Some(News::Refused { pe: 1, why }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_ends_learn_the_address_of_the_other() {
        let (one, other) = pair();
        let asks = given([Event::Connected { pe: 1, socket: one }], &[5; 16]);
        assert_eq!(asks.next().unwrap(), None, "nobody has answered");
        let answers = given([Event::Accepted { pe: 0, socket: other }], &[9; MOST]);
        let address = |pe, byte: u8, len| Some(News::Address { pe, address: vec![byte; len] });
        assert_eq!(answers.next().unwrap(), address(0, 5, 16));
        assert_eq!(asks.next().unwrap(), address(1, 9, MOST));
        assert_eq!(asks.next().unwrap(), None);
        assert!(asks.state().streams.is_empty() && answers.state().streams.is_empty());
    }

    #[test]
    fn an_address_comes_in_pieces() {
        let (one, other) = pair();
        let asks = given([Event::Connected { pe: 1, socket: one }], &[5; 16]);
        for byte in told(&[7, 8, 9]) {
            assert_eq!(asks.next().unwrap(), None);
            send(&other, &[byte], SendFlags::empty()).unwrap();
        }
        let address = vec![7, 8, 9];
        assert_eq!(asks.next().unwrap(), Some(News::Address { pe: 1, address }));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = [&MARK[..], &(MOST as u32 + 1).to_le_bytes()].concat();
        let none = [&MARK[..], &[0; 4]].concat();
        for wrong in [&b"memofi-1\x04\0\0\0abcd"[..], &long, &none] {
            let (one, other) = pair();
            let asks = given([Event::Connected { pe: 1, socket: one }], &[5; 16]);
            send(&other, wrong, SendFlags::empty()).unwrap();
            assert!(refused(&asks).contains("no PE of this version"), "{wrong:?}");
        }
        let (one, other) = pair();
        let asks = given([Event::Connected { pe: 1, socket: one }], &[5; 16]);
        send(&other, &told(&[1; 16])[..20], SendFlags::empty()).unwrap();
        assert_eq!(asks.next().unwrap(), None);
        drop(other);
        assert!(refused(&asks).contains("has ended the stream"));
        // What another PE wanted to know, and does not any more, is nothing to this one.
        let (one, other) = pair();
        drop(other);
        let answers = given([Event::Accepted { pe: 1, socket: one }], &[5; 16]);
        assert_eq!(answers.next().unwrap(), None);
        assert!(answers.state().streams.is_empty());
        let why = "the agent says so".to_owned();
        let asks = given([Event::Refused { pe: 1, why: why.clone() }], &[5; 16]);
        assert_eq!(refused(&asks), why);
    }
}
