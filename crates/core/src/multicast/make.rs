//! Making a channel: all PEs agree on it, then each makes its own end.

use super::reader::Reader;
use super::ring::Ring;
use super::writer::{Line, Peer, Writer};
use super::{Delivery, End, Multicast};
use crate::agree::KIND_MULTICAST;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::layout::ReaderLine;
use crate::route::Route;
use crate::shm::Plain;
use crate::window::{Inner, WindowOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

/// How [`Job::multicast`] makes a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MulticastOptions {
    capacity: usize,
    drop_slow: Option<Duration>,
    survive: bool,
}

impl Default for MulticastOptions {
    fn default() -> Self {
        MulticastOptions {
            capacity: 1 << 20,
            drop_slow: None,
            survive: false,
        }
    }
}

impl MulticastOptions {
    /// A capacity of 1 MiB; slow readers stop the writer, and a reader's death is an error.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that a reader may have unread before it stops the writer, rounded up to a power of two that has room for four elements.
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = bytes;
        self
    }

    /// Drops a reader that has stopped the writer for so long.
    pub fn drop_slow(mut self, after: Duration) -> Self {
        self.drop_slow = Some(after);
        self
    }

    /// Goes on without readers that die.
    pub fn survive_readers(mut self, survive: bool) -> Self {
        self.survive = survive;
        self
    }

    /// Differs where PEs ask for different channels, nearly always.
    fn digest(&self, writer: usize, readers: &[usize]) -> u64 {
        // The same in every process of a program.
        let mut hasher = DefaultHasher::new();
        (self, writer, readers).hash(&mut hasher);
        hasher.finish()
    }
}

/// Where the parts of a channel lie in each segment.
struct Places {
    lines: u64,
    ring: u64,
    bytes: u64,
    unit: u64,
}

impl Job {
    /// Makes a channel on which PE `writer` publishes blocks of `T` to `readers`, other PEs in any order. *Collective* over all PEs of the job; ends with a barrier.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`]; [`Error::Misuse`] when the writer is a reader, or a PE is one twice; [`Error::OutOfMemory`], [`Error::Unequal`],
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn multicast<T: Plain>(&self, writer: usize, readers: &[usize], options: MulticastOptions) -> Result<Multicast<T>> {
        let unit = align_of::<T>().max(8) as u64;
        // Room to align the ring, which begins somewhere in the window.
        let slack = if unit > LINE { unit } else { 0 };
        let request = self.check_channel(writer, readers).and_then(|()| {
            let bytes = Ring::bytes(options.capacity, size_of::<T>(), unit);
            let whole = bytes.and_then(|bytes| bytes.checked_add(slack + LINE * readers.len() as u64));
            let overflow = Error::Overflow {
                index: options.capacity,
                size: 1,
            };
            bytes.zip(whole).ok_or(overflow)
        });
        let digest = options.digest(writer, readers);
        let (bytes, whole) = match request {
            Ok(bytes) => bytes,
            // The others are not to wait for what this PE refuses.
            Err(error) => return Err(self.refuse_window(error)),
        };
        let lines = whole.div_ceil(LINE) as usize;
        let window = self.window_of::<ReaderLine>(KIND_MULTICAST, lines, WindowOptions::new(), digest)?;
        let start = window.inner.heap_offset().expect("not a restricted window");
        let places = Places {
            lines: start,
            ring: (start + LINE * readers.len() as u64).next_multiple_of(unit),
            bytes,
            unit,
        };
        let end = match readers.iter().position(|&reader| reader == self.pe()) {
            _ if writer == self.pe() => self.writers_end(readers, &options, &places, window.inner.clone()),
            Some(number) => self.readers_end(writer, number, &options, &places, window.inner.clone()),
            None => End::Neither,
        };
        Ok(Multicast {
            end,
            delivery: Delivery::Near,
            block: Vec::new(),
            has_parts: false,
            assembled: false,
            element: PhantomData,
        })
    }

    fn check_channel(&self, writer: usize, readers: &[usize]) -> Result<()> {
        let mut seen = vec![false; self.npes()];
        for &pe in std::iter::once(&writer).chain(readers) {
            self.pe.check_pe(pe)?;
            if std::mem::replace(&mut seen[pe], true) {
                return Err(Error::Misuse(
                    "a PE is in a multicast channel twice: readers are other PEs than the writer, each named once",
                ));
            }
        }
        Ok(())
    }

    fn writers_end(&self, readers: &[usize], options: &MulticastOptions, places: &Places, window: Arc<Inner>) -> End {
        let pe = &self.pe;
        let peer = |(number, &reader): (usize, &usize)| Peer {
            pe: reader,
            bell: pe.control().doorbell(reader),
            line: Line(pe.local(places.lines + LINE * number as u64)),
        };
        let base = pe.local(places.ring);
        End::Writer(Box::new(Writer {
            pe: pe.clone(),
            // SAFETY: of this PE's part of the window, which the writer's end keeps; `Ring::bytes` gave its length.
            ring: unsafe { Ring::new(base, places.bytes, places.unit) },
            position: 0,
            limit: 0,
            readers: readers.iter().enumerate().map(peer).collect(),
            dropped: Vec::new(),
            drop_slow: options.drop_slow,
            survive: options.survive,
            _window: window,
        }))
    }

    fn readers_end(&self, writer: usize, number: usize, options: &MulticastOptions, places: &Places, window: Arc<Inner>) -> End {
        let pe = &self.pe;
        let line = places.lines + LINE * number as u64;
        let Route::Near(base) = pe.route(writer, places.ring) else {
            unreachable!("near")
        };
        let Route::Near(own_line) = pe.route(writer, line) else {
            unreachable!("near")
        };
        End::Reader(Box::new(Reader {
            pe: pe.clone(),
            // SAFETY: of the writer's part of the window, which is mapped as long as the job; `Ring::bytes` gave its length.
            ring: unsafe { Ring::new(base, places.bytes, places.unit) },
            position: 0,
            told: 0,
            upstream: pe.route(writer, line + offset_of!(ReaderLine, position) as u64),
            bell: Some(pe.control().doorbell(writer)),
            line: options.drop_slow.map(|_| Line(own_line)),
            writer: [writer],
            _window: window,
        }))
    }
}

/// Bytes of a reader's line.
const LINE: u64 = size_of::<ReaderLine>() as u64;
