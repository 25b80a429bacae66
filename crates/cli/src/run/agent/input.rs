//! The standard input of PE 0, which comes from the launcher.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use memonet_control::events::{forget, listen_for_room};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The pipe to PE 0, and what waits for it.
pub struct Input {
    /// `None` at the end.
    pipe: Option<OwnedFd>,
    waiting: Vec<u8>,
    /// Nothing follows what waits.
    ended: bool,
    listening: bool,
}

impl Input {
    /// The input, and the end that PE 0 reads from.
    pub fn new() -> Result<(Input, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        rustix::io::ioctl_fionbio(&write, true)?;
        Ok((Input { pipe: Some(write), waiting: Vec::new(), ended: false, listening: false }, read))
    }

    /// Adds what the launcher has read; nothing at the end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.ended |= bytes.is_empty();
        self.waiting.extend_from_slice(bytes);
    }

    /// Writes what there is room for. From then on, `events` reports `token` when there is room for
    /// more. Returns how many bytes do not wait any more.
    pub fn flush(&mut self, events: &OwnedFd, token: u64) -> Result<usize> {
        let Some(pipe) = &self.pipe else { return Ok(std::mem::take(&mut self.waiting).len()) };
        let mut written = 0;
        let mut broken = false;
        while written < self.waiting.len() {
            match rustix::io::write(pipe, &self.waiting[written..]) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // PE 0 reads no more.
                Err(_) => {
                    broken = true;
                    written = self.waiting.len();
                }
            }
        }
        self.waiting.drain(..written);
        let listen = !self.waiting.is_empty();
        if listen != self.listening {
            self.listening = listen;
            match listen {
                true => listen_for_room(events, pipe, token)?,
                false => forget(events, pipe)?,
            }
        }
        if broken || self.ended && !listen {
            self.pipe = None;
        }
        Ok(written)
    }
}
