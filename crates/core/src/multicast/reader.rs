//! A reader's end: the next record, and this reader's position.

use super::datagrams::{Receiving, Sending};
use super::hosts::Head;
use super::position::{LEFT, PositionLine};
use super::ring::{Fragment, Header, Ring, written_over};
use super::stream::Gather;
use super::tree::Node;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Call, Cause, Error, Quick, Result};
use crate::base::process::UNKNOWN;
use crate::base::shm;
use crate::base::status::State;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::Counters;
use crate::endpoint::route::Route;
use crate::endpoint::{calls, ending};
use crate::wait::polling;
use crate::wait::{self, Awaiting, Terms};
use crate::window::Inner;
use std::sync::Arc;

pub(super) struct Reader {
    pub(super) pe: Arc<Pe>,
    /// Where this PE records.
    pub(super) counters: Option<Counters>,
    pub(super) ring: Ring,
    /// The next record.
    pub(super) position: u64,
    /// The position that was reported last.
    pub(super) reported: u64,
    pub(super) reporting: Reporting,
    /// Whether a record that has come needs nothing but to be read: nobody relays it, records it,
    /// or may overwrite it meanwhile, and a look takes no virtual time.
    pub(super) plain: bool,
    /// The line that says that this reader was dropped, on a channel that drops readers.
    pub(super) line: Option<PositionLine>,
    /// PEs whose death ends waits: the writer, and PEs that relay its log.
    pub(super) sources: Vec<usize>,
    pub(super) writer: usize,
    pub(super) gather: Gather,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

/// How a reader reports its position.
pub(super) enum Reporting {
    /// To the writer: by a word, and a doorbell that wakes it.
    Writer(Route, Doorbell),
    /// By its node of the tree.
    Node(Arc<Node>),
    /// By datagrams.
    Datagrams(Arc<Receiving>),
    /// By a node without children, to the PE in whose segment it reads, as far as the front there.
    /// That PE itself brings the log there.
    Host { node: Arc<Node>, front: PositionLine, head: Option<Arc<Head>> },
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

    /// Whether blocks may be overwritten while they are read, so that they must be copied.
    #[inline]
    pub(super) fn copies(&self) -> bool {
        self.line.is_some()
    }

