//! A session in a child of this process.
//!
//! The child is a fork without `exec`. It has the library and one end of a socket pair, by which it
//! is asked one thing at a time. It ends its session when it is asked to, or when this process has
//! closed its end. If this process dies, so does the child, whatever the library waits for.
//!
//! The program may have threads when the child is forked. So the child uses only what works after
//! such a fork with glibc: system calls, memory, new threads, loading of libraries. It never
//! returns to the program, and runs none of its exit handlers.

use super::client::Client;
use super::{LOOK, NAME};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The longest request or answer.
const LONGEST: usize = 64 << 10;
/// How long the launcher may take to let a process in or go, or to find a value: it is asked twice.
const ANSWER: Duration = Duration::from_secs(60);
/// How much later than its own limit a fence is given up from here.
const LATER: Duration = LOOK;

// What is asked for: a byte, and then what it needs.
const PUT: u8 = 1;
const FENCE: u8 = 2;
const GET: u8 = 3;
const END: u8 = 4;

// How it went: a byte, and then what it gives, or the error's message.
const DONE: u8 = 0;
const NOTHING: u8 = 1;
const MISSED: u8 = 2;
const FAILED: u8 = 3;

/// The child, and what it has said at first.
pub(super) struct Child {
    socket: OwnedFd,
    pid: libc::pid_t,
    rank: u32,
    size: u32,
    broken: bool,
}

enum Answer {
    Done(Vec<u8>),
    Nothing,
    Missed,
}

impl Child {
    /// Forks the child, which begins a session.
    ///
    /// # Errors
    /// [`Error::System`], and any error of the session's.
    pub(super) fn begin() -> Result<Self> {
        let (socket, other) =
            net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed("socketpair", error, "Raise `ulimit -n`"))?;
        let parent = rustix::process::getpid();
        // SAFETY: the head of this file says why the child may do what it does; it ends without
        // returning.
        let pid = match unsafe { libc::fork() } {
            -1 => {
                let errno = std::io::Error::last_os_error();
                let errno = Errno::from_io_error(&errno).unwrap_or(Errno::AGAIN);
                return Err(failed(
                    "forking a process that asks the launcher",
                    errno,
                    "Raise `ulimit -u`",
                ));
            }
            0 => {
                drop(socket);
                let served = catch_unwind(AssertUnwindSafe(|| live(&other, parent)));
                // SAFETY: ends this process, and runs none of the program's exit handlers.
                unsafe { libc::_exit(if served.is_ok() { 0 } else { 101 }) }
            }
            pid => pid,
        };
        drop(other);
        let mut child = Child { socket, pid, rank: 0, size: 0, broken: false };
        let Answer::Done(said) = child.answer("the beginning of a session", ANSWER)? else {
            return Err(child.lost());
        };
        let number = |at: usize| said.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let (Some(rank), Some(size)) = (number(0), number(4)) else { return Err(child.lost()) };
        (child.rank, child.size) = (rank, size);
        Ok(child)
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.ask(END, &[], "the end of the session", ANSWER).map(drop)
    }

    fn ask(&mut self, what: u8, rest: &[u8], request: &str, limit: Duration) -> Result<Answer> {
        if self.broken {
            return Err(Error::Broken { launcher: NAME });
        }
        let words = [&[what], rest].concat();
        let sent = retry(|| net::send(&self.socket, &words, SendFlags::NOSIGNAL));
        match sent {
            Ok(_) => self.answer(request, limit),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(self.lost()),
            Err(error) => Err(failed("asking the launcher", error, "")),
        }
    }

    fn answer(&mut self, request: &str, limit: Duration) -> Result<Answer> {
        if !has_come(&self.socket, limit).map_err(|error| failed("poll", error, ""))? {
            self.broken = true;
            return Err(Error::Silent { launcher: NAME, request: request.into(), after: limit });
        }
        let said = receive(&self.socket).map_err(|error| failed("recv", error, ""))?;
        match said.split_first() {
            Some((&DONE, rest)) => Ok(Answer::Done(rest.to_vec())),
            Some((&NOTHING, _)) => Ok(Answer::Nothing),
            Some((&MISSED, _)) => {
                self.broken = true;
                Ok(Answer::Missed)
            }
            Some((_, text)) => Err(Error::Session(String::from_utf8_lossy(text).into_owned())),
            None => Err(self.lost()),
        }
    }

    fn lost(&mut self) -> Error {
        self.broken = true;
        let why = "the process that does it has ended";
        Error::System {
            call: "speaking PMIx with the launcher".into(),
            answer: std::io::Error::other(why),
            hint: "Start the program again, or with `memonet run`",
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: sends a signal to a child that nobody has waited for, and waits for that. One
        // that has ended its session, or has failed, has nothing more to do.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            let waited = || libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            while waited() == -1
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
            {
            }
        }
    }
}

