//! A PE's end of its channel to the agent.

use super::channel::{self, Kind, Message, Received};
use super::job::{Description, MOST_BYTES};
use super::sealed;
use crate::broker::{Broker, Event};
use crate::errors::no_room;
use memonet_core::unstable::fabric::Record;
use memonet_core::unstable::settings::ENV_AGENT_FD;
use memonet_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, FdFlags};
use rustix::net::{SocketType, sockopt};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the agent may take to say what the job is.
const PATIENCE: Duration = Duration::from_secs(10);

const HOW_TO_START: &str = "Start the program with `memonet run`";

/// A PE's way to sockets: it asks the agent of its node.
#[derive(Debug)]
pub struct AgentBroker {
    channel: OwnedFd,
    me: u32,
    job: Description,
    /// The process that is the PE. One that was forked off shares the channel, and would take
    /// messages away.
    process: AtomicU32,
}

impl AgentBroker {
    /// Takes the descriptor that the environment names; nothing where it names none.
    pub fn inherit() -> Result<Option<Self>> {
        let Some(value) = std::env::var_os(ENV_AGENT_FD) else { return Ok(None) };
        AgentBroker::new(inherited(&value.to_string_lossy())?).map(Some)
    }

    /// Says hello to the agent, and waits for the job's description. Programs that this one starts
    /// do not get the descriptor.
    pub fn new(channel: OwnedFd) -> Result<Self> {
        hand_down(&channel, false)?;
        say(&channel, Kind::Hello, channel::VERSION, None)?;
        let deadline = Instant::now() + PATIENCE;
        let mut came = Vec::new();
        let (me, file) = loop {
            match next(&channel)? {
                Some(Message { kind: Kind::Record, number, fd: Some(file), .. }) => {
                    break (number, file);
                }
                // For the program that this process was before.
                Some(Message { kind: Kind::Accepted, number, fd: Some(socket), .. }) => {
                    came.push((number, socket));
                }
                Some(_) => {}
                None => wait(&channel, deadline)?,
            }
        };
        for (pe, socket) in came {
            say(&channel, Kind::Return, pe, Some(socket.as_fd()))?;
        }
        let wrong = |problem: String| Error::Fabric { fabric: "tcp", problem, call: None };
        let job = Description::decode(&sealed::read(file, MOST_BYTES)?)
            .map_err(|e| wrong(e.to_string()))?;
        if job.node_of(me) != Some(job.node) {
            return Err(wrong(format!(
                "the agent takes this PE for {me}, which is not of its node"
            )));
        }
        let process = AtomicU32::new(std::process::id());
        Ok(AgentBroker { channel, me, job, process })
    }

    /// This PE's number.
    pub fn me(&self) -> u32 {
        self.me
    }

    /// All that is known of the job.
    pub fn job(&self) -> &Description {
        &self.job
    }

    fn check_process(&self) -> Result<()> {
        if self.process.load(Ordering::Relaxed) == std::process::id() {
            return Ok(());
        }
        Err(Error::misuse("a process that a PE has forked off cannot reach PEs of other hosts"))
    }
}

impl Broker for AgentBroker {
    fn record(&self) -> Record {
        self.job.record()
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        let all = self.job.nodes[self.job.node as usize].addresses.iter();
        let ipv4 = |address: &SocketAddr| match address {
            SocketAddr::V4(address) => Some(*address),
            SocketAddr::V6(_) => None,
        };
        all.filter_map(ipv4).collect()
    }

    fn connect(&self, pe: u32) -> Result<()> {
        self.check_process()?;
        say(&self.channel, Kind::Connect, pe, None)
    }

    fn next(&self) -> Result<Option<Event>> {
        self.check_process()?;
        let Some(Message { kind, number: pe, text, fd }) = next(&self.channel)? else {
            return Ok(None);
        };
        Ok(Some(match (kind, fd) {
            (Kind::Connected, Some(socket)) => Event::Connected { pe, socket },
            (Kind::Accepted, Some(socket)) => Event::Accepted { pe, socket },
            (Kind::Connected | Kind::Accepted, None) => {
                let why = no_room(pe);
                // Its end of the stream is closed. The peer may give up this PE before this call's
                // error is seen, and knows no cause.
                eprintln!("memonet: PE {}: {why}", self.me);
                Event::Refused { pe, why }
            }
            (Kind::Refused, _) => Event::Refused { pe, why: text },
            (Kind::Unreached, _) => Event::Unreached { pe },
            _ => return Err(garbage()),
        }))
    }

