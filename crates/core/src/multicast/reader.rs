//! A reader's end: the next record, and how far this PE is.

use super::datagrams::{Receiving, Sending};
use super::ring::{Fragment, Header, Ring};
use super::tree::Node;
use super::writer::{LEFT, PositionLine};
use crate::base::doorbell::Doorbell;
use crate::base::error::{Error, Quick, Result};
use crate::base::shm;
use crate::base::status::State;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::wait::polling;
use crate::wait::{self, Awaiting, Terms};
use crate::window::Inner;
use std::sync::Arc;

pub(super) struct Reader {
    pub(super) pe: Arc<Pe>,
    pub(super) ring: Ring,
    /// The next record.
    pub(super) position: u64,
    /// What the writer has been told.
    pub(super) told: u64,
    pub(super) upstream: Told,
    /// Where the writer says that this reader was dropped, on a channel that drops readers.
    pub(super) line: Option<PositionLine>,
    /// Whose death ends waits: the writer, and who passes on what it writes.
    pub(super) sources: Vec<usize>,
    pub(super) writer: usize,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

/// Whom a reader tells how far it is.
pub(super) enum Told {
    /// The writer: its word, and what wakes it.
    Writer(Route, Doorbell),
    /// Its place in the tree.
    Node(Arc<Node>),
    /// What brings datagrams.
    Datagrams(Arc<Receiving>),
}

/// A record that has come.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) len: usize,
    pub(super) part: Fragment,
}

impl Reader {
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether what is read may be overwritten meanwhile, and must be copied.
    #[inline]
    pub(super) fn copies(&self) -> bool {
        self.line.is_some()
    }

    /// That nothing read so far was overwritten: this reader is still one.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match self.line {
            Some(line) => {
                // After what was read.
                shm::compiler_fence();
                if line.is_dropped() { Err(Error::Dropped) } else { Ok(()) }
            }
            None => match &self.upstream {
                Told::Datagrams(receiving) if receiving.is_dropped() => Err(Error::Dropped),
                Told::Node(node) => node.check(),
                _ => Ok(()),
            },
        }
    }

    /// That something may still come.
    #[inline]
    fn check_silence(&self) -> Result<()> {
        self.check()?;
        match &self.upstream {
            Told::Datagrams(receiving) if receiving.is_writer_silent() => {
                Err(Error::Silent { pe: self.writer, after: Sending::dead_after() })
            }
            _ => Ok(()),
        }
    }

    /// Whether the next record is there.
    #[inline(always)]
    fn has_next(&self) -> bool {
        match &self.upstream {
            Told::Datagrams(receiving) => receiving.has(&self.ring, self.position),
            _ => self.ring.word(self.position) != 0,
        }
    }

    /// The next record, if it has come.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Result<Option<Record>> {
        loop {
            if !self.has_next() {
                self.check_silence()?;
                return Ok(None);
            }
            // From here to the caller nothing overlaps anything: a short block's latency. So what
            // is rare is out of the way.
            let word = self.ring.word(self.position);
            // A dropped reader's words are anything.
            self.check()?;
            if let Some(len) = self.ring.whole(self.position, word) {
                let part = Fragment::WHOLE;
                return Ok(Some(Record { len, part }));
            }
            match self.ring.decode(self.position, word)? {
                Header::Block { len, part } => return Ok(Some(Record { len, part })),
                Header::Padding { len } => self.position += len as u64,
                Header::End => return Err(Error::Closed),
            }
        }
    }

    /// [`look`](Self::look), for a program that tries until it succeeds: that is a wait, and ends
    /// like one.
    #[inline]
    pub(super) fn try_next(&mut self) -> Result<Option<Record>> {
        match self.look()? {
            None => self.look_again(),
            found => Ok(found),
        }
    }

    #[cold]
    fn look_again(&mut self) -> Result<Option<Record>> {
        self.tell();
        self.pe.progress();
        self.pe.wake_written();
        let departed = self.terms(|terms| terms.departed(&self.pe));
        let found = self.look()?;
        polling::has_looked(&self.pe, found.is_some());
        match (found, departed) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Waits for the next record.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Record> {
        let found = wait::first_looks(&self.pe, &mut || self.has_next().then_some(()));
        if found.is_some()
            && let Some(record) = self.look()?
        {
            return Ok(record);
        }
        // Of another type: written into the place of this call's own result, it would keep that in
        // memory where nothing is waited for, too.
        Ok(self.wait()?)
    }

    #[cold]
    fn wait(&mut self) -> Quick<Record> {
        loop {
            self.tell();
            let come = || (self.has_next() || self.check_silence().is_err()).then_some(());
            self.terms(|terms| wait::until(&self.pe, terms, come))?;
            // After padding there may be nothing yet.
            if let Some(record) = self.look()? {
                return Ok(record);
            }
        }
    }

    #[inline]
    fn terms<R>(&self, f: impl FnOnce(Terms<'_>) -> R) -> R {
        // A writer that leaves says so in the ring, and who passes on goes on with that until it is
        // gone.
        let passes_on = |pe: usize| match &self.upstream {
            Told::Node(_) => pe != self.sources[0] || self.pe.control().state(pe) != State::Done,
            _ => pe != self.writer,
        };
        f(Terms::forever(Awaiting::Channel { ends: &self.sources, done: &passes_on }))
    }

    /// Has the place of the next record, which has come, stay as it is until it is consumed. Near,
    /// and with datagrams, that needs nothing: nobody writes there before this reader has told that
    /// it is done.
    pub(super) fn show(&self) -> Result<()> {
        match &self.upstream {
            Told::Node(node) => node.show(),
            _ => Ok(()),
        }
    }

    /// Where the block of the next record, which has come, is.
    #[inline]
    pub(super) fn block(&self) -> *const u8 {
        self.ring.block(self.position).cast_const()
    }

    /// This PE is done with the next record.
    #[inline]
    pub(super) fn consume(&mut self, record: Record) {
        self.position += self.ring.record(record.len);
        if let Told::Node(node) = &self.upstream {
            node.hide();
        }
        if self.position - self.told >= self.ring.len() / 8 {
            self.tell();
        }
    }

    #[inline(never)]
    fn tell(&mut self) {
        if self.told != self.position {
            self.told = self.position;
            match &self.upstream {
                Told::Writer(word, bell) => {
                    word.store(&self.pe, self.position);
                    self.pe.ring_bell(*bell);
                }
                Told::Node(node) => node.advance(self.position, true),
                Told::Datagrams(receiving) => receiving.consume(self.position),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        match &self.upstream {
            Told::Writer(word, bell) => {
                word.store(&self.pe, LEFT);
                self.pe.ring_bell(*bell);
            }
            Told::Node(node) => node.leave(),
            Told::Datagrams(receiving) => receiving.leave(),
        }
    }
}