impl Exchange for Child {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.ask(PUT, &named(name, bytes), name, ANSWER).map(drop)
    }

    fn fence(&mut self, named: &'static str, limit: Duration) -> Result<()> {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        match self.ask(FENCE, &nanos.to_le_bytes(), named, limit.saturating_add(LATER))? {
            Answer::Done(_) => Ok(()),
            _ => {
                let missing = "some (PMIx does not say which)".into();
                Err(Error::Fence { fence: named, missing, size: self.size, after: limit })
            }
        }
    }

    fn get(&mut self, rank: u32, name: &str) -> Result<Vec<u8>> {
        match self.ask(GET, &named(name, &rank.to_le_bytes()), name, ANSWER)? {
            Answer::Done(value) => Ok(value),
            _ => Err(Error::Nothing { rank, key: name.into() }),
        }
    }
}

/// A name, after its length, and what follows it.
fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&[name.len() as u8], name.as_bytes(), rest].concat()
}

fn failed(call: &str, error: Errno, hint: &'static str) -> Error {
    Error::System { call: call.into(), answer: error.into(), hint }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

fn has_come(socket: &OwnedFd, limit: Duration) -> rustix::io::Result<bool> {
    let limit = Timespec::try_from(limit).ok();
    let look = || poll(&mut [PollFd::new(socket, PollFlags::IN)], limit.as_ref());
    retry(look).map(|count| count > 0)
}

/// The next request or answer; nothing once the other end is closed.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let (count, _) = match retry(|| net::recv(socket, &mut bytes[..], RecvFlags::empty())) {
        Err(Errno::CONNRESET) => (0, 0),
        received => received?,
    };
    bytes.truncate(count);
    Ok(bytes)
}

/// The child's life.
fn live(socket: &OwnedFd, parent: rustix::process::Pid) {
    // SAFETY: a set of zeroes is a set, and the calls write and read it alone. The program's
    // handlers are not for this process.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    let dies =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if dies.is_err() || rustix::process::getppid() != Some(parent) {
        return;
    }
    let mut client = match Client::begin() {
        Ok(client) => client,
        Err(error) => return say(socket, Err(error)),
    };
    say(socket, Ok([client.rank().to_le_bytes(), client.size().to_le_bytes()].concat()));
    loop {
        let Ok(asked) = receive(socket) else { return };
        match asked.split_first() {
            Some((&END, _)) => return say(socket, client.end().map(|()| Vec::new())),
            Some((&what, rest)) => say(socket, serve(&mut client, what, rest)),
            // The process does not need it any more.
            None => return drop(client.end()),
        }
    }
}

fn serve(client: &mut Client, what: u8, rest: &[u8]) -> Result<Vec<u8>> {
    if what == FENCE {
        let nanos = rest.try_into().map(u64::from_le_bytes).unwrap_or_default();
        return client.fence("", Duration::from_nanos(nanos)).map(|()| Vec::new());
    }
    let (&len, rest) = rest.split_first().expect("a name has a length");
    let (name, rest) = rest.split_at(len.into());
    let name = str::from_utf8(name).expect("names are text");
    match what {
        PUT => client.put(name, rest).map(|()| Vec::new()),
        _ => client.get(u32::from_le_bytes(rest.try_into().expect("a rank")), name),
    }
}

fn say(socket: &OwnedFd, what: Result<Vec<u8>>) {
    let words = match what {
        Ok(value) => [&[DONE], &value[..]].concat(),
        Err(Error::Nothing { .. }) => vec![NOTHING],
        Err(Error::Fence { .. }) => vec![MISSED],
        Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
    };
    // A process that has ended needs no answer.
    let _ = retry(|| net::send(socket, &words, SendFlags::NOSIGNAL));
}
