//! The two ends of a control stream. Neither blocks.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use rustix::io::Errno;

use super::codec::{Wire, encode};
use super::events;
use super::frames::{HEARTBEAT, Piece, Reader, frame, frame_len, greeting};

/// Bytes read at once.
const SCRATCH_BYTES: usize = 64 << 10;

/// The end that is written to.
pub struct Sender<Fd> {
    fd: Fd,
    waiting: Vec<u8>,
    /// What was written of it.
    written: usize,
    /// The end of the frame that is being written.
    end: usize,
    /// An event reports when there is room.
    listening: bool,
}

impl<Fd: AsFd> Sender<Fd> {
    /// Begins a stream with a greeting.
    pub fn new(fd: Fd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let waiting = greeting();
        Ok(Sender { fd, end: waiting.len(), waiting, written: 0, listening: false })
    }

    /// Adds a message.
    pub fn send(&mut self, message: &impl Wire) {
        self.send_encoded(&encode(message));
    }

    /// Adds a message that is bytes already.
    pub fn send_encoded(&mut self, message: &[u8]) {
        frame(message, &mut self.waiting);
    }

    /// Adds a heartbeat, unless something else waits, which says as much.
    pub fn beat(&mut self) {
        if self.is_empty() {
            self.waiting.extend_from_slice(&HEARTBEAT);
        }
    }

    /// Whether all was written.
    pub fn is_empty(&self) -> bool {
        self.written == self.waiting.len()
    }

    /// Writes what there is room for, each frame in one piece. From then on, `events` reports
    /// `token` when there is room for more.
    pub fn flush(&mut self, events: &OwnedFd, token: u64) -> Result<()> {
        while !self.is_empty() {
            if self.end <= self.written {
                let rest = &self.waiting[self.written..];
                self.end = self.written + frame_len(rest).unwrap_or(rest.len());
            }
            match rustix::io::write(&self.fd, &self.waiting[self.written..self.end]) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The other end is gone, which the stream in the other direction tells.
                Err(_) => self.written = self.waiting.len(),
            }
        }
        if self.is_empty() {
            self.waiting.clear();
            (self.written, self.end) = (0, 0);
        }
        if self.written > SCRATCH_BYTES {
            self.waiting.drain(..self.written);
            (self.written, self.end) = (0, self.end - self.written);
        }
        let listen = !self.is_empty();
        if listen != self.listening {
            self.listening = listen;
            match listen {
                true => events::listen_for_room(events, &self.fd, token)?,
                false => events::forget(events, &self.fd)?,
            }
        }
        Ok(())
    }
}

/// The end that is read from.
pub struct Receiver<Fd> {
    fd: Fd,
    reader: Reader,
    scratch: Vec<u8>,
}

impl<Fd: AsFd> Receiver<Fd> {
    /// A stream from its beginning.
    pub fn new(fd: Fd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Receiver { fd, reader: Reader::default(), scratch: vec![0; SCRATCH_BYTES] })
    }

    /// Its descriptor.
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Reads once. `None` at the end of the stream, else the number of bytes.
    pub fn read(&mut self) -> Option<usize> {
        match rustix::io::read(&self.fd, &mut self.scratch[..]) {
            Ok(0) => None,
            Ok(n) => {
                self.reader.take(&self.scratch[..n]);
                Some(n)
            }
            Err(Errno::INTR | Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }

    /// The next piece of what was read.
    ///
    /// # Errors
    /// When this is no control stream.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        self.reader.next_piece()
    }
}
