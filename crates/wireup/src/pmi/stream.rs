//! Lines to a PMI server and from it, each within a time limit.

use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::{Duration, Instant};

/// A line longer than this is not an answer.
const LONGEST: usize = 8192;
const HINT: &str = "Was the launcher killed? Start the program again";

/// Why no line has come.
pub(super) enum Lost {
    /// Nothing came in time.
    Silence,
    /// What came is no line, and what is wrong with it.
    Garbage(Vec<u8>, &'static str),
    /// The system's word.
    System(Errno),
}

/// A connection to a server.
pub(super) struct Stream {
    fd: OwnedFd,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Stream { fd }
    }

    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.fd
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a line in one piece: Slurm takes what one `read` gives it for one request.
    pub(super) fn send(&self, line: &str) -> Result<()> {
        self.send_bytes(line.as_bytes())
    }

    pub(super) fn send_bytes(&self, mut left: &[u8]) -> Result<()> {
        while !left.is_empty() {
            match send(&self.fd, left, SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, None).map_err(Self::system)?,
                Err(e) => return Err(Self::system(e)),
            }
        }
        Ok(())
    }

    pub(super) fn system(errno: Errno) -> Error {
        let call = "speaking with the launcher (PMI_FD)".into();
        Error::System { call, answer: errno.into(), hint: HINT }
    }

    /// The next line, without its end. The server speaks only when it is asked, so nothing may
    /// follow the line: it would be lost to the program's MPI.
    pub(super) fn line(&self, end: Instant) -> std::result::Result<Vec<u8>, Lost> {
        let mut line = self.one_of_lines(end)?;
        match recv(&self.fd, &mut [0; 64], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((0, _)) | Err(_) => Ok(line),
            Ok(_) => {
                line.extend_from_slice(b"\n...");
                Err(Lost::Garbage(line, "is more than one line"))
            }
        }
    }

    /// The next line, without its end, where more may follow.
    pub(super) fn one_of_lines(&self, end: Instant) -> std::result::Result<Vec<u8>, Lost> {
        let mut line = Vec::new();
        loop {
            let mut bytes = [0; 1024];
            match recv(&self.fd, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                Ok((0, _)) if line.is_empty() => return Err(Lost::System(Errno::CONNRESET)),
                Ok((0, _)) => return Err(Lost::Garbage(line, "is cut off")),
                Ok((length, _)) => {
                    let ends = bytes[..length].iter().position(|&byte| byte == b'\n');
                    let length = ends.map_or(length, |at| at + 1);
                    // These bytes are there, as nobody else reads meanwhile.
                    let taken = recv(&self.fd, &mut bytes[..length], RecvFlags::DONTWAIT);
                    let (taken, _) = taken.map_err(Lost::System)?;
                    line.extend_from_slice(&bytes[..taken]);
                    if line.pop_if(|byte| *byte == b'\n').is_some() {
                        return Ok(line);
                    } else if line.len() > LONGEST {
                        return Err(Lost::Garbage(line, "is no line"));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() && line.is_empty() {
                        return Err(Lost::Silence);
                    } else if left.is_zero() {
                        return Err(Lost::Garbage(line, "is cut off"));
                    }
                    self.wait(PollFlags::IN, Some(left)).map_err(Lost::System)?;
                }
                Err(e) => return Err(Lost::System(e)),
            }
        }
    }

    /// Returns once there is something to do, or after `limit`, or earlier.
    fn wait(&self, what: PollFlags, limit: Option<Duration>) -> std::result::Result<(), Errno> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(3600) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&self.fd, what)], limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
