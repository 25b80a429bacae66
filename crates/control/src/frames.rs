//! Frames: a greeting first, then messages in pieces, and heartbeats.

use anyhow::{Result, bail};
use memonet_core::unstable::layout;

/// The longest frame: what the kernel writes to a pipe in one piece (`PIPE_BUF`).
pub const FRAME_BYTES: usize = 4096;
/// A heartbeat: an empty frame.
pub const HEARTBEAT: [u8; HEADER] = [0; HEADER];

/// The longest message. The environment of a job is the longest.
const MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of a frame's header: its length without the header, and in the highest bit whether the
/// message goes on in the next frame.
const HEADER: usize = 2;
const MORE: u16 = 1 << 15;
/// Begins the greeting. A login shell does not print this by chance.
const MARK: &[u8] = b"\x01memonet control ";
/// The longest version.
const VERSION_BYTES: usize = 64;
/// Raised with every change to the messages.
const PROTOCOL: u32 = 8;

/// The version that both ends must have.
pub fn version() -> String {
    format!("{} (layout {}, control {PROTOCOL})", env!("CARGO_PKG_VERSION"), layout::VERSION)
}

/// The first bytes of a stream.
pub fn greeting() -> Vec<u8> {
    [MARK, version().as_bytes(), b"\n"].concat()
}

/// Adds the frames of a message, which is not empty.
pub fn frame(message: &[u8], to: &mut Vec<u8>) {
    let pieces = message.chunks(FRAME_BYTES - HEADER);
    let last = pieces.len() - 1;
    for (number, piece) in pieces.enumerate() {
        let more = if number < last { MORE } else { 0 };
        to.extend_from_slice(&(piece.len() as u16 | more).to_le_bytes());
        to.extend_from_slice(piece);
    }
}

/// The length of the first frame of these bytes, if all of it is there.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER>()?;
    let len = HEADER + usize::from(u16::from_le_bytes(*header) & !MORE);
    (len <= bytes.len()).then_some(len)
}

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A line before the greeting, which others have written.
    Foreign(String),
    /// The greeting, with the version at the other end.
    Greeting(String),
    /// The other end lives.
    Heartbeat,
    /// A message.
    Message(Vec<u8>),
}

/// Takes a stream apart.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// What was used of them.
    used: usize,
    message: Vec<u8>,
    greeted: bool,
}

impl Reader {
    /// Adds what has arrived.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.used));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next piece, if all of it has arrived.
    ///
    /// # Errors
    /// When this is no such stream. Nothing more can be read then.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        if !self.greeted {
            return self.next_greeting();
        }
        loop {
            let rest = &self.bytes[self.used..];
            let Some(len) = frame_len(rest) else { return Ok(None) };
            if len > FRAME_BYTES {
                bail!("a frame of {len} bytes, which is too long");
            }
            let (more, piece) = (rest[1] & 0x80 != 0, &rest[HEADER..len]);
            self.used += len;
            if piece.is_empty() {
                return Ok(Some(Piece::Heartbeat));
            }
            if self.message.len() + piece.len() > MESSAGE_BYTES {
                bail!("a message of more than {MESSAGE_BYTES} bytes, which is too long");
            }
            self.message.extend_from_slice(piece);
            if !more {
                return Ok(Some(Piece::Message(std::mem::take(&mut self.message))));
            }
        }
    }

    fn next_greeting(&mut self) -> Result<Option<Piece>> {
        let rest = &self.bytes[self.used..];
        let begins = rest.windows(MARK.len()).position(|window| window == MARK);
        let line = rest.iter().position(|&byte| byte == b'\n');
        match (begins, line) {
            (Some(0), Some(end)) => {
                let version = String::from_utf8_lossy(&rest[MARK.len()..end]).into_owned();
                self.used += end + 1;
                self.greeted = true;
                Ok(Some(Piece::Greeting(version)))
            }
            (Some(0), None) if rest.len() > MARK.len() + VERSION_BYTES => {
                bail!("a greeting without an end")
            }
            (Some(0), None) => Ok(None),
            // A prompt may stand before the greeting, without an end of its line.
            (Some(end), line) => Ok(Some(self.foreign(line.map_or(end, |at| end.min(at + 1))))),
            (None, Some(end)) => Ok(Some(self.foreign(end + 1))),
            (None, None) if rest.len() > FRAME_BYTES => Ok(Some(self.foreign(FRAME_BYTES / 2))),
            (None, None) => Ok(None),
        }
    }

    fn foreign(&mut self, len: usize) -> Piece {
        let text = &self.bytes[self.used..self.used + len];
        self.used += len;
        Piece::Foreign(String::from_utf8_lossy(text).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every piece of a stream that arrives in pieces of these lengths.
    fn read(stream: &[u8], lengths: &[usize]) -> Result<Vec<Piece>> {
        let (mut reader, mut pieces, mut rest) = (Reader::default(), Vec::new(), stream);
        let mut lengths = lengths.iter().cycle();
        while !rest.is_empty() {
            let len = lengths.next().map_or(rest.len(), |&len| len.clamp(1, rest.len()));
            reader.take(&rest[..len]);
            rest = &rest[len..];
            while let Some(piece) = reader.next_piece()? {
                pieces.push(piece);
            }
        }
        Ok(pieces)
    }

    proptest! {
        /// Heartbeats of another process may come between any two frames.
        #[test]
        fn what_was_framed_is_read(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..10_000), 0..5),
            lengths in prop::collection::vec(1..5000usize, 1..5),
        ) {
            let mut stream = greeting();
            for message in &messages {
                let mut frames = Vec::new();
                frame(message, &mut frames);
                let mut rest = &frames[..];
                while let Some(len) = frame_len(rest).filter(|&len| len > 0 && !rest.is_empty()) {
                    prop_assert!(len <= FRAME_BYTES);
                    stream.extend_from_slice(&rest[..len]);
                    stream.extend_from_slice(&HEARTBEAT);
                    rest = &rest[len..];
                }
                prop_assert!(rest.is_empty());
            }
            let pieces = read(&stream, &lengths).unwrap();
            prop_assert_eq!(&pieces[0], &Piece::Greeting(version()));
            let read: Vec<_> = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Message(message) => Some(message),
                _ => None,
            }).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn garbage_ends_in_an_error_or_waits_for_more(
            stream in prop::collection::vec(any::<u8>(), 0..20_000),
            greeted: bool,
        ) {
            let stream = if greeted { [greeting(), stream].concat() } else { stream };
            let _ = read(&stream, &[1000]);
        }
    }

    #[test]
    fn a_login_shells_words_are_told_apart() {
        let stream = [b"Welcome to a\n\nLast login: today\n% ".to_vec(), greeting()].concat();
        for lengths in [&[1][..], &[7], &[1000]] {
            let pieces = read(&stream, lengths).unwrap();
            let (last, foreign) = pieces.split_last().unwrap();
            assert_eq!(*last, Piece::Greeting(version()));
            let text: Vec<_> = foreign
                .iter()
                .map(|piece| match piece {
                    Piece::Foreign(line) => line.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(text.join("|"), "Welcome to a||Last login: today|%");
        }
    }
}
