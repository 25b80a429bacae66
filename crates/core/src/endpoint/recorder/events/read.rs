//! Reading the events of a part. They may be anything: a program can write over its part.

use super::layout::{Areas, HEADER_BYTES, RECORD_BYTES, TAKEN, TEXTS_TAKEN, WORDS, from_words};
use super::{Deed, Event, Sort, TextId};
use crate::base::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd};
use std::ops::Range;

/// Records that are read at once.
const AT_ONCE: u64 = 1024;

/// The events of a PE, in a file.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    fd: BorrowedFd<'a>,
    /// Where they begin in the file.
    at: u64,
    areas: Areas,
    npes: usize,
    records: u64,
    missing: u64,
    texts: Vec<u8>,
}

impl<'a> Events<'a> {
    /// The events from byte `at` of a file on, in so many bytes, of a PE in a job of `npes`.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(in crate::endpoint::recorder) fn of(
        fd: BorrowedFd<'a>,
        at: u64,
        bytes: u64,
        npes: usize,
    ) -> Result<Option<Events<'a>>> {
        let Some(areas) = Areas::of(bytes) else { return Ok(None) };
        let (taken, texts) = (word(fd, at + TAKEN)?, word(fd, at + TEXTS_TAKEN)?);
        let texts = read(fd, at + areas.text_at(0), texts.min(areas.texts))?;
        let records = taken.min(areas.capacity);
        let missing = taken - records;
        Ok(Some(Events { fd, at, areas, npes, records, missing, texts }))
    }

    /// The number of events that had no room.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The number of records that there may be.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The ranges that are used of the bytes of events.
    pub(in crate::endpoint::recorder) fn used(&self) -> [Range<u64>; 3] {
        let (texts, records) = (self.areas.text_at(0), self.areas.record_at(0));
        [
            0..HEADER_BYTES,
            texts..texts + self.texts.len() as u64,
            records..records + self.records * RECORD_BYTES,
        ]
    }

    /// A text; `None` where there is no such text.
    pub fn text(&self, id: TextId) -> Option<String> {
        let at = (id.0 as usize).checked_sub(4)?;
        let len = u32::from_le_bytes(*self.texts.get(at..)?.first_chunk()?) as usize;
        let text = self.texts.get(at + 4..)?.get(..len)?;
        // Texts go to terminals.
        Some(String::from_utf8_lossy(text).replace(char::is_control, "?"))
    }

    /// All events with their numbers, in the order in which threads have appended them: those of
    /// one thread in the order of their beginnings. What is no event is left out.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u64, Event)>> + '_ {
        let chunks = (0..self.records).step_by(AT_ONCE as usize);
        chunks.flat_map(|first| {
            let count = AT_ONCE.min(self.records - first);
            let bytes = read(self.fd, self.at + self.areas.record_at(first), count * RECORD_BYTES);
            let (bytes, error) = match bytes {
                Ok(bytes) => (bytes, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            let events: Vec<_> = bytes
                .chunks_exact(RECORD_BYTES as usize)
                .zip(first..)
                .filter_map(|(record, number)| Some(Ok((number, self.event(record)?))))
                .collect();
            error.into_iter().chain(events)
        })
    }

    /// The last call of the program, by any thread; `None` where there is none, or where it may be
    /// one that had no room.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn last_call(&self) -> Result<Option<Event>> {
        let first = self.records.saturating_sub(AT_ONCE);
        if self.missing > 0 {
            return Ok(None);
        }
        let at = self.at + self.areas.record_at(first);
        let bytes = read(self.fd, at, (self.records - first) * RECORD_BYTES)?;
        let mut events = bytes.chunks_exact(RECORD_BYTES as usize).rev();
        let call = |record| self.event(record).filter(|event| event.sort == Sort::Call);
        Ok(events.find_map(call))
    }

    fn event(&self, record: &[u8]) -> Option<Event> {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(record.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let event = from_words(&words)?;
        let is_there = match event.deed {
            Deed::Operation { at, .. } | Deed::Word { at, .. } => (at.pe as usize) < self.npes,
            _ => true,
        };
        let ends_after = event.end.is_none_or(|end| end >= event.start);
        (is_there && ends_after).then_some(event)
    }
}

fn word(fd: BorrowedFd<'_>, at: u64) -> Result<u64> {
    let bytes = read(fd, at, 8)?;
    Ok(bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
}

/// Bytes of a file. Those beyond its end are zeros.
pub(in crate::endpoint::recorder) fn read(fd: impl AsFd, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&fd, &mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::system("reading the file of records", error, "")),
        }
    }
    Ok(bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::memory::create_memfd;
    use proptest::prelude::*;

    proptest! {
        /// A part that holds anything.
        #[test]
        fn garbage_is_read_as_something(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..30_000),
            taken: u16,
            npes in 1..10usize,
            text: u32,
        ) {
            // As many records and texts as there may be, or more.
            for counter in [TAKEN, TEXTS_TAKEN] {
                if let Some(word) = bytes.get_mut(counter as usize..counter as usize + 8) {
                    word.copy_from_slice(&u64::from(taken).to_le_bytes());
                }
            }
            let fd = create_memfd("memonet-record", 40_000).unwrap();
            rustix::io::pwrite(&fd, &bytes, 0).unwrap();
            let events = Events::of(fd.as_fd(), 0, bytes.len() as u64, npes).unwrap();
            for event in events.iter().flat_map(|events| events.iter()) {
                let (_, event) = event.unwrap();
                prop_assert!(event.end.is_none_or(|end| end >= event.start));
                if let Deed::Operation { at, .. } | Deed::Word { at, .. } = event.deed {
                    prop_assert!((at.pe as usize) < npes);
                }
            }
            if let Some(text) = events.and_then(|events| events.text(TextId(text % 5000))) {
                prop_assert!(!text.contains(char::is_control));
            }
        }
    }
}