    fn take_part(&self, to_successor: bool) -> Result<()> {
        self.process.store(std::process::id(), Ordering::Relaxed);
        hand_down(&self.channel, to_successor)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Takes the descriptor of this number, if it can be a channel to an agent.
fn inherited(value: &str) -> Result<OwnedFd> {
    let wrong = |problem: &str| Error::Environment {
        name: ENV_AGENT_FD,
        value: value.into(),
        problem: problem.into(),
        fix: HOW_TO_START,
    };
    let raw: i32 = value.parse().map_err(|_| wrong("is not a number"))?;
    // SAFETY: asks the kernel for the descriptor's flags; an integer that is none is answered with
    // an error.
    if raw <= 2 || unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
        return Err(wrong(
            "is not an open descriptor: a program in between has closed it, or has taken part in the job before it became this one",
        ));
    }
    // SAFETY: the descriptor is open, as was seen above, and used only below.
    let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
    if sockopt::socket_type(borrowed) != Ok(SocketType::SEQPACKET) {
        return Err(wrong("is not a channel to an agent"));
    }
    // SAFETY: the descriptor is open, and nobody else in this process owns it: it came with the
    // environment that names it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn garbage() -> Error {
    let problem =
        format!("the agent of this host says what no agent of this version says. {HOW_TO_START}");
    Error::Fabric { fabric: "tcp", problem, call: None }
}

/// The next message, if one has come.
fn next(channel: &OwnedFd) -> Result<Option<Message>> {
    match channel::receive(channel) {
        Ok(Received::Message(message)) => Ok(Some(message)),
        Ok(Received::Nothing) => Ok(None),
        Ok(Received::Garbage) => Err(garbage()),
        Ok(Received::End) => Err(lost(Errno::PIPE)),
        Err(e) => Err(lost(e)),
    }
}

/// Sends a message. The agent reads all the time, so a full channel has room again soon.
fn say(channel: &OwnedFd, kind: Kind, number: u32, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let missing = match channel::send(channel, kind, number, "", fd) {
            Ok(()) => return Ok(()),
            Err(e @ (Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => e,
            Err(e) => return Err(lost(e)),
        };
        if Instant::now() >= deadline {
            return Err(lost(missing));
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let mut room = [PollFd::new(channel, PollFlags::OUT)];
        let room = if missing == Errno::AGAIN { &mut room[..] } else { &mut [] };
        match poll(room, Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(lost(e)),
        }
    }
}

fn wait(channel: &OwnedFd, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(lost(Errno::TIMEDOUT));
    }
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(lost(e)),
    }
}

fn lost(e: Errno) -> Error {
    Error::System {
        call: "asking the agent of this host".into(),
        answer: e.into(),
        hint: "The agent has ended, and the job with it; its report says why",
    }
}

/// Whether programs that this one becomes or starts get the descriptor.
fn hand_down(channel: &OwnedFd, wanted: bool) -> Result<()> {
    let flags = if wanted { FdFlags::empty() } else { FdFlags::CLOEXEC };
    rustix::io::fcntl_setfd(channel, flags).map_err(lost)
}

#[cfg(test)]
mod tests {
    use super::super::seat::Seat;
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn only_a_channel_is_taken_from_the_environment() {
        for (value, says) in [("", "number"), ("x", "number"), ("2", "open"), ("-1", "open")] {
            let error = inherited(value).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(HOW_TO_START), "{error}");
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = inherited(&file.as_raw_fd().to_string()).unwrap_err().to_string();
        assert!(error.contains("is not a channel"), "{error}");
        assert!(file.metadata().is_ok(), "it is still open");
        let (theirs, _ours) = Seat::open().unwrap();
        assert!(inherited(&theirs.into_raw_fd().to_string()).is_ok());
    }

    #[test]
    fn an_agent_that_says_nonsense_is_refused() {
        let (theirs, ours) = Seat::open().unwrap();
        rustix::net::send(&ours, b"nonsense, whatever the length", rustix::net::SendFlags::empty())
            .unwrap();
        assert!(AgentBroker::new(theirs).unwrap_err().to_string().contains("no agent of this"));
        let (theirs, ours) = Seat::open().unwrap();
        drop(ours);
        assert!(AgentBroker::new(theirs).unwrap_err().to_string().contains("agent has ended"));
        let (theirs, ours) = Seat::open().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        channel::send(&ours, Kind::Record, 0, "", Some(file.as_fd())).unwrap();
        assert!(AgentBroker::new(theirs).unwrap_err().to_string().contains("no memory file"));
    }
}
