//! What is to be sent: bytes that lie here, and blocks that lie elsewhere, in order.

use memonet_core::unstable::shm;
use std::collections::VecDeque;

/// Bytes to send, somewhere in memory.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Where they begin.
    pub start: *const u8,
    /// How many.
    pub len: usize,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    /// The next bytes of the buffer.
    Own(usize),
    Elsewhere(Piece),
}

/// What is to be sent on a stream.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// How many of `bytes` have been sent.
    head: usize,
    parts: VecDeque<Part>,
    /// Bytes that were ever added, and sent.
    added: u64,
    sent: u64,
}

// SAFETY: pieces are addresses that whoever added them keeps readable for any thread (W9).
unsafe impl Send for Outbox {}

/// So many sent bytes are kept before the rest is moved to the front.
const SENT: usize = 32 << 10;

impl Outbox {
    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes here that are to be sent.
    #[inline]
    pub fn buffered(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Parts that are to be sent: more than one only where there are blocks elsewhere.
    #[inline]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes that were ever added; once [`sent`](Self::sent) is as large, they have been sent.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Bytes that were ever sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    #[inline]
    fn grew(&mut self, len: usize) {
        self.added += len as u64;
        match self.parts.back_mut() {
            Some(Part::Own(own)) => *own += len,
            _ => self.parts.push_back(Part::Own(len)),
        }
    }

    /// Adds bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.grew(bytes.len());
    }

    /// Adds a copy of a block.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    #[inline]
    pub unsafe fn push_copy(&mut self, src: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        self.bytes.reserve(len);
        let end = self.bytes.len();
        // SAFETY: the caller promises the source; the vector has room for `len` bytes, which are
        // all written.
        unsafe {
            shm::copy(self.bytes.as_mut_ptr().add(end), src, len);
            self.bytes.set_len(end + len);
        }
        self.grew(len);
    }

    /// Adds a block that stays where it is. Gives the number of bytes after which it was sent.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes until then, or until the box is dropped or cleared.
    pub unsafe fn push_piece(&mut self, src: *const u8, len: usize) -> u64 {
        self.parts.push_back(Part::Elsewhere(Piece { start: src, len }));
        self.added += len as u64;
        self.added
    }

    /// The first pieces to send, as many as there are or as fit; gives how many.
    pub fn pieces(&self, into: &mut [Piece]) -> usize {
        let (mut at, mut count) = (self.head, 0);
        for (part, slot) in self.parts.iter().zip(into) {
            *slot = match *part {
                Part::Own(len) => {
                    let start = self.bytes[at..at + len].as_ptr();
                    at += len;
                    Piece { start, len }
                }
                Part::Elsewhere(piece) => piece,
            };
            count += 1;
        }
        count
    }

    /// The next bytes, so many, have been sent.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn consume(&mut self, mut len: usize) {
        self.sent += len as u64;
        while len > 0 {
            let part = self.parts.front_mut().expect("sent what there was");
            let (left, own) = match part {
                Part::Own(left) => (left, true),
                Part::Elsewhere(piece) => {
                    piece.start = piece.start.wrapping_add(len.min(piece.len));
                    (&mut piece.len, false)
                }
            };
            let some = len.min(*left);
            *left -= some;
            len -= some;
            let through = *left == 0;
            self.head += if own { some } else { 0 };
            if through {
                self.parts.pop_front();
            }
        }
        if self.parts.is_empty() {
            self.bytes.clear();
            self.head = 0;
        } else if self.head >= SENT && self.head * 2 >= self.bytes.len() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    /// The first bytes of all, which have been sent, were lost.
    pub fn send_again(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.sent -= bytes.len() as u64;
        self.bytes.splice(self.head..self.head, bytes.iter().copied());
        match self.parts.front_mut() {
            Some(Part::Own(own)) => *own += bytes.len(),
            _ => self.parts.push_front(Part::Own(bytes.len())),
        }
    }

    /// Whether a block that is to be sent lies in that range.
    pub fn refers_to(&self, start: *const u8, len: usize) -> bool {
        let end = start as usize + len;
        self.parts.iter().any(|part| match part {
            Part::Own(_) => false,
            Part::Elsewhere(piece) => {
                (piece.start as usize) < end && (start as usize) < piece.start as usize + piece.len
            }
        })
    }

    /// Forgets what is to be sent.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
        self.head = 0;
        self.parts.clear();
        self.sent = self.added;
    }
}
