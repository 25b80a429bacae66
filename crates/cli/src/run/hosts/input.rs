//! The launcher's standard input, which PE 0 reads on another host.
//!
//! It is read ahead, as by ssh: by what PE 0 has not taken yet, at most [`WINDOW_BYTES`]. What
//! comes after PE 0 has closed it is lost.

use std::os::fd::OwnedFd;

use anyhow::Result;
use memonet_control::events::{forget, listen};
use rustix::io::Errno;

/// Bytes that may be on the way to PE 0.
const WINDOW_BYTES: usize = 64 << 10;
/// Bytes read at once.
const PIECE_BYTES: usize = 16 << 10;

/// The standard input.
#[derive(Default)]
pub struct Input {
    /// Bytes on the way.
    sent: usize,
    ended: bool,
    /// Events report when there is something to read.
    listening: bool,
    /// Events cannot report it, as it is a file.
    is_file: bool,
}

impl Input {
    /// Whether to read now, without an event.
    pub fn is_due(&self) -> bool {
        self.is_file && self.wants()
    }

    fn wants(&self) -> bool {
        !self.ended && self.sent < WINDOW_BYTES && !is_in_background()
    }

    /// Listens if there is room for more, and only then.
    pub fn update(&mut self, events: &OwnedFd, token: u64) -> Result<()> {
        let stdin = rustix::stdio::stdin();
        if self.is_file || self.listening == self.wants() {
            return Ok(());
        }
        if self.listening {
            forget(events, stdin)?;
            self.listening = false;
        } else if listen(events, stdin, token).is_ok() {
            self.listening = true;
        } else {
            self.is_file = true;
        }
        Ok(())
    }

    /// Reads once. Some bytes, none at its end.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        if !self.wants() {
            return None;
        }
        let mut bytes = vec![0; PIECE_BYTES];
        match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(n) => bytes.truncate(n),
            Err(Errno::INTR | Errno::AGAIN) => return None,
            // Closed, or a terminal that has hung up.
            Err(_) => bytes.clear(),
        }
        self.ended = bytes.is_empty();
        self.sent += bytes.len();
        Some(bytes)
    }

    /// PE 0 was given so many bytes.
    pub fn taken(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_sub(bytes);
    }
}

/// Whether the standard input is a terminal in whose background this process is: the kernel stops a
/// process that reads there.
fn is_in_background() -> bool {
    // SAFETY: asks about a descriptor of this process; -1 where it is no terminal of its own.
    let foreground = unsafe { libc::tcgetpgrp(0) };
    foreground > 0 && foreground != rustix::process::getpgrp().as_raw_pid()
}