    /// Checks that nothing read so far was overwritten: this PE is still a reader.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match self.line {
            Some(line) => {
                // M5: the look comes after the reads.
                shm::compiler_fence();
                if line.is_dropped() { Err(Error::Dropped { call: None }) } else { Ok(()) }
            }
            None => match &self.reporting {
                Reporting::Datagrams(receiving) => receiving.check(),
                Reporting::Node(node) | Reporting::Host { node, .. } => node.check(),
                _ => Ok(()),
            },
        }
    }

    /// Checks that something may still come.
    #[inline]
    fn check_silence(&self) -> Result<()> {
        self.check()?;
        match &self.reporting {
            Reporting::Datagrams(receiving) if receiving.is_writer_silent() => {
                Err(Error::Silent { pe: self.writer, after: Sending::dead_after(), call: None })
            }
            _ => Ok(()),
        }
    }

    /// Whether the next record is there.
    #[inline(always)]
    fn has_next(&self) -> bool {
        match &self.reporting {
            Reporting::Datagrams(receiving) => receiving.has(&self.ring, self.position),
            Reporting::Host { front, .. } => front.position() > self.position, // H1
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
            // From here to the caller each instruction adds to a short block's latency. So rare
            // cases come last.
            let word = self.ring.word(self.position);
            // The words that a dropped reader sees have no meaning.
            self.check()?;
            if let Some(len) = self.ring.whole(self.position, word) {
                let part = Fragment::WHOLE;
                return Ok(Some(Record { len, part }));
            }
            match self.ring.decode(self.position, word)? {
                Header::Block { len, part } => return Ok(Some(Record { len, part })),
                Header::Padding { len } => self.position += len as u64,
                Header::End { failed } => return Err(self.end(failed)),
            }
        }
    }

    /// The error behind the last block.
    #[cold]
    fn end(&self, failed: Option<usize>) -> Error {
        match failed {
            None => Error::Closed { call: None },
            Some(pe) if pe == self.writer => self.pe.failed(pe, Cause::Panic),
            Some(pe) if pe < self.pe.npes() => {
                // The word may come before the news of the death.
                let death = self.pe.control().death(pe);
                self.pe.failed(pe, death.map_or(UNKNOWN, |(_, cause)| cause))
            }
            Some(_) => written_over(),
        }
    }

    /// [`look`](Self::look), for a program that tries until it succeeds. Such a loop is a wait, and
    /// ends like one.
    #[inline]
    pub(super) fn try_next(&mut self) -> Result<Option<Record>> {
        match self.look()? {
            None => self.look_again(),
            found => Ok(found),
        }
    }

    #[cold]
    fn look_again(&mut self) -> Result<Option<Record>> {
        self.report();
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

    /// Waits for the next record, in a call of the program.
    #[inline(always)]
    pub(super) fn next(&mut self, call: Call) -> Result<Record> {
        if !self.has_next() {
            self.catch_up();
        }
        let found = wait::first_looks(&self.pe, &mut || self.has_next().then_some(()));
        if found.is_some()
            && let Some(record) = self.look()?
        {
            return Ok(record);
        }
        // `wait` has another error type. With this call's own, it would write into this call's
        // result, which would then be in memory even where nothing is waited for.
        Ok(calls::within(call.name, Some(call.at), None, || self.wait())?)
    }

    /// Waits a little for the next record, in a call of the program, and gives its length. `None`:
    /// it has not come, or has to be looked at by [`next`](Self::next). From the look that finds it
    /// to the caller each instruction adds to a short block's latency.
    #[inline(always)]
    pub(super) fn next_at_once(&mut self) -> Option<usize> {
        // A call that may wait wakes those to which this PE has written.
        if !self.plain || self.pe.may_have_written() || ending::is_forked() {
            return None;
        }
        let mut word = self.ring.word(self.position);
        if word == 0 {
            word = self.first_looks();
        }
        self.ring.whole(self.position, word)
    }

    /// The next record's header; 0 if it does not come soon.
    #[inline(never)]
    fn first_looks(&mut self) -> u64 {
        self.catch_up();
        let look = || Some(self.ring.word(self.position)).filter(|&word| word != 0);
        wait::first_looks(&self.pe, &mut { look }).unwrap_or(0)
    }

    /// There is no next record yet, in a call that waits for it.
    fn catch_up(&mut self) {
        let near = matches!(self.reporting, Reporting::Writer(..) | Reporting::Node(_));
        if cfg!(not(loom)) && near && self.pe.spins() && !self.pe.is_simulated() {
            self.pe.wake_written();
            self.gather.caught_up();
        }
    }

    #[cold]
    fn wait(&mut self) -> Quick<Record> {
        loop {
            self.report();
            let come = || (self.has_next() || self.check_silence().is_err()).then_some(());
            self.terms(|terms| wait::until(&self.pe, terms, come))?;
            // After a padding record there may be nothing yet.
            if let Some(record) = self.look()? {
                return Ok(record);
            }
        }
    }

    #[inline]
    fn terms<R>(&self, f: impl FnOnce(Terms<'_>) -> R) -> R {
        // A writer that leaves says so in the ring. A PE that relays, or that repairs, goes on with
        // that until it is gone.
        let relays = |pe: usize| match &self.reporting {
            Reporting::Node(_) | Reporting::Host { .. } => {
                pe != self.sources[0] || self.pe.control().state(pe) != State::Done
            }
            Reporting::Datagrams(_) => {
                pe != self.writer || self.pe.control().state(pe) == State::Finalizing
            }
            Reporting::Writer(..) => pe != self.writer,
        };
        f(Terms::forever(Awaiting::Channel { ends: &self.sources, done: &relays }))
    }

    /// Keeps the place of the next record, which has come, unchanged until the record is consumed.
    /// Near, and with datagrams, nothing writes there anyway before this reader has reported.
    pub(super) fn show(&self) -> Result<()> {
        match &self.reporting {
            Reporting::Node(node) | Reporting::Host { node, .. } => node.show(),
            _ => Ok(()),
        }
    }

    /// Address of the block of the next record, which has come.
    #[inline]
    pub(super) fn block(&self) -> *const u8 {
        self.ring.block(self.position).cast_const()
    }

    /// Consumes the next record.
    #[inline]
    pub(super) fn consume(&mut self, record: Record) {
        self.position += self.ring.record(record.len);
        self.gather.passed();
        if !self.plain {
            self.tell_consumed(record);
        }
        // M4.
        if self.position - self.reported >= self.ring.report_after() {
            self.report();
        }
    }

    #[inline(never)]
    fn tell_consumed(&self, record: Record) {
        if ending::refuse_child(&self.pe).is_err() {
            return;
        }
        if let Some(counters) = &self.counters {
            counters.passed(record.len, record.part.last);
        }
        if let Reporting::Node(node) | Reporting::Host { node, .. } = &self.reporting {
            node.hide();
        }
    }

    #[inline(never)]
    fn report(&mut self) {
        // What a forked child has a copy of, its parent may still be reading.
        if self.reported != self.position && ending::refuse_child(&self.pe).is_ok() {
            self.reported = self.position;
            match &self.reporting {
                Reporting::Writer(word, bell) => {
                    word.store(&self.pe, self.position);
                    self.pe.ring_bell(*bell);
                }
                Reporting::Node(node) | Reporting::Host { node, .. } => {
                    node.advance(self.position, true);
                }
                Reporting::Datagrams(receiving) => receiving.consume(self.position),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if ending::refuse_child(&self.pe).is_err() {
            return;
        }
        match &self.reporting {
            Reporting::Writer(word, bell) => {
                word.store(&self.pe, LEFT);
                self.pe.ring_bell(*bell);
            }
            Reporting::Node(node) => node.leave(),
            Reporting::Datagrams(receiving) => receiving.leave(),
            Reporting::Host { node, head, .. } => {
                node.leave();
                head.iter().for_each(Head::leave);
            }
        }
    }
}
