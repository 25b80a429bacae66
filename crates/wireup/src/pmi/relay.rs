//! Stands between a program's MPI and a server that answers `init` once.
//!
//! Slurm's server drops the second `init` on a connection without a word, so an MPI that
//! initialises after memonet would wait for ever. The relay has the server's connection; the
//! program has another one in its place. The relay answers each `init` by itself, as the server has
//! answered memonet's, and passes all else on: requests line by line, as the server takes what one
//! `read` gives it for one request.

use super::stream::Stream;
use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

const ANSWER: &[u8] = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
/// No request is longer.
const LONGEST: usize = 8192;

/// A relay, which some process has to [run](Self::run) as long as the program lives.
pub struct Relay {
    server: Stream,
    program: Stream,
    /// The start of a request.
    begun: Vec<u8>,
}

impl Relay {
    /// A connection: the relay's end, and the program's.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn connection() -> Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(|e| {
            Error::System { call: "socketpair".into(), answer: e.into(), hint: "Raise `ulimit -n`" }
        })
    }

    /// A relay between a server with which memonet's session has begun, and a program.
    pub fn new(server: OwnedFd, program: OwnedFd) -> Self {
        let (server, program) = (Stream::new(server), Stream::new(program));
        Relay { server, program, begun: Vec::new() }
    }

    /// Passes on what both say, until one has closed its connection. Gives back that to the server.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn run(mut self) -> Result<OwnedFd> {
        loop {
            let (server, program) = (self.server.descriptor(), self.program.descriptor());
            let mut both =
                [PollFd::new(&server, PollFlags::IN), PollFd::new(&program, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Stream::system(e)),
            }
            if !self.answers()? || !self.requests()? {
                return Ok(self.server.into_descriptor());
            }
        }
    }

    /// Passes on what the server has said; false where it has closed its end.
    fn answers(&mut self) -> Result<bool> {
        let mut bytes = [0; 1024];
        match read(&self.server, &mut bytes)? {
            Some(0) => Ok(false),
            Some(length) => self.program.send_bytes(&bytes[..length]).map(|()| true),
            None => Ok(true),
        }
    }

    /// Passes on the program's requests but for `init`; false where it has closed its end.
    fn requests(&mut self) -> Result<bool> {
        let mut bytes = [0; 1024];
        match read(&self.program, &mut bytes)? {
            Some(0) => return Ok(false),
            Some(length) => self.begun.extend_from_slice(&bytes[..length]),
            None => return Ok(true),
        }
        while let Some(end) = self.begun.iter().position(|&byte| byte == b'\n') {
            let request: Vec<u8> = self.begun.drain(..=end).collect();
            if request.starts_with(b"cmd=init ") {
                self.program.send_bytes(ANSWER)?;
            } else {
                self.server.send_bytes(&request)?;
            }
        }
        // Whatever this is, it is no request.
        Ok(self.begun.len() <= LONGEST)
    }
}

/// How many bytes have come, 0 at the end; nothing where none has.
fn read(from: &Stream, bytes: &mut [u8]) -> Result<Option<usize>> {
    match recv(from.descriptor(), bytes, RecvFlags::DONTWAIT) {
        Ok((length, _)) => Ok(Some(length)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(Errno::CONNRESET) => Ok(Some(0)),
        Err(e) => Err(Stream::system(e)),
    }
}
